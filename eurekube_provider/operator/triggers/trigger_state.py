"""The state of a StackRefresh: its status, written and read.

The status is also the operator's memory: the next leader finds there the digest that was served, when the
last run began, and whether it ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.condition_types import RefreshCondition, RefreshReason
from eurekube_provider.core.objects import Object, conditions_of, time_of
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.remedies import REFRESH_REMEDIES
from eurekube_provider.core.schedule import Schedule, retry_delay
from eurekube_provider.core.stack_refresh import Addresses, StackRefresh
from eurekube_provider.operator.progress import progress
from eurekube_provider.operator.status import condition, problem_conditions
from eurekube_provider.operator.triggers.trigger_run import TriggerOutcome, TriggerResult

RUNNING = RefreshReason.RUNNING
"""Outcome of a run that has not ended."""

REFUSALS = frozenset(
    {RefreshReason.UNKNOWN_TARGET, RefreshReason.NOT_ALLOWED, RefreshReason.NO_MATCHING_SERVICE}
)
"""Reasons of conditions for which no stack is run."""

_LONGEST_MESSAGE = 2000
_SERVED = Problem(RefreshReason.SERVED, "the last run began after the last change of the addresses")
_PAUSED = Problem(
    RefreshCondition.PAUSED,
    "spec.paused is true: nothing is run",
    REFRESH_REMEDIES[RefreshCondition.PAUSED],
)
_NOT_RUN = Problem(RefreshReason.PENDING, "it has not run yet")


@dataclass(frozen=True, slots=True)
class TriggerState:
    """The status of a StackRefresh.

    :ivar is_ready: True if the StackRefresh is valid and its last run went well; None before the first one.
    :ivar is_synced: True if the stack was run for the present addresses.
    :ivar last_run: as in the status; None before the first one.
    :ivar served: see :class:`~eurekube_provider.core.schedule.Schedule`.
    :ivar runs: how many went well.
    :ivar failures: how many failed in a row.
    """

    is_ready: bool | None = None
    ready: Problem = _NOT_RUN
    is_synced: bool = False
    synced: Problem = _NOT_RUN
    is_paused: bool = False
    last_run: Mapping[str, Any] | None = None
    served: str = ""
    runs: int = 0
    failures: int = 0
    services: int = 0
    addresses: int = 0

    @classmethod
    def of(cls, item: Object) -> TriggerState:
        """Return the state that a StackRefresh's status holds."""
        status = item.get("status") or {}
        conditions = conditions_of(item)
        known = cls(
            last_run=status.get("lastRun"),
            served=str(status.get("servedDigest") or ""),
            runs=int(status.get("runs") or 0),
            failures=int(status.get("failures") or 0),
            services=int(status.get("services") or 0),
            addresses=int(status.get("addresses") or 0),
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
    def was_cut_off(self) -> bool:
        """True if no replica has recorded the end of the last run."""
        return self.last_run is not None and self.last_run.get("outcome") == RUNNING

    @property
    def is_unended(self) -> bool:
        """True if the last requested run is still under way at its target."""
        return self.last_run is not None and self.last_run.get("outcome") == TriggerOutcome.PENDING

    @property
    def served_addresses(self) -> int:
        """Number of addresses that the last run was for."""
        return int((self.last_run or {}).get("addresses") or 0)

    @property
    def target(self) -> str:
        """Target of the last run; empty before the first one."""
        return str((self.last_run or {}).get("target") or "")

    @property
    def is_again(self) -> bool:
        """True if the next run repeats one that did not go well."""
        return bool(self.failures) or self.is_unended

    @property
    def begun_at(self) -> datetime | None:
        """Start time of the last run; None before the first one."""
        return time_of((self.last_run or {}).get("startTime"))

    def schedule(self, now: float, wall: datetime) -> Schedule:
        """Return the schedule that continues from this state, with a comparison due at once.

        :param now: the schedule's clock.
        :param wall: the same moment by the wall clock, which the status uses.
        """

        def at(key: str) -> float:
            read = time_of((self.last_run or {}).get(key))
            return now - max(0.0, (wall - read).total_seconds()) if read else -math.inf

        retry_at = at("completionTime") + retry_delay(self.failures) if self.failures else -math.inf
        return Schedule(
            served=self.served,
            begun_at=at("startTime"),
            failures=self.failures,
            retry_at=retry_at,
            is_unended=self.is_unended,
        ).touched(now)

    def observing(self, addresses: Addresses) -> TriggerState:
        """Return a state with the cluster's present addresses."""
        return replace(self, services=len(addresses), addresses=sum(map(len, addresses.values())))

    def accepted(self, *, is_paused: bool) -> TriggerState:
        """Return the state of a StackRefresh whose spec is valid."""
        allowed = self._as_last_run() if self.ready.reason in REFUSALS else self
        return replace(allowed, is_paused=is_paused)

    def refused(self, reason: str, message: str) -> TriggerState:
        """Return the state of a StackRefresh that cannot run.

        :param reason: one of :data:`REFUSALS`.
        """
        refusal = Problem(reason, message, REFRESH_REMEDIES[reason])
        unsynced = replace(refusal, message="nothing is run")
        return replace(self, is_ready=False, ready=refusal, is_synced=False, synced=unsynced)

    def in_line(self) -> TriggerState:
        """Return the state of a StackRefresh whose stack was run for the present addresses."""
        known = self if self.is_ready else self._as_last_run()
        return replace(known, is_synced=True, synced=_SERVED)

    def waiting(self, wait_seconds: float) -> TriggerState:
        """Return the state of a StackRefresh whose addresses have changed, and whose run is not due yet."""
        message = f"the addresses have changed; it runs in {wait_seconds:.0f} s"
        if self.is_paused:
            message = "the addresses have changed, and spec.paused is true"
        elif wait_seconds <= 0:
            message = "the addresses have changed; it runs as soon as its target is free"
        return self._unsynced(Problem(RefreshReason.PENDING, message))

    def held(self, why: str) -> TriggerState:
        """Return the state of a StackRefresh whose due run is held back, since the endpoints look like a
        broken source.
        """
        reason = RefreshCondition.BRAKED
        return self._unsynced(Problem(reason, why, REFRESH_REMEDIES[reason]))

    def begun(self, refresh: StackRefresh, wall: datetime) -> TriggerState:
        """Return the state of a StackRefresh whose run begins."""
        run = {
            "action": str(refresh.action),
            "target": refresh.target,
            "outcome": str(RUNNING),
            "startTime": stamp(wall),
            "addresses": self.addresses,
        }
        known = self._unsynced(Problem(RUNNING, f"{refresh.action} of {refresh.target} is running"))
        return replace(known, last_run=run, served="")

    def ended(
        self, result: TriggerResult, served: str, seconds: float, wall: datetime, retry_seconds: float
    ) -> TriggerState:
        """Return the state of a StackRefresh whose run has ended.

        :param served: the digest that the run was for.
        :param retry_seconds: when it is tried again, if it failed.
        """
        good = result.outcome.is_good
        run = {
            **(self.last_run or {}),
            "outcome": str(result.outcome),
            "completionTime": stamp(wall),
            "duration": duration(seconds),
            "message": printable(result.message)[:_LONGEST_MESSAGE],
        }
        if result.changes:
            run["changes"] = dict(result.changes)
        again = f"the last run did not go well; it is tried again in {retry_seconds:.0f} s"
        is_unended = result.outcome is TriggerOutcome.PENDING
        if is_unended:
            again = "what the last run asked for has not ended; it is waited for"
        ready = replace(self, last_run=run)._as_last_run()  # noqa: SLF001 - another one of ours
        return replace(
            ready,
            served=served if good else "",
            runs=self.runs + good,
            failures=0 if good else self.failures + (not is_unended),
            is_synced=good,
            synced=_SERVED if good else Problem(RefreshReason.PENDING, again),
        )

    def _unsynced(self, why: Problem) -> TriggerState:
        """Return the state of a valid StackRefresh whose stack was not run for the present addresses."""
        known = self._as_last_run() if self.ready.reason in REFUSALS else self
        return replace(known, is_synced=False, synced=why)

    def _as_last_run(self) -> TriggerState:
        """Return the state with Ready set by the outcome of the last run."""
        run = self.last_run
        if run is None:
            return replace(self, is_ready=None, ready=_NOT_RUN)
        outcome = str(run.get("outcome"))
        if outcome == RUNNING:
            unknown = Problem(RefreshReason.PENDING, "the end of its run is not known")
            return replace(self, is_ready=None, ready=unknown)
        bad = outcome in (TriggerOutcome.FAILED, TriggerOutcome.LOCKED, TriggerOutcome.PENDING)
        reason = outcome if bad else RefreshReason.SUCCEEDED
        message = str(run.get("message") or f"{run.get('action')} of {run.get('target')}: {outcome}")
        return replace(self, is_ready=not bad, ready=Problem(reason, message))


def status_of(item: Object, state: TriggerState, wall: datetime) -> dict[str, Any]:
    """Return the status for ``state`` as a merge patch, in which None removes a field.

    :param item: the object with its current status, whose transition times are kept.
    """
    at = stamp(wall)
    conditions: list[Mapping[str, Any]] = [
        condition(item, RefreshCondition.READY, state.ready, at, holds=state.is_ready),
        condition(item, RefreshCondition.SYNCED, state.synced, at, holds=state.is_synced),
    ]
    problems: dict[str, Problem] = {RefreshCondition.BRAKED: state.synced} if state.is_braked else {}
    if state.is_paused:
        problems[RefreshCondition.PAUSED] = _PAUSED
    is_stuck = state.ready.reason in REFUSALS
    why = None if state.is_synced or state.is_paused else state.ready if is_stuck else state.synced
    problems |= progress(item, why, wall, is_stuck=is_stuck)
    conditions += problem_conditions(item, RefreshCondition, problems, at)
    unended = dict.fromkeys(("completionTime", "duration", "message", "changes"))
    run = {**unended, **state.last_run} if state.last_run else None
    return {
        "observedGeneration": item["metadata"].get("generation", 0),
        "conditions": conditions,
        "lastRun": run,
        "servedDigest": state.served or None,
        "runs": state.runs,
        "failures": state.failures,
        "services": state.services,
        "addresses": state.addresses,
    }


def stamp(wall: datetime) -> str:
    """Return a time in Kubernetes' RFC 3339 format."""
    return wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: float) -> str:
    """Return a duration in the format of Go and kubectl, e.g. ``2m3s`` or ``4.2s``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
