"""After a process dies between two requests, the next process completes or undoes its work.

Each row of :data:`PAIRS` names two requests: the process dies after the first was carried out, and before the
second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pytest

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.identity import OWNER_KEY, ClusterOwner, cluster_name_of_owner, parse_owner
from eurekube_provider.core.objects import SERVICE_NAME_LABEL, is_being_deleted, is_mirrored
from eurekube_provider.core.syncer import has_finalizer
from eurekube_provider.eureka.connection import BatchMode
from tests.explore import world as of_commands
from tests.explore.commands import PLACE, Drained
from tests.explore.operator import stepwise, world
from tests.explore.operator.acts import servers_lose_each_other
from tests.explore.operator.edits import Edit, edit
from tests.explore.operator.explorer import Explored, Faults, Setup
from tests.explore.operator.mirror_edits import (
    MirrorEdit,
    a_person_takes_the_service_over,
    another_eureka_answers,
    in_place_for_long,
)
from tests.explore.operator.mirrors import APP, MIRROR, SHOP, MirrorsExplored
from tests.explore.operator.threads import Process
from tests.explore.operator.workloads import NAMESPACES, Workloads
from tests.explore.operator.world import Fault

NO_FAULTS: Faults = {}


class Trial(Protocol):
    """A run of a process that may be killed, followed by a run of the next process.

    :ivar places: the requests, by number.
    :ivar died: called as the process dies.
    """

    died: Callable[[], None]

    @property
    def places(self) -> list[str]: ...

    def tried(self) -> list[str]:
        """Run the processes; return the violations."""


def _nothing(*_: object) -> None:
    pass


class _OfOperators:
    """The common part of trials with operators.

    :cvar owned: makes the world of its own.
    """

    died: Callable[[], None] = staticmethod(_nothing)
    owned: ClassVar[Callable[[], AbstractContextManager[Any]]]
    outcome: Any
    run: Callable[[], Any]

    @property
    def places(self) -> list[str]:
        """The requests in their order."""
        found: list[str] = self.outcome.places
        return found

    def tried(self) -> list[str]:
        """Run the trial in a world of its own; return the violations."""
        with type(self).owned():
            found: list[str] = self.run().violations
            return found


class OfSyncers(_OfOperators, Explored):
    """A trial of an operator that serves syncers."""

    owned = world.owned

    def _killed(self, process: Process) -> None:
        if self.world.trace[-1].endswith("is killed"):  # not asked to end
            self.died()
        super()._killed(process)


class OfMirrors(_OfOperators, MirrorsExplored):
    """A trial of an operator that serves mirrors."""

    owned = stepwise.owned

    def _killed(self, process: Process) -> None:
        self.died()
        super()._killed(process)


def _syncers(
    changed: Edit, servers: int = 1, faults: Faults = NO_FAULTS, mode: BatchMode = BatchMode.REST
) -> Callable[[int | None], Trial]:
    def begun(at: int | None) -> Trial:
        killed = {} if at is None else {at: Fault.KILLED_AFTER}
        return OfSyncers(changed, {**faults, **killed}, Setup(servers, mode=mode))

    return begun


def _mirrors(changed: MirrorEdit) -> Callable[[int | None], Trial]:
    return lambda at: OfMirrors(changed, {} if at is None else {at: Fault.KILLED_AFTER})


def _undrain(servers: int, *, is_interrupted: bool) -> Callable[[int | None], Trial]:
    def begun(at: int | None) -> Trial:
        if at is None or is_interrupted:
            return Drained({}, servers, registered_out=True, interrupted_at=at)
        return Drained({at: of_commands.Fault.KILLED_AFTER}, servers, registered_out=True)

    return begun


# --- what stands


def _owners(trial: Any) -> Counter[tuple[str, str]]:
    """Count the instances that are UP by the cluster names in their owner and in their id."""
    (server,) = trial.world.cluster.servers.values()
    found = Counter[tuple[str, str]]()
    for one in (lease.holder for lease in server.registry.all_leases()):
        if name := cluster_name_of_owner((one.fields.get("metadata") or {}).get(OWNER_KEY)):
            found[name, one.id.rsplit(".", 1)[1].split(":")[0]] += one.status == "UP"
    return found


def _of_each_syncer(trial: Any) -> dict[str, tuple[str, int]]:
    """Return the state of each syncer, and the number of its instances that are UP."""
    (server,) = trial.world.cluster.servers.values()
    up = Counter[str]()
    for one in (lease.holder for lease in server.registry.all_leases()):
        owner = parse_owner((one.fields.get("metadata") or {}).get(OWNER_KEY))
        if isinstance(owner, ClusterOwner):
            up[owner.syncer] += one.status == "UP"
    items = trial.world.kube.objects["eurekasyncers"].values()
    states = {one["metadata"]["name"]: _state(one) for one in items}
    return {name: (states.get(name, "gone"), up[name]) for name in {*states, *up}}


def _of_two_services(trial: Any) -> list[tuple[str, int]]:
    """Return the same as a sorted list without names: of two Services either may come first."""
    return sorted(_of_each_syncer(trial).values())


def _state(item: Any) -> str:
    if is_being_deleted(item):
        return "deleted"
    if not has_finalizer(item):
        return "new"
    is_kept = item["spec"].get("paused") and item["spec"].get("policy") == "UpsertOnly"
    return "kept" if is_kept else "served"


def _own_registrations(trial: Any) -> list[str]:
    (server,) = trial.world.cluster.servers.values()
    return sorted(
        one.holder.id[:3] for one in server.registry.all_leases() if re.match(r"c-\d:", one.holder.id)
    )


def _up_at_the_far_server(trial: Any) -> list[str]:
    far = list(trial.world.cluster.servers.values())[-1]
    held = (one.holder for one in far.registry.all_leases())
    return sorted(one.id[:3] for one in held if one.status == "UP" and one.id[:2] in ("a-", "b-"))


def _held_by_each_server(trial: Any) -> list[int]:
    """Return how many pods' instances each server holds."""
    found = []
    for server in trial.world.cluster.servers.values():
        held = (one.holder for one in server.registry.all_leases())
        found.append(sum(one.id.startswith("a-") for one in held))
    return found


