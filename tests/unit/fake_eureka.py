"""A stand-in for Eureka servers: what providers register, read and remove, without a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.text import path_problem
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.request_stats import RequestStats

Key = tuple[str, str]


@dataclass
class FakeEureka:
    """One server's memory; it answers as a server does, and writes down what was asked.

    :ivar fails: by the name of a request, what happens in its place, once each; it is given the usual.
    """

    held: dict[Key, Instance] = field(default_factory=dict)
    listed: list[Instance] | None = None
    asked: list[str] = field(default_factory=list)
    fails: dict[str, list[Callable[[Callable[[], Any]], Any]]] = field(default_factory=dict)
    traffic: RequestStats = field(default_factory=RequestStats)

    def answer(self, request: str, usual: Callable[[], Any]) -> Any:
        """Do it, or what a test wants instead."""
        self.asked.append(request)
        instead = self.fails.get(request)
        return instead.pop(0)(usual) if instead else usual()

    def register(self, instance: Instance) -> None:
        """As one server does."""
        have = self.held.get(instance.key)
        kept = instance if have is None or not have.is_overridden else replace(instance, status=have.status)
        self.answer("register", lambda: self.held.__setitem__(instance.key, kept))

    def restore(self, instance: Instance) -> None:
        """With the status that was set over its own."""
        self.held[instance.key] = replace(instance, status=instance.overridden_status)

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Past the caches.

        :raises RegistryRejected: no URL can name it, as our client does.
        """
        if problem := path_problem(instance_id):
            raise RegistryRejected(f"{instance_id!r} {problem}")
        key = (application.upper(), instance_id)
        found: Instance | None = self.answer("read", lambda: self.held.get(key))
        return found

    def deregister(self, application: str, instance_id: str) -> bool:
        """Return whether it was there."""
        key = (application.upper(), instance_id)
        return self.answer("deregister", lambda: self.held.pop(key, None)) is not None

    def set_status(self, instance: Instance, status: Status) -> bool:
        """As a person does."""

        def usual() -> bool:
            have = self.held[instance.key]
            self.held[instance.key] = replace(have, status=status, overridden_status=status)
            return True

        return bool(self.answer("set_status", usual))

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """The way back."""

        def usual() -> bool:
            have = self.held[instance.key]
            self.held[instance.key] = replace(have, status=status, overridden_status=Status.UNKNOWN)
            return True

        return bool(self.answer("clear_status", usual))

    def list_instances(self, application: str | None = None, **_: Any) -> list[Instance]:
        """Return the content of a list, which may be old."""
        found = list(self.held.values()) if self.listed is None else self.listed
        return [each for each in found if application in (None, each.application)]


class FakeServers:
    """Servers by URL, for :func:`~eurekube_provider.registrations.servers.SharedPeers.of`.

    :ivar made: the objects that were made of each connection.
    :ivar users: with which user each URL was asked last; None for none.
    """

    def __init__(self, servers: Mapping[str, FakeEureka]) -> None:
        self._servers = servers
        self.made: dict[Connection, Peers] = {}
        self.users: dict[str, str | None] = {}

    def __call__(self, connection: Connection) -> Peers:
        """The servers of a connection."""
        self.users |= dict.fromkeys(connection.service_urls, connection.user)
        if connection not in self.made:
            made = self.made[connection] = Peers(connection)
            made.peers = tuple(cast("Peer", self._at(url)) for url in connection.service_urls)
        return self.made[connection]

    def _at(self, url: str) -> Any:
        return _At(url, self._servers.get(url))


class _At:
    """One URL of a server, or of none."""

    def __init__(self, url: str, eureka: FakeEureka | None) -> None:
        self.url = url
        self._eureka = eureka

    def __getattr__(self, name: str) -> Any:
        if self._eureka is not None:
            return getattr(self._eureka, name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise RegistryUnreachable(f"no connection to {self.url}", url=self.url)

        return refuse
