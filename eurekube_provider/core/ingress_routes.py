"""Routes to a Service through Ingresses: rules that send all paths of one host to the Service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eurekube_provider.core.objects import Object, qualified_name
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routes import (
    RouteCandidate,
    TargetService,
    alphabetically_first_nonlocal_address,
    deletion_problem,
    host_problem,
    is_acme_challenge_path,
    no_address_problem,
)

PLAIN_PORT, SECURE_PORT = 80, 443
"""The ports at which an Ingress is called by http and by https (networking.k8s.io/v1)."""


def ingress_route_candidates(
    target: TargetService, ingresses: Sequence[Object], domain: str
) -> Iterator[RouteCandidate]:
    """Yield one candidate for each rule with a host whose path ``/`` leads to a Service.

    :param ingresses: all that were read; those of other namespaces lead to no Service of this one, but may
        have its host.
    :param domain: the cluster's DNS domain.
    """
    for ingress in ingresses:
        if ingress["metadata"]["namespace"] != target.namespace:
            continue
        via = f"Ingress {qualified_name(ingress)}"
        for host in sorted(
            {host for host, path in _hosts_and_paths(ingress) if _sends_all_paths_to(path, target)}
        ):
            problem = deletion_problem(via, ingress)
            if problem is not None:
                yield RouteCandidate("", via, problem=problem)
                continue
            if not host or host.startswith("*"):
                problem = no_address_problem(
                    f"{via} sends {host or 'each host'} to Service {target.qualified_name}, and callers "
                    "need one host name",
                    "give the rule a host without *",
                )
                yield RouteCandidate("", via, problem=problem)
                continue
            is_secure = _has_tls(ingress, host)
            port = SECURE_PORT if is_secure else PLAIN_PORT
            address = _ingress_address(ingress, port)
            problem = host_problem(host, domain, via) or _shared_host_problem(host, target, ingresses)
            is_problem_temporary = problem is None and not address
            if is_problem_temporary:
                problem = no_address_problem(
                    f"{via} has no address for port {port} in its status",
                    "wait for the Ingress controller; if none comes, see why with kubectl describe ingress",
                )
            yield RouteCandidate(host, via, address, port, is_secure, problem, is_problem_temporary)


def no_ingress_problem(target: TargetService) -> Problem:
    """Return the problem that no Ingress leads to a Service."""
    return no_address_problem(
        f"no Ingress of namespace {target.namespace} sends the path / of a host to {target.description}",
        "add a rule with a host, the path / and the pathType Prefix; or take another spec.advertise",
    )


def _shared_host_problem(host: str, target: TargetService, ingresses: Iterable[Object]) -> Problem | None:
    """Return the problem that some path of a host leads elsewhere; None where all lead to one Service."""
    for ingress in ingresses:
        for other_host, path in _hosts_and_paths(ingress):
            written = str(path.get("path") or "/")
            if other_host != host or is_acme_challenge_path(written):
                continue
            if ingress["metadata"]["namespace"] != target.namespace or not _sends_path_to(path, target):
                return no_address_problem(
                    f"Ingress {qualified_name(ingress)} sends {written} of {host} to "
                    f"{_describe_backend(path)}: who"
                    " calls that path of the application would come there",
                    f"give Service {target.qualified_name} a host name of its own",
                )
    return None


def _hosts_and_paths(ingress: Object) -> Iterator[tuple[str, Object]]:
    """Yield the host and each path of the rules; the host is empty where a rule has none."""
    for rule in (ingress.get("spec") or {}).get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            yield str(rule.get("host") or ""), path


def _sends_all_paths_to(path: Object, target: TargetService) -> bool:
    """Return whether a path includes all others, and leads to a Service.

    Each controller has a meaning of its own for the path type ``ImplementationSpecific``.
    """
    return (path.get("pathType"), path.get("path")) == ("Prefix", "/") and _sends_path_to(path, target)


def _sends_path_to(path: Object, target: TargetService) -> bool:
    service = _backend_service(path)
    port = service.get("port") or {}
    return service.get("name") == target.name and target.has_port(port.get("number") or port.get("name"))


def _backend_service(path: Object) -> Any:
    return (path.get("backend") or {}).get("service") or {}


def _describe_backend(path: Object) -> str:
    service = _backend_service(path)
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


def _ingress_address(ingress: Object, port: int) -> str:
    """Return the address in the status for a port; one that lists ports must list it, without an error."""
    given = ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return alphabetically_first_nonlocal_address(
        one.get("ip") or one.get("hostname")
        for one in given
        if not one.get("ports")
        or any(each.get("port") == port and not each.get("error") for each in one["ports"])
    )
