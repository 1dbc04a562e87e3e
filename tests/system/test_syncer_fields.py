"""Each field of a EurekaSyncer on real servers: its effect in Eureka and in the status.

One operator serves all tests; each has a namespace and an application of its own. The slices are written by
hand where a test depends on their content.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.identity import CLUSTER_UID_KEY, LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.core.shortfall import find_shortfalls
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    EVENTS,
    MERGE_PATCH_TYPE,
    NODES,
    PODS,
    SERVICES,
    STRATEGIC_MERGE_PATCH_TYPE,
    SYNCERS,
    ApiResource,
)
from lab import Lab
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from tests.system.conftest import Operator, instances, operator_environment

pytestmark = pytest.mark.lab

Object = dict[str, Any]
ENDPOINTS = ApiResource("", "v1", "endpoints")
HTTP = {"name": "http", "port": 8080}
HTTPS = {"name": "https", "port": 8443}
ADMIN = {"name": "admin", "port": 9090}
_numbers = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def operator(
    lab: Lab,
    cluster: Cluster,  # noqa: ARG001 - has the CRDs
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operator]:
    """Start one operator that watches all namespaces."""
    log = tmp_path_factory.mktemp("fields") / "operator.log"
    environment = operator_environment(
        lab,
        "",
        CLUSTER_NAME="fields",
        CLUSTER_DOMAIN="corp.example",
        PUBLISH="*=*",
        ADVERTISE_CIDRS="198.51.100.0/24,10.0.0.0/8",
        CLUSTER_CIDRS="10.77.0.0/16",
        ADVERTISE_HOSTS=".lb.example.com",
    )
    running = Operator(log, environment, [])
    running.wait_ready()
    yield running
    running.stop()
    print(running.text())


class Shop:
    """One application: its Service, its slices, its syncer, and its instances in Eureka."""

    def __init__(self, cluster: Cluster, eureka: Peers, namespace: str) -> None:
        self.cluster, self.eureka, self.namespace = cluster, eureka, namespace
        self.app = f"{namespace}-app"
        self._network = f"10.77.{next(_numbers)}"

    def address(self, number: int) -> str:
        """Return an address in the test's own network."""
        return f"{self._network}.{number}"

    def service(self, *ports: Object, labels: Object | None = None, **spec: Any) -> None:
        """Apply the Service without a selector, so that only the test writes its slices."""
        self.cluster.apply(
            SERVICES,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "namespace": self.namespace,
                    "name": self.app,
                    "labels": {"app": self.app, **(labels or {})},
                },
                "spec": {"ports": list(ports or (HTTP,)), **spec},
            },
        )

    def slices(self, *endpoints: Object, ports: tuple[Object, ...] = (HTTP,)) -> None:
        """Apply the Service's one EndpointSlice."""
        self.cluster.apply_endpoint_slice(self.namespace, self.app, endpoints, ports, f"{self.app}-x")

    def endpoint(self, number: int, pod: str | None = None, **conditions: bool) -> Object:
        """Return an endpoint, ready by default, which belongs to a pod if one is named."""
        result: Object = {"addresses": [self.address(number)], "conditions": {"ready": True, **conditions}}
        if pod:
            result["targetRef"] = {"kind": "Pod", "name": pod, "namespace": self.namespace}
        return result

    def syncer(
        self, mode: str = "pod", selector: Object | None = None, *, called: str = "it", **spec: Any
    ) -> None:
        """Apply the syncer with exactly these fields."""
        self.cluster.apply(
            SYNCERS,
            {
                "apiVersion": "eurekube.io/v1alpha1",
                "kind": "EurekaSyncer",
                "metadata": {"namespace": self.namespace, "name": called},
                "spec": {"mode": mode, "selector": selector or {"app": self.app}, **spec},
            },
        )

    def condition(self, kind: str, name: str = "it") -> tuple[str, str, str]:
        """Return status, reason and message of a condition; empty if there is none."""
        status = (self.cluster.get(SYNCERS, name, self.namespace) or {}).get("status") or {}
        found = next((one for one in status.get("conditions") or () if one["type"] == kind), None)
        return (found["status"], found["reason"], found["message"]) if found else ("", "", "")

    def wait_condition(self, kind: str, state: str, reason: str) -> str:
        """Wait for a condition; return its message."""
        wait_for(lambda: self.condition(kind)[:2] == (state, reason), f"{kind} {state} {reason}", 60.0)
        return self.condition(kind)[2]

    def held(self, application: str | None = None) -> list[Instance]:
        """Return the instances of the application in Eureka."""
        return instances(self.eureka, application or self.app)

    def statuses(self) -> dict[str, str]:
        """Return the status of each address in Eureka."""
        return {one.ip_address: one.status.value for one in self.held()}

    def wait_statuses(self, *states: str) -> None:
        """Wait until endpoints 1, 2 and so on have these statuses in Eureka; an empty one means not
        registered.
        """
        expected = {self.address(number): state for number, state in enumerate(states, 1) if state}
        wait_for(lambda: self.statuses() == expected, f"{expected}", 60.0)

    def only(self, application: str | None = None) -> Instance:
        """Wait for the application's one instance; return it past Eureka's caches."""
        (listed,) = wait_for(lambda: self.held(application), "an instance", 60.0)
        found = self.eureka.read(*listed.key)
        assert found is not None
        return found

    def events(self) -> list[tuple[str, str]]:
        """Return reason and note of each Event in the namespace."""
        return [(event["reason"], event["note"]) for event in self.cluster.items(EVENTS, self.namespace)]


