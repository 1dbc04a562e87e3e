"""The parsers of ``eurekube`` and its commands: docs/decisions/0025-one-framework-for-commands.md."""

from __future__ import annotations

import argparse
import textwrap
from shutil import get_terminal_size
from typing import Any

from eurekube_provider import __version__
from eurekube_provider.cli.commands import COMMAND_SUMMARIES, load_command_module


class _HelpFormatter(argparse.HelpFormatter):
    """A help formatter that keeps paragraphs apart, and indented ones unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(one if one.startswith(" ") else fill(one, width, indent) for one in paragraphs)


class CommandParser(argparse.ArgumentParser):
    """A parser that lists its parameters; none can be abbreviated: a new one could make that ambiguous."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog=prog, formatter_class=_HelpFormatter, allow_abbrev=False, **more)

    @property
    def parameters(self) -> list[argparse.Action]:
        """All arguments and options except ``--help``."""
        return [one for one in self._actions if one.dest != "help"]


def load_command_parser(name: str) -> CommandParser:
    """Import a command's module, and return the parser of its arguments."""
    parser = CommandParser(f"eurekube {name}")
    load_command_module(name).add_arguments(parser)
    return parser


def program_parser() -> CommandParser:
    """Return the parser of the program itself, whose help lists the commands without loading them."""
    width = get_terminal_size().columns - 2
    commands = "\n".join(
        textwrap.fill(f"{name:10}  {summary}", width, initial_indent="  ", subsequent_indent=" " * 14)
        for name, summary in COMMAND_SUMMARIES.items()
    )
    parser = CommandParser(
        "eurekube",
        usage="eurekube [-h] [--version] COMMAND ...",
        description=f"Joins Netflix Eureka and Kubernetes service discovery.\n\n{commands}",
        epilog="eurekube COMMAND --help says more. kubectl eurekube is the same program.",
    )
    parser.add_argument(
        "--version", action="version", version=f"eurekube {__version__}", help="Show the version and exit."
    )
    return parser
