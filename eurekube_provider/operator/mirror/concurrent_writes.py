"""Concurrent writes: those of several Services run at once, those of one Service in their order.

An API server takes milliseconds for a write, most of them for its disk, and one write at a time would make a
mirror of two hundred applications slow. Decisions are made by one thread at a time, since a decision may read
Eureka, which must not get many requests at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

MOST_CONCURRENT_WRITES = 8
"""Number of concurrent writes for the mirrors of one Eureka; Kubernetes' EndpointSlice controller has five
workers.
"""

Write = Callable[[], object]
"""Function that makes one or several writes, in their order."""


def run_writes(writes: Iterable[Write], writers: int = MOST_CONCURRENT_WRITES) -> None:
    """Carry out all writes, and return when the last one has ended.

    The next write is taken when a thread is free; none is begun once one has failed.

    :param writes: yields the writes, and may take time for each; two threads never use it at once.
    :param writers: most writes that are under way at once.
    :raises Exception: the first failure, of a write or of ``writes``.
    """
    round_ = _ConcurrentRun(iter(writes), writers)
    round_.carry_out_writes()
    for helper in round_.helpers:  # grows, until nothing is left
        helper.join()
    if round_.failures:
        raise round_.failures[0]


class _ConcurrentRun:
    """One call of :func:`run_writes`: its helper threads and its failures.

    Helpers are started only while writes remain, so that a round without writes costs no thread.
    """

    def __init__(self, writes: Iterator[Write], writers: int) -> None:
        self._writes, self._writers = writes, writers
        self._turn = threading.Lock()
        self.helpers: list[threading.Thread] = []
        self.failures: list[Exception] = []

    def carry_out_writes(self) -> None:
        """Carry out one write after the other, until no write is left or one has failed."""
        try:
            while (write := self._next_write()) is not None:
                write()
        except Exception as error:  # noqa: BLE001 - run_writes raises it again
            self.failures.append(error)

    def _next_write(self) -> Write | None:
        """Return the next write, and start a helper if there may be more; return None at the end."""
        with self._turn:
            write = None if self.failures else next(self._writes, None)
            if write is not None and len(self.helpers) + 1 < self._writers:
                helper = threading.Thread(target=self.carry_out_writes, name="mirror-writes", daemon=True)
                self.helpers.append(helper)
                helper.start()
            return write
