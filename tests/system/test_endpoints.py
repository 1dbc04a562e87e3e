"""Services, endpoints and addresses that become instances, on a real API server and a real Eureka server.

The manifests are those of users of other bridges and proxies, with names of our own. One operator serves all
tests; each has a namespace of its own, whose name stands for ``$N`` in the manifests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    MERGE_PATCH_TYPE,
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

_KINDS: dict[str, ApiResource] = {
    "Deployment": DEPLOYMENTS,
    "EndpointSlice": ENDPOINT_SLICES,
    "Endpoints": ApiResource("", "v1", "endpoints"),
    "EurekaSyncer": SYNCERS,
    "Pod": PODS,
    "Service": SERVICES,
}
_VERSIONS = {
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "EurekaSyncer": "eurekube.io/v1alpha1",
}


@pytest.fixture(scope="module", autouse=True)
def operator(
    lab: Lab,
    cluster: Cluster,  # noqa: ARG001 - has the CRDs
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operator]:
    """Start one operator that watches all namespaces."""
    log = tmp_path_factory.mktemp("endpoints") / "operator.log"
    environment = operator_environment(lab, "", CLUSTER_NAME="ends", PUBLISH="*=*", LEASE_NAME="ends-leader")
    running = Operator(log, environment, ["--operator-name", "ends"])
    running.wait_ready()
    yield running
    running.stop()
    print(running.text())


class Place:
    """A test's namespace, and the instances of its applications in Eureka."""

    def __init__(self, cluster: Cluster, eureka: Peers, namespace: str) -> None:
        self.cluster, self.eureka, self.namespace = cluster, eureka, namespace

    def apply(self, manifests: str) -> None:
        """Apply manifests, to which ``apiVersion`` and namespace are added."""
        for item in yaml.safe_load_all(manifests.replace("$N", self.namespace)):
            kind = item["kind"]
            item["apiVersion"] = _VERSIONS.get(kind, "v1")
            item["metadata"]["namespace"] = self.namespace
            self.cluster.apply(_KINDS[kind], item)

    def patch(self, kind: str, name: str, body: dict[str, Any], part: str = "") -> None:
        """Patch an object, or a subresource such as its status; null removes a field."""
        path = _KINDS[kind].path(self.namespace, name, *([part] if part else []))
        self.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)

    def held(self, application: str) -> list[Instance]:
        """Return the instances of an application of this namespace."""
        return instances(self.eureka, f"{self.namespace}-{application}")

    def addresses(self, application: str) -> dict[str, str]:
        """Return the status of each instance of an application, by address and port."""
        return {f"{one.ip_address}:{one.port.number}": one.status.value for one in self.held(application)}

    def wait_held(self, application: str, expected: dict[str, str], seconds: float = 60.0) -> None:
        """Wait until Eureka holds exactly these instances of an application."""
        wait_for(lambda: self.addresses(application) == expected, f"{application}: {expected}", seconds)

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a syncer's condition; empty if there is none."""
        status = (self.cluster.get(SYNCERS, name, self.namespace) or {}).get("status") or {}
        found = next((one for one in status.get("conditions") or () if one["type"] == kind), None)
        return (found["status"], found["reason"], found["message"]) if found else ("", "", "")

    def wait_condition(self, name: str, kind: str, state: str, reason: str) -> str:
        """Wait for a condition of a syncer; return its message."""
        wait_for(lambda: self.condition(name, kind)[:2] == (state, reason), f"{kind} {state} {reason}", 60.0)
        return self.condition(name, kind)[2]

    def pods(self, app: str, count: int) -> list[str]:
        """Wait until a Deployment's pods are ready; return their addresses."""

        def ready() -> list[str] | None:
            pods = self.cluster.pods(self.namespace, app)
            found = [
                pod["status"]["podIP"]
                for pod in pods
                if {"type": "Ready", "status": "True"}.items()
                <= next(
                    (c for c in pod["status"].get("conditions") or () if c["type"] == "Ready"), {}
                ).items()
            ]
            return sorted(found) if len(found) == len(pods) == count else None

        return wait_for(ready, f"{count} ready pods of {app}", 60.0)


