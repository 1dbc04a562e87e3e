"""The effect of each field of a EurekaSyncer's spec on an instance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eurekube_provider.core.addresses import Address, ready_node_addresses, service_address
from eurekube_provider.core.brake import BrakeHistory, judge_removals
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    LEAVING_KEY,
    NODE_KEY,
    OWNER_KEY,
    Cluster,
    label_to_metadata_key,
)
from eurekube_provider.core.mapping import DesiredInstances, desired_instances, terminating_as_out_of_service
from eurekube_provider.core.mapping_cache import MappingCache
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.core.plan import Action, plan
from eurekube_provider.core.ports import Ports, choose_ports
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Advertise, Mode, NotReady, Selector, Syncer
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.operator.watches import trim_service
from tests.unit import strategies
from tests.unit.core.test_mapping import (
    CLUSTER,
    OWNER,
    endpoint,
    endpoint_slice,
    pods,
    service,
    statuses,
    syncer,
    whole,
)

Object = dict[str, Any]
HTTP: Object = {"name": "http", "port": 8080, "protocol": "TCP", "nodePort": 30080}
HTTPS: Object = {"name": "https", "port": 8443, "protocol": "TCP", "nodePort": 30443}
ADMIN: Object = {"name": "admin", "port": 9090, "protocol": "TCP", "nodePort": 30090}


def one(ports: Any = (HTTP,), /, **fields: Any) -> Instance:
    """Return the instance of one ready pod."""
    (instance,) = pods(endpoint_slice(endpoint("10.0.0.1", "a"), ports=ports), **fields).instances
    return instance


def node(name: str, *, ready: bool = True, **addresses: str) -> Object:
    """Return a node with these addresses by type."""
    return {
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def test_application_and_vip_addresses() -> None:
    """Application and VIP addresses are the syncer's, not the Service's name."""
    instance = one(application="ratings", vip_address="stars", secure_vip_address="stars-tls")
    assert instance.key == ("RATINGS", "a.shop.eks:ratings:8080")
    assert (instance.vip_address, instance.secure_vip_address) == ("stars", "stars-tls")


def test_default_names_are_read_from_the_selector() -> None:
    """The application defaults to ``selector.app``, the VIP address to the application, and the secure one
    to that.
    """
    metadata = {"namespace": "shop", "name": "x"}

    def names(**spec: Any) -> tuple[str, str, str]:
        syncer = Syncer.from_object(
            {"metadata": metadata, "spec": {"mode": "pod", "selector": {"app": "Rating"}, **spec}}
        )
        return syncer.application, syncer.vip_address, syncer.secure_vip_address

    assert names() == ("Rating", "rating", "rating")
    assert names(application="Stars") == ("Stars", "stars", "stars")
    assert names(application="Stars", vipAddress="s") == ("Stars", "s", "s")
    assert names(secureVipAddress="t") == ("Rating", "rating", "t")


@pytest.mark.parametrize(
    ("app", "match_labels", "expected"),
    [
        ("rating", {}, True),
        ("other", {}, False),
        ("", {"team": "a"}, True),
        ("", {"team": "a", "tier": "web"}, True),
        ("", {"team": "b"}, False),
        ("rating", {"team": "a"}, True),
        ("rating", {"team": "b"}, False),
        ("other", {"team": "a"}, False),
        ("", {"missing": ""}, False),
    ],
)
def test_selection(app: str, match_labels: dict[str, str], expected: bool) -> None:
    """A selector matches by app, by labels, or by both, which must then both match."""
    described = service()
    described["metadata"]["labels"] |= {"team": "a", "tier": "web"}
    assert Selector("shop", app, match_labels).selects(described) is expected


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        (Selector("shop", "x"), "has the label app=x (or, without a label app, the name x)"),
        (Selector("shop", "", {"b": "2", "a": "1"}), "has the labels a=1,b=2"),
        (Selector("shop", "x", {"a": "1"}), "has the labels a=1 and app=x (or, without a label app, the"),
    ],
)
def test_a_selector_that_finds_nothing(selector: Selector, words: str) -> None:
    """The message gives the selector and the namespace."""
    (problem,) = pods(selector=selector).problems
    assert problem.reason == "NoMatchingService"
    assert problem.message.startswith("no Service in namespace shop")
    assert words in problem.message


@pytest.mark.parametrize(
    ("ports", "port", "secure", "expected"),
    [
        ([HTTP], None, None, Ports(Port(8080))),
        ([ADMIN, HTTP], None, None, Ports(Port(8080))),
        ([ADMIN, HTTP], "admin", None, Ports(Port(9090))),
        ([ADMIN, HTTP], 9090, None, Ports(Port(9090))),
        ([ADMIN, HTTP], "9090", None, Ports(Port(9090))),
        ([{"port": 1}, {"name": "8080", "port": 2}, HTTP], "8080", None, Ports(Port(2))),
        ([HTTPS], None, "https", Ports(Port(8443, enabled=False), Port(8443))),
        ([HTTPS, ADMIN], None, "https", Ports(Port(8443, enabled=False), Port(8443))),
        ([HTTPS, HTTP, ADMIN], None, 8443, Ports(Port(8080), Port(8443))),
        ([HTTPS, HTTP, ADMIN], "admin", 8443, Ports(Port(9090), Port(8443))),
        ([HTTP], None, "http", Ports(Port(8080, enabled=False), Port(8080))),
    ],
)
def test_the_ports_that_are_chosen(ports: list[Object], port: Any, secure: Any, expected: Ports) -> None:
    """The ports that the syncer names win; if only https is named, the plain port is disabled."""
    assert choose_ports(ports, port, secure, "x") == expected


@pytest.mark.parametrize(
    ("ports", "port", "secure", "words"),
    [
        ([HTTP], "grpc", None, ["spec.port", "grpc", "there are http=8080"]),
        ([HTTP], 80, None, ["no TCP port 80"]),
        ([{**HTTP, "protocol": "UDP"}], "http", None, ["it has no TCP port"]),
        ([HTTP], None, "https", ["spec.securePort", "https"]),
        ([HTTP], "nope", "http", ["spec.port", "nope"]),
        ([], None, "https", ["spec.securePort", "it has no TCP port"]),
    ],
)
def test_a_port_that_is_not_there(ports: list[Object], port: Any, secure: Any, words: list[str]) -> None:
    """The problem names the field, and lists the existing ports."""
    problem = choose_ports(ports, port, secure, "Service shop/rating")
    assert isinstance(problem, Problem)
    assert problem.reason == "NoPort"
    assert all(word in problem.message for word in words)


def test_several_ports_point_to_the_field() -> None:
    """The remedy for ambiguous ports names ``spec.port``."""
    problem = choose_ports([HTTPS, ADMIN], None, None, "x")
    assert isinstance(problem, Problem)
    assert (problem.reason, "spec.port" in problem.remedy) == ("AmbiguousPort", True)


def test_a_problem_keeps_what_is_registered() -> None:
    """A port that does not exist leaves a doubt, which keeps instances; a selector that matches nothing
    leaves none.
    """
    assert pods(endpoint_slice(endpoint("10.0.0.1", "a")), port="nope").may_be_incomplete
    assert not pods(services=[service("other", app=None)]).may_be_incomplete


def test_urls() -> None:
    """Paths become URLs, by https if there is a secure port; each enabled port has a health check."""
    paths = {"home_page_path": "/ui", "status_page_path": "/info", "health_check_path": "/health"}
    plain = one(**paths)
    assert plain.home_page_url == "http://10.0.0.1:8080/ui"
    assert plain.status_page_url == "http://10.0.0.1:8080/info"
    assert (plain.health_check_url, plain.secure_health_check_url) == ("http://10.0.0.1:8080/health", "")
    both = one([HTTP, HTTPS], secure_port="https", **paths)
    assert both.home_page_url == "https://10.0.0.1:8443/ui"
    assert both.status_page_url == "https://10.0.0.1:8443/info"
    assert both.health_check_url == "http://10.0.0.1:8080/health"
    assert both.secure_health_check_url == "https://10.0.0.1:8443/health"
    secure = one([HTTPS], secure_port="https", **paths)
    assert (secure.health_check_url, secure.secure_health_check_url) == ("", "https://10.0.0.1:8443/health")
    bare = one()
    assert (bare.home_page_url, bare.status_page_url, bare.health_check_url) == (
        "http://10.0.0.1:8080/",
        "",
        "",
    )


def test_lease() -> None:
    """The instance has the syncer's Eureka lease."""
    assert one(lease=EurekaLease(10, 30)).lease == EurekaLease(10, 30)