@pytest.fixture
def shop(cluster: Cluster, eureka: Peers, namespace: str) -> Shop:
    """Return an application for one test."""
    return Shop(cluster, eureka, namespace)


def test_names_ports_paths_lease_and_metadata(shop: Shop) -> None:
    """Eureka holds each field as the syncer sets it."""
    shop.service(HTTP, HTTPS, labels={"team": "stars", "example.com/part-of": "web", "unasked": "x"})
    shop.slices(shop.endpoint(1, "a") | {"zone": "zone-b"}, ports=(ADMIN, HTTP, HTTPS))
    shop.syncer(
        selector={"app": shop.app, "matchLabels": {"team": "stars"}},
        application=f"{shop.app}-other",
        vipAddress="stars,ratings",
        secureVipAddress="stars-tls",
        port="admin",
        securePort=8443,
        metadata={"management.port": "9090", "team": "fixed"},
        metadataFromLabels=["team", "example.com/part-of", "missing"],
        homePagePath="/ui",
        statusPagePath="/actuator/info",
        healthCheckPath="/actuator/health",
        lease={"renewalIntervalSeconds": 10, "durationSeconds": 60},
    )
    found = shop.only(f"{shop.app}-other")
    assert found.instance_id == f"a.{shop.namespace}.fields:{shop.app}-other:9090"
    assert (found.vip_address, found.secure_vip_address) == ("stars,ratings", "stars-tls")
    assert (found.port, found.secure_port) == (Port(9090), Port(8443))
    assert found.lease == EurekaLease(10, 60)
    host = shop.address(1)
    assert found.home_page_url == f"https://{host}:8443/ui"
    assert found.status_page_url == f"https://{host}:8443/actuator/info"
    assert found.health_check_url == f"http://{host}:9090/actuator/health"
    assert found.secure_health_check_url == f"https://{host}:8443/actuator/health"
    metadata = {k: v for k, v in found.metadata.items() if k not in (OWNER_KEY, CLUSTER_UID_KEY)}
    assert metadata == {
        "management.port": "9090",
        "team": "fixed",
        "example.com.part-of": "web",
        "zone": "zone-b",
    }
    shop.wait_condition("Synced", "True", "Synced")
    assert shop.held() == []


def test_labels_alone_select_services(shop: Shop) -> None:
    """A syncer may select by labels only; when a Service gets or loses the label, its instances come or
    leave.
    """
    shop.service(labels={"tier": "web"})
    shop.slices(shop.endpoint(1))
    shop.syncer(selector={"matchLabels": {"tier": "web"}}, application=shop.app)
    shop.wait_statuses("UP")
    shop.service(labels={"tier": "db"})
    message = shop.wait_condition("Synced", "False", "NoMatchingService")
    assert "has the labels tier=web" in message
    shop.wait_statuses()
    shop.service(labels={"tier": "web"})
    shop.wait_statuses("UP")


