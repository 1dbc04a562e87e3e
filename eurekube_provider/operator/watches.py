"""The fields that the operator keeps of each kind of object, and watches that run only while needed.

Nodes and pods are watched only while needed. Ten thousand endpoints stay small that way. The result of
mapping them is kept where that is worth its memory.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from eurekube_provider.core.addresses import AVOIDED_NODE_TAINTS, is_avoided_node_label
from eurekube_provider.core.host_ports import PodOnHost
from eurekube_provider.core.mapping_cache import MappingCache
from eurekube_provider.core.model import intern_text
from eurekube_provider.core.objects import (
    ATTACH_MIRROR_ANNOTATION,
    KUBERNETES_SLICE_MANAGER,
    MIRROR_KIND,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
    is_managed_by_kubernetes,
    is_mirrored,
    is_terminating,
    service_name_of_slice,
)
from eurekube_provider.core.text import MAX_METADATA_VALUE_LENGTH
from eurekube_provider.kube.reflector import Reflector, ReflectorGroup
from eurekube_provider.operator.index import Object, SyncerKey

_KUBECTL_ANNOTATION_PREFIX = "kubectl.kubernetes.io/"
"""Prefix of the annotation in which kubectl keeps a whole copy of an object."""

_EUREKUBE_ANNOTATION_PREFIX = "eurekube.io/"

_KEPT_SERVICE_SPEC_FIELDS = (
    "clusterIP",
    "externalIPs",
    "externalName",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "ipFamilies",
    "ports",
    "publishNotReadyAddresses",
    "selector",
    "type",
)


def trim_custom_resource(item: Object, _before: Object | None = None) -> Object:
    """Return the kept part of an Eurekube custom resource: all but the field managers."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": metadata}


def _named_metadata(item: Object, **more: Any) -> Object:
    metadata = item["metadata"]
    return {"namespace": metadata.get("namespace", ""), "name": metadata["name"], **more}


def trim_service(service: Object, _before: Object | None = None) -> Object:
    """Return the part of a Service that the mapping reads, and the mirror that may add endpoints to it."""
    spec = service.get("spec") or {}
    addresses = spec.get("clusterIPs") or ()
    written = service["metadata"].get("annotations") or {}
    annotations = {
        intern_text(key): value[: MAX_METADATA_VALUE_LENGTH + 1]  # one more tells that it is too long
        for key, value in written.items()
        if key == ATTACH_MIRROR_ANNOTATION
        or not (is_mirrored(service) or key.startswith(_KUBECTL_ANNOTATION_PREFIX))
    }
    more: Object = {"annotations": annotations} if annotations else {}
    if any(key.startswith(_EUREKUBE_ANNOTATION_PREFIX) for key in annotations):
        more["uid"] = service["metadata"].get("uid")  # for Events about it
    references = service["metadata"].get("ownerReferences") or ()
    if not is_mirrored(service) and any(one.get("kind") == MIRROR_KIND for one in references):
        # A person took it over from a mirror, whose reference must go.
        more |= {key: service["metadata"].get(key) for key in ("uid", "resourceVersion", "ownerReferences")}
    if ends := service["metadata"].get("deletionTimestamp"):
        more["deletionTimestamp"] = ends
    return {
        "metadata": _named_metadata(service, labels=service["metadata"].get("labels") or {}, **more),
        "spec": {key: spec[key] for key in _KEPT_SERVICE_SPEC_FIELDS if key in spec}
        | ({"clusterIPs": addresses} if len(addresses) > 1 else {}),  # dual stack alone has two
        "status": {"loadBalancer": (service.get("status") or {}).get("loadBalancer") or {}},
    }


def trim_slice(endpoint_slice: Object, before: Object | None = None) -> Object:
    """Return the part of an EndpointSlice that the mapping reads: of each endpoint its first address, which
    Services use.

    A mirror's slice loses its endpoints: they come from Eureka, and must not be registered there.

    :param before: the object as it was kept before. An endpoint that did not change stays the same object: so
        the mapping finds out which ones did.
    """
    service = service_name_of_slice(endpoint_slice)
    known = {one["addresses"][0]: one for one in before["endpoints"]} if before else {}
    endpoints = []
    for endpoint in () if is_mirrored(endpoint_slice) else endpoint_slice.get("endpoints") or ():
        kept = known.get(endpoint["addresses"][0])
        if kept is None or not _equals_trimmed(endpoint, kept):
            kept = _EndpointFields(endpoint).__dict__
        endpoints.append(kept)
    labels = {SERVICE_NAME_LABEL: service} if service else {}
    if is_managed_by_kubernetes(endpoint_slice):
        labels[SLICE_MANAGED_BY_LABEL] = KUBERNETES_SLICE_MANAGER
    return {
        "metadata": _named_metadata(endpoint_slice, labels=labels),
        "addressType": endpoint_slice.get("addressType", "IPv4"),
        "ports": endpoint_slice.get("ports") or [],
        "endpoints": endpoints,
    }


