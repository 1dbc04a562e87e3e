"""Pods at their nodes' addresses: endpoints with the host ports of their containers. Pure.

EndpointSlices have neither a node's address nor a host port; the pods have both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, pod_addresses, pod_name_of_endpoint

HOST_PORT_FIELD = "hostPort"
"""The field of a port in an EndpointSlice of :func:`with_host_ports`, beside the pod's own number."""

PODS_UNREAD_FIELD = "unread"
"""The field of an EndpointSlice of :func:`with_host_ports` whose pods have not been read, or have other
addresses than their endpoints.
"""

_FAMILY_OF_WILDCARD_HOST_IP = {"0.0.0.0": "IPv4", "::": "IPv6"}  # noqa: S104 - as pods name them
"""The values of a port's ``hostIP`` with which the node accepts calls at its addresses of a family."""


@dataclass(frozen=True, slots=True)
class PodOnHost:
    """The addresses and host ports at which a node accepts calls for one of its pods.

    :ivar addresses: the pod's own addresses.
    :ivar host_addresses: the node's addresses.
    :ivar host_ports: by a container's port, the address and the port on the node; the address is empty for
        any of the node's. A port that is bound to an address which the node does not report is left out: the
        pod's owner may write any address there. So is one that is bound to a family which the node lacks.
    :ivar is_in_host_network: True if each port of the pod is one of the node's.
    """

    addresses: frozenset[str]
    host_addresses: tuple[str, ...] = ()
    host_ports: tuple[tuple[int, tuple[str, int]], ...] = ()
    is_in_host_network: bool = False

    def if_at_address(self, address: str) -> PodOnHost | None:
        """Return the pod if it has this address; None for another pod of its name, as of a StatefulSet."""
        return self if address in self.addresses else None

    @classmethod
    def of(cls, pod: Object) -> PodOnHost:
        """Read a pod as the API sends it."""
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        several = (str(one.get("ip") or "") for one in status.get("hostIPs") or ())
        hosts = tuple(one for one in dict.fromkeys((str(status.get("hostIP") or ""), *several)) if one)
        return cls(
            frozenset(pod_addresses(pod)),
            hosts,
            tuple(_container_host_ports(spec, hosts)),
            bool(spec.get("hostNetwork")),
        )


@dataclass(frozen=True, slots=True)
class PodWithoutHostPort:
    """A live pod whose host port is not known, or that has none: its instance stays where it is registered.

    :ivar is_ready: True if its endpoint is ready.
    :ivar address: the pod's own address, at which alone an instance is kept, with the endpoint's status;
        empty for a pod that was not read. Its instance may be at a node that is gone: its status is lowered
        if the endpoint is not ready, and never raised.
    """

    is_ready: bool
    address: str = ""

    def registered_instance_to_keep(self, held: Instance) -> Instance | None:
        """Return the pod's registered instance with the status to register; None if it is not kept."""
        if self.address and held.ip_address != self.address:
            return None
        if self.is_ready:
            return replace(held, status=Status.UP) if self.address else held
        return held if held.status is Status.OUT_OF_SERVICE else replace(held, status=Status.DOWN)


FindPodOnHost = Callable[[str, str], PodOnHost | None]
"""A function that returns the pod of a syncer's target namespace that has a name and an address; None for a
pod that was not read.
"""


def with_host_ports(slices: Iterable[Object], find_pod: FindPodOnHost) -> list[dict[str, Any]]:
    """Return EndpointSlices whose endpoints are at their nodes' addresses, each port with its ``hostPort``.

    Endpoints of one slice whose host ports differ get a slice for each group of ports. An endpoint without a
    host port keeps its address. Pods that were not read are in slices with the field ``unread``.
    """
    found: list[dict[str, Any]] = []
    for one in slices:
        family = one.get("addressType", "IPv4")
        numbers = [int(port.get("port") or 0) for port in one.get("ports") or ()]
        groups: dict[tuple[int, ...] | None, list[Object]] = {}
        for endpoint in one.get("endpoints") or ():
            address = str(endpoint["addresses"][0])
            pod = find_pod(name, address) if (name := pod_name_of_endpoint(endpoint)) else None
            if name and pod is None:
                groups.setdefault(None, []).append(endpoint)
                continue
            host, at_node = _host_address_and_ports(pod, address, numbers, family)
            groups.setdefault(at_node, []).append({**endpoint, "addresses": [host]})
        for number, (at_host, endpoints) in enumerate(groups.items()):
            metadata = one["metadata"]
            if number:
                metadata = {**metadata, "name": f"{metadata['name']} ({HOST_PORT_FIELD}, {number + 1})"}
            copy = {**one, "metadata": metadata, "endpoints": endpoints}
            if at_host is None:
                copy[PODS_UNREAD_FIELD] = True
            else:
                pairs = zip(one.get("ports") or (), at_host, strict=True)
                copy["ports"] = [{**port, HOST_PORT_FIELD: at} if at else port for port, at in pairs]
            found.append(copy)
    return found


def _host_address_and_ports(
    pod: PodOnHost | None, address: str, numbers: list[int], family: str
) -> tuple[str, tuple[int, ...]]:
    """Return the address for callers, and for each port the port there; 0 for a port without a host port.

    An instance has one address: ports that are bound to another one than the first have no host port.
    """
    if pod is None:
        return address, (0,) * len(numbers)
    if pod.is_in_host_network:
        return address, tuple(numbers)
    by_number = dict(pod.host_ports)
    bound = [by_number.get(number) for number in numbers]
    first = next((one[0] for one in bound if one), None)
    if first is None or not (first or pod.host_addresses):
        return address, (0,) * len(numbers)
    host = first or _first_of_family(pod.host_addresses, family) or pod.host_addresses[0]
    return host, tuple(one[1] if one and one[0] == first else 0 for one in bound)


def _first_of_family(addresses: tuple[str, ...], family: str) -> str:
    return next((one for one in addresses if (":" in one) == (family == "IPv6")), "")


def _container_host_ports(spec: Object, hosts: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield the host ports of containers, and of sidecars (init containers that run on): each port's number
    in the pod, with its address and number at the node.

    :param hosts: the node's addresses.
    """
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            if port.get("protocol", "TCP") == "TCP" and port.get("hostPort"):
                bound = str(port.get("hostIP") or "")
                if family := _FAMILY_OF_WILDCARD_HOST_IP.get(bound):
                    bound = _first_of_family(hosts, family) or "nowhere"
                if not bound or bound in hosts:
                    yield int(port["containerPort"]), (bound, int(port["hostPort"]))
