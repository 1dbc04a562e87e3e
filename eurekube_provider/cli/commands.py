"""The commands of ``eurekube``; each is loaded only when it is asked for."""

from __future__ import annotations

import argparse
import textwrap
from importlib import import_module
from shutil import get_terminal_size
from types import ModuleType
from typing import Any

from eurekube_provider import __version__

COMMAND_SUMMARIES = {
    "demo": "show what Eurekube does, in half a minute, on servers of its own",
    "status": "compare Kubernetes with Eureka, differences first",
    "watch": "the same, again and again",
    "plan": "show what the operator would do now, and do nothing",
    "instances": "list what Eureka holds, and whose it is",
    "explain": "explain an application or an instance: whose, who renews it, why it is not UP, what if ...",
    "doctor": "find what would cost callers an answer, and how it is fixed",
    "drain": "put an application or an instance out of service, and say when nobody calls it",
    "undrain": "put it back",
    "gate": "open the readiness gate of a workload's pods by hand",
    "render": "print what a stack's program makes",
    "apply": "make cluster and Eureka as a stack's program says, without Pulumi",
    "remove": "remove what eurekube apply made",
    "import": "print a program that takes over what an application has in Eureka",
    "summary": "tell what a preview means for discovery, for a pull request or for machines",
    "drift": "look for what was changed behind a stack's back",
    "keepalive": "renew what stacks registered, where no operator does",
    "operator": "keep the endpoints of Services registered in Eureka, from outside of the cluster",
    "dev": "run Eureka servers for development and tests, in memory",
    "crds": "print the CustomResourceDefinitions, for kubectl apply",
    "completion": "print the completion script of a shell",
}
"""The summary of each command; its module, ``<name>_command``, has ``add_arguments`` and ``run``."""


def load_command_module(command: str) -> ModuleType:
    return import_module(f"eurekube_provider.cli.{command}_command")


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
