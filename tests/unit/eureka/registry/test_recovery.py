"""What is registered again where a renewal finds nothing, and what was removed and stays away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry import recovery
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from tests.unit.eureka.servers import (
    STATUS,
    Balanced,
    Holding,
    TwoServers,
    after_a_restart,
    behind_a_balancer,
    instance,
    of_a_stack,
    older,
    renewed_after,
    started_now,
)


@pytest.mark.parametrize("forgot", [0, 1])
def test_what_one_server_behind_the_url_forgot_is_restored(forgot: int) -> None:
    """A load balancer sends the question who holds it to each in its turn: all are asked."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(older(0), older(1))
    servers.held[1 - forgot] = [stacks]
    registry = behind_a_balancer(servers, looks=6 + forgot)
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals


def test_what_a_person_removed_stays_away_behind_a_load_balancer() -> None:
    """Both servers answer in turn, and none was restarted: it is renewed no more and not restored."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(older(0), older(1))
    registry = behind_a_balancer(servers)
    registry.recovery.missing([stacks], None)
    assert stacks.key not in registry.renewals
    assert servers.restored == []


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_persons_status_comes_back_only_with_what_servers_forgot(is_restarted: bool) -> None:
    """Not where somebody removed the instance, and not what the operator itself had taken out."""
    servers = TwoServers([])
    registry = after_a_restart(servers)
    if is_restarted:
        registry.restarts.notice()
    out = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    persons = replace(instance("persons"), **out)  # type: ignore[arg-type]
    leaving = replace(instance("ours"), metadata={**persons.metadata, "eurekube.leaving": "true"}, **out)  # type: ignore[arg-type]
    for one in (persons, leaving):
        registry.instances.registered(one)
    servers.peers[0].status = lambda: STATUS  # type: ignore[method-assign]
    registry.recovery.missing([persons, leaving], None)
    assert registry.table.lost_override(leaving.key) is Status.UNKNOWN
    lost = Status.OUT_OF_SERVICE if is_restarted else Status.UNKNOWN
    assert registry.table.lost_override(persons.key) is lost


def test_what_a_restarted_server_forgot_of_a_stacks_is_restored() -> None:
    """Nobody's program runs to do it."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    servers.servers = [started_now()]
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals
    assert [one.key for one in servers.restored] == [stacks.key]


def test_what_is_nowhere_while_no_server_says_its_start_is_kept_until_one_does() -> None:
    """The server may have been restarted this moment; its next answer tells whether it was."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    registry.keep(stacks)
    servers.servers = [replace(STATUS, started_timestamp_ms=None)]
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals
    assert not servers.restored
    servers.servers = [started_now()]
    registry.recovery.missing([stacks], None)
    assert [one.key for one in servers.restored] == [stacks.key]
    assert stacks.key in registry.renewals


def test_what_is_nowhere_where_no_server_has_ever_said_its_start_was_removed() -> None:
    """It would be kept for ever."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    registry = behind_a_balancer(Balanced(replace(STATUS, started_timestamp_ms=None)))
    registry.keep(stacks)
    registry.recovery.missing([stacks], None)
    assert stacks.key not in registry.renewals


