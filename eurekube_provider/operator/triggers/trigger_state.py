"""The state of a StackRefresh: its status, written and read.

The status is also the operator's memory: the next leader finds there the digest that was served, when the
last run began, and whether it ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from eurekube_provider.core.condition_types import RefreshCondition, RefreshReason
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.objects import Object, conditions_of, parse_api_time
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.remedies import REFRESH_REMEDIES
from eurekube_provider.core.schedule import Schedule, retry_delay_seconds
from eurekube_provider.core.stack_refresh import AddressesByService, StackRefresh
from eurekube_provider.operator.progress import progress_conditions
from eurekube_provider.operator.status import make_condition, problem_conditions
from eurekube_provider.operator.triggers.targets import StackRunOutcome, StackRunResult
from eurekube_provider.runtime.clock import format_utc_time

RUNNING_OUTCOME = RefreshReason.RUNNING

REFUSAL_REASONS = frozenset(
    {RefreshReason.UNKNOWN_TARGET, RefreshReason.NOT_ALLOWED, RefreshReason.NO_MATCHING_SERVICE}
)
"""Reasons of conditions for which no stack is run."""

_MOST_MESSAGE_LETTERS = 2000

_SERVED_PROBLEM = Problem(RefreshReason.SERVED, "the last run began after the last change of the addresses")

_PAUSED_PROBLEM = Problem(
    RefreshCondition.PAUSED,
    "spec.paused is true: nothing is run",
    REFRESH_REMEDIES[RefreshCondition.PAUSED],
)
_NOT_RUN_PROBLEM = Problem(RefreshReason.PENDING, "it has not run yet")


@dataclass(frozen=True, slots=True)
class StackRefreshState:
    """The status of a StackRefresh.

    :ivar is_ready: True if the StackRefresh is valid and its last run went well; None before the first one.
    :ivar last_run: ``lastRun`` of the status; empty before the first run.
    :ivar served_digest: the digest of the last run; empty while a run is under way, and after one that
        failed.
    :ivar service_count: number of the cluster's Services at the last comparison.
    :ivar address_count: number of their ready addresses.
    """

    is_ready: bool | None = None
    ready: Problem = _NOT_RUN_PROBLEM
    is_synced: bool = False
    synced: Problem = _NOT_RUN_PROBLEM
    is_paused: bool = False
    last_run: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    served_digest: str = ""
    successful_runs: int = 0
    consecutive_failures: int = 0
    service_count: int = 0
    address_count: int = 0

    @classmethod
    def from_object(cls, item: Object) -> StackRefreshState:
        status = item.get("status") or {}
        conditions = conditions_of(item)
        known = cls(
            last_run=status.get("lastRun") or EMPTY_MAPPING,
            served_digest=str(status.get("servedDigest") or ""),
            successful_runs=int(status.get("runs") or 0),
            consecutive_failures=int(status.get("failures") or 0),
            service_count=int(status.get("services") or 0),
            address_count=int(status.get("addresses") or 0),
        )
        ready, synced = conditions.get(RefreshCondition.READY), conditions.get(RefreshCondition.SYNCED)
        if ready is None or synced is None:
            return known
        return replace(
            known,
            is_ready={"True": True, "False": False}.get(ready["status"]),
            ready=Problem.of(ready),
            is_synced=synced["status"] == "True",
            synced=Problem.of(synced),
        )

    @property
    def is_braked(self) -> bool:
        """True if a run is due but held back, since the endpoints look like a broken source."""
        return self.synced.reason == RefreshCondition.BRAKED

    @property
    def is_run_pending(self) -> bool:
        """True if the last requested run is still under way at its target."""
        return self.last_run.get("outcome") == StackRunOutcome.PENDING

    @property
    def is_retry(self) -> bool:
        """True if the next run repeats one that did not go well."""
        return bool(self.consecutive_failures) or self.is_run_pending

    def schedule(self, now: float, wall: datetime) -> Schedule:
        """Return the schedule that continues from this state, with a comparison due at once.

        :param now: the schedule's clock.
        :param wall: the same moment by the wall clock, which the status uses.
        """

        def monotonic_time_of(key: str) -> float:
            read = parse_api_time(self.last_run.get(key))
            return now - max(0.0, (wall - read).total_seconds()) if read else -math.inf

        retry_at = (
            monotonic_time_of("completionTime") + retry_delay_seconds(self.consecutive_failures)
            if self.consecutive_failures
            else -math.inf
        )
        return Schedule(
            served_digest=self.served_digest,
            run_began_at=monotonic_time_of("startTime"),
            consecutive_failures=self.consecutive_failures,
            retry_at=retry_at,
            is_last_request_running=self.is_run_pending,
        ).after_change(now)

    def with_addresses(self, addresses: AddressesByService) -> StackRefreshState:
        """Return a state with the numbers of the cluster's present Services and addresses."""
        return replace(self, service_count=len(addresses), address_count=sum(map(len, addresses.values())))

    def as_valid(self, *, is_paused: bool) -> StackRefreshState:
        """Return the state of a StackRefresh whose spec is valid."""
        allowed = self._with_last_run_outcome() if self.ready.reason in REFUSAL_REASONS else self
        return replace(allowed, is_paused=is_paused)

    def as_refused(self, reason: str, message: str) -> StackRefreshState:
        """Return the state of a StackRefresh that cannot run.

        :param reason: one of :data:`REFUSAL_REASONS`.
        """
        refusal = Problem(reason, message, REFRESH_REMEDIES[reason])
        unsynced = replace(refusal, message="nothing is run")
        return replace(self, is_ready=False, ready=refusal, is_synced=False, synced=unsynced)

    def as_synced(self) -> StackRefreshState:
        """Return the state of a StackRefresh whose stack was run for the present addresses."""
        known = self if self.is_ready else self._with_last_run_outcome()
        return replace(known, is_synced=True, synced=_SERVED_PROBLEM)

    def as_waiting(self, wait_seconds: float) -> StackRefreshState:
        """Return the state of a StackRefresh whose addresses have changed, and whose run is not due yet."""
        message = f"the addresses have changed; it runs in {wait_seconds:.0f} s"
        if self.is_paused:
            message = "the addresses have changed, and spec.paused is true"
        elif wait_seconds <= 0:
            message = "the addresses have changed; it runs as soon as its target is free"
        return self._as_unsynced(Problem(RefreshReason.PENDING, message))

    def as_braked(self, why: str) -> StackRefreshState:
        """Return the state of a StackRefresh whose due run is held back, since the source looks broken."""
        reason = RefreshCondition.BRAKED
        return self._as_unsynced(Problem(reason, why, REFRESH_REMEDIES[reason]))

    def as_running(self, refresh: StackRefresh, wall: datetime) -> StackRefreshState:
        """Return the state of a StackRefresh whose run begins."""
        run = {
            "action": str(refresh.action),
            "target": refresh.target,
            "outcome": str(RUNNING_OUTCOME),
            "startTime": format_utc_time(wall.timestamp()),
            "addresses": self.address_count,
        }
        known = self._as_unsynced(
            Problem(RUNNING_OUTCOME, f"{refresh.action} of {refresh.target} is running")
        )
        return replace(known, last_run=run, served_digest="")

    def with_run_end(
        self, result: StackRunResult, run_digest: str, seconds: float, wall: datetime, retry_seconds: float
    ) -> StackRefreshState:
        """Return the state of a StackRefresh whose run has ended.

        :param retry_seconds: when it is tried again, if it failed.
        """
        good = result.outcome.is_success
        run = {
            **self.last_run,
            "outcome": str(result.outcome),
            "completionTime": format_utc_time(wall.timestamp()),
            "duration": format_duration(seconds),
            "message": printable(result.message)[:_MOST_MESSAGE_LETTERS],
        }
        if result.changes:
            run["changes"] = dict(result.changes)
        again = f"the last run did not go well; it is tried again in {retry_seconds:.0f} s"
        is_last_request_running = result.outcome is StackRunOutcome.PENDING
        if is_last_request_running:
            again = "what the last run asked for has not ended; it is waited for"
        ready = replace(self, last_run=run)._with_last_run_outcome()  # noqa: SLF001 - another one of ours
        return replace(
            ready,
            served_digest=run_digest if good else "",
            successful_runs=self.successful_runs + good,
            consecutive_failures=0 if good else self.consecutive_failures + (not is_last_request_running),
            is_synced=good,
            synced=_SERVED_PROBLEM if good else Problem(RefreshReason.PENDING, again),
        )

    def _as_unsynced(self, why: Problem) -> StackRefreshState:
        known = self._with_last_run_outcome() if self.ready.reason in REFUSAL_REASONS else self
        return replace(known, is_synced=False, synced=why)

    def _with_last_run_outcome(self) -> StackRefreshState:
        run = self.last_run
        if not run:
            return replace(self, is_ready=None, ready=_NOT_RUN_PROBLEM)
        outcome = str(run.get("outcome"))
        if outcome == RUNNING_OUTCOME:
            unknown = Problem(RefreshReason.PENDING, "the end of its run is not known")
            return replace(self, is_ready=None, ready=unknown)
        bad = outcome in (StackRunOutcome.FAILED, StackRunOutcome.LOCKED, StackRunOutcome.PENDING)
        reason = outcome if bad else RefreshReason.SUCCEEDED
        message = str(run.get("message") or f"{run.get('action')} of {run.get('target')}: {outcome}")
        return replace(self, is_ready=not bad, ready=Problem(reason, message))


