"""The brake's memory of each syncer and of its earlier decisions."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from bench.registry import OWNER, make_instances
from eurekube_provider.core.brake import judge_removals
from eurekube_provider.core.identity import Cluster, parse_owner
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Plan, plan
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.index import SyncerKey

KEY = ("shop", "rating")


def memory(*tables: InstanceTable) -> BrakeMemory:
    """Return the brake's memory of an operator with these registries."""
    owner = parse_owner(OWNER)
    assert owner is not None
    return BrakeMemory(Cluster(OWNER.split("/")[1], "uid"), tables)  # type: ignore[arg-type]


def table(count: int) -> InstanceTable:
    """Return a registry with this number of the owner's instances."""
    result = InstanceTable()
    for instance in make_instances(count):
        result.store_written_and_return_previous(instance)
    return result


def holds(
    known: BrakeMemory,
    steps: Plan,
    now: float,
    key: SyncerKey = KEY,
    owner: str = OWNER,
    *,
    is_released: bool = False,
    parent: SyncerKey | None = None,
) -> bool:
    """Return True if the brake holds a part of a plan back; no endpoint was seen terminating."""
    history = known.history(key, owner, now, is_released=is_released, parent=parent)
    braked = judge_removals(steps.changes, history, (), DesiredInstances(), now, now)
    known.record_judgement_if_current(key, now, braked)
    return braked.held_removals is not None


def all_gone(count: int) -> Plan:
    """Return the plan that removes all of this number of instances."""
    return plan((), make_instances(count), OWNER)


def test_a_hold_lasts_until_its_time_is_over() -> None:
    """A hold begins at the first reconcile, and later reconciles do not extend it; after its end a new
    hold can begin.
    """
    known = memory(table(3))
    held = [holds(known, all_gone(3), now) for now in (0.0, 30.0, 59.0, 61.0)]
    assert held == [True, True, True, False]
    assert holds(known, all_gone(3), 62.0)
    assert not holds(known, Plan(), 63.0)  # all came back
    assert holds(known, all_gone(3), 122.5)


def test_a_person_releases_it() -> None:
    """A release lets the removals of one reconcile go, and the next ones are held again."""
    known = memory(table(3))
    assert holds(known, all_gone(3), 0.0)
    assert not holds(known, all_gone(3), 1.0, is_released=True)
    assert holds(known, all_gone(3), 2.0)


def test_all_registries_count() -> None:
    """An owner's instances at all registries count: three of six are not all."""
    elsewhere = table(6)
    for instance in make_instances(3):
        elsewhere.store_confirmed_absence(instance.key)
    assert not holds(memory(table(3), elsewhere), all_gone(3), 0.0)


class Crowd:
    """Syncers of five instances each, which are replaced without having been seen terminating.

    :param family: so many of them are derived from one syncer.
    """

    def __init__(self, syncers: int, family: int = 0, each: int = 5) -> None:
        self.family = family
        self.now = 0.0
        self.table = InstanceTable()
        self.known = memory(self.table)
        self.made = 0
        self.there: dict[int, list[Instance]] = {}
        for number in range(syncers):
            self.there[number] = [self.instance(number) for _ in range(each)]
            for one in self.there[number]:
                self.table.store_written_and_return_previous(one)

    def instance(self, number: int) -> Instance:
        """Return another instance of a syncer."""
        self.made += 1
        metadata = {"eurekube.owner": f"cluster/bench/shop/s-{number}"}
        (one,) = make_instances(1)
        return replace(one, instance_id=f"p-{self.made}.shop.bench:app-0:80", metadata=metadata)

    def reconcile(self, number: int, gone: int, come: int = 0) -> bool:
        """Remove the oldest instances and add new ones unless the brake holds; return False if it does."""
        before = self.there[number]
        after = [*before[gone:], *(self.instance(number) for _ in range(come))]
        owner = f"cluster/bench/shop/s-{number}"
        steps = plan(after, before, owner)
        parent = ("shop", "all") if number < self.family else None
        is_held = holds(self.known, steps, self.now, ("shop", f"s-{number}"), owner, parent=parent)
        for change in () if is_held else steps.changes:
            if change.action is Action.DEREGISTER:
                self.table.store_confirmed_absence(change.instance.key)
            else:
                self.table.store_written_and_return_previous(change.instance)
        self.there[number] = before if is_held else after
        return not is_held