@pytest.mark.parametrize(
    ("interval", "duration", "is_short"),
    [(30, 90, False), (30, 24, False), (30, 23, True), (1, 9, True), (1, 10, False), (5, 11, True)],
)
def test_a_lease_that_is_too_short(interval: int, duration: int, is_short: bool) -> None:
    """Twice the duration must exceed a change of leader and one interval; the remedy gives the shortest
    valid duration.
    """
    syncer = Syncer("a", "b", Mode.POD, Selector("a", "b"), "b", lease=EurekaLease(interval, duration))
    problem = syncer.lease_problem
    assert (problem is not None) is is_short
    if problem is not None:
        enough = int(problem.remedy.rpartition(" ")[2])
        assert replace(syncer, lease=EurekaLease(interval, enough)).lease_problem is None
        assert replace(syncer, lease=EurekaLease(interval, enough - 1)).lease_problem is not None


def test_metadata_and_who_wins() -> None:
    """Fixed values win over pod labels, those over Service labels, and those over the zone; reserved keys
    cannot be set.
    """
    described = service()
    described["metadata"]["labels"] |= {"team": "service", "tier": "web", "empty": "", "zone": "label"}
    labels = {"team": "pod", "app.kubernetes.io/version": "1_2"}
    desired = desired_instances(
        Syncer(
            "team",
            "reviews",
            Mode.POD,
            Selector("shop", "rating"),
            "rating",
            metadata={"tier": "fixed", OWNER_KEY: "forged"},
            metadata_from_labels=("team", "tier", "empty", "zone", "missing"),
            metadata_from_pod_labels=("team", "app.kubernetes.io/version"),
        ),
        [described],
        [endpoint_slice(endpoint("10.0.0.1", "a", "zone-a"))],
        CLUSTER,
        labels_of_pod=lambda name: labels if name == "a" else {},
    )
    assert desired.instances[0].metadata == {
        "zone": "label",
        "team": "pod",
        "tier": "fixed",
        "app.kubernetes.io.version": "1_2",
        OWNER_KEY: OWNER,
        CLUSTER_UID_KEY: CLUSTER.uid,
    }


