"""Writes of which none waits for another: of several Services at once, of each Service in their order.

An API server takes milliseconds for a write, most of them for its disk, and so a mirror of two hundred
applications took as many times that. What is decided is decided by one thread at a time, since it may ask
Eureka, which must not be asked by many at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

WRITERS = 8
"""How many writes of one Eureka's mirrors are under way at once; Kubernetes' EndpointSlice controller has
five workers."""

Write = Callable[[], object]


def carry_out(writes: Iterable[Write], writers: int = WRITERS) -> None:
    """Carry out all, and return when the last has ended.

    Each is asked for when somebody can carry it out; none is begun once one has failed.

    :param writes: yields what to do, and may itself take its time for it; never asked by two at once.
    :raises Exception: the first failure, of a write or of ``writes``.
    """
    round_ = _Round(iter(writes), writers)
    round_.work()
    for helper in round_.helpers:  # grows, until nothing is left
        helper.join()
    if round_.failures:
        raise round_.failures[0]


class _Round:
    """One call: who takes part, and what has failed.

    Helpers are started while there is something to write, so that nothing to write costs none.
    """

    def __init__(self, writes: Iterator[Write], writers: int) -> None:
        self._writes, self._writers = writes, writers
        self._turn = threading.Lock()
        self.helpers: list[threading.Thread] = []
        self.failures: list[Exception] = []

    def work(self) -> None:
        """Carry out one after the other, until there is none or one has failed."""
        try:
            while (write := self._next()) is not None:
                write()
        except Exception as error:  # noqa: BLE001 - raised again by who called
            self.failures.append(error)

    def _next(self) -> Write | None:
        with self._turn:
            write = None if self.failures else next(self._writes, None)
            if write is not None and len(self.helpers) + 1 < self._writers:
                helper = threading.Thread(target=self.work, name="mirror-writes", daemon=True)
                self.helpers.append(helper)
                helper.start()
            return write
