"""Servers that are no Eureka, so that a 404 of theirs does not prove an absence.

A gateway that lost its route, or another server at a wrong URL, answers 404 to everything, as a Eureka does
for an instance that it does not hold. Its list tells one from the other. It is asked for once, and only where
something is missed.
"""

from __future__ import annotations

from weakref import WeakSet

from eurekube_provider.core.errors import (
    RegistryDenied,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer

_verified: WeakSet[Peer] = WeakSet()


def require_a_verified_server(what: str, peers: Peers) -> dict[str, RegistryError]:
    """Why each other server is not taken at its word, where at least one must be a Eureka.

    :param what: the request that was tried, for the error.
    :raises RegistryUnreachable: none is one.
    """
    found = peers.each(_verify)[1]  # what is no Eureka, or gives no answer
    if len(found) < len(peers.peers):
        return found
    error = next(iter(found.values()))
    raise RegistryUnreachable(f"{what}: {error}", url=error.url, status_code=error.status_code)


def _verify(peer: Peer) -> None:
    if peer in _verified:
        return
    try:
        peer.list_instances()
    except RegistryDenied:
        return  # a Eureka that has just started has no list to show
    except RegistryRejected as error:
        raise RegistryUnreachable(
            f"{peer.url} answers as no Eureka does, so that its 404 does not say that nothing is registered"
            f" ({error})",
            url=peer.url,
            status_code=error.status_code,
        ) from None
    _verified.add(peer)
