"""``eurekube doctor`` on real servers: it finds nothing in a healthy setup, and each planted fault, and
its patches fix them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.cli.main import main
from eurekube_provider.core.model import EurekaLease, Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import PODS, SERVICES, SYNCERS, ApiResource
from lab import Lab
from lab.eureka import FAST_LIST_SETTINGS
from lab.listing import list_uncached, wait_until_listed
from lab.programs import find_kubectl
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from tests.system.conftest import ROOT, Operator, instances, operator_environment, run_commands

pytestmark = pytest.mark.lab

WELL, ILL, STORE = "doctor-well", "doctor-ill", "store"
FAST = (
    "--server-cache-seconds 0 --client-fetch-seconds 1 --load-balancer-cache-seconds 0"
    " --replication-seconds 0 --margin-seconds 0"
)
"""Options that describe callers with fast caches."""

UNRENEWED = 60
PRE_STOP = {"preStop": {"sleep": {"seconds": 120}}}
PROBE = {"httpGet": {"path": "/actuator/health/readiness", "port": "http"}}

Answer = tuple[int, str, str]
Doctor = Callable[..., Answer]


@pytest.fixture(scope="module")
def eurekas() -> Iterator[Lab]:
    """Start two Eureka servers that are peers, which hold only what these tests register.

    Their lists, which the doctor reads, are a second old at most: these tests wait for them at each step.
    """
    with Lab(eureka=2, kubernetes=False, eureka_settings=FAST_LIST_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def registry(eurekas: Lab) -> Iterator[Peers]:
    """Return a client of both Eureka servers."""
    peers = Peers(Connection(tuple(eurekas.eureka_urls)))
    yield peers
    peers.close()


@pytest.fixture(scope="module", autouse=True)
def operator(
    lab: Lab, eurekas: Lab, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Start an operator for the namespaces of these tests."""
    for name in (WELL, ILL, STORE):
        cluster.create_namespace(name)
    environment = operator_environment(
        lab, f"{WELL},{ILL},{STORE}", EUREKA_URL=",".join(eurekas.eureka_urls), LEASE_NAME="doctor-leader"
    )
    running = Operator(tmp_path_factory.mktemp("doctor") / "operator.log", environment, [])
    running.wait_ready()
    yield running
    running.stop()
    print(running.text())


