"""Each kind of registry with somebody else beside its client, who registers there and looks what stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from unittest import mock

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.registry import Registry
from eurekube_provider.dev.eureka import cluster as model
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.protocol import peer
from eurekube_provider.eureka.protocol.peer import Peer
from lab.waiting import wait_until
from tests.model.played_transport import PlayedTransport
from tests.registries.memory import MemoryConnection, MemoryRegistry

CLUSTER = Cluster("lab", "uid-1")
URLS = ("http://one:8761/eureka", "http://two:8761/eureka")
TOLD_MS = 1_000
LIST_MS = 45_000
"""Until every server's list shows what stands there."""


class Kind(Protocol):
    """One registry, and how to make clients of it."""

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """A client, not started."""

    def put(self, instance: Instance) -> None:
        """Have somebody else register it."""

    def stands(self, key: Key) -> Instance | None:
        """What stands there, as somebody else sees it."""


class Memory:
    """The throw-away kind."""

    def __init__(self) -> None:
        self._connection = MemoryConnection()

    def client(self, may_write: Callable[[], bool] = lambda: True) -> Registry:
        """A client, not started."""
        return MemoryRegistry.connected(self._connection, CLUSTER, "operator", 0.05, may_write=may_write)

    def put(self, instance: Instance) -> None:
        """Have somebody else register it."""
        self._connection.put(instance)

    def stands(self, key: Key) -> Instance | None:
        """What stands there."""
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
        """What one server holds, when the other one has told it."""
        with _Wire.lock:
            self._servers.clock.advance(TOLD_MS)
        return self._other.read(*key)


@contextmanager
def eureka() -> Iterator[Kind]:
    """Have connections to Eureka lead to the model, until the end of the block."""
    before = set(threading.enumerate())
    with mock.patch.object(peer, "Transport", _Wire):
        yield Eureka()
        read = [one for one in threading.enumerate() if one.name == "registry" and one not in before]
        wait_until(lambda: not any(one.is_alive() for one in read), "the last readings to end", 20.0)


@contextmanager
def memory() -> Iterator[Kind]:
    """The memory of this process."""
    yield Memory()


KINDS = {"eureka": eureka, "memory": memory}
