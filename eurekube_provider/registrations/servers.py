"""The servers at which resources are or were registered, shared by all resources of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from eurekube_provider.core.errors import RegistryDenied, RegistryError
from eurekube_provider.core.quoting import printable
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.connections import (
    NAMESPACE,
    Setting,
    abandoned_urls,
    connection_of_state,
    connection_to,
)


class SharedPeers:
    """One :class:`Peers` for each connection: every thread uses its pooled sessions.

    :ivar silent: servers that did not answer a read, and are not asked again: one time-out is enough.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Connection, Peers] = {}
        self.silent: set[Peers] = set()

    def of(self, connection: Connection) -> Peers:
        """Return the servers of a connection."""
        with self._lock:
            if connection not in self._made:
                self._made[connection] = Peers(connection)
            return self._made[connection]


_RUN_PROGRAM = (
    "pulumi destroy, refresh and up --refresh go by the configuration of the last update unless they are run"
    " with --run-program"
)

PEERS = SharedPeers()
"""The Eureka servers that this process has asked."""


def servers_of(setting: Setting, connection: str, service_urls: Iterable[str]) -> Peers:
    """Return the servers of a state or of checked inputs, with the credentials that are configured today."""
    return PEERS.of(connection_of_state(setting, service_urls, name=connection))


def servers_to_leave(setting: Setting, connection: str, service_urls: Iterable[str]) -> Peers | None:
    """Return the servers for a read or a removal, without abandoned ones; None where none is left to ask."""
    abandoned = abandoned_urls(setting)
    left = [url for url in service_urls if url not in abandoned]
    return servers_of(setting, connection, left) if left else None


def abandoned_message(what: str, service_urls: Iterable[str]) -> str:
    """Return a sentence for a person about registrations at abandoned servers, which were not looked for."""
    return printable(f"{what} at {', '.join(service_urls)} was forgotten: {NAMESPACE}:abandonedUrls says so")


@contextmanager
def with_server_hints(
    setting: Setting, connection: str, service_urls: Iterable[str], *, is_leaving: bool = False
) -> Iterator[None]:
    """Add to an error of a server the hint how to configure it, or how to go on without it.

    :param is_leaving: give the hint for configured servers, too: a removal is under way.
    """
    try:
        yield
    except RegistryError as error:
        urls = ",".join(service_urls)
        is_known = connection_to(setting, urls.split(","), name=connection) is not None
        hints = []
        if isinstance(error, RegistryDenied) and not is_known:
            hints.append(
                "credentials are sent only to URLs that are configured: name this one in a connection of its"
                f" own with its credentials (pulumi config set --path {NAMESPACE}:connections.old.url {urls},"
                " and user and password beside it)"
            )
        if not is_known or (is_leaving and not isinstance(error, RegistryDenied)):
            hints.append(
                "where these servers are gone for good, or are known by another URL now, forget their"
                f" registrations: pulumi config set {NAMESPACE}:abandonedUrls {urls}"
            )
        message = "; ".join((str(error), *hints, _RUN_PROGRAM))
        raise type(error)(message, url=error.url, status_code=error.status_code) from error
