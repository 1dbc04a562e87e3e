"""The watch for Eurekas that accept requests but do not answer: reported at once, not after the time-outs.

A request to a server that hangs ends after seconds, and a syncer's plan is many requests. Until they end, a
status without this watch would say what held before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.registry import Failing, NeverRead, Registry, reading_error
from eurekube_provider.operator.index import SyncerKey

_log = logging.getLogger(__name__)

REPORT_AFTER_SECONDS = 1.0
"""Seconds that a syncer may wait for a Eureka without an answer before its status says so."""

CHECK_INTERVAL_SECONDS = 0.25
"""Seconds between two checks of all Eurekas."""

LONGEST_ROUND_SECONDS = 60.0
"""Seconds after which a check of all Eurekas counts as stuck."""

ErrorReporter = Callable[[RegistryError], None]
"""Callback that reports an error in the status of one syncer."""


@dataclass(frozen=True, slots=True)
class _PendingReconcile:
    """A reconcile that may be waiting for a Eureka.

    :ivar eureka_names: names of the Eurekas that it asks.
    :ivar started_at: monotonic time at which it began to ask them.
    :ivar report_error: called once if one of them does not answer.
    """

    eureka_names: Collection[str]
    started_at: float
    report_error: ErrorReporter


class UnresponsiveEurekaWatch:
    """The watch over one operator's Eurekas, on a thread of its own; any number of workers may share it.

    :param on_silent: called again and again with the name of a silent Eureka and the error.
    :param on_changed: called with the name of a Eureka that falls silent for long, or answers again.
    """

    def __init__(
        self,
        registries: Mapping[str, Registry],
        on_silent: Callable[[str, RegistryError], None] = lambda *_: None,
        on_changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._registries = registries
        self._on_silent = on_silent
        self._on_changed = on_changed
        self._lock = threading.Lock()
        self._pending: dict[SyncerKey, _PendingReconcile] = {}
        self._silent: set[str] = set()
        self._went_round_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="silence", daemon=True)

    def start(self) -> None:
        """Start the watching thread."""
        self._went_round_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the watching thread."""
        return liveness_of_started_threads(
            [self._thread], time.monotonic() - self._went_round_at, LONGEST_ROUND_SECONDS
        )

    @contextmanager
    def report_while_waiting(
        self, key: SyncerKey, eureka_names: Collection[str], report_error: ErrorReporter
    ) -> Iterator[None]:
        """Call ``report_error`` if a Eureka does not answer while the block reads or changes a syncer there.

        :param report_error: called once if one of them does not answer meanwhile; never after the end.
        """
        with self._lock:
            self._pending[key] = _PendingReconcile(eureka_names, time.monotonic(), report_error)
        try:
            yield
        finally:
            with self._lock:
                self._pending.pop(key, None)

    def check_and_report(self) -> None:
        """Report the Eurekas that do not answer now, and those that answer again."""
        now = time.monotonic()
        for name, registry in self._registries.items():
            condition = registry.condition()
            error = reading_error(condition)
            lasts = isinstance(condition, Failing) and condition.lasts
            if lasts != (name in self._silent):
                self._silent ^= {name}
                self._on_changed(name)
            if error is not None and (lasts or isinstance(condition, NeverRead)):
                self._on_silent(name, error)
            if error is not None:
                self._report_to_waiting_syncers(name, error, now)

    def _report_to_waiting_syncers(self, name: str, error: RegistryError, now: float) -> None:
        """Report the error to the syncers that have waited for this Eureka for a second."""
        with self._lock:
            for key, one in list(self._pending.items()):
                if name in one.eureka_names and now - one.started_at >= REPORT_AFTER_SECONDS:
                    del self._pending[key]
                    one.report_error(error)

    def _run(self) -> None:
        while not self._stopped.wait(CHECK_INTERVAL_SECONDS):
            self._went_round_at = time.monotonic()
            try:
                self.check_and_report()
            except Exception:  # noqa: BLE001 - the thread must check again
                _log.exception(
                    "failed to check for Eurekas that do not answer, retrying: statuses may be old",
                    extra={"retry_seconds": CHECK_INTERVAL_SECONDS},
                )
