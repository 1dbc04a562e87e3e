"""A syncer's status: conditions and counts, written on a thread of its own that delays no reconcile.

Writes of one syncer are at least half a second apart; only the newest counts. Where counts alone change again
and again, as in a rollout, the pauses grow, and all syncers' counts together take a small share of the time.
Writes wait a little while there is more urgent work.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.condition_types import (
    PROGRESS_CONDITION_TYPES,
    Reason,
    StatusCondition,
    SyncerCondition,
)
from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.event_reasons import SyncerEvent
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.mapping import NOT_READ_YET_REASONS
from eurekube_provider.core.objects import conditions_of, key_of, resource_version
from eurekube_provider.core.plan import Action, PlanOutcome
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.self_registered import to_status_entries
from eurekube_provider.core.syncer import claimed_names
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, SYNCERS, KubeAccess
from eurekube_provider.kube.events import REPEAT_SUPPRESSION_SECONDS, EventRecorder, EventType
from eurekube_provider.kube.rate_limiter import (
    LONGEST_STOP_DELAY_SECONDS,
    LONGEST_WAIT_FOR_URGENT_SECONDS,
    RateLimiter,
)
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.progress import (
    INTENDED_STATE_REASONS,
    STUCK_SYNCER_REASONS,
    progress_conditions,
)
from eurekube_provider.operator.reports import SyncerDeletion
from eurekube_provider.runtime.clock import format_utc_time

_log = logging.getLogger(__name__)

SHORTEST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 0.5, 10.0

COUNTS_PAUSE_TO_WRITE_RATIO = 20.0
LONGEST_COUNTS_PAUSE_SECONDS = 0.25
"""The pause after a write until the next one of mere counts, of any syncer: a multiple of the write's
duration, and its limit in seconds.

While many services roll at once, each such write takes the API server's time from the watch events that
callers wait for. A changed condition is written at once all the same.
"""

LONGEST_COUNTS_WAIT_SECONDS = 2.0
"""The longest time, in seconds, that mere counts wait for other syncers' conditions: then they take turns."""

RETRY_SECONDS = 5.0

UNEXPECTED_ERROR_RETRY_SECONDS = 60.0
"""Seconds until a status is written again after an error that may well come again, and logs a traceback."""

_MOST_MESSAGE_LETTERS = 4000

_RESOLVED_PROBLEM = Problem("Resolved", "no longer so")
"""Reason and message of a condition that has held and does not any more."""


def syncer_status(syncer: Mapping[str, Any], report: SyncerReport, now: datetime) -> dict[str, Any]:
    """Return the status for ``report``; unchanged conditions keep their times.

    :param syncer: the object with its current status, whose transition times are kept.
    """
    generation = syncer["metadata"].get("generation", 0)
    stamp = format_utc_time(now.timestamp())
    conditions: list[Mapping[str, Any]] = [
        make_condition(syncer, SyncerCondition.READY, report.ready, stamp, holds=report.is_ready),
        make_condition(syncer, SyncerCondition.SYNCED, report.synced, stamp, holds=report.is_synced),
    ]
    why = None if report.is_synced or report.synced.reason in INTENDED_STATE_REASONS else report.synced
    if SyncerCondition.PAUSED in report.problems:
        why = None
    is_stuck = report.synced.reason in STUCK_SYNCER_REASONS
    problems = {**report.problems, **progress_conditions(syncer, why, now, is_stuck=is_stuck)}
    conditions += problem_conditions(
        syncer, SyncerCondition, problems, stamp, report.unchecked_condition_types
    )
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions,
        "instances": f"{report.registered}/{report.desired}",
        "desired": report.desired,
        "registered": report.registered,
        "refused": report.refused,
        "names": sorted(claimed_names(syncer) if report.claimed_names is None else report.claimed_names),
    }
    seen = report.self_registered
    before = (syncer.get("status") or {}).get("selfRegistered")
    if seen or before:
        status["selfRegistered"] = before if seen is None else to_status_entries(seen)
    if report.service_counts is not None:
        status |= report.service_counts.to_status_fields()
    if report.application:
        status["application"] = report.application
    if report.is_synced:
        status["lastSyncTime"] = stamp
    return status


def problem_conditions(
    item: Mapping[str, Any],
    kinds: Iterable[StatusCondition],
    problems: Mapping[str, Problem],
    stamp: str,
    unknown: Collection[str] = (),
) -> Iterator[Mapping[str, Any]]:
    """Yield the conditions of the optional ``kinds``: those that hold, and those that have held before.

    :param unknown: the kinds that nobody checked: their present conditions are kept.
    """
    before = conditions_of(item)
    for kind in kinds:
        if kind.is_in_every_status:
            continue
        if kind in problems:
            yield make_condition(item, kind, problems[kind], stamp, holds=True)
        elif kind in before and kind in unknown:
            yield before[kind]
        elif kind in before:
            yield make_condition(item, kind, _RESOLVED_PROBLEM, stamp, holds=False)


