"""The mapping of Services and EndpointSlices to instances: statuses, ids, ports, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core import mapping
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mapping import (
    DesiredInstances,
    desired_instances,
    keep_registered_ids,
    limited_to_registered_ports,
    registered_without_address,
)
from eurekube_provider.core.mapping_cache import MAX_CACHED_ZONES, MappingCache
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.objects import (
    KUBERNETES_SLICE_MANAGER,
    SLICE_MANAGED_BY_LABEL,
    app_name_of_service,
    pod_name_of_endpoint,
)
from eurekube_provider.core.ports import Ports, choose_ports
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Advertise, Mode, NotReady, Selector, Syncer
from tests.unit import strategies

CLUSTER = Cluster("eks", "0b2c1d3e-4f5a-6789-abcd-ef0123456789")
OWNER = "cluster/eks/team/reviews"
HTTP = {"name": "http", "port": 8080, "protocol": "TCP"}
Object = dict[str, Any]
_POD: Object = {"mode": "pod", "selector": {"app": "rating"}}


def syncer(mode: Mode = Mode.POD, app: str = "rating", **fields: Any) -> Syncer:
    """Return a syncer whose namespace and name differ from those of the Service it selects."""
    given: dict[str, Any] = {"selector": Selector("shop", app), "application": app, **fields}
    return Syncer("team", "reviews", mode, **given)


def service(name: str = "rating", app: str | None = "rating", **spec: Any) -> Object:
    """Return a Service in the namespace ``shop``."""
    return {
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": app} if app else {}},
        "spec": spec,
        "status": {},
    }


def endpoint(
    address: str, pod: str | None = None, zone: str | None = None, /, **conditions: bool | None
) -> Object:
    """Return an endpoint, of a pod if one is named."""
    result: Object = {"addresses": [address], "conditions": conditions}
    if pod:
        result["targetRef"] = {"kind": "Pod", "name": pod}
    if zone:
        result["zone"] = zone
    return result


def endpoint_slice(
    *endpoints: Object, name: str = "rating-x", of: str = "rating", family: str = "IPv4", ports: Any = (HTTP,)
) -> Object:
    """Return an EndpointSlice of a Service."""
    return {
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": of}},
        "addressType": family,
        "ports": list(ports),
        "endpoints": list(endpoints),
    }


def pods(*slices: Object, services: list[Object] | None = None, **fields: Any) -> DesiredInstances:
    """Map slices for a syncer in mode pod."""
    return desired_instances(syncer(**fields), services or [service()], slices, CLUSTER)


def whole(
    described: Object, *slices: Object, nodes: list[Object] | None = None, **fields: Any
) -> DesiredInstances:
    """Map a Service for a syncer in mode service."""
    return desired_instances(syncer(Mode.SERVICE, **fields), [described], slices, CLUSTER, nodes=nodes)


def statuses(desired: DesiredInstances) -> dict[str, str]:
    """Return the status of each desired instance by its address."""
    return {instance.ip_address: instance.status.value for instance in desired.instances}


def test_a_ready_pod() -> None:
    """A ready pod is one instance, UP, under its own id, with owner, cluster and zone in its metadata."""
    desired = pods(endpoint_slice(endpoint("10.0.0.1", "rating-1", "zone-a", ready=True)))
    (instance,) = desired.instances
    assert instance.key == ("RATING", "rating-1.shop.eks:rating:8080")
    assert (instance.host_name, instance.ip_address, instance.port) == ("10.0.0.1", "10.0.0.1", Port(8080))
    assert instance.status is Status.UP
    assert instance.metadata == {
        "eurekube.owner": OWNER,
        "eurekube.cluster-uid": CLUSTER.uid,
        "zone": "zone-a",
    }
    assert (instance.vip_address, instance.secure_vip_address) == ("rating", "rating")
    assert instance.home_page_url == "http://10.0.0.1:8080/"
    assert desired.problems == ()


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"ready": True}, {"10.0.0.1": "UP"}),
        ({"ready": False}, {"10.0.0.1": "DOWN"}),
        ({"ready": None}, {"10.0.0.1": "UP"}),
        ({}, {"10.0.0.1": "UP"}),
        ({"ready": False, "serving": True, "terminating": True}, {}),
        ({"ready": True, "terminating": True}, {}),
        ({"ready": True, "terminating": False}, {"10.0.0.1": "UP"}),
    ],
)
def test_conditions(conditions: dict[str, bool | None], expected: dict[str, str]) -> None:
    """An endpoint that is ready or of unknown readiness is UP, an unready one DOWN, and a terminating one
    left out.
    """
    assert statuses(pods(endpoint_slice(endpoint("10.0.0.1", "a", **conditions)))) == expected


def test_terminating_ids_are_named() -> None:
    """The mapping lists terminating endpoints, so that they can be told from vanished ones."""
    desired = pods(endpoint_slice(endpoint("10.0.0.1", "a", terminating=True), endpoint("10.0.0.2", "b")))
    assert desired.terminating_ids == {"a.shop.eks:rating:8080"}
    assert statuses(desired) == {"10.0.0.2": "UP"}


def test_a_terminating_pod_in_an_older_slice_stays_out() -> None:
    """A pod that two slices list during a rewrite is terminating if either says so."""
    desired = pods(
        endpoint_slice(endpoint("10.0.0.1", "a", ready=True), name="rating-1"),
        endpoint_slice(endpoint("10.0.0.1", "a", terminating=True), name="rating-2"),
    )
    assert statuses(desired) == {}


def test_several_slices_are_one_application() -> None:
    """The endpoints of all slices of the selected Service are mapped, those of another Service are not."""
    desired = pods(
        endpoint_slice(endpoint("10.0.0.1", "a"), name="rating-1"),
        endpoint_slice(endpoint("10.0.0.2", "b"), name="rating-2"),
        endpoint_slice(endpoint("10.0.0.3", "c"), of="other"),
    )
    assert statuses(desired) == {"10.0.0.1": "UP", "10.0.0.2": "UP"}


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_an_endpoint_in_two_slices_is_one_instance(order: tuple[bool, bool]) -> None:
    """An endpoint that moves between slices is mapped once, and is UP if either slice says ready."""
    desired = pods(
        *(
            endpoint_slice(endpoint("10.0.0.1", "a", ready=ready), name=f"rating-{number}")
            for number, ready in enumerate(order)
        )
    )
    assert [(one.ip_address, one.status) for one in desired.instances] == [("10.0.0.1", Status.UP)]


@pytest.mark.parametrize(
    ("families", "expected"),
    [(["IPv6", "IPv4"], "fd00::1"), (["IPv4", "IPv6"], "10.0.0.1"), (["IPv4"], "10.0.0.1"), ([], "10.0.0.1")],
)
def test_a_dual_stack_pod_is_one_instance(families: list[str], expected: str) -> None:
    """Of a pod's two addresses, the one of the Service's first IP family is registered."""
    slices = (
        endpoint_slice(endpoint("10.0.0.1", "a"), name="rating-4"),
        endpoint_slice(endpoint("fd00::1", "a"), name="rating-6", family="IPv6"),
    )
    desired = pods(*slices, services=[service(ipFamilies=families)])
    assert statuses(desired) == {expected: "UP"}


def test_ipv6_addresses_are_bracketed_where_urls_are_built() -> None:
    """The IP address is plain; the host name is in brackets, since Spring builds URLs from it."""
    (instance,) = pods(endpoint_slice(endpoint("fd00::1", "a"), family="IPv6")).instances
    assert instance.host_name == "[fd00::1]"
    assert instance.home_page_url == "http://[fd00::1]:8080/"


@pytest.mark.parametrize("target", [None, {"kind": "Node", "name": "node-1"}, {"kind": "Pod"}])
def test_without_a_pod_the_address_names_the_instance(target: Object | None) -> None:
    """The id of a hand-written endpoint, which has no pod, contains its address."""
    written = {**endpoint("192.0.2.7"), "targetRef": target}
    (instance,) = pods(endpoint_slice(written)).instances
    assert instance.instance_id == "192.0.2.7.shop.eks:rating:8080"


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"port": 80}], 80),
        ([{"port": 80, "name": "grpc", "protocol": "TCP"}], 80),
        ([{"port": 53, "protocol": "UDP"}, {"port": 80}], 80),
        ([{"port": 90, "name": "admin"}, {"port": 80, "name": "http"}], 80),
        ([{"port": None}, {"port": 80}], 80),
    ],
)
def test_the_port_that_callers_use(ports: list[Object], expected: int) -> None:
    """The chosen port is the only TCP port, or the one named http."""
    assert choose_ports(ports, None, None, "x") == Ports(Port(expected))


@pytest.mark.parametrize(
    ("ports", "reason", "words"),
    [
        (None, "NoPort", ["shop/rating"]),
        ([], "NoPort", ["shop/rating"]),
        ([{"port": 53, "protocol": "UDP"}], "NoPort", ["TCP"]),
        ([{"port": 80, "name": "a"}, {"port": 90}], "AmbiguousPort", ["a=80", "(unnamed)=90", "http"]),
    ],
)
def test_ports_that_leave_a_doubt(ports: list[Object] | None, reason: str, words: list[str]) -> None:
    """Without one clear port a problem lists the ports that exist."""
    problem = choose_ports(ports, None, None, "Service shop/rating")
    assert isinstance(problem, Problem)
    assert problem.reason == reason
    assert all(word in problem.message for word in words)


def test_a_problem_with_one_slice_hides_none_of_the_others() -> None:
    """The other slices are mapped, and the problem is reported once."""
    desired = pods(
        endpoint_slice(endpoint("10.0.0.1", "a"), name="rating-1"),
        endpoint_slice(endpoint("10.0.0.2", "b"), name="rating-2", ports=({"port": 80}, {"port": 90})),
    )
    assert statuses(desired) == {"10.0.0.1": "UP"}
    assert [problem.reason for problem in desired.problems] == ["AmbiguousPort"]
    assert "shop/rating-2" in desired.problems[0].message


def test_a_slice_without_endpoints_is_no_problem() -> None:
    """A Service that is scaled to zero yields no instance and no problem."""
    assert pods(endpoint_slice(ports=())) == DesiredInstances()


def test_services_are_selected_by_label_then_by_name() -> None:
    """A Service without the label ``app`` is selected by its name."""
    assert app_name_of_service(service("x", app="rating")) == "rating"
    assert app_name_of_service(service("rating", app=None)) == "rating"
    slices = [
        endpoint_slice(endpoint("10.0.0.1", "a"), of="labelled"),
        endpoint_slice(endpoint("10.0.0.2", "b"), of="rating"),
    ]
    labelled = pods(*slices, services=[service("labelled"), service("rating", app="other")])
    assert statuses(labelled) == {"10.0.0.1": "UP"}
    named = pods(*slices, services=[service("rating", app=None)])
    assert statuses(named) == {"10.0.0.2": "UP"}


def selected_as_rating(name: str, *, app: str = "rating", publishes: bool = False, **spec: Any) -> Object:
    """Return a Service labelled as the application rating, with a port ``http`` by default."""
    more: Object = {"publishNotReadyAddresses": True} if publishes else {}
    return service(name, clusterIP="10.96.0.1", **{"ports": [HTTP], "selector": {"app": app}, **more, **spec})


METRICS: Object = {"ports": [{"name": "metrics", "port": 9090}]}
BEHIND: dict[str, tuple[list[Object], list[Object], dict[str, str] | str]] = {
    # The Services, their slices, and what is wanted: statuses, or the reason why nobody can tell.
    "the one called as the application": (
        [selected_as_rating("rating"), selected_as_rating("rating-metrics", **METRICS)],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of="rating")],
        {"10.0.0.1": "UP"},
    ),
    "a preview before its promotion": (
        [selected_as_rating("rating"), selected_as_rating("rating-preview", app="green")],
        [
            endpoint_slice(endpoint("10.0.0.1", "blue"), of="rating"),
            endpoint_slice(endpoint("10.0.0.2", "green"), of="rating-preview"),
        ],
        {"10.0.0.1": "UP"},
    ),
    "a preview, and none called as the application": (
        [selected_as_rating("active"), selected_as_rating("preview", app="green")],
        [
            endpoint_slice(endpoint("10.0.0.1", "blue"), of="active"),
            endpoint_slice(endpoint("10.0.0.2", "green"), of="preview"),
        ],
        "AmbiguousService",
    ),
    "once it is promoted": (
        [selected_as_rating("active", app="green"), selected_as_rating("preview", app="green")],
        [endpoint_slice(endpoint("10.0.0.2", "green"), of="active")],
        {"10.0.0.2": "UP"},
    ),
    "another port of the same pods": (
        [selected_as_rating("r"), selected_as_rating("r-metrics", **METRICS)],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of="r")],
        "AmbiguousService",
    ),
    "a headless sibling that publishes pods that are not ready": (
        [selected_as_rating("r"), selected_as_rating("r-headless", publishes=True)],
        [
            endpoint_slice(endpoint("10.0.0.1", "a", ready=False), of="r"),
            endpoint_slice(endpoint("10.0.0.1", "a", ready=True), of="r-headless"),
        ],
        {"10.0.0.1": "DOWN"},
    ),
    "the headless one is called as the application": (
        [selected_as_rating("rating", publishes=True), selected_as_rating("rating-client")],
        [
            endpoint_slice(endpoint("10.0.0.1", "a", ready=True), of="rating"),
            endpoint_slice(endpoint("10.0.0.1", "a", ready=False), of="rating-client"),
        ],
        {"10.0.0.1": "DOWN"},
    ),
    "the headless one alone has these pods": (
        [selected_as_rating("rating", publishes=True), selected_as_rating("rating-web", app="web")],
        [
            endpoint_slice(endpoint("10.0.0.1", "a", ready=True), of="rating"),
            endpoint_slice(endpoint("10.0.0.2", "b", ready=True), of="rating-web"),
        ],
        {"10.0.0.1": "UP"},
    ),
    "another port beside the one that callers use": (
        [
            selected_as_rating("r"),
            selected_as_rating("r-headless", ports=[{**HTTP, "targetPort": 8080}, *METRICS["ports"]]),
        ],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of="r")],
        {"10.0.0.1": "UP"},
    ),
    "other selectors over the same pods": (
        [selected_as_rating("r"), selected_as_rating("r-all", app="all")],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of=one) for one in ("r", "r-all")],
        {"10.0.0.1": "UP"},
    ),
    "one without a TCP port": (
        [selected_as_rating("r"), selected_as_rating("r-gossip", ports=[{"port": 7946, "protocol": "UDP"}])],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of="r")],
        {"10.0.0.1": "UP"},
    ),
    "none has endpoints": (
        [selected_as_rating("r"), selected_as_rating("s", app="s")],
        [],
        "AmbiguousService",
    ),
    "a name for another one": (
        [service("rating", type="ExternalName", externalName="x.example"), selected_as_rating("rating-v1")],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of="rating-v1")],
        {"10.0.0.1": "UP"},
    ),
    "names for others alone": (
        [service(name, type="ExternalName", externalName="x.example") for name in ("rating", "rating-v1")],
        [],
        "ExternalName",
    ),
    "a name for another one, called otherwise": (
        [service("alias", type="ExternalName", externalName="x.example"), selected_as_rating("r")],
        [endpoint_slice(endpoint("10.0.0.1", "a"), of="r")],
        {"10.0.0.1": "UP"},
    ),
}


@pytest.mark.parametrize("described", BEHIND)
def test_which_of_several_services_is_meant(described: str) -> None:
    """The Service with the application's name is chosen, or the one that ports and pods single out; else
    AmbiguousService.
    """
    services, slices, expected = BEHIND[described]
    for order in (services, services[::-1]):
        desired = pods(*slices, services=order)
        found = desired.problems[0].reason if desired.problems else statuses(desired)
        assert found == expected
        assert not (desired.problems and desired.instances)
        assert desired.may_be_incomplete == (expected == "AmbiguousService")


def test_several_services_are_distinguished_by_a_port_of_one() -> None:
    """``spec.port`` singles the Service out; with ``matchLabels`` the application's name in lower case
    does.
    """
    services = [selected_as_rating("r"), selected_as_rating("r-metrics", **METRICS)]
    slices = [
        endpoint_slice(endpoint("10.0.0.1", "a"), of="r"),
        endpoint_slice(endpoint("10.0.0.1", "a"), of="r-metrics", ports=METRICS["ports"]),
    ]
    (problem,) = pods(*slices, services=services).problems
    assert "r, r-metrics" in problem.message
    assert "call the Service that is meant rating" in problem.remedy
    (one,) = pods(*slices, services=services, port="http").instances
    assert one.port == Port(8080)
    by_labels = {"selector": Selector("shop", "", {"app": "rating"}), "application": "R"}
    (one,) = pods(*slices, services=services, **by_labels).instances
    assert one.port == Port(8080)


def test_with_ambiguous_services_a_pod_may_replace_another() -> None:
    """While Services are ambiguous, a new pod may replace a registered one of the same Service and port."""
    services = [
        selected_as_rating("active"),
        selected_as_rating("preview", app="green"),
        selected_as_rating("all", app="all"),
        selected_as_rating("headless", app="x", publishes=True),
    ]
    blue = [endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b", ready=False)]
    green, other = endpoint("10.0.0.3", "green"), endpoint("10.0.0.4", "x")
    slices = [
        endpoint_slice(*blue, of="active"),
        endpoint_slice(green, of="preview"),
        endpoint_slice(*blue, green, of="all"),
        endpoint_slice(endpoint("10.0.0.2", "b"), other, of="headless"),
    ]
    desired = pods(*slices, services=services)
    assert (desired.instances, [one.reason for one in desired.problems]) == ((), ["AmbiguousService"])
    by_pod = {one.instance_id.partition(".")[0]: one for each in desired.ambiguous_candidates for one in each}
    both = {"10.0.0.1": "UP", "10.0.0.2": "DOWN"}
    for stands, expected in (
        ("", {}),
        ("a", both),
        ("b", both),
        ("green", {"10.0.0.3": "UP"}),
        ("x", {"10.0.0.2": "UP", "10.0.0.4": "UP"}),
    ):
        found = limited_to_registered_ports(desired, [by_pod[stands]] if stands else [])
        assert statuses(found) == expected
        assert found.may_be_incomplete
    for id_, count in (("a.shop.former:rating:8080", 2), ("a.shop.eks:rating:9090", 0)):
        assert (
            len(limited_to_registered_ports(desired, [replace(by_pod["a"], instance_id=id_)]).instances)
            == count
        )


GRPC: Object = {"name": "grpc", "port": 9000}
NAMED_WITH_A_PORT: dict[str, tuple[Object, list[Object], int | str, str]] = {
    # The port of the Service called as the application, of its slice, of the syncer, and which is meant.
    "the other one has it": (GRPC, [GRPC], "http", "rating-http"),
    "the other one has its number": (GRPC, [GRPC], 8080, "rating-http"),
    "it has it": (HTTP, [HTTP], "http", "rating"),
    "neither has it": (GRPC, [GRPC], "web", "NoPort"),
    "it may have the number, as no pod says": ({**GRPC, "targetPort": "web"}, [], 8080, "rating"),
    "its pods have another number": ({**GRPC, "targetPort": "web"}, [GRPC], 8080, "rating-http"),
}


@pytest.mark.parametrize("described", NAMED_WITH_A_PORT)
def test_a_namesake_service_without_the_port_is_not_meant(described: str) -> None:
    """If the Service with the application's name lacks the port, another Service with the port is used; if
    only pods could tell, NoPort is reported.
    """
    declared, in_pods, port, expected = NAMED_WITH_A_PORT[described]
    services = [selected_as_rating("rating", ports=[declared]), selected_as_rating("rating-http")]
    slices = [endpoint_slice(endpoint("10.0.0.2", "b"), of="rating-http")]
    if in_pods:
        slices.append(endpoint_slice(endpoint("10.0.0.1", "a"), ports=in_pods))
    desired = pods(*slices, services=services, port=port)
    addresses = {"rating": ["10.0.0.1"] if in_pods else [], "rating-http": ["10.0.0.2"], "NoPort": []}
    assert [one.ip_address for one in desired.instances] == addresses[expected]
    assert [one.reason for one in desired.problems] == (["NoPort"] if expected == "NoPort" else [])


def test_a_whole_service_is_one_of_those_over_the_same_pods() -> None:
    """In mode service, of two Services over the same pods the one with a cluster IP is registered, not the
    headless one.
    """
    services = [
        {**selected_as_rating("a-headless", publishes=True), "spec": {"ports": [HTTP], "clusterIP": "None"}},
        selected_as_rating("b", ports=[HTTP]),
    ]
    for one in services:
        one["spec"]["selector"] = {"app": "rating"}
    desired = desired_instances(
        syncer(Mode.SERVICE), services, [endpoint_slice(endpoint("10.0.0.1", "a"), of="b")], CLUSTER
    )
    assert [(one.instance_id, one.status) for one in desired.instances] == [
        ("b.svc.shop.eks:rating:8080", Status.UP)
    ]


@pytest.mark.parametrize("mode", Mode)
def test_a_name_for_another_one_has_no_endpoints_and_no_address(mode: Mode) -> None:
    """An ExternalName Service yields a problem and no instance, although Kubernetes left slices behind."""
    alias = service(type="ExternalName", externalName="rating.example.com", ports=[HTTP], clusterIP="")
    desired = desired_instances(
        syncer(mode), [alias], [endpoint_slice(endpoint("10.0.0.1", "a", ready=True))], CLUSTER
    )
    assert (desired.instances, desired.may_be_incomplete, desired.has_endpoints) == ((), False, False)
    (problem,) = desired.problems
    assert problem.reason == "ExternalName"
    assert "rating.example.com" in problem.message


WEB: Object = {"name": "web", "port": 3000}
API: Object = {"name": "api", "port": 3000}
BOTH_APPLICATIONS = [{**WEB, "port": 80, "targetPort": "web"}, {**API, "port": 81, "targetPort": "api"}]
LACKING: dict[str, tuple[list[Object], dict[str, Any], dict[str, str], bool | str]] = {
    # The Service's ports, what the syncer names, what is wanted, and whether something is left out.
    "pods without the named port": ([HTTP], {}, {"10.0.0.1": "UP"}, True),
    "two applications behind one Service": (BOTH_APPLICATIONS, {"port": "api"}, {"10.0.0.2": "UP"}, True),
    "the port as a number": ([HTTP], {"port": 8080}, {"10.0.0.1": "UP"}, True),
    "the Service alone has it": ([*BOTH_APPLICATIONS, {"name": "x", "port": 1}], {"port": "x"}, {}, "NoPort"),
    "neither has it": (BOTH_APPLICATIONS, {"port": "other"}, {}, "NoPort"),
    "the Service's own number is no port of the pods": (BOTH_APPLICATIONS, {"port": 80}, {}, "NoPort"),
    "for https": ([HTTP, {"name": "https", "port": 443}], {"secure_port": "https"}, {}, "NoPort"),
}


@pytest.mark.parametrize("described", LACKING)
def test_endpoints_without_the_port_are_not_wanted(described: str) -> None:
    """Endpoints of slices without the port are left out; there is a doubt only if no slice has the port."""
    ports, fields, expected, said = LACKING[described]
    slices = [
        endpoint_slice(
            endpoint("10.0.0.1", "a"), name="s-1", ports=[WEB] if ports is BOTH_APPLICATIONS else [HTTP]
        ),
        endpoint_slice(endpoint("10.0.0.2", "b"), name="s-2", ports=[API] if "port" in fields else []),
        endpoint_slice(endpoint("10.0.0.3", "c"), name="s-3", ports=[]),
    ]
    desired = pods(*slices, services=[service(ports=ports)], **fields)
    assert statuses(desired) == expected
    assert desired.may_be_incomplete == bool(desired.problems) == (said == "NoPort")
    assert {one.reason for one in desired.problems} == ({said} if said == "NoPort" else set())
    assert bool(desired.left_out_endpoint_sentences) == (said is True)
    assert desired.has_endpoints


def test_who_has_another_port_of_several_is_not_wanted_under_that_one() -> None:
    """A slice of Kubernetes' own controller whose only port is metrics is not registered for a Service that
    has http.

    In a slice of another author the only port is used, whatever its name.
    """
    both = service(ports=[HTTP, {"name": "metrics", "port": 9090}])
    one = endpoint_slice(endpoint("10.0.0.2", "b"), ports=METRICS["ports"])
    (by_hand,) = pods(one, services=[both]).instances
    assert by_hand.port == Port(9090)
    one["metadata"]["labels"][SLICE_MANAGED_BY_LABEL] = KUBERNETES_SLICE_MANAGER
    others = pods(one, services=[both])
    assert (others.instances, others.may_be_incomplete, others.left_out_endpoint_sentences) == ((), True, ())
    (problem,) = others.problems
    assert (problem.reason, "TCP port http" in problem.message) == ("NoPort", True)
    assert "spec.port" in problem.remedy
    web = endpoint_slice(endpoint("10.0.0.1", "a"), name="rating-2")
    desired = pods(one, web, services=[both])
    assert (statuses(desired), desired.may_be_incomplete) == ({"10.0.0.1": "UP"}, False)
    assert desired.left_out_endpoint_sentences == (
        "1 endpoint of Service shop/rating without the TCP port http",
    )


FAMILIES: dict[str, tuple[list[Object], dict[str, str], tuple[str, ...]]] = {
    "an empty slice of the first family": (
        [
            endpoint_slice(name="s-6", family="IPv6", ports=[]),
            endpoint_slice(endpoint("10.0.0.1", "a"), name="s-4"),
        ],
        {"10.0.0.1": "UP"},
        (),
    ),
    "a pod that has the second family alone": (
        [
            endpoint_slice(endpoint("fd00::1", "a"), name="s-6", family="IPv6"),
            endpoint_slice(endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"), name="s-4"),
        ],
        {"fd00::1": "UP", "10.0.0.2": "UP"},
        (),
    ),
    "not ready by the first family": (
        [
            endpoint_slice(endpoint("fd00::1", "a", ready=False), name="s-6", family="IPv6"),
            endpoint_slice(endpoint("10.0.0.1", "a", ready=True), name="s-4"),
        ],
        {"fd00::1": "DOWN"},
        (),
    ),
    "terminating by the first family": (
        [
            endpoint_slice(endpoint("fd00::1", "a", terminating=True), name="s-6", family="IPv6"),
            endpoint_slice(endpoint("10.0.0.1", "a", ready=True), name="s-4"),
        ],
        {},
        (),
    ),
    "endpoints without a pod, of both families": (
        [
            endpoint_slice(endpoint("fd00::1"), name="s-6", family="IPv6"),
            endpoint_slice(endpoint("10.0.0.1"), endpoint("10.0.0.2", "b"), name="s-4"),
        ],
        {"fd00::1": "UP", "10.0.0.2": "UP"},
        ("1 endpoint without a pod at an IPv4 address",),
    ),
    "host names": (
        [endpoint_slice(endpoint("db.example.com"), endpoint("vm.example.com"), family="FQDN")],
        {},
        ("2 endpoints with a host name in place of an address",),
    ),
}


@pytest.mark.parametrize("described", FAMILIES)
def test_each_endpoint_has_the_first_family_that_there_is_of_it(described: str) -> None:
    """Each endpoint is mapped in the first of the Service's families that it has; one that is left out is
    reported.
    """
    slices, expected, left_out = FAMILIES[described]
    mapped = MappingCache()
    for order in (slices, slices[::-1], slices):
        given = (syncer(), [service(ipFamilies=["IPv6", "IPv4"])], order, CLUSTER)
        desired = desired_instances(*given, mapped=mapped)
        assert (statuses(desired), desired.left_out_endpoint_sentences) == (expected, left_out)
        assert desired == desired_instances(*given)
        assert not desired.problems


_ADMIN: Object = {"name": "admin", "port": 9090, "protocol": "TCP"}
_SLICE_VERSIONS = st.tuples(
    st.sampled_from(([HTTP], [HTTP, _ADMIN], [_ADMIN], [{**HTTP, "port": 8081}, _ADMIN], [])),
    st.booleans(),
    st.lists(
        st.sampled_from(
            [
                endpoint(f"10.0.0.{number}", f"pod-{number}", ready=ready, terminating=terminating)
                for number in range(4)
                for ready, terminating in ((True, False), (False, False), (False, True))
            ]
        ),
        unique_by=lambda one: one["addresses"][0],
    ),
)
"""Ports, whether Kubernetes wrote the slice, and endpoints, of which equal ones are the same object."""


@given(st.lists(st.lists(_SLICE_VERSIONS, max_size=2), max_size=6), st.sampled_from([None, 9090]))
def test_a_mapping_brought_up_to_date_equals_a_new_one(
    versions: list[list[tuple[Any, bool, list[Object]]]], port: int | None
) -> None:
    """Whatever changes of a Service's slices, what is kept of their last mapping changes no result."""
    mapped = MappingCache()
    wanted = syncer(port=port, metadata_from_ports={"admin": "admin"})
    for version in versions:
        slices = []
        for number, (ports, is_managed, endpoints) in enumerate(version):
            one = endpoint_slice(*endpoints, name=f"rating-{number}", ports=ports)
            if is_managed:
                one["metadata"]["labels"][SLICE_MANAGED_BY_LABEL] = KUBERNETES_SLICE_MANAGER
            slices.append(one)
        given = (wanted, [service(ports=[HTTP, _ADMIN])], slices, CLUSTER)
        assert desired_instances(*given, mapped=mapped) == desired_instances(*given)


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_two_services_over_one_pod(order: tuple[str, str]) -> None:
    """A pod behind two selected Services is mapped once, and is UP if it is ready in one of them."""
    desired = pods(
        endpoint_slice(endpoint("10.0.0.1", "a", ready=False), of=order[0]),
        endpoint_slice(endpoint("10.0.0.1", "a", ready=True), of=order[1]),
        services=[service("one"), service("two")],
    )
    assert statuses(desired) == {"10.0.0.1": "UP"}


