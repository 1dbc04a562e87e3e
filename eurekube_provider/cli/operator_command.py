"""The command ``eurekube operator``: runs the operator outside of a cluster, with the current kubeconfig
context.
"""

from __future__ import annotations

import argparse

from eurekube_provider.operator.__main__ import DESCRIPTION, EPILOG, add_flags, start

run = start


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the operator's flags, which are those of ``python -m eurekube_provider.operator``."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_flags(parser)
