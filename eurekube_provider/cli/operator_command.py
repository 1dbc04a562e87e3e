"""The command ``eurekube operator``: runs the operator outside of a cluster."""

from __future__ import annotations

import argparse

from eurekube_provider.operator.__main__ import HELP_DESCRIPTION, HELP_EPILOG, add_flags, run_with_options

run = run_with_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the operator's flags, which are those of ``python -m eurekube_provider.operator``."""
    parser.description, parser.epilog = HELP_DESCRIPTION, HELP_EPILOG
    add_flags(parser)
