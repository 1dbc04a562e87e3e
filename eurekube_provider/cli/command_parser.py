"""How ``eurekube`` and its commands read their words: docs/decisions/0025-one-framework-for-commands.md."""

from __future__ import annotations

import argparse
import inspect

from eurekube_provider import __version__
from eurekube_provider.cli.commands import COMMANDS, module_of


class _HelpFormatter(argparse.HelpFormatter):
    """Keeps paragraphs apart, and one that is indented as it stands."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        paragraphs = inspect.cleandoc(text).split("\n\n")
        return "\n\n".join(one if one.startswith(" ") else fill(one, width, indent) for one in paragraphs)


class CommandParser(argparse.ArgumentParser):
    """A parser that tells what can be said to it."""

    @property
    def parameters(self) -> list[argparse.Action]:
        """All arguments and options but ``--help``."""
        return [one for one in self._actions if one.dest != "help"]


def parser_of(name: str) -> CommandParser:
    """Load a command and its parser."""
    # An abbreviated option could be meant for another one.
    parser = CommandParser(prog=f"eurekube {name}", formatter_class=_HelpFormatter, allow_abbrev=False)
    module_of(name).add_to(parser)
    return parser


def program_parser() -> CommandParser:
    """Make the parser of the program itself, which lists the commands and loads none."""
    parser = CommandParser(
        prog="eurekube",
        description="Joins Netflix Eureka and Kubernetes service discovery.",
        epilog="eurekube COMMAND --help says more. kubectl eurekube is the same program.",
    )
    parser.add_argument(
        "--version", action="version", version=f"eurekube {__version__}", help="Show the version and exit."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser
