"""Preview, up and destroy that refresh registrations first: they see drift, and no failure of Eureka stops
them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from eurekube_provider.eureka.protocol.peer import Peer
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.proxy import Proxy
from tests.system.shells import NATIVE, ProviderStack, Shell, Workshop, by_hand, eurekube, held, host
from tests.system.stacks import HAS_PYTHON_SDK, Stack, needs_pulumi, needs_python_sdk, python_sdk

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(900)]

UNREAD = "was not compared with Eureka, so that the state is taken as it is"


def marked(stack: ProviderStack) -> set[str]:
    """Return the registrations in the state that the engine refreshes before each update."""
    return {name for name, each in stack.state().items() if each.get("refreshBeforeUpdate")}


def test_a_plain_preview_shows_drift_of_metadata(
    shell: Shell, tmp_path: Path, plain_url: str, plain: Peer
) -> None:
    """The native provider is told by its configuration to refresh first, the dynamic one by an option of
    the project.
    """
    workshop = Workshop(tmp_path, python_sdk(tmp_path) if HAS_PYTHON_SDK else None)
    config = {"url": plain_url}
    if shell is NATIVE:
        config["refreshBeforeUpdate"] = "true"
    else:
        project = workshop.project / "Pulumi.yaml"
        options = {**yaml.safe_load(project.read_text()), "options": {"refresh": "always"}}
        project.write_text(yaml.safe_dump(options))
    stack = ProviderStack(workshop, "drift", config)
    stack.wants(shell.one("drifted", metadata={"tier": "1"}), shell.many("row", {"a": host(1), "b": host(2)}))
    stack.up()
    before = {"drifted": held(plain, "drifted")["drifted"], "row": held(plain, "row")["b"]}
    for each in before.values():
        by_hand(plain, each, metadata={**each.metadata, "tier": "99"})
    assert stack.preview().operations() == {"drifted": ["update"], "row": ["update"]}
    stack.up()
    assert held(plain, "drifted")["drifted"].metadata == before["drifted"].metadata
    assert held(plain, "row")["b"].metadata == before["row"].metadata
    stack.up("--expect-no-changes")
    by_hand(plain, before["drifted"], metadata={**before["drifted"].metadata, "tier": "99"})
    plain.deregister(*before["row"].key)
    stack.destroy()
    assert (held(plain, "drifted"), held(plain, "row")) == ({}, {})


@needs_python_sdk
def test_no_run_waits_for_an_eureka_that_is_away(workshop: Workshop, front: Proxy, plain: Peer) -> None:
    """Without Eureka preview and up continue from the state, and say so; a check for drift reports the
    failure.
    """
    stack = ProviderStack(
        workshop, "away", {"url": f"http://127.0.0.1:{front.port}/eureka", "refreshBeforeUpdate": "true"}
    )
    wanted = NATIVE.one("billing"), NATIVE.many("row", {"a": host(1)})
    stack.wants(*wanted)
    stack.up()
    assert marked(stack) == {"billing", "row"}

    front.refuse()
    assert UNREAD in stack.pulumi("preview", "--expect-no-changes")
    assert UNREAD in stack.up("--expect-no-changes")
    assert UNREAD in stack.refresh()
    assert marked(stack) == {"billing", "row"}
    eurekube(stack, "drift", "--stack", stack.name, code=1)
    output = stack.destroy(fails=True)
    assert "--run-program" in output
    assert stack.state().keys() == {"billing", "row"}
    offline = Stack(stack.project, {**stack.environment, "EUREKUBE_OFFLINE": "1"})
    assert "EUREKUBE_OFFLINE says that nobody is asked" in offline.pulumi("preview", "--expect-no-changes")

    front.heal()
    # It is off from the run after the one that learns it, and on by a refresh after that.
    stack.configure("refreshBeforeUpdate", "false")
    stack.up()
    stack.up("--expect-no-changes")
    assert marked(stack) == set()
    front.refuse()
    assert UNREAD not in stack.pulumi("preview", "--expect-no-changes")
    front.heal()
    stack.configure("refreshBeforeUpdate", "true")
    stack.up()
    stack.refresh()
    assert marked(stack) == {"billing", "row"}
    stack.destroy()
    assert (held(plain, "billing"), held(plain, "row")) == ({}, {})


@needs_python_sdk
def test_a_rotated_password_stops_no_preview_and_no_up(workshop: Workshop, secured: Peer) -> None:
    """The refresh uses the password in the state, and the update the current one."""
    config = {"url": secured.url, "user": EUREKA_USER, "refreshBeforeUpdate": "true"}
    stack = ProviderStack(workshop, "rotated", config)
    stack.configure_secret("password", EUREKA_PASSWORD)
    stack.wants(NATIVE.one("billing"))
    stack.up()

    def rotate() -> None:
        state = stack.resources()
        for each in state:
            if each["type"] == "pulumi:providers:eurekube":
                each["inputs"]["password"] = each["outputs"]["password"] = "another"
        stack.write_state(state)

    rotate()
    output = stack.pulumi("preview")
    assert UNREAD in output
    assert "answered 401" in output
    assert "error" not in output
    stack.wants(NATIVE.one("billing", zone="zone-b"))
    assert UNREAD in stack.up()
    assert held(secured, "billing")["billing"].metadata["zone"] == "zone-b"
    stack.up("--expect-no-changes")
    rotate()
    output = stack.destroy(fails=True)
    assert UNREAD in output
    assert "--run-program" in output
    stack.destroy("--run-program")
    assert held(secured, "billing") == {}


@needs_python_sdk
def test_a_url_that_moved_stops_no_preview_and_no_up(
    workshop: Workshop, front: Proxy, plain: Peer, secured: Peer
) -> None:
    """Preview and up survive a move from a server that answers, and from one that is gone and listed in
    ``abandonedUrls``.
    """
    old = f"http://127.0.0.1:{front.port}/eureka"
    stack = ProviderStack(workshop, "moved", {"url": old, "user": EUREKA_USER, "refreshBeforeUpdate": "true"})
    stack.configure_secret("password", EUREKA_PASSWORD)
    stack.wants(NATIVE.one("billing"))
    stack.up()
    stack.configure("url", secured.url)
    assert stack.preview().operations() == {"billing": ["replace"]}
    stack.up()
    assert (held(plain, "billing"), set(held(secured, "billing"))) == ({}, {"billing"})

    stack.configure("url", old)
    stack.configure("connections.old", {"url": secured.url, "user": EUREKA_USER, "password": EUREKA_PASSWORD})
    stack.up()
    assert set(held(plain, "billing")) == {"billing"}
    front.refuse()
    stack.configure("url", secured.url)
    assert UNREAD in stack.pulumi("preview")
    output = stack.up(fails=True)
    assert set(held(secured, "billing")) == {"billing"}
    assert f"pulumi config set eurekube:abandonedUrls {old}" in output
    stack.configure("abandonedUrls", json.dumps([old]))
    stack.up()
    stack.up("--expect-no-changes")
    stack.destroy()
    assert held(secured, "billing") == {}
    assert set(held(plain, "billing")) == {"billing"}, "of the abandoned server nothing was asked"
