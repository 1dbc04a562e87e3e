"""Namespaces, cluster names and services move as docs/guides/scale.md says, and no caller notices.

Helm and kubectl change a real cluster. The operators run as processes instead of pods, with the variables and
rights that the chart gives them. Meanwhile a thread reads each Eureka server all the time.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Self

import pytest
import requests
import yaml

from bench.registry import make_instance
from eurekube_provider.core.identity import cluster_name_of_owner
from eurekube_provider.core.model import EurekaLease, Instance, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.kube.access import NAMESPACES, SYNCERS
from lab import Lab
from lab.listing import list_in_one_request
from lab.programs import HELM, find_kubectl, provide_programs
from lab.workloads import DEPLOYMENTS, wait_for
from scripts.blocks import find_code_blocks
from tests.system.conftest import (
    ROOT,
    Operator,
    instances,
    operator_environment,
    renewed_at,
    run_as_pod,
    run_commands,
    running,
    with_crds,
)
from tests.system.operator_objects import CHART
from tests.system.stacks import needs_kubectl

# Its readers look each 50 ms and believe no late answer: it wants the machine for itself.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.faults, needs_kubectl]

PAGE = ROOT / "docs" / "guides" / "scale.md"
PUBLISHED = "oci://ghcr.io/eurekube/charts/eurekube"
ACCOUNT = "eurekube-operator"
PERIOD_SECONDS = 0.05
Endpoint = tuple[str, int | None]


def commands(heading: str) -> Iterator[str]:
    """Return the blocks of commands under a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(f"\n## {heading}\n")
    assert rest, heading
    first = before.count("\n") + 2
    last = first + rest.partition("\n## ")[0].count("\n")
    return iter(
        [block.script() for block in find_code_blocks(PAGE) if first <= block.line <= last and block.script()]
    )


class Readers:
    """A thread that reads every server past its caches twenty times a second, and judges each reading.

    :ivar wrong: readings that no caller should have seen.
    """

    def __init__(self, urls: list[str]) -> None:
        self.wrong: list[str] = []
        self.readings: dict[str, int] = defaultdict(int)
        self._wanted: dict[str, int] = {}
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(url,), daemon=True) for url in urls]

    def want(self, application: str, count: int) -> None:
        """Require from now on that each reading shows at least so many instances UP."""
        self._wanted[application.upper()] = count

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _read(self, url: str) -> None:
        session = requests.Session()
        while not self._stopped.wait(PERIOD_SECONDS):
            wanted = dict(self._wanted)  # before the reading: what is wanted later was there earlier
            try:
                held = list_in_one_request(url, session)
            except requests.RequestException as error:
                self.wrong.append(f"{url} cannot be read: {error}")
                continue
            self._judge(url, wanted, [one for one in held if one.application in wanted])
            self.readings[url] += 1

    def _judge(self, url: str, wanted: dict[str, int], held: list[Instance]) -> None:
        ids: dict[tuple[str, Endpoint], list[str]] = defaultdict(list)
        up: dict[str, int] = defaultdict(int)
        for one in held:
            up[one.application] += one.status is Status.UP
            port = one.port.number if one.port is not None else None
            ids[one.application, (one.ip_address, port)].append(one.instance_id)
        for application, count in wanted.items():
            if up[application] < count:
                self.wrong.append(f"{url} has {up[application]} of {count} of {application} UP")
        self.wrong += [f"{url} has {at} as {names}" for at, names in ids.items() if len(names) > 1]


