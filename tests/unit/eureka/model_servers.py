"""Three model servers that do not replicate, and the notes that a writer makes of its changes there."""

from __future__ import annotations

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import Plan, plan
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.instance_registry import InstanceInfo
from eurekube_provider.eureka.notes import ChangeOrder, WriteNotes
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.eureka.writer import Writer
from tests.explore.world import World
from tests.unit.strategies import OURS

URLS = tuple(f"http://eureka-{number}:8761/eureka" for number in (1, 2, 3))

ONE = Instance("rating", "one", "10.0.0.1", "10.0.0.1", Port(8080), metadata={OWNER_KEY: OURS})


class Servers(WriteNotes):
    """Three servers that do not replicate to each other, and a recorder of requests and notes.

    :ivar requests: the requests to the servers and the writer's notes, in their order.
    """

    peers: Peers

    def __init__(self) -> None:
        super().__init__(InstanceTable())
        self.cluster = EurekaCluster(URLS)
        self.cluster.cut = {(one, other) for one in URLS for other in URLS if one != other}
        self.cluster.clock.advance(3_600_000)
        self.world = World(self.cluster)
        self.world.watch = lambda what: self.requests.append(what.partition(" ")[0])
        self.requests: list[str] = []

    def everywhere(self, instance: Instance) -> None:
        """Register an instance at each server, and forget the requests for it."""
        for peer in self.peers.peers:
            peer.register(instance)
        self.requests.clear()

    def holding(self) -> dict[str, InstanceInfo]:
        """Return the servers that hold ``ONE``, with its state there."""
        held = {url: self.cluster.servers[url].registry.get(*ONE.key) for url in URLS}
        return {url: info for url, info in held.items() if info is not None}

    def note_registered(self, instance: Instance) -> None:
        self.requests.append(f"registered {instance.status}")
        super().note_registered(instance)

    def note_removal_begins(self, _: Instance) -> None:
        self.requests.append("leaving")

    def note_found_under_other_owner(self, instance: Instance) -> None:
        self.requests.append("found")
        super().note_found_under_other_owner(instance)

    def note_removed(self, instance: Instance, *, is_confirmed_gone: bool = False) -> None:
        self.requests.append("gone")
        super().note_removed(instance, is_confirmed_gone=is_confirmed_gone)

    def carry_out(self, steps: Plan, *, in_a_batch: bool) -> list[Exception]:
        """Carry out a plan as its owner, and return the errors of failed changes."""
        writer = Writer(self.peers, self)
        if in_a_batch:
            errors = writer.apply_in_batches([ChangeOrder(change, OURS) for change in steps.changes])
            return [error for error in errors if error is not None]
        return [failure.error for failure in writer.apply(steps, OURS).failures]


def removed(servers: Servers, *, in_a_batch: bool) -> list[Exception]:
    """Remove the instance ``ONE``, and return the errors."""
    return servers.carry_out(plan([], [ONE], OURS), in_a_batch=in_a_batch)
