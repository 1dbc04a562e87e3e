"""The command ``eurekube plan``, which shows the operator's next changes, and makes none."""

from __future__ import annotations

import argparse
from collections.abc import Container, Iterable, Sequence
from typing import Any

from eurekube_provider.cli.inventory_options import (
    COULD_NOT_READ,
    add_inventory_options,
    exit_code,
    read_once,
)
from eurekube_provider.cli.output import Block, Cell, Line, OutputFormat, Tone, emit
from eurekube_provider.cli.terminal import complain
from eurekube_provider.comparison.cluster_names import SyncerName
from eurekube_provider.comparison.comparing import KubernetesInventory, SyncerPlan, plans_of
from eurekube_provider.core.syncer import connection_of
from eurekube_provider.core.wording import counted

_TONES = {"+": Tone.GOOD, "-": Tone.BAD, "~": Tone.MID, "!": Tone.MID}


DESCRIPTION = """\
Show what the operator would do now for each syncer (NAMESPACE/NAME), or for all. It compares what Kubernetes
has with what Eureka has, by the operator's own function, and says what would keep the operator from it.
Nothing is sent.

Eureka's list may be 30 s old: what changed within the last half a minute may be planned although it is done.
`eurekube operator --once --dry-run` reads each instance, and applies the operator's whole configuration.

  Exit code: 0 there is nothing to do
             1 something would be done, is refused, or is wrong with a syncer
             2 a world is missing or could not be read, a syncer could not be planned, or wrong usage
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = DESCRIPTION
    parser.add_argument("syncers", nargs="*", metavar="SYNCER", help="Plan these only. [all]")
    add_inventory_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plans; return the exit code."""
    syncers = options.syncers
    inventory = read_once("plan", options)
    if inventory.kubernetes is None or not inventory.instances:
        complain("eurekube plan: there is no plan without both worlds")
        return COULD_NOT_READ
    planned = plans_of(inventory.kubernetes, inventory.instances)
    chosen = [one for key, one in sorted(planned.items()) if not syncers or "/".join(key) in syncers]
    unplanned = {
        name: reason
        for name, reason in sorted(_unplanned(inventory.kubernetes, inventory.instances, planned).items())
        if not syncers or name in syncers
    }
    unknown = set(syncers) - {"/".join(one.key) for one in chosen} - unplanned.keys()
    for name in sorted(unknown):
        complain(f"eurekube plan: there is no syncer {name}")
    for name, reason in unplanned.items():
        complain(f"eurekube plan: syncer {name} could not be planned: {reason}")
    document = {"syncers": list(map(_document, chosen)), "notPlanned": unplanned}
    emit(OutputFormat(options.output), document, _blocks(chosen))
    code = exit_code(inventory, differs=any(map(_is_busy, chosen)))
    return COULD_NOT_READ if unknown or unplanned else code


def _unplanned(
    kubernetes: KubernetesInventory, eurekas: Container[str], planned: Container[SyncerName]
) -> dict[str, str]:
    """Return the syncers without a plan, as NAMESPACE/NAME, each with the reason."""
    return {
        "/".join(key): (
            f"the Services and EndpointSlices of its namespace {key[0]} were not read"
            if connection_of(item) in eurekas
            else f"its Eureka {connection_of(item)!r} was not read: name its servers in --config"
        )
        for item in kubernetes.syncers
        if (key := (item["metadata"]["namespace"], item["metadata"]["name"])) not in planned
    }


def _is_busy(planned: SyncerPlan) -> bool:
    """Return whether a plan has steps, refusals or problems to show."""
    return bool(planned.steps or planned.steps.refusals or planned.held or planned.problems)


def _document(planned: SyncerPlan) -> dict[str, Any]:
    return {
        "syncer": "/".join(planned.key),
        "owner": planned.owner,
        "eureka": planned.eureka,
        "held": planned.held.text if planned.held else "",
        "problems": [str(one) for one in planned.problems],
        **planned.steps.to_dict(),
    }


def _blocks(chosen: Sequence[SyncerPlan]) -> Iterable[Block]:
    busy = list(filter(_is_busy, chosen))
    for one in busy:
        yield Line.of(f"syncer {'/'.join(one.key)}, at Eureka {one.eureka}", Tone.STRONG)
        if one.held:
            yield Line((Cell("held: ", Tone.MID), Cell(one.held.text)), 2)
        for problem in one.problems:
            yield Line((Cell(f"{problem.reason}: ", Tone.MID), Cell(problem.message)), 2)
        for line in one.steps.describe().splitlines():
            yield Line.of(line, _TONES.get(line[:1], Tone.PLAIN), 2)
    idle = len(chosen) - len(busy)
    if idle or not busy:
        yield Line.of(f"nothing to do for {counted(idle, 'syncer')}", Tone.DIM)
