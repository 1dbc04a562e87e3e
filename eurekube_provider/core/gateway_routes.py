"""Routes to a Service through Gateways: HTTPRoutes that send all paths of one host to the Service.

The rules are those of the Gateway API (gateway.networking.k8s.io/v1): a listener serves a host if it is the
most specific one of its port, and the rules of all HTTPRoutes with that host apply together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eurekube_provider.core.objects import Object, qualified_name
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routes import (
    RouteCandidate,
    Routes,
    TargetService,
    alphabetically_first_nonlocal_address,
    deletion_problem,
    host_problem,
    is_acme_challenge_path,
    no_address_problem,
)

GATEWAY_API_GROUP = "gateway.networking.k8s.io"

_REDIRECTING_FILTER_TYPES = ("RequestRedirect", "URLRewrite", "ExtensionRef")
"""Filters that send, or may send, a request to another host or path than the called one."""

_PUBLIC_PORT_BY_PROTOCOL = {"HTTP": 80, "HTTPS": 443}
"""The ports at which listeners are called from outside. Some controllers write the ports of their own pods
into listeners with other numbers.
"""


def gateway_route_candidates(target: TargetService, routes: Routes, domain: str) -> Iterator[RouteCandidate]:
    """Yield the candidates through HTTPRoutes of the Service's namespace with a rule for all paths to it.

    :param domain: the cluster's DNS domain.
    """
    gateways = {qualified_name(one): one for one in routes.gateways}
    for route in routes.http_routes:
        if route["metadata"]["namespace"] != target.namespace:
            continue
        if not any(
            _matches_every_request(rule) and _sends_all_requests_to(rule, target)
            for rule in _route_rules(route)
        ):
            continue
        for parent in _gateway_references(route):
            via = f"HTTPRoute {qualified_name(route)}"
            place = _qualified_gateway_name(route, parent)
            gateway = gateways.get(place)
            problem = (
                _unknown_gateway_problem(place, routes)
                if gateway is None
                else _unaccepted_route_problem(route, parent, place)
            )
            going = deletion_problem(f"{via} at Gateway {place}", route, *([gateway] if gateway else []))
            if going is not None:
                yield RouteCandidate("", via, problem=going)
            elif gateway is None or problem is not None:
                yield RouteCandidate("", via, problem=problem, is_problem_temporary=True)
            else:
                yield from _candidates_at_gateway(target, route, parent, gateway, routes, domain)


def no_http_route_problem(target: TargetService) -> Problem:
    """Return the problem that no HTTPRoute leads to a Service."""
    return no_address_problem(
        f"no HTTPRoute of namespace {target.namespace} has a rule that sends all paths to "
        f"{target.description}"
        " alone",
        "add a rule with the match PathPrefix / and this Service as its only backend, without a filter that"
        " redirects or rewrites; or take another spec.advertise",
    )


def _candidates_at_gateway(
    target: TargetService, route: Object, parent: Object, gateway: Object, routes: Routes, domain: str
) -> Iterator[RouteCandidate]:
    via = f"HTTPRoute {qualified_name(route)} at Gateway {qualified_name(gateway)}"
    address = alphabetically_first_nonlocal_address(
        one.get("value")
        for one in (gateway.get("status") or {}).get("addresses") or ()
        if one.get("type", "IPAddress") in ("IPAddress", "Hostname")
    )
    problem = _unprogrammed_gateway_problem(gateway, address)
    if problem is not None:
        yield RouteCandidate("", via, problem=problem, is_problem_temporary=True)
        return
    gateways_at_address = _gateways_at_same_address(gateway, routes)
    listeners = [
        one for one in _gateway_listeners(gateway) if _is_surely_attached(route, parent, gateway, one)
    ]
    hosts = {(host, one["name"]): one for one in listeners for host in _route_hosts_at_listener(route, one)}
    for (host, name), listener in hosts.items():
        if not host or host.startswith("*"):
            continue
        is_secure = listener.get("protocol") == "HTTPS"
        problem = (
            host_problem(host, domain, via)
            or _uncallable_listener_problem(gateway, listener)
            or _competing_listener_problem(gateway, listener, host, gateways_at_address)
            or _shared_host_problem(host, target, listener, routes, gateways_at_address)
        )
        unserved = _unserved_listener_problem(gateway, listener) if problem is None else None
        yield RouteCandidate(
            host,
            f"{via}, listener {name}",
            address,
            int(listener["port"]),
            is_secure,
            problem or unserved,
            is_problem_temporary=unserved is not None,
        )
    if not any(host and not host.startswith("*") for host, _ in hosts):
        yield RouteCandidate(
            "",
            via,
            problem=no_address_problem(
                f"{via} has no host name without * that a listener serves, and callers need one",
                "name the host in spec.hostnames of the HTTPRoute, and the listener in sectionName",
            ),
        )


def _unknown_gateway_problem(place: str, routes: Routes) -> Problem:
    namespace, _, name = place.partition("/")
    if routes.was_namespace_read(namespace):
        return no_address_problem(
            f"there is no Gateway {place}", f"create the Gateway {name}, or correct parentRefs"
        )
    return no_address_problem(
        f"Gateway {place} is in a namespace that this operator does not read",
        f"add {namespace} to --watch-namespace, or take a Gateway of a namespace that is watched",
    )


def _unaccepted_route_problem(route: Object, parent: Object, place: str) -> Problem | None:
    """Return the problem that a Gateway does not serve a route as it stands; None where it does."""
    written = (route.get("status") or {}).get("parents") or ()
    of_parent = [
        one
        for one in written
        if _qualified_gateway_name(route, one["parentRef"]) == place
        and all(one["parentRef"].get(key) == parent.get(key) for key in ("sectionName", "port"))
    ]
    generation = route["metadata"].get("generation", 0)
    for one in of_parent:
        is_served = _has_condition_status(one, "Accepted", "True", generation)
        is_whole = not _has_condition_status(one, "PartiallyInvalid", "True")
        if is_served and is_whole and not _has_condition_status(one, "ResolvedRefs", "False"):
            return None
    return no_address_problem(
        f"Gateway {place} has not accepted HTTPRoute {qualified_name(route)} as it stands (conditions "
        "Accepted, ResolvedRefs and PartiallyInvalid)",
        "wait for the Gateway's controller; if it stays, see why with kubectl describe httproute",
    )


def _unprogrammed_gateway_problem(gateway: Object, address: str) -> Problem | None:
    generation = gateway["metadata"].get("generation", 0)
    if not _has_condition_status(gateway.get("status") or {}, "Programmed", "True", generation):
        missing = "is not Programmed as it stands"
    elif not address:
        missing = "has no address in its status"
    else:
        return None
    return no_address_problem(
        f"Gateway {qualified_name(gateway)} {missing}",
        "wait for its controller; if it stays, see why with kubectl describe gateway",
    )


def _uncallable_listener_problem(gateway: Object, listener: Object) -> Problem | None:
    """Return the problem that a listener cannot be called by plain http or by https; None where it can."""
    via = f"listener {listener['name']} of Gateway {qualified_name(gateway)}"
    mode = (listener.get("tls") or {}).get("mode") or "Terminate"
    if listener.get("protocol") not in ("HTTP", "HTTPS") or mode != "Terminate":
        return no_address_problem(
            f"the {via} has the protocol {listener.get('protocol')} and the TLS mode {mode}: callers need"
            " HTTP, or HTTPS that ends at the Gateway",
            "attach the HTTPRoute to another listener, by sectionName",
        )
    if listener.get("port") != _PUBLIC_PORT_BY_PROTOCOL[listener["protocol"]]:
        return no_address_problem(
            f"the {via} has the port {listener.get('port')}, which may be one of its controller's own pods",
            "attach the HTTPRoute to a listener with the port "
            f"{_PUBLIC_PORT_BY_PROTOCOL[listener['protocol']]}",
        )
    own = ((gateway.get("spec") or {}).get("allowedListeners") or {}).get("namespaces") or {}
    if own.get("from", "None") != "None":
        return no_address_problem(
            f"Gateway {qualified_name(gateway)} takes further listeners from ListenerSets, which are not "
            "read",
            "attach the HTTPRoute to a Gateway without spec.allowedListeners",
        )
    return None


def _unserved_listener_problem(gateway: Object, listener: Object) -> Problem | None:
    """Return the problem that a Gateway does not serve a listener at this moment; None where it does."""
    via = f"listener {listener['name']} of Gateway {qualified_name(gateway)}"
    written = (gateway.get("status") or {}).get("listeners") or ()
    status: Object = next((one for one in written if one.get("name") == listener["name"]), {})
    if any(
        _has_condition_status(status, each, "False") for each in ("Accepted", "Programmed", "ResolvedRefs")
    ):
        return no_address_problem(
            f"the {via} is not served (conditions Accepted, Programmed and ResolvedRefs in its status)",
            "see why with kubectl describe gateway, such as a certificate that is not there",
        )
    return None


def _gateway_addresses(gateway: Object) -> set[str]:
    written = (gateway.get("status") or {}).get("addresses") or ()
    return {str(one["value"]) for one in written if one.get("value")}


def _gateways_at_same_address(gateway: Object, routes: Routes) -> list[Object]:
    """Return a Gateway and all others that share an address with it: one proxy may serve several."""
    ours = _gateway_addresses(gateway)
    return [one for one in routes.gateways if one is gateway or ours & _gateway_addresses(one)]


def _competing_listener_problem(
    gateway: Object, listener: Object, host: str, gateways_at_address: Iterable[Object]
) -> Problem | None:
    """Return the problem that a host's requests come to another listener of the same port, which has a more
    specific host name; None where they do not.
    """
    ours = _host_specificity_sort_key(listener)
    for each in gateways_at_address:
        for other in _gateway_listeners(each):
            is_nearer = other["port"] == listener["port"] and _host_specificity_sort_key(other) > ours
            if is_nearer and _includes_host(str(other["hostname"]), host):
                return no_address_problem(
                    f"the listener {other['name']} of Gateway {qualified_name(each)} takes {host}, and the"
                    f" HTTPRoute is at the listener {listener['name']} of {qualified_name(gateway)}",
                    f"attach the HTTPRoute to {other['name']}",
                )
    return None


def _shared_host_problem(
    host: str, target: TargetService, listener: Object, routes: Routes, gateways_at_address: Iterable[Object]
) -> Problem | None:
    """Return the problem that some path of a host leads elsewhere at a port; None where all lead to one
    Service.
    """
    at_port = [
        (each, one)
        for each in gateways_at_address
        for one in _gateway_listeners(each)
        if one["port"] == listener["port"]
    ]
    for route in routes.http_routes:
        if not any(_may_serve_host(route, host, *place) for place in at_port):
            continue
        for rule in _route_rules(route):
            path = _first_callable_path(rule)
            if path and not _sends_all_requests_to(rule, target, route):
                return no_address_problem(
                    f"HTTPRoute {qualified_name(route)} sends {path} of {host} elsewhere than to Service "
                    f"{target.qualified_name} alone: who calls that path of the application would come there",
                    f"give Service {target.qualified_name} a host name of its own",
                )
    return None


def _may_serve_host(route: Object, host: str, gateway: Object, listener: Object) -> bool:
    """Return whether a listener may take a route for a host, by its namespace, parents and host names."""
    source = ((listener.get("allowedRoutes") or {}).get("namespaces") or {}).get("from") or "Same"
    is_near = route["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    return (
        (is_near or source != "Same")
        and any(
            _qualified_gateway_name(route, one) == qualified_name(gateway)
            and _refers_to_listener(one, listener)
            for one in _gateway_references(route)
        )
        and host in _route_hosts_at_listener(route, listener)
    )


def _route_rules(route: Object) -> Iterable[Object]:
    found: Iterable[Object] = (route.get("spec") or {}).get("rules") or ()
    return found


def _gateway_references(route: Object) -> Iterator[Object]:
    for one in (route.get("spec") or {}).get("parentRefs") or ():
        if (
            one.get("group", GATEWAY_API_GROUP) == GATEWAY_API_GROUP
            and one.get("kind", "Gateway") == "Gateway"
        ):
            yield one


def _qualified_gateway_name(route: Object, parent: Object) -> str:
    return f"{parent.get('namespace') or route['metadata']['namespace']}/{parent['name']}"


def _gateway_listeners(gateway: Object) -> Iterable[Object]:
    found: Iterable[Object] = (gateway.get("spec") or {}).get("listeners") or ()
    return found


def _refers_to_listener(parent: Object, listener: Object) -> bool:
    """Return whether a reference to a Gateway means a listener; without a name and a port it means all."""
    return parent.get("sectionName") in (None, listener["name"]) and parent.get("port") in (
        None,
        listener["port"],
    )


def _is_surely_attached(route: Object, parent: Object, gateway: Object, listener: Object) -> bool:
    """Return whether a route that the Gateway accepted is attached to a listener beyond doubt."""
    if not _refers_to_listener(parent, listener):
        return False
    allowed = listener.get("allowedRoutes") or {}
    kinds = allowed.get("kinds") or ()
    if kinds and not any(one.get("kind") == "HTTPRoute" for one in kinds):
        return False
    source = (allowed.get("namespaces") or {}).get("from") or "Same"
    if source in ("All", "Same"):
        return source == "All" or route["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    # By labels of the namespace, which are not read: the one listener that is meant has accepted the route.
    return len([one for one in _gateway_listeners(gateway) if _refers_to_listener(parent, one)]) == 1


def _route_hosts_at_listener(route: Object, listener: Object) -> list[str]:
    """Return the host names of a route at a listener, which may have a wildcard; the listener's own where the
    route has none.
    """
    served = str(listener.get("hostname") or "")
    named = [str(one) for one in (route.get("spec") or {}).get("hostnames") or ()]
    if not served or not named:
        return named or [served]
    included = [one for one in named if _includes_host(served, one)]
    return [*included, *([served] if any(_includes_host(one, served) for one in named) else [])]


def _includes_host(served: str, host: str) -> bool:
    """Return whether a host name includes another one; a wildcard stands for one label or more."""
    return served == host or (served.startswith("*.") and host.endswith(served[1:]))


def _host_specificity_sort_key(listener: Object) -> tuple[bool, int]:
    """Return the sort key of a listener's host name: wildcards first, then names, the longer ones later."""
    name = str(listener.get("hostname") or "")
    return bool(name) and not name.startswith("*"), len(name)


