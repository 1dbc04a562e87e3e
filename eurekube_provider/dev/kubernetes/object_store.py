"""Objects by kind, the versions of their changes, and the lists and watches that are made of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from eurekube_provider.dev.kubernetes.refusals import ApiRefusal, Object

ObjectKey = tuple[str, str]
"""The namespace and name of an object."""

Selects = Callable[[Object], bool]

KEPT_CHANGES = 10_000
"""Who watches from a version before these is answered with 410."""

BOOKMARK_SECONDS = 60.0


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
        self.is_closed = False
        self._version = self._oldest = 1000
        self._objects: dict[str, dict[ObjectKey, Object]] = {}
        self._changes: deque[StoredChange] = deque()

    def close(self) -> None:
        """End every watch."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def get(self, storage: str, key: ObjectKey) -> Object | None:
        """Return an object, None where there is none."""
        return self._objects.get(storage, {}).get(key)

    def of(self, storage: str | None, namespace: str = "") -> list[tuple[str, Object]]:
        """Return the objects of a kind, or of all (None), or those in a namespace, each with its storage."""
        places = sorted(self._objects) if storage is None else [storage]
        return [
            (place, item)
            for place in places
            for key, item in sorted(self._objects.get(place, {}).items())
            if namespace in ("", key[0])
        ]

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

    def page(self, storage: str, selects: Selects, limit: int, token: str) -> tuple[list[Object], Object]:
        """Return the objects of one page of a list, and the list's metadata.

        All pages name the version of the first, so that a watch tells of what changed between them.

        :param limit: 0 for all.
        :param token: what the page before has as ``continue``; empty for the first.
        :raises ApiRefusal: 410, the first page is too old.
        """
        version, *last = token.split("/") if token else [str(self._version)]
        self._refuse_forgotten(int(version))
        found = [one for _, one in self.of(storage) if selects(one) and [*_key(one)] > last]
        metadata: Object = {"resourceVersion": version}
        if limit and len(found) > limit:
            found = found[:limit]
            metadata["continue"] = "/".join((version, *_key(found[-1])))
        return found, metadata

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
        while not self.is_closed:
            with self.changed:
                self._refuse_forgotten(since)
                if since >= self._version:
                    self.changed.wait(max(0.0, min(end, told_at + BOOKMARK_SECONDS) - time.monotonic()))
                news = self._since(storage, since)
                since = max(since, self._version)
            yield from (seen for change in news if (seen := change.seen_by(selects)) is not None)
            now = time.monotonic()
            if now >= min(end, told_at + BOOKMARK_SECONDS):
                told_at = now
                yield "BOOKMARK", {"metadata": {"resourceVersion": str(since)}}
            if now >= end:
                return

    def _since(self, storage: str, version: int) -> list[StoredChange]:
        news = []
        for change in reversed(self._changes):
            if change.version <= version:
                break
            if change.storage == storage:
                news.append(change)
        return news[::-1]

    def _refuse_forgotten(self, version: int) -> None:
        if version < self._oldest:
            raise ApiRefusal(410, "Expired", f"too old resource version: {version} ({self._oldest})")


def _at_version(item: Object, version: int) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


def _key(item: Object) -> ObjectKey:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
