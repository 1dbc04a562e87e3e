"""Changes of others that a stack does not know of, with both providers, a real Pulumi CLI and a real
server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.identity import ENFORCED_KEY, INCARNATION_KEY, OWNER_KEY, RENEWER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.protocol.peer import Peer
from lab.listing import list_uncached
from lab.workloads import wait_for
from tests.system.shells import NATIVE, ProviderStack, Shell, Wanted, Workshop, by_hand, eurekube, held, host
from tests.system.stacks import needs_language_host, needs_pulumi, needs_python_sdk

pytestmark = [pytest.mark.lab, pytest.mark.pulumi, pytest.mark.slow, needs_pulumi, pytest.mark.timeout(1200)]

OTHER = "stack/acme/legacy/prod/rating"
KEYS = {
    "owner": OWNER_KEY,
    "renewer": RENEWER_KEY,
    "incarnation": INCARNATION_KEY,
    "enforced": ENFORCED_KEY,
}


def mark(eureka: Peer, instance: Instance, **marks: str) -> None:
    """Change an instance's owner or other marks, as another stack does that takes it over."""
    changed = {KEYS[name]: value for name, value in marks.items()}
    by_hand(eureka, instance, metadata={**instance.metadata, **changed})


def drifted(stack: ProviderStack, *, code: int = 2) -> dict[str, dict[str, list[str]]]:
    """Return the changes that ``eurekube drift`` reports, by the name of the resource."""
    document = json.loads(eurekube(stack, "drift", "--stack", stack.name, code=code).stdout)
    assert document["drifted"] is (code == 2)
    return {each["name"]: each["details"] for one in document["applications"] for each in one["changes"]}


def owners(stack: ProviderStack) -> dict[str, tuple[str, str]]:
    """Return each registration's owner in the inputs and in the outputs of the state."""
    return {name: (each["inputs"]["owner"], each["outputs"]["owner"]) for name, each in stack.state().items()}


