"""Readings of a registry, in operation and at a take-over, and their effects."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import (
    ConfigurationError,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.registry import Misconfigured
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage
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
    """Full lists are read in place of deltas at the start, after a failure or a restart, after a take-over
    until a list shows everything, and behind a load balancer.
    """
    doubts: list[bool] = []
    servers, follows = Balanced(older(600)), True

    def read(
        _: object, started: Mapping[str, int], *, in_doubt: bool, wants_departure_proofs: bool
    ) -> list[Instance]:
        assert list(started) == [servers.peers[0].url]
        assert not wants_departure_proofs, "nobody follows"
        doubts.append(in_doubt)
        return []

    def doubtful(registry: EurekaRegistry) -> bool:
        registry.reader.read()
        return doubts.pop()

    monkeypatch.setattr(RegistryFetcher, "read", read)
    registry = behind_a_balancer(servers, may_follow_another_leader=lambda: follows)
    assert doubtful(registry)
    assert not doubtful(registry)
    registry.reachability.note_failure_and_check_lasting(RegistryUnreachable("away"))
    assert doubtful(registry)
    assert not doubtful(registry)
    registry.start_leading(0)
    assert doubts.pop()
    assert doubtful(registry)
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", 0.0)
    registry.start_leading(0)
    assert doubts.pop()
    assert not doubtful(registry)
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", 600.0)
    follows = False
    registry.start_leading(0)
    assert doubts.pop()
    assert not doubtful(registry)
    servers.servers = [started_now()]
    assert doubtful(registry)
    servers = Balanced(older(600), older(700))
    assert doubtful(behind_a_balancer(servers))


def test_a_follower_learns_of_removals_during_a_change_of_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When somebody follows the registry, readings in doubt ask for proofs of removals as well, because lists
    are in doubt for half a minute then. The first reading, the reading of a take-over, and readings behind a
    load balancer do not.
    """
    wanted: list[bool] = []
    servers = Balanced(older(600))

    def read(*_: object, wants_departure_proofs: bool, **__: object) -> list[Instance]:
        wanted.append(wants_departure_proofs)
        return []

    monkeypatch.setattr(RegistryFetcher, "read", read)
    registry = behind_a_balancer(servers)
    registry.call_after_reads(lambda: None)
    registry.reader.read()
    registry.start_leading(0)
    registry.reader.read()
    assert wanted == [False, False, True]
    balanced = behind_a_balancer(Balanced(older(600), older(700)))
    balanced.call_after_reads(lambda: None)
    balanced.reader.read()
    balanced.reader.read()
    assert wanted[-1] is False


def test_a_postponed_list_is_learned_after_the_delta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The follower gets a delta's instances before the postponed list is understood. Without a postponed list
    nothing waits.
    """
    reported: list[list[str]] = []
    owed: list[list[Instance]] = []
    monkeypatch.setattr(windows, "LIST_PARSE_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(RegistryFetcher, "read", lambda *_, **__: [instance("by-delta")])
    monkeypatch.setattr(RegistryFetcher, "has_deferred_list", property(lambda _: bool(owed)))
    monkeypatch.setattr(RegistryFetcher, "parse_deferred_list", lambda _: owed.pop())
    registry = behind_a_balancer(Balanced(older(600)))
    registry.call_after_reads(
        lambda: reported.append(sorted(one.instance_id for one in registry.known_instances()))
    )
    registry.reader.read()
    assert reported == [["by-delta"]]
    owed.append([instance("by-delta"), instance("by-list")])
    registry.reader.read()
    assert reported == [["by-delta"], ["by-delta"], ["by-delta", "by-list"]]
    assert owed == []


def test_a_server_restarted_during_a_reading_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance missing from the list of a server that turns out to be restarted keeps the status that a
    person set.
    """
    servers, out = Balanced(older(600)), Status.OUT_OF_SERVICE
    registry = behind_a_balancer(servers)
    persons = replace(instance("persons"), status=out, overridden_status=out)
    registry.reader.process_list([persons], is_complete=True)
    answers = iter([None, started_now()])

    def status() -> StatusPage:
        answer = next(answers)
        if answer is None:
            raise RegistryUnreachable("no answer")
        return answer

    servers.peers[0].read_status = status  # type: ignore[method-assign]
    monkeypatch.setattr(RegistryFetcher, "read", lambda *_, **__: [])
    registry.reader.read()
    assert registry.table.lost_override(persons.key) is out


def test_a_server_that_starts_again_is_read_within_half_a_second() -> None:
    """After two failures in a row a server is asked again within half a second, because callers lack the
    forgotten instances until then. After the first failure the pause is longer.
    """
    registry = behind_a_balancer(Balanced(older(600)))
    registry.reader.process_list([], is_complete=True)
    seldom, error = registry.reader.seconds_until_next_read, RegistryUnreachable("refused")
    pauses = []
    for _ in range(3):
        registry.reachability.note_failure_and_check_lasting(error)
        pauses.append(registry.reader.seconds_until_next_read)
    assert pauses == [
        windows.RESTART_CHECK_INTERVAL_SECONDS,
        windows.OUTAGE_RETRY_SECONDS,
        windows.OUTAGE_RETRY_SECONDS,
    ]
    registry.reader.process_list([], is_complete=True)
    assert registry.reader.seconds_until_next_read == seldom


