"""The instances that a server lists, as a value from which the next list is made by what changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from eurekube_provider.core.model import Instance, InstanceKey, Status

NO_INSTANCES: Mapping[InstanceKey, Instance] = MappingProxyType({})

ListingMark = object
"""An object that identifies a listing, and does not keep it in memory."""


class Listing(Collection[Instance]):
    """The instances of a registry, each key once. It never changes.

    :ivar by_key: the instances by key.
    :ivar mark: identifies this listing.
    """

    __slots__ = ("_changed_keys", "_counts", "_mark_before", "by_key", "mark")

    def __init__(self, by_key: Mapping[InstanceKey, Instance] = NO_INSTANCES) -> None:
        self.by_key, self.mark = by_key, ListingMark()
        self._mark_before: ListingMark | None = None
        self._changed_keys: Collection[InstanceKey] = ()
        self._counts: Mapping[str, int] | None = None

    @classmethod
    def of(cls, instances: Iterable[Instance]) -> Listing:
        """Return the listing of these instances; a listing is returned as it is.

        Of several instances with one key the last one counts.
        """
        if isinstance(instances, Listing):
            return instances
        return cls({instance.key: instance for instance in instances})

    def __iter__(self) -> Iterator[Instance]:
        """Iterate over the instances."""
        return iter(self.by_key.values())

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.by_key)

    def __contains__(self, instance: object) -> bool:
        """Return whether an instance is listed as it is."""
        return isinstance(instance, Instance) and self.by_key.get(instance.key) == instance

    def with_changes(self, changes: Mapping[InstanceKey, Instance | None]) -> Listing:
        """Return the listing after changes, perhaps itself; unchanged instances stay the same objects.

        :param changes: the instance of each changed key; None for one that is no longer registered.
        """
        before = self.by_key
        changed = [key for key, new in changes.items() if (old := before.get(key)) is not new and old != new]
        if not changed:
            return self
        by_key, counts = dict(before), dict(self._count_statuses())
        for key in changed:
            old, new = by_key.get(key), changes[key]
            if old is not None:
                counts[old.status.value] -= 1
            if new is None:
                del by_key[key]
            else:
                by_key[key] = new
                counts[new.status.value] += 1
        found = Listing(by_key)
        found._mark_before, found._changed_keys, found._counts = self.mark, changed, counts
        return found

    def keys_changed_since(self, mark: ListingMark | None) -> Collection[InstanceKey] | None:
        """Return the keys with another object than the listing with this mark has; None if unknown."""
        if mark is self.mark:
            return ()
        return self._changed_keys if mark is not None and mark is self._mark_before else None

    def differs_from(self, other: Listing) -> bool:
        """Return whether another listing has other instances."""
        changed = self.keys_changed_since(other.mark)
        return bool(changed) if changed is not None else self.by_key != other.by_key

    @property
    def status_counts(self) -> str:
        """The number of instances of each status, in a server's notation, e.g. ``DOWN_1_UP_7_``."""
        counts = sorted(self._count_statuses().items())
        return "".join(f"{status}_{count}_" for status, count in counts if count)

    def _count_statuses(self) -> Mapping[str, int]:
        if self._counts is None:
            statuses = [instance.status for instance in self]
            self._counts = {status.value: statuses.count(status) for status in Status}
        return self._counts