@pytest.fixture
def place(cluster: Cluster, eureka: Peers, namespace: str) -> Place:
    """Return a namespace for one test."""
    return Place(cluster, eureka, namespace)


CHART = """
kind: Deployment
metadata: {name: stock}
spec:
  replicas: 2
  selector: {matchLabels: {app: stock}}
  template:
    metadata: {labels: {app: stock}}
    spec:
      containers:
      - name: main
        image: x
        ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9090}]
---
kind: Service
metadata: {name: $N-stock, labels: {app: $N-stock}}
spec: {selector: {app: stock}, ports: [{name: http, port: 80, targetPort: http}]}
---
kind: Service
metadata: {name: $N-stock-metrics, labels: {app: $N-stock}}
spec: {selector: {app: stock}, ports: [{name: metrics, port: 9090, targetPort: metrics}]}
---
kind: Service
metadata: {name: $N-stock-headless, labels: {app: $N-stock}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: stock}
  ports: [{name: http, port: 8080, targetPort: http}]
---
kind: EurekaSyncer
metadata: {name: stock}
spec: {mode: pod, selector: {app: $N-stock}}
"""


def test_a_chart_that_gives_one_label_to_all_its_services(place: Place) -> None:
    """If several Services have one label, only the one named like the application is registered; the
    others do not make an unready pod UP.
    """
    place.apply(CHART)
    first, second = place.pods("stock", 2)
    place.wait_held("stock", {f"{first}:8080": "UP", f"{second}:8080": "UP"})
    place.cluster.set_ready(place.cluster.pods(place.namespace, "stock")[0], ready=False)
    place.wait_held("stock", {f"{first}:8080": "DOWN", f"{second}:8080": "UP"})
    place.wait_condition("stock", "Synced", "True", "Synced")


def test_services_of_which_none_is_called_as_the_application(place: Place) -> None:
    """If no Service is named like the application, registered pods stay, pods of the same Service and port
    join, and a condition names the Services.
    """
    place.apply(CHART.replace("$N-stock", "$N-stock-svc").replace("app: $N-stock-svc}", "app: $N-stock}"))
    message = place.wait_condition("stock", "AmbiguousService", "True", "AmbiguousService")
    for name in ("svc", "svc-metrics"):
        assert f"{place.namespace}-stock-{name}" in message
    assert place.held("stock") == []
    for name in ("metrics", "headless"):
        place.cluster.delete(SERVICES, f"{place.namespace}-stock-svc-{name}", place.namespace)
    both = {f"{one}:8080": "UP" for one in place.pods("stock", 2)}
    place.wait_held("stock", both)
    place.wait_condition("stock", "Ready", "True", "Synced")
    place.apply(CHART.split("---")[2].replace("name: $N-stock-metrics", "name: $N-stock-other"))
    place.wait_condition("stock", "Synced", "False", "AmbiguousService")
    place.cluster.scale(place.namespace, "stock", 3)
    place.pods("stock", 3)
    place.wait_held("stock", {f"{one}:8080": "UP" for one in place.pods("stock", 3)})
    place.wait_condition("stock", "Ready", "True", "InstancesUp")
    place.patch("EurekaSyncer", "stock", {"spec": {"port": "http"}})
    place.wait_held("stock", {f"{one}:8080": "UP" for one in place.pods("stock", 3)})
    place.wait_condition("stock", "AmbiguousService", "False", "Resolved")


ALIAS = """
kind: Deployment
metadata: {name: order}
spec:
  replicas: 2
  selector: {matchLabels: {app: order}}
  template:
    metadata: {labels: {app: order}}
    spec: {containers: [{name: main, image: x, ports: [{name: http, containerPort: 8080}]}]}
---
kind: Service
metadata: {name: $N-order, labels: {app: $N-order}}
spec: {selector: {app: order}, ports: [{name: http, port: 8080}]}
---
kind: EurekaSyncer
metadata: {name: order}
spec: {mode: pod, selector: {app: $N-order}}
---
kind: EurekaSyncer
metadata: {name: order-lb}
spec: {mode: service, selector: {app: $N-order}, application: $N-order-lb}
"""


