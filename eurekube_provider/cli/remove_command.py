"""The command ``eurekube remove``, which removes a stack that ``eurekube apply`` made."""

from __future__ import annotations

import argparse

from eurekube_provider.cli.caches import parse_seconds
from eurekube_provider.cli.stack_arguments import (
    add_cluster_options,
    connect_cluster,
    render_stack_from_options,
)
from eurekube_provider.cli.terminal import print_line
from eurekube_provider.stateless.apply_stack import DEFAULT_REMOVAL_WAIT_SECONDS, remove_rendered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Remove a stack's syncers, then its registrations, then its other objects, namespaces"
        " included. CRDs are kept. The operator must be running: it serves the syncers' finalizers."
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--patience",
        type=parse_seconds,
        default=DEFAULT_REMOVAL_WAIT_SECONDS,
        metavar="SECONDS",
        help=f"how long the operator and the cluster may take [{DEFAULT_REMOVAL_WAIT_SECONDS:.0f}]",
    )


def run(options: argparse.Namespace) -> None:
    rendered = render_stack_from_options(options)
    remove_rendered(rendered, connect_cluster(rendered), print_line, options.patience)
