"""Addresses that a mirror may send the cluster's calls to.

Anyone who may register in Eureka would otherwise steer them anywhere: to a Service of another namespace, to a
node's own processes, to the cloud's metadata (CVE-2021-25740 is the same right in other hands). So addresses
are allowed by network, and what is the cluster's own is refused whatever is allowed.
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
"""How many judgements one policy keeps: an application may have thousands of instances, and all of them
are looked at with the change of one."""


@dataclass(frozen=True, slots=True)
class JudgedAddress:
    """An address as it is shown.

    :ivar text: as Kubernetes wants it.
    :ivar family: ``IPv4`` or ``IPv6``.
    :ivar refusal: why it is not mirrored; empty where it may be.
    """

    text: str
    family: str
    refusal: str


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The policy of which addresses may be mirrored, or given by hand in a syncer.

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
        """Return the judgement on an address as instances give it; None for a host's name.

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
        """Say why an address is not mirrored; empty where it may be.

        :param narrower: the mirror's own networks, of which one must have it as well; none for any.
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
    """The addresses of a cluster's own Services and pods.

    :param slices: all but the mirrors'.
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
    """Read an IP address as instances give it, perhaps in brackets; None for a host's name."""
    try:
        return ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def _contains(network: Network, address: IpAddress) -> bool:
    return network.version == address.version and address in network
