"""A model of the Kubernetes API server: objects by kind, versions, lists, watches and finalizers.

It speaks JSON like a real one, so that :class:`~eurekube_provider.kube.access.KubeAccess` runs unchanged
except for the network.

Source: API concepts of kubernetes.io: resource versions, watches, 410 Gone, finalizers, merge patches.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from eurekube_provider.dev.kubernetes.object_store import build_object_filter
from eurekube_provider.dev.kubernetes.patches import apply_merge_patch
from tests.explore.operator.threads import Scheduler, Waiter

Object = dict[str, Any]
Key = tuple[str, str]

KUBE_SYSTEM_UID = "c1a57e12-0000-4000-8000-000000000001"

_KINDS = {
    "eurekasyncers": ("eurekube.io/v1alpha1", "EurekaSyncer"),
    "eurekamirrors": ("eurekube.io/v1alpha1", "EurekaMirror"),
    "services": ("v1", "Service"),
    "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice"),
    "namespaces": ("v1", "Namespace"),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}

BOOKMARK_SECONDS = 60.0

_IDENTITY = ("uid", "resourceVersion")
"""Metadata in a request that must equal those of the stored object."""

_GIVEN = ("uid", "generation", "deletionTimestamp")
"""Metadata that the API server sets."""


class Refused(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"kind": "Status", "code": status, "message": message, "reason": reason}


@dataclass(slots=True)
class Change:
    """One event of a watch.

    :ivar before: the object before the change; None if it did not exist.
    """

    version: int
    kind: str
    key: Key
    type: str
    item: Object
    before: Object | None
    line: bytes = b""

    def encoded(self) -> bytes:
        """Return the event as a line of a watch."""
        if not self.line:
            self.line = json.dumps({"type": self.type, "object": self.item}).encode() + b"\n"
        return self.line


@dataclass(frozen=True, slots=True)
class Path:
    """The parts of an API path."""

    kind: str
    namespace: str
    name: str
    subresource: str

    @classmethod
    def parse(cls, path: str) -> Path:
        """Parse a path."""
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        rest = [*rest, "", ""]
        return cls(rest[0], namespace, rest[1], rest[2])


class Kube:
    """A model of one API server.

    :ivar lag_ms: milliseconds after a change until watches report it.
    :ivar behind: the version at which its cache stands still, which lists and watches are answered from; None
        if it does not.
    :ivar changed: called after each change of an object.
    :ivar refused: a part of the names of objects that nobody may make or change; empty for none.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.objects: dict[str, dict[Key, Object]] = {kind: {} for kind in _KINDS}
        self.version = 1000
        self.oldest = 1000
        self.lag_ms = 2
        self.behind: int | None = None
        self.changes: list[Change] = []
        self.changed: Callable[[Change], None] = lambda _: None
        self.refused = ""
        self.events: list[Object] = []
        self._watches: set[_Watch] = set()
        self._uids = 0
        self.put("namespaces", {"metadata": {"name": "kube-system", "uid": KUBE_SYSTEM_UID}})

    # --- what a person, a controller or a kubelet does

    def put(self, kind: str, item: Object) -> Object:
        """Create or replace an object; status and finalizers stay unless given."""
        key = _key(item)
        before = self.objects[kind].get(key)
        version, name = _KINDS[kind]
        metadata = {**(before or {}).get("metadata", {}), **item["metadata"]}
        made = {**(before or {}), **copy.deepcopy(item), "apiVersion": version, "kind": name}
        made["metadata"] = metadata
        if before is None:
            self._uids += 1
            metadata.setdefault("uid", f"uid-{self._uids}")
            metadata["generation"] = 1
        elif before.get("spec") != made.get("spec"):
            metadata["generation"] = metadata.get("generation", 1) + 1
        return self._store(kind, key, made, "MODIFIED" if before else "ADDED")

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object: at once, or once its finalizers are gone."""
        key = (namespace, name)
        item = self.objects[kind].get(key)
        if item is None:
            return
        if item["metadata"].get("finalizers"):
            if "deletionTimestamp" not in item["metadata"]:
                metadata = {**item["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
                metadata["generation"] = metadata.get("generation", 1) + 1
                self._store(kind, key, {**item, "metadata": metadata}, "MODIFIED")
            return
        self._store(kind, key, item, "DELETED")

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the stored object; None if there is none."""
        return self.objects[kind].get((namespace, name))

    def drop_watches(self) -> None:
        """Break all open watches."""
        for watch in list(self._watches):
            watch.is_broken = True
            self._wake(watch)

    def expire(self) -> None:
        """Forget all changes so far, so that a watch from an older version gets 410."""
        self.oldest = self.version
        while self.changes and self.changes[0].version <= self._visible():
            del self.changes[0]
        for watch in list(self._watches):
            self._wake(watch)

    def thaw(self) -> None:
        """Let the cache follow changes again."""
        self.behind = None
        for watch in list(self._watches):
            self._wake(watch)

    def is_expired(self, version: int) -> bool:
        """Return whether a client at this version must list, because later changes are forgotten.

        A cache that stands still reports no later change, but still says what it has forgotten.
        """
        return version < min(self.oldest, self._visible())

    # --- what a client asks

    def handle(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Object:
        """Answer one request.

        :raises Refused: the answer is not a success.
        """
        place = Path.parse(path)
        if place.kind == "events":
            self.events.append(body)
            return dict(body)
        if place.kind not in self.objects:
            raise Refused(404, f"no such kind: {place.kind}")
        name = place.name or ((body or {}).get("metadata") or {}).get("name", "")
        if self.refused and method in ("POST", "PUT", "PATCH") and self.refused in name:
            raise Refused(403, f"{place.kind} {name} is refused by a webhook", "Forbidden")
        if not place.name:
            if method == "POST":
                return self._create(place, body)
            return self._list(place, query)
        item = self.objects[place.kind].get((place.namespace, place.name))
        if item is None:
            raise Refused(404, f"{place.kind} {place.name} not found", "NotFound")
        if method == "GET":
            return item
        sent = (body or {}).get("preconditions" if method == "DELETE" else "metadata") or {}
        if any(sent.get(one, item["metadata"][one]) != item["metadata"][one] for one in _IDENTITY):
            raise Refused(409, f"{place.kind} {place.name} was changed meanwhile", "Conflict")
        if method == "DELETE":
            self.delete(place.kind, place.namespace, place.name)
            return item
        if method == "PUT":
            kept = {key: one for key, one in item["metadata"].items() if key in _GIVEN}
            return self._write(place, item, {**item, **body, "metadata": {**body["metadata"], **kept}})
        if method == "PATCH":
            allowed = {"status"} if place.subresource == "status" else set(body) - {"status"}
            wanted: Object = {key: value for key, value in body.items() if key in allowed}
            if place.kind == "pods":  # a strategic merge patch, which replaces conditions of the same type
                said = wanted["status"]["conditions"]
                types = {one["type"] for one in said}
                others = [one for one in item["status"].get("conditions", ()) if one["type"] not in types]
                wanted["status"] = {"conditions": [*others, *said]}
            return self._write(place, item, apply_merge_patch(item, wanted))
        raise Refused(405, method)

    def watch(self, path: str, query: Mapping[str, str], may_go_on: Callable[[], None]) -> Iterator[bytes]:
        """Yield the lines of a watch.

        :param may_go_on: raises where the client is dead.
        """
        place = Path.parse(path)
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        since = int(query.get("resourceVersion") or 0)
        seconds = float(query.get("timeoutSeconds") or 300)
        watch = _Watch(place)
        end_ms = self.scheduler.clock.now_ms + round(seconds * 1000)
        self._watches.add(watch)
        try:
            if not since:
                since = self._visible()
                for item in list(self.objects[place.kind].values()):
                    if _fits(item, place.namespace, name):
                        yield json.dumps({"type": "ADDED", "object": item}).encode() + b"\n"
            quiet_until = self.scheduler.clock.now_ms + BOOKMARK_SECONDS * 1000
            while True:
                may_go_on()
                if watch.is_broken:
                    return
                if self.is_expired(since):
                    gone = Refused(410, "too old resource version", "Expired").body
                    yield json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
                    return
                changes = self._since(since, place, name)
                since = max(since, self._visible())
                for change in changes:
                    yield change.encoded()
                now = self.scheduler.clock.now_ms
                if now >= end_ms:
                    return
                if now >= quiet_until:
                    quiet_until = now + BOOKMARK_SECONDS * 1000
                    mark = {"metadata": {"resourceVersion": str(since)}}
                    yield json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n"
                if since >= self._visible():
                    self.scheduler.wait(watch.waiters, (min(end_ms, quiet_until) - now) / 1000)
        finally:
            self._watches.discard(watch)

    # --- inside

    def _visible(self) -> int:
        return self.version if self.behind is None else self.behind

    def _since(self, version: int, place: Path, name: str) -> list[Change]:
        """Return the changes since a version, oldest first."""
        changes = []
        for change in reversed(self.changes):
            if change.version <= version:
                break
            if (
                change.version <= self._visible()
                and change.kind == place.kind
                and _fits(change.item, place.namespace, name)
            ):
                changes.append(change)
        return changes[::-1]

    def _list(self, place: Path, query: Mapping[str, str]) -> Object:
        selects = build_object_filter("", {"labelSelector": query.get("labelSelector", "")})
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = self.objects[place.kind]
        if self.behind is not None:
            items = self._as_of(place.kind, self.behind)
        return {
            "metadata": {"resourceVersion": str(self._visible())},
            "items": [
                item for item in items.values() if _fits(item, place.namespace, name) and selects(item)
            ],
        }

    def _as_of(self, kind: str, version: int) -> dict[Key, Object]:
        """Return the objects at a version, by undoing the later changes."""
        items = dict(self.objects[kind])
        for change in reversed(self.changes):
            if change.version <= version:
                break
            if change.kind != kind:
                continue
            if change.before is None:
                items.pop(change.key, None)
            else:
                items[change.key] = change.before
        return items

    def _create(self, place: Path, body: Object) -> Object:
        key = (place.namespace, body["metadata"]["name"])
        if key in self.objects[place.kind]:
            raise Refused(409, f"{place.kind} {key[1]} exists", "AlreadyExists")
        return self.put(place.kind, {**body, "metadata": {**body["metadata"], "namespace": place.namespace}})

    def _write(self, place: Path, before: Object, after: Object) -> Object:
        key = (place.namespace, place.name)
        if after == before:
            return before
        metadata = after["metadata"]
        is_over = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        return self._store(place.kind, key, after, "DELETED" if is_over else "MODIFIED")

    def _store(self, kind: str, key: Key, item: Object, type_: str) -> Object:
        self.version += 1
        before = self.objects[kind].get(key)
        kept = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        if type_ == "DELETED":
            del self.objects[kind][key]
        else:
            self.objects[kind][key] = kept
        change = Change(self.version, kind, key, type_, kept, before)
        self.changes.append(change)
        self.changed(change)
        for watch in self._watches:
            if watch.place.kind == kind:
                self.scheduler.clock.run_after(self.lag_ms, partial(self._wake, watch))
        return kept

    def _wake(self, watch: _Watch) -> None:
        while watch.waiters:
            self.scheduler.wake(watch.waiters.popleft())


class _Watch:
    """An open watch."""

    __slots__ = ("is_broken", "place", "waiters")

    def __init__(self, place: Path) -> None:
        self.place = place
        self.waiters: deque[Waiter] = deque()
        self.is_broken = False


def _key(item: Object) -> Key:
    return (item["metadata"].get("namespace", ""), item["metadata"]["name"])


def _fits(item: Object, namespace: str, name: str) -> bool:
    metadata = item["metadata"]
    return (not namespace or metadata.get("namespace") == namespace) and (
        not name or metadata["name"] == name
    )
