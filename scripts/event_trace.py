"""A count of the package's functions that one event passes: ``python -m scripts.event_trace [--calls]``.

One more pod becomes ready on development servers, with one Eureka server. An operator, a process of its own,
records each function of the package that any of its threads enters, from the line that its watch reads to
Eureka's last answer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.kube.access import APPLY_PATCH_TYPE, ENDPOINT_SLICES, SERVICES, SYNCERS, KubeAccess
from eurekube_provider.operator.__main__ import main as operate
from lab.waiting import wait_until

ROOT = Path(__file__).parents[1]
_PACKAGE = f"{ROOT / 'eurekube_provider'}{os.sep}"
_EUREKA_REQUEST_FUNCTIONS = [
    ("eureka/protocol/peer.py", f"Peer.{name}") for name in ("register", "read", "send_batch")
]
"""Functions that send requests about instances, without the check for a restarted server every five
seconds.
"""

_EVENT_FUNCTION = ("kube/reflector.py", "Reflector.apply_event")
APP, NAMESPACE = "rating", "shop"

TraceEntry = tuple[float, str, str, str]
"""Time, ``call`` or ``return``, the module's path in the package, and the function."""


class Recorder:
    """A recorder of each function of the package that is entered or left, between two signals."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entered: list[TraceEntry] = []
        self._is_on = False

    def install(self) -> None:
        """Attach to all threads; SIGUSR1 starts the recording, and SIGUSR2 writes it."""
        signal.signal(signal.SIGUSR1, self._start_recording)
        signal.signal(signal.SIGUSR2, self._write_recording)
        threading.setprofile(self._record_call)
        sys.setprofile(self._record_call)

    def _start_recording(self, *_: object) -> None:
        self._is_on = True

    def _write_recording(self, *_: object) -> None:
        self._is_on = False
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._entered))
        partial.rename(self._path)

    def _record_call(self, frame: FrameType, event: str, _: Any) -> None:
        if self._is_on and event in ("call", "return"):
            file = frame.f_code.co_filename
            if file.startswith(_PACKAGE):
                name = frame.f_code.co_qualname
                self._entered.append((time.monotonic(), event, file[len(_PACKAGE) :], name))


def trace_event() -> list[tuple[str, str]]:
    """Return module and function of each call between the watch's line and Eureka's last answer."""
    with tempfile.TemporaryDirectory() as name, EurekaServers(quick=True) as eureka, KubernetesApi() as api:
        directory = Path(name)
        kubeconfig, found = directory / "kubeconfig", directory / "entered.json"
        api.write_kubeconfig(kubeconfig)
        access = KubeAccess.load(kubeconfig)
        for path in (ROOT / "crds").glob("*.yaml"):
            body = yaml.safe_load(path.read_text(encoding="utf-8"))
            access.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
        access.request("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
        access.request("POST", SERVICES.path(NAMESPACE), body=_service())
        syncer = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaSyncer",
            "metadata": {"name": APP},
            "spec": {"mode": "pod", "selector": {"namespace": NAMESPACE, "app": APP}},
        }
        access.request("POST", SYNCERS.path(NAMESPACE), body=syncer)

        def publish(count: int) -> None:
            path = ENDPOINT_SLICES.path(NAMESPACE, f"{APP}-1")
            access.request(
                "PATCH",
                path,
                {"fieldManager": "trace", "force": "true"},
                _endpoint_slice(count),
                APPLY_PATCH_TYPE,
            )

        def registered() -> int:
            (server,) = eureka.cluster.servers.values()
            with eureka.lock:
                return sum(1 for _ in server.registry.all_leases())

        publish(2)
        environment = {
            **{key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
            "EUREKA_URL": ",".join(eureka.urls),
            "KUBECONFIG": str(kubeconfig),
            "RESYNC_SECONDS": "60",
            "WEB_ADDRESS": "",
        }
        command = [sys.executable, "-m", "scripts.event_trace", "--operator", str(found)]
        log = (directory / "operator.log").open("wb")
        operator = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: registered() == 2, "two instances", 60.0)
            time.sleep(3.0)  # statuses and Events of the start are written
            os.kill(operator.pid, signal.SIGUSR1)
            time.sleep(0.2)
            publish(3)
            wait_until(lambda: registered() == 3, "the third instance", 10.0)
            time.sleep(0.5)
            os.kill(operator.pid, signal.SIGUSR2)
            wait_until(found.exists, "the record", 10.0)
        finally:
            operator.kill()
            operator.wait()
            log.close()
        return _calls_of_event([tuple(one) for one in json.loads(found.read_text())])


def _calls_of_event(entered: list[TraceEntry]) -> list[tuple[str, str]]:
    """Return module and function of the calls from a reflector's first event to Eureka's last answer."""
    begin = next(at for at, event, *place in entered if event == "call" and tuple(place) == _EVENT_FUNCTION)
    end = max(
        at for at, event, *place in entered if event == "return" and tuple(place) in _EUREKA_REQUEST_FUNCTIONS
    )
    return [(module, name) for at, event, module, name in entered if event == "call" and begin <= at <= end]


def _service() -> dict[str, Any]:
    port = {"name": "http", "port": 8080, "targetPort": 8080, "protocol": "TCP"}
    metadata = {"namespace": NAMESPACE, "name": APP, "labels": {"app": APP}}
    return {"metadata": metadata, "spec": {"selector": {"app": APP}, "ports": [port]}}


def _endpoint_slice(count: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{APP}-1", "labels": {"kubernetes.io/service-name": APP}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.0.0.{number + 1}"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": f"{APP}-{number}"},
            }
            for number in range(count)
        ],
    }


def main() -> int:
    """Print how many modules and calls an event passes, and with ``--calls`` each call."""
    parser = argparse.ArgumentParser(prog="python -m scripts.event_trace", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print each call")
    parser.add_argument("--operator", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.operator:
        Recorder(arguments.operator).install()
        return operate([])
    calls = trace_event()
    modules = Counter(module for module, _ in calls)
    if arguments.calls:
        for module, name in calls:
            print(f"{module}: {name}")
    for module, count in sorted(modules.items(), key=lambda one: -one[1]):
        print(f"{count:5}  {module}")
    print(f"one more pod becomes ready: {len(modules)} modules, {len(calls)} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
