"""Ways to a Service by Gateways: an HTTPRoute that sends all paths of one host there.

The rules are those of the Gateway API (gateway.networking.k8s.io/v1): a listener serves a host if it is the
most specific one of its port, and the rules of all HTTPRoutes with that host apply together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eurekube_provider.core.objects import Object, qualified
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routes import (
    Routes,
    Target,
    Way,
    first_address,
    host_problem,
    is_challenge,
    no_address,
)

GROUP = "gateway.networking.k8s.io"

_LEADING_AWAY = ("RequestRedirect", "URLRewrite", "ExtensionRef")
"""Filters after which a request comes to another host or path than the one that was called, or may."""

_PUBLIC_PORTS = {"HTTP": 80, "HTTPS": 443}
"""The ports at which listeners are called from outside. Some controllers write the ports of their own pods
into listeners with other numbers.
"""


def gateway_ways(target: Target, routes: Routes, domain: str) -> Iterator[Way]:
    """Yield the ways by HTTPRoutes of a Service's namespace with a rule for all paths that leads there.

    :param domain: the cluster's DNS domain.
    """
    gateways = {qualified(one): one for one in routes.gateways}
    for route in routes.http_routes:
        if route["metadata"]["namespace"] != target.namespace:
            continue
        if not any(_is_for_all_paths(rule) and _leads_to(rule, target) for rule in _rules(route)):
            continue
        for parent in _parents(route):
            via = f"HTTPRoute {qualified(route)}"
            place = _gateway_of(route, parent)
            gateway = gateways.get(place)
            problem = _unread(place, routes) if gateway is None else _unaccepted(route, parent, place)
            if gateway is None or problem is not None:
                yield Way("", via, problem=problem, may_pass=True)
            else:
                yield from _by_gateway(target, route, parent, gateway, routes, domain)


def no_http_route(target: Target) -> Problem:
    """Return the problem that no HTTPRoute leads to a Service."""
    return no_address(
        f"no HTTPRoute of namespace {target.namespace} has a rule that sends all paths to {target.described}"
        " alone",
        "add a rule with the match PathPrefix / and this Service as its only backend, without a filter that"
        " redirects or rewrites; or take another spec.advertise",
    )


def _by_gateway(
    target: Target, route: Object, parent: Object, gateway: Object, routes: Routes, domain: str
) -> Iterator[Way]:
    """Yield the ways by the listeners of a Gateway that a route is attached to."""
    via = f"HTTPRoute {qualified(route)} at Gateway {qualified(gateway)}"
    address = first_address(
        one.get("value")
        for one in (gateway.get("status") or {}).get("addresses") or ()
        if one.get("type", "IPAddress") in ("IPAddress", "Hostname")
    )
    problem = _unprogrammed(gateway, address)
    if problem is not None:
        yield Way("", via, problem=problem, may_pass=True)
        return
    beside = _at_same_address(gateway, routes)
    listeners = [one for one in _listeners(gateway) if _may_attach(route, parent, gateway, one)]
    hosts = {(host, one["name"]): one for one in listeners for host in _hosts(route, one)}
    for (host, name), listener in hosts.items():
        if not host or host.startswith("*"):
            continue
        is_secure = listener.get("protocol") == "HTTPS"
        problem = (
            host_problem(host, domain, via)
            or _unfit_listener(gateway, listener)
            or _other_listener(gateway, listener, host, beside)
            or _shared_host(host, target, listener, routes, beside)
        )
        unserved = _unserved_listener(gateway, listener) if problem is None else None
        yield Way(
            host,
            f"{via}, listener {name}",
            address,
            int(listener["port"]),
            is_secure,
            problem or unserved,
            may_pass=unserved is not None,
        )
    if not any(host and not host.startswith("*") for host, _ in hosts):
        yield Way(
            "",
            via,
            problem=no_address(
                f"{via} has no host name without * that a listener serves, and callers need one",
                "name the host in spec.hostnames of the HTTPRoute, and the listener in sectionName",
            ),
        )


def _unread(place: str, routes: Routes) -> Problem:
    """Return the problem that a Gateway is not known."""
    namespace, _, name = place.partition("/")
    if routes.has_read(namespace):
        return no_address(f"there is no Gateway {place}", f"create the Gateway {name}, or correct parentRefs")
    return no_address(
        f"Gateway {place} is in a namespace that this operator does not read",
        f"add {namespace} to --watch-namespace, or take a Gateway of a namespace that is watched",
    )


def _unaccepted(route: Object, parent: Object, place: str) -> Problem | None:
    """Return the problem that a Gateway does not serve a route as it stands; None where it does."""
    written = (route.get("status") or {}).get("parents") or ()
    of_parent = [
        one
        for one in written
        if _gateway_of(route, one["parentRef"]) == place
        and all(one["parentRef"].get(key) == parent.get(key) for key in ("sectionName", "port"))
    ]
    generation = route["metadata"].get("generation", 0)
    for one in of_parent:
        conditions = _conditions(one)
        is_served = _is(conditions, "Accepted", "True", generation)
        is_whole = not _is(conditions, "PartiallyInvalid", "True")
        if is_served and is_whole and not _is(conditions, "ResolvedRefs", "False"):
            return None
    return no_address(
        f"Gateway {place} has not accepted HTTPRoute {qualified(route)} as it stands (conditions Accepted,"
        " ResolvedRefs and PartiallyInvalid)",
        "wait for the Gateway's controller; if it stays, see why with kubectl describe httproute",
    )


def _unprogrammed(gateway: Object, address: str) -> Problem | None:
    generation = gateway["metadata"].get("generation", 0)
    if not _is(_conditions(gateway.get("status") or {}), "Programmed", "True", generation):
        missing = "is not Programmed as it stands"
    elif not address:
        missing = "has no address in its status"
    else:
        return None
    return no_address(
        f"Gateway {qualified(gateway)} {missing}",
        "wait for its controller; if it stays, see why with kubectl describe gateway",
    )


def _unfit_listener(gateway: Object, listener: Object) -> Problem | None:
    """Return the problem that a listener cannot be called by plain http or by https."""
    via = f"listener {listener['name']} of Gateway {qualified(gateway)}"
    mode = (listener.get("tls") or {}).get("mode") or "Terminate"
    if listener.get("protocol") not in ("HTTP", "HTTPS") or mode != "Terminate":
        return no_address(
            f"the {via} has the protocol {listener.get('protocol')} and the TLS mode {mode}: callers need"
            " HTTP, or HTTPS that ends at the Gateway",
            "attach the HTTPRoute to another listener, by sectionName",
        )
    if listener.get("port") != _PUBLIC_PORTS[listener["protocol"]]:
        return no_address(
            f"the {via} has the port {listener.get('port')}, which may be one of its controller's own pods",
            f"attach the HTTPRoute to a listener with the port {_PUBLIC_PORTS[listener['protocol']]}",
        )
    own = ((gateway.get("spec") or {}).get("allowedListeners") or {}).get("namespaces") or {}
    if own.get("from", "None") != "None":
        return no_address(
            f"Gateway {qualified(gateway)} takes further listeners from ListenerSets, which are not read",
            "attach the HTTPRoute to a Gateway without spec.allowedListeners",
        )
    return None


def _unserved_listener(gateway: Object, listener: Object) -> Problem | None:
    """Return the problem that a Gateway does not serve a listener at this moment."""
    via = f"listener {listener['name']} of Gateway {qualified(gateway)}"
    written = (gateway.get("status") or {}).get("listeners") or ()
    conditions = next((_conditions(one) for one in written if one.get("name") == listener["name"]), {})
    if any(_is(conditions, each, "False") for each in ("Accepted", "Programmed", "ResolvedRefs")):
        return no_address(
            f"the {via} is not served (conditions Accepted, Programmed and ResolvedRefs in its status)",
            "see why with kubectl describe gateway, such as a certificate that is not there",
        )
    return None


def _addresses(gateway: Object) -> set[str]:
    """Return the addresses in a Gateway's status."""
    written = (gateway.get("status") or {}).get("addresses") or ()
    return {str(one["value"]) for one in written if one.get("value")}


