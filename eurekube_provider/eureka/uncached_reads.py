"""Reads of given instances at the servers, each by a request of its own and past the caches.

A list is answered from a cache, and a request for a list that nobody else asks for leaves a copy of the whole
registry in the server for good. The read of one instance uses no cache, leaves nothing behind and renews
nothing, so that a dead instance lapses however often somebody reads it.

A gateway that lost its route, or another server at a wrong URL, answers 404 to everything, as a Eureka does
for an instance that it does not hold. Only a Eureka gives a list of instances. So where an instance is
missing a server is asked for its list, once, before its 404 counts as a proof.

Source: ResponseCacheImpl and InstanceResource of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakSet

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, InstanceKey, newest
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer

MOST_PARALLEL_READS = 8
"""The number of reads at once from one server; its connections are pooled."""

RefusalByKey = dict[InstanceKey, RegistryRejected]
"""Instances that a server refuses to show for good, e.g. for an id that no URL may have, and the error."""


@dataclass(frozen=True, slots=True)
class UncachedReads:
    """The servers' answers about instances.

    :ivar instances_by_url: by server and key, the instance; None where the server does not hold it.
    :ivar failures: the servers that did not answer.
    """

    instances_by_url: dict[str, dict[InstanceKey, Instance | None]]
    failures: dict[str, RegistryError]

    def newest(self, key: InstanceKey) -> Instance | None:
        """Return the newest version that any server holds."""
        return newest(answers.get(key) for answers in self.instances_by_url.values())

    def held_by_url(self, key: InstanceKey) -> dict[str, Instance | None]:
        """Return, by URL, what each server that answered holds under a key."""
        return {url: answers.get(key) for url, answers in self.instances_by_url.items()}

    def merge_with(self, other: UncachedReads) -> UncachedReads:
        """Return the answers of these reads and others together."""
        urls = self.instances_by_url.keys() | other.instances_by_url.keys()
        instances_by_url = {
            url: {**self.instances_by_url.get(url, {}), **other.instances_by_url.get(url, {})} for url in urls
        }
        return UncachedReads(instances_by_url, {**self.failures, **other.failures})


def read_instances(
    peer: Peer | Peers, keys: Iterable[InstanceKey], refused: RefusalByKey | None = None
) -> dict[InstanceKey, Instance | None]:
    """Read instances as one server holds them now; of several servers, the first that answers and holds one.

    :param refused: receives the instances that are refused, which count as not held, so that the others are
        still read. Without it, one refusal fails the whole call.
    :raises RegistryError: the first read that failed; no other is begun after it.
    """
    wanted = list(dict.fromkeys(keys))
    failures: list[RegistryError] = []

    def read(key: InstanceKey) -> Instance | None:
        if failures:
            raise failures[0]
        try:
            return peer.read(*key)
        except RegistryError as error:
            if refused is not None and isinstance(error, RegistryRejected):
                refused[key] = error
                return None
            failures.append(error)
            raise

    if len(wanted) < 2:
        return {key: read(key) for key in wanted}
    pool = ThreadPoolExecutor(min(MOST_PARALLEL_READS, len(wanted)), thread_name_prefix="reads")
    try:
        return dict(zip(wanted, pool.map(read, wanted), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)


def read_everywhere(
    peers: Peers, keys: Iterable[InstanceKey], refused: RefusalByKey | None = None
) -> UncachedReads:
    """Read instances as every server holds them now.

    :param refused: receives the instances that a server refused, as in :func:`read_instances`.
    :raises RegistryError: no server answered.
    """
    wanted = list(keys)
    return UncachedReads(*peers.ask_all_or_raise(lambda peer: read_instances(peer, wanted, refused)))


_verified_peers: WeakSet[Peer] = WeakSet()


def require_one_eureka_and_return_errors(what: str, peers: Peers) -> dict[str, RegistryError]:
    """Return, by URL, the errors of servers that are no Eureka or silent; raise one if these are all.

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
