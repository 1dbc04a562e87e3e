"""Kubernetes Events: what ``kubectl describe`` shows a person about an object.

Never on the way of a registration: an Event that cannot be written is logged and forgotten, and one that
repeats is written once in :data:`REPEAT_SECONDS`.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.kube.access import EVENTS, KubeAccess

_log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0
_LONGEST_NOTE = 1024


class Kind(StrEnum):
    """Whether a person should do something."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventRecorder:
    """Writes Events in the name of ``instance`` (the operator's pod), on a thread of its own."""

    def __init__(self, access: KubeAccess, controller: str, instance: str) -> None:
        self._access = access
        self._controller = controller
        self._instance = instance[:128]
        self._written: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what was recorded so far, then end."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=3.0)

    def record(self, regarding: Mapping[str, Any], kind: Kind, reason: str, note: str) -> None:
        """Have an Event about an object written; returns at once.

        :param regarding: the object, with ``apiVersion``, ``kind`` and ``metadata``.
        :param reason: CamelCase, such as ``Registered``.
        :param note: one sentence.
        """
        metadata = regarding["metadata"]
        note = note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE - 1]}…"
        key = (str(metadata.get("uid")), reason, note)
        now = time.monotonic()
        with self._lock:
            self._written = {k: at for k, at in self._written.items() if now - at < REPEAT_SECONDS}
            if key in self._written:
                return
            self._written[key] = now
        stamp = datetime.now(UTC)
        unique = hashlib.sha256(f"{key}{stamp.timestamp()}".encode()).hexdigest()[:16]
        self._queue.put(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {
                    "namespace": metadata["namespace"],
                    "name": f"{metadata['name'][:200]}.{unique}",
                },
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
        )

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._access.request("POST", EVENTS.path(event["metadata"]["namespace"]), body=event)
            except LeadershipLost:
                continue  # who leads now has Events of its own
            except KubernetesError as error:
                # E.g. in a namespace that is being deleted, where nothing can be created any more.
                _log.warning("Event not written", extra={"reason": event["reason"], "error": str(error)})
