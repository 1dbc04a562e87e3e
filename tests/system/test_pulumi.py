"""The repository's program under a real Pulumi CLI: file backend, real Eureka, real API server.

``test_registrations*.py`` tests its registrations, for both providers. Home, backend and passphrase are the
test's own; the project is a copy, since the CLI writes into the stack's file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.kube.access import NAMESPACES, SYNCERS
from lab import Lab
from lab.workloads import CRDS, Cluster, wait_for
from tests.system.conftest import ROOT, StartOperator
from tests.system.stacks import Example, Stack, needs_kubernetes_plugin, needs_pulumi, own_pulumi

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, needs_kubernetes_plugin]


class Bridge(Stack):
    """One stack on a copy of the repository's project."""

    def __init__(self, directory: Path, name: str, config: dict[str, Any]) -> None:
        project = directory / "project"
        project.mkdir()
        for file in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(ROOT / file, project)
        self.file = project / "stacks" / f"Pulumi.{name}.yaml"
        self.file.parent.mkdir()
        self.write(config)
        (project / ".venv").symlink_to(sys.prefix)
        super().__init__(project, own_pulumi(directory))
        self.name = name
        self.pulumi("stack", "init", name)

    def write(self, config: dict[str, Any]) -> None:
        """Set keys of the stack's configuration, and keep those that the CLI wrote."""
        document = yaml.safe_load(self.file.read_text()) if self.file.exists() else {}
        written = {f"eurekube:{key}": value for key, value in config.items()}
        document["config"] = {**document.get("config", {}), **written}
        self.file.write_text(yaml.safe_dump(document))


def settings(lab: Lab, name: str, **more: Any) -> dict[str, Any]:
    """Return the smallest configuration: the operator's objects without pods, and one registration."""
    return {
        "url": lab.eureka_urls[0],
        "kubeconfig": str(lab.kubeconfig),
        # Other tests have syncers in this cluster.
        "operator": {"replicas": 0, "namespace": f"{name}-system", "forceDestroy": True},
        "registrations": [
            {
                "name": "billing",
                "application": name,
                "hostName": "192.0.2.10",
                "port": 8080,
                "metadata": {"tier": "1"},
            }
        ],
        **more,
    }


@pytest.fixture(scope="module")
def peer(lab: Lab) -> Iterator[Peer]:
    """Return a client of the Eureka server."""
    url = lab.eureka_urls[0]
    peer = Peer(url, Connection.parse(url))
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def deployed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """Return a stack that is up; each test leaves it as its program says."""
    stack = Bridge(tmp_path_factory.mktemp("deployed"), "deployed", settings(lab, "deployed"))
    stack.pulumi("preview")  # the CRD and all that needs it are yet to come
    stack.up()
    yield stack
    stack.destroy()


def held(peer: Peer, stack: Bridge) -> Instance | None:
    """Return the stack's registration in Eureka; None if it is not there."""
    return peer.read(stack.name, f"billing.{stack.name}.eurekube:{stack.name}:8080")


def must_hold(peer: Peer, stack: Bridge) -> Instance:
    """Return the stack's registration in Eureka, which must be there."""
    instance = held(peer, stack)
    assert instance is not None
    return instance


