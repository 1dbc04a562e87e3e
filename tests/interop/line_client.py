"""A foreign client in a process of its own, asked by lines of JSON.

A request is ``[operation, argument ...]``; the answer is ``{"result": ...}`` or ``{"error": ...}``. The end
of its input is the client's end, with which it takes its registration back.
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
"""How long a change may take to reach a client, which fetches the registry every second."""


class CallFailed(Exception):
    """The error of the client."""


class LineClient:
    """A client that has registered itself, once this is made.

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
        """End it, if it runs; it takes its registration back."""
        if self._process.returncode is None:
            self._process.communicate(timeout=30)
            self._log.close()

    def kill(self) -> None:
        """End it at once: its registration stays."""
        self._process.kill()
        self._process.communicate(timeout=30)
        self._log.close()

    def instances(self, application: str, *ids: str) -> list[Document]:
        """The instances in its copy of the registry, once these and no others are there."""
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
        """One request.

        :raises CallFailed: the client says so.
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
