"""StackRefreshes on real servers: their targets run when the addresses of their Services change.

The copied Pulumi program waits for a file, the gate, so that a test can act in the middle of a run.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    EVENTS,
    MERGE_PATCH_TYPE,
    PULUMI_STACKS,
    SERVICES,
    STACK_REFRESHES,
)
from eurekube_provider.operator.triggers.pulumi_stack import REQUEST_ANNOTATION
from eurekube_provider.operator.triggers.webhook import (
    IDEMPOTENCY_HEADER,
    SIGNATURE_HEADER,
    signature,
)
from lab import Lab
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator, addresses, ready, running
from tests.system.stacks import endpoints_example, needs_pulumi
from tests.system.test_web import document, listening_port, page

pytestmark = pytest.mark.lab

Object = dict[str, Any]

GATE = """
import pathlib, time
pathlib.Path("arrived").touch()
while pathlib.Path("closed").exists():
    time.sleep(0.05)
"""

RUN_SECONDS = 120.0
"""Longest time for a Pulumi run on a busy machine, in seconds."""


class Refresh:
    """A StackRefresh in the cluster."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def apply(self, **spec: Any) -> None:
        """Create or change the StackRefresh."""
        self.cluster.apply(
            STACK_REFRESHES,
            {
                "apiVersion": "eurekube.io/v1alpha1",
                "kind": "StackRefresh",
                "metadata": {"namespace": self.namespace, "name": self.name},
                "spec": spec,
            },
        )

    @property
    def status(self) -> Object:
        """The StackRefresh's status; empty if there is none."""
        return dict((self.cluster.get(STACK_REFRESHES, self.name, self.namespace) or {}).get("status") or {})

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        return condition(self.status, kind)

    def wait_served(self, addresses: int) -> Object:
        """Wait until the last run succeeded for so many addresses; return the status."""

        def served() -> Object | None:
            status = self.status
            run = status.get("lastRun") or {}
            is_new = status.get("addresses") == run.get("addresses") == addresses
            return status if is_new and condition(status, "Synced") == ("True", "Served") else None

        return wait_for(served, f"a run for {addresses} addresses", RUN_SECONDS)

    def wait_failed(self, reason: str = "Failed", failures: int = 1) -> Object:
        """Wait until the StackRefresh is not ready for this reason after so many failures; return the
        status.
        """

        def failed() -> Object | None:
            status = self.status
            is_there = condition(status, "Ready") == ("False", reason) and status["failures"] >= failures
            return status if is_there else None

        return wait_for(failed, f"{failures} times {reason}", RUN_SECONDS)

    def reasons(self) -> set[str]:
        """The reasons of the StackRefresh's Events."""
        events = self.cluster.items(EVENTS, self.namespace)
        return {event["reason"] for event in events if event["regarding"]["name"] == self.name}


def condition(status: Object, kind: str) -> tuple[str, str]:
    """Return status and reason of a condition; empty if there is none."""
    found = {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or ()}
    return found.get(kind, ("", ""))


def configured(tmp_path: Path, **targets: Object) -> str:
    """Write a configuration file with these targets; return its path."""
    file = tmp_path / "operator.yaml"
    file.write_text(yaml.safe_dump({"targets": targets}))
    return str(file)


def churn(cluster: Cluster, namespace: str, name: str, changes: int, seconds: float) -> int:
    """Change the one address of a Service's slice so many times, as evenly as the API allows.

    :returns: how many pauses between the changes were longer than a second, as on a busy machine.
    """
    pauses, last = 0, time.monotonic()
    began = last
    for number in range(changes):
        cluster.apply_endpoint_slice(namespace, name, [{"addresses": [f"192.0.2.{number + 1}"]}])
        pauses += time.monotonic() - last > 1.0
        last = time.monotonic()
        time.sleep(max(0.0, began + (number + 1) * seconds / changes - last))
    return pauses


