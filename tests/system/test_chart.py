"""The example chart, installed by a real helm: a service comes with its syncer, and is removed with it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from eurekube_provider.core.prestop import PreStopHook
from eurekube_provider.doctor.workload_checks import (
    Workload,
    WorkloadRequirements,
    drain_findings,
    readiness_findings,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import SERVICES, SYNCERS
from lab import Lab
from lab.programs import HELM, provide_programs
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from tests.system.conftest import ROOT, StartOperator, addresses

pytestmark = pytest.mark.lab

CHART = ROOT / "examples" / "helm" / "rating"
Helm = Callable[..., str]


@pytest.fixture
def helm(lab: Lab, tmp_path: Path) -> Helm:
    """Return a function that runs helm against the lab's cluster, with a home of its own, and returns the
    output.
    """
    program = provide_programs([HELM])[HELM]
    homes = {f"HELM_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}

    def run(*arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [program, *arguments],
            env={**homes, "HOME": str(tmp_path), "KUBECONFIG": str(lab.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return run


def test_installed_and_uninstalled_with_the_service(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator, helm: Helm
) -> None:
    """``helm install`` brings the service into the cluster and into Eureka, and ``helm uninstall`` removes
    it from both.
    """
    app = f"{namespace}-app"
    start_operator()
    notes = helm("install", app, str(CHART), "--namespace", namespace, "--set", "drain.seconds=0")
    assert f"{app.upper()} appears in Eureka" in notes
    wait_for(lambda: len(addresses(eureka, app)) == 2, "two instances")
    ready = wait_for(lambda: cluster.ready_addresses(namespace, app), "ready endpoints")
    assert addresses(eureka, app) == dict.fromkeys(ready, "UP")

    helm("upgrade", app, str(CHART), "--namespace", namespace, "--reuse-values", "--set", "replicas=3")
    wait_for(lambda: list(addresses(eureka, app).values()) == ["UP"] * 3, "three instances")

    helm("uninstall", app, "--namespace", namespace)
    wait_for(lambda: addresses(eureka, app) == {}, "no instance")
    for resource in (SYNCERS, SERVICES, DEPLOYMENTS):
        wait_for(lambda resource=resource: cluster.get(resource, app, namespace) is None, resource.plural)  # type: ignore[misc]


def test_what_the_chart_renders(helm: Helm) -> None:
    """The doctor finds no fault in the chart's objects, their labels agree, and the pod's own Eureka
    client is off.
    """
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    items = {item["kind"]: item for item in yaml.safe_load_all(helm("template", "rating", str(CHART)))}
    assert set(items) == {"Deployment", "Service", "EurekaSyncer"}
    pod = items["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "120"]
    workload = Workload("Deployment", items["Deployment"])
    assert list(drain_findings(workload, WorkloadRequirements(), PreStopHook.SLEEP)) == []
    assert list(readiness_findings(workload)) == []
    assert {"name": "EUREKA_CLIENT_REGISTER_WITH_EUREKA", "value": "false"} in container["env"]
    assert container["readinessProbe"]["httpGet"]["port"] == "http"
    assert items["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert items["Service"]["metadata"]["labels"]["app"] == items["EurekaSyncer"]["spec"]["selector"]["app"]
    disabled = helm("template", "rating", str(CHART), "--set", "eureka.enabled=false")
    assert "EurekaSyncer" not in disabled


def test_values_that_cannot_be_used(helm: Helm) -> None:
    """The chart's schema refuses a wrong value before anything is installed."""
    said = helm("template", "rating", str(CHART), "--set", "eureka.mode=node", fails=True)
    assert "eureka/mode" in said.replace(".", "/")
