"""Application of plans, on a fake registry and on model servers, by single requests and in batches."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import (
    LeadershipLost,
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, Plan, PlanOutcome, plan
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.notes import next_timestamp_ms
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.plan_executor import PlanExecutor
from eurekube_provider.eureka.writer import MOST_UNANSWERED_IN_A_ROW, Writer
from tests.explore.world import World, owned
from tests.model.commands import DATA_CENTER
from tests.recording_notes import RecordingNotes
from tests.unit.eureka.model_servers import ONE, URLS, Servers, removed
from tests.unit.fake_eureka import FakeEureka, FakeServers
from tests.unit.strategies import OURS, THEIRS

Key = tuple[str, str]


def instance(name: str, owner: str = OURS) -> Instance:
    """Return an instance of this owner."""
    return Instance("rating", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": owner})


class Registry(Peers):
    """A server in memory that records requests and fails as the test sets it."""

    def __init__(self, *instances: Instance) -> None:
        super().__init__(Connection(("http://one/eureka",)))
        self.held: dict[Key, Instance] = {one.key: one for one in instances}
        self.errors: dict[Key, RegistryError] = {}
        self.asked: list[tuple[str, str]] = []
        for name in ("read", "register", "deregister", "set_status", "clear_status"):
            setattr(self.peers[0], name, getattr(self, f"serve_{name}"))

    def uses_batches(self, leases: int) -> bool:
        """Return False: batches are never used."""
        assert leases >= 0
        return False

    def serve_read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance that the server holds, or None."""
        self._ask("read", application, instance_id)
        return self.held.get((application, instance_id))

    def serve_register(self, instance: Instance) -> None:
        """Store the instance."""
        self._ask("register", *instance.key)
        self.held[instance.key] = instance

    def serve_deregister(self, application: str, instance_id: str) -> bool:
        """Remove the instance."""
        self._ask("deregister", application, instance_id)
        return self.held.pop((application, instance_id), None) is not None

    def serve_set_status(self, instance: Instance, status: Status) -> bool:
        """Set an override."""
        self.held[instance.key] = replace(self.held[instance.key], status=status, overridden_status=status)
        return True

    def serve_clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Clear the override."""
        have = self.held[instance.key]
        self.held[instance.key] = replace(have, status=status, overridden_status=Status.UNKNOWN)
        return True

    def _ask(self, what: str, application: str, instance_id: str) -> None:
        self.asked.append((what, instance_id))
        error = self.errors.get((application, instance_id))
        if error:
            raise error


A, B, C = instance("a"), instance("b"), instance("c")


def test_every_write_is_preceded_by_a_read() -> None:
    """Each change first reads the instance uncached, as its owner may differ from the list's."""
    registry = Registry(C)
    outcome = Writer(registry).apply(plan([A], [C], OURS), OURS)
    assert [change.action for change in outcome.done] == [Action.REGISTER, Action.DEREGISTER]
    removal = [("read", "c"), ("deregister", "c"), ("read", "c")]
    assert registry.asked == [("read", "a"), ("register", "a"), *removal]
    assert registry.held.keys() == {A.key}


class Keeping(Registry):
    """A server that answers removals with success and keeps the instance, as one of several behind a URL
    may.
    """

    def serve_deregister(self, application: str, instance_id: str) -> bool:
        """Record the request, and keep the instance."""
        self._ask("deregister", application, instance_id)
        return True


def test_what_is_shown_after_its_removal_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal after which the instance is still held fails after five tries."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    registry = Keeping(C)
    (failure,) = Writer(registry).apply(plan([], [C], OURS), OURS).failures
    assert "keeps holding it" in str(failure.error)
    assert registry.asked.count(("deregister", "c")) == 5


class Refusing(Registry):
    """A server that allows reads and refuses removals."""

    def serve_deregister(self, application: str, instance_id: str) -> bool:
        """Refuse the removal with 403."""
        raise RegistryDenied(f"deregister {application} {instance_id}: 403", url="two", status_code=403)