def _at_same_address(gateway: Object, routes: Routes) -> list[Object]:
    """Return the Gateways that share an address with one, and itself: a proxy may serve several."""
    ours = _addresses(gateway)
    return [one for one in routes.gateways if one is gateway or ours & _addresses(one)]


def _other_listener(gateway: Object, listener: Object, host: str, beside: Iterable[Object]) -> Problem | None:
    """Return the problem that a host's requests come to another listener of the same port, which has a more
    specific host name.

    :param beside: the Gateways at the same address.
    """
    ours = _specificity(listener)
    for each in beside:
        for other in _listeners(each):
            is_nearer = other["port"] == listener["port"] and _specificity(other) > ours
            if is_nearer and _serves(str(other["hostname"]), host):
                return no_address(
                    f"the listener {other['name']} of Gateway {qualified(each)} takes {host}, and the"
                    f" HTTPRoute is at the listener {listener['name']} of {qualified(gateway)}",
                    f"attach the HTTPRoute to {other['name']}",
                )
    return None


def _shared_host(
    host: str, target: Target, listener: Object, routes: Routes, beside: Iterable[Object]
) -> Problem | None:
    """Return the problem that some path of a host leads elsewhere at a port; None where all lead to one
    Service.

    :param beside: the Gateways at the same address.
    """
    at_port = [(each, one) for each in beside for one in _listeners(each) if one["port"] == listener["port"]]
    for route in routes.http_routes:
        if not any(_may_serve(route, host, *place) for place in at_port):
            continue
        for rule in _rules(route):
            path = _path_of(rule)
            if path and not _leads_to(rule, target, route):
                return no_address(
                    f"HTTPRoute {qualified(route)} sends {path} of {host} elsewhere than to Service"
                    f" {target.qualified} alone: who calls that path of the application would come there",
                    f"give Service {target.qualified} a host name of its own",
                )
    return None


