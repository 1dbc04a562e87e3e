"""Mirrors while people change Services and slices, and while another Eureka answers, on real servers."""

from __future__ import annotations

import copy
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mirror import SOURCE_ANNOTATION
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
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
from eurekube_provider.resources.files import crd_documents
from lab import Lab
from lab.accounts import Account
from lab.workloads import Cluster, wait_for
from tests.system.conftest import Operator, operator_environment, with_crds
from tests.system.test_mirror import HOLD_SECONDS, Endpoints, Scene, instance
from tests.system.test_rights import HOME, LEASE

pytestmark = [pytest.mark.lab, pytest.mark.slow]

Object = dict[str, Any]
SHOP = "shop"
PAUSED_SECONDS = 25.0
"""Seconds for which an operator is frozen: longer than its Kubernetes Lease lasts."""

BOTH: Endpoints = {"192.0.2.1": (8080, True), "192.0.2.2": (8080, True)}


class Stage:
    """A cluster with two Eurekas that share nothing, and one operator at a time."""

    def __init__(self, lab: Lab, elsewhere: Lab, cluster: Cluster, account: Account, folder: Path) -> None:
        self.lab, self.elsewhere, self.cluster = lab, elsewhere, cluster
        self.scene = Scene(lab, cluster, SHOP, 0)
        self._account, self._folder = account, folder
        self._operator: Operator | None = None

    def start(self, at: Lab) -> None:
        """Stop the operator, and start another one that reads this Eureka."""
        self.stop()
        environment = operator_environment(
            self.lab,
            "",
            EUREKA_URL=",".join(at.eureka_urls),
            MIRRORS="true",
            MIRROR_CIDRS="192.0.2.0/24,2001:db8::/32",
            KUBECONFIG=str(self._account.kubeconfig),
            LEASE_NAME=LEASE,
            LEASE_NAMESPACE=HOME,
        )
        self._operator = Operator(self._folder / "log", environment, [])
        self._operator.wait_ready()

    def stop(self) -> None:
        """Stop the operator."""
        if self._operator is not None:
            self._operator.stop()

    def pause(self, seconds: float) -> None:
        """Freeze the operator for so many seconds, in which it loses the Lease."""
        assert self._operator is not None
        self._operator.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._operator.process.send_signal(signal.SIGCONT)

    def patch(self, resource: Any, name: str, **metadata: Any) -> None:
        """Change an object's metadata as a person would."""
        path = resource.path(SHOP, name)
        self.cluster.access.request("PATCH", path, body={"metadata": metadata}, content_type=MERGE_PATCH_TYPE)

    def ours(self, service: str) -> list[Object]:
        """Return the slices that the mirror writes for a Service, without those of Kubernetes."""
        labels = {SERVICE_NAME_LABEL: service, SLICE_MANAGED_BY_LABEL: MIRROR_SLICE_MANAGER}
        return self.cluster.items(ENDPOINT_SLICES, SHOP, **labels)

    def end(self, *names: str) -> None:
        """Delete mirrors, and wait until they are gone."""
        for name in names:
            self.cluster.delete(MIRRORS, name, SHOP)
        left = {*names}
        wait_for(
            lambda: left.isdisjoint(one["metadata"]["name"] for one in self.cluster.items(MIRRORS, SHOP)),
            "the mirrors' end",
        )

    def status(self, name: str) -> Object:
        """Return a mirror's status; empty where there is none."""
        return (self.cluster.get(MIRRORS, name, SHOP) or {}).get("status") or {}

    def service(self, name: str) -> Object | None:
        """Return a Service; None if there is none."""
        return self.cluster.get(SERVICES, name, SHOP)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a stage whose operator reads the first Eureka."""
    with (
        Lab(eureka=1, uncached_lists=True) as lab,
        Lab(eureka=1, uncached_lists=True, kubernetes=False) as elsewhere,
    ):
        folder = tmp_path_factory.mktemp("strangers")
        cluster = with_crds(lab)
        for name in (HOME, SHOP):
            cluster.create_namespace(name)
        account = Account.create(lab, cluster, HOME, "mirrors", folder / "kubeconfig")
        account.set_rights([*CLUSTER_RULES, *NAMESPACE_RULES, *MIRROR_CLUSTER_RULES, *MIRROR_NAMESPACE_RULES])
        account.set_rights(election_rules(LEASE), HOME)
        stage = Stage(lab, elsewhere, cluster, account, folder)
        try:
            stage.start(lab)
            yield stage
        finally:
            stage.stop()
            print((folder / "log").read_text())


@pytest.fixture(scope="module")
def eureka(stage: Stage) -> Iterator[Peers]:
    """Return a client of the first Eureka."""
    peers = Peers(Connection.parse(stage.lab.eureka_urls))
    yield peers
    peers.close()


def test_what_people_do_to_services_and_slices(stage: Stage, eureka: Peers) -> None:
    """The mirror replaces a slice that a person moved, edited, or deleted while Eureka was frozen, and
    reports a selector; a Service that a person takes over stays.
    """
    scene, app = stage.scene, "strangers"
    scene.mirror("strangers", application=app)
    for number in (1, 2):
        Writer(eureka).register(instance(app, number))
    scene.wait_shows(app, BOTH)

    (item,) = stage.ours(app)
    stage.patch(ENDPOINT_SLICES, item["metadata"]["name"], labels={SERVICE_NAME_LABEL: "pods"})
    scene.wait_shows(app, BOTH)
    wait_for(lambda: not scene.slices("pods"), "the end of the slice of another Service")

    (item,) = stage.ours(app)
    by_hand = copy.deepcopy(item)
    by_hand["endpoints"].append({"addresses": ["192.0.2.66"], "conditions": {"ready": True}})
    path = ENDPOINT_SLICES.path(SHOP, item["metadata"]["name"])
    stage.cluster.access.request("PUT", path, body=by_hand)
    scene.wait_shows(app, BOTH)
    events = wait_for(
        lambda: [
            one["note"]
            for one in stage.cluster.items(EVENTS, SHOP)
            if one["reason"] == "ForeignEndpoints" and "192.0.2.66" in one["note"]
        ],
        "the Event",
    )
    assert "taken out" in events[0]

    selector = {"spec": {"selector": {"app": "pods"}}}
    stage.cluster.access.request(
        "PATCH", SERVICES.path(SHOP, app), body=selector, content_type=MERGE_PATCH_TYPE
    )
    wait_for(lambda: "app=pods" in scene.condition("strangers", "ForeignEndpoints"), "what is reported")

    (server,) = stage.lab.eurekas
    server.pause()
    try:
        wait_for(lambda: scene.condition("strangers", "SourceUnreachable"), "SourceUnreachable", 40.0)
        (item,) = stage.ours(app)
        stage.cluster.delete(ENDPOINT_SLICES, item["metadata"]["name"], SHOP)
        wait_for(
            lambda: (
                [one["metadata"]["uid"] for one in stage.ours(app)] not in ([], [item["metadata"]["uid"]])
            ),
            "another slice",
        )
        assert scene.shows(app) == BOTH
    finally:
        server.resume()
    wait_for(lambda: not scene.condition("strangers", "SourceUnreachable"), "Eureka", 40.0)

    stage.patch(SERVICES, app, labels={MIRROR_LABEL: None})
    service = wait_for(
        lambda: (one := stage.service(app)) and not one["metadata"].get("ownerReferences") and one,
        "the end of the owner reference",
    )
    scene.wait_shows(app, {})
    stage.end("strangers")
    after = stage.service(app)
    assert after is not None
    assert after["metadata"]["uid"] == service["metadata"]["uid"]


def test_a_flood_makes_as_many_services_as_a_mirror_says(stage: Stage, eureka: Peers) -> None:
    """A mirror makes at most ``maxServices`` Services.

    The CRD refuses a new allow list of ``*`` alone; a mirror that already has one keeps it.
    """
    scene = stage.scene
    for number in range(12):
        Writer(eureka).register(instance(f"flood-{number:02}", number + 1))
    scene.mirror("flood", pattern="flood-*", allow=["FLOOD-*"], maxServices=5)
    wait_for(lambda: "7 applications wait" in scene.condition("flood", "TooManyServices"), "what waits")
    assert len(stage.cluster.items(SERVICES, SHOP, **{MIRROR_LABEL: "flood"})) == 5
    with pytest.raises(KubernetesError, match="any name fits"):
        scene.mirror("all", pattern="*", allow=["*"])
    (document,) = (one for one in crd_documents() if one["spec"]["names"]["kind"] == "EurekaMirror")
    before = copy.deepcopy(document)
    schema = before["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del schema["properties"]["allow"]["x-kubernetes-validations"]
    stage.cluster.install_crd(before)

    def is_taken() -> bool:
        try:
            scene.mirror("all", pattern="flood-*", allow=["*"], serviceName="all-{application}")
        except KubernetesError:
            return False
        return True

    wait_for(is_taken, "the CRD of an earlier version")
    wait_for(lambda: "12 wait" in scene.condition("all", "TooManyServices"), "what waits")
    stage.cluster.install_crd(document)

    def is_refused() -> bool:
        try:
            scene.mirror("another", pattern="*", allow=["*"])
        except KubernetesError:
            return True
        stage.cluster.delete(MIRRORS, "another", SHOP)
        return False

    wait_for(is_refused, "the CRD of this version")
    spec = {"spec": {"maxServices": 9}}
    stage.cluster.access.request("PATCH", MIRRORS.path(SHOP, "all"), body=spec, content_type=MERGE_PATCH_TYPE)
    stage.end("all", "flood")


@contextmanager
def quota(stage: Stage, resource: str, count: int) -> Iterator[None]:
    """Have the namespace take no more objects of a resource than there are."""
    path = f"/api/v1/namespaces/{SHOP}/resourcequotas"
    spec = {"hard": {f"count/{resource}": str(count)}}
    access = stage.cluster.access
    access.request("POST", path, body={"metadata": {"name": "full", "namespace": SHOP}, "spec": spec})
    try:
        wait_for(lambda: (access.get(f"{path}/full").get("status") or {}).get("used"), "the quota's count")
        yield
    finally:
        access.request("DELETE", f"{path}/full")


def test_what_a_quota_refuses_keeps_nobody_else_called(stage: Stage, eureka: Peers) -> None:
    """While a quota of the namespace refuses an application's next slice, who leaves goes from those that
    stand; while it refuses a Service, none is deleted to be made again in another form.
    """
    scene, app = stage.scene, "full"
    scene.mirror("full", application=app)
    for number in (1, 2):
        Writer(eureka).register(instance(app, number))
    scene.wait_shows(app, BOTH)
    with quota(stage, "endpointslices.discovery.k8s.io", len(stage.cluster.items(ENDPOINT_SLICES, SHOP))):
        Writer(eureka).register(replace(instance(app, 3), port=Port(9090)))
        wait_for(lambda: "exceeded quota" in str(stage.status("full")), "the refusal", 40.0)
        Writer(eureka).remove(instance(app, 1))
        scene.wait_shows(app, {"192.0.2.2": (8080, True)}, 40.0)
    after: Endpoints = {"192.0.2.2": (8080, True), "192.0.2.3": (9090, True)}
    scene.wait_shows(app, after, 70.0)
    service = stage.service(app)
    assert service is not None
    with quota(stage, "services", len(stage.cluster.items(SERVICES, SHOP))):
        scene.mirror("full", application=app, headless=True)
        wait_for(lambda: "exceeded quota" in str(stage.status("full")), "the refusal", 40.0)
        assert (stage.service(app) or {})["metadata"]["uid"] == service["metadata"]["uid"]
    wait_for(lambda: (stage.service(app) or service)["spec"]["clusterIP"] == "None", "another Service", 70.0)
    scene.wait_shows(app, after)
    stage.end("full")


def test_what_kubernetes_does_not_call_is_not_ready(stage: Stage, eureka: Peers) -> None:
    """An instance of a family that the cluster lacks is not ready, nor is one whose Service somebody made an
    alias.
    """
    scene, app = stage.scene, "uncalled"
    scene.mirror("uncalled", application=app)
    Writer(eureka).register(Instance(app, "vm-6", "2001:db8::6", "2001:db8::6", Port(8080)))
    wait_for(lambda: "has no IPv6 address" in scene.condition("uncalled", "NotCalled"), "its family", 40.0)
    assert stage.status("uncalled")["ready"] == 0
    Writer(eureka).register(instance(app, 1))
    wait_for(lambda: stage.status("uncalled")["ready"] == 1, "the other one", 40.0)
    for edit, why in (
        ({"internalTrafficPolicy": "Local"}, "the caller's own node alone"),
        ({"type": "ExternalName", "externalName": "x.example", "clusterIP": ""}, "an alias of x.example"),
    ):
        stage.cluster.access.request(
            "PATCH", SERVICES.path(SHOP, app), body={"spec": edit}, content_type=MERGE_PATCH_TYPE
        )
        wait_for(lambda why=why: why in scene.condition("uncalled", "NotCalled"), why)  # type: ignore[misc]
        assert stage.status("uncalled")["ready"] == 0
    stage.end("uncalled")


def test_who_leaves_while_an_operator_comes_back_to_lead_leaves_soon(stage: Stage, eureka: Peers) -> None:
    """After the operator was frozen, an instance that left is removed by a delta: lists alone are in doubt
    for 35 s, and the server has run too short a time.
    """
    scene, app = stage.scene, "paused"
    scene.mirror("paused", application=app)
    for number in (1, 2):
        Writer(eureka).register(instance(app, number))
    scene.wait_shows(app, BOTH)
    stage.pause(PAUSED_SECONDS)
    Writer(eureka).remove(instance(app, 1))
    scene.wait_shows(app, {"192.0.2.2": (8080, True)}, windows.LIST_LAG_SECONDS - 10.0)
    stage.end("paused")


def test_another_eureka_empties_nothing(stage: Stage, eureka: Peers) -> None:
    """Endpoints stay while another Eureka does not know their instances, until a person decides; instances
    that it lists are trusted.
    """
    scene, app = stage.scene, "moved"
    scene.mirror("moved", application=app, holdSeconds=HOLD_SECONDS)
    for number in (1, 2):
        Writer(eureka).register(instance(app, number))
    scene.wait_shows(app, BOTH)
    stage.start(stage.elsewhere)
    wait_for(lambda: "came from" in scene.condition("moved", "Braked"), "Braked")
    with pytest.raises(TimeoutError):
        wait_for(lambda: scene.shows(app) != BOTH, "a change", HOLD_SECONDS + 10.0)
    there = Peers(Connection.parse(stage.elsewhere.eureka_urls))
    try:
        Writer(there).register(instance(app, 1))
    finally:
        there.close()
    wait_for(
        lambda: (
            {one["metadata"]["annotations"][SOURCE_ANNOTATION] for one in scene.slices(app)}
            == {*stage.lab.eureka_urls, *stage.elsewhere.eureka_urls}
        ),
        "slices by source",
    )
    assert scene.shows(app) == BOTH
    assert [one for one in stage.cluster.items(EVENTS, SHOP) if one["reason"] == "Braked"]
    stage.patch(MIRRORS, "moved", annotations={RELEASE_BRAKE_ANNOTATION: "now"})
    scene.wait_shows(app, {"192.0.2.1": (8080, True)})
    item = stage.cluster.get(MIRRORS, "moved", SHOP)
    assert item is not None
    assert RELEASE_BRAKE_ANNOTATION not in item["metadata"].get("annotations", {})
    wait_for(lambda: not scene.condition("moved", "Braked"), "the brake's end")
