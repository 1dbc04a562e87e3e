"""The addresses at which callers reach a whole Service, for syncers in mode service."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product

from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.objects import (
    Object,
    conditions_of,
    endpoints_of,
    is_being_deleted,
    is_ready,
    qualified_name,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Advertise
from eurekube_provider.core.wording import join_sentences

AUTO_ADVERTISE_ORDER = (Advertise.LOAD_BALANCER, Advertise.EXTERNAL_IP, Advertise.CLUSTER_IP)
"""The kinds of addresses that ``advertise: Auto`` tries, in order.

Node ports and DNS names are taken on request only: a node port binds callers to one node, a DNS name works in
the cluster alone.
"""

_ANY_FAMILY = ("IPv4", "IPv6")

AVOIDED_NODE_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.cilium.io/agent-not-ready",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node.kubernetes.io/unschedulable",
    }
)
"""The taints of a node that may be ready and is about to go, such as a drained one, or has no network yet."""

AVOIDED_NODE_LABELS = {
    "eks.amazonaws.com/compute-type": "fargate",
    "node.kubernetes.io/exclude-from-external-load-balancers": "",
    "type": "virtual-kubelet",
}
"""The labels of a node that is not to be called at node ports, each with its value (empty for any): a virtual
node has no kube-proxy.
"""

_MISSING_ADDRESS_WORDS = {
    Advertise.LOAD_BALANCER: "load balancer's address in its status",
    Advertise.EXTERNAL_IP: "external IP",
    Advertise.CLUSTER_IP: "cluster IP",
}


@dataclass(frozen=True, slots=True)
class Address:
    """The host name and the IP address under which an instance is registered.

    :param host_name: as in a URL, since Spring builds one from it: an IPv6 address is in brackets.
    """

    host_name: str
    ip_address: str

    @classmethod
    def of(cls, address: str) -> Address:
        """Make an Address of an IP address, or of a host name that then stands in both fields."""
        return cls(f"[{address}]" if ":" in address else address, address)


def service_address(
    service: Object, advertise: Advertise, domain: str, ports: Collection[int]
) -> Address | Problem:
    """Choose the address that callers of ``service`` use; for node ports see :func:`ready_node_addresses`.

    For a Service of type LoadBalancer, ``Auto`` waits for the load balancer's address, or takes an external
    IP that a person gave. It never takes the cluster IP: callers would have to move once the load balancer
    has an address.

    :param domain: the cluster's DNS domain.
    :param ports: the ports that callers use; a load balancer that reports an error for one of them is
        skipped.
    """
    if advertise is Advertise.CLUSTER_DNS:
        metadata = service["metadata"]
        host = f"{metadata['name']}.{metadata['namespace']}.svc.{domain}"
        return Address(host, _find_service_address(service, Advertise.CLUSTER_IP) or host)
    awaits_balancer = (service.get("spec") or {}).get("type") == "LoadBalancer"
    order: Sequence[Advertise] = AUTO_ADVERTISE_ORDER if advertise is Advertise.AUTO else (advertise,)
    if advertise is Advertise.AUTO and awaits_balancer:
        order = (Advertise.LOAD_BALANCER, Advertise.EXTERNAL_IP)
    for kind in order:
        address = _find_service_address(service, kind, ports)
        if address:
            return Address.of(address)
    missing = (
        f"no {_MISSING_ADDRESS_WORDS[order[-1]]}"
        if len(order) == 1
        else "neither a load balancer's address nor an IP"
    )
    remedy = "use mode pod, or give it an address"
    if awaits_balancer and order[0] is Advertise.LOAD_BALANCER:
        missing = _describe_missing_load_balancer(service, ports)
        remedy = (
            "wait for the load balancer; where none comes, use mode pod, or for callers in the cluster set "
            "spec.advertise to ClusterIP"
        )
    return Problem(SyncerCondition.NO_ADDRESS, f"Service {qualified_name(service)} has {missing}", remedy)


def loses_load_balancer(service: Object, advertise: Advertise) -> bool:
    """Return whether a Service's deletion takes away the load balancer at which callers reach it.

    Such a Service stays until its load balancer is gone (``service.kubernetes.io/load-balancer-cleanup``),
    and its status names the address all the while.
    """
    is_balanced = (service.get("spec") or {}).get("type") == "LoadBalancer"
    is_meant = advertise in (Advertise.AUTO, Advertise.LOAD_BALANCER)
    return is_balanced and is_meant and is_being_deleted(service)


def _describe_missing_load_balancer(service: Object, ports: Collection[int]) -> str:
    errors = [
        f"port {port['port']}: {port['error']}"
        for ingress in _load_balancer_ingresses(service)
        for port in _failed_ports(ingress, ports)
    ]
    detail = f" without an error of a port ({join_sentences(errors)})" if errors else ""
    return f"no load balancer's address in its status{detail}"


def _load_balancer_ingresses(service: Object) -> Sequence[Object]:
    found: Sequence[Object] = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return found


def _failed_ports(ingress: Object, ports: Collection[int]) -> list[Object]:
    """Return the ports among ``ports`` for which a load balancer's status reports an error."""
    return [one for one in ingress.get("ports") or () if one.get("error") and one.get("port") in ports]


