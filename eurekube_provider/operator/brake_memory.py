"""The brake's memory: instances that left and came lately, and removals that are held back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from eurekube_provider.core.brake import WINDOW_SECONDS, Braked, BrakeHistory, HeldRemovals
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Key
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.sliding_window import SlidingWindow
from eurekube_provider.operator.index import SyncerKey

_log = logging.getLogger(__name__)


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

    def history(self, key: SyncerKey, owner: str, now: float, *, is_released: bool) -> BrakeHistory:
        """Return the brake's history of a syncer at this moment."""
        up = sum(registry.up(owner=owner) for registry in self._registries)
        of_all = sum(registry.up(cluster=self._cluster.name) for registry in self._registries)
        with self._lock:
            recent, held = self._window.recent(now, key), self._held.get(key)
        return BrakeHistory(up, of_all, recent, held, is_released)

    def note(self, key: SyncerKey, now: float, braked: Braked) -> None:
        """Remember the instances of a syncer that leave and come, and the removals that the brake holds
        back.
        """
        with self._lock:
            self._window.note(now, key, braked.left, braked.came)
            if braked.held is None:
                self._held.pop(key, None)
                return
            is_new = key not in self._held
            self._held[key] = braked.held
        if is_new:
            reason = braked.held.problem.message.partition(": held back")[0]
            _log.warning("removals are held back", extra={"syncer": "/".join(key), "reason": reason})

    def forget_all(self) -> None:
        """Forget all counts and held removals: another replica led meanwhile and had counts of its own."""
        with self._lock:
            self._held.clear()
            self._window.clear()
