"""A cache of Eureka's lists: the instances at an address, of an owner, of an application or of a renewer.

A program may register a thousand instances, one by one, and a list costs a server the more the larger its
registry is. A list is only a hint, and half a minute old: the instance itself is then read past the caches.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import SELF_RENEWER_VALUE, are_owners_of_same_stack
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import RefusalByKey, read_instances

LIST_CACHE_SECONDS = 15.0
"""Seconds for which one list is used."""

ApplicationAddress = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class _CachedList:
    """A list of one Eureka, or the error in its place, read at a time of the monotonic clock."""

    read_at: float
    by_address: dict[ApplicationAddress, list[Instance]]
    error: RegistryError | None

    def instances(self) -> Iterator[Instance]:
        return itertools.chain.from_iterable(self.by_address.values())


class _CacheEntry:
    """The cached list of one Eureka; a second thread that asks waits for the first one's answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.listed: _CachedList | None = None


class RegistryListCache:
    """The cached lists of the Eurekas that this process asks; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: WeakKeyDictionary[Peers, _CacheEntry] = WeakKeyDictionary()

    def foreign_instances_at_addresses(
        self, wanted: Iterable[Instance], owner: str, peers: Peers
    ) -> list[Instance]:
        """Return instances of other stacks, clusters or nobody at the addresses of ``wanted``; none without a
        list.

        Another resource of the same stack does not count: it may be renamed or moved, and is then removed
        later. An instance that no request can name is returned as the list has it.

        :raises RegistryError: an instance at such an address cannot be read.
        """
        listed = self.other_instances_at_addresses(wanted, peers)
        suggested = {each.key: each for each in listed if not are_owners_of_same_stack(each.owner, owner)}
        refused: RefusalByKey = {}
        found = read_instances(peers, suggested, refused).values()
        there = [
            each for each in found if each is not None and not are_owners_of_same_stack(each.owner, owner)
        ]
        return [*there, *(suggested[key] for key in refused)]

    def other_instances_at_addresses(self, instances: Iterable[Instance], peers: Peers) -> list[Instance]:
        """Return other listed instances at the addresses of ``instances``; none where there is no list."""
        by_address = self._cached_list(peers).by_address
        return [
            each
            for one in instances
            for each in by_address.get(_application_address(one), ())
            if each.key != one.key
        ]

    def instances_of_owner(self, owner: str, application: str, peers: Peers) -> list[Instance]:
        """Return an owner's listed instances of an application; an empty list where Eureka gives none."""
        listed = self._cached_list(peers).instances()
        return [each for each in listed if each.application == application and each.owner == owner]

    def instances_of_application(self, application: str, peers: Peers) -> list[Instance]:
        """Return an application's listed instances; raise RegistryError where Eureka gives no list."""
        return [each for each in self.all_instances(peers) if each.application == application]

    def all_instances(self, peers: Peers) -> list[Instance]:
        """Return all listed instances; raise RegistryError where Eureka gives no list."""
        listed = self._cached_list(peers, retries_failed=True)
        if listed.error is not None:
            raise listed.error
        return list(listed.instances())

    def _cached_list(self, peers: Peers, *, retries_failed: bool = False) -> _CachedList:
        with self._lock:
            kept = self._entries.setdefault(peers, _CacheEntry())
        with kept.lock:
            listed = kept.listed
            is_old = listed is None or time.monotonic() - listed.read_at > LIST_CACHE_SECONDS
            if listed is None or is_old or (retries_failed and listed.error is not None):
                listed = kept.listed = _read_list(peers)
            return listed


SHARED_REGISTRY_LIST_CACHE = RegistryListCache()
"""The cached lists of this process."""


def _read_list(peers: Peers) -> _CachedList:
    found: dict[ApplicationAddress, list[Instance]] = {}
    error = None
    try:
        for each in peers.list_instances():
            found.setdefault(_application_address(each), []).append(each)
    except RegistryError as failure:
        error = failure
    return _CachedList(time.monotonic(), found, error)


def _application_address(instance: Instance) -> ApplicationAddress:
    return instance.application, instance.ip_address, instance.port.number


# A registration that is older than its lease is renewed by somebody. Where no registration of a renewer is, a
# person should hear of it before 90 seconds are over.

RENEWED_BY_SOMEBODY_AFTER_SECONDS = 300.0
"""Seconds after which a registration that still stands was renewed: a lease of 90 s, evictions each 60 s
and a list of half a minute ago are over, even with clocks that differ.
"""


def is_renewer_at_work(listed: Iterable[Instance], renewer: str, now_ms: float) -> bool | None:
    """Return whether the whole list shows a renewer at work; None where its registrations are too new."""
    written_at = [one.written_at_ms for one in listed if one.renewer == renewer]
    if not written_at:
        return False
    return True if min(written_at) < now_ms - RENEWED_BY_SOMEBODY_AFTER_SECONDS * 1000 else None


class RenewerCheck:
    """A check of the renewers with which this process registers, once for each Eureka and renewer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[tuple[tuple[str, ...], str]] = set()

    def missing_renewer_warning(self, peers: Peers, connection: str, renewer: str) -> str:
        """Return a warning, once for each Eureka and renewer, where nothing is renewed by it; else ""."""
        place = (peers.connection.service_urls, renewer)
        with self._lock:
            if renewer == SELF_RENEWER_VALUE or place in self._asked:
                return ""
            self._asked.add(place)
        try:
            seen = is_renewer_at_work(
                SHARED_REGISTRY_LIST_CACHE.all_instances(peers), renewer, time.time() * 1000
            )
        except Exception:  # noqa: BLE001 - it is worth no failed registration
            return ""
        if seen is not False:
            return ""
        return (
            f"nothing at {', '.join(peers.connection.service_urls)} is renewed by {renewer!r} yet: where no"
            " operator of that name has this Eureka among its connections (the stack's connection"
            f" {connection!r}), and no `eurekube keepalive --operator-name {renewer}` runs, what is"
            " registered now lapses with its Eureka lease, by default after 90 seconds"
        )


SHARED_RENEWER_CHECK = RenewerCheck()
"""The renewer check of this process, which lives as long as one update."""
