"""Repair of instances in doubt: removed ones, late ones, missing ones, and ones that lists lack."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import OwnershipConflict, RegistryRejected, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, InstanceKey, Port, Status
from eurekube_provider.core.plan import Action, Change, Plan
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage
from eurekube_provider.eureka.registry import repair as module
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.repair import (
    MOST_READ_FOR_CLEARED_STATUS,
    MOST_UNLISTED_ASKED_PER_WINDOW,
    UNLISTED_READS_PER_CHUNK,
    Repair,
)
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.rules import Ownership
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.eureka.uncached_reads import RefusalByKey, UncachedReads
from eurekube_provider.runtime.clock import boot_clock_seconds
from tests.explore.world import World, owned
from tests.unit.eureka.model_servers import URLS
from tests.unit.eureka.servers import (
    OWNER,
    STATUS,
    Balanced,
    Holding,
    RecordingListener,
    TwoServers,
    after_a_restart,
    behind_a_balancer,
    instance,
    of_a_stack,
    older,
    renewed_after,
    started_now,
)

HERE = Instance("review", "a", "192.0.2.1", "192.0.2.1", Port(8080))
KEY: InstanceKey = HERE.key


def test_what_was_removed_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed instance is looked for at each server and deregistered again: a server that was away may
    still hold and replicate it.
    """
    monkeypatch.setattr(windows, "REMOVAL_CHECKS_AFTER_SECONDS", (0.0,))
    removed = instance("removed")
    servers = Holding(removed)
    registry = servers.registry()
    registry.instances.note_removed(removed)
    for number, peer in enumerate(servers.peers):
        gone: list[tuple[str, ...]] = []
        monkeypatch.setattr(peer, "deregister", lambda *key, gone=gone: gone.append(key) or True)
        registry.repair.check_and_clean_server(peer)
        assert set(gone) == {removed.key}, number


def test_the_owner_learns_when_a_self_registered_neighbour_left() -> None:
    """The owner is notified when an uncached read shows that a self-registered instance of its application
    has left.
    """
    ours, itself = instance("pod"), replace(instance("itself"), metadata={})
    servers, recorded = Holding(ours), RecordingListener()
    registry = servers.registry()
    registry.table.store_read_instance(ours)
    registry.table.store_read_instance(itself)
    registry.table.listener = recorded
    registry.repair.resolve_doubts([itself.key])
    assert registry.table.get(itself.key) is None
    assert recorded.owners == [OWNER]


def test_a_server_that_refuses_a_status_is_swept_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that refuses a status update still gets the removals of dead instances."""
    up, dead = instance("vm"), instance("dead")
    servers = Holding(up, dead)
    registry = servers.registry()
    registry.instances.note_registered(up)
    servers.held[0][up.key] = replace(up, status=Status.DOWN)
    first = servers.peers[0]
    gone: list[tuple[str, str]] = []

    def refuse(*_: object) -> None:
        raise RegistryRejected("no")

    def remove(*key: str) -> bool:
        gone.append((key[0], key[1]))
        return True

    monkeypatch.setattr(first, "send_batch", refuse)
    monkeypatch.setattr(first, "register_as_replica", refuse)
    monkeypatch.setattr(first, "deregister", remove)
    monkeypatch.setattr(windows, "REMOVAL_CHECKS_AFTER_SECONDS", (0.0, 35.0))
    registry.table.remember_unanswered_write(up)
    registry.table.store_removal_and_plan_checks(dead)
    registry.repair.check_and_clean_server(first)
    assert gone == [dead.key]


def test_what_one_server_behind_the_url_still_holds_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a load balancer a removal is repeated until it reaches the server that holds the instance: the
    others answer 404 and replicate nothing.
    """
    dead = instance("dead")
    servers = Balanced(older(0), older(30), older(60))
    registry = behind_a_balancer(servers)
    servers.held = [[], [dead], []]

    def remove(*_: str) -> bool:
        held = servers.held[servers.turn()]
        if not held:
            return False
        servers.held = [[], [], []]  # who holds it tells the others
        return True

    monkeypatch.setattr(servers.peers[0], "deregister", remove)
    monkeypatch.setattr(windows, "REMOVAL_CHECKS_AFTER_SECONDS", (0.0, 35.0))
    registry.table.store_removal_and_plan_checks(dead)
    registry.repair.check_and_clean_server(servers.peers[0])
    assert servers.held == [[], [], []]


