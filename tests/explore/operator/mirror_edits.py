"""Changes to mirrors, and acts of others, that are explored while the operator works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.objects import ATTACH_MIRROR_ANNOTATION, is_mirrored
from tests.explore.operator.mirrors import APP, APPS, MIRROR, SHOP, MirrorsExplored
from tests.explore.operator.world import Fault, Happening

FROZEN_MS = 40_000
REFUSED_MS = 10_000
LONG_MS = 3_600_000

Step = Callable[[MirrorsExplored], None]


def _in_place(explored: MirrorsExplored) -> None:
    explored.mirror()


@dataclass(frozen=True, slots=True, eq=False)
class MirrorEdit:
    """A change to a mirror.

    :ivar steps: each with the seconds before it.
    :ivar begin: the objects that exist before the operator starts.
    :ivar loses: applications whose endpoints a person's step may take away.
    :ivar applications: those of which machines run from the start.
    :ivar refused: applications that the mirror selects but cannot show at the end.
    """

    name: str
    steps: tuple[tuple[float, Step], ...]
    begin: Step = _in_place
    loses: tuple[str, ...] = ()
    applications: tuple[str, ...] = (APP,)
    refused: tuple[str, ...] = ()


def _nothing(_: MirrorsExplored) -> None:
    pass


def _beside_a_persons(explored: MirrorsExplored) -> None:
    explored.person_service()
    explored.mirror()


def _attach(explored: MirrorsExplored) -> None:
    explored.person_service("rating", **{ATTACH_MIRROR_ANNOTATION: MIRROR})
    explored.mirror(attachTo="rating")


def _replaced_by_a_person(explored: MirrorsExplored) -> None:
    explored.delete("services", "review")
    explored.person_service()


def _recreated(explored: MirrorsExplored) -> None:
    explored.delete("eurekamirrors", MIRROR)
    if explored.world.kube.get("eurekamirrors", SHOP, MIRROR) is None:
        explored.mirror()


ONE_APPLICATION = (
    MirrorEdit("it is made", ((0.0, lambda all_: all_.mirror()),), begin=_nothing),
    MirrorEdit("a machine comes", ((0.0, lambda all_: all_.machine(4)),)),
    MirrorEdit("a machine leaves", ((0.0, lambda all_: all_.stop(1)),)),
    MirrorEdit("a machine dies", ((0.0, lambda all_: all_.stop(1, deregisters=False)),)),
    MirrorEdit("a machine is DOWN", ((0.0, lambda all_: all_.machine(1, status="DOWN")),)),
    MirrorEdit("it is deleted", ((0.0, lambda all_: all_.delete("eurekamirrors", MIRROR)),), loses=(APP,)),
    MirrorEdit("it is deleted and made again", ((0.0, _recreated), (8.0, _in_place)), loses=(APP,)),
    MirrorEdit("another name", ((0.0, lambda all_: all_.mirror(serviceName="reviews")),)),
    MirrorEdit("another port", ((0.0, lambda all_: all_.mirror(port=81)),)),
    MirrorEdit("another form", ((0.0, lambda all_: all_.mirror(headless=True)),), loses=(APP,)),
    MirrorEdit("a person takes the name", ((0.0, _replaced_by_a_person),), loses=(APP,)),
    MirrorEdit(
        "a person has the name, and lets it go",
        ((0.0, lambda all_: all_.delete("services", "review")),),
        begin=_beside_a_persons,
    ),
    MirrorEdit("it is attached", ((0.0, _attach),), begin=_nothing),
    MirrorEdit(
        "a Service opts out", ((0.0, lambda all_: all_.person_service("rating")),), _attach, loses=(APP,)
    ),
    MirrorEdit("a machine comes to an attached one", ((0.0, lambda all_: all_.machine(4)),), _attach),
)
"""Edits of a mirror of one application."""


def _all_in_place(explored: MirrorsExplored) -> None:
    explored.mirror_all()


def _all_renamed(explored: MirrorsExplored) -> None:
    explored.mirror_all(serviceName="new-{application}")


def _beside_a_new_name(explored: MirrorsExplored) -> None:
    explored.person_service("new-review")
    explored.mirror_all()


def _one_of_each_leaves(explored: MirrorsExplored) -> None:
    for application in APPS:
        explored.stop(1, application)


def _one_of_each_comes(explored: MirrorsExplored) -> None:
    for application in APPS:
        explored.machine(4, application)


def _one_of_each_dies(explored: MirrorsExplored) -> None:
    for application in APPS:
        explored.stop(1, application, deregisters=False)


def _of_each(name: str, *steps: tuple[float, Step], **more: Any) -> MirrorEdit:
    """Return an edit of a mirror of several applications, which exists before unless ``begin`` says
    otherwise.
    """
    return MirrorEdit(name, steps, **{"begin": _all_in_place, "applications": APPS, **more})


SEVERAL_APPLICATIONS = (
    _of_each("all are made", (0.0, _all_in_place), begin=_nothing),
    _of_each("all get another name", (0.0, _all_renamed)),
    _of_each("all get another name and their old one back", (0.0, _all_renamed), (0.02, _all_in_place)),
    _of_each(
        "all get another name, of which a person has one", (0.0, _all_renamed), begin=_beside_a_new_name
    ),
    _of_each("all get another port", (0.0, lambda all_: all_.mirror_all(port=81))),
    _of_each("all get another form", (0.0, lambda all_: all_.mirror_all(headless=True)), loses=APPS),
    _of_each("all go", (0.0, lambda all_: all_.delete("eurekamirrors", MIRROR)), loses=APPS),
    _of_each("a machine of each comes", (0.0, _one_of_each_comes)),
    _of_each("a machine of each leaves", (0.0, _one_of_each_leaves)),
    _of_each("a machine of each is replaced", (0.0, _one_of_each_dies), (1.0, _one_of_each_comes)),
    _of_each(
        "a machine of each leaves, and all get another name",
        (0.0, _one_of_each_leaves),
        (20.003, _all_renamed),  # while the slices are written
    ),
    _of_each("fewer are meant", (0.0, lambda all_: all_.mirror_all(allow=[APP, "ORDER"])), loses=("PRICE",)),
    _of_each(
        "fewer are meant, by another name",
        (0.0, lambda all_: all_.mirror_all(allow=[APP, "ORDER"], serviceName="new-{application}")),
        loses=("PRICE",),
    ),
    _of_each(
        "another one comes of the same name",
        (0.0, lambda all_: all_.machine(1, "STAR-S")),
        begin=lambda all_: all_.mirror_all(allow=[APP, "STAR_S", "STAR-S"]),
        applications=(APP, "STAR_S"),
        refused=("STAR-S",),
    ),
    _of_each(
        "one leaves its name to another",
        (0.0, lambda all_: all_.mirror_all(allow=[APP, "ORDER", "STAR-S"])),
        begin=lambda all_: all_.mirror_all(allow=[APP, "ORDER", "STAR_S"]),
        applications=(APP, "ORDER", "STAR_S", "STAR-S"),
        loses=("STAR_S",),
    ),
    _of_each(
        "one that has no name gets one as all do",
        (0.0, lambda all_: all_.mirror_all(serviceName="app-{application}")),
        applications=(APP, "ORDER", "3D"),
    ),
)
"""Edits of a mirror of several applications, for which several writes are under way at once."""

MIRROR_EDITS = (*ONE_APPLICATION, *SEVERAL_APPLICATIONS)
"""All edits of mirrors."""


def a_person_makes_the_service(explored: MirrorsExplored) -> None:
    """Create a Service with the mirror's name as a person would, if there is none."""
    if explored.world.kube.get("services", SHOP, "review") is None:
        explored.person_service()
        explored.world.disturb()


