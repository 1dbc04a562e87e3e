"""Deletions of services, syncers, operators and definitions in any order, by kubectl, on real servers.

Each row of the table "Deleted in any order" in docs/guides/gitops.md is executed here, but that of a
namespace without an operator: test_gitops.py has it. The service is the chart examples/helm/rating, rendered
into one directory for ``kubectl apply -k``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.syncer import FINALIZER
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import MIRRORS, NAMESPACES, PODS, SYNCERS
from lab import Lab
from lab.workloads import CRDS, DEPLOYMENTS, Cluster, wait_for
from scripts.release import install_manifest
from tests.system.conftest import (
    ROOT,
    Operator,
    RunCommands,
    StartOperator,
    addresses,
    end_syncers,
    operator_environment,
    run_as_pod,
    with_crds,
)
from tests.system.test_gitops import ON_ITS_WAY, WELL, verdicts

pytestmark = pytest.mark.lab

Object = dict[str, Any]

HOME, CRD = "eurekube-system", "eurekasyncers.eurekube.io"


@pytest.fixture
def definitions(lab: Lab, cluster: Cluster) -> Iterator[None]:
    """Rid the cluster of other tests' syncers and mirrors, which a deleted CRD takes along; bring the CRDs
    back after the test.
    """

    def end() -> None:
        for resource in (SYNCERS, MIRRORS):
            if cluster.get(CRDS, f"{resource.plural}.eurekube.io") is not None:
                end_syncers(cluster, resource)

    end()
    yield
    end()
    ending = [one for one in cluster.access.get(CRDS.path(None))["items"] if is_deleted(one)]
    for name in (one["metadata"]["name"] for one in ending):
        wait_for(lambda name=name: cluster.get(CRDS, name) is None, f"{name} to go")  # type: ignore[misc]
    with_crds(lab)


def is_deleted(item: Object | None) -> bool:
    """Return whether the deletion of an existing object has begun."""
    return item is not None and "deletionTimestamp" in item["metadata"]


def write_service(folder: Path, namespace: str, run_here: RunCommands) -> None:
    """Write what the example's chart renders, the syncer first, as one directory for kubectl; the
    namespace names everything.
    """
    chart = ROOT / "examples" / "helm" / "rating"
    rendered = run_here(f"helm template {namespace} {chart} --namespace {namespace}")
    by_kind = {one["kind"]: one for one in yaml.safe_load_all(rendered)}
    files = [f"{kind.lower()}.yaml" for kind in ("EurekaSyncer", "Service", "Deployment")]
    assert len(by_kind) == len(files)
    for kind, item in by_kind.items():
        (folder / f"{kind.lower()}.yaml").write_text(yaml.safe_dump(item))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": files}))


def test_a_service_comes_and_goes_with_its_syncer(
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    start_operator: StartOperator,
    run_here: RunCommands,
    tmp_path: Path,
) -> None:
    """A syncer that comes before its Service is InProgress and then Current; one deletion of syncer,
    Service and Deployment, or of their namespace, leaves nothing.
    """
    write_service(tmp_path, namespace, run_here)
    start_operator()

    def reason() -> str:
        conditions = (cluster.get(SYNCERS, namespace, namespace) or {})["status"]["conditions"]
        return str(next(one["reason"] for one in conditions if one["type"] == "Ready"))

    def verdict() -> tuple[str, str]:
        found = {**(cluster.get(SYNCERS, namespace, namespace) or {}), "kind": "EurekaSyncer"}
        return verdicts({"": found})[""]

    def is_up() -> bool:
        return list(addresses(eureka, namespace).values()) == ["UP", "UP"]

    run_here("kubectl apply -f eurekasyncer.yaml")
    wait_for(lambda: reason() == "NoMatchingService", "the operator's first look")
    assert verdict() == ON_ITS_WAY
    run_here("kubectl apply -k .")
    wait_for(lambda: verdict() == WELL, "the syncer to be well")
    wait_for(is_up, "both pods in Eureka")
    run_here("kubectl delete -k . --timeout=60s")
    assert cluster.get(SYNCERS, namespace, namespace) is None
    assert addresses(eureka, namespace) == {}
    run_here("kubectl apply -k .")
    wait_for(is_up, "both pods in Eureka again")
    run_here(f"kubectl delete namespace {namespace} --timeout=60s")
    assert addresses(eureka, namespace) == {}


@pytest.mark.usefixtures("definitions")
def test_deleted_definitions_wait_for_an_operator(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator, run_here: RunCommands
) -> None:
    """A CRD that is deleted without an operator hangs with its syncers, and their instances stay, until an
    operator is started.
    """
    cluster.apply_deployment(namespace, namespace, 1)
    cluster.apply_service(namespace, namespace)
    cluster.apply_syncer(namespace, namespace)
    operator = start_operator()
    wait_for(lambda: list(addresses(eureka, namespace).values()) == ["UP"], "an instance")
    operator.stop()
    with pytest.raises(AssertionError, match="timed out waiting for the condition"):
        run_here(f"kubectl delete crd {CRD} --timeout=5s")
    assert is_deleted(cluster.get(CRDS, CRD))
    syncer = cluster.get(SYNCERS, namespace, namespace)
    assert is_deleted(syncer)
    assert (syncer or {})["metadata"]["finalizers"] == [FINALIZER]
    assert list(addresses(eureka, namespace).values()) == ["UP"]
    start_operator()
    wait_for(lambda: cluster.get(CRDS, CRD) is None, "the CRD to go")
    assert addresses(eureka, namespace) == {}


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_an_operator_that_is_deleted_with_its_syncers_leaves_them_to_one_pass(
    is_paused: bool,
    lab: Lab,
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    run_here: RunCommands,
    tmp_path: Path,
) -> None:
    """Where one deletion takes an operator, its rights and its syncers, the syncers hang until another
    operator makes one pass.

    A running operator still deregisters their instances. One that is paused, as by a slow Eureka, does not:
    they stay, and where the CRDs are deleted as well, those hang, too.
    """
    write_service(tmp_path, namespace, run_here)
    kustomization = tmp_path / "kustomization.yaml"
    resources = ["install.yaml", *yaml.safe_load(kustomization.read_text())["resources"]]
    kustomization.write_text(yaml.safe_dump({"resources": resources}))
    installed = install_manifest().replace("http://eureka:8761/eureka", lab.eureka_urls[0])
    objects = [one for one in yaml.safe_load_all(installed) if one]
    if not is_paused:  # it may or may not be quicker than the deletion, if that begins with the CRDs
        objects = [one for one in objects if one["kind"] != "CustomResourceDefinition"]
    (tmp_path / "install.yaml").write_text(yaml.safe_dump_all(objects))
    run_here("kubectl apply --server-side -k .")
    account = lab.service_account_kubeconfig(HOME, "eurekube-operator", tmp_path / "account")
    environment = operator_environment(lab, namespace, POD_NAMESPACE=HOME, KUBECONFIG=str(account))
    deployment = cluster.get(DEPLOYMENTS, "eurekube-operator", HOME) or {}
    operator = run_as_pod(deployment["spec"]["template"], environment, tmp_path / "operator.log")
    try:
        operator.wait_ready()
        wait_for(lambda: list(addresses(eureka, namespace).values()) == ["UP", "UP"], "two instances")
        if is_paused:
            operator.process.send_signal(signal.SIGSTOP)
        with pytest.raises(AssertionError, match="timed out waiting for the condition"):
            run_here("kubectl delete -k . --timeout=15s")
        wait_for(lambda: not cluster.items(PODS, HOME), "the operator's pods to end")
        operator.stop(signal.SIGKILL if is_paused else signal.SIGTERM)
    finally:
        operator.process.kill()
        sys.stdout.write(operator.text())
    assert cluster.get(DEPLOYMENTS, namespace, namespace) is None
    syncer = cluster.get(SYNCERS, namespace, namespace) or {}
    assert is_deleted(syncer)
    assert syncer["metadata"]["finalizers"] == [FINALIZER]
    assert is_deleted(cluster.get(CRDS, CRD)) is is_paused
    assert list(addresses(eureka, namespace).values()) == (["UP", "UP"] if is_paused else [])
    once = Operator(tmp_path / "once.log", operator_environment(lab, namespace), ["--once"])
    assert once.process.wait(60) == 0, once.text()
    assert addresses(eureka, namespace) == {}
    wait_for(lambda: cluster.get(SYNCERS, namespace, namespace) is None, "the syncer to go")
    wait_for(lambda: not is_deleted(cluster.get(CRDS, CRD)), "the CRD to go")
    wait_for(lambda: cluster.get(NAMESPACES, HOME) is None, "the operator's namespace to go")
