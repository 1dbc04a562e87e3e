"""The program for people, made with click: its help, its completion, and the commands that show something."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from eurekube_provider import __version__
from eurekube_provider.cli.commands import COMMANDS, module_of


class Program(click.Group):
    """All commands, of which each is loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order in which people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one."""
        return command_of(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List all, of which none is loaded for that."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, or the program's own options."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=summary)
            for name, summary in COMMANDS.items()
            if name.startswith(incomplete)
        ]


def command_of(name: str) -> click.Command:
    """One command; of one that argparse reads, its options as click knows them."""
    module = module_of(name)
    found: click.Command | None = getattr(module, "command", None)
    return found if found is not None else _from_argparse(name, module.add_to)


class RecordingParser(argparse.ArgumentParser):
    """A parser that remembers what was added to it."""

    def __init__(self, prog: str) -> None:
        self.added: list[argparse.Action] = []
        super().__init__(prog=prog, add_help=False)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Add one."""
        action = super().add_argument(*args, **kwargs)
        self.added.append(action)
        return action

    def add_mutually_exclusive_group(self, **_: Any) -> RecordingParser:  # type: ignore[override]
        """Remember what is added to a group as well; which options exclude each other, argparse says."""
        return self


def _from_argparse(name: str, add_to: Any) -> click.Command:
    recorded = RecordingParser(f"eurekube {name}")
    add_to(recorded)
    return click.Command(
        name,
        params=[_parameter(action) for action in recorded.added],
        help=recorded.description,
        epilog=recorded.epilog,
        short_help=COMMANDS[name],
    )


def _parameter(action: argparse.Action) -> click.Parameter:
    kind = click.Choice([str(one) for one in action.choices]) if action.choices else None
    if not action.option_strings:
        return click.Argument(
            [action.dest], type=kind, required=action.nargs != "?", metavar=_metavar_of(action)
        )
    return click.Option(
        list(action.option_strings),
        type=kind,
        is_flag=action.nargs == 0,
        metavar=None if action.nargs == 0 or kind else _metavar_of(action),
        help=str(action.help or "").replace("%%", "%"),
    )


def _metavar_of(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


@click.command(
    "eurekube",
    cls=Program,
    help="Joins Netflix Eureka and Kubernetes service discovery.",
    epilog="eurekube COMMAND --help says more. kubectl eurekube is the same program.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="eurekube", message="%(prog)s %(version)s")
def program() -> None:
    """The program itself does nothing: everything is a command of it."""


def run_program(words: Sequence[str]) -> int:
    """Run a command of click's, or complete a line for a shell.

    :returns: the exit code.
    :raises SystemExit: after ``--help``, or wrong usage.
    """
    try:
        with program.make_context("eurekube", list(words)) as context:
            return int(program.invoke(context) or 0)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.ClickException as error:
        _refuse(error)


def _refuse(error: click.ClickException) -> NoReturn:
    error.show(sys.stderr)
    raise SystemExit(error.exit_code)