def _statuses(trial: Any) -> list[tuple[str, str]]:
    held = [server.registry.get(*PLACE) for server in trial.cluster.servers.values()]
    return [(one.status, one.overridden) for one in held]


def _of_a_person(trial: Any) -> tuple[int, bool]:
    """Return the number of owners of the Service that a person took over, and whether it has slices of
    ours.
    """
    objects = trial.world.kube.objects
    metadata = objects["services"][SHOP, "review"]["metadata"]
    ours = (one for one in objects["endpointslices"].values() if is_mirrored(one))
    labels = {one["metadata"]["labels"][SERVICE_NAME_LABEL] for one in ours}
    return len(metadata.get("ownerReferences") or ()), "review" in labels


def _is_annotated(item: Any) -> bool:
    return RELEASE_BRAKE_ANNOTATION in (item["metadata"].get("annotations") or {})


def _released_syncer(trial: Any) -> tuple[bool, int]:
    (item,) = trial.world.kube.objects["eurekasyncers"].values()
    return _is_annotated(item), len(list(_owners(trial).elements()))


def _released_mirror(trial: Any) -> tuple[bool, bool]:
    kube = trial.world.kube
    slices = (one for one in kube.objects["endpointslices"].values() if is_mirrored(one))
    return _is_annotated(kube.get("eurekamirrors", SHOP, MIRROR)), any(one["endpoints"] for one in slices)


# --- edits


def _release(workloads: Workloads) -> None:
    workloads.annotate_syncer(RELEASE_BRAKE_ANNOTATION)


def _one_pod(workloads: Workloads) -> None:
    workloads.no_pod("a-1", "a-2")


ALL_VANISH = Edit(
    "all endpoints vanish, and a person releases the brake",
    ((0.0, lambda workloads: workloads.no_pod("a-0", "a-1", "a-2")), (4.0, _release)),
    is_braked=True,
)
ONE_IS_REPLACED = Edit(
    "the only pod is replaced",
    (
        (0.0, lambda workloads: workloads.pod("b-0")),
        (1.0, lambda workloads: workloads.pod("a-0", terminating=True)),
        (2.0, lambda workloads: workloads.no_pod("a-0")),
    ),
    begin=_one_pod,
)


def _stars_too(workloads: Workloads) -> None:
    """Serve two Services by their namespace's syncer."""
    workloads.service("stars")
    workloads.no_syncer()
    workloads.namespace_syncer("All")


def _bad_annotations(workloads: Workloads) -> None:
    for name in ("rating", "stars"):
        workloads.annotate_service(name, port="")


def _keep_all(workloads: Workloads) -> None:
    workloads.namespace_syncer("All", paused=True, policy="UpsertOnly")


def _end_the_pause_and_a_pod(trial: Any) -> None:
    trial.workloads.namespace_syncer("All")
    trial.workloads.pod("a-2", terminating=True)


def _rejoin(trial: Any) -> None:
    trial.workloads.annotate_service(sync="true")