@pytest.fixture
def doctor(lab: Lab, eurekas: Lab, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Return a function that runs ``eurekube doctor`` and returns exit code, output and error output."""

    def run(*arguments: str, url: str = "") -> Answer:
        capsys.readouterr()
        urls = url or ",".join(eurekas.eureka_urls)
        code = main(["doctor", "--eureka-url", urls, "--kubeconfig", str(lab.kubeconfig), *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def deployment(
    cluster: Cluster,
    namespace: str,
    name: str,
    *,
    lifecycle: dict[str, Any] | None = PRE_STOP,
    grace: int = 150,
    probe: dict[str, Any] | None = PROBE,
    min_ready: int = 120,
    annotations: dict[str, str] | None = None,
    sidecars: tuple[dict[str, Any], ...] = (),
) -> None:
    """Create a Deployment of one pod and its Service, which are sound unless an argument says otherwise."""
    container: dict[str, Any] = {
        "name": "main",
        "image": f"example.invalid/{name}",
        "ports": [{"name": "http", "containerPort": 8080}],
    }
    container |= {"lifecycle": lifecycle} if lifecycle else {}
    container |= {"readinessProbe": probe} if probe else {}
    cluster.apply(
        DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "replicas": 1,
                "minReadySeconds": min_ready,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                    "spec": {
                        "terminationGracePeriodSeconds": grace,
                        "initContainers": list(sidecars),
                        "containers": [container],
                    },
                },
            },
        },
    )


def address(cluster: Cluster, name: str) -> str:
    """Return the address of the one pod of a Service."""
    return wait_for(lambda: cluster.ready_addresses(ILL, name), f"{name} to be ready", 60.0)[0]


def wait_served(cluster: Cluster, namespace: str, name: str, *reasons: str) -> None:
    """Wait until a syncer's condition Synced has one of these reasons."""

    def is_served() -> bool:
        status = (cluster.get(SYNCERS, name, namespace) or {}).get("status") or {}
        return any(
            one["type"] == "Synced" and one["reason"] in reasons for one in status.get("conditions") or ()
        )

    wait_for(is_served, f"syncer {name} {reasons}", 60.0)


def stranger(
    application: str, place: str, host: str = "", *, age_seconds: float = 3600, **more: Any
) -> Instance:
    """Return an instance that registered itself, an hour ago by default."""
    stamp = int((time.time() - age_seconds) * 1000)
    lease = EurekaLease(30, 3600)  # outlives the tests without a renewal
    return Instance(
        application,
        f"{host or place}:{application}:8080",
        host or place,
        place,
        Port(8080),
        lease=lease,
        last_dirty_timestamp_ms=stamp,
        **more,
    )


def awaited(doctor: Doctor, is_enough: Callable[[Answer], bool], *arguments: str) -> Answer:
    """Run the doctor until its answer satisfies ``is_enough``, for at most a minute; return the last
    answer.
    """
    deadline = time.monotonic() + 60.0
    while not is_enough(answer := doctor(*arguments)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert is_enough(answer), answer
    return answer


def test_nothing_is_found_where_all_is_well(cluster: Cluster, registry: Peers, doctor: Doctor) -> None:
    """The doctor exits with 0 for a drained Deployment, its syncer and two Eureka servers that agree."""
    deployment(cluster, WELL, "sound")
    cluster.apply_service(WELL, "sound")
    cluster.apply_syncer(WELL, "sound")
    wait_served(cluster, WELL, "sound", "Synced")
    wait_agreed(registry)
    well = "all is well in 1 syncer, 1 service, 1 workload, 1 instance, 2 Eureka servers read\n"
    # What was registered a second ago is in no list yet.
    _, said, _ = awaited(
        doctor,
        lambda one: (one[0], one[1].endswith(f"\n{well}"), one[2]) == (0, True, ""),
        "--namespace",
        WELL,
    )
    assert re.match(r"operator eurekube: \S+ leads by the Lease default/\S+, renewed \d s ago\n", said)
    assert re.search(r"  Eureka default was read \d+ s ago; http\S+ answered \d+ s ago\n", said)
    assert doctor("--namespace", WELL, "--fix")[:2] == (0, "")


def wait_agreed(registry: Peers) -> None:
    """Wait until both servers list the same instances."""

    def is_agreed() -> bool:
        lists, _ = registry.ask_all(lambda peer: {(*one.key, one.status) for one in list_uncached(peer.url)})
        first, *others = lists.values()
        return all(other == first for other in others)

    wait_for(is_agreed, "the servers to agree", 60.0)
    for peer in registry.peers:
        wait_until_listed(peer.url, list_uncached(peer.url))


def test_the_guide_to_a_migration(
    lab: Lab, eurekas: Lab, cluster: Cluster, registry: Peers, tmp_path: Path
) -> None:
    """Every command of docs/guides/migration.md works as written, for callers with fast caches."""
    kubectl = find_kubectl()
    if kubectl is None:
        pytest.skip("no kubectl")
    page = (ROOT / "docs" / "guides" / "migration.md").read_text()
    setting, *steps = [block.removeprefix("\n") for block in page.split("```")[1::2]]
    setting = setting.replace("http://eureka:8761/eureka", ",".join(eurekas.eureka_urls))
    setting = re.sub('CACHES=".*"', f'CACHES="{FAST}"', setting)
    assert FAST in setting
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("EUREKA_")},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(kubectl.parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(lab.kubeconfig),
    }

    def take(count: int) -> str:
        """Run the next steps of the guide; return their output."""
        script = "".join([setting, *steps[:count]])
        del steps[:count]
        return run_commands(script, tmp_path, environment)

    def statuses(application: str, *, ours: bool) -> list[str]:
        held = [one for one in instances(registry, application) if bool(one.owner) is ours]
        return sorted(str(one.status) for one in held)

    deployment(cluster, STORE, "billing", lifecycle=None, grace=30, min_ready=0)
    cluster.scale(STORE, "billing", 2)
    cluster.apply_service(STORE, "billing")
    wait_for(lambda: len(cluster.ready_addresses(STORE, "billing")) == 2, "billing to be ready", 60.0)
    themselves = [
        stranger("billing", place, age_seconds=0) for place in cluster.ready_addresses(STORE, "billing")
    ]
    machines = [stranger("orders", f"192.0.2.{number}", f"vm-{number}", age_seconds=0) for number in (1, 2)]
    for one in (*themselves, *machines):
        Writer(registry).register(one)

    wait_agreed(registry)
    take(3)  # the pods, and a syncer that waits
    assert (statuses("orders", ours=True), statuses("orders", ours=False)) == ([], ["UP", "UP"])
    take(1)
    assert statuses("orders", ours=True) == ["UP", "UP"]
    assert "safe: " in take(1)
    assert statuses("orders", ours=False) == ["OUT_OF_SERVICE", "UP"]
    take(1)
    assert statuses("orders", ours=False) == ["UP", "UP"]
    assert "safe: " in take(1)
    assert statuses("orders", ours=False) == ["OUT_OF_SERVICE", "OUT_OF_SERVICE"]
    assert statuses("orders", ours=True) == ["UP", "UP"]
    for one in machines:
        Writer(registry).remove(one)

    take(2)
    assert statuses("billing", ours=True) == []
    assert "EUREKA_CLIENT_REGISTER_WITH_EUREKA" in take(1)
    assert statuses("billing", ours=False) == ["UP", "UP"]
    assert "safe: " in take(1)
    assert statuses("billing", ours=False) == ["OUT_OF_SERVICE", "OUT_OF_SERVICE"]
    assert statuses("billing", ours=True) == ["UP", "UP"]
    take(1)
    for one in themselves:  # as their clients do when their process ends
        Writer(registry).remove(one)
    wait_served(cluster, STORE, "billing", "Synced")
    wait_for(lambda: statuses("billing", ours=True) == ["UP"] * 4, "the old pods, which still run", 60.0)
    wait_agreed(registry)
    assert "all is well" in take(1)
    assert steps == []


def test_each_fault_is_found_and_fixed_by_what_is_printed(
    lab: Lab, cluster: Cluster, registry: Peers, doctor: Doctor
) -> None:
    """The doctor finds all planted faults at once; the commands that ``--fix`` prints repair their part,
    and a person the rest.
    """
    strangers = planted(cluster, registry)

    def has_all(answer: Answer) -> bool:
        return len(json.loads(answer[1])["findings"]) >= len(EXPECTED) + len(registry.peers)

    code, said, complaints = awaited(doctor, has_all, "--namespace", ILL, "--output", "json")
    assert (code, complaints) == (1, "")
    document = json.loads(said)
    found = {(one["fault"], one["subject"]) for one in document["findings"]}
    servers = {("SelfPreservationNear", f"Eureka server {peer.url}") for peer in registry.peers}
    assert found == EXPECTED | servers
    assert doctor("--namespace", WELL)[0] == 1  # its Eureka is the same
    assert doctor("--namespace", WELL, "--ignore", "SelfPreservationNear,PeersDisagree")[0] == 0

    code, said, _ = doctor("--namespace", ILL, "--fix")
    assert code == 1
    assert said.count("kubectl patch") == len(document["patches"]) == 8
    if find_kubectl() is None:
        pytest.skip("no kubectl to run what was printed")
    environment = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}
    environment["PATH"] = f"{Path(str(find_kubectl())).parent}:{environment['PATH']}"
    subprocess.run(["bash", "-euc", said], env=environment, check=True, timeout=60, capture_output=True)
    for one in strangers:  # what registered itself ended with its pod; what was left over is taken out
        Writer(registry).remove(one)
    cluster.apply_service(ILL, "nobody")
    cluster.apply_deployment(ILL, "nobody", 0)
    passed_over = ("--ignore", "NoPreStop,NoReadinessProbe,MinReadyTooShort")
    awaited(doctor, lambda answer: answer[0] == 0, "--namespace", ILL, *passed_over)
    left = doctor("--namespace", ILL)[1]
    assert "Deployment doctor-ill/nobody" in left  # made in a hurry just now
    assert "Deployment doctor-ill/hurried" not in left


