"""Kubernetes Events: the lines that ``kubectl describe`` shows a person about an object.

Events never delay a registration: one that cannot be written is logged and forgotten, and a repeated one is
written once in :data:`REPEAT_SECONDS`. Events that only count instances are summed up: the first is written
at once, the next sum after :data:`TALLY_SECONDS`, and further ones after twice as long each time, up to
:data:`LONGEST_TALLY_SECONDS`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import counted
from eurekube_provider.kube.access import EVENTS, KubeAccess
from eurekube_provider.kube.rate_limiter import PATIENCE_SECONDS, STOP_SECONDS, RateLimiter

_log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0
TALLY_SECONDS, LONGEST_TALLY_SECONDS = 10.0, 300.0

_LONGEST_NOTE = 1024  # bytes


class EventType(StrEnum):
    """The types of Events; a Warning asks a person to act."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(slots=True)
class _Aggregate:
    """The sum of the counts since the last Event of one kind."""

    regarding: Mapping[str, Any]
    text: str
    count: int = 0


class EventRecorder:
    """A writer of Events in the name of ``instance`` (the operator's pod), on a thread of its own.

    :param wait_quiet: waits until no more urgent work is left, for at most a number of seconds.
    """

    def __init__(
        self,
        access: KubeAccess,
        controller: str,
        instance: str,
        wait_quiet: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._access = access
        self._limiter = RateLimiter[tuple[str, str]](
            wait_quiet, TALLY_SECONDS, LONGEST_TALLY_SECONDS, quiet_seconds=math.inf
        )
        self._controller = controller
        self._instance = instance[:128]
        self._written: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._lock = threading.Lock()
        self._aggregates: dict[tuple[str, str], _Aggregate] = {}
        self._queue: queue.SimpleQueue[tuple[float, dict[str, Any]] | None] = queue.SimpleQueue()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread that writes Events."""
        self._thread.start()

    def stop(self, longest_seconds: float = STOP_SECONDS) -> None:
        """Write the recorded Events, then end; Events that are not written after this time are lost."""
        self._is_stopping = True
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(longest_seconds)

    def record(self, regarding: Mapping[str, Any], kind: EventType, reason: str, note: str) -> None:
        """Queue an Event about an object; return at once.

        :param regarding: the object, with ``apiVersion``, ``kind`` and ``metadata``.
        :param reason: CamelCase, such as ``Registered``.
        :param note: one sentence, which may contain text that others wrote: `kubectl` prints it unchanged.
        """
        metadata = regarding["metadata"]
        note = _cut(printable(note))
        key = (str(metadata.get("uid")), reason, note)
        now = time.monotonic()
        with self._lock:
            while self._written and now - next(iter(self._written.values())) >= REPEAT_SECONDS:
                self._written.popitem(last=False)
            if key in self._written:
                return
            self._written[key] = now
        self._write(regarding, kind, reason, note)

    def aggregate(self, regarding: Mapping[str, Any], reason: str, count: int, text: str) -> None:
        """Queue a normal Event that counts instances, or add to the next sum; return at once.

        :param text: the text after ``3 instances``, e.g. ``of RATING registered``.
        """
        key = (str(regarding["metadata"].get("uid")), reason)
        with self._lock:
            open_aggregate = self._aggregates.get(key)
            if open_aggregate is not None:
                open_aggregate.count += count
                open_aggregate.text = text
                return
            self._open(key, _Aggregate(regarding, text), time.monotonic())
        self._write(regarding, EventType.NORMAL, reason, f"{counted(count)} {text}")

    def _open(self, key: tuple[str, str], aggregate: _Aggregate, now: float) -> None:
        """Begin a new sum; the lock must be held."""
        self._aggregates[key] = aggregate
        self._limiter.wrote(key, now)
        self._limiter.plan(key, self._limiter.allowed_at(key))

    def _close_aggregates(self, *, all_of_them: bool) -> float | None:
        """Queue the sums that are due; return the seconds until the next one is."""
        now = time.monotonic()
        due: list[tuple[tuple[str, str], _Aggregate]] = []
        with self._lock:
            while (key := self._limiter.take_turn(math.inf if all_of_them else now)) is not None:
                one = self._aggregates.pop(key)
                due.append((key, one))
                if one.count:
                    self._open(key, _Aggregate(one.regarding, one.text), now)
                else:
                    self._limiter.forget(key)
            wait = self._limiter.wait_seconds(now)
        for (_, reason), one in due:
            if one.count:
                self._write(one.regarding, EventType.NORMAL, reason, f"{counted(one.count)} {one.text}")
        return wait

    def _write(self, regarding: Mapping[str, Any], kind: EventType, reason: str, note: str) -> None:
        metadata = regarding["metadata"]
        stamp = datetime.now(UTC)
        unique = hashlib.sha256(
            f"{metadata.get('uid')}{reason}{note}{stamp.timestamp()}".encode()
        ).hexdigest()[:16]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name'][:200]}.{unique}"},
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
        self._queue.put((time.monotonic() + PATIENCE_SECONDS, event))

    def _run(self) -> None:
        while True:
            wait = self._close_aggregates(all_of_them=False)
            try:
                item = self._queue.get(timeout=wait)
            except queue.Empty:
                continue
            if item is None:
                break
            latest_at, event = item
            if not self._is_stopping:
                self._limiter.wait(latest_at)
            started = time.monotonic()
            self._send(event)
            if not self._is_stopping:
                self._limiter.pause(time.monotonic() - started)
        self._close_aggregates(all_of_them=True)
        while not self._queue.empty():
            if (item := self._queue.get()) is not None:
                self._send(item[1])

    def _send(self, event: dict[str, Any]) -> None:
        try:
            self._access.request("POST", EVENTS.path(event["metadata"]["namespace"]), body=event)
        except LeadershipLost:
            return  # who leads now has Events of its own
        except KubernetesError as error:
            # E.g. in a namespace that is being deleted, where nothing can be created any more.
            _log.warning("failed to write an Event", extra={"reason": event["reason"], "error": str(error)})
        except Exception:  # noqa: BLE001 - the thread must go on writing the others
            _log.exception("failed to write an Event", extra={"reason": event["reason"]})


def _cut(note: str) -> str:
    """Return ``note``, cut to the length that the API accepts."""
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE:
        return note
    return encoded[: _LONGEST_NOTE - len("…".encode())].decode(errors="ignore") + "…"
