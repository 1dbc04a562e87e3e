"""Runs that are interrupted, killed or get no answer, and secrets that must stay hidden, by either
provider.
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.protocol.peer import Peer
from lab.listing import list_uncached, wait_until_listed
from lab.proxy import Proxy
from lab.workloads import wait_for
from tests.contract.plugin import NOBODY
from tests.system.shells import (
    DYNAMIC,
    NATIVE,
    ProviderStack,
    Shell,
    Wanted,
    Workshop,
    eurekube,
    held,
    host,
    hosts,
    kill_plugins,
    running,
    with_options,
)
from tests.system.stacks import Shop, needs_pulumi, needs_python_sdk

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(1200)]

AT_ONCE = ("--yes", "--skip-preview")


def test_an_interrupted_drain_is_undone(
    shell: Shell, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """After Ctrl-C, a time-out or a kill of everything, drained instances are UP again, by the next up at
    the latest.
    """
    stack = ProviderStack(workshop, f"interrupted-{shell.name}", {"url": plain_url})
    names = [f"drained-{number}" for number in range(6)]  # more than a plugin's process serves by itself

    def wanted(drain_seconds: int) -> list[Wanted]:
        row = shell.many("drained-row", {"a": host(1), "b": host(2)}, drain_seconds=drain_seconds)
        return [*(shell.one(name, drain_seconds=drain_seconds) for name in names), row]

    hasty = [with_options(shell.one("hasty", drain_seconds=600), custom_timeouts={"delete": "20s"})]
    hasty = hasty if shell is NATIVE else []

    def standing() -> set[tuple[Status, bool]]:
        found = [plain.read(*key) for key in keys]
        return {(each.status, LEAVING_KEY in each.metadata) for each in found if each is not None}

    stack.wants(*wanted(600), *hasty)
    stack.up()
    keys = [each.key for each in list_uncached(plain.url) if each.application != "HASTY"]
    assert len(keys) == 8
    out, back = {(Status.OUT_OF_SERVICE, True)}, {(Status.UP, False)}
    if hasty:
        stack.wants(*wanted(600))
        began = time.monotonic()
        assert "custom time-out ends before the 600 seconds" in stack.up(fails=True)
        assert time.monotonic() - began < 300
        assert held(plain, "hasty")["hasty"].status is Status.UP

    # The engine of the dynamic provider asks twice as well, as fast as a person does.
    for signals in (1, 2) if shell is DYNAMIC else (1,):
        with running(stack, "destroy", *AT_ONCE) as process:
            wait_for(lambda: standing() == out, "all to be out of service", 120)
            for _ in range(signals):
                os.killpg(process.pid, signal.SIGINT)
                time.sleep(0.2 * (signals - 1))
            output, _ = process.communicate(timeout=240)  # far sooner than a drain of ten minutes
            assert process.returncode != 0
            assert shell is DYNAMIC or "in service again" in output
            wait_for(lambda: standing() == back, "all to be back", 60)

    # Nobody is left to undo it: our mark says to the next run that it is ours to undo.
    with running(stack, "destroy", *AT_ONCE):
        wait_for(lambda: standing() == out and stack.state_is_at_rest(), "all to be out of service", 120)
    stack.pulumi("cancel", "--yes")
    assert standing() == out
    stack.wants(*wanted(600))
    stack.up(*stack.urns("--target", *names, "drained-row"))
    assert standing() == back

    # A person's wish is nobody else's to undo.
    plain.set_status(held(plain, names[0])[names[0]], Status.OUT_OF_SERVICE)
    stack.wants(*wanted(1), *(shell.one("hasty") for _ in hasty))
    stack.up()
    assert held(plain, names[0])[names[0]].status is Status.OUT_OF_SERVICE
    stack.destroy()
    assert list_uncached(plain.url) == []


@needs_python_sdk
def test_a_plugin_that_was_killed_is_healed_by_the_next_run(
    workshop: Workshop, plain: Peer, front: Proxy
) -> None:
    """If the plugin is killed between two requests of any kind of run, the next run leaves every instance
    registered once.
    """
    url = f"http://127.0.0.1:{front.port}/eureka"
    stack = ProviderStack(workshop, "killed", {"url": url})

    def wanted(number: int) -> list[Wanted]:
        single = [NATIVE.one(f"alone-{each}", host_name=f"192.0.2.{number + each}") for each in range(4)]
        return [*single, NATIVE.many("together", {"a": host(number), "b": host(number + 1)})]

    def killed(command: str, requests: int) -> None:
        """Run a command, and kill the plugin when that many of its requests have been answered."""
        front.hang_after(requests)
        with running(stack, command, *AT_ONCE) as process:
            wait_for(lambda: front.hanging_request_count > 0, "a request that is held", 120)
            assert kill_plugins(stack) > 0
            front.heal()
            output, _ = process.communicate(timeout=240)
        assert process.returncode != 0, output

    def as_wanted(number: int) -> None:
        """Check that each instance is registered once, as program and state say."""
        states = stack.states()
        for each in range(4):
            (there,) = held(plain, f"alone-{each}").values()
            assert there.host_name == f"192.0.2.{number + each}"
            assert there.incarnation == states[f"alone-{each}"]["incarnation"]
        assert hosts(plain, "together") == {"a": f"192.0.2.{number}", "b": f"192.0.2.{number + 1}"}
        assert len(list_uncached(plain.url)) == 6

    stack.wants(*wanted(10))
    killed("up", 9)
    stack.up()
    as_wanted(10)
    stack.wants(*wanted(20))
    killed("up", 9)
    stack.up()
    as_wanted(20)
    killed("destroy", 6)
    stack.destroy()
    assert list_uncached(plain.url) == []


def test_nothing_is_lost_while_no_server_answers(
    shell: Shell, workshop: Workshop, plain: Peer, front: Proxy
) -> None:
    """Without a server previews go on, even with unknown values; a refresh and other runs fail with one
    sentence each.
    """
    url = f"http://127.0.0.1:{front.port}/eureka"
    stack = ProviderStack(workshop, f"offline-{shell.name}", {})
    stack.wants(shell.one("x"))
    assert "no Eureka URL is configured: set eurekube:url" in stack.pulumi("preview", fails=True)
    stack.configure("url", url)
    stack.wants(shell.many("x", {"a": {**host(1), "port": 0}}), shell.one("y", connection="eu"))
    said = stack.pulumi("preview", fails=True)
    assert "there is no connection 'eu'" in said or "instances.a.port" in said

    def wanted(port: int) -> list[Wanted]:
        # When one was changed last, only Eureka tells, and only once it has been.
        after = {**shell.one("after"), "taken": {"zone": ["first", "last_updated"]}}
        return [shell.one("first", port=port), after, shell.many("others", {"a": host(port - 8000)})]

    front.refuse()
    stack.wants(*wanted(8080))
    created = stack.preview().operations()
    assert created == {"first": ["create"], "after": ["create"], "others": ["create"]}
    front.heal()
    stack.up()
    before = list_uncached(plain.url)
    state = stack.states()
    assert state["after"]["zone"] == state["first"]["last_updated"]

    front.refuse()
    stack.wants(*wanted(8081))
    preview = stack.preview()
    changes = {"first": ["replace"], "after": ["update"], "others": ["update"]}
    assert preview.operations() == changes
    stack.wants(*wanted(8081), shell.lookup("listed", "first"))
    if shell is DYNAMIC:  # the SDK of any native one adds a traceback
        assert f"no connection to {url}" in stack.pulumi("preview", fails=True)
    stack.configure("offline", "true")
    assert stack.preview().operations() == changes
    stack.configure("offline", None)
    stack.wants(*wanted(8081))
    assert f"no connection to {url}" in stack.refresh(fails=True)
    assert stack.states() == state
    if shell is DYNAMIC:
        output = eurekube(stack, "drift", "--stack", stack.name, code=1).stderr
        assert re.match(rf"eurekube: .*no connection to {url}", output, re.DOTALL)

    # A gateway that lost its route says 404, as a Eureka does of what it does not hold.
    front.answer(404)
    assert "answers as no Eureka does" in stack.refresh(fails=True)
    assert stack.states() == state
    if shell is NATIVE:
        # A run without the program goes by the configuration of the last update, and says how to change that.
        stack.configure("abandonedUrls", url)
        output = stack.destroy(fails=True)
        assert "answers as no Eureka does" in output
        assert "--run-program" in output
        assert stack.states() == state
        stack.destroy("--run-program")
        assert stack.states() == {}
    front.heal()
    assert list_uncached(plain.url) == before


LOOKUPS = """
import pulumi
from eurekube_provider import EurekaApplication, get_application_output, get_endpoints_output