def test_a_server_that_refuses_to_remove_what_it_shows_is_no_success() -> None:
    """A removal that one server refuses fails, although the other server has removed the instance."""
    one, two = Registry(C), Refusing(C)
    both = Peers(Connection(("http://one/eureka", "http://two/eureka")))
    for peer, registry in zip(both.peers, (one, two), strict=True):
        for name in ("read", "deregister"):
            setattr(peer, name, getattr(registry, f"serve_{name}"))
    (failure,) = Writer(both, RecordingNotes()).apply(plan([], [C], OURS), OURS).failures
    both.close()
    assert isinstance(failure.error, RegistryDenied)
    assert not one.held


@pytest.mark.parametrize("parallel", [False, True])
def test_one_refusal_stops_nothing_else(parallel: bool) -> None:
    """A refused change is reported with its error, and the other changes are applied."""
    registry = Registry(C)
    registry.errors = {A.key: RegistryRejected("no")}
    with ThreadPoolExecutor(2) as pool:
        outcome = Writer(registry).apply(plan([A, B], [C], OURS), OURS, pool if parallel else None)
    assert [(failure.change.instance, str(failure.error)) for failure in outcome.failures] == [(A, "no")]
    assert [change.instance for change in outcome.done] == [B, C]


class Interrupted(Registry):
    """A server that takes a number of writes and then fails; it keeps an override over later
    registrations.
    """

    def __init__(self, held: Instance, writes: int) -> None:
        super().__init__(held)
        self.writes = writes
        self.seen = [held]

    def serve_register(self, instance: Instance) -> None:
        """Store the instance with the present override, which DOWN outranks as at a server."""
        have = self.held[instance.key]
        override = have.overridden_status
        status = override if have.is_overridden and instance.status is not Status.DOWN else instance.status
        self._write(replace(instance, status=status, overridden_status=override))

    def serve_clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Clear the override."""
        have = self.held[instance.key]
        self._write(replace(have, status=status, overridden_status=Status.UNKNOWN))
        return True

    def _write(self, instance: Instance) -> None:
        if not self.writes:
            raise LeadershipLost("may not")
        self.writes -= 1
        self.held[instance.key] = instance
        self.seen.append(instance)


@pytest.mark.parametrize("first", [Status.UP, Status.DOWN])
@pytest.mark.parametrize("writes", range(4))
def test_our_out_of_service_is_undone_despite_interruptions(writes: int, first: Status) -> None:
    """The operator's OUT_OF_SERVICE is cleared for a StatefulSet's next pod, even if the writes are
    interrupted between.
    """
    leaving = {**A.metadata, LEAVING_KEY: "true"}
    out = Status.OUT_OF_SERVICE
    old = replace(A, ip_address="10.9.9.9", status=out, overridden_status=out, metadata=leaving)
    registry = Interrupted(old, writes)
    for allowed, status in ((writes, first), (3, first), (3, Status.UP)):
        registry.writes = allowed
        with suppress(LeadershipLost):
            Writer(registry).apply(plan([replace(A, status=status)], registry.held.values(), OURS), OURS)
    assert plan([A], registry.held.values(), OURS).changes == ()
    found = registry.held[A.key]
    assert (found.status, found.is_overridden, found.metadata) == (Status.UP, False, A.metadata)
    assert not [one for one in registry.seen if one.status is Status.UP and one.ip_address == "10.9.9.9"]


def test_with_no_server_the_rest_is_given_up() -> None:
    """When no server answers, the remaining changes are not tried and are all reported as failed."""
    registry = Registry(C)
    registry.errors = {A.key: RegistryUnreachable("away")}
    outcome = Writer(registry).apply(plan([A], [C], OURS), OURS)
    assert outcome.done == ()
    assert [failure.change.instance for failure in outcome.failures] == [A, C]
    assert registry.asked == [("read", "a")]


@pytest.mark.parametrize("threads", [0, 8])
def test_many_time_outs_are_not_waited_for_one_after_the_other(threads: int) -> None:
    """A server that hangs costs a large plan a few time-outs. A change that is answered begins anew."""
    many = [instance(f"vm-{number:02}") for number in range(90)]
    registry = Registry()
    executor = ThreadPoolExecutor(threads) if threads else None
    registry.errors = dict.fromkeys([one.key for one in many[:12]], RegistryUnreachable("timed out"))
    outcome = Writer(registry).apply(plan(many, [], OURS), OURS, executor)
    assert len(outcome.done) == 78
    registry.errors = dict.fromkeys([one.key for one in many], RegistryUnreachable("timed out"))
    registry.asked.clear()
    outcome = Writer(registry).apply(plan([], many, OURS), OURS, executor)
    assert {str(failure.error) for failure in outcome.failures} == {"timed out"}
    assert len(outcome.failures) == 90
    assert len(registry.asked) <= MOST_UNANSWERED_IN_A_ROW + threads


def test_a_strange_answer_to_one_registration_gives_removals_up_alone() -> None:
    """A 500 to one registration stops no update, such as one to DOWN, and every removal."""
    registry = Registry(B, C)
    registry.errors = {A.key: RegistryUnreachable("answered 500", status_code=500)}
    outcome = Writer(registry).apply(plan([A, replace(B, status=Status.DOWN)], [B, C], OURS), OURS)
    assert [change.action for change in outcome.done] == [Action.UPDATE]
    assert [failure.change.instance for failure in outcome.failures] == [A, C]
    assert registry.held.keys() == {B.key, C.key}


def test_changes_that_are_equal_are_distinguished() -> None:
    """Each of several equal changes in a plan is reported once as done or failed."""
    registry = Registry()
    registry.errors = {A.key: RegistryUnreachable("away")}
    twice = Plan((Change(Action.REGISTER, A), Change(Action.REGISTER, A), Change(Action.DEREGISTER, A, A)))
    outcome = Writer(registry).apply(twice, OURS)
    assert len(outcome.done) + len(outcome.failures) == 3


def test_a_foreign_instance_is_a_conflict() -> None:
    """An instance that another owner took over since the plan is not changed, and reported as a conflict."""
    registry = Registry(instance("a", THEIRS))
    outcome = Writer(registry).apply(
        Plan((Change(Action.UPDATE, A, A), Change(Action.DEREGISTER, A, A))), OURS
    )
    assert [type(failure.error) for failure in outcome.failures] == [OwnershipConflict] * 2
    assert registry.held == {A.key: instance("a", THEIRS)}
    assert {what for what, _ in registry.asked} == {"read"}


@pytest.mark.parametrize("stored", [1, 4_000_000_000_000])
def test_timestamps_only_grow(stored: int) -> None:
    """A registration has a newer timestamp than the stored one, even if our clock is behind."""
    have = replace(A, last_dirty_timestamp_ms=stored)
    assert next_timestamp_ms(have) > stored
    assert next_timestamp_ms(None) > 1_700_000_000_000
    written = Writer(Registry(have)).register_over(replace(A, ip_address="10.0.0.2"), have)
    assert (written.last_dirty_timestamp_ms or 0) > stored


def test_what_is_not_ours_to_decide_survives_a_write() -> None:
    """A write keeps unknown fields, the data centre and an override."""
    have = replace(
        A, unknown_fields={"x": 1}, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE
    )
    registry = Registry(have)
    written = Writer(registry).register_over(replace(A, ip_address="10.0.0.2"), have)
    sent = registry.held[A.key]
    assert (sent.unknown_fields, sent.data_center) == ({"x": 1}, have.data_center)
    assert (written.status, written.overridden_status) == (Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE)


def test_a_change_that_may_not_be_made_ends_the_plan() -> None:
    """After the first change that raises LeadershipLost no other change is made, and the plan raises it."""
    registry = Registry(B)
    steps = Plan((Change(Action.REGISTER, A), Change(Action.REGISTER, C), Change(Action.DEREGISTER, B)), ())

    class Stopped(Registry):
        def serve_register(self, instance: Instance) -> None:
            if instance.key == C.key:
                raise LeadershipLost("not sent")
            super().serve_register(instance)

    stopped = Stopped(*registry.held.values())
    with ThreadPoolExecutor(2) as executor, pytest.raises(LeadershipLost):
        Writer(stopped).apply(steps, OURS, executor)
    assert stopped.held.keys() == {A.key, B.key}
    assert ("deregister", "b") not in stopped.asked


@pytest.mark.parametrize("parallel", [False, True])
def test_what_may_not_be_written_is_not_even_read(parallel: bool) -> None:
    """Changes that wait send no request once this replica may no longer lead."""
    registry = Registry(B)
    registry.may_write = lambda: not registry.asked
    steps = Plan(tuple(Change(Action.DEREGISTER, one) for one in (B, A, C)), ())
    with ThreadPoolExecutor(1) as pool, pytest.raises(LeadershipLost, match="not begun"):
        Writer(registry).apply(steps, OURS, pool if parallel else None)
    assert registry.asked == [("read", "b"), ("deregister", "b"), ("read", "b")]


def test_a_new_instance_is_not_registered_without_the_lease() -> None:
    """The first registration of what was never seen sends no request once this replica may no longer lead."""
    peers = Peers(Connection(("http://127.0.0.1:1/eureka",)), lambda: False)
    with pytest.raises(LeadershipLost, match="another replica may lead"):
        Writer(peers, RecordingNotes(all_is_new=True)).apply(plan([A], [], OURS), OURS)
    assert not peers.peers[0].traffic.requests
    peers.close()


class _OneServer(Registry):
    """A registry of one URL that keeps the newer version of an instance, as a server does."""

    def serve_register(self, instance: Instance) -> None:
        """Store the instance unless a newer version is held."""
        before = self.held.get(instance.key)
        super().serve_register(instance)
        if before is not None and before.written_at_ms > instance.written_at_ms:
            self.held[instance.key] = before


def test_a_new_instance_costs_one_registration_and_one_read() -> None:
    """A new instance is registered once and then read; a second registration would notify every client
    again.
    """
    registry, seen = _OneServer(), RecordingNotes(all_is_new=True)
    Writer(registry, seen).apply(plan([A], [], OURS), OURS)
    assert registry.asked == [("register", "a"), ("read", "a")]
    assert seen.notes == [("registered", "a")]


@pytest.mark.parametrize("answer", [True, False], ids=["all answer", "one is silent"])
def test_a_new_instance_gives_way_at_each_of_several_servers(answer: bool) -> None:
    """At several servers a new instance is registered so that it gives way to a registration of any age, then
    read everywhere. While one does not answer, it wins over a former version of ours, which may be there.
    """
    urls = [f"http://eureka-{number}:8761/eureka" for number in (1, 2, 3)]
    cluster, asked = EurekaCluster(urls), list[str]()
    world = World(cluster)
    world.watch = lambda what: asked.append(what.partition(" ")[0])

    def silent(*_: str) -> None:
        raise RegistryUnreachable("it is frozen")

    with owned(world):
        peers, seen = Peers(Connection(tuple(urls))), RecordingNotes(all_is_new=True)
        if not answer:
            peers.peers[2].read = silent  # type: ignore[method-assign,assignment]
        assert Writer(peers, seen).apply(plan([instance("one")], [], OURS), OURS).failures == ()
        cluster.clock.advance(5_000)
        peers.close()
    assert asked == (["POST", "GET", "GET", "GET"] if answer else ["POST", "GET", "GET", "POST", "GET"])
    now_ms, year_ms = cluster.clock.now_ms, 365 * 86_400_000
    for server in cluster.servers.values():
        age_ms = now_ms - server.registry.leases["RATING"]["one"].holder.dirty_ms
        assert age_ms > 5 * year_ms if answer else 90_000 <= age_ms < year_ms


@pytest.mark.parametrize("names", [["one"], ["one", "two"]], ids=["alone", "with another one"])
def test_the_reads_after_a_lone_first_registration_wait(names: Sequence[str]) -> None:
    """At several servers the reads after a new instance wait a moment if nothing else is under way."""
    world, asked = World(EurekaCluster(URLS)), list[str]()
    world.watch = lambda what: asked.append(what.partition(" ")[0])
    with (
        owned(world),
        closing(Peers(Connection(tuple(URLS)))) as peers,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(time, "sleep", lambda seconds: asked.append(f"sleep {seconds:g}"))
        writer = Writer(peers, RecordingNotes(all_is_new=True))
        assert not writer.apply(plan([instance(name) for name in names], [], OURS), OURS).failures
    wait = ["sleep 0.05"] if len(names) == 1 else []
    assert asked == ["POST", *wait, "GET", "GET", "GET"] * len(names)


def test_any_number_of_plans_at_once_end_with_few_threads_for_their_changes() -> None:
    """Plans that share an executor with few threads do not wait for each other for ever, however long their
    changes wait.
    """
    plans = [plan([instance(f"{one}-{each}") for each in "abc"], [], OURS) for one in range(24)]
    world, ended = World(EurekaCluster(URLS)), list[PlanOutcome]()
    with owned(world), closing(Peers(Connection(URLS))) as peers, pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", threading.Event().wait)
        executor = PlanExecutor(Writer(peers, RecordingNotes(all_is_new=True)), ThreadPoolExecutor(2))
        threads = [
            threading.Thread(target=lambda one=one: ended.append(executor.apply(one, OURS)), daemon=True)
            for one in plans
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    assert [outcome.failures for outcome in ended] == [()] * len(plans)


def test_an_earlier_instance_is_sent_to_the_server_that_lacks_it() -> None:
    """When the read after a registration shows a newer own version, this version is registered again, as a
    server behind the URL may lack it.
    """
    stored = replace(A, last_dirty_timestamp_ms=next_timestamp_ms(None))
    registry = _OneServer(stored)
    Writer(registry, RecordingNotes(all_is_new=True)).apply(plan([A], [], OURS), OURS)
    assert registry.asked == [("register", "a"), ("read", "a"), ("register", "a")]
    assert registry.held[A.key] == stored


def test_what_a_list_did_not_show_to_be_out_by_us_keeps_our_mark() -> None:
    """An update keeps the operator's mark of a leaving instance that the list did not show; else its
    OUT_OF_SERVICE would look like a person's.
    """
    out = replace(
        A,
        status=Status.OUT_OF_SERVICE,
        overridden_status=Status.OUT_OF_SERVICE,
        metadata={**A.metadata, LEAVING_KEY: "true"},
    )
    registry, seen = Registry(out), RecordingNotes()
    Writer(registry, seen).apply(plan([replace(A, health_check_url="http://a/")], [A], OURS), OURS)
    assert registry.held[A.key].is_leaving
    assert registry.held[A.key].health_check_url
    known = seen.table.get(A.key)
    assert known is not None
    assert known.is_leaving


def test_a_stack_decides_about_our_mark_by_itself() -> None:
    """A stack's update is written as planned, without the mark that the server holds."""
    stacks = "stack/o/p/s/n"
    out = replace(
        instance("a", stacks), status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE
    )
    registry = Registry(replace(out, metadata={**out.metadata, LEAVING_KEY: "true"}))
    want = replace(instance("a", stacks), health_check_url="http://a/")
    Writer(registry).apply(plan([want], [instance("a", stacks)], stacks), stacks)
    assert registry.held[A.key].health_check_url
    assert not registry.held[A.key].is_leaving


