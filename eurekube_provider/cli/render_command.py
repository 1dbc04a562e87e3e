"""The command ``eurekube render``, which prints the objects and registrations of a stack's program."""

from __future__ import annotations

import argparse
import sys

from eurekube_provider.cli.stack_arguments import add_stack_options, render_stack_from_options
from eurekube_provider.cli.terminal import print_error_line
from eurekube_provider.core.wording import format_list
from eurekube_provider.stateless.server_side_apply import describe_object

_REGISTRATIONS_HEADER = "---\n# Registrations in Eureka, as JSON, which YAML can read too:\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a stack's program without Pulumi's engine and print what it makes: Kubernetes"
        " objects as YAML documents, then its registrations as JSON. Asks no server but by"
        " the program's own lookups."
    )
    add_stack_options(parser)
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--kubernetes", action="store_true", help="only the objects; for kubectl apply, with --show-secrets"
    )
    part.add_argument(
        "--registrations", action="store_true", help="only the registrations, as one JSON object"
    )
    parser.add_argument("--show-secrets", action="store_true", help="print what is secret in clear")


def run(options: argparse.Namespace) -> None:
    rendered = render_stack_from_options(options)
    if not options.registrations:
        sys.stdout.write(rendered.objects_yaml(show_secrets=options.show_secrets))
    if not options.registrations and not options.kubernetes:
        sys.stdout.write(_REGISTRATIONS_HEADER)
    if not options.kubernetes:
        sys.stdout.write(rendered.registrations_json(show_secrets=options.show_secrets))
    sys.stdout.flush()
    if rendered.objects_with_secrets and not (options.registrations or options.show_secrets):
        hidden = format_list([describe_object(item) for item in rendered.objects_with_secrets], 3)
        print_error_line(
            f"eurekube render: [secret] stands for what is secret in {hidden}: this is to be read, not to be"
            " applied; --show-secrets prints what can be"
        )
