"""Cancellation of Pulumi's CLI: by interruption, then by kill, always with a result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi.automation.errors import CommandError

from eurekube_provider.automation import cancellable
from eurekube_provider.automation.locks import ProcessRecords
from eurekube_provider.automation.stack import StackRunner, StackTarget
from eurekube_provider.automation.stack_run import RunOutcome, StackOperation
from eurekube_provider.core.errors import ConfigurationError
from lab.workloads import wait_for

CLI = """#!/bin/sh
if [ "$1" = version ]; then echo v3.260.0; exit 0; fi
trap 'echo "error: interrupted" >&2; {on_interrupt}' INT
touch {arrived}
while [ -e {gate} ]; do sleep 0.05; done
"""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """Yield a file; the CLI waits as long as the file exists.

    SIGINT is reset, because a shell's background jobs ignore it, and so would the CLI.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    (tmp_path / "gate").touch()
    yield tmp_path / "gate"
    signal.signal(signal.SIGINT, before)


def played(gate: Path, monkeypatch: pytest.MonkeyPatch, on_interrupt: str, cancel_seconds: float) -> Path:
    """Put a fake CLI on PATH that works until the gate opens, and runs ``on_interrupt`` when interrupted.

    :param cancel_seconds: between two interruptions, and before it is killed.
    """
    folder = gate.parent / "bin"
    folder.mkdir()
    script = CLI.format(on_interrupt=on_interrupt, arrived=gate.parent / "arrived", gate=gate)
    (folder / "pulumi").write_text(script)
    (folder / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PULUMI_HOME", str(gate.parent / "home"))
    monkeypatch.setattr(cancellable, "CANCEL_GRACE_SECONDS", cancel_seconds)
    return gate.parent


def test_a_deadline_cancels_in_order(gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its deadline a run is interrupted, and the result says after which time."""
    folder = played(gate, monkeypatch, "exit 8", cancel_seconds=30)
    (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")

    class Runner(StackRunner):
        def cancel(self, why: str) -> None:
            wait_for((folder / "arrived").exists, "the CLI to listen")
            super().cancel(why)

    runner = Runner(StackTarget("dev", folder, timeout_seconds=0.3))
    result = runner.run(StackOperation.REFRESH)
    assert (result.outcome, result.changes, result.steps) == (RunOutcome.FAILED, {}, ())
    assert result.message == "refresh of dev failed: it took longer than 0.3 s and was cancelled"
    assert list((folder / "home" / "eurekube-runs").glob("*.json")) == []


def test_what_does_not_listen_is_killed(gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CLI that ignores two interruptions is killed; its record stays, as it may have left a lock."""
    folder = played(gate, monkeypatch, ":", cancel_seconds=2)
    cli = cancellable.CancellableCommand(ProcessRecords(folder / "runs", "dev"))
    errors: list[Exception] = []

    def run() -> None:
        try:
            cli.run(["up"], str(folder), {})
        except CommandError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for((folder / "arrived").exists, "the CLI to run")
    cli.cancel("no time")
    thread.join(60)
    (error,) = errors
    assert "code: -9" in str(error)
    assert str(error).count("error: interrupted") >= 1
    assert len(list((folder / "runs").iterdir())) == 1  # it may have left its lock
    # A cancelled run starts nothing more.
    (folder / "arrived").unlink()
    with pytest.raises(CommandError, match="no time"):
        cli.run(["up"], str(folder), {})
    assert not (folder / "arrived").exists()


def test_a_run_that_cannot_be_written_down_is_not_begun(gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose process record cannot be written is not started: its lock could not be recognized later."""
    folder = played(gate, monkeypatch, "exit 8", cancel_seconds=30)
    (folder / "runs").touch()
    cli = cancellable.CancellableCommand(ProcessRecords(folder / "runs", "dev"))
    with pytest.raises(ConfigurationError, match="nothing was begun"):
        cli.run(["up"], str(folder), {})
    gate.unlink()
    assert not (folder / "arrived").exists()
