"""A sliding window over removals and arrivals, in which small removals of many syncers add up.

Arrivals at a syncer offset the removals at the same syncer: pods that are replaced one by one are no removal.
They do not offset removals at other syncers, since an application that grows says nothing about a broken
source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

MAX_COUNTED_CHANGES = 20_000
"""The number of removals, and of arrivals, that are remembered; beyond it, the oldest are forgotten."""

SyncerT = TypeVar("SyncerT")
KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """The recent changes that the brake adds to those of a plan.

    :ivar losses_of_other_syncers: the sum of what each other syncer has lost, less its own arrivals.
    :ivar left_keys: the keys of the instances that left at this syncer.
    :ivar arrived_keys: the keys of the instances that came at this syncer.
    :ivar short_lived_keys: those of ``left_keys`` that had come within the window, and are not in
        ``arrived_keys``; empty where the window does not distinguish them.
    """

    losses_of_other_syncers: int = 0
    left_keys: frozenset[Any] = frozenset()
    arrived_keys: frozenset[Any] = frozenset()
    short_lived_keys: frozenset[Any] = frozenset()


@dataclass(slots=True)
class _SyncerChanges(Generic[KeyT]):
    """The changes of one syncer within the window; the fields are those of :class:`RecentChanges`."""

    left_keys: set[KeyT] = field(default_factory=set)
    arrived_keys: set[KeyT] = field(default_factory=set)
    short_lived_keys: set[KeyT] = field(default_factory=set)


def count_losses(changes: RecentChanges | _SyncerChanges[Any]) -> int:
    """Return how many instances a syncer lost: arrivals replace those that left, but for short-lived ones."""
    short_lived = len(changes.short_lived_keys)
    return short_lived + max(0, len(changes.left_keys) - short_lived - len(changes.arrived_keys))


class SlidingChangeWindow(Generic[SyncerT, KeyT]):
    """A count of recent removals and arrivals; for one thread at a time.

    The cost of a query depends on the changes of its syncer only, however many others are counted.

    :param seconds: for how long a change counts.
    :param counts_short_lived: True if an instance that came and left within the window is a loss, whatever
        else came. If False it is none: as many came as left.
    """

    def __init__(self, seconds: float, *, counts_short_lived: bool = False) -> None:
        self._seconds = seconds
        self._counts_short_lived = counts_short_lived
        # The oldest first; what is tried again counts once.
        self._left: dict[KeyT, tuple[float, SyncerT]] = {}
        self._came: dict[KeyT, tuple[float, SyncerT]] = {}
        self._keys: dict[SyncerT, _SyncerChanges[KeyT]] = {}
        self._total_losses = 0  # the sum of what each syncer has lost

    def add_changes(
        self, now: float, syncer: SyncerT, left_keys: Iterable[KeyT], arrived_keys: Iterable[KeyT]
    ) -> None:
        """Add instances that leave and come now to the counts."""
        when_and_whose = (now, syncer)  # one object for all
        for table, other, keys in (
            (self._left, self._came, left_keys),
            (self._came, self._left, arrived_keys),
        ):
            for key in keys:
                is_short_lived = False
                if self._counts_short_lived:
                    known = self._keys.get(syncer, _SyncerChanges[KeyT]())
                    is_short_lived = table is self._left and (
                        key in known.arrived_keys or key in known.short_lived_keys
                    )
                    self._drop_change(other, key)
                self._drop_change(table, key)
                table[key] = when_and_whose
                self._update_counts(table, syncer, key, is_short_lived=is_short_lived)
                if len(table) > MAX_COUNTED_CHANGES:
                    self._drop_change(table, next(iter(table)))

    def recent_changes(self, now: float, syncer: SyncerT) -> RecentChanges:
        """Return the recent changes to add to a plan of a syncer."""
        for table in (self._left, self._came):
            while table and now - table[oldest := next(iter(table))][0] > self._seconds:
                self._drop_change(table, oldest)
        keys = self._keys.get(syncer)
        if keys is None:
            return RecentChanges(self._total_losses)
        return RecentChanges(
            self._total_losses - count_losses(keys),
            frozenset(keys.left_keys),
            frozenset(keys.arrived_keys),
            frozenset(keys.short_lived_keys),
        )

    def clear(self) -> None:
        """Forget everything."""
        self._left.clear()
        self._came.clear()
        self._keys.clear()
        self._total_losses = 0

    def _drop_change(self, table: dict[KeyT, tuple[float, SyncerT]], key: KeyT) -> None:
        before = table.pop(key, None)
        if before is not None:
            self._update_counts(table, before[1], key)

    def _update_counts(
        self,
        table: dict[KeyT, tuple[float, SyncerT]],
        syncer: SyncerT,
        key: KeyT,
        *,
        is_short_lived: bool = False,
    ) -> None:
        keys = self._keys.setdefault(syncer, _SyncerChanges())
        self._total_losses -= count_losses(keys)
        counted = keys.left_keys if table is self._left else keys.arrived_keys
        (counted.add if key in table else counted.discard)(key)
        if table is self._left:
            (keys.short_lived_keys.add if is_short_lived else keys.short_lived_keys.discard)(key)
        self._total_losses += count_losses(keys)
        if not (keys.left_keys or keys.arrived_keys):
            del self._keys[syncer]