def test_pods_that_were_not_read_change_nothing() -> None:
    """Until pods' labels are known, no instance is registered without them, and none is removed."""
    desired = pods(endpoint_slice(endpoint("10.0.0.1", "a")), metadata_from_pod_labels=("version",))
    assert ([problem.reason for problem in desired.problems], desired.instances) == (["PodsNotRead"], ())
    assert desired.may_be_incomplete


@given(
    st.lists(st.text("ab/._-1", min_size=1, max_size=6), max_size=4),
    st.dictionaries(st.text("ab/._-1", min_size=1, max_size=6), st.text("aB1._-", max_size=3), max_size=4),
)
def test_labels_become_metadata_the_same_way_every_time(wanted: list[str], labels: dict[str, str]) -> None:
    """Each requested label with a value becomes metadata under a valid key, and no other label does."""
    described = service()
    described["metadata"]["labels"] |= labels
    found = pods(
        endpoint_slice(endpoint("10.0.0.1", "a")), services=[described], metadata_from_labels=tuple(wanted)
    ).instances[0]
    expected = {label_to_metadata_key(label) for label in wanted if labels.get(label)}
    assert set(found.metadata) == expected | {OWNER_KEY, CLUSTER_UID_KEY}


@pytest.mark.parametrize(
    ("advertise", "expected"),
    [
        (Advertise.AUTO, "192.0.2.1"),
        (Advertise.LOAD_BALANCER, "192.0.2.1"),
        (Advertise.EXTERNAL_IP, "198.51.100.1"),
        (Advertise.CLUSTER_IP, "10.96.0.1"),
        (Advertise.NODE_PORT, "10.64.0.1"),
        (Advertise.CLUSTER_DNS, "10.96.0.1"),
    ],
)
def test_a_service_that_has_everything(advertise: Advertise, expected: str) -> None:
    """Each kind of address in ``spec.advertise`` is registered with the port that belongs to it."""
    described = {
        **service(ports=[HTTP], clusterIP="10.96.0.1", externalIPs=["198.51.100.1"]),
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    }
    nodes = [node("n", InternalIP="10.64.0.1")]
    (instance,) = whole(
        described, endpoint_slice(endpoint("10.0.0.1")), nodes=nodes, advertise=advertise
    ).instances
    assert instance.ip_address == expected
    assert instance.port == Port(30080 if advertise is Advertise.NODE_PORT else 8080)
    is_dns = advertise is Advertise.CLUSTER_DNS
    assert instance.host_name == ("rating.shop.svc.cluster.local" if is_dns else expected)
    assert instance.status is Status.UP


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"clusterIP": "10.96.0.1", "externalIPs": ["198.51.100.1", "198.51.100.2"]}, "198.51.100.1"),
        ({"clusterIP": "10.96.0.1", "externalIPs": []}, "10.96.0.1"),
        ({"clusterIP": "None", "externalIPs": ["2001:db8::1"]}, "2001:db8::1"),
    ],
)
def test_the_order_of_auto(spec: Object, expected: str) -> None:
    """``Auto`` prefers a load balancer's address, then the first external IP, then the cluster IP."""
    (instance,) = whole(service(ports=[HTTP], **spec)).instances
    assert instance.ip_address == expected


