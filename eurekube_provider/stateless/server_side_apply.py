"""Kubernetes objects without a state: written by server-side apply, and found again by a label."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from enum import Enum

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.objects import STACK_LABEL, conditions_of
from eurekube_provider.kube.access import APPLY_PATCH, ApiResource, KubeAccess
from eurekube_provider.stateless.secret_masks import KubernetesObject

FIELD_MANAGER = "eurekube"

_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_TOO_MANY_REQUESTS = 429

_COMPUTED = ("managedFields", "resourceVersion", "generation")


class Effect(Enum):
    """The effect of an apply, done or planned; the value is its sign in a plan."""

    CREATED = "+"
    CHANGED = "~"
    UNCHANGED = " "
    LEFT = "!"
    """A namespace that somebody else made: it is not written to, and not removed with the stack."""


class Objects:
    """The objects of one cluster, addressed by kind, namespace and name of their YAML. :param
    busy_seconds: the seconds for which a read is repeated while the API server is too busy.
    """

    def __init__(self, access: KubeAccess, busy_seconds: float = 30.0) -> None:
        self._access = access
        self._busy_seconds = busy_seconds
        self._kinds: dict[str, dict[str, tuple[ApiResource, bool]]] = {}

    def apply(self, item: KubernetesObject) -> Effect:
        """Write ``item`` by server-side apply, taking over all its fields.

        :raises KubernetesError: the API refused the object.
        """
        path = self._path(item, patience_seconds=_PATIENCE_SECONDS)
        before = self._find(path)
        if _is_foreign(before, item):
            return Effect.LEFT
        after = self._patch(path, item, {})
        if item["kind"] == "CustomResourceDefinition":
            self._wait_until_established(path, item)
        if before is None:
            return Effect.CREATED
        # Not by its version: the API server counts a default that it stores late.
        return Effect.UNCHANGED if _contents(before) == _contents(after) else Effect.CHANGED

    def preview(self, item: KubernetesObject) -> Effect:
        """Return the effect that :meth:`apply` would have, by the server's answer to a dry run."""
        try:
            path = self._path(item)
        except KubernetesError as error:
            if error.status_code == 404:  # its CRD is yet to come
                return Effect.CREATED
            raise
        before = self._find(path)
        if before is None:
            return Effect.CREATED
        if _is_foreign(before, item):
            return Effect.LEFT
        after = self._patch(path, item, {"dryRun": "All"})
        return Effect.UNCHANGED if _contents(before) == _contents(after) else Effect.CHANGED

    def of_stack(self, label: str, kinds: Iterable[tuple[str, str]]) -> list[KubernetesObject]:
        """Return the objects with the stack's label.

        :param kinds: pairs of apiVersion and kind; a kind that the cluster does not know has no objects.
        """
        found: list[KubernetesObject] = []
        for api_version, kind in kinds:
            known = self._resources(api_version).get(kind)
            if known is None:
                continue
            listed = self._read(known[0].path(), {"labelSelector": f"{STACK_LABEL}={label}"})
            found += [{**item, "apiVersion": api_version, "kind": kind} for item in listed["items"]]
        return found

    def delete(self, item: KubernetesObject) -> None:
        """Begin to delete an object; a missing object is no error."""
        try:
            self._access.request("DELETE", self._path(item), body={"propagationPolicy": "Background"})
        except KubernetesError as error:
            if error.status_code != 404:
                raise

    def is_gone(self, item: KubernetesObject) -> bool:
        """Return whether an object does not exist any more."""
        return self._find(self._path(item)) is None

    def _find(self, path: str) -> KubernetesObject | None:
        try:
            return self._read(path)
        except KubernetesError as error:
            if error.status_code == 404:
                return None
            raise

    def _read(self, path: str, query: Mapping[str, str] | None = None) -> KubernetesObject:
        """Read from the API; repeat while the server is too busy, as for a kind whose CRD is new.

        :raises KubernetesError: as :meth:`KubeAccess.get`.
        """
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                return self._access.get(path, query)
            except KubernetesError as error:
                if error.status_code != _TOO_MANY_REQUESTS or time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _patch(self, path: str, item: KubernetesObject, query: dict[str, str]) -> KubernetesObject:
        query = {"fieldManager": FIELD_MANAGER, "force": "true", **query}
        return self._access.request("PATCH", path, query, item, APPLY_PATCH)

    def _path(self, item: KubernetesObject, patience_seconds: float = 0.0) -> str:
        """Return an object's URL; wait for a kind whose CRD is new and not served yet."""
        api_version, kind = item["apiVersion"], item["kind"]
        deadline = time.monotonic() + patience_seconds
        while (known := self._resources(api_version).get(kind)) is None:
            if time.monotonic() >= deadline:
                raise KubernetesError(
                    f"the cluster knows no {kind} of {api_version}: its CRD is missing", status_code=404
                )
            time.sleep(_POLL_SECONDS)
        resource, is_namespaced = known
        namespace = item["metadata"].get("namespace", "default") if is_namespaced else None
        return resource.path(namespace, item["metadata"]["name"])

    def _resources(self, api_version: str) -> dict[str, tuple[ApiResource, bool]]:
        if api_version in self._kinds:
            return self._kinds[api_version]
        group, _, version = api_version.rpartition("/")
        answer = self._find(f"/apis/{api_version}" if group else f"/api/{version}")
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
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while conditions_of(self._read(path)).get("Established", {}).get("status") != "True":
            if time.monotonic() >= deadline:
                raise KubernetesError(
                    f"{describe(item)} is not established after {_PATIENCE_SECONDS:.0f} s;"
                    " kubectl describe tells why"
                )
            time.sleep(_POLL_SECONDS)


def describe(item: KubernetesObject) -> str:
    """Return kind and name for a person, e.g. ``Deployment eurekube-system/eurekube-operator``."""
    metadata = item["metadata"]
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{item['kind']} {namespace}{metadata['name']}"


def identity(item: KubernetesObject) -> tuple[str, str, str]:
    """Return kind, namespace and name of an object, which are the same in every API version."""
    metadata = item["metadata"]
    return str(item["kind"]), metadata.get("namespace", ""), metadata["name"]


def _is_foreign(before: KubernetesObject | None, item: KubernetesObject) -> bool:
    """Return whether an object is an existing namespace without the label of the stack that wants to make
    it.
    """
    if before is None or item["kind"] != "Namespace":
        return False
    labels = [(one["metadata"].get("labels") or {}).get(STACK_LABEL) for one in (before, item)]
    return labels[0] != labels[1]


def _contents(item: KubernetesObject) -> KubernetesObject:
    metadata = {key: value for key, value in item["metadata"].items() if key not in _COMPUTED}
    return {**item, "metadata": metadata}
