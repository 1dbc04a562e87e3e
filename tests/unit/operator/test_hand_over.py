"""Replicas of an operator, second by second, while some of them do not reach a Eureka: which one leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.hand_over import (
    CUT_OFF_AFTER_SECONDS,
    CUT_OFF_NOTE_ANNOTATION,
    HANDED_OVER_AT_ANNOTATION,
    LEASE_REQUEST_ANNOTATION,
    REQUEST_INTERVAL_SECONDS,
)
from eurekube_provider.core.registry import Failing, Figures, Healthy, NeverRead, RegistryCondition
from eurekube_provider.kube.elector import Elector
from eurekube_provider.operator.hand_over import HandOver
from eurekube_provider.operator.leadership import Leadership
from eurekube_provider.runtime.clock import format_utc_time
from tests.unit.kube.test_elector import TIMING, Api
from tests.unit.operator.test_leadership import LeaderTasks

AWAY = RegistryUnreachable("no answer")
WELL_SECONDS = int(CUT_OFF_AFTER_SECONDS) + 5
"""Seconds after which each replica has been well for long enough."""

HAND_OVER_SECONDS = int(CUT_OFF_AFTER_SECONDS) + 10
"""Seconds within which a leader that is cut off is replaced."""

NOON = 1_800_000_000.0
"""Unix time of the clock's zero."""

Event = Callable[[], object]


class PlayedRegistry:
    """One replica's registry, whose answers a test sets."""

    def __init__(self) -> None:
        self.state: RegistryCondition = Healthy()
        self.is_cut = False
        self.accepted = 0
        self.read_count = 0

    def condition(self) -> RegistryCondition:
        return self.state

    def figures(self) -> Figures:
        return Figures(accepted_renewals=self.accepted)

    def known_instances(self) -> list[Any]:
        return []

    def read_everywhere(self, keys: Iterable[Any]) -> None:
        assert len(list(keys)) == 1
        self.read_count += 1
        if self.is_cut:
            raise AWAY

    def cut(self) -> None:
        self.is_cut, self.state = True, Failing(AWAY, 0.0)

    def heal(self) -> None:
        self.is_cut, self.state = False, Healthy()


class Replica:
    """A replica with its real parts of the election; no thread runs."""

    def __init__(self, api: Api, name: str, eurekas: str = "a", *, is_old: bool = False) -> None:
        self.name = name
        self.eurekas = {one: PlayedRegistry() for one in eurekas}
        self.is_current = self.is_alive = True
        clocks = (api.clock, lambda: NOON + api.seconds)
        self.hand_over = HandOver(name, self.eurekas, lambda: self.is_current, *clocks)  # type: ignore[arg-type]
        noted = (lambda metadata: metadata) if is_old else self.hand_over.add_note
        election = ("ops", "leader", name, TIMING, clocks[0], noted, clocks[1])
        self.elector = Elector(api, *election)  # type: ignore[arg-type]
        self.leadership = Leadership(self.elector, self.hand_over.find_successor)
        self.tasks = LeaderTasks()
        self.is_old = is_old

    @property
    def eureka(self) -> PlayedRegistry:
        """Its first registry."""
        return next(iter(self.eurekas.values()))

    def end(self) -> None:
        """Kill the process."""
        self.is_alive = False

    def live(self, *, reads_lease: bool) -> None:
        """Do what its threads do in a second."""
        if not self.is_alive:
            return
        if reads_lease:
            with suppress(KubernetesError):
                self.elector.try_acquire_or_renew()
        if not self.is_old:
            self.hand_over.look(self.elector)
        self.leadership.apply_election_state(self.elector, self.tasks)


