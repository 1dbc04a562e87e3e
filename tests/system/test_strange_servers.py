"""Eureka servers that answer too slowly, send too much or do not replicate, as operator, stack and
commands meet them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import PODS
from lab import Lab
from lab.peering import PeeredEurekas
from lab.waiting import wait_until
from lab.workloads import Cluster
from tests.system.conftest import ROOT, Operator, StartOperator, ready, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SECONDS = 60.0
FAR = 2
"""The number of the server that is cut off."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeredEurekas]:
    """Start three servers with production settings, and a proxy in front of each connection."""
    with PeeredEurekas(tmp_path_factory.mktemp("servers"), {}) as started:
        yield started


@pytest.fixture(autouse=True)
def healed(servers: PeeredEurekas) -> Iterator[None]:
    """Remove all disturbances before and after a test."""
    servers.heal()
    yield
    servers.heal()


def found(servers: PeeredEurekas, number: int, application: str) -> list[Instance]:
    """Return an application's instances that are UP at one server."""
    there, name = servers.list_instances(number).values(), application.upper()
    return [one for one in there if one.application == name and one.status is Status.UP]


def up(servers: PeeredEurekas, number: int, application: str) -> set[str]:
    """Return an application's addresses that are UP at one server."""
    return {one.ip_address for one in found(servers, number, application)}


def ids_up(servers: PeeredEurekas, number: int, application: str) -> set[str]:
    """Return an application's instance ids that are UP at one server; a new pod may have a former one's
    address.
    """
    return {one.instance_id for one in found(servers, number, application)}


class Callers:
    """Callers of the server that is cut off, who must always find an instance."""

    def __init__(self, servers: PeeredEurekas, application: str) -> None:
        self.looks, self.found_none = 0, 0
        self._servers, self._application = servers, application
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Callers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self.looks += 1
            self.found_none += not up(self._servers, FAR, self._application)


def test_callers_behind_a_split_are_never_left_without_an_instance(
    servers: PeeredEurekas, cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    """Callers of a cut-off server find an instance at every moment while all pods of a service are
    replaced.
    """
    app = f"{namespace}-rating"
    start_operator(EUREKA_URL=",".join(servers.urls))
    old = set(running(cluster, namespace, app, 2))
    cluster.apply_syncer(namespace, app)
    for number in range(3):
        wait_until(lambda: up(servers, number, app) == old, f"both at {number}", SECONDS)  # noqa: B023
    former = ids_up(servers, 0, app)
    servers.isolate_server(FAR)
    with Callers(servers, app) as callers:
        cluster.scale(namespace, app, 4)
        both = set(ready(cluster, namespace, app, 4))
        wait_until(lambda: up(servers, 0, app) == both, "four at a near server", SECONDS)
        for pod in cluster.pods(namespace, app):
            if pod["status"]["podIP"] in old:
                cluster.delete(PODS, pod["metadata"]["name"], namespace)
        wait_until(lambda: not ids_up(servers, 0, app) & former, "the old ones to leave", SECONDS)
        wait_until(lambda: not ids_up(servers, FAR, app) & former, "them to leave the far server", SECONDS)
        wait_until(lambda: callers.looks > 10, "enough looks", SECONDS)  # each lists a server
    assert callers.found_none == 0


def peak_mib(operator: Operator) -> float:
    """Return the largest memory that the operator has used, in MiB."""
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@pytest.mark.parametrize("fault", ["drip", "bloat", "vanish"])
def test_an_operator_starts_and_works_beside_a_faulty_server(
    servers: PeeredEurekas, cluster: Cluster, namespace: str, start_operator: StartOperator, fault: str
) -> None:
    """The operator uses the healthy servers at once, names the faulty one, and keeps its memory bounded."""
    app = f"{namespace}-rating"
    disturb: Callable[[], None] = getattr(servers.fronts[0], fault)
    disturb()
    pods = set(running(cluster, namespace, app, 2))
    cluster.apply_syncer(namespace, app)
    began = time.monotonic()
    operator = start_operator(EUREKA_URL=",".join(servers.urls))
    wait_until(lambda: up(servers, 1, app) == pods, "both pods", SECONDS)
    print(f"{fault}: both after {time.monotonic() - began:.1f} s")
    names = f'"url": "{servers.urls[0]}"'
    wait_until(lambda: names in operator.text(), "the server to be named", SECONDS)
    time.sleep(20.0)
    cluster.scale(namespace, app, 3)
    pods = set(ready(cluster, namespace, app, 3))
    wait_until(lambda: up(servers, 1, app) == pods, "the third", SECONDS)
    assert peak_mib(operator) < 400
    servers.fronts[0].heal()
    wait_until(lambda: up(servers, 0, app) == pods, "all at the first server", SECONDS)


def run(command: list[str], environment: dict[str, str]) -> tuple[int, str, float]:
    """Run the eurekube CLI with these arguments; return exit code, output and duration in seconds.

    :param environment: replaces all inherited variables ``EUREKA_*``.
    """
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "eurekube_provider.cli.main", *command],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("EUREKA_")} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def apply(
    servers: PeeredEurekas, lab: Lab, namespace: str, *registrations: dict[str, Any]
) -> tuple[int, str, float]:
    """Apply a stack with these registrations; return exit code, output and duration in seconds."""
    config = {
        "url": ",".join(servers.urls),
        "kubeconfig": str(lab.kubeconfig),
        "operator": json.dumps({"replicas": 0, "namespace": f"{namespace}-system"}),
        "registrations": json.dumps(registrations),
    }
    settings = [word for key, value in config.items() for word in ("--config", f"eurekube:{key}={value}")]
    return run(["apply", *settings], {})


