"""Options of the commands about a stack: the stack, its configuration, and its cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.registrations.connections import CONFIG_NAMESPACE
from eurekube_provider.stateless.render import RenderedStack, render


def add_project_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--project",
        type=Path,
        default=Path(),
        metavar="DIRECTORY",
        help="where Pulumi.yaml lies [the current directory]",
    )


def add_stack_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the stack and change its configuration."""
    parser.add_argument("--stack", default="dev", metavar="NAME", help="the stack [dev]")
    add_project_option(parser)
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="wins over the stack's file, e.g. eurekube:url=http://eureka:8761/eureka; may be repeated."
        " For passwords rather use EUREKA_PASSWORD",
    )
    parser.add_argument(
        "--organization",
        default=DEFAULT_ORGANIZATION,
        metavar="NAME",
        help=f"part of the registrations' owner [{DEFAULT_ORGANIZATION}]",
    )


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`add_stack_options`, and those for the connection to the cluster."""
    add_stack_options(parser)
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="[eurekube:kubeconfig, else as kubectl finds it]"
    )
    parser.add_argument(
        "--context",
        metavar="NAME",
        help="[eurekube:context, of the stack's file only without --kubeconfig; else the current one]",
    )


def render_stack_from_options(options: argparse.Namespace) -> RenderedStack:
    overrides: dict[str, str] = {}
    for text in options.config:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise argparse.ArgumentError(None, f"--config {text}: must be KEY=VALUE")
        overrides[key] = value
    # For the program's own lookups as well.
    kubeconfig, context = (getattr(options, key, None) for key in ("kubeconfig", "context"))
    if kubeconfig:
        overrides[f"{CONFIG_NAMESPACE}:kubeconfig"] = str(kubeconfig.resolve())
    if context:
        overrides[f"{CONFIG_NAMESPACE}:context"] = context
    elif kubeconfig:
        overrides.setdefault(f"{CONFIG_NAMESPACE}:context", "")  # the stack's is one of another file
    return render(options.project, options.stack, overrides, options.organization)


def connect_cluster(rendered: RenderedStack) -> KubeAccess | None:
    """Connect to the cluster of options or stack; None where nothing is to be made and none can be found."""
    try:
        return KubeAccess.load(rendered.kubeconfig, rendered.context)
    except ConfigurationError:
        if rendered.objects or rendered.kubeconfig or rendered.context:
            raise
        return None