def _may_serve(route: Object, host: str, gateway: Object, listener: Object) -> bool:
    """Return whether a route may serve a host at a listener; not where the listener takes routes of its own
    namespace alone.
    """
    source = ((listener.get("allowedRoutes") or {}).get("namespaces") or {}).get("from") or "Same"
    is_near = route["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    return (
        (is_near or source != "Same")
        and any(
            _gateway_of(route, one) == qualified(gateway) and _refers_to(one, listener)
            for one in _parents(route)
        )
        and host in _hosts(route, listener)
    )


def _rules(route: Object) -> Iterable[Object]:
    found: Iterable[Object] = (route.get("spec") or {}).get("rules") or ()
    return found


def _parents(route: Object) -> Iterator[Object]:
    """Yield the references of a route to Gateways."""
    for one in (route.get("spec") or {}).get("parentRefs") or ():
        if one.get("group", GROUP) == GROUP and one.get("kind", "Gateway") == "Gateway":
            yield one


def _gateway_of(route: Object, parent: Object) -> str:
    return f"{parent.get('namespace') or route['metadata']['namespace']}/{parent['name']}"


def _listeners(gateway: Object) -> Iterable[Object]:
    found: Iterable[Object] = (gateway.get("spec") or {}).get("listeners") or ()
    return found


def _refers_to(parent: Object, listener: Object) -> bool:
    """Return whether a reference to a Gateway means a listener; without a name and a port it means all."""
    return parent.get("sectionName") in (None, listener["name"]) and parent.get("port") in (
        None,
        listener["port"],
    )