KEPT_THOUGH_REFUSED = Edit(
    "two Services are refused, and their namespace's syncer is paused, with UpsertOnly",
    ((0.0, _bad_annotations), (2.0, _keep_all)),
    begin=_stars_too,
)
BOTH_DELETED = Edit(
    "the syncer of two Services is deleted",
    ((0.0, lambda workloads: workloads.no_syncer(NAMESPACES)),),
    begin=_stars_too,
)


def _taken_over_and_renamed(explored: MirrorsExplored) -> None:
    a_person_takes_the_service_over(explored)
    explored.mirror(serviceName="reviews")


def _another_eureka_without_machines(explored: MirrorsExplored) -> None:
    for one in explored.machines.values():
        one.is_running, one.up_since_ms = False, None
    another_eureka_answers(explored)


def _release_mirror(explored: MirrorsExplored) -> None:
    item = explored.world.kube.objects["eurekamirrors"][SHOP, MIRROR]
    metadata = {**item["metadata"], "annotations": {RELEASE_BRAKE_ANNOTATION: "now"}}
    explored.put("eurekamirrors", {**item, "metadata": metadata})


TAKEN_OVER = MirrorEdit("a person takes it over", ((0.0, a_person_takes_the_service_over),), loses=(APP,))
TAKEN_OVER_AND_RENAMED = MirrorEdit(
    "a person takes its Service over, and it gets another name",
    ((0.0, _taken_over_and_renamed),),
    loses=(APP,),
)
RELEASED = MirrorEdit(
    "all machines vanish, and a person releases the brake twice",
    ((0.0, _another_eureka_without_machines), (40.0, _release_mirror), (40.0, _release_mirror)),
    begin=in_place_for_long,
    loses=(APP,),
)


def _comes_back(trial: Any) -> None:
    trial.workloads.pod_with_client("c-0")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two requests between which the process dies.

    :ivar first: a pattern of the first request: the last match before ``second`` counts.
    :ivar after: the state when the process has died; ``end``: the state after the next process.
    :ivar meanwhile: an act of others while no process runs.
    """

    name: str
    begun: Callable[[int | None], Trial]
    first: str
    second: str
    stands: Callable[[Any], object]
    after: object
    end: object
    meanwhile: Callable[[Any], None] = field(default=_nothing)


FIRST, EAST = "c1a57e12", "east"
DEAD = edit("pods that registered themselves are gone")
_DELETED, _LET_GO = r"DELETE eurekasyncers shop/all\.", r"PATCH eurekasyncers shop/all\.\w+ \[\]"
OUT, UP = ("OUT_OF_SERVICE", "UNKNOWN"), ("UP", "UNKNOWN")

LEFT_OR_BACK: tuple[tuple[str, Callable[..., None], dict[str, tuple[str, int]]], ...] = (
    ("", _nothing, {"all": ("served", 0)}),
    (", and it joins again", _rejoin, {"all": ("served", 0), "all.rating": ("served", 3)}),
)
"""Ends of a Service's leave: the words for it, the change meanwhile, and the syncers that are left."""

