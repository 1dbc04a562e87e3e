"""Cluster names and other settings that make an instance's identity change under traffic: no instance is
missed.

Each change has pods of its own, and all are made at the same time. Instances that nobody renews are evicted
soon after their Eureka lease ends: self-preservation is off, and the server evicts every five seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired, run
from typing import Any

import pytest
import requests

from eurekube_provider.core.identity import cluster_name_of_owner
from eurekube_provider.core.lease_notes import parse_lease_notes
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import LEASES, NAMESPACES, SYNCERS
from lab import Lab
from lab.listing import list_in_one_request
from lab.ports import free_ports
from lab.workloads import Cluster, wait_for
from tests.system.conftest import Operator, instances, operator_environment, ready, running, with_crds

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LAPSES_SECONDS = 180.0
"""Seconds that a renewed instance with a lease of 90 s lives: twice the lease."""


@pytest.fixture(scope="module")
def lapsing() -> Iterator[Lab]:
    """Start a lab whose Eureka evicts unrenewed instances as soon as it may."""
    settings = {
        "eureka.server.enable-self-preservation": "false",
        "eureka.server.eviction-interval-timer-in-ms": "5000",
        # Of few instances only one would be evicted in each round.
        "eureka.server.renewal-percent-threshold": "0.0",
    }
    with Lab(eureka=1, uncached_lists=True, eureka_settings=settings) as running_lab:
        yield running_lab


class Callers:
    """Callers that read an application's instances all the time, past the server's caches.

    Each reading is one answer: of instances read one after the other, those that a roll-out registers
    meanwhile would be missing.
    """

    def __init__(self, url: str) -> None:
        self.fewest: dict[str, int] = {}
        self._url = url
        self._counted: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def count(self, application: str) -> None:
        """Count the UP addresses of an application from now on."""
        self._counted.add(application.upper())

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Keep reading while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()

    def _run(self) -> None:
        session = requests.Session()
        while not self._stopped.wait(0.5):
            counted = set(self._counted)
            up: dict[str, set[str]] = {name: set() for name in counted}
            for one in list_in_one_request(self._url, session):
                if one.status is Status.UP and one.application in up:
                    up[one.application].add(one.ip_address)
            for name, found in up.items():
                self.fewest[name] = min(self.fewest.get(name, 1_000), len(found))


class Change:
    """A namespace whose operator is stopped and started again with other settings."""

    def __init__(self, lab: Lab, cluster: Cluster, eureka: Peers, directory: Path, name: str) -> None:
        self.namespace, self.app = name, f"{name}-app"
        self._lab, self.cluster, self.eureka = lab, cluster, eureka
        self._directory = directory
        self._operators: list[Operator] = []
        cluster.create_namespace(name)

    def start(self, *, is_ready: bool = True, **environment: str) -> Operator:
        """Start an operator with these settings."""
        variables = operator_environment(self._lab, self.namespace, POD_NAMESPACE="default", **environment)
        log = self._directory / f"{self.namespace}-{len(self._operators)}.log"
        operator = Operator(log, variables, [])
        self._operators.append(operator)
        if is_ready:
            operator.wait_ready()
        return operator

    def check(self, **environment: str) -> CompletedProcess[str]:
        """Run the operator's ``--check`` with these settings."""
        variables = operator_environment(self._lab, self.namespace, POD_NAMESPACE="default", **environment)
        command = [sys.executable, "-m", "eurekube_provider.operator", "--check"]
        return run(command, env=variables, capture_output=True, text=True, timeout=120)

    def kill(self) -> None:
        """Kill all running operators, as the kernel does at a memory limit."""
        for operator in self._operators:
            operator.process.kill()
            operator.process.wait()

    def stop(self) -> None:
        """Stop all running operators."""
        for operator in self._operators:
            if operator.process.poll() is None:
                with suppress(TimeoutExpired):
                    operator.stop()
                operator.process.kill()
                operator.process.wait()

    def deployed(self, replicas: int = 3) -> list[Instance]:
        """Create pods with a syncer, and wait until they are registered."""
        running(self.cluster, self.namespace, self.app, replicas)
        self.cluster.apply_syncer(self.namespace, self.app)
        return self.awaited(replicas)

    def awaited(self, count: int, seconds: float = 60.0) -> list[Instance]:
        """Wait for so many instances that are UP; return them."""

        def found() -> list[Instance] | None:
            there = [one for one in self.instances() if one.status is Status.UP]
            return there if len(there) == count else None

        return wait_for(found, f"{count} UP of {self.app}", seconds)

    def instances(self) -> list[Instance]:
        """Return the application's instances in Eureka."""
        return instances(self.eureka, self.app)

    def names(self) -> set[str | None]:
        """Return the cluster names in the owners of the instances."""
        return {cluster_name_of_owner(one.owner) for one in self.instances()}

    def wait_called(self, name: str) -> None:
        """Wait until all instances are owned under this cluster name."""
        wait_for(lambda: self.names() == {name}, f"{self.namespace} to be owned by {name}")

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition of the syncer; empty if there is none."""
        item = self.cluster.get(SYNCERS, self.app, self.namespace) or {}
        found = (item.get("status") or {}).get("conditions") or ()
        return next((one for one in found if one["type"] == kind), {})

    def ids(self) -> set[str]:
        """Return the ids of the instances."""
        return {one.instance_id for one in self.instances()}


@pytest.mark.timeout(900)  # three Eureka leases pass
def test_each_change_of_a_name_under_traffic(lapsing: Lab, tmp_path: Path) -> None:
    """Three pods are UP at every moment, until longer than a lease after each change."""
    cluster = with_crds(lapsing)
    (url,) = lapsing.eureka_urls
    eureka = Peers(Connection.parse(lapsing.eureka_urls))
    uid = str((cluster.get(NAMESPACES, "kube-system") or {})["metadata"]["uid"])
    names = ("remembered", "given", "not_given", "operator", "lease", "syncer", "back")
    made = {
        name: Change(lapsing, cluster, eureka, tmp_path, f"names-{name.replace('_', '-')}") for name in names
    }
    callers = Callers(url)
    # It lapses, and says so: callers do not count it.
    dropped, kept = Change(lapsing, cluster, eureka, tmp_path, "names-dropped"), "names-kept"
    cluster.create_namespace(kept)
    try:
        with callers.calling():
            dropped.start(WATCH_NAMESPACE=f"{dropped.namespace},{kept}")
            for one in made.values():
                one.start()
            dropped.deployed()
            held = {name: one.deployed() for name, one in made.items()}
            for one in made.values():
                assert one.names() == {uid[:8]}
                callers.count(one.app)
            for one in (*made.values(), dropped):
                one.stop()
            changed_at = time.monotonic()
            refused = dropped.check(WATCH_NAMESPACE=kept)
            assert refused.returncode == 1, refused.stdout
            assert f"EurekaSyncer {dropped.namespace}/{dropped.app}" in refused.stdout
            without = dropped.start(WATCH_NAMESPACE=kept)
            wait_for(
                lambda: "found syncers in a namespace that this operator watches no more" in without.text(),
                "its log",
            )
            made["remembered"].start(CLUSTER_NAME="east")
            made["given"].start(LEASE_NAME="given-again", CLUSTER_NAME="east", PREVIOUS_CLUSTER_NAME=uid[:8])
            made["not_given"].start(LEASE_NAME="not-given-again", CLUSTER_NAME="east")
            made["operator"].start(OPERATOR_NAME="others", LEASE_NAME="others-leader")
            made["lease"].start(LEASE_NAME="another-leader")
            made["syncer"].start()
            cluster.apply_syncer(
                made["syncer"].namespace,
                "renamed",
                application=made["syncer"].app,
                selector={"app": made["syncer"].app},
            )
            made["back"].start(CLUSTER_NAME="east")
            for name in ("remembered", "given", "back"):
                made[name].wait_called("east")
            cluster.delete(SYNCERS, made["syncer"].app, made["syncer"].namespace)
            made["back"].stop()
            made["back"].start()
            made["back"].wait_called(uid[:8])
            for name in ("remembered", "given", "operator", "lease", "syncer", "back"):
                assert made[name].ids() == {one.instance_id for one in held[name]}, name
            not_given = made["not_given"]
            conflict = wait_for(lambda: not_given.condition("Conflict"), "the syncer to say so")
            assert f"--previous-cluster-name {uid[:8]}" in conflict["message"], conflict["message"]
            assert not_given.condition("Synced")["status"] == "False"
            notes = parse_lease_notes(
                (cluster.get(LEASES, "names-remembered-leader", "default") or {})["metadata"]
            )
            assert (notes.cluster_name, notes.previous_cluster_names) == ("east", (uid[:8],))
            # The next pod has the new name, and the pods of before leave when they end.
            cluster.apply_deployment(made["remembered"].namespace, made["remembered"].app, 4)
            made["remembered"].awaited(4)
            new = made["remembered"].ids() - {one.instance_id for one in held["remembered"]}
            assert len(new) == 1
            assert new.pop().endswith(f".east:{made['remembered'].app}:8080")
            while time.monotonic() < changed_at + LAPSES_SECONDS + 20:
                time.sleep(1)
            assert callers.fewest == {one.app.upper(): 3 for one in made.values()}
            wait_for(lambda: dropped.condition("Synced")["status"] == "Unknown", "its status", 90.0)
            assert dropped.condition("Ready")["reason"] == "NotServed"
            dropped.stop()
            dropped.start(WATCH_NAMESPACE=f"{dropped.namespace},{kept}")
            dropped.awaited(3)
            wait_for(lambda: dropped.condition("Synced")["status"] == "True", "its status of before")
            not_given.stop()
            not_given.start(LEASE_NAME="not-given-again", CLUSTER_NAME="east", PREVIOUS_CLUSTER_NAME=uid[:8])
            not_given.wait_called("east")
            remembered = made["remembered"]
            cluster.apply_deployment(remembered.namespace, remembered.app, 3, version="2")
            ready(cluster, remembered.namespace, remembered.app, 3)
            wait_for(lambda: all(".east:" in id_ for id_ in remembered.ids()), "the former ids to leave")
            remembered.awaited(3)
        assert callers.fewest == {one.app.upper(): 3 for one in made.values()}
    finally:
        for one in (*made.values(), dropped):
            one.stop()
        eureka.close()


@pytest.mark.timeout(900)
def test_a_start_while_the_api_is_silent_costs_no_registration(lapsing: Lab, tmp_path: Path) -> None:
    """An operator that knows the cluster's name renews its instances while the API server is silent, and
    reports it.
    """
    cluster = with_crds(lapsing)
    (url,) = lapsing.eureka_urls
    eureka = Peers(Connection.parse(lapsing.eureka_urls))
    change = Change(lapsing, cluster, eureka, tmp_path, "names-blind")
    callers = Callers(url)
    (web,) = free_ports(1)
    name = "blind"  # of this test alone: it renews all that Eureka shows under the name
    try:
        change.start(CLUSTER_NAME=name)
        held = {one.key: one.last_dirty_timestamp_ms for one in change.deployed()}
        callers.count(change.app)
        with callers.calling():
            change.kill()
            assert lapsing.api_server is not None
            lapsing.api_server.pause()
            silent_at = time.monotonic()
            try:
                blind = change.start(is_ready=False, CLUSTER_NAME=name, WEB_ADDRESS=f"127.0.0.1:{web}")

                def page(path: str) -> str:
                    return requests.get(f"http://127.0.0.1:{web}{path}", timeout=10).text

                wait_for(lambda: "renewing the cluster's instances" in blind.text(), "renewals")
                wait_for(lambda: "eurekube_blind_renewals 3.0" in page("/metrics"), "the metric")
                for path in ("/readyz", "/", "/status.json"):
                    assert f"3 instances that Eureka shows as the cluster {name}" in page(path), path
                assert page("/healthz").startswith("ok")
                while time.monotonic() < silent_at + LAPSES_SECONDS + 20:
                    time.sleep(1)
                assert callers.fewest == {change.app.upper(): 3}
                assert held == {one.key: one.last_dirty_timestamp_ms for one in change.instances()}
            finally:
                lapsing.api_server.resume()
                for process in (lapsing.controller_manager, lapsing.scheduler, lapsing.kwok):
                    assert process is not None
                    process.restart()  # they would come back with a back-off
            wait_for(lambda: "became the leader" in blind.text(), "a leader")
            wait_for(lambda: "eurekube_blind_renewals 0.0" in page("/metrics"), "the end of it")
            assert "stopped renewing without the Kubernetes API" in blind.text()
            cluster.apply_deployment(change.namespace, change.app, 4)
            change.awaited(4)
        assert callers.fewest == {change.app.upper(): 3}
    finally:
        change.stop()
        eureka.close()