class Stage:
    """Replicas that share a Lease. The first one leads."""

    def __init__(self, *replicas: Replica, api: Api) -> None:
        self.api, self.replicas = api, replicas
        replicas[0].elector.try_acquire_or_renew()
        self.play(WELL_SECONDS)
        assert self.leader == replicas[0].name

    @property
    def leader(self) -> str:
        """The replica that may write; empty for none."""
        writers = [one.name for one in self.replicas if one.is_alive and one.leadership.may_write()]
        assert len(writers) < 2, f"{writers} write at once"
        return "".join(writers)

    def play(self, seconds: int, events: Mapping[int, Event] | None = None) -> list[str]:
        """Let seconds pass; return those that may write, in turn."""
        leaders: list[str] = []
        for second in range(seconds):
            self.api.seconds += 1
            (events or {}).get(second, lambda: None)()
            for number, one in enumerate(self.replicas):
                one.live(reads_lease=(int(self.api.seconds) + number) % 2 == 0)
                if self.leader and self.leader not in leaders[-1:]:
                    leaders.append(self.leader)
        return leaders

    @property
    def hand_over_count(self) -> int:
        """The number of hand-overs so far."""
        return sum(one.elector.hand_over_count for one in self.replicas)

    @property
    def annotations(self) -> dict[str, str]:
        """The Lease's annotations."""
        found: dict[str, str] = (self.api.lease or {})["metadata"].get("annotations") or {}
        return found


@pytest.fixture
def api() -> Api:
    return Api()


def two(api: Api, eurekas: str = "a", of_other: str = "") -> tuple[Replica, Replica, Stage]:
    """Return a leader, another replica, and their stage."""
    leader, other = Replica(api, "one", eurekas), Replica(api, "two", of_other or eurekas)
    return leader, other, Stage(leader, other, api=api)


def test_while_all_is_well_nothing_is_asked_or_noted(api: Api) -> None:
    """No request goes to Eureka, and no annotation stands at the Lease."""
    leader, other, stage = two(api)
    writes = len(api.writes)
    assert stage.play(100) == ["one"]
    assert (leader.eureka.read_count, other.eureka.read_count, stage.annotations) == (0, 0, {})
    assert len(api.writes) == writes + 50


def test_a_leader_that_alone_is_cut_off_hands_over(api: Api) -> None:
    """The other replica leads soon, nobody writes at the same time, and the former leader stands by."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    assert stage.play(HAND_OVER_SECONDS) == ["one", "two"]
    assert stage.hand_over_count == 1
    assert "stand by" in leader.tasks.done
    assert other.tasks.done[-2:] == ["renew", "lead"]
    assert stage.annotations.keys() == {HANDED_OVER_AT_ANNOTATION}
    assert api.spec["leaseTransitions"] == 1
    leader.eureka.heal()
    assert stage.play(300) == ["two"]


def test_a_leader_that_never_read_its_eureka_hands_over(api: Api) -> None:
    """It has nothing to renew, and yet what others registered before it lapses."""
    leader, _, stage = two(api)
    leader.eureka.state = NeverRead(AWAY)
    assert stage.play(HAND_OVER_SECONDS) == ["one", "two"]


def flaps(registry: PlayedRegistry, seconds: int) -> dict[int, Event]:
    """Return events by which a registry is cut off, and answers for a moment in between."""
    return {second: registry.heal if second % 18 == 0 else registry.cut for second in range(seconds)}


def renews_all_the_same(leader: Replica) -> dict[int, Event]:
    def renew() -> None:
        leader.eureka.accepted += 1

    return dict.fromkeys(range(0, 100, 10), renew)


@pytest.mark.parametrize(
    ("eurekas", "cut_of_leader", "cut_of_other", "of_other", "expected"),
    [
        ("a", "a", "", "", "two"),
        ("a", "a", "a", "", "one"),
        ("ab", "a", "", "", "two"),
        ("ab", "a", "b", "", "one"),
        ("ab", "a", "ab", "", "one"),
        ("ab", "a", "a", "", "one"),
        ("ab", "ab", "b", "", "two"),
        ("ab", "ab", "", "", "two"),
        ("ab", "a", "", "a", "one"),
        ("a", "a", "", "ab", "two"),
        ("a", "a", "b", "ab", "two"),
    ],
)
def test_only_who_is_strictly_better_off_gets_the_lease(
    api: Api, eurekas: str, cut_of_leader: str, cut_of_other: str, of_other: str, expected: str
) -> None:
    """A replica that lacks what the leader has asks for nothing, nor does one that lacks the same."""
    leader, other, stage = two(api, eurekas, of_other)
    for name in cut_of_leader:
        leader.eurekas[name].cut()
    for name in cut_of_other:
        other.eurekas[name].cut()
    stage.play(100)
    assert stage.leader == expected
    if expected == "one":
        assert all(one.read_count == 0 for one in other.eurekas.values()), "none is tried in vain"


def test_a_leader_that_is_cut_off_again_and_again_for_less_than_that_leads_on(api: Api) -> None:
    """A Eureka that answers now and then has each replica's renewals, and the Lease stays."""
    leader, _, stage = two(api)
    assert stage.play(200, flaps(leader.eureka, 200)) == ["one"]
    assert stage.hand_over_count == 0


