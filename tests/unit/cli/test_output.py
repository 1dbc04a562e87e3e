"""Output of one document and its blocks in each format."""

from __future__ import annotations

import io
import json
import sys

import pytest
import yaml

from eurekube_provider.cli.output import (
    Block,
    Cell,
    Line,
    OutputFormat,
    Table,
    Tone,
    format_blocks,
    print_output,
)
from eurekube_provider.core.quoting import printable

HOSTILE = "\x1b[2Jsafe\u202e|`x`"
DOCUMENT = {"name": HOSTILE, "rows": [1, None]}
BLOCKS: list[Block] = [
    Line.of("one fault", Tone.BAD),
    Table(("NAME", "WHY"), [(Cell(HOSTILE), Cell("x" * 200))], truncates_last_column=True),
    Line.of("below", indent=4),
]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(
    ("form", "read"), [(OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)]
)
def test_documents_can_be_read_back(
    form: OutputFormat, read: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON and YAML output is read back unchanged, and has no control characters."""
    print_output(form, DOCUMENT, BLOCKS)
    written = capsys.readouterr().out
    assert read(written) == DOCUMENT  # type: ignore[operator]
    assert "\x1b" not in written
    assert "\u202e" not in written


def test_a_pipe_gets_no_colour_and_no_folded_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe each row is one uncut line without colours, so that grep finds it."""
    monkeypatch.delenv("COLUMNS", raising=False)
    print_output(OutputFormat.TABLE, DOCUMENT, BLOCKS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[2].endswith("x" * 200)
    assert all(line.isprintable() for line in lines)


def test_a_terminal_gets_colours_and_a_narrow_one_a_cut_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow terminal gets one coloured line for each row, with the last column cut."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    shown = format_blocks(BLOCKS)
    assert "\x1b[1;31mone fault" in shown
    assert "\x1b[2J" not in shown
    row = shown.splitlines()[2]
    assert row.startswith(printable(HOSTILE))
    assert row.endswith("x…")
    assert len(row) == 60
    assert len(shown.splitlines()) == 4


def test_what_has_no_room_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A very narrow terminal folds columns and still shows all of them."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stdout", Terminal())
    shown = format_blocks(BLOCKS)
    assert shown.count("x") >= 200
    assert "NAME" in shown


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR, or a dumb terminal, switches colours off."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "\x1b[1;31m" not in format_blocks(BLOCKS)
    assert "\x1b[31m" not in format_blocks(BLOCKS)


def test_markdown_has_no_markup_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Markdown output, as for a pull request's comment, escapes markup in values."""
    print_output(OutputFormat.MARKDOWN, DOCUMENT, BLOCKS)
    written = capsys.readouterr().out
    assert "| NAME | WHY |\n|---|---|\n" in written
    assert r"\|\`x\`" in written
    assert written.endswith("  - below\n")
