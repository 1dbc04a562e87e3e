"""``py-eureka-client`` in a process of its own, since its threads, event loops and log would disturb the
tests.

Run as a program it answers lines of JSON (``tests.interop.line_client``).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.interop.line_client import Document, LineClient


class PythonClient(LineClient):
    """A client that registers itself with ``settings``, the arguments of its ``EurekaClient``."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        super().__init__([sys.executable, "-m", "tests.interop.python_client", json.dumps(settings)], log)

    @staticmethod
    def is_installed() -> bool:
        """Return whether this Python has ``py-eureka-client``."""
        return find_spec("py_eureka_client") is not None

    def call(self, application: str, path: str = "", **options: bool) -> str:
        """Return the body of the answer to the client's GET of a path of an application.

        :raises CallFailed: no instance answered.
        """
        body: str = self.ask("call", application, path, options)
        return body


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
