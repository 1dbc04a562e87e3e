"""What is kept of each Kubernetes object: what the mapping reads, so that ten thousand stay small."""

from __future__ import annotations

from functools import lru_cache

from eurekube_provider.core.interning import interned
from eurekube_provider.core.objects import SERVICE_NAME_LABEL, service_of
from eurekube_provider.operator.index import Object

_SERVICE_FIELDS = ("clusterIP", "externalIPs", "externalTrafficPolicy", "ipFamilies", "ports")


def trim_own(item: Object) -> Object:
    """What is read of a custom resource of ours: all but the field managers."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": metadata}


def trim_service(service: Object) -> Object:
    """What the mapping reads of a Service."""
    metadata, spec = service["metadata"], service.get("spec") or {}
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": metadata.get("labels") or {},
        },
        "spec": {key: spec[key] for key in _SERVICE_FIELDS if key in spec},
        "status": {"loadBalancer": (service.get("status") or {}).get("loadBalancer") or {}},
    }


def trim_slice(endpoint_slice: Object) -> Object:
    """What the mapping reads of an EndpointSlice; of each endpoint the one address that Services use."""
    metadata = endpoint_slice["metadata"]
    service = service_of(endpoint_slice)
    endpoints = []
    for endpoint in endpoint_slice.get("endpoints") or ():
        target = endpoint.get("targetRef") or {}
        kept: Object = {
            "addresses": endpoint["addresses"][:1],
            "conditions": _conditions(tuple((endpoint.get("conditions") or {}).items())),
        }
        if target:
            kept["targetRef"] = {"kind": target.get("kind"), "name": target.get("name")}
        for field in ("zone", "nodeName"):
            if endpoint.get(field):
                kept[field] = interned(endpoint[field])  # a few texts for all endpoints
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


def trim_node(node: Object) -> Object:
    """What the mapping reads of a node: whether it is ready, and its addresses."""
    status = node.get("status") or {}
    return {
        "metadata": {"name": node["metadata"]["name"]},
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


def trim_pod(pod: Object) -> Object:
    """What the mapping reads of a pod: its labels."""
    metadata = pod["metadata"]
    return {
        "metadata": {"namespace": metadata["namespace"], "name": metadata["name"]},
        "labels": {interned(key): value for key, value in (metadata.get("labels") or {}).items()},
    }
