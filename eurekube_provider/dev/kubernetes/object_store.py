"""The store of the API in memory: objects by kind, versions of changes, lists and watches."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from eurekube_provider.core.objects import key_of
from eurekube_provider.dev.kubernetes.served_kinds import Object

ObjectKey = tuple[str, str]
ObjectFilter = Callable[[Object], bool]

MAX_KEPT_CHANGES = 10_000
"""The number of changes that are kept; a watch from an older version is refused with 410."""

BOOKMARK_INTERVAL_SECONDS = 60.0

_LABEL_SELECTOR_PATTERN = re.compile(r"([-\w./]+([!=]?=[-.\w]*)?(,|$))*")


class ApiRefusal(Exception):
    """Raised to refuse a request with a ``Status``: an HTTP status and a reason such as ``Conflict``."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.status: Object = {**answer, "code": code, "reason": reason, "message": message}


class ObjectStore:
    """Objects by kind, with one version for all changes. Hold :attr:`changed` to read and then write."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._is_closed = False
        self.version = 1000
        self._objects: dict[str, dict[ObjectKey, Object]] = {}
        self._changes: deque[tuple[str, Object | None, Object | None]] = deque(maxlen=MAX_KEPT_CHANGES)
        """The kind, and the object before and after, of each of the last versions."""

    def close(self) -> None:
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def get(self, storage: str, key: ObjectKey) -> Object | None:
        return self._objects.get(storage, {}).get(key)

    def list_objects(self, storage: str, namespace: str = "") -> list[tuple[str, Object]]:
        """Return pairs of storage key and object, of one kind or, if empty, all, and so of one namespace."""
        places = [storage] if storage else sorted(self._objects)
        found = ((place, key) for place in places for key in sorted(self._objects.get(place, {})))
        return [(place, self._objects[place][key]) for place, key in found if namespace in ("", key[0])]

    def put(self, storage: str, item: Object) -> Object:
        """Store an object; return it with its new version."""
        key, stored = key_of(item), _with_resource_version(item, self.version + 1)
        before = self.get(storage, key)
        self._objects.setdefault(storage, {})[key] = stored
        self._record_change(storage, before, stored)
        return stored

    def remove(self, storage: str, item: Object) -> None:
        self._record_change(storage, self._objects[storage].pop(key_of(item)), None)

    def _record_change(self, storage: str, before: Object | None, after: Object | None) -> None:
        self.version += 1
        self._changes.append((storage, before and _with_resource_version(before, self.version), after))
        self.changed.notify_all()

    def watch(
        self, storage: str, since: int, object_filter: ObjectFilter, seconds: float
    ) -> Iterator[tuple[str, Object]]:
        """Yield types and objects of the changes of a kind until the time is over or the store is closed.

        :param since: the version after which changes are sent; 0 to send all objects first.
        :raises ApiRefusal: 410, the version is too old.
        """
        end, reported_at = time.monotonic() + seconds, time.monotonic()
        with self.changed:
            first = [] if since else [one for _, one in self.list_objects(storage) if object_filter(one)]
            since = since or self.version
        yield from (("ADDED", item) for item in first)
        while not self._is_closed:
            with self.changed:
                if since >= self.version:
                    self.changed.wait(
                        max(0.0, min(end, reported_at + BOOKMARK_INTERVAL_SECONDS) - time.monotonic())
                    )
                count = self.version - since
                if count > len(self._changes):
                    raise ApiRefusal(410, "Expired", f"too old resource version: {since}")
                news = [self._changes[-number] for number in range(count, 0, -1)]
                since = max(since, self.version)
            for kind, before, after in news:
                was, is_ = (
                    one is not None and kind == storage and object_filter(one) for one in (before, after)
                )
                if is_ and after is not None:
                    yield ("MODIFIED" if was else "ADDED"), after
                elif was and before is not None:
                    yield "DELETED", before
            if time.monotonic() >= min(end, reported_at + BOOKMARK_INTERVAL_SECONDS):
                reported_at = time.monotonic()
                yield "BOOKMARK", {"metadata": {"resourceVersion": str(since)}}
            if time.monotonic() >= end:
                return


def build_object_filter(namespace: str, query: Mapping[str, str]) -> ObjectFilter:
    """Return the function that tells whether a query selects an object, by its namespace, labels and name.

    :param namespace: empty for all.
    :raises ApiRefusal: 400, a selector is not supported, such as one of labels other than by value, or of
        fields other than the name.
    """
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    name = fields.removeprefix("metadata.name=")
    if not _LABEL_SELECTOR_PATTERN.fullmatch(labels) or not re.fullmatch(r"[-.\w]*", name):
        raise ApiRefusal(400, "BadRequest", f"the selector {labels or fields!r} is not supported")
    wanted = [one.replace("==", "=").partition("=") for one in labels.split(",") if one]

    def object_filter(item: Object) -> bool:
        metadata = item["metadata"]
        found = metadata.get("labels") or {}
        is_meant = namespace in ("", metadata.get("namespace")) and name in ("", metadata["name"])
        return is_meant and all(
            (found.get(key.rstrip("!")) == value) is not key.endswith("!") if is_ else key in found
            for key, is_, value in wanted
        )

    return object_filter


def _with_resource_version(item: Object, version: int) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
