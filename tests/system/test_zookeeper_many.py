"""An operator registers 2,000 instances in a real ZooKeeper, and removes them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from lab.waiting import wait_until
from lab.workloads import Cluster
from lab.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.system.conftest import StartOperator

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(300)]

SERVICES_COUNT, PODS_EACH = 20, 100
SECONDS = 90.0
"""The most seconds until all instances are registered, and until all are removed."""


def write_slice(cluster: Cluster, namespace: str, number: int, *, terminating: bool) -> None:
    """Write the EndpointSlice of one Service, for pods that do not run."""
    name = f"app-{number}"
    endpoints = [
        {
            "addresses": [f"10.90.{number}.{pod}"],
            "conditions": {"ready": not terminating, "terminating": terminating},
            "targetRef": {"kind": "Pod", "name": f"{name}-{pod}", "namespace": namespace},
        }
        for pod in range(PODS_EACH)
    ]
    cluster.apply_endpoint_slice(namespace, name, endpoints)


def make_application(cluster: Cluster, namespace: str, number: int) -> None:
    """Make a Service without a selector, its slice and its syncer."""
    name = f"app-{number}"
    cluster.apply_service(namespace, name, selector={}, clusterIP="None")
    write_slice(cluster, namespace, number, terminating=False)
    cluster.apply_syncer(namespace, name)


def figure(server: ZooKeeperServer, name: str) -> float:
    """Return one figure of the server's command ``mntr``."""
    with socket.create_connection((server.host, server.port), 10.0) as connection:
        connection.sendall(b"mntr")
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    lines: Iterable[list[str]] = (line.split("\t") for line in answer.decode().splitlines())
    return next(float(line[1]) for line in lines if line[0] == name)


def test_two_thousand_instances_come_and_go(
    cluster: Cluster, namespace: str, unique_name: str, start_operator: StartOperator
) -> None:
    """All instances are registered, and later removed, in time and over one session that is never lost."""
    with ZooKeeperEnsemble() as ensemble:
        (server,) = ensemble.servers
        url = f"{ensemble.url}/{unique_name}"
        servers = ZooKeeperServers(ZooKeeperConnection.from_settings({"url": url}.get))
        servers.connect()
        operator = start_operator(EUREKA_URL=url, CLUSTER_NAME="zk")
        # Which has a session of its own, for a moment.
        wait_until(lambda: '"check": "zookeeper"' in operator.text(), "the self-check", SECONDS)
        connections = figure(server, "zk_connection_request_count")
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda one: make_application(cluster, namespace, one), range(SERVICES_COUNT)))
        wait_until(lambda: len(servers.read_nodes()) == SERVICES_COUNT * PODS_EACH, "all to stand", SECONDS)
        stood = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda one: write_slice(cluster, namespace, one, terminating=True), range(SERVICES_COUNT)
                )
            )
        wait_until(lambda: not servers.read_nodes(), "all to be gone", SECONDS)
        gone = time.monotonic()
        print(f"all stood after {stood - began:.1f} s, and were gone after {gone - stood:.1f} s")
        lost = figure(server, "zk_stale_sessions_expired")
        again = figure(server, "zk_connection_request_count") - connections
        servers.close()
    assert (lost, again) == (0, 0), operator.text()
