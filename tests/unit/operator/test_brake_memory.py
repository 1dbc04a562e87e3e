"""The brake's memory of each syncer and of its earlier decisions."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from bench.registry import OWNER, instances
from eurekube_provider.core.brake import judge
from eurekube_provider.core.identity import Cluster, parse_owner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Plan, plan
from eurekube_provider.eureka.table import Table
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.index import SyncerKey

KEY = ("shop", "rating")


def memory(*tables: Table) -> BrakeMemory:
    """Return the brake's memory of an operator with these registries."""
    owner = parse_owner(OWNER)
    assert owner is not None
    return BrakeMemory(Cluster(OWNER.split("/")[1], "uid"), tables)  # type: ignore[arg-type]


def table(count: int) -> Table:
    """Return a registry with this number of the owner's instances."""
    result = Table()
    for instance in instances(count):
        result.registered(instance)
    return result


def holds(
    known: BrakeMemory, steps: Plan, now: float, key: SyncerKey = KEY, owner: str = OWNER, **more: bool
) -> bool:
    """Return True if the brake holds a part of a plan back; no endpoint was seen terminating."""
    history = known.history(key, owner, now, is_released=more.get("is_released", False))
    braked = judge(steps, history, lambda _: False, now, now)
    known.note(key, now, braked)
    return braked.held is not None


def all_gone(count: int) -> Plan:
    """Return the plan that removes all of this number of instances."""
    return plan((), instances(count), OWNER)


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
    for instance in instances(3):
        elsewhere.gone(instance.key)
    assert not holds(memory(table(3), elsewhere), all_gone(3), 0.0)


class Crowd:
    """Syncers of five instances each, which are replaced without having been seen terminating."""

    def __init__(self, syncers: int) -> None:
        self.now = 0.0
        self.table = Table()
        self.known = memory(self.table)
        self.made = 0
        self.there: dict[int, list[Instance]] = {}
        for number in range(syncers):
            self.there[number] = [self.instance(number) for _ in range(5)]
            for one in self.there[number]:
                self.table.registered(one)

    def instance(self, number: int) -> Instance:
        """Return another instance of a syncer."""
        self.made += 1
        metadata = {"eurekube.owner": f"cluster/bench/shop/s-{number}"}
        (one,) = instances(1)
        return replace(one, instance_id=f"p-{self.made}.shop.bench:app-0:80", metadata=metadata)

    def reconcile(self, number: int, gone: int, come: int = 0) -> bool:
        """Remove the oldest instances and add new ones unless the brake holds; return False if it does."""
        before = self.there[number]
        after = [*before[gone:], *(self.instance(number) for _ in range(come))]
        owner = f"cluster/bench/shop/s-{number}"
        steps = plan(after, before, owner)
        is_held = holds(self.known, steps, self.now, ("shop", f"s-{number}"), owner)
        for change in () if is_held else steps.changes:
            if change.action is Action.DEREGISTER:
                self.table.gone(change.instance.key)
            else:
                self.table.registered(change.instance)
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
