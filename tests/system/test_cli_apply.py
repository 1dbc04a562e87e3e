"""``eurekube apply`` and ``remove`` on real servers: a Pulumi program without Pulumi's engine and state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import NAMESPACES, SYNCERS, ApiResource
from eurekube_provider.resources.operator_component.target_arguments import CONFIG_OBJECTS_NAME
from lab import Lab
from lab.workloads import DEPLOYMENTS, Cluster, wait_for
from tests.system.conftest import ROOT, StartOperator

pytestmark = pytest.mark.lab

CONFIG_MAPS = ApiResource("", "v1", "configmaps")
CLUSTER_ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles")
Cli = Callable[..., str]


@pytest.fixture
def cli(lab: Lab, unique_name: str) -> Cli:
    """Return a function that runs ``eurekube`` for a stack of the test's own, and returns the output."""
    config = {
        "url": ",".join(lab.eureka_urls),
        "kubeconfig": str(lab.kubeconfig),
        "operator": {"replicas": 0, "namespace": f"{unique_name}-system"},
        "namespaces": [unique_name],
        "syncers": [{"name": "rating", "namespace": unique_name, "app": "rating"}],
        "registrations": [registration(unique_name)],
    }

    def run(command: str, *options: str, fails: bool = False, **changes: Any) -> str:
        settings = [
            word
            for key, value in {**config, **changes}.items()
            for word in (
                "--config",
                f"eurekube:{key}={value if isinstance(value, str) else json.dumps(value)}",
            )
        ]
        done = subprocess.run(
            [sys.executable, "-m", "eurekube_provider.cli.main", command, *settings, *options],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if not key.startswith("EUREKA_")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return run


def registration(application: str, **changes: Any) -> dict[str, Any]:
    """One entry of ``eurekube:registrations``."""
    entry = {"name": application, "application": application, "hostName": "192.0.2.10", "port": 8080}
    return {**entry, **changes}


def held(eureka: Peers, name: str, port: int = 8080) -> Instance | None:
    """Return a registration as Eureka holds it; None if it is not there."""
    return eureka.read(name, f"{name}.dev.eurekube:{name}:{port}")


def touched(output: str) -> set[str]:
    """Return the lines of a plan that announce a change."""
    return {line for line in output.splitlines() if line[0] != " "}


def test_apply_makes_everything_and_remove_takes_it_down(
    cli: Cli, cluster: Cluster, eureka: Peers, unique_name: str, start_operator: StartOperator
) -> None:
    """A second apply changes nothing; what leaves the program leaves the cluster and Eureka.

    The syncers' namespace existed before, and stays.
    """
    assert "+ EurekaSyncer" in cli("apply", "--dry-run")
    assert held(eureka, unique_name) is None
    assert cluster.get(NAMESPACES, unique_name + "-system") is None

    cli("apply")
    instance = held(eureka, unique_name)
    assert instance is not None
    assert instance.owner == f"stack/organization/eurekube/dev/{unique_name}"
    assert cluster.get(DEPLOYMENTS, "eurekube-operator", f"{unique_name}-system") is not None
    left = {f"! Namespace {unique_name} is there already, of somebody else, and is left as it is"}
    assert left == touched(cli("apply"))
    assert left == touched(cli("apply", "--dry-run"))
    assert instance == held(eureka, unique_name)

    start_operator(WATCH_NAMESPACE=unique_name)
    wait_for(
        lambda: (cluster.get(SYNCERS, "rating", unique_name) or {})["metadata"].get("finalizers"),
        "the operator's finalizer",
    )
    moved = {"syncers": [], "registrations": [registration(unique_name, port=9090)]}
    planned = cli("apply", "--dry-run", **moved)
    assert f"- EurekaSyncer {unique_name}/rating" in planned
    assert f":{unique_name}:9090 UP 192.0.2.10:9090" in planned
    cli("apply", **moved)
    assert cluster.get(SYNCERS, "rating", unique_name) is None
    assert held(eureka, unique_name, 9090) is not None
    assert held(eureka, unique_name, 8080) is None

    cli("remove", **moved)
    assert held(eureka, unique_name, 9090) is None
    assert cluster.get(NAMESPACES, f"{unique_name}-system") is None
    assert cluster.get(NAMESPACES, unique_name) is not None
    assert cluster.get(CLUSTER_ROLES, f"eurekube-operator-{unique_name}-system") is None
    assert cli("remove", **moved) == ""


def test_what_is_dropped_goes_and_copies_of_it_stay(
    cli: Cli, cluster: Cluster, lab: Lab, unique_name: str
) -> None:
    """A ConfigMap that the program no longer makes is removed, and none of a person or of a controller that
    copies objects with their labels.
    """
    namespace, name = f"{unique_name}-system", CONFIG_OBJECTS_NAME
    cli("apply", connections={"east": {"url": lab.eureka_urls[0]}})
    made = cluster.get(CONFIG_MAPS, name, namespace)
    assert made is not None
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": namespace}}
    labels = made["metadata"]["labels"]
    copy = {**own, "metadata": {"name": unique_name, "namespace": "default", "labels": labels}}
    cluster.apply(CONFIG_MAPS, own)
    cluster.apply(CONFIG_MAPS, copy)
    removed = f"- ConfigMap {namespace}/{name}"
    for options in (("--dry-run",), ()):
        assert [one for one in touched(cli("apply", *options)) if one.startswith("- ")] == [removed]
    assert cluster.get(CONFIG_MAPS, name, namespace) is None
    assert cluster.get(CONFIG_MAPS, "own", namespace) is not None
    cli("remove")
    assert cluster.get(CONFIG_MAPS, unique_name, "default") is not None
    cluster.delete(CONFIG_MAPS, unique_name, "default")


def test_remove_waits_for_an_operator_and_says_so(
    cli: Cli, cluster: Cluster, eureka: Peers, unique_name: str
) -> None:
    """Remove keeps the rest while no operator serves a syncer's finalizer, so that an operator still can."""
    cli("apply")
    path = SYNCERS.path(unique_name, "rating")
    finalizers = {"metadata": {"finalizers": ["eurekube.io/deregister"]}}
    cluster.access.request("PATCH", path, None, finalizers, "application/merge-patch+json")
    said = cli("remove", "--patience", "1", fails=True)
    assert f"EurekaSyncer {unique_name}/rating: still there after 1 s" in said
    assert held(eureka, unique_name) is not None
    assert cluster.get(CLUSTER_ROLES, f"eurekube-operator-{unique_name}-system") is not None
    nobody: dict[str, Any] = {"metadata": {"finalizers": None}}
    cluster.access.request("PATCH", path, None, nobody, "application/merge-patch+json")
    cli("remove")
    assert held(eureka, unique_name) is None


def test_somebody_elses_instance_stops_apply_with_a_sentence(
    cli: Cli, eureka: Peers, unique_name: str
) -> None:
    """Apply refuses to replace another owner's instance, and its dry run says so before."""
    Writer(eureka).register(
        Instance(
            unique_name, f"{unique_name}.dev.eurekube:{unique_name}:8080", "10.0.0.1", "10.0.0.1", Port(1)
        )
    )
    assert "was not registered by Eurekube" in cli("apply", "--dry-run")
    said = cli("apply", fails=True)
    assert "was left as it is" in said
    assert len(said.splitlines()) == 1
    cli("remove")
    assert held(eureka, unique_name) is not None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"url": "http://127.0.0.1:9/eureka"}, "no connection to http://127.0.0.1:9/eureka"),
        ({"kubeconfig": "/nowhere"}, "the kubeconfig /nowhere does not exist"),
    ],
)
def test_wrong_settings_are_reported_in_one_sentence(
    cli: Cli, changes: dict[str, str], sentence: str
) -> None:
    """The one sentence names what was attempted and how to fix it."""
    said = cli("apply", fails=True, **changes)
    assert sentence in said
    assert len(said.splitlines()) == 1
    cli("remove")
