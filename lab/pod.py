"""One pod as a kubelet runs it: a real process in a sandbox of its own, from its start to its end.

The order is a kubelet's: the process starts, and readiness decides when it may be called. On deletion preStop
runs first and counts towards the grace period, then comes SIGTERM, at the end of the grace period SIGKILL,
and only then is the object deleted. Of a pod's spec, one container is supported, with `command`, `env` (with
the pod's own name and namespace), an `httpGet` readiness probe and a `preStop` of `sleep` or `exec`.
"""

import http.client
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import PODS, STRATEGIC_MERGE_PATCH_TYPE, KubeAccess
from lab.errors import LabError
from lab.processes import Process
from lab.sandbox import Sandbox

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_LEAST_GRACE_SECONDS = 2.0
"""Seconds that a kubelet grants between a preStop that took the whole grace period and SIGKILL."""

_FIRST_PROBE_DELAY_SECONDS = 0.3
_PROBE_TIMEOUT_SECONDS = 2.0
_DEFAULT_PROBE_PERIOD_SECONDS = 10
_DEFAULT_FAILURE_THRESHOLD = 3

Object = dict[str, Any]


@dataclass(slots=True)
class PodLife:
    """The life of a pod, in seconds since 1970; None for an event that has not happened.

    :ivar ready_at: its containers were ready, whatever its readiness gates say.
    :ivar opened_at: its readiness gates were open as well, so that the pod was Ready.
    :ivar deleted_at: the kubelet saw that its deletion has begun.
    :ivar reported_at: its process got SIGTERM.
    :ivar gone_at: its address was taken away.
    """

    namespace: str
    name: str
    labels: Mapping[str, str]
    node: str
    address: str
    ready_at: float | None = None
    opened_at: float | None = None
    deleted_at: float | None = None
    reported_at: float | None = None
    was_killed: bool = False
    gone_at: float | None = None


