"""``eurekube status``: shows both worlds side by side, differences first."""

from __future__ import annotations

from typing import Any

import click

from eurekube_provider.cli.comparison_blocks import blocks_of, status_of
from eurekube_provider.cli.output import OutputFormat, emit
from eurekube_provider.cli.world_options import exit_code, read_once, world_options


@click.command("status")
@click.argument("applications", metavar="[APPLICATION]...", nargs=-1)
@click.option("--differences", is_flag=True, help="Leave out what is in sync.")
@world_options
def command(applications: tuple[str, ...], *, differences: bool, output: str, **options: Any) -> int:
    """Show what Kubernetes has and what Eureka has of each application, side by side: what is wrong first,
    with one line of reason each. The operator's status page has the same words in the same order.

    It changes nothing. Of Eureka it reads the list that every client gets, up to 30 s old, once from each
    server. It shows what it can with Kubernetes alone, with Eureka alone, or with both, and says what is
    missing.

    \b
    Exit code: 0 all that was looked at is in sync
               1 something is not
               2 a world is missing or could not be read, or wrong usage
    """
    status = status_of(read_once("status", options), applications, only_differing=differences)
    emit(OutputFormat(output), status.to_dict(), blocks_of(status))
    return exit_code(status.worlds, differs=status.differs)