@pytest.mark.pulumi
@pytest.mark.slow
@needs_pulumi
def test_a_stack_follows_the_endpoints_by_itself(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    eureka: Peers,
    start_operator: StartOperator,
    tmp_path: Path,
) -> None:
    """Cluster, stack and Eureka agree after each scaling, despite storms of changes, failures and killed
    processes.
    """
    service = f"{namespace}-app"
    cluster.apply_deployment(namespace, service, 2)
    cluster.apply_service(namespace, service)
    stack = endpoints_example(lab, namespace, service, tmp_path)
    program = stack.project / "__main__.py"
    program.write_text(GATE + program.read_text())
    target = {
        "kind": "automation",
        "namespaces": [namespace],
        "stack": "dev",
        "work-dir": str(stack.project),
        "shortest-interval-seconds": 2,
    }
    needed = ("PATH", "PULUMI_", "PYTHON")
    pulumi = {key: value for key, value in stack.environment.items() if key.startswith(needed)}
    pulumi["CONFIG"] = configured(tmp_path, shop=target)
    operator = start_operator(**pulumi)
    refresh = Refresh(cluster, namespace, service)

    def agree(expected: int, extra: int = 0) -> Object:
        pods = ready(cluster, namespace, service, expected)
        status = refresh.wait_served(expected + extra)
        assert addresses(eureka, service) == dict.fromkeys(pods, "UP")
        assert json.loads(stack.pulumi("stack", "output", "--json"))["addresses"] == pods
        return status

    # 2: a new StackRefresh runs at once.
    refresh.apply(
        selector={"matchLabels": {"app": service}},
        action="Up",
        target="shop",
        debounceSeconds=2,
        minIntervalSeconds=2,
    )
    run = agree(2)["lastRun"]
    assert (run["outcome"], run["changes"]["create"] >= 1) == ("Changed", True)

    # A storm at another Service with the same label: the stack has nothing to do with it.
    metadata = {"namespace": namespace, "name": f"{service}-busy", "labels": {"app": service}}
    cluster.apply(
        SERVICES,
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 8080}]}},
    )
    before = operator.text().count("starting a stack run")
    pauses = churn(cluster, namespace, f"{service}-busy", changes=200, seconds=10.0)
    assert agree(2, extra=1)["lastRun"]["outcome"] == "Unchanged"
    assert 1 <= operator.text().count("starting a stack run") - before <= 2 + pauses

    # 5: the operator and its run are killed in the middle; the direct way went on meanwhile.
    gate, arrived = stack.project / "closed", stack.project / "arrived"
    gate.touch()
    arrived.unlink()
    cluster.scale(namespace, service, 5)
    wait_for(arrived.exists, "a run in the middle", RUN_SECONDS)
    cluster.apply_deployment(namespace, "direct", 1)
    cluster.apply_service(namespace, "direct")
    cluster.apply_syncer(namespace, "direct", application=f"{namespace}-direct", eureka="default")
    wait_for(lambda: refresh.status["lastRun"]["outcome"] == "Running", "Running")
    (record,) = (tmp_path / "home" / "eurekube-runs").glob("*.json")
    cli = int(json.loads(record.read_text())["pid"])
    worker = parent_of(cli)
    operator.stop(signal.SIGKILL)
    for pid in (worker, cli):
        os.killpg(os.getpgid(pid), signal.SIGKILL)
    gate.unlink()
    operator = start_operator(**pulumi)
    agree(5, extra=1)
    assert "RunCutOff" in refresh.reasons()

    # 0: the program refuses, which is seen and tried again; 1: it goes well again.
    cluster.scale(namespace, service, 0)
    failed = refresh.wait_failed(failures=2)
    assert "fewer than endpoints:fewest" in failed["lastRun"]["message"]
    assert len(addresses(eureka, service)) == 5
    cluster.scale(namespace, service, 1)
    status = agree(1, extra=1)
    assert (status["failures"], refresh.condition("Ready")) == (0, ("True", "Succeeded"))
    assert {"RunChanged", "RunUnchanged", "RunFailed"} <= refresh.reasons()

    # A restart runs nothing.
    assert operator.stop() == 0
    after = start_operator(**pulumi, LOG_LEVEL="DEBUG")
    time.sleep(4.0)  # the debounce time, and more
    assert "starting a stack run" not in after.text()
    stack.destroy()