def test_one_read_that_is_refused_for_good_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a proxy refuses to read one id, the other dead instances are still removed."""
    odd, dead = instance("odd"), instance("dead")
    servers = Holding(odd, dead)
    peer = servers.peers[0]
    gone: list[tuple[str, ...]] = []

    def remove(*key: str) -> bool:
        gone.append(key)
        return True

    def read(application: str, instance_id: str) -> Instance | None:
        if instance_id == odd.instance_id:
            raise RegistryRejected("400")
        return servers.read_at(0, application, instance_id)

    monkeypatch.setattr(peer, "read", read)
    monkeypatch.setattr(peer, "deregister", remove)
    monkeypatch.setattr(windows, "REMOVAL_CHECKS_AFTER_SECONDS", (0.0, 35.0))
    registry = servers.registry()
    for one in (odd, dead):
        registry.table.store_removal_and_plan_checks(one)
    registry.repair.check_and_clean_server(peer)
    assert gone == [dead.key]


@pytest.mark.parametrize(
    ("stands_at", "just_now_seconds", "is_ours"),
    [((0,), 0.0, True), ((0, 1), 0.0, False), ((0, 1), 10.0, True)],
)
def test_an_out_of_service_at_all_servers_is_a_persons(
    stands_at: tuple[int, ...], just_now_seconds: float, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT_OF_SERVICE at all servers counts as set by a person, unless the operator set it just now; at some
    servers only, a server has replicated the operator's late.
    """
    monkeypatch.setattr(windows, "MANUAL_STATUS_REPLICATION_SECONDS", 0.0)
    monkeypatch.setattr(windows, "SENT_STATUS_ARRIVAL_SECONDS", just_now_seconds)
    up = instance("vm")
    out = replace(up, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    servers = Holding(up)
    registry = servers.registry()
    registry.instances.note_registered(up)
    for number in stands_at:
        servers.held[number][up.key] = out
    monkeypatch.setattr(windows, "REMOVAL_CHECKS_AFTER_SECONDS", (0.0,))
    registry.table.remember_unanswered_write(up)
    registry.repair.check_and_clean_server(servers.peers[0])
    assert not known_as_leaving(registry, up)  # nothing of ours was there
    servers.table.note_override_change(up)
    registry.repair.check_and_clean_server(servers.peers[0])
    assert known_as_leaving(registry, up) is is_ours


def test_an_out_of_service_after_a_pod_was_removed_with_ours_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT_OF_SERVICE at all servers counts as the operator's for a pod whose predecessor of the same name was
    removed while it drained.
    """
    monkeypatch.setattr(windows, "REMOVAL_CHECKS_AFTER_SECONDS", (0.0,))
    up = instance("vm")
    leaving = replace(up, metadata={**up.metadata, "eurekube.leaving": "true"})
    out = replace(up, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    servers = Holding(up)
    registry = servers.registry()
    registry.instances.note_registered(leaving)
    registry.instances.note_removed(leaving)
    registry.instances.note_registered(up)
    for held in servers.held:
        held[up.key] = out
    registry.repair.check_and_clean_server(servers.peers[0])
    assert known_as_leaving(registry, up)


def known_as_leaving(registry: EurekaRegistry, one: Instance) -> bool:
    """Return whether the registry knows an instance with the operator's mark of a leaving one."""
    known = registry.table.get(one.key)
    return known is not None and known.is_leaving


@pytest.mark.parametrize("forgot", [0, 1])
def test_what_one_server_behind_the_url_forgot_is_restored(forgot: int) -> None:
    """Behind a load balancer all servers are asked in turn, and an instance that one of them forgot is
    still renewed.
    """
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(older(0), older(1))
    servers.held[1 - forgot] = [stacks]
    registry = behind_a_balancer(servers, looks=6 + forgot)
    registry.repair.instances_missing([stacks], None)
    assert stacks.key in registry.renewals


def test_what_a_person_removed_stays_away_behind_a_load_balancer() -> None:
    """An instance that no server behind the URL holds, although none was restarted, is neither renewed nor
    restored.
    """
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(older(0), older(1))
    registry = behind_a_balancer(servers)
    registry.repair.instances_missing([stacks], None)
    assert stacks.key not in registry.renewals
    assert servers.restored == []


@pytest.mark.parametrize("cause", ["restart", "outage", "removal"])
def test_a_persons_status_comes_back_only_with_what_servers_forgot(cause: str) -> None:
    """A person's OUT_OF_SERVICE is remembered for an instance that a restarted server forgot, or that lapsed
    while nobody could renew it, but not for a removed instance, nor for a status that the operator set.
    """
    servers = TwoServers([])
    registry = after_a_restart(servers)
    if cause == "restart":
        registry.restarts.detect_restarts()
    elif cause == "outage":
        registry.reachability.note_failure_and_check_lasting(RegistryUnreachable("no route"))
    out = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    persons = replace(instance("persons"), **out)  # type: ignore[arg-type]
    leaving = replace(instance("ours"), metadata={**persons.metadata, "eurekube.leaving": "true"}, **out)  # type: ignore[arg-type]
    for one in (persons, leaving):
        registry.instances.note_registered(one)
    servers.peers[0].read_status = lambda: STATUS  # type: ignore[method-assign]
    registry.repair.instances_missing([persons, leaving], None)
    assert registry.table.lost_override(leaving.key) is Status.UNKNOWN
    lost = Status.UNKNOWN if cause == "removal" else Status.OUT_OF_SERVICE
    assert registry.table.lost_override(persons.key) is lost


def test_a_gateways_404_while_the_server_restarts_costs_no_persons_status() -> None:
    """A renewal that finds nothing while no server says for how long it has run, as behind a gateway without
    its route, does not say that somebody removed the instance: it is remembered with a person's status.
    """
    servers, out = Holding(), Status.OUT_OF_SERVICE
    registry = servers.registry()
    persons = replace(instance("persons"), status=out, overridden_status=out)
    registry.instances.note_registered(persons)
    for peer in servers.peers:
        peer.read_status = refuse_status  # type: ignore[method-assign]
    registry.repair.instances_missing([persons], None)
    assert registry.table.lost_override(persons.key) is out
    assert registry.instances_lost_by_registry(OWNER) == [persons]


def refuse_status() -> StatusPage:
    """Answer as a gateway without its route."""
    raise RegistryRejected("answered 404", status_code=404)


def test_a_status_that_somebody_cleared_without_the_next_one() -> None:
    """A renewal is refused where somebody cleared an override without naming the next status: the instance is
    remembered as UP, so that a paused syncer registers it again, and not with the override as it was known.
    """
    known = replace(instance("pod"), status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    up = replace(known, status=Status.UP, overridden_status=Status.UNKNOWN)
    servers = Holding(replace(up, status=Status.UNKNOWN))
    registry = servers.registry()
    registry.instances.note_registered(known)
    registry.repair.instances_missing([known], None)
    assert registry.instances_lost_by_registry(OWNER) == [up]
    assert registry.table.lost_override(known.key) is Status.UNKNOWN


def test_very_many_that_are_missing_are_not_read_one_by_one() -> None:
    """Instances that lapsed while the process was suspended are not read for a cleared status one by one."""
    missing = [instance(f"pod-{number}") for number in range(MOST_READ_FOR_CLEARED_STATUS + 1)]
    servers = Holding()
    registry = servers.registry()
    for one in missing:
        registry.instances.note_registered(one)
    registry.repair.instances_missing(missing, None)
    assert servers.reads == 0
    assert registry.table.get(missing[0].key) is None


def test_the_log_promises_only_what_a_syncer_wants(caplog: pytest.LogCaptureFixture) -> None:
    """Instances that a stale list shows and no server holds may be gone for good: the log names as registered
    again, and as missed by callers, only what its syncer wants.
    """
    registry, removed = Holding().registry(), instance("pod")
    registry.instances.note_registered(removed)
    registry.repair.instances_missing([removed], None)
    assert "register those that they want: callers miss these" in caplog.text


@pytest.mark.parametrize("enforced", ["", "OUT_OF_SERVICE"])
def test_a_stacks_status_that_somebody_cleared_without_the_next_one(enforced: str) -> None:
    """The same of a stack's registration: it is registered as UP and newer than it is, unless its program
    enforces a status.
    """
    stamp = int((time.time() + 3600) * 1000)  # of a clock that is ahead
    marks = {"eurekube.enforced": enforced} if enforced else {}
    stacks = replace(of_a_stack("vm"), last_dirty_timestamp_ms=stamp)
    stacks = replace(stacks, metadata={**stacks.metadata, **marks})
    servers = Holding(replace(stacks, status=Status.UNKNOWN))
    registry = servers.registry()
    registry.repair.instances_missing([stacks], None)
    held = servers.held[0][stacks.key]
    assert held.status is (Status.UNKNOWN if enforced else Status.UP)
    assert enforced or held.written_at_ms > stamp
    assert stacks.key in registry.renewals


def test_what_a_restarted_server_forgot_of_a_stacks_is_restored() -> None:
    """A stack's registration that a restarted server forgot is restored, because no Pulumi program runs to
    do it.
    """
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    servers.servers = [started_now()]
    registry.repair.instances_missing([stacks], None)
    assert stacks.key in registry.renewals
    assert [one.key for one in servers.restored] == [stacks.key]


def test_an_instance_nowhere_is_kept_until_a_start_time_is_known() -> None:
    """An instance that no server holds is still renewed while a server's start time is unknown, and restored
    once a restart is known.
    """
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    registry.keep_registered(stacks)
    servers.servers = [replace(STATUS, started_timestamp_ms=None)]
    registry.repair.instances_missing([stacks], None)
    assert stacks.key in registry.renewals
    assert not servers.restored
    servers.servers = [started_now()]
    registry.repair.instances_missing([stacks], None)
    assert [one.key for one in servers.restored] == [stacks.key]
    assert stacks.key in registry.renewals


def test_an_instance_nowhere_without_start_times_was_removed() -> None:
    """At servers that never tell a start time, an instance that no server holds counts as removed; else it
    would be kept for ever.
    """
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    registry = behind_a_balancer(Balanced(replace(STATUS, started_timestamp_ms=None)))
    registry.keep_registered(stacks)
    registry.repair.instances_missing([stacks], None)
    assert stacks.key not in registry.renewals


@pytest.mark.parametrize(
    ("accepted_seconds_ago", "restarted", "stands"),
    [(20.0, False, False), (100.0, False, True), (20.0, True, True)],
    ids=["removed", "may be evicted", "restarted"],
)
def test_a_server_that_lacks_a_registration_gets_it_unless_removed(
    accepted_seconds_ago: float, restarted: bool, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that runs without a restart and lacks an instance that it renewed less than a lease ago was
    asked to remove it; otherwise the instance is restored there.
    """
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    monkeypatch.setattr(
        module, "read_and_renew_at", lambda _, peer, some: {one.key: peer.read(*one.key) for one in some}
    )
    monkeypatch.setattr(module, "register_copies_at", lambda peer, some: [peer.register(one) for one in some])
    registry = servers.registry()
    registry.keep_registered(stacks)
    now = [1000.0]
    servers.table.clock = lambda: now[0]
    first = servers.peers[0]
    servers.table.note_accepted_renewals(first.url, [stacks])
    now[0] += accepted_seconds_ago
    del servers.held[0][stacks.key]
    if restarted:
        first.read_status = started_now  # type: ignore[method-assign]
    registry.repair.instances_missing([stacks], first)
    assert (stacks.key in servers.held[0], stacks.key in registry.renewals) == (stands, stands)


@pytest.mark.parametrize("held_on", [(), (1,)], ids=["nowhere", "at the restarted one"])
@pytest.mark.parametrize(
    ("accepted_at", "accepted_seconds_ago", "stands"),
    [(0, 20.0, False), (0, 100.0, True), (1, 20.0, True)],
    ids=["removed", "may be evicted", "restarted"],
)
def test_beside_a_restart_the_other_server_shows_what_was_removed(
    held_on: tuple[int, ...], accepted_at: int, accepted_seconds_ago: float, stands: bool
) -> None:
    """When one of two servers was restarted, an instance that the other one renewed lately and now lacks was
    removed; an instance that it may have evicted is restored.
    """
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    registry = servers.registry()
    registry.keep_registered(stacks)
    now = [1000.0]
    servers.table.clock = lambda: now[0]
    servers.table.note_accepted_renewals(servers.peers[accepted_at].url, [stacks])
    now[0] += accepted_seconds_ago
    for number in {0, 1}.difference(held_on):
        del servers.held[number][stacks.key]
    servers.peers[1].read_status = started_now  # type: ignore[method-assign]
    registry.repair.instances_missing([stacks], None)
    assert registry.restarts.may_have_lost_memory
    assert (stacks.key in servers.held[0], stacks.key in registry.renewals) == (stands, stands)
    assert (stacks.instance_id in renewed_after(registry, stacks)) is stands  # a list may show it for a while


def test_what_lacks_at_a_server_of_unknown_start_is_restored() -> None:
    """An instance that a server lacks is restored there while the server's start time is unknown, as it may
    have lost its memory.
    """
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    registry = servers.registry()
    servers.table.note_accepted_renewals(servers.peers[0].url, [stacks])
    del servers.held[0][stacks.key]
    silent = replace(STATUS, started_timestamp_ms=None)
    servers.peers[0].read_status = lambda: silent  # type: ignore[method-assign]
    registry.repair.instances_missing([stacks], None)
    assert stacks.key in servers.held[0]
    assert stacks.key in registry.renewals


def test_a_restored_instance_stays_away_once_it_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance whose restoration timed out but took effect is not restored again after a later removal."""
    stacks = of_a_stack("vm")
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    registry.keep_registered(stacks)
    servers.servers = [started_now()]
    answers = [RegistryUnreachable("it did not answer within 5 s")]

    def register(one: Instance) -> None:
        servers.held[0].append(one)
        while answers:
            raise answers.pop()

    monkeypatch.setattr(servers.peers[0], "register", register)
    registry.repair.instances_missing([stacks], None)
    assert stacks.key in registry.renewals
    registry.reader.process_list(servers.held[0], is_complete=True)
    monkeypatch.setattr(RestartDetection, "may_have_lost_memory", False)  # two minutes later
    servers.held[0].clear()
    registry.repair.instances_missing([stacks], None)
    assert servers.held == [[]]
    assert stacks.key not in registry.renewals


def test_an_instance_removed_meanwhile_is_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among thousands of missing instances, one that is removed while the others are copied to a server is
    not copied.
    """
    many = [instance(f"i{number:04}") for number in range(batch.MOST_ITEMS_PER_BATCH + 2)]
    servers = Holding(*many)
    registry = servers.registry()
    for one in many:
        registry.instances.note_registered(one)
    reported: list[Instance] = []

    def copy_to(_: Peer, some: list[Instance]) -> None:
        reported.extend(some)
        registry.instances.note_removal_begins(many[-1])
        registry.instances.note_removed(many[-1])

    monkeypatch.setattr(module, "read_and_renew_at", lambda _, _peer, some: {one.key: one for one in some})
    monkeypatch.setattr(module, "register_copies_at", copy_to)
    registry.repair.instances_missing(many, servers.peers[0])
    assert reported == many[:-1]


class RenewalRecorder:
    """A record of the instances that are renewed at once, in place of the senders' threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.renewed: list[InstanceKey] = []
        monkeypatch.setattr(Renewals, "renew_now", lambda _, _peer, keys: self.renewed.extend(keys))


def let_a_minute_pass(registry: EurekaRegistry) -> None:
    """Have all that a registry knows be a minute older."""
    registry.table.clock = lambda: boot_clock_seconds() + 60.0


def restarted_alone(
    listed: list[Instance], *held: Instance, mode: BatchMode = BatchMode.BATCH
) -> EurekaRegistry:
    """Return a registry with these instances whose only server was restarted without its notice, and lists
    ``listed``.
    """
    servers = Balanced(STATUS)
    servers.connection = replace(servers.connection, mode=mode)
    registry = behind_a_balancer(servers)
    for one in held:
        registry.instances.note_registered(one)
    let_a_minute_pass(registry)
    servers.servers = [started_now()]
    servers.peers[0].list_instances = lambda: listed  # type: ignore[method-assign]
    registry.table.listener = RecordingListener()
    return registry


def test_what_a_restarted_server_does_not_list_is_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances that a restarted server does not list are reported to their owners without a renewal. Listed
    ones, and stacks' registrations, are renewed at once.
    """
    gone, other = instance("gone"), replace(instance("other"), metadata={"eurekube.owner": "cluster/lab/a/b"})
    listed, stacks = instance("listed"), of_a_stack("vm")
    recorder = RenewalRecorder(monkeypatch)
    registry = restarted_alone([listed], gone, listed, other, stacks)
    registry.restarts.detect_restarts()
    assert set(recorder.renewed) == {listed.key, stacks.key}
    assert registry.table.listener.owners == ["cluster/lab/a/b", OWNER]  # type: ignore[union-attr]
    assert registry.known_instances() == [listed, stacks]
    assert {one.key for one in registry.renewals.renewed_instances()} == {listed.key, stacks.key}
    assert registry.instances_lost_by_registry(OWNER) == [gone]
    assert not registry.instances.is_key_unused(gone.key)  # so that it is read before it is registered


def test_what_was_registered_since_a_servers_start_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance registered since the server's start is renewed, though the list does not show it yet."""
    gone, again = instance("gone"), instance("again")
    recorder = RenewalRecorder(monkeypatch)
    registry = restarted_alone([], gone)
    registry.instances.note_registered(again)
    registry.restarts.detect_restarts()
    assert recorder.renewed == [again.key]
    assert registry.known_instances() == [again]
    assert again.key in registry.renewals


@pytest.mark.parametrize("how", ["lapses", "stands by"])
def test_what_is_let_go_while_a_list_is_read_is_not_lost(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """An instance that is no longer renewed by the time that the list has come is not noted as lost."""
    RenewalRecorder(monkeypatch)
    ours = instance("ours")
    registry = restarted_alone([], ours)

    def list_late() -> list[Instance]:
        if how == "lapses":
            registry.let_lapse(ours)
        else:
            registry.stand_by()
        return []

    registry.peers.peers[0].list_instances = list_late  # type: ignore[method-assign]
    registry.restarts.detect_restarts()
    assert registry.instances_lost_by_registry(OWNER) == []
    assert registry.known_instances() == [ours]


def test_what_took_the_place_of_a_forgotten_instance_stays() -> None:
    """Somebody else's registration under a forgotten instance's id stays, though the list does not show it
    yet and its timestamp is old.
    """
    cluster = EurekaCluster(URLS[:1])
    cluster.clock.advance(3_600_000)
    ours = instance("pod")
    theirs = replace(ours, metadata={"eurekube.owner": "cluster/other/a/b"}, last_dirty_timestamp_ms=2)
    register = Plan((Change(Action.REGISTER, ours),))
    with owned(World(cluster)):
        peers = Peers(Connection(URLS[:1], mode=BatchMode.BATCH))
        registry = EurekaRegistry(peers, Cluster("lab", "u"), "operator", 600.0)
        registry.reader.read()
        assert not registry.apply(register, OWNER).failures
        cluster.clock.advance(200_000)
        registry.reader.read()
        let_a_minute_pass(registry)
        cluster.restart(URLS[0])
        assert peers.peers[0].list_instances() == []
        peers.peers[0].register(theirs)
        registry.restarts.detect_restarts()
        assert registry.known_instances() == []
        (failure,) = registry.apply(register, OWNER).failures
        held = peers.peers[0].read(*ours.key)
    assert isinstance(failure.error, OwnershipConflict)
    assert held is not None
    assert (held.owner, held.last_dirty_timestamp_ms) == (theirs.owner, 2)


def test_a_restarted_server_is_asked_by_renewals_where_its_list_says_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything is renewed at a restarted server that gives no list, that others may tell of instances, or
    that gets no batches.
    """
    ours = instance("ours")
    recorder = RenewalRecorder(monkeypatch)
    silent, plain = restarted_alone([], ours), restarted_alone([], ours, mode=BatchMode.REST)

    def refuse() -> list[Instance]:
        raise RegistryUnreachable("away")

    silent.peers.peers[0].list_instances = refuse  # type: ignore[method-assign]
    one_of_two = after_a_restart(TwoServers([]))
    one_of_two.instances.note_registered(ours)
    for registry in (silent, plain, one_of_two):
        registry.restarts.detect_restarts()
        assert registry.known_instances() == [ours]
        assert recorder.renewed == [ours.key]
        recorder.renewed.clear()


def test_what_was_registered_again_meanwhile_is_not_missing() -> None:
    """A renewal that found an instance missing tells nothing of a later version, which goes on being
    renewed.
    """
    before, again = (replace(instance("pod"), last_dirty_timestamp_ms=stamp) for stamp in (1_000, 2_000))
    registry = behind_a_balancer(Balanced(STATUS))
    registry.instances.note_registered(again)
    registry.repair.instances_missing([before], registry.peers.peers[0])
    assert registry.known_instances() == [again]
    assert again.key in registry.renewals
    registry.repair.instances_missing([again], registry.peers.peers[0])
    assert registry.known_instances() == []


def test_a_doubt_about_what_is_missing_by_now_is_no_reason_to_read() -> None:
    """An instance that was found missing since a list contradicted it is not read: after a server's restart
    these are thousands.
    """
    servers = Holding()
    servers.registry().repair.resolve_doubts([KEY])
    assert servers.reads == 0


def test_what_a_list_contradicts_is_read_by_itself() -> None:
    """Registered instances that a list lacks are read one by one: a held one stays, a missing one is dropped,
    and the owner is notified of each.
    """
    stands, gone = instance("stands"), instance("gone")
    servers = Holding(stands)
    registry = servers.registry()
    for one in (stands, gone):
        registry.instances.note_registered(one)
    recorded, later = RecordingListener(), servers.table.clock() + windows.LONGEST_LIST_LAG_SECONDS
    registry.table.listener, servers.table.clock = recorded, lambda: later
    registry.reader.process_list([], is_complete=True)
    assert registry.known_instances() == [stands]
    assert recorded.owners == [OWNER] * 2


class Scene:
    """A repair with two fake servers, and the instances that they hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: dict[str, Instance | None] = {"one": None, "two": None}
        self.failures: dict[str, RegistryUnreachable] = {}
        self.now = 10_000.0
        self.asked = 0
        self.chunks: list[int] = []
        self.refused: set[InstanceKey] = set()
        self.runs_for = dict.fromkeys(self.held, windows.SERVER_WARM_UP_SECONDS)
        self.looks = 0
        self.behind = 1
        self.restarts = SimpleNamespace(
            uptime_seconds=self.runs_for.get,
            most_servers_at_one_url=1,
            detect_servers_behind_balancer=self.detect_servers_behind_balancer,
        )
        self.table = InstanceTable(lambda: self.now)
        servers = [SimpleNamespace(url="one"), SimpleNamespace(url="two")]
        peers, nobody = SimpleNamespace(peers=servers, table=self.table), cast("Any", None)
        restarts, ownership = cast("Any", self.restarts), Ownership(Cluster("lab", "u"), "operator")
        self.repair = Repair(cast("Any", peers), nobody, restarts, nobody, nobody, ownership)
        monkeypatch.setattr(module, "read_everywhere", self.read)

    def detect_servers_behind_balancer(self) -> None:
        """Count the call, and find the servers behind the URL."""
        self.looks += 1
        self.restarts.most_servers_at_one_url = self.behind

    def read(self, _: object, keys: list[InstanceKey], refused: RefusalByKey) -> UncachedReads:
        """Return the uncached reads of the servers that answer; stand-in for ``read_everywhere``."""
        refused.update((key, RegistryRejected("400")) for key in keys if key in self.refused)
        self.asked += len(keys)
        self.chunks.append(len(keys))
        if len(self.failures) == 2:
            raise self.failures["one"]
        answering = [url for url in self.held if url not in self.failures]
        instances_by_url: dict[str, dict[InstanceKey, Instance | None]] = {
            url: dict.fromkeys(keys, self.held[url]) for url in answering
        }
        return UncachedReads(instances_by_url, {**self.failures})

    def is_gone(self) -> bool:
        """Return whether the removal of the instance ``HERE`` is proved."""
        return self.repair.look_up_unlisted([KEY]).gone == {KEY}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a scene in which both servers hold no instance and have run for long enough."""
    return Scene(monkeypatch)


def test_what_no_request_can_name_keeps_no_other_from_being_proved(scene: Scene) -> None:
    """Keys that fit into no URL are not asked for, so that the removal of other instances can still be
    proved.
    """
    odd = ("REVIEW", "a;b"), ("RE%VIEW", "a")
    assert scene.repair.look_up_unlisted([*odd, KEY]).gone == {KEY}
    assert scene.asked == 1


def test_what_a_server_refuses_to_tell_is_not_gone(scene: Scene) -> None:
    """An instance whose read a server refuses does not count as gone, and does not prevent proofs for
    others.
    """
    odd = ("REVIEW", "odd")
    scene.refused = {odd}
    assert scene.repair.look_up_unlisted([odd, KEY]).gone == {KEY}


def test_a_delta_proves_the_end_of_what_no_request_can_name(scene: Scene) -> None:
    """A deregistration in a delta proves the removal even of an instance whose id fits into no URL."""
    odd = ("REVIEW", "a/b")
    scene.table.note_departures([odd])
    assert scene.repair.look_up_unlisted([odd]).gone == {odd}
    assert scene.asked == 0


def test_what_no_server_holds_is_gone(scene: Scene) -> None:
    """An instance is gone when uncached reads at all servers find none; it is registered when one server
    holds it.
    """
    assert scene.is_gone()
    scene.held["two"] = HERE
    found = scene.repair.look_up_unlisted([KEY])
    assert (found.registered, found.gone) == ((HERE,), frozenset())


def test_what_no_server_ever_held_is_gone_by_absence_alone(scene: Scene) -> None:
    """A removal counts as proved by absence alone, as at a Eureka that never held the instance, unless a
    server has reported its eviction or deregistration.
    """
    assert scene.repair.look_up_unlisted([KEY]).gone_by_absence == {KEY}
    scene.table.note_departures([], evicted=[KEY])
    scene.now += windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS
    found = scene.repair.look_up_unlisted([KEY])
    assert (found.gone == {KEY}, found.gone_by_absence == frozenset()) == (True, True)
    scene.now += windows.KEEP_DEPARTURE_PROOF_SECONDS + 0.1
    assert scene.repair.look_up_unlisted([KEY]).gone_by_absence == {KEY}
    scene.table.note_departures([KEY])
    assert scene.repair.look_up_unlisted([KEY]).gone_by_absence == frozenset()


def test_a_server_that_does_not_answer_proves_nothing(scene: Scene) -> None:
    """A server that does not answer may hold the instance, so that its removal is not proved."""
    scene.failures["two"] = RegistryUnreachable("away")
    assert not scene.is_gone()
    scene.failures["one"] = RegistryUnreachable("away")
    with pytest.raises(RegistryUnreachable):
        scene.repair.look_up_unlisted([KEY])


def test_a_server_that_was_started_a_moment_ago_proves_nothing(scene: Scene) -> None:
    """No removal is proved by a server that was just started, whose start time is unknown, or that is one of
    several behind a URL: it may lack the instance.
    """
    scene.runs_for["two"] -= 1
    assert not scene.is_gone()
    del scene.runs_for["two"]
    assert not scene.is_gone()
    scene.runs_for["two"] = windows.SERVER_WARM_UP_SECONDS
    scene.restarts.most_servers_at_one_url = 2
    assert not scene.is_gone()


def test_a_server_that_hung_is_waited_for() -> None:
    """A started server proves removals only after 11 times 30 s: Java clients wait up to ten intervals after
    failed renewals.
    """
    assert windows.SERVER_WARM_UP_SECONDS >= 11 * 30


def test_a_server_is_looked_at_before_it_is_taken_to_be_alone(scene: Scene) -> None:
    """Before the first proof new connections check for several servers behind the URL; the check is repeated
    only after a while, and left out where the server was just started.
    """
    scene.behind = 2
    scene.runs_for["two"] -= 1
    assert not scene.is_gone()
    assert scene.looks == 0
    scene.runs_for["two"] += 1
    assert not scene.is_gone()
    scene.behind = scene.restarts.most_servers_at_one_url = 1
    assert scene.is_gone()
    assert scene.looks == 1
    scene.now += windows.TOPOLOGY_CACHE_SECONDS + 1
    assert scene.is_gone()
    assert scene.looks == 2


def test_a_servers_word_is_proof_without_a_question(scene: Scene) -> None:
    """A deregistration that a server reports proves a removal without a read, even if the server was just
    started.
    """
    scene.runs_for.clear()
    scene.table.note_departures([KEY])
    assert scene.is_gone()
    assert scene.asked == 0


def test_servers_are_asked_for_so_many_only(scene: Scene) -> None:
    """The number of keys that servers are asked for within a while is limited; those asked for longest ago
    come first.
    """
    keys = [
        replace(HERE, instance_id=f"{number:04}").key
        for number in range(MOST_UNLISTED_ASKED_PER_WINDOW + 100)
    ]
    assert scene.repair.look_up_unlisted(keys).gone == set(keys[:MOST_UNLISTED_ASKED_PER_WINDOW])
    assert scene.repair.look_up_unlisted(keys).gone == set()
    assert scene.asked == MOST_UNLISTED_ASKED_PER_WINDOW
    scene.now += windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS
    assert scene.repair.look_up_unlisted(keys).gone == {
        *keys[MOST_UNLISTED_ASKED_PER_WINDOW:],
        *keys[: MOST_UNLISTED_ASKED_PER_WINDOW - 100],
    }
    scene.now += windows.KEEP_DEPARTURE_PROOF_SECONDS + 1
    assert scene.is_gone()


def test_very_many_are_read_in_portions(scene: Scene) -> None:
    """Keys are read in chunks; once a server is silent, all remaining keys are read in one chunk."""
    keys = [("REVIEW", str(number)) for number in range(2 * UNLISTED_READS_PER_CHUNK + 1)]
    assert scene.repair.look_up_unlisted(keys).gone == set(keys)
    assert scene.chunks == [UNLISTED_READS_PER_CHUNK, UNLISTED_READS_PER_CHUNK, 1]
    scene.now += windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS
    scene.held["one"], scene.failures["two"] = HERE, RegistryUnreachable("away")
    scene.chunks.clear()
    assert len(scene.repair.look_up_unlisted(keys).registered) == len(keys)
    assert scene.chunks == [UNLISTED_READS_PER_CHUNK, UNLISTED_READS_PER_CHUNK + 1]


def test_a_large_application_keeps_no_other_from_being_asked_for(scene: Scene) -> None:
    """Keys of a small application that wait longest get their turn before those of a large one."""
    scene.held["two"] = HERE
    many = [("LARGE", str(number)) for number in range(MOST_UNLISTED_ASKED_PER_WINDOW)]
    others = [("SMALL", str(number)) for number in range(10)]
    found = [0, 0]
    for _ in range(4):
        for number, keys in enumerate((many, others)):
            found[number] += len(scene.repair.look_up_unlisted(keys).registered)
        scene.now += windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS
    assert found == [4 * MOST_UNLISTED_ASKED_PER_WINDOW - 20, 20]
    assert len(scene.repair.look_up_unlisted(others).registered) == 10


@pytest.mark.parametrize("is_back", [True, False])
def test_a_turn_is_not_kept_for_long(scene: Scene, *, is_back: bool) -> None:
    """A waiting key loses its reserved turn after a while, or when its instance is back."""
    many = [("LARGE", str(number)) for number in range(MOST_UNLISTED_ASKED_PER_WINDOW)]
    scene.repair.look_up_unlisted(many)
    scene.repair.look_up_unlisted([KEY])
    if is_back:
        scene.table.store_read_instance(HERE)
        scene.table.forget_departures_of_registered()
    scene.now += (
        windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS if is_back else windows.DEFERRED_QUESTION_TURN_SECONDS
    )
    assert scene.repair.look_up_unlisted(many).gone == set(many)


def test_a_proof_ends_when_the_instance_is_back_and_with_time(scene: Scene) -> None:
    """A proof of removal ends when the instance is found again, and after a while, so that it does not
    explain a later absence.
    """
    scene.runs_for.clear()
    scene.table.note_departures([KEY])
    scene.table.forget_departures_of_registered()
    assert scene.is_gone()
    scene.table.store_read_instance(HERE)
    scene.table.forget_departures_of_registered()
    scene.table.store_confirmed_absence(KEY)
    assert not scene.is_gone()
    scene.table.note_departures([KEY])
    scene.now += windows.KEEP_DEPARTURE_PROOF_SECONDS + 1
    assert not scene.is_gone()
