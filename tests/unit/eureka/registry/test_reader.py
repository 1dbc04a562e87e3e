"""Readings of a registry, also at a take-over, and their effects."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import ConfigurationError, RegistryDenied, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.registry import Refused
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import ServerStatus
from eurekube_provider.eureka.registry.registry_fetcher import RegistryFetcher
from lab.waiting import wait_until
from tests.unit.eureka.servers import (
    OWNER,
    STATUS,
    Balanced,
    RecordingListener,
    TwoServers,
    after_a_restart,
    behind_a_balancer,
    instance,
    older,
    started_now,
)


def test_deltas_are_followed_where_there_is_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the start, after a failure or a restart, nor from a take-over until the first list that shows
    everything, nor behind a load balancer.
    """
    doubts: list[bool] = []
    servers, follows = Balanced(older(600)), True

    def read(_: object, started: Mapping[str, int], *, in_doubt: bool, wants_proofs: bool) -> list[Instance]:
        assert list(started) == [servers.peers[0].url]
        assert not wants_proofs, "nobody follows"
        doubts.append(in_doubt)
        return []

    def doubtful(registry: EurekaRegistry) -> bool:
        registry.reader.read()
        return doubts.pop()

    monkeypatch.setattr(RegistryFetcher, "read", read)
    registry = behind_a_balancer(servers, follows_another=lambda: follows)
    assert doubtful(registry)
    assert not doubtful(registry)
    registry.reachability.failed(RegistryUnreachable("away"))
    assert doubtful(registry)
    assert not doubtful(registry)
    registry.take_over(0)
    assert doubts.pop()
    assert doubtful(registry)
    monkeypatch.setattr(windows, "LIST_LAG", 0.0)
    registry.take_over(0)
    assert doubts.pop()
    assert not doubtful(registry)
    monkeypatch.setattr(windows, "LIST_LAG", 600.0)
    follows = False
    registry.take_over(0)
    assert doubts.pop()
    assert not doubtful(registry)
    servers.servers = [started_now()]
    assert doubtful(registry)
    servers = Balanced(older(600), older(700))
    assert doubtful(behind_a_balancer(servers))


def test_a_follower_learns_of_removals_during_a_change_of_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lists are in doubt for half a minute, in which nothing else would prove that a machine left. Not by
    the reading for which the take-over waits, nor by the first of all, nor behind a load balancer.
    """
    wanted: list[bool] = []
    servers = Balanced(older(600))

    def read(*_: object, wants_proofs: bool, **__: object) -> list[Instance]:
        wanted.append(wants_proofs)
        return []

    monkeypatch.setattr(RegistryFetcher, "read", read)
    registry = behind_a_balancer(servers)
    registry.follow(lambda: None)
    registry.reader.read()
    registry.take_over(0)
    registry.reader.read()
    assert wanted == [False, False, True]
    balanced = behind_a_balancer(Balanced(older(600), older(700)))
    balanced.follow(lambda: None)
    balanced.reader.read()
    balanced.reader.read()
    assert wanted[-1] is False


def test_a_postponed_list_is_learned_after_the_delta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller works on the news meanwhile. Where there is no such list, nothing waits. Where there is no
    such list, nothing waits.
    """
    reported: list[list[str]] = []
    owed: list[list[Instance]] = []
    monkeypatch.setattr(windows, "DEFERRED_LIST", 0.0)
    monkeypatch.setattr(RegistryFetcher, "read", lambda *_, **__: [instance("by-delta")])
    monkeypatch.setattr(RegistryFetcher, "has_deferred_list", property(lambda _: bool(owed)))
    monkeypatch.setattr(RegistryFetcher, "read_deferred_list", lambda _: owed.pop())
    registry = behind_a_balancer(Balanced(older(600)))
    registry.follow(lambda: reported.append(sorted(one.instance_id for one in registry.known())))
    registry.reader.read()
    assert reported == [["by-delta"]]
    owed.append([instance("by-delta"), instance("by-list")])
    registry.reader.read()
    assert reported == [["by-delta"], ["by-delta"], ["by-delta", "by-list"]]
    assert owed == []


def test_a_server_restarted_during_a_reading_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It did not say yet since when it runs, and lists nothing already: a person's status is not lost."""
    servers, out = Balanced(older(600)), Status.OUT_OF_SERVICE
    registry = behind_a_balancer(servers)
    persons = replace(instance("persons"), status=out, overridden_status=out)
    registry.reader.learn([persons], is_complete=True)
    answers = iter([None, started_now()])

    def status() -> ServerStatus:
        answer = next(answers)
        if answer is None:
            raise RegistryUnreachable("no answer")
        return answer

    servers.peers[0].status = status  # type: ignore[method-assign]
    monkeypatch.setattr(RegistryFetcher, "read", lambda *_, **__: [])
    registry.reader.read()
    assert registry.table.lost_override(persons.key) is out


