"""The search for other syncers that want the instances which a syncer gives up.

A syncer is renamed by making another one for the same endpoints and deleting the first; or its spec is
edited.
Callers must not miss an instance meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from eurekube_provider.core.decision import HEIR_POLL_SECONDS, Heir, Place
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import OWNER_KEY, Cluster, endpoint_of
from eurekube_provider.core.mapping import under_held_ids
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.syncer import Advertise, Mode, Syncer, claimed_names, is_deleted
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.sources import Sources
from eurekube_provider.runtime.clock import elapsed_seconds

UNREAD_SECONDS = 5.0
"""Seconds that given-up instances wait until the pods or nodes that another syncer needs are read.

Where pods cannot be read, instances pass without the pods' labels afterwards, since the other syncer serves.
"""

WAIT_OVER_SECONDS = 60.0
"""Seconds after which the wait for another syncer counts as over, if nobody asked for that syncer
meanwhile.
"""

GivenUp = Mapping[str, Sequence[Instance]]
"""The instances that a syncer gives up, by the name of the registry where they stand."""


class Heirs:
    """The search for the syncers that want a given-up instance; workers may share it, each with its own
    syncer.

    :param waits_at_once: wait for another syncer within the reconcile, since no later reconcile follows.
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
        """End the wait for a syncer."""
        self._unread.pop(key, None)

    def forget_all(self) -> None:
        """End the wait for all syncers: another replica leads."""
        self._unread.clear()

    def of(self, key: SyncerKey, given_up: GivenUp) -> dict[Place, Heir] | None:
        """Return the heirs of the instances that a syncer gives up, the first of several; None while that is
        not known.

        :param key: the syncer that gives them up.
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
        """Yield the other syncers of the same applications at a registry that may register now."""
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
        """Return whether to wait longer for the pods or nodes that a syncer needs."""
        now = elapsed_seconds()
        since, asked = self._unread.get(other, (now, now))
        if now - asked > WAIT_OVER_SECONDS:
            since = now
        self._unread[other] = (since, now)
        return now - since < UNREAD_SECONDS

    def _selected_by(self, syncer: Syncer, there: Mapping[Key, Instance]) -> tuple[Instance, ...]:
        """Return the instances of ``there`` that a syncer selects, unchanged but for their owner: the pods
        were not read.
        """
        readable = Advertise.AUTO if syncer.mode is Mode.POD else Advertise.CLUSTER_DNS
        asked = self._sources.desired(replace(syncer, metadata_from_pod_labels=(), advertise=readable))
        selected = under_held_ids(asked, there.values(), self._cluster.name)
        owner = {OWNER_KEY: syncer.owner(self._cluster)}
        held: Iterable[Instance] = (there[one.key] for one in selected.instances if one.key in there)
        if syncer.advertise is not readable:  # then the ids may have other ports
            places = {(one.application, endpoint_of(one.instance_id)) for one in selected.instances}
            held = (
                one for one in there.values() if (one.application, endpoint_of(one.instance_id)) in places
            )
        return tuple(replace(one, metadata={**one.metadata, **owner}) for one in held)