def registration(application: str, host: str) -> dict[str, Any]:
    """Return the configuration of one registration."""
    name = f"{application}-{host.rpartition('.')[2]}"
    return {"name": name, "application": application, "hostName": host, "port": 8080}


def test_a_stack_that_replaces_a_registration_removes_it_in_a_split(
    servers: PeeredEurekas, lab: Lab, namespace: str
) -> None:
    """During a split the stack registers the new instance at one server, and removes the old one at all
    servers.
    """
    app = f"{namespace}-order"
    code, reported, _ = apply(servers, lab, namespace, registration(app, "192.0.2.1"))
    assert code == 0, reported
    wait_until(lambda: up(servers, FAR, app) == {"192.0.2.1"}, "it at the far server", SECONDS)
    servers.isolate_server(FAR)
    with Callers(servers, app) as callers:
        code, reported, _ = apply(servers, lab, namespace, registration(app, "192.0.2.2"))
        assert code == 0, reported
        wait_until(lambda: up(servers, FAR, app) == {"192.0.2.2"}, "the other one", SECONDS)
    assert callers.looks > 10
    assert callers.found_none == 0


@pytest.mark.parametrize("fault", ["drip", "bloat"])
def test_a_stack_and_commands_end_beside_a_faulty_server(
    servers: PeeredEurekas, lab: Lab, namespace: str, fault: str
) -> None:
    """Stack and commands use the other servers, and say which server could not be read, and why."""
    app = f"{namespace}-order"
    disturb: Callable[[], None] = getattr(servers.fronts[0], fault)
    disturb()
    why = "had not ended after" if fault == "drip" else "MiB, and so much is not read"
    code, reported, seconds = apply(servers, lab, namespace, registration(app, "192.0.2.1"))
    print(f"{fault}: apply ended with {code} after {seconds:.1f} s\n{reported}")
    assert up(servers, 1, app) == {"192.0.2.1"}
    assert seconds < 200
    environment = {"EUREKA_URL": ",".join(servers.urls), "KUBECONFIG": str(lab.kubeconfig)}
    for command, expected in ((["instances", app], 0), (["drain", app, "--no-wait"], 1)):
        code, reported, seconds = run(command, environment)
        print(f"{fault}: {command} ended with {code} after {seconds:.1f} s\n{reported}")
        assert code == expected, reported
        assert why in reported
        assert servers.urls[0] in reported
        assert seconds < 120


def test_all_servers_may_drip(servers: PeeredEurekas) -> None:
    """If all servers answer too slowly a read fails with an error in time."""
    for front in servers.fronts:
        front.drip()
    peers = Peers(Connection(tuple(servers.urls)), waits_for_all_servers=False)
    began = time.monotonic()
    with pytest.raises(RegistryError, match="had not ended after 5"):
        peers.list_instances()
    assert time.monotonic() - began < 30
    peers.close()
