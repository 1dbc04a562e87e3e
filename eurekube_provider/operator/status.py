"""What a syncer's status says: conditions and counts, written beside the work and never in its way.

Writes of one syncer are at least half a second apart; only the newest counts. Where counts alone change again
and again, as in a rollout, the pauses grow. Writes wait a little while there is more urgent work.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.syncer import claimed_names
from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS, KubeAccess
from eurekube_provider.kube.courtesy import STOP_SECONDS, Courtesy
from eurekube_provider.operator.conditions import Report
from eurekube_provider.operator.index import SyncerKey, key_of

_log = logging.getLogger(__name__)

SHORTEST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 0.5, 10.0
RETRY_SECONDS = 5.0
_LONGEST_MESSAGE = 4000


def status_of(syncer: Mapping[str, Any], report: Report, now: datetime) -> dict[str, Any]:
    """The status that says ``report``, as far as possible in the words that stand there already.

    :param syncer: the object with its current status, whose transition times are kept.
    """
    generation = syncer["metadata"].get("generation", 0)
    before = {item["type"]: item for item in (syncer.get("status") or {}).get("conditions") or ()}
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        condition(syncer, ConditionType.READY, report.reason, report.message, stamp, holds=report.is_ready),
        condition(
            syncer,
            ConditionType.SYNCED,
            report.sync_reason,
            report.sync_message,
            stamp,
            holds=report.is_synced,
        ),
    ]
    for kind in ConditionType:
        if kind.is_always_there:
            continue
        if kind in report.problems:
            conditions.append(condition(syncer, kind, kind, report.problems[kind], stamp, holds=True))
        elif kind in before and kind in report.unknown:
            conditions.append(before[kind])
        elif kind in before:
            conditions.append(condition(syncer, kind, "Resolved", "no longer so", stamp, holds=False))
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions,
        "instances": f"{report.registered}/{report.desired}",
        "desired": report.desired,
        "registered": report.registered,
        "refused": report.refused,
        "names": sorted(claimed_names(syncer) if report.names is None else report.names),
    }
    if report.application:
        status["application"] = report.application
    if report.is_synced:
        status["lastSyncTime"] = stamp
    return status


def condition(
    item: Mapping[str, Any],
    kind: str,
    reason: str,
    message: str,
    stamp: str,
    *,
    holds: bool | None,
) -> dict[str, Any]:
    """A condition of ``item``, whose transition time is kept where the status stays as it is.

    :param message: it may repeat what others wrote; `kubectl describe` prints it as it stands.
    :param holds: None where that is not known.
    """
    state = {True: "True", False: "False", None: "Unknown"}[holds]
    conditions = (item.get("status") or {}).get("conditions") or ()
    old = next((one for one in conditions if one["type"] == kind), None)
    return {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": printable(message)[:_LONGEST_MESSAGE],
        "observedGeneration": item["metadata"].get("generation", 0),
        "lastTransitionTime": old["lastTransitionTime"] if old and old["status"] == state else stamp,
    }


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A report that is still to be written.

    :ivar latest_at: until when it may wait, by ``time.monotonic()``.
    """

    syncer: Mapping[str, Any]
    report: Report
    latest_at: float


@dataclass(frozen=True, slots=True)
class _Last:
    """The last write of a syncer's status.

    :ivar gist: what must not wait when it turns; see :func:`_gist`.
    :ivar at: when, by ``time.monotonic()``.
    :ivar interval_seconds: how long counts alone wait after it.
    """

    gist: object
    at: float
    interval_seconds: float = SHORTEST_INTERVAL_SECONDS

    def then(self, gist: object, at: float) -> _Last:
        """The next write: the interval doubles as long as there is no pause."""
        if at - self.at > self.interval_seconds + LONGEST_INTERVAL_SECONDS:
            return _Last(gist, at)
        return _Last(gist, at, min(2 * self.interval_seconds, LONGEST_INTERVAL_SECONDS))

    def next_at(self, gist: object) -> float:
        """When a report may be written."""
        return self.at + (self.interval_seconds if gist == self.gist else SHORTEST_INTERVAL_SECONDS)


@dataclass(frozen=True, slots=True)
class _Standing:
    """The status that stands in the cluster as far as the writer knows: what it wrote, or found so already.

    :ivar version: the syncer's resourceVersion with it.
    """

    version: int
    status: Mapping[str, Any]


def _version(item: Mapping[str, Any]) -> int:
    """A larger one is newer (Kubernetes, KEP-5504); 0 where a server does not count."""
    version = (item.get("metadata") or {}).get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


def _gist(wanted: _Wanted) -> object:
    """All that a status says but for counts and wording."""
    report = wanted.report
    return (
        wanted.syncer["metadata"].get("generation"),
        report.is_ready,
        report.reason,
        report.is_synced,
        report.sync_reason,
        frozenset(report.problems),
    )


