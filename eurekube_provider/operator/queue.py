"""A work queue: equal keys merge, and none is worked on twice at once.

It may be divided into groups, each with workers of its own, so that what takes long in one keeps nothing in
another waiting.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from eurekube_provider.runtime.backoff import backoff

K = TypeVar("K")

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 60.0

ONLY = ""
"""The group of a queue that was not divided."""


class _Group(Generic[K]):
    """The keys that wait for the workers of one group; the queue's lock guards it."""

    def __init__(self, lock: threading.Lock) -> None:
        self.condition = threading.Condition(lock)
        self.waiting: OrderedDict[K, None] = OrderedDict()
        self.later: list[tuple[float, int, K]] = []
        self.is_paused = False


class WorkQueue(Generic[K]):
    """A queue like client-go's: what is added while it is worked on comes once more afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._groups: dict[str, _Group[K]] = {ONLY: _Group(self._lock)}
        self._group_of: Callable[[K], str] = lambda _: ONLY
        self._working: set[K] = set()
        self._again: dict[K, str] = {}
        self._due: dict[K, tuple[float, str]] = {}  # when, and in which group
        self._later_number = 0
        self._failures: dict[K, int] = {}
        self._closed = False

    def divide(self, groups: Iterable[str], group_of: Callable[[K], str]) -> None:
        """Have each group's keys worked on by its own workers. Before anything is added.

        :param group_of: asked, with no lock held, whenever a key is added; a key that waits elsewhere moves,
            for a worker or for its time: those there may all hang.
        """
        with self._lock:
            self._groups = {group: _Group(self._lock) for group in groups}
            self._group_of = group_of

    def add(self, key: K, *, is_news: bool = True) -> None:
        """Work on ``key`` as soon as a worker is free; of what came during a pause, at the latest first.

        :param is_news: False where it did not change: what came during a pause goes before it.
        """
        group = self._group_of(key)
        with self._lock:
            self._move(key, group)
            self._add(key, group, is_news=is_news)

    @property
    def depth(self) -> int:
        """How many keys wait for a worker; those whose time has not come are not counted."""
        with self._lock:
            return sum(len(group.waiting) for group in self._groups.values()) + len(self._again)

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Work on ``key`` in a while; of several the earliest is kept, and :meth:`add` ends none."""
        group = self._group_of(key)
        with self._lock:
            due = time.monotonic() + delay_seconds
            self._move(key, group)
            if key not in self._due or due < self._due[key][0]:
                self._plan(key, due, group)

    def retry(self, key: K) -> float:
        """Work on ``key`` again after a delay, in seconds, that doubles with each failure."""
        with self._lock:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        delay = backoff(failures, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        self.add_after(key, delay)
        return delay

    def forget_failures(self, key: K) -> None:
        """Forget a key's failures: the next one waits for the shortest time again."""
        with self._lock:
            self._failures.pop(key, None)

    def get(self, group: str | None = None) -> K | None:
        """Wait for the next key of a group, the first one unless named; None once the queue is closed.

        Call :meth:`done` afterwards.
        """
        group = next(iter(self._groups)) if group is None else group
        mine = self._groups[group]
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                while mine.later and mine.later[0][0] <= now:
                    due, _, later = heapq.heappop(mine.later)
                    if self._due.get(later) == (due, group):  # else another one took its place
                        del self._due[later]
                        self._add(later, group)
                if mine.is_paused:
                    mine.condition.wait()
                    continue
                if mine.waiting:
                    key, _ = mine.waiting.popitem(last=False)
                    if not self._is_busy():
                        self._drained.notify_all()
                    self._working.add(key)
                    return key
                mine.condition.wait(mine.later[0][0] - now if mine.later else None)
            return None

    def done(self, key: K) -> None:
        """The worker has finished with ``key``."""
        with self._lock:
            self._working.discard(key)
            group = self._again.pop(key, None)
            if group is not None:
                self._add(key, group)

    def pause(self) -> bool:
        """Hand out nothing until :meth:`resume`; whether nothing is being worked on any more."""
        with self._lock:
            for group in self._groups.values():
                group.is_paused = True
            self._drained.notify_all()
            return not self._working

    def resume(self, *groups: str) -> None:
        """Hand out the keys of these groups again, those that came meanwhile included; all without any."""
        with self._lock:
            for group in groups or self._groups:
                self._groups[group].is_paused = False
                self._groups[group].condition.notify_all()

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is worked on or waits for a worker; what waits for its time does not
        count.
        """
        with self._lock:
            return not (self._working or any(group.waiting for group in self._groups.values()))

    def wait_drained(self, timeout_seconds: float) -> None:
        """Wait until no key waits for a worker, so long at most: for what has time until the workers have.

        What waits for the end of a pause is not counted: no worker will be at it soon.
        """
        with self._lock:
            self._drained.wait_for(lambda: self._closed or not self._is_busy(), timeout_seconds)

    def close(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._closed = True
            for group in self._groups.values():
                group.condition.notify_all()
            self._drained.notify_all()

    def _is_busy(self) -> bool:
        return any(group.waiting and not group.is_paused for group in self._groups.values())

    def _move(self, key: K, group: str) -> None:
        """Have a key that waits for its time in another group wait in this one."""
        due, other = self._due.get(key, (0.0, group))
        if other != group:
            self._plan(key, due, group)

    def _plan(self, key: K, due: float, group: str) -> None:
        self._due[key] = (due, group)
        self._later_number += 1
        heapq.heappush(self._groups[group].later, (due, self._later_number, key))
        self._groups[group].condition.notify()

    def _add(self, key: K, group: str, *, is_news: bool = True) -> None:
        if key in self._working:
            self._again[key] = group
            return
        mine = self._groups[group]
        if key not in mine.waiting:
            for other in self._groups.values():
                other.waiting.pop(key, None)
            mine.waiting[key] = None
            mine.condition.notify()
        if mine.is_paused and is_news:
            mine.waiting.move_to_end(key, last=False)
