"""Several stacks in one process by Pulumi's Automation API, each in a thread: no stack affects another.

One is cancelled in its drain, the program of another one raises, and the rest are previewed, refreshed and
destroyed meanwhile, by either provider.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi import automation

from eurekube_provider import EurekaApplication, EurekaInstance
from eurekube_provider.automation.cancellable import CancellableCommand
from eurekube_provider.automation.locks import ProcessRecords
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.resources.program import leave_quietly_when_interrupted
from lab.listing import list_uncached
from lab.workloads import wait_for
from tests.system.stacks import needs_pulumi, needs_python_sdk, own_pulumi, python_sdk

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    pytest.mark.slow,
    needs_pulumi,
    needs_python_sdk,
    pytest.mark.timeout(600),
]

STEADY = ("dynamic", "native")


class Project:
    """A project of inline stacks, each with a program of its own."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        own = {**own_pulumi(directory), "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"}
        self._environment = {**own, "PULUMI_PYTHON_CMD": sys.executable}
        self._records = ProcessRecords(directory / "runs", "inline")

    def stack(
        self, name: str, program: Callable[[], None], command: automation.PulumiCommand | None = None
    ) -> automation.Stack:
        """Create or select a stack."""
        folder = self._directory / name
        folder.mkdir(exist_ok=True)
        made = automation.create_or_select_stack(
            name,
            project_name="inline",
            program=program,
            opts=automation.LocalWorkspaceOptions(
                work_dir=str(folder), env_vars=self._environment, pulumi_command=command
            ),
        )
        made.set_config("eurekube:url", automation.ConfigValue(self._url))
        return made

    def cancellable(self) -> CancellableCommand:
        """Return a Pulumi command that a test can cancel."""
        return CancellableCommand(self._records)


def registers(shell: str, name: str, number: int, **more: Any) -> None:
    """Register an Instance and an Application of two instances, by either provider."""
    instances = {key: {"host_name": f"192.0.2.{number + at}"} for at, key in enumerate("ab", start=1)}
    one: Any = {"application": name, "host_name": f"192.0.2.{number}", "port": 8080, **more}
    many: Any = {"application": f"{name}-row", "port": 8080, "instances": instances}
    if shell == "native":
        sdk = importlib.import_module("pulumi_eurekube")  # which the tests make
        made = sdk.Instance(name, **one)
        sdk.Application(f"{name}-row", **many)
    else:
        made = EurekaInstance(name, **one)
        EurekaApplication(f"{name}-row", **many)
    pulumi.export("id", made.instance_id)


def held(url: str, name: str) -> dict[str, Status]:
    """Return the statuses of a stack's instances at the server, by host."""
    owner = f"stack/organization/inline/{name}/"
    return {
        each.host_name: each.status for each in list_uncached(url) if (each.owner or "").startswith(owner)
    }


def test_stacks_in_threads_do_not_reach_each_other(
    plain: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stack ends as it would alone, and Eureka holds what each program says."""
    url = plain.url
    monkeypatch.syspath_prepend(python_sdk(tmp_path))
    project = Project(tmp_path, url)
    on_interrupt, environment = signal.getsignal(signal.SIGINT), dict(os.environ)
    together, is_draining = threading.Barrier(4, timeout=120), threading.Event()
    printed: dict[str, list[str]] = {name: [] for name in (*STEADY, "cancelled", "raising")}

    def steady(shell: str) -> None:
        number = 10 if shell == "native" else 20
        hosts = {f"192.0.2.{number + at}": Status.UP for at in range(3)}

        def program() -> None:
            leave_quietly_when_interrupted()
            registers(shell, shell, number)
            if not is_draining.is_set():  # in its first run
                together.wait()

        stack = project.stack(shell, program)
        tell = printed[shell].append
        made = stack.up(on_output=tell)
        assert made.outputs["id"].value == f"{shell}.{shell}.inline:{shell}:8080"
        assert held(url, shell) == hosts
        is_draining.wait(120)
        for _ in range(2):
            assert stack.preview(on_output=tell, expect_no_changes=True).change_summary == {"same": 3}
            stack.refresh(on_output=tell, expect_no_changes=True)
        assert held(url, shell) == hosts
        stack.destroy(on_output=tell)
        assert held(url, shell) == {}

    def cancelled() -> None:
        def program() -> None:
            registers("native", "cancelled", 30, drain_seconds=600)
            together.wait()

        command = project.cancellable()
        project.stack("cancelled", program).up()
        stack = project.stack("cancelled", program, command)

        def cancel() -> None:
            wait_for(lambda: held(url, "cancelled")["192.0.2.30"] is Status.OUT_OF_SERVICE, "the drain", 60.0)
            is_draining.set()
            command.cancel("cancelled by a person")

        with ThreadPoolExecutor(1) as thread:
            cancelling = thread.submit(cancel)
            with pytest.raises(automation.CommandError):
                stack.destroy(on_output=printed["cancelled"].append)
            cancelling.result()
        assert command.cancel_reason
        assert held(url, "cancelled")["192.0.2.30"] is Status.UP

    def raising() -> None:
        def program() -> None:
            registers("dynamic", "raising", 40)
            together.wait()
            raise LookupError("of the program that raises")

        stack = project.stack("raising", program)
        with pytest.raises(automation.CommandError):
            stack.up(on_output=printed["raising"].append)
        assert any("of the program that raises" in line for line in printed["raising"])

    with ThreadPoolExecutor(4) as threads:
        runs = [*(threads.submit(steady, shell) for shell in STEADY)]
        runs += [threads.submit(cancelled), threads.submit(raising)]
        for ended in runs:
            ended.result()
    assert held(url, "cancelled") == {"192.0.2.30": Status.UP}  # what needs no drain went before it
    assert set(held(url, "raising").values()) <= {Status.UP}
    for name in STEADY:
        said = "\n".join(printed[name])
        assert not [word for word in ("error", "raising", "cancelled") if word in said]
    assert signal.getsignal(signal.SIGINT) is on_interrupt
    assert dict(os.environ) == environment

    # Each of the two goes on by itself.
    for name, shell, number in (("cancelled", "native", 30), ("raising", "dynamic", 40)):
        stack = project.stack(name, lambda: registers(shell, name, number))  # noqa: B023 - run at once
        stack.up()
        assert set(held(url, name).values()) == {Status.UP}
        stack.destroy()
        assert held(url, name) == {}
