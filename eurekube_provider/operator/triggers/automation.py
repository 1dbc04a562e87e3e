"""Runs of a stack through Pulumi's Automation API, each in a worker process of its own.

The operator itself loads no Pulumi: a worker costs memory only while it runs, and one that hangs or dies
harms no other part. A worker gets one JSON request on its standard input, and answers with one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from eurekube_provider.core.quoting import redact_secrets
from eurekube_provider.operator.triggers.targets import (
    AutomationStack,
    StackRun,
    StackRunner,
    StackRunOutcome,
    StackRunResult,
)

_log = logging.getLogger(__name__)

WORKER_COMMAND = (sys.executable, "-m", "eurekube_provider.automation")

TIMEOUT_GRACE_SECONDS = 30.0
"""Seconds after a run's own time-out that a worker may take to end before it is terminated."""

TERMINATE_WAIT_SECONDS = 30.0
"""Seconds that a worker may take to end after SIGTERM before its session is killed."""

_POLL_SECONDS = 0.2

_OUTCOME_BY_LOWER_CASE_NAME = {str(outcome).lower(): outcome for outcome in StackRunOutcome}
_MOST_LOGGED_LETTERS = 2000
"""Number of last letters of a worker's output that are logged where it gave no result."""

_EXCEPTION_LINE_PATTERN = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt))\b[^\n]*\s*\Z", re.MULTILINE
)
"""Pattern of a traceback's last line, which names the exception."""


def automation_runner(
    automation: AutomationStack,
    command: Sequence[str] = WORKER_COMMAND,
    grace_seconds: float = TIMEOUT_GRACE_SECONDS,
) -> StackRunner:
    def run_worker(run: StackRun) -> StackRunResult:
        request = {
            "action": str(run.action).lower(),
            "stack": automation.stack,
            "work_dir": automation.work_dir,
            "timeout_seconds": run.timeout_seconds,
        }
        # A session of its own: what ends the worker ends the Pulumi processes that it started, too.
        process = subprocess.Popen(
            [*command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        deadline = time.monotonic() + run.timeout_seconds + grace_seconds
        given: str | None = json.dumps(request) + "\n"
        while True:
            try:
                output, errors = process.communicate(given, timeout=_POLL_SECONDS)
                return _parse_worker_result(output, errors, process.returncode)
            except subprocess.TimeoutExpired:
                given = None
            if run.cancelled.is_set():
                _terminate_worker(process)
                return StackRunResult.failed("given up, since the operator ends")
            if time.monotonic() >= deadline:
                _terminate_worker(process)
                return StackRunResult.failed(
                    f"the worker did not end within {run.timeout_seconds:g} s and was ended; if it leaves a"
                    " lock behind, the next run releases it"
                )

    return run_worker


def _terminate_worker(process: subprocess.Popen[str]) -> None:
    """End a worker: ask it to finish what Pulumi has begun, then kill its whole session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=TERMINATE_WAIT_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _parse_worker_result(output: str, errors: str, exit_code: int) -> StackRunResult:
    answer = _parse_result_line(output)
    if answer is None:
        # Anyone who may read a status may not read what a program prints: it knows the stack's secrets.
        said = redact_secrets(errors or output, os.environ)[-_MOST_LOGGED_LETTERS:]
        _log.error(
            "failed to run a stack: its worker ended without a result, counting the run as failed",
            extra={"code": exit_code, "said": said.strip() or "nothing"},
        )
        found = _EXCEPTION_LINE_PATTERN.search(errors)
        kind = f" ({found[1].rpartition('.')[2]})" if found else ""
        return StackRunResult.failed(
            f"the worker ended with {exit_code} and without an answer{kind}; the operator's log has what it "
            "said"
        )
    outcome = _OUTCOME_BY_LOWER_CASE_NAME.get(str(answer.get("outcome")).lower(), StackRunOutcome.FAILED)
    changes = answer.get("changes")
    counts = {
        str(kind): count
        for kind, count in (changes.items() if isinstance(changes, Mapping) else ())
        if isinstance(count, int)
    }
    return StackRunResult(outcome, redact_secrets(str(answer.get("message") or ""), os.environ), counts)


def _parse_result_line(output: str) -> Mapping[str, Any] | None:
    """Return the last line that is an object with an outcome: a program may print others."""
    for line in reversed(output.splitlines()):
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, Mapping) and "outcome" in answer:
                return answer
    return None
