"""Kubernetes objects without a state: written by server-side apply, and found again by a label."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from enum import Enum

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.objects import STACK_LABEL, conditions_of, is_being_deleted
from eurekube_provider.kube.access import APPLY_PATCH_TYPE, ApiResource, KubeAccess
from eurekube_provider.stateless.secret_masks import KubernetesObject

FIELD_MANAGER = "eurekube"

_CRD_WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.2
_TOO_MANY_REQUESTS_STATUS_CODE = 429

_SERVER_SET_METADATA_KEYS = ("managedFields", "resourceVersion", "generation")


class ApplyEffect(Enum):
    """The effect of an apply, done or planned; its value is the sign before the object in a report."""

    CREATED = "+"
    CHANGED = "~"
    UNCHANGED = " "
    NOT_OWNED = "!"
    """A namespace that another owner made, which is neither written nor removed with the stack."""


class ClusterObjects:
    """Reads, writes and deletes objects of one cluster, by the kind, namespace and name in their YAML.

    :param busy_seconds: the seconds for which a read is repeated while the API server is too busy.
    """

    def __init__(self, access: KubeAccess, busy_seconds: float = 30.0) -> None:
        self._access = access
        self._busy_seconds = busy_seconds
        self._kinds: dict[str, dict[str, tuple[ApiResource, bool]]] = {}

    def apply(self, item: KubernetesObject) -> ApplyEffect:
        """Write ``item`` by server-side apply, taking over all its fields.

        :raises KubernetesError: the API refused the object, or is about to delete it.
        """
        path = self._object_path(item, patience_seconds=_CRD_WAIT_SECONDS)
        before = self._read_or_none(path)
        if _is_foreign_namespace(before, item):
            return ApplyEffect.NOT_OWNED
        _require_no_deletion(before, item)
        after = self._patch(path, item, {})
        if item["kind"] == "CustomResourceDefinition":
            self._wait_until_established(path, item)
        return _effect(before, after)

    def preview(self, item: KubernetesObject) -> ApplyEffect:
        """Return the effect that :meth:`apply` would have, by the server's answer to a dry run."""
        try:
            path = self._object_path(item)
        except KubernetesError as error:
            if error.status_code == 404:  # its CRD is yet to come
                return ApplyEffect.CREATED
            raise
        before = self._read_or_none(path)
        if before is None:
            return ApplyEffect.CREATED
        if _is_foreign_namespace(before, item):
            return ApplyEffect.NOT_OWNED
        _require_no_deletion(before, item)
        return _effect(before, self._patch(path, item, {"dryRun": "All"}))

    def list_objects_of_stack(self, label: str, kinds: Iterable[tuple[str, str]]) -> list[KubernetesObject]:
        """Return the objects that were applied with the stack's label, without copies that others made.

        :param kinds: pairs of apiVersion and kind; a kind that the cluster does not know has no objects.
        """
        found: list[KubernetesObject] = []
        for api_version, kind in kinds:
            known = self._resources_by_kind(api_version).get(kind)
            if known is None:
                continue
            listed = self._read(known[0].path(), {"labelSelector": f"{STACK_LABEL}={label}"})
            items = filter(_was_applied, listed["items"])
            found += [{**item, "apiVersion": api_version, "kind": kind} for item in items]
        return found

    def delete(self, item: KubernetesObject) -> None:
        """Begin to delete an object; a missing object is no error."""
        try:
            self._access.request("DELETE", self._object_path(item), body={"propagationPolicy": "Background"})
        except KubernetesError as error:
            if error.status_code != 404:
                raise

    def is_gone(self, item: KubernetesObject) -> bool:
        """Return whether an object does not exist any more."""
        return self._read_or_none(self._object_path(item)) is None

    def _read_or_none(self, path: str) -> KubernetesObject | None:
        try:
            return self._read(path)
        except KubernetesError as error:
            if error.status_code == 404:
                return None
            raise

    def _read(self, path: str, query: Mapping[str, str] | None = None) -> KubernetesObject:
        """Read from the API; repeat while the server is too busy, as for a kind whose CRD is new."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                return self._access.get(path, query)
            except KubernetesError as error:
                if error.status_code != _TOO_MANY_REQUESTS_STATUS_CODE or time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _patch(self, path: str, item: KubernetesObject, query: dict[str, str]) -> KubernetesObject:
        query = {"fieldManager": FIELD_MANAGER, "force": "true", **query}
        return self._access.request("PATCH", path, query, item, APPLY_PATCH_TYPE)

    def _object_path(self, item: KubernetesObject, patience_seconds: float = 0.0) -> str:
        """Return an object's path in the API; wait for a kind whose CRD is new and not served yet."""
        api_version, kind = item["apiVersion"], item["kind"]
        deadline = time.monotonic() + patience_seconds
        while (known := self._resources_by_kind(api_version).get(kind)) is None:
            if time.monotonic() >= deadline:
                raise KubernetesError(
                    f"the cluster knows no {kind} of {api_version}: its CRD is missing", status_code=404
                )
            time.sleep(_POLL_SECONDS)
        resource, is_namespaced = known
        namespace = item["metadata"].get("namespace", "default") if is_namespaced else None
        return resource.path(namespace, item["metadata"]["name"])

    def _resources_by_kind(self, api_version: str) -> dict[str, tuple[ApiResource, bool]]:
        """Return each kind's resource, True if namespaced; empty for a version that is not served."""
        if api_version in self._kinds:
            return self._kinds[api_version]
        group, _, version = api_version.rpartition("/")
        answer = self._read_or_none(f"/apis/{api_version}" if group else f"/api/{version}")
        if answer is None:
            return {}
        kinds = {
            str(entry["kind"]): (ApiResource(group, version, entry["name"]), bool(entry["namespaced"]))
            for entry in answer["resources"]
            if "/" not in entry["name"]
        }
        self._kinds[api_version] = kinds
        return kinds

    def _wait_until_established(self, path: str, item: KubernetesObject) -> None:
        deadline = time.monotonic() + _CRD_WAIT_SECONDS
        while conditions_of(self._read(path)).get("Established", {}).get("status") != "True":
            if time.monotonic() >= deadline:
                raise KubernetesError(
                    f"{describe_object(item)} is not established after {_CRD_WAIT_SECONDS:.0f} s; kubectl "
                    "describe tells why"
                )
            time.sleep(_POLL_SECONDS)