def test_no_matching_service() -> None:
    """A selector that matches no Service yields no instance, and a problem that names selector and
    namespace.
    """
    desired = pods(services=[service("other", app=None)])
    assert desired.instances == ()
    (problem,) = desired.problems
    assert problem.reason == "NoMatchingService"
    assert "namespace shop" in problem.message
    assert "app=rating" in problem.message


FAILED: Object = {"port": 80, "protocol": "TCP", "error": "PortNotFree"}
"""An entry of a load balancer's status for a port that could not be opened."""


@pytest.mark.parametrize(
    ("status", "spec", "expected"),
    [
        ({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, {"clusterIP": "10.96.0.1"}, "192.0.2.1"),
        (
            {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}},
            {"clusterIP": "10.96.0.1"},
            "lb.example",
        ),
        ({"loadBalancer": {"ingress": [{}, {"ip": "192.0.2.2"}]}}, {}, "192.0.2.2"),
        ({"loadBalancer": {}}, {"clusterIP": "10.96.0.1"}, "10.96.0.1"),
        (
            {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ports": [FAILED]}, {"ip": "192.0.2.2"}]}},
            {"type": "LoadBalancer"},
            "192.0.2.2",
        ),
        (
            {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ports": [{**FAILED, "port": 81}]}]}},
            {"type": "LoadBalancer"},
            "192.0.2.1",
        ),
        (None, {"type": "LoadBalancer", "externalIPs": ["198.51.100.1"]}, "198.51.100.1"),
        (None, {"clusterIP": "10.96.0.1"}, "10.96.0.1"),
    ],
)
def test_the_address_of_a_whole_service(status: Object | None, spec: Object, expected: str) -> None:
    """In mode service the load balancer's address is registered, or else the cluster IP."""
    described = {**service(ports=[{"port": 80}], **spec), "status": status}
    (instance,) = whole(described, endpoint_slice(endpoint("10.0.0.1"))).instances
    assert instance.key == ("RATING", "rating.svc.shop.eks:rating:80")
    assert (instance.host_name, instance.ip_address) == (expected, expected)
    assert instance.owner == OWNER


@pytest.mark.parametrize(
    ("ingress", "words"),
    [([], "no load balancer's address"), ([{"ip": "192.0.2.1", "ports": [FAILED]}], "port 80: PortNotFree")],
)
@pytest.mark.parametrize("advertise", [Advertise.AUTO, Advertise.LOAD_BALANCER])
def test_an_address_of_a_load_balancer_is_waited_for(
    ingress: list[Object], words: str, advertise: Advertise
) -> None:
    """While the load balancer has no address, registered instances are kept, and no cluster IP is
    registered.
    """
    described = service(ports=[{"port": 80}], clusterIP="10.96.0.1", type="LoadBalancer")
    described["status"] = {"loadBalancer": {"ingress": ingress}}
    desired = whole(described, endpoint_slice(endpoint("10.0.0.1")), advertise=advertise)
    assert (desired.instances, desired.may_be_incomplete) == ((), True)
    (problem,) = desired.problems
    assert problem.reason == "NoAddress"
    assert words in problem.message
    assert "wait for the load balancer" in problem.remedy


def test_a_load_balancer_that_goes_with_its_service() -> None:
    """The instance of a Service whose deletion takes the load balancer away is wanted no more, unless callers
    use another address of it, or another Service has taken its place.
    """
    going, one = service(ports=[HTTP], clusterIP="10.96.0.1", type="LoadBalancer"), endpoint("10.0.0.1", "a")
    going["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert [it.ip_address for it in whole(going, endpoint_slice(one)).instances] == ["192.0.2.1"]
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for advertise in (Advertise.AUTO, Advertise.LOAD_BALANCER):
        desired = whole(going, endpoint_slice(one), advertise=advertise)
        assert (desired.instances, desired.may_be_incomplete) == ((), False)
        assert [it.reason for it in desired.problems] == ["NoMatchingService"]
    for fields in ({"advertise": Advertise.CLUSTER_IP}, {"address": "10.96.0.1"}):
        assert [it.ip_address for it in whole(going, endpoint_slice(one), **fields).instances] == [
            "10.96.0.1"
        ]
    assert [it.ip_address for it in pods(endpoint_slice(one), services=[going]).instances] == ["10.0.0.1"]
    following = service("rating-2", ports=[HTTP], type="LoadBalancer")
    following["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}]}}
    slices = [endpoint_slice(one), endpoint_slice(one, name="y", of="rating-2")]
    found = desired_instances(syncer(Mode.SERVICE), [going, following], slices, CLUSTER)
    assert ([it.ip_address for it in found.instances], found.problems) == (["192.0.2.2"], ())


@pytest.mark.parametrize("not_ready", NotReady)
@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([endpoint("10.0.0.1", ready=True)], Status.UP),
        ([endpoint("10.0.0.1", ready=False)], Status.DOWN),
        ([], Status.DOWN),
    ],
)
def test_a_service_without_an_address_is_up_while_one_is_ready(
    endpoints: list[Object], expected: Status, not_ready: NotReady
) -> None:
    """While the Service's address is awaited, its registered instance is UP or DOWN by its endpoints, and
    none is added.
    """
    described = service(ports=[{"port": 80}], clusterIP="10.96.0.1", type="LoadBalancer")
    desired = whole(described, endpoint_slice(*endpoints), not_ready=not_ready)
    assert (desired.instances, [one.reason for one in desired.problems]) == ((), ["NoAddress"])
    ours = ("rating.svc.shop.eks:rating:80", "rating.svc.n1.shop.former:rating:80")
    ids = (*ours, "rating-svc.shop.eks:rating:80", "rating.svc.other.eks:rating:80")
    there = [Instance("rating", one, "10.96.0.1", "10.96.0.1", Port(80)) for one in ids]
    assert registered_without_address(desired, there) == [replace(one, status=expected) for one in there[:2]]


@pytest.mark.parametrize("cluster_ip", ["None", "", None], ids=["headless", "empty", "missing"])
def test_a_headless_service_has_no_address(cluster_ip: str | None) -> None:
    """Mode service cannot register a headless Service; the remedy suggests mode pod."""
    desired = whole(service(ports=[{"port": 80}], clusterIP=cluster_ip))
    assert [problem.reason for problem in desired.problems] == ["NoAddress"]
    assert "mode pod" in desired.problems[0].remedy


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([endpoint("10.0.0.1", ready=True)], Status.UP),
        ([endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2", ready=True)], Status.UP),
        ([endpoint("10.0.0.1", ready=False)], Status.DOWN),
        ([endpoint("10.0.0.1", ready=True, terminating=True)], Status.DOWN),
        ([], Status.DOWN),
    ],
)
def test_a_whole_service_is_up_with_one_ready_endpoint(endpoints: list[Object], expected: Status) -> None:
    """In mode service the instance is UP with one ready endpoint, and DOWN with none."""
    described = service(ports=[{"port": 80}], clusterIP="10.96.0.1")
    (instance,) = whole(described, endpoint_slice(*endpoints)).instances
    assert instance.status is expected


def test_the_custom_resource_is_read() -> None:
    """A syncer selects in its own namespace unless it names another one."""
    document: Object = {
        "metadata": {"namespace": "team", "name": "reviews"},
        "spec": {"mode": "service", "selector": {"app": "rating"}},
    }
    assert Syncer.from_object(document) == Syncer(
        "team",
        "reviews",
        Mode.SERVICE,
        Selector("team", "rating"),
        "rating",
        vip_address="rating",
        secure_vip_address="rating",
    )
    document["spec"]["selector"]["namespace"] = "shop"
    assert Syncer.from_object(document).selector.namespace == "shop"
    assert Syncer.from_object(document).owner(CLUSTER) == OWNER


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "spec.mode"),
        ({"mode": "node", "selector": {"app": "x"}}, "spec.mode is 'node'"),
        ({"mode": "pod"}, "spec.selector.app"),
        ({"mode": "pod", "selector": {"app": ""}}, "spec.selector.app"),
        ({"mode": "pod", "selector": {"matchLabels": {"a": "b"}}}, "spec.application is missing"),
        ({**_POD, "advertise": "Host"}, "spec.advertise is 'Host'; it must be Auto, LoadBalancer"),
        ({**_POD, "policy": "CreateOnly"}, "spec.policy is 'CreateOnly'; it must be Sync or UpsertOnly"),
        ({**_POD, "notReady": "Stay"}, "spec.notReady is 'Stay'"),
        ({**_POD, "onTermination": "Wait"}, "spec.onTermination is 'Wait'"),
        ({**_POD, "metadata": {"eurekube.owner": "me"}}, "spec.metadata has 'eurekube.owner'"),
        ({**_POD, "metadataFromLabels": ["eurekube/owner"]}, "spec.metadataFromLabels has 'eurekube/owner'"),
    ],
)
def test_a_resource_that_an_older_crd_let_through(spec: Object | None, words: str) -> None:
    """A value that the present CRD refuses raises an error that names the syncer and the field."""
    document = {"metadata": {"namespace": "team", "name": "reviews"}, "spec": spec}
    with pytest.raises(ConfigurationError) as caught:
        Syncer.from_object(document)
    assert "EurekaSyncer team/reviews" in str(caught.value)
    assert words in str(caught.value)


