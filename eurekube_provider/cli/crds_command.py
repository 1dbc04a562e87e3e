"""The command ``eurekube crds``, which prints the CustomResourceDefinitions of this version."""

from __future__ import annotations

import argparse

from eurekube_provider.cli.terminal import print_text
from eurekube_provider.resources.files import read_yaml_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Print the CustomResourceDefinitions of this version, for kubectl. It asks no server.

  EurekaSyncer   endpoints of a Service appear in Eureka
  EurekaMirror   what is registered in Eureka becomes a Service
  StackRefresh   a stack is run when endpoints change

Apply them before the operator, and again at each upgrade of it:

  eurekube crds | kubectl apply -f -
"""


def run(_: argparse.Namespace) -> None:
    print_text("---\n".join(read_yaml_texts("crds", "crds")))
