"""What a change leaves behind on each of several servers of the model, by single requests and in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest import mock

import pytest

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import plan
from eurekube_provider.eureka.apply import apply
from eurekube_provider.eureka.batch import ItemResponse
from eurekube_provider.eureka.bulk import change_many
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.status_override import put_back
from tests.explore.world import World, owned
from tests.model.cluster import Cluster
from tests.model.registry import Info

URLS = tuple(f"http://eureka-{number}:8761/eureka" for number in (1, 2, 3))
OURS = "cluster/eks/shop/rating"
ONE = Instance("rating", "one", "10.0.0.1", "10.0.0.1", Port(8080), metadata={OWNER_KEY: OURS})


class Servers:
    """Three servers that tell each other nothing, and what an observer is told.

    :ivar told: what it was told, and the requests between.
    :ivar lost: the status that a person had set over what the servers forgot.
    """

    peers: Peers

    def __init__(self) -> None:
        self.cluster = Cluster(URLS)
        self.cluster.cut = {(one, other) for one in URLS for other in URLS if one != other}
        self.cluster.clock.advance(3_600_000)
        self.world = World(self.cluster)
        self.world.watch = lambda what: self.told.append(what.partition(" ")[0])
        self.told: list[str] = []
        self.lost = Status.UNKNOWN

    def everywhere(self, instance: Instance) -> None:
        """Each of them holds it."""
        for peer in self.peers.peers:
            peer.register(instance)
        self.told.clear()

    def holding(self) -> dict[str, Info]:
        """Who holds it, and how."""
        held = {url: self.cluster.servers[url].registry.get(*ONE.key) for url in URLS}
        return {url: info for url, info in held.items() if info is not None}

    def registered(self, instance: Instance) -> None:
        self.told.append(f"registered {instance.status}")

    def leaving(self, _: Instance) -> None:
        self.told.append("leaving")

    def found(self, _: Instance) -> None:
        self.told.append("found")

    def gone(self, _: Instance) -> None:
        self.told.append("gone")

    def is_of_another_cluster(self, _: Instance) -> bool:
        """It is not."""
        return False

    def is_known(self, _: str) -> bool:
        """It is not."""
        return False

    def holds(self, _: tuple[str, str]) -> bool:
        """It does not."""
        return False

    def is_new(self, _: tuple[str, str]) -> bool:
        """It is not."""
        return False

    def lost_override(self, _: tuple[str, str]) -> Status:
        return self.lost


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Nothing but them can be reached."""
    made = Servers()
    with owned(made.world):
        made.peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        yield made


def removed(servers: Servers, *, in_a_batch: bool) -> object:
    """Remove it; what did not go well."""
    if in_a_batch:
        return change_many(servers.peers, (), [ONE], {ONE.key: OURS}, servers)
    return apply(plan([], [ONE], OURS), OURS, servers.peers, servers).failures


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


def test_what_a_server_keeps_of_a_batch_is_removed_again(servers: Servers) -> None:
    """One of several: nobody would forward it to that one."""
    servers.everywhere(ONE)
    first, keeps = servers.peers.peers[0], iter([True])
    send = first.batch

    def batch(items: Sequence[bytes]) -> list[ItemResponse]:
        if b'"Cancel"' in items[0] and next(keeps, False):
            return [ItemResponse(200), *send(items[1:])]
        return send(items)

    with mock.patch.object(first, "batch", batch):
        assert not removed(servers, in_a_batch=True)
    assert next(keeps, None) is None
    assert servers.holding() == {}


def test_what_a_server_drops_of_a_batch_is_sent_by_itself(servers: Servers) -> None:
    """It says 200 all the same, and holds nothing."""
    first, drops = servers.peers.peers[0], iter([True])
    send = first.batch

    def batch(items: Sequence[bytes]) -> list[ItemResponse]:
        if b'"Register"' in items[0] and next(drops, False):
            return [ItemResponse(200), *send(items[1:])]
        return send(items)

    with mock.patch.object(first, "batch", batch):
        assert change_many(servers.peers, [ONE], (), {ONE.key: OURS}, servers) == {}
    assert next(drops, None) is None
    assert servers.holding().keys() == set(URLS)


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


def test_undrain_leaves_what_is_on_its_way_out(servers: Servers) -> None:
    """The operator took it out, and its pod ends; what a person took out is put back."""
    for metadata, expected in (
        (ONE.metadata, "UP"),
        ({**ONE.metadata, LEAVING_KEY: "true"}, "OUT_OF_SERVICE"),
    ):
        one = replace(ONE, metadata=metadata, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
        servers.everywhere(one)
        for peer in servers.peers.peers:
            peer.set_status(one, Status.OUT_OF_SERVICE)
        put_back(servers.peers, [one])
        assert {held.status for held in servers.holding().values()} == {expected}


def test_undrain_waits_for_what_servers_still_tell_each_other(servers: Servers) -> None:
    """A server that was busy tells the others of an override after it was cleared."""
    one = replace(ONE, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(one)
    for peer in servers.peers.peers:
        peer.set_status(one, Status.OUT_OF_SERVICE)
    last = servers.peers.peers[-1]

    def late() -> None:
        last.set_status(one, Status.OUT_OF_SERVICE)

    servers.cluster.clock.after(700, late)
    put_back(servers.peers, [one])
    servers.cluster.clock.advance(5000)
    held = servers.holding().values()
    assert {(one.status, one.overridden) for one in held} == {("UP", "UNKNOWN")}


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
