"""Plans of one registry, carried out for any number of threads.

Small plans go in batches to every server. Plans that are under way at once share these requests
(:mod:`~eurekube_provider.eureka.shared_batches`): under load a change costs a fraction of a request, and it
waits for no other plan but one of its own application. Without batches, and while a server does not answer, a
plan is carried out by single requests to one of the servers, which tells the others half a second later.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from dataclasses import dataclass

from eurekube_provider.core.plan import Action, Plan, PlanOutcome
from eurekube_provider.eureka.notes import ChangeOrder
from eurekube_provider.eureka.writer import FEWEST_CHANGES_FOR_BATCHES, Writer

MOST_PLANS_WITHOUT_SHARING = 4
"""The most plans at once without shared requests: large ones, and all where batches are not used."""


@dataclass(slots=True, eq=False)
class _PendingPlan:
    """A plan that waits until no other one of its applications is under way, or is under way itself."""

    applications: frozenset[str]
    may_begin: threading.Event


class PlanExecutor:
    """An executor of one registry's plans.

    Two plans of one owner must not be given at the same time.

    :param executor: runs single changes in parallel.
    """

    def __init__(self, writer: Writer, executor: Executor | None = None) -> None:
        self._writer = writer
        self._executor = executor
        self._without_sharing = threading.Semaphore(MOST_PLANS_WITHOUT_SHARING)
        self._lock = threading.Lock()
        self.waiting: list[_PendingPlan] = []  # for another one of their application
        self._under_way: set[str] = set()  # their applications

    def apply(self, plan: Plan, owner: str, *, lease_count: int = 0) -> PlanOutcome:
        """Carry out a plan; see :meth:`.Writer.apply`.

        :param lease_count: how many Eureka leases exist, or soon will.
        :raises LeadershipLost: this replica may not write any more.
        """
        if not plan.changes:
            return PlanOutcome()
        peers = self._writer.peers
        # Nobody forwards a batch, and a single request reaches servers that this process does not.
        reach_all = len(peers.peers_not_avoided) == len(peers.peers) and peers.uses_batches(lease_count)
        if not reach_all or not self._may_share_requests(plan, owner):
            with self._without_sharing:
                return self._writer.apply(plan, owner, self._executor, lease_count=lease_count)
        applications = frozenset(change.instance.application for change in plan.changes)
        one = _PendingPlan(applications, threading.Event())
        with self._lock:
            self.waiting.append(one)
            self._begin_unblocked_plans()
        one.may_begin.wait()
        try:
            orders = [ChangeOrder(change, owner) for change in plan.changes]
            return PlanOutcome.of(plan.changes, self._writer.apply_in_batches(orders))
        finally:
            with self._lock:
                self._under_way -= one.applications
                self._begin_unblocked_plans()

    def _may_share_requests(self, plan: Plan, owner: str) -> bool:
        """Return whether a plan may share batches.

        It may not if its owner has no instance yet, since their keys are then read first; if it sets a
        status, which batches cannot do; or if it takes instances over, which the batch's reads would renew.
        """
        if len(plan.changes) >= FEWEST_CHANGES_FOR_BATCHES:
            return False
        for change in plan.changes:
            if change.adopts or change.action is Action.SET_STATUS:
                return False
        return self._writer.notes.has_instances(owner)

    def _begin_unblocked_plans(self) -> None:
        """Begin the waiting plans, in the order in which they came; the lock must be held.

        Two plans of one application are never under way at once, since two owners may want the same id in it.
        """
        taken, left = set(self._under_way), list[_PendingPlan]()
        for one in self.waiting:
            if taken.isdisjoint(one.applications):
                self._under_way |= one.applications
                one.may_begin.set()
            else:
                left.append(one)
            taken |= one.applications
        self.waiting = left