_app_names = st.sampled_from(["rating", "order", "other"])


@given(
    st.sampled_from(Mode),
    strategies.services(_app_names),
    strategies.slices(_app_names),
)
def test_whatever_the_cluster_holds(mode: Mode, services: list[Object], slices: list[Object]) -> None:
    """For any Services and slices the mapping never raises; ids are unique, and terminating endpoints are
    left out.
    """
    desired = desired_instances(syncer(mode), services, slices, CLUSTER)
    found = [instance.instance_id for instance in desired.instances]
    assert sorted(set(found)) == sorted(found)
    assert desired.terminating_ids.isdisjoint(found)
    assert all(instance.owner == OWNER for instance in desired.instances)
    assert all(instance.application == "RATING" for instance in desired.instances)
    assert {instance.status for instance in desired.instances} <= {Status.UP, Status.DOWN}
    assert all(problem.reason and problem.message for problem in desired.problems)


@given(strategies.services(_app_names), strategies.slices(_app_names), st.randoms())
def test_the_order_of_objects_means_nothing(
    services: list[Object], slices: list[Object], random: Any
) -> None:
    """The order of Services and slices does not change the ids and statuses."""
    shuffled_services, shuffled_slices = (
        random.sample(services, len(services)),
        random.sample(slices, len(slices)),
    )
    before = desired_instances(syncer(), services, slices, CLUSTER)
    after = desired_instances(syncer(), shuffled_services, shuffled_slices, CLUSTER)
    assert {(one.instance_id, one.status) for one in before.instances} == {
        (one.instance_id, one.status) for one in after.instances
    }
    assert before.terminating_ids == after.terminating_ids


