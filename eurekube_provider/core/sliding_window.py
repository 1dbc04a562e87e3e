"""A sliding window over removals and arrivals, in which small removals of many syncers add up.

Arrivals at a syncer offset the removals at the same syncer: pods that are replaced one by one are no removal.
They do not offset removals at other syncers, since an application that grows says nothing about a broken
source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

MOST_COUNTED = 20_000
"""The number of removals, and of arrivals, that are remembered; beyond it, the oldest are forgotten."""

S = TypeVar("S")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """The recent changes that the brake adds to those of a plan.

    :ivar elsewhere: the sum of what each other syncer has lost, less its own arrivals.
    :ivar left: the keys of the instances that left at this syncer.
    :ivar came: the keys of the instances that came at this syncer.
    """

    elsewhere: int = 0
    left: frozenset[Any] = frozenset()
    came: frozenset[Any] = frozenset()


class SlidingWindow(Generic[S, K]):
    """A count of recent removals and arrivals; for one thread at a time.

    The cost of a query depends on the changes of its syncer only, however many others are counted.

    :param seconds: for how long a change counts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: dict[K, tuple[float, S]] = {}  # the oldest first; what is tried again counts once
        self._came: dict[K, tuple[float, S]] = {}
        self._keys: dict[S, tuple[set[K], set[K]]] = {}
        self._fewer = 0  # the sum of what each syncer has lost

    def note(self, now: float, syncer: S, left: Iterable[K], came: Iterable[K]) -> None:
        """Count instances that leave and come now."""
        for table, keys in ((self._left, left), (self._came, came)):
            for key in keys:
                self._forget(table, key)
                table[key] = (now, syncer)
                self._count(table, syncer, key)
                if len(table) > MOST_COUNTED:
                    self._forget(table, next(iter(table)))

    def recent(self, now: float, syncer: S) -> RecentChanges:
        """Return the recent changes to add to a plan of a syncer."""
        for table in (self._left, self._came):
            while table and now - table[oldest := next(iter(table))][0] > self._seconds:
                self._forget(table, oldest)
        left, came = self._keys.get(syncer, (set[K](), set[K]()))
        elsewhere = self._fewer - max(0, len(left) - len(came))
        return RecentChanges(elsewhere, frozenset(left), frozenset(came))

    def clear(self) -> None:
        """Forget everything."""
        self._left.clear()
        self._came.clear()
        self._keys.clear()
        self._fewer = 0

    def __len__(self) -> int:
        return len(self._left) + len(self._came)

    def _forget(self, table: dict[K, tuple[float, S]], key: K) -> None:
        before = table.pop(key, None)
        if before is not None:
            self._count(table, before[1], key)

    def _count(self, table: dict[K, tuple[float, S]], syncer: S, key: K) -> None:
        """Update the counts after a key was added to a table or removed from it."""
        left, came = self._keys.setdefault(syncer, (set(), set()))
        self._fewer -= max(0, len(left) - len(came))
        counted = left if table is self._left else came
        if key in table:
            counted.add(key)
        else:
            counted.discard(key)
        self._fewer += max(0, len(left) - len(came))
        if not (left or came):
            del self._keys[syncer]