class Platform:
    """A cluster, two Eureka servers, and a person who types the page's commands."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.cluster = with_crds(lab)
        self.eurekas = [Peers(Connection.parse(url)) for url in lab.eureka_urls]
        self.readers = Readers(lab.eureka_urls)
        self._lab, self._folder = lab, folder
        self._running: dict[str, Operator] = {}
        self._ended: list[Operator] = []
        helm, kubectl = provide_programs([HELM])[HELM], find_kubectl()
        assert kubectl is not None
        self._environment = {
            "HOME": str(folder),
            "KUBECONFIG": str(lab.kubeconfig),
            "PATH": f"{helm.parent}:{kubectl.parent}:/usr/bin:/bin",
        }

    def types(self, script: str) -> str:
        """Run commands of the page with this checkout's chart and this lab's servers; return their output."""
        here = script.replace(PUBLISHED, str(CHART))
        here = here.replace("http://eureka:8761/eureka", ",".join(self._lab.eureka_urls))
        return run_commands(here, self._folder, self._environment)

    def install(self, *watched: str, settings: str = "") -> None:
        """Install the first operator, which exists before the page's steps."""
        self.types(
            f"helm install eurekube {PUBLISHED} --namespace eurekube-system --create-namespace"
            f" --set crds.install=false --set 'watchNamespaces={{{','.join(watched)}}}'"
            f" --set 'eurekaUrls={{http://eureka:8761/eureka}}' {settings}\n"
        )
        self.roll("eurekube-system")

    def roll(self, home: str) -> Operator:
        """Start the operator of a Deployment as a process, and then stop its former process."""
        deployment = self.cluster.get(DEPLOYMENTS, ACCOUNT, home)
        assert deployment is not None
        account = self._folder / f"{home}-account"
        kubeconfig = self._lab.service_account_kubeconfig(home, ACCOUNT, account)
        environment = operator_environment(self._lab, "", KUBECONFIG=str(kubeconfig), POD_NAMESPACE=home)
        for name in ("WATCH_NAMESPACE", "LEASE_NAME", "EUREKA_URL"):  # which the Deployment says
            del environment[name]
        log = self._folder / f"{home}-{len(self._ended)}.log"
        operator = run_as_pod(deployment["spec"]["template"], environment, log)
        before = self._running.get(home)
        self._running[home] = operator
        operator.wait_ready()  # as a replica that stands by
        if before is not None:
            self._ended.append(before)
            assert before.stop() == 0
        wait_for(lambda: "became the leader" in operator.text(), f"{log} to lead")
        return operator

    def operator(self, home: str) -> Operator:
        """Return the process of an operator."""
        return self._running[home]

    def serve(self, namespace: str, name: str, replicas: int) -> None:
        """Register a service with so many pods, which readers then require."""
        self.cluster.create_namespace(namespace)
        running(self.cluster, namespace, name, replicas)
        self.cluster.apply_syncer(namespace, name, lease={"renewalIntervalSeconds": 5, "durationSeconds": 90})
        self.wait_up(namespace, name, replicas)
        self.readers.want(name, replicas)

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Scale a service, and wait until all servers agree."""
        self.cluster.scale(namespace, name, replicas)
        self.wait_up(namespace, name, replicas)

    def wait_up(self, namespace: str, name: str, replicas: int) -> None:
        """Wait until each server lists exactly the ready pods of a namespace for the application."""

        def agree() -> bool:
            ready = self.cluster.ready_addresses(namespace, name)
            return len(ready) == replicas and all(
                ready == sorted(one.ip_address for one in held if one.status is Status.UP)
                for held in self.held(name)
            )

        wait_for(agree, f"{replicas} of {namespace}/{name} at each server")

    def held(self, application: str) -> list[list[Instance]]:
        """Return the instances of an application, one list for each server."""
        return [instances(eureka, application) for eureka in self.eurekas]

    def ids(self, application: str) -> set[str]:
        """Return the ids of an application's instances at all servers."""
        return {one.instance_id for held in self.held(application) for one in held}

    def wait_renewed(self, application: str) -> None:
        """Wait until each server has renewed each instance after this call."""
        now = time.time()

        def are_renewed() -> bool:
            return all(
                renewed_at(eureka, one) > now
                for eureka, held in zip(self.eurekas, self.held(application), strict=True)
                for one in held
            )

        wait_for(are_renewed, f"renewals of {application}")

    def end(self, *served: str) -> None:
        """Delete everything that a test created."""
        for namespace in served:
            for item in self.cluster.items(SYNCERS, namespace):
                self.cluster.delete(SYNCERS, item["metadata"]["name"], namespace)
            wait_for(lambda namespace=namespace: not self.cluster.items(SYNCERS, namespace), namespace)  # type: ignore[misc]
            for item in self.cluster.items(DEPLOYMENTS, namespace):
                self.cluster.delete(DEPLOYMENTS, item["metadata"]["name"], namespace)
        for operator in (*self._running.values(), *self._ended):
            with suppress(TimeoutExpired):
                operator.stop()
            if operator.process.poll() is None:
                operator.process.kill()
                operator.process.wait()
        for home in self._running:
            self.cluster.delete(NAMESPACES, home)
            wait_for(lambda home=home: self.cluster.get(NAMESPACES, home) is None, home)  # type: ignore[misc]
        for eureka in self.eurekas:
            eureka.close()


def manifest() -> str:
    """Return the manifest by which a team deploys its service to any namespace."""
    labels = {"app": "rating"}
    container = {"name": "main", "image": "example.invalid/rating:1", "ports": [{"containerPort": 8080}]}
    kinds: list[dict[str, Any]] = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 8080}]},
        },
        {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaSyncer",
            "spec": {"mode": "pod", "selector": labels},
        },
    ]
    return yaml.safe_dump_all({**one, "metadata": {"name": "rating", "labels": labels}} for one in kinds)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Return a lab with two Eureka servers of this module's own, since its readings fill their caches."""
    with Lab(eureka=2, uncached_lists=True) as running_lab:
        yield running_lab


@contextmanager
def reading(platform: Platform, *served: str) -> Iterator[None]:
    """Read the servers while the block runs; fail if a reading was wrong, and delete everything."""
    try:
        with platform.readers as readers:
            yield
        assert readers.wrong == []
        assert min(readers.readings.values()) > 50
    finally:
        platform.end(*served)