orders = get_application_output("orders")
rating = get_endpoints_output("rating", "shop")
EurekaApplication("rating", {
    "application": "rating",
    "metadata": {"orders": orders.apply(lambda found: str(len(found.instances)))},
    "port": 8080,
    "instances": rating.apply(lambda found: {each.name: {"host_name": each.address} for each in found.ready}),
})
"""


def test_lookups_ask_nobody_in_a_preview_that_is_offline(tmp_path: Path) -> None:
    """With ``offline`` set a preview's lookups ask no server; those of an update still do."""
    stack = Shop(tmp_path, LOOKUPS, "offline", f"url={NOBODY}")
    assert f"no connection to {NOBODY}" in stack.pulumi("preview", fails=True)
    stack.configure("offline", "true")
    assert "2 to create" in stack.pulumi("preview")
    assert f"no connection to {NOBODY}" in stack.up(fails=True)


def test_what_is_derived_from_a_secret_is_a_secret(
    shell: Shell, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """State, preview, refresh and the comment on a pull request hide values derived from a secret, and
    show the others.
    """
    stack = ProviderStack(workshop, f"secrets-{shell.name}", {"url": plain_url})

    def hiding(wanted: Wanted, *paths: str) -> Wanted:
        return {**wanted, "secret": [path.split("/") for path in paths]}

    def program(number: int) -> list[Wanted]:
        hidden = {"host_name": f"hidden-host-{number}"}
        own = {**host(number), "metadata": {"zone": f"hidden-own-{number}"}}
        marks = {"zone": f"hidden-zone-{number}", "key": f"hidden-key-{number}", "open": str(number)}
        above = {"zone": f"hidden-above-{number}"}
        return [
            hiding(
                shell.one("one", application="hides", metadata=marks, **hidden),
                *("host_name", "metadata/zone", "metadata/key"),
            ),
            hiding(
                shell.one("name", application="hidden-name", metadata={"open": str(number)}), "application"
            ),
            hiding(
                shell.many("many", {"a": hidden, "b": own}, application="hides-many", metadata=above),
                *("metadata/zone", "instances/a/host_name", "instances/b/metadata/zone"),
            ),
            hiding(shell.many("hosts", {"a": hidden}, application="hides-hosts"), "instances"),
            shell.one("open", host_name=f"open-host-{number}"),
        ]

    stack.wants(*program(1))
    output = [stack.up("--diff"), stack.state_text()]
    (hidden,) = held(plain, "hidden-name").values()
    assert hidden.vip_address == "hidden-name"
    (single,) = held(plain, "hides").values()
    found = (single.host_name, single.ip_address, single.metadata["zone"])
    assert found == ("hidden-host-1", "hidden-host-1", "hidden-zone-1")
    state = stack.states()["open"]
    assert (state["host_name"], state["ip_address"]) == ("open-host-1", "open-host-1")
    # What a failed update left is found in Eureka's list, and no program says what of it was a secret.
    member = held(plain, "hides-many")["b"]
    marks = {**member.metadata, "eurekube.member": "left", "token": "hidden-token"}
    left = replace(member, instance_id="left", host_name="hidden-left", metadata=marks)
    plain.register(left)
    wait_until_listed(plain.url, [left])
    # Where a refresh finds another host, what was derived from the secret one is not among what it tells.
    for each in (*held(plain, "hides").values(), *held(plain, "hides-many").values()):
        stamp = (each.last_dirty_timestamp_ms or 0) + 1
        plain.register(replace(each, host_name="192.0.2.99", last_dirty_timestamp_ms=stamp))
    output += [stack.refresh("--diff"), stack.state_text()]
    stack.wants(*program(2))
    preview = stack.preview()
    comment = stack.project / "preview.json"
    comment.write_text(preview.text)
    summary = eurekube(stack, "summary", str(comment)).stdout
    assert "open-host-2" in summary
    output += [preview.text, summary, stack.up("--diff"), stack.state_text()]
    for text in output:
        assert "hidden" not in text.lower(), text[max(0, text.lower().index("hidden") - 300) :][:600]
    changed: list[Instance] = [*held(plain, "hides").values()]
    assert [each.ip_address for each in changed] == ["hidden-host-2"]
    stack.up("--refresh", "--expect-no-changes")