def test_a_new_id_does_not_overwrite_another_servers_instance() -> None:
    """A new registration does not overwrite another owner's instance that only a second server holds."""
    first, second = "http://eureka-1:8761/eureka", "http://eureka-2:8761/eureka"
    cluster = EurekaCluster([first, second])
    cluster.cut = {(second, first)}
    theirs = {
        "instanceId": "one",
        "app": "RATING",
        "hostName": "10.9.9.9",
        "ipAddr": "10.9.9.9",
        "status": "UP",
        "port": {"$": 8080, "@enabled": "true"},
        "vipAddress": "rating",
        "dataCenterInfo": DATA_CENTER,
        "metadata": {"a": "b"},
        "lastDirtyTimestamp": str(cluster.clock.now_ms - 300 * 86_400_000),
    }
    cluster.request(second, ServerRequest("POST", ("apps", "RATING"), body={"instance": theirs}))
    cluster.clock.advance(60_000)
    with owned(World(cluster)):
        peers, seen = Peers(Connection((first, second))), RecordingNotes(all_is_new=True)
        outcome = Writer(peers, seen).apply(plan([instance("one")], [], OURS), OURS)
        cluster.clock.advance(5_000)
        peers.close()
    held = cluster.servers[second].registry.leases["RATING"]["one"].holder
    assert held.fields["hostName"] == "10.9.9.9"
    assert isinstance(outcome.failures[0].error, OwnershipConflict)
    assert seen.notes == [("found", "one")]


