"""``eurekube crds``: prints the CustomResourceDefinitions of this version. Nothing here asks a server."""

from __future__ import annotations

import argparse

from eurekube_provider.cli.terminal import put
from eurekube_provider.resources.files import texts


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options: it has none."""
    parser.description = """\
Print the CustomResourceDefinitions of this version, for kubectl. It asks no server.

  EurekaSyncer   endpoints of a Service appear in Eureka
  EurekaMirror   what is registered in Eureka becomes a Service
  StackRefresh   a stack is run when endpoints change

Apply them before the operator, and again at each upgrade of it:

  eurekube crds | kubectl apply -f -
"""


def run(_: argparse.Namespace) -> None:
    """Print them."""
    put("---\n".join(texts("crds", "crds")))
