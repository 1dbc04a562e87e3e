"""One run of a stack as a process: a request on standard input, a result as one line on standard output.

::

    {"action": "up", "stack": "dev", "work_dir": "/srv/shop", "timeout_seconds": 300}
    {"action": "up", "stack": "dev", "outcome": "changed", "changes": {"same": 4, "update": 1},
     "seconds": 6.1, "message": "up of dev: 4 same, 1 update"}

Request and result are JSON. The exit code is 0 unless the outcome is ``failed``. SIGTERM ends the run in
order, which may take 30 seconds. Credentials and the passphrase come from the environment, never from the
request.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eurekube_provider.automation.stack import StackRunner, StackTarget
from eurekube_provider.automation.stack_run import RunOutcome, StackOperation
from eurekube_provider.core.errors import ConfigurationError

_TYPE_BY_REQUEST_FIELD = {"action": str, "stack": str, "work_dir": str, "timeout_seconds": int | float}


def main() -> int:
    """Serve one request, and return the exit code."""
    result: Mapping[str, Any]
    try:
        request = _parse_request(sys.stdin.read())
        seconds = request.get("timeout_seconds", 600)
        runner = StackRunner(StackTarget(request["stack"], Path(request["work_dir"]), seconds))
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, lambda one, _: runner.cancel(f"cancelled by {signal.Signals(one).name}"))
        result = runner.run(StackOperation(request["action"])).to_json()
    except ConfigurationError as error:
        result = {"outcome": "failed", "changes": {}, "seconds": 0.0, "message": str(error)}
    with suppress(BrokenPipeError):  # the caller does not read any more
        print(json.dumps(result), flush=True)
    return 1 if result["outcome"] == RunOutcome.FAILED else 0


def _parse_request(text: str) -> dict[str, Any]:
    """Return the request; refuse one that cannot be understood."""
    try:
        request = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"the request is no JSON: {error}") from None
    if not isinstance(request, dict):
        raise ConfigurationError("the request must be one JSON object")
    unknown = sorted(set(request) - set(_TYPE_BY_REQUEST_FIELD))
    if unknown:
        raise ConfigurationError(
            f"the request has a field {unknown[0]!r}: it may have {', '.join(_TYPE_BY_REQUEST_FIELD)}"
        )
    for name, kind in _TYPE_BY_REQUEST_FIELD.items():
        if name == "timeout_seconds" and name not in request:
            continue
        if not isinstance(request.get(name), kind) or not request[name] or isinstance(request[name], bool):
            raise ConfigurationError(f"the request's {name} is missing or cannot be used")
    if request["action"] not in list(StackOperation):
        raise ConfigurationError(f"action {request['action']!r}: must be one of {', '.join(StackOperation)}")
    if request.get("timeout_seconds", 1) <= 0:
        raise ConfigurationError("the request's timeout_seconds must be above 0")
    return request