def _matches_every_request(rule: Object) -> bool:
    return not rule.get("matches") or any(
        _path_type_and_value(match) == ("PathPrefix", "/")
        and not any(match.get(one) for one in ("headers", "queryParams", "method"))
        for match in rule["matches"]
    )


def _path_type_and_value(match: Object) -> tuple[str, str]:
    """Return the type and the value of a match's path, by default the prefix ``/``."""
    path = match.get("path") or {}
    return path.get("type") or "PathPrefix", path.get("value") or "/"


def _first_callable_path(rule: Object) -> str:
    """Return the first path of a rule that callers of an application may call; empty if only ACME clients
    call the rule's paths.
    """
    paths = [_path_type_and_value(match) for match in rule.get("matches") or ()] or [("PathPrefix", "/")]
    return next(
        (one for kind, one in paths if kind == "RegularExpression" or not is_acme_challenge_path(one)), ""
    )


def _sends_all_requests_to(rule: Object, target: TargetService, route: Object | None = None) -> bool:
    """Return whether all requests that a rule matches come to one Service, as they were sent.

    :param route: the route of the rule; None for one of the Service's own namespace.
    """
    namespace = route["metadata"]["namespace"] if route is not None else target.namespace
    backends = [one for one in rule.get("backendRefs") or () if one.get("weight", 1) != 0]
    filters = [*(rule.get("filters") or ()), *(each for one in backends for each in one.get("filters") or ())]
    return (
        len(backends) == 1
        and _is_target_backend(backends[0], namespace, target)
        and not any(one.get("type") in _REDIRECTING_FILTER_TYPES for one in filters)
    )


def _is_target_backend(backend: Object, namespace: str, target: TargetService) -> bool:
    return (
        not backend.get("group")
        and backend.get("kind", "Service") == "Service"
        and (backend.get("namespace") or namespace) == target.namespace
        and backend.get("name") == target.name
        and target.has_port(backend.get("port"))
    )


def _has_condition_status(item: Object, name: str, status: str, generation: int | None = None) -> bool:
    """Return whether a condition has a status, observed at ``generation`` or later where that is given."""
    found: Object = next((one for one in item.get("conditions") or () if one["type"] == name), {})
    is_current = generation is None or found.get("observedGeneration", generation) >= generation
    return found.get("status") == status and is_current