class _EndpointFields:
    """The kept fields of an endpoint, of which the ``__dict__`` is kept: dictionaries of one class that get
    the same keys in the same order share them, and take 128 bytes in place of 192.
    """

    def __init__(self, endpoint: Object) -> None:
        zone, node, target = endpoint.get("zone"), endpoint.get("nodeName"), endpoint.get("targetRef")
        self.addresses = tuple(endpoint["addresses"][:1])
        self.conditions = _shared_conditions(tuple((endpoint.get("conditions") or {}).items()))
        self.targetRef = _ReferenceFields(target).__dict__ if target else None
        self.zone = intern_text(zone) if zone else None  # a few texts for all endpoints
        self.nodeName = intern_text(node) if node else None


class _ReferenceFields:
    """The kept fields of an endpoint's reference, likewise: 104 bytes in place of 192."""

    def __init__(self, target: Object) -> None:
        kind = target.get("kind")
        self.kind = intern_text(kind) if kind else kind
        self.name = target.get("name")


def _equals_trimmed(endpoint: Object, kept: Object) -> bool:
    """Return whether ``kept`` still equals an endpoint of the same address."""
    target, known = endpoint.get("targetRef"), kept["targetRef"]
    if not target or not known:
        is_same = not target and not known
    else:
        is_same = known["name"] == target.get("name") and known["kind"] == target.get("kind")
    return (
        is_same
        and kept["conditions"] == endpoint.get("conditions")
        and kept["zone"] == endpoint.get("zone")
        and kept["nodeName"] == endpoint.get("nodeName")
    )


@lru_cache(maxsize=64)
def _shared_conditions(items: tuple[tuple[str, bool | None], ...]) -> Object:
    """Return the conditions that are not None, shared by all endpoints with the same combination."""
    return {key: value for key, value in items if value is not None}


def trim_node(node: Object, _before: Object | None = None) -> Object:
    """Return the part of a node that the mapping reads: whether it is ready, or about to go, or not meant to
    be called, and its addresses.
    """
    metadata, status, spec = node["metadata"], node.get("status") or {}, node.get("spec") or {}
    taints = [{"key": one["key"]} for one in spec.get("taints") or () if one["key"] in AVOIDED_NODE_TAINTS]
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if is_avoided_node_label(key, value)
    }
    kept = {key: metadata[key] for key in ("name", "deletionTimestamp") if key in metadata}
    return {
        "metadata": {**kept, **({"labels": labels} if labels else {})},
        "spec": {**({"unschedulable": True} if spec.get("unschedulable") else {}), "taints": taints},
        "status": {
            "addresses": [
                {"type": item["type"], "address": item["address"]} for item in status.get("addresses") or ()
            ],
            "conditions": [
                {"type": item["type"], "status": item["status"]}
                for item in status.get("conditions") or ()
                if item["type"] == "Ready"
            ],
        },
    }


def trim_pod_to_labels(pod: Object, _before: Object | None = None) -> Object:
    """Return the part of a pod that the mapping reads: its labels."""
    labels = pod["metadata"].get("labels") or {}
    return {
        "metadata": _named_metadata(pod),
        "labels": {intern_text(key): value for key, value in labels.items()},
    }


def trim_pod_to_host_ports(pod: Object, _before: Object | None = None) -> Object:
    """Return the part of a pod that the mapping reads for host ports: its node's address, its host ports."""
    return {"metadata": _named_metadata(pod), "on_host": PodOnHost.of(pod)}


WatchScope = str | None
"""A namespace, or None for the whole cluster."""

MakeReflector = Callable[[WatchScope, Callable[[], None]], Reflector]
"""Function that makes a scope's reflector, which calls the second argument after its first list."""


