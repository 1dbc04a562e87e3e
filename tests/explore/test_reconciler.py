"""No order of events makes the Reconciler do harm, driven step by step without threads."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest

from eurekube_provider.dev.eureka.virtual_clock import Clock
from tests.explore.operator.acts import (
    a_server_freezes,
    servers_lose_each_other,
    the_api_is_behind,
    the_cluster_gets_another_name,
    the_cluster_gets_another_name_beside_the_old_one,
)
from tests.explore.operator.edits import EDITS, Edit, edit
from tests.explore.operator.explorer import Faults, Setup, describe_failure
from tests.explore.operator.reconciler import HAPPENINGS, SETUPS, Stepped, replay, tried
from tests.explore.operator.stepwise import Stepwise, owned
from tests.explore.operator.threads import Lock, Process, Task, Thread, use
from tests.explore.operator.world import Fault

ORDERS_AN_EDIT = 3


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    """Have the code reach no real server, and start no thread."""
    with owned():
        yield


@pytest.mark.parametrize("changed", EDITS, ids=lambda one: one.name)
def test_orders_and_single_faults(changed: Edit) -> None:
    """A calm run, and any lost or late request or act of others, harms no caller."""
    draw = random.Random(changed.name)  # noqa: S311 - a test
    setup = draw.choice(SETUPS)
    calm = Stepped(changed, {}, setup).run()
    assert not calm.violations, describe_failure(changed, {}, calm, setup, replay(changed, {}, setup, 0))
    places = range(len(calm.places))
    for order in range(1, ORDERS_AN_EDIT):
        failure = tried(changed, {draw.choice(places): draw.choice(HAPPENINGS)}, setup, order)
        assert not failure, failure


@pytest.mark.parametrize("order", [11, 16, 20])
def test_a_status_of_ours_that_comes_over_the_next_pod_is_taken_off(order: int) -> None:
    """Our status of an old pod that a server replicates over the next pod is cleared."""
    replaced = edit("a StatefulSet's pod is replaced at once, shown until it is gone")
    failure = tried(replaced, {}, Setup(2), order)
    assert not failure, failure


@pytest.mark.parametrize(("at", "servers", "order"), [(3, 2, 740883), (4, 3, 822258)])
def test_our_status_over_the_next_pod_at_every_server_is_replaced(at: int, servers: int, order: int) -> None:
    """Our late status over the next pod is replaced at every server, even if a server replicates its own
    old registration as DOWN.
    """
    replaced = edit("a StatefulSet's pod is replaced at once, shown until it is gone")
    failure = tried(replaced, {at: Fault.LATE}, Setup(servers), order)
    assert not failure, failure


@pytest.mark.parametrize(("at", "servers", "order"), [(3, 2, 461487), (0, 3, 859916)])
def test_who_missed_changes_lists_though_the_api_is_behind(at: int, servers: int, order: int) -> None:
    """A cache that stands still also answers 410 for changes that it has forgotten, so that the operator
    lists.
    """
    failure = tried(edit("gone and back, unobserved"), {at: the_api_is_behind}, Setup(servers), order)
    assert not failure, failure


@pytest.mark.parametrize(
    ("name", "freezes", "renamed", "order"),
    [
        ("a syncer gives up what another one wants", 12, 16, 45321),
        ("the namespace is deleted", 0, 3, 93159),
    ],
)
def test_a_frozen_servers_former_names_are_found_when_it_is_back(
    name: str, freezes: int, renamed: int, order: int
) -> None:
    """When a frozen server answers again the operator finds its instances under former cluster names, of
    which no other server told it.
    """
    faults = {freezes: a_server_freezes, renamed: the_cluster_gets_another_name}
    failure = tried(edit(name), faults, Setup(3), order)
    assert not failure, failure


def test_our_out_of_service_is_undone_at_separated_servers() -> None:
    """Our OUT_OF_SERVICE is cleared at servers that lost each other, after two earlier operators set and
    cleared it under other cluster names.
    """
    replaced = edit("a StatefulSet's pod is replaced while its syncer is renamed")
    faults: Faults = {
        5: the_cluster_gets_another_name_beside_the_old_one,
        12: servers_lose_each_other,
        17: the_cluster_gets_another_name,
    }
    failure = tried(replaced, faults, Setup(2), 753947)
    assert not failure, failure


def test_a_sequence_is_the_same_each_time() -> None:
    """A sequence is determined by its seed and its faults."""
    first, second, other = (
        Stepped(edit("rolling update"), {3: Fault.LOST_AFTER}, Setup(2), seed=seed).run().trace
        for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


def test_a_wait_that_nobody_ends_is_an_error() -> None:
    """A round that waits for another one would wait for ever without threads: the scheduler raises."""
    scheduler = Stepwise(Clock())
    use(scheduler)
    with scheduler.within(Task(scheduler, Process("replica"), "loop", lambda: None)):
        lock = Lock()
        assert lock.acquire()
        with pytest.raises(AssertionError, match="nobody else runs"):
            lock.acquire()
        assert not scheduler.wait(deque(), 1.0)
        with pytest.raises(AssertionError, match="there is none"):
            Thread(target=lambda: None).start()


def test_a_pod_out_of_service_without_a_reason_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rules find a syncer whose pods are never registered."""
    monkeypatch.setattr("tests.explore.operator.reconciler.Replica.add", lambda *_: None)
    assert "missing" in tried(edit("scaled up"), {}, Setup(1))
