"""The brake's memory: instances that left and came lately, and removals that the brake holds back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from eurekube_provider.core.brake import (
    LOSS_WINDOW_SECONDS,
    BrakeHistory,
    BrakeJudgement,
    HeldRemovals,
    SiblingTotals,
)
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import InstanceKey
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.sliding_window import SlidingChangeWindow
from eurekube_provider.operator.index import SyncerKey

_log = logging.getLogger(__name__)


class _DerivedSyncerGroup:
    """The totals of the syncers that are derived from one namespace's syncer, kept so that an event costs the
    same among many syncers as among few.

    :ivar up_counts: number of instances that were UP when a syncer was judged last, by syncer.
    """

    def __init__(self) -> None:
        self.window: SlidingChangeWindow[SyncerKey, InstanceKey] = SlidingChangeWindow(
            LOSS_WINDOW_SECONDS, counts_short_lived=True
        )
        self.up_counts: dict[SyncerKey, int] = {}
        self.total = 0

    def update_up_count(self, key: SyncerKey, up: int) -> None:
        """Replace the number of UP instances of one syncer, and adapt the total."""
        self.total += up - self.up_counts.get(key, 0)
        self.up_counts[key] = up


class BrakeMemory:
    """The brake's memory of all syncers; any number of workers may share it.

    :param registries: all registries: the brake compares a syncer's removals with all instances that the
        operator has registered.
    """

    def __init__(self, cluster: Cluster, registries: Collection[Registry]) -> None:
        self._cluster = cluster
        self._registries = registries
        self._lock = threading.Lock()
        self._held: dict[SyncerKey, HeldRemovals] = {}
        self._window: SlidingChangeWindow[SyncerKey, InstanceKey] = SlidingChangeWindow(LOSS_WINDOW_SECONDS)
        self._groups: dict[SyncerKey, _DerivedSyncerGroup] = {}
        self._parents: dict[SyncerKey, SyncerKey] = {}

    def history(
        self, key: SyncerKey, owner: str, now: float, *, is_released: bool, parent: SyncerKey | None = None
    ) -> BrakeHistory:
        """Return the brake's history of a syncer at this moment.

        :param parent: the namespace's syncer from which it is derived.
        """
        up = cluster_up = 0
        for registry in self._registries:
            up += registry.count_up_instances(owner=owner)
            cluster_up += registry.count_up_instances(cluster=self._cluster.name)
        with self._lock:
            recent_changes, held = self._window.recent_changes(now, key), self._held.get(key)
            siblings = self._update_sibling_totals(key, parent, up, now)
        return BrakeHistory(up, cluster_up, recent_changes, held, is_released, siblings)

    def _update_sibling_totals(
        self, key: SyncerKey, parent: SyncerKey | None, up: int, now: float
    ) -> SiblingTotals | None:
        """Update a derived syncer's count and return its namespace's totals; the caller holds the lock."""
        if parent is None:
            self._remove_from_group(key)
            return None
        if self._parents.get(key) not in (None, parent):
            self._remove_from_group(key)
        self._parents[key] = parent
        group = self._groups.setdefault(parent, _DerivedSyncerGroup())
        group.update_up_count(key, up)
        return SiblingTotals("/".join(parent), group.total, group.window.recent_changes(now, key))

    def _remove_from_group(self, key: SyncerKey) -> None:
        parent = self._parents.pop(key, None)
        if parent is None:
            return
        group = self._groups[parent]
        group.total -= group.up_counts.pop(key, 0)
        if not group.up_counts:
            del self._groups[parent]

    def forget(self, key: SyncerKey) -> None:
        """Forget a deleted syncer, except for its instances that left and came lately."""
        with self._lock:
            self._held.pop(key, None)
            self._remove_from_group(key)

    def record_judgement_if_current(
        self, key: SyncerKey, now: float, judgement: BrakeJudgement, siblings: SiblingTotals | None = None
    ) -> bool:
        """Record the brake's judgement on a syncer, unless it is outdated: the instances that leave and come,
        and the removals that are held back.

        :returns: True if the plan may be carried out. False if siblings have lost more instances since the
            syncer was judged, as when a source breaks for all at once and each is judged by another worker:
            then nothing is recorded, and the syncer must be judged again.
        """
        with self._lock:
            parent = self._parents.get(key)
            group = self._groups[parent] if parent is not None else None
            if group is not None and siblings is not None and judgement.left_keys:
                lost_by_now = group.window.recent_changes(now, key).losses_of_other_syncers
                if lost_by_now > siblings.recent_changes.losses_of_other_syncers:
                    return False
            self._window.add_changes(now, key, judgement.left_keys, judgement.arrived_keys)
            if group is not None:
                group.window.add_changes(now, key, judgement.left_keys, judgement.arrived_keys)
                # Until the next judgement: instances that left are in the window, and must not count as UP as
                # well.
                gained = len(judgement.arrived_keys) - len(judgement.left_keys)
                group.update_up_count(key, max(0, group.up_counts.get(key, 0) + gained))
            if judgement.held_removals is None:
                self._held.pop(key, None)
                return True
            is_new = key not in self._held
            self._held[key] = judgement.held_removals
        if is_new:
            reason = judgement.held_removals.problem.message.partition(": held back")[0]
            _log.warning(
                "held back removals, keeping the instances registered",
                extra={"syncer": "/".join(key), "reason": reason},
            )
        return True

    def on_leadership_lost(self) -> None:
        """Forget all counts and held removals: another replica led meanwhile and had counts of its own."""
        with self._lock:
            self._held.clear()
            self._window.clear()
            self._groups.clear()
            self._parents.clear()
