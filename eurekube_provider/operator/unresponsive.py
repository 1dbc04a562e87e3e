"""The watch for Eurekas that accept requests but do not answer: reported at once, not after the time-outs.

A request to a server that hangs ends after seconds, and a syncer's plan is many requests. Until they end, a
status without this watch would say what held before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.registry import Failing, Registry, reading_error
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.loop import Loop
from eurekube_provider.operator.reports import DecidedSituation

REPORT_AFTER_SECONDS = 1.0
"""Seconds that a syncer may wait for a Eureka without an answer before its status says so."""

CHECK_INTERVAL_SECONDS = 0.25
"""Seconds between two checks of all Eurekas."""

LONGEST_ROUND_SECONDS = 60.0
"""Seconds after which a check of all Eurekas counts as stuck."""


@dataclass(slots=True)
class _Wait:
    """A syncer that may be waiting for a Eureka.

    :ivar decided: what is being carried out; None before the decision.
    """

    eureka_names: Collection[str]
    since: float
    decided: DecidedSituation | None = None
    is_reported: bool = False


class UnresponsiveEurekaWatch(Loop):
    """The watch over one operator's Eurekas, on a thread of its own; any number of workers may share it.

    :param report: called once for each syncer that waits for a Eureka which does not answer, with its key,
        the Eureka's name, the error, and what was decided; never after :meth:`end_wait`.
    :param on_changed: called with the name of a Eureka that falls silent for long, or answers again.
    :param find_untaken: returns the syncers of a Eureka that wait until it is taken over.
    """

    def __init__(
        self,
        registries: Mapping[str, Registry],
        report: Callable[[SyncerKey, str, RegistryError, DecidedSituation | None], None] = lambda *_: None,
        on_changed: Callable[[str], None] = lambda _: None,
        find_untaken: Callable[[str], Iterable[SyncerKey]] = lambda _: (),
    ) -> None:
        self._registries = registries
        self._report = report
        self._on_changed = on_changed
        self._find_untaken = find_untaken
        self._lock = threading.Lock()
        self._waits: dict[SyncerKey, _Wait] = {}
        self._silent: set[str] = set()
        super().__init__(
            "silence",
            self.check_and_report,
            lambda: CHECK_INTERVAL_SECONDS,
            "failed to check for Eurekas that do not answer, retrying: statuses may be old",
            LONGEST_ROUND_SECONDS,
        )

    def begin_wait(
        self, key: SyncerKey, eureka_names: Collection[str], decided: DecidedSituation | None = None
    ) -> None:
        """Note that a syncer is read or changed at Eurekas from now on."""
        with self._lock:
            self._waits[key] = _Wait(eureka_names, time.monotonic(), decided)

    def end_wait(self, key: SyncerKey) -> None:
        """Note that a syncer waits for no Eureka any more."""
        with self._lock:
            self._waits.pop(key, None)

    def end_all_waits(self) -> None:
        """Forget all waits, since another term of leadership begins."""
        with self._lock:
            self._waits.clear()

    def check_and_report(self) -> None:
        """Report the Eurekas that do not answer now, and those that answer again."""
        for name, registry in self._registries.items():
            condition = registry.condition()
            if (isinstance(condition, Failing) and condition.lasts) != (name in self._silent):
                self._silent ^= {name}
                self._on_changed(name)
            if (error := reading_error(condition)) is None:
                continue
            now = time.monotonic()
            with self._lock:
                for key in self._find_untaken(name):
                    self._waits.setdefault(key, _Wait((name,), now))
                for key, one in self._waits.items():
                    has_waited = now - one.since >= REPORT_AFTER_SECONDS
                    if has_waited and not one.is_reported and name in one.eureka_names:
                        one.is_reported = True
                        self._report(key, name, error, one.decided)
