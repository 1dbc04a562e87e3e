"""Servers that are not told by others what these hold, on the model of Eureka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.far_side import FarSide
from eurekube_provider.eureka.peers import Peers
from tests.explore.world import World, owned

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


class Split:
    """Two servers that cannot reach each other, and somebody who reaches both."""

    def __init__(self, cluster: EurekaCluster) -> None:
        self.may_write = True
        self.cluster = cluster
        self.cluster.cut = {(NEAR, FAR), (FAR, NEAR)}
        self.peers = Peers(Connection(URLS), lambda: self.may_write)

    def renewed(self, one: Instance = ONE, turns: int = 4) -> bool:
        """Whether it stands at the far side after so many renewals."""
        for turn in range(turns):
            assert self.peers.renew(one, turn)
            self.cluster.clock.advance(25_000)
        return self.cluster.servers[FAR].registry.get(*one.key) is not None


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> Iterator[Split]:
    """What lacks once is told at once."""
    monkeypatch.setattr(windows, "LACKING", 0.0)
    cluster = EurekaCluster(URLS)
    with owned(World(cluster)):
        yield Split(cluster)


def test_a_server_that_no_other_one_reaches_is_told_what_was_registered(split: Split) -> None:
    """Its callers would lose every pod that is replaced, since removals are sent to each server."""
    split.peers.register(ONE)
    assert split.renewed()
    split.cluster.cut.clear()
    split.cluster.clock.advance(60_000)
    held = [server.registry.get(*ONE.key) for server in split.cluster.servers.values()]
    assert all(held)


def test_what_is_out_of_service_is_told_once_it_is_not(split: Split) -> None:
    """Nobody calls it; and nobody would lift at the far side what is lifted at the near one."""
    near, far = split.peers.peers
    split.peers.register(ONE)
    near.set_status(ONE, Status.OUT_OF_SERVICE)
    assert not split.renewed()
    near.clear_status(ONE)
    near.register(ONE)
    assert split.renewed()
    there = far.read(*ONE.key)
    assert there is not None
    assert (there.status, there.overridden_status) == (Status.UP, Status.UNKNOWN)


def test_what_is_out_of_service_there_stays_as_it_is(split: Split) -> None:
    """It was before the servers lost each other: newer contents would take our mark from it."""
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
    """A replica that lost the Lease goes on renewing, and changes nothing."""
    split.peers.register(ONE)
    split.may_write = False
    assert not split.renewed()
    split.may_write = True
    assert split.renewed()


def test_what_a_stack_registered_is_left_as_it_is(split: Split) -> None:
    """It may have been removed there."""
    stacks = replace(ONE, metadata={OWNER_KEY: "stack/o/p/s/billing"})
    split.peers.register(stacks)
    assert not split.renewed(stacks)


def test_what_lacks_for_a_moment_is_told_by_others() -> None:
    """As at a server that was restarted, which the next renewal tells."""
    now = [1000.0]
    peers = Peers(Connection(URLS))
    told: list[str] = []
    near, far = peers.peers
    near.read = lambda *_: ONE  # type: ignore[method-assign]
    far.read = lambda *_: None  # type: ignore[method-assign]
    for peer in peers.peers:
        peer.register = lambda instance: told.append(instance.instance_id)  # type: ignore[method-assign]
    side = FarSide(lambda: True, lambda: now[0])
    side.lack([far], ONE, [near])
    now[0] += windows.LACKING
    side.holds(far, ONE.key)
    side.lack([far], ONE, [near])
    assert told == []
    now[0] += windows.LACKING
    side.lack([far], ONE, [near])
    assert told == [ONE.instance_id]
    peers.close()
