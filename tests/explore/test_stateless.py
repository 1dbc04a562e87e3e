"""No order of events makes `eurekube apply`, `remove`, `drain` or `undrain` do harm."""

from __future__ import annotations

import logging

import pytest

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.stateless.stack_registrations import STALE_LIST_WARNING
from tests.explore.commands import Drained
from tests.explore.engine import Engine, Run
from tests.explore.explorer import singles, tried
from tests.explore.programs import EDITS, SECOND_URL, URL, Edit, application, instance
from tests.explore.settled import Settled
from tests.explore.shells import Properties
from tests.explore.stateless import Stateless
from tests.explore.world import Fault, World, owned

APPLIED = (
    "remove with a drain, and think better of it",
    "another id, with a drain",
    "status enforced",
    "application: drain, and think better of it",
    "application: one more, one less",
)
"""Names of the edits that are tried here; ``make explore`` tries all that need no engine."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Disable logging, since thousands of lost requests are logged."""
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("edit", [one for one in EDITS if one.name in APPLIED], ids=lambda edit: edit.name)
def test_every_single_fault_of_an_apply(edit: Edit) -> None:
    """After any single fault the next apply or remove completes the work, without a state."""
    assert edit.needs_no_engine
    settled = Settled()
    for faults in ({}, *singles(edit, tool=Stateless, settled=settled)):
        assert not (failure := tried(edit, faults, tool=Stateless, settled=settled)), failure


def test_an_apply_says_that_a_list_is_too_old_to_remove_by() -> None:
    """Apply says that a registration of the last run is not yet in any list; it goes with the next
    removal.
    """
    one, other = instance(instance_id="one"), instance(instance_id="other", host_name="10.0.0.2")
    world = World(EurekaCluster([URL]))
    with owned(world):
        tool = Stateless(world)
        assert tool.up({"i": one, "j": other}).ended_well
        tool.up({"i": one})
        world.cluster.clock.advance(5_000)
        assert STALE_LIST_WARNING in tool.said
        assert world.cluster.servers[URL].registry.get("BILLING", "other")
        world.cluster.clock.advance(40_000)
        tool.up({"i": one})
        assert world.cluster.servers[URL].registry.get("BILLING", "other") is None
        assert STALE_LIST_WARNING not in tool.said


def test_a_removal_finds_what_one_of_the_servers_has_forgotten() -> None:
    """A removal finds an instance that only one of two servers still holds and that the program does not
    name any more.
    """
    both = {"service_url": f"{URL},{SECOND_URL}"}
    one = instance(instance_id="one", **both)
    world = World(EurekaCluster([URL, SECOND_URL]))
    with owned(world):
        tool = Stateless(world)
        other = instance(instance_id="other", host_name="10.0.0.2", **both)
        assert tool.up({"i": one, "j": other}).ended_well
        world.cluster.clock.advance(40_000)
        world.cluster.restart(URL)
        assert tool.up({"i": one}).ended_well
        world.cluster.clock.advance(3_000)
        assert world.cluster.servers[SECOND_URL].registry.get("BILLING", "other") is None
        assert world.cluster.servers[SECOND_URL].registry.get("BILLING", "one")


@pytest.mark.parametrize(
    "properties",
    [instance(instance_id="vm-1", drain_seconds=30), application("a", "b", drain_seconds=30)],
    ids=["instance", "application"],
)
def test_a_registration_by_another_run_during_a_drain_stays(properties: Properties) -> None:
    """If a `pulumi up` of the same stack replaces a registration during the drain, the removal leaves it."""
    world = World(EurekaCluster([URL]))
    with owned(world):
        engine, tool = Engine(world), Stateless(world)
        assert engine.up({"i": properties}).ended_well
        world.cluster.clock.advance(40_000)
        tool.up({"i": properties})
        left = list(properties.get("instances", ["i"]))

        def replaces(what: str) -> None:
            if left and "value=OUT_OF_SERVICE" in what and left.pop() and not left:
                world.cluster.clock.advance(1_000)
                runs.append(engine.up({"parent/i": properties}))

        runs: list[Run] = []
        world.watch = replaces
        assert tool.up({}).ended_well
        assert runs[0].ended_well
        held = [lease.holder.status for lease in world.cluster.servers[URL].registry.all_leases()]
        assert held == ["UP"] * len(properties.get("instances", ["i"]))
        assert all(line.startswith("! ") for line in tool.said)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("is_back", [False, True], ids=["drain", "undrain"])
def test_every_single_fault_of_a_drain(servers: int, *, is_back: bool) -> None:
    """A drain is done only when every server shows it, and an undrain restores the rest."""
    calm = Drained({}, servers, is_back=is_back)
    assert not calm.run()
    for at in range(calm.requests):
        for fault in Fault:
            drained = Drained({at: fault}, servers, is_back=is_back)
            assert not (violations := drained.run()), (at, fault, violations, drained.world.trace)


def test_a_drain_that_lied_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer finds a drain that neither sets the status nor checks it."""
    monkeypatch.setattr("eurekube_provider.cli.drain_command.reasons_not_drained", lambda _: [])
    monkeypatch.setattr("eurekube_provider.eureka.protocol.peer.Peer.set_status", lambda *_: True)
    assert Drained({}).run()
