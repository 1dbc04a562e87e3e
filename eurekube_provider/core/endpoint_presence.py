"""Finds which endpoints of registered instances EndpointSlices still show. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from ipaddress import ip_address

from eurekube_provider.core.identity import endpoint_of
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, is_ready, service_of


def restorable(lost: Iterable[Instance], slices: Iterable[Object], cluster: str) -> list[Instance]:
    """Return the instances whose endpoint is in the cluster, ready and at the same address, as they stood.

    :param slices: the EndpointSlices as they are now. For the instance of a whole Service any ready endpoint
        of it will do.
    :param cluster: the name that stands in the ids.
    """
    left = [one for one in lost if not one.is_leaving]
    if not left:
        return []
    ready: set[tuple[str, str, str]] = set()
    serving: set[tuple[str, str]] = set()
    for namespace, endpoint, item in _endpoints(slices):
        if is_ready(endpoint):
            address, service = endpoint["addresses"][0], service_of(item)
            name = (endpoint.get("targetRef") or {}).get("name") or address
            ready.add((namespace, name, address))
            if service:
                serving.add((namespace, service))

    def is_there(one: Instance) -> bool:
        name, namespace = endpoint_of(one.instance_id, cluster)
        service, mark, _ = name.partition(".svc")
        if (namespace, name, one.ip_address) in ready:
            return True
        return bool(mark) and (namespace, service) in serving

    # What a person had set over the status is the registry's to remember.
    return [replace(one, status=Status.UP) if one.is_overridden else one for one in left if is_there(one)]


def vanished(held: Collection[Instance], slices: Iterable[Object], cluster: str) -> list[Instance]:
    """Return pods that stand in no slice by name or address, while fellow pods of their application still do.

    Where none does, the source may be broken. Whole Services, and endpoints that are no pods, are left aside.

    :param slices: all of the namespaces in question.
    :param cluster: the name that stands in the ids.
    """
    items = list(slices)
    pods = pods_of(items)
    names: set[tuple[str, str]] = set()
    for namespace, endpoint, _ in _endpoints(items):
        target = endpoint.get("targetRef") or {}
        if target.get("kind") != "Pod" or not target.get("name"):
            names |= {(namespace, one) for one in (target.get("name"), *endpoint["addresses"]) if one}
    found: list[Instance] = []
    siblings: set[tuple[str, str]] = set()
    for one in held:
        name, namespace = endpoint_of(one.instance_id, cluster)
        if (namespace, name) in pods:
            siblings.add((namespace, one.application))
        elif is_pod(name) and not {(namespace, name), (namespace, one.ip_address)} & names:
            found.append(one)
    return [one for one in found if (endpoint_of(one.instance_id, cluster)[1], one.application) in siblings]


def _endpoints(slices: Iterable[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Each endpoint of these slices: its namespace, itself, and its slice."""
    for item in slices:
        for endpoint in item.get("endpoints") or ():
            yield item["metadata"]["namespace"], endpoint, item


def pods_of(slices: Iterable[Object]) -> set[tuple[str, str]]:
    """Return namespace and name of the pods that stand in these slices."""
    return {
        (namespace, target["name"])
        for namespace, endpoint, _ in _endpoints(slices)
        if (target := endpoint.get("targetRef") or {}).get("kind") == "Pod" and target.get("name")
    }


def is_pod(name: str) -> bool:
    """Return whether this is no address, and no Service's mark in an id."""
    if ".svc" in name or not name:
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False