PAIRS = (
    Pair(
        "of a renamed cluster one instance is taken over, and not the next",
        _syncers(edit("the cluster is renamed")),
        r"POST eureka-1 .* a-\d\..* of rating",
        r"POST eureka-1 .* a-\d\..* of rating",
        _owners,
        Counter({(EAST, FIRST): 1, (FIRST, FIRST): 2}),
        Counter({(EAST, FIRST): 3}),
    ),
    Pair(
        "a dead pod's own registration is read, and not removed",
        _syncers(DEAD),
        r"GET eureka-1 .*/c-\d:",
        r"DELETE eureka-1 .*/c-\d:",
        _own_registrations,
        ["c-0", "c-1"],
        [],
    ),
    Pair(
        "a dead pod's own registration is read, and the next pod has its name before it is removed",
        _syncers(DEAD),
        r"GET eureka-1 .*/c-\d:",
        r"DELETE eureka-1 .*/c-\d:",
        _own_registrations,
        ["c-0", "c-1"],
        ["c-0"],
        _comes_back,
    ),
    Pair(
        "of two dead pods' own registrations one is removed, and not the other",
        _syncers(DEAD),
        r"DELETE eureka-1 .*/c-0:",
        r"DELETE eureka-1 .*/c-1:",
        _own_registrations,
        ["c-1"],
        [],
    ),
    Pair(
        "a far server is notified of a successor, and not of the removal",
        _syncers(ONE_IS_REPLACED, 2, {0: servers_lose_each_other}),
        r"POST eureka-2 .* b-0",
        r"DELETE eureka-2 .*/a-0",
        _up_at_the_far_server,
        ["a-0", "b-0"],
        ["b-0"],
    ),
    *(
        Pair(
            f"{what} reaches one of two servers in a batch, and not the other",
            _syncers(edit(name), 2, mode=BatchMode.BATCH),
            rf"POST eureka-1 .*{action}:{pod}",
            rf"POST eureka-2 .*{action}:{pod}",
            _held_by_each_server,
            after,
            [end, end],
        )
        for what, name, action, pod, after, end in (
            ("a registration", "scaled up", "Register", "a-3", [4, 3], 4),
            ("a removal", "scaled down", "Cancel", "a-2", [2, 3], 2),
        )
    ),
    *(
        Pair(
            f"undrain sets UP and {how} before it clears that, at {servers}",
            _undrain(servers, is_interrupted=how == "is interrupted"),
            r"PUT .*/status value=UP",
            r"DELETE .*/status",
            _statuses,
            [("UP", "UP"), *[after] * (servers - 1)],
            [UP] * servers,
        )
        for how in ("is killed", "is interrupted")
        for servers, after in ((1, OUT), (2, ("UP", "UP")))
    ),
    Pair(
        "a Service is left to a person, and our slices are in it",
        _mirrors(TAKEN_OVER),
        r"PATCH services shop/review",
        r"DELETE endpointslices",
        _of_a_person,
        (0, True),
        (0, False),
    ),
    Pair(
        "a Service is left to a person as its mirror gets another name, and our slices are in it",
        _mirrors(TAKEN_OVER_AND_RENAMED),
        r"PATCH services shop/review",
        r"DELETE endpointslices",
        _of_a_person,
        (0, True),
        (0, False),
    ),
    Pair(
        "the release of a syncer's brake is taken off, and nothing removed",
        _syncers(ALL_VANISH),
        r"PATCH eurekasyncers shop/rating null$",
        r"DELETE eureka-1 .*/a-\d",
        _released_syncer,
        (False, 3),
        (False, 0),
    ),
    Pair(
        "the release of a mirror's brake is taken off, and no slice written",
        _mirrors(RELEASED),
        r"PATCH eurekamirrors shop/legacy null$",
        r"(PUT|DELETE) endpointslices",
        _released_mirror,
        (False, True),
        (False, False),
    ),
    *(
        Pair(
            f"a Service's syncer {how}",
            _syncers(edit("a Service joins")),
            first,
            r"POST eureka-1 .*/RATING a-0",
            _of_each_syncer,
            {"all": ("served", 0), "all.rating": (state, 0)},
            {"all": ("served", 0), "all.rating": ("served", 3)},
        )
        for how, first, state in (
            ("is created, and has no finalizer", r"POST eurekasyncers shop", "new"),
            ("has its finalizer, and no instance", r"PATCH eurekasyncers shop/all.rating \[\"", "served"),
        )
    ),
    Pair(
        "a Service joins, and its syncer has one instance of three",
        _syncers(edit("a Service joins")),
        r"POST eureka-1 .*/RATING a-\d",
        r"POST eureka-1 .*/RATING a-\d",
        _of_each_syncer,
        {"all": ("served", 0), "all.rating": ("served", 1)},
        {"all": ("served", 0), "all.rating": ("served", 3)},
    ),
    Pair(
        "pause and policy reach the syncer of one refused Service, and not that of the other",
        _syncers(KEPT_THOUGH_REFUSED),
        r"PATCH eurekasyncers shop/all\.\w+ null$",
        r"PATCH eurekasyncers shop/all\.\w+ null$",
        _of_two_services,
        [("kept", 0), ("kept", 3), ("served", 3)],
        [("kept", 0), ("kept", 3), ("kept", 3)],
    ),
    Pair(
        "pause and policy reach two refused Services' syncers, and end before the next process begins",
        _syncers(KEPT_THOUGH_REFUSED),
        r"PATCH eurekasyncers shop/all\.\w+ null$",
        r"PATCH eurekasyncers shop/all\.\w+ status",
        _of_two_services,
        [("kept", 0), ("kept", 3), ("kept", 3)],
        [("served", 0), ("served", 2), ("served", 2)],
        _end_the_pause_and_a_pod,
    ),
    *(
        Pair(
            f"a Service that left is read again, and its syncer not deleted{then}",
            _syncers(edit("a Service leaves")),
            r"GET services shop",
            r"DELETE eurekasyncers shop/all.rating",
            _of_each_syncer,
            {"all": ("served", 0), "all.rating": ("served", 3)},
            end,
            meanwhile,
        )
        for then, meanwhile, end in LEFT_OR_BACK
    ),
    *(
        Pair(
            f"a Service's syncer is deleted, and has its instances{then}",
            _syncers(edit("a Service leaves")),
            r"DELETE eurekasyncers shop/all.rating",
            r"DELETE eureka-1 .*/a-\d",
            _of_each_syncer,
            {"all": ("served", 0), "all.rating": ("deleted", 3)},
            end,
            meanwhile,
        )
        for then, meanwhile, end in LEFT_OR_BACK
    ),
    Pair(
        "a Service's syncer has lost its instances, and has its finalizer",
        _syncers(edit("a Service leaves")),
        r"DELETE eureka-1 .*/a-\d",
        r"PATCH eurekasyncers shop/all.rating \[\]",
        _of_each_syncer,
        {"all": ("served", 0), "all.rating": ("deleted", 0)},
        {"all": ("served", 0)},
    ),
    *(
        Pair(
            f"of a deleted namespace's syncer {how}",
            _syncers(BOTH_DELETED),
            first,
            second,
            _of_two_services,
            [("deleted", 0), *after],
            [],
        )
        for how, first, second, after in (
            ("one of two Services' is deleted", _DELETED, _DELETED, [("deleted", 3), ("served", 3)]),
            ("one of two Services' is gone", _LET_GO, _LET_GO, [("deleted", 0)]),
            ("no Service's is left", _LET_GO, r"PATCH eurekasyncers shop/all \[\]", []),
        )
    ),
    Pair(
        "a Service's own syncer has passed one instance on to its namespace's, and not the next",
        _syncers(edit("a Service's own syncer gives way to its namespace's")),
        r"POST eureka-1 .* a-\d\..* of all.rating",
        r"POST eureka-1 .* a-\d\..* of all.rating",
        _of_each_syncer,
        {"all": ("served", 0), "all.rating": ("served", 1), "rating": ("deleted", 2)},
        {"all": ("served", 0), "all.rating": ("served", 3)},
    ),
    *(
        Pair(
            f"a Service's syncer from its namespace's is deleted for its own, {how}",
            _syncers(edit("a namespace's syncer gives way to a Service's own")),
            first,
            second,
            _of_each_syncer,
            {"all": ("served", 0), "all.rating": ("deleted", 3 - passed), "rating": ("served", passed)},
            {"all": ("served", 0), "rating": ("served", 3)},
        )
        for how, passed, first, second in (
            ("and has all instances", 0, r"DELETE eurekasyncers", r"POST eureka-1 .* of rating"),
            ("and has passed one on", 1, r"POST eureka-1 .* of rating", r"POST eureka-1 .* of rating"),
            ("and has its finalizer", 3, r"POST eureka-1 .* of rating", r"PATCH .*/all.rating \[\]"),
        )
    ),
)
"""Pairs of requests, and the state that a death between the two leaves."""


