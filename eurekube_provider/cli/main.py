"""The program ``eurekube``: finds the command, runs it, and turns a failure into one sentence.

Exit codes: 0 done, 1 failed with one sentence on standard error, 2 wrong usage; some commands have more
(docs/reference/cli.md). Only the command that is asked for is loaded, so that the operator loads no Pulumi.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from eurekube_provider.cli.commands import (
    COMMAND_SUMMARIES,
    load_command_module,
    load_command_parser,
    program_parser,
)
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.wording import suggest_name
from eurekube_provider.runtime.extras import ExtraName, require_extra

_EXTRA_BY_COMMAND: Mapping[str, ExtraName] = {"demo": "demo", "operator": "operator"}
"""The extra that installs a command's packages, by command; ``cli`` for all others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code.

    :param arguments: the arguments without the program's name; default those of the process.
    :raises SystemExit: after ``--help``, or wrong usage.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    command = next((word for word in words if not word.startswith("-")), "")
    try:
        with require_extra(_EXTRA_BY_COMMAND.get(command, "cli"), f"the command {command}".rstrip()):
            return _run_command(words)
    except EurekubeError as error:
        print(f"eurekube: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("eurekube: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 1


def _run_command(words: Sequence[str]) -> int:
    if words and words[0] in COMMAND_SUMMARIES:
        name, *rest = words
        parser = load_command_parser(name)
        # With arguments between options, argparse takes for an option whatever begins with a dash.
        parse = parser.parse_args if "--" in rest else parser.parse_intermixed_args
        try:
            return int(load_command_module(name).run(parse(rest)) or 0)
        except argparse.ArgumentError as error:  # options that do not go together
            parser.error(str(error))
    program = program_parser()
    if words and not words[0].startswith("-"):
        program.error(f"there is no command {words[0]!r}: {suggest_name(words[0], COMMAND_SUMMARIES)}")
    program.parse_args(words)
    program.print_help(sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