def _may_attach(route: Object, parent: Object, gateway: Object, listener: Object) -> bool:
    """Return whether a route that the Gateway accepted is attached to a listener beyond doubt."""
    if not _refers_to(parent, listener):
        return False
    allowed = listener.get("allowedRoutes") or {}
    kinds = allowed.get("kinds") or ()
    if kinds and not any(one.get("kind") == "HTTPRoute" for one in kinds):
        return False
    source = (allowed.get("namespaces") or {}).get("from") or "Same"
    if source in ("All", "Same"):
        return source == "All" or route["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    # By labels of the namespace, which are not read: the one listener that is meant has accepted the route.
    return len([one for one in _listeners(gateway) if _refers_to(parent, one)]) == 1


def _hosts(route: Object, listener: Object) -> list[str]:
    """Return the host names of a route at a listener, which may have a wildcard; the listener's own where the
    route has none.
    """
    served = str(listener.get("hostname") or "")
    named = [str(one) for one in (route.get("spec") or {}).get("hostnames") or ()]
    if not served or not named:
        return named or [served]
    included = [one for one in named if _serves(served, one)]
    return [*included, *([served] if any(_serves(one, served) for one in named) else [])]


def _serves(served: str, host: str) -> bool:
    """Return whether a host name includes another one; a wildcard stands for one label or more."""
    return served == host or (served.startswith("*.") and host.endswith(served[1:]))


def _specificity(listener: Object) -> tuple[bool, int]:
    """Return the sort key of a listener's host name: a name comes after a wildcard, a longer one after a
    shorter one.
    """
    name = str(listener.get("hostname") or "")
    return bool(name) and not name.startswith("*"), len(name)


def _is_for_all_paths(rule: Object) -> bool:
    """Return whether a rule matches each request."""
    return not rule.get("matches") or any(
        _path(match) == ("PathPrefix", "/")
        and not any(match.get(one) for one in ("headers", "queryParams", "method"))
        for match in rule["matches"]
    )


def _path(match: Object) -> tuple[str, str]:
    path = match.get("path") or {}
    return path.get("type") or "PathPrefix", path.get("value") or "/"


def _path_of(rule: Object) -> str:
    """Return a path of a rule that callers of an application may call; empty where only an ACME client calls
    them.
    """
    paths = [_path(match) for match in rule.get("matches") or ()] or [("PathPrefix", "/")]
    return next((one for kind, one in paths if kind == "RegularExpression" or not is_challenge(one)), "")


def _leads_to(rule: Object, target: Target, route: Object | None = None) -> bool:
    """Return whether all requests that a rule matches come to one Service, as they were sent.

    :param route: the route of the rule; None for one of the Service's own namespace.
    """
    namespace = route["metadata"]["namespace"] if route is not None else target.namespace
    backends = [one for one in rule.get("backendRefs") or () if one.get("weight", 1) != 0]
    filters = [*(rule.get("filters") or ()), *(each for one in backends for each in one.get("filters") or ())]
    return (
        len(backends) == 1
        and _is_backend(backends[0], namespace, target)
        and not any(one.get("type") in _LEADING_AWAY for one in filters)
    )


def _is_backend(backend: Object, namespace: str, target: Target) -> bool:
    return (
        not backend.get("group")
        and backend.get("kind", "Service") == "Service"
        and (backend.get("namespace") or namespace) == target.namespace
        and backend.get("name") == target.name
        and target.is_port(backend.get("port"))
    )


def _conditions(item: Object) -> dict[str, Mapping[str, Any]]:
    return {one["type"]: one for one in item.get("conditions") or ()}


def _is(
    conditions: Mapping[str, Mapping[str, Any]], name: str, status: str, generation: int | None = None
) -> bool:
    """Return whether a condition has a status; with ``generation``, only as it was seen of that or later."""
    found = conditions.get(name, {})
    is_current = generation is None or found.get("observedGeneration", generation) >= generation
    return found.get("status") == status and is_current