def test_a_server_that_lacks_our_mark_gets_it_before_our_status() -> None:
    """A server gets the operator's mark before OUT_OF_SERVICE, which would look like a person's without
    it.
    """
    url = "http://eureka:8761/eureka"
    have = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": "x"})
    want = replace(have, status=Status.OUT_OF_SERVICE, metadata={**have.metadata, LEAVING_KEY: "true"})
    eureka = FakeEureka({have.key: have})
    Writer(FakeServers({url: eureka})(Connection((url,)))).change_status(want, have)
    writes = [each for each in eureka.asked if each in ("register", "set_status")]
    assert writes == ["register", "set_status"]
    assert eureka.held[have.key].is_leaving


WAYS = pytest.mark.parametrize("in_a_batch", [False, True], ids=["single", "batch"])


@WAYS
def test_a_removal_ends_renewals_and_goes_to_every_server(in_a_batch: bool, servers: Servers) -> None:
    """A removal first ends the instance's renewals, and is then sent to every server: one that lacks the
    instance forwards nothing.
    """
    servers.everywhere(ONE)
    assert not removed(servers, in_a_batch=in_a_batch)
    assert servers.holding() == {}
    changes = [one for one in servers.requests if one != "GET"]
    first = changes.index("leaving")
    assert changes[first + 1 :] == ["POST" if in_a_batch else "DELETE"] * 3 + ["gone"]


