"""Search of EndpointSlices for the endpoints of registered instances. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from eurekube_provider.core.address_policy import parse_ip_address
from eurekube_provider.core.identity import pod_and_namespace_of_id
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import (
    Object,
    is_ready,
    is_terminating,
    pod_name_of_endpoint,
    service_name_of_slice,
)


def find_instances_to_restore(lost: Iterable[Instance], slices: Iterable[Object]) -> list[Instance]:
    """Return the lost instances whose endpoints are still ready at the same address, as they were; an
    overridden one as UP, since the registry remembers the override.

    :param slices: the current EndpointSlices. For the instance of a whole Service any ready endpoint of the
        Service is enough.
    """
    left = [one for one in lost if not one.is_leaving]
    if not left:
        return []
    ready: set[tuple[str, str, str]] = set()
    serving: set[tuple[str, str]] = set()
    for namespace, endpoint, item in _iterate_endpoints(slices):
        if is_ready(endpoint):
            address, service = endpoint["addresses"][0], service_name_of_slice(item)
            name = (endpoint.get("targetRef") or {}).get("name") or address
            ready.add((namespace, name, address))
            if service:
                serving.add((namespace, service))

    def has_ready_endpoint(one: Instance) -> bool:
        name, namespace = pod_and_namespace_of_id(one.instance_id)
        service, mark, _ = name.partition(".svc")
        if (namespace, name, one.ip_address) in ready:
            return True
        return bool(mark) and (namespace, service) in serving

    # The registry itself remembers a person's override.
    return [
        replace(one, status=Status.UP) if one.is_overridden else one
        for one in left
        if has_ready_endpoint(one)
    ]


def find_instances_of_vanished_pods(held: Collection[Instance], slices: Iterable[Object]) -> list[Instance]:
    """Return the instances whose pods no EndpointSlice has by name or address, while other pods of the
    application are still there.

    Where no pod of an application is left, the source may be broken, and none is returned. Whole Services,
    and endpoints that are not pods, are never returned.

    :param slices: all EndpointSlices of the instances' namespaces.
    """
    items = list(slices)
    pods = pods_in_slices(items)
    names: set[tuple[str, str]] = set()
    for namespace, endpoint, _ in _iterate_endpoints(items):
        target = endpoint.get("targetRef") or {}
        if target.get("kind") != "Pod" or not target.get("name"):
            names |= {(namespace, one) for one in (target.get("name"), *endpoint["addresses"]) if one}
    found: list[Instance] = []
    siblings: set[tuple[str, str]] = set()
    for one in held:
        name, namespace = pod_and_namespace_of_id(one.instance_id)
        if (namespace, name) in pods:
            siblings.add((namespace, one.application))
        elif is_name_of_pod(name) and not {(namespace, name), (namespace, one.ip_address)} & names:
            found.append(one)
    return [
        one for one in found if (pod_and_namespace_of_id(one.instance_id)[1], one.application) in siblings
    ]


def find_address_takers(
    held: Iterable[Instance], own_slices: Iterable[Object], slices: Iterable[Object]
) -> dict[str, tuple[str, str]]:
    """Return, by id of held instances whose address a pod of another Service now has, that pod.

    Kubernetes gives an address to one pod at a time: a ready endpoint of another pod proves that the
    instance's pod is gone. There is no proof where two endpoints share the address, as pods in their node's
    network do, nor for endpoints without a pod. A pod of the same Service does not count: it serves the same
    callers.

    :param own_slices: the EndpointSlices of the instances' own Services.
    :param slices: all known EndpointSlices.
    :returns: namespace and name of each pod that has the address now.
    """
    pods = {
        one.instance_id: (namespace, name, one.ip_address)
        for one in held
        for name, namespace in [pod_and_namespace_of_id(one.instance_id)]
        if is_name_of_pod(name)
    }
    siblings = pods_in_slices(own_slices)
    addresses = {address for _, _, address in pods.values()}
    live: dict[str, dict[tuple[str, str], bool]] = {}
    for namespace, endpoint, _ in _iterate_endpoints(slices):
        if endpoint["addresses"][0] in addresses and not is_terminating(endpoint):
            there = live.setdefault(endpoint["addresses"][0], {})
            place = (namespace, pod_name_of_endpoint(endpoint))
            there[place] = there.get(place, False) or is_ready(endpoint)
    found: dict[str, tuple[str, str]] = {}
    for instance_id, (namespace, name, address) in pods.items():
        if len(live.get(address, {})) == 1:
            ((place, ready),) = live[address].items()
            if ready and place[1] and place != (namespace, name) and place not in siblings:
                found[instance_id] = place
    return found


def _iterate_endpoints(slices: Iterable[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Yield each endpoint of EndpointSlices: its namespace, the endpoint, and its slice."""
    for item in slices:
        for endpoint in item.get("endpoints") or ():
            yield item["metadata"]["namespace"], endpoint, item


def pods_in_slices(slices: Iterable[Object]) -> set[tuple[str, str]]:
    """Return namespace and name of the pods in EndpointSlices."""
    return {
        (namespace, target["name"])
        for namespace, endpoint, _ in _iterate_endpoints(slices)
        if (target := endpoint.get("targetRef") or {}).get("kind") == "Pod" and target.get("name")
    }


def is_name_of_pod(name: str) -> bool:
    """Return whether the name in an instance's id is a pod's, and not an IP address or a Service's name."""
    return bool(name) and ".svc" not in name and parse_ip_address(name) is None
