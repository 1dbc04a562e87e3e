"""The search for other syncers that want the instances which a syncer gives up.

A person renames a syncer by creating another syncer for the same endpoints and deleting the first, or edits
its spec. Callers must not miss an instance meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from eurekube_provider.core.decision import NEXT_OWNER_POLL_SECONDS, NextOwner, RegistryAndKey
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import OWNER_KEY, Cluster, pod_and_namespace_of_id
from eurekube_provider.core.mapping import keep_registered_ids
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.objects import is_being_deleted
from eurekube_provider.core.syncer import Advertise, Mode, Syncer, claimed_names
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.runtime.clock import boot_clock_seconds

LONGEST_WAIT_SECONDS = 5.0
"""Most seconds that given-up instances wait until the pods or nodes that another syncer needs are read.

Where pods cannot be read, instances then go to the other syncer without the pods' labels.
"""

ABANDONED_WAIT_SECONDS = 60.0
"""Seconds without a question about another syncer after which the wait for it begins again."""


class NextOwnerSearch:
    """The search for the next owners of given-up instances; workers may share it, each with its own syncer.

    :param waits_at_once: True to wait for another syncer within the reconcile, since no later one follows.
    """

    def __init__(
        self,
        cluster: Cluster,
        sources: ClusterCache,
        permissions: Permissions,
        *,
        waits_at_once: bool = False,
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._permissions = permissions
        self._waits_at_once = waits_at_once
        self._unread: dict[SyncerKey, tuple[float, float]] = {}  # waited for since when, and last asked for

    def forget(self, key: SyncerKey) -> None:
        """End the wait for the pods or nodes that a syncer needs."""
        self._unread.pop(key, None)

    def find_next_owners(
        self, key: SyncerKey, given_up: Mapping[str, Sequence[Instance]]
    ) -> dict[RegistryAndKey, NextOwner] | None:
        """Return the next owners of the instances that a syncer gives up, the first where several syncers
        want one; None while a candidate's pods or nodes are not read yet, which a single pass waits for.

        :param given_up: the instances, by the name of the registry that holds them.
        """
        while True:
            found: dict[RegistryAndKey, NextOwner] = {}
            is_awaited = False
            for name, instances in given_up.items():
                instances_by_key = {one.key: one for one in instances}
                for other, syncer in self._candidate_syncers(key, name, instances):
                    desired = keep_registered_ids(
                        self._sources.desired(syncer), instances, self._cluster.name
                    )
                    wanted = desired.instances
                    if desired.has_unread_objects:
                        is_awaited |= self._must_wait_for_reads_of(other)
                        wanted = self._instances_selected_by(syncer, instances_by_key)
                    else:
                        self.forget(other)
                    for one in wanted:
                        if one.key in instances_by_key:
                            found.setdefault((name, one.key), NextOwner(other, one))
            if not is_awaited:
                return found
            if not self._waits_at_once:
                return None
            time.sleep(NEXT_OWNER_POLL_SECONDS)

    def _candidate_syncers(
        self, key: SyncerKey, name: str, given_up: Iterable[Instance]
    ) -> Iterator[tuple[SyncerKey, Syncer]]:
        """Yield the other syncers of the same applications at a registry that may register now."""
        others = (self._sources.syncers_of(one) for one in {one.application for one in given_up})
        for other in sorted(set().union(*others) - {key}):
            item = self._sources.syncers.get(*other)
            if item is None or is_being_deleted(item):
                continue
            with suppress(ConfigurationError, RegistryError):
                syncer = self._sources.parse_spec(item)
                if syncer.eureka != name or syncer.is_paused:
                    continue
                if self._permissions.refusal(syncer, claimed_names(item)) is None:
                    yield other, syncer

    def _must_wait_for_reads_of(self, other: SyncerKey) -> bool:
        """Return whether to wait longer for what a syncer needs; begin the wait if necessary."""
        now = boot_clock_seconds()
        since, asked = self._unread.get(other, (now, now))
        if now - asked > ABANDONED_WAIT_SECONDS:
            since = now
        self._unread[other] = (since, now)
        return now - since < LONGEST_WAIT_SECONDS

    def _instances_selected_by(
        self, syncer: Syncer, instances_by_key: Mapping[InstanceKey, Instance]
    ) -> tuple[Instance, ...]:
        """Return the given-up instances that a syncer selects, under its owner: their pods were not read."""
        readable = Advertise.AUTO if syncer.mode is Mode.POD else Advertise.CLUSTER_DNS
        asked = self._sources.desired(replace(syncer, metadata_from_pod_labels=(), advertise=readable))
        selected = keep_registered_ids(asked, instances_by_key.values(), self._cluster.name)
        owner = {OWNER_KEY: syncer.owner(self._cluster)}
        held: Iterable[Instance] = (
            instances_by_key[one.key] for one in selected.instances if one.key in instances_by_key
        )
        if syncer.advertise is not readable:  # then the ids may have other ports
            places = {
                (one.application, pod_and_namespace_of_id(one.instance_id)) for one in selected.instances
            }
            held = (
                one
                for one in instances_by_key.values()
                if (one.application, pod_and_namespace_of_id(one.instance_id)) in places
            )
        return tuple(replace(one, metadata={**one.metadata, **owner}) for one in held)