class StatusWriter:
    """Writes statuses on a thread of its own.

    :param wait_quiet: waits until there is nothing more urgent to do, for so many seconds at most.
    """

    def __init__(self, access: KubeAccess, wait_quiet: Callable[[float], None] = lambda _: None) -> None:
        self._access = access
        self._courtesy = Courtesy(wait_quiet)
        self._condition = threading.Condition()
        self._wanted: dict[SyncerKey, _Wanted] = {}
        self._turns: list[tuple[float, int, SyncerKey]] = []  # a heap: when, a number, whose
        self._turn_at: dict[SyncerKey, float] = {}  # the turn that counts, of several of one syncer
        self._turn_number = 0
        self._not_before: dict[SyncerKey, float] = {}
        self._last: dict[SyncerKey, _Last] = {}
        self._standing: dict[SyncerKey, _Standing] = {}
        self._unsure: set[SyncerKey] = set()  # whose last write was perhaps carried out
        self._writing: SyncerKey | None = None  # whose status was sent last
        self._sent: Mapping[str, Any] = {}
        self._is_forgotten = False  # what was sent last
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="status-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, longest_seconds: float = STOP_SECONDS) -> None:
        """Write what is still to be written, then end; what is not written after this time is given up."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(longest_seconds)

    def liveness(self) -> list[Liveness]:
        """Its thread."""
        return liveness_of([self._thread])

    def report(self, syncer: Mapping[str, Any], report: Report) -> None:
        """Have ``report`` written to the syncer; an older one that was not written yet is forgotten."""
        key = key_of(syncer)
        with self._condition:
            before = self._wanted.get(key)
            latest_at = before.latest_at if before else self._courtesy.latest_at()
            self._wanted[key] = _Wanted(syncer, report, latest_at)
            if self._due_at(key) < self._turn_at.get(key, math.inf):
                self._plan(key)
                self._condition.notify()

    def is_overwritten(self, syncer: Mapping[str, Any]) -> bool:
        """Whether somebody else's status stands there, and its syncer must be reported anew.

        A leader that was killed may have asked for it: the API server carries it out whenever it comes to it.
        """
        key, status = key_of(syncer), syncer.get("status") or {}
        with self._condition:
            standing = self._standing.get(key)
            if standing is None or _version(syncer) <= standing.version or _same(status, standing.status):
                return False
            return key != self._writing or not _same(status, self._sent)

    def forget(self, key: SyncerKey) -> None:
        """The syncer is gone."""
        with self._condition:
            self._is_forgotten |= key == self._writing
            self._unsure.discard(key)
            for table in (self._wanted, self._turn_at, self._not_before, self._last, self._standing):
                table.pop(key, None)

    def forget_all(self) -> None:
        """Another replica writes from now on, or has written."""
        with self._condition:
            self._is_forgotten = True
            for table in (self._wanted, self._turn_at, self._not_before, self._last, self._standing):
                table.clear()
            self._unsure.clear()
            self._turns.clear()

    def _run(self) -> None:
        while True:
            with self._condition:
                key = self._next()
                if key is None:
                    return
                latest_at = time.monotonic() if self._stopped else self._wanted[key].latest_at
            self._courtesy.wait(latest_at)
            with self._condition:
                wanted = self._wanted.pop(key, None)
                if wanted is None:
                    continue  # forgotten meanwhile
                self._not_before[key] = time.monotonic() + SHORTEST_INTERVAL_SECONDS
            started = time.monotonic()
            try:
                self._write(key, wanted)
            except LeadershipLost:
                pass  # who leads now has a report of its own
            except Exception:  # noqa: BLE001 - the thread must go on writing the others
                _log.exception("status not written", extra={"syncer": "/".join(key)})
            if not self._stopped:
                self._courtesy.pause(time.monotonic() - started)

    def _next(self) -> SyncerKey | None:
        """Wait for a syncer whose turn it is; None once there is nothing left to write. The lock is held."""
        while not self._stopped:
            now = time.monotonic()
            wait: float | None = None
            while self._turns and wait is None:
                at, _, key = self._turns[0]
                if at > now:
                    wait = at - now
                    continue
                heapq.heappop(self._turns)
                if self._turn_at.get(key) != at:
                    continue  # an earlier turn took its place
                del self._turn_at[key]
                if key not in self._wanted:
                    continue
                if self._due_at(key) <= now:
                    return key
                self._plan(key)  # what was written meanwhile puts it off
            self._condition.wait(wait)
        return next(iter(self._wanted), None)

    def _plan(self, key: SyncerKey) -> None:
        """Give it a turn when it is due; the lock is held."""
        self._turn_number += 1
        self._turn_at[key] = self._due_at(key)
        heapq.heappush(self._turns, (self._turn_at[key], self._turn_number, key))

    def _due_at(self, key: SyncerKey) -> float:
        """When what is wanted may be written; the lock is held."""
        last = self._last.get(key)
        paced = last.next_at(_gist(self._wanted[key])) if last else 0.0
        return max(self._not_before.get(key, 0.0), paced)

    def _write(self, key: SyncerKey, wanted: _Wanted) -> None:
        syncer = wanted.syncer
        with self._condition:
            standing, is_unsure = self._standing.get(key), key in self._unsure
            if standing is None or _version(syncer) > standing.version:
                standing = _Standing(_version(syncer), syncer.get("status") or {})
            status = status_of({**syncer, "status": standing.status}, wanted.report, datetime.now(UTC))
            if not is_unsure and _same(status, standing.status):
                self._standing[key] = standing
                return
            self._writing, self._sent, self._is_forgotten = key, status, False
        try:
            path = SYNCERS.path(*key, "status")
            answer = self._access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)
        except KubernetesError as error:
            if error.status_code != 404:
                _log.warning("status not written", extra={"syncer": "/".join(key), "error": str(error)})
                with self._condition:
                    if not self._is_forgotten:
                        self._unsure.add(key)
                    if not self._stopped:
                        self._wanted.setdefault(key, wanted)
                        self._not_before[key] = time.monotonic() + RETRY_SECONDS
                        self._plan(key)
            return
        with self._condition:
            if self._is_forgotten:
                return
            self._standing[key] = _Standing(max(_version(answer), standing.version), status)
            self._unsure.discard(key)
            last, now = self._last.get(key), time.monotonic()
            self._last[key] = last.then(_gist(wanted), now) if last else _Last(_gist(wanted), now)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both say the same; the time of the last look alone is not worth a write."""
    skipped = {"lastSyncTime"}
    return {k: v for k, v in one.items() if k not in skipped} == {
        k: v for k, v in other.items() if k not in skipped
    }