class OnDemandWatches(ReflectorGroup):
    """Reflectors of one kind of object, each of which runs only while a syncer needs it.

    :param concerned: called with each syncer whose objects have been read for the first time.
    """

    def __init__(self, make: MakeReflector, concerned: Callable[[SyncerKey], None]) -> None:
        super().__init__(())
        self._make = make
        self._concerned = concerned
        self._lock = threading.Lock()
        self._users: dict[WatchScope, set[SyncerKey]] = {}
        self._by_scope: dict[WatchScope, Reflector] = {}
        self._stopped = False

    def set_needed_scopes(self, user: SyncerKey, scopes: set[WatchScope]) -> None:
        """Set the scopes whose objects ``user`` needs; return at once."""
        with self._lock:
            for scope in [scope for scope, users in self._users.items() if user in users]:
                if scope in scopes:
                    continue
                self._users[scope].discard(user)
                if not self._users[scope]:
                    del self._users[scope]
                    self._by_scope.pop(scope).stop()
            for scope in scopes:
                self._users.setdefault(scope, set()).add(user)
                if scope not in self._by_scope and not self._stopped:
                    reflector = self._make(scope, partial(self._report_first_list, scope))
                    reflector.start()  # which fails for want of a thread: then it is made again
                    self._by_scope[scope] = reflector
            self.reflectors = tuple(self._by_scope.values())

    def users_of(self, scope: WatchScope) -> set[SyncerKey]:
        """Return the syncers that need a scope's objects."""
        with self._lock:
            return set(self._users.get(scope, ()))

    def reflector(self, scope: WatchScope) -> Reflector | None:
        """Return a scope's reflector; None before its objects were read, or if they may not be any more."""
        with self._lock:
            found = self._by_scope.get(scope)
        is_usable = found is not None and found.is_synced and not found.is_denied_after_list
        return found if is_usable else None

    @property
    def is_usable_by_new_leader(self) -> bool:
        """True if all copies that have been read are new enough for a new leader to act on."""
        return all(one.is_usable_by_new_leader for one in self.reflectors if one.is_synced)

    def stop(self) -> None:
        """Stop all watches, and start no more."""
        with self._lock:
            self._stopped = True
            super().stop()

    def _report_first_list(self, scope: WatchScope) -> None:
        for user in self.users_of(scope):
            self._concerned(user)


LARGE_SYNCER_ENDPOINTS = 1000
"""Number of endpoints from which a syncer's mapped slices are always kept, at half a kilobyte an endpoint."""

MOST_CACHED_ENDPOINTS = 5000
"""Most endpoints of smaller syncers, those used last, whose mapped slices are kept."""


class MappingCaches:
    """Caches of syncers' mapped slices, kept where worth their memory; threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._large: dict[SyncerKey, MappingCache] = {}
        self._recent: OrderedDict[SyncerKey, tuple[MappingCache, int]] = OrderedDict()
        self._recent_endpoints = 0

    def cache_for(self, key: SyncerKey, endpoint_count: int) -> MappingCache:
        """Return the cache of a syncer that has this number of endpoints."""
        with self._lock:
            cache = self._remove(key)
            if cache is None:
                cache = MappingCache()
            if endpoint_count >= LARGE_SYNCER_ENDPOINTS:
                self._large[key] = cache
                return cache
            self._recent[key] = (cache, endpoint_count)
            self._recent_endpoints += endpoint_count
            while self._recent_endpoints > MOST_CACHED_ENDPOINTS:
                self._remove(next(iter(self._recent)))
            return cache

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that was deleted."""
        with self._lock:
            self._remove(key)

    def _remove(self, key: SyncerKey) -> MappingCache | None:
        recent = self._recent.pop(key, None)
        if recent is None:
            return self._large.pop(key, None)
        self._recent_endpoints -= recent[1]
        return recent[0]


TERMINATING_MEMORY_SECONDS = 600.0
"""Seconds for which an endpoint that was seen terminating is remembered."""

MOST_TERMINATING_REMEMBERED = 20_000
"""Most terminating endpoints that are remembered; beyond this number the oldest are forgotten, and the brake
may doubt their removal for a minute.
"""

EndpointKey = tuple[str, str]
"""Namespace of an endpoint, and its pod's name or its address."""


class TerminatingEndpoints:
    """Endpoints that were lately seen terminating and have not come back; threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[EndpointKey, float] = {}

    def update_from_slice(self, endpoint_slice: Object) -> None:
        """Remember a slice's terminating endpoints, and forget those that serve again under the same name."""
        now = time.monotonic()
        namespace = endpoint_slice["metadata"]["namespace"]
        with self._lock:
            for endpoint in endpoint_slice["endpoints"]:
                name = (namespace, (endpoint.get("targetRef") or {}).get("name") or endpoint["addresses"][0])
                self._at.pop(name, None)
                if is_terminating(endpoint):
                    self._at[name] = now  # the last, so that the oldest is the first
                    while (
                        now - self._at[oldest := next(iter(self._at))] > TERMINATING_MEMORY_SECONDS
                        or len(self._at) > MOST_TERMINATING_REMEMBERED
                    ):
                        del self._at[oldest]

    def __contains__(self, name: EndpointKey) -> bool:
        with self._lock:
            return name in self._at