def describe_object(item: KubernetesObject) -> str:
    """Return kind and name for a person, e.g. ``Deployment eurekube-system/eurekube-operator``."""
    metadata = item["metadata"]
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{item['kind']} {namespace}{metadata['name']}"


def object_identity(item: KubernetesObject) -> tuple[str, str, str]:
    """Return kind, namespace and name of an object, which are the same in every API version."""
    metadata = item["metadata"]
    return str(item["kind"]), metadata.get("namespace", ""), metadata["name"]


def _was_applied(item: KubernetesObject) -> bool:
    """Return whether an object with a stack's label is the stack's: controllers copy objects with labels."""
    managers = item["metadata"].get("managedFields")  # which each API server has, unless a person took them
    return not managers or any(one.get("manager") == FIELD_MANAGER for one in managers)


def _is_foreign_namespace(before: KubernetesObject | None, item: KubernetesObject) -> bool:
    """Return whether ``before`` is an existing namespace without the stack's label, which ``item`` has."""
    if before is None or item["kind"] != "Namespace":
        return False
    labels = [(one["metadata"].get("labels") or {}).get(STACK_LABEL) for one in (before, item)]
    return labels[0] != labels[1]


def _require_no_deletion(before: KubernetesObject | None, item: KubernetesObject) -> None:
    """Raise an error for an object that is being deleted: the API accepts a change, and the object goes."""
    if before is not None and is_being_deleted(before):
        waiting = ", ".join(before["metadata"].get("finalizers") or ())
        raise KubernetesError(
            f"{describe_object(item)} is being deleted{f', and waits for {waiting}' if waiting else ''}:"
            " whatever is applied to it would go with it; run the same command once it is gone"
        )


def _effect(before: KubernetesObject | None, after: KubernetesObject) -> ApplyEffect:
    if before is None:
        return ApplyEffect.CREATED
    # Not by its version: the API server counts a default that it stores late.
    is_same = _without_server_set_metadata(before) == _without_server_set_metadata(after)
    return ApplyEffect.UNCHANGED if is_same else ApplyEffect.CHANGED


def _without_server_set_metadata(item: KubernetesObject) -> KubernetesObject:
    metadata = {key: value for key, value in item["metadata"].items() if key not in _SERVER_SET_METADATA_KEYS}
    return {**item, "metadata": metadata}
