"""The host, address and ports that an Ingress or a Gateway gives to a Service, and why it gives none."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.addresses import Address
from eurekube_provider.core.mapping import DesiredInstances, desired_instances, registered_without_address
from eurekube_provider.core.model import Port, Status
from eurekube_provider.core.ports import Ports
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routed_addresses import routed_address
from eurekube_provider.core.routes import Routes
from eurekube_provider.core.syncer import Advertise, Mode, NotReady, Syncer
from eurekube_provider.operator.route_watches import trim_route
from tests.unit.core.test_mapping import CLUSTER, endpoint, endpoint_slice, service, syncer

Object = dict[str, Any]
HTTP: Object = {"name": "http", "port": 8080}
ADMIN: Object = {"name": "admin", "port": 9090}
HOST = "rating.example.com"
PLAIN = Ports(Port(80))
SECURE = Ports(Port(443, enabled=False), Port(443))
BALANCER: Object = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}


def path(
    name: str = "rating", port: object = 8080, at: str | None = "/", kind: str = "Prefix"
) -> tuple[str, Object]:
    """Return a path to a port of a Service, below the usual host."""
    key = "number" if isinstance(port, int) else "name"
    backend = {"service": {"name": name, "port": {key: port}}}
    return HOST, {"path": at, "pathType": kind, "backend": backend}


def at_host(host: str, rule: tuple[str, Object]) -> tuple[str, Object]:
    """Return the path below another host; empty for none."""
    return host, rule[1]


def ingress(
    *paths: tuple[str, Object],
    name: str = "web",
    namespace: str = "shop",
    status: Object = BALANCER,
    tls: list[Object] | None = None,
) -> Object:
    """Return an Ingress with one rule for each path."""
    rules = [{"http": {"paths": [each]}, **({"host": host} if host else {})} for host, each in paths]
    spec = {"rules": rules, **({"tls": tls} if tls is not None else {})}
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": status}


def condition(name: str, status: str = "True", seen: int = 3) -> Object:
    """Return a condition of generation 3, which the objects here have."""
    return {"type": name, "status": status, "observedGeneration": seen, "message": "m", "reason": "r"}


ACCEPTED = (condition("Accepted"), condition("ResolvedRefs"))
OURS: Object = {"group": "", "kind": "Service", "name": "rating", "port": 8080, "weight": 1}
OTHER: Object = {"name": "other", "port": 8080}
ALL_PATHS: Object = {"backendRefs": [OURS]}


def rule_at(prefix: str, *backends: Object, kind: str = "PathPrefix", **more: Any) -> Object:
    """Return a rule for one path."""
    return {"matches": [{"path": {"type": kind, "value": prefix}}], "backendRefs": list(backends), **more}


def route(
    *rules: Object,
    name: str = "rating",
    namespace: str = "shop",
    hosts: list[str] | None = None,
    conditions: tuple[Object, ...] = ACCEPTED,
    gateway_in: str = "",
    **parent: Any,
) -> Object:
    """Return an HTTPRoute at the Gateway ``shop/public``, or at what ``parent`` says, with its status."""
    reference = {"name": "public", **({"namespace": gateway_in} if gateway_in else {}), **parent}
    spec: Object = {"parentRefs": [reference], "rules": list(rules or (ALL_PATHS,))}
    spec["hostnames"] = [HOST] if hosts is None else hosts
    written = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "shop", **reference}
    parents = [{"parentRef": written, "conditions": list(conditions)}]
    metadata = {"namespace": namespace, "name": name, "generation": 3}
    return {"metadata": metadata, "spec": spec, "status": {"parents": parents}}


def listener(name: str = "web", protocol: str = "HTTP", port: int = 80, **more: Any) -> Object:
    """Return a listener of a Gateway."""
    return {"name": name, "protocol": protocol, "port": port, **more}


def gateway(
    *listeners: Object,
    namespace: str = "shop",
    addresses: list[Object] | None = None,
    conditions: tuple[Object, ...] = (condition("Programmed"),),
    of_listeners: tuple[Object, ...] = (),
) -> Object:
    """Return the Gateway ``public`` with its status."""
    given = [{"type": "IPAddress", "value": "192.0.2.9"}] if addresses is None else addresses
    status = {"addresses": given, "conditions": list(conditions), "listeners": list(of_listeners)}
    metadata = {"namespace": namespace, "name": "public", "generation": 3}
    return {"metadata": metadata, "spec": {"listeners": list(listeners or (listener(),))}, "status": status}


def by_ingress(*ingresses: Object, **fields: Any) -> tuple[Address, Ports] | Problem:
    """Return what Ingresses give; trimmed ones must give the same."""
    wanted = syncer(Mode.SERVICE, advertise=Advertise.INGRESS, **fields)
    return found(wanted, Routes(ingresses=ingresses))


def by_gateway(
    *routes: Object, at: Object | None = None, namespaces: Any = None, **fields: Any
) -> tuple[Address, Ports] | Problem:
    """Return what HTTPRoutes at a Gateway give."""
    wanted = syncer(Mode.SERVICE, advertise=Advertise.GATEWAY, **fields)
    read = Routes(gateways=[at or gateway()], http_routes=routes, read_namespaces=namespaces)
    return found(wanted, read)


def found(wanted: Syncer, read: Routes) -> tuple[Address, Ports] | Problem:
    """Return the address for the Service ``rating``; objects as the operator keeps them give the same."""
    described = service(ports=[HTTP, ADMIN])
    answer = routed_address(wanted, described, read, "cluster.local")
    kept = replace(
        read,
        ingresses=[trim_route(one) for one in read.ingresses],
        gateways=[trim_route(one) for one in read.gateways],
        http_routes=[trim_route(one) for one in read.http_routes],
    )
    assert routed_address(wanted, described, kept, "cluster.local") == answer
    return answer


BY_HOST = Address(HOST, "192.0.2.7")
TLS: list[Object] = [{"hosts": [HOST], "secretName": "rating"}]


@pytest.mark.parametrize(
    ("ingresses", "address", "ports"),
    [
        ([ingress(path())], BY_HOST, PLAIN),
        ([ingress(path(port="http"))], BY_HOST, PLAIN),
        ([ingress(path(), path(at="/api"))], BY_HOST, PLAIN),
        ([ingress(path(), tls=TLS)], BY_HOST, SECURE),
        ([ingress(path(), tls=[{"hosts": ["*.example.com"]}])], BY_HOST, SECURE),
        ([ingress(path(), tls=[{"secretName": "any"}])], BY_HOST, SECURE),
        ([ingress(path(), tls=[{"hosts": ["*.com", "other.example.com"]}])], BY_HOST, PLAIN),
        ([ingress(path(), name="b", tls=TLS), ingress(path(), name="a")], BY_HOST, SECURE),
        (
            [
                ingress(at_host("b.example.com", path())),
                ingress(at_host("a.example.com", path()), at_host("a.example.com", path("other", at="/api"))),
            ],
            Address("b.example.com", "192.0.2.7"),
            PLAIN,
        ),
        (
            [
                ingress(
                    path(), status={"loadBalancer": {"ingress": [{"hostname": "z.lb"}, {"hostname": "a.lb"}]}}
                )
            ],
            Address(HOST, "a.lb"),
            PLAIN,
        ),
        ([ingress(path()), ingress(path("other", at="/.well-known/acme-challenge/x"))], BY_HOST, PLAIN),
        ([ingress(path()), ingress(at_host("*.example.com", path("other", at="/api")))], BY_HOST, PLAIN),
        ([ingress(path()), ingress(at_host("other.example.com", path("other")))], BY_HOST, PLAIN),
    ],
)
def test_an_ingress_that_gives_the_address(ingresses: list[Object], address: Address, ports: Ports) -> None:
    """The one host of which all paths lead to the Service; by https alone where there is TLS."""
    assert by_ingress(*ingresses) == (address, ports)
    assert by_ingress(*reversed(ingresses)) == (address, ports), "their order does not matter"


@pytest.mark.parametrize(
    ("ingresses", "words"),
    [
        ([], "no Ingress of namespace shop sends the path / of a host to port 8080 of Service shop/rating"),
        ([ingress(path(), namespace="bakery")], "no Ingress of namespace shop"),
        ([ingress(path(port=9090))], "no Ingress"),
        ([ingress(path(kind="Exact"))], "no Ingress"),
        ([ingress(path(at="/api"))], "no Ingress"),
        ([ingress(path(kind="ImplementationSpecific"))], "no Ingress"),
        ([ingress(path(at="/*", kind="ImplementationSpecific"))], "no Ingress"),
        (
            [ingress(at_host("b.example.com", path()), at_host("a.example.com", path()))],
            "several host names lead to it (a.example.com; b.example.com)",
        ),
        (
            [ingress(path(), name="b"), ingress(at_host("a.example.com", path()), status={}, tls=TLS)],
            "Ingress shop/web has no address for port 80 in its status",
        ),
        (
            [ingress(path(), name="b"), ingress(path(), tls=TLS, status={})],
            "has no address for port 443",
        ),
        (
            [
                ingress(path()),
                ingress(path("other", at="/.well-known/acme-challenge/|/.*", kind="ImplementationSpecific")),
            ],
            "sends /.well-known/acme-challenge/|/.* of",
        ),
        (
            [ingress(path(), status={"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}})],
            "has no address for port 80",
        ),
        (
            [ingress(path(), status={"loadBalancer": {"ingress": [{"hostname": "localhost"}]}})],
            "has no address for port 80",
        ),
        ([ingress(path("other"))], "no Ingress"),
        ([ingress(at_host("", path()))], "sends each host to Service shop/rating"),
        ([ingress(at_host("*.example.com", path()))], "sends *.example.com to Service shop/rating"),
        (
            [ingress(path(), path("other", at="/api"))],
            "sends /api of rating.example.com to port 8080 of Service other",
        ),
        ([ingress(path()), ingress(path("other", at="/api"), name="b")], "Ingress shop/b sends /api"),
        ([ingress(path()), ingress(path(at="/api"), namespace="bakery")], "Ingress bakery/web sends /api"),
        (
            [ingress(path(), path(port="admin", at="/admin"))],
            "sends /admin of rating.example.com to port admin",
        ),
        (
            [ingress(path(), (HOST, {"path": "/a", "backend": {"resource": {}}}))],
            "something that is no Service",
        ),
        ([ingress(path(), status={})], "has no address for port 80 in its status"),
        (
            [
                ingress(
                    path(),
                    tls=TLS,
                    status={"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ports": [{"port": 80}]}]}},
                )
            ],
            "has no address for port 443",
        ),
        (
            [
                ingress(
                    path(),
                    status={
                        "loadBalancer": {
                            "ingress": [{"ip": "192.0.2.7", "ports": [{"port": 80, "error": "Conflict"}]}]
                        }
                    },
                )
            ],
            "has no address for port 80",
        ),
        ([ingress(at_host("rating.shop.svc", path()))], "a name of the cluster itself"),
        ([ingress(at_host("rating.shop.svc.cluster.local", path()))], "a name of the cluster itself"),
        ([ingress(at_host("localhost", path()))], "a name of the cluster itself, or of each machine"),
        ([ingress(at_host("a.localhost", path()))], "or of each machine"),
        ([ingress(at_host("192.0.2.1", path()))], "an IP address"),
        ([ingress(at_host("127.1", path()))], "an IP address"),
        ([ingress(at_host("billing", path()))], "a name without a domain"),
    ],
)
def test_why_an_ingress_gives_none(ingresses: list[Object], words: str) -> None:
    """The problem is NoAddress, and names the object, the host and the remedy."""
    problem = by_ingress(*ingresses)
    assert isinstance(problem, Problem)
    assert (problem.reason, words in problem.message) == ("NoAddress", True), problem.message
    assert problem.remedy


def going(item: Object) -> Object:
    """Return an object whose deletion began, and waits for a finalizer such as a load balancer's."""
    return {**item, "metadata": {**item["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def test_a_way_that_is_being_deleted_gives_way_to_another() -> None:
    """An Ingress, an HTTPRoute or a Gateway whose deletion began is not chosen, and hides no other way; what
    is registered of it stays while there is no other.
    """
    old = going(ingress(at_host("old.example.com", path()), name="a"))
    assert by_ingress(old, ingress(path())) == by_ingress(ingress(path()))
    alone = by_ingress(old)
    assert isinstance(alone, Problem)
    assert "Ingress shop/a is being deleted" in alone.message
    new = route()
    former = going(route(name="former", hosts=["old.example.com"]))
    assert by_gateway(former, new) == by_gateway(new)
    for lost in (by_gateway(going(new)), by_gateway(new, at=going(gateway()))):
        assert isinstance(lost, Problem)
        assert "is being deleted" in lost.message


def test_the_port_that_the_syncer_names() -> None:
    """The backend's port is the one that the syncer's port or secure port names."""
    assert by_ingress(ingress(path(port=9090)), port="admin") == (BY_HOST, PLAIN)
    assert by_ingress(ingress(path(port="admin")), secure_port=9090) == (BY_HOST, PLAIN)
    problem = by_ingress(ingress(path()), port="grpc")
    assert isinstance(problem, Problem)
    assert problem.reason == "NoPort"


BY_ROUTE = Address(HOST, "192.0.2.9")
HTTPS = listener("tls", "HTTPS", 443, tls={"mode": "Terminate"})
EVERYWHERE: Object = {"namespaces": {"from": "All"}}
REDIRECT: Object = {"filters": [{"type": "RequestRedirect"}]}


@pytest.mark.parametrize(
    ("routes", "at", "address", "ports"),
    [
        ([route()], gateway(), BY_ROUTE, PLAIN),
        ([route(rule_at("/", OURS))], gateway(), BY_ROUTE, PLAIN),
        (
            [route(), route(rule_at("/a", OURS), name="b", namespace="bakery", gateway_in="shop")],
            gateway(),
            BY_ROUTE,
            PLAIN,
        ),
        (
            [route(rule_at("/", OURS, {**OTHER, "weight": 0}), rule_at("/api", OURS))],
            gateway(),
            BY_ROUTE,
            PLAIN,
        ),
        ([route(rule_at("/", OURS, filters=[{"type": "RequestMirror"}]))], gateway(), BY_ROUTE, PLAIN),
        ([route()], gateway(HTTPS), BY_ROUTE, SECURE),
        (
            [route(sectionName="tls"), route(REDIRECT, name="redirect", sectionName="web")],
            gateway(listener(), HTTPS),
            BY_ROUTE,
            SECURE,
        ),
        (
            [route(hosts=["*.example.com", "b.example.com"])],
            gateway(),
            Address("b.example.com", "192.0.2.9"),
            PLAIN,
        ),
        ([route(hosts=[])], gateway(listener(hostname=HOST)), BY_ROUTE, PLAIN),
        ([route(hosts=["*.example.com"])], gateway(listener(hostname=HOST)), BY_ROUTE, PLAIN),
        ([route()], gateway(listener(hostname="*.example.com")), BY_ROUTE, PLAIN),
        (
            [route(hosts=["a.other.org", HOST])],
            gateway(listener(hostname="*.example.com")),
            BY_ROUTE,
            PLAIN,
        ),
        (
            [route(hosts=["a.b.example.com"])],
            gateway(listener(hostname="*.example.com")),
            Address("a.b.example.com", "192.0.2.9"),
            PLAIN,
        ),
        ([route(port=80)], gateway(listener(), listener("b", port=81)), BY_ROUTE, PLAIN),
        (
            [route()],
            gateway(addresses=[{"value": "z.lb", "type": "Hostname"}, {"value": "a.lb", "type": "Hostname"}]),
            Address(HOST, "a.lb"),
            PLAIN,
        ),
        (
            [route(namespace="shop"), route(rule_at("/api", OTHER), name="b", hosts=["b.example.com"])],
            gateway(),
            BY_ROUTE,
            PLAIN,
        ),
        (
            [route(), route(rule_at("/.well-known/acme-challenge/x", OTHER, kind="Exact"), name="solver")],
            gateway(),
            BY_ROUTE,
            PLAIN,
        ),
        (
            [route(sectionName="web")],
            gateway(listener(allowedRoutes={"namespaces": {"from": "Selector"}}), HTTPS),
            BY_ROUTE,
            PLAIN,
        ),
    ],
)
def test_a_gateway_that_gives_the_address(
    routes: list[Object], at: Object, address: Address, ports: Ports
) -> None:
    """The host of a route that its Gateway serves, and the port of the listener; https before http."""
    assert by_gateway(*routes, at=at) == (address, ports)
    assert by_gateway(*reversed(routes), at=at) == (address, ports), "their order does not matter"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (listener(allowedRoutes=EVERYWHERE), "HTTPRoute evil/cart sends /cart of rating.example.com"),
        (listener("near", hostname=HOST), "listener near of Gateway evil/other takes rating.example.com"),
        (listener(port=81, allowedRoutes=EVERYWHERE), ""),
    ],
)
def test_gateways_that_share_an_address(other: Object, words: str) -> None:
    """A proxy may serve several Gateways at one address: their routes and listeners count together."""
    beside = gateway(other, namespace="evil") | {"metadata": {"namespace": "evil", "name": "other"}}
    theirs = route(rule_at("/cart", OTHER), name="cart", namespace="evil")
    theirs["spec"]["parentRefs"] = [{"name": "other"}]
    wanted = syncer(Mode.SERVICE, advertise=Advertise.GATEWAY)
    read = Routes(gateways=[gateway(), beside], http_routes=[route(), theirs])
    answer = found(wanted, read)
    if words:
        assert isinstance(answer, Problem)
        assert words in answer.message
    else:
        assert answer == (BY_ROUTE, PLAIN)
    apart = {**beside, "status": gateway(addresses=[{"value": "192.0.2.99"}])["status"]}
    assert found(wanted, replace(read, gateways=[gateway(), apart])) == (BY_ROUTE, PLAIN)


def test_a_gateway_of_another_namespace() -> None:
    """It serves the route if it lets routes of all namespaces in, and if the operator reads its namespace."""
    everywhere = listener(allowedRoutes={"namespaces": {"from": "All"}})
    ours = route(gateway_in="infra")
    assert by_gateway(ours, at=gateway(everywhere, namespace="infra")) == (BY_ROUTE, PLAIN)
    read: dict[str, Any] = {"at": gateway(everywhere, namespace="infra"), "namespaces": ["shop", "infra"]}
    assert by_gateway(ours, **read) == (BY_ROUTE, PLAIN)
    problem = by_gateway(ours, namespaces=["shop"])
    assert isinstance(problem, Problem)
    assert "infra/public is in a namespace that this operator does not read" in problem.message
    assert "--watch-namespace" in problem.remedy
    problem = by_gateway(ours, at=gateway(listener(), namespace="infra"))
    assert isinstance(problem, Problem)
    assert "has no host name without * that a listener serves" in problem.message


@pytest.mark.parametrize(
    ("routes", "at", "words"),
    [
        ([], gateway(), "no HTTPRoute of namespace shop has a rule that sends all paths to port 8080"),
        ([route(namespace="bakery")], gateway(), "no HTTPRoute of namespace shop"),
        ([route(rule_at("/api", OURS))], gateway(), "no HTTPRoute"),
        ([route(rule_at("/", OURS, kind="Exact"))], gateway(), "no HTTPRoute"),
        ([route({"matches": [{"method": "GET"}], "backendRefs": [OURS]})], gateway(), "no HTTPRoute"),
        (
            [route({"matches": [{"headers": [{"name": "x"}]}], "backendRefs": [OURS]})],
            gateway(),
            "no HTTPRoute",
        ),
        ([route({"backendRefs": [OURS, OTHER]})], gateway(), "no HTTPRoute"),
        ([route({"backendRefs": [{**OURS, "port": 9090}]})], gateway(), "no HTTPRoute"),
        ([route({"backendRefs": [{**OURS, "weight": 0}]})], gateway(), "no HTTPRoute"),
        ([route({"backendRefs": [{**OURS, "namespace": "bakery"}]})], gateway(), "no HTTPRoute"),
        ([route({"backendRefs": [{**OURS, "group": "x.io", "kind": "Bucket"}]})], gateway(), "no HTTPRoute"),
        ([route({**ALL_PATHS, "filters": [{"type": "URLRewrite"}]})], gateway(), "no HTTPRoute"),
        ([route({**ALL_PATHS, **REDIRECT})], gateway(), "no HTTPRoute"),
        (
            [route({"backendRefs": [{**OURS, "filters": [{"type": "URLRewrite"}]}]})],
            gateway(),
            "no HTTPRoute",
        ),
        ([route(kind="Mesh")], gateway(), "no HTTPRoute"),
        ([route(ALL_PATHS, rule_at("/api", OTHER))], gateway(), "HTTPRoute shop/rating sends /api of"),
        ([route(), route(rule_at("/api", OTHER), name="b")], gateway(), "HTTPRoute shop/b sends /api of"),
        ([route(), route(rule_at("/old", **REDIRECT), name="b")], gateway(), "HTTPRoute shop/b sends /old"),
        (
            [route(), route(rule_at("/a", OURS), name="b", namespace="bakery", gateway_in="shop")],
            gateway(listener(allowedRoutes=EVERYWHERE)),
            "HTTPRoute bakery/b sends /a",
        ),
        (
            [
                route(),
                route(rule_at("/.well-known/acme-challenge/a", OTHER, kind="RegularExpression"), name="b"),
            ],
            gateway(),
            "HTTPRoute shop/b sends /.well-known",
        ),
        ([route({**ALL_PATHS, "filters": [{"type": "ExtensionRef"}]})], gateway(), "no HTTPRoute"),
        ([route(port=81)], gateway(listener("b", port=81)), "has the port 81, which may be one of"),
        ([route()], gateway(listener("tls", "HTTPS", 8443)), "has the port 8443"),
        (
            [route()],
            gateway()
            | {"spec": {"listeners": [listener()], "allowedListeners": {"namespaces": {"from": "All"}}}},
            "takes further listeners from ListenerSets",
        ),
        (
            [route(conditions=(*ACCEPTED, condition("PartiallyInvalid")))],
            gateway(),
            "has not accepted HTTPRoute shop/rating as it stands",
        ),
        (
            [route(hosts=["b.example.com"]), route(name="a", hosts=["a.example.com"], conditions=())],
            gateway(),
            "has not accepted HTTPRoute shop/a",
        ),
        (
            [route()],
            gateway(
                listener(),
                HTTPS,
                of_listeners=({"name": "tls", "conditions": [condition("ResolvedRefs", "False")]},),
            ),
            "listener tls of Gateway shop/public is not served",
        ),
        (
            [route(hosts=[HOST]), route(rule_at("/api", OTHER), name="b", hosts=[])],
            gateway(listener(hostname=HOST)),
            "HTTPRoute shop/b sends /api of",
        ),
        (
            [route(hosts=[HOST]), route(rule_at("/api", OTHER), name="b", hosts=["*.example.com"])],
            gateway(listener(hostname=HOST)),
            "HTTPRoute shop/b sends /api of",
        ),
        ([route(name="x", sectionName="none")], gateway(), "no host name without * that a listener serves"),
        ([route(hosts=["*.example.com"])], gateway(), "no host name without *"),
        ([route(hosts=[])], gateway(), "no host name without *"),
        ([route()], gateway(listener(hostname="*.other.org")), "no host name without *"),
        ([route()], gateway(listener(allowedRoutes={"kinds": [{"kind": "GRPCRoute"}]})), "no host name"),
        (
            [route()],
            gateway(
                listener(allowedRoutes={"namespaces": {"from": "Selector"}}), HTTPS | {"hostname": "a.org"}
            ),
            "no host name",
        ),
        (
            [route(sectionName="web")],
            gateway(listener(hostname="*.example.com"), listener("near", hostname=HOST)),
            "the listener near of Gateway shop/public takes rating.example.com",
        ),
        ([route(hosts=["rating.shop.svc.cluster.local"])], gateway(), "a name of the cluster itself"),
        ([route(hosts=["billing"])], gateway(), "a name without a domain"),
        ([route()], gateway(listener(protocol="TLS", tls={"mode": "Passthrough"})), "has the protocol TLS"),
        ([route()], gateway(listener(protocol="HTTPS", tls={"mode": "Passthrough"})), "TLS mode Passthrough"),
        ([route(conditions=())], gateway(), "Gateway shop/public has not accepted HTTPRoute shop/rating"),
        ([route(conditions=(condition("Accepted", "False"),))], gateway(), "has not accepted"),
        ([route(conditions=(condition("Accepted", seen=2),))], gateway(), "has not accepted"),
        (
            [route(conditions=(condition("Accepted"), condition("ResolvedRefs", "False")))],
            gateway(),
            "not accepted",
        ),
        ([route()], gateway(conditions=()), "Gateway shop/public is not Programmed"),
        ([route()], gateway(conditions=(condition("Programmed", "False"),)), "is not Programmed"),
        ([route()], gateway(conditions=(condition("Programmed", seen=2),)), "is not Programmed"),
        ([route()], gateway(addresses=[]), "Gateway shop/public has no address in its status"),
        ([route()], gateway(addresses=[{"type": "example.com/x", "value": "1"}]), "has no address"),
        (
            [route()],
            gateway(of_listeners=({"name": "web", "conditions": [condition("ResolvedRefs", "False")]},)),
            "listener web of Gateway shop/public is not served",
        ),
        (
            [route(name="x")],
            gateway() | {"metadata": {"namespace": "shop", "name": "b"}},
            "there is no Gateway shop/public",
        ),
    ],
)
def test_why_a_gateway_gives_none(routes: list[Object], at: Object, words: str) -> None:
    """The problem is NoAddress, and names the object, the host and the remedy."""
    problem = by_gateway(*routes, at=at)
    assert isinstance(problem, Problem)
    assert (problem.reason, words in problem.message) == ("NoAddress", True), problem.message
    assert problem.remedy


def mapped(
    read: Routes | None, *endpoints: Object, advertise: Advertise = Advertise.INGRESS, **fields: Any
) -> DesiredInstances:
    """Map the Service ``rating`` for a syncer that advertises an Ingress or a Gateway."""
    wanted = syncer(Mode.SERVICE, advertise=advertise, **fields)
    slices = [endpoint_slice(*endpoints)]
    return desired_instances(wanted, [service(ports=[HTTP, ADMIN])], slices, CLUSTER, routes=read)


READY = endpoint("10.0.0.1")
UNREADY = endpoint("10.0.0.1", ready=False)


def test_the_instance_of_an_ingress() -> None:
    """Callers get the host name in all URLs, and no further port of the Service, which the host does not
    serve.
    """
    desired = mapped(
        Routes([ingress(path(), tls=TLS)]),
        READY,
        health_check_path="/health",
        health_check_port="admin",
        metadata_from_ports={"management.port": "admin"},
    )
    (instance,) = desired.instances
    assert instance.key == ("RATING", "rating.svc.shop.eks:rating:443")
    assert (instance.host_name, instance.ip_address) == (HOST, "192.0.2.7")
    assert (instance.port, instance.secure_port) == (Port(443, enabled=False), Port(443))
    assert instance.home_page_url == f"https://{HOST}:443/"
    assert (instance.health_check_url, instance.secure_health_check_url) == ("", "")
    assert "management.port" not in instance.metadata
    assert desired.left_out_metadata_sentences == (
        "management.port (TCP port admin) of Service shop/rating",
        "the health check (TCP port admin) of Service shop/rating",
    )


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (Routes([ingress(path(), status={})]), "NoAddress"),
        (Routes([ingress(path(), path("other", at="/api"))]), "NoAddress"),
        (Routes(), "NoAddress"),
        (None, "RoutesNotRead"),
    ],
)
@pytest.mark.parametrize("not_ready", NotReady)
def test_the_address_is_lost(read: Routes | None, reason: str, not_ready: NotReady) -> None:
    """The registered instance stays at its address, with the status of the endpoints, also with
    ``notReady: Remove``; no other kind of address takes its place.
    """
    (before,) = mapped(Routes([ingress(path())]), READY).instances
    for there, status in ((READY, Status.UP), (UNREADY, Status.DOWN)):
        desired = mapped(read, there, not_ready=not_ready)
        (problem,) = desired.problems
        assert (problem.reason, desired.instances, desired.may_be_incomplete) == (reason, (), True)
        assert registered_without_address(desired, [before]) == [replace(before, status=status)]


def test_what_has_not_been_read_is_named() -> None:
    """The message names the kinds that are missing."""
    for advertise, words in (
        (Advertise.INGRESS, "the Ingresses have not been read"),
        (Advertise.GATEWAY, "the Gateways and HTTPRoutes have not been read"),
    ):
        (problem,) = mapped(None, READY, advertise=advertise).problems
        assert words in problem.message


def test_a_message_or_a_time_is_no_change() -> None:
    """A status that only repeats itself with another time or message is the same to the operator."""
    for item in (route(), gateway(of_listeners=({"name": "web", "conditions": [condition("Programmed")]},))):
        other = deepcopy(item)
        status = other["status"]
        for part in (status, *status.get("parents", ()), *status.get("listeners", ())):
            for one in part.get("conditions", ()):
                one |= {"message": "other", "lastTransitionTime": "now"}
        other["metadata"]["annotations"] = {"a": "b"}
        assert trim_route(other) == trim_route(item)
        assert trim_route(trim_route(item)) == trim_route(item)
