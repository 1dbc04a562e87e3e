"""A foreign client in a process of its own, which is asked by lines of JSON.

A request is ``[operation, argument ...]``; the answer is ``{"result": ...}`` or ``{"error": ...}``. At the
end of its input the client deregisters and ends.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.waiting import wait_until

Document = dict[str, Any]

WAIT_SECONDS = 20.0
"""Longest time until a change reaches a client, which fetches the registry every second, in seconds."""


class CallFailed(Exception):
    """The client answered a request with an error."""


class LineClient:
    """A client that has registered itself once the object is made.

    :param log: the file of its standard error.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"},
            text=True,
        )
        self.ask("started")

    def close(self) -> None:
        """End the client, if it runs; it deregisters itself."""
        if self._process.returncode is None:
            self._process.communicate(timeout=30)
            self._log.close()

    def kill(self) -> None:
        """Kill the client, so that its registration stays."""
        self._process.kill()
        self._process.communicate(timeout=30)
        self._log.close()

    def instances(self, application: str, *ids: str) -> list[Document]:
        """Return the instances in the client's copy of the registry, once they have exactly these ids."""
        seen: list[Document] = []

        def is_there() -> bool:
            nonlocal seen
            seen = self.ask("instances", application)
            return sorted(instance["instanceId"] for instance in seen) == sorted(ids)

        try:
            wait_until(is_there, f"{application} in the client's copy", WAIT_SECONDS)
        except LabError as error:
            raise AssertionError(f"{error}; it has {json.dumps(seen)}") from None
        return seen

    def ask(self, *request: object) -> Any:
        """Ask the client one request.

        :raises CallFailed: the client answers with an error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client ended: {Path(self._log.name).read_text()}"
        answer = json.loads(line)
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]