def test_a_service_that_becomes_a_name_for_another_one(place: Place) -> None:
    """When a Service becomes an ExternalName, its slices stay in Kubernetes: the instances leave after the
    brake, the released cluster IP at once.
    """
    place.apply(ALIAS)
    pods = {f"{one}:8080": "UP" for one in place.pods("order", 2)}
    place.wait_held("order", pods)
    service = f"{place.namespace}-order"
    cluster_ip = place.cluster.access.get(SERVICES.path(place.namespace, service))["spec"]["clusterIP"]
    place.wait_held("order-lb", {f"{cluster_ip}:8080": "UP"})
    place.patch(
        "Service",
        service,
        {"spec": {"type": "ExternalName", "externalName": "order.example.com", "clusterIP": ""}},
    )
    message = place.wait_condition("order", "Ready", "False", "ExternalName")
    assert "order.example.com" in message
    place.wait_held("order-lb", {})
    place.wait_condition("order", "Braked", "True", "Braked")
    assert place.addresses("order") == pods
    place.patch("EurekaSyncer", "order", {"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: "now"}}})
    place.wait_held("order", {})
    assert place.condition("order", "Ready")[:2] == ("False", "ExternalName")


WORKERS = """
kind: Deployment
metadata: {name: price}
spec:
  replicas: 2
  selector: {matchLabels: {app: price, role: web}}
  template:
    metadata: {labels: {app: price, role: web}}
    spec: {containers: [{name: main, image: x, ports: [{name: http, containerPort: 8080}]}]}
---
kind: Deployment
metadata: {name: price-worker}
spec:
  replicas: 1
  selector: {matchLabels: {app: price, role: worker}}
  template:
    metadata: {labels: {app: price, role: worker}}
    spec: {containers: [{name: main, image: x}]}
---
kind: Service
metadata: {name: $N-price, labels: {app: $N-price}}
spec: {selector: {app: price}, ports: [{name: http, port: 80, targetPort: http}]}
---
kind: EurekaSyncer
metadata: {name: price}
spec: {mode: pod, selector: {app: $N-price}, notReady: Remove}
"""


def test_pods_without_the_named_port_beside_others(place: Place) -> None:
    """A pod without the named port is not registered, and a condition says so; unready and unselected pods
    still leave.
    """
    place.apply(WORKERS)
    place.pods("price", 3)
    web = place.cluster.items(PODS, place.namespace, role="web")
    one, other = sorted(pod["status"]["podIP"] for pod in web)
    place.wait_held("price", {f"{one}:8080": "UP", f"{other}:8080": "UP"})
    message = place.wait_condition("price", "EndpointsLeftOut", "True", "EndpointsLeftOut")
    assert f"1 endpoint of Service {place.namespace}/{place.namespace}-price without a TCP port" in message
    place.wait_condition("price", "Synced", "True", "Synced")
    first = next(pod for pod in web if pod["status"]["podIP"] == one)
    place.cluster.set_ready(first, ready=False)
    place.wait_held("price", {f"{other}:8080": "UP"})
    place.cluster.set_ready(first, ready=True)
    place.wait_held("price", {f"{one}:8080": "UP", f"{other}:8080": "UP"})
    place.patch("Pod", first["metadata"]["name"], {"metadata": {"labels": {"app": "debug"}}})
    wait_for(lambda: f"{one}:8080" not in place.addresses("price"), "who is selected no more", 30.0)
    assert f"{other}:8080" in place.addresses("price")


TWO_APPLICATIONS = """
kind: Deployment
metadata: {name: alpha}
spec:
  replicas: 1
  selector: {matchLabels: {app: alpha}}
  template:
    metadata: {labels: {app: alpha, entry: shared}}
    spec: {containers: [{name: main, image: x, ports: [{name: alpha-http, containerPort: 3000}]}]}
---
kind: Deployment
metadata: {name: beta}
spec:
  replicas: 1
  selector: {matchLabels: {app: beta}}
  template:
    metadata: {labels: {app: beta, entry: shared}}
    spec: {containers: [{name: main, image: x, ports: [{name: beta-http, containerPort: 3001}]}]}
---
kind: Service
metadata: {name: entry, labels: {app: entry}}
spec:
  selector: {entry: shared}
  ports: [{name: alpha, port: 8001, targetPort: alpha-http}, {name: beta, port: 8002, targetPort: beta-http}]
---
kind: EurekaSyncer
metadata: {name: alpha}
spec: {mode: pod, selector: {app: entry}, application: $N-alpha, port: alpha}
---
kind: EurekaSyncer
metadata: {name: beta}
spec: {mode: pod, selector: {app: entry}, application: $N-beta, port: beta}
"""


def test_two_applications_behind_one_service(place: Place) -> None:
    """Each of two syncers of one Service registers the pods with its own port, and reports nothing about
    the other's.
    """
    place.apply(TWO_APPLICATIONS)
    for name, port in (("alpha", 3000), ("beta", 3001)):
        (address,) = place.pods(name, 1)
        place.wait_held(name, {f"{address}:{port}": "UP"})
        place.wait_condition(name, "Synced", "True", "Synced")
        # It is True for the moment in which the slices have the other's port alone.
        assert place.condition(name, "NoPort")[0] != "True"


FAMILIES = """
kind: Service
metadata: {name: $N-dual, labels: {app: $N-dual}}
spec:
  clusterIP: None
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv6, IPv4]
  ports: [{name: http, port: 8080}]
---
kind: EndpointSlice
metadata: {name: dual-v6, labels: {kubernetes.io/service-name: $N-dual}}
addressType: IPv6
ports: []
endpoints: []
---
kind: EndpointSlice
metadata: {name: dual-v4, labels: {kubernetes.io/service-name: $N-dual}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.99.7.1], conditions: {ready: true}, targetRef: {kind: Pod, name: dual-a, namespace: $N}}
- {addresses: [10.99.7.2], conditions: {ready: true}, targetRef: {kind: Pod, name: dual-b, namespace: $N}}
---
kind: EurekaSyncer
metadata: {name: dual}
spec: {mode: pod, selector: {app: $N-dual}}
"""


def test_an_empty_slice_of_the_first_family(place: Place) -> None:
    """An empty slice of the first address family hides no pod of the second; a pod with both is registered
    by the first.
    """
    place.apply(FAMILIES)
    place.wait_held("dual", {"10.99.7.1:8080": "UP", "10.99.7.2:8080": "UP"})
    place.wait_condition("dual", "Ready", "True", "Synced")
    place.apply("""
kind: EndpointSlice
metadata: {name: dual-v6, labels: {kubernetes.io/service-name: $N-dual}}
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: ["fd00:99::71"], conditions: {ready: true}, targetRef: {kind: Pod, name: dual-a, namespace: $N}}
""")
    place.wait_held("dual", {"fd00:99::71:8080": "UP", "10.99.7.2:8080": "UP"})


NAMES = """
kind: Service
metadata: {name: $N-names, labels: {app: $N-names}}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
kind: EndpointSlice
metadata: {name: names-1, labels: {kubernetes.io/service-name: $N-names}}
addressType: FQDN
ports: [{name: http, port: 80}]
endpoints: [{addresses: [vm-1.example.com], conditions: {ready: true}}]
---
kind: EurekaSyncer
metadata: {name: names}
spec: {mode: pod, selector: {app: $N-names}}
"""


def test_endpoints_that_are_host_names_are_reported(place: Place) -> None:
    """Endpoints with a host name are not registered: a Service with no other endpoints is not Ready."""
    place.apply(NAMES)
    message = place.wait_condition("names", "Ready", "False", "EndpointsLeftOut")
    assert "1 endpoint with a host name in place of an address" in message
    assert place.held("names") == []
    place.cluster.delete(ENDPOINT_SLICES, "names-1", place.namespace)
    place.wait_condition("names", "Ready", "True", "Synced")


BALANCED = """
kind: Service
metadata: {name: $N-balanced, labels: {app: $N-balanced}}
spec: {type: LoadBalancer, ports: [{name: http, port: 8080}]}
---
kind: EndpointSlice
metadata: {name: balanced-1, labels: {kubernetes.io/service-name: $N-balanced}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.99.8.1], conditions: {ready: true}}]
---
kind: EurekaSyncer
metadata: {name: balanced}
spec: {mode: service, selector: {app: $N-balanced}}
"""


def test_a_load_balancer_is_waited_for(place: Place) -> None:
    """A load balancer without an address, or with an error on the port, is not replaced by the cluster IP."""
    place.apply(BALANCED)
    place.wait_condition("balanced", "NoAddress", "True", "NoAddress")
    assert place.held("balanced") == []

    def ingress(*entries: dict[str, Any]) -> None:
        status = {"status": {"loadBalancer": {"ingress": list(entries)}}}
        place.patch("Service", f"{place.namespace}-balanced", status, "status")

    broken = {"ip": "192.0.2.8", "ports": [{"port": 8080, "protocol": "TCP", "error": "PortNotFree"}]}
    ingress(broken, {"ip": "192.0.2.9"})
    place.wait_held("balanced", {"192.0.2.9:8080": "UP"})
    place.wait_condition("balanced", "Ready", "True", "Synced")
    ingress()
    place.wait_condition("balanced", "Synced", "False", "NoAddress")
    assert place.addresses("balanced") == {"192.0.2.9:8080": "UP"}
    ingress(broken)
    wait_for(lambda: "PortNotFree" in place.condition("balanced", "NoAddress")[2], "the error", 30.0)
    assert place.addresses("balanced") == {"192.0.2.9:8080": "UP"}


GOING = """
kind: Service
metadata:
  name: $N-going
  labels: {app: $N-going}
  finalizers: [service.kubernetes.io/load-balancer-cleanup]
spec: {type: LoadBalancer, ports: [{name: http, port: 8080}]}
---
kind: EndpointSlice
metadata: {name: going-a, labels: {kubernetes.io/service-name: $N-going}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.99.8.1], conditions: {ready: true}}]
---
kind: EurekaSyncer
metadata: {name: going}
spec: {mode: service, selector: {app: $N-going}}
"""


def test_a_load_balancer_goes_before_its_service(place: Place) -> None:
    """The instance of a Service leaves when the Service's deletion begins, since that takes the load balancer
    away first; the next Service of that name is registered.
    """
    place.apply(GOING)
    name = f"{place.namespace}-going"
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}}
    place.patch("Service", name, status, "status")
    place.wait_held("going", {"192.0.2.10:8080": "UP"})
    place.cluster.access.request("DELETE", SERVICES.path(place.namespace, name))
    try:
        place.wait_held("going", {}, 20.0)
        assert "deletion" in place.wait_condition("going", "Ready", "False", "NoMatchingService")
    finally:
        place.patch("Service", name, {"metadata": {"finalizers": None}})
    place.apply(GOING)
    place.patch("Service", name, status, "status")
    place.wait_held("going", {"192.0.2.10:8080": "UP"})
    place.patch("Service", name, {"metadata": {"finalizers": None}})


