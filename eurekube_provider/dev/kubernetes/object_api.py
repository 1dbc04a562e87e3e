"""Requests on objects, as the Kubernetes API answers them: read, written, applied, deleted and watched."""

from __future__ import annotations

import random
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from eurekube_provider.dev.kubernetes.built_in_defaults import filled_in, now
from eurekube_provider.dev.kubernetes.crd_schema import completed, wrong_fields
from eurekube_provider.dev.kubernetes.field_ownership import (
    ApplyConflict,
    ManagedFields,
    applied,
    merged,
    written,
)
from eurekube_provider.dev.kubernetes.object_store import ObjectStore
from eurekube_provider.dev.kubernetes.refusals import ApiRefusal, Object
from eurekube_provider.dev.kubernetes.selectors import selecting
from eurekube_provider.dev.kubernetes.served_kinds import ServedKind, built_in_kinds, custom_kinds

_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_CRDS, _TERMINATING = "customresourcedefinitions.apiextensions.k8s.io", "deletionTimestamp"
_OF_SERVER = (
    *("name", "namespace", "uid", "creationTimestamp", _TERMINATING, "deletionGracePeriodSeconds"),
    *("generation", "managedFields", "resourceVersion"),
)
"""Metadata that no writer changes."""

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_PATH = re.compile(
    r"/(api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(/namespaces/(?P<namespace>[^/]+)(?=/(?!status)))?"
    r"/(?P<plural>[^/]+)(/(?P<name>[^/]+)(/(?P<subresource>[^/]+))?)?"
)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, without its transport.

    :ivar agent: the client's name, under which it manages fields unless it gives another one.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None
    content_type: str = "application/json"
    agent: str = "unknown"


@dataclass(frozen=True, slots=True)
class _Target:
    """The objects that a path names."""

    kind: ServedKind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


