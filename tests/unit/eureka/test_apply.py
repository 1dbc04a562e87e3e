"""Carrying out a plan: on a fake registry, and on servers of the model alone and in batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import (
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, Plan, plan
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.eureka.apply import apply, set_status, write
from eurekube_provider.eureka.bulk import change_many
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.instance_by_server import InstanceByServer
from eurekube_provider.eureka.observer import next_timestamp, now_ms
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from tests.explore.world import World, owned
from tests.model.commands import DATA_CENTER
from tests.unit.eureka.model_servers import ONE, URLS, Servers, removed
from tests.unit.fake_eureka import FakeEureka, FakeServers
from tests.unit.strategies import OURS, THEIRS

Key = tuple[str, str]


def instance(name: str, owner: str = OURS) -> Instance:
    """An instance of an owner."""
    return Instance("rating", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": owner})


class Registry(Peers):
    """One server in memory that fails when told to, and remembers what it was asked."""

    def __init__(self, *instances: Instance) -> None:
        self.held: dict[Key, Instance] = {one.key: one for one in instances}
        self.errors: dict[Key, RegistryError] = {}
        self.asked: list[tuple[str, str]] = []
        self.may_write = lambda: True

    def uses_batches(self, leases: int) -> bool:
        """Never."""
        assert leases >= 0
        return False

    def read(self, application: str, instance_id: str) -> Instance | None:
        """What is held."""
        self._ask("read", application, instance_id)
        return self.held.get((application, instance_id))

    def register(self, instance: Instance) -> None:
        """Hold it."""
        self._ask("register", *instance.key)
        self.held[instance.key] = instance

    def deregister(self, application: str, instance_id: str) -> InstanceByServer:
        """Hold it no more."""
        self._ask("deregister", application, instance_id)
        self.held.pop((application, instance_id), None)
        return InstanceByServer({"http://one/eureka": None}, {})

    def _ask(self, what: str, application: str, instance_id: str) -> None:
        self.asked.append((what, instance_id))
        error = self.errors.get((application, instance_id))
        if error:
            raise error


A, B, C = instance("a"), instance("b"), instance("c")


def test_every_write_is_preceded_by_a_read() -> None:
    """What a list said is not believed: whose the instance is now is read first."""
    registry = Registry(C)
    outcome = apply(plan([A], [C], OURS), OURS, registry)
    assert [change.action for change in outcome.done] == [Action.REGISTER, Action.DEREGISTER]
    assert registry.asked == [("read", "a"), ("register", "a"), ("read", "c"), ("deregister", "c")]
    assert registry.held.keys() == {A.key}


@pytest.mark.parametrize("parallel", [False, True])
def test_one_refusal_stops_nothing_else(parallel: bool) -> None:
    """A change that the registry refuses is told with its error, and the others are carried out."""
    registry = Registry(C)
    registry.errors = {A.key: RegistryRejected("no")}
    with ThreadPoolExecutor(2) as pool:
        outcome = apply(plan([A, B], [C], OURS), OURS, registry, executor=pool if parallel else None)
    assert [(failure.change.instance, str(failure.error)) for failure in outcome.failures] == [(A, "no")]
    assert [change.instance for change in outcome.done] == [B, C]


class Interrupted(Registry):
    """Lets so many writes through, and no more; an override stands over what is registered."""

    def __init__(self, held: Instance, writes: int) -> None:
        super().__init__(held)
        self.writes = writes
        self.seen = [held]

    def register(self, instance: Instance) -> None:
        """Hold it, with the override that there is; a server believes DOWN all the same."""
        have = self.held[instance.key]
        override = have.overridden_status
        status = override if have.is_overridden and instance.status is not Status.DOWN else instance.status
        self._write(replace(instance, status=status, overridden_status=override))

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Take the override away."""
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
def test_our_own_out_of_service_is_undone_however_often_that_is_interrupted(
    writes: int, first: Status
) -> None:
    """A StatefulSet's next pod must not stay out of service as if a person had put it there."""
    leaving = {**A.metadata, LEAVING_KEY: "true"}
    out = Status.OUT_OF_SERVICE
    old = replace(A, ip_address="10.9.9.9", status=out, overridden_status=out, metadata=leaving)
    registry = Interrupted(old, writes)
    for allowed, status in ((writes, first), (3, first), (3, Status.UP)):
        registry.writes = allowed
        with suppress(LeadershipLost):
            apply(plan([replace(A, status=status)], registry.held.values(), OURS), OURS, registry)
    assert plan([A], registry.held.values(), OURS).changes == ()
    found = registry.held[A.key]
    assert (found.status, found.is_overridden, found.metadata) == (Status.UP, False, A.metadata)
    assert not [one for one in registry.seen if one.status is Status.UP and one.ip_address == "10.9.9.9"]


