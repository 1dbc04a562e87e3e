"""Inventories of Kubernetes and Eureka in place of servers: one in sync, one with faults, two that are
incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eurekube_provider.comparison.comparing import KubernetesInventory
from eurekube_provider.comparison.mirror_explaining import MirrorInventory
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.doctor import inventory_reader
from eurekube_provider.doctor.inventory_reader import EurekaListing, Inventory
from tests.unit.comparison.samples import instance, syncer, world


class FakeReader:
    """A stand-in for InventoryReader that returns given inventories."""

    def __init__(self, *looks: Inventory) -> None:
        self.looks = list(looks)
        self.access = None
        self.peers: dict[str, Any] = {}
        self.read_times = 0

    def __call__(self, *_: object) -> FakeReader:
        """Return this reader, whatever settings it is called with."""
        return self

    def __enter__(self) -> FakeReader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, progress: object = None, **_: object) -> Inventory:  # noqa: ARG002 - as the real one has it
        """Return the next inventory; the last one is repeated."""
        self.read_times += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def inventory(
    kubernetes: KubernetesInventory | None,
    eurekas: Mapping[str, Sequence[Instance]],
    *,
    missing_sources: tuple[str, ...] = (),
    unread_parts: tuple[str, ...] = (),
    mirrors: Sequence[Mapping[str, Any]] = (),
) -> Inventory:
    """Return an inventory of these objects and instances."""
    reads = {name: EurekaListing(tuple(those), 2) for name, those in eurekas.items()}
    return Inventory(kubernetes, reads, missing_sources, unread_parts, mirrors=MirrorInventory(mirrors))


NO_EUREKA_MESSAGE = inventory_reader.NO_EUREKA_MESSAGE

WELL = inventory(world(syncer("rating")), {"default": [instance("rating")]})
ILL = inventory(
    world(syncer("rating"), syncer("order")),
    {"default": [instance("rating"), instance("order", 0, Status.DOWN), instance("vm", owner=None)]},
)
BLIND = inventory(world(syncer("rating")), {}, missing_sources=(NO_EUREKA_MESSAGE,))
SILENT = Inventory(
    None, {"default": EurekaListing(error="no answer")}, unread_parts=("Eureka default: no answer",)
)