def a_person_replaces_the_service(explored: MirrorsExplored) -> None:
    """Delete the mirror's Service and create one of the same name, as a person would."""
    service = explored.world.kube.get("services", SHOP, "review")
    if service is not None and is_mirrored(service):
        explored.wishes()
        _replaced_by_a_person(explored)


def a_person_takes_the_service_over(explored: MirrorsExplored) -> None:
    """Remove the mirror's label from its Service, which then belongs to a person."""
    service = explored.world.kube.get("services", SHOP, "review")
    if service is not None and is_mirrored(service):
        explored.wishes()
        metadata = {**service["metadata"], "labels": {"team": "a"}}
        explored.put("services", {**service, "metadata": metadata})
        explored.keep(service["metadata"]["name"])


def a_server_restarts_empty(explored: MirrorsExplored) -> None:
    """Restart the last Eureka server with an empty memory."""
    world = explored.world
    world.cluster.restart(world.cluster.urls[-1])
    world.disturb(world.now_ms + FROZEN_MS)


def another_eureka_answers(explored: MirrorsExplored) -> None:
    """Replace all servers by another Eureka at the same URLs, which has run as long and never held an
    instance.

    Each machine registers there at its next renewal.
    """
    world = explored.world
    for url in world.cluster.urls:
        started_ms = world.cluster.servers[url].started_ms
        world.cluster.restart(url)
        world.cluster.servers[url].started_ms = started_ms
    world.disturb(world.now_ms + FROZEN_MS)


def in_place_for_long(explored: MirrorsExplored) -> None:
    """Create the mirror, with servers that have run so long that an instance which none of them holds
    counts as gone.
    """
    for server in explored.world.cluster.servers.values():
        server.started_ms -= LONG_MS
    _in_place(explored)


def a_server_freezes(explored: MirrorsExplored) -> None:
    """Freeze the first server for a while."""
    world = explored.world
    url = world.cluster.urls[0]
    world.cluster.down.add(url)
    world.cluster.clock.run_after(FROZEN_MS, lambda: world.cluster.down.discard(url))
    world.disturb(world.now_ms + FROZEN_MS)


def another_replica(explored: MirrorsExplored) -> None:
    """Start a second replica; each of the two believes that it leads."""
    explored.another_replica()
    explored.world.disturb()


def the_last_application_is_refused(explored: MirrorsExplored) -> None:
    """Have the API server refuse all writes for one application for a while, as a quota or a webhook
    would.
    """
    world = explored.world
    world.kube.refused = explored.last_application.lower().replace("_", "-")
    world.cluster.clock.run_after(REFUSED_MS, lambda: setattr(world.kube, "refused", ""))
    world.disturb(world.now_ms + REFUSED_MS)


def the_watches_are_late(explored: MirrorsExplored) -> None:
    """Stop all watches until the final calm."""
    for replica in explored.replicas:
        replica.hears = False


ACTS: tuple[Happening, ...] = (
    a_person_makes_the_service,
    a_person_replaces_the_service,
    a_person_takes_the_service_over,
    a_server_restarts_empty,
    a_server_freezes,
    another_replica,
    the_last_application_is_refused,
    the_watches_are_late,
)
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)
FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE, Fault.SLOW)


def mirror_edit(name: str) -> MirrorEdit:
    """Return the edit with this name."""
    return next(one for one in MIRROR_EDITS if one.name == name)
