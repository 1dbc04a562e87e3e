"""``eurekube``: finds the command, runs it, and turns a failure into one sentence.

Exit codes: 0 done, 1 failed with one sentence on standard error, 2 wrong usage; some commands say more
(docs/reference/cli.md). Only the command that is asked for is loaded, so that the operator loads neither
Pulumi nor what the commands for people are written with.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from eurekube_provider import __version__
from eurekube_provider.cli.commands import COMMANDS, COMPLETION_VARIABLE, module_of
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.runtime.extras import Extra, needing

_EXTRAS: Mapping[str, Extra] = {"demo": "demo", "operator": "operator"}
"""What installs the packages that a command needs; ``cli`` for all others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    :param arguments: without the program's name; default those of the process.
    :returns: the exit code.
    :raises SystemExit: after ``--help``, or wrong usage.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    command = next((word for word in words if not word.startswith("-")), "")
    try:
        with needing(_EXTRAS.get(command, "cli"), f"the command {command}".rstrip()):
            return _run(words)
    except EurekubeError as error:
        print(f"eurekube: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("eurekube: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 1


def _run(words: Sequence[str]) -> int:
    if words and words[0] in COMMANDS and hasattr(module_of(words[0]), "add_to"):
        options = parser(words[0]).parse_args(words)
        return int(options.run(options) or 0)
    if not words and os.environ.get(COMPLETION_VARIABLE):
        from eurekube_provider.cli.completion_command import complete_for_shell

        return complete_for_shell(os.environ[COMPLETION_VARIABLE])
    from eurekube_provider.cli.click_program import run_program

    return run_program(words)


def parser(command: str) -> argparse.ArgumentParser:
    """The command line as argparse has it, with the options of one command."""
    result = argparse.ArgumentParser(
        prog="eurekube", description="Joins Netflix Eureka and Kubernetes service discovery."
    )
    result.add_argument("--version", action="version", version=f"eurekube {__version__}")
    commands = result.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        found = commands.add_parser(name, help=summary, allow_abbrev=False)
        if name == command:
            module = module_of(name)
            module.add_to(found)
            found.set_defaults(run=module.run)
    return result


if __name__ == "__main__":
    sys.exit(main())
