"""Small plans of several owners travel together when they wait for each other anyway.

A plan that finds the way free is carried out at once, by single requests. While it is under way the others
gather, and go on together in batches: under load a change costs a fraction of a request, and no change waits
longer than for what is under way and what it travels with.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from eurekube_provider.core.plan import Action, Outcome, Plan
from eurekube_provider.eureka.notes import Order
from eurekube_provider.eureka.writer import BATCH_FROM_CHANGES, Writer

ALONE_AT_ONCE = 4
"""How many plans that never travel with others are under way: large ones, and all without batches."""

MOST_CHANGES = 100
"""How many changes a group has at most."""


@dataclass(slots=True, eq=False)
class _PendingPlan:
    """A plan on its way."""

    plan: Plan
    owner: str
    leases: int
    outcome: Future[Outcome] = field(default_factory=Future)

    @property
    def applications(self) -> set[str]:
        return {change.instance.application for change in self.plan.changes}


class Coalescer:
    """Carries out the plans for one registry, for any number of threads.

    Two plans of one owner must not come at the same time.

    :param executor: runs single changes in parallel.
    """

    def __init__(self, writer: Writer, executor: Executor | None = None) -> None:
        self._writer = writer
        self._executor = executor
        self._alone = threading.Semaphore(ALONE_AT_ONCE)
        self._changed = threading.Condition()
        self._is_busy = False
        self._waiting: list[_PendingPlan] = []

    def apply(self, plan: Plan, owner: str, *, leases: int = 0) -> Outcome:
        """Carry out a plan, by itself or with others; see :meth:`.Writer.apply`.

        :param leases: how many Eureka leases there are, or are about to be.
        :raises LeadershipLost: nothing may be written any more.
        """
        if not plan.changes:
            return Outcome()
        pending = _PendingPlan(plan, owner, leases)
        if not self._may_be_merged(pending) or not self._writer.peers.uses_batches(leases):
            with self._alone:
                return self._apply_alone(pending)
        with self._changed:
            self._waiting.append(pending)
        while (group := self._next_group(pending)) is not None:
            try:
                self._run(group)
            finally:
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()
        return pending.outcome.result()

    @property
    def waiting(self) -> int:
        """How many plans wait for what is under way."""
        with self._changed:
            return len(self._waiting)

    def _may_be_merged(self, one: _PendingPlan) -> bool:
        """Return whether a plan may share a batch: an owner's first instances are looked at before, and
        batches are no way to set a status.
        """
        is_small = len(one.plan.changes) < BATCH_FROM_CHANGES and not one.plan.of(Action.SET_STATUS)
        return is_small and self._writer.notes.is_known(one.owner)

    def _next_group(self, pending: _PendingPlan) -> list[_PendingPlan] | None:
        """Wait until the way is free; returns those who go next together, None once ``pending`` has ended.

        An application is there once, since two owners may want the same id of it.
        """
        with self._changed:
            self._changed.wait_for(lambda: pending.outcome.done() or not self._is_busy)
            if pending.outcome.done():
                return None
            self._is_busy = True
            group: list[_PendingPlan] = []
            applications: set[str] = set()
            room = MOST_CHANGES
            for one in self._waiting:
                if applications.isdisjoint(one.applications) and len(one.plan.changes) <= room:
                    group.append(one)
                    applications |= one.applications
                    room -= len(one.plan.changes)
            self._waiting = [one for one in self._waiting if one not in group]
            return group

    def _apply_alone(self, one: _PendingPlan) -> Outcome:
        return self._writer.apply(one.plan, one.owner, self._executor, leases=one.leases)

    def _run(self, group: Sequence[_PendingPlan]) -> None:
        try:
            if len(group) == 1:
                group[0].outcome.set_result(self._apply_alone(group[0]))
                return
            orders = [Order(change, one.owner) for one in group for change in one.plan.changes]
            errors = iter(self._writer.apply_together(orders))
            for one in group:
                mine = list(itertools.islice(errors, len(one.plan.changes)))
                one.outcome.set_result(Outcome.of(one.plan.changes, mine))
        except BaseException as error:  # noqa: BLE001 - raised again for each of them, on its own thread
            for one in group:
                one.outcome.set_exception(error)