def _find_service_address(service: Object, kind: Advertise, ports: Collection[int] = ()) -> str | None:
    spec = service.get("spec") or {}
    if kind is Advertise.LOAD_BALANCER:
        given = (
            one.get("ip") or one.get("hostname")
            for one in _load_balancer_ingresses(service)
            if not _failed_ports(one, ports)
        )
        return next((str(address) for address in given if address), None)
    if kind is Advertise.EXTERNAL_IP:
        return next(iter(spec.get("externalIPs") or ()), None)
    cluster_ip: str | None = spec.get("clusterIP")
    return cluster_ip if cluster_ip != "None" else None


def ready_node_addresses(
    service: Object, slices: Iterable[Object], nodes: Iterable[Object] | None, *, max_nodes: int
) -> tuple[tuple[str, Address], ...] | Problem:
    """List ready nodes by name and address: only nodes with an external address if there are any.

    The first node is the first by name. The order of the others depends on a hash of Service and node:
    Services spread over the nodes, and a node keeps its place while other nodes come and go. A node that is
    about to go is listed only if all are: once it is gone, calls fail until it counts as not ready. Nor is
    one listed beside others that is not meant to be called.

    :param nodes: None as long as they have not been read.
    :param max_nodes: the largest number of nodes to list.
    """
    if nodes is None:
        return Problem(
            Reason.NODES_NOT_READ, "the cluster's nodes have not been read yet: nothing is changed before"
        )
    ready = [node for node in nodes if conditions_of(node).get("Ready", {}).get("status") == "True"]
    ready.sort(key=lambda node: node["metadata"]["name"])
    words = "no node of the cluster"
    if (service.get("spec") or {}).get("externalTrafficPolicy") == "Local":
        # Other nodes drop what arrives at the node port.
        local = {endpoint.get("nodeName") for endpoint in filter(is_ready, endpoints_of(slices))}
        if local:  # else no call arrives anywhere, and what stands as DOWN needs an address all the same
            ready = [node for node in ready if node["metadata"]["name"] in local]
        words = "no node with an endpoint of it (externalTrafficPolicy Local)"
    # A node port listens in the Service's families alone. Where no node has an address of these: any.
    families = (service.get("spec") or {}).get("ipFamilies") or _ANY_FAMILY
    for allowed, kind in product((families, _ANY_FAMILY), ("ExternalIP", "InternalIP")):
        reachable = [(node, at) for node in ready if (at := _node_address(node, kind, allowed)) is not None]
        chosen = [(node, at) for node, at in reachable if not _is_avoided(node)] or reachable
        found = [(node["metadata"]["name"], Address.of(at)) for node, at in chosen]
        if found:
            where = qualified_name(service)
            others = sorted(found[1:], key=lambda one: sha256(f"{where} {one[0]}".encode()).digest())
            return (found[0], *others[: max_nodes - 1])
    return Problem(
        SyncerCondition.NO_ADDRESS,
        f"Service {qualified_name(service)}: {words} is ready and has an IP address",
    )


def _node_address(node: Object, kind: str, families: Collection[str]) -> str | None:
    addresses = (node.get("status") or {}).get("addresses") or ()
    of_kind = [str(one["address"]) for one in addresses if one["type"] == kind]
    return next((one for one in of_kind if ("IPv6" if ":" in one else "IPv4") in families), None)


def is_avoided_node_label(key: str, value: str) -> bool:
    """Return whether a node's label is one of :data:`AVOIDED_NODE_LABELS`."""
    return key in AVOIDED_NODE_LABELS and AVOIDED_NODE_LABELS[key] in ("", value)


def _is_avoided(node: Object) -> bool:
    """Return whether a node is about to go (cordoned, tainted so, or its deletion began), has no network yet,
    or is not meant to be called.
    """
    metadata, spec = node["metadata"], node.get("spec") or {}
    return bool(
        is_being_deleted(node)
        or spec.get("unschedulable")
        or any(one.get("key") in AVOIDED_NODE_TAINTS for one in spec.get("taints") or ())
        or any(is_avoided_node_label(*one) for one in (metadata.get("labels") or {}).items())
    )
