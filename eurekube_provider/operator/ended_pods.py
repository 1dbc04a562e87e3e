"""Pods of a syncer's instances that the cluster has no more, though none was seen terminating.

A pod that ended while nobody watched was never seen terminating, and another application's pod may have its
address now. The operator therefore asks the cluster for proof: no EndpointSlice of the pod's namespace lists
the pod, and the API server has no pod of that name; or another pod has its address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from eurekube_provider.core.endpoint_presence import (
    is_pod,
    pods_of,
    restorable,
    taken_addresses,
    vanished,
)
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import endpoint_of
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, has_for_itself, pod_of
from eurekube_provider.core.registry import Registry
from eurekube_provider.kube.access import PODS, KubeAccess, objects_named
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.sources import Sources

MOST_ASKED = 20
"""Most pods that one reconcile asks the API server for; the next reconcile asks for the rest."""


class EndedPods:
    """The search for ended pods, by watched slices and by reads of single pods; threads may share it."""

    def __init__(self, access: KubeAccess, sources: Sources) -> None:
        self._access = access
        self._sources = sources
        self._found_there: dict[SyncerKey, frozenset[str]] = {}  # the ids of which the last answers were so

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that was deleted."""
        self._found_there.pop(key, None)

    def ids(self, key: SyncerKey, held: Collection[Instance]) -> frozenset[str]:
        """Return the ids of a syncer's instances whose pods are proven gone; a doubtful one is left out."""
        near = pods_of(self._sources.slices_of(key))
        places = (endpoint_of(one.instance_id) for one in held)
        if all((namespace, name) in near or not is_pod(name) for name, namespace in places):
            self.forget(key)
            return frozenset()  # as a rule, and without going through the slices of whole namespaces
        namespaces = self._namespaces(held)
        if any(self._sources.slices.without_list(one) for one in namespaces):
            return frozenset()
        missing = vanished(held, self._slices(namespaces))
        before = self._found_there.get(key, frozenset())
        # Those that were there the last time come again when all the others were asked for.
        rest = [one for one in missing if one.instance_id not in before]
        asked = {one.instance_id for one in (rest or missing)[:MOST_ASKED]}
        try:
            there = frozenset(one for one in asked if self._is_there(one))
        except KubernetesError:
            return frozenset()
        self._found_there[key] = there | before if rest else there
        return frozenset(asked - there)

    def taken_addresses(self, key: SyncerKey, held: Collection[Instance]) -> dict[str, str]:
        """Return, by instance id, other pods that have the addresses of a syncer's instances now; only
        proven ones.
        """
        own = self._sources.slices_of(key)
        there = {(pod_of(each), each["addresses"][0]) for one in own for each in one["endpoints"]}
        missing = {
            one.instance_id: one
            for one in held
            if (endpoint_of(one.instance_id)[0], one.ip_address) not in there
        }
        if not missing or any(map(self._sources.slices.without_list, self._namespaces(missing.values()))):
            return {}
        found = taken_addresses(missing.values(), own, self._sources.slices.objects())
        proven: dict[str, str] = {}
        with suppress(KubernetesError):
            for instance_id, place in list(found.items())[:MOST_ASKED]:
                if self._has_address(*place, missing[instance_id].ip_address):
                    proven[instance_id] = "/".join(place)
        return proven

    def restorable(self, key: SyncerKey, registry: Registry, owner: str) -> list[Instance]:
        """Return instances of a syncer that a registry lost and whose endpoints are ready, as they were
        registered.
        """
        forgotten = registry.forgotten(owner)
        lost = [one for one in forgotten if not self._sources.seen_terminating(one.instance_id)]
        if not lost:
            return []
        to_restore = restorable(lost, self._sources.slices_of(key))
        if len(to_restore) < len(lost):
            to_restore = restorable(lost, self._slices(self._namespaces(lost)))
        return to_restore

    def _is_there(self, instance_id: str) -> bool:
        name, namespace = endpoint_of(instance_id)
        return bool(objects_named(self._access, PODS, name, namespace))

    def _has_address(self, namespace: str, name: str, address: str) -> bool:
        """Return whether the API server has a pod of this name that alone has this address and is not
        being deleted.
        """
        return any(
            has_for_itself(pod, address) and not pod["metadata"].get("deletionTimestamp")
            for pod in objects_named(self._access, PODS, name, namespace)
        )

    def _namespaces(self, instances: Iterable[Instance]) -> set[str]:
        return {endpoint_of(one.instance_id)[1] for one in instances}

    def _slices(self, namespaces: Iterable[str]) -> list[Object]:
        return [item for one in namespaces for item in self._sources.slices.objects(one)]
