"""Successors of a removed instance: each server holds them before the last old instance leaves it, also
across a split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import PlanOutcome, plan
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.notes import ChangeOrder
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.successors import blocking_error
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.eureka.writer import Writer
from tests.explore.world import World, owned
from tests.unit.strategies import OURS

NEAR, FAR = URLS = ("http://near/eureka", "http://far/eureka")
STACKS = "stack/o/p/s/billing"
WAYS = pytest.mark.parametrize("in_a_batch", [False, True], ids=["single", "batch"])


def pod(name: str, owner: str = OURS) -> Instance:
    """Return an instance of the application RATING."""
    return Instance("rating", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata={OWNER_KEY: owner})


class TwoServers:
    """Two model servers, and a writer that reaches both."""

    def __init__(self, cluster: EurekaCluster, world: World) -> None:
        self.cluster, self.world = cluster, world
        self.peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        self.restart()

    def restart(self) -> None:
        """Forget all records, as a restarted process does."""
        self.peers.table = InstanceTable(lambda: self.cluster.clock.now_ms / 1000, URLS)
        self.writer = Writer(self.peers)

    def wait(self, seconds: float) -> None:
        """Move the servers' clock on."""
        self.cluster.clock.advance(int(seconds * 1000))

    def split(self) -> None:
        """Stop the replication between the servers."""
        self.cluster.cut = {(NEAR, FAR), (FAR, NEAR)}

    def change(
        self,
        *added: Instance,
        without: tuple[Instance, ...] = (),
        owner: str = OURS,
        in_a_batch: bool = False,
    ) -> list[Exception]:
        """Register some instances, then remove others, and return the errors."""
        steps = plan(added, without, owner)
        self.world.trace.clear()
        if in_a_batch:
            errors = self.writer.apply_in_batches([ChangeOrder(change, owner) for change in steps.changes])
            return [error for error in errors if error is not None]
        outcome: PlanOutcome = self.writer.apply(steps, owner)
        return [failure.error for failure in outcome.failures]

    def up(self, url: str = FAR) -> set[str]:
        """Return the ids that a server has as UP."""
        instances = self.cluster.servers[url].registry.leases.get("RATING", {})
        return {name for name, lease in instances.items() if lease.holder.status == "UP"}

    def asked(self, url: str = FAR) -> list[str]:
        """Return a server's requests: methods and the last parts of paths."""
        lines = [line.split() for line in self.world.trace if f" {url} " in line]
        return [f"{words[0]} {words[2].rpartition('/')[2]}" for words in lines]


@pytest.fixture
def two() -> Iterator[TwoServers]:
    """Yield two servers that have long held one pod."""
    cluster = EurekaCluster(URLS)
    with owned(world := World(cluster)):
        made = TwoServers(cluster, world)
        assert not made.change(pod("old"))
        made.wait(100)
        yield made


@pytest.mark.parametrize("seconds", [0, 5, 60], ids=str)
def test_a_separated_server_gets_a_successor_before_the_removal(two: TwoServers, seconds: int) -> None:
    """A separated server gets the successor before the removal; renewals alone would register it some 70 s
    later.
    """
    two.split()
    assert not two.change(pod("new"))
    two.wait(seconds)
    assert two.up() == {"old"}
    assert not two.change(without=(pod("old"),))
    assert two.up() == {"new"}
    assert two.up(NEAR) == {"new"}


@WAYS
def test_all_that_replaces_it_is_reported(two: TwoServers, in_a_batch: bool) -> None:
    """All successors are registered at a separated server, so that its callers do not all call one pod."""
    news = [pod(f"new-{number}") for number in range(5)]
    two.split()
    assert not two.change(*news)
    assert two.up() == {"old"}
    assert not two.change(without=(pod("old"),), in_a_batch=in_a_batch)
    assert two.up() == {one.instance_id for one in news}


def test_one_plan_that_replaces_everything_leaves_nobody_without(two: TwoServers) -> None:
    """A plan's registrations count as successors for its own removals; instances that it removes do not."""
    two.split()
    assert not two.change(pod("old"), pod("older"))
    two.wait(100)
    assert not two.change(pod("new"), without=(pod("old"), pod("older")))
    assert two.up() == {"new"}