@pytest.mark.parametrize(
    "bad", [("10.0.0.9", "a\\b"), ("10.0.0.9", "b\ufffe"), ("10.0.0.9", "c", "zone\uffff")]
)
def test_one_hand_written_endpoint_does_not_break_eurekas_list(bad: tuple[str, ...]) -> None:
    """A pod name or zone that Eureka's clients could not parse leaves that endpoint out and is reported;
    others are mapped.
    """
    found = pods(endpoint_slice(endpoint(*bad), endpoint("10.0.0.1", "good", "a")))
    assert statuses(found) == {"10.0.0.1": "UP"}
    (problem,) = found.problems
    assert problem.reason == "InvalidInstance"
    assert "EndpointSlice shop/rating-x" in problem.message
    assert found.may_be_incomplete


def test_an_ambiguous_address_is_not_registered() -> None:
    """Older API servers accept leading zeros: the address is left out, no instance is removed, and others
    are mapped.
    """
    found = pods(endpoint_slice(endpoint("10.0.0.071"), endpoint("10.0.0.1", "good")))
    assert statuses(found) == {"10.0.0.1": "UP"}
    assert "some read 10.0.0.57" in found.problems[0].message
    assert found.may_be_incomplete
    whole = service(externalIPs=["198.51.100.071"], ports=[HTTP])
    wanted = syncer(Mode.SERVICE, advertise=Advertise.EXTERNAL_IP)
    found = desired_instances(wanted, [whole], [endpoint_slice(endpoint("10.0.0.1"))], CLUSTER)
    assert (found.instances, found.may_be_incomplete) == ((), True)
    assert "some read 198.51.100.57" in found.problems[0].message


