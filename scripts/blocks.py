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

from eurekube_provider.cli.command_parser import parser_of
from eurekube_provider.cli.commands import COMMANDS
from eurekube_provider.core.identity import NATIVE_INSTANCE_TYPE
from eurekube_provider.provider.served_schema import served_schema

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n`]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
PROGRAMS = ("eurekube", "kubectl", "helm", "pulumi")
KNOWN_FLAGS = Path(__file__).parent / "known_flags.toml"
COMPILED = ("csharp", "go", "java", "typescript")
"""Languages of pages for Pulumi's registry only, whose code comes from examples that `make sdks` compiles."""

LANGUAGES = ("", "bash", "console", "json", "mermaid", "python", "sh", "toml", "yaml", *COMPILED)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page, without its indentation; `line` is where it begins, from 1."""

    page: Path
    line: int
    language: str
    text: str

    def script(self) -> str:
        """Return the block's commands: a `bash` or `sh` block as a whole, of others the lines after a prompt,
        or nothing.

        A block without a language consists of commands if its first word is one of :data:`PROGRAMS`.
        """
        if self.language in ("bash", "sh"):
            return self.text
        if self.language not in ("", "console"):
            return ""
        prompted = re.findall(r"^\$ (.*(?:\\\n.*)*)$", self.text, re.M)
        if prompted:
            return "\n".join(prompted) + "\n"
        first = next((line for line in self.text.splitlines() if line.strip()), "").split(" ")[0]
        return self.text if first in PROGRAMS and not re.search(r"^ {2,}[+!~-] ", self.text, re.M) else ""


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(
            page, text.count("\n", 0, found.start()) + 1, found["language"], textwrap.dedent(found["text"])
        )


def files(page: Path) -> dict[str, str]:
    """Return the Python files that a page tells its reader to write: the block after each file name."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)^```$", text, re.M | re.S)
    return dict(found)


def complaints(block: Block) -> list[str]:
    """Return a sentence for each error in a block."""
    if block.language not in LANGUAGES:
        return [f"the language {block.language!r} is none of {', '.join(filter(None, LANGUAGES))}"]
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
    return [said for words in commands(script) for said in _unknown(words)]


def commands(script: str) -> Iterator[list[str]]:
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
        for part in _parts(words):
            while part and re.match(r"\w+=", part[0]):
                part = part[1:]  # noqa: PLW2901
            if part[:1] == ["kubectl"] and part[1:2] == ["eurekube"]:
                part = part[1:]  # noqa: PLW2901
            if part and part[0] in PROGRAMS:
                yield part


def _parts(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if re.fullmatch(r"[|&;()]+|if|then|do", word) and [*part, word] != ["pulumi", "do"]:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _unknown(words: list[str]) -> list[str]:
    """Return a sentence for a subcommand or flag of a command that its program does not have."""
    program, *rest = words
    rest = rest[: rest.index("--")] if "--" in rest else rest
    if program == "eurekube":
        return _unknown_to_us(rest)
    known = tomllib.loads(KNOWN_FLAGS.read_text(encoding="utf-8"))[program]
    flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    named = [word for word in rest if not word.startswith("-")]
    names = [name for name in known if name != "always" and _is_within(name.split(), named)]
    if not names:
        return [f"`{shlex.join(words)}`: {KNOWN_FLAGS.name} has no such command of {program}"]
    allowed = {*known[max(names, key=len)], *known.get("always", ())}
    if (program, names) == ("pulumi", ["do"]):
        allowed |= {"--yes", *_made_of_the_schema()}
    return [
        f"`{program} {max(names, key=len)}` has no {flag} in {KNOWN_FLAGS.name}" for flag in flags - allowed
    ]


@functools.cache
def _made_of_the_schema() -> set[str]:
    """Return the flags that `pulumi do` derives from the provider's schema, for an Instance and for the
    provider.
    """
    described = json.loads(served_schema())
    resource = described["resources"][NATIVE_INSTANCE_TYPE]
    names = {*resource["inputProperties"], *resource["listInputs"]["properties"]}
    names |= {f"eurekube:{name}" for name in described["config"]["variables"]}
    return {f"--{re.sub('[A-Z]', lambda found: f'-{found[0].lower()}', name)}" for name in names}


def _is_within(name: list[str], words: list[str]) -> bool:
    """Return whether the words of a command's name occur in this order among the words, which may hold
    flags' values.
    """
    left = iter(words)
    return all(word in left for word in name)


def _unknown_to_us(rest: list[str]) -> list[str]:
    command = next((word for word in rest if not word.startswith("-")), "")
    if command in ("", "COMMAND"):
        return []
    help_text = _help_of(command)
    if help_text is None:
        return [f"eurekube has no command {command!r}"]
    flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return [
        f"`eurekube {command}` has no {flag}"
        for flag in sorted(flags)
        if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_text)
    ]


@functools.cache
def _help_of(command: str) -> str | None:
    """Return the help text of one of Eurekube's commands; None where no such command exists."""
    return parser_of(command).format_help() if command in COMMANDS else None


def main() -> None:
    """Print the `bash` blocks of the page that the command line names, in order."""
    print("".join(block.text for block in blocks(Path(sys.argv[1])) if block.language == "bash"), end="")


if __name__ == "__main__":
    main()