def test_with_no_server_the_rest_is_given_up() -> None:
    """Where the registry is away, later steps are not tried: each of them is told as failed."""
    registry = Registry(C)
    registry.errors = {A.key: RegistryUnreachable("away")}
    outcome = apply(plan([A], [C], OURS), OURS, registry)
    assert outcome.done == ()
    assert [failure.change.instance for failure in outcome.failures] == [A, C]
    assert registry.asked == [("read", "a")]


def test_changes_that_are_equal_are_told_apart() -> None:
    """A plan may name one instance twice: each of its changes is done or failed, once."""
    registry = Registry()
    registry.errors = {A.key: RegistryUnreachable("away")}
    twice = Plan((Change(Action.REGISTER, A), Change(Action.REGISTER, A), Change(Action.DEREGISTER, A, A)))
    outcome = apply(twice, OURS, registry)
    assert len(outcome.done) + len(outcome.failures) == 3


def test_a_foreign_instance_is_a_conflict() -> None:
    """An instance that came to belong to somebody else since the plan is left as it is."""
    registry = Registry(instance("a", THEIRS))
    outcome = apply(Plan((Change(Action.UPDATE, A, A), Change(Action.DEREGISTER, A, A))), OURS, registry)
    assert [type(failure.error) for failure in outcome.failures] == [OwnershipConflict] * 2
    assert registry.held == {A.key: instance("a", THEIRS)}
    assert {what for what, _ in registry.asked} == {"read"}


@pytest.mark.parametrize("stored", [1, 4_000_000_000_000])
def test_timestamps_only_grow(stored: int) -> None:
    """Whatever our clock says, what we send is newer than what is there."""
    have = replace(A, last_dirty_timestamp_ms=stored)
    assert next_timestamp(have) > stored
    assert next_timestamp(None) > 1_700_000_000_000
    written = write(Registry(have), replace(A, ip_address="10.0.0.2"), have)
    assert (written.last_dirty_timestamp_ms or 0) > stored


def test_what_is_not_ours_to_decide_survives_a_write() -> None:
    """Unknown fields and the data centre go back as they came, and an override is not forgotten."""
    have = replace(
        A, unknown_fields={"x": 1}, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE
    )
    registry = Registry(have)
    written = write(registry, replace(A, ip_address="10.0.0.2"), have)
    sent = registry.held[A.key]
    assert (sent.unknown_fields, sent.data_center) == ({"x": 1}, have.data_center)
    assert (written.status, written.overridden_status) == (Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE)


def test_a_change_that_may_not_be_made_ends_the_plan() -> None:
    """Each single change asks anew: none is made after the first that was refused, and all have ended."""
    registry = Registry(B)
    steps = Plan((Change(Action.REGISTER, A), Change(Action.REGISTER, C), Change(Action.DEREGISTER, B)), ())

    class Stopped(Registry):
        def register(self, instance: Instance) -> None:
            if instance.key == C.key:
                raise LeadershipLost("not sent")
            super().register(instance)

    stopped = Stopped(*registry.held.values())
    with ThreadPoolExecutor(2) as executor, pytest.raises(LeadershipLost):
        apply(steps, OURS, stopped, executor=executor)
    assert stopped.held.keys() == {A.key, B.key}
    assert ("deregister", "b") not in stopped.asked


@pytest.mark.parametrize("parallel", [False, True])
def test_what_may_not_be_written_is_not_even_read(parallel: bool) -> None:
    """Changes that wait for their turn end as soon as this replica may lead no more."""
    registry = Registry(B)
    registry.may_write = lambda: not registry.asked
    steps = Plan(tuple(Change(Action.DEREGISTER, one) for one in (B, A, C)), ())
    with ThreadPoolExecutor(1) as pool, pytest.raises(LeadershipLost, match="not begun"):
        apply(steps, OURS, registry, executor=pool if parallel else None)
    assert registry.asked == [("read", "b"), ("deregister", "b")]


