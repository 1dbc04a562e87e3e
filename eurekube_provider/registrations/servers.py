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
    CONFIG_NAMESPACE,
    SettingLookup,
    abandoned_urls,
    connection_of_state,
    connection_sharing_url,
)


class SharedPeers:
    """A cache with one :class:`Peers` for each connection, whose pooled sessions all threads share.

    :ivar unresponsive: servers that did not answer a read, and are not asked again: one time-out is enough.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Connection, Peers] = {}
        self.unresponsive: set[Peers] = set()

    def get(self, connection: Connection) -> Peers:
        """Return the servers of a connection."""
        with self._lock:
            if connection not in self._made:
                self._made[connection] = Peers(connection)
            return self._made[connection]


_RUN_PROGRAM_HINT = (
    "pulumi destroy, refresh and up --refresh go by the configuration of the last update unless they are run "
    "with --run-program"
)

SHARED_PEERS = SharedPeers()
"""The Eureka servers that this process has asked."""


def peers_for_urls(setting: SettingLookup, connection: str, service_urls: Iterable[str]) -> Peers:
    """Return the servers of a state or of checked inputs, with the credentials that are configured today."""
    return SHARED_PEERS.get(connection_of_state(setting, service_urls, name=connection))


def peers_not_abandoned(setting: SettingLookup, connection: str, service_urls: Iterable[str]) -> Peers | None:
    """Return the servers for a read or a removal, without abandoned ones; None where none is left to ask."""
    abandoned = abandoned_urls(setting)
    left = [url for url in service_urls if url not in abandoned]
    return peers_for_urls(setting, connection, left) if left else None


def abandoned_message(what: str, service_urls: Iterable[str]) -> str:
    """Return a sentence for a person about registrations at abandoned servers, which were not looked for."""
    return printable(
        f"{what} at {', '.join(service_urls)} was forgotten: {CONFIG_NAMESPACE}:abandonedUrls says so"
    )


@contextmanager
def with_server_hints(
    setting: SettingLookup, connection: str, service_urls: Iterable[str], *, is_leaving: bool = False
) -> Iterator[None]:
    """Add to a server's error how to configure it, or, as in a removal, how to go on without it."""
    try:
        yield
    except RegistryError as error:
        urls = ",".join(service_urls)
        is_known = connection_sharing_url(setting, urls.split(","), name=connection) is not None
        hints = []
        if isinstance(error, RegistryDenied) and not is_known:
            hints.append(
                "credentials are sent only to URLs that are configured: name this one in a connection of its"
                " own with its credentials (pulumi config set --path "
                f"{CONFIG_NAMESPACE}:connections.old.url {urls},"
                " and user and password beside it)"
            )
        if not is_known or (is_leaving and not isinstance(error, RegistryDenied)):
            hints.append(
                "where these servers are gone for good, or are known by another URL now, forget their"
                f" registrations: pulumi config set {CONFIG_NAMESPACE}:abandonedUrls {urls}"
            )
        message = "; ".join((str(error), *hints, _RUN_PROGRAM_HINT))
        raise type(error)(message, url=error.url, status_code=error.status_code) from error