def make_condition(
    item: Mapping[str, Any], kind: str, problem: Problem, stamp: str, *, holds: bool | None
) -> dict[str, Any]:
    """Return a condition of ``item``, whose transition time is kept while the status stays the same.

    The time of Reconciling and Stalled tells since when the reason has been the same.

    :param problem: it may repeat what others wrote; `kubectl describe` prints it as it stands.
    :param holds: None where that is not known.
    """
    state = {True: "True", False: "False", None: "Unknown"}[holds]
    old = conditions_of(item).get(kind)
    is_same = old is not None and old["status"] == state
    if old is not None and kind in PROGRESS_CONDITION_TYPES:
        is_same = is_same and old["reason"] == problem.reason
    return {
        "type": kind,
        "status": state,
        "reason": problem.reason,
        "message": printable(problem.text)[:_MOST_MESSAGE_LETTERS],
        "observedGeneration": item["metadata"].get("generation", 0),
        "lastTransitionTime": old["lastTransitionTime"] if old and is_same else stamp,
    }


@dataclass(frozen=True, slots=True)
class _PendingStatus:
    """A report to be written, at the latest at ``write_deadline`` by ``time.monotonic()``."""

    syncer: Mapping[str, Any]
    report: SyncerReport
    urgent_fields: tuple[object, ...]
    write_deadline: float


@dataclass(slots=True)
class _KnownStatus:
    """The status of one syncer that the writer wrote or read last.

    :ivar version: the syncer's resourceVersion with it.
    :ivar sent: the status that was sent last, answered or not.
    :ivar is_unsure: True if the last write was perhaps carried out.
    :ivar urgent_fields: those of the last write; see :func:`_urgent_fields`.
    """

    status: Mapping[str, Any] | None = None
    version: int = 0
    sent: Mapping[str, Any] | None = None
    is_unsure: bool = False
    urgent_fields: tuple[object, ...] = ()


def _urgent_fields(syncer: Mapping[str, Any], report: SyncerReport) -> tuple[object, ...]:
    """Return what of a status is written soon when it changes: all but counts and wording."""
    return (
        syncer["metadata"].get("generation"),
        report.is_ready,
        report.ready.reason,
        report.is_synced,
        report.synced.reason,
        frozenset(report.problems),
    )


