"""Routes by which callers outside of the cluster reach a Service: a host name, an address and a port."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from eurekube_provider.core.address_policy import parse_ip_address
from eurekube_provider.core.addresses import Address
from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.model import shared_port
from eurekube_provider.core.networks import describe_ambiguous_address
from eurekube_provider.core.objects import Object, is_being_deleted
from eurekube_provider.core.ports import Ports
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import join_sentences

_ACME_CHALLENGE_PATTERN = re.compile(r"/\.well-known/acme-challenge/[\w-]*")
"""The paths that an ACME client sends to a server of its own while it renews a certificate (RFC 8555, 8.3);
no caller of an application calls them.
"""


@dataclass(frozen=True, slots=True)
class Routes:
    """The objects that send requests from outside to Services, as far as they were read.

    :param read_namespaces: the namespaces that were read; None for all.
    """

    ingresses: Sequence[Object] = ()
    gateways: Sequence[Object] = ()
    http_routes: Sequence[Object] = ()
    read_namespaces: Collection[str] | None = None

    def was_namespace_read(self, namespace: str) -> bool:
        """Return whether the objects of a namespace were read."""
        return self.read_namespaces is None or namespace in self.read_namespaces


@dataclass(frozen=True, slots=True)
class TargetService:
    """A Service and the ports of it that callers may be led to.

    :param ports: as the Service's spec has them.
    """

    namespace: str
    name: str
    ports: tuple[Object, ...]

    @property
    def qualified_name(self) -> str:
        """``namespace/name`` of the Service, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def description(self) -> str:
        """The Service and its ports, for messages."""
        return f"port {' or '.join(str(one['port']) for one in self.ports)} of Service {self.qualified_name}"

    def has_port(self, given: object) -> bool:
        """Return whether a number or a name is that of one of the ports."""
        return given is not None and any(given in (one["port"], one.get("name")) for one in self.ports)


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """One host name, address and port by which callers may reach a Service.

    :param via: the object that leads there, for messages.
    :param problem: why callers must not be given this address; None where they may.
    :param is_problem_temporary: True if the problem may pass by itself, as while a controller starts.
    """

    host: str
    via: str
    address: str = ""
    port: int = 0
    is_secure: bool = False
    problem: Problem | None = None
    is_problem_temporary: bool = False

    @property
    def address_and_ports(self) -> tuple[Address, Ports]:
        """The address and ports under which the Service is registered; https alone if there is any."""
        ports = Ports(shared_port(self.port, enabled=True))
        if self.is_secure:
            ports = Ports(shared_port(self.port, enabled=False), shared_port(self.port, enabled=True))
        return Address(self.host, self.address), ports


def no_address_problem(message: str, remedy: str) -> Problem:
    """Return the problem that callers cannot be given an address."""
    return Problem(SyncerCondition.NO_ADDRESS, message, remedy)


def deletion_problem(via: str, *objects: Object) -> Problem | None:
    """Return the problem that a way to a Service is about to go, since one of its objects is being deleted:
    another way replaces it.
    """
    if not any(map(is_being_deleted, objects)):
        return None
    return no_address_problem(f"{via} is being deleted", "add another way to the Service")


def choose_route(candidates: Iterable[RouteCandidate], otherwise: Problem) -> RouteCandidate | Problem:
    """Return the candidate of the one host name that leads to a Service, https before http; else a problem.

    While the problem of any candidate may pass, no other candidate replaces it: callers would move to another
    host, or from https to http, and back. Of several host names none is chosen, for the same reason.

    :param otherwise: the problem to return where there is no candidate at all.
    """
    in_order = sorted(candidates, key=lambda one: (one.host, not one.is_secure, one.via, one.port))
    for one in in_order:
        if one.problem is not None and one.is_problem_temporary:
            return one.problem
    open_ways = [one for one in in_order if one.problem is None]
    if hosts := dict.fromkeys(one.host for one in open_ways[1:] if one.host != open_ways[0].host):
        named = join_sentences([open_ways[0].host, *hosts])
        return no_address_problem(
            f"several host names lead to it ({named}), and callers would move from one to another",
            "have one host name lead there; others may lead to a further Service for the same pods",
        )
    if open_ways:
        return open_ways[0]
    return next((one.problem for one in in_order if one.problem), otherwise)


def is_acme_challenge_path(path: str) -> bool:
    """Return whether only ACME clients call a path; False for a regular expression."""
    return _ACME_CHALLENGE_PATTERN.fullmatch(path) is not None


def alphabetically_first_nonlocal_address(addresses: Iterable[object]) -> str:
    """Return the alphabetically first address, since a status may list them in any order; empty for none.

    An address that each machine has for itself, such as a loopback one, does not count.
    """
    return min((str(one) for one in addresses if one and not _is_local_to_machine(str(one))), default="")


def _is_local_to_machine(text: str) -> bool:
    address = parse_ip_address(text)
    if address is None:
        return text.lower() == "localhost"
    return address.is_loopback or address.is_unspecified or address.is_link_local


def host_problem(host: str, domain: str, via: str) -> Problem | None:
    """Return why callers must not be given a host name: only the cluster, or one machine, would resolve it.

    :param domain: the cluster's DNS domain.
    """
    name = host.lower().rstrip(".")
    why = ""
    if parse_ip_address(name) is not None or describe_ambiguous_address(name):
        why = "an IP address"
    elif any(f".{name}".endswith(f".{one}") for one in ("svc", "localhost", domain.lower())):
        why = "a name of the cluster itself, or of each machine"
    elif "." not in name:
        why = "a name without a domain, which callers in the cluster take for a Service of their namespace"
    if not why:
        return None
    return no_address_problem(
        f"{via} has the host {host}, which is {why}", "give it a host name that all callers resolve alike"
    )
