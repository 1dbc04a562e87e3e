"""Stacks run by the automation worker as the operator starts it, with a real Pulumi CLI and a file backend.

The program's resources wait for a file, the gate, so that a test can act in the middle of a run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.automation import Outcome, Target, preview, up
from eurekube_provider.automation.locks import ProcessRecords, is_running
from lab.workloads import wait_for
from tests.system.stacks import needs_pulumi, own_pulumi, python_project

pytestmark = [pytest.mark.pulumi, needs_pulumi]

PROGRAM = """
import json
from pathlib import Path

from gated import Gated

for name in json.loads(Path("wanted.json").read_text()):
    Gated(name)
"""
GATED = """
import os
import time
from pathlib import Path

from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider


class Provider(ResourceProvider):
    def create(self, props):
        Path("arrived.new").write_text(str(os.getpid()))
        Path("arrived.new").rename("arrived")
        while Path("closed").exists():
            time.sleep(0.05)
        if Path("broken").exists():
            raise Exception("register RATING: no connection to http://eureka")
        return CreateResult("it", {})

    def diff(self, id, olds, news):
        return DiffResult(changes=False)


class Gated(Resource):
    def __init__(self, name):
        super().__init__(Provider(), name, {})
"""


class Project:
    """A project with one stack, and the workers that run it."""

    def __init__(self, directory: Path) -> None:
        self.directory = python_project(directory / "project", PROGRAM)
        (self.directory / "gated.py").write_text(GATED)
        self.locks = directory / "backend" / ".pulumi" / "locks" / "organization" / "shop" / "dev"
        self.home = directory / "home"
        self.environment = own_pulumi(directory)
        self._started: list[subprocess.Popen[str]] = []
        subprocess.run(
            ["pulumi", "stack", "init", "dev", "--no-select", "--non-interactive"],
            cwd=self.directory,
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def wants(self, *names: str) -> None:
        """Change the resources that the program makes."""
        (self.directory / "wanted.json").write_text(json.dumps(names))

    def mark(self, name: str, *, there: bool) -> None:
        """Create or delete a file that closes the gate or breaks the provider."""
        if there:
            (self.directory / name).touch()
        else:
            (self.directory / name).unlink()

    def start(self, action: str, stack: str = "dev") -> subprocess.Popen[str]:
        """Start a worker with one action."""
        request = {"action": action, "stack": stack, "work_dir": str(self.directory), "timeout_seconds": 120}
        worker = subprocess.Popen(
            [sys.executable, "-m", "eurekube_provider.automation"],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(worker)
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(request))
        worker.stdin.close()
        return worker

    def start_and_stop_at_the_gate(self) -> subprocess.Popen[str]:
        """Start a worker that does an ``up``, and wait until it stands at the gate in the middle of a
        creation.
        """
        self.mark("closed", there=True)
        (self.directory / "arrived").unlink(missing_ok=True)
        worker = self.start("up")
        wait_for((self.directory / "arrived").exists, "a creation", 60)
        return worker

    def run(self, action: str, stack: str = "dev") -> dict[str, Any]:
        """Start a worker and wait for its answer."""
        return answer(self.start(action, stack))

    def started_cli(self) -> int:
        """Return the process id of the running CLI, as the worker recorded it."""
        (record,) = (self.home / "eurekube-runs").glob("*.json")
        return int(json.loads(record.read_text())["pid"])

    def locked(self) -> list[Path]:
        """Return the lock files of the stack."""
        return list(self.locks.glob("*.json"))

    def close(self) -> None:
        """Kill the workers that a test left running."""
        for worker in self._started:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()


def answer(worker: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a worker, and return its answer, with which the exit code must agree."""
    assert worker.stdout is not None
    with worker.stdout as output:
        (line,) = output.read().splitlines()
    document: dict[str, Any] = json.loads(line)
    assert worker.wait(timeout=60) == (document["outcome"] == "failed")
    return document


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Create a project with an empty stack dev."""
    made = Project(tmp_path)
    yield made
    made.close()


def test_what_became_of_a_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reports that it changed the stack, changed nothing, or failed, with counts and a sentence; the
    next run finishes a failed one.
    """
    project.wants("a")
    output = project.run("preview")
    assert output["changes"] == {"create": 2}
    assert output["outcome"] == "changed"
    output = project.run("up")
    assert output.pop("seconds") > 0
    assert output == {
        "action": "up",
        "stack": "dev",
        "outcome": "changed",
        "changes": {"create": 2},
        "message": "up of dev: 2 create",
    }
    assert project.run("up")["outcome"] == "unchanged"
    assert project.run("refresh")["changes"] == {"same": 2}
    project.wants("a", "b")
    project.mark("broken", there=True)
    output = project.run("up")
    assert output["outcome"] == "failed"
    assert output["message"].startswith("up of dev failed: ")
    assert "register RATING: no connection to http://eureka" in output["message"]
    project.mark("broken", there=False)
    assert project.run("up")["changes"] == {"create": 1, "same": 2}
    output = project.run("up", stack="nobody")
    assert output["message"] == "up of nobody failed: no stack named 'nobody' found"
    # The same as a function, for a program of one's own.
    for key, value in project.environment.items():
        monkeypatch.setenv(key, value)
    project.wants("b")
    run = preview(Target("dev", project.directory))
    assert (run.outcome, run.changes) == (Outcome.CHANGED, {"delete": 1, "same": 2})
    assert [(step.operation, step.name) for step in run.steps] == [("delete", "a")]


