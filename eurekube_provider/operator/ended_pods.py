"""The search for pods that have registered instances and no longer exist, though nobody saw them terminating.

A pod that ended while nobody watched was never seen terminating, and another application's pod may have its
address now. The operator therefore asks the cluster for proof: no EndpointSlice of the pod's namespace lists
the pod, and the API server has no pod of that name, or one that has ended for good, such as an evicted one;
or another pod has its address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from eurekube_provider.core.endpoint_presence import (
    find_address_takers,
    find_instances_of_vanished_pods,
    find_instances_to_restore,
    is_name_of_pod,
    pods_in_slices,
)
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import pod_and_namespace_of_id
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import (
    Object,
    has_pod_ended,
    has_unshared_address,
    is_being_deleted,
    pod_name_of_endpoint,
)
from eurekube_provider.core.registry import Registry
from eurekube_provider.kube.access import PODS, KubeAccess, list_objects_by_name
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.sources import ClusterCache

MOST_PODS_READ_PER_RECONCILE = 20
"""Most pods that one reconcile reads from the API server; the next reconcile reads the rest."""


class EndedPodSearch:
    """The search for ended pods, by watched slices and by reads of single pods; threads may share it."""

    def __init__(self, access: KubeAccess, sources: ClusterCache) -> None:
        self._access = access
        self._sources = sources
        # Ids of instances whose pods existed.
        self._existing_in_last_search: dict[SyncerKey, frozenset[str]] = {}

    def forget(self, key: SyncerKey) -> None:
        self._existing_in_last_search.pop(key, None)

    def find_ended_instance_ids(self, key: SyncerKey, registered: Collection[Instance]) -> frozenset[str]:
        """Return the ids of a syncer's instances whose pods are proven to have ended. Pods that live are
        remembered, and read last in the next search.
        """
        near = pods_in_slices(self._sources.slices_of_syncer(key))
        places = (pod_and_namespace_of_id(one.instance_id) for one in registered)
        if all((namespace, name) in near or not is_name_of_pod(name) for name, namespace in places):
            self.forget(key)
            return frozenset()  # as a rule, and without going through the slices of whole namespaces
        namespaces = self._namespaces_of(registered)
        if any(self._sources.slices.find_unsynced(one) for one in namespaces):
            return frozenset()
        missing = find_instances_of_vanished_pods(registered, self._slices_in(namespaces))
        before = self._existing_in_last_search.get(key, frozenset())
        rest = [one for one in missing if one.instance_id not in before]
        asked = {one.instance_id for one in (rest or missing)[:MOST_PODS_READ_PER_RECONCILE]}
        try:
            there = frozenset(
                one
                for one in asked
                for pod in list_objects_by_name(self._access, PODS, *pod_and_namespace_of_id(one))
                if not has_pod_ended(pod)
            )
        except KubernetesError:
            return frozenset()
        self._existing_in_last_search[key] = there | before if rest else there
        return frozenset(asked - there)

    def pods_reusing_addresses(self, key: SyncerKey, registered: Collection[Instance]) -> dict[str, str]:
        """Return the pods, as namespace/name, that are proven to have the address of a syncer's instance now
        in place of its own pod, by instance id.
        """
        own = self._sources.slices_of_syncer(key)
        there = {
            (pod_name_of_endpoint(each), each["addresses"][0]) for one in own for each in one["endpoints"]
        }
        missing = {
            one.instance_id: one
            for one in registered
            if (pod_and_namespace_of_id(one.instance_id)[0], one.ip_address) not in there
        }
        if not missing or any(map(self._sources.slices.find_unsynced, self._namespaces_of(missing.values()))):
            return {}
        found = find_address_takers(missing.values(), own, self._sources.slices.objects())
        proven: dict[str, str] = {}
        with suppress(KubernetesError):
            for instance_id, place in list(found.items())[:MOST_PODS_READ_PER_RECONCILE]:
                if self._pod_alone_has_address(*place, missing[instance_id].ip_address):
                    proven[instance_id] = "/".join(place)
        return proven

    def instances_lost_by_registry_to_restore(
        self, key: SyncerKey, registry: Registry, owner: str
    ) -> list[Instance]:
        """Return the instances that a registry lost and whose endpoints are ready, as they were there."""
        forgotten = registry.instances_lost_by_registry(owner)
        lost = [one for one in forgotten if not self._sources.was_instance_seen_terminating(one.instance_id)]
        if not lost:
            return []
        # With the addresses of nodes where these are registered, which the slices of a namespace do not have.
        own = self._sources.slices_of_syncer(key)
        to_restore = find_instances_to_restore(lost, own)
        if len(to_restore) < len(lost):
            to_restore = find_instances_to_restore(lost, [*own, *self._slices_in(self._namespaces_of(lost))])
        return to_restore

    def _pod_alone_has_address(self, namespace: str, name: str, address: str) -> bool:
        return any(
            has_unshared_address(pod, address) and not is_being_deleted(pod)
            for pod in list_objects_by_name(self._access, PODS, name, namespace)
        )

    def _namespaces_of(self, instances: Iterable[Instance]) -> set[str]:
        return {pod_and_namespace_of_id(one.instance_id)[1] for one in instances}

    def _slices_in(self, namespaces: Iterable[str]) -> list[Object]:
        return [item for one in namespaces for item in self._sources.slices.objects(one)]