EXPECTED = {
    ("NoPreStop", f"Deployment {ILL}/hurried"),
    ("NoReadinessProbe", f"Deployment {ILL}/hurried"),
    ("MinReadyTooShort", f"Deployment {ILL}/hurried"),
    ("SecurePortByMistake", f"EurekaSyncer {ILL}/hurried"),
    ("PreStopTooShort", f"Deployment {ILL}/cut"),
    ("GracePeriodTooShort", f"Deployment {ILL}/cut"),
    ("LeaseTooShort", f"EurekaSyncer {ILL}/cut"),
    ("SelfRegistered", f"Deployment {ILL}/twice"),
    ("UnresolvableHostName", f"Deployment {ILL}/old"),
    ("UnresolvableHostName", f"EurekaSyncer {ILL}/inside"),
    ("MixedVipCase", f"EurekaSyncer {ILL}/mixed"),
    ("SyncerTrouble", f"EurekaSyncer {ILL}/mixed"),  # a machine has its name
    ("SyncerTrouble", f"EurekaSyncer {ILL}/nobody"),
    ("PeersDisagree", "Eureka default"),
}


def planted(cluster: Cluster, registry: Peers) -> list[Instance]:
    """Plant the faults; return the instances that registered themselves."""
    deployment(cluster, ILL, "hurried", lifecycle=None, grace=30, probe=None, min_ready=0)
    sleep = {"exec": {"command": ["sh", "-c", "touch /tmp/leaving; sleep 60"]}}
    deployment(cluster, ILL, "cut", lifecycle={"preStop": sleep}, grace=40)
    for name in ("twice", "old", "mixed"):
        deployment(cluster, ILL, name)
    for name in ("hurried", "cut", "twice", "old", "mixed"):
        cluster.apply_service(ILL, name)
    cluster.apply_service(ILL, "inside", type="NodePort")
    twin = stranger("twice", address(cluster, "twice"))
    (pod,) = cluster.pods(ILL, "old")
    others = [
        twin,
        stranger("old", pod["status"]["podIP"], pod["metadata"]["name"]),
        stranger("mixed", "192.0.2.9", vip_address="Mixed"),
        *(stranger("gone", f"192.0.2.{number}") for number in range(10, 10 + UNRENEWED)),
    ]
    for one in others:
        Writer(registry).register(one)
    lonely = stranger("lonely", "192.0.2.8")
    registry.peers[0].send_batch([batch.registration_item(lonely)])  # which a server keeps to itself

    cluster.apply_syncer(ILL, "hurried", securePort="http")
    cluster.apply_syncer(ILL, "cut", lease={"renewalIntervalSeconds": 5, "durationSeconds": 8})
    for name in ("twice", "mixed", "nobody"):
        cluster.apply_syncer(ILL, name)
    cluster.apply_syncer(ILL, "inside", mode="service", advertise="ClusterDNS", notReady="Remove")
    for name in ("hurried", "cut", "mixed", "inside"):
        wait_served(cluster, ILL, name, "Synced")
    wait_served(cluster, ILL, "twice", "SelfRegistered", "Synced")  # by what it saw first
    wait_served(cluster, ILL, "nobody", "NoMatchingService")
    return [*others, lonely]


