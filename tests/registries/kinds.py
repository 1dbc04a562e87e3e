"""Each kind of registry with somebody else beside its client, who registers there and looks what stands."""

from __future__ import annotations

import atexit
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from unittest import mock

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.registry_kinds import EUREKA, Capabilities
from eurekube_provider.dev.eureka import cluster as model
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.protocol import peer
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.zookeeper.codec import encode
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from eurekube_provider.zookeeper.writer import path_of
from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry
from lab.waiting import wait_until
from lab.zookeeper import ZooKeepers
from tests.model.played_transport import PlayedTransport
from tests.registries.memory import MemoryConnection, MemoryRegistry

CLUSTER = Cluster("lab", "uid-1")
URLS = ("http://one:8761/eureka", "http://two:8761/eureka")
REPORTED_MS = 1_000
LIST_MS = 45_000
"""Until every server's list shows what stands there."""


class Kind(Protocol):
    """One registry, and how to make clients of it."""

    capabilities: Capabilities

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """A client, not started."""

    def put(self, instance: Instance) -> None:
        """Have somebody else register it."""

    def stands(self, key: Key) -> Instance | None:
        """Return the instances as another client sees them."""


class Memory:
    """The throw-away kind."""

    capabilities = EUREKA

    def __init__(self) -> None:
        self._connection = MemoryConnection()

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """A client, not started."""
        return MemoryRegistry.connected(self._connection, CLUSTER, "operator", 0.05, may_write=may_write)

    def put(self, instance: Instance) -> None:
        """Have somebody else register it."""
        self._connection.put(instance)

    def stands(self, key: Key) -> Instance | None:
        """Return the instances."""
        return self._connection.held.get(key)


class _Wire(PlayedTransport):
    """In place of the transport: the model's servers, one request after the other."""

    lock = threading.RLock()
    servers: model.EurekaCluster

    def answer(self, request: ServerRequest, timeout_seconds: float) -> ServerResponse:
        """Ask the model."""
        assert timeout_seconds > 0
        with self.lock:
            return self.servers.request(self._url, request)


class Eureka:
    """Two servers of the model."""

    capabilities = EUREKA

    def __init__(self) -> None:
        _Wire.servers = self._servers = model.EurekaCluster(URLS)
        self._connection = Connection(URLS)
        self._other = Peer(URLS[1], self._connection)

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """A client, not started."""
        return EurekaRegistry.connected(self._connection, CLUSTER, "operator", 0.05, may_write=may_write)

    def put(self, instance: Instance) -> None:
        """Have somebody else register it, and every list show it."""
        self._other.register(instance)
        with _Wire.lock:
            self._servers.clock.advance(LIST_MS)

    def stands(self, key: Key) -> Instance | None:
        """Return one server's instances after replication from the other."""
        with _Wire.lock:
            self._servers.clock.advance(REPORTED_MS)
        return self._other.read(*key)


@contextmanager
def eureka() -> Iterator[Kind]:
    """Have connections to Eureka lead to the model, until the end of the block."""
    before = set(threading.enumerate())
    with mock.patch.object(peer, "Transport", _Wire):
        yield Eureka()
        read = [one for one in threading.enumerate() if one.name == "registry" and one not in before]
        wait_until(lambda: not any(one.is_alive() for one in read), "the last readings to end", 20.0)


class ZooKeeper:
    """One server, below a root of the test's own."""

    def __init__(self, url: str) -> None:
        self._connection = ZooKeeperConnection.configured({"url": f"{url}/{uuid.uuid4().hex}"}.get)
        self.capabilities = self._connection.capabilities
        self._other = ZooKeeperServers(self._connection)
        self._other.connect()

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """A client, not started."""
        return ZooKeeperRegistry(self._connection, CLUSTER, "operator", 0.05, may_write=may_write)

    def put(self, instance: Instance) -> None:
        """Have somebody else register it."""
        path = path_of(self._connection.root, instance)
        self._other.client.create(path, encode(instance, 1), makepath=True)

    def stands(self, key: Key) -> Instance | None:
        """Return the instance."""
        return self._other.read(*key)

    def close(self) -> None:
        """End the session."""
        self._other.close()


_ensemble: list[ZooKeepers] = []


@contextmanager
def zookeeper() -> Iterator[Kind]:
    """A real server, which all tests of this process share."""
    if not _ensemble:
        _ensemble.append(ZooKeepers().__enter__())
        atexit.register(_ensemble[0].close)
    made = ZooKeeper(_ensemble[0].url)
    yield made
    made.close()


@contextmanager
def memory() -> Iterator[Kind]:
    """The memory of this process."""
    yield Memory()


KINDS = {"eureka": eureka, "memory": memory, "zookeeper": zookeeper}
