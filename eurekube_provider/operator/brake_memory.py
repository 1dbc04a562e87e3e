"""The brake's memory: instances that left and came lately, and removals that are held back."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection

from eurekube_provider.core.brake import WINDOW_SECONDS, Braked, BrakeHistory, HeldRemovals, Siblings
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Key
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.sliding_window import SlidingWindow
from eurekube_provider.operator.index import SyncerKey

_log = logging.getLogger(__name__)


class _Family:
    """The syncers of one namespace's syncer, summed up so that an event of one costs the same among many.

    :ivar up: how many instances of each were UP when it was judged last, and ``total`` their sum.
    """

    def __init__(self) -> None:
        self.window: SlidingWindow[SyncerKey, Key] = SlidingWindow(WINDOW_SECONDS, counts_short_lived=True)
        self.up: dict[SyncerKey, int] = {}
        self.total = 0

    def count(self, key: SyncerKey, up: int) -> None:
        """Count the instances of one syncer that are UP."""
        self.total += up - self.up.get(key, 0)
        self.up[key] = up


class BrakeMemory:
    """The brake's memory of all syncers; any number of workers may share it.

    :param registries: all registries: a syncer's share is measured against all instances that the operator
        has registered.
    """

    def __init__(self, cluster: Cluster, registries: Collection[Registry]) -> None:
        self._cluster = cluster
        self._registries = registries
        self._lock = threading.Lock()
        self._held: dict[SyncerKey, HeldRemovals] = {}
        self._window: SlidingWindow[SyncerKey, Key] = SlidingWindow(WINDOW_SECONDS)
        self._families: dict[SyncerKey, _Family] = {}
        self._parents: dict[SyncerKey, SyncerKey] = {}

    def history(
        self, key: SyncerKey, owner: str, now: float, *, is_released: bool, parent: SyncerKey | None = None
    ) -> BrakeHistory:
        """Return the brake's history of a syncer at this moment.

        :param parent: the namespace's syncer from which it is derived.
        """
        up = sum(registry.up(owner=owner) for registry in self._registries)
        of_all = sum(registry.up(cluster=self._cluster.name) for registry in self._registries)
        with self._lock:
            recent, held = self._window.recent(now, key), self._held.get(key)
            siblings = self._siblings(key, parent, up, now)
        return BrakeHistory(up, of_all, recent, held, is_released, siblings)

    def _siblings(self, key: SyncerKey, parent: SyncerKey | None, up: int, now: float) -> Siblings | None:
        """Count a syncer among those of its namespace's; the lock is held."""
        if parent is None:
            self._leave_family(key)
            return None
        if self._parents.get(key) not in (None, parent):
            self._leave_family(key)
        self._parents[key] = parent
        family = self._families.setdefault(parent, _Family())
        family.count(key, up)
        return Siblings("/".join(parent), family.total, family.window.recent(now, key))

    def _leave_family(self, key: SyncerKey) -> None:
        parent = self._parents.pop(key, None)
        if parent is None:
            return
        family = self._families[parent]
        family.total -= family.up.pop(key, 0)
        if not family.up:
            del self._families[parent]

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that is gone, but not what left and came lately."""
        with self._lock:
            self._held.pop(key, None)
            self._leave_family(key)

    def note(self, key: SyncerKey, now: float, braked: Braked, siblings: Siblings | None = None) -> bool:
        """Remember the instances of a syncer that leave and come, and the removals that the brake holds
        back.

        :param siblings: the counts by which the syncer was judged.
        :returns: True if the plan may be carried out. False if siblings have lost more instances since the
            syncer was judged, as when a source breaks for all at once and each is judged by another worker:
            the syncer must be judged again.
        """
        with self._lock:
            parent = self._parents.get(key)
            family = self._families[parent] if parent is not None else None
            judged_lost = siblings.recent.elsewhere if siblings is not None and braked.left else math.inf
            if family is not None and family.window.recent(now, key).elsewhere > judged_lost:
                return False
            self._window.note(now, key, braked.left, braked.came)
            if family is not None:
                family.window.note(now, key, braked.left, braked.came)
                # Until it is judged again: what left is in the window, and must not count as UP beside.
                family.count(key, max(0, family.up.get(key, 0) + len(braked.came) - len(braked.left)))
            if braked.held is None:
                self._held.pop(key, None)
                return True
            is_new = key not in self._held
            self._held[key] = braked.held
        if is_new:
            reason = braked.held.problem.message.partition(": held back")[0]
            _log.warning("held back removals", extra={"syncer": "/".join(key), "reason": reason})
        return True

    def forget_all(self) -> None:
        """Forget all counts and held removals: another replica led meanwhile and had counts of its own."""
        with self._lock:
            self._held.clear()
            self._window.clear()
            self._families.clear()
            self._parents.clear()
