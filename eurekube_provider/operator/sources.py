"""The Kubernetes objects that the operator looks at, and which syncers each change concerns.

Only the fields that the mapping reads are kept, so that ten thousand endpoints stay small.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mapping import SERVICE_NAME_LABEL, app_of
from eurekube_provider.core.pulse import Pulse
from eurekube_provider.kube.access import ENDPOINT_SLICES, SERVICES, SYNCERS, KubeAccess, Resource
from eurekube_provider.kube.reflector import Listener, Reflector, ReflectorGroup, Trim

Object = dict[str, Any]
SyncerKey = tuple[str, str]
AppKey = tuple[str, str]
"""Namespace and app: what a syncer selects."""


GOODBYE_SECONDS = 600.0
"""For as long it is remembered that an endpoint was seen terminating."""


class Sources:
    """Local copies of the syncers, Services and EndpointSlices.

    :param concerned: called with the key of a syncer that must be looked at again.
    :param endpoints_changed: called with namespace and app of a Service whose endpoints may have changed.
    """

    def __init__(
        self,
        access: KubeAccess,
        namespaces: tuple[str, ...],
        concerned: Callable[[SyncerKey], None],
        endpoints_changed: Callable[[AppKey], None],
    ) -> None:
        self._concerned = concerned
        self._endpoints_changed = endpoints_changed
        self._selecting: dict[AppKey, set[SyncerKey]] = defaultdict(set)
        self._goodbyes: dict[str, float] = {}

        def group(resource: Resource, trim: Trim, listener: Listener) -> ReflectorGroup:
            return ReflectorGroup(
                Reflector(access, resource, trim, listener, namespace) for namespace in namespaces or (None,)
            )

        self.syncers = group(SYNCERS, trim_syncer, self._syncer_changed)
        self.services = group(SERVICES, trim_service, self._service_changed)
        self.slices = group(ENDPOINT_SLICES, trim_slice, self._slice_changed)
        self._groups = {"syncers": self.syncers, "services": self.services, "slices": self.slices}

    def start(self) -> None:
        """Begin to list and watch."""
        for group in self._groups.values():
            group.start()

    def stop(self) -> None:
        """Tell nobody of further changes."""
        for group in self._groups.values():
            group.stop()

    def hurry(self) -> None:
        """Wait for no back-off: the API server answers again."""
        for group in self._groups.values():
            group.hurry()

    @property
    def is_synced(self) -> bool:
        """Whether all first lists are complete."""
        return all(group.is_synced for group in self._groups.values())

    @property
    def failures(self) -> dict[str, KubernetesError]:
        """Which kinds cannot be read at the moment, and why."""
        return {name: group.failure for name, group in self._groups.items() if group.failure}

    @property
    def watch_restarts(self) -> dict[tuple[str, str], int]:
        """How often watches began anew, by kind and reason; see :attr:`Reflector.restarts`."""
        return {
            (name, reason): count
            for name, group in self._groups.items()
            for reason, count in group.restarts.items()
        }

    def pulses(self) -> list[Pulse]:
        """The reflectors' threads."""
        return [pulse for group in self._groups.values() for pulse in group.pulses()]

    def syncer_keys(self) -> list[SyncerKey]:
        """All syncers."""
        return [_key(syncer) for syncer in self.syncers.objects()]

    def said_goodbye(self, pod: str, namespace: str) -> bool:
        """Whether an endpoint of this pod (or address) was seen terminating lately."""
        return f"{namespace}/{pod}" in self._goodbyes

    def endpoint_count(self) -> int:
        """How many endpoints the slices have, of whatever Service."""
        return sum(len(item["endpoints"]) for item in self.slices.objects())

    def _syncer_changed(self, old: Object | None, new: Object | None) -> None:
        # A status that we wrote ourselves comes back as a change without a new generation.
        if old and new and _intent(old) == _intent(new):
            return
        for syncer in (old, new):
            if syncer is not None:
                self._selecting[_selected(syncer)].discard(_key(syncer))
        if new is not None:
            self._selecting[_selected(new)].add(_key(new))
        subject = new or old
        if subject is not None:
            self._concerned(_key(subject))

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        for app_key in {
            (service["metadata"]["namespace"], app_of(service)) for service in (old, new) if service
        }:
            self._tell(app_key)

    def _slice_changed(self, old: Object | None, new: Object | None) -> None:
        self._note_goodbyes(new)
        for item in (old, new):
            if item is None:
                continue
            namespace = item["metadata"]["namespace"]
            service = self.services.get(namespace, item["metadata"]["labels"].get(SERVICE_NAME_LABEL, ""))
            if service is not None:  # else its own arrival tells
                self._tell((namespace, app_of(service)))
            if old is not None and new is not None and old["metadata"] == new["metadata"]:
                break

    def _note_goodbyes(self, endpoint_slice: Object | None) -> None:
        """A terminating endpoint may be gone before anybody looks at its syncer."""
        now = time.monotonic()
        for endpoint in (endpoint_slice or {}).get("endpoints", ()):
            if endpoint["conditions"].get("terminating") and endpoint_slice is not None:
                name = endpoint.get("targetRef", {}).get("name") or endpoint["addresses"][0]
                self._goodbyes[f"{endpoint_slice['metadata']['namespace']}/{name}"] = now
        if self._goodbyes and now - next(iter(self._goodbyes.values())) > GOODBYE_SECONDS:
            self._goodbyes = {name: at for name, at in self._goodbyes.items() if now - at <= GOODBYE_SECONDS}

    def _tell(self, app_key: AppKey) -> None:
        for key in tuple(self._selecting.get(app_key, ())):
            self._concerned(key)
        self._endpoints_changed(app_key)


