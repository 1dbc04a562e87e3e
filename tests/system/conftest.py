"""Fixtures of the system tests: a cluster with the CRDs, Eureka servers, operators as processes, and
Pulumi stacks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import requests
import yaml

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, SYNCERS, ApiResource
from lab import Lab
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.listing import list_uncached
from lab.programs import HELM, find_kubectl, provide_programs
from lab.proxy import Proxy
from lab.waiting import wait_until
from lab.workloads import Cluster, wait_for
from tests.system.shells import DYNAMIC, NATIVE, Shell, Workshop
from tests.system.stacks import HAS_PYTHON_SDK, needs_python_sdk, python_sdk

ROOT = Path(__file__).parents[2]


class Operator:
    """An operator in a process of its own, outside of the cluster."""

    def __init__(self, log: Path, environment: dict[str, str], arguments: list[str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "eurekube_provider.operator", *arguments],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_ready(self) -> None:
        """Wait until the operator is ready; fail with its log if it ends."""

        def is_ready() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the operator ended with {self.process.returncode}:\n{self.text()}")
            return "operator is ready" in self.text()

        wait_for(is_ready, "operator", 60.0)

    def text(self) -> str:
        """Return the operator's log."""
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the operator, wait for its end, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)


StartOperator = Callable[..., Operator]
RunCommands = Callable[[str], str]