def test_a_leader_whose_renewals_get_through_leads_on(api: Api) -> None:
    """A registry that cannot be read alone, such as one that is too large, loses nothing."""
    leader, _, stage = two(api)
    leader.eureka.cut()
    assert stage.play(100, renews_all_the_same(leader)) == ["one"]


def test_a_replica_tries_before_it_asks(api: Api) -> None:
    """Its last reading may be half a minute old, so that it says nothing."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    other.eureka.is_cut = True
    assert stage.play(100) == ["one"]
    assert 0 < other.eureka.read_count <= 80 / REQUEST_INTERVAL_SECONDS
    assert LEASE_REQUEST_ANNOTATION not in stage.annotations


def test_a_replica_that_could_change_nothing_does_not_ask(api: Api) -> None:
    """A replica with an old copy of the cluster would register nothing at the connections that are well."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    other.is_current = False
    assert stage.play(100) == ["one"]


def test_after_an_outage_for_all_nobody_asks_at_once(api: Api) -> None:
    """The leader knows best what a restarted Eureka forgot; it may see it some seconds later."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    other.eureka.cut()
    assert stage.play(60) == ["one"]
    other.eureka.heal()
    assert stage.play(15, {10: leader.eureka.heal}) == ["one"]
    assert other.eureka.read_count == 0


def test_a_leader_that_is_well_again_when_it_reads_the_request_leads_on(api: Api) -> None:
    """A request is about the present: it ends with the fault, and the next fault needs another one."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    request: dict[str, str] = {}

    def heal_once_asked() -> None:
        if LEASE_REQUEST_ANNOTATION in stage.annotations and leader.eureka.is_cut:
            request.update(stage.annotations)
            leader.eureka.heal()

    assert stage.play(60, dict.fromkeys(range(60), heal_once_asked)) == ["one"]
    assert request
    assert not leader.eureka.is_cut
    assert stage.annotations == {}, "the holder took it out"
    other.end()
    leader.eureka.cut()
    stage.play(WELL_SECONDS)
    assert CUT_OFF_NOTE_ANNOTATION in stage.annotations
    assert api.lease is not None
    api.lease["metadata"]["annotations"][LEASE_REQUEST_ANNOTATION] = request[LEASE_REQUEST_ANNOTATION]
    api.store(api.lease)
    stage.play(WELL_SECONDS)
    assert (stage.leader, stage.hand_over_count) == ("one", 0)


def test_changes_that_are_under_way_end_first(api: Api) -> None:
    """The leader begins no change once it is asked, and holds the Lease until all have ended."""
    leader, _, stage = two(api)
    leader.tasks.is_idle = False
    leader.eureka.cut()
    stage.play(60)
    assert (stage.leader, api.spec["holderIdentity"], stage.hand_over_count) == ("", "one", 0)
    leader.tasks.is_idle = True
    assert stage.play(10) == ["two"]


def test_a_leader_goes_on_where_the_asker_asks_no_more(api: Api) -> None:
    """The asker ended before the leader's changes did: nobody gets the Lease, and all is reconciled again."""
    leader, other, stage = two(api)
    leader.tasks.is_idle = False
    leader.eureka.cut()
    stage.play(HAND_OVER_SECONDS)
    assert stage.leader == ""
    other.end()
    stage.play(15)
    leader.tasks.is_idle = True
    assert stage.play(5) == ["one"]
    assert (stage.hand_over_count, leader.tasks.done[-2:]) == (0, ["pause", "lead"])


def test_an_asker_that_ends_with_the_lease_costs_no_more_than_a_killed_leader(api: Api) -> None:
    """Its Lease expires, and the former leader takes it again."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    while not stage.hand_over_count:
        stage.play(1)
        if leader.elector.holder == "one" and api.spec["holderIdentity"] == "two":
            other.end()
    other.end()
    assert stage.play(20)[-1:] == ["one"]


def test_replicas_do_not_exchange_the_lease_where_eureka_is_flaky(api: Api) -> None:
    """For two minutes after a hand-over there is none, whoever is cut off then; afterwards there may be."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    stage.play(HAND_OVER_SECONDS)
    leader.eureka.heal()
    other.eureka.cut()
    assert stage.play(100) == ["two"]
    assert LEASE_REQUEST_ANNOTATION not in stage.annotations
    assert stage.play(30) == ["two", "one"]


