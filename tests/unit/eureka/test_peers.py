"""Several servers as one: order of renewals, servers that are cut off, and notes of status changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.eureka.writer import Writer
from tests.explore.world import World, owned
from tests.unit.eureka.servers import Holding, instance, of_a_stack

NEAR, FAR = URLS = ("http://eureka-1:8761/eureka", "http://eureka-2:8761/eureka")
ONE = Instance(
    "rating",
    "rating-0",
    "10.0.0.1",
    "10.0.0.1",
    Port(8080),
    metadata={OWNER_KEY: "cluster/eks/shop/rating"},
    last_dirty_timestamp_ms=1,
)


def test_a_status_is_remembered_before_it_is_set_or_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting and clearing a status are noted before the requests: a server may replicate the status to a
    busy peer late.
    """
    shared = instance("shared")
    servers = Holding(shared)
    reported: list[str] = []

    def remember(one: Instance) -> None:
        reported.append(f"remember {one.instance_id}")

    monkeypatch.setattr(servers.table, "note_override_change", remember)
    writer = Writer(servers)

    def asked(what: str, _: Instance, status: Status) -> bool:
        reported.append(f"{what} {status}")
        return True

    for peer in servers.peers:
        peer.set_status = partial(asked, "set")  # type: ignore[method-assign]
        peer.clear_status = partial(asked, "clear")  # type: ignore[method-assign]
    writer.set_status(shared, Status.OUT_OF_SERVICE)
    writer.clear_status(shared)
    assert reported == ["remember shared", "set OUT_OF_SERVICE", "remember shared", "clear UP", "clear UP"]


def test_a_renewal_ends_at_who_removed_it() -> None:
    """A stack's instance that a server renewed lately and lacks now was removed there. Its renewal fails, at
    whichever server it begins, because another server that missed the removal would restore the instance
    everywhere. Without such a note, and for a syncer's instance, the renewal goes to a server that holds the
    instance.
    """
    stacks, syncers = of_a_stack("vm"), instance("ours")
    servers = Holding(stacks, syncers)
    assert [servers.renew(one, turn) for one in (stacks, syncers) for turn in range(2)] == [True] * 4
    for one in (stacks, syncers):
        del servers.held[0][one.key]
    assert not servers.renew(stacks, 2)  # asks it
    assert not servers.renew(stacks, 3)  # begins with the other one
    assert servers.renew(syncers, 2)
    servers.table = InstanceTable()
    assert servers.renew(stacks, 2)


class Split:
    """Two servers that cannot reach each other, and a client that reaches both."""

    def __init__(self, cluster: EurekaCluster) -> None:
        self.may_write = True
        self.cluster = cluster
        self.cluster.cut = {(NEAR, FAR), (FAR, NEAR)}
        self.peers = Peers(Connection(URLS), lambda: self.may_write)

    def renewed(self, one: Instance = ONE, turns: int = 4) -> bool:
        """Renew an instance this often, and return whether the far server holds it then."""
        for turn in range(turns):
            assert self.peers.renew(one, turn)
            self.cluster.clock.advance(25_000)
        return self.cluster.servers[FAR].registry.get(*one.key) is not None


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> Iterator[Split]:
    """Yield two separated servers; an instance that one of them lacks counts as cut off at once."""
    monkeypatch.setattr(windows, "CUT_OFF_AFTER_SECONDS", 0.0)
    cluster = EurekaCluster(URLS)
    with owned(World(cluster)):
        yield Split(cluster)


def test_a_server_that_no_other_reaches_gets_new_registrations(split: Split) -> None:
    """Renewals register new instances at a server that its peers cannot reach: it gets all removals, and
    would have no pod left.
    """
    Writer(split.peers).register(ONE)
    assert split.renewed()
    split.cluster.cut.clear()
    split.cluster.clock.advance(60_000)
    held = [server.registry.get(*ONE.key) for server in split.cluster.servers.values()]
    assert all(held)


def test_an_instance_is_sent_once_it_is_in_service_again(split: Split) -> None:
    """An OUT_OF_SERVICE instance is registered at a separated server only once its override is cleared,
    because nobody would clear it there.
    """
    near, far = split.peers.peers
    Writer(split.peers).register(ONE)
    near.set_status(ONE, Status.OUT_OF_SERVICE)
    assert not split.renewed()
    near.clear_status(ONE)
    near.register(ONE)
    assert split.renewed()
    there = far.read(*ONE.key)
    assert there is not None
    assert (there.status, there.overridden_status) == (Status.UP, Status.UNKNOWN)


def test_what_is_out_of_service_there_stays_as_it_is(split: Split) -> None:
    """An instance that is OUT_OF_SERVICE at the separated server is not overwritten there: it would lose the
    operator's mark.
    """
    near, far = split.peers.peers
    far.register(ONE)
    far.set_status(ONE, Status.OUT_OF_SERVICE)
    split.cluster.clock.advance(10_000)
    near.register(replace(ONE, last_dirty_timestamp_ms=2))
    split.renewed(replace(ONE, last_dirty_timestamp_ms=2))
    there = far.read(*ONE.key)
    assert there is not None
    assert there.last_dirty_timestamp_ms == ONE.last_dirty_timestamp_ms


def test_only_who_leads_tells_it(split: Split) -> None:
    """A replica that may not write renews, but registers no instance at a separated server."""
    Writer(split.peers).register(ONE)
    split.may_write = False
    assert not split.renewed()
    split.may_write = True
    assert split.renewed()


def test_what_a_stack_registered_is_left_as_it_is(split: Split) -> None:
    """A stack's instance is not registered at a separated server, where it may have been removed."""
    stacks = replace(ONE, metadata={OWNER_KEY: "stack/o/p/s/billing"})
    Writer(split.peers).register(stacks)
    assert not split.renewed(stacks)
