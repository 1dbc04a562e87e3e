"""Ways to a Service by Ingresses: a rule that sends all paths of one host there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eurekube_provider.core.objects import Object, qualified
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routes import (
    Target,
    Way,
    first_address,
    host_problem,
    is_challenge,
    no_address,
)

PLAIN_PORT, SECURE_PORT = 80, 443
"""The ports at which an Ingress is called by http and by https (networking.k8s.io/v1)."""


def ingress_ways(target: Target, ingresses: Sequence[Object], domain: str) -> Iterator[Way]:
    """Yield the ways by rules with a host whose path ``/`` leads to a Service.

    :param ingresses: all that were read; those of other namespaces lead to no Service of this one, but may
        have its host.
    :param domain: the cluster's DNS domain.
    """
    for ingress in ingresses:
        if ingress["metadata"]["namespace"] != target.namespace:
            continue
        via = f"Ingress {qualified(ingress)}"
        for host in sorted({host for host, path in _paths(ingress) if _leads_all(path, target)}):
            if not host or host.startswith("*"):
                problem: Problem | None = no_address(
                    f"{via} sends {host or 'each host'} to Service {target.qualified}, and callers need one"
                    " host name",
                    "give the rule a host without *",
                )
                yield Way("", via, problem=problem)
                continue
            is_secure = _has_tls(ingress, host)
            port = SECURE_PORT if is_secure else PLAIN_PORT
            address = _address(ingress, port)
            problem = host_problem(host, domain, via) or _shared_host(host, target, ingresses)
            may_pass = problem is None and not address
            if may_pass:
                problem = no_address(
                    f"{via} has no address for port {port} in its status",
                    "wait for the Ingress controller; if none comes, see why with kubectl describe ingress",
                )
            yield Way(host, via, address, port, is_secure, problem, may_pass)


def no_ingress(target: Target) -> Problem:
    """Return the problem that no Ingress leads to a Service."""
    return no_address(
        f"no Ingress of namespace {target.namespace} sends the path / of a host to {target.described}",
        "add a rule with a host, the path / and the pathType Prefix; or take another spec.advertise",
    )


def _shared_host(host: str, target: Target, ingresses: Iterable[Object]) -> Problem | None:
    """Return the problem that some path of a host leads elsewhere; None where all lead to one Service."""
    for ingress in ingresses:
        for other_host, path in _paths(ingress):
            written = str(path.get("path") or "/")
            if other_host != host or is_challenge(written):
                continue
            if ingress["metadata"]["namespace"] != target.namespace or not _leads_to(path, target):
                return no_address(
                    f"Ingress {qualified(ingress)} sends {written} of {host} to {_destination(path)}: who"
                    " calls that path of the application would come there",
                    f"give Service {target.qualified} a host name of its own",
                )
    return None


def _paths(ingress: Object) -> Iterator[tuple[str, Object]]:
    """Yield the host and each path of the rules; the host is empty where a rule has none."""
    for rule in (ingress.get("spec") or {}).get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            yield str(rule.get("host") or ""), path


def _leads_all(path: Object, target: Target) -> bool:
    """Return whether a path includes all others, and leads to a Service.

    Each controller has a meaning of its own for the path type ``ImplementationSpecific``.
    """
    return (path.get("pathType"), path.get("path")) == ("Prefix", "/") and _leads_to(path, target)


def _leads_to(path: Object, target: Target) -> bool:
    service = _service(path)
    port = service.get("port") or {}
    return service.get("name") == target.name and target.is_port(port.get("number") or port.get("name"))


def _service(path: Object) -> Any:
    return (path.get("backend") or {}).get("service") or {}


def _destination(path: Object) -> str:
    service = _service(path)
    port = service.get("port") or {}
    named = port.get("number") or port.get("name")
    return f"port {named} of Service {service['name']}" if service else "something that is no Service"


def _has_tls(ingress: Object, host: str) -> bool:
    """Return whether an Ingress serves a host by https; an entry without hosts stands for all of them."""
    above = f"*.{host.partition('.')[2]}"
    return any(
        not one.get("hosts") or host in one["hosts"] or above in one["hosts"]
        for one in (ingress.get("spec") or {}).get("tls") or ()
    )


def _address(ingress: Object, port: int) -> str:
    """Return the address in the status for a port; one that lists ports counts only if it lists this one,
    without an error.
    """
    given = ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return first_address(
        one.get("ip") or one.get("hostname")
        for one in given
        if not one.get("ports")
        or any(each.get("port") == port and not each.get("error") for each in one["ports"])
    )
