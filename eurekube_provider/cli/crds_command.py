"""``eurekube crds``: prints the CustomResourceDefinitions of this version. Nothing here asks a server."""

from __future__ import annotations

import click

from eurekube_provider.cli.terminal import put
from eurekube_provider.resources.files import texts


@click.command("crds")
def command() -> None:
    """Print the CustomResourceDefinitions of this version, for kubectl. It asks no server.

    \b
    EurekaSyncer   endpoints of a Service appear in Eureka
    EurekaMirror   what is registered in Eureka becomes a Service
    StackRefresh   a stack is run when endpoints change

    Apply them before the operator, and again at each upgrade of it:

    \b
    eurekube crds | kubectl apply -f -
    """
    put("---\n".join(texts("crds", "crds")))
