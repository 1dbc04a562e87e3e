"""Kubernetes Events: the lines that ``kubectl describe`` shows a person about an object.

Events never delay a registration: one that cannot be written is logged and forgotten. A repeated one is
written once in :data:`REPEAT_SUPPRESSION_SECONDS`, and of different ones about one object and reason no more
than :data:`MOST_NOTES_OF_REASON`: an object whose notes change all the time would hold up everybody's. Events
that only count instances are summed up: the first is written at once, the next sum after
:data:`SHORTEST_SUM_INTERVAL_SECONDS`, and further ones after twice as long each time, up to
:data:`LONGEST_SUM_INTERVAL_SECONDS`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import format_count
from eurekube_provider.kube.access import EVENTS, KubeAccess
from eurekube_provider.kube.rate_limiter import (
    LONGEST_STOP_DELAY_SECONDS,
    LONGEST_WAIT_FOR_URGENT_SECONDS,
    RateLimiter,
)

_log = logging.getLogger(__name__)

REPEAT_SUPPRESSION_SECONDS = 600.0
MOST_NOTES_OF_REASON = 25
"""The most Events about one object for one reason within :data:`REPEAT_SUPPRESSION_SECONDS`, as many as
client-go writes at once; the object's conditions have the news all the same.
"""

SHORTEST_SUM_INTERVAL_SECONDS, LONGEST_SUM_INTERVAL_SECONDS = 10.0, 300.0

_LONGEST_NOTE_BYTES = 1024  # bytes


class EventType(StrEnum):
    """The types of Events; a Warning asks a person to act."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(slots=True)
class _EventSum:
    """The instances counted since the last Event about one object for one reason."""

    regarding: Mapping[str, Any]
    text: str
    count: int = 0