class _AllIsNew:
    """An operator that has seen none of the instances, by a list that one server gave."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Instance]] = []

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """It knows of none."""
        return not instance

    def is_known(self, owner: str) -> bool:
        """It has others."""
        return bool(owner)

    def holds(self, key: Key) -> bool:
        """It holds nothing."""
        return not key

    def is_new(self, key: Key) -> bool:
        """It was never seen."""
        return bool(key)

    def lost_override(self, key: Key) -> Status:
        """Nothing was lost."""
        assert key
        return Status.UNKNOWN

    def registered(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("registered", instance))

    def found(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("found", instance))

    def leaving(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("leaving", instance))

    def gone(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("gone", instance))


class _OneServer(Registry):
    """A registry of one URL, which keeps what is newer, as a server does."""

    peers = (Peer("http://one/eureka", Connection(("http://one/eureka",))),)

    def register(self, instance: Instance) -> None:
        """Hold it unless a newer version is held."""
        before = self.held.get(instance.key)
        super().register(instance)
        if before is not None and before.written_at_ms > instance.written_at_ms:
            self.held[instance.key] = before


def test_a_new_instance_costs_one_registration_and_one_read() -> None:
    """A second registration would be one more change that every client is told of."""
    registry, seen = _OneServer(), _AllIsNew()
    apply(plan([A], [], OURS), OURS, registry, seen)
    assert registry.asked == [("register", "a"), ("read", "a")]
    assert [(what, one.instance_id) for what, one in seen.told] == [("registered", "a")]


@pytest.mark.parametrize("answer", [True, False], ids=["all answer", "one is silent"])
def test_a_new_instance_is_written_last_where_several_servers_are_asked_for_it(answer: bool) -> None:
    """One that is silent may hold it: what is written gives way, and is read. Else nothing is asked again."""
    urls = [f"http://eureka-{number}:8761/eureka" for number in (1, 2, 3)]
    cluster, asked = EurekaCluster(urls), list[str]()
    world = World(cluster)
    world.watch = lambda what: asked.append(what.partition(" ")[0])

    def silent(*_: str) -> None:
        raise RegistryUnreachable("it is frozen")

    with owned(world):
        peers, observer = Peers(Connection(tuple(urls))), _AllIsNew()
        if not answer:
            peers.peers[2].read = silent  # type: ignore[method-assign,assignment]
        before_ms = now_ms()
        assert apply(plan([instance("one")], [], OURS), OURS, peers, observer).failures == ()
        cluster.clock.advance(5_000)
        peers.close()
    assert asked.count("POST") == 1
    assert len(asked) == 4
    for server in cluster.servers.values():
        assert (server.registry.leases["RATING"]["one"].holder.dirty_ms >= before_ms) is answer


def test_what_stood_there_before_we_registered_is_told_to_the_server_that_lacks_it() -> None:
    """Behind one URL another server may have answered the registration, and lack what this one holds."""
    stored = replace(A, last_dirty_timestamp_ms=next_timestamp(None))
    registry = _OneServer(stored)
    apply(plan([A], [], OURS), OURS, registry, _AllIsNew())
    assert registry.asked == [("register", "a"), ("read", "a"), ("register", "a")]
    assert registry.held[A.key] == stored


def test_what_a_list_did_not_show_to_be_out_by_us_keeps_our_mark() -> None:
    """Without it, the OUT_OF_SERVICE that stands over what is written would pass for a person's."""
    out = replace(
        A,
        status=Status.OUT_OF_SERVICE,
        overridden_status=Status.OUT_OF_SERVICE,
        metadata={**A.metadata, LEAVING_KEY: "true"},
    )
    registry, seen = Registry(out), _AllIsNew()
    apply(plan([replace(A, health_check_url="http://a/")], [A], OURS), OURS, registry, seen)
    assert registry.held[A.key].is_leaving
    assert registry.held[A.key].health_check_url
    assert [one.is_leaving for _, one in seen.told] == [True]
    enforced = Registry(out)
    apply(plan([replace(A, health_check_url="http://a/")], [A], OURS), OURS, enforced)
    assert not enforced.held[A.key].is_leaving  # a stack decides about its marks by itself


def test_what_only_another_server_holds_is_not_overwritten_by_a_new_id() -> None:
    """Who registered there long ago, and is in no list that was read, keeps the id."""
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
        "lastDirtyTimestamp": "1",
    }
    cluster.request(second, ServerRequest("POST", ("apps", "RATING"), body={"instance": theirs}))
    cluster.clock.advance(300_000)
    with owned(World(cluster)):
        peers, observer = Peers(Connection((first, second))), _AllIsNew()
        outcome = apply(plan([instance("one")], [], OURS), OURS, peers, observer)
        cluster.clock.advance(5_000)
        peers.close()
    held = cluster.servers[second].registry.leases["RATING"]["one"].holder
    assert held.fields["hostName"] == "10.9.9.9"
    assert isinstance(outcome.failures[0].error, OwnershipConflict)
    assert [(what, one.ip_address) for what, one in observer.told] == [("found", "10.9.9.9")]