def test_a_server_that_starts_again_is_read_within_half_a_second() -> None:
    """Nobody calls forgotten instances until then. One failure says little, and is followed by a pause."""
    registry = behind_a_balancer(Balanced(older(600)))
    registry.reader.learn([], is_complete=True)
    seldom, error = registry.reader.pause_seconds, RegistryUnreachable("refused")
    pauses = []
    for _ in range(3):
        registry.reachability.failed(error)
        pauses.append(registry.reader.pause_seconds)
    assert pauses == [windows.RESTART_CHECK, windows.AWAY_CHECK, windows.AWAY_CHECK]
    registry.reader.learn([], is_complete=True)
    assert registry.reader.pause_seconds == seldom


def test_a_server_that_refuses_us_is_asked_no_sooner() -> None:
    """It runs, and hashes a wrong password each time: trying again at once helps nobody."""
    registry = behind_a_balancer(Balanced(older(600)))
    registry.reader.learn([], is_complete=True)
    for _ in range(3):
        registry.reachability.failed(RegistryDenied("wants other credentials", status_code=401))
        assert registry.reader.pause_seconds == windows.RESTART_CHECK


def test_it_is_read_more_often_with_followers_and_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for mirrors; not for syncers alone, which learn of each other by their own writes."""
    registry = behind_a_balancer(Balanced(older(600)))
    seldom = registry.reader.interval_seconds
    assert seldom > windows.FOLLOWED_INTERVAL

    def after(*names: str) -> float:
        registry.reader.learn([instance(name) for name in names], is_complete=True)
        return registry.reader.interval_seconds

    assert [after("a"), after("a", "b")] == [seldom, seldom]
    registry.follow(lambda: None)
    assert after("a") == seldom  # the first that is followed
    assert after("a") == seldom
    assert after("a", "c") == windows.FOLLOWED_INTERVAL
    assert after("a", "c") == windows.FOLLOWED_INTERVAL
    monkeypatch.setattr(windows, "FOLLOWED", -1.0)  # it is over
    assert after("a") == seldom


def test_who_takes_over_looks_for_what_only_other_servers_hold() -> None:
    """The server that was asked first had lost its memory: what is stale on the others is found, too."""
    stale = instance("stale")
    recorded = RecordingListener()
    registry = EurekaRegistry(TwoServers([stale]), Cluster("lab", "u"), "operator", 600.0)
    registry.table.listener = recorded
    registry.start()
    try:
        wait_until(lambda: registry.reachability.was_read, "the first reading", 10.0)
        registry.take_over(0)
        wait_until(lambda: OWNER in recorded.owners, "its owner to be looked at", 30.0)
        assert registry.table.owned(OWNER) == [stale]
    finally:
        registry.stop()


def test_who_takes_over_lists_later_who_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that a frozen server missed is known to nobody any more when the leader before has ended.

    What a stack removed meanwhile is not taken for registered: renewals would bring it back everywhere.
    """
    monkeypatch.setattr(windows, "RESTART_CHECK", 0.02)
    stale = instance("stale")
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stacks = replace(instance("vm"), metadata=whose)
    servers, recorded = TwoServers([stale, stacks]), RecordingListener()
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.table.listener = recorded
    away = servers.peers[1]
    servers.silent = {away.url: RegistryUnreachable("away")}

    def some_looks() -> None:
        before = servers.looks
        wait_until(lambda: servers.looks > before + 3, "some looks at the servers", 30.0)

    registry.start()
    try:
        wait_until(lambda: registry.reachability.was_read, "the first reading", 10.0)
        registry.take_over(0)
        wait_until(lambda: servers.lists, "a list of all that answer", 30.0)
        some_looks()
        assert (recorded.owners, len(registry.table)) == ([], 0)
        servers.silent = {}
        wait_until(lambda: recorded.owners, "its owner to be looked at", 30.0)
        assert (recorded.owners, registry.table.owned(OWNER)) == ([OWNER], [stale])
        assert stacks.key not in registry.renewals
        registry.table.gone(stale.key)
        some_looks()  # once: the repair looks after what this replica removes
        assert recorded.owners == [OWNER]
    finally:
        registry.stop()


