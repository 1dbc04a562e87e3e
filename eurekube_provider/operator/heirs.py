"""Finds the other syncers that want what a syncer gives up.

A syncer is renamed by making another one for the same endpoints and deleting the first; or it lives on, and
what it asks for is edited. Callers must not miss an instance meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from eurekube_provider.core.decision import HEIR_POLL_SECONDS, Heir, Place
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import OWNER_KEY, Cluster
from eurekube_provider.core.mapping import under_held_ids
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.syncer import Syncer, claimed_names, is_deleted
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.sources import Sources
from eurekube_provider.runtime.clock import elapsed_seconds

UNREAD_SECONDS = 5.0
"""How long what another syncer may want waits for the pods or nodes that this one needs to be read: a moment,
where they can be read. Where pods cannot, it passes without their labels, since it serves.
"""

WAIT_OVER_SECONDS = 60.0
"""Where nobody asked for another syncer for so long, the wait for it is over; the next one is a new one."""

GivenUp = Mapping[str, Sequence[Instance]]
"""The instances that a syncer gives up, by the name of the registry where they stand."""


class Heirs:
    """Finds who else wants an instance; any number of workers may share it, each with a syncer of its own.

    :param waits_at_once: wait for another syncer in the midst of a reconcile, since there is no later one.
    """

    def __init__(
        self, cluster: Cluster, sources: Sources, permissions: Permissions, *, waits_at_once: bool = False
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._permissions = permissions
        self._waits_at_once = waits_at_once
        self._unread: dict[SyncerKey, tuple[float, float]] = {}  # waited for since when, and last asked for

    def forget(self, key: SyncerKey) -> None:
        """Wait for a syncer no more."""
        self._unread.pop(key, None)

    def forget_all(self) -> None:
        """Wait for no syncer any more: another replica leads."""
        self._unread.clear()

    def of(self, key: SyncerKey, given_up: GivenUp) -> dict[Place, Heir] | None:
        """Return who wants what a syncer gives up, the first of several; None where that is not known yet.

        :param key: the syncer that gives it up.
        """
        while True:
            found: dict[Place, Heir] = {}
            is_awaited = False
            for name, instances in given_up.items():
                there = {one.key: one for one in instances}
                for other, syncer in self._candidates(key, name, instances):
                    desired = under_held_ids(self._sources.desired(syncer), instances, self._cluster.name)
                    wanted = desired.instances
                    if desired.is_unread:
                        is_awaited |= self._is_awaited(other)
                        wanted = self._selected_by(syncer, there)
                    else:
                        self.forget(other)
                    for one in wanted:
                        if one.key in there:
                            found.setdefault((name, one.key), Heir(other, one))
            if not is_awaited:
                return found
            if not self._waits_at_once:
                return None
            time.sleep(HEIR_POLL_SECONDS)

    def _candidates(
        self, key: SyncerKey, name: str, given_up: Iterable[Instance]
    ) -> Iterator[tuple[SyncerKey, Syncer]]:
        """The other syncers that register under the same names at a registry, and at once."""
        others = (self._sources.syncers_of(one) for one in {one.application for one in given_up})
        for other in sorted(set().union(*others) - {key}):
            item = self._sources.syncers.get(*other)
            if item is None or is_deleted(item):
                continue
            with suppress(ConfigurationError, RegistryError):
                syncer = self._sources.parsed(item)
                if syncer.eureka != name or syncer.is_paused:
                    continue
                if self._permissions.refusal(syncer, claimed_names(item)) is None:
                    yield other, syncer

    def _is_awaited(self, other: SyncerKey) -> bool:
        """Return whether to wait for the pods or nodes that a syncer needs: not for too long."""
        now = elapsed_seconds()
        since, asked = self._unread.get(other, (now, now))
        if now - asked > WAIT_OVER_SECONDS:
            since = now
        self._unread[other] = (since, now)
        return now - since < UNREAD_SECONDS

    def _selected_by(self, syncer: Syncer, there: Mapping[Key, Instance]) -> tuple[Instance, ...]:
        """Return those of ``there`` that a syncer selects, as they stand: its pods' labels were not read."""
        asked = self._sources.desired(replace(syncer, metadata_from_pod_labels=()))
        selected = under_held_ids(asked, there.values(), self._cluster.name)
        owner = {OWNER_KEY: syncer.owner(self._cluster)}
        held = (there[one.key] for one in selected.instances if one.key in there)
        return tuple(replace(one, metadata={**one.metadata, **owner}) for one in held)