TWICE = """
kind: Service
metadata: {name: $N-twice, labels: {app: $N-twice}}
spec: {clusterIP: None, ports: [{name: http, port: 8080}]}
---
kind: EndpointSlice
metadata: {name: twice-a, labels: {kubernetes.io/service-name: $N-twice}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- addresses: [10.99.9.1]
  conditions: {ready: false, terminating: true}
  targetRef: {kind: Pod, name: old, namespace: $N}
- {addresses: [10.99.9.2], conditions: {ready: false}, targetRef: {kind: Pod, name: done, namespace: $N}}
- {addresses: [10.99.9.3], conditions: {ready: false}}
---
kind: EndpointSlice
metadata: {name: twice-b, labels: {kubernetes.io/service-name: $N-twice}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.99.9.1], conditions: {ready: true}, targetRef: {kind: Pod, name: new, namespace: $N}}
- {addresses: [10.99.9.2], conditions: {ready: true}, targetRef: {kind: Pod, name: live, namespace: $N}}
- {addresses: [10.99.9.3], conditions: {ready: true}}
---
kind: EurekaSyncer
metadata: {name: twice}
spec: {mode: pod, selector: {app: $N-twice}, notReady: Remove}
"""


def test_an_address_in_two_slices(place: Place) -> None:
    """A terminating pod whose address a new pod has, and an endpoint in two slices, are each registered
    once.
    """
    place.apply(TWICE)
    place.wait_held("twice", {"10.99.9.1:8080": "UP", "10.99.9.2:8080": "UP", "10.99.9.3:8080": "UP"})
    assert {one.instance_id.split(".")[0] for one in place.held("twice")} == {"new", "live", "10"}


