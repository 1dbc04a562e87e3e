"""Recent changes of a registry, as a server reports them.

A server keeps each change for three minutes and reports it with the present instance: a delta repeats earlier
changes, and applying one twice is the same as once. It also contains the number of instances of each status.
A list and a later delta together make the list of the later moment, unless the server has already forgotten a
change in between. The numbers reveal most of such gaps, but not one in which as many instances came as left:
users of deltas must read the list itself from time to time.

Source: AbstractInstanceRegistry.getApplicationDeltas and DiscoveryClient.updateDelta of Netflix/eureka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka.listing import NO_INSTANCES
from eurekube_provider.eureka.protocol.codec import (
    instance_from_json,
    instance_id_of,
    is_unchanged,
    iterate_items,
    lease_end_ms,
)

_REGISTERED_ACTIONS = frozenset({"ADDED", "MODIFIED"})


@dataclass(frozen=True, slots=True)
class DeltaPart:
    """The changes in one part of a delta, such as those of one application.

    :ivar changes: the instance under each changed key; None for one that is no longer registered.
    :ivar evicted_keys: of instances that the server evicted for lack of renewals.
    :ivar departed_keys: the keys of the instances that left.
    :ivar applications: the applications of all keys.
    """

    changes: Mapping[InstanceKey, Instance | None]
    evicted_keys: frozenset[InstanceKey] = frozenset()
    departed_keys: tuple[InstanceKey, ...] = field(init=False, repr=False)
    applications: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Collect what each delta with this part asks for."""
        departed = tuple(key for key, instance in self.changes.items() if instance is None)
        object.__setattr__(self, "departed_keys", departed)
        object.__setattr__(self, "applications", frozenset(application for application, _ in self.changes))


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """One answer of ``/apps/delta``: the changes at a server within the last minutes.

    :param version: counts the deltas that a server has made since it was started.
    :param status_counts: how many instances the server held of each status, e.g. ``DOWN_1_UP_7_``.
    :param parts: in their order; an instance's last change counts. Known parts are the same objects.
    """

    version: int
    status_counts: str
    parts: tuple[DeltaPart, ...] = ()

    @property
    def change_count(self) -> int:
        """The number of changes."""
        return sum(len(part.changes) for part in self.parts)

    @property
    def changes(self) -> dict[InstanceKey, Instance | None]:
        """The changes of all parts, as in :class:`DeltaPart`."""
        return _merge_changes(self.parts)

    @property
    def departed_keys(self) -> list[InstanceKey]:
        """The keys of the instances that left."""
        departed = [key for part in self.parts for key in part.departed_keys]
        if self._has_each_key_once:
            return departed
        changes = self.changes
        return [key for key in dict.fromkeys(departed) if changes[key] is None]

    @property
    def evicted_keys(self) -> frozenset[InstanceKey]:
        """The keys of the instances that the server evicted."""
        evicted: set[InstanceKey] = set()
        for part in self.parts:
            if evicted:
                evicted.difference_update(part.changes)
            evicted |= part.evicted_keys
        return frozenset(evicted)

    def changes_since(self, before: Delta) -> dict[InstanceKey, Instance | None]:
        """Return the changes without those of parts that the delta before has, which were applied with it."""
        if not (self._has_each_key_once and before._has_each_key_once):
            return self.changes  # what another part says of a key may count by now
        applied = set(map(id, before.parts))
        return _merge_changes(part for part in self.parts if id(part) not in applied)

    @property
    def _has_each_key_once(self) -> bool:
        """True if no two parts name an instance of the same application."""
        count = sum(len(part.applications) for part in self.parts)
        return count == len(frozenset[str]().union(*(part.applications for part in self.parts)))


def _merge_changes(parts: Iterable[DeltaPart]) -> dict[InstanceKey, Instance | None]:
    changes: dict[InstanceKey, Instance | None] = {}
    for part in parts:
        changes.update(part.changes)
    return changes


@dataclass(frozen=True, slots=True)
class DeltaChange:
    """The last change of one instance in a delta.

    :ivar is_registered: True if the instance is registered.
    :ivar was_evicted: True if the instance is gone, and nobody deregistered it.
    """

    instance: Instance
    is_registered: bool
    was_evicted: bool


def delta_from_text(text: bytes | str, held: Mapping[InstanceKey, Instance] = NO_INSTANCES) -> Delta:
    """Read ``/apps/delta``.

    :param held: instances from the same server. A delta repeats the changes of three minutes, so that most
        are known: an unchanged instance is taken from here, and not made again.
    :raises ValueError: the text is not JSON.
    """
    applications = json.loads(text)["applications"]
    documents = (
        document
        for application in iterate_items(applications.get("application"))
        for document in iterate_items(application.get("instance"))
    )
    part = build_part(parse_delta_change(document, held) for document in documents)
    return build_delta(applications, [part])


def build_delta(applications: Mapping[str, Any], parts: Iterable[DeltaPart]) -> Delta:
    """Return the delta that consists of these parts.

    :param applications: the fields beside the instances.
    """
    counts = str(applications["apps__hashcode"])
    return Delta(int(applications["versions__delta"]), counts, tuple(parts))


def build_part(items: Iterable[DeltaChange | None]) -> DeltaPart:
    """Return the part of a delta that consists of these items.

    :param items: the items in their order; the last item of an instance counts. None stands for an unreadable
        item: the counts then differ, and the caller reads the list.
    """
    changes: dict[InstanceKey, Instance | None] = {}
    lapsed: set[InstanceKey] = set()
    for one in items:
        if one is None:
            continue
        key = one.instance.key
        changes[key] = one.instance if one.is_registered else None
        if one.was_evicted:
            lapsed.add(key)
        else:
            lapsed.discard(key)
    return DeltaPart(changes, frozenset(lapsed))


def parse_delta_change(document: Any, held: Mapping[InstanceKey, Instance]) -> DeltaChange | None:
    """Parse an item of a delta; return None where it has no instance id, or no known action."""
    if not isinstance(document, dict) or not document.get("app"):
        return None
    instance_id, action = instance_id_of(document), document.get("actionType")
    if not instance_id or (action not in _REGISTERED_ACTIONS and action != "DELETED"):
        return None
    instance = held.get((str(document["app"]), instance_id))
    if instance is None or not is_unchanged(instance, document):
        instance = instance_from_json(document)
    stands = action in _REGISTERED_ACTIONS
    return DeltaChange(instance, stands, not stands and _was_evicted(instance, document))


def _was_evicted(instance: Instance, document: Mapping[str, Any]) -> bool:
    """Return whether a removed instance had not been renewed for so long that the server may have evicted it.

    Both times are the server's own; without them it counts as deregistered. Source: Lease.isExpired.
    """
    lease = document.get("leaseInfo")
    ends = lease_end_ms(lease)
    removed = lease.get("evictionTimestamp") if isinstance(lease, dict) else None
    if not ends or not str(removed).isdigit():
        return False
    return int(removed or 0) > ends + instance.lease.duration_seconds * 1000