class EventRecorder:
    """A writer of Events in the name of ``instance`` (the operator's pod), on a thread of its own."""

    def __init__(
        self,
        access: KubeAccess,
        controller: str,
        instance: str,
        wait_quiet: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._access = access
        self._limiter = RateLimiter[tuple[str, str]](
            wait_quiet, SHORTEST_SUM_INTERVAL_SECONDS, LONGEST_SUM_INTERVAL_SECONDS, quiet_seconds=math.inf
        )
        self._controller = controller
        self._instance = instance[:128]
        self._written: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._note_counts = Counter[tuple[str, str]]()  # of those, by object and reason
        self._lock = threading.Lock()
        self._event_sums: dict[tuple[str, str], _EventSum] = {}
        self._queue: queue.SimpleQueue[tuple[float, dict[str, Any]] | None] = queue.SimpleQueue()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, longest_seconds: float = LONGEST_STOP_DELAY_SECONDS) -> None:
        """Write the queued Events, then end; drop Events that are not written after ``longest_seconds``."""
        self._is_stopping = True
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(longest_seconds)

    def record(self, regarding: Mapping[str, Any], kind: EventType, reason: str, note: str) -> None:
        """Queue an Event about an object; return at once.

        :param regarding: the object, with ``apiVersion``, ``kind`` and ``metadata``.
        :param note: one sentence, which may contain text that others wrote: `kubectl` prints it unchanged.
        """
        metadata = regarding["metadata"]
        note = _truncate_note(printable(note))
        key = (str(metadata.get("uid")), reason, note)
        now = time.monotonic()
        with self._lock:
            while self._written and now - next(iter(self._written.values())) >= REPEAT_SUPPRESSION_SECONDS:
                (uid, of, _), _ = self._written.popitem(last=False)
                self._note_counts[uid, of] -= 1
                if not self._note_counts[uid, of]:
                    del self._note_counts[uid, of]
            if key in self._written or self._note_counts[key[:2]] >= MOST_NOTES_OF_REASON:
                return
            self._written[key] = now
            self._note_counts[key[:2]] += 1
        self._queue_event(regarding, kind, reason, note)

    def record_instance_count(self, regarding: Mapping[str, Any], reason: str, count: int, text: str) -> None:
        """Queue a normal Event with a count of instances, or add the count to the next Event; return at once.

        :param text: the text after ``3 instances``, e.g. ``of RATING registered``.
        """
        key = (str(regarding["metadata"].get("uid")), reason)
        with self._lock:
            open_sum = self._event_sums.get(key)
            if open_sum is not None:
                open_sum.count += count
                open_sum.text = text
                return
            self._begin_sum(key, _EventSum(regarding, text), time.monotonic())
        self._queue_event(regarding, EventType.NORMAL, reason, f"{format_count(count)} {text}")

    def _begin_sum(self, key: tuple[str, str], event_sum: _EventSum, now: float) -> None:
        """Begin to count for the next Event of a key; the lock must be held."""
        self._event_sums[key] = event_sum
        self._limiter.record_write(key, now)
        self._limiter.schedule_turn(key, self._limiter.write_allowed_at(key))

    def _queue_due_sums(self, *, include_not_due: bool) -> float | None:
        """Queue an Event for each sum that is due; return the seconds until the next sum is due."""
        now = time.monotonic()
        due: list[tuple[tuple[str, str], _EventSum]] = []
        with self._lock:
            while (key := self._limiter.pop_due_key(math.inf if include_not_due else now)) is not None:
                one = self._event_sums.pop(key)
                due.append((key, one))
                if one.count:
                    self._begin_sum(key, _EventSum(one.regarding, one.text), now)
                else:
                    self._limiter.forget(key)
            wait = self._limiter.seconds_until_next_turn(now)
        for (_, reason), one in due:
            if one.count:
                self._queue_event(
                    one.regarding, EventType.NORMAL, reason, f"{format_count(one.count)} {one.text}"
                )
        return wait

    def _queue_event(self, regarding: Mapping[str, Any], kind: EventType, reason: str, note: str) -> None:
        metadata = regarding["metadata"]
        stamp = datetime.now(UTC)
        unique = hashlib.sha256(
            f"{metadata.get('uid')}{reason}{note}{stamp.timestamp()}".encode()
        ).hexdigest()[:16]
        begin = metadata["name"][:200].rstrip("-.")  # no part of a name may end so
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": metadata["namespace"], "name": f"{begin}.{unique}"},
            "eventTime": stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": reason,
            "reason": reason,
            "type": kind.value,
            "note": note,
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata.get("uid"),
            },
        }
        self._queue.put((time.monotonic() + LONGEST_WAIT_FOR_URGENT_SECONDS, event))

    def _run(self) -> None:
        while True:
            wait = self._queue_due_sums(include_not_due=False)
            try:
                item = self._queue.get(timeout=wait)
            except queue.Empty:
                continue
            if item is None:
                break
            latest_at, event = item
            if not self._is_stopping:
                self._limiter.wait_until_no_urgent_work(latest_at)
            started = time.monotonic()
            self._post_event(event)
            if not self._is_stopping:
                self._limiter.pause_after_write(time.monotonic() - started)
        self._queue_due_sums(include_not_due=True)
        while not self._queue.empty():
            if (item := self._queue.get()) is not None:
                self._post_event(item[1])

    def _post_event(self, event: dict[str, Any]) -> None:
        try:
            self._access.request("POST", EVENTS.path(event["metadata"]["namespace"]), body=event)
        except LeadershipLost:
            return  # the replica that leads now writes its own Events
        except KubernetesError as error:
            # E.g. in a namespace that is being deleted, where nothing can be created any more.
            _log.warning(
                "failed to write an Event, dropping it and going on with the next",
                extra={"reason": event["reason"], "error": str(error)},
            )
        except Exception:  # noqa: BLE001 - the thread must go on writing the others
            _log.exception(
                "failed to write an Event: unexpected error, dropping it", extra={"reason": event["reason"]}
            )


def _truncate_note(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE_BYTES:
        return note
    return encoded[: _LONGEST_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
