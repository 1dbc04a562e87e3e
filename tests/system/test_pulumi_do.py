"""``pulumi do``: single registrations from a shell, with and without a stack, on a real Eureka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.version import __version__
from lab.proxy import Proxy
from lab.workloads import wait_for
from scripts.sdks import PLUGIN_PATH
from tests.system.shells import Workshop, held, running
from tests.system.stacks import Stack, needs_pulumi, needs_yaml

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(600)]

INSTANCE = "eurekube:index:Instance"


@pytest.fixture
def shell_commands(tmp_path: Path, plain_url: str) -> Stack:
    """Create a project whose CLI has the plugin installed."""
    workshop = Workshop(tmp_path, None)
    (workshop.project / "wanted.json").write_text("[]")
    installed = tmp_path / "home" / "plugins" / f"resource-eurekube-v{__version__}"
    installed.mkdir(parents=True)
    (installed / PLUGIN_PATH.name).symlink_to(PLUGIN_PATH)
    return Stack(workshop.project, {**workshop.environment, "EUREKA_URL": plain_url})


def of_others(plain: Peer, instance_id: str, owner: str) -> Instance:
    """Register an instance under another owner."""
    made = Instance("BILLING", instance_id, "192.0.2.9", "192.0.2.9", Port(8080), metadata={OWNER_KEY: owner})
    plain.register(made)
    return made


def test_without_a_stack(shell_commands: Stack, plain: Peer) -> None:
    """Lists and reads need no owner name; with one, a person changes only their own instances."""

    def do(*arguments: str, fails: bool = False) -> str:
        return shell_commands.pulumi("do", "--stateless", INSTANCE, *arguments, fails=fails)

    alice, bob = (("--eurekube:do-owner", name, "--yes") for name in ("alice", "bob"))
    place = (
        "--application",
        "billing",
        "--host-name",
        "192.0.2.1",
        "--port",
        "8080",
        "--instance-id",
        "vm-1",
    )
    of_others(plain, "pod-1", "cluster/prod/shop/billing")
    assert [each["id"] for each in json.loads(do("list", "--application", "billing"))] == ["BILLING/pod-1"]
    assert json.loads(do("list", "--owner", "nobody")) == []
    assert "cluster/prod/shop/billing" in do("read", "BILLING/pod-1")
    assert "leave out --stateless, and a stack owns it" in do("create", *place, "--yes", fails=True)
    assert "leave out --stateless" in do("delete", "BILLING/pod-1", "--yes", fails=True)

    do("create", *place, *alice)
    made = held(plain, "billing")["vm-1"]
    assert made.owner == "stack/organization/pulumi:do/alice/BILLING/vm-1"
    assert "was left as it is" in do("create", *place, *alice, fails=True)
    do("patch", "BILLING/vm-1", "--zone", "zone-b", *alice)
    patched = held(plain, "billing")
    assert patched["vm-1"].metadata["zone"] == "zone-b"

    # A syncer's pod, and what another one has registered.
    for id_, who in (("BILLING/pod-1", alice), ("BILLING/vm-1", bob)):
        assert "was left as it is" in do("patch", id_, "--zone", "zone-c", *who, fails=True)
        assert "was left as it is" in do("delete", id_, *who, fails=True)
        assert "was left as it is" in do("--dry-run", "patch", id_, "--zone", "zone-c", *who, fails=True)
    assert {key: each.metadata for key, each in held(plain, "billing").items()} == {
        key: each.metadata for key, each in patched.items()
    }
    do("delete", "BILLING/vm-1", *alice)
    assert set(held(plain, "billing")) == {"pod-1"}


@pytest.mark.parametrize("has_stack", [False, pytest.param(True, marks=needs_yaml)])
def test_a_command_that_is_killed(has_stack: bool, shell_commands: Stack, plain: Peer, front: Proxy) -> None:
    """If the command is killed before any of its requests, all is done or nothing, and repeating it completes
    it.

    In a stack, which knows the resource once a request was sent, upsert replaces create.
    """
    stack = shell_commands
    stack.environment["EUREKA_URL"] = f"http://127.0.0.1:{front.port}/eureka"
    place = ("--application", "billing", "--host-name", "192.0.2.1", "--port", "8080")
    if has_stack:
        (stack.project / "Pulumi.yaml").write_text("name: shop\nruntime: yaml\n")
        stack.pulumi("stack", "init", "killed")
    resource = "billing" if has_stack else "BILLING/vm-1"
    do = ("do", INSTANCE) if has_stack else ("do", "--stateless", INSTANCE)
    who = () if has_stack else ("--eurekube:do-owner", "alice")
    commands = {
        "create": (resource, *place) if has_stack else (*place, "--instance-id", "vm-1"),
        "patch": (resource, "--zone", "zone-b"),
        "delete": (resource,),
    }

    def killed(requests: int, command: str) -> bool:
        """Kill the command once so many of its requests were answered; return whether it sent more."""
        front.hang_after(requests)
        verb = "upsert" if has_stack and command == "create" and requests else command
        with running(stack, *do, verb, *commands[command], *who, "--yes") as process:
            wait_for(
                lambda: front.hanging_request_count > 0 or process.poll() is not None,
                "a request, or the end",
                120,
            )
            is_killed = front.hanging_request_count > 0
            process.kill()
            output = process.stdout.read() if process.stdout and not is_killed else ""
            assert is_killed or process.wait() == 0, output
        front.heal()
        if has_stack and is_killed:
            stack.pulumi("cancel", "--yes")
        return is_killed

    def standing() -> str:
        found = list(held(plain, "billing").values())
        return str(found[0].metadata.get("zone", "no zone")) if found else "nothing"

    for command, before, after in (
        ("create", "nothing", "no zone"),
        ("patch", "no zone", "zone-b"),
        ("delete", "zone-b", "nothing"),
    ):
        seen = [standing()]
        while (has_stack or seen[-1] != after) and killed(len(seen) - 1, command):
            seen.append(standing())
        assert set(seen) <= {before, after}
        assert seen[:2] == [before, before]
        assert standing() == after
        assert not has_stack or set(stack.state()) == ({"billing"} if command != "delete" else set())


@needs_yaml
def test_with_a_stack(shell_commands: Stack, plain: Peer) -> None:
    """As with ``pulumi up``, the stack owns the instance and has it in its state."""
    stack = shell_commands
    (stack.project / "Pulumi.yaml").write_text("name: shop\nruntime: yaml\n")
    stack.pulumi("stack", "init", "shell")
    place = ("--application", "billing", "--host-name", "192.0.2.1", "--port", "8080")
    stack.pulumi("do", INSTANCE, "create", "billing", *place, "--yes")
    assert held(plain, "billing")["billing"].owner == "stack/organization/shop/shell/billing"
    assert set(stack.state()) == {"billing"}
    stack.pulumi("do", INSTANCE, "patch", "billing", "--zone", "zone-b", "--yes")
    assert held(plain, "billing")["billing"].metadata["zone"] == "zone-b"
    stack.pulumi("do", INSTANCE, "delete", "billing", "--yes")
    assert held(plain, "billing") == {}
    assert stack.state() == {}


def test_outside_of_a_project(shell_commands: Stack, plain: Peer) -> None:
    """Outside of a project the CLI's stack has one name for everybody: nothing is registered without an
    owner name.
    """
    stack = shell_commands
    (stack.project / "Pulumi.yaml").unlink()
    place = ("--application", "billing", "--host-name", "192.0.2.1", "--port", "8080", "--yes")
    output = stack.pulumi("do", INSTANCE, "create", "billing", *place, fails=True)
    assert "run it in a project, or set organization to a name of your own" in output
    assert held(plain, "billing") == {}
    stack.pulumi("do", INSTANCE, "create", "billing", *place, "--eurekube:organization", "alice")
    owner = held(plain, "billing")["billing"].owner
    assert owner == "stack/alice/default-global-project/default/billing"
    stack.pulumi("do", INSTANCE, "delete", "billing", "--yes")
    assert held(plain, "billing") == {}
