"""Health of our custom resources in the engines of Argo CD and Flux, for statuses from real servers."""

from __future__ import annotations

import copy
import json
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.condition_types import Reason, RefreshReason, SyncerCondition
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirroredServiceCounts, MirrorReport
from eurekube_provider.core.problem import Problem
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    MIRRORS,
    NAMESPACES,
    SERVICES,
    STACK_REFRESHES,
    SYNCERS,
    ApiResource,
)
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.mirror.mirror_status import mirror_status
from eurekube_provider.operator.progress import STALLED_AFTER_SECONDS
from eurekube_provider.operator.status import syncer_status
from eurekube_provider.operator.triggers import trigger_state
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState
from lab import Lab
from lab.errors import LabError
from lab.programs import THIRD_PARTY_READERS, provide_programs
from lab.workloads import Cluster, wait_for
from scripts.blocks import find_code_blocks
from scripts.release import install_manifest, write_manifests
from tests.system.conftest import (
    ROOT,
    Operator,
    RunCommands,
    instances,
    operator_environment,
    run_as_pod,
)

pytestmark = pytest.mark.lab

Object = dict[str, Any]
Verdict = tuple[str, str]
"""Health as kstatus (used by Flux) reports it, and as Argo CD reports it."""

PAGE, UNINSTALL = (ROOT / "docs" / "guides" / f"{name}.md" for name in ("gitops", "uninstall"))
NAMESPACE, UNSERVED, DELETED = "gitops", "gitops-unserved", "gitops-deleted"
HTTP, ADMIN, OTHER = ({"name": name, "port": port} for name, port in (("http", 80), ("admin", 81), ("x", 82)))
ON_ITS_WAY, FAILED, WELL = ("InProgress", "Progressing"), ("Failed", "Degraded"), ("Current", "Healthy")

SETTLED: Mapping[str, Verdict] = {
    "up": WELL,
    "scaled-to-zero": WELL,
    "no-pod-ready": ON_ITS_WAY,
    "paused": ("Current", "Suspended"),
    "paused-first": ("InProgress", "Suspended"),
}
STUCK = ("no-service", "no-port", "ambiguous-port", "no-address", "unknown-eureka", "not-allowed")


def service(
    cluster: Cluster,
    name: str,
    ready: bool | None,
    *ports: Object,
    kind: str = "ClusterIP",
    namespace: str = NAMESPACE,
) -> None:
    """Create a Service with one endpoint, or without any if `ready` is None."""
    cluster.apply(
        SERVICES,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": list(ports), "type": kind},
        },
    )
    endpoint = {"addresses": [f"10.78.0.{len(name)}"], "conditions": {"ready": ready}}
    cluster.apply_endpoint_slice(namespace, name, [] if ready is None else [endpoint], ports)


def verdicts(objects: Mapping[str, Object]) -> dict[str, Verdict]:
    """Return the verdicts of both engines on each object."""
    checks = yaml.safe_load((ROOT / "deploy/argocd/argocd-cm.yaml").read_text(encoding="utf-8"))["data"]
    by_flux = asked("kstatus", list(objects.values()))
    found = {}
    for (name, item), flux in zip(objects.items(), by_flux, strict=True):
        script = checks[f"resource.customizations.health.eurekube.io_{item['kind']}"]
        (argo,) = asked("argo-health", {"script": script, "objects": [item]})
        assert argo["message"], name
        found[name] = (flux["status"], argo["status"])
    return found


def asked(command: str, given: Any) -> list[dict[str, str]]:
    """Ask the program that contains the engines; return its answer."""
    try:
        program = provide_programs([THIRD_PARTY_READERS])[THIRD_PARTY_READERS]
    except LabError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [program, command], input=json.dumps(given), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: list[dict[str, str]] = json.loads(done.stdout)
    return answer


