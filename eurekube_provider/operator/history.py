"""The controller's recent reconciles and changes, for the web page and metrics; no decision depends on them.

The history is bounded: the last reconcile of each syncer with its first differences, and the last changes of
all syncers together.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from eurekube_provider.comparison.discrepancy import (
    Difference,
    difference_of_change,
    difference_of_refusal,
    mask_instance_names,
    status_and_address,
)
from eurekube_provider.core.brake import HeldRemovals
from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import Action, Change, Plan, PlanOutcome, describe_differences
from eurekube_provider.operator.conditions import EUREKA_UNREADABLE_REASONS, SyncerReport
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.runtime.histogram import Histogram

MOST_KEPT_DIFFERENCES = 50
"""Most differences that are kept of one reconcile; the others are only counted."""

MOST_RECENT_CHANGES = 100

RECONCILE_RESULTS = ("synced", "problem", "error")
"""Results of a reconcile: the conditions name a problem, and after an error it is tried again."""


@dataclass(frozen=True, slots=True)
class LastReconcile:
    """The last reconcile of one syncer.

    :param ended_at: Unix time at which the reconcile ended.
    :param removals_held_since: Unix time since when the brake holds removals back; None where it does not.
    :param differing_count: number of instances that differ, including refused ones; None where they could not
        be compared with Eureka.
    :param refused_keys: the instances in whose place another owner's is.
    :param succeeded_at: Unix time of the last reconcile that ended as synced; None for none.
    """

    ended_at: float
    report: SyncerReport
    removals_held_since: float | None = None
    differing_count: int | None = None
    first_differences: tuple[Difference, ...] = ()
    refused_keys: frozenset[InstanceKey] = frozenset()
    succeeded_at: float | None = None


@dataclass(frozen=True, slots=True)
class RecentChange:
    """One change of a registration.

    :param at: Unix time of the change.
    :param action: ``registered``, ``updated``, ``deregistered`` or ``refused``.
    :param cause: the reason without the instance's own names, so that equal reasons compare equal.
    """

    at: float
    action: str
    application: str
    instance_id: str
    syncer: SyncerKey
    why: str
    cause: str


class ReconcileHistory:
    """The last reconcile of each syncer, and the recent changes; any number of workers may share it."""

    def __init__(self) -> None:
        self.last: dict[SyncerKey, LastReconcile] = {}
        self.durations = Histogram()
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, SyncerKey, Change | Difference | Instance]]
        self._recent = deque(maxlen=MOST_RECENT_CHANGES)
        self._results: Counter[tuple[SyncerKey, str]] = Counter()

    def record_reconcile(
        self,
        key: SyncerKey,
        report: SyncerReport,
        plan: Plan | None = None,
        outcome: PlanOutcome | None = None,
        held: HeldRemovals | None = None,
    ) -> None:
        """Record a reconcile that has ended.

        :param plan: all differences; None where the reconcile ended before it had a plan.
        """
        now = time.time()
        is_compared = plan is not None and report.problems.keys().isdisjoint(EUREKA_UNREADABLE_REASONS)
        plan = Plan() if plan is None else plan  # one that only refuses is false
        outcome = PlanOutcome() if outcome is None else outcome
        refused, rest = _sort_differences(plan, outcome, held.problem.message if held else "")
        with self._lock:
            before = self.last.get(key) or LastReconcile(now, report)
            for change in outcome.done:
                self._recent.append((now, key, change))
            for refused_key, one in refused.items():
                if refused_key not in before.refused_keys:
                    self._recent.append((now, key, one))
            self.last[key] = LastReconcile(
                ended_at=now,
                report=report,
                removals_held_since=now - held.held_seconds if held else None,
                differing_count=len(rest) if is_compared else None,
                first_differences=tuple(rest[:MOST_KEPT_DIFFERENCES]),
                refused_keys=frozenset(refused),
                succeeded_at=now if report.is_synced else before.succeeded_at,
            )

    def count_reconcile_result(self, key: SyncerKey, seconds: float, *, failed: bool) -> None:
        self.durations.observe(seconds)
        with self._lock:
            last = self.last.get(key)
            if last is None and not failed:
                return  # the syncer is gone
            synced = last is not None and last.report.is_synced
            self._results[key, "error" if failed else "synced" if synced else "problem"] += 1

    def forget(self, key: SyncerKey, instances: Sequence[Instance] = ()) -> None:
        """Forget a deleted syncer, and record that its last instances were deregistered."""
        now = time.time()
        with self._lock:
            for instance in instances:
                self._recent.append((now, key, instance))
            self.last.pop(key, None)
            for result in RECONCILE_RESULTS:
                self._results.pop((key, result), None)

    def on_leadership_lost(self) -> None:
        """Forget the last reconciles, since another replica reconciles now; the recent changes are kept."""
        with self._lock:
            self.last.clear()

    def recent_changes(self) -> list[RecentChange]:
        """Return the last changes, newest first."""
        with self._lock:
            recent = list(reversed(self._recent))
        return [_explain(*one) for one in recent]

    def result_counts(self) -> Counter[tuple[SyncerKey, str]]:
        with self._lock:
            return Counter(self._results)


def _sort_differences(
    plan: Plan, outcome: PlanOutcome, why_held: str
) -> tuple[dict[InstanceKey, Difference], list[Difference]]:
    """Return the differences because another owner has the instance, and those that remain after a plan:
    changes that were refused, failed or held back.
    """
    rest = {refusal.instance.key: difference_of_refusal(refusal) for refusal in plan.refusals}
    refused = dict(rest)
    errors = {id(failure.change): str(failure.error) for failure in outcome.failures}
    for failure in outcome.failures:
        change = failure.change
        if isinstance(failure.error, OwnershipConflict):
            refused[change.instance.key] = difference_of_change(change, errors[id(change)])
    done = {change.instance.key for change in outcome.done}
    for change in plan.changes:
        error = errors.get(id(change))
        if error is not None or change.instance.key not in done:
            rest.setdefault(change.instance.key, difference_of_change(change, error or why_held))
    return refused, list(rest.values())


def _explain(at: float, syncer: SyncerKey, what: Change | Difference | Instance) -> RecentChange:
    """Return a change that was made, a refusal, or the removal of a deleted syncer's instance in words."""
    if isinstance(what, Difference):
        key = what.application, what.instance_id
        return RecentChange(at, "refused", *key, syncer, what.why, what.cause)
    if isinstance(what, Instance):
        why = "the syncer was deleted"
        return RecentChange(at, "deregistered", *what.key, syncer, why, why)
    if what.action is Action.REGISTER:
        why = f"{status_and_address(what.instance)} was not in Eureka"
    elif what.action is Action.DEREGISTER or what.actual is None:
        why = "no longer in Kubernetes"
    else:
        why = ", ".join(describe_differences(what.instance, what.actual))
    names = {Action.REGISTER: "registered", Action.DEREGISTER: "deregistered"}
    action = names.get(what.action, "updated")
    cause = mask_instance_names(what.instance, why)
    return RecentChange(at, action, *what.instance.key, syncer, why, cause)
