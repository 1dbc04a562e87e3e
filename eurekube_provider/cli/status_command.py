"""The command ``eurekube status``, which compares Kubernetes with Eureka, differences first."""

from __future__ import annotations

import argparse

from eurekube_provider.cli.comparison_blocks import build_status_report, status_blocks
from eurekube_provider.cli.inventory_options import add_inventory_options, exit_code, read_inventory
from eurekube_provider.cli.output import OutputFormat, print_output
from eurekube_provider.cli.terminal import print_error_line

DESCRIPTION = """\
Show what Kubernetes has and what Eureka has of each application, side by side: what is wrong first, with one
line of reason each. The operator's status page has the same syncers and mirrors, in the same words and order;
what others keep ("not compared") stands here alone, and counts in the sum.

It changes nothing. Of Eureka it reads the list that every client gets, up to 30 s old, once from each server.
It shows what it can with Kubernetes alone, with Eureka alone, or with both, and says what is missing.

Of Kubernetes it reads syncers, mirrors, Services and EndpointSlices; of pods no more than the labels that a
syncer's metadata take. So "synced" says that Eureka has what the EndpointSlices have. Of pods it says what
the operator wrote into conditions: too short a drain, a registration of their own, and what is left of the
dead. `eurekube doctor` reads pods.

  Exit code: 0 all that was looked at is in sync
             1 something is not, or an application that was asked for is not there
             2 Kubernetes or Eureka is missing or could not be read, or wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_application_filters(parser)
    add_inventory_options(parser)


def add_application_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the applications to show."""
    parser.add_argument("applications", nargs="*", metavar="APPLICATION", help="Show these only. [all]")
    parser.add_argument("--differences", action="store_true", help="Leave out what is in sync.")


def run(options: argparse.Namespace) -> int:
    inventory = read_inventory("status", options)
    status = build_status_report(inventory, options.applications, only_differing=options.differences)
    print_output(OutputFormat(options.output), status.to_dict(), status_blocks(status))
    for name in status.unknown_applications:
        print_error_line(f"eurekube status: nothing that was read has an application {name}")
    return exit_code(status.inventory, differs=status.needs_attention or bool(status.unknown_applications))
