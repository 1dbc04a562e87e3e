"""Both worlds as a test has them, in place of servers; four that are well, ill, without Eureka and silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eurekube_provider.comparison.comparing import KubernetesInventory
from eurekube_provider.comparison.mirror_explaining import MirrorInventory
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.doctor import inventory_reader
from eurekube_provider.doctor.inventory_reader import EurekaRead, Inventory
from tests.unit.comparison.samples import instance, syncer, world


class FakeReader:
    """Reads what it was given; a context manager, as the real one."""

    def __init__(self, *looks: Inventory) -> None:
        self.looks = list(looks)
        self.access = None
        self.peers: dict[str, Any] = {}
        self.read_times = 0

    def __call__(self, *_: object) -> FakeReader:
        """It is made with settings, of which it needs none."""
        return self

    def __enter__(self) -> FakeReader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, progress: object = None, **_: object) -> Inventory:  # noqa: ARG002 - as the real one has it
        """The next look; the last one again and again."""
        self.read_times += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def inventory(
    kubernetes: KubernetesInventory | None,
    eurekas: Mapping[str, Sequence[Instance]],
    *,
    missing: tuple[str, ...] = (),
    unread: tuple[str, ...] = (),
    mirrors: Sequence[Mapping[str, Any]] = (),
) -> Inventory:
    """Both worlds as they were read."""
    reads = {name: EurekaRead(tuple(those), 2) for name, those in eurekas.items()}
    return Inventory(kubernetes, reads, missing, unread, mirrors=MirrorInventory(mirrors))


NO_EUREKA = inventory_reader.NO_EUREKA

WELL = inventory(world(syncer("rating")), {"default": [instance("rating")]})
ILL = inventory(
    world(syncer("rating"), syncer("order")),
    {"default": [instance("rating"), instance("order", 0, Status.DOWN), instance("vm", owner=None)]},
)
BLIND = inventory(world(syncer("rating")), {}, missing=(NO_EUREKA,))
SILENT = Inventory(None, {"default": EurekaRead(error="no answer")}, unread=("Eureka default: no answer",))