@pytest.mark.parametrize(
    ("advertise", "words"),
    [
        (Advertise.LOAD_BALANCER, "no load balancer's address in its status"),
        (Advertise.EXTERNAL_IP, "no external IP"),
        (Advertise.AUTO, "neither a load balancer's address nor an IP"),
        (Advertise.NODE_PORT, "no node of the cluster is ready"),
    ],
)
def test_an_address_that_is_not_there(advertise: Advertise, words: str) -> None:
    """No other kind of address replaces a missing one; instances are kept, and the message names what is
    missing.
    """
    desired = whole(service(ports=[HTTP], clusterIP="None"), nodes=[], advertise=advertise)
    (problem,) = desired.problems
    assert (problem.reason, words in problem.message, desired.may_be_incomplete) == ("NoAddress", True, True)


def test_cluster_dns() -> None:
    """The host name is the Service's DNS name in the cluster's domain; for a headless Service the address
    is, too.
    """
    headless = service(ports=[HTTP], clusterIP="None")
    found = service_address(headless, Advertise.CLUSTER_DNS, "corp.example", ())
    assert found == Address("rating.shop.svc.corp.example", "rating.shop.svc.corp.example")
    domain = Cluster("eks", "uid", "corp.example")
    syncer = Syncer(
        "a", "b", Mode.SERVICE, Selector("shop", "rating"), "rating", advertise=Advertise.CLUSTER_DNS
    )
    (instance,) = desired_instances(
        syncer, [service(ports=[HTTP], clusterIP="10.96.0.1")], [], domain
    ).instances
    assert (instance.host_name, instance.ip_address) == ("rating.shop.svc.corp.example", "10.96.0.1")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("b", InternalIP="10.64.0.2"), node("a", InternalIP="10.64.0.1")], "10.64.0.1"),
        ([node("a", ready=False, InternalIP="10.64.0.1"), node("b", InternalIP="10.64.0.2")], "10.64.0.2"),
        (
            [node("a", InternalIP="10.64.0.1"), node("b", InternalIP="10.64.0.2", ExternalIP="192.0.2.2")],
            "192.0.2.2",
        ),
        ([node("a", Hostname="a"), node("b", InternalIP="fd00::2")], "fd00::2"),
    ],
)
def test_the_node_of_a_node_port(nodes: list[Object], expected: str) -> None:
    """The first ready node by name is used, with its external address before the internal one."""
    found = ready_node_addresses(service(), [], nodes, max_nodes=1)
    assert not isinstance(found, Problem)
    assert [address.ip_address for _, address in found] == [expected]


@pytest.mark.parametrize(
    "leaving",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}},
        {"metadata": {"labels": {"eks.amazonaws.com/compute-type": "fargate"}}},
    ],
)
@pytest.mark.parametrize("traffic", ["Local", "Cluster"])
def test_a_node_port_leaves_a_node_that_is_about_to_go(leaving: Object, traffic: str) -> None:
    """A node that is being drained or deleted is left while it still answers, but never the last one, nor
    for a node without an external address. So is a node that is not meant to be called.
    """
    described = service(externalTrafficPolicy=traffic)
    slices = [endpoint_slice(*({**endpoint(f"10.0.0.{ord(one)}"), "nodeName": one} for one in "ab"))]

    def gone(there: Object) -> Object:
        return there | leaving | {"metadata": there["metadata"] | leaving.get("metadata", {})}

    def names(*nodes: Object) -> list[str]:
        found = ready_node_addresses(described, slices, nodes, max_nodes=3)
        assert not isinstance(found, Problem)
        return [name for name, _ in found]

    usual = {"metadata": {"name": "a", "labels": {"eks.amazonaws.com/compute-type": "auto"}}}
    a, b = (node(name, InternalIP=f"10.64.0.{number}") for number, name in enumerate("ab", 1))
    assert names(a, b) == names(a | usual, b) == ["a", "b"]
    assert names(gone(a), b) == ["b"]
    assert names(gone(a), gone(b)) == ["a", "b"]
    assert names(gone(a)) == ["a"]
    assert names(gone(node("a", ExternalIP="192.0.2.1", InternalIP="10.64.0.1")), b) == ["a"]


