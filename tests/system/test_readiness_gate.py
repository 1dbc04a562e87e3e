"""The readiness gate on a real API server, controller-manager and Eureka; kwok runs the pods."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import EVENTS, MERGE_PATCH_TYPE, NAMESPACES, PODS, SYNCERS, ApiResource
from lab import Lab
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from tests.system.conftest import Operator, instances, operator_environment
from tests.system.operator_objects import CHART, helm

pytestmark = pytest.mark.lab

Object = dict[str, Any]
CALLERS_SECONDS = 6
ADMISSION = "admissionregistration.k8s.io"


@pytest.fixture(scope="module", autouse=True)
def operator(
    lab: Lab,
    cluster: Cluster,  # noqa: ARG001 - has the CRDs
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operator]:
    """Start one operator that serves readiness gates in all namespaces."""
    log = tmp_path_factory.mktemp("gates") / "operator.log"
    running = Operator(log, operator_environment(lab, "", CLUSTER_NAME="gates", GATE_NAMESPACE="*"), [])
    running.wait_ready()
    yield running
    running.stop()
    print(running.text())


class Shop:
    """A Deployment whose pods declare the readiness gate, its Service and its syncer."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.app = f"{namespace}-app"
        self.rolled("1")
        cluster.apply_service(namespace, self.app)
        gate = {"callersSeconds": CALLERS_SECONDS}
        cluster.apply_syncer(namespace, self.app, readinessGate=gate)
        wait_for(lambda: cluster.has_ready_pods(namespace, self.app, 2), "two pods")

    def rolled(self, version: str) -> None:
        """Set the version in the Deployment's template."""
        labels = {"app": self.app}
        pod = {
            "readinessGates": [{"conditionType": READINESS_GATE}],
            "containers": [
                {"name": "main", "image": "example.invalid/main", "ports": [{"containerPort": 8080}]}
            ],
        }
        spec = {
            "replicas": 2,
            "minReadySeconds": 0,
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": {**labels, "version": version}}, "spec": pod},
        }
        metadata = {"namespace": self.namespace, "name": self.app}
        self.cluster.apply(
            DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        )

    def pods(self, version: str) -> list[Object]:
        """Return the existing pods of a version."""
        return self.cluster.items(PODS, self.namespace, app=self.app, version=version)

    def gates(self, version: str) -> list[Object]:
        """Return the readiness gate's condition of each pod of a version."""
        return [dict(conditions_of(pod).get(READINESS_GATE, {})) for pod in self.pods(version)]

    def reasons(self, version: str) -> set[str]:
        """Return the reasons in the gate conditions of a version's pods."""
        return {str(one.get("reason")) for one in self.gates(version)}

    def syncer_condition(self, kind: str) -> Object:
        """Return a condition of the syncer."""
        item = self.cluster.get(SYNCERS, self.app, self.namespace) or {}
        return dict(conditions_of(item).get(kind, {}))


@pytest.fixture
def shop(cluster: Cluster, namespace: str) -> Shop:
    """Return a Deployment whose first roll-out is over."""
    return Shop(cluster, namespace)


def seconds(condition: Mapping[str, Any]) -> float:
    """Return the time of a condition's last transition, as Unix time."""
    return datetime.fromisoformat(str(condition["lastTransitionTime"])).timestamp()


def test_a_rollout_waits_until_callers_know_the_new_pods(shop: Shop, eureka: Peers) -> None:
    """While the gates wait, Eureka has the new pods beside the old ones; the syncer says so, and is in
    sync.
    """
    wait_for(lambda: shop.syncer_condition("WaitingForCallers").get("status") == "False", "no pod to wait")
    before = shop.syncer_condition("WaitingForCallers")["lastTransitionTime"]
    shop.rolled("2")
    wait_for(lambda: shop.reasons("2") == {"CallersLearn"}, "both new pods to wait")
    there = instances(eureka, shop.app)
    assert len(there) == 4
    assert {str(one.status) for one in there} == {"UP"}
    assert len(shop.pods("1")) == 2

    def was_reported() -> bool:
        # On a busy machine the condition may be False again before it is read: its transition remains.
        condition = shop.syncer_condition("WaitingForCallers")
        return condition.get("status") == "True" or condition.get("lastTransitionTime") != before

    wait_for(was_reported, "the condition")
    assert shop.syncer_condition("Synced")["status"] == "True"
    wait_for(lambda: not shop.pods("1"), "the old pods to go")
    assert shop.cluster.has_ready_pods(shop.namespace, shop.app, 2)
    for pod in shop.pods("2"):
        conditions = conditions_of(pod)
        # Both are written with whole seconds.
        assert (
            seconds(conditions[READINESS_GATE]) - seconds(conditions["ContainersReady"])
            >= CALLERS_SECONDS - 1
        )
        assert conditions[READINESS_GATE]["reason"] == "CallersKnow"
    wait_for(lambda: shop.syncer_condition("WaitingForCallers").get("status") == "False", "the end of it")


def test_a_person_opens_what_a_paused_syncer_holds(shop: Shop, lab: Lab) -> None:
    """While a syncer is paused its pods' conditions say why they wait; a person's annotation opens their
    gates.
    """
    path = SYNCERS.path(shop.namespace, shop.app)
    shop.cluster.access.request("PATCH", path, body={"spec": {"paused": True}}, content_type=MERGE_PATCH_TYPE)
    wait_for(lambda: shop.syncer_condition("Paused").get("status") == "True", "the pause")
    shop.rolled("2")
    wait_for(lambda: shop.reasons("2") == {"Paused"}, "both new pods to wait")

    def is_reported() -> bool:
        events = shop.cluster.items(EVENTS, shop.namespace)
        return any(one["reason"] == "GateWaits" and one["regarding"]["kind"] == "Pod" for one in events)

    wait_for(is_reported, "an Event")
    command = [sys.executable, "-m", "eurekube_provider.cli.main", "gate", "open", f"deployment/{shop.app}"]
    where = ["--namespace", shop.namespace, "--kubeconfig", str(lab.kubeconfig)]
    done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("its gate is open")) == (0, 2), done.stderr
    wait_for(lambda: not shop.pods("1"), "the old pods to go")
    assert shop.reasons("2") == {"OpenedByHand"}