def test_a_port_that_is_not_clear(shop: Shop) -> None:
    """Several ports without one named http set a condition, naming a port ends it, and a wrong name keeps
    the instances.
    """
    shop.service(ADMIN, HTTPS)
    shop.slices(shop.endpoint(1), ports=(ADMIN, HTTPS))
    shop.syncer()
    message = shop.wait_condition("AmbiguousPort", "True", "AmbiguousPort")
    assert "admin=9090, https=8443" in message
    assert shop.condition("Ready")[:2] == ("False", "AmbiguousPort")
    shop.syncer(port=9090)
    shop.wait_statuses("UP")
    shop.wait_condition("AmbiguousPort", "False", "Resolved")
    shop.syncer(port="grpc")
    message = shop.wait_condition("NoPort", "True", "NoPort")
    assert "admin=9090, https=8443" in message
    shop.wait_statuses("UP")
    assert shop.condition("Ready")[:2] == ("True", "InstancesUp")
    assert shop.condition("Synced")[:2] == ("False", "NoPort")
    shop.slices(
        shop.endpoint(1, ready=False, terminating=True), shop.endpoint(2), ports=(ADMIN, HTTPS)
    )  # what leaves is no matter of ports
    shop.wait_statuses()
    shop.slices(shop.endpoint(1), ports=(ADMIN, HTTPS))
    shop.syncer(securePort="https")
    wait_for(lambda: [one.port for one in shop.held()] == [Port(8443, enabled=False)], "https alone", 60.0)
    assert shop.only().secure_port == Port(8443)