@pytest.mark.parametrize(
    ("accepted_seconds_ago", "restarted", "stands"),
    [(20.0, False, False), (100.0, False, True), (20.0, True, True)],
    ids=["removed", "may be evicted", "restarted"],
)
def test_who_lacks_a_stacks_registration_is_made_level_unless_it_removed_it(
    accepted_seconds_ago: float, restarted: bool, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepted its renewal less than a lease ago, and has run all the time: it was told to remove it."""
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    monkeypatch.setattr(
        recovery, "read_many", lambda peer, some: {one.key: peer.read(*one.key) for one in some}
    )
    monkeypatch.setattr(recovery, "bring_level", lambda peer, some: [peer.register(one) for one in some])
    registry = servers.registry()
    registry.keep(stacks)
    now = [1000.0]
    servers.table.clock = lambda: now[0]
    first = servers.peers[0]
    servers.table.accepted(first.url, [stacks])
    now[0] += accepted_seconds_ago
    del servers.held[0][stacks.key]
    if restarted:
        first.status = started_now  # type: ignore[method-assign]
    registry.recovery.missing([stacks], first)
    assert (stacks.key in servers.held[0], stacks.key in registry.renewals) == (stands, stands)


@pytest.mark.parametrize("held_on", [(), (1,)], ids=["nowhere", "at the restarted one"])
@pytest.mark.parametrize(
    ("accepted_at", "accepted_seconds_ago", "stands"),
    [(0, 20.0, False), (0, 100.0, True), (1, 20.0, True)],
    ids=["removed", "may be evicted", "restarted"],
)
def test_beside_a_restart_a_server_that_kept_its_memory_tells_what_was_removed(
    held_on: tuple[int, ...], accepted_at: int, accepted_seconds_ago: float, stands: bool
) -> None:
    """What it accepted lately, and holds no more, was removed; what it may have evicted is restored."""
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    registry = servers.registry()
    registry.keep(stacks)
    now = [1000.0]
    servers.table.clock = lambda: now[0]
    servers.table.accepted(servers.peers[accepted_at].url, [stacks])
    now[0] += accepted_seconds_ago
    for number in {0, 1}.difference(held_on):
        del servers.held[number][stacks.key]
    servers.peers[1].status = started_now  # type: ignore[method-assign]
    registry.recovery.missing([stacks], None)
    assert registry.restarts.lost_memory
    assert (stacks.key in servers.held[0], stacks.key in registry.renewals) == (stands, stands)
    assert (stacks.instance_id in renewed_after(registry, stacks)) is stands  # a list may show it for a while


def test_what_lacks_at_a_server_of_unknown_start_is_restored() -> None:
    """It answers, but does not say since when it runs: it may have forgotten what another one still holds."""
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    registry = servers.registry()
    servers.table.accepted(servers.peers[0].url, [stacks])
    del servers.held[0][stacks.key]
    silent = replace(STATUS, started_timestamp_ms=None)
    servers.peers[0].status = lambda: silent  # type: ignore[method-assign]
    registry.recovery.missing([stacks], None)
    assert stacks.key in servers.held[0]
    assert stacks.key in registry.renewals


def test_what_was_restored_without_an_answer_stays_away_once_it_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that has just started may answer too late: it carried it out, as its list shows soon."""
    stacks = of_a_stack("vm")
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    registry.keep(stacks)
    servers.servers = [started_now()]
    answers = [RegistryUnreachable("it did not answer within 5 s")]

    def register(one: Instance) -> None:
        servers.held[0].append(one)
        while answers:
            raise answers.pop()

    monkeypatch.setattr(servers.peers[0], "register", register)
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals
    registry.resync.learn(servers.held[0], is_complete=True)
    monkeypatch.setattr(RestartDetection, "lost_memory", False)  # two minutes later
    servers.held[0].clear()
    registry.recovery.missing([stacks], None)
    assert servers.held == [[]]
    assert stacks.key not in registry.renewals


def test_what_is_removed_meanwhile_is_told_to_no_server_that_is_made_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of thousands the last are told seconds after they were read from the others."""
    many = [instance(f"i{number:04}") for number in range(batch.MOST_ITEMS + 2)]
    servers = Holding(*many)
    registry = servers.registry()
    for one in many:
        registry.instances.registered(one)
    told: list[Instance] = []

    def bring_level(_: Peer, some: list[Instance]) -> None:
        told.extend(some)
        registry.instances.leaving(many[-1])
        registry.instances.gone(many[-1])

    monkeypatch.setattr(recovery, "read_many", lambda _, some: {one.key: one for one in some})
    monkeypatch.setattr(recovery, "bring_level", bring_level)
    registry.recovery.missing(many, servers.peers[0])
    assert told == many[:-1]