def stack_refresh_status_patch(item: Object, state: StackRefreshState, wall: datetime) -> dict[str, Any]:
    """Return the status for ``state`` as a merge patch, in which None removes a field."""
    at = format_utc_time(wall.timestamp())
    conditions: list[Mapping[str, Any]] = [
        make_condition(item, RefreshCondition.READY, state.ready, at, holds=state.is_ready),
        make_condition(item, RefreshCondition.SYNCED, state.synced, at, holds=state.is_synced),
    ]
    problems: dict[str, Problem] = {RefreshCondition.BRAKED: state.synced} if state.is_braked else {}
    if state.is_paused:
        problems[RefreshCondition.PAUSED] = _PAUSED_PROBLEM
    is_stuck = state.ready.reason in REFUSAL_REASONS
    why = None if state.is_synced or state.is_paused else state.ready if is_stuck else state.synced
    problems |= progress_conditions(item, why, wall, is_stuck=is_stuck)
    conditions += problem_conditions(item, RefreshCondition, problems, at)
    unended = dict.fromkeys(("completionTime", "duration", "message", "changes"))
    run = {**unended, **state.last_run} if state.last_run else None
    return {
        "observedGeneration": item["metadata"].get("generation", 0),
        "conditions": conditions,
        "lastRun": run,
        "servedDigest": state.served_digest or None,
        "runs": state.successful_runs,
        "failures": state.consecutive_failures,
        "services": state.service_count,
        "addresses": state.address_count,
    }


def format_duration(seconds: float) -> str:
    """Return a duration in the format of Go and kubectl, e.g. ``2m3s`` or ``4.2s``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