def test_a_take_over_leaves_behind_who_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that is asked first: it is not waited for as long as otherwise, nor asked for the list."""
    monkeypatch.setattr(windows, "GRACE", 30.0)
    hangs = threading.Event()
    asked: list[str] = []

    def status(peer: Peer) -> ServerStatus:
        if peer.url == peers.peers[0].url:
            hangs.wait(30.0)
        return STATUS

    def list_unless(peer: Peer, _: bytes) -> tuple[bytes, list[Instance]]:
        asked.append(peer.url)
        return b"list", [instance("held")]

    monkeypatch.setattr(Peer, "status", status)
    monkeypatch.setattr(Peer, "list_unless", list_unless)
    peers = Peers(Connection(tuple(f"http://{name}/eureka" for name in "abc")), waits_for_all=False)
    registry = EurekaRegistry(peers, Cluster("lab", "u"), "operator", 600.0)
    started = time.monotonic()
    try:
        registry.take_over(0)
        assert time.monotonic() - started < 10.0
    finally:
        hangs.set()
        peers.close()
    assert asked == [peers.peers[1].url]
    assert registry.table.owned(OWNER) == [instance("held")]


def test_nothing_is_learned_of_another_cluster_of_the_name() -> None:
    """Another cluster has our name, and a take-over is the first to read: its syncers' instances, of which we
    have no syncer, would be taken for what deleted ones left behind.
    """
    metadata = {"eurekube.owner": OWNER, "eurekube.cluster-uid": "another"}
    recorded = RecordingListener()
    registry = EurekaRegistry(
        TwoServers([replace(instance("theirs"), metadata=metadata)]),
        Cluster("lab", "u"),
        "operator",
        600.0,
        check_cluster=True,
    )
    registry.table.listener = recorded
    registry.take_over(0)
    assert "in use by another cluster" in str(registry.condition())
    assert (recorded.conditions, recorded.owners, len(registry.table)) == (1, [], 0)
    assert isinstance(registry.condition(), Refused)


def test_what_a_restarted_server_forgot_stands_on_the_others() -> None:
    """Its list is not all there is: somebody else's instance may keep a place, or an address, from us."""
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.start()
    try:
        wait_until(lambda: registry.reachability.was_read, "the first reading", 10.0)
        assert registry.table.get(foreign) is not None
    finally:
        registry.stop()


def test_what_nobody_can_be_asked_for_is_kept() -> None:
    """A server came back empty while the one that holds it does not answer."""
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.take_over(0)
    assert registry.table.get(foreign) is not None
    servers.silent = {servers.peers[1].url: RegistryUnreachable("away")}
    registry.take_over(0)
    assert registry.table.get(foreign) is not None


def test_what_registers_itself_beside_ours_has_us_look() -> None:
    """Ours was registered before a list showed it; once for each change, and not for another application."""
    recorded = RecordingListener()
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    registry.table.listener = recorded
    ours, itself = instance("pod"), replace(instance("itself"), metadata={})
    other = replace(itself, application="other")
    registry.reader.learn([ours], is_complete=True)
    for listed, expected in (
        ([ours, other], []),
        ([ours, other, itself], [ours.owner]),
        ([ours, itself], []),
        ([ours], [ours.owner]),
    ):
        for again in (expected, []):
            recorded.owners.clear()
            registry.reader.learn(listed, is_complete=True)
            assert recorded.owners == again


def test_a_cluster_name_that_is_in_use_with_another_uid_is_refused() -> None:
    """Also where only another server tells of it: the one that was listed was restarted a moment ago."""
    whose = {"eurekube.owner": OWNER, "eurekube.cluster-uid": "another"}
    theirs = replace(instance("theirs"), metadata=whose)
    ours = replace(theirs, metadata={**whose, "eurekube.cluster-uid": "u"})
    others = replace(theirs, metadata={**whose, "eurekube.owner": "cluster/other/shop/rating"})
    for held, is_refused in ((theirs, True), (ours, False), (others, False)):
        servers, cluster = TwoServers([held]), Cluster("lab", "u")
        registry = EurekaRegistry(servers, cluster, "operator", 600.0, check_cluster=True)
        if is_refused:
            with pytest.raises(ConfigurationError, match="has UID another, this cluster has u"):
                registry.reader.read()
        else:
            registry.reader.read()
        assert registry.reachability.was_read is not is_refused


def test_what_nobody_expected_ends_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work between two readings runs on the thread that reads."""
    monkeypatch.setattr(windows, "RESTART_CHECK", 0.02)
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    rounds: list[int] = []

    def catch_up() -> None:
        rounds.append(len(rounds))
        raise RuntimeError("a bug")

    monkeypatch.setattr(registry.reader, "catch_up", catch_up)
    registry.start()
    try:
        registry.take_over(0)
        wait_until(lambda: len(rounds) > 2, "the next rounds", 30.0)
        assert all(loop.is_alive for loop in registry.liveness())
    finally:
        registry.stop()
