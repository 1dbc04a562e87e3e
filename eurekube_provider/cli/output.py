"""Output of a command, given as blocks and as one document of JSON values: table, JSON, YAML or Markdown."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from eurekube_provider.cli.terminal import print_text
from eurekube_provider.core.quoting import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNFOLDED_WIDTH = 1000
"""Columns of an output that is no terminal, so that no line is folded."""

_COLUMN_GAP = 2
"""Spaces between two columns of a table."""

_MIN_CUT_WIDTH = 16
"""Columns below which a text is folded and not cut."""


class OutputFormat(StrEnum):
    """The values of the option ``--output``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


class Tone(StrEnum):
    """The meaning of a text, which gives its colour on a terminal."""

    PLAIN = ""
    BAD = "bold red"
    WARNING = "yellow"
    GOOD = "green"
    DIM = "dim"
    STRONG = "bold"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its tone."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Line:
    """A line of its own, or a paragraph, with columns of space to its left."""

    cells: Sequence[Cell]
    indent: int = 0

    @classmethod
    def of(cls, text: str, tone: Tone = Tone.PLAIN, indent: int = 0) -> Line:
        """Return a line of one text in one tone."""
        return cls((Cell(text, tone),), indent)

    @property
    def text(self) -> str:
        """The text of the line without tones."""
        return printable("".join(one.text for one in self.cells))


@dataclass(frozen=True, slots=True)
class Table:
    """A table, of which a narrow terminal may cut the last column in place of folding it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    truncates_last_column: bool = False


Block = Line | Table


def print_output(output: OutputFormat, document: Any, blocks: Iterable[Block]) -> None:
    """Print output: of plain values as JSON or YAML, of blocks as a table or Markdown."""
    if output is OutputFormat.JSON:
        print_text(json.dumps(document, indent=2) + "\n")
    elif output is OutputFormat.YAML:
        print_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=110))
    elif output is OutputFormat.MARKDOWN:
        print_text(format_markdown(blocks))
    else:
        print_text(format_blocks(blocks))


def format_blocks(blocks: Iterable[Block], *, plain: bool = False) -> str:
    """Return blocks as text for standard output; on a pipe or ``plain`` without colours and folded lines."""
    from rich.console import Console

    shown = create_console(sys.stdout)
    if plain:
        shown = Console(width=_UNFOLDED_WIDTH, force_terminal=False, color_system=None, highlight=False)
    with shown.capture() as captured:
        for block in blocks:
            shown.print(to_renderable(block, shown.width))
    lines = captured.get().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def create_console(stream: TextIO) -> Console:
    """Return a console as wide as its terminal; NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS are heeded."""
    from rich.console import Console

    width = None if stream.isatty() or os.environ.get("COLUMNS") else _UNFOLDED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def to_renderable(block: Block, width: int) -> RenderableType:
    """Convert a block to an object that rich prints in this number of columns."""
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Line):
        line = Text.assemble(*((printable(one.text), str(one.tone)) for one in block.cells))
        return Padding(line, (0, 0, 0, block.indent), expand=False) if block.indent else line
    table = Table(box=None, pad_edge=False, padding=(0, _COLUMN_GAP, 0, 0), header_style=str(Tone.DIM))
    rows = [[printable(one.text) for one in row] for row in block.rows]
    room = width - sum(
        _COLUMN_GAP + max(cell_len(row[number]) for row in (block.columns, *rows))
        for number in range(len(block.columns) - 1)
    )
    # A column that is not to be folded takes all the room from the others: rich does not know which matters.
    is_cut = block.truncates_last_column and room >= _MIN_CUT_WIDTH
    for name in block.columns[:-1]:
        table.add_column(name, no_wrap=is_cut, overflow="fold")
    table.add_column(
        block.columns[-1],
        no_wrap=is_cut,
        overflow="ellipsis" if is_cut else "fold",
        max_width=room if is_cut else None,
    )
    for row in block.rows:
        table.add_row(*(Text(printable(one.text), style=str(one.tone)) for one in row))
    return table


def format_markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as Markdown, e.g. for a comment of a pull request."""
    written = io.StringIO()
    for block in blocks:
        if isinstance(block, Line):
            sign = "  - " if block.indent > 2 else "- " if block.indent else ""
            written.write(
                f"{sign}{_escape_markdown(block.text)}\n" if sign else f"\n{_escape_markdown(block.text)}\n\n"
            )
            continue
        written.write(f"\n| {' | '.join(block.columns)} |\n|{'---|' * len(block.columns)}\n")
        for row in block.rows:
            written.write(f"| {' | '.join(_escape_markdown(printable(one.text)) for one in row)} |\n")
        written.write("\n")
    return re.sub(r"\n{3,}", "\n\n", written.getvalue()).strip() + "\n"


def _escape_markdown(sentence: str) -> str:
    for sign in "\\`*_[]<>|#":
        sentence = sentence.replace(sign, f"\\{sign}")
    return sentence
