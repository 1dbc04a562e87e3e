"""Progress messages of a call that changes many registrations, for a person who waits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from eurekube_provider.runtime.clock import boot_clock_seconds

EPHEMERAL_MESSAGE_INTERVAL_SECONDS = 1.0
"""Seconds between two sentences where the second replaces the first on the screen."""

PROGRESS_LINE_INTERVAL_SECONDS = 10.0
"""Seconds between two lines that stay on the screen."""

_CURRENT_REPORTER: ContextVar[ProgressReporter | None] = ContextVar("progress", default=None)


@dataclass(frozen=True, slots=True)
class ProgressReporter:
    """A reporter of a call's progress.

    :ivar report: shows a person a sentence.
    :ivar interval_seconds: the seconds before the first sentence, and between two.
    """

    report: Callable[[str], None]
    interval_seconds: float = PROGRESS_LINE_INTERVAL_SECONDS

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Within the context, report the changes of this thread's call by this reporter."""
        token = _CURRENT_REPORTER.set(self)
        try:
            yield
        finally:
            _CURRENT_REPORTER.reset(token)


class SentChangesCounter:
    """A counter of a plan's sent changes, which reports now and then; any thread may count.

    :param total: the number of changes in the plan.
    """

    def __init__(self, total: int, clock: Callable[[], float] = boot_clock_seconds) -> None:
        self._progress = _CURRENT_REPORTER.get()
        self._total, self._clock, self._lock = total, clock, threading.Lock()
        self._sent: Counter[str] = Counter()
        self._reported_at = clock()

    def count(self, url: str, count: int) -> None:
        """Count changes that a server answered; report the count of the server that answered the fewest."""
        if self._progress is None:
            return
        with self._lock:
            self._sent[url] += count
            now = self._clock()
            if now < self._reported_at + self._progress.interval_seconds:
                return
            self._reported_at = now
            done = min(self._total, *self._sent.values())
        self._progress.report(f"{done:,} of {self._total:,} changes sent to Eureka")