def test_labels_that_do_not_fit_among_the_metadata_are_left_out() -> None:
    """No label or annotation costs an instance: those that exceed the bound together with the other metadata
    are left out and named, in the spec's order, and smaller ones are kept.
    """
    described = service(clusterIP="10.1.0.1", ports=[HTTP])
    described["metadata"]["labels"] |= {"size": "x" * 63, "m": "x" * 20, "n": "x" * 20, "s": "y"}
    described["metadata"]["annotations"] = {"example.com/size": "x" * 100}
    fixed: dict[str, Any] = {"metadata": {f"k{number}": "x" * 998 for number in range(4)}}
    one = endpoint_slice(endpoint("10.0.0.1", "a"))
    chosen: dict[str, Any] = {
        "metadata_from_labels": ("size", "m", "n", "s"),
        "metadata_from_annotations": {"note": "example.com/size"},
    }
    of_pods = desired_instances(
        syncer(**fixed, metadata_from_pod_labels=("size", "m", "n", "s")),
        [described],
        [one],
        CLUSTER,
        labels_of_pod=lambda _: {"size": "x" * 93, "m": "x" * 50, "n": "x" * 50, "s": "y"},
    )
    for found, left_out in (
        (pods(one, services=[described], **fixed, **chosen), ["size", "n", "note"]),
        (whole(described, one, **fixed, **chosen), ["size", "n", "note"]),
        (of_pods, ["size", "n"]),
    ):
        (instance,) = found.instances
        own = {key for key in instance.metadata if not key.startswith("eurekube.")}
        assert (own, found.problems) == ({*fixed["metadata"], "m", "s"}, ())
        assert [said.split()[0] for said in found.left_out_metadata_sentences] == left_out
        assert "at most 4096 bytes" in found.left_out_metadata_sentences[0]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"metadata": {"a": "b\ufffe"}}, "the value of 'a' has the character U+FFFE"),
        ({"metadata": {"a": "\ud800"}}, "U+D800"),
        ({"metadata": {"a:b": "c"}}, "key 'a:b' would not arrive as written"),
        ({"metadata": {f"k{number}": "x" * 1024 for number in range(5)}}, "5130 bytes together"),
        ({"application": "a\\b"}, "could never read or remove it again"),
        ({"vipAddress": "a\uffff"}, "spec.vipAddress has the character U+FFFF"),
        ({"homePagePath": "/\ufffe"}, "spec.homePagePath has the character U+FFFE"),
    ],
)
def test_a_syncer_that_would_break_eurekas_list_is_refused(spec: Object, reason: str) -> None:
    """The spec is checked again, since an older CRD may have accepted it; the error names syncer and
    field.
    """
    metadata = {"namespace": "shop", "name": "rating"}
    with pytest.raises(ConfigurationError, match="EurekaSyncer shop/rating") as refused:
        Syncer.from_object({"metadata": metadata, "spec": {**_POD, **spec}})
    assert reason in str(refused.value)


