"""A sliding window over removals and arrivals, in which small removals of many syncers add up.

What came at a syncer is set against what left there: pods that are replaced one by one are no removal. It is
not set against what left elsewhere, since an application that grows says nothing of a source that broke.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_COUNTED = 20_000
"""How many are remembered that left, and that came; beyond, the oldest are forgotten."""

S = TypeVar("S")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """The counts that the brake adds to those of a plan.

    :ivar elsewhere: how many fewer instances the other syncers have, each by itself.
    :ivar left: how many left at this syncer, those that the plan tries again left aside.
    :ivar came: how many came at this syncer, likewise.
    """

    elsewhere: int = 0
    left: int = 0
    came: int = 0


class SlidingWindow(Generic[S, K]):
    """Counts what left and what came lately; for one thread at a time.

    A question costs what it asks about, however much is counted.

    :param seconds: for how long something counts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: dict[K, tuple[float, S]] = {}  # the oldest first; what is tried again counts once
        self._came: dict[K, tuple[float, S]] = {}
        self._counts: dict[S, tuple[int, int]] = {}
        self._fewer = 0  # the sum of what each syncer has lost

    def note(self, now: float, syncer: S, left: Iterable[K], came: Iterable[K]) -> None:
        """Count instances that leave and come now."""
        for table, keys in ((self._left, left), (self._came, came)):
            for key in keys:
                self._forget(table, key)
                table[key] = (now, syncer)
                self._add(table, syncer, 1)
                if len(table) > MOST_COUNTED:
                    self._forget(table, next(iter(table)))

    def recent(self, now: float, syncer: S, leaving: Collection[K], coming: Collection[K]) -> RecentChanges:
        """Count what is to be added to a plan that takes out ``leaving`` and brings ``coming``."""
        for table in (self._left, self._came):
            while table and now - table[oldest := next(iter(table))][0] > self._seconds:
                self._forget(table, oldest)
        left, came = self._counts.get(syncer, (0, 0))
        return RecentChanges(
            elsewhere=self._fewer - max(0, left - came),
            left=left - self._counted_before(self._left, syncer, leaving),
            came=came - self._counted_before(self._came, syncer, coming),
        )

    def clear(self) -> None:
        """Forget everything."""
        self._left.clear()
        self._came.clear()
        self._counts.clear()
        self._fewer = 0

    def __len__(self) -> int:
        return len(self._left) + len(self._came)

    def _counted_before(self, table: dict[K, tuple[float, S]], syncer: S, keys: Collection[K]) -> int:
        return sum(key in table and table[key][1] == syncer for key in keys)

    def _forget(self, table: dict[K, tuple[float, S]], key: K) -> None:
        before = table.pop(key, None)
        if before is not None:
            self._add(table, before[1], -1)

    def _add(self, table: dict[K, tuple[float, S]], syncer: S, count: int) -> None:
        left, came = self._counts.get(syncer, (0, 0))
        self._fewer -= max(0, left - came)
        left, came = (left + count, came) if table is self._left else (left, came + count)
        self._fewer += max(0, left - came)
        if left or came:
            self._counts[syncer] = (left, came)
        else:
            del self._counts[syncer]
