"""Code blocks of the documentation: their syntax, and the commands and flags in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import blocks, links

ALL = [block for page in links.list_markdown_files() for block in blocks.find_code_blocks(page)]


@pytest.mark.parametrize("block", ALL, ids=lambda block: f"{block.page.relative_to(links.ROOT)}:{block.line}")
def test_each_block_can_be_right(block: blocks.CodeBlock) -> None:
    """Each block has valid syntax, and calls only subcommands and flags that exist."""
    assert blocks.find_block_errors(block) == []


@pytest.mark.parametrize(
    ("language", "text", "complaint"),
    [
        ("bash", "eurekube doctor --no-such-flag", "`eurekube doctor` has no --no-such-flag"),
        ("bash", "X=1 eurekube dance", "eurekube has no command 'dance'"),
        ("", "$ kubectl eurekube drain a --wait-not\nout", "`eurekube drain` has no --wait-not"),
        ("bash", "true | kubectl get pods --sort-of", "`kubectl get` has no --sort-of in known_flags.toml"),
        ("bash", "if true; then", "is no bash"),
        ("python", "a b", "is no python"),
        ("yaml", "{", "is no yaml"),
        ("shell", "", "the language 'shell' is none of"),
    ],
)
def test_what_is_wrong_is_found(language: str, text: str, complaint: str) -> None:
    """Unknown commands and flags, syntax errors and unknown languages are reported."""
    (said,) = blocks.find_block_errors(blocks.CodeBlock(Path("page.md"), 1, language, text + "\n"))
    assert said.startswith(complaint)


@pytest.mark.parametrize("page", ["pulumi.md", "native-provider.md"])
def test_a_command_in_a_sentence_is_executed_in_a_block(page: str) -> None:
    """On pages whose blocks are all run by tests/system/test_documented_commands.py, a whole command in a
    sentence also stands in a block.
    """
    text = (links.ROOT / "docs" / "reference" / page).read_text()
    parts = re.split(r"^ *```.*$", text, flags=re.MULTILINE)
    sentences, code = "".join(parts[::2]), "".join(parts[1::2])
    spans = re.findall(r"`((?:pulumi|eurekube|kubectl|helm) [^`\n]+)`", sentences)
    assert spans
    whole = [span for span in spans if len(span.split()) >= 4 and "..." not in span]
    assert [span for span in whole if span not in code] == []


def test_the_words_of_a_here_document_are_no_commands() -> None:
    """Neither the text of a here-document nor a command substitution is read as a command of its own."""
    script = "kubectl apply -f - <<'EOF'\nkubectl dance\nEOF\nkubectl get pods \"$(kubectl sing)\"\n"
    assert [words[1] for words in blocks.split_commands(script)] == ["apply", "get"]
