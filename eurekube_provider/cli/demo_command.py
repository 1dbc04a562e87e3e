"""The command ``eurekube demo``: a story of Kubernetes and Eureka, on servers in this process."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from eurekube_provider.demo.tour import run_demo

_REQUIRED_MODULES = ("jinja2", "kubernetes", "prometheus_client", "pulumi_kubernetes", "rich")
"""Modules that the demo's processes import; the command names a missing one before anything begins."""


DESCRIPTION = """\
Show what Eurekube does, in half a minute, on servers of its own: pods appear in Eureka, scale, become unready
and roll; the operator renews what a stack registered. Each step is checked. It needs nothing but Python,
changes nothing of yours, and leaves nothing behind.

  Exit code: 0 every check held
             1 one did not
             130 ended by Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "--keep", action="store_true", help="Leave everything up until Ctrl-C, for a look around."
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="Keep the table as an SVG.")


def run(options: argparse.Namespace) -> int:
    for module in _REQUIRED_MODULES:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
    return run_demo(keep=options.keep, picture=options.picture)
