"""What mirrors write into the cluster: each write by itself, and counted.

A Service is created, never taken: where one of the name stands, the API refuses. All else is changed or
deleted only as it was read, by its ``resourceVersion``. So nothing of somebody else's is overwritten, however
old a copy is.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mirror_slices import SlicePlan
from eurekube_provider.core.objects import MIRROR_LABEL
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    MERGE_PATCH,
    MIRRORS,
    SERVICES,
    KubeAccess,
)
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.kube.reflector import ReflectorGroup
from eurekube_provider.operator.index import Object, key_of
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects

MIRROR_FINALIZER = "eurekube.io/mirror"
"""Keeps a deleted mirror until its Services and EndpointSlices are gone."""


_SIGNS = {"create": "+", "update": "~", "patch": "~", "delete": "-"}
_KINDS = {"services": "Service", "endpointslices": "EndpointSlice"}


class MirrorWriter:
    """Writes, and lets the local copies know at once; any number of threads may share it.

    :param is_dry: nothing is sent, and the local copies stay as they are.
    """

    def __init__(self, access: KubeAccess, objects: MirrorObjects, *, is_dry: bool = False) -> None:
        self._access, self._objects, self._is_dry = access, objects, is_dry
        self._lock = threading.Lock()
        self._sent: dict[MirrorKey, list[str]] = defaultdict(list)
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many writes were sent, by resource (``services``, ``endpointslices``) and verb."""

    def sent(self, key: MirrorKey) -> list[str]:
        """What was written for a mirror since this was asked last, such as ``+ Service review``.

        In a dry run, what would be.
        """
        with self._lock:
            return self._sent.pop(key, [])

    def create_service(self, body: dict[str, Any]) -> Object:
        """Create a Service.

        :raises KubernetesError: the API refused; ``reason`` is AlreadyExists where one has the name.
        """
        answer = self._send("services", "create", SERVICES.path(body["metadata"]["namespace"]), body, body)
        self._wrote(self._objects.services, answer)
        return answer

    def patch_service(self, service: Object, patch: dict[str, Any]) -> Object:
        """Change what ``patch`` names, of the Service as it was read.

        :raises KubernetesError: among others 409 where it was changed since: it may be a person's by now, or
            another one of its name.
        """
        path, metadata = SERVICES.path(*key_of(service)), service["metadata"]
        read = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        named = {**patch, "metadata": {**patch.get("metadata", {}), **read}}
        answer = self._send("services", "patch", path, named, service)
        self._wrote(self._objects.services, answer)
        return answer

    def delete_service(self, service: Object) -> None:
        """Delete a Service that is ours, if it still is as it was read."""
        self._delete("services", SERVICES.path(*key_of(service)), service, self._objects.services)

    def carry_out(self, plan: SlicePlan) -> None:
        """Write the slices of one Service: new ones first, what goes last."""
        for body in plan.creations:
            path = ENDPOINT_SLICES.path(body["metadata"]["namespace"])
            self._wrote(self._objects.slices, self._send("endpointslices", "create", path, body, body))
        for body in plan.updates:
            path = ENDPOINT_SLICES.path(*key_of(body))
            self._wrote(self._objects.slices, self._send("endpointslices", "update", path, body, body))
        for item in plan.deletions:
            self.delete_slice(item)

    def delete_slice(self, item: Mapping[str, Any]) -> None:
        """Delete a slice of ours, if it still is as it was read."""
        self._delete("endpointslices", ENDPOINT_SLICES.path(*key_of(item)), dict(item), self._objects.slices)

    def set_finalizer(self, mirror: Object, *, present: bool) -> bool:
        """Add or remove ours beside those of others; see :func:`set_finalizer`."""
        return set_finalizer(self._access, MIRRORS, mirror, MIRROR_FINALIZER, present=present)

    def write_status(self, mirror: Object, status: dict[str, Any]) -> Object:
        """Write a mirror's status."""
        path = MIRRORS.path(*key_of(mirror), "status")
        return self._access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    def _delete(self, resource: str, path: str, item: Object, group: ReflectorGroup) -> None:
        metadata = item["metadata"]
        body = {
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "propagationPolicy": "Background",
        }
        self._note(resource, "delete", item)
        if self._is_dry:
            return
        try:
            self._access.request("DELETE", path, body=body)
        except KubernetesError as error:
            if error.status_code != 404:
                raise
        self._objects.removed(group, item)

    def _send(self, resource: str, verb: str, path: str, body: dict[str, Any], item: Object) -> Object:
        """Send a write.

        :param item: what is written to, as far as it is known.
        """
        self._note(resource, verb, item)
        if self._is_dry:
            return {**item, "metadata": {"uid": "", "resourceVersion": "", **item["metadata"]}}
        method = {"create": "POST", "update": "PUT", "patch": "PATCH"}[verb]
        content_type = MERGE_PATCH if verb == "patch" else "application/json"
        return self._access.request(method, path, body=body, content_type=content_type)

    def _wrote(self, group: ReflectorGroup, item: Object) -> None:
        if not self._is_dry:
            self._objects.wrote(group, item)

    def _note(self, resource: str, verb: str, item: Mapping[str, Any]) -> None:
        namespace, name = key_of(item)
        mirror = (item["metadata"].get("labels") or {}).get(MIRROR_LABEL, "")
        with self._lock:
            self.counts[resource, verb] += 1
            if mirror:
                self._sent[namespace, mirror].append(f"{_SIGNS[verb]} {_KINDS[resource]} {name}")
