"""Fake Eureka servers that are restarted, silent or behind a load balancer, and registries that use them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage

OWNER = "cluster/lab/shop/rating"

STATUS = StatusPage("0 days 00:01", int(time.time() * 1000) - 60_000, (), 0.0)


def instance(name: str) -> Instance:
    """Return an instance of the syncer ``OWNER``."""
    return Instance("rating", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": OWNER})


def started_now() -> StatusPage:
    """Return the status of a server that was started this moment."""
    return replace(STATUS, started_timestamp_ms=1 + int(time.time() * 1000), uptime="0 days 00:00")


class RecordingListener:
    """A listener of a registry that records its calls."""

    def __init__(self) -> None:
        self.owners: list[str] = []
        self.conditions = 0

    def instances_of_owner_changed(self, owner: str) -> None:
        """Record the owner."""
        self.owners.append(owner)

    def condition_changed(self) -> None:
        """Count the call."""
        self.conditions += 1


class TwoServers(Peers):
    """Two servers: the first one was just restarted and is empty, the second one still holds instances."""

    def __init__(self, held: list[Instance]) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka", "http://127.0.0.1:2/eureka")))
        self._held = held
        self.silent: dict[str, RegistryError] = {}
        self.lists: list[str] = []
        """URLs of the servers that were listed, in their order."""
        self.looks = 0
        """Number of status requests to the first server."""
        for peer, listed in zip(self.peers, ([], held), strict=True):
            peer.list_instances = partial(self._list, peer.url, listed)  # type: ignore[method-assign]
            peer.read_status = partial(self._status, peer.url)  # type: ignore[method-assign]

    @property
    def peers_not_avoided(self) -> tuple[Peer, ...]:
        """The servers that are not silent."""
        return tuple(peer for peer in self.peers if peer.url not in self.silent)

    def _list(self, url: str, listed: list[Instance]) -> list[Instance]:
        self.lists.append(url)
        return listed

    def _status(self, url: str) -> StatusPage:
        self.looks += url == self.peers[0].url
        return STATUS

    def list_from_first_server(self, read: Callable[[Peer], Any]) -> Any:
        """Return the first server's list, which is empty."""
        assert callable(read)
        return []

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance, as the second server holds it."""
        return next((one for one in self._held if one.key == (application, instance_id)), None)

    def ask_all(
        self, ask: Callable[[Peer], Any], *, asks_avoided: bool = False, grace_seconds: float | None = None
    ) -> tuple[dict[str, Any], dict[str, RegistryError]]:
        """Ask every server that is not silent, and return answers and failures by URL."""
        assert asks_avoided in (True, False) or grace_seconds
        asked = [peer for peer in self.peers if peer.url not in self.silent]
        return {peer.url: ask(peer) for peer in asked}, self.silent


class Holding(Peers):
    """Two servers, each with instances of its own; servers whose index is in ``away`` do not answer."""

    def __init__(self, *held: Instance) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka", "http://127.0.0.1:2/eureka")))
        self.held = [{one.key: one for one in held} for _ in self.peers]
        self.away: set[int] = set()
        self.reads = 0
        for number, peer in enumerate(self.peers):
            peer.read = partial(self.read_at, number)  # type: ignore[method-assign]
            peer.register = partial(self._register, number)  # type: ignore[method-assign]
            peer.renew = partial(self._renew, number)  # type: ignore[method-assign]
            peer.read_status = partial(self._status, number)  # type: ignore[method-assign]

    def _status(self, number: int) -> StatusPage:
        self._answer(number)
        return older(3600)

    def read_at(self, number: int, application: str, instance_id: str) -> Instance | None:
        """Return the instance that one server holds."""
        self._answer(number)
        self.reads += 1
        return self.held[number].get((application, instance_id))

    def _register(self, number: int, one: Instance) -> None:
        self._answer(number)
        for held in self.held:  # it tells the other one
            held[one.key] = one

    def _renew(self, number: int, one: Instance) -> bool:
        self._answer(number)
        return one.key in self.held[number]

    def _answer(self, number: int) -> None:
        if number in self.away:
            raise RegistryUnreachable("away")

    def registry(self) -> EurekaRegistry:
        """Return a registry of these servers that is not started."""
        found = EurekaRegistry(self, Cluster("lab", "u"), "operator", 600.0)
        found.restarts.detect_restarts()
        return found


def of_a_stack(name: str, written_seconds_ago: float = 600.0) -> Instance:
    """Return an instance of a stack that asks the operator to renew it."""
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stamp = int((time.time() - written_seconds_ago) * 1000)
    return replace(instance(name), metadata=whose, last_dirty_timestamp_ms=stamp)


def renewed_after(registry: EurekaRegistry, *listed: Instance) -> set[str]:
    """Learn this list, check stacks' instances, and return the ids that are renewed."""
    registry.reader.process_list(list(listed), is_complete=True)
    registry.stacks.renew_suggested_by_list()
    return {one.instance_id for one in registry.renewals.renewed_instances()}


def after_a_restart(servers: TwoServers) -> EurekaRegistry:
    """Return a registry, not started, whose first server has restarted without its notice."""
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.restarts.detect_restarts()
    again = started_now()
    servers.peers[0].read_status = lambda: again  # type: ignore[method-assign]
    return registry


class Balanced(Peers):
    """One URL behind which several servers answer in turn, each with its own start time and instances."""

    def __init__(self, *servers: StatusPage) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka",)))
        self.servers = list(servers)
        self.held: list[list[Instance]] = [[] for _ in servers]
        self.restored: list[Instance] = []
        self._turns = itertools.count()
        peer = self.peers[0]
        peer.read_status = self._status  # type: ignore[method-assign]
        peer.read = self._read  # type: ignore[method-assign]
        peer.register = self.restored.append  # type: ignore[assignment, method-assign]

    def turn(self) -> int:
        """Return the index of the server that answers now."""
        return next(self._turns) % len(self.servers)

    def _status(self) -> StatusPage:
        return self.servers[self.turn()]

    def _read(self, application: str, instance_id: str) -> Instance | None:
        return next((one for one in self.held[self.turn()] if one.key == (application, instance_id)), None)


def behind_a_balancer(
    servers: Balanced, looks: int = 7, may_follow_another_leader: Callable[[], bool] = lambda: True
) -> EurekaRegistry:
    """Return a registry, not started, that has asked for start times ``looks`` times."""
    registry = EurekaRegistry(
        servers, Cluster("lab", "u"), "operator", 600.0, may_follow_another_leader=may_follow_another_leader
    )
    for _ in range(looks):
        registry.restarts.detect_restarts()
    return registry


def older(seconds: float) -> StatusPage:
    """Return the status of a server that was started this many seconds before the usual one."""
    return replace(STATUS, started_timestamp_ms=(STATUS.started_timestamp_ms or 0) - int(1000 * seconds))
