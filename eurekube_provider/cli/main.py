"""``eurekube``: finds the command, runs it, and turns a failure into one sentence.

Exit codes: 0 done, 1 failed with one sentence on standard error, 2 wrong usage (or drift, where that is
sought). Only the command that is asked for is loaded, so that the operator never loads Pulumi.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from eurekube_provider import __version__
from eurekube_provider.core.errors import EurekubeError

COMMANDS = {
    "render": "print what a stack's program makes",
    "apply": "make cluster and Eureka as a stack's program says, without Pulumi",
    "remove": "remove what eurekube apply made",
    "summary": "tell what a preview means for discovery, for a pull request or for machines",
    "drift": "look for what was changed behind a stack's back",
    "keepalive": "renew what stacks registered, where no operator does",
    "doctor": "find what would cost callers an answer, and how it is mended",
    "drain": "put an application or an instance out of service, and say when nobody calls it",
    "undrain": "put it back",
    "operator": "keep the endpoints of Services registered in Eureka, from outside of the cluster",
}
"""Each is a module ``<name>_command`` beside this one with ``add_to(parser)`` and ``run(options)``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    :param arguments: without the program's name; default those of the process.
    :returns: the exit code.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser(next((word for word in words if not word.startswith("-")), "")).parse_args(words)
    try:
        return int(options.run(options) or 0)
    except EurekubeError as error:
        print(f"eurekube: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("eurekube: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 1


def parser(command: str) -> argparse.ArgumentParser:
    """The whole command line, with the options of one command."""
    result = argparse.ArgumentParser(
        prog="eurekube", description="Joins Netflix Eureka and Kubernetes service discovery."
    )
    result.add_argument("--version", action="version", version=f"eurekube {__version__}")
    commands = result.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        found = commands.add_parser(name, help=summary, allow_abbrev=False)
        if name == command:
            module = import_module(f"eurekube_provider.cli.{name}_command")
            module.add_to(found)
            found.set_defaults(run=module.run)
    return result


if __name__ == "__main__":
    sys.exit(main())