def test_a_run_that_was_killed_leaves_a_stack_that_the_next_can_use(project: Project) -> None:
    """A run releases the lock of a dead run, does nothing while a living run holds the lock, and never
    breaks another person's lock.
    """
    project.wants("a")
    project.start_and_stop_at_the_gate().kill()
    cli = project.started_cli()
    output = project.run("up")
    assert output["outcome"] == "locked"
    assert f"(process {cli})" in output["message"]
    assert "nothing was done" in output["message"]

    provider = int((project.directory / "arrived").read_text())
    os.kill(cli, signal.SIGKILL)
    assert is_running(provider)
    assert project.locked()
    project.mark("closed", there=False)
    output = project.run("refresh")
    assert output["outcome"] == "unchanged", output
    assert output["message"].endswith("the lock of an earlier run of ours that had died was released")
    assert project.locked() == []
    assert list((project.home / "eurekube-runs").glob("*.json")) == []
    assert not is_running(provider)  # it would have gone on for the dead run
    output = project.run("up")
    assert (output["outcome"], output["message"]) == ("changed", "up of dev: 1 create, 1 same")

    foreign = project.locks / "0ba90a3d-6d56-45b9-a905-4a06bcc09baa.json"
    content = {"pid": cli, "username": "ci", "hostname": "builder-1", "timestamp": "2026-01-02T03:04:05Z"}
    foreign.write_text(json.dumps(content))
    output = project.run("refresh")
    assert output["outcome"] == "locked"
    assert f"dev is locked by ci@builder-1 (process {cli}) since 2026-01-02T03:04:05" in output["message"]
    assert foreign.exists()


def test_the_lock_of_a_living_run_is_never_broken(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of a living run stays, even if another copy of the project asks, or if it was taken while a
    dead run's lock was judged.
    """
    project.wants("a")
    first = project.start_and_stop_at_the_gate()
    twin = project.directory.with_name("twin")
    shutil.copytree(project.directory, twin, symlinks=True)
    for key, value in project.environment.items():
        monkeypatch.setenv(key, value)
    other = Target("organization/shop/dev", twin)
    reported = up(other)
    assert reported.outcome is Outcome.LOCKED
    assert f"another run of ours (worker {first.pid})" in reported.message

    first.kill()
    os.kill(project.started_cli(), signal.SIGKILL)
    dead = project.locked()
    living: list[subprocess.Popen[bytes]] = []
    kill_orphaned_providers = ProcessRecords.kill_orphaned_providers

    def judged_and_then(records: ProcessRecords) -> None:
        """Release the stack and begin an ``up`` as a person would, just after the worker has judged the
        lock.
        """
        kill_orphaned_providers(records)
        for lock in dead:
            lock.unlink()
        (project.directory / "arrived").unlink()
        command = ["pulumi", "up", "--yes", "--skip-preview", "--stack", "dev", "--non-interactive"]
        living.append(subprocess.Popen(command, cwd=project.directory, stdout=subprocess.DEVNULL))
        wait_for((project.directory / "arrived").exists, "a creation", 60)

    monkeypatch.setattr(ProcessRecords, "kill_orphaned_providers", judged_and_then)
    reported = up(other)
    (locked,) = project.locked()
    assert json.loads(locked.read_text())["pid"] == living[0].pid
    assert reported.outcome is Outcome.LOCKED
    assert f"(process {living[0].pid})" in reported.message
    project.mark("closed", there=False)
    assert living[0].wait(timeout=60) == 0


def test_a_worker_that_is_killed_alone_lets_its_run_end_in_order(project: Project) -> None:
    """If only the worker is killed, the CLI finishes its run and releases the stack."""
    project.wants("a")
    project.start_and_stop_at_the_gate().kill()
    project.mark("closed", there=False)
    wait_for(lambda: not project.locked(), "the stack to be released", 60)
    assert project.run("up")["changes"] == {"same": 2}


def test_a_run_that_is_cancelled_releases_the_stack(project: Project) -> None:
    """A cancelled run releases the stack even if a resource never answers, and the next run completes it."""
    project.wants("a")
    worker = project.start_and_stop_at_the_gate()
    worker.send_signal(signal.SIGTERM)
    reported = answer(worker)
    assert (reported["outcome"], reported["message"]) == ("failed", "up of dev failed: cancelled by SIGTERM")
    assert project.locked() == []
    project.mark("closed", there=False)
    assert project.run("up")["outcome"] == "changed"
