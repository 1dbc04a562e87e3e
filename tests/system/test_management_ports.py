"""Spring Boot Admin and Prometheus find each pod's management port in Eureka, by their own code, on real
servers.

The pods are web servers of this machine, at an address that EndpointSlices accept, and answer the actuator's
paths at their management port alone.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import ENDPOINT_SLICES, MERGE_PATCH_TYPE, SERVICES, SYNCERS
from lab import Lab
from lab.errors import LabError
from lab.programs import THIRD_PARTY_READERS, provide_programs
from lab.spring import SpringAdmin, SpringClientMissing
from lab.workloads import Cluster, wait_for
from tests.system.conftest import ROOT, Operator, instances, operator_environment

pytestmark = pytest.mark.lab

Object = dict[str, Any]
APP = "managed"
QUICK = {
    "eureka.client.registry-fetch-interval-seconds": "2",
    "spring.boot.admin.monitor.status-interval": "2s",
}


class _Actuator(BaseHTTPRequestHandler):
    """A web server that answers the actuator's paths that the tests read."""

    def do_GET(self) -> None:
        body: Object = {"status": "UP"} if self.path == "/actuator/health" else {"_links": {}}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Log nothing."""


class _Nothing(_Actuator):
    """A web server that knows no path."""

    def do_GET(self) -> None:
        self.send_error(404)


@pytest.fixture(scope="module")
def address() -> str:
    """Return an address of this machine other than loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
        except OSError as error:
            pytest.skip(f"this machine has no address but loopback: {error}")
        found: str = asked.getsockname()[0]
    if found.startswith("127."):
        pytest.skip("this machine has no address but loopback, which EndpointSlices refuse")
    return found