def test_servers_that_tell_each_other_cost_one_look(two: TwoServers) -> None:
    """A server is read once for a successor that it was not seen to hold, and never when another old
    instance stays.
    """
    assert not two.change(pod("old"), pod("older"))
    two.wait(100)
    assert not two.change(pod("new"))
    two.wait(2)
    assert not two.change(without=(pod("older"),))  # another old one is left
    assert two.asked() == ["GET older", "DELETE older"]
    assert not two.change(without=(pod("old"),))
    assert two.asked() == ["GET new", "GET old", "DELETE old"]
    assert two.asked(NEAR) == ["GET old", "DELETE old"]  # it took the registration
    assert not two.change(pod("newer"))
    two.wait(1)
    assert not two.change(pod("newest"))
    two.wait(2)
    assert not two.change(without=(pod("newest"),))
    assert two.asked() == ["GET newest", "DELETE newest"]  # the others are older, and stand where it does
    assert not two.change(without=(pod("new"),))
    assert two.asked() == ["GET newer", "GET new", "DELETE new"]


def test_a_renewal_shows_it_as_well(two: TwoServers) -> None:
    """A successor that a server has renewed is not read there before the removal."""
    assert not two.change(pod("new"))
    two.wait(2)
    assert two.peers.renew(pod("new"), renewal_number=1)
    assert not two.change(without=(pod("old"),))
    assert two.asked() == ["GET old", "DELETE old"]


@WAYS
def test_what_a_batch_registered_is_not_looked_for(two: TwoServers, in_a_batch: bool) -> None:
    """A successor registered by a batch is not read before the removal, as the batch went to every server."""
    two.split()
    assert not two.change(pod("new"), in_a_batch=True)
    assert not two.change(without=(pod("old"),), in_a_batch=in_a_batch)
    assert "GET new" not in two.asked()
    assert two.up() == {"new"}


def test_an_instance_that_nothing_replaces_costs_nothing(two: TwoServers) -> None:
    """An instance without a successor is removed without a read for one."""
    two.split()
    assert not two.change(pod("new"))
    assert not two.change(without=(pod("new"),))
    two.change(without=(pod("old"),))
    assert two.asked() == ["GET old", "DELETE old"]
    assert two.up() == set()


@WAYS
def test_a_server_out_of_reach_keeps_it_for_a_while(two: TwoServers, in_a_batch: bool) -> None:
    """A separated server keeps the old instance for a while when its successor is OUT_OF_SERVICE, which
    nobody would clear there; the removal fails until then.
    """
    two.split()
    assert not two.change(pod("new"))
    two.peers.peers[0].set_status(pod("new"), Status.OUT_OF_SERVICE)
    [error] = two.change(without=(pod("old"),), in_a_batch=in_a_batch)
    assert isinstance(error, RegistryRejected)
    assert f"{FAR} holds none of what replaces it in RATING" in str(error)
    assert (two.up(NEAR), two.up()) == (set(), {"old"})
    assert len(two.change(without=(pod("old"),), in_a_batch=in_a_batch)) == 1
    two.wait(windows.SUCCESSORS_SPREAD_SECONDS)
    assert not two.change(without=(pod("old"),), in_a_batch=in_a_batch)
    assert two.up() == set()


def test_a_server_that_does_not_answer_holds_up_nothing(two: TwoServers) -> None:
    """A server that does not answer delays no removal, and gets no DELETE either, which could take its last
    instance once it is back.
    """
    assert not two.change(pod("new"))
    two.cluster.down.add(FAR)
    assert not two.change(without=(pod("old"),))
    assert not [line for line in two.asked() if line.startswith("DELETE")]
    assert two.up(NEAR) == {"new"}


def test_a_stacks_run_tells_what_it_registered(two: TwoServers) -> None:
    """A stack's run registers its own successors at a separated server; for a syncer's removal a stack's
    instance is not registered there.
    """
    two.split()
    assert not two.change(pod("stack-old", STACKS), owner=STACKS)
    for peer in two.peers.peers:
        peer.register(pod("stack-old", STACKS))
    two.wait(100)
    two.restart()
    assert not two.change(pod("stack-new", STACKS), owner=STACKS)
    assert not two.change(without=(pod("stack-old", STACKS),), owner=STACKS)
    assert two.up() == {"old", "stack-new"}
    assert not two.change(pod("stack-newer", STACKS), owner=STACKS)
    assert not two.change(without=(pod("old"),))
    assert "stack-newer" not in two.up()


def test_what_was_removed_meanwhile_replaces_nothing(two: TwoServers) -> None:
    """Instances that were removed, or that are not UP, do not count as successors."""
    two.split()
    assert not two.change(pod("new"), replace(pod("down"), status=Status.DOWN))
    assert not two.change(without=(pod("new"),))
    assert not two.change(without=(pod("old"),))
    assert two.asked() == ["GET old", "DELETE old"]


def test_an_error_names_what_is_to_be_done() -> None:
    """The refusal of one server is an error of the removal; a server that does not answer refuses nothing."""
    silent, refused = RegistryUnreachable("silent"), RegistryRejected("refused")
    assert blocking_error({"a": silent}) is None
    assert blocking_error({"a": silent, "b": refused}) is refused