@pytest.mark.parametrize(
    ("families", "external", "expected"),
    [
        (None, "", "10.64.0.1"),
        (["IPv4"], "", "10.64.0.1"),
        (["IPv6"], "", "fd00::1"),
        (["IPv6"], "192.0.2.1", "fd00::1"),
        (["IPv6", "IPv4"], "192.0.2.1", "192.0.2.1"),
    ],
)
def test_a_node_port_has_the_families_of_its_service(
    families: list[str] | None, external: str, expected: str
) -> None:
    """A node port listens at the node's addresses of the Service's families alone."""
    both = node("a", InternalIP="10.64.0.1")
    both["status"]["addresses"] += [{"type": "InternalIP", "address": "fd00::1"}]
    both["status"]["addresses"] += [{"type": "ExternalIP", "address": external}] if external else []
    described = service(ipFamilies=families)
    found = ready_node_addresses(described, [], [both], max_nodes=1)
    assert not isinstance(found, Problem)
    assert [address.ip_address for _, address in found] == [expected]
    other = ready_node_addresses(
        service(ipFamilies=["IPv6"]), [], [node("b", InternalIP="10.64.0.2")], max_nodes=1
    )
    assert not isinstance(other, Problem)  # kept in doubt


def test_a_local_node_port_is_where_an_endpoint_is() -> None:
    """With externalTrafficPolicy Local a node with a ready endpoint is used, since others drop the call."""
    nodes = [node("a", InternalIP="10.64.0.1"), node("b", InternalIP="10.64.0.2")]
    described = service(externalTrafficPolicy="Local")
    slices = [
        endpoint_slice(
            {**endpoint("10.0.0.1", ready=False), "nodeName": "a"}, {**endpoint("10.0.0.2"), "nodeName": "b"}
        )
    ]
    found = ready_node_addresses(described, slices, nodes, max_nodes=1)
    assert found == (("b", Address("10.64.0.2", "10.64.0.2")),)
    gone = [endpoint_slice({**endpoint("10.0.0.2"), "nodeName": "c"})]
    nowhere = ready_node_addresses(described, gone, nodes, max_nodes=1)
    assert isinstance(nowhere, Problem)
    assert "externalTrafficPolicy Local" in nowhere.message


@pytest.mark.parametrize("traffic", ["Local", "Cluster"])
def test_a_node_port_without_a_ready_endpoint_is_down(traffic: str) -> None:
    """With externalTrafficPolicy Local, too, the instance is DOWN rather than kept UP by a doubt about its
    node.
    """
    nodes = [node("a", InternalIP="10.64.0.1"), node("b", InternalIP="10.64.0.2")]
    described = service(ports=[HTTP], externalTrafficPolicy=traffic)
    desired = whole(described, nodes=nodes, advertise=Advertise.NODE_PORT)
    (instance,) = desired.instances
    assert (instance.status, instance.ip_address) == (Status.DOWN, "10.64.0.1")
    assert not desired.may_be_incomplete


def at_nodes(nodes: list[Object], most: int = 3, *, ready: bool = True) -> tuple[Instance, ...]:
    """Return the desired instances of a syncer that advertises a Service's node port."""
    wanted = syncer(Mode.SERVICE, advertise=Advertise.NODE_PORT, node_count=most)
    slices = [endpoint_slice(endpoint("10.0.0.1", ready=ready))]
    return desired_instances(wanted, [service(ports=[HTTP])], slices, CLUSTER, nodes=nodes).instances


def places(instances: tuple[Instance, ...]) -> dict[str, str]:
    """Return the address of each instance by id."""
    return {instance.instance_id: instance.ip_address for instance in instances}


