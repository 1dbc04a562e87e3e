"""What changed in a registry lately, as a server tells it, and what a list becomes by it.

A server keeps each change for three minutes and tells of it with the instance as it is by now: a delta
repeats itself, and to apply it twice is to apply it once. With it comes how many instances there are of each
status. A list and a delta that was made later are together the list of the later moment, unless a change
between the two is forgotten already. The counts show most of such gaps, but not that of one which came and
one which went: who applies deltas reads the list itself from time to time.

Source: AbstractInstanceRegistry.getApplicationDeltas and DiscoveryClient.updateDelta of Netflix/eureka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.eureka.protocol.codec import instance_from_json, is_unchanged, lease_end, listed

_STANDS = frozenset({"ADDED", "MODIFIED"})

NOTHING_HELD: Mapping[Key, Instance] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Delta:
    """One answer of ``/apps/delta``: what changed at a server within the last minutes.

    :param version: counts the deltas that a server has made since it was started.
    :param counts: how many instances the server held of each status, e.g. ``DOWN_1_UP_7_``.
    :param changes: what stands under each key that was changed; None where nothing does any more.
    :param lapsed: those of the latter that nobody deregistered: they were not renewed at this server.
    """

    version: int
    counts: str
    changes: Mapping[Key, Instance | None]
    lapsed: frozenset[Key] = frozenset()

    @property
    def gone(self) -> list[Key]:
        """What does not stand any more."""
        return [key for key, instance in self.changes.items() if instance is None]


@dataclass(frozen=True, slots=True)
class DeltaItem:
    """What a delta tells of one instance.

    :ivar stands: whether it is registered.
    :ivar has_lapsed: whether it is not, and nobody deregistered it.
    """

    key: Key
    instance: Instance
    stands: bool
    has_lapsed: bool


def applied(held: Mapping[Key, Instance], delta: Delta) -> dict[Key, Instance] | None:
    """What a list becomes by a delta that was made after it; None where the counts say otherwise.

    What is as it was stays the same object.
    """
    result = dict(held)
    for key, instance in delta.changes.items():
        if instance is None:
            result.pop(key, None)
        elif (old := result.get(key)) is not instance and old != instance:
            result[key] = instance
    return result if counts_of(result.values()) == delta.counts else None


def counts_of(instances: Iterable[Instance]) -> str:
    """How many instances have each status, as a server words it."""
    statuses = [instance.status for instance in instances]
    counts = {status.value: statuses.count(status) for status in Status}
    return "".join(f"{status}_{count}_" for status, count in sorted(counts.items()) if count)


def delta_from_text(text: bytes | str, held: Mapping[Key, Instance] = NOTHING_HELD) -> Delta:
    """Read ``/apps/delta``.

    :param held: what the same server said before. As a delta repeats the changes of three minutes, most of
        them are known: such an instance is not made anew, it is the one that is held.
    :raises ValueError: it is no JSON, or has what cannot be told to stand or to be gone.
    """
    applications = json.loads(text)["applications"]
    documents = (
        document
        for application in listed(applications.get("application"))
        for document in listed(application.get("instance"))
    )
    return delta_of(applications, (delta_item_of(document, held) for document in documents))


def delta_of(applications: Mapping[str, Any], every: Iterable[DeltaItem]) -> Delta:
    """Make a delta.

    :param applications: what stands beside the instances.
    :param every: what it tells of each, in its order: the last word counts.
    """
    changes: dict[Key, Instance | None] = {}
    lapsed: set[Key] = set()
    for one in every:
        changes[one.key] = one.instance if one.stands else None
        if one.has_lapsed:
            lapsed.add(one.key)
        else:
            lapsed.discard(one.key)
    counts = str(applications["apps__hashcode"])
    return Delta(int(applications["versions__delta"]), counts, changes, frozenset(lapsed))


def delta_item_of(document: Any, held: Mapping[Key, Instance]) -> DeltaItem:
    """What an item of a delta tells.

    :raises ValueError: it cannot be told to stand or to be gone.
    """
    if not _is_instance(document):
        raise ValueError("an instance without address or lease")
    action = document.get("actionType")
    if action not in _STANDS and action != "DELETED":
        raise ValueError(f"the actionType {action!r}")
    instance = held.get((str(document.get("app")), str(document.get("instanceId"))))
    if instance is None or not is_unchanged(instance, document):
        instance = _made(document)
    stands = action in _STANDS
    return DeltaItem(instance.key, instance, stands, not stands and _has_lapsed(instance, document))


def _is_instance(document: Any) -> bool:
    return isinstance(document, dict) and "ipAddr" in document and isinstance(document.get("leaseInfo"), dict)


def _has_lapsed(instance: Instance, document: Mapping[str, Any]) -> bool:
    """Whether what was removed had not been renewed for so long that the server may have evicted it.

    Both times are the server's own; one that does not say them is taken at its word. Source: Lease.isExpired.
    """
    ends, removed = lease_end(document["leaseInfo"]), document["leaseInfo"].get("evictionTimestamp")
    if not ends or not removed:
        return False
    return int(removed) > ends + instance.lease.duration_seconds * 1000


def _made(document: Mapping[str, Any]) -> Instance:
    try:
        return instance_from_json(document)
    except InvalidInstance as error:
        raise ValueError(str(error)) from None
