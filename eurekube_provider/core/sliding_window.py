"""A sliding window over removals and arrivals, in which small removals of many syncers add up.

Arrivals at a syncer offset the removals at the same syncer: pods that are replaced one by one are no removal.
They do not offset removals at other syncers, since an application that grows says nothing about a broken
source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
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
    :ivar short_lived: those of ``left`` that had come within the window, and are not in ``came``; empty where
        the window does not distinguish them.
    """

    elsewhere: int = 0
    left: frozenset[Any] = frozenset()
    came: frozenset[Any] = frozenset()
    short_lived: frozenset[Any] = frozenset()


def losses(left: int, came: int, short_lived: int = 0) -> int:
    """Return how many instances a syncer lost: arrivals replace those that left, but for short-lived ones."""
    return short_lived + max(0, left - short_lived - came)


@dataclass(slots=True)
class _Keys(Generic[K]):
    left: set[K] = field(default_factory=set)
    came: set[K] = field(default_factory=set)
    short_lived: set[K] = field(default_factory=set)

    @property
    def lost(self) -> int:
        """The number of instances that the syncer has lost."""
        return losses(len(self.left), len(self.came), len(self.short_lived))


class SlidingWindow(Generic[S, K]):
    """A count of recent removals and arrivals; for one thread at a time.

    The cost of a query depends on the changes of its syncer only, however many others are counted.

    :param seconds: for how long a change counts.
    :param counts_short_lived: True if an instance that came and left within the window is a loss, whatever
        else came. If False it is none: as many came as left.
    """

    def __init__(self, seconds: float, *, counts_short_lived: bool = False) -> None:
        self._seconds = seconds
        self._counts_short_lived = counts_short_lived
        self._left: dict[K, tuple[float, S]] = {}  # the oldest first; what is tried again counts once
        self._came: dict[K, tuple[float, S]] = {}
        self._keys: dict[S, _Keys[K]] = {}
        self._fewer = 0  # the sum of what each syncer has lost

    def note(self, now: float, syncer: S, left: Iterable[K], came: Iterable[K]) -> None:
        """Count instances that leave and come now."""
        for table, other, keys in ((self._left, self._came, left), (self._came, self._left, came)):
            for key in keys:
                is_short_lived = False
                if self._counts_short_lived:
                    known = self._keys.get(syncer, _Keys[K]())
                    is_short_lived = table is self._left and (key in known.came or key in known.short_lived)
                    self._forget(other, key)
                self._forget(table, key)
                table[key] = (now, syncer)
                self._count(table, syncer, key, is_short_lived=is_short_lived)
                if len(table) > MOST_COUNTED:
                    self._forget(table, next(iter(table)))

    def recent(self, now: float, syncer: S) -> RecentChanges:
        """Return the recent changes to add to a plan of a syncer."""
        for table in (self._left, self._came):
            while table and now - table[oldest := next(iter(table))][0] > self._seconds:
                self._forget(table, oldest)
        keys = self._keys.get(syncer, _Keys[K]())
        return RecentChanges(
            self._fewer - keys.lost, frozenset(keys.left), frozenset(keys.came), frozenset(keys.short_lived)
        )

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

    def _count(
        self, table: dict[K, tuple[float, S]], syncer: S, key: K, *, is_short_lived: bool = False
    ) -> None:
        """Update the counts after a key was added to a table or removed from it."""
        keys = self._keys.setdefault(syncer, _Keys())
        self._fewer -= keys.lost
        counted = keys.left if table is self._left else keys.came
        (counted.add if key in table else counted.discard)(key)
        if table is self._left:
            (keys.short_lived.add if is_short_lived else keys.short_lived.discard)(key)
        self._fewer += keys.lost
        if not (keys.left or keys.came):
            del self._keys[syncer]