def parent_of(pid: int) -> int:
    """Return the id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Receiver:
    """An HTTP server that refuses the first call, leaves the second unanswered, and accepts the others.

    While ``free`` is not set it answers nothing.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, str, str]] = []
        self.taken: list[Object] = []
        self.free = threading.Event()
        self.free.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.append(
                    (body, self.headers[SIGNATURE_HEADER], self.headers[IDEMPOTENCY_HEADER])
                )
                if not receiver.free.is_set():
                    receiver.free.wait(RUN_SECONDS)
                    return  # who called may be gone
                if len(receiver.calls) == 1:
                    self.send_response(503)
                elif len(receiver.calls) == 2:
                    return  # the connection is closed without a word
                else:
                    receiver.taken.append(json.loads(body))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return the server that the webhook calls."""
    running = Receiver()
    yield running
    running.free.set()
    running.server.shutdown()
    running.server.server_close()


STACK_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "stacks.pulumi.com"},
    "spec": {
        "group": "pulumi.com",
        "scope": "Namespaced",
        "names": {"kind": "Stack", "listKind": "StackList", "plural": "stacks", "singular": "stack"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["stack"],
                                "x-kubernetes-preserve-unknown-fields": True,
                                "properties": {
                                    "stack": {"type": "string"},
                                    "refresh": {"type": "boolean"},
                                    "preview": {"type": "boolean"},
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                                "properties": {
                                    "observedReconcileRequest": {"type": "string"},
                                    "lastUpdate": {
                                        "type": "object",
                                        "properties": {
                                            "reconcileRequest": {"type": "string"},
                                            "state": {"type": "string"},
                                            "type": {"type": "string"},
                                            "message": {"type": "string"},
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""A CRD of the Stack of Pulumi Kubernetes Operator 2 with only the fields that a trigger uses; the whole
CRD has 20,000 lines.
"""