_endpoints = st.lists(
    st.builds(
        lambda number, state: endpoint(f"10.0.0.{number}", f"pod-{number}", **state),
        st.integers(1, 6),
        st.sampled_from(
            [{}, {"ready": True}, {"ready": False}, {"ready": False, "terminating": True}, {"ready": None}]
        ),
    ),
    max_size=4,
)
_worlds = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abc"), _endpoints), max_size=3),
        st.sampled_from(["1", "2"]),
        st.sampled_from([HTTP, {"name": "web", "port": 9090}]),
        st.sampled_from([{}, {"vip_address": "other"}, {"metadata_from_labels": ("version",)}]),
    ),
    max_size=6,
)


@given(_worlds)
def test_what_was_mapped_before_makes_no_difference(worlds: list[Any]) -> None:
    """With a cache, the mapping after any change equals a mapping without one."""
    mapped = MappingCache()
    slices: dict[str, Object] = {}
    for changed, version, port, fields in worlds:
        for name, endpoints in changed:
            slices[name] = endpoint_slice(*endpoints, name=name, ports=(port,))
        labelled = service()
        labelled["metadata"]["labels"]["version"] = version
        given = (syncer(**fields), [labelled], list(slices.values()), CLUSTER)
        assert desired_instances(*given, mapped=mapped) == desired_instances(*given)


