"""Sample syncers, Services, EndpointSlices and instances for tests of the comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eurekube_provider.comparison.comparing import KubernetesInventory
from eurekube_provider.core.identity import Cluster, ClusterOwner, pod_instance_id
from eurekube_provider.core.mapping import DesiredInstances, desired_instances
from eurekube_provider.core.mirror import APPLICATION_ANNOTATION
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from eurekube_provider.core.syncer import Syncer

CLUSTER = Cluster("lab", "uid-1")

WELL = {
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Synced", "message": "all there"},
        {"type": "Synced", "status": "True", "reason": "Synced", "message": "all there"},
    ]
}


def syncer(name: str, status: Any = None, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    """Return a EurekaSyncer of namespace ``shop``."""
    metadata: dict[str, Any] = {"namespace": "shop", "name": name}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"mode": "pod", "selector": {"app": name}, **spec},
        "status": WELL if status is None else status,
    }


def derived(name: str, status: Any = None, **spec: Any) -> dict[str, Any]:
    """Return the syncer of one Service that is derived from the namespace's syncer ``all``."""
    return syncer(f"all.{name}", status, selector={"service": name}, application=name, **spec)


def endpoint_slice(name: str, *ready: bool | None) -> dict[str, Any]:
    """Return an EndpointSlice of the Service of this name, with an endpoint for each value; None is a
    terminating one.
    """
    return {
        "metadata": {"namespace": "shop", "name": f"{name}-1", "labels": {SERVICE_NAME_LABEL: name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.0.0.{number}"],
                "conditions": {"ready": bool(one), **({"terminating": True} if one is None else {})},
                "targetRef": {"kind": "Pod", "name": f"{name}-{number}"},
            }
            for number, one in enumerate(ready)
        ],
    }


def desired_of(item: dict[str, Any], *ready: bool | None, cluster: Cluster = CLUSTER) -> DesiredInstances:
    """Return the desired instances of a syncer whose Service has these endpoints."""
    name = item["spec"]["selector"].get("service", item["metadata"]["name"])
    service = {"metadata": {"namespace": "shop", "name": name}, "spec": {}}
    return desired_instances(Syncer.from_object(item), [service], [endpoint_slice(name, *ready)], cluster)


def instance(
    name: str, number: int = 0, status: Status = Status.UP, owner: str | None = "", **more: Any
) -> Instance:
    """Return the instance of the pod with this number, owned by the syncer of this name unless an owner is
    given.
    """
    if owner == "":
        owner = str(ClusterOwner("lab", "shop", name))
    made = desired_of(syncer(name), *[True] * (number + 1)).instances[number]
    metadata = {**made.metadata, **({"eurekube.owner": owner} if owner else {}), **more.pop("metadata", {})}
    if not owner:
        metadata.pop("eurekube.owner")
    return Instance(
        name,
        more.pop("instance_id", pod_instance_id(f"{name}-{number}", "shop", "lab", name, 8080)),
        made.host_name,
        made.ip_address,
        Port(8080),
        status=status,
        metadata=metadata,
        home_page_url=made.home_page_url,
        **more,
    )


def world(
    *items: dict[str, Any], ready: tuple[bool | None, ...] = (True,), **more: Any
) -> KubernetesInventory:
    """Return a cluster with these syncers, each over the same endpoints."""
    found = KubernetesInventory(CLUSTER, items, **more)
    keys = [("shop", item["metadata"]["name"]) for item in items]
    desired = {
        key: desired_of(item, *ready, cluster=found.cluster_of_syncer(key))
        for key, item in zip(keys, items, strict=True)
        if "deletionTimestamp" not in item["metadata"]
    }
    return replace(found, desired=desired)


def mirror(name: str, status: Any = None, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    """Return a EurekaMirror of namespace ``shop``; without ``spec`` it mirrors the application of its
    name.
    """
    metadata: dict[str, Any] = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = spec or {"application": name}
    return {"metadata": metadata, "spec": spec, "status": {} if status is None else status}


def mirror_status(
    application: str = "REVIEW", ready: int = 1, held: int = 0, read: str = "", **problems: str
) -> dict[str, Any]:
    """Return the status that an operator writes for a mirror of one application, with ``problems`` by
    condition.
    """
    synced = next(iter(problems), "InSync")
    conditions = [
        {"type": "Ready", "status": str(ready > 0), "reason": "EndpointsReady", "message": "ready"},
        {
            "type": "Synced",
            "status": str(not problems),
            "reason": synced,
            "message": problems.get(synced, "all is shown"),
        },
    ]
    conditions += [
        {"type": kind, "status": "True", "reason": kind, "message": message}
        for kind, message in problems.items()
    ]
    shown = {
        "application": application,
        "name": application.lower().replace("_", "-"),
        "endpoints": 2,
        "ready": ready,
    }
    return {
        "conditions": conditions,
        "services": [{**shown, "held": held}],
        "mirrored": 1,
        "endpoints": 2,
        "ready": ready,
        "held": held,
        **({"lastReadTime": read} if read else {}),
    }


def mirror_slice(name: str, *endpoints: tuple[str, str, bool], application: str = "REVIEW") -> dict[str, Any]:
    """Return an EndpointSlice of a mirror; each endpoint has an instance id, an address, and True if it is
    ready.
    """
    return {
        "metadata": {
            "namespace": "shop",
            "name": f"{application.lower()}-0",
            "labels": {
                SERVICE_NAME_LABEL: application.lower(),
                SLICE_MANAGED_BY_LABEL: MIRROR_SLICE_MANAGER,
                MIRROR_LABEL: name,
            },
            "annotations": {APPLICATION_ANNOTATION: application},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": ready, "serving": ready, "terminating": False},
                "targetRef": {"kind": "EurekaInstance", "name": instance_id},
            }
            for instance_id, address, ready in endpoints
        ],
    }
