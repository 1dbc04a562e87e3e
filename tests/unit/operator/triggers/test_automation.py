"""The automation target with real worker processes: their request, their answer, and their end."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from eurekube_provider.core.stack_refresh import StackAction
from eurekube_provider.operator.triggers import automation
from eurekube_provider.operator.triggers.automation import automation_runner
from eurekube_provider.operator.triggers.targets import (
    AutomationStack,
    StackRun,
    StackRunOutcome,
    StackRunResult,
)
from lab.waiting import wait_until

TARGET = AutomationStack("prod", "/srv/shop")
ECHO = """
import json, sys
asked = json.loads(sys.stdin.read())
print("a line of the program")
changes = {"create": 2, "same": 1}
print(json.dumps({"outcome": "changed", "changes": changes, "seconds": 0.1, "message": repr(asked)}))
"""


def run(timeout_seconds: float = 30.0) -> StackRun:
    """Return a request for a run."""
    return StackRun("shop", "rating", StackAction.UP, "eks", {}, "abc", 1, timeout_seconds, threading.Event())


def answered(program: str, asked: StackRun | None = None, grace_seconds: float = 30.0) -> StackRunResult:
    """Run a worker with this program, and return its result."""
    return automation_runner(TARGET, (sys.executable, "-c", program), grace_seconds)(asked or run())


def test_a_worker_is_asked_and_answers() -> None:
    """The worker reads one JSON request and answers with one line of JSON; its other output is ignored."""
    result = answered(ECHO)
    assert (result.outcome, result.changes) == (StackRunOutcome.CHANGED, {"create": 2, "same": 1})
    assert result.message == repr(
        {"action": "up", "stack": "prod", "work_dir": "/srv/shop", "timeout_seconds": 30.0}
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("unchanged", StackRunOutcome.UNCHANGED),
        ("failed", StackRunOutcome.FAILED),
        ("locked", StackRunOutcome.LOCKED),
        ("something else", StackRunOutcome.FAILED),
    ],
)
def test_every_outcome(outcome: str, expected: StackRunOutcome) -> None:
    """An outcome that is not known counts as a failure."""
    result = answered(f"""print('{{"outcome": "{outcome}", "message": "so"}}')""")
    assert result == StackRunResult(expected, "so")


def test_a_worker_that_dies(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The result gives the exit code and the kind of error; the log has the output with credentials
    masked.
    """
    monkeypatch.setenv("EUREKA_PASSWORD", "hidden1")
    program = """
import os, sys
print("at https://ann:hidden2@h/ with", os.environ["EUREKA_PASSWORD"], "and Bearer hidden3", file=sys.stderr)
import pulumi_of_nobody
"""
    result = answered(program)
    assert result.outcome is StackRunOutcome.FAILED
    assert result.message == (
        "the worker ended with 1 and without an answer (ModuleNotFoundError);"
        " the operator's log has what it said"
    )
    (record,) = caplog.records
    said = vars(record)["said"]
    assert "https://[secret]@h/ with [secret] and Bearer [secret]" in said
    assert "No module named 'pulumi_of_nobody'" in said
    assert "hidden" not in said


def test_what_a_worker_answers_shows_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in a worker's message, such as a provider's error, are masked."""
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "hidden1")
    said = '{"outcome": "failed", "message": "hidden1 at http://a:b@h"}'
    assert answered(f"print({said!r})").message == "[secret] at http://[secret]@h"


def children_of(program: str, tmp_path: Path) -> str:
    """Return a program that starts a long-lived child, and writes its own and the child's process id into
    a file.
    """
    return f"""
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
path = pathlib.Path({str(tmp_path)!r}) / "new"
path.write_text(f"{{os.getpid()}} {{child.pid}}")
path.rename(path.with_name("pids"))
{program}
"""


def is_gone(pid: int) -> bool:
    """Return True if a process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    "program",
    ["time.sleep(60)", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"],
)
def test_a_worker_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """The worker's children are ended, too, also if the worker ignores SIGTERM."""
    monkeypatch.setattr(automation, "TERMINATE_WAIT_SECONDS", 0.5)
    # the deadline is short, and a loaded machine may not have come to the child by then
    asked = run(timeout_seconds=600.0)
    results: list[StackRunResult] = []
    thread = threading.Thread(
        target=lambda: results.append(answered(children_of(program, tmp_path), asked)), daemon=True
    )
    thread.start()
    pids = tmp_path / "pids"
    wait_until(pids.exists, "the worker to have started its child", 30)
    asked.cancelled.set()
    thread.join(30)
    assert results == [StackRunResult(StackRunOutcome.FAILED, "given up, since the operator ends")]
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: is_gone(pid), "the process to be gone", 10)  # type: ignore[misc]


def test_the_deadline_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not end by its deadline is killed after a grace time."""
    monkeypatch.setattr(automation, "TERMINATE_WAIT_SECONDS", 0.5)
    began = time.monotonic()
    result = answered("import time; time.sleep(60)", run(timeout_seconds=0.2), grace_seconds=0.2)
    assert time.monotonic() - began < 30
    assert result.outcome is StackRunOutcome.FAILED
    assert "did not end within 0.2 s" in result.message


def test_a_worker_is_given_the_operators_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker takes credentials and the passphrase from the environment."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///srv")
    say = 'json.dumps({"outcome": "unchanged", "message": os.environ["PULUMI_BACKEND_URL"]})'
    assert answered(f"import json, os; print({say})").message == "file:///srv"
