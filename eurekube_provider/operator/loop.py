"""A thread that repeats one task for as long as the operator runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from eurekube_provider.core.errors import LeadershipLost
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads

_log = logging.getLogger(__name__)


class Loop:
    """A thread that repeats a task until it is stopped, whatever the task raises.

    :param pause_seconds: returns the seconds from the end of the task until it is repeated.
    :param failure: the log line on an unexpected error.
    :param longest_seconds: seconds without a new beginning after which the loop counts as stuck.
    """

    def __init__(
        self,
        name: str,
        task: Callable[[], object],
        pause_seconds: Callable[[], float],
        failure: str,
        longest_seconds: float,
    ) -> None:
        self._task, self._pause_seconds = task, pause_seconds
        self._failure, self._longest_seconds = failure, longest_seconds
        self._began_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._began_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End the thread once its task has ended; return at once."""
        self._stopped.set()

    def liveness(self) -> list[Liveness]:
        age = time.monotonic() - self._began_at
        return liveness_of_started_threads([self._thread], age, self._longest_seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._began_at = time.monotonic()
            try:
                self._task()
            except LeadershipLost:
                pass  # the new leader continues
            except Exception:  # noqa: BLE001 - the thread must go on
                if not self._stopped.is_set():
                    _log.exception(self._failure)
            self._stopped.wait(self._pause_seconds())
