"""``eurekube completion``: has a shell complete commands and options. Nothing here asks a server."""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete, get_completion_class, shell_complete

from eurekube_provider.cli.click_program import program
from eurekube_provider.cli.commands import COMPLETION_VARIABLE
from eurekube_provider.cli.terminal import put

SHELLS = ("bash", "zsh", "fish")

_NO_FILES = 4
"""kubectl's directive (cobra's ShellCompDirectiveNoFileComp) that file names are no completions."""


@click.command("completion", no_args_is_help=True)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that has a shell complete commands and options. It asks no server.

    \b
    bash  eurekube completion bash >> ~/.bashrc     (bash 4.4 or newer)
    zsh   eurekube completion zsh >> ~/.zshrc
    fish  eurekube completion fish > ~/.config/fish/completions/eurekube.fish

    kubectl completes `kubectl eurekube` by itself: it asks the program kubectl_complete-eurekube.
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has all three
    put(f"{found(program, {}, 'eurekube', COMPLETION_VARIABLE).source()}\n")


def complete_for_shell(instruction: str) -> int:
    """Answer what a shell's script asks.

    :param instruction: what it said in :data:`COMPLETION_VARIABLE`.
    :returns: the exit code.
    """
    return shell_complete(program, {}, "eurekube", COMPLETION_VARIABLE, instruction)


def complete_for_kubectl() -> int:
    """``kubectl_complete-eurekube WORD... INCOMPLETE``: answer kubectl, which asks plugins so.

    :returns: the exit code.
    """
    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(program, {}, "eurekube", COMPLETION_VARIABLE).get_completions(words, incomplete)
    for one in found:
        put(f"{one.value}\t{one.help}\n" if one.help else f"{one.value}\n")
    put(f":{_NO_FILES}\n")
    return 0