def test_webhooks_and_stacks_of_pulumis_operator(
    cluster: Cluster,
    namespace: str,
    eureka: Peers,
    start_operator: StartOperator,
    receiver: Receiver,
    tmp_path: Path,
) -> None:
    """Each target is called once for each change, again while it fails, and only for namespaces that may use
    it.

    A target that never answers delays no registration.
    """
    cluster.install_crd(STACK_CRD)
    app, other = f"{namespace}-app", f"{namespace}-other"
    cluster.create_namespace(other)
    (tmp_path / "key").write_text("key\n")
    pace = {"shortest-interval-seconds": 1, "timeout-seconds": RUN_SECONDS}
    url = f"http://127.0.0.1:{receiver.server.server_port}/hook"
    operator = start_operator(
        WATCH_NAMESPACE=f"{namespace},{other}",
        WEB_ADDRESS="127.0.0.1:0",
        CONFIG=configured(
            tmp_path,
            ci={
                "kind": "webhook",
                "namespaces": namespace,
                "url": url,
                "secret-file": str(tmp_path / "key"),
                **pace,
            },
            pko={"kind": "pulumiStack", "namespaces": "*", "stack": f"{other}/prod", **pace},
        ),
    )
    running(cluster, namespace, app, 1)
    asked = {"selector": {"app": app}, "action": "Up", "debounceSeconds": 1, "minIntervalSeconds": 1}
    hook, stack, foreign = (
        Refresh(cluster, namespace, "hook"),
        Refresh(cluster, namespace, "stack"),
        Refresh(cluster, other, "foreign"),
    )
    hook.apply(**asked, target="ci")
    foreign.apply(**asked, target="ci")

    # The webhook: what was not taken is repeated as it was.
    hook.wait_served(1)
    first, *repeated = receiver.calls
    assert repeated == [first, first]
    body, found_signature, key = first
    assert (found_signature, key) == (signature("key", body), json.loads(body)["id"])
    (address,) = cluster.ready_addresses(namespace, app)
    service = {"namespace": namespace, "name": app, "ready": 1, "addresses": [f"{address}:8080"]}
    assert receiver.taken[0]["services"] == [service]
    wait_for(lambda: foreign.condition("Ready") == ("False", "NotAllowed"), "NotAllowed")

    # Pulumi's operator, played: there is no Stack yet, then a run fails, then one goes well.
    stack.apply(**asked, target="pko")
    failed = stack.wait_failed()
    assert f"the Stack {other}/prod is not there" in failed["lastRun"]["message"]
    metadata = {"namespace": other, "name": "prod"}
    cluster.apply(
        PULUMI_STACKS,
        {"apiVersion": "pulumi.com/v1", "kind": "Stack", "metadata": metadata, "spec": {"stack": "prod"}},
    )
    seen: set[str] = set()
    seen.add(acknowledge(cluster, other, seen, "failed"))
    wait_for(lambda: "exit status 255" in str(stack.status["lastRun"].get("message")), "its message", 60)
    seen.add(acknowledge(cluster, other, seen, "succeeded"))
    assert stack.wait_served(1)["lastRun"]["outcome"] == "Succeeded"

    # A change reaches both, once.
    cluster.scale(namespace, app, 2)
    ready(cluster, namespace, app, 2)
    seen.add(acknowledge(cluster, other, seen, "succeeded"))
    stack.wait_served(2)
    hook.wait_served(2)
    assert receiver.taken[-1]["services"][0]["ready"] == 2
    assert len({one["id"] for one in receiver.taken}) == len(receiver.taken)
    assert {"RunSucceeded", "RunFailed"} <= stack.reasons()

    # A target that does not answer: meanwhile a new endpoint reaches Eureka, and the page tells of the run.
    stack.apply(**asked, target="pko", paused=True)
    cluster.apply_syncer(namespace, app)
    wait_for(lambda: len(addresses(eureka, app)) == 2, "two instances", RUN_SECONDS)
    receiver.free.clear()
    calls = len(receiver.calls)
    cluster.scale(namespace, app, 3)
    wait_for(lambda: len(receiver.calls) > calls, "the call", RUN_SECONDS)
    run = hook.status["lastRun"]
    assert run["outcome"] == "Running"
    cluster.scale(namespace, app, 4)
    wait_for(lambda: len(addresses(eureka, app)) == 4, "four instances", RUN_SECONDS)
    assert addresses(eureka, app) == dict.fromkeys(ready(cluster, namespace, app, 4), "UP")
    port = wait_for(lambda: listening_port(operator.text()), "the web's port")
    shown = {row["name"]: row for row in document(port)["stackRefreshes"]}
    assert [shown["hook"][key] for key in ("target", "outcome", "lastRunAt", "syncReason")] == [
        "ci",
        "Running",
        run["startTime"],
        "Running",
    ]
    assert (shown["foreign"]["reason"], shown["stack"]["paused"]) == ("NotAllowed", True)
    assert f"{namespace}/hook" in page(port, "/")
    assert hook.status["lastRun"] == run
    receiver.free.set()
    hook.wait_served(4)
    assert document(port, f"?application={app}")["stackRefreshCount"] == 3


def acknowledge(cluster: Cluster, namespace: str, seen: set[str], state: str) -> str:
    """Answer the next request of the trigger as the Pulumi Kubernetes Operator does: see it, then report
    how it ended.
    """

    def request() -> str | None:
        metadata = (cluster.get(PULUMI_STACKS, "prod", namespace) or {}).get("metadata") or {}
        value = str((metadata.get("annotations") or {}).get(REQUEST_ANNOTATION) or "")
        return value if value and value not in seen else None

    value = wait_for(request, "a request", 60)
    update = {"reconcileRequest": value, "state": state, "type": "up", "message": "exit status 255"}
    for status in ({"observedReconcileRequest": value}, {"lastUpdate": update}):
        path = PULUMI_STACKS.path(namespace, "prod", "status")
        cluster.access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE)
    return value