@contextmanager
def renewing(peer: Peer, instance: Instance) -> Iterator[None]:
    """Renew an instance every 20 ms while the block runs, far more often than an operator does."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.02):
            try:
                peer.renew(instance)
            except RegistryError:
                return

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_up_registers_and_a_second_up_changes_nothing(deployed: Bridge, peer: Peer) -> None:
    """Values that Eureka computes, and numbers that arrive as floats, are no change for a refresh or an
    update.
    """
    instance = must_hold(peer, deployed)
    assert (instance.host_name, instance.metadata["tier"]) == ("192.0.2.10", "1")
    deployed.up("--refresh", "--expect-no-changes")
    assert instance == held(peer, deployed)


def test_another_stack_builds_on_its_exports(deployed: Bridge, peer: Peer, lab: Lab, tmp_path: Path) -> None:
    """Another stack's operator renews this stack's registration; a stack with another Eureka URL is
    refused.
    """
    example = Example("stack-reference", tmp_path, deployed.environment)
    url = lab.eureka_urls[0]
    assert deployed.outputs() == {
        "eurekaUrls": [url],
        "operator": {"name": "eurekube", "namespace": "deployed-system"},
        "syncers": {},
        "registrations": {"billing": "billing.deployed.eurekube:deployed:8080"},
    }
    platform = "organization/eurekube/deployed"
    example.init({"platform": platform, "eurekube:url": url, "hosts": ["192.0.2.61"]})
    example.up()
    instance = peer.read("BILLING", "192.0.2.61.billing.dev.billing:billing:8080")
    assert instance is not None
    assert instance.renewer == "eurekube"
    example.configure({"eurekube:url": "http://127.0.0.1:9/eureka"})
    said = example.pulumi("preview", fails=True)
    assert f"the operator of {platform} renews at {url}" in said
    example.configure({"eurekube:url": url})
    example.destroy()
    assert peer.read(*instance.key) is None


ALONE = ("unshare", "--net", "bash", "-eo", "pipefail", "-c")


def may_be_alone() -> bool:
    """Return whether a process can have a network of its own here."""
    programs = map(shutil.which, ("unshare", "ip"))
    return all(programs) and not subprocess.run([*ALONE, "ip link set lo up"], capture_output=True).returncode


@pytest.mark.skipif(not may_be_alone(), reason="a network of one's own is not allowed here")
def test_a_pull_requests_preview_reaches_nobody(deployed: Bridge, lab: Lab, tmp_path: Path) -> None:
    """The preview step of the example workflow succeeds in a network without Eureka and the cluster."""
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "discovery-preview.yml").read_text())
    (step,) = [each for each in workflow["jobs"]["preview"]["steps"] if each.get("id") == "preview"]
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    (registration,) = settings(lab, "deployed")["registrations"]
    deployed.write({"registrations": [{**registration, "hostName": "192.0.2.11"}]})
    done = subprocess.run(
        [*ALONE, f"ip link set lo up; {step['run']}"],
        cwd=deployed.project,
        env={
            **deployed.environment,
            **{name: str(path) for name, path in files.items()},
            "STACK": "deployed",
            "EUREKUBE_OFFLINE": workflow["jobs"]["preview"]["env"]["EUREKUBE_OFFLINE"],
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    deployed.write({"registrations": [registration]})
    assert done.returncode == 0, done.stderr
    assert files["GITHUB_OUTPUT"].read_text() == "code=0\n"
    summary = files["GITHUB_STEP_SUMMARY"].read_text()
    assert "**1 instance changes** in 1 application." in summary
    assert "(`host_name` `192.0.2.10` → `192.0.2.11`)" in summary
    assert "Other resources" not in summary


def test_the_state_is_small_without_secrets_and_survives_a_rename(
    lab: Lab, cluster: Cluster, tmp_path: Path, peer: Peer
) -> None:
    """State and stack file contain no plain credentials, and the serialized provider has about 100
    characters.
    """
    config = settings(lab, "secretive", url=lab.eureka_urls[0].replace("//", "//bridge:s3cret-in-url@"))
    stack = Bridge(tmp_path, "secretive", config)
    stack.pulumi("config", "set", "--secret", "eurekube:password", "s3cret-in-config")
    stack.pulumi("config", "set", "--secret", "eurekube:url", config["url"])
    stack.pulumi("config", "set", "eurekube:user", "bridge")
    said = stack.up()
    assert "s3cret" not in said
    assert "s3cret" not in stack.file.read_text() + stack.state_text()
    (secret,) = cluster.access.get("/api/v1/namespaces/secretive-system/secrets")["items"]
    assert {"user", "password"} == set(secret["data"])
    outputs = stack.state()["billing"]["outputs"]
    assert lab.eureka_urls[0] == outputs["service_url"]
    assert len(outputs["__provider"]) < 150

    # Renamed, it updates in place: the registration keeps its id and changes its owner.
    stack.pulumi("stack", "rename", "after")
    said = stack.up("--stack", "after")
    assert "replace" not in said
    instance = must_hold(peer, stack)
    assert instance.owner == "stack/organization/eurekube/after/billing"
    stack.destroy("--stack", "after")
    assert held(peer, stack) is None


def test_destroy_leaves_everything_clean_while_an_operator_works(
    lab: Lab,
    cluster: Cluster,
    tmp_path: Path,
    peer: Peer,
    start_operator: StartOperator,
) -> None:
    """Syncers go while the operator serves their finalizers, and a concurrent renewal does not register
    anything again.
    """
    config = settings(
        lab,
        "cleared",
        namespaces=["cleared"],
        syncers=[{"name": "rating", "namespace": "cleared", "app": "rating"}],
    )
    stack = Bridge(tmp_path, "cleared", config)
    stack.up()
    start_operator(WATCH_NAMESPACE="cleared", OPERATOR_NAME="eurekube")
    wait_for_finalizer(cluster, "cleared", "rating")
    with renewing(peer, must_hold(peer, stack)):
        stack.destroy()
        assert held(peer, stack) is None
    assert held(peer, stack) is None
    for name in ("cleared", "cleared-system"):
        assert cluster.get(NAMESPACES, name) is None
    assert cluster.get(CRDS, "eurekasyncers.eurekube.io") is not None


def wait_for_finalizer(cluster: Cluster, namespace: str, name: str) -> None:
    """Wait until the operator has set the syncer's finalizer."""
    wait_for(
        lambda: (cluster.get(SYNCERS, name, namespace) or {}).get("metadata", {}).get("finalizers"),
        f"the finalizer of {name}",
    )


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"url": "http://127.0.0.1:9/eureka"}, "no connection to http://127.0.0.1:9/eureka"),
    ({"kubeconfig": "nowhere"}, "does not exist"),
    (
        {"registrations": [{"name": "a", "application": "a", "hostName": "h", "port": 0}]},
        "port: must be a whole number from 1 to 65535",
    ),
)
"""Wrong configurations with their errors, one for each part that may refuse; a test without an engine has
the rest.
"""


@pytest.mark.timeout(600)  # five runs
def test_wrong_configuration_is_reported_in_seconds(
    lab: Lab, cluster: Cluster, tmp_path: Path, unique_name: str
) -> None:
    """The error is one sentence without a traceback, and a namespace of others stays unchanged."""
    cluster.create_namespace(unique_name)
    theirs = cluster.get(NAMESPACES, unique_name)
    stack = Bridge(tmp_path, unique_name, settings(lab, unique_name))
    taken = f"eurekube:namespaces: the namespace {unique_name} already exists: leave out of"
    for config, sentence in (*WRONG, ({"namespaces": [unique_name]}, taken)):
        stack.write(settings(lab, unique_name, **config))
        started = time.monotonic()
        said = stack.up(fails=True)
        assert time.monotonic() - started < 60  # most of it Pulumi's own
        assert sentence in said, said
        assert "Traceback" not in said
    assert cluster.get(NAMESPACES, unique_name) == theirs
    stack.write(settings(lab, unique_name, registrations=[]))
    stack.destroy()
    assert cluster.get(NAMESPACES, unique_name) == theirs
