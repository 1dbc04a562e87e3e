"""Instances of others beside a syncer's own, on real servers: machines, other namespaces, pods' own
clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.cli.main import main
from eurekube_provider.core.model import EurekaLease, Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import EVENTS, MERGE_PATCH_TYPE, PODS, SYNCERS
from lab import Lab
from lab.workloads import Cluster, wait_for
from tests.interop.python_client import PythonClient
from tests.system.conftest import StartOperator, addresses, instances, ready, running
from tests.system.test_operator import condition, status

pytestmark = pytest.mark.lab

ItsOwnClient = Callable[..., PythonClient]
"""A function that starts a pod's own Eureka client, given application, id, host name, address and port."""


@pytest.fixture
def its_own_client(eureka: Peers, tmp_path: Path) -> Iterator[ItsOwnClient]:
    """Return a function that starts clients which register and renew themselves; all are ended at the end."""
    if not PythonClient.is_installed():
        pytest.skip("py-eureka-client is not installed: it is in the dependency group dev")
    started: list[PythonClient] = []

    def start(app: str, instance_id: str, host: str, address: str, port: int) -> PythonClient:
        settings = {
            "eureka_server": f"{eureka.peers[0].url}/",
            "app_name": app,
            "instance_id": instance_id,
            "instance_host": host,
            "instance_ip": address,
            "instance_port": port,
            "renewal_interval_in_secs": 5,
            "duration_in_secs": 90,
        }
        started.append(PythonClient(settings, tmp_path / f"client-{len(started)}.log"))
        return started[-1]

    yield start
    for one in started:
        with suppress(BrokenPipeError, ValueError):
            one.close()


def patched(cluster: Cluster, namespace: str, name: str, spec: dict[str, Any]) -> None:
    """Patch a syncer's spec."""
    body = {"spec": spec}
    cluster.access.request("PATCH", SYNCERS.path(namespace, name), body=body, content_type=MERGE_PATCH_TYPE)


def holds(cluster: Cluster, namespace: str, name: str, kind: str, wanted: str = "True") -> bool:
    """Return whether a syncer's condition has this status."""
    return condition(cluster, namespace, name, kind).get("status") == wanted


def said_by(lab: Lab, capsys: pytest.CaptureFixture[str], command: str, namespace: str) -> str:
    """Run a command for a namespace; return its output."""
    capsys.readouterr()
    url = ",".join(lab.eureka_urls)
    main([command, "--eureka-url", url, "--kubeconfig", str(lab.kubeconfig), "--namespace", namespace])
    return capsys.readouterr().out


