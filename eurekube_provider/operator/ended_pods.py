"""Pods of a syncer that the cluster has no more, though none was seen terminating.

A pod that ended while nobody watched was never seen terminating, and its address may be another application's
by then. So the cluster is asked as certainly as it can be: such a pod stands in no EndpointSlice of its
namespace, and the API server has no pod of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eurekube_provider.core.endpoint_presence import is_pod, pods_of, restorable, vanished
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster, endpoint_of
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.registry import Registry
from eurekube_provider.kube.access import PODS, KubeAccess
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.sources import Sources

MOST_ASKED = 20
"""Pods that one reconcile asks the API server for; the next one asks for the rest."""


class EndedPods:
    """Judges by what is known of the cluster, and asks it for single pods; threads may share it."""

    def __init__(self, cluster: Cluster, access: KubeAccess, sources: Sources) -> None:
        self._cluster = cluster
        self._access = access
        self._sources = sources
        self._found_there: dict[SyncerKey, frozenset[str]] = {}  # the ids of which the last answers were so

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that is gone."""
        self._found_there.pop(key, None)

    def ids(self, key: SyncerKey, held: Collection[Instance]) -> frozenset[str]:
        """Return the ids of those that a syncer has of pods which are gone; none in doubt."""
        near = pods_of(self._sources.slices_of(key))
        places = (endpoint_of(one.instance_id, self._cluster.name) for one in held)
        if all((namespace, name) in near or not is_pod(name) for name, namespace in places):
            self.forget(key)
            return frozenset()  # as a rule, and without going through the slices of whole namespaces
        namespaces = self._namespaces(held)
        if any(self._sources.slices.without_list(one) for one in namespaces):
            return frozenset()
        missing = vanished(held, self._slices(namespaces), self._cluster.name)
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

    def restorable(self, key: SyncerKey, registry: Registry, owner: str) -> list[Instance]:
        """Return what a registry forgot of a syncer, and whose endpoint is ready, as it stood."""
        forgotten = registry.forgotten(owner)
        lost = [one for one in forgotten if not self._sources.seen_terminating(one.instance_id)]
        if not lost:
            return []
        back = restorable(lost, self._sources.slices_of(key), self._cluster.name)
        if len(back) < len(lost):
            back = restorable(lost, self._slices(self._namespaces(lost)), self._cluster.name)
        return back

    def _is_there(self, instance_id: str) -> bool:
        name, namespace = endpoint_of(instance_id, self._cluster.name)
        # A list, since the operator may list pods; of this selector the API server reads one object.
        query = {"fieldSelector": f"metadata.name={name}"}
        return bool(self._access.get(PODS.path(namespace), query)["items"])

    def _namespaces(self, instances: Iterable[Instance]) -> set[str]:
        return {endpoint_of(one.instance_id, self._cluster.name)[1] for one in instances}

    def _slices(self, namespaces: Iterable[str]) -> list[Object]:
        return [item for one in namespaces for item in self._sources.slices.objects(one)]
