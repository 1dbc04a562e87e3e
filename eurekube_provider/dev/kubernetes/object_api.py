"""Requests for objects, answered as the Kubernetes API does: read, write, apply, delete and watch."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from eurekube_provider.core.objects import key_of
from eurekube_provider.dev.kubernetes.crd_schema import prune_and_set_defaults, schema_violations
from eurekube_provider.dev.kubernetes.object_store import (
    ApiRefusal,
    ObjectStore,
    build_object_filter,
)
from eurekube_provider.dev.kubernetes.patches import ManagedFields, apply_merge_patch, apply_server_side
from eurekube_provider.dev.kubernetes.served_kinds import (
    CRDS_STORAGE_KEY,
    Object,
    ServedKind,
    built_in_kinds,
    custom_kinds,
    with_initial_status,
)
from eurekube_provider.runtime.clock import format_utc_time

_MERGE_PATCH_TYPE, _APPLY_PATCH_TYPE = "application/merge-patch+json", "application/apply-patch+yaml"
_NAMESPACES_PLURAL, _DELETION_TIME_FIELD = "namespaces", "deletionTimestamp"
_TOKEN_LIFE_SECONDS = 3600.0
_SERVER_METADATA_FIELDS = frozenset(
    f"name namespace uid creationTimestamp generation resourceVersion managedFields {_DELETION_TIME_FIELD}"
    " deletionGracePeriodSeconds".split()
)
"""Metadata fields that only the API server sets."""

_NAME_PATTERN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_PATH_PATTERN = re.compile(
    r"/apis?/(?P<version>v1|[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+)(?=/(?!status)))?"
    r"/(?P<plural>[^/]+)(/(?P<name>[^/]+)(/(?P<subresource>[^/]+))?)?"
)


class ApiRequest(NamedTuple):
    """One request to the API, without its transport."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None
    content_type: str = ""


class _RequestTarget(NamedTuple):
    """The kind, namespace, name and subresource that a request's path names."""

    kind: ServedKind
    namespace: str
    name: str
    subresource: str