def test_a_node_port_is_registered_at_several_nodes() -> None:
    """The first node's instance has the Service's id; the chosen nodes stay when other nodes come and go."""
    nodes = [node(f"n-{number}", InternalIP=f"10.64.0.{number}") for number in range(9)]
    own = "rating.svc.shop.eks:rating:30080"
    before = places(at_nodes(nodes))
    assert (len(before), before[own]) == (3, "10.64.0.0")
    assert places(at_nodes(nodes, most=1)) == {own: "10.64.0.0"}
    others = {one: address for one, address in before.items() if one != own}
    assert others == {f"rating.svc.n-{one[-1]}.shop.eks:rating:30080": one for one in others.values()}
    assert [NODE_KEY in one.metadata for one in at_nodes(nodes)] == [False, True, True]
    chosen = {int(address[-1]) for address in before.values()}
    left = [nodes[number] for number in range(9) if number in chosen or number % 2]
    assert places(at_nodes(left)) == before
    # The first one goes: its instance moves to the next, and no other is lost.
    after = places(at_nodes(nodes[1:]))
    assert (len(after), after[own]) == (3, "10.64.0.1")
    assert others.keys() - after.keys() <= {"rating.svc.n-1.shop.eks:rating:30080"}
    picked = {tuple(sorted(name for name, _ in found[1:])) for found in map(_at_nine, range(20))}
    assert len(picked) > 5  # others for other Services


def _at_nine(number: int) -> tuple[tuple[str, Address], ...]:
    """Return the node addresses of the Service with this number, in a cluster of nine nodes."""
    nodes = [node(f"n-{one}", InternalIP=f"10.64.0.{one}") for one in range(9)]
    found = ready_node_addresses(service(f"rating-{number}"), [], nodes, max_nodes=3)
    assert not isinstance(found, Problem)
    return found


def test_a_service_at_several_nodes_is_no_mass() -> None:
    """Without a ready endpoint the instances at all nodes turn DOWN at once; for the brake they count as
    one.
    """
    nodes = [node(f"n-{number}", InternalIP=f"10.64.0.{number}") for number in range(9)]
    ready, unready = at_nodes(nodes), at_nodes(nodes, ready=False)
    view = InstanceTable()
    for instance in ready:
        view.store_written_and_return_previous(instance)
    steps = plan(unready, ready, OWNER)
    assert (len(steps.changes), view.count_up_instances(owner=OWNER)) == (3, 1)
    history = BrakeHistory(view.count_up_instances(owner=OWNER), 1)
    assert judge_removals(steps.changes, history, (), DesiredInstances(), 0.0, 0.0).held_removals is None


def test_a_node_port_waits_for_the_nodes() -> None:
    """Until the nodes are listed, instances are kept; a Service without node ports yields NoPort."""
    described = service(ports=[HTTP], clusterIP="10.96.0.1")
    desired = whole(described, advertise=Advertise.NODE_PORT)
    assert ([problem.reason for problem in desired.problems], desired.may_be_incomplete) == (
        ["NodesNotRead"],
        True,
    )
    bare = service(ports=[{"name": "http", "port": 80}], clusterIP="10.96.0.1")
    (problem,) = whole(bare, nodes=[node("a", InternalIP="x")], advertise=Advertise.NODE_PORT).problems
    assert (problem.reason, "nodePort" in problem.message) == ("NoPort", True)


def test_not_ready_can_mean_removed() -> None:
    """With ``notReady: Remove`` only ready endpoints yield instances, in both modes."""
    slices = endpoint_slice(endpoint("10.0.0.1", "a", ready=False), endpoint("10.0.0.2", "b"))
    assert statuses(pods(slices, not_ready=NotReady.REMOVE)) == {"10.0.0.2": "UP"}
    described = service(ports=[HTTP], clusterIP="10.96.0.1")
    assert whole(described, slices, not_ready=NotReady.REMOVE).instances[0].status is Status.UP
    unready = endpoint_slice(endpoint("10.0.0.1", "a", ready=False))
    desired = whole(described, unready, not_ready=NotReady.REMOVE)
    assert (desired.instances, desired.problems) == ((), ())


def test_publish_not_ready_addresses() -> None:
    """An endpoint that Kubernetes calls ready but not serving is UP; a terminating one is left out."""
    slices = endpoint_slice(
        endpoint("10.0.0.1", "a", ready=True, serving=False),
        endpoint("10.0.0.2", "b", ready=True, serving=True, terminating=True),
    )
    assert statuses(pods(slices)) == {"10.0.0.1": "UP"}