@WAYS
def test_what_nobody_holds_is_not_removed(in_a_batch: bool, servers: Servers) -> None:
    """No DELETE is sent for an instance that no server holds, as it could hit a new registration; its
    renewals end.
    """
    assert not removed(servers, in_a_batch=in_a_batch)
    assert "DELETE" not in servers.requests
    assert not any("Cancel" in what for what in servers.world.trace)
    assert servers.requests[-2:] == ["leaving", "gone"]


@WAYS
@pytest.mark.parametrize("newer_ms", [1, -1], ids=["newer", "older"])
def test_what_only_one_server_shows_to_be_anothers_is_not_removed(
    newer_ms: int, in_a_batch: bool, servers: Servers
) -> None:
    """An instance that one server shows as another owner's is removed from no server."""
    servers.everywhere(ONE)
    last = servers.cluster.servers[URLS[-1]].registry
    held = servers.holding()[URLS[-1]].copy()
    fields = {**held.fields, "metadata": {OWNER_KEY: "stack/o/p/s/n"}}
    last.cancel(*ONE.key, replicated=True)
    last.register(replace(held, fields=fields, dirty_ms=held.dirty_ms + newer_ms), replicated=True)
    (error,) = removed(servers, in_a_batch=in_a_batch)
    assert isinstance(error, OwnershipConflict)
    assert servers.holding().keys() == set(URLS)


