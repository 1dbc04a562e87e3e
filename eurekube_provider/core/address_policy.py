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

from eurekube_provider.core.networks import Network, ambiguity
from eurekube_provider.core.objects import Object

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


MOST_REMEMBERED = 20_000
"""The number of judgements that one policy caches: a change of one instance judges all addresses of its
application, which may be thousands.
"""


@dataclass(frozen=True, slots=True)
class JudgedAddress:
    """An address of an instance, and the policy's judgement on it.

    :ivar text: the address as Kubernetes writes it.
    :ivar family: ``IPv4`` or ``IPv6``.
    :ivar refusal: why the address is not mirrored; empty where it may be.
    """

    text: str
    family: str
    refusal: str


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The rules by which an address may be mirrored, or given by hand in a syncer.

    :ivar allowed: the operator's networks; nothing is allowed without one.
    :ivar cluster: networks of the cluster itself: of its Services and its pods.
    :ivar option: the operator's option that says what is allowed.
    :ivar own: single addresses of its Services and pods.
    """

    allowed: tuple[Network, ...]
    cluster: tuple[Network, ...] = ()
    own: AbstractSet[str] = field(default_factory=frozenset)
    option: str = "--mirror-cidrs"
    _judged: dict[tuple[str, tuple[Network, ...]], JudgedAddress | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def judged(self, text: str, narrower: tuple[Network, ...] = ()) -> JudgedAddress | None:
        """Return the judgement on an address as instances give it; None for a host name.

        :param narrower: as for :meth:`refusal`.
        """
        place = (text, narrower)
        try:
            return self._judged[place]
        except KeyError:
            pass
        if len(self._judged) >= MOST_REMEMBERED:
            self._judged.clear()
        parsed, unlike = parsed_address(text), ambiguity(text.strip())
        found = None
        if unlike:  # a resolver would read it as one of them
            found = JudgedAddress(text, "IPv4", unlike)
        elif parsed is not None:
            found = JudgedAddress(str(parsed), f"IPv{parsed.version}", self.refusal(parsed, narrower))
        self._judged[place] = found
        return found

    def refusal(self, address: IpAddress, narrower: tuple[Network, ...] = ()) -> str:
        """Return why an address is not mirrored; empty where it may be.

        :param narrower: the mirror's own networks; the address must be in one of them, too. Empty for no such
            limit.
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
        if str(address) in self.own or any(_contains(one, address) for one in self.cluster):
            return "is one of this cluster's own Services or pods: call that by its own name"
        if not any(_contains(one, address) for one in self.allowed):
            return f"is in none of the networks that the operator's configuration allows ({self.option})"
        if narrower and not any(_contains(one, address) for one in narrower):
            return "is in none of spec.allowedCIDRs"
        return ""


def own_addresses(services: Iterable[Object], slices: Iterable[Object]) -> frozenset[str]:
    """Return the addresses of a cluster's own Services and pods.

    :param slices: all EndpointSlices but those of mirrors.
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
        for item in slices
        for endpoint in item.get("endpoints") or ()
        if (endpoint.get("targetRef") or {}).get("kind") == "Pod"
    )


def parsed_address(text: str) -> IpAddress | None:
    """Parse an IP address as instances give it, with or without brackets; return None for a host name."""
    try:
        return ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def _contains(network: Network, address: IpAddress) -> bool:
    return network.version == address.version and address in network
