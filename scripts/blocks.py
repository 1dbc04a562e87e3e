"""The code blocks of the documentation: extracted, and checked for errors.

The marks of blocks and the checks: docs/project/writing.md. `python -m scripts.blocks PAGE`
prints a page's commands as a script.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from eurekube_provider.cli.commands import COMMAND_SUMMARIES, load_command_parser
from eurekube_provider.core.identity import NATIVE_INSTANCE_TYPE
from eurekube_provider.provider.served_schema import package_schema_json

CODE_BLOCK_PATTERN = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n`]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
CHECKED_PROGRAMS = ("eurekube", "kubectl", "helm", "pulumi")
KNOWN_FLAGS_FILE = Path(__file__).parent / "known_flags.toml"
COMPILED_LANGUAGES = ("csharp", "go", "java", "typescript")
"""Languages of pages for Pulumi's registry only, whose code comes from examples that `make sdks` compiles."""

BLOCK_LANGUAGES = (
    "",
    "bash",
    "console",
    "json",
    "mermaid",
    "python",
    "sh",
    "toml",
    "yaml",
    *COMPILED_LANGUAGES,
)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A code block of a page, without its indentation; `line` is the number of its first line, from 1."""

    page: Path
    line: int
    language: str
    text: str

    def script(self) -> str:
        """Return the block's commands: the text of a `bash` or `sh` block, the lines after a prompt of
        another block, or nothing.

        A block without a language consists of commands if its first word is one of :data:`CHECKED_PROGRAMS`.
        """
        if self.language in ("bash", "sh"):
            return self.text
        if self.language not in ("", "console"):
            return ""
        prompted = re.findall(r"^\$ (.*(?:\\\n.*)*)$", self.text, re.M)
        if prompted:
            return "\n".join(prompted) + "\n"
        first = next((line for line in self.text.splitlines() if line.strip()), "").split(" ")[0]
        return (
            self.text
            if first in CHECKED_PROGRAMS and not re.search(r"^ {2,}[+!~-] ", self.text, re.M)
            else ""
        )


def find_code_blocks(page: Path) -> Iterator[CodeBlock]:
    """Yield the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in CODE_BLOCK_PATTERN.finditer(text):
        yield CodeBlock(
            page, text.count("\n", 0, found.start()) + 1, found["language"], textwrap.dedent(found["text"])
        )


def extract_named_files(page: Path) -> dict[str, str]:
    """Return the text of each Python file that a page tells its reader to write, by the file's name."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)^```$", text, re.M | re.S)
    return dict(found)


def find_block_errors(block: CodeBlock) -> list[str]:
    """Return a sentence for each error in a block."""
    if block.language not in BLOCK_LANGUAGES:
        return [f"the language {block.language!r} is none of {', '.join(filter(None, BLOCK_LANGUAGES))}"]
    try:
        match block.language:
            case "python":
                ast.parse(block.text)
            case "yaml":
                list(yaml.safe_load_all(block.text))
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        return [f"is no {block.language}: {error}"]
    script = block.script()
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    if checked.returncode:
        return [f"is no bash: {checked.stderr.strip()}"]
    return [said for words in split_commands(script) for said in _find_unknown_flags(words)]


def split_commands(script: str) -> Iterator[list[str]]:
    """Yield the simple commands of a script that call one of the programs, word by word."""
    text = re.sub(r"<<'?(\w+)'?(.*)\n(?:.*\n)*?\s*\1\n", r"\2\n", script)
    text = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", text.replace("\\\n", " "))
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quoted text that goes over several lines
            words = line.split()
        for part in _split_at_operators(words):
            while part and re.match(r"\w+=", part[0]):
                part = part[1:]  # noqa: PLW2901
            if part[:1] == ["kubectl"] and part[1:2] == ["eurekube"]:
                part = part[1:]  # noqa: PLW2901
            if part and part[0] in CHECKED_PROGRAMS:
                yield part


def _split_at_operators(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if re.fullmatch(r"[|&;()]+|if|then|do", word) and [*part, word] != ["pulumi", "do"]:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _find_unknown_flags(words: list[str]) -> list[str]:
    """Return a sentence for a subcommand or flag of a command that its program does not have."""
    program, *rest = words
    rest = rest[: rest.index("--")] if "--" in rest else rest
    if program == "eurekube":
        return _find_unknown_eurekube_flags(rest)
    known = tomllib.loads(KNOWN_FLAGS_FILE.read_text(encoding="utf-8"))[program]
    flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    named = [word for word in rest if not word.startswith("-")]
    names = [name for name in known if name != "always" and _is_subsequence(name.split(), named)]
    if not names:
        return [f"`{shlex.join(words)}`: {KNOWN_FLAGS_FILE.name} has no such command of {program}"]
    allowed = {*known[max(names, key=len)], *known.get("always", ())}
    if (program, names) == ("pulumi", ["do"]):
        allowed |= {"--yes", *_schema_flags()}
    return [
        f"`{program} {max(names, key=len)}` has no {flag} in {KNOWN_FLAGS_FILE.name}"
        for flag in flags - allowed
    ]


@functools.cache
def _schema_flags() -> set[str]:
    """Return the flags that `pulumi do` derives from the provider's schema, for an Instance and for the
    provider.
    """
    described = json.loads(package_schema_json())
    resource = described["resources"][NATIVE_INSTANCE_TYPE]
    names = {*resource["inputProperties"], *resource["listInputs"]["properties"]}
    names |= {f"eurekube:{name}" for name in described["config"]["variables"]}
    return {f"--{re.sub('[A-Z]', lambda found: f'-{found[0].lower()}', name)}" for name in names}


def _is_subsequence(name: list[str], words: list[str]) -> bool:
    """Return whether the words of a command's name occur in this order among the words, which may hold
    flags' values.
    """
    left = iter(words)
    return all(word in left for word in name)


def _find_unknown_eurekube_flags(rest: list[str]) -> list[str]:
    command = next((word for word in rest if not word.startswith("-")), "")
    if command in ("", "COMMAND"):
        return []
    help_text = _command_help(command)
    if help_text is None:
        return [f"eurekube has no command {command!r}"]
    flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return [
        f"`eurekube {command}` has no {flag}"
        for flag in sorted(flags)
        if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_text)
    ]


@functools.cache
def _command_help(command: str) -> str | None:
    """Return the help text of one of Eurekube's commands; None where no such command exists."""
    return load_command_parser(command).format_help() if command in COMMAND_SUMMARIES else None


def main() -> None:
    """Print the `bash` blocks of the page that the command line names, in order."""
    print(
        "".join(block.text for block in find_code_blocks(Path(sys.argv[1])) if block.language == "bash"),
        end="",
    )


if __name__ == "__main__":
    main()
