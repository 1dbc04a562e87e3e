"""Objects by kind, the versions of their changes, and the lists and watches that are made of them."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from eurekube_provider.dev.kubernetes.served_kinds import ApiRefusal, Object

ObjectKey = tuple[str, str]
"""The namespace and name of an object."""

Selects = Callable[[Object], bool]

KEPT_CHANGES = 10_000
"""Who watches from a version before these is answered with 410."""

BOOKMARK_SECONDS = 60.0

_REQUIREMENT = re.compile(r"(?P<not>!)?(?P<key>[-\w./]+)((?P<is>==?|!=)(?P<value>[-.\w]*))?")


class StoredChange(NamedTuple):
    """One change: the object before (None: it is new) and after (None: it is gone)."""

    version: int
    storage: str
    before: Object | None
    after: Object | None

    def seen_by(self, selects: Selects) -> tuple[str, Object] | None:
        """Return what a watch tells of it, by type and object; None for nothing."""
        was_selected = self.before is not None and selects(self.before)
        if self.after is not None and selects(self.after):
            return ("MODIFIED" if was_selected else "ADDED"), self.after
        if self.before is None or not was_selected:
            return None
        return "DELETED", _at_version(self.before, self.version)


class ObjectStore:
    """What is stored. Who reads and then writes holds :attr:`changed` meanwhile."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._is_closed = False
        self._version = self._oldest = 1000
        self._objects: dict[str, dict[ObjectKey, Object]] = {}
        self._changes: deque[StoredChange] = deque()

    def close(self) -> None:
        """End every watch."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def get(self, storage: str, key: ObjectKey) -> Object | None:
        """Return an object, None where there is none."""
        return self._objects.get(storage, {}).get(key)

    def of(self, storage: str, namespace: str = "") -> list[tuple[str, Object]]:
        """Return the objects of a kind, or of all (empty), or those in a namespace, each with its storage."""
        places = [storage] if storage else sorted(self._objects)
        found = ((place, key) for place in places for key in sorted(self._objects.get(place, {})))
        return [(place, self._objects[place][key]) for place, key in found if namespace in ("", key[0])]

    def put(self, storage: str, item: Object) -> Object:
        """Store an object; returns it with its new version."""
        stored = _at_version(item, self._version + 1)
        before = self.get(storage, _key(item))
        self._objects.setdefault(storage, {})[_key(item)] = stored
        self._record(storage, before, stored)
        return stored

    def remove(self, storage: str, item: Object) -> None:
        """Remove an object."""
        self._record(storage, self._objects[storage].pop(_key(item)), None)

    def _record(self, storage: str, before: Object | None, after: Object | None) -> None:
        self._version += 1
        self._changes.append(StoredChange(self._version, storage, before, after))
        if len(self._changes) > KEPT_CHANGES:
            self._oldest = self._changes.popleft().version
        self.changed.notify_all()

    def listed(self, storage: str, selects: Selects) -> tuple[list[Object], str]:
        """Return the objects of a kind, and the version from which on a watch tells of their changes."""
        return [one for _, one in self.of(storage) if selects(one)], str(self._version)

    def watch(
        self, storage: str, since: int, selects: Selects, seconds: float
    ) -> Iterator[tuple[str, Object]]:
        """Yield types and objects of the changes of a kind until the time is over or the store is closed.

        :param since: the version from which on; 0 for all objects first.
        :raises ApiRefusal: 410, the version is too old.
        """
        end, told_at = time.monotonic() + seconds, time.monotonic()
        with self.changed:
            first = [] if since else [one for _, one in self.of(storage) if selects(one)]
            since = since or self._version
        yield from (("ADDED", item) for item in first)
        while not self._is_closed:
            with self.changed:
                if since < self._oldest:
                    raise ApiRefusal(410, "Expired", f"too old resource version: {since} ({self._oldest})")
                if since >= self._version:
                    self.changed.wait(max(0.0, min(end, told_at + BOOKMARK_SECONDS) - time.monotonic()))
                count = min(len(self._changes), max(0, self._version - since))
                news = [self._changes[-number] for number in range(count, 0, -1)]
                since = max(since, self._version)
            mine = (change.seen_by(selects) for change in news if change.storage == storage)
            yield from (seen for seen in mine if seen is not None)
            if time.monotonic() >= min(end, told_at + BOOKMARK_SECONDS):
                told_at = time.monotonic()
                yield "BOOKMARK", {"metadata": {"resourceVersion": str(since)}}
            if time.monotonic() >= end:
                return


def selecting(namespace: str, query: Mapping[str, str]) -> Selects:
    """Return what tells whether an object is asked for, by its namespace, labels and name.

    :param namespace: empty for all.
    :raises ApiRefusal: 400, a selector is not supported: sets, or fields other than the name.
    """
    labels, fields = (query.get(key, "") for key in ("labelSelector", "fieldSelector"))
    found = [_REQUIREMENT.fullmatch(one.strip()) for one in labels.split(",") if one.strip()]
    name = fields.removeprefix("metadata.name=")
    if None in found or not re.fullmatch(r"[-.\w]*", name):
        raise ApiRefusal(400, "BadRequest", f"the selector {labels or fields!r} is not supported")

    def selects(item: Object) -> bool:
        metadata = item["metadata"]
        of_item = metadata.get("labels") or {}
        is_meant = namespace in ("", metadata.get("namespace")) and name in ("", metadata["name"])
        return is_meant and all(one is not None and _holds(one, of_item.get(one["key"])) for one in found)

    return selects


def _holds(wanted: re.Match[str], value: str | None) -> bool:
    if wanted["is"] is None:
        return (value is None) is bool(wanted["not"])
    return (value == wanted["value"]) is (wanted["is"] != "!=")


def _at_version(item: Object, version: int) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


def _key(item: Object) -> ObjectKey:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