def trim_syncer(syncer: Object) -> Object:
    """What is read of an EurekaSyncer: all but the field managers."""
    metadata = {key: value for key, value in syncer["metadata"].items() if key != "managedFields"}
    return {**syncer, "metadata": metadata}


def trim_service(service: Object) -> Object:
    """What the mapping reads of a Service."""
    metadata, spec = service["metadata"], service.get("spec") or {}
    app = (metadata.get("labels") or {}).get("app")
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": {"app": app} if app else {},
        },
        "spec": {key: spec[key] for key in ("clusterIP", "ipFamilies", "ports", "type") if key in spec},
        "status": {"loadBalancer": (service.get("status") or {}).get("loadBalancer") or {}},
    }


def trim_slice(endpoint_slice: Object) -> Object:
    """What the mapping reads of an EndpointSlice; of each endpoint the one address that Services use."""
    metadata = endpoint_slice["metadata"]
    service = (metadata.get("labels") or {}).get(SERVICE_NAME_LABEL)
    endpoints = []
    for endpoint in endpoint_slice.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        kept: Object = {
            "addresses": endpoint["addresses"][:1],
            "conditions": _conditions(tuple((endpoint.get("conditions") or {}).items())),
        }
        if target:
            kept["targetRef"] = {"kind": target.get("kind"), "name": target.get("name")}
        if endpoint.get("zone"):
            kept["zone"] = sys.intern(endpoint["zone"])
        endpoints.append(kept)
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": {SERVICE_NAME_LABEL: service} if service else {},
        },
        "addressType": endpoint_slice.get("addressType", "IPv4"),
        "ports": endpoint_slice.get("ports") or [],
        "endpoints": endpoints,
    }


@lru_cache(maxsize=64)
def _conditions(items: tuple[tuple[str, bool | None], ...]) -> Object:
    """The conditions that are known; thousands of endpoints share a handful of combinations."""
    return {key: value for key, value in items if value is not None}


def _intent(syncer: Object) -> tuple[object, ...]:
    """What of a syncer a person decides."""
    metadata = syncer["metadata"]
    return (
        syncer.get("spec"),
        metadata.get("deletionTimestamp"),
        metadata.get("annotations"),
        metadata.get("finalizers"),
        metadata.get("uid"),
    )


def _selected(syncer: Object) -> AppKey:
    selector = (syncer.get("spec") or {}).get("selector") or {}
    return (selector.get("namespace") or syncer["metadata"]["namespace"], selector.get("app", ""))


def _key(thing: Object) -> tuple[str, str]:
    return (thing["metadata"]["namespace"], thing["metadata"]["name"])
