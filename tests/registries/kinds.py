"""Each kind of registry, together with a second client that registers instances there and reads them."""

from __future__ import annotations

import atexit
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from unittest import mock

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.registry_kinds import EUREKA, RegistryKind
from eurekube_provider.dev.eureka import cluster as model
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.protocol import peer
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.zookeeper.codec import encode_node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from eurekube_provider.zookeeper.writer import instance_path
from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry
from lab.waiting import wait_until
from lab.zookeeper import ZooKeeperEnsemble
from tests.model.played_transport import PlayedTransport
from tests.registries.memory import MemoryConnection, MemoryRegistry

CLUSTER = Cluster("lab", "uid-1")
URLS = ("http://one:8761/eureka", "http://two:8761/eureka")
REPORTED_MS = 1_000
LIST_MS = 45_000
"""Time until every server's list shows the current instances, in milliseconds."""


class Kind(Protocol):
    """One kind of registry, from which a test makes clients."""

    registry_kind: RegistryKind

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """Make a client that is not started."""

    def put(self, instance: Instance) -> None:
        """Register an instance as another client."""

    def stands(self, key: InstanceKey) -> Instance | None:
        """Return an instance as another client reads it; None if it is not registered."""


class Memory:
    """The kind of registry that exists for tests only, in memory."""

    registry_kind = EUREKA

    def __init__(self) -> None:
        self._connection = MemoryConnection()

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """Make a client that is not started."""
        return MemoryRegistry.from_connection(
            self._connection, CLUSTER, "operator", 0.05, may_write=may_write
        )

    def put(self, instance: Instance) -> None:
        """Register an instance as another client."""
        self._connection.put(instance)

    def stands(self, key: InstanceKey) -> Instance | None:
        """Return an instance as it is held in memory; None if it is not registered."""
        return self._connection.held.get(key)


class _Wire(PlayedTransport):
    """A replacement of the transport, which asks the model's servers, one request at a time."""

    lock = threading.RLock()
    servers: model.EurekaCluster

    def answer(self, request: ServerRequest, timeout_seconds: float) -> ServerResponse:
        """Have the model answer a request."""
        assert timeout_seconds > 0
        with self.lock:
            return self.servers.request(self._url, request)


class Eureka:
    """A Eureka of two model servers."""

    registry_kind = EUREKA

    def __init__(self) -> None:
        _Wire.servers = self._servers = model.EurekaCluster(URLS)
        self._connection = Connection(URLS)
        self._other = Peer(URLS[1], self._connection)

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """Make a client that is not started."""
        return EurekaRegistry.from_connection(
            self._connection, CLUSTER, "operator", 0.05, may_write=may_write
        )

    def put(self, instance: Instance) -> None:
        """Register an instance as another client, and wait until every list shows it."""
        self._other.register(instance)
        with _Wire.lock:
            self._servers.clock.advance(LIST_MS)

    def stands(self, key: InstanceKey) -> Instance | None:
        """Return an instance as another client reads it once the servers have replicated; None if it is
        not registered.
        """
        with _Wire.lock:
            self._servers.clock.advance(REPORTED_MS)
        return self._other.read(*key)


@contextmanager
def eureka() -> Iterator[Kind]:
    """Connect Eureka clients to the model while the block runs."""
    before = set(threading.enumerate())
    with mock.patch.object(peer, "Transport", _Wire):
        yield Eureka()
        read = [one for one in threading.enumerate() if one.name == "registry" and one not in before]
        wait_until(lambda: not any(one.is_alive() for one in read), "the last readings to end", 20.0)


class ZooKeeper:
    """One ZooKeeper server, below a root node of the test's own."""

    def __init__(self, url: str) -> None:
        self._connection = ZooKeeperConnection.from_settings({"url": f"{url}/{uuid.uuid4().hex}"}.get)
        self.registry_kind = self._connection.registry_kind
        self._other = ZooKeeperServers(self._connection)
        self._other.connect()

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """Make a client that is not started."""
        return ZooKeeperRegistry(self._connection, CLUSTER, "operator", 0.05, may_write=may_write)

    def put(self, instance: Instance) -> None:
        """Create an instance's node as another client."""
        path = instance_path(self._connection.root, instance)
        self._other.client.create(path, encode_node(instance, 1), makepath=True)

    def stands(self, key: InstanceKey) -> Instance | None:
        """Return an instance as another client reads it; None if it is not registered."""
        return self._other.read(*key)

    def close(self) -> None:
        """Close the other client's session."""
        self._other.close()


_ensemble: list[ZooKeeperEnsemble] = []


@contextmanager
def zookeeper() -> Iterator[Kind]:
    """Return a root node of its own on a real ZooKeeper server that all tests of this process share."""
    if not _ensemble:
        _ensemble.append(ZooKeeperEnsemble().__enter__())
        atexit.register(_ensemble[0].close)
    made = ZooKeeper(_ensemble[0].url)
    yield made
    made.close()


@contextmanager
def memory() -> Iterator[Kind]:
    """Return a registry in this process's memory."""
    yield Memory()


KINDS = {"eureka": eureka, "memory": memory, "zookeeper": zookeeper}
