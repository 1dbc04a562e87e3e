"""Detection of servers that are not Eureka, so that their 404 does not prove that an instance is absent.

A gateway that lost its route, or another server at a wrong URL, answers 404 to everything, as a Eureka does
for an instance that it does not hold. Only a Eureka gives a list of instances. The list is asked for once,
and only where an instance is missing.
"""

from __future__ import annotations

from weakref import WeakSet

from eurekube_provider.core.errors import (
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer

_verified_peers: WeakSet[Peer] = WeakSet()


def require_one_eureka_and_return_errors(what: str, peers: Peers) -> dict[str, RegistryError]:
    """Return, by URL, the error of each server that is no Eureka or does not answer; at least one must
    be a Eureka.

    :param what: the attempted request, for the error.
    :raises RegistryUnreachable: no server is a Eureka.
    """
    found = peers.ask_all(_verify_is_eureka)[1]  # what is no Eureka, or gives no answer
    if len(found) < len(peers.peers):
        return found
    error = next(iter(found.values()))
    raise RegistryUnreachable(f"{what}: {error}", url=error.url, status_code=error.status_code)


def _verify_is_eureka(peer: Peer) -> None:
    if peer in _verified_peers:
        return
    try:
        peer.list_instances()
    except RegistryDenied:
        return  # a Eureka that has just started has no list to show
    except RegistryError as error:
        if error.status_code is None or error.status_code >= 500:
            raise
        raise RegistryUnreachable(
            f"{peer.url} answers as no Eureka does, so that its 404 does not say that nothing is registered "
            f"({error})",
            url=peer.url,
            status_code=error.status_code,
        ) from None
    _verified_peers.add(peer)