def test_every_way_to_advertise_a_service(shop: Shop) -> None:
    """In mode service callers get the requested kind of address, and the port that belongs to it."""
    shop.service(type="LoadBalancer", externalIPs=["198.51.100.7"], labels={"version": "7"})
    shop.cluster.access.request(
        "PATCH",
        SERVICES.path(shop.namespace, shop.app, "status"),
        body={"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}},
        content_type=MERGE_PATCH_TYPE,
    )
    spec = shop.cluster.access.get(SERVICES.path(shop.namespace, shop.app))["spec"]
    shop.slices(shop.endpoint(1))
    dns = f"{shop.app}.{shop.namespace}.svc.corp.example"
    for advertise, host, address, port in (
        ("Auto", "192.0.2.7", "192.0.2.7", 8080),
        ("ExternalIP", "198.51.100.7", "198.51.100.7", 8080),
        ("NodePort", "10.64.0.1", "10.64.0.1", spec["ports"][0]["nodePort"]),
        ("ClusterIP", spec["clusterIP"], spec["clusterIP"], 8080),
        ("ClusterDNS", dns, spec["clusterIP"], 8080),
        ("LoadBalancer", "192.0.2.7", "192.0.2.7", 8080),
    ):
        shop.syncer("service", advertise=advertise, metadataFromLabels=["version"])
        expected = [(host, address, Port(port), Status.UP, "7")]
        wait_for(
            lambda expected=expected: (  # type: ignore[misc]
                [
                    (one.host_name, one.ip_address, one.port, one.status, one.metadata["version"])
                    for one in shop.held()
                ]
                == expected
            ),
            f"{advertise}: {expected}",
            30.0,
        )
    shop.slices(shop.endpoint(1, ready=False))
    wait_for(lambda: shop.statuses() == {"192.0.2.7": "DOWN"}, "DOWN without a ready endpoint", 60.0)
    shop.wait_condition("Ready", "False", "NoneUp")
    assert shop.condition("Synced")[0] == "True"


def test_an_address_by_hand(shop: Shop) -> None:
    """A given address is used if the configuration allows it; else the syncer is refused, and its
    registered instance stays.
    """
    shop.service()
    shop.slices(shop.endpoint(1))
    for address in ("198.51.100.9", "a.lb.example.com"):
        shop.syncer("service", address=address)
        wait_for(
            lambda address=address: (
                [(one.host_name, one.port) for one in shop.held()]  # type: ignore[misc]
                == [(address, Port(8080))]
            ),
            address,
            60.0,
        )
    for address in (shop.address(1), "127.0.0.1", "lb.example.org"):
        shop.syncer("service", address=address)
        wait_for(lambda address=address: address in shop.condition("Ready")[2], address, 60.0)  # type: ignore[misc]
        shop.wait_condition("Ready", "False", "NotAllowed")
        assert [one.host_name for one in shop.held()] == ["a.lb.example.com"]
    shop.syncer("service", address="198.51.100.9")
    shop.wait_condition("Ready", "True", "Synced")
    assert [one.host_name for one in shop.held()] == ["198.51.100.9"]


def test_a_node_port_is_registered_at_several_nodes(shop: Shop) -> None:
    """A NodePort is registered at both of the lab's nodes, both are DOWN together, and with one node a
    single instance is left.
    """
    shop.service(type="NodePort")
    shop.slices(shop.endpoint(1))
    shop.syncer("service", advertise="NodePort", nodes=3)
    both = {"10.64.0.1": "UP", "10.64.0.2": "UP"}
    wait_for(lambda: shop.statuses() == both, "both nodes", 60.0)
    (first,) = (one for one in shop.held() if one.ip_address == "10.64.0.1")
    assert first.instance_id.startswith(f"{shop.app}.svc.{shop.namespace}.fields:")
    shop.slices(shop.endpoint(1, ready=False))
    wait_for(lambda: shop.statuses() == dict.fromkeys(both, "DOWN"), "both DOWN", 60.0)
    shop.slices(shop.endpoint(1))
    wait_for(lambda: shop.statuses() == both, "both UP", 60.0)
    shop.syncer("service", advertise="NodePort")
    wait_for(lambda: [one.key for one in shop.held()] == [first.key], "one", 60.0)
    shop.wait_condition("Ready", "True", "Synced")


def test_a_node_port_leaves_a_node_that_is_drained(shop: Shop) -> None:
    """A cordoned node's instance moves to the next node, while its own address still answers, and comes
    back.
    """
    shop.service(type="NodePort")
    shop.slices(shop.endpoint(1))
    shop.syncer("service", advertise="NodePort")
    wait_for(lambda: shop.statuses() == {"10.64.0.1": "UP"}, "the first node", 60.0)
    (before,) = shop.held()
    (first,) = (
        one["metadata"]["name"]
        for page in shop.cluster.access.pages(NODES.path())
        for one in page["items"]
        if any(it["address"] == "10.64.0.1" for it in one["status"]["addresses"])
    )

    def cordon(unschedulable: bool | None) -> None:
        body = {"spec": {"unschedulable": unschedulable}}
        path = NODES.path(None, first)
        shop.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)

    cordon(True)
    try:
        wait_for(lambda: shop.statuses() == {"10.64.0.2": "UP"}, "the other node", 60.0)
        assert [one.key for one in shop.held()] == [before.key]
    finally:
        cordon(None)
    wait_for(lambda: shop.statuses() == {"10.64.0.1": "UP"}, "the first node again", 60.0)


