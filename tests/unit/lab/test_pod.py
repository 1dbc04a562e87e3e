"""Readiness of a pod of the lab's kubelet: its gates, and the conditions that the kubelet writes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from eurekube_provider.kube.access import KubeAccess
from lab.pod import Pod, are_gates_open
from lab.workloads import wait_for

GATES = ("example.org/first", "example.org/second")


def pod(*gates: str, **conditions: str) -> dict[str, Any]:
    """Return a pod with these gates and conditions."""
    return {
        "spec": {"readinessGates": [{"conditionType": gate} for gate in gates]} if gates else {},
        "status": {"conditions": [{"type": key, "status": value} for key, value in conditions.items()]},
    }


@pytest.mark.parametrize(
    ("item", "is_open"),
    [
        (pod(), True),
        (pod(Ready="False"), True),
        (pod(*GATES), False),
        (pod(*GATES, **{GATES[0]: "True"}), False),
        (pod(*GATES, **{GATES[0]: "True", GATES[1]: "Unknown"}), False),
        (pod(*GATES, **dict.fromkeys(GATES, "True")), True),
        ({"spec": {"readinessGates": [{"conditionType": GATES[0]}]}}, False),
    ],
)
def test_each_gate_must_be_true(item: dict[str, Any], *, is_open: bool) -> None:
    """A gate is open only if its condition is True, not if it is missing, False or Unknown."""
    assert are_gates_open(item) is is_open


class SandboxOfThisMachine:
    """A pod's sandbox without a network of its own, which only a lab's network can have."""

    def __init__(self, _address: str) -> None:
        pass

    def __enter__(self) -> SandboxOfThisMachine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wrap_command(self, command: list[str]) -> list[str]:
        """Return the command that runs in the sandbox."""
        return command


class WrittenStatuses:
    """An API that keeps the statuses which a kubelet writes."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []

    def request(self, _method: str, path: str, body: dict[str, Any], content_type: str) -> None:
        """Keep a status."""
        if path.endswith("/status"):
            assert content_type == "application/strategic-merge-patch+json"
            self.statuses.append(body["status"])

    @property
    def readiness(self) -> dict[str, str]:
        """The conditions ContainersReady and Ready as they were written last."""
        written = self.statuses[-1]["conditions"] if self.statuses else ()
        return {one["type"]: one["status"] for one in written if one["type"] != "Initialized"}


@contextmanager
def probed() -> Iterator[tuple[int, threading.Event]]:
    """Run the server that a readiness probe asks; yield its port, and an event by which it answers well."""
    is_well = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if is_well.is_set() else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port, is_well
        finally:
            server.shutdown()
            thread.join()


def test_ready_takes_ready_containers_and_open_gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready is False while the containers are not ready or a gate is closed, and True only when both
    hold.
    """
    monkeypatch.setattr("lab.pod.Sandbox", SandboxOfThisMachine)
    api = WrittenStatuses()
    opened, closed = (pod(*GATES, **dict.fromkeys(GATES, state)) for state in ("True", "False"))
    with probed() as (port, is_well):
        probe = {"httpGet": {"port": port}, "periodSeconds": 0.1, "failureThreshold": 1}
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        container = {"name": "main", "command": command, "readinessProbe": probe}
        for item in (opened, closed):
            item["metadata"] = {"uid": "1", "namespace": "shop", "name": "rating"}
            item["spec"] |= {"nodeName": "node-1", "containers": [container]}
        running = Pod(cast("KubeAccess", api), opened, "127.0.0.1", tmp_path)
        running.start()
        try:
            wait_for(lambda: api.readiness, "the first status")
            assert api.readiness == {"ContainersReady": "False", "Ready": "False"}
            is_well.set()
            wait_for(lambda: api.readiness["ContainersReady"] == "True", "ready containers")
            assert api.readiness["Ready"] == "True"
            running.apply_change(closed)
            assert api.readiness == {"ContainersReady": "True", "Ready": "False"}
            is_well.clear()
            wait_for(lambda: api.readiness["ContainersReady"] == "False", "containers that fail")
            running.apply_change(opened)
            assert api.readiness == {"ContainersReady": "False", "Ready": "False"}
            is_well.set()
            wait_for(lambda: api.readiness["ContainersReady"] == "True", "ready containers again")
            assert api.readiness["Ready"] == "True"
        finally:
            running.end_at_once()
            running.join(10.0)
