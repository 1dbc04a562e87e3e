"""A reader that follows an ensemble: it reads all nodes at its start and after each lost connection, else
those that watches report. A watch reports one change, without contents; the read that follows sets it again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.protocol.states import EventType, KazooState

from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.registry import (
    Failing,
    Healthy,
    Misconfigured,
    NeverRead,
    RegistryCondition,
    RegistryListener,
)
from eurekube_provider.zookeeper.ensemble import Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes

_log = logging.getLogger(__name__)

FULL_READ_INTERVAL_SECONDS, PROBE_INTERVAL_SECONDS = 300.0, 10.0
"""Without news: seconds until all nodes are read again, and until the services are listed as a test."""

MIN_LASTING_FAILURE_SECONDS = 4.0
"""Seconds without a connection after which the syncers report it: by then another server was tried."""

QUEUE_POLL_SECONDS, RETRY_SECONDS, STUCK_THREAD_SECONDS = 0.5, 2.0, 120.0

_READ_ALL_MARK, _CHILDREN_MARK = "", "*"
FindMisconfiguration = Callable[[], ConfigurationError | None]


class Reader:
    """A thread that reads; ``find_misconfiguration`` is called once, after the first full read."""

    def __init__(
        self, ensemble: Ensemble, nodes: KnownNodes, find_misconfiguration: FindMisconfiguration
    ) -> None:
        self._ensemble, self._nodes, self._find_misconfiguration = ensemble, nodes, find_misconfiguration
        self._listener: RegistryListener | None = None
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        # One object each, of which kazoo calls one once, however often it was given.
        self._children_changed = partial(self._watch_fired, _CHILDREN_MARK)
        self._node_changed = partial(self._watch_fired, "")
        self._followed = set[str]()  # services and nodes that have a watch: what is written here has none
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zookeeper-reader", daemon=True)
        self._error: RegistryError | None = None
        self._misconfiguration: ConfigurationError | None = None
        self._failing_since: float | None = None
        self._progress_at = time.monotonic()
        self.read_at: float | None = None
        self.connection_changed_at = self.answered_at = time.time()

    def start(self, listener: RegistryListener | None) -> None:
        """Connect, and begin to read."""
        self._listener, self._failing_since = listener, time.time()
        self._ensemble.client.add_listener(self._connection_changed)
        self._ensemble.client.start_async()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._changed.put(_READ_ALL_MARK)

    def liveness(self) -> Liveness:
        age = time.monotonic() - self._progress_at
        return Liveness("zookeeper-reader", self._thread.is_alive(), age, STUCK_THREAD_SECONDS)

    def condition(self) -> RegistryCondition:
        if self._misconfiguration is not None:
            return Misconfigured(self._misconfiguration)
        since, error = self._failing_since, self._error or self._ensemble.unreachable_error()
        lasts = since is not None and time.time() - since > MIN_LASTING_FAILURE_SECONDS
        if self.read_at is None:
            return NeverRead(error if lasts or self._error is not None else None)
        return Healthy() if since is None else Failing(error, since, lasts=lasts)

    def notify_owners(self, owners: Iterable[str]) -> None:
        """Notify the listener that instances of these owners have changed."""
        for owner in owners:
            if owner and self._listener is not None:
                self._listener.instances_of_owner_changed(owner)

    def _connection_changed(self, state: KazooState) -> None:
        self.connection_changed_at = time.time()
        if state == KazooState.CONNECTED:
            self._changed.put(_READ_ALL_MARK)
        elif self._failing_since is None:
            self._failing_since = time.time()

    def _watch_fired(self, mark: str, event: Any) -> None:
        if event.type != EventType.NONE:  # the connection was lost: all is read then
            self._changed.put(mark + event.path)

    def _run(self) -> None:
        said: tuple[object, ...] | None = None
        waiting: set[str] = set()
        tried_at = -RETRY_SECONDS
        while not self._stopped.is_set():
            waiting |= self._take_changed_paths()
            self._progress_at = now = time.monotonic()
            if self.read_at is None or time.time() - self.read_at > FULL_READ_INTERVAL_SECONDS or self._error:
                waiting.add(_READ_ALL_MARK)
            elif time.time() - self.answered_at > PROBE_INTERVAL_SECONDS:
                waiting.add(_CHILDREN_MARK + self._ensemble.connection.root)
            may_try = self._error is None or now - tried_at >= RETRY_SECONDS
            if waiting and may_try and self._ensemble.client.connected and not self._stopped.is_set():
                tried_at, waiting = now, self._read_and_return_unread(waiting)
            condition = self.condition()
            state = (type(condition), getattr(condition, "lasts", 0), bool(getattr(condition, "error", 0)))
            if state != said:
                self._report_condition(condition, is_news=said is not None)
                said = state

    def _take_changed_paths(self) -> set[str]:
        found: set[str] = set()
        with suppress(queue.Empty):
            found.add(self._changed.get(timeout=QUEUE_POLL_SECONDS))
            while True:
                found.add(self._changed.get_nowait())
        return found

    def _read_and_return_unread(self, changed: set[str]) -> set[str]:
        began = self.connection_changed_at
        try:
            if _READ_ALL_MARK in changed:
                self._read_all()
            else:
                self._read_changed(changed)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            if not isinstance(error, RegistryError) and not self._stopped.is_set():
                _log.exception(
                    "failed to read ZooKeeper, retrying and going on with what was read before: unexpected "
                    "error",
                    extra={"retry_seconds": RETRY_SECONDS},
                )
            self._error = error if isinstance(error, RegistryError) else RegistryError(f"not read: {error}")
            self._failing_since = self._failing_since or time.time()
            return {_READ_ALL_MARK}
        self._error = None  # a connection that was lost meanwhile is read once more
        self._failing_since = None if self.connection_changed_at == began else self._failing_since
        self.answered_at = time.time()
        return set()

    def _read_all(self) -> None:
        listed = self._ensemble.list_instance_paths(self._children_changed)
        self._followed = {path.rpartition("/")[0] for path in listed}
        self._fetch_nodes({*listed, *self._nodes.paths()})
        if self.read_at is None:  # what somebody writes later must not end an operator that serves
            self._misconfiguration = self._find_misconfiguration()
        self.read_at = time.time()

    def _read_changed(self, changed: set[str]) -> None:
        root = self._ensemble.connection.root
        services = {path[1:] for path in changed if path.startswith(_CHILDREN_MARK)}
        wanted = {path for path in changed if not path.startswith(_CHILDREN_MARK)}
        if root in services:
            services.remove(root)
            names = self._ensemble.list_children([root], self._children_changed)[root]
            services |= {f"{root}/{name}" for name in names} - self._followed
        known = {path: set(self._nodes.paths(path)) for path in services}
        for service, ids in self._ensemble.list_children(sorted(services), self._children_changed).items():
            (self._followed.add if ids else self._followed.discard)(service)
            there = {f"{service}/{one}" for one in ids}
            # Absence in a list proves nothing of what was written meanwhile: each that is missing is read.
            wanted |= (there - self._followed) | (known[service] - there)
        self._fetch_nodes(wanted)

    def _fetch_nodes(self, paths: Iterable[str]) -> None:
        owners: set[str] = set()
        for path, node in self._ensemble.read_nodes(sorted(paths), self._node_changed).items():
            (self._followed.discard if node is None else self._followed.add)(path)
            owners |= self._nodes.update_and_return_owners(path, node)
        self.notify_owners(owners)

    def _report_condition(self, condition: RegistryCondition, *, is_news: bool) -> None:
        if isinstance(condition, Failing) and condition.lasts:
            _log.warning(
                "failed to read ZooKeeper, retrying and going on with what was read before",
                extra={"error": str(condition.error), "retry_seconds": RETRY_SECONDS},
            )
        elif isinstance(condition, Healthy) and is_news:
            _log.info(
                "read ZooKeeper for the first time or after a failure, changes there can go on",
                extra={"instances": len(self._nodes.paths())},
            )
        if self._listener is not None:
            self._listener.condition_changed()
