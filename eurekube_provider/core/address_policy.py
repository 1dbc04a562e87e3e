"""Addresses to which a mirror may send the cluster's calls.

Without this policy anyone who may register in Eureka could send calls anywhere: to a Service of another
namespace, to a node's own processes, to the cloud's metadata (compare CVE-2021-25740, on the right to write
endpoints). So the operator allows addresses by network, and always refuses the cluster's own addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from eurekube_provider.core.networks import Network, describe_ambiguous_address
from eurekube_provider.core.objects import Object, endpoints_of

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


MAX_CACHED_JUDGEMENTS = 20_000
"""The most judgements that one policy caches: a change of one instance judges all addresses of its
application, which may be thousands.
"""


@dataclass(frozen=True, slots=True)
class JudgedAddress:
    """An address of an instance, and the policy's judgement on it.

    :ivar canonical_text: the address as Kubernetes writes it.
    :ivar family: ``IPv4`` or ``IPv6``.
    :ivar refusal_clause: why the address is not mirrored, as the end of a sentence about it, such as ``is a
        loopback address``; empty where it may be.
    """

    canonical_text: str
    family: str
    refusal_clause: str


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The rules by which an address may be mirrored, or given by hand in a syncer.

    :ivar allowed_networks: the operator's networks; nothing is allowed without one.
    :ivar cluster_networks: networks of the cluster itself: of its Services and its pods.
    :ivar allowed_networks_option: the name of the operator's option that lists the allowed networks, for
        messages.
    :ivar cluster_addresses: single addresses of the cluster's Services and pods.
    """

    allowed_networks: tuple[Network, ...]
    cluster_networks: tuple[Network, ...] = ()
    cluster_addresses: AbstractSet[str] = field(default_factory=frozenset)
    allowed_networks_option: str = "--mirror-cidrs"
    _judgement_cache: dict[tuple[str, tuple[Network, ...]], JudgedAddress | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def judge_address(self, text: str, mirror_networks: tuple[Network, ...] = ()) -> JudgedAddress | None:
        """Return the judgement on an address as instances give it; None for a host name.

        :param mirror_networks: as for :meth:`refusal_clause`.
        """
        place = (text, mirror_networks)
        try:
            return self._judgement_cache[place]
        except KeyError:
            pass
        if len(self._judgement_cache) >= MAX_CACHED_JUDGEMENTS:
            self._judgement_cache.clear()
        parsed, unlike = parse_ip_address(text), describe_ambiguous_address(text.strip())
        found = None
        if unlike:  # a resolver would read it as one of them
            found = JudgedAddress(text, "IPv4", unlike)
        elif parsed is not None:
            found = JudgedAddress(
                str(parsed), f"IPv{parsed.version}", self.refusal_clause(parsed, mirror_networks)
            )
        self._judgement_cache[place] = found
        return found

    def refusal_clause(self, address: IpAddress, mirror_networks: tuple[Network, ...] = ()) -> str:
        """Return why an address is not mirrored, as the end of a sentence about it; empty where it may be.

        :param mirror_networks: the mirror's own networks; the address must be in one of them, too. Empty
            for no such limit.
        """
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            return "is an IPv4 address in the form of an IPv6 one, which Kubernetes takes for neither"
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            return "names an interface of its own host (behind the %), which Kubernetes refuses"
        for is_so, what in (
            (address.is_unspecified, "names no host"),
            (address.is_loopback, "is a loopback address: on each node it is that node itself"),
            (address.is_link_local, "is a link-local address, such as the cloud's metadata have"),
            (address.is_multicast, "is a multicast address"),
        ):
            if is_so:
                return what
        if str(address) in self.cluster_addresses or any(address in one for one in self.cluster_networks):
            return "is one of this cluster's own Services or pods: call that by its own name"
        if not any(address in one for one in self.allowed_networks):
            return (
                "is in none of the networks that the operator's configuration allows "
                f"({self.allowed_networks_option})"
            )
        if mirror_networks and not any(address in one for one in mirror_networks):
            return "is in none of spec.allowedCIDRs"
        return ""


def collect_cluster_addresses(
    services: Iterable[Object], slices: Iterable[Object], node_addresses: AbstractSet[str] = frozenset()
) -> frozenset[str]:
    """Return the addresses of a cluster's own Services and pods.

    :param slices: all EndpointSlices but those of mirrors.
    :param node_addresses: what a pod with its node's address (``hostNetwork``) does not have for itself: what
        else runs on that machine may be mirrored.
    """
    of_services = {
        str(address)
        for service in services
        for spec in (service.get("spec") or {},)
        for address in (spec.get("clusterIP"), *(spec.get("clusterIPs") or ()))
        if address and address != "None"
    }
    return frozenset(of_services).union(
        endpoint["addresses"][0]
        for endpoint in endpoints_of(slices)
        if (endpoint.get("targetRef") or {}).get("kind") == "Pod"
        and endpoint["addresses"][0] not in node_addresses
    )


def parse_ip_address(text: str) -> IpAddress | None:
    """Parse an IP address as instances give it, with or without brackets; return None for a host name."""
    try:
        return ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