def operator_environment(lab: Lab, namespace: str, **environment: str) -> dict[str, str]:
    """Return the environment of an operator that watches a namespace, or all namespaces if that is empty."""
    return {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | {
        "EUREKA_URL": ",".join(lab.eureka_urls),
        "KUBECONFIG": str(lab.kubeconfig),
        "WATCH_NAMESPACE": namespace,
        "LEASE_NAME": f"{namespace or 'all'}-leader",
        "WEB_ADDRESS": "",  # several run at a time
        "RESYNC_SECONDS": "2",
        **environment,
    }


@pytest.fixture(scope="session")
def cluster(lab: Lab) -> Cluster:
    """Return the lab's cluster, with our CRDs installed."""
    return with_crds(lab)


def end_syncers(cluster: Cluster, resource: ApiResource = SYNCERS) -> None:
    """Delete the syncers, or mirrors, that other tests left behind, which no operator serves."""

    items: list[dict[str, Any]] = []

    def are_listed() -> bool:
        try:
            items[:] = cluster.access.get(resource.path(None))["items"]
        except KubernetesError as error:
            if error.status_code == 429:  # another test has just made the CRD again
                return False
            raise
        return True

    wait_until(are_listed, "the list of syncers", 60.0)
    for item in items:
        metadata = item["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        with suppress(KubernetesError):  # it is gone meanwhile
            body = {"metadata": {"finalizers": None}}
            cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
            cluster.access.request("DELETE", path)


def with_crds(lab: Lab) -> Cluster:
    """Install our CRDs in a lab's cluster, and return the cluster."""
    result = Cluster(lab.kubeconfig)
    for path in (ROOT / "crds").glob("*.yaml"):
        result.install_crd(yaml.safe_load(path.read_text()))
    return result


@pytest.fixture
def eureka(lab: Lab) -> Iterator[Peers]:
    """Return a client of the lab's Eureka."""
    peers = Peers(Connection.parse(lab.eureka_urls))
    yield peers
    peers.close()


@pytest.fixture
def namespace(cluster: Cluster, unique_name: str) -> str:
    """Create a namespace for one test."""
    cluster.create_namespace(unique_name)
    return unique_name


@pytest.fixture
def start_operator(lab: Lab, namespace: str, tmp_path: Path) -> Iterator[StartOperator]:
    """Return a function that starts operators for the test's namespace; all are ended after the test."""
    running: list[Operator] = []

    def start(*arguments: str, ready: bool = True, **environment: str) -> Operator:
        variables = operator_environment(lab, namespace, **environment)
        operator = Operator(tmp_path / f"operator-{len(running)}.log", variables, list(arguments))
        running.append(operator)
        if ready:
            operator.wait_ready()
        return operator

    yield start
    for operator in running:
        with suppress(subprocess.TimeoutExpired):
            operator.stop()
        if operator.process.poll() is None:
            operator.process.kill()
            operator.process.wait()
        sys.stdout.write(f"--- {operator.log.name}\n{operator.text()}\n")


def run_as_pod(template: dict[str, Any], environment: dict[str, str], log: Path) -> Operator:
    """Run the one container of a pod as a process."""
    (container,) = template["spec"]["containers"]
    assert container["command"] == ["python", "-m", "eurekube_provider.operator"]
    given = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    return Operator(
        log, {**environment, **given, "WEB_ADDRESS": "127.0.0.1:0"}, list(container.get("args", []))
    )


def run_commands(commands: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Run the commands that a page gives its reader; return their output."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def running(cluster: Cluster, namespace: str, name: str, replicas: int) -> list[str]:
    """Create a Deployment and its Service, and wait for ready endpoints; return their addresses."""
    cluster.apply_deployment(namespace, name, replicas)
    cluster.apply_service(namespace, name)
    return ready(cluster, namespace, name, replicas)


def ready(cluster: Cluster, namespace: str, name: str, replicas: int) -> list[str]:
    """Wait for so many ready endpoints of a Service; return their addresses."""

    def found() -> list[str] | None:
        addresses = cluster.ready_addresses(namespace, name)
        return addresses if len(addresses) == replicas else None

    return wait_for(found, f"{replicas} ready endpoints of {name}")


def of_a_machine(cluster: Cluster, namespace: str, application: str, cluster_name: str) -> Instance:
    """Return a machine's instance under the id that an operator would give to the first pod."""
    pod = cluster.pods(namespace, application)[0]["metadata"]["name"]
    id_ = f"{pod}.{namespace}.{cluster_name}:{application}:8080"
    return Instance(application, id_, "192.0.2.18", "192.0.2.18", Port(8080))


def addresses(eureka: Peers, application: str) -> dict[str, str]:
    """Return the status of each address of an application, read past the server's caches."""
    return {one.ip_address: one.status.value for one in instances(eureka, application)}


def instances(eureka: Peers, application: str) -> list[Instance]:
    """Return an application's instances, read past the server's caches."""
    return list_uncached(eureka.peers[0].url, application)


def renewed_at(eureka: Peers, instance: Instance) -> float:
    """Return the Unix time of an instance's last renewal; an instance that was never renewed seems older than
    it is.

    The server adds the lease's duration to the time of a renewal, but not to that of a registration.
    """
    path = f"/apps/{instance.application}/{quote(instance.instance_id, safe='')}"
    answer = requests.get(eureka.peers[0].url + path, headers={"Accept": "application/json"}, timeout=10)
    answer.raise_for_status()
    lease = answer.json()["instance"]["leaseInfo"]
    return int(lease["lastRenewalTimestamp"]) / 1000 - int(lease["durationInSecs"])


@pytest.fixture(scope="session")
def plain_url() -> Iterator[str]:
    """Return the URL of one Eureka server for stacks, whose lists are as fresh as its reads.

    All modules that a worker runs share the server, since starting one takes long.
    """
    with Lab(eureka=1, kubernetes=False, uncached_lists=True) as running:
        yield running.eureka_urls[0]


@pytest.fixture
def plain(plain_url: str) -> Iterator[Peer]:
    """Return a client of the stacks' Eureka server; instances that a test leaves there are removed."""
    peer = Peer(plain_url, Connection.parse(plain_url))
    yield peer
    for each in list_uncached(plain_url):
        peer.deregister(*each.key)
    peer.close()


@pytest.fixture
def front(plain_url: str) -> Iterator[Proxy]:
    """Return a proxy in front of the stacks' Eureka server, which a test can close."""
    with Proxy(urlsplit(plain_url).port or 0) as running:
        yield running


@pytest.fixture(scope="module")
def secured() -> Iterator[Peer]:
    """Return a client of another Eureka server, which asks for a password and lists each registration at
    once.
    """
    with Lab(eureka=1, kubernetes=False, security="basic", uncached_lists=True) as running:
        (url,) = running.eureka_urls
        peer = Peer(url, Connection.parse(url, EUREKA_USER, EUREKA_PASSWORD))
        yield peer
        peer.close()


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Return the Pulumi project of all stacks that register by either provider."""
    sdk = python_sdk(tmp_path_factory.mktemp("sdk")) if HAS_PYTHON_SDK else None
    return Workshop(tmp_path_factory.mktemp("workshop"), sdk)


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the chart as it would be published."""
    if not (ROOT / "charts" / "eurekube" / "Chart.yaml").is_file():
        pytest.skip("this tree has no chart")
    packed = tmp_path_factory.mktemp("packed")
    program = provide_programs([HELM])[HELM]
    subprocess.run(
        [program, "package", ROOT / "charts" / "eurekube", "-d", packed], check=True, capture_output=True
    )
    (made,) = packed.glob("*.tgz")
    return made


@pytest.fixture
def run_here(lab: Lab, tmp_path: Path) -> RunCommands:
    """Return a function that runs commands in the test's directory, with kubectl and helm for the lab's
    cluster; skip where there is no kubectl.
    """
    kubectl = find_kubectl()
    if kubectl is None:
        pytest.skip("no kubectl")
    folders = [str(kubectl.parent), str(provide_programs([HELM])[HELM].parent), os.environ["PATH"]]
    environment = {"PATH": os.pathsep.join(folders), "HOME": str(tmp_path), "KUBECONFIG": str(lab.kubeconfig)}
    return lambda commands: run_commands(commands, tmp_path, environment)


@pytest.fixture(
    params=[
        pytest.param(DYNAMIC, id="dynamic"),
        pytest.param(NATIVE, id="native", marks=needs_python_sdk),
    ]
)
def shell(request: pytest.FixtureRequest) -> Shell:
    """Return the dynamic and the native provider in turn."""
    found: Shell = request.param
    return found
