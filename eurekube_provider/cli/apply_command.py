"""The command ``eurekube apply``, which makes a stack's objects and registrations without Pulumi's engine."""

from __future__ import annotations

import argparse

from eurekube_provider.cli.stack_arguments import (
    add_cluster_options,
    connect_cluster,
    render_stack_from_options,
)
from eurekube_provider.cli.terminal import print_line
from eurekube_provider.stateless.apply_stack import apply_rendered, preview_rendered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a stack's program without Pulumi's engine, apply its Kubernetes objects server-side,"
        " register its registrations, and remove what it made before and no longer makes: objects by their"
        " label eurekube.io/stack, registrations by their owner. Not for a stack that Pulumi deploys."
    )
    add_cluster_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")


def run(options: argparse.Namespace) -> None:
    rendered = render_stack_from_options(options)
    carry_out = preview_rendered if options.dry_run else apply_rendered
    carry_out(rendered, connect_cluster(rendered), print_line)
