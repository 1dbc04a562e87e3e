"""What we believe is in the registry: our own writes and uncached reads, and lists, which only suggest.

A list is up to half a minute old, so that it never overrules what was written or read meanwhile; where it
contradicts older knowledge it raises a doubt, which an uncached read settles.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from eurekube_provider.core.brake import counts
from eurekube_provider.core.identity import cluster_of
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.plan import same_contents
from eurekube_provider.eureka import windows

FEWEST_TO_PURGE = 1000


class View:
    """One registry as far as it is known; any number of threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._held: dict[Key, Instance] = {}
        self._firm: set[Key] = set()
        self._touched: dict[Key, float] = {}
        self._purge_from = FEWEST_TO_PURGE
        self._by_application: dict[str, set[Key]] = defaultdict(set)
        self._by_owner: dict[str, set[Key]] = defaultdict(set)
        # Kept up to date, since the brake asks at each reconcile how many of all are UP.
        self._up_by_owner: Counter[str] = Counter()
        self._up_by_cluster: Counter[str] = Counter()
        self._by_name: dict[str, Counter[str]] = defaultdict(Counter)

    def registered(self, instance: Instance) -> None:
        """Keep an instance that was written, or seen by an uncached read."""
        with self._lock:
            key = self._hold(instance)
            self._firm.add(key)
            self._touched[key] = self.clock()

    def gone(self, key: Key) -> None:
        """Forget an instance that was removed, or that an uncached read did not find."""
        with self._lock:
            self._drop(key)
            self._touched[key] = self.clock()
            if len(self._touched) >= self._purge_from:  # no list comes that would do it
                self._purge(self._touched[key])

    def doubt(self) -> None:
        """Believe the next list: somebody else may have changed anything since we wrote or read it."""
        with self._lock:
            self._firm.clear()
            self._touched.clear()

    def get(self, key: Key) -> Instance | None:
        """One instance."""
        with self._lock:
            return self._held.get(key)

    def holds(self, key: Key) -> bool:
        """Whether something stands there."""
        with self._lock:
            return key in self._held

    def is_new(self, key: Key) -> bool:
        """Whether nothing stands there, and nothing was written or removed there lately."""
        with self._lock:
            return key not in self._held and key not in self._touched

    def owned(self, owner: str) -> list[Instance]:
        """The instances of an owner."""
        with self._lock:
            return [self._held[key] for key in self._by_owner.get(owner, ())]

    def known(self, owner: str = "", application: str = "") -> list[Instance]:
        """The instances of an owner, of an application, of both, or all."""
        if owner:
            owned, name = self.owned(owner), application.upper()
            return [one for one in owned if one.application == name] if name else owned
        if application:
            return self.application(application)
        with self._lock:
            return list(self._held.values())

    def application(self, name: str) -> list[Instance]:
        """The instances of an application, whoever owns them."""
        with self._lock:
            return [self._held[key] for key in self._by_application.get(name.upper(), ())]

    def overridden(self) -> list[Instance]:
        """The instances over whose status a person has set another one."""
        with self._lock:
            return [instance for instance in self._held.values() if instance.is_overridden]

    def owners(self) -> set[str]:
        """All owners that have an instance."""
        with self._lock:
            return {owner for owner, keys in self._by_owner.items() if keys}

    def count(self, owner: str) -> int:
        """How many instances an owner has."""
        with self._lock:
            return len(self._by_owner.get(owner, ()))

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """How many instances of an owner, or of a cluster's syncers, are UP, as the brake counts them."""
        with self._lock:
            return self._up_by_owner[owner] if owner else self._up_by_cluster[cluster]

    def owners_called(self, name: str) -> list[str]:
        """The owners of instances that callers find under a name: an application's or a VIP address."""
        with self._lock:
            return list(self._by_name.get(name.lower(), ()))

    def __len__(self) -> int:
        return len(self._held)

    def merge(
        self, listed: Iterable[Instance], *, is_complete: bool = True
    ) -> tuple[list[Instance], list[Key]]:
        """Take a list of the whole registry.

        :param is_complete: whether what it lacks is there no more, as far as a list can tell.
        :returns: the news: instances that were not known, or otherwise, and are believed as listed; and the
            doubts: keys of which older firm knowledge and the list say different things.
        """
        # Thousands at each reading, most of them as before: nothing is called for those.
        suggested = {(instance.application, instance.instance_id): instance for instance in listed}
        news: list[Instance] = []
        doubts: list[Key] = []
        with self._lock:
            now = self.clock()
            self._purge(now)
            for key, instance in suggested.items():
                held = self._held.get(key)
                if held is instance or key in self._touched:
                    continue
                agrees = held is not None and held.owner == instance.owner and _agree(held, instance)
                if key not in self._firm:
                    if not agrees:
                        news.append(instance)
                    self._hold(instance)
                elif not agrees:
                    doubts.append(key)
                elif held is not None and held.last_dirty_timestamp_ms == instance.last_dirty_timestamp_ms:
                    self._held[key] = instance  # the same, so that the next list finds itself here
            if is_complete and not self._held.keys() <= suggested.keys():
                for key in [one for one in self._held if one not in suggested and one not in self._touched]:
                    if key in self._firm:
                        doubts.append(key)
                    else:
                        self._drop(key)
        return news, doubts

    def _purge(self, now: float) -> None:
        """Forget what every list shows by now; as it costs what there is, at each doubling at most."""
        self._touched = {key: at for key, at in self._touched.items() if now - at < windows.UNLISTED}
        self._purge_from = max(FEWEST_TO_PURGE, 2 * len(self._touched))

    def _hold(self, instance: Instance) -> Key:
        """Hold it; returns the key object that all tables share, which saves half of their memory."""
        key = instance.key
        old = self._held.get(key)
        names = instance.names
        if old is not None and (old.owner != instance.owner or old.names != names):
            self._drop(key)
            old = None
        if old is None or old.status is not instance.status or counts(old) is not counts(instance):
            self._count(old, -1)
            self._count(instance, 1)
        self._held[key] = instance
        self._by_application[instance.application].add(key)
        if instance.owner:
            self._by_owner[instance.owner].add(key)
            for name in names if old is None else ():
                self._by_name[name][instance.owner] += 1
        return key

    def _drop(self, key: Key) -> None:
        instance = self._held.pop(key, None)
        self._firm.discard(key)
        if instance is None:
            return
        self._count(instance, -1)
        for index, name in ((self._by_application, instance.application), (self._by_owner, instance.owner)):
            if name is not None and name in index:
                index[name].discard(key)
                if not index[name]:
                    del index[name]
        for name in instance.names if instance.owner else ():
            owners = self._by_name[name]
            owners[instance.owner or ""] -= 1
            if not owners[instance.owner or ""]:
                del owners[instance.owner or ""]
            if not owners:
                del self._by_name[name]

    def _count(self, instance: Instance | None, by: int) -> None:
        if instance is None or instance.status is not Status.UP or not instance.owner or not counts(instance):
            return
        for table, name in (
            (self._up_by_owner, instance.owner),
            (self._up_by_cluster, cluster_of(instance.owner)),
        ):
            if name is not None:
                table[name] += by
                if not table[name]:
                    del table[name]


def _agree(one: Instance, other: Instance) -> bool:
    return one.status is other.status and same_contents(one, other)
