"""A queue of things to look at again: equal keys merge, and none is looked at twice at once."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import OrderedDict
from typing import Generic, TypeVar

from eurekube_provider.core.backoff import backoff

K = TypeVar("K")

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 60.0


class WorkQueue(Generic[K]):
    """As client-go's work queue: what is added while it is worked on comes once more afterwards."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._condition, self._drained = threading.Condition(lock), threading.Condition(lock)
        self._waiting: OrderedDict[K, None] = OrderedDict()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._later_number = 0
        self._failures: dict[K, int] = {}
        self._closed = False
        self._paused = False

    def add(self, key: K) -> None:
        """Look at ``key`` as soon as a worker is free; of what came during a pause, at the latest first."""
        with self._condition:
            self._add(key)

    @property
    def depth(self) -> int:
        """How many keys wait for a worker; those whose time has not come are not counted."""
        with self._condition:
            return len(self._waiting) + len(self._again)

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Look at ``key`` in a while; of several the earliest is kept, and :meth:`add` ends none."""
        with self._condition:
            due = time.monotonic() + delay_seconds
            if due < self._due.get(key, math.inf):
                self._due[key] = due
                self._later_number += 1
                heapq.heappush(self._later, (due, self._later_number, key))
                self._condition.notify()

    def retry(self, key: K) -> float:
        """Look at ``key`` again after a delay, in seconds, that doubles with each failure."""
        with self._condition:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        delay = backoff(failures, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        self.add_after(key, delay)
        return delay

    def forget_failures(self, key: K) -> None:
        """It went well: the next failure waits for the shortest time again."""
        with self._condition:
            self._failures.pop(key, None)

    def get(self) -> K | None:
        """Wait for the next key; None once the queue is closed. Call :meth:`done` afterwards."""
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    due, _, later = heapq.heappop(self._later)
                    if self._due.get(later) == due:  # else an earlier one took its place
                        del self._due[later]
                        self._add(later)
                if self._paused:
                    self._condition.wait()
                    continue
                if self._waiting:
                    key, _ = self._waiting.popitem(last=False)
                    if not self._waiting:
                        self._drained.notify_all()
                    self._working.add(key)
                    return key
                self._condition.wait(self._later[0][0] - now if self._later else None)
            return None

    def done(self, key: K) -> None:
        """The worker has finished with ``key``."""
        with self._condition:
            self._working.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._add(key)

    def pause(self) -> bool:
        """Hand out nothing until :meth:`resume`; whether nothing is being worked on any more."""
        with self._condition:
            self._paused = True
            return not self._working

    def resume(self) -> None:
        """Hand out keys again, those that came meanwhile included."""
        with self._condition:
            self._paused = False
            self._condition.notify_all()

    @property
    def is_idle(self) -> bool:
        """Nothing is worked on or waits for a worker; what waits for its time does not count."""
        with self._condition:
            return not (self._waiting or self._working)

    def wait_drained(self, timeout_seconds: float) -> None:
        """Wait until no key waits for a worker, so long at most: for what has time until the workers have."""
        with self._condition:
            self._drained.wait_for(lambda: self._closed or not self._waiting, timeout_seconds)

    def close(self) -> None:
        """Hand out nothing more."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            self._drained.notify_all()

    def _add(self, key: K) -> None:
        if key in self._working:
            self._again.add(key)
            return
        if key not in self._waiting:
            self._waiting[key] = None
            self._condition.notify()
        if self._paused:
            self._waiting.move_to_end(key, last=False)
