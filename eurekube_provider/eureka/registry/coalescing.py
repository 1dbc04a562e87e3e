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

AT_ONCE = 1
"""How many plans, or groups of them, are under way to one registry before others gather."""

ALONE_AT_ONCE = 4
"""How many plans that never travel with others are: large ones, and all where batches are not used."""

MOST_CHANGES = 100
"""How many changes a group has at most."""


@dataclass(slots=True)
class _PendingPlan:
    """A plan on its way.

    :ivar group: what it leads, itself included; empty while it waits, and for one that is led.
    """

    plan: Plan
    owner: str
    leases: int
    group: list[_PendingPlan] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=lambda: threading.Event())
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
        self._lock = threading.Lock()
        self._under_way = 0
        self._waiting: list[_PendingPlan] = []

    def apply(self, plan: Plan, owner: str, *, leases: int = 0) -> Outcome:
        """Carry out a plan, by itself or with others; see :meth:`.Writer.apply`.

        :param leases: how many Eureka leases there are, or are about to be.
        :raises LeadershipLost: nothing may be written any more.
        """
        if not plan.changes:
            return Outcome()
        pending = _PendingPlan(plan, owner, leases)
        if not self._may_be_merged(plan, owner) or not self._writer.peers.uses_batches(leases):
            with self._alone:
                return self._apply_alone(pending)
        return self._carry(pending)

    @property
    def waiting(self) -> int:
        """How many plans wait for what is under way."""
        with self._lock:
            return len(self._waiting)

    def _may_be_merged(self, plan: Plan, owner: str) -> bool:
        """Whether a plan may be part of a batch with others: an owner's first instances are looked at before,
        and batches are no way to set a status.
        """
        is_small = len(plan.changes) < BATCH_FROM_CHANGES
        return is_small and not plan.of(Action.SET_STATUS) and self._writer.notes.is_known(owner)

    def _apply_alone(self, one: _PendingPlan) -> Outcome:
        return self._writer.apply(one.plan, one.owner, self._executor, leases=one.leases)

    def _carry(self, pending: _PendingPlan) -> Outcome:
        with self._lock:
            if self._under_way < AT_ONCE:
                self._under_way += 1
                pending.group = [pending]
            else:
                self._waiting.append(pending)
        if not pending.group:
            pending.go_on.wait()
        if pending.group:
            try:
                self._run(pending.group)
            finally:
                self._hand_over()
        return pending.outcome.result()

    def _hand_over(self) -> None:
        """Let those go on who wait."""
        with self._lock:
            group = self._gather()
            if not group:
                self._under_way -= 1
                return
        group[0].group = group
        group[0].go_on.set()

    def _gather(self) -> list[_PendingPlan]:
        """Who goes next: each application once, since two owners may want the same id of it."""
        group: list[_PendingPlan] = []
        left: list[_PendingPlan] = []
        applications: set[str] = set()
        room = MOST_CHANGES
        for one in self._waiting:
            if applications.isdisjoint(one.applications) and len(one.plan.changes) <= room:
                group.append(one)
                applications |= one.applications
                room -= len(one.plan.changes)
            else:
                left.append(one)
        self._waiting = left
        return group

    def _run(self, group: Sequence[_PendingPlan]) -> None:
        try:
            if len(group) == 1:
                group[0].outcome.set_result(self._apply_alone(group[0]))
            else:
                self._together(group)
        except BaseException as error:  # noqa: BLE001 - raised again for each of them, on its own thread
            for one in group:
                one.outcome.set_exception(error)
        finally:
            for one in group[1:]:
                one.go_on.set()

    def _together(self, group: Sequence[_PendingPlan]) -> None:
        orders = [Order(change, one.owner) for one in group for change in one.plan.changes]
        errors = iter(self._writer.apply_together(orders))
        for one in group:
            mine = list(itertools.islice(errors, len(one.plan.changes)))
            one.outcome.set_result(Outcome.of(one.plan.changes, mine))