class StatusWriter:
    """The writer of syncers' statuses, on a thread of its own."""

    def __init__(self, access: KubeAccess, wait_quiet: Callable[[float], None] = lambda _: None) -> None:
        self._access = access
        self._limiter = RateLimiter[SyncerKey](
            wait_quiet, SHORTEST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS
        )
        self._condition = threading.Condition()  # whose lock its holder may take again
        self._wanted: dict[SyncerKey, _PendingStatus] = {}
        self._counts_due = OrderedDict[SyncerKey, float]()  # since when mere counts are to be written
        self._was_last_urgent = False
        self._counts_allowed_at = 0.0
        self._known: dict[SyncerKey, _KnownStatus] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="status-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, longest_seconds: float = LONGEST_STOP_DELAY_SECONDS) -> None:
        """Write the remaining statuses, then end; give up after ``longest_seconds``."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(longest_seconds)

    def liveness(self) -> list[Liveness]:
        return liveness_of_started_threads([self._thread])

    def queue_report(self, syncer: Mapping[str, Any], report: SyncerReport) -> None:
        """Queue ``report`` for the syncer's status; it replaces an older one that was not written yet."""
        key, urgent_fields = key_of(syncer), _urgent_fields(syncer, report)
        with self._condition:
            before = self._wanted.get(key)
            write_deadline = (
                before.write_deadline if before else time.monotonic() + LONGEST_WAIT_FOR_URGENT_SECONDS
            )
            self._wanted[key] = _PendingStatus(syncer, report, urgent_fields, write_deadline)
            if self.is_overwritten(syncer):  # whatever the other writer changed is put right soon
                self._known[key].urgent_fields = ()
            elif before is not None and before.urgent_fields == urgent_fields:
                return  # the turn of the older one is this one's
            if self._limiter.schedule_turn(key, self._write_allowed_at(key)):
                self._condition.notify()

    def is_overwritten(self, syncer: Mapping[str, Any]) -> bool:
        """Return whether another writer's status has replaced this one's, which must be written again.

        A leader that was killed may have sent a status that the API server carries out later.
        """
        with self._condition:
            last, status = self._known.get(key_of(syncer)), syncer.get("status") or {}
            if last is None or last.status is None or resource_version(syncer) <= last.version:
                return False
            ours = (one for one in (last.status, last.sent) if one is not None)
            return not any(_equal_but_for_sync_time(status, one) for one in ours)

    def forget(self, key: SyncerKey) -> None:
        with self._condition:
            self._limiter.forget(key)
            for table in (self._wanted, self._known, self._counts_due):
                table.pop(key, None)

    def on_leadership_lost(self) -> None:
        """Forget all statuses, written or not: another replica writes from now on."""
        with self._condition:
            self._limiter.clear()
            for table in (self._wanted, self._known, self._counts_due):
                table.clear()

    def _run(self) -> None:
        while True:
            with self._condition:
                key = self._wait_for_next()
                if key is None:
                    return
                write_deadline = time.monotonic() if self._stopped else self._wanted[key].write_deadline
            self._limiter.wait_until_no_urgent_work(write_deadline)
            with self._condition:
                wanted = self._wanted.pop(key, None)
                if wanted is None:
                    continue  # forgotten meanwhile
                self._limiter.block_until(key, time.monotonic() + SHORTEST_INTERVAL_SECONDS)
            started = time.monotonic()
            try:
                self._write_status(key, wanted)
            except LeadershipLost:
                pass  # who leads now has a report of its own
            except Exception:  # noqa: BLE001 - the thread must go on writing the others
                _log.exception(
                    "failed to write a syncer's status, retrying unless the operator ends: unexpected error",
                    extra={"syncer": "/".join(key), "retry_seconds": UNEXPECTED_ERROR_RETRY_SECONDS},
                )
                self._retry_later(key, wanted, UNEXPECTED_ERROR_RETRY_SECONDS)
            if not self._stopped:
                ended = time.monotonic()
                self._counts_allowed_at = ended + min(
                    COUNTS_PAUSE_TO_WRITE_RATIO * (ended - started), LONGEST_COUNTS_PAUSE_SECONDS
                )
                self._limiter.pause_after_write(ended - started)

    def _wait_for_next(self) -> SyncerKey | None:
        """Wait for the next due syncer; return None once none is left. The caller holds the lock."""
        while not self._stopped:
            now = time.monotonic()
            due_since = next(iter(self._counts_due.values()), math.inf)
            # However many conditions change, one of the overdue counts goes after each of them.
            is_overdue = self._was_last_urgent and now - due_since >= LONGEST_COUNTS_WAIT_SECONDS
            while not is_overdue and (key := self._limiter.pop_due_key(now)) is not None:
                if key not in self._wanted or self._put_off(key, now):
                    continue
                if self._is_urgent(key):
                    self._was_last_urgent = True
                    return key
                self._counts_due.setdefault(key, now)
            counts_wait = self._counts_allowed_at - now if self._counts_due else None
            if counts_wait is not None and (is_overdue or counts_wait <= 0):
                self._was_last_urgent = False
                key, _ = self._counts_due.popitem(last=False)
                if key in self._wanted and not self._put_off(key, now):
                    return key
                continue
            waits = [counts_wait, self._limiter.seconds_until_next_turn(now)]
            self._condition.wait(min((one for one in waits if one is not None), default=None))
        return next(iter(self._wanted), None)

    def _put_off(self, key: SyncerKey, now: float) -> bool:
        """Put a write off if one was a moment ago; return False if not. The caller holds the lock."""
        due_at = self._write_allowed_at(key)
        if due_at <= now:
            return False
        self._limiter.schedule_turn(key, due_at)
        return True

    def _is_urgent(self, key: SyncerKey) -> bool:
        """Return whether more than counts changed since the last write. The caller holds the lock."""
        last = self._known.get(key)
        return last is None or self._wanted[key].urgent_fields != last.urgent_fields

    def _write_allowed_at(self, key: SyncerKey) -> float:
        """Return when the pending status may be written. The caller holds the lock."""
        return self._limiter.write_allowed_at(key, is_urgent=self._is_urgent(key))

    def _write_status(self, key: SyncerKey, wanted: _PendingStatus) -> None:
        syncer = wanted.syncer
        with self._condition:
            last = self._known.setdefault(key, _KnownStatus())
            if last.status is None or resource_version(syncer) > last.version:
                last.status, last.version = syncer.get("status") or {}, resource_version(syncer)
            status = syncer_status({**syncer, "status": last.status}, wanted.report, datetime.now(UTC))
            if not last.is_unsure and _equal_but_for_sync_time(status, last.status):
                last.urgent_fields = wanted.urgent_fields
                return
            last.sent = status
        try:
            path = SYNCERS.path(*key, "status")
            answer = self._access.request(
                "PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE
            )
        except KubernetesError as error:
            if error.status_code != 404:
                _log.warning(
                    "failed to write a syncer's status, retrying unless the operator ends",
                    extra={"syncer": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS},
                )
                self._retry_later(key, wanted, RETRY_SECONDS)
            return
        with self._condition:
            if self._known.get(key) is last:  # else it was forgotten meanwhile
                last.status, last.version = status, max(resource_version(answer), last.version)
                last.is_unsure, last.urgent_fields = False, wanted.urgent_fields
                self._limiter.record_write(key, time.monotonic())

    def _retry_later(self, key: SyncerKey, wanted: _PendingStatus, seconds: float) -> None:
        with self._condition:
            if key not in self._known:
                return  # forgotten meanwhile
            self._known[key].is_unsure = True
            if not self._stopped:
                self._wanted.setdefault(key, wanted)
                self._limiter.block_until(key, time.monotonic() + seconds)
                self._limiter.schedule_turn(key, self._write_allowed_at(key))