def test_labels_of_pods(shop: Shop) -> None:
    """Chosen pod labels become metadata, and follow changes of the labels."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": shop.namespace, "name": "a", "labels": {"example.com/version": "1"}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"},
    }
    shop.cluster.apply(PODS, pod)
    shop.service()
    shop.slices(shop.endpoint(1, "a"), shop.endpoint(2))
    shop.syncer(metadataFromPodLabels=["example.com/version"])

    def versions() -> dict[str, str | None]:
        return {one.ip_address: one.metadata.get("example.com.version") for one in shop.held()}

    wait_for(lambda: versions() == {shop.address(1): "1", shop.address(2): None}, "version 1", 60.0)
    shop.cluster.access.request(
        "PATCH",
        PODS.path(shop.namespace, "a"),
        body={"metadata": {"labels": {"example.com/version": "2"}}},
        content_type=STRATEGIC_MERGE_PATCH_TYPE,
    )
    wait_for(lambda: versions() == {shop.address(1): "2", shop.address(2): None}, "version 2", 60.0)


def test_metadata_that_do_not_fit_cost_no_instance(shop: Shop) -> None:
    """Annotations of the Service that outgrow an instance's metadata keep no new pod out: what does not fit
    is left out, and said.
    """
    keys = [f"k{number}" for number in range(5)]
    shop.service()
    shop.slices(shop.endpoint(1, "a"))
    shop.syncer(metadataFromAnnotations={key: f"example.com/{key}" for key in keys}, metadata={"k": "fixed"})
    shop.wait_statuses("UP")
    shop.cluster.access.request(
        "PATCH",
        SERVICES.path(shop.namespace, shop.app),
        body={"metadata": {"annotations": {f"example.com/{key}": "x" * 1000 for key in keys}}},
        content_type=MERGE_PATCH_TYPE,
    )
    shop.slices(shop.endpoint(1, "a", ready=False, terminating=True), shop.endpoint(2, "b"))
    shop.wait_statuses("", "UP")
    said = shop.wait_condition("MetadataLeftOut", "True", "MetadataLeftOut")
    assert "k4 of Service" in said
    metadata = shop.only().metadata
    assert [key for key in ("k", *keys) if key in metadata] == ["k", "k0", "k1", "k2", "k3"]
    assert shop.condition("Ready")[0] == "True"


def test_host_ports(shop: Shop) -> None:
    """A pod is registered at its node's address with its host port; the next pod of that name moves with its
    node, and an ended one leaves.
    """

    def run_pod(name: str, number: int, node: int, **port: Any) -> None:
        where = PODS.path(shop.namespace, name)
        if shop.cluster.get(PODS, name, shop.namespace):
            shop.cluster.access.request("DELETE", where, body={"gracePeriodSeconds": 0})
        container = {"name": "main", "image": "none", "ports": [{"containerPort": 8080, **port}]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": shop.namespace, "name": name},
            "spec": {"containers": [container], "schedulerName": "nobody"},
        }
        shop.cluster.apply(PODS, pod)
        ips = {"podIP": shop.address(number), "hostIP": f"192.0.2.{node}"}
        several = {"podIPs": [{"ip": ips["podIP"]}], "hostIPs": [{"ip": ips["hostIP"]}]}
        shop.cluster.access.request(
            "PATCH",
            f"{where}/status",
            body={"status": {"phase": "Running", **ips, **several}},
            content_type=STRATEGIC_MERGE_PATCH_TYPE,
        )

    def wait_places(**states: str) -> None:
        expected = {f"192.0.2.{place[1:].replace('_', ':')}": state for place, state in states.items()}
        wait_for(lambda: places() == expected, f"{expected}", 60.0)

    def places() -> dict[str, str]:
        return {f"{one.ip_address}:{one.port.number}": one.status.value for one in shop.held()}

    shop.service()
    run_pod("a-0", 1, 1, hostPort=30080)
    run_pod("a-1", 2, 2, hostPort=30080)
    run_pod("a-2", 3, 3)
    shop.slices(shop.endpoint(1, "a-0"), shop.endpoint(2, "a-1"), shop.endpoint(3, "a-2"))
    shop.syncer(advertise="HostPort", healthCheckPath="/health")
    wait_places(n1_30080="UP", n2_30080="UP")
    said = shop.wait_condition("EndpointsLeftOut", "True", "EndpointsLeftOut")
    assert f"1 endpoint of Service {shop.namespace}/{shop.app} without a hostPort" in said
    found = next(one for one in shop.held() if one.ip_address == "192.0.2.1")
    assert found.instance_id == f"a-0.{shop.namespace}.fields:{shop.app}:30080"
    assert found.health_check_url == "http://192.0.2.1:30080/health"

    shop.slices(shop.endpoint(1, "a-0", ready=False), shop.endpoint(2, "a-1"))
    wait_places(n1_30080="DOWN", n2_30080="UP")
    # The endpoint of the next pod a-1 is known before the pod itself.
    shop.slices(shop.endpoint(1, "a-0"), shop.endpoint(4, "a-1"))
    wait_for(lambda: "not read yet" in shop.condition("EndpointsLeftOut")[2], "the unread pod", 60.0)
    wait_places(n1_30080="UP", n2_30080="UP")
    run_pod("a-1", 4, 4, hostPort=30081)
    wait_places(n1_30080="UP", n4_30081="UP")
    shop.slices(shop.endpoint(1, "a-0", ready=False, terminating=True), shop.endpoint(4, "a-1"))
    wait_places(n4_30081="UP")


def test_not_ready_can_mean_removed(shop: Shop) -> None:
    """With notReady Remove an unready endpoint is deregistered, and registered again when it is ready."""
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer(notReady="Remove")
    shop.wait_statuses("UP", "UP")
    shop.slices(shop.endpoint(1), shop.endpoint(2, ready=False))
    shop.wait_statuses("UP")
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.wait_statuses("UP", "UP")


def test_out_of_service_on_the_way_out(shop: Shop) -> None:
    """A terminating pod is OUT_OF_SERVICE until its endpoint is gone; the next pod of that name is UP."""
    shop.service()
    shop.slices(shop.endpoint(1, "a-0"), shop.endpoint(2, "a-1"))
    shop.syncer(onTermination="OutOfService")
    shop.wait_statuses("UP", "UP")
    shop.slices(shop.endpoint(1, "a-0", ready=False, terminating=True), shop.endpoint(2, "a-1"))
    shop.wait_statuses("OUT_OF_SERVICE", "UP")
    held = shop.eureka.read(shop.app, f"a-0.{shop.namespace}.fields:{shop.app}:8080")
    assert held is not None
    assert held.overridden_status is Status.OUT_OF_SERVICE
    # The next pod of a StatefulSet, before anybody saw the endpoint gone.
    shop.slices(shop.endpoint(1, "a-0"), shop.endpoint(2, "a-1"))
    shop.wait_statuses("UP", "UP")
    wait_for(lambda: not [one for one in shop.held() if LEAVING_KEY in one.metadata], "no mark", 60.0)
    shop.slices(shop.endpoint(1, "a-0", ready=False, terminating=True), shop.endpoint(2, "a-1"))
    shop.wait_statuses("OUT_OF_SERVICE", "UP")
    shop.slices(shop.endpoint(2, "a-1"))
    shop.wait_statuses("", "UP")


def test_upsert_only(shop: Shop) -> None:
    """UpsertOnly registers and updates but removes nothing, until the syncer itself is deleted."""
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer(policy="UpsertOnly")
    shop.wait_statuses("UP", "UP")
    shop.slices(shop.endpoint(2, ready=False), shop.endpoint(3))
    shop.wait_statuses("UP", "DOWN", "UP")
    shop.wait_condition("Synced", "True", "Synced")
    shop.cluster.delete(SYNCERS, "it", shop.namespace)
    shop.wait_statuses()


def test_paused(shop: Shop) -> None:
    """A paused syncer changes nothing, and its status says so; afterwards the brake works as before."""
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer()
    shop.wait_statuses("UP", "UP")
    shop.syncer(paused=True)
    shop.wait_condition("Paused", "True", "Paused")
    assert shop.condition("Ready")[:2] == ("True", "Synced")
    shop.slices()
    shop.wait_condition("Synced", "False", "Paused")
    assert "2 changes wait" in shop.condition("Paused")[2]
    assert shop.condition("Ready")[0] == "True"
    shop.syncer(paused=False)
    shop.wait_condition("Braked", "True", "Braked")
    shop.wait_statuses("UP", "UP")
    shop.slices(shop.endpoint(1))
    shop.wait_statuses("UP")
    shop.wait_condition("Braked", "False", "Resolved")
    shop.wait_condition("Paused", "False", "Resolved")
    shop.wait_condition("Synced", "True", "Synced")


def test_an_unknown_connection(shop: Shop) -> None:
    """The condition names the existing connections; a terminating pod's instance leaves, and nothing else
    changes.
    """
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer()
    shop.wait_statuses("UP", "UP")
    shop.syncer(eureka="eu-west")
    message = shop.wait_condition("Synced", "False", "UnknownEureka")
    assert "'eu-west'" in message
    assert "there are default" in message
    shop.slices(shop.endpoint(1), shop.endpoint(2, ready=False, terminating=True), shop.endpoint(3))
    shop.wait_statuses("UP")
    shop.wait_condition("Ready", "False", "UnknownEureka")
    wait_for(lambda: f"holds 1 instance of {shop.app.upper()} (1 UP)" in shop.condition("Ready")[2], "one")
    shop.syncer(eureka="default")
    shop.wait_statuses("UP", "", "UP")
    shop.wait_condition("Synced", "True", "Synced")


def test_a_wrong_selector_on_a_serving_syncer(shop: Shop) -> None:
    """The syncer is not ready at once; its message says what Eureka holds and until when the brake holds
    the removal.
    """
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer()
    shop.wait_statuses("UP", "UP")
    shop.wait_condition(
        "Ready", "True", "Synced"
    )  # a status of before the Service was seen has the reason, too
    shop.syncer(selector={"app": "nobody"})
    message = shop.wait_condition("Ready", "False", "NoMatchingService")
    assert f"Eureka holds 2 instances of {shop.app.upper()} (2 UP)" in message
    assert "held back until 20" in message
    assert shop.cluster.get(SYNCERS, "it", shop.namespace)["status"]["instances"] == "2/0"  # type: ignore[index]
    shop.syncer()
    shop.wait_condition("Ready", "True", "Synced")
    shop.wait_statuses("UP", "UP")


def test_a_renamed_syncer_leaves_no_gap(shop: Shop) -> None:
    """A second syncer for the same endpoints takes over the instances when the first is deleted; every
    reading finds them.
    """
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer()
    shop.wait_statuses("UP", "UP")
    keys = [one.key for one in shop.held()]
    shop.syncer(called="renamed")
    wait_for(lambda: shop.condition("Conflict", "renamed")[0] == "True", "Conflict", 60.0)
    shop.cluster.delete(SYNCERS, "it", shop.namespace)
    readings: list[list[Instance | None]] = []

    def has_passed() -> bool:
        readings.append([shop.eureka.read(*key) for key in keys])
        return all(one is not None and (one.owner or "").endswith("/renamed") for one in readings[-1])

    wait_for(has_passed, "the new owner", 60.0)
    assert all(one is not None and one.status is Status.UP for reading in readings for one in reading)
    wait_for(lambda: shop.condition("Synced", "renamed")[0] == "True", "Synced", 60.0)
    wait_for(lambda: shop.cluster.get(SYNCERS, "it", shop.namespace) is None, "the finalizer", 60.0)


def test_a_lease_that_a_fail_over_outlasts(shop: Shop) -> None:
    """A lease shorter than a change of leader is registered as asked, and a condition names a sufficient
    one.
    """
    shop.service()
    shop.slices(shop.endpoint(1))
    shop.syncer(lease={"renewalIntervalSeconds": 5, "durationSeconds": 10})
    assert shop.only().lease == EurekaLease(5, 10)
    message = shop.wait_condition("LeaseTooShort", "True", "LeaseTooShort")
    assert message.endswith("take at least 12")
    shop.wait_condition("Synced", "True", "Synced")
    shop.syncer(lease={"renewalIntervalSeconds": 5, "durationSeconds": 12})
    shop.wait_condition("LeaseTooShort", "False", "Resolved")


def test_pods_that_end_too_early(shop: Shop) -> None:
    """Pods that end before callers know are registered all the same, and following the condition's advice
    ends it.

    Endpoints written by hand get no such condition.
    """
    cluster, namespace, app = shop.cluster, shop.namespace, shop.app
    by_hand = f"{app}-by-hand"
    cluster.apply(
        SERVICES,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": namespace, "name": by_hand},
            "spec": {"ports": [HTTP]},
        },
    )
    subsets = [{"addresses": [{"ip": shop.address(1)}], "ports": [HTTP]}]
    metadata = {"namespace": namespace, "name": by_hand}
    cluster.apply(
        ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
    )
    cluster.apply_syncer(namespace, by_hand)
    cluster.apply_deployment(namespace, app, 2, prestop_seconds=20)
    cluster.apply_service(namespace, app)
    shop.syncer()
    message = shop.wait_condition("DrainTooShort", "True", "DrainTooShort")
    assert f"pods of Deployment {namespace}/{app} serve for 20 s" in message
    shop.wait_condition("Ready", "True", "Synced")
    shop.wait_condition("Synced", "True", "Synced")
    wait_for(lambda: ("DrainTooShort", message) in shop.events(), "a warning", 60.0)

    (fixed,) = find_shortfalls(cluster.pods(namespace, app)[0]["spec"], 120)
    assert fixed.remedy in message
    cluster.access.request(
        "PATCH",
        DEPLOYMENTS.path(namespace, app),
        body={"spec": {"template": {"spec": fixed.pod_spec_patch}}},
        content_type=STRATEGIC_MERGE_PATCH_TYPE,
    )
    shop.wait_condition("DrainTooShort", "False", "Resolved")
    assert [reason for reason, _ in shop.events()].count("DrainTooShort") == 1

    status = (cluster.get(SYNCERS, by_hand, namespace) or {})["status"]
    assert [one["type"] for one in status["conditions"]] == ["Ready", "Synced"]
    assert status["instances"] == "1/1"


def test_addresses_that_are_published_before_they_are_ready(shop: Shop) -> None:
    """With publishNotReadyAddresses Kubernetes reports an unready pod as ready, so that it is registered
    UP.
    """
    cluster, namespace, app = shop.cluster, shop.namespace, shop.app
    cluster.apply_deployment(namespace, app, 1)
    cluster.apply_service(namespace, app, publishNotReadyAddresses=True)
    wait_for(lambda: cluster.ready_addresses(namespace, app), "an endpoint", 60.0)
    cluster.set_ready(cluster.pods(namespace, app)[0], ready=False)

    def serving() -> list[bool]:
        slices = cluster.items(ENDPOINT_SLICES, namespace, **{"kubernetes.io/service-name": app})
        return [one["conditions"]["serving"] for item in slices for one in item.get("endpoints") or ()]

    wait_for(lambda: serving() == [False], "an endpoint that does not serve", 60.0)
    (address,) = cluster.ready_addresses(namespace, app)
    shop.syncer()
    wait_for(lambda: shop.statuses() == {address: "UP"}, "UP", 60.0)


def test_endpoints_that_somebody_wrote_by_hand(shop: Shop) -> None:
    """Kubernetes mirrors an Endpoints object into slices: each address is registered, an unready one as
    DOWN.
    """
    shop.service()
    shop.cluster.apply(
        ENDPOINTS,
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"namespace": shop.namespace, "name": shop.app},
            "subsets": [
                {
                    "addresses": [{"ip": shop.address(1)}],
                    "notReadyAddresses": [{"ip": shop.address(2)}],
                    "ports": [HTTP],
                }
            ],
        },
    )
    shop.syncer()
    shop.wait_statuses("UP", "DOWN")
    ids = {one.instance_id for one in shop.held()}
    assert ids == {f"{shop.address(number)}.{shop.namespace}.fields:{shop.app}:8080" for number in (1, 2)}


def test_events_are_counted(shop: Shop) -> None:
    """An Event counts registrations or deregistrations, and is repeated for later ones."""
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2), shop.endpoint(3))
    shop.syncer()
    name = shop.app.upper()
    shop.wait_statuses("UP", "UP", "UP")
    wait_for(lambda: ("Registered", f"3 instances of {name} registered") in shop.events(), "an Event", 60.0)
    for _ in range(2):
        going = shop.endpoint(3, ready=False, terminating=True)  # or the brake would doubt it
        shop.slices(shop.endpoint(1), shop.endpoint(2), going)
        shop.wait_statuses("UP", "UP")
        shop.slices(shop.endpoint(1), shop.endpoint(2), shop.endpoint(3))
        shop.wait_statuses("UP", "UP", "UP")
    wait_for(
        lambda: sum(int(note.split()[0]) for reason, note in shop.events() if reason == "Registered") == 5,
        "five registered in all",
        30.0,
    )
    wait_for(
        lambda: sum(int(note.split()[0]) for reason, note in shop.events() if reason == "Deregistered") == 2,
        "two deregistered in all",
        30.0,
    )