def test_what_was_taken_over_is_named_and_settles(
    shell: Shell, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """Drift names the new owner, renewer, incarnation and marks; a second refresh finds nothing new, and
    up refuses.
    """
    stack = ProviderStack(workshop, f"drift-{shell.name}", {"url": plain_url})
    # Addresses of their own: a neighbour would be in the way of what is registered again.
    single = ("taken", "again", "mark", "gone")
    wanted = [shell.one(name, host_name=f"192.0.2.{at}") for at, name in enumerate(single, start=60)]
    row = {"a": host(1), "b": host(2), "c": host(3), "d": host(4)}
    wanted += [shell.one("over", host_name="192.0.2.70", status="UP"), shell.many("row", row)]
    stack.wants(*wanted)
    stack.up()
    ours = owners(stack)
    before = {name: held(plain, name)[name] for name in (*single, "over")}
    members = held(plain, "row")
    mark(plain, before["taken"], owner=OTHER, renewer="theirs", incarnation="0123abcd")
    mark(plain, before["again"], incarnation="0123abcd")
    mark(plain, before["mark"], enforced="DOWN")
    plain.set_status(before["over"], Status.OUT_OF_SERVICE)
    mark(plain, members["a"], owner=OTHER, renewer="theirs")
    mark(plain, members["b"], renewer="theirs")
    mark(plain, members["c"], incarnation="0123abcd")
    mark(plain, members["d"], enforced="DOWN")

    document = drifted(stack)
    incarnations = {name: [before[name].incarnation, "0123abcd"] for name in ("taken", "again")}
    owner = f"stack/organization/shop/{stack.name}"
    assert document == {
        "taken": {
            "renewer": ["eurekube", "theirs"],
            "owner": [f"{owner}/taken", OTHER],
            "incarnation": incarnations["taken"],
        },
        "again": {"incarnation": incarnations["again"]},
        "mark": {"enforced status": ["", "DOWN"]},
        "over": {"status": ["UP", "OUT_OF_SERVICE"]},
        "a": {"renewer": ["eurekube", "theirs"], "owner": [f"{owner}/row", OTHER]},
        "b": {"renewer": ["eurekube", "theirs"]},
        "c": {"incarnation": [members["c"].incarnation, "0123abcd"]},
        "d": {"enforced status": ["", "DOWN"]},
    }
    options = ("--stack", stack.name, "--format", "markdown")
    report = eurekube(stack, "drift", *options, code=2).stdout
    assert "Nothing" not in report
    assert f"`owner` `{owner}/taken` → `{OTHER}`" in report

    stack.refresh()
    assert owners(stack) == ours
    stack.refresh("--expect-no-changes")
    assert owners(stack) == ours
    # An update heals all but what belongs to others, which stays a difference.
    assert {name: set(each) for name, each in drifted(stack).items()} == {"taken": {"owner"}, "a": {"owner"}}
    operations = {name: ["update"] for name in ("taken", "again", "mark", "over", "row")}
    assert stack.preview().operations() == operations
    said = stack.up("--refresh", "--continue-on-error", fails=True)
    assert said.count(f"belongs to {OTHER} and was left as it is") >= 2
    assert (held(plain, "taken")["taken"].owner, held(plain, "row")["a"].owner) == (OTHER, OTHER)
    assert held(plain, "again")["again"].incarnation == before["again"].incarnation
    stack.refresh()  # of an application in which one failed the others were healed
    stack.refresh("--expect-no-changes")

    # Given back, an update heals the rest; what a run found of an earlier one settles, too.
    by_hand(plain, held(plain, "taken")["taken"], metadata=before["taken"].metadata)
    by_hand(plain, held(plain, "row")["a"], metadata=members["a"].metadata)
    plain.deregister(*before["gone"].key)
    stack.up()
    assert held(plain, "gone")["gone"].host_name == before["gone"].host_name
    stack.refresh("--expect-no-changes")
    assert drifted(stack, code=0) == {}
    assert {key: each.metadata for key, each in held(plain, "row").items()} == {
        key: each.metadata for key, each in members.items()
    }
    stack.unchanged()
    stack.destroy()
    assert all(not held(plain, name) for name in (*single, "over", "row"))


def register_as_own_client(eureka: Peer, instance: Instance, **changes: Any) -> None:
    """Register an instance as its own client does at its start: with its own metadata, and none of our
    marks.
    """
    by_hand(eureka, instance, **{"metadata": {"management.port": "9000"}, **changes})


def test_a_client_that_renews_itself_comes_back(
    shell: Shell, workshop: Workshop, plain_url: str, plain: Peer
) -> None:
    """An update takes over an instance that its own client registered again at its id and address; a
    removal leaves an unowned one.
    """
    stack = ProviderStack(workshop, f"itself-{shell.name}", {"url": plain_url})
    own = {"renewer": "self", "metadata": {"tier": "1"}}
    named = ("plain-up", "refreshed", "kept", "moved", "stolen")
    wanted = [shell.one(name, host_name=f"192.0.2.{at}", **own) for at, name in enumerate(named, start=80)]
    stack.wants(*wanted, shell.many("crew", {"a": host(90), "b": host(91)}, **own))
    stack.up()
    before: Mapping[str, Instance] = {name: held(plain, name)[name] for name in named}
    crew = held(plain, "crew")

    def is_ours(name: str, one: Instance) -> bool:
        (have,) = (each for each in held(plain, name).values() if each.key == one.key)
        return have.metadata == one.metadata

    # The next update sees it, without a refresh, and its preview shows no more than the update does.
    register_as_own_client(plain, before["plain-up"])
    register_as_own_client(plain, crew["a"])
    stack.up()
    assert is_ours("plain-up", before["plain-up"])
    assert is_ours("crew", crew["a"])
    stack.unchanged()

    for one in (before["refreshed"], crew["b"]):
        register_as_own_client(plain, one)
    document = drifted(stack)
    assert document["refreshed"]["owner"][1] == document["b"]["owner"][1] == "nobody that Eurekube knows"
    assert document["refreshed"]["metadata.tier"] == ["1", ""]
    stack.refresh()
    stack.refresh("--expect-no-changes")
    stack.up("--refresh")
    assert is_ours("refreshed", before["refreshed"])
    assert is_ours("crew", crew["b"])
    stack.unchanged()

    # At another address it may be anybody; what another stack owns is that stack's, wherever it is.
    register_as_own_client(plain, before["moved"], ip_address="192.0.2.99", host_name="192.0.2.99")
    mark(plain, before["stolen"], owner=OTHER)
    for _ in range(2):  # also when the state has what the refresh before has found
        said = stack.up("--refresh", "--continue-on-error", fails=True)
        assert f"MOVED {before['moved'].instance_id} was not registered by Eurekube" in said
        assert f"STOLEN {before['stolen'].instance_id} belongs to {OTHER}" in said
    assert held(plain, "moved")["moved"].host_name == "192.0.2.99"
    assert held(plain, "stolen")["stolen"].owner == OTHER

    register_as_own_client(plain, before["kept"])
    said = stack.destroy()
    assert "was left as it is" in said
    left = {name for name in (*named, "crew") if held(plain, name)}
    assert left == {"kept", "moved", "stolen"}


def test_an_update_plan_holds(shell: Shell, workshop: Workshop, plain_url: str, plain: Peer) -> None:
    """A preview shows an update's outputs as unknown, though the state has older values."""
    stack = ProviderStack(workshop, f"plan-{shell.name}", {"url": plain_url})

    def program(tier: str) -> list[Wanted]:
        single = shell.one("lone", host_name="192.0.2.100", metadata={"tier": tier})
        several = shell.many("pair", {"a": host(101), "b": host(102)}, metadata={"tier": tier})
        return [{**single, "export": "last_updated"}, {**several, "export": "statuses"}]

    stack.wants(*program("1"))
    stack.up()
    plain.set_status(held(plain, "pair")["a"], Status.OUT_OF_SERVICE)
    stack.up("--refresh")
    before = stack.outputs()
    stack.wants(*program("2"))
    plan = str(stack.project / f"{stack.name}.json")
    stack.pulumi("preview", "--save-plan", plan)
    plain.clear_status(held(plain, "pair")["a"])
    said = stack.up("--plan", plan)
    assert "violates plan" not in said
    after = stack.outputs()
    assert after["lone"] > before["lone"]
    assert (before["pair"], after["pair"]) == ({"a": "OUT_OF_SERVICE"}, {})
    stack.destroy()


@needs_python_sdk
def test_what_is_got_says_whose_it_is(workshop: Workshop, plain_url: str, plain: Peer) -> None:
    """A resource that a stack only gets belongs to its owner, and a refresh shows when that changes."""
    stack = ProviderStack(workshop, "got", {"url": plain_url})
    for number, marks in enumerate(({OWNER_KEY: OTHER}, {OWNER_KEY: OTHER}, {}), start=1):
        there = Instance("FOUND", f"vm-{number}", f"vm-{number}", f"192.0.2.{110 + number}", Port(8080))
        plain.register(replace(there, metadata={"tier": "1", **marks}))
    wait_for(lambda: len(list_uncached(plain_url, "FOUND")) == 3, "three instances")
    stack.wants(NATIVE.got("theirs", "Instance", "found/vm-1"), NATIVE.got("all", "Application", "found"))
    stack.up()
    assert stack.outputs() == {"theirs": OTHER, "all": ""}
    state = stack.state()
    assert {name: each["id"] for name, each in state.items()} == {"theirs": "FOUND/vm-1", "all": "FOUND"}
    # What another Eurekube has is left out of an application, as by its import.
    assert set(state["all"]["outputs"]["instances"]) == {"vm-3"}
    stack.refresh("--expect-no-changes")
    mark(plain, held(plain, "found")["vm-1"], owner="cluster/eu/shop/rating")
    stack.up("--refresh")
    assert stack.outputs()["theirs"] == "cluster/eu/shop/rating"
    stack.destroy()
    assert set(held(plain, "found")) == {"vm-1", "vm-2", "vm-3"}


@needs_language_host("the CLI asks before it imports")
def test_what_is_imported_settles_at_once(workshop: Workshop, plain_url: str, plain: Peer) -> None:
    """An imported instance or application shows no change, and stays registered when a stack that does not
    own it is destroyed.
    """
    stack = ProviderStack(workshop, "imported", {"url": plain_url})
    plain.register(Instance("FOUND", "vm-3", "vm-3", "192.0.2.113", Port(8080), metadata={"tier": "1"}))
    wait_for(lambda: len(list_uncached(plain_url, "FOUND")) == 1, "the instance")
    quietly = ("--yes", "--protect=false", "--skip-preview", "--generate-code=false")
    said = stack.pulumi("import", "eurekube:index:Application", "one", "found/vm-3", *quietly, fails=True)
    assert "must be the name of an application" in said
    stack.pulumi("import", "eurekube:index:Instance", "one", "found/vm-3", *quietly)
    assert stack.state()["one"]["id"] == "FOUND/vm-3"
    stack.refresh("--expect-no-changes")
    stack.destroy()
    assert set(held(plain, "found")) == {"vm-3"}