@pytest.fixture(scope="module")
def pods(address: str) -> Iterator[dict[str, tuple[int, int]]]:
    """Start two pods as web servers; return the port for callers and the management port of each."""
    with ExitStack() as stack:

        def serve(handler: type[BaseHTTPRequestHandler]) -> int:
            server = ThreadingHTTPServer((address, 0), handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return server.server_port

        yield {name: (serve(_Nothing), serve(_Actuator)) for name in ("managed-a", "managed-b")}


@pytest.fixture(scope="module")
def served(
    lab: Lab,
    cluster: Cluster,
    pods: dict[str, tuple[int, int]],
    address: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Register the two pods by an operator; return their namespace."""
    namespace = APP
    cluster.create_namespace(namespace)
    operator = Operator(
        tmp_path_factory.mktemp("managed") / "operator.log",
        operator_environment(lab, namespace, CLUSTER_NAME="managed"),
        [],
    )
    operator.wait_ready()
    ports = [{"name": "http", "port": 8080}, {"name": "management", "port": 8081}]
    cluster.apply(
        SERVICES,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "namespace": namespace,
                "name": APP,
                "annotations": {"example.com/team": "stars"},
            },
            "spec": {"ports": ports},
        },
    )
    for name, (port, management) in pods.items():
        cluster.apply(ENDPOINT_SLICES, endpoint_slice(namespace, name, address, port, management))
    cluster.apply_syncer(
        namespace,
        APP,
        healthCheckPath="/actuator/health",
        healthCheckPort="management",
        metadataFromPorts={"management.port": "management"},
        metadataFromAnnotations={"team": "example.com/team"},
    )
    yield namespace
    operator.stop()
    print(operator.text())


def endpoint_slice(namespace: str, pod: str, address: str, port: int, management: int | None) -> Object:
    """Return the EndpointSlice of one pod."""
    ports = [{"name": "http", "port": port}]
    if management is not None:
        ports.append({"name": "management", "port": management})
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": pod,
            "labels": {"kubernetes.io/service-name": APP},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": pod, "namespace": namespace},
            }
        ],
    }


def test_tools_find_each_pod_at_its_management_port(
    lab: Lab,
    eureka: Peers,
    served: str,  # noqa: ARG001 - has them registered
    pods: dict[str, tuple[int, int]],
    address: str,
    tmp_path: Path,
) -> None:
    """Spring Boot Admin shows each pod as UP and Prometheus scrapes it by the management port, not by the
    callers' port.
    """
    management = {f"http://{address}:{port}/actuator/health" for _, port in pods.values()}
    wait_for(
        lambda: {one.health_check_url for one in instances(eureka, APP)} == management, "in Eureka", 60.0
    )
    assert {one.metadata["team"] for one in instances(eureka, APP)} == {"stars"}

    targets = found_by_prometheus(lab.eureka_urls[0])
    assert {(one["__address__"], one["application"]) for one in targets} == {
        (f"{address}:{port}", APP.upper()) for _, port in pods.values()
    }
    for one in targets:
        assert requests.get(f"http://{one['__address__']}{one['__metrics_path__']}", timeout=10).ok

    try:
        admin = SpringAdmin(lab.eureka_urls, name="admin", log_directory=tmp_path, settings=QUICK)
    except SpringClientMissing as error:
        pytest.skip(str(error))
    with closing(admin):
        admin.start()
        shown: list[tuple[str, str]] = []

        def are_up() -> bool:
            shown[:] = [
                (one["registration"]["healthUrl"], one["statusInfo"]["status"])
                for one in admin.get("/instances").json()
                if one["registration"]["name"] == APP.upper()
            ]
            return sorted(shown) == sorted((url, "UP") for url in management)

        wait_for(are_up, f"both UP at {management}, shown: {shown}", 120.0)
        managed = {
            one["registration"]["managementUrl"]
            for one in admin.get("/instances").json()
            if one["registration"]["name"] == APP.upper()
        }
        assert managed == {url.removesuffix("/health") for url in management}


def test_what_a_port_lacks_is_left_out_and_said(
    cluster: Cluster, eureka: Peers, served: str, pods: dict[str, tuple[int, int]], address: str
) -> None:
    """A pod without the management port stays registered without its metadata key, a condition says so,
    and the key returns with the port.
    """
    name, (port, management) = next(iter(pods.items()))

    def found() -> dict[str, str | None]:
        return {
            one.instance_id.partition(".")[0]: one.metadata.get("management.port")
            for one in instances(eureka, APP)
        }

    every = {pod: str(numbers[1]) for pod, numbers in pods.items()}
    wait_for(lambda: found() == every, "each has its own", 60.0)
    cluster.apply(ENDPOINT_SLICES, endpoint_slice(served, name, address, port, None))
    wait_for(lambda: found() == {**every, name: None}, "one lacks it", 30.0)

    def said() -> str:
        status = cluster.access.request("GET", SYNCERS.path(served, APP)).get("status") or {}
        held = [one for one in status.get("conditions") or () if one["type"] == "MetadataLeftOut"]
        return str(held[0]["message"]) if held and held[0]["status"] == "True" else ""

    wait_for(lambda: "management.port (TCP port management) of some endpoints" in said(), "condition", 30.0)
    assert "the health check" in said()
    cluster.apply(ENDPOINT_SLICES, endpoint_slice(served, name, address, port, management))
    wait_for(lambda: found() == every and not said(), "all as before", 30.0)
    body = {"metadata": {"annotations": {"example.com/team": "moons"}}}
    cluster.access.request("PATCH", SERVICES.path(served, APP), body=body, content_type=MERGE_PATCH_TYPE)
    wait_for(lambda: {one.metadata.get("team") for one in instances(eureka, APP)} == {"moons"}, "moons", 30.0)


def found_by_prometheus(eureka_url: str) -> list[dict[str, str]]:
    """Return the targets that Prometheus' own discovery code finds with the configuration of
    docs/guides/metadata.md.
    """
    page = (ROOT / "docs/guides/metadata.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    try:
        program = provide_programs([THIRD_PARTY_READERS])[THIRD_PARTY_READERS]
    except LabError as error:
        pytest.skip(str(error))
    configured = written.replace("http://eureka:8761/eureka", eureka_url)
    done = subprocess.run(
        [program, "targets"], input=configured, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found
