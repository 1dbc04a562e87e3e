"""The commands of the guide about stacks in trouble, run as written on stacks in that trouble."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from eurekube_provider.core.model import Status
from eurekube_provider.eureka.protocol.peer import Peer
from lab.listing import list_uncached
from lab.workloads import wait_for
from tests.system.shells import DYNAMIC, NATIVE, ProviderStack, Workshop
from tests.system.stacks import ROOT, needs_pulumi, needs_python_sdk

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    pytest.mark.slow,
    needs_pulumi,
    needs_python_sdk,
    pytest.mark.timeout(600),
]

PAGE = (ROOT / "docs" / "guides" / "stacks.md").read_text("utf-8")
KILLED, ATTRIBUTES, STATE, RENAMED = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def types(stack: ProviderStack, commands: str) -> None:
    """Run a block of commands in the stack's project."""
    backend = stack.environment["PULUMI_BACKEND_URL"].removeprefix("file://")
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=stack.project,
        env={**stack.environment, "BACKEND": backend},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"


def kill_in_a_creation(stack: ProviderStack) -> None:
    """Start an ``up``, and kill the CLI with all its processes as soon as it creates a resource."""
    cli = subprocess.Popen(
        ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive"],
        cwd=stack.project,
        env=stack.environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: '"creating"' in stack.state_text(), "the creation", 60.0)
    os.killpg(cli.pid, signal.SIGKILL)
    cli.wait()
    home = stack.environment["PULUMI_HOME"].encode()
    for each in Path("/proc").glob("[0-9]*"):  # plugins have process groups of their own
        with suppress(OSError):
            if b"PULUMI_HOME=" + home in (each / "environ").read_bytes():
                os.kill(int(each.name), signal.SIGKILL)


def test_a_stack_comes_back_from_each_trouble(workshop: Workshop, plain_url: str, plain: Peer) -> None:
    """The registrations stay UP, and at the end the state contains all of them."""
    stack = ProviderStack(workshop, "prod", {"url": plain_url})
    wanted = (NATIVE.one("guided"), DYNAMIC.one("guided-too"))
    stack.wants(*wanted)
    stack.up()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        stack.configure("connections.slow.url", f"http://127.0.0.1:{silent.getsockname()[1]}/eureka")
        stack.wants(*wanted, NATIVE.one("late", connection="slow"))
        kill_in_a_creation(stack)
    stack.configure("connections", None)
    stack.wants(*wanted, NATIVE.one("late"))
    assert "locked" in stack.up(fails=True)
    types(stack, KILLED)
    assert "pending_operations" not in stack.state_text() or '"creating"' not in stack.state_text()
    stack.unchanged()

    backend = Path(stack.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
    state = backend / ".pulumi" / "stacks" / "shop" / "prod.json"
    attributes = state.with_name("prod.json.attrs")
    attributes.write_bytes(attributes.read_bytes()[:100])
    assert "unexpected EOF" in stack.pulumi("preview", fails=True)
    types(stack, ATTRIBUTES)
    stack.up()
    state.write_bytes(state.read_bytes()[:500])
    stack.pulumi("preview", fails=True)
    types(stack, STATE)
    stack.unchanged()

    types(stack, RENAMED)
    found = {each.instance_id: each for each in list_uncached(plain_url) if "shop" in (each.owner or "")}
    assert found.keys() == {f"{name}.prod.shop:{name}:8080" for name in ("guided", "guided-too", "late")}
    assert {each.status for each in found.values()} == {Status.UP}
    assert all("/shop/production/" in str(each.owner) for each in found.values())
    stack.destroy()
    assert plain.read("LATE", "late.prod.shop:late:8080") is None
