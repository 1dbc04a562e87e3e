"""Fields that the API server itself gives to objects of built-in kinds, as far as Eurekube reads them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from eurekube_provider.dev.kubernetes.refusals import Object

_cluster_addresses = (f"10.96.{number // 250}.{number % 250 + 2}" for number in itertools.count(8))


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def filled_in(item: Object) -> Object:
    """Return an object with what Kubernetes fills in; one of a kind without such fields as it is."""
    if item["kind"] == "Namespace":
        labels = {
            **item["metadata"].get("labels", {}),
            "kubernetes.io/metadata.name": item["metadata"]["name"],
        }
        metadata = {**item["metadata"], "labels": labels}
        return {**item, "metadata": metadata, "status": item.get("status") or {"phase": "Active"}}
    if item["kind"] == "Service" and item["spec"].get("type", "ClusterIP") != "ExternalName":
        address = item["spec"].get("clusterIP") or next(_cluster_addresses)
        usual = {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address]}
        return {**item, "spec": {**usual, **item["spec"]}}
    if item["kind"] == "Pod":
        return {**item, "status": item.get("status") or {"phase": "Pending"}}
    if item["kind"] == "CustomResourceDefinition":
        established = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
        accepted = {"acceptedNames": item["spec"]["names"]}
        known = (item.get("status") or {}).get("conditions")
        conditions = known or [{**established, "message": "", "lastTransitionTime": now()}]
        return {**item, "status": {**accepted, "conditions": conditions}}
    return item
