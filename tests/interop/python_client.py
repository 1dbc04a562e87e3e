"""``py-eureka-client`` in a process of its own: its threads, event loops and log would disturb the tests.

Run as a program it carries out one JSON request a line from standard input: ``[operation, argument ...]``,
answered by a line ``{"result": ...}`` or ``{"error": ...}``. Its end is the end of the input.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.waiting import wait_until

Document = dict[str, Any]

WAIT_SECONDS = 20.0
"""How long a change may take to reach the client, which fetches the registry every second."""


class PythonClient:
    """A client that registers itself under ``settings``, the arguments of its ``EurekaClient``."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.python_client", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"},
            text=True,
        )
        self._ask("started")

    @staticmethod
    def is_installed() -> bool:
        """Whether this Python has ``py-eureka-client``."""
        return find_spec("py_eureka_client") is not None

    def close(self) -> None:
        """End it; it takes its registration back."""
        self._process.communicate(timeout=30)
        self._log.close()

    def instances(self, application: str, *ids: str) -> list[Document]:
        """The instances that are up in its copy of the registry, once these and no others are there."""
        seen: list[Document] = []

        def ask() -> bool:
            nonlocal seen
            seen = self._ask("instances", application)
            return sorted(instance["instanceId"] for instance in seen) == sorted(ids)

        try:
            wait_until(ask, f"py-eureka-client's {application}", WAIT_SECONDS)
        except LabError as error:
            raise AssertionError(f"{error}; it has {json.dumps(seen)}") from None
        return seen

    def call(self, application: str, path: str = "", **options: bool) -> str:
        """The body of the answer to its GET of a path of an application.

        :raises CallFailed: no instance answered.
        """
        body: str = self._ask("call", application, path, options)
        return body

    def _ask(self, *request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"py-eureka-client ended: {Path(self._log.name).read_text()}"
        answer = json.loads(line)
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]


class CallFailed(Exception):
    """What py-eureka-client raised."""


def _serve(settings: Document) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # it logs to standard output
    client = import_module("py_eureka_client.eureka_client").EurekaClient(**settings)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.start())
    for line in sys.stdin:
        operation, *arguments = json.loads(line)
        answer: Document
        try:
            if operation == "call":
                application, path, options = arguments
                work = client.do_service(application, path, **options)
                answer = {"result": loop.run_until_complete(work)}
            elif operation == "instances":
                found = client.applications.get_application(arguments[0]).up_instances
                answer = {"result": [_described(instance) for instance in found]}
            else:
                answer = {"result": operation}
        except Exception as error:  # noqa: BLE001 - it is raised again where the request came from
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    loop.run_until_complete(client.stop())


def _described(instance: Any) -> Document:
    return {
        "instanceId": instance.instanceId,
        "app": instance.app,
        "hostName": instance.hostName,
        "ipAddr": instance.ipAddr,
        "port": [instance.port.port, instance.port.enabled],
        "securePort": [instance.securePort.port, instance.securePort.enabled],
        "vipAddress": instance.vipAddress,
        "secureVipAddress": instance.secureVipAddress,
        "status": instance.status,
        "zone": instance.zone,
        "metadata": instance.metadata,
        "dataCenter": instance.dataCenterInfo.name,
        "lease": [instance.leaseInfo.renewalIntervalInSecs, instance.leaseInfo.durationInSecs],
        "homePageUrl": instance.homePageUrl,
    }


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
