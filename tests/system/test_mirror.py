"""From Eureka into the cluster: applications become Services and EndpointSlices, on real servers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from eurekube_provider.core.mirror import LAST_READ_ANNOTATION
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.objects import ATTACH_MIRROR_ANNOTATION, SERVICE_NAME_LABEL
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import ENDPOINT_SLICES, EVENTS, MERGE_PATCH_TYPE, MIRRORS, SERVICES
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    MIRROR_CLUSTER_RULES,
    MIRROR_NAMESPACE_RULES,
    NAMESPACE_RULES,
    election_rules,
)
from lab import Lab
from lab.accounts import Account
from lab.ports import free_ports
from lab.workloads import Cluster, wait_for
from tests.system.conftest import Operator, addresses, operator_environment, running, with_crds
from tests.system.test_rights import HOME, LEASE

pytestmark = [pytest.mark.lab, pytest.mark.slow]

Object = dict[str, Any]
Endpoints = dict[str, tuple[int, bool]]

ORDER = "mirror-order"
BOTH: Endpoints = {"192.0.2.11": (8080, True), "192.0.2.12": (8080, True)}
WRITES = ("create", "update", "patch", "delete")
HOLD_SECONDS = 30
"""The shortest hold that a mirror accepts, in seconds."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Start a lab for this module alone, since its Eureka server is killed."""
    with Lab(eureka=1, uncached_lists=True) as running:
        yield running


@pytest.fixture(scope="module")
def eureka(lab: Lab) -> Iterator[Peers]:
    """Return a client of this module's Eureka."""
    peers = Peers(Connection.parse(lab.eureka_urls))
    yield peers
    peers.close()


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """Return this module's cluster, with our CRDs installed."""
    return with_crds(lab)