def test_a_policy_declares_the_gate_where_a_namespace_asks_for_it(
    cluster: Cluster, unique_name: str, tmp_path: Path
) -> None:
    """The policy adds the gate to pods in namespaces with the label, beside other gates and only once, but
    not to a Eureka server's pods.
    """
    names = [f"{unique_name}-{word}" for word in ("asks", "silent", "eureka")]
    for name in names:
        cluster.create_namespace(name)
        if not name.endswith("silent"):
            body = {"metadata": {"labels": {"eurekube.io/readiness-gate": "true"}}}
            path = NAMESPACES.path(name=name)
            cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
    served = cluster.access.get(f"/apis/{ADMISSION}/v1")["resources"]
    if not any(one["name"] == "mutatingadmissionpolicies" for one in served):
        pytest.skip("this API server has no MutatingAdmissionPolicy")
    values = {
        "eurekaUrls": [f"http://eureka-0.eureka.{names[2]}.svc:8761/eureka"],  # as of a StatefulSet
        "gateNamespaces": ["*"],
        "gatePolicy": True,
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    known = f"{ADMISSION}/v1/MutatingAdmissionPolicy"
    text = helm("template", "gates", str(CHART), "--values", str(file), "--api-versions", known)
    made = [one for one in yaml.safe_load_all(text) if one and "AdmissionPolicy" in one["kind"]]
    resources = [
        ApiResource(ADMISSION, "v1", one)
        for one in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    ]
    try:
        for resource, item in zip(resources, made, strict=True):
            cluster.apply(resource, item)

        def gates(namespace: str, *given: str) -> list[str]:
            spec: Object = {"containers": [{"name": "main", "image": "none"}]}
            if given:
                spec["readinessGates"] = [{"conditionType": one} for one in given]
            body = {"metadata": {"generateName": "try-"}, "spec": spec}
            item = cluster.access.request("POST", PODS.path(namespace), {"dryRun": "All"}, body)
            return [one["conditionType"] for one in item["spec"].get("readinessGates") or ()]

        wait_for(lambda: gates(names[0]) == [READINESS_GATE], "the policy")
        other = "example.org/other"
        assert gates(names[0], other) == [other, READINESS_GATE]
        assert gates(names[0], READINESS_GATE) == [READINESS_GATE]
        assert gates(names[1]) == gates(names[2]) == []
    finally:
        for resource, item in zip(resources, made, strict=True):
            cluster.delete(resource, item["metadata"]["name"])


@pytest.mark.parametrize(
    ("values", "never"),
    [
        ({}, []),
        ({"eurekaUrls": ["http://eureka.registry:8761/eureka"]}, ["registry"]),
        ({"eurekaUrls": ["a=http://eureka-0.eureka.registry:8761/eureka"]}, ["eureka", "registry"]),
        ({"connections": {"eu": {"urls": ["http://eureka.far.svc.cluster.local:8761/eureka"]}}}, ["far"]),
        ({"connections": {"zk": {"urls": ["zookeeper://zookeeper.zoo:2181"]}}}, ["zoo"]),
        ({"eurekaUrls": ["http://eureka.prod.example.com:8761/eureka"]}, []),
    ],
)
def test_the_policy_spares_the_namespaces_of_servers(
    tmp_path: Path, values: Object, never: list[str]
) -> None:
    """The policy never acts in kube-system, the operator's namespace or one with a registry's server; a host
    outside of the cluster names no namespace.
    """
    (policy,) = _rendered(tmp_path, {"gateNamespaces": ["shop"], **values})
    spared = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    (excluded,) = (one["values"] for one in spared if one["operator"] == "NotIn")
    assert excluded == ["kube-system", "kube-public", "kube-node-lease", "default", *never]
    assert {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]} in spared


def test_the_policy_is_refused_where_it_cannot_work(tmp_path: Path) -> None:
    """The chart refuses the policy in a cluster without the API, and without namespaces of the gate."""
    served = {"gateNamespaces": ["shop"]}
    assert "no MutatingAdmissionPolicy" in _rendered_text(tmp_path, served, api="", fails=True)
    assert "gateNamespaces" in _rendered_text(tmp_path, {}, fails=True)


def _rendered(tmp_path: Path, values: Object) -> list[Object]:
    """Return the policies of the chart with these values."""
    objects = yaml.safe_load_all(_rendered_text(tmp_path, values))
    return [one for one in objects if one and one["kind"] == "MutatingAdmissionPolicy"]


def _rendered_text(
    tmp_path: Path,
    values: Object,
    *,
    api: str = f"{ADMISSION}/v1/MutatingAdmissionPolicy",
    fails: bool = False,
) -> str:
    """Return the output of helm for these values and the policy, or its error."""
    file = tmp_path / "values.yaml"
    file.write_text(
        yaml.safe_dump({"eurekaUrls": ["http://eureka:8761/eureka"], "gatePolicy": True, **values})
    )
    known = ["--api-versions", api] if api else []
    return helm("template", "gates", str(CHART), "--values", str(file), *known, fails=fails)