def test_a_server_that_refuses_us_is_asked_no_sooner() -> None:
    """A server that refuses the credentials is never asked at the short pause: it runs, and an early retry
    would not help.
    """
    registry = behind_a_balancer(Balanced(older(600)))
    registry.reader.process_list([], is_complete=True)
    for _ in range(3):
        registry.reachability.note_failure_and_check_lasting(
            RegistryDenied("wants other credentials", status_code=401)
        )
        assert registry.reader.seconds_until_next_read == windows.RESTART_CHECK_INTERVAL_SECONDS


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RegistryUnreachable("refused"), windows.OUTAGE_RETRY_SECONDS),
        (RegistryDenied("wants other credentials", status_code=401), windows.RESTART_CHECK_INTERVAL_SECONDS),
    ],
)
def test_a_server_that_is_away_is_looked_for_between_readings(
    monkeypatch: pytest.MonkeyPatch, error: RegistryError, seconds: float
) -> None:
    """While no server can be reached, a restart is looked for twice a second even between two readings, and
    no longer once one answers; a server that refuses the credentials is asked no sooner.
    """
    server = Balanced(older(600))
    registry = behind_a_balancer(server)
    reader = registry.reader
    reader.check_between_reads()
    assert reader.seconds_until_next_check == windows.RESTART_CHECK_INTERVAL_SECONDS

    def refuse(_: Peer) -> StatusPage:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(server.peers[0], "read_status", lambda: refuse(server.peers[0]))
        reader.check_between_reads()
        assert reader.seconds_until_next_check == seconds
    reader.check_between_reads()
    assert reader.seconds_until_next_check == windows.RESTART_CHECK_INTERVAL_SECONDS


def test_it_is_read_more_often_with_followers_and_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The registry is read more often while it changes and somebody follows it, as mirrors do; syncers alone
    do not need this.
    """
    registry = behind_a_balancer(Balanced(older(600)))
    seldom = registry.reader.interval_seconds
    assert seldom > windows.FREQUENT_READ_INTERVAL_SECONDS

    def after(*names: str) -> float:
        registry.reader.process_list([instance(name) for name in names], is_complete=True)
        return registry.reader.interval_seconds

    assert [after("a"), after("a", "b")] == [seldom, seldom]
    registry.call_after_reads(lambda: None)
    assert after("a") == seldom  # the first that is followed
    assert after("a") == seldom
    assert after("a", "c") == windows.FREQUENT_READ_INTERVAL_SECONDS
    assert after("a", "c") == windows.FREQUENT_READ_INTERVAL_SECONDS
    monkeypatch.setattr(windows, "FREQUENT_READS_AFTER_CHANGE_SECONDS", -1.0)  # it is over
    assert after("a") == seldom


def test_who_takes_over_looks_for_what_only_other_servers_hold() -> None:
    """After a take-over a stale instance is found on the second server, although the first one lost its
    memory.
    """
    stale = instance("stale")
    recorded = RecordingListener()
    registry = EurekaRegistry(TwoServers([stale]), Cluster("lab", "u"), "operator", 600.0)
    registry.table.listener = recorded
    registry.start()
    try:
        wait_until(lambda: registry.reachability.has_been_read, "the first reading", 10.0)
        registry.start_leading(0)
        wait_until(lambda: OWNER in recorded.owners, "its owner to be looked at", 30.0)
        assert registry.table.instances_of_owner(OWNER) == [stale]
    finally:
        registry.stop()


def test_who_takes_over_lists_later_who_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was away at the take-over is listed when it answers again, and its stale instances go to
    their owners: the former leader alone knew of their removal. A stack's instance there is not renewed, as
    renewals would restore it everywhere.
    """
    monkeypatch.setattr(windows, "RESTART_CHECK_INTERVAL_SECONDS", 0.02)
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
        wait_until(lambda: registry.reachability.has_been_read, "the first reading", 10.0)
        registry.start_leading(0)
        wait_until(lambda: servers.lists, "a list of all that answer", 30.0)
        some_looks()
        assert (recorded.owners, registry.table.known_instances()) == ([], [])
        servers.silent = {}
        wait_until(lambda: recorded.owners, "its owner to be looked at", 30.0)
        assert (recorded.owners, registry.table.instances_of_owner(OWNER)) == ([OWNER], [stale])
        assert stacks.key not in registry.renewals
        registry.table.store_confirmed_absence(stale.key)
        some_looks()  # once: the repair looks after what this replica removes
        assert recorded.owners == [OWNER]
    finally:
        registry.stop()