KEPT = """
kind: Service
metadata: {name: $N-$A, labels: {app: $N-$A}}
spec: {clusterIP: None, ports: [{name: http, port: 8080}]}
---
kind: EndpointSlice
metadata: {name: $A-1, labels: {kubernetes.io/service-name: $N-$A}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [$I.1], conditions: {ready: true}, targetRef: {kind: Pod, name: $A-a, namespace: $N}}
- {addresses: [$I.2], conditions: {ready: true}, targetRef: {kind: Pod, name: $A-b, namespace: $N}}
"""
KEEPS = """
kind: EurekaSyncer
metadata: {name: $A}
spec: {mode: pod, selector: {app: $N-$A}}
"""
TAKES = """
kind: Pod
metadata: {name: $A}
spec: {hostNetwork: $H, schedulerName: nobody, containers: [{name: main, image: x}]}
"""


@pytest.mark.parametrize(
    ("network", "spec"), [("10.99.10", {"eureka": "nowhere"}), ("10.99.11", {"paused": True})]
)
def test_an_address_that_another_applications_pod_has_by_now(
    place: Place, network: str, spec: dict[str, Any]
) -> None:
    """If another application's pod gets the address, a refused syncer removes the instance and a paused
    one lets it lapse, unless it is a node's address.
    """
    place.apply((KEPT + "---" + KEEPS).replace("$A", "kept").replace("$I", network))
    both = {f"{network}.1:8080": "UP", f"{network}.2:8080": "UP"}
    place.wait_held("kept", both)
    place.patch("EurekaSyncer", "kept", {"spec": spec})
    wait_for(lambda: place.condition("kept", "Synced")[0] == "False" or "paused" in spec, "the refusal", 30.0)
    place.patch(
        "EndpointSlice", "kept-1", {"endpoints": []}
    )  # both were killed, and nobody saw them terminate
    for name, number in (("others-a", 1), ("others-b", 2)):
        place.apply(TAKES.replace("$A", name).replace("$H", str(number == 2).lower()))
        address = {"ip": f"{network}.{number}"}
        status = {"podIP": address["ip"], "podIPs": [address], "hostIP": address["ip"], "hostIPs": [address]}
        place.cluster.access.request(
            "PATCH",
            PODS.path(place.namespace, name, "status"),
            body={"status": {"phase": "Running", **status}},
            content_type=STRATEGIC_MERGE_PATCH_TYPE,
        )
    place.apply(KEPT.replace("$A", "others").replace("$I", network))
    if "paused" in spec:
        reason = f"whose address the pod {place.namespace}/others-a has by now"
        wait_for(lambda: reason in place.condition("kept", "Paused")[2], "the condition", 60.0)
        assert "others-b" not in place.condition("kept", "Paused")[2]
        assert place.addresses("kept") == both, "nothing is removed while it is paused"
    else:
        place.wait_held("kept", {f"{network}.2:8080": "UP"})