@pytest.fixture(scope="module")
def account(lab: Lab, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Account:
    """Return an account with exactly the rights of an operator that serves the mirrors of all namespaces."""
    cluster.create_namespace(HOME)
    account = Account.create(lab, cluster, HOME, "mirrors", tmp_path_factory.mktemp("mirrors") / "kubeconfig")
    account.set_rights([*CLUSTER_RULES, *NAMESPACE_RULES, *MIRROR_CLUSTER_RULES, *MIRROR_NAMESPACE_RULES])
    account.set_rights(election_rules(LEASE), HOME)
    return account


@pytest.fixture(scope="module")
def web_port(lab: Lab, account: Account, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Start an operator that serves the mirrors of all tests here; return the port of its metrics."""
    (port,) = free_ports(1)
    environment = operator_environment(
        lab,
        "",
        MIRRORS="true",
        MIRROR_CIDRS="192.0.2.0/24,10.0.0.0/8",
        WEB_ADDRESS=f"127.0.0.1:{port}",
        KUBECONFIG=str(account.kubeconfig),
        LEASE_NAME=LEASE,
        LEASE_NAMESPACE=HOME,
    )
    operator = Operator(tmp_path_factory.mktemp("operator") / "log", environment, [])
    try:
        operator.wait_ready()
        yield port
    finally:
        operator.stop()
        print(operator.text())


class Scene:
    """A namespace with mirrors."""

    def __init__(self, lab: Lab, cluster: Cluster, namespace: str, web_port: int) -> None:
        self.lab, self.cluster, self.namespace, self.port = lab, cluster, namespace, web_port

    def mirror(self, name: str, **spec: Any) -> None:
        """Create a mirror, or change it."""
        body = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaMirror",
            "metadata": {"namespace": self.namespace, "name": name},
            "spec": spec,
        }
        self.cluster.apply(MIRRORS, body)

    def slices(self, service: str) -> list[Object]:
        """Return all EndpointSlices of a Service."""
        return self.cluster.items(ENDPOINT_SLICES, self.namespace, **{SERVICE_NAME_LABEL: service})

    def shows(self, service: str) -> Endpoints:
        """Return port and readiness of each address in a Service's EndpointSlices."""
        return {
            one["addresses"][0]: (item["ports"][0]["port"], one["conditions"]["ready"])
            for item in self.slices(service)
            for one in item.get("endpoints") or ()
        }

    def wait_shows(self, service: str, expected: Endpoints, timeout_seconds: float = 20.0) -> None:
        """Wait until a Service's EndpointSlices have exactly these endpoints."""
        wait_for(lambda: self.shows(service) == expected, f"{service} to be {expected}", timeout_seconds)

    def condition(self, name: str, kind: str) -> str:
        """Return the message of a mirror's condition while it is True, else nothing."""
        status = (self.cluster.get(MIRRORS, name, self.namespace) or {}).get("status") or {}
        for one in status.get("conditions") or ():
            if one["type"] == kind and one["status"] == "True":
                return str(one["message"])
        return ""

    def writes(self) -> Counter[str]:
        """Count the operator's writes of Services and slices in this namespace, by the API server's audit
        log.
        """
        asked = map(json.loads, self.lab.kubernetes.audit_log.read_text().splitlines())
        return Counter(
            f"{one['verb']} {place['resource']}"
            for one in asked
            if one["user"]["username"] == f"system:serviceaccount:{HOME}:mirrors"
            and one["verb"] in WRITES
            and (place := one["objectRef"]).get("namespace") == self.namespace
            and place["resource"] in ("services", "endpointslices")
        )

    def counted_writes(self) -> Counter[str]:
        """Count the writes in all namespaces, by verb and resource, as the operator's metrics report them."""
        page = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10).text
        found = re.findall(
            r'^eurekube_mirror_writes_total\{resource="(\w+)",verb="(\w+)"\} (\S+)', page, re.MULTILINE
        )
        return Counter({f"{verb} {resource}": int(float(count)) for resource, verb, count in found})


@pytest.fixture
def scene(lab: Lab, cluster: Cluster, namespace: str, web_port: int) -> Iterator[Scene]:
    """Return a namespace for one test, whose mirrors are deleted at the end."""
    scene = Scene(lab, cluster, namespace, web_port)
    yield scene
    for item in cluster.items(MIRRORS, namespace):
        cluster.delete(MIRRORS, item["metadata"]["name"], namespace)
    wait_for(lambda: not cluster.items(MIRRORS, namespace), "the finalizers to be released")


@pytest.fixture(scope="module")
def order(lab: Lab, cluster: Cluster, web_port: int, eureka: Peers) -> Scene:
    """Mirror two machines, kill Eureka, start it again, and register only one of the machines again."""
    cluster.create_namespace(ORDER)
    scene = Scene(lab, cluster, ORDER, web_port)
    one, two = instance(ORDER, 11), instance(ORDER, 12)
    scene.mirror("order", application=ORDER, serviceName="order", holdSeconds=HOLD_SECONDS)
    wait_for(lambda: scene.cluster.get(SERVICES, "order", scene.namespace), "the Service")
    # One after the other: what changes while a server makes a list shows only once something else changes.
    Writer(eureka).register(one)
    scene.wait_shows("order", {"192.0.2.11": (8080, True)})
    Writer(eureka).register(two)
    scene.wait_shows("order", BOTH)
    (server,) = lab.eurekas
    before = scene.writes()
    server.kill()
    wait_for(lambda: scene.condition("order", "SourceUnreachable"), "SourceUnreachable", 40.0)
    assert scene.shows("order") == BOTH
    service = scene.cluster.get(SERVICES, "order", scene.namespace)
    assert service is not None
    assert service["metadata"]["annotations"][LAST_READ_ANNOTATION].startswith("20")
    server.restart()
    Writer(eureka).register(one)
    wait_for(lambda: scene.condition("order", "RemovalsHeld"), "RemovalsHeld", 30.0)
    assert scene.shows("order") == BOTH
    assert (scene.writes() - before).keys() <= {"patch services"}
    return scene


def instance(application: str, number: int, **more: Any) -> Instance:
    """Return an instance of a machine outside of the cluster."""
    address = f"192.0.2.{number}"
    return Instance(application, f"vm-{number}", address, address, Port(8080), **more)


def test_an_application_appears_changes_drains_and_vanishes(scene: Scene, eureka: Peers) -> None:
    """Each change of the application is one write to the cluster; endpoints that Eureka forgot stay for a
    while.
    """
    app = f"{scene.namespace}-review"
    one, two = instance(app, 1), instance(app, 2)
    scene.mirror("review", application=app, serviceName="review", holdSeconds=30)
    service = wait_for(
        lambda: scene.cluster.get(SERVICES, "review", scene.namespace), "the Service, without an instance"
    )
    assert "selector" not in service["spec"]
    assert [(each["name"], each["port"]) for each in service["spec"]["ports"]] == [("http", 80)]
    # One after the other: a change while a server makes a list shows only once something else changes.
    Writer(eureka).register(one)
    scene.wait_shows("review", {"192.0.2.1": (8080, True)})
    Writer(eureka).register(two)
    scene.wait_shows("review", {"192.0.2.1": (8080, True), "192.0.2.2": (8080, True)})
    wait_for(lambda: scene.condition("review", "Ready"), "Ready")

    Writer(eureka).set_status(two, Status.OUT_OF_SERVICE)
    scene.wait_shows("review", {"192.0.2.1": (8080, True), "192.0.2.2": (8080, False)})
    before = scene.writes()
    Writer(eureka).clear_status(two)
    scene.wait_shows("review", {"192.0.2.1": (8080, True), "192.0.2.2": (8080, True)})
    assert scene.writes() - before == Counter({"update endpointslices": 1})

    Writer(eureka).register(replace(two, port=Port(9090)))
    scene.wait_shows("review", {"192.0.2.1": (8080, True), "192.0.2.2": (9090, True)})

    before = scene.writes()
    Writer(eureka).remove(two)
    scene.wait_shows("review", {"192.0.2.1": (8080, True)})
    assert scene.writes() - before == Counter({"delete endpointslices": 1})
    assert scene.writes() <= scene.counted_writes()


def test_a_mirrored_service_is_found_by_its_labels(scene: Scene) -> None:
    """Spring Cloud Kubernetes finds the Service by labels that the mirror sets; when they leave the spec
    the mirror removes only those.
    """
    app = f"{scene.namespace}-labels"
    given = {
        "serviceLabels": {"spring": "true", "tier": "web"},
        "serviceAnnotations": {"example.com/a": "b c"},
    }
    scene.mirror("labels", application=app, serviceName="labels", **given)

    def found(**labels: str) -> list[str]:
        return [one["metadata"]["name"] for one in scene.cluster.items(SERVICES, scene.namespace, **labels)]

    wait_for(lambda: found(spring="true", tier="web") == ["labels"], "the labels")
    service = scene.cluster.get(SERVICES, "labels", scene.namespace) or {}
    assert service["metadata"]["annotations"]["example.com/a"] == "b c"
    path = SERVICES.path(scene.namespace, "labels")
    body = {"metadata": {"labels": {"mine": "1"}}}
    scene.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
    scene.mirror("labels", application=app, serviceName="labels", serviceLabels={"tier": "db"})
    wait_for(lambda: found(mine="1", tier="db") == ["labels"] and not found(spring="true"), "other labels")
    service = scene.cluster.get(SERVICES, "labels", scene.namespace) or {}
    assert "example.com/a" not in service["metadata"]["annotations"]


def test_what_eureka_cannot_tell_or_forgot_stays(order: Scene) -> None:
    """The endpoints stay while Eureka is down, and while it is back without the instances."""
    assert order.shows("order") == BOTH


def test_a_persons_status_stays_and_nothing_of_ours_comes_back(
    scene: Scene, eureka: Peers, cluster: Cluster
) -> None:
    """A mirror changes neither a person's Service nor its status; if the Service opts in, the mirror adds
    slices, which no syncer registers.
    """
    app = f"{scene.namespace}-rating"
    pods = running(cluster, scene.namespace, app, 1)
    cluster.apply_syncer(scene.namespace, app)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(pods, "UP"), "the pod in Eureka")
    Writer(eureka).register(instance(app, 21))
    owned = cluster.get(SERVICES, app, scene.namespace)
    scene.mirror("taken", application=app)
    wait_for(lambda: "left alone" in scene.condition("taken", "NameTaken"), "NameTaken")
    assert cluster.get(SERVICES, app, scene.namespace) == owned

    scene.mirror("beside", application=app, attachTo=app)
    wait_for(lambda: ATTACH_MIRROR_ANNOTATION in scene.condition("beside", "NotAttached"), "NotAttached")
    annotated = {"metadata": {"annotations": {ATTACH_MIRROR_ANNOTATION: "beside"}}}
    path = SERVICES.path(scene.namespace, app)
    cluster.access.request("PATCH", path, body=annotated, content_type=MERGE_PATCH_TYPE)
    wait_for(lambda: scene.shows(app).keys() == {*pods, "192.0.2.21"}, "the pod and the machine")
    scene.mirror("other", application=app, serviceName="other")
    scene.wait_shows("other", {"192.0.2.21": (8080, True)})
    assert addresses(eureka, app) == dict.fromkeys([*pods, "192.0.2.21"], "UP")

    for name in ("beside", "other", "taken"):
        cluster.delete(MIRRORS, name, scene.namespace)
    wait_for(lambda: not cluster.items(MIRRORS, scene.namespace), "the finalizers to be released")
    assert cluster.get(SERVICES, "other", scene.namespace) is None
    assert scene.shows(app).keys() == set(pods)


def test_what_does_not_come_back_goes_after_a_while(order: Scene) -> None:
    """A machine that does not register again leaves the slices after the hold, with an Event. The hold begins
    two minutes after the server's restart; the tests before this one run meanwhile.
    """
    longest_seconds = windows.MEMORY_LOSS_SECONDS + HOLD_SECONDS + 20.0
    order.wait_shows("order", {"192.0.2.11": (8080, True)}, longest_seconds)
    events = wait_for(
        lambda: [
            each
            for each in order.cluster.items(EVENTS, order.namespace)
            if each["reason"] == "RemovedWithoutProof"
        ],
        "the Event",
    )
    assert "vm-12" in events[0]["note"]