def test_a_server_that_lacks_our_mark_is_told_of_it_before_our_status() -> None:
    """The one that was marked may be frozen: here the status would pass for a person's."""
    url = "http://eureka:8761/eureka"
    have = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": "x"})
    want = replace(have, status=Status.OUT_OF_SERVICE, metadata={**have.metadata, LEAVING_KEY: "true"})
    eureka = FakeEureka({have.key: have})
    set_status(FakeServers({url: eureka})(Connection((url,))), want, have)
    writes = [each for each in eureka.asked if each in ("register", "set_status")]
    assert writes == ["register", "set_status"]
    assert eureka.held[have.key].is_leaving


WAYS = pytest.mark.parametrize("in_a_batch", [False, True], ids=["single", "batch"])


@WAYS
def test_a_removal_ends_the_renewals_first_and_is_sent_to_every_server(
    in_a_batch: bool, servers: Servers
) -> None:
    """One that does not hold it tells none of the others; and a renewal in flight would bring it back."""
    servers.everywhere(ONE)
    assert not removed(servers, in_a_batch=in_a_batch)
    assert servers.holding() == {}
    changes = [one for one in servers.told if one != "GET"]
    first = changes.index("leaving")
    assert changes[first + 1 :] == ["POST" if in_a_batch else "DELETE"] * 3 + ["gone"]


@WAYS
def test_what_nobody_holds_is_not_removed(in_a_batch: bool, servers: Servers) -> None:
    """It could hit whoever registers it at that moment; it is renewed no more, and looked for later."""
    assert not removed(servers, in_a_batch=in_a_batch)
    assert "DELETE" not in servers.told
    assert not any("Cancel" in what for what in servers.world.trace)
    assert servers.told[-2:] == ["leaving", "gone"]


def test_what_somebody_else_registers_in_its_place_stays(servers: Servers) -> None:
    """There is time for that while a server is waited for that does not answer: the look finds theirs."""
    servers.everywhere(ONE)
    servers.cluster.down.add(URLS[-1])
    registry = servers.cluster.servers[URLS[0]].registry
    held = servers.holding()[URLS[0]].copy()
    theirs = replace(held, fields={**held.fields, "metadata": {OWNER_KEY: "stack/o/p/s/n"}})
    comes = iter([True])

    def registers(what: str) -> None:
        if what.startswith("DELETE") and URLS[1] in what and next(comes, False):
            registry.register(theirs, replicated=True)

    servers.world.watch = registers
    assert not removed(servers, in_a_batch=False)
    assert registry.get(*ONE.key) is theirs
    assert URLS[1] not in servers.holding()


def test_what_a_server_holds_again_is_removed_again(servers: Servers) -> None:
    """A renewal that was forwarded came after the removal: only a look past the caches tells."""
    servers.everywhere(ONE)
    registry = servers.cluster.servers[URLS[0]].registry
    kept, comes_back = servers.holding()[URLS[0]].copy(), iter([True])

    def forwarded(what: str) -> None:
        if what.startswith("DELETE") and URLS[0] in what and next(comes_back, False):
            registry.register(kept, replicated=True)

    servers.world.watch = forwarded
    assert not removed(servers, in_a_batch=False)
    assert next(comes_back, None) is None
    assert servers.holding() == {}


@WAYS
def test_a_persons_status_comes_back_with_what_the_servers_forgot(in_a_batch: bool, servers: Servers) -> None:
    """As an override, so that it is theirs to clear; nobody finds it UP in between."""
    servers.lost = Status.OUT_OF_SERVICE
    if in_a_batch:
        change_many(servers.peers, [ONE], (), {ONE.key: OURS}, servers)
    else:
        apply(plan([ONE], [], OURS), OURS, servers.peers, servers)
    held = servers.holding().values()
    assert {(one.status, one.overridden) for one in held} == {("OUT_OF_SERVICE", "OUT_OF_SERVICE")}
    assert servers.told[-1] == "registered OUT_OF_SERVICE"


@WAYS
def test_what_registered_itself_under_our_id_is_left(in_a_batch: bool, servers: Servers) -> None:
    """Nobody's mark is not ours: neither is it written over, nor removed."""
    itself = replace(ONE, metadata={}, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(itself)
    changed = replace(ONE, port=Port(9090))
    if in_a_batch:
        for wanted, leaving in (([changed], []), ([], [ONE])):
            failed = change_many(servers.peers, wanted, leaving, {ONE.key: OURS}, servers)
            assert [type(error) for error in failed.values()] == [OwnershipConflict]
    else:
        for steps in (plan([changed], [ONE], OURS), plan([], [ONE], OURS)):
            (failure,) = apply(steps, OURS, servers.peers, servers).failures
            assert isinstance(failure.error, OwnershipConflict)
    assert servers.holding().keys() == set(URLS)
    assert {held.dirty_ms for held in servers.holding().values()} == {itself.last_dirty_timestamp_ms}