def test_who_joins_machines_says_so(
    cluster: Cluster,
    eureka: Peers,
    lab: Lab,
    namespace: str,
    start_operator: StartOperator,
    its_own_client: ItsOwnClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If a syncer joins an application of machines, a condition, an Event and the doctor say so, until the
    configuration allows the name.
    """
    app, own = f"{namespace}-app", f"{namespace}-own"
    its_own_client(app, f"vm-1:{app}:8080", "192.0.2.21", "192.0.2.21", 8080)
    wait_for(lambda: addresses(eureka, app) == {"192.0.2.21": "UP"}, "the machine")
    operator = start_operator()
    running(cluster, namespace, app, 1)
    running(cluster, namespace, own, 1)
    cluster.apply_syncer(namespace, app)
    cluster.apply_syncer(namespace, own, application=f"{own}-api")

    def condition_message(name: str) -> str:
        return condition(cluster, namespace, name, "NameNotReserved").get("message", "")

    wait_for(lambda: f"vm-1:{app}:8080" in condition_message(app), "NameNotReserved of the joined", 60.0)
    wait_for(
        lambda: "is not the name of its Services" in condition_message(own),
        "NameNotReserved of the other name",
        60.0,
    )
    for name, wanted, count in ((app, app, 2), (own, f"{own}-api", 1)):
        assert len(instances(eureka, wanted)) == count
        wait_for(partial(holds, cluster, namespace, name, "Synced"), "Synced")

    def events() -> set[str]:
        found = cluster.access.get(EVENTS.path(namespace))["items"]
        return {one["regarding"]["name"] for one in found if one["reason"] == "NameNotReserved"}

    wait_for(lambda: events() == {app, own}, "an Event of each")
    said = said_by(lab, capsys, "doctor", namespace)
    assert said.count("its operator says NameNotReserved") == 2
    operator.stop()
    start_operator(RESERVE=f"{namespace}={app},{namespace}={own}-api")
    for name in (app, own):
        wait_for(partial(holds, cluster, namespace, name, "NameNotReserved", "False"), "no NameNotReserved")


def test_a_name_is_kept_at_zero_instances(
    cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """Another namespace gets an application's name only when the syncer that has it is deleted, even
    without instances.
    """
    app, other = f"{namespace}-app", f"{namespace}-other"
    cluster.create_namespace(other)
    start_operator(WATCH_NAMESPACE=f"{namespace},{other}")
    running(cluster, namespace, app, 1)
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: status(cluster, namespace, app).get("names") == [app], "the claim")
    cluster.scale(namespace, app, 0)
    wait_for(lambda: addresses(eureka, app) == {}, "no instance")
    theirs = running(cluster, other, app, 1)
    cluster.apply_syncer(other, app)
    wait_for(lambda: condition(cluster, other, app, "Conflict").get("status") == "True", "Conflict")
    assert f"{namespace}/{app}" in condition(cluster, other, app, "Conflict")["message"]
    cluster.scale(namespace, app, 1)
    (pod,) = ready(cluster, namespace, app, 1)
    wait_for(lambda: addresses(eureka, app) == {pod: "UP"}, "it comes back to its name")
    cluster.delete(SYNCERS, app, namespace)
    wait_for(lambda: addresses(eureka, app) == dict.fromkeys(theirs, "UP"), "the name is free", 60.0)


def test_pods_that_register_another_port_or_loopback(
    cluster: Cluster,
    eureka: Peers,
    lab: Lab,
    namespace: str,
    start_operator: StartOperator,
    its_own_client: ItsOwnClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Instances that pods register themselves with another port or with loopback are recognised, and the
    syncer still registers the pods.
    """
    app = f"{namespace}-app"
    running(cluster, namespace, app, 2)
    first, second = cluster.pods(namespace, app)
    name, address = second["metadata"]["name"], first["status"]["podIP"]
    its_own_client(app, "own", "anything", address, 9090)
    its_own_client(app, f"{name}:{app}:8080", name, "127.0.0.1", 8080)
    wait_for(lambda: addresses(eureka, app).keys() == {address, "127.0.0.1"}, "their registrations")
    start_operator()
    cluster.apply_syncer(namespace, app)

    def condition_message() -> str:
        return condition(cluster, namespace, app, "SelfRegistered").get("message", "")

    wait_for(
        lambda: f"{address}:9090" in condition_message() and "127.0.0.1:8080" in condition_message(),
        "SelfRegistered",
        60.0,
    )
    places = {(address, 9090), ("127.0.0.1", 8080), (address, 8080), (second["status"]["podIP"], 8080)}
    wait_for(
        lambda: {(one.ip_address, one.port.number) for one in instances(eureka, app)} == places, "the pods"
    )
    assert "register themselves" in said_by(lab, capsys, "doctor", namespace)


def _address_of_its_own(cluster: Cluster, namespace: str, app: str) -> str:
    """Run one pod, and return its address, which no other pod has: kwok gives some addresses twice."""
    for _ in range(10):
        (address,) = running(cluster, namespace, app, 1)
        pods = cluster.access.get(PODS.path())["items"]
        if sum((one.get("status") or {}).get("podIP") == address for one in pods) == 1:
            return address
        cluster.scale(namespace, app, 0)
        wait_for(lambda: not cluster.items(PODS, namespace, app=app), "no pod")
    pytest.fail("ten pods had the address of another one")


@pytest.mark.timeout(600)  # a Eureka lease passes
def test_what_a_killed_pod_registered_itself(
    cluster: Cluster,
    eureka: Peers,
    lab: Lab,
    namespace: str,
    start_operator: StartOperator,
    its_own_client: ItsOwnClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Condition, status and doctor name the instance that a killed pod registered itself, even if the
    operator never saw the pod.

    It is removed when a person asks; a machine's unrenewed instance stays.
    """
    app = f"{namespace}-app"
    address = _address_of_its_own(cluster, namespace, app)
    (pod,) = cluster.pods(namespace, app)
    client = its_own_client(app, "own", pod["metadata"]["name"], address, 8080)
    machine = Instance(app, "vm", "192.0.2.30", "192.0.2.30", Port(8080), lease=EurekaLease(30, 600))
    Writer(eureka).register(machine)
    operator = start_operator()
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: status(cluster, namespace, app).get("selfRegistered"), "it is remembered", 60.0)
    assert addresses(eureka, app) == {address: "UP", "192.0.2.30": "UP"}
    operator.stop()
    client.kill()
    cluster.scale(namespace, app, 0)
    wait_for(lambda: not cluster.items(PODS, namespace, app=app), "no pod")
    start_operator()

    def condition_message() -> dict[str, str]:
        return condition(cluster, namespace, app, "DeadSelfRegistered")

    wait_for(lambda: condition_message().get("status") == "True", "DeadSelfRegistered", 60.0)
    assert f"own at {address} of pod {pod['metadata']['name']}" in condition_message()["message"]
    assert "DeadSelfRegistered" in said_by(lab, capsys, "doctor", namespace)
    assert "DeadSelfRegistered" in said_by(lab, capsys, "status", namespace)
    patched(cluster, namespace, app, {"removeDeadSelfRegistered": True})
    try:
        wait_for(lambda: addresses(eureka, app) == {"192.0.2.30": "UP"}, "only the machine's", 240.0)
    except TimeoutError as error:
        raise AssertionError(f"{error}; the condition: {condition_message()}") from None
    wait_for(lambda: condition_message().get("status") == "False", "no DeadSelfRegistered", 60.0)
    assert addresses(eureka, app) == {"192.0.2.30": "UP"}