class ObjectApi:
    """The Kubernetes API for all kinds of a store. Any token gives all rights."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kinds: dict[tuple[str, str], ServedKind] = {}
        self._replace_served_kinds("", built_in_kinds())
        self._managed: dict[str, ManagedFields] = {}
        self.tokens = {secrets.token_urlsafe(24)}
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.answer(ApiRequest("POST", "/api/v1/namespaces", {}, {"metadata": {"name": name}}))

    def answer(self, request: ApiRequest) -> tuple[int, Object]:
        """Answer one request, except a watch, with HTTP status and object, or raise ApiRefusal."""
        with self._store.changed:
            if request.path.endswith("/selfsubjectaccessreviews"):
                return 201, {**request.body, "status": {"allowed": True}}
            if resources := self._list_resources(request.path):
                return 200, {"kind": "APIResourceList", "apiVersion": "v1", "resources": resources}
            target = self._parse_target(request.path)
            kind, held = target.kind, self._store.get(target.kind.storage_key, target[1:3])
            is_applied = request.content_type == _APPLY_PATCH_TYPE and not target.subresource
            if target.name and held is None and not is_applied:
                raise ApiRefusal(404, "NotFound", f'{kind.storage_key} "{target.name}" not found')
            match request.method, bool(target.name), target.subresource:
                case "GET", True, _:
                    return 200, {**(held or {}), "apiVersion": kind.api_version, "kind": kind.kind}
                case "GET", False, _:
                    return 200, self._list(target, request.query)
                case "POST", False, _:
                    return 201, self._create(target, request)
                case "POST", True, "token":
                    self.tokens.add(token := secrets.token_urlsafe(24))
                    status = {
                        "token": token,
                        "expirationTimestamp": format_utc_time(time.time() + _TOKEN_LIFE_SECONDS),
                    }
                    return 201, {**request.body, "status": status}
                case "DELETE", True, "":
                    return 200, self._delete(target, held or {}, request)
                case "PUT" | "PATCH", True, _:
                    return (200 if held else 201), self._complete_and_store(target, held, request)
        raise ApiRefusal(405, "MethodNotAllowed", f"{request.method} is not allowed on {request.path}")

    def watch(self, request: ApiRequest) -> Iterator[tuple[str, Object]]:
        """Return the types and objects of a watch's events; raise ApiRefusal at once, or at the end."""
        target, query = self._parse_target(request.path), request.query
        since, seconds = (int(query.get(key) or 0) for key in ("resourceVersion", "timeoutSeconds"))
        selects, storage = build_object_filter(target.namespace, query), target.kind.storage_key
        about = {"apiVersion": target.kind.api_version, "kind": target.kind.kind}
        events = self._store.watch(storage, since, selects, seconds or 1800)
        has_bookmarks = query.get("allowWatchBookmarks") == "true"
        return ((type_, {**one, **about}) for type_, one in events if has_bookmarks or type_ != "BOOKMARK")

    def _list_resources(self, path: str) -> list[Object]:
        return [
            {"name": one.plural, "kind": one.kind, "namespaced": "cluster" not in one.features}
            for one in self._kinds.values()
            if path == f"/{'apis' if '/' in one.api_version else 'api'}/{one.api_version}"
        ]

    def _parse_target(self, path: str) -> _RequestTarget:
        found = _PATH_PATTERN.fullmatch(path)
        kind = self._kinds.get((found["version"], found["plural"])) if found else None
        if not found or not kind or found["subresource"] not in {None, *kind.features & {"status", "token"}}:
            raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")
        return _RequestTarget(kind, *(found[part] or "" for part in ("namespace", "name", "subresource")))

    def _list(self, target: _RequestTarget, query: Mapping[str, str]) -> Object:
        kind, selects = target.kind, build_object_filter(target.namespace, query)
        items = [one for _, one in self._store.list_objects(kind.storage_key) if selects(one)]
        if kind.schema is None:  # only custom objects say in a list what they are
            items = [{key: one[key] for key in one if key not in ("apiVersion", "kind")} for one in items]
        about = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        return {**about, "metadata": {"resourceVersion": str(self._store.version)}, "items": items}

    def _create(self, target: _RequestTarget, request: ApiRequest) -> Object:
        target = target._replace(name=(request.body.get("metadata") or {}).get("name", ""))
        if self._store.get(target.kind.storage_key, target[1:3]) is not None:
            raise ApiRefusal(
                409, "AlreadyExists", f'{target.kind.storage_key} "{target.name}" already exists'
            )
        return self._complete_and_store(target, None, request)

    def _complete_and_store(self, target: _RequestTarget, held: Object | None, request: ApiRequest) -> Object:
        """Apply a write request to an object: complete it, check it, and store it if it has changed.

        :param held: the stored object; None for a new one.
        :returns: the object as it is then, or, for a dry run, as it would be.
        :raises ApiRefusal: the request is refused.
        """
        storage, live = target.kind.storage_key, held or self._create_bare_object(target)
        body = (
            apply_merge_patch(live, request.body)
            if request.content_type == _MERGE_PATCH_TYPE
            else request.body
        )
        body = {**body, "metadata": body.get("metadata") or {}}
        if held is not None:
            _refuse_stale_write(target, held, body["metadata"])
        managed = self._managed.get(live["metadata"]["uid"], {})
        if request.content_type == _APPLY_PATCH_TYPE:
            body, managed = apply_server_side(live, body, request.query.get("fieldManager", ""), managed)
        elif request.method == "PATCH" and request.content_type != _MERGE_PATCH_TYPE:
            raise ApiRefusal(
                415,
                "UnsupportedMediaType",
                f"the media type must be {_MERGE_PATCH_TYPE} or {_APPLY_PATCH_TYPE}",
            )
        item = _complete_object(target, live, body)
        if "dryRun" in request.query:
            return item
        self._managed[live["metadata"]["uid"]] = managed
        is_over = (
            _DELETION_TIME_FIELD in item["metadata"]
            and self._remove_unless_kept_by_finalizers(storage, item) is None
        )
        if is_over or item == held:
            return item
        stored = self._store.put(storage, item)
        if storage == CRDS_STORAGE_KEY:
            self._replace_served_kinds(target.name, custom_kinds(stored))
        return stored

    def _create_bare_object(self, target: _RequestTarget) -> Object:
        """Return a new object with the API server's metadata, or refuse its name or namespace."""
        home = self._store.get(_NAMESPACES_PLURAL, ("", target.namespace))
        if target.namespace and home is None:
            raise ApiRefusal(404, "NotFound", f'namespaces "{target.namespace}" not found')
        if home is not None and _DELETION_TIME_FIELD in home["metadata"]:
            raise ApiRefusal(403, "Forbidden", f"the namespace {target.namespace} is being terminated")
        if not _NAME_PATTERN.fullmatch(target.name) and not target.kind.api_version.startswith("rbac."):
            raise ApiRefusal(422, "Invalid", f"metadata.name: Invalid value: {target.name!r}")
        metadata: Object = {
            "name": target.name,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": format_utc_time(time.time()),
        }
        metadata |= {"namespace": target.namespace} if target.namespace else {}
        return {"metadata": metadata | ({"generation": 0} if "generation" in target.kind.features else {})}

    def _replace_served_kinds(self, definition: str, kinds: Iterable[ServedKind]) -> None:
        """Serve the kinds of a CustomResourceDefinition from now on, in place of its earlier ones."""
        others = {key: one for key, one in self._kinds.items() if one.storage_key != definition}
        self._kinds = others | {(one.api_version, one.plural): one for one in kinds}

    def _delete(self, target: _RequestTarget, held: Object, request: ApiRequest) -> Object:
        _refuse_stale_write(target, held, (request.body or {}).get("preconditions") or {})
        left = (
            None
            if "dryRun" in request.query
            else self._remove_unless_kept_by_finalizers(target.kind.storage_key, held)
        )
        return left or {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _remove_unless_kept_by_finalizers(self, storage: str, item: Object) -> Object | None:
        """Delete an object, a namespace with its contents; return it where finalizers keep it, else None."""
        metadata, (namespace, name) = item["metadata"], key_of(item)
        holds = self._store.list_objects("", name) if storage == _NAMESPACES_PLURAL else []
        if _DELETION_TIME_FIELD not in metadata and (metadata.get("finalizers") or holds):
            times = {_DELETION_TIME_FIELD: format_utc_time(time.time()), "deletionGracePeriodSeconds": 0}
            times |= {"generation": metadata["generation"] + 1} if "generation" in metadata else {}
            phase = {"status": {"phase": "Terminating"}} if storage == _NAMESPACES_PLURAL else {}
            item = self._store.put(storage, {**item, **phase, "metadata": {**metadata, **times}})
            for place, one in holds:
                self._remove_unless_kept_by_finalizers(place, one)
        held = self._store.get(storage, (namespace, name))
        if held is None or metadata.get("finalizers") or (holds and self._store.list_objects("", name)):
            return held
        self._store.remove(storage, item)
        self._managed.pop(metadata["uid"], None)
        if storage == CRDS_STORAGE_KEY:
            self._replace_served_kinds(name, ())
            for place, one in self._store.list_objects(name):
                self._store.remove(place, one)
        home = self._store.get(_NAMESPACES_PLURAL, ("", namespace))
        if home is not None and _DELETION_TIME_FIELD in home["metadata"]:
            self._remove_unless_kept_by_finalizers(_NAMESPACES_PLURAL, home)
        return None


def _complete_object(target: _RequestTarget, live: Object, body: Object) -> Object:
    kind, known, given = target.kind, live["metadata"], body["metadata"]
    if target.subresource:
        body, given = {**live, "status": body.get("status")}, known
    elif "status" in kind.features:
        body = {**body, "status": live.get("status")}
    item = {key: one for key, one in body.items() if key != "metadata" and one is not None}
    if kind.schema is not None:
        item = prune_and_set_defaults(item, kind.schema)
    metadata = {key: one for key, one in given.items() if key not in _SERVER_METADATA_FIELDS}
    metadata |= {key: known[key] for key in known if key in _SERVER_METADATA_FIELDS}
    item = with_initial_status(
        {**item, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    )
    wrong = list(schema_violations(item, kind.schema or {}))
    if _DELETION_TIME_FIELD in known and {*given.get("finalizers", ())} - {*known.get("finalizers", ())}:
        wrong.append("metadata.finalizers: Forbidden: the object is being deleted, and gets no new ones")
    if wrong:
        raise ApiRefusal(422, "Invalid", f'{kind.kind} "{target.name}" is invalid: {", ".join(wrong)}')
    counted = {*item, *live} - {"apiVersion", "kind", "metadata", "status"}
    if "generation" in metadata and any(item.get(key) != live.get(key) for key in counted):
        metadata["generation"] += 1
    return item


def _refuse_stale_write(target: _RequestTarget, held: Object, wanted: Mapping[str, Any]) -> None:
    for key in ("uid", "resourceVersion"):
        if wanted.get(key) not in (None, "", held["metadata"][key]):
            why = f"the object has been modified: its {key} is {held['metadata'][key]}"
            raise ApiRefusal(409, "Conflict", f'{target.kind.storage_key} "{target.name}": {why}')
