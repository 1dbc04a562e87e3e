"""Small plans of several owners are carried out together when they have to wait for each other anyway.

A plan that need not wait is carried out at once, by single requests to one of several servers, which tells
the others. Meanwhile further plans gather, and are then carried out together in batches: under load a change
costs a fraction of a request, and no plan waits longer than for the running group and its own.

A single server gets batches only, since it answers with the instances that it holds. There no plan waits for
another, and the plans share requests (:mod:`~eurekube_provider.eureka.shared_batches`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from eurekube_provider.core.plan import Action, Plan, PlanOutcome
from eurekube_provider.eureka.notes import ChangeOrder
from eurekube_provider.eureka.writer import FEWEST_CHANGES_FOR_BATCHES, Writer

MOST_UNMERGED_PLANS = 4
"""The most plans that are carried out at once without being merged: large ones, and all where batches are
not used.
"""

MOST_CHANGES_PER_GROUP = 100
"""The most changes in a group of plans."""


@dataclass(slots=True, eq=False)
class _PendingPlan:
    """A plan that waits or is being carried out.

    :ivar wake_up: set when the plan is done, or is to be carried out by the thread that waits for it.
    :ivar group: the plans that this thread carries out, its own among them.
    """

    plan: Plan
    owner: str
    lease_count: int
    wake_up: threading.Event
    outcome: Future[PlanOutcome] = field(default_factory=Future)
    group: Sequence[_PendingPlan] = ()
    applications: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.applications = {change.instance.application for change in self.plan.changes}


class PlanCoalescer:
    """An executor of one registry's plans that merges small waiting plans, for any number of threads.

    Two plans of one owner must not be given at the same time.

    :param executor: runs single changes in parallel.
    """

    def __init__(self, writer: Writer, executor: Executor | None = None) -> None:
        self._writer = writer
        self._executor = executor
        self._alone = threading.Semaphore(MOST_UNMERGED_PLANS)
        self._lock = threading.Lock()
        self._waiting: list[_PendingPlan] = []
        self._under_way: set[str] = set()  # their applications

    def apply(self, plan: Plan, owner: str, *, lease_count: int = 0) -> PlanOutcome:
        """Carry out a plan, by itself or merged with others; see :meth:`.Writer.apply`.

        :param lease_count: how many Eureka leases exist, or soon will.
        :raises LeadershipLost: this replica may not write any more.
        """
        if not plan.changes:
            return PlanOutcome()
        pending = _PendingPlan(plan, owner, lease_count, threading.Event())
        if not self._can_be_merged(pending) or not self._writer.peers.uses_batches(lease_count):
            with self._alone:
                return self._apply_one_plan(pending)
        with self._lock:
            self._waiting.append(pending)
            self._start_ready_plans()
        pending.wake_up.wait()
        if pending.group:
            try:
                self._run_group(pending.group)
            finally:
                with self._lock:
                    self._under_way -= _applications(pending.group)
                    self._start_ready_plans()
                for one in pending.group:
                    one.wake_up.set()
        return pending.outcome.result()

    @property
    def waiting_count(self) -> int:
        """The number of plans that wait for running ones."""
        with self._lock:
            return len(self._waiting)

    def _can_be_merged(self, one: _PendingPlan) -> bool:
        """Return whether a plan may share a batch.

        It may not if its owner has no instance yet, since their keys are then read first; if it sets a
        status, which batches cannot do; or if it takes instances over, since a batch's reads would renew
        other owners' instances.
        """
        is_small = len(one.plan.changes) < FEWEST_CHANGES_FOR_BATCHES and not one.plan.of(Action.SET_STATUS)
        is_all_ours = not any(change.adopts for change in one.plan.changes)
        return is_small and is_all_ours and self._writer.notes.has_instances(one.owner)

    def _start_ready_plans(self) -> None:
        """Begin the waiting plans that need not wait for a running one; the lock must be held.

        At a single server each plan is carried out by itself, and shares requests (:mod:`.shared_batches`);
        elsewhere one group runs at a time. Two plans of one application never run at once, since two owners
        may want the same id in it.
        """
        each_goes = self._writer.has_single_server
        if self._under_way and not each_goes:
            return
        taken, room = set(self._under_way), MOST_CHANGES_PER_GROUP
        group, left = list[_PendingPlan](), list[_PendingPlan]()
        for one in self._waiting:
            goes = taken.isdisjoint(one.applications) and (each_goes or len(one.plan.changes) <= room)
            (group if goes else left).append(one)
            if goes or each_goes:  # what came first of an application goes first
                taken |= one.applications
            room -= len(one.plan.changes) if goes else 0
        self._waiting = left
        self._under_way |= _applications(group)
        for some in [[one] for one in group] if each_goes else [group] if group else []:
            some[0].group = some
            some[0].wake_up.set()

    def _apply_one_plan(self, one: _PendingPlan) -> PlanOutcome:
        return self._writer.apply(one.plan, one.owner, self._executor, lease_count=one.lease_count)

    def _run_group(self, group: Sequence[_PendingPlan]) -> None:
        try:
            if len(group) == 1 and not self._writer.has_single_server:
                group[0].outcome.set_result(self._apply_one_plan(group[0]))
                return
            orders = [ChangeOrder(change, one.owner) for one in group for change in one.plan.changes]
            errors = iter(self._writer.apply_in_batches(orders))
            for one in group:
                mine = list(itertools.islice(errors, len(one.plan.changes)))
                one.outcome.set_result(PlanOutcome.of(one.plan.changes, mine))
        except BaseException as error:  # noqa: BLE001 - raised again for each of them, on its own thread
            for one in group:
                one.outcome.set_exception(error)


def _applications(plans: Iterable[_PendingPlan]) -> set[str]:
    return {name for one in plans for name in one.applications}
