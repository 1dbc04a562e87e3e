"""What happens to mirrors, and what others do while their operator works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eurekube_provider.core.objects import ATTACH_ANNOTATION, is_mirrored
from tests.explore.operator.mirrors import APP, MIRROR, SHOP, MirrorsExplored
from tests.explore.operator.world import Fault, Happening

FROZEN_MS = 40_000

Step = Callable[[MirrorsExplored], None]


def _in_place(explored: MirrorsExplored) -> None:
    explored.mirror()


def _own_service(explored: MirrorsExplored) -> str:
    """The Service of the mirror as it stands; none where a person has the name."""
    item = explored.world.kube.get("eurekamirrors", SHOP, MIRROR)
    if item is None:
        return ""
    name = str(item["spec"].get("attachTo") or item["spec"].get("serviceName") or APP.lower())
    service = explored.world.kube.get("services", SHOP, name)
    if item["spec"].get("attachTo"):
        annotations = ((service or {}).get("metadata") or {}).get("annotations") or {}
        return name if annotations.get(ATTACH_ANNOTATION) == MIRROR else ""
    return "" if service is not None and not is_mirrored(service) else name


@dataclass(frozen=True, slots=True, eq=False)
class MirrorEdit:
    """What happens to a mirror.

    :ivar steps: each with the seconds before it.
    :ivar begin: what is there before the operator starts.
    :ivar may_lose: whether a person asks for what takes endpoints away.
    :ivar shown_by: by which Service the application is shown in the end; empty for none.
    """

    name: str
    steps: tuple[tuple[float, Step], ...]
    begin: Step = _in_place
    may_lose: bool = False
    shown_by: Callable[[MirrorsExplored], str] = _own_service


def _nothing(_: MirrorsExplored) -> None:
    pass


def _beside_a_persons(explored: MirrorsExplored) -> None:
    explored.person_service()
    explored.mirror()


def _attach(explored: MirrorsExplored) -> None:
    explored.person_service("rating", **{ATTACH_ANNOTATION: MIRROR})
    explored.mirror(attachTo="rating")


def _replaced_by_a_person(explored: MirrorsExplored) -> None:
    explored.delete("services", "review")
    explored.person_service()


def _deleted_and_made_anew(explored: MirrorsExplored) -> None:
    explored.delete("eurekamirrors", MIRROR)
    if explored.world.kube.get("eurekamirrors", SHOP, MIRROR) is None:
        explored.mirror()


MIRROR_EDITS = (
    MirrorEdit("it is made", ((0.0, lambda all_: all_.mirror()),), begin=_nothing),
    MirrorEdit("a machine comes", ((0.0, lambda all_: all_.machine("vm-4")),)),
    MirrorEdit("a machine leaves", ((0.0, lambda all_: all_.stop("vm-1")),)),
    MirrorEdit("a machine dies", ((0.0, lambda all_: all_.stop("vm-1", says_goodbye=False)),)),
    MirrorEdit("a machine is DOWN", ((0.0, lambda all_: all_.machine("vm-1", "DOWN")),)),
    MirrorEdit("it is deleted", ((0.0, lambda all_: all_.delete("eurekamirrors", MIRROR)),), may_lose=True),
    MirrorEdit(
        "it is deleted and made anew", ((0.0, _deleted_and_made_anew), (8.0, _in_place)), may_lose=True
    ),
    MirrorEdit("another name", ((0.0, lambda all_: all_.mirror(serviceName="reviews")),)),
    MirrorEdit("another port", ((0.0, lambda all_: all_.mirror(port=81)),)),
    MirrorEdit("another form", ((0.0, lambda all_: all_.mirror(headless=True)),), may_lose=True),
    MirrorEdit("a person takes the name", ((0.0, _replaced_by_a_person),), may_lose=True),
    MirrorEdit(
        "a person has the name, and lets it go",
        ((0.0, lambda all_: all_.delete("services", "review")),),
        begin=_beside_a_persons,
    ),
    MirrorEdit("it is attached", ((0.0, _attach),), begin=_nothing),
    MirrorEdit(
        "a Service opts out", ((0.0, lambda all_: all_.person_service("rating")),), _attach, may_lose=True
    ),
    MirrorEdit("a machine comes to an attached one", ((0.0, lambda all_: all_.machine("vm-4")),), _attach),
)
"""Each runs beside the operator."""


def a_person_makes_the_service(explored: MirrorsExplored) -> None:
    """Somebody makes a Service of the name, where there is none."""
    if explored.world.kube.get("services", SHOP, "review") is None:
        explored.person_service()
        explored.world.disturb()


def a_person_replaces_the_service(explored: MirrorsExplored) -> None:
    """Somebody deletes the mirror's Service and makes one of the same name."""
    service = explored.world.kube.get("services", SHOP, "review")
    if service is not None and is_mirrored(service):
        explored.wishes()
        _replaced_by_a_person(explored)


def a_person_takes_the_service_over(explored: MirrorsExplored) -> None:
    """Somebody takes the mirror's label off its Service, which is a person's from then on."""
    service = explored.world.kube.get("services", SHOP, "review")
    if service is not None and is_mirrored(service):
        explored.wishes()
        metadata = {**service["metadata"], "labels": {"team": "a"}, "ownerReferences": []}
        explored.put("services", {**service, "metadata": metadata})


def a_server_restarts_empty(explored: MirrorsExplored) -> None:
    """The last server has lost its memory."""
    world = explored.world
    world.cluster.restart(world.cluster.urls[-1])
    world.disturb(world.now_ms + FROZEN_MS)


def a_server_freezes(explored: MirrorsExplored) -> None:
    """The first server answers nobody for a while."""
    world = explored.world
    url = world.cluster.urls[0]
    world.cluster.down.add(url)
    world.cluster.clock.after(FROZEN_MS, lambda: world.cluster.down.discard(url))
    world.disturb(world.now_ms + FROZEN_MS)


def another_replica(explored: MirrorsExplored) -> None:
    """A second one writes as well: each takes itself for the leader."""
    explored.another_replica()
    explored.world.disturb()


def the_watches_are_late(explored: MirrorsExplored) -> None:
    """They tell nothing more until the calm."""
    for replica in explored.replicas:
        replica.hears = False


ACTS: tuple[Happening, ...] = (
    a_person_makes_the_service,
    a_person_replaces_the_service,
    a_person_takes_the_service_over,
    a_server_restarts_empty,
    a_server_freezes,
    another_replica,
    the_watches_are_late,
)
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)
FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE, Fault.SLOW)


def mirror_edit(name: str) -> MirrorEdit:
    """One by its name."""
    return next(one for one in MIRROR_EDITS if one.name == name)