class Pod:
    """One pod that runs on a thread of its own; `log_directory` gets its process's output."""

    def __init__(self, access: KubeAccess, item: Object, address: str, log_directory: Path) -> None:
        metadata = item["metadata"]
        self.uid = str(metadata["uid"])
        self.life = PodLife(
            metadata["namespace"],
            metadata["name"],
            metadata.get("labels") or {},
            item["spec"]["nodeName"],
            address,
        )
        self._access = access
        self._item = item
        self._container: Object = item["spec"]["containers"][0]
        self._log_directory = log_directory
        self._deletion = threading.Event()
        self._is_removed = False
        self._is_ready = False
        self._reporting = threading.Lock()
        self._running: Process | None = None
        self._failures = 0
        self._restarts = 0
        self._started_at = _now()
        self._thread = threading.Thread(target=self._run, name=f"pod-{self.life.name}", daemon=True)

    def start(self) -> None:
        """Start the pod; one whose deletion has begun already ends in the usual order."""
        self.apply_change(self._item)
        self._thread.start()

    def apply_change(self, item: Object) -> None:
        """Take over the changed object: write the pod's status if a readiness gate changed, and end the pod
        if its deletion began.
        """
        before, self._item = self._item, item
        if self._running is not None and are_gates_open(before) != are_gates_open(item):
            try:
                self._write_status(self._running)
            except KubernetesError:
                _log.exception(
                    "failed to write the status of pod %s/%s, writing it again at its next change",
                    self.life.namespace,
                    self.life.name,
                )
        if item["metadata"].get("deletionTimestamp") and not self._deletion.is_set():
            self.life.deleted_at = time.time()
            self._deletion.set()

    def end_at_once(self) -> None:
        """End the pod at once, since its object is gone."""
        self._is_removed = True
        if not self._deletion.is_set():
            self.life.deleted_at = time.time()
            self._deletion.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the pod's end."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            with Sandbox(self.life.address) as sandbox:
                self._run_container(sandbox)
            self.life.gone_at = time.time()
            self._delete_object()
        except (KubernetesError, LabError, OSError):
            _log.exception(
                "failed to run pod %s/%s to its end, killed its process, its object may stay",
                self.life.namespace,
                self.life.name,
            )

    def _run_container(self, sandbox: Sandbox) -> None:
        process = self._make_process("main", self._container["command"], sandbox)
        process.launch()
        self._running = process
        try:
            self._write_status(process)
            next_probe = time.monotonic() + _FIRST_PROBE_DELAY_SECONDS
            while not self._deletion.wait(max(0.0, next_probe - time.monotonic())):
                if process.pid is None:
                    self._restarts += 1
                    self._set_ready(process, is_ready=False)
                    process.launch()
                next_probe = time.monotonic() + self._probe(process)
            self._terminate_container(process, sandbox)
        finally:
            self._running = None
            process.kill()

    def _terminate_container(self, process: Process, sandbox: Sandbox) -> None:
        """Run preStop, send SIGTERM, and send SIGKILL at the end of the grace period."""
        hook = (self._container.get("lifecycle") or {}).get("preStop") or {}
        if "sleep" in hook:
            wake = time.monotonic() + float(hook["sleep"]["seconds"])
            self._probe_until(process, lambda: time.monotonic() >= wake)
        elif "exec" in hook:
            stopping = self._make_process("prestop", hook["exec"]["command"], sandbox)
            stopping.launch()
            self._probe_until(process, lambda: stopping.pid is None)
            stopping.kill()
        last = max(self._remaining_grace_seconds(), 0.0 if self._is_removed else _LEAST_GRACE_SECONDS)
        self.life.reported_at = time.time()
        process.terminate()
        deadline = time.monotonic() + last
        while process.pid is not None and time.monotonic() < deadline and not self._is_removed:
            time.sleep(_POLL_SECONDS / 4)
        self.life.was_killed = process.pid is not None

    def _probe_until(self, process: Process, is_over: Any) -> None:
        """Go on probing until the preStop hook or the grace period is over."""
        next_probe = time.monotonic()
        while not is_over() and self._remaining_grace_seconds() > 0 and process.pid is not None:
            if time.monotonic() >= next_probe:
                next_probe = time.monotonic() + self._probe(process)
            time.sleep(_POLL_SECONDS)

    def _remaining_grace_seconds(self) -> float:
        """Return the seconds left of the grace period, which may have been shortened meanwhile."""
        if self._is_removed:
            return 0.0
        given = float(self._item["metadata"].get("deletionGracePeriodSeconds") or 0)
        return (self.life.deleted_at or 0.0) + given - time.time()

    def _make_process(self, what: str, command: list[str], sandbox: Sandbox) -> Process:
        given = {one["name"]: self._variable_value(one) for one in self._container.get("env") or ()}
        return Process(
            f"{self.life.name}-{what}",
            sandbox.wrap_command(command),
            log=self._log_directory / f"{self.life.namespace}-{self.life.name}-{what}.log",
            environment={"PATH": os.environ.get("PATH", ""), **given},
        )

    def _variable_value(self, variable: Mapping[str, Any]) -> str:
        """Return a variable's value: a text, or a field of the pod's metadata."""
        field = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
        if field.startswith("metadata."):
            return str(self._item["metadata"][field.removeprefix("metadata.")])
        return str(variable.get("value", ""))

    def _probe(self, process: Process) -> float:
        """Probe the pod's readiness, and write its status if that changed; return the seconds until the
        next probe.
        """
        probe = self._container.get("readinessProbe") or {}
        if not probe:
            self._set_ready(process, is_ready=process.pid is not None)
            return 1.0
        if self._answers(probe["httpGet"]):
            self._failures = 0
            self._set_ready(process, is_ready=True)
        else:
            self._failures += 1
            if self._failures >= int(probe.get("failureThreshold", _DEFAULT_FAILURE_THRESHOLD)):
                self._set_ready(process, is_ready=False)
        period = float(probe.get("periodSeconds", _DEFAULT_PROBE_PERIOD_SECONDS))
        return period if self._is_ready else min(period, _FIRST_PROBE_DELAY_SECONDS)

    def _answers(self, get: Mapping[str, Any]) -> bool:
        connection = http.client.HTTPConnection(
            self.life.address, int(get["port"]), timeout=_PROBE_TIMEOUT_SECONDS
        )
        try:
            connection.request("GET", str(get.get("path", "/")))
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _set_ready(self, process: Process, *, is_ready: bool) -> None:
        if is_ready == self._is_ready:
            return
        self._is_ready = is_ready
        if is_ready and self.life.ready_at is None:
            self.life.ready_at = time.time()
        self._write_status(process)

    def _write_status(self, process: Process) -> None:
        """Write the pod's status, unless the pod is gone."""
        with self._reporting:
            self._write_status_locked(process)

    def _write_status_locked(self, process: Process) -> None:
        is_open = self._is_ready and are_gates_open(self._item)
        if is_open and self.life.opened_at is None:
            self.life.opened_at = time.time()
        conditions = [
            {"type": "Initialized", "status": "True"},
            {"type": "ContainersReady", "status": str(self._is_ready)},
            {"type": "Ready", "status": str(is_open)},
        ]
        container = {
            "name": self._container["name"],
            "image": self._container.get("image", ""),
            "imageID": "",
            "ready": self._is_ready,
            "started": True,
            "restartCount": self._restarts,
            "state": {"running": {"startedAt": self._started_at}},
        }
        if process.pid is None:
            code = process.wait()
            container["state"] = {"terminated": {"exitCode": code, "finishedAt": _now()}}
        status = {
            "phase": "Running",
            "startTime": self._started_at,
            "hostIP": "192.0.2.1",
            "podIP": self.life.address,
            "podIPs": [{"ip": self.life.address}],
            "conditions": [{**one, "lastTransitionTime": _now()} for one in conditions],
            "containerStatuses": [container],
        }
        self._send("PATCH", "status", {"metadata": {"uid": self.uid}, "status": status})

    def _delete_object(self) -> None:
        """Write the final status of an ended pod, and delete its object."""
        if self._is_removed:
            return
        gone = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        phase = "Failed" if self.life.was_killed else "Succeeded"
        status = {"phase": phase, "conditions": gone}
        self._send("PATCH", "status", {"metadata": {"uid": self.uid}, "status": status})
        self._send("DELETE", "", {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})

    def _send(self, method: str, subresource: str, body: Object) -> None:
        content_type = STRATEGIC_MERGE_PATCH_TYPE if method == "PATCH" else "application/json"
        path = PODS.path(self.life.namespace, self.life.name, subresource)
        try:
            self._access.request(method, path, body=body, content_type=content_type)
        except KubernetesError as error:
            if error.status_code not in (404, 409):  # gone, or another pod of that name
                raise


def are_gates_open(item: Object) -> bool:
    """Return whether the condition of each of a pod's readiness gates is True."""
    conditions = item.get("status", {}).get("conditions") or ()
    are_true = {one["type"] for one in conditions if one["status"] == "True"}
    return all(one["conditionType"] in are_true for one in item["spec"].get("readinessGates") or ())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