@WAYS
@pytest.mark.parametrize("is_superseded", [True, False])
def test_what_a_server_missed_of_a_hand_over_is_removed(
    servers: Servers, in_a_batch: bool, is_superseded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal takes a server's older version of another syncer of this operator, and nobody else's."""
    *others, last = servers.peers.peers
    for peer in others:
        peer.register(replace(ONE, last_dirty_timestamp_ms=2000))
    stars = {OWNER_KEY: "cluster/eks/shop/stars"}
    last.register(replace(ONE, metadata=stars, last_dirty_timestamp_ms=1000))
    monkeypatch.setattr(servers, "is_superseded_version", lambda *_: is_superseded)
    errors = removed(servers, in_a_batch=in_a_batch)
    assert bool(errors) is not is_superseded
    assert servers.holding().keys() == (set() if is_superseded else set(URLS))


REQUESTS = {
    "one more": (plan([ONE], [], OURS), {1: {"POST": 1, "GET": 1}, 3: {"POST": 1, "GET": 3}}),
    "changed": (
        plan([replace(ONE, ip_address="10.0.0.2")], [ONE], OURS),
        {1: {"GET": 1, "POST": 1}, 3: {"GET": 1, "POST": 1}},
    ),
    "removed": (plan([], [ONE], OURS), {1: {"GET": 1, "DELETE": 1}, 3: {"GET": 3, "DELETE": 3}}),
}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("what", list(REQUESTS))
def test_how_many_requests_one_pod_costs(what: str, count: int) -> None:
    """A change of one pod costs two requests at one server; at three servers two to four, and six for a
    removal.
    """
    cluster, asked = EurekaCluster(URLS[:count]), Counter[str]()
    cluster.clock.advance(3_600_000)
    world = World(cluster)
    steps, expected = REQUESTS[what]
    with owned(world), closing(Peers(Connection(URLS[:count]))) as peers:
        if steps.changes[0].action is not Action.REGISTER:
            Writer(peers).register(replace(ONE, last_dirty_timestamp_ms=cluster.clock.now_ms))
            cluster.clock.advance(5_000)
        world.watch = lambda sent: asked.update([sent.partition(" ")[0]])
        writer = Writer(peers, RecordingNotes(all_is_new=True))
        assert writer.apply(steps, OURS).failures == ()
    assert asked == expected[count]


@WAYS
def test_a_persons_status_comes_back_with_what_the_servers_forgot(in_a_batch: bool, servers: Servers) -> None:
    """A forgotten instance is registered again with the person's OUT_OF_SERVICE as an override, and is never
    UP in between.
    """
    out = Status.OUT_OF_SERVICE
    servers.table.store_read_instance(replace(ONE, status=out, overridden_status=out))
    servers.table.store_confirmed_absence(ONE.key, may_be_forgotten=True)
    assert not servers.carry_out(plan([ONE], [], OURS), in_a_batch=in_a_batch)
    held = servers.holding().values()
    assert {(one.status, one.overridden) for one in held} == {("OUT_OF_SERVICE", "OUT_OF_SERVICE")}
    assert servers.requests[-1] == "registered OUT_OF_SERVICE"


@WAYS
def test_what_registered_itself_under_our_id_is_left(in_a_batch: bool, servers: Servers) -> None:
    """An instance without an owner that stands under our id is neither overwritten nor removed."""
    itself = replace(ONE, metadata={}, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(itself)
    changed = replace(ONE, port=Port(9090))
    for steps in (plan([changed], [ONE], OURS), plan([], [ONE], OURS)):
        errors = servers.carry_out(steps, in_a_batch=in_a_batch)
        assert [type(error) for error in errors] == [OwnershipConflict]
    assert servers.holding().keys() == set(URLS)
    assert {held.dirty_ms for held in servers.holding().values()} == {itself.last_dirty_timestamp_ms}


@WAYS
def test_what_is_to_be_replaced_stays_while_its_replacement_is_refused(
    in_a_batch: bool, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a gateway or a server refuses an endpoint's registration under its next id, that under its former id
    stays, so that callers find one of both; an ended endpoint of the same plan is removed.
    """
    servers.everywhere(ONE)
    following = replace(ONE, instance_id="one:rating:9090", port=Port(9090))
    ended = replace(ONE, instance_id="ended:rating:8080", ip_address="10.0.0.2")
    for peer in servers.peers.peers:
        peer.register(ended)

    def refuse(*_: object) -> None:
        raise RegistryDenied("answered 403", status_code=403)

    def send(self: Peer, items: Sequence[bytes]) -> list[ItemResponse]:
        dropped = [b'"Register"' in item for item in items]
        answers = iter(
            send_batch(self, [item for item, is_out in zip(items, dropped, strict=True) if not is_out])
        )
        return [ItemResponse(200) if is_out else next(answers) for is_out in dropped]

    send_batch = Peer.send_batch
    monkeypatch.setattr(Peer, "send_batch", send)
    monkeypatch.setattr(Peer, "register", refuse)
    steps = plan([following], [ONE, ended], OURS)
    errors = servers.carry_out(steps, in_a_batch=in_a_batch)
    assert [type(error) for error in errors] == [RegistryDenied, RegistryDenied]
    assert servers.holding().keys() == set(URLS)
    assert all(servers.cluster.servers[url].registry.get(*ended.key) is None for url in URLS)
    monkeypatch.undo()
    assert not servers.carry_out(steps, in_a_batch=in_a_batch)
    assert not servers.holding()