class ObjectApi:
    """All kinds of a store, and what may be asked of them. Whoever has a token may do everything.

    :ivar tokens: those that were issued.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kinds = {(one.api_version, one.plural): one for one in built_in_kinds()}
        self._managed: dict[str, ManagedFields] = {}
        self.tokens = {secrets.token_urlsafe(24)}
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.answer(ApiRequest("POST", "/api/v1/namespaces", {}, {"metadata": {"name": name}}))

    def answer(self, request: ApiRequest) -> tuple[int, Object]:
        """Answer one request, but a watch, with the HTTP status and the object.

        :raises ApiRefusal: the answer is no success.
        """
        with self._store.changed:
            if request.path.endswith("/selfsubjectaccessreviews"):
                return 201, {**request.body, "status": {"allowed": True}}
            lines = [
                line
                for kind in self._kinds.values()
                if request.path == kind.group_path
                for line in kind.discovered()
            ]
            if lines:
                return 200, {"kind": "APIResourceList", "apiVersion": "v1", "resources": lines}
            target = self._target(request.path)
            match request.method, bool(target.name), target.subresource:
                case "POST", True, "token":
                    return 201, self._issue_token(target, request.body)
                case "POST", False, _:
                    return 201, self._create(target, request)
                case "GET", True, _:
                    return 200, self._held(target)
                case "GET", False, _:
                    return 200, self._list(target, request.query)
                case "PUT", True, _:
                    return 200, self._save(target, self._held(target), request.body, request)
                case "PATCH", True, _:
                    return self._patch(target, request)
                case "DELETE", True, "":
                    return 200, self._delete(target, request)
        raise ApiRefusal(
            405, "MethodNotAllowed", f"{request.method} is not allowed on the requested resource"
        )

    def watch(self, request: ApiRequest) -> Iterator[tuple[str, Object]]:
        """Return types and objects of a watch's events, of which a refusal ends them.

        :raises ApiRefusal: the watch is refused.
        """
        kind, namespace, query = self._target(request.path).kind, self._target(request.path).namespace, request.query
        since, seconds = (int(query.get(key) or 0) for key in ("resourceVersion", "timeoutSeconds"))
        events = self._store.watch(kind.storage, since, selecting(namespace, query), seconds or 1800)
        about = {"apiVersion": kind.api_version, "kind": kind.kind}
        has_bookmarks = query.get("allowWatchBookmarks") == "true"
        return ((event, {**item, **about}) for event, item in events if has_bookmarks or event != "BOOKMARK")

    # --- what is asked

    def _target(self, path: str) -> _Target:
        """Return what the path of a request names."""
        found = _PATH.fullmatch(path)
        kind = self._kinds.get((found["core"] or found["group"], found["plural"])) if found else None
        if found is not None and kind is not None:
            namespace, name, subresource = (found[key] or "" for key in ("namespace", "name", "subresource"))
            subresources = {"", *({"status"} & kind.features), *(["token"] if kind.kind == "ServiceAccount" else [])}
            if subresource in subresources and not (namespace and "cluster" in kind.features):
                return _Target(kind, namespace, name, subresource)
        raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")

    def _held(self, target: _Target) -> Object:
        found = self._store.get(target.kind.storage, target.key)
        if found is None:
            raise ApiRefusal(404, "NotFound", f'{target.kind.storage} "{target.name}" not found')
        return {**found, "apiVersion": target.kind.api_version}

    def _list(self, target: _Target, query: Mapping[str, str]) -> Object:
        kind, selects = target.kind, selecting(target.namespace, query)
        limit, token = int(query.get("limit") or 0), query.get("continue", "")
        items, metadata = self._store.page(kind.storage, selects, limit, token)
        if kind.schema is None:  # only custom objects say in a list what they are
            items = [{key: one[key] for key in one if key not in ("apiVersion", "kind")} for one in items]
        about = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        return {**about, "metadata": metadata, "items": items}

    def _issue_token(self, target: _Target, body: Object) -> Object:
        self._held(target)
        token, ends = secrets.token_urlsafe(24), datetime.now(UTC) + timedelta(hours=1)
        self.tokens.add(token)
        return {
            **body,
            "status": {"token": token, "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")},
        }

    # --- what is written

    def _create(self, target: _Target, request: ApiRequest) -> Object:
        metadata = request.body.get("metadata") or {}
        suffix = "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))  # noqa: S311 - no secret
        target = replace(target, name=metadata.get("name") or metadata.get("generateName", "") + suffix)
        if self._store.get(target.kind.storage, target.key) is not None:
            raise ApiRefusal(409, "AlreadyExists", f'{target.kind.storage} "{target.name}" already exists')
        return self._save(target, None, request.body, request)

    def _patch(self, target: _Target, request: ApiRequest) -> tuple[int, Object]:
        if request.content_type == _MERGE:
            held = self._held(target)
            return 200, self._save(target, held, merged(held, request.body), request)
        if request.content_type != _APPLY:
            raise ApiRefusal(415, "UnsupportedMediaType", f"the accepted media types are: {_MERGE}, {_APPLY}")
        if "fieldManager" not in request.query:
            raise ApiRefusal(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        held = (
            self._store.get(target.kind.storage, target.key) if not target.subresource else self._held(target)
        )
        return 200 if held else 201, self._save(target, held, request.body, request)

    def _save(self, target: _Target, held: Object | None, body: Object, request: ApiRequest) -> Object:
        """Complete and check an object, and store it unless it is as it was.

        :param held: the object as it is; None for a new one.
        :param body: all of the object, or the configuration that is applied to it.
        """
        body = {**body, "metadata": body.get("metadata") or {}}
        if held is not None:
            self._refuse_changed(target, held, body["metadata"])
        live = held or self._begun(target)
        manager, uid = request.query.get("fieldManager") or request.agent, live["metadata"]["uid"]
        managed = self._managed.get(uid, {})
        if request.content_type == _APPLY:
            try:
                is_forced = request.query.get("force") == "true"
                body, managed = applied(live, body, manager, managed, force=is_forced)
            except ApplyConflict as error:
                named = [
                    f'conflict with "{name}": .{".".join(field)}' for field, name in error.managers.items()
                ]
                message = f"Apply failed with {len(named)} conflict(s): {', '.join(named)}"
                raise ApiRefusal(409, "Conflict", message) from None
        item = self._completed(target, live, body)
        if request.content_type != _APPLY:
            managed = written(live, item, manager, managed)
        if "dryRun" in request.query:
            return item
        self._managed[uid] = managed
        if item == held:
            return item
        if _TERMINATING in item["metadata"] and self._end(target.kind.storage, item) is None:
            return item
        stored = self._store.put(target.kind.storage, item)
        if target.kind.storage == _CRDS:
            self._serve(stored)
        return stored

    def _refuse_changed(self, target: _Target, held: Object, wanted: Mapping[str, Any]) -> None:
        """Refuse what is meant for another object of that name, or for an earlier version of it."""
        for key in ("uid", "resourceVersion"):
            if wanted.get(key) not in (None, "", held["metadata"][key]):
                message = f'Operation cannot be fulfilled on {target.kind.storage} "{target.name}"'
                raise ApiRefusal(
                    409, "Conflict", f"{message}: the object has been modified: it has another {key}"
                )

    def _begun(self, target: _Target) -> Object:
        """Return what the API server itself gives to a new object.

        :raises ApiRefusal: there can be none in that namespace, or of that name.
        """
        kind, (namespace, name) = target.kind, target.key
        home = self._store.get("namespaces", ("", namespace))
        if namespace and home is None:
            raise ApiRefusal(404, "NotFound", f'namespaces "{namespace}" not found')
        if home is not None and _TERMINATING in home["metadata"]:
            message = f'{kind.storage} "{name}" is forbidden: namespace {namespace} is being terminated'
            raise ApiRefusal(403, "Forbidden", message)
        if not _NAME.fullmatch(name) and not kind.api_version.startswith("rbac."):
            raise _invalid(
                target,
                [("metadata.name", f'Invalid value: "{name}": must be a lowercase RFC 1123 subdomain')],
            )
        metadata = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
        metadata |= {"namespace": namespace} if namespace else {}
        return {"metadata": metadata | ({"generation": 0} if "generation" in kind.features else {})}

    def _completed(self, target: _Target, live: Object, body: Object) -> Object:
        """Return an object with the fields of the API server, pruned, filled with defaults, and checked."""
        kind, known = target.kind, live["metadata"]
        if target.subresource:
            item = {**live, "status": body.get("status")}
        else:
            item = {**body, "status": live.get("status")} if "status" in kind.features else body
        item = {key: one for key, one in item.items() if key != "metadata" and one is not None}
        if kind.schema is not None:
            item = completed(item, kind.schema)
        given = known if target.subresource else body["metadata"]
        metadata = {key: one for key, one in given.items() if key not in _OF_SERVER}
        metadata |= {key: known[key] for key in _OF_SERVER if key in known}
        item = filled_in({**item, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})
        wrong = list(wrong_fields(item, kind.schema or {}))
        new_finalizers = set(metadata.get("finalizers") or ()).difference(known.get("finalizers") or ())
        if _TERMINATING in known and new_finalizers:
            wrong.append(
                (
                    "metadata.finalizers",
                    "Forbidden: no new finalizers can be added if the object is being deleted",
                )
            )
        if wrong:
            raise _invalid(target, wrong)
        if "generation" in metadata and _counted(item) != _counted(live):
            metadata["generation"] += 1
        return item

    def _serve(self, crd: Object) -> None:
        """Serve what a CustomResourceDefinition says from now on."""
        others = {key: one for key, one in self._kinds.items() if one.storage != crd["metadata"]["name"]}
        self._kinds = others | {(one.api_version, one.plural): one for one in custom_kinds(crd)}

    # --- what is deleted

    def _delete(self, target: _Target, request: ApiRequest) -> Object:
        held = self._held(target)
        options = request.body or {}
        self._refuse_changed(target, held, options.get("preconditions") or {})
        if "dryRun" in request.query or (left := self._end(target.kind.storage, held)) is None:
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return left

    def _end(self, storage: str, item: Object) -> Object | None:
        """Delete an object and what it holds; returns it where finalizers keep it, None where it is gone."""
        metadata, key = item["metadata"], (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        if _TERMINATING not in metadata and (metadata.get("finalizers") or self._contents(storage, item)):
            times = {_TERMINATING: now(), "deletionGracePeriodSeconds": 0}
            times |= {"generation": metadata["generation"] + 1} if "generation" in metadata else {}
            phase = {"status": {"phase": "Terminating"}} if storage == "namespaces" else {}
            item = self._store.put(storage, {**item, **phase, "metadata": {**metadata, **times}})
            for place, one in self._contents(storage, item):
                self._end(place, one)
        held = self._store.get(storage, key)
        if held is None or item["metadata"].get("finalizers") or self._contents(storage, item):
            return held
        self._store.remove(storage, item)
        self._managed.pop(metadata["uid"], None)
        if storage == _CRDS:
            self._kinds = {key: one for key, one in self._kinds.items() if one.storage != metadata["name"]}
        for holder, name in (("namespaces", key[0]), (_CRDS, storage)):
            container = self._store.get(holder, ("", name))
            if container is not None and _TERMINATING in container["metadata"]:
                self._end(holder, container)
        return None

    def _contents(self, storage: str, item: Object) -> list[tuple[str, Object]]:
        """Return what a namespace or a CustomResourceDefinition holds; nothing for another kind."""
        name = item["metadata"]["name"]
        held_by = {"namespaces": lambda: self._store.of(None, name), _CRDS: lambda: self._store.of(name)}
        return held_by.get(storage, list)()


def _counted(item: Object) -> Object:
    return {key: one for key, one in item.items() if key not in ("apiVersion", "kind", "metadata", "status")}


def _invalid(target: _Target, wrong: Sequence[tuple[str, str]]) -> ApiRefusal:
    texts = ", ".join(f"{field}: {text}" for field, text in wrong)
    return ApiRefusal(422, "Invalid", f'{target.kind.kind} "{target.name}" is invalid: {texts}', wrong)
