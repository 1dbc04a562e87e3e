"""Threads for each server of its own: a server that hangs blocks no thread of another one.

They are daemons, since a request that is never answered must not keep a process from ending.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)

MOST_THREADS_PER_SERVER = 16
"""The most threads for one server: as many as pooled connections."""

_thread_flags = threading.local()


def is_executor_thread() -> bool:
    """Return whether the calling thread is one of an executor's: it must not wait for other work of an
    executor.
    """
    return getattr(_thread_flags, "yes", False)


class PeerExecutor:
    """An executor for one server that does work in the order of submission; it starts threads when they
    are needed.
    """

    def __init__(self, name: str, most: int = MOST_THREADS_PER_SERVER) -> None:
        self._name, self._most = name, most
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> bool:
        """Queue ``work``, a function that must not raise; return False, and queue nothing, after
        :meth:`close`.
        """
        with self._changed:
            if self._closed:
                return False
            self._work.append(work)
            if self._idle >= len(self._work):
                self._changed.notify()
                return True
            if self._threads == self._most:
                return True
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()
        return True

    def close(self) -> None:
        """Accept no more work; queued work is still done, since somebody may wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        _thread_flags.yes = True
        while (work := self._wait_for_work()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001 - the thread must go on
                _log.exception(
                    "failed to ask a Eureka server: unexpected error, not asking again, going on with the "
                    "next request"
                )

    def _wait_for_work(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._work:
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._work.popleft()