def test_on_the_way_out_of_service() -> None:
    """A terminating pod's instance is set OUT_OF_SERVICE once, with the operator's mark; a person's status
    stays.
    """
    here = pods(endpoint_slice(endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"))).instances
    persons = replace(here[1], status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    going = pods(
        endpoint_slice(
            endpoint("10.0.0.1", "a", terminating=True),
            endpoint("10.0.0.2", "b", terminating=True),
            endpoint("10.0.0.3", "c", terminating=True),
        )
    )
    first, second = terminating_as_out_of_service(going, [here[0], persons])
    assert (first.status, first.metadata[LEAVING_KEY]) == (Status.OUT_OF_SERVICE, "true")
    assert second == persons
    assert terminating_as_out_of_service(going, [first, second]) == [first, second]
    steps = plan([first, second], [here[0], persons], OWNER)
    assert [change.action for change in steps.changes] == [Action.UPDATE, Action.SET_STATUS]
    assert {change.instance.key for change in steps.changes} == {first.key}


def test_a_pod_of_the_same_name_comes_back() -> None:
    """A StatefulSet's next pod is UP although its predecessor was set OUT_OF_SERVICE; a person's
    OUT_OF_SERVICE stays.
    """
    (wanted,) = pods(endpoint_slice(endpoint("10.0.0.1", "a-0"))).instances
    out = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    ours = replace(wanted, metadata={**wanted.metadata, LEAVING_KEY: "true"}, **out)  # type: ignore[arg-type]
    steps = plan([wanted], [ours], OWNER)
    assert [change.action for change in steps.changes] == [Action.SET_STATUS]
    update, back = plan([wanted], [replace(ours, ip_address="10.0.0.9")], OWNER).changes
    assert (update.action, back.action) == (Action.UPDATE, Action.SET_STATUS)
    assert (update.instance.metadata, back.instance) == (ours.metadata, wanted)
    assert plan([wanted], [replace(wanted, **out)], OWNER).changes == ()  # type: ignore[arg-type]


_names = st.sampled_from(["rating", "order"])
_references = st.none() | st.sampled_from(["http", "grpc", 80]) | st.integers(1, 65535)


@given(
    st.sampled_from(Mode),
    st.sampled_from(Advertise),
    _references,
    _references,
    st.sampled_from(NotReady),
    strategies.services(_names),
    strategies.slices(_names),
)
def test_whatever_is_asked_for(
    mode: Mode,
    advertise: Advertise,
    port: Any,
    secure_port: Any,
    not_ready: NotReady,
    services: list[Object],
    slices: list[Object],
) -> None:
    """For any settings the mapping never raises; each instance has an enabled port, and https only on
    request.
    """
    assume(mode is Mode.POD or advertise is not Advertise.HOST_PORT)  # which is refused
    syncer = Syncer(
        "team",
        "reviews",
        mode,
        Selector("shop", "rating"),
        "rating",
        port=port,
        secure_port=secure_port,
        advertise=advertise,
        not_ready=not_ready,
    )
    nodes = [node("a", InternalIP="10.64.0.1")]
    desired = desired_instances(syncer, services, slices, CLUSTER, nodes=nodes)
    for instance in desired.instances:
        assert instance.port.enabled or instance.secure_port.enabled
        assert instance.secure_port.enabled == (secure_port is not None)
        assert not_ready is NotReady.DOWN or instance.status is Status.UP


MANAGEMENT: Object = {"name": "management", "port": 8081, "protocol": "TCP", "nodePort": 30081}
MANAGED: Object = {"metadata_from_ports": {"management.port": "management"}}


def test_a_port_becomes_metadata_and_wins_over_a_label() -> None:
    """``metadataFromPorts`` takes the port's number from each endpoint's own slice."""
    described = service()
    described["metadata"]["labels"]["management.port"] = "1"
    slices = [
        endpoint_slice(endpoint("10.0.0.1", "a"), name="one", ports=[HTTP, MANAGEMENT]),
        endpoint_slice(endpoint("10.0.0.2", "b"), name="two", ports=[HTTP, {**MANAGEMENT, "port": 8082}]),
    ]
    desired = pods(*slices, services=[described], metadata_from_labels=("management.port",), **MANAGED)
    found = {one.ip_address: one.metadata["management.port"] for one in desired.instances}
    assert found == {"10.0.0.1": "8081", "10.0.0.2": "8082"}
    assert desired.left_out_metadata_sentences == ()


def test_another_number_of_a_port_reaches_instances_that_were_mapped() -> None:
    """A changed number of a metadata port updates cached instances, although endpoint and service port are
    unchanged.
    """
    known = MappingCache()

    def found(number: int) -> str:
        there = endpoint_slice(same, ports=[HTTP, {**MANAGEMENT, "port": number}])
        (one,) = desired_instances(
            replace(syncer(), **MANAGED), [service()], [there], CLUSTER, mapped=known
        ).instances
        return one.metadata["management.port"]

    same = endpoint("10.0.0.1", "a")
    assert [found(8081), found(8082)] == ["8081", "8082"]


def test_a_port_that_is_not_there_leaves_its_key_out() -> None:
    """The instance is registered without the key, and a sentence names key, port and Service."""
    desired = pods(
        endpoint_slice(endpoint("10.0.0.1", "a"), ports=[HTTP]),
        health_check_path="/health",
        health_check_port="management",
        **MANAGED,
    )
    (instance,) = desired.instances
    assert "management.port" not in instance.metadata
    assert (instance.health_check_url, instance.secure_health_check_url) == ("", "")
    assert (desired.may_be_incomplete, desired.left_out_endpoint_sentences) == (False, ())
    assert desired.left_out_metadata_sentences == (
        "management.port (TCP port management) of the endpoints of Service shop/rating",
        "the health check (TCP port management) of the endpoints of Service shop/rating",
    )


@pytest.mark.parametrize(
    ("port", "offered", "expected"),
    [
        ("management", MANAGEMENT, ("http://10.0.0.1:8081/health", "")),
        (8081, MANAGEMENT, ("http://10.0.0.1:8081/health", "")),
        ("management", {**MANAGEMENT, "appProtocol": "https"}, ("", "https://10.0.0.1:8081/health")),
        ("https", MANAGEMENT, ("", "https://10.0.0.1:8443/health")),
        (None, MANAGEMENT, ("http://10.0.0.1:8080/health", "https://10.0.0.1:8443/health")),
    ],
)
def test_the_health_checks_own_port(port: Any, offered: Object, expected: tuple[str, str]) -> None:
    """The health check uses this port only, by https if the port is the secure one or has an https
    protocol.
    """
    instance = one(
        [HTTP, HTTPS, offered], secure_port="https", health_check_path="/health", health_check_port=port
    )
    assert (instance.health_check_url, instance.secure_health_check_url) == expected


def test_ports_of_a_whole_service() -> None:
    """In mode service the numbers are the Service's ports, or its node ports if those are advertised."""
    described = service(ports=[HTTP, MANAGEMENT], clusterIP="10.96.0.1")
    fields: Object = {"health_check_path": "/health", "health_check_port": "management", **MANAGED}
    (instance,) = whole(described, **fields).instances
    assert instance.metadata["management.port"] == "8081"
    assert instance.health_check_url == "http://10.96.0.1:8081/health"
    (instance,) = whole(
        described, nodes=[node("n", InternalIP="10.64.0.1")], advertise=Advertise.NODE_PORT, **fields
    ).instances
    assert instance.metadata["management.port"] == "30081"
    assert instance.health_check_url == "http://10.64.0.1:30081/health"


def test_annotations_become_metadata_and_win_over_labels() -> None:
    """The syncer gives each annotation's key; a value that Eureka's clients could not read is left out and
    reported.
    """
    described = service()
    described["metadata"]["labels"]["team"] = "label"
    described["metadata"]["annotations"] = {
        "example.com/team": "stars",
        "example.com/long": "x" * 1025,
        "example.com/lines": "a\nb",
        "example.com/empty": "",
    }
    wanted = {key: f"example.com/{key}" for key in ("team", "long", "lines", "empty", "missing")}
    desired = pods(
        endpoint_slice(endpoint("10.0.0.1", "a")),
        services=[trim_service(described)],
        metadata_from_labels=("team",),
        metadata_from_annotations=wanted,
    )
    (instance,) = desired.instances
    assert set(instance.metadata) == {"team", OWNER_KEY, CLUSTER_UID_KEY}
    assert instance.metadata["team"] == "stars"
    assert desired.left_out_metadata_sentences == (
        "long of Service shop/rating, whose annotation example.com/long has more than 1024 characters",
        "lines of Service shop/rating, whose annotation example.com/lines has the control character U+000A",
    )


@pytest.mark.parametrize("field", ["metadata", "metadataFromPorts", "metadataFromAnnotations"])
@pytest.mark.parametrize(
    ("key", "words"), [("a/b", "XML element names"), ("eurekube.owner", "are Eurekube's own")]
)
def test_keys_that_are_refused(field: str, key: str, words: str) -> None:
    """An invalid or reserved metadata key, which an older CRD may have accepted, is refused with the
    field's name.
    """
    spec = {"mode": "pod", "selector": {"app": "rating"}, field: {key: "x"}}
    with pytest.raises(ConfigurationError, match=rf"spec\.{field}\b.*{words}"):
        Syncer.from_object({"metadata": {"namespace": "shop", "name": "x"}, "spec": spec})
