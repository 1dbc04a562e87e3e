"""``eurekube``: finds the command, runs it, and turns a failure into one sentence.

Exit codes: 0 done, 1 failed with one sentence on standard error, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from eurekube_provider import __version__
from eurekube_provider.cli import apply, keepalive, remove, render
from eurekube_provider.core.errors import EurekubeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    :param arguments: without the program's name; default those of the process.
    :returns: the exit code.
    """
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except EurekubeError as error:
        print(f"eurekube: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("eurekube: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    result = argparse.ArgumentParser(
        prog="eurekube", description="Joins Netflix Eureka and Kubernetes service discovery."
    )
    result.add_argument("--version", action="version", version=f"eurekube {__version__}")
    commands = result.add_subparsers(metavar="COMMAND", required=True)
    for command in (render, apply, remove, keepalive):
        command.add_to(commands)
    return result


if __name__ == "__main__":
    sys.exit(main())