def test_an_unchanged_slice_is_mapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of one slice its endpoints alone are mapped again; a slice that is gone leaves the
    cache.
    """
    count = 0

    def counted(*given: Any) -> Any:
        nonlocal count
        count += 1
        return pod_name_of_endpoint(*given)

    monkeypatch.setattr(mapping, "pod_name_of_endpoint", counted)
    slices = [endpoint_slice(endpoint(f"10.0.0.{n}"), name=f"s-{n}") for n in range(50)]
    mapped, costs = MappingCache(), []
    for _ in range(3):
        count = 0
        desired = desired_instances(syncer(), [service()], slices, CLUSTER, mapped=mapped)
        costs.append((len(desired.instances), count))
        slices[7] = endpoint_slice(endpoint("10.0.1.7"), endpoint("10.0.1.8"), name="s-7")
    assert costs == [(50, 50), (51, 2), (51, 2)]
    desired_instances(syncer(), [service()], slices[:10], CLUSTER, mapped=mapped)
    assert len(mapped) == 10
    desired_instances(syncer(), [service("reviews")], slices[:10], CLUSTER, mapped=mapped)
    assert len(mapped) == 0


def test_an_unchanged_endpoint_of_a_slice_that_changed_is_mapped_once() -> None:
    """The instance of an unchanged endpoint stays the same object; a changed endpoint is mapped again."""
    mapped = MappingCache()

    def seen(*endpoints: Object, ports: tuple[Object, ...] = (HTTP,)) -> dict[str, Instance]:
        slices = [endpoint_slice(*endpoints, ports=ports)]
        desired = desired_instances(syncer(), [service()], slices, CLUSTER, mapped=mapped)
        assert desired == desired_instances(syncer(), [service()], slices, CLUSTER)
        return {one.ip_address: one for one in desired.instances}

    same = endpoint("10.0.0.1", "a")  # as the operator's copy keeps what did not change
    first = seen(same, endpoint("10.0.0.2", "b"))
    then = seen(endpoint("10.0.0.3", "c"), same, endpoint("10.0.0.2", "b", ready=False))
    assert then["10.0.0.1"] is first["10.0.0.1"]
    assert then["10.0.0.2"] != first["10.0.0.2"]
    assert list(then) == ["10.0.0.3", "10.0.0.1", "10.0.0.2"]
    moved = seen(same, ports=({"name": "web", "port": 9090},))
    assert moved["10.0.0.1"].port.number == 9090
    back = seen(same)
    assert back["10.0.0.1"] == first["10.0.0.1"]


def test_metadata_are_made_once_for_a_zone_while_nothing_changes() -> None:
    """Endpoints of one zone share their metadata object, until a label of the Service changes."""
    mapped, asking = MappingCache(), syncer(metadata_from_labels=("version",))

    def seen(version: str, *endpoints: Object) -> list[Mapping[str, str]]:
        one = service()
        services = [{**one, "metadata": {**one["metadata"], "labels": {"app": "rating", "version": version}}}]
        desired = desired_instances(asking, services, [endpoint_slice(*endpoints)], CLUSTER, mapped=mapped)
        return [instance.metadata for instance in desired.instances]

    first, second = endpoint("10.0.0.1", "a", "zone-a"), endpoint("10.0.0.2", "b", "zone-a")
    (before,) = seen("1", first)
    _, after, other = seen("1", first, second, endpoint("10.0.0.3", "c", "zone-b"))
    assert after is before
    assert other["zone"] == "zone-b"
    (changed,) = seen("2", first)
    assert changed == {**before, "version": "2"}
    zones = [
        endpoint(f"10.0.1.{number}", f"p-{number}", f"z-{number}") for number in range(MAX_CACHED_ZONES + 1)
    ]
    assert len({one["zone"] for one in seen("2", *zones)}) == MAX_CACHED_ZONES + 1
    _, kept = mapped.lookup("shop/rating", (asking, CLUSTER, {"version": "2"}, None))
    assert kept == {}


def test_an_endpoint_keeps_the_id_by_which_it_is_registered() -> None:
    """An endpoint registered under a former cluster name keeps its id; if both ids are registered, the
    present one is used.
    """
    endpoints = [endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"), endpoint("10.0.0.3", "c")]
    now = pods(endpoint_slice(*endpoints))
    a, b, c = now.instances

    def earlier(one: Instance, name: str = "lab") -> Instance:
        return replace(one, instance_id=one.instance_id.replace(f".{CLUSTER.name}:", f".{name}:"))

    assert keep_registered_ids(now, [a, b], CLUSTER.name) is now
    found = keep_registered_ids(now, [earlier(a), earlier(b), b], CLUSTER.name)
    assert found.instances == (earlier(a), b, c)
    leaving = replace(now, instances=(a,), terminating_ids=frozenset({b.instance_id, c.instance_id}))
    found = keep_registered_ids(leaving, [earlier(a), earlier(b, "old"), earlier(b)], CLUSTER.name)
    assert found.instances == (earlier(a),)
    ids = {earlier(b).instance_id, earlier(b, "old").instance_id, b.instance_id, c.instance_id}
    assert found.terminating_ids == ids
    others = replace(earlier(a), application="STARS", instance_id=earlier(a).instance_id)
    assert keep_registered_ids(now, [others], CLUSTER.name).instances == now.instances