@pytest.mark.parametrize("comes_first", [True, False])
def test_a_steady_replacement_is_not_held(comes_first: bool) -> None:
    """In five minutes every syncer replaces each of its instances one by one, none seen terminating, and
    nothing is held.
    """
    crowd = Crowd(100)
    held = 0
    for _ in range(5 * 60):
        crowd.now += 1.0
        for number in range(10 * int(crowd.now) % 100, 10 * int(crowd.now) % 100 + 10):
            one, other = ((0, 1), (1, 0)) if comes_first else ((1, 0), (0, 1))
            held += not crowd.reconcile(number, *one)
            held += not crowd.reconcile(number, *other)
    assert (held, crowd.made) == (0, 500 + 3000)
    held = sum(not crowd.reconcile(number, 2) for number in range(100))
    assert 25 <= held <= 50  # what does not come back is doubted as ever: 30 % of all may go


def test_a_lost_node_costs_as_much_as_there_is() -> None:
    """When each syncer loses one of five instances, the brake's work grows linearly with the number of
    syncers.
    """

    def calls(syncers: int) -> int:
        crowd = Crowd(syncers)
        count = 0

        def called(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(called)
        try:
            for number in range(syncers):
                assert crowd.reconcile(number, 1)
        finally:
            sys.setprofile(None)
        return count

    assert calls(200) < 5 * calls(50)


@pytest.mark.parametrize(
    ("family", "each", "let_go"),
    [
        (40, 1, 20),  # half, as of one syncer with so many instances
        (12, 1, 9),  # of few, so many may go that a share means something
        (3, 1, 2),  # but never the last
        (40, 5, 0),  # each is held by itself
    ],
)
def test_a_namespaces_syncers_are_judged_together(family: int, each: int, let_go: int) -> None:
    """Each loses all that it has, few as that is of all that the operator has."""
    crowd = Crowd(1000, family, each)
    for number in range(family):
        assert crowd.reconcile(number, 0)
    assert sum(crowd.reconcile(number, each) for number in range(family)) == let_go
    crowd.now += 30
    assert not crowd.reconcile(family - 1, each)
    assert crowd.reconcile(family, each) is (each == 1)  # one that is not derived is judged by itself


def test_what_comes_back_at_its_syncer_was_not_lost() -> None:
    """A namespace whose Services are replaced one by one is not held."""
    crowd = Crowd(100, 20, 1)
    for number in range(20):
        assert crowd.reconcile(number, 0)
    for number in range(20):
        assert crowd.reconcile(number, 0, 1)
        assert crowd.reconcile(number, 1)


def test_a_syncer_that_is_gone_is_counted_no_more() -> None:
    """Of what is left all would go."""
    crowd = Crowd(10, 3, 1)
    for number in range(3):
        assert crowd.reconcile(number, 0)
    crowd.known.forget(("shop", "s-2"))
    assert crowd.reconcile(0, 1)
    assert not crowd.reconcile(1, 1)


def test_siblings_that_are_judged_at_once_do_not_slip_through() -> None:
    """As by so many workers, before any of them has noted what it does: the later ones are judged anew."""
    crowd = Crowd(1000, 12, 1)
    parent = ("shop", "all")
    for number in range(12):
        assert crowd.reconcile(number, 0)
    gone, waiting = [], list(range(12))
    while waiting:
        judged = []
        for number in waiting:
            key, owner = ("shop", f"s-{number}"), f"cluster/bench/shop/s-{number}"
            history = crowd.known.history(key, owner, 0.0, is_released=False, parent=parent)
            steps = plan([], crowd.there[number], owner)
            braked = judge_removals(steps.changes, history, (), DesiredInstances(), 0.0, 0.0)
            judged.append((number, key, history, braked))
        waiting = []
        for number, key, history, braked in judged:
            if not crowd.known.record_judgement_if_current(key, 0.0, braked, history.siblings):
                waiting.append(number)
            elif braked.held_removals is None:
                gone.append(number)
    assert len(gone) == 9