@pytest.mark.parametrize("pair", PAIRS, ids=lambda one: one.name)
def test_what_is_begun_is_ended_by_the_next_process(pair: Pair) -> None:
    """If the process dies between the two requests, the next process ends in the expected state."""
    calm = pair.begun(None)
    assert calm.tried() == []
    at = _between(pair, calm.places)
    trial = pair.begun(at)
    found: list[object] = []

    def died() -> None:
        found.append(pair.stands(trial))
        pair.meanwhile(trial)

    trial.died = died
    violations = trial.tried()
    assert found == [pair.after], "what stands as it dies"
    assert not violations, (pair.name, at, violations, calm.places)
    assert pair.stands(trial) == pair.end, "what stands in the end"


def test_an_earlier_read_does_not_remove_a_new_registration() -> None:
    """If the next pod of a name registers itself between a read and the removal, the removal does not hit
    its registration.
    """
    calm = OfSyncers(DEAD, {})
    assert calm.tried() == []
    removal = next(at for at, what in enumerate(calm.places) if what.startswith("DELETE"))
    reads = [at for at, what in enumerate(calm.places[:removal]) if re.match("GET (?!.*/c-1:)", what)]
    for at in reads[-8:]:
        trial = OfSyncers(DEAD, {at: _comes_back})
        assert not (violations := trial.tried()), (at, violations)
        assert _own_registrations(trial) == ["c-0"], at


def _between(pair: Pair, places: list[str]) -> int:
    """Return the number of the first request, after which the process dies."""
    firsts = [at for at, what in enumerate(places) if re.match(pair.first, what)]
    seconds = [at for at, what in enumerate(places) if re.match(pair.second, what) and at > min(firsts)]
    assert seconds, (pair.name, places)
    return max(at for at in firsts if at < seconds[0])
