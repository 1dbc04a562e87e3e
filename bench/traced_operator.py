"""The traced operator, ``python -m bench.traced_operator FILE``: it notes when each change passes its stages.

Five functions of the operator are wrapped: a reflector takes an event, a worker gets a key and gives it back,
a syncer is decided, and a request to Eureka is sent and answered. When the operator ends, the notes are
written to the file. Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bench.attribution import Asked, Begun, Decided, Done, Note, RequestItem, Taken, notes_to_json
from eurekube_provider.eureka.protocol.batch import READ_BY_HEARTBEAT_TIMESTAMP_MS
from eurekube_provider.eureka.protocol.transport import Transport
from eurekube_provider.kube.reflector import Reflector
from eurekube_provider.operator.__main__ import main as operate
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler

_BATCH_ITEM_PATTERN = re.compile(
    rb'"action": ?"(\w+)", ?"appName": ?"([^"]*)", ?"id": ?"([^"]*)"'
    rb'(?:, ?"status": ?"(\w+)", ?"lastDirtyTimestamp": ?(\w+))?'
)
_STATUS_PATTERN = re.compile(rb'"status": ?"(\w+)"')
_INSTANCE_ID_PATTERN = re.compile(rb'"instanceId": ?"([^"]*)"')

_BATCH_PATH = "/peerreplication/batch"
_ACTION_BY_METHOD = {"GET": "Read", "DELETE": "Cancel", "PUT": "Renew"}

SentRequest = tuple[float, float, str, str, str, bytes | None]
"""Sent, answered, thread, method, path and body of a request."""


class Tracer:
    """The notes on a running operator, in order."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._requests: list[SentRequest] = []

    def install(self) -> None:
        """Wrap the operator's functions that changes pass."""
        for owner, name, wrap in (
            (Reflector, "apply_event", self._wrap_apply_event),
            (WorkQueue, "get", self._wrap_queue_get),
            (WorkQueue, "done", self._wrap_queue_done),
            (Reconciler, "decide", self._wrap_decide),
            (Transport, "request", self._wrap_request),
        ):
            setattr(owner, name, wrap(getattr(owner, name)))

    def notes(self) -> list[Note]:
        """Return all notes; each request's items are parsed only now."""
        asked = [
            Asked(
                sent,
                answered,
                thread.partition("-")[0].partition("_")[0],
                path.startswith(_BATCH_PATH),
                parse_request_items(method, path, data),
            )
            for sent, answered, thread, method, path, data in self._requests
        ]
        return [*self._notes, *asked]

    def _wrap_apply_event(self, take: Callable[..., None]) -> Callable[..., None]:
        def taken(reflector: Reflector, event_type: str, item: dict[str, Any]) -> None:
            if item.get("kind") == "EndpointSlice":
                metadata = item["metadata"]
                place = (metadata["namespace"], metadata["name"])
                self._notes.append(Taken(time.monotonic(), place, metadata["resourceVersion"]))
            take(reflector, event_type, item)

        return taken

    def _wrap_queue_get(self, get: Callable[..., Any]) -> Callable[..., Any]:
        def got(queue: WorkQueue[Any], *arguments: Any) -> Any:
            key = get(queue, *arguments)
            if key is not None:
                self._notes.append(Begun(time.monotonic(), key))
            return key

        return got

    def _wrap_queue_done(self, done: Callable[..., None]) -> Callable[..., None]:
        def ended(queue: WorkQueue[Any], key: Any) -> None:
            self._notes.append(Done(time.monotonic(), key))
            done(queue, key)

        return ended

    def _wrap_decide(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        def decided(reconciler: Reconciler, key: Any, *arguments: Any) -> Any:
            found = decide(reconciler, key, *arguments)
            self._notes.append(Decided(time.monotonic(), key))
            return found

        return decided

    def _wrap_request(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def asked(
            transport: Transport,
            method: str,
            path: str,
            params: Any = None,
            data: bytes | None = None,
            *more: Any,
            **options: Any,
        ) -> Any:
            sent = time.monotonic()
            try:
                return request(transport, method, path, params, data, *more, **options)
            finally:
                thread = threading.current_thread().name
                request_of = (sent, time.monotonic(), thread, method, path, data)
                self._requests.append(request_of)

        return asked


def parse_request_items(method: str, path: str, data: bytes | None) -> tuple[RequestItem, ...]:
    """Return the actions of a request on instances; none for lists, deltas and statuses of servers."""
    parts = [unquote(part) for part in path.split("?")[0].strip("/").split("/")]
    if path.startswith(_BATCH_PATH) and data is not None:
        return tuple(_parse_batch_item(*found) for found in _BATCH_ITEM_PATTERN.findall(data))
    if parts[0] != "apps" or len(parts) < 2 or parts[1] == "delta":
        return ()
    application = parts[1]
    if method == "POST" and data is not None:
        named, status = _INSTANCE_ID_PATTERN.search(data), _STATUS_PATTERN.search(data)
        if named is None or status is None:
            return ()
        return (RequestItem("Register", application, named[1].decode(), status[1].decode()),)
    if len(parts) != 3 or method not in _ACTION_BY_METHOD:
        return ()
    return (RequestItem(_ACTION_BY_METHOD[method], application, parts[2], ""),)


def _parse_batch_item(
    action: bytes, application: bytes, instance_id: bytes, status: bytes, stamp: bytes
) -> RequestItem:
    named = action.decode()
    if named == "Heartbeat":
        named = "Read" if stamp == str(READ_BY_HEARTBEAT_TIMESTAMP_MS).encode() else "Renew"
    return RequestItem(named, application.decode(), instance_id.decode(), status.decode())


def main() -> int:
    """Run the operator until it is asked to end, and write the notes."""
    tracer = Tracer()
    tracer.install()
    threading.current_thread().name = "operator"
    try:
        return operate([])
    finally:
        Path(sys.argv[1]).write_text(json.dumps(notes_to_json(tracer.notes())), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
