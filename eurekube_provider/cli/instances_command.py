"""The command ``eurekube instances``, which lists Eureka's instances and their managers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from eurekube_provider.cli.inventory_options import (
    COULD_NOT_READ_EXIT_CODE,
    WELL_EXIT_CODE,
    add_inventory_options,
    read_inventory,
)
from eurekube_provider.cli.output import Block, Cell, Line, OutputFormat, Table, Tone, print_output
from eurekube_provider.cli.terminal import print_error_line
from eurekube_provider.comparison.managers import Manager, ManagerKind
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.wording import format_count

NONE_FOUND_EXIT_CODE = 1

_TONE_BY_STATUS = {Status.UP: Tone.GOOD, Status.OUT_OF_SERVICE: Tone.WARNING, Status.STARTING: Tone.WARNING}


DESCRIPTION = """\
List the instances that Eureka holds, of the applications that are named or of all, and who keeps each. With a
cluster at hand, its own syncers are distinguished from those of other clusters. With `--namespace`: only what
a syncer of these namespaces keeps.

It reads the list that every client gets, up to 30 s old, once from each server.

  Exit code: 0 listed
             1 nothing fits
             2 Eureka is missing or could not be read, or wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("applications", nargs="*", metavar="APPLICATION", help="List these only. [all]")
    parser.add_argument(
        "--status",
        dest="statuses",
        type=str.upper,
        choices=list(map(str, Status)),
        action="append",
        default=[],
        help="Only with this status; may be repeated.",
    )
    parser.add_argument(
        "--kept-by",
        dest="kinds",
        choices=list(map(str, ManagerKind)),
        action="append",
        default=[],
        help="Only what such a keeper keeps; may be repeated.",
    )
    parser.add_argument("--owner", metavar="PATTERN", help="Only of this owner, e.g. 'stack/acme/*'.")
    parser.add_argument("--address", metavar="ADDRESS", help="Only at this IP address.")
    add_inventory_options(parser)


def run(options: argparse.Namespace) -> int:
    inventory = read_inventory("instances", options)
    if not inventory.instances:
        return COULD_NOT_READ_EXIT_CODE
    wanted = {name.upper() for name in options.applications}
    namespaces = set((options.namespace or "").split(",")) - {""}
    of_syncers = (ManagerKind.SYNCER, ManagerKind.OTHER_CLUSTER)

    def matches_filters(one: Instance, manager: Manager) -> bool:
        return (
            (not wanted or one.application in wanted)
            and (not options.statuses or str(one.status) in options.statuses)
            and (not options.kinds or str(manager.kind) in options.kinds)
            and (not options.owner or fnmatchcase(one.owner or "", options.owner))
            and (not options.address or one.ip_address == options.address)
            and (not namespaces or (manager.kind in of_syncers and manager.name.split("/")[-2] in namespaces))
        )

    found = [
        (name, one, manager)
        for name, instances in inventory.instances.items()
        for one in sorted(instances, key=lambda one: one.key)
        if matches_filters(one, manager := inventory.manager_of(one))
    ]
    document = {
        "instances": [_instance_to_dict(*each) for each in found],
        "unread": list(inventory.unread_parts),
    }
    print_output(OutputFormat(options.output), document, _instance_blocks(found, inventory.instances))
    if any(read.error for read in inventory.eurekas.values()):
        return COULD_NOT_READ_EXIT_CODE
    if not found:
        print_error_line("eurekube instances: nothing fits")
    return WELL_EXIT_CODE if found else NONE_FOUND_EXIT_CODE


def _instance_to_dict(eureka: str, instance: Instance, manager: Manager) -> dict[str, Any]:
    return {
        "eureka": eureka,
        "application": instance.application,
        "instanceId": instance.instance_id,
        "status": str(instance.status),
        "overriddenStatus": str(instance.overridden_status),
        "hostName": instance.host_name,
        "ipAddress": instance.ip_address,
        "port": instance.port.number if instance.port.enabled else None,
        "securePort": instance.secure_port.number if instance.secure_port.enabled else None,
        "vipAddress": instance.vip_address,
        "keeper": {"kind": str(manager.kind), "name": manager.name},
        "owner": instance.owner,
        "renewer": instance.renewer,
        "zone": instance.zone,
        "metadata": dict(instance.metadata),
        "unreadable": instance.unreadable or None,
    }


def _instance_blocks(
    found: Sequence[tuple[str, Instance, Manager]], eurekas: Mapping[str, Sequence[Instance]]
) -> Iterable[Block]:
    """Yield the table of the instances that were found."""
    has_several = len(eurekas) > 1
    rows = [
        (
            Cell(one.application),
            Cell(one.instance_id),
            Cell(str(one.status), _TONE_BY_STATUS.get(one.status, Tone.BAD)),
            Cell(one.address),
            *([Cell(name)] if has_several else ()),
            Cell(str(manager), Tone.DIM),
        )
        for name, one, manager in found
    ]
    at = ("AT",) if has_several else ()
    if rows:
        yield Table(("APPLICATION", "INSTANCE", "STATUS", "ADDRESS", *at, "KEPT BY"), rows)
    odd = [one for _, one, _ in found if one.unreadable]
    if odd:
        yield Line.of(
            f"not safe: {format_count(len(odd))} cannot be asked for, or not be read for certain:", Tone.BAD
        )
    for one in odd:
        yield Line.of(f"{one.application} {one.instance_id}: {one.unreadable}", Tone.WARNING, 2)
    every = sum(map(len, eurekas.values()))
    yield Line.of(f"{len(found)} of {every} instances", Tone.DIM)
