"""Fake Eureka servers for providers' registrations, reads and removals, without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.text import describe_unaddressable_name
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.request_stats import RequestStats

Key = tuple[str, str]


@dataclass
class FakeEureka:
    """One server's registry in memory, which answers as a server does and records requests.

    :ivar fails: by request name, functions called in its place, once each; each gets the usual answer's
        function.
    """

    held: dict[Key, Instance] = field(default_factory=dict)
    listed: list[Instance] | None = None
    asked: list[str] = field(default_factory=list)
    fails: dict[str, list[Callable[[Callable[[], Any]], Any]]] = field(default_factory=dict)
    traffic: RequestStats = field(default_factory=RequestStats)

    def answer(self, request: str, usual: Callable[[], Any]) -> Any:
        """Record a request, and return the usual answer or the test's replacement."""
        self.asked.append(request)
        instead = self.fails.get(request)
        return instead.pop(0)(usual) if instead else usual()

    def register(self, instance: Instance) -> None:
        """Store an instance; an override over it is kept, as at a server."""
        have = self.held.get(instance.key)
        kept = instance if have is None or not have.is_overridden else replace(instance, status=have.status)
        self.answer("register", lambda: self.held.__setitem__(instance.key, kept))

    def restore(self, instance: Instance) -> None:
        """Store an instance with its override as its status."""
        self.held[instance.key] = replace(instance, status=instance.overridden_status)

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return an instance by an uncached read.

        :raises RegistryRejected: no URL can name the id, as our client does.
        """
        if problem := describe_unaddressable_name(instance_id):
            raise RegistryRejected(f"{instance_id!r} {problem}")
        key = (application.upper(), instance_id)
        found: Instance | None = self.answer("read", lambda: self.held.get(key))
        return found

    def deregister(self, application: str, instance_id: str) -> bool:
        """Remove an instance, and return whether it was held."""
        key = (application.upper(), instance_id)
        return self.answer("deregister", lambda: self.held.pop(key, None)) is not None

    def set_status(self, instance: Instance, status: Status) -> bool:
        """Set an override, as a person does."""

        def usual() -> bool:
            have = self.held[instance.key]
            self.held[instance.key] = replace(have, status=status, overridden_status=status)
            return True

        return bool(self.answer("set_status", usual))

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Clear the override."""

        def usual() -> bool:
            have = self.held[instance.key]
            self.held[instance.key] = replace(have, status=status, overridden_status=Status.UNKNOWN)
            return True

        return bool(self.answer("clear_status", usual))

    def list_instances(self, application: str | None = None, **_: Any) -> list[Instance]:
        """Return the list, which may differ from the held instances."""
        found = list(self.held.values()) if self.listed is None else self.listed
        return [each for each in found if application in (None, each.application)]


class FakeServers:
    """Servers by URL, for :func:`~eurekube_provider.registrations.servers.SharedPeers.get`.

    :ivar made: the Peers made for each connection.
    :ivar users: the user of the last connection to each URL; None for no user.
    """

    def __init__(self, servers: Mapping[str, FakeEureka]) -> None:
        self._servers = servers
        self.made: dict[Connection, Peers] = {}
        self.users: dict[str, str | None] = {}

    def __call__(self, connection: Connection) -> Peers:
        """Return the Peers of a connection."""
        self.users |= dict.fromkeys(connection.service_urls, connection.user)
        if connection not in self.made:
            made = self.made[connection] = Peers(connection)
            made.peers = tuple(cast("Peer", self._at(url)) for url in connection.service_urls)
        return self.made[connection]

    def _at(self, url: str) -> Any:
        return _At(url, self._servers.get(url))


class _At:
    """A URL with a fake server behind it, or with none."""

    def __init__(self, url: str, eureka: FakeEureka | None) -> None:
        self.url = url
        self._eureka = eureka

    def __getattr__(self, name: str) -> Any:
        if self._eureka is not None:
            return getattr(self._eureka, name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise RegistryUnreachable(f"no connection to {self.url}", url=self.url)

        return refuse