def test_who_takes_over_checks_what_is_out_at_some_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are checked for an OUT_OF_SERVICE that only some of them have over what was registered shortly
    before the take-over: the former leader may have set it. What is older, or somebody else's, is left.
    """
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", 0.0)
    now_ms = int(time.time() * 1000)
    young = replace(instance("young"), last_dirty_timestamp_ms=now_ms - 20_000)
    old = replace(instance("old"), last_dirty_timestamp_ms=now_ms - 3_600_000)
    others = replace(instance("others"), metadata={}, last_dirty_timestamp_ms=now_ms - 20_000)
    up = [young, old, others]
    out = [replace(one, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE) for one in up]
    servers = TwoServers(out)
    servers.peers[0].list_instances = lambda: up  # type: ignore[method-assign]
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.start_leading(0)
    assert all(registry.table.copy_record(one.key).override_changed_at is None for one in up)
    registry.reader.read()
    checked = [one for one in up if registry.table.copy_record(one.key).override_changed_at is not None]
    assert checked == [young]


def test_a_take_over_leaves_behind_who_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over does not wait for a first server that hangs, and reads the list of the second one."""
    monkeypatch.setattr(windows, "SERVER_GRACE_SECONDS", 30.0)
    hangs = threading.Event()
    asked: list[str] = []

    def status(peer: Peer) -> StatusPage:
        if peer.url == peers.peers[0].url:
            hangs.wait(30.0)
        return STATUS

    def list_unless(peer: Peer, *_: Any) -> tuple[bytes, list[Instance]]:
        asked.append(peer.url)
        return b"list", [instance("held")]

    monkeypatch.setattr(Peer, "read_status", status)
    monkeypatch.setattr(Peer, "list_if_changed", list_unless)
    peers = Peers(Connection(tuple(f"http://{name}/eureka" for name in "abc")), waits_for_all_servers=False)
    registry = EurekaRegistry(peers, Cluster("lab", "u"), "operator", 600.0)
    started = time.monotonic()
    try:
        registry.start_leading(0)
        assert time.monotonic() - started < 10.0
    finally:
        hangs.set()
        peers.close()
    assert asked == [peers.peers[1].url]
    assert registry.table.instances_of_owner(OWNER) == [instance("held")]


def test_nothing_is_learned_of_another_cluster_of_the_name() -> None:
    """When another cluster uses our name, a take-over learns none of its instances and is refused: they would
    look like leftovers of deleted syncers.
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
    registry.start_leading(0)
    assert "in use by another cluster" in str(registry.condition())
    assert (recorded.conditions, recorded.owners, registry.table.known_instances()) == (1, [], [])
    assert isinstance(registry.condition(), Misconfigured)


def test_what_a_restarted_server_forgot_stands_on_the_others() -> None:
    """After a server's restart the other servers' instances are read, too: one of another owner may occupy an
    id or an address.
    """
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.start()
    try:
        wait_until(lambda: registry.reachability.has_been_read, "the first reading", 10.0)
        assert registry.table.get(foreign) is not None
    finally:
        registry.stop()


def test_what_nobody_can_be_asked_for_is_kept() -> None:
    """A known instance is kept while one server is empty after a restart and the other one does not
    answer.
    """
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.start_leading(0)
    assert registry.table.get(foreign) is not None
    servers.silent = {servers.peers[1].url: RegistryUnreachable("away")}
    registry.start_leading(0)
    assert registry.table.get(foreign) is not None


def test_what_registers_itself_beside_ours_has_us_look() -> None:
    """An owner is notified once when an instance registers itself in its application or leaves it; other
    applications do not count.
    """
    recorded = RecordingListener()
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    registry.table.listener = recorded
    ours, itself = instance("pod"), replace(instance("itself"), metadata={})
    other = replace(itself, application="other")
    registry.reader.process_list([ours], is_complete=True)
    for listed, expected in (
        ([ours, other], []),
        ([ours, other, itself], [ours.owner]),
        ([ours, itself], []),
        ([ours], [ours.owner]),
    ):
        for again in (expected, []):
            recorded.owners.clear()
            registry.reader.process_list(listed, is_complete=True)
            assert recorded.owners == again


def test_a_cluster_name_that_is_in_use_with_another_uid_is_refused() -> None:
    """A reading raises when an instance has our cluster's name with another UID, even if only the second
    server shows it.
    """
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
        assert registry.reachability.has_been_read is not is_refused


def test_what_nobody_expected_ends_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error in the work between two readings does not end the thread that reads."""
    monkeypatch.setattr(windows, "RESTART_CHECK_INTERVAL_SECONDS", 0.02)
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    rounds: list[int] = []

    def catch_up() -> None:
        rounds.append(len(rounds))
        raise RuntimeError("a bug")

    monkeypatch.setattr(registry.reader, "read_lists_of_missed_servers", catch_up)
    registry.start()
    try:
        registry.start_leading(0)
        wait_until(lambda: len(rounds) > 2, "the next rounds", 30.0)
        assert all(loop.is_alive for loop in registry.liveness())
    finally:
        registry.stop()
