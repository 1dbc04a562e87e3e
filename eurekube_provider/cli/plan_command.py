"""The command ``eurekube plan``, which shows the operator's next changes, and makes none."""

from __future__ import annotations

import argparse
from collections.abc import Container, Iterable, Sequence
from typing import Any

from eurekube_provider.cli.inventory_options import (
    COULD_NOT_READ_EXIT_CODE,
    add_inventory_options,
    exit_code,
    read_inventory,
)
from eurekube_provider.cli.output import Block, Cell, Line, OutputFormat, Tone, print_output
from eurekube_provider.cli.terminal import print_error_line
from eurekube_provider.comparison.comparing import KubernetesInventory, SyncerPlan, plan_syncers
from eurekube_provider.comparison.managers import NamespacedSyncerName
from eurekube_provider.core.objects import key_of
from eurekube_provider.core.syncer import connection_name
from eurekube_provider.core.wording import format_count

_TONE_BY_STEP_SIGN = {"+": Tone.GOOD, "-": Tone.BAD, "~": Tone.WARNING, "!": Tone.WARNING}


DESCRIPTION = """\
Show what the operator would do now for each syncer (NAMESPACE/NAME), or for all. It compares what Kubernetes
has with what Eureka has, by the operator's own function, and says what would keep the operator from it.
Nothing is sent.

Eureka's list may be 30 s old: what changed within the last half a minute may be planned although it is done.
`eurekube operator --once --dry-run` reads each instance, and applies the operator's whole configuration.

  Exit code: 0 there is nothing to do
             1 something would be done, is refused, or is wrong with a syncer
             2 Kubernetes or Eureka is missing or unread, a syncer could not be planned, or wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("syncers", nargs="*", metavar="SYNCER", help="Plan these only. [all]")
    add_inventory_options(parser)


def run(options: argparse.Namespace) -> int:
    syncers = options.syncers
    inventory = read_inventory("plan", options)
    if inventory.kubernetes is None or not inventory.instances:
        print_error_line("eurekube plan: there is no plan without both Kubernetes and Eureka")
        return COULD_NOT_READ_EXIT_CODE
    planned = plan_syncers(inventory.kubernetes, inventory.instances)
    chosen = [one for key, one in sorted(planned.items()) if not syncers or "/".join(key) in syncers]
    unplanned = {
        name: reason
        for name, reason in sorted(
            _reasons_not_planned(inventory.kubernetes, inventory.instances, planned).items()
        )
        if not syncers or name in syncers
    }
    unknown = set(syncers) - {"/".join(one.key) for one in chosen} - unplanned.keys()
    for name in sorted(unknown):
        hint = "" if "/" in name else ": a syncer is named by NAMESPACE/NAME"
        print_error_line(f"eurekube plan: there is no syncer {name}{hint}")
    for name, reason in unplanned.items():
        print_error_line(f"eurekube plan: syncer {name} could not be planned: {reason}")
    document = {"syncers": list(map(_plan_to_dict, chosen)), "notPlanned": unplanned}
    print_output(OutputFormat(options.output), document, _plan_blocks(chosen))
    code = exit_code(inventory, differs=any(map(_has_anything_to_show, chosen)))
    return COULD_NOT_READ_EXIT_CODE if unknown or unplanned else code


def _reasons_not_planned(
    kubernetes: KubernetesInventory, eurekas: Container[str], planned: Container[NamespacedSyncerName]
) -> dict[str, str]:
    """Return the syncers without a plan, as NAMESPACE/NAME, each with the reason."""
    return {
        "/".join(key): (
            f"the Services and EndpointSlices of its namespace {key[0]} were not read"
            if connection_name(item) in eurekas
            else f"its Eureka {connection_name(item)!r} was not read: name its servers in --config"
        )
        for item in kubernetes.syncers
        if (key := key_of(item)) not in planned
    }


def _has_anything_to_show(planned: SyncerPlan) -> bool:
    """Return whether a plan has steps, refusals or problems to show."""
    return bool(planned.steps or planned.steps.refusals or planned.hold_reason or planned.problems)


def _plan_to_dict(planned: SyncerPlan) -> dict[str, Any]:
    return {
        "syncer": "/".join(planned.key),
        "owner": planned.owner,
        "eureka": planned.eureka_name,
        "held": planned.hold_reason.text if planned.hold_reason else "",
        "problems": [str(one) for one in planned.problems],
        **planned.steps.to_dict(),
    }


def _plan_blocks(chosen: Sequence[SyncerPlan]) -> Iterable[Block]:
    busy = list(filter(_has_anything_to_show, chosen))
    for one in busy:
        yield Line.of(f"syncer {'/'.join(one.key)}, at Eureka {one.eureka_name}", Tone.STRONG)
        if one.hold_reason:
            yield Line((Cell("held: ", Tone.WARNING), Cell(one.hold_reason.text)), 2)
        for problem in one.problems:
            yield Line((Cell(f"{problem.reason}: ", Tone.WARNING), Cell(problem.message)), 2)
        for line in one.steps.describe().splitlines():
            yield Line.of(line, _TONE_BY_STEP_SIGN.get(line[:1], Tone.PLAIN), 2)
    idle = len(chosen) - len(busy)
    if idle or not busy:
        yield Line.of(f"nothing to do for {format_count(idle, 'syncer')}", Tone.DIM)