def test_a_holder_refuses_what_it_is_asked_too_soon(api: Api) -> None:
    """The holder judges by the Lease, too: the asker may have another clock."""
    leader, _, stage = two(api)
    leader.eureka.cut()
    asked: list[str] = []

    def note_hand_over_once_asked() -> None:
        if LEASE_REQUEST_ANNOTATION in stage.annotations:
            assert api.lease is not None
            asked.append("two")
            api.lease["metadata"]["annotations"][HANDED_OVER_AT_ANNOTATION] = format_utc_time(
                NOON + api.seconds
            )

    assert stage.play(60, dict.fromkeys(range(60), note_hand_over_once_asked)) == ["one"]
    assert asked


@pytest.mark.parametrize("loses_answer", [False, True], ids=["refused", "answer lost"])
def test_a_hand_over_that_fails_leaves_one_leader(api: Api, *, loses_answer: bool) -> None:
    """If the Lease could not be written, the holder leads again and tries again; if only the answer is
    lost, it writes nothing before it has read the Lease, though it is well again.
    """
    leader, _, stage = two(api)
    leader.eureka.cut()
    hand_over_to = leader.elector.hand_over_to
    failures = [1]

    def fail_once(successor: str) -> None:
        hand_over_to(successor)
        if failures:
            failures.pop()
            if loses_answer:
                api.loses_next_answer = True
                leader.eureka.heal()
            else:
                api.error = KubernetesError("no answer")

    leader.elector.hand_over_to = fail_once  # type: ignore[method-assign]

    def answer_again() -> None:
        if not failures:
            api.error = None

    stage.play(HAND_OVER_SECONDS + 10, dict.fromkeys(range(0, HAND_OVER_SECONDS + 10, 3), answer_again))
    assert stage.leader == "two"


def test_a_third_replica_does_not_take_the_lease_on_its_way(api: Api) -> None:
    """The Lease is the asker's at once: a third one on the same broken node would be the next that is cut
    off.
    """
    leader, other, third = (Replica(api, name) for name in ("one", "two", "three"))
    stage = Stage(leader, other, third, api=api)
    leader.eureka.cut()
    third.eureka.cut()
    assert stage.play(100) == ["one", "two"]


@pytest.mark.parametrize("old", ["one", "two"])
def test_a_replica_of_an_older_version_neither_asks_nor_is_asked(api: Api, old: str) -> None:
    """While versions are mixed, all is as it was before."""
    leader, other = (Replica(api, name, is_old=name == old) for name in ("one", "two"))
    stage = Stage(leader, other, api=api)
    leader.eureka.cut()
    assert stage.play(100) == ["one"]
    assert other.eureka.read_count == 0


def test_the_note_of_a_former_holder_is_not_taken_for_the_present_ones(api: Api) -> None:
    """A holder of an older version keeps annotations that it does not know."""
    leader, older, third = Replica(api, "one"), Replica(api, "two", is_old=True), Replica(api, "three")
    stage = Stage(leader, older, third, api=api)
    third.eureka.cut()
    leader.eureka.cut()
    stage.play(WELL_SECONDS)
    assert CUT_OFF_NOTE_ANNOTATION in stage.annotations
    leader.end()
    third.eureka.heal()
    third.is_alive = False
    stage.play(20)
    assert stage.leader == "two"
    assert CUT_OFF_NOTE_ANNOTATION in stage.annotations
    third.is_alive = True
    assert stage.play(100) == ["two"]
    assert LEASE_REQUEST_ANNOTATION not in stage.annotations


def test_a_request_does_not_lengthen_the_lease(api: Api) -> None:
    """A holder that ended is replaced in time, however often its Lease is annotated."""
    leader, other, stage = two(api)
    leader.eureka.cut()
    while LEASE_REQUEST_ANNOTATION not in stage.annotations:
        stage.play(1)
    leader.end()
    assert stage.play(20) == ["two"]
    assert other.elector.hand_over_count == 0