def _equal_but_for_sync_time(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two statuses differ at most in the last reconcile's time, which is no news."""
    return {**one, "lastSyncTime": None} == {**other, "lastSyncTime": None}


_REASONS_WITHOUT_EVENT = NOT_READ_YET_REASONS | {SyncerCondition.PAUSED, SyncerCondition.WAITING_FOR_CALLERS}

_EVENT_BY_ACTION = {Action.REGISTER: SyncerEvent.REGISTERED, Action.DEREGISTER: SyncerEvent.DEREGISTERED}


class StatusPublisher:
    """The writer of results to statuses and Events; workers may share it, each with its own syncer."""

    def __init__(self, events: EventRecorder, statuses: StatusWriter) -> None:
        self._events = events
        self._statuses = statuses
        self._cut_off: dict[SyncerKey, float] = {}
        """When the last Event on a Eureka that does not answer was recorded, by the monotonic clock."""

    def publish_reconcile(
        self, syncer: Mapping[str, Any], report: SyncerReport, outcome: PlanOutcome, seconds: float
    ) -> None:
        """Report one reconcile and its changes in the status, Events and the log."""
        if outcome.done:
            actions = [change.action for change in outcome.done]
            _log.info(
                "updated Eureka for a syncer",
                extra={
                    "syncer": "/".join(key_of(syncer)),
                    "application": report.application,
                    **{str(action): actions.count(action) for action in Action if action in actions},
                    "milliseconds": round(seconds * 1000, 1),
                },
            )
            for action, event in _EVENT_BY_ACTION.items():
                if action in actions:
                    text = f"of {report.application} {event.lower()}"
                    self._events.record_instance_count(syncer, event, actions.count(action), text)
        key, now = key_of(syncer), time.monotonic()
        is_repeated = now - self._cut_off.get(key, -math.inf) < REPEAT_SUPPRESSION_SECONDS
        for reason, problem in report.problems.items():
            # The sentences on one outage differ: by server, and by since when none answers.
            if reason == Reason.EUREKA_UNREACHABLE and is_repeated:
                continue
            if reason not in _REASONS_WITHOUT_EVENT:
                self._events.record(syncer, EventType.WARNING, reason, problem.text)
        if Reason.EUREKA_UNREACHABLE in report.problems:
            if not is_repeated:
                self._cut_off[key] = now
        elif key in self._cut_off:
            del self._cut_off[key]
            self._events.record(
                syncer, EventType.NORMAL, SyncerEvent.EUREKA_REACHABLE, "Eureka answers again"
            )
        self._statuses.queue_report(syncer, report)

    def publish_deletion(self, syncer: Mapping[str, Any], ended: SyncerDeletion) -> None:
        """Queue the Events on the end of a deleted syncer."""
        if ended.deregistered_count:
            self._events.record_instance_count(
                syncer, SyncerEvent.DEREGISTERED, ended.deregistered_count, "taken out of Eureka"
            )
        if ended.left_behind_note:
            self._events.record(syncer, EventType.WARNING, SyncerEvent.LEFT_BEHIND, ended.left_behind_note)

    def forget(self, key: SyncerKey) -> None:
        self._statuses.forget(key)
        self._cut_off.pop(key, None)

    def on_leadership_lost(self) -> None:
        """Forget all reports: another replica reports from now on."""
        self._statuses.on_leadership_lost()
        self._cut_off.clear()