def test_a_namespace_moves_to_another_operator(lab: Lab, tmp_path: Path) -> None:
    """Pods come and go during the move; the pods that stay keep their ids, and the new operator renews
    them.
    """
    platform, (installs, leads, drops) = (
        Platform(lab, tmp_path),
        commands("Move a namespace to another operator"),
    )
    with reading(platform, "billing", "shop"):
        for namespace in ("billing", "shop"):
            platform.cluster.create_namespace(namespace)
        platform.install("shop", "billing")
        platform.serve("billing", "billing", 3)
        platform.serve("shop", "rating", 2)
        stay = platform.ids("billing")
        platform.types(installs)
        platform.roll("billing-system")
        platform.types(leads)
        platform.scale("billing", "billing", 5)  # both serve it
        platform.scale("billing", "billing", 3)
        platform.types(drops)
        first = platform.roll("eurekube-system")
        assert "billing" in first.text()
        platform.wait_renewed("billing")
        platform.wait_renewed("rating")
        platform.scale("billing", "billing", 4)
        platform.scale("billing", "billing", 3)
        assert stay & platform.ids("billing")


def test_a_cluster_of_two_operators_gets_another_name(lab: Lab, tmp_path: Path) -> None:
    """The instances keep their ids and get the new owner; new pods get ids with the new name."""
    platform = Platform(lab, tmp_path)
    installs, *_ = commands("Move a namespace to another operator")
    first, second, synced = commands("Change the name of a cluster")
    with reading(platform, "billing", "shop"):
        for namespace in ("billing", "shop"):
            platform.cluster.create_namespace(namespace)
        platform.install("shop")
        platform.types(installs)
        platform.roll("billing-system")
        platform.serve("billing", "billing", 2)
        platform.serve("shop", "rating", 3)
        before = {name: platform.ids(name) for name in ("billing", "rating")}
        for command, home in ((first, "eurekube-system"), (second, "billing-system")):
            platform.types(command)
            platform.roll(home)
            platform.scale("shop", "rating", 4)
            platform.scale("shop", "rating", 3)
        for name in before:
            wait_for(
                lambda name=name: (
                    {cluster_name_of_owner(one.owner) for held in platform.held(name) for one in held}  # type: ignore[misc]
                    == {"east"}
                ),
                f"{name} to be owned by the new name",
            )
        platform.types(synced)
        assert platform.ids("billing") == before["billing"]
        platform.wait_renewed("billing")
        platform.scale("billing", "billing", 3)
        (new,) = platform.ids("billing") - before["billing"]
        assert ".billing.east:" in new


def test_a_service_moves_to_another_namespace(lab: Lab, tmp_path: Path) -> None:
    """The new pods are registered before the old ones leave, and no pod is listed that does not exist."""
    platform = Platform(lab, tmp_path)
    shares, deploys, leaves, ends, keeps = commands("Move a service to another namespace")
    with reading(platform, "shop", "store"):
        for namespace in ("shop", "store"):
            platform.cluster.create_namespace(namespace)
        platform.install("shop")
        platform.serve("shop", "rating", 3)
        old = platform.ids("rating")
        platform.types(shares)
        platform.roll("eurekube-system")
        (tmp_path / "rating.yaml").write_text(manifest())
        platform.types(deploys)
        assert len(platform.ids("rating")) == 6
        platform.types(leaves)
        assert not platform.ids("rating") & old
        assert len(platform.cluster.ready_addresses("shop", "rating")) == 3
        assert re.search(r"^sleep 95$", ends, re.MULTILINE)
        platform.types(ends.replace("sleep 95", "sleep 2"))
        platform.types(keeps)
        platform.roll("eurekube-system")
        platform.wait_renewed("rating")
        platform.wait_up("store", "rating", 3)


def test_a_registry_that_is_larger_than_what_is_read(lab: Lab, tmp_path: Path) -> None:
    """The operator reports that the registry is larger than its limit, still renews and follows the pods;
    a larger limit ends the report.
    """
    platform = Platform(lab, tmp_path)
    with reading(platform, "shop"):
        platform.cluster.create_namespace("shop")
        platform.install("shop", settings="--set-string environment.EUREKA_MAX_ANSWER_MIB=1")
        platform.serve("shop", "rating", 3)
        others = [replace(make_instance(number), lease=EurekaLease(30, 3600)) for number in range(1_500)]
        for eureka in platform.eurekas:
            for some in batch.chunks(others):
                eureka.peers[0].send_batch([batch.registration_item(one) for one in some])
        try:
            operator = platform.operator("eurekube-system")
            wait_for(
                lambda: "answers with more than 1 MiB" in operator.text(), "the operator to say so", 90.0
            )
            platform.wait_renewed("rating")
            platform.scale("shop", "rating", 4)
        finally:
            for eureka in platform.eurekas:
                for some in batch.chunks(others):
                    eureka.peers[0].send_batch([batch.cancellation_item(one) for one in some])
