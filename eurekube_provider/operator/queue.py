"""A work queue: equal keys merge, and one worker at a time has a key.

The queue may be divided into groups with workers of their own, so that slow work in one group delays no
other.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from eurekube_provider.runtime.backoff import backoff_seconds

K = TypeVar("K")

FIRST_RETRY_DELAY_SECONDS, LONGEST_RETRY_DELAY_SECONDS = 0.5, 60.0

REST_SECONDS = 0.1
"""Seconds between two hand-outs of a key for changes that other keys' work may have caused."""

SINGLE_GROUP = ""


class _KeyGroup(Generic[K]):
    """The keys that wait for the workers of one group; the queue's lock guards them."""

    def __init__(self, lock: threading.Lock) -> None:
        self.condition = threading.Condition(lock)
        self.waiting: OrderedDict[K, None] = OrderedDict()
        self.later: list[tuple[float, int, K]] = []
        self.is_paused = False


class WorkQueue(Generic[K]):
    """A queue like client-go's: a key that is added while a worker has it is handed out again afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._groups: dict[str, _KeyGroup[K]] = {SINGLE_GROUP: _KeyGroup(self._lock)}
        self._group_of: Callable[[K], str] = lambda _: SINGLE_GROUP
        self._working: set[K] = set()
        self._again: dict[K, str] = {}
        self._due: dict[K, tuple[float, str]] = {}  # when, and in which group
        self._later_number = 0
        self._failures: dict[K, int] = {}
        self._taken_at: OrderedDict[K, float] = OrderedDict()  # of the last REST_SECONDS
        self._closed = False

    def divide_into_groups(self, groups: Iterable[str], group_of: Callable[[K], str]) -> None:
        """Give each group of keys workers of its own; call before any key is added.

        :param group_of: called, with no lock held, whenever a key is added; a key that waits in another group
            moves, since the workers there may all hang.
        """
        with self._lock:
            self._groups = {group: _KeyGroup(self._lock) for group in groups}
            self._group_of = group_of

    def add(self, key: K, *, is_change: bool = True) -> None:
        """Hand ``key`` out as soon as a worker is free; after a pause, the one added last comes first.

        :param is_change: False where the object did not change: keys of changed objects come first after a
            pause.
        """
        group = self._group_of(key)
        with self._lock:
            self._move_delayed_key(key, group)
            self._add_locked(key, group, is_change=is_change)

    @property
    def depth(self) -> int:
        """Number of keys that wait for a worker, without delayed keys that are not due."""
        with self._lock:
            return sum(len(group.waiting) for group in self._groups.values()) + len(self._again)

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Hand ``key`` out after a delay; the earliest of several counts, and :meth:`add` cancels none."""
        group = self._group_of(key)
        with self._lock:
            due = time.monotonic() + delay_seconds
            self._move_delayed_key(key, group)
            if key not in self._due or due < self._due[key][0]:
                self._schedule_key(key, due, group)

    def add_rested(self, key: K) -> None:
        """Hand ``key`` out as soon as a worker is free, at the earliest :data:`REST_SECONDS` after last time:
        two keys whose work adds each other would else keep all servers busy.
        """
        with self._lock:
            ends = self._taken_at.get(key, -REST_SECONDS) + REST_SECONDS
        seconds = ends - time.monotonic()
        if seconds > 0:
            self.add_after(key, seconds)
        else:
            self.add(key)

    def retry(self, key: K) -> float:
        """Hand ``key`` out after a delay that doubles with each failure; return the delay in seconds."""
        with self._lock:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        delay = backoff_seconds(failures, FIRST_RETRY_DELAY_SECONDS, LONGEST_RETRY_DELAY_SECONDS)
        self.add_after(key, delay)
        return delay

    def forget_failures(self, key: K) -> None:
        """Forget a key's failures: its next retry has the shortest delay again."""
        with self._lock:
            self._failures.pop(key, None)

    def get(self, group: str | None = None) -> K | None:
        """Wait for the next key of a group, by default the first group; return None once the queue is closed.

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
                        self._add_locked(later, group)
                if mine.is_paused:
                    mine.condition.wait()
                    continue
                if mine.waiting:
                    key, _ = mine.waiting.popitem(last=False)
                    if not self._has_waiting_keys():
                        self._drained.notify_all()
                    self._working.add(key)
                    self._taken_at.pop(key, None)
                    self._taken_at[key] = now
                    while next(iter(self._taken_at.values())) < now - REST_SECONDS:
                        self._taken_at.popitem(last=False)
                    return key
                mine.condition.wait(mine.later[0][0] - now if mine.later else None)
            return None

    def done(self, key: K) -> None:
        """Let ``key`` be handed out again, since its worker has finished."""
        with self._lock:
            self._working.discard(key)
            group = self._again.pop(key, None)
            if group is not None:
                self._add_locked(key, group)

    def pause_and_check_idle(self) -> bool:
        """Hand out no key until :meth:`resume`; return whether no worker has a key any more."""
        with self._lock:
            for group in self._groups.values():
                group.is_paused = True
            self._drained.notify_all()
            return not self._working

    def resume(self, *groups: str) -> None:
        """Hand out the keys of these groups again, or of all groups where none is named."""
        with self._lock:
            for group in groups or self._groups:
                self._groups[group].is_paused = False
                self._groups[group].condition.notify_all()

    @property
    def is_idle(self) -> bool:
        """True if no worker has a key and no key waits for a worker; delayed keys do not count."""
        with self._lock:
            return not (self._working or any(group.waiting for group in self._groups.values()))

    def wait_drained(self, timeout_seconds: float) -> None:
        """Wait until no key waits for a worker, or for the time-out: for work less urgent than the workers'.

        Keys that wait for the end of a pause do not count: no worker takes them soon.
        """
        with self._lock:
            self._drained.wait_for(lambda: self._closed or not self._has_waiting_keys(), timeout_seconds)

    def close(self) -> None:
        """Hand out no more keys."""
        with self._lock:
            self._closed = True
            for group in self._groups.values():
                group.condition.notify_all()
            self._drained.notify_all()

    def _has_waiting_keys(self) -> bool:
        return any(group.waiting and not group.is_paused for group in self._groups.values())

    def _move_delayed_key(self, key: K, group: str) -> None:
        due, other = self._due.get(key, (0.0, group))
        if other != group:
            self._schedule_key(key, due, group)

    def _schedule_key(self, key: K, due: float, group: str) -> None:
        self._due[key] = (due, group)
        self._later_number += 1
        mine = self._groups[group]
        heapq.heappush(mine.later, (due, self._later_number, key))
        if mine.later[0][1] == self._later_number:  # else the wake-up would cost other threads time in vain
            mine.condition.notify()

    def _add_locked(self, key: K, group: str, *, is_change: bool = True) -> None:
        if key in self._working:
            self._again[key] = group
            return
        mine = self._groups[group]
        if key not in mine.waiting:
            for other in self._groups.values():
                other.waiting.pop(key, None)
            mine.waiting[key] = None
            mine.condition.notify()
        if mine.is_paused and is_change:
            mine.waiting.move_to_end(key, last=False)