def test_argo_cd_and_flux_see_what_is_well_on_its_way_and_failed(
    lab: Lab, cluster: Cluster, eureka: Peers, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Both engines see the right health from the first apply, over two minutes, until the operator is
    away.
    """
    for name in (NAMESPACE, UNSERVED):
        cluster.create_namespace(name)
    unserved = {kind: make_unserved(cluster, kind, resource) for kind, resource in KINDS.items()}
    assert verdicts(unserved) == dict.fromkeys(KINDS, ON_ITS_WAY)

    environment = operator_environment(lab, NAMESPACE, CLUSTER_NAME="gitops")
    operator = Operator(tmp_path / "operator.log", environment, [])
    request.addfinalizer(lambda: print(operator.stop(), operator.text()))
    operator.wait_ready()
    began = time.monotonic()
    for name in ("up", "paused", "paused-first"):
        service(cluster, name, True, HTTP)
    cluster.apply_syncer(NAMESPACE, "paused-first", paused=True)
    service(cluster, "scaled-to-zero", None, HTTP)
    service(cluster, "no-pod-ready", False, HTTP)
    service(cluster, "no-port", True, HTTP)
    service(cluster, "ambiguous-port", True, ADMIN, OTHER)
    service(cluster, "no-address", True, HTTP, kind="LoadBalancer")
    for name in ("up", "paused", "scaled-to-zero", "no-pod-ready", "no-service", "ambiguous-port"):
        cluster.apply_syncer(NAMESPACE, name)
    cluster.apply_syncer(NAMESPACE, "no-port", port="nope")
    cluster.apply_syncer(NAMESPACE, "no-address", "service")
    cluster.apply_syncer(NAMESPACE, "unknown-eureka", eureka="nowhere")
    cluster.apply_syncer(NAMESPACE, "not-allowed", selector={"namespace": "default"})
    wait_for(lambda: len(instances(eureka, "paused")) == 1, "what is paused next", 60.0)
    cluster.apply_syncer(NAMESPACE, "paused", paused=True)

    def syncers() -> dict[str, Object]:
        found = cluster.access.get(SYNCERS.path(NAMESPACE))["items"]
        return {one["metadata"]["name"]: {**one, "kind": "EurekaSyncer"} for one in found}

    early = {**SETTLED, **dict.fromkeys(STUCK, ON_ITS_WAY)}
    wait_for(lambda: verdicts(syncers()) == early, f"{early}", 60.0)
    assert time.monotonic() - began < STALLED_AFTER_SECONDS
    late = {**SETTLED, **dict.fromkeys(STUCK, FAILED)}
    wait_for(lambda: verdicts(syncers()) == late, f"{late}", STALLED_AFTER_SECONDS + 30.0)
    assert time.monotonic() - began >= STALLED_AFTER_SECONDS

    up = syncers()["up"]
    assert verdicts(written(up)) == {
        "eureka away": ON_ITS_WAY,
        "braked": ON_ITS_WAY,
        "conflict": FAILED,
        "ambiguous service": FAILED,
        "drain too short": WELL,
        "registers itself": WELL,
        "mirror": WELL,
        "mirror of a taken name": FAILED,
        "mirror of what others registered wrongly": WELL,
        "refresh of an unknown target": FAILED,
    }

    operator.stop()
    cluster.apply_syncer(NAMESPACE, "up", metadata={"a": "b"})
    assert verdicts({"behind": syncers()["up"]}) == {"behind": ON_ITS_WAY}


def test_a_namespace_without_an_operator_waits_for_one_pass_of_it(
    lab: Lab, cluster: Cluster, eureka: Peers, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Syncers in a deleted namespace without an operator keep their finalizer and instances until an
    operator makes one pass.
    """
    cluster.create_namespace(DELETED)
    environment = operator_environment(lab, DELETED, CLUSTER_NAME="gitops")
    operator = Operator(tmp_path / "operator.log", environment, [])
    request.addfinalizer(lambda: print(operator.stop(), operator.text()))
    operator.wait_ready()
    service(cluster, "hangs", True, HTTP, namespace=DELETED)
    cluster.apply_syncer(DELETED, "hangs")
    wait_for(lambda: len(instances(eureka, "hangs")) == 1, "the instance", 60.0)
    operator.stop()
    cluster.access.request("DELETE", NAMESPACES.path(None, DELETED))

    def syncer() -> Object:
        return {**(cluster.get(SYNCERS, "hangs", DELETED) or {}), "kind": "EurekaSyncer"}

    wait_for(lambda: syncer()["metadata"].get("deletionTimestamp"), "the deletion", 60.0)
    assert verdicts({"hangs": syncer()}) == {"hangs": ("Terminating", "Progressing")}
    assert len(instances(eureka, "hangs")) == 1
    once = Operator(tmp_path / "once.log", environment, ["--once"])
    wait_for(lambda: cluster.get(NAMESPACES, DELETED) is None, "the end of the namespace", 120.0)
    assert once.process.wait(60) == 0, once.text()
    assert instances(eureka, "hangs") == []


KINDS: Mapping[str, tuple[ApiResource, Object]] = {
    "EurekaSyncer": (SYNCERS, {"mode": "pod", "selector": {"app": "rating"}}),
    "EurekaMirror": (MIRRORS, {"application": "review"}),
    "StackRefresh": (STACK_REFRESHES, {"selector": {"app": "rating"}, "action": "Preview", "target": "prod"}),
}


def make_unserved(cluster: Cluster, kind: str, of: tuple[ApiResource, Object]) -> Object:
    """Create a custom resource that no operator serves; return it as the API server stores it."""
    resource, spec = of
    metadata = {"namespace": UNSERVED, "name": "rating"}
    made = {"apiVersion": "eurekube.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    return cluster.apply(resource, made)


def written(up: Object) -> dict[str, Object]:
    """Return statuses that a lab would take long to reach, as they are ten minutes after the start."""

    def report(reason: str = "", *, is_ready: bool | None = True, note: str = "") -> SyncerReport:
        problems = {one: Problem(one, "so it is") for one in (reason, note) if one}
        synced = problems.get(reason, Problem("Synced", "all well"))
        return SyncerReport(is_ready, synced, not reason, synced, problems=problems)

    times = [datetime.fromtimestamp(time.time() - seconds, UTC) for seconds in (600, 0)]
    found = {}
    for name, said in {
        "eureka away": report(Reason.EUREKA_UNREACHABLE, is_ready=False),
        "braked": report("Braked", is_ready=None),
        "conflict": report(SyncerCondition.CONFLICT),
        "ambiguous service": report(SyncerCondition.AMBIGUOUS_SERVICE),
        "drain too short": report(note="DrainTooShort"),
        "registers itself": report("SelfRegistered"),
    }.items():
        item = copy.deepcopy(up)
        for now in times:
            item["status"] = syncer_status(item, said, now)
        found[name] = item
    services = (MirroredServiceCounts("REVIEW", "review", 1, 1),)
    for name, kind in (
        ("mirror", ""),
        ("mirror of a taken name", MirrorCondition.NAME_TAKEN),
        ("mirror of what others registered wrongly", MirrorCondition.ADDRESS_REFUSED),
    ):
        item = {"kind": "EurekaMirror", "metadata": {"name": "review", "generation": 1}}
        for now in times:
            problems = {kind: Problem(kind, "so")} if kind else {}
            item["status"] = mirror_status(item, MirrorReport(services, problems), now)
        found[name] = item
    refresh: Object = {"kind": "StackRefresh", "metadata": {"name": "rating", "generation": 1}}
    state = StackRefreshState().as_refused(RefreshReason.UNKNOWN_TARGET, "no such target")
    for now in times:
        refresh["status"] = trigger_state.stack_refresh_status_patch(refresh, state, now)
    return {**found, "refresh of an unknown target": refresh}


def test_the_guard_for_argo_cd_refuses_while_there_are_syncers(
    lab: Lab, cluster: Cluster, namespace: str, chart: Path, run_here: RunCommands, tmp_path: Path
) -> None:
    """The page's command writes a PreDelete hook for an operator of install.yaml: with that operator's
    rights its Job fails while there is a syncer, and succeeds without.
    """
    (tmp_path / "install.yaml").write_text(install_manifest())
    (write,) = (block.script() for block in find_code_blocks(PAGE) if "uninstall-guard.yaml" in block.text)
    published = "oci://ghcr.io/eurekube/charts/eurekube"
    assert published in write
    (remove,) = (block.script() for block in find_code_blocks(UNINSTALL) if "delete namespace" in block.text)
    try:
        run_here("kubectl apply --server-side -f install.yaml")
        run_here(write.replace(published, str(chart)))
        run_here("kubectl create --dry-run=server -f uninstall-guard.yaml")
        job = yaml.safe_load((tmp_path / "uninstall-guard.yaml").read_text())
        assert job["metadata"]["annotations"]["argocd.argoproj.io/hook"] == "PreDelete"
        assert "helm.sh/hook" not in job["metadata"]["annotations"]
        template = job["spec"]["template"]
        account = template["spec"]["serviceAccountName"], tmp_path / "account"
        kubeconfig = lab.service_account_kubeconfig(job["metadata"]["namespace"], *account)
        environment = operator_environment(lab, namespace, KUBECONFIG=str(kubeconfig))
        cluster.apply_syncer(namespace, "rating")
        refusing = run_as_pod(template, environment, tmp_path / "refusing.log")
        assert refusing.process.wait(60) == 1, refusing.text()
        assert f"still needed by EurekaSyncer {namespace}/rating" in refusing.text()
        cluster.delete(SYNCERS, "rating", namespace)
        allowing = run_as_pod(template, environment, tmp_path / "allowing.log")
        assert allowing.process.wait(60) == 0, allowing.text()
    finally:
        run_here(remove)


def test_the_health_checks_are_added_to_what_argo_cd_has(
    cluster: Cluster, run_here: RunCommands, tmp_path: Path
) -> None:
    """The page's command adds the health checks of a release, and keeps the other settings of Argo CD."""
    write_manifests(tmp_path)
    cluster.create_namespace("argocd")
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "argocd", "name": "argocd-cm"},
        "data": {"url": "https://argocd.example.com"},
    }
    config_maps = ApiResource("", "v1", "configmaps")
    cluster.apply(config_maps, settings)
    (command,) = (block.script() for block in find_code_blocks(PAGE) if "kubectl patch" in block.text)
    run_here(command)
    data = cluster.access.get(config_maps.path("argocd", "argocd-cm"))["data"]
    added = yaml.safe_load((ROOT / "deploy/argocd/argocd-cm.yaml").read_text(encoding="utf-8"))["data"]
    assert data == {"url": "https://argocd.example.com", **added}
    assert len(added) == len(KINDS)