INJECTS = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mesh}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"]}]
  matchConditions:
  - name: asked-for
    expression: has(object.metadata.annotations) && ('mesh.example.com/inject' in object.metadata.annotations)
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{spec: Object.spec{containers: [Object.spec.containers{
        name: "istio-proxy", image: "proxyv2", ports: [Object.spec.containers.ports{
        containerPort: 15090, name: "http-envoy-prom", protocol: "TCP"}]}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mesh}
spec: {policyName: mesh}
"""
POLICIES = ApiResource("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies")
BINDINGS = ApiResource("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings")
PROXY = {
    "name": "istio-proxy",
    "image": "proxyv2",
    "restartPolicy": "Always",
    "ports": [{"containerPort": 15090, "name": "http-envoy-prom"}],
    "lifecycle": {"preStop": {"exec": {"command": ["pilot-agent", "request", "POST", "drain"]}}},
}


@pytest.fixture
def _injects(cluster: Cluster) -> Iterator[None]:
    """Have admitted pods get a sidecar if they ask for it, as Istio's webhook does."""
    policy, binding = yaml.safe_load_all(INJECTS)
    cluster.apply(POLICIES, policy)
    cluster.apply(BINDINGS, binding)
    yield
    cluster.delete(BINDINGS, "mesh")
    cluster.delete(POLICIES, "mesh")


@pytest.mark.usefixtures("_injects")
def test_a_sidecar_that_the_template_does_not_show(cluster: Cluster, doctor: Doctor) -> None:
    """Operator and doctor report the same for an injected sidecar, and the doctor says where to change it;
    a native sidecar is sound.
    """
    deployment(cluster, WELL, "mesh", annotations={"mesh.example.com/inject": "true"})
    deployment(cluster, WELL, "native", sidecars=(PROXY,))
    for name in ("mesh", "native"):
        cluster.apply_service(WELL, name)
        cluster.apply_syncer(WELL, name)

    def has_proxy() -> bool:
        # The policy is served a moment after it was made.
        pods = cluster.pods(WELL, "mesh")
        found = [len(pod["spec"]["containers"]) > 1 for pod in pods]
        for pod, is_injected in zip(pods, found, strict=True):
            if not is_injected:
                cluster.delete(PODS, pod["metadata"]["name"], WELL)
        return bool(found) and all(found)

    wait_for(has_proxy, "the sidecar", 60.0)

    def said_of(name: str) -> str:
        status = (cluster.get(SYNCERS, name, WELL) or {}).get("status") or {}
        found = (one for one in status.get("conditions") or () if one["type"] == "DrainTooShort")
        return next((str(one["message"]) for one in found if one["status"] == "True"), "")

    wait_for(lambda: "container istio-proxy" in said_of("mesh"), "the operator's DrainTooShort", 60.0)
    assert "eurekube doctor" in said_of("mesh")

    def is_reported(answer: Answer) -> bool:
        return "istio-proxy" in answer[1]

    asked = ("--namespace", WELL, "--ignore", "SelfPreservationNear,PeersDisagree", "--output", "json")
    _, reported, _ = awaited(doctor, is_reported, *asked)
    (finding,) = [
        one for one in json.loads(reported)["findings"] if one["subject"] == f"Deployment {WELL}/mesh"
    ]
    assert (finding["fault"], finding["patch"]) == ("NoPreStop", None)
    assert "its template has no such container" in finding["problem"]
    assert "a container istio-proxy with image auto" in finding["remedy"]
    assert f"{WELL}/native" not in reported
    assert said_of("native") == ""
    for name in ("mesh", "native"):
        cluster.delete(SYNCERS, name, WELL)
        cluster.delete(DEPLOYMENTS, name, WELL)


def test_several_services_with_one_label(cluster: Cluster, registry: Peers, doctor: Doctor) -> None:
    """The doctor names Services that share a label if none can be chosen, before an operator of this
    version runs.
    """
    deployment(cluster, ILL, "several")
    for name, port in (("several-a", 8080), ("several-b", 9090)):
        metadata = {"namespace": ILL, "name": name, "labels": {"app": "several"}}
        spec = {"selector": {"app": "several"}, "ports": [{"name": "http", "port": port}]}
        cluster.apply(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    cluster.apply_syncer(ILL, "several")
    wait_served(cluster, ILL, "several", "AmbiguousService")
    _, reported, _ = doctor("--namespace", ILL, "--output", "json")
    found = [
        one for one in json.loads(reported)["findings"] if one["subject"] == f"EurekaSyncer {ILL}/several"
    ]
    assert [one["fault"] for one in found] == ["AmbiguousService"]
    assert "several-a, several-b" in found[0]["problem"]
    assert instances(registry, "several") == []
    cluster.delete(SYNCERS, "several", ILL)
    cluster.delete(DEPLOYMENTS, "several", ILL)


def test_a_server_that_is_away_and_a_cluster_that_is(eurekas: Lab, doctor: Doctor, lab: Lab) -> None:
    """The doctor reports a Eureka server that is away as a fault and checks the rest; without the cluster
    it can check nothing.
    """
    code, said, _ = doctor("-n", WELL, url=f"{eurekas.eureka_urls[0]},http://127.0.0.1:9/eureka")
    assert code == 1
    assert "ServerTrouble  Eureka server http://127.0.0.1:9/eureka\n    not reachable" in said
    code, said, complaints = doctor("-n", WELL, url="http://127.0.0.1:9/eureka")
    assert code == 2
    assert "could not look at the Eureka default: list the registry: no connection" in complaints
    code, said, complaints = doctor("--kubeconfig", str(lab.kubeconfig.parent / "none"))
    assert (code, said, len(complaints.splitlines())) == (2, "", 1)


def test_what_may_not_be_read_is_reported_one_by_one(lab: Lab, doctor: Doctor, tmp_path: Path) -> None:
    """With a ServiceAccount without rights the doctor still checks Eureka, names what it could not read,
    and exits with 2.
    """
    nobody = lab.service_account_kubeconfig(WELL, "default", tmp_path / "nobody")
    code, said, complaints = doctor("-n", WELL, "--kubeconfig", str(nobody))
    assert code == 2
    counted = said.splitlines()[-1]
    assert re.match(r"\d+ errors?, \d+ warnings? in \d+ instances?, 2 Eureka servers read", counted)
    for kind in ("eurekasyncers", "services", "endpointslices", "pods", "deployments"):
        assert f"could not look at {kind} in namespace {WELL}: GET" in complaints
    assert "which instances are this cluster's: give --cluster-name" in complaints
    assert (
        "could not look at whether an operator leads: GET /apis/coordination.k8s.io/v1/leases" in complaints
    )
