"""Reconciles of many syncers in one process, without servers; one endpoint of each has changed.

A reconcile goes from the event of the EndpointSlice's watch to the plan that would be carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes import client

from eurekube_provider.core.identity import Cluster, pod_and_namespace_of_id
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import SERVICE_NAME_LABEL, key_of
from eurekube_provider.core.syncer import FINALIZER
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.reflector import ReflectorGroup
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.reports import DecidedSituation
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache

Object = dict[str, Any]

_ABSENT_SERVER_URL = "http://127.0.0.1:1"
"""URL of a server that does not exist: no request is sent."""


class SyncerReconciles:
    """The operator's parts with these syncers loaded, and with a registry that holds all their instances.

    :param instances: by the syncer's name, which is its Service's as well.
    """

    def __init__(
        self, cluster: Cluster, syncers: Sequence[Object], instances: Mapping[str, Sequence[Instance]]
    ) -> None:
        access = KubeAccess(client.Configuration(host=_ABSENT_SERVER_URL))
        connection = Connection.parse(f"{_ABSENT_SERVER_URL}/eureka")
        registry = EurekaRegistry(Peers(connection), cluster, "eurekube", 15.0)
        settings = Settings({"default": connection}, pod_name="bench")
        self._sources = ClusterCache(access, cluster, (), lambda _: None)
        drain_check = DrainCheck(access, self._sources, 0, lambda _: None)
        self._reconciler = Reconciler(
            settings, cluster, access, {"default": registry}, self._sources, drain_check, lambda: True
        )
        self._slices = [_slice(name, there) for name, there in instances.items()]
        _load_objects(self._sources.services, [_service(name) for name in instances])
        _load_objects(self._sources.slices, self._slices)
        _load_objects(self._sources.syncers, [_add_finalizer(one) for one in syncers])
        for syncer in self._sources.syncers.objects():
            for one in self._sources.desired(self._sources.parse_spec(syncer)).instances:
                registry.table.store_written_and_return_previous(one)
        registry.reachability.clear_failure_and_check_recovery()
        registry.reachability.note_read_and_check_first()
        self._keys = [key_of(one) for one in syncers]
        self._is_ready = True

    def run(self) -> None:
        """Change one endpoint of each syncer, and decide on each syncer."""
        (slices,) = self._sources.slices.reflectors
        self._is_ready = not self._is_ready
        for key, item in zip(self._keys, self._slices, strict=True):
            first, *others = item["endpoints"]
            changed = {**first, "conditions": {"ready": self._is_ready}}
            slices.apply_event("MODIFIED", {**item, "endpoints": [changed, *others]})
            decided = self._reconciler.decide(key, "default")
            assert isinstance(decided, DecidedSituation)
            assert len(decided.decision.home_differences.changes) == (0 if self._is_ready else 1)


def _load_objects(group: ReflectorGroup, items: list[Object]) -> None:
    (reflector,) = group.reflectors
    reflector.replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": items}])


def _add_finalizer(syncer: Object) -> Object:
    return {**syncer, "metadata": {**syncer["metadata"], "finalizers": [FINALIZER]}}


def _service(name: str) -> Object:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {}}


def _slice(name: str, there: Sequence[Instance]) -> Object:
    endpoints = [
        {
            "addresses": [one.ip_address],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": pod_and_namespace_of_id(one.instance_id)[0]},
        }
        for one in there
    ]
    return {
        "metadata": {"namespace": "shop", "name": f"{name}-x", "labels": {SERVICE_NAME_LABEL: name}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }
