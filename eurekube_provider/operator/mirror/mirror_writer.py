"""The writes of mirrors to the Kubernetes API, counted by kind.

A Service is created, never taken over: if one of that name exists, the API refuses. Every other object is
changed or deleted only in the version that was read, by its ``resourceVersion``. So nothing of another owner
is overwritten, however old the local copy is.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mirror_slices import SlicePlan, endpoints_in_slices
from eurekube_provider.core.objects import MIRROR_LABEL, key_of
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    MERGE_PATCH_TYPE,
    MIRRORS,
    SERVICES,
    ApiResource,
    KubeAccess,
    is_api_unavailable,
    list_objects_by_name,
)
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.kube.reflector import ReflectorGroup
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects

_log = logging.getLogger(__name__)

MIRROR_FINALIZER = "eurekube.io/mirror"
"""Finalizer that keeps a deleted mirror until its Services and EndpointSlices are gone."""

SINGLE_OBJECT_REFUSAL_CODES = frozenset({400, 403, 404, 409, 413, 422})
"""HTTP statuses of refusals that may concern a single object, as by a quota, a webhook or an old copy."""

_VERB_SIGNS = {"create": "+", "update": "~", "patch": "~", "delete": "-"}
_RESOURCE_KINDS = {"services": "Service", "endpointslices": "EndpointSlice"}


class MirrorWriter:
    """The writer of mirrors, which updates the local copies at once; any number of threads may share it.

    :param is_dry: nothing is sent, and the local copies stay as they are.
    """

    def __init__(self, access: KubeAccess, objects: MirrorObjects, *, is_dry: bool = False) -> None:
        self._access, self._objects, self.is_dry = access, objects, is_dry
        self._lock = threading.Lock()
        self._sent: dict[MirrorKey, list[str]] = defaultdict(list)
        self._taken: set[MirrorKey] = set()
        """Names of slices that the API server refused as existing, though the local copy has no such
        slice.
        """
        self._unanswered_deletions: dict[str, tuple[ApiResource, Object, ReflectorGroup]] = {}
        """Deletions without an answer, by UID: the local copy may still show what is gone."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Number of writes sent, by resource (``services``, ``endpointslices``) and verb."""

    def pop_write_descriptions(self, key: MirrorKey) -> list[str]:
        """Return the writes for a mirror since the last call, such as ``+ Service review``, and forget them.

        In a dry run, return the planned writes.
        """
        with self._lock:
            return self._sent.pop(key, [])

    def taken_slice_names(self, namespace: str) -> list[str]:
        """Return the slice names of a namespace that others have taken, as the API server's refusals
        showed.
        """
        with self._lock:
            return [name for place, name in self._taken if place == namespace]

    def forget_freed_slice_names(self, namespace: str) -> None:
        """Forget taken slice names that are free again, or that the local copy shows as a mirror's by now.

        The operator has no right to get a single slice, so it lists each one by its name.
        """
        for name in self.taken_slice_names(namespace):
            is_ours = self._objects.slices.get(namespace, name) is not None
            if is_ours or not list_objects_by_name(self._access, ENDPOINT_SLICES, name, namespace):
                with self._lock:
                    self._taken.discard((namespace, name))

    def settle_unanswered_deletions(self, namespace: str) -> None:
        """Have the local copies lack what deletions without an answer removed, since a watch may be late.

        Else the Service that took the place of a deleted one would be deleted for it.

        :raises KubernetesError: the API server does not say what stands.
        """
        with self._lock:
            unanswered = list(self._unanswered_deletions.items())
        for uid, (resource, item, group) in unanswered:
            if key_of(item)[0] != namespace:
                continue
            there = list_objects_by_name(self._access, resource, key_of(item)[1], namespace)
            if all(one["metadata"].get("uid") != uid for one in there):
                self._objects.remove_deleted(group, item)
            with self._lock:
                self._unanswered_deletions.pop(uid, None)

    def create_service(self, body: dict[str, Any]) -> Object:
        """Create a Service.

        :raises KubernetesError: the API refused; ``reason`` is AlreadyExists where one has the name.
        """
        answer = self._send("services", "create", SERVICES.path(body["metadata"]["namespace"]), body, body)
        self._put_written(self._objects.services, answer)
        return answer

    def require_creatable_service(self, body: Object) -> None:
        """Have the API server try to create such a Service, under a name that is free, without storing it.

        :raises KubernetesError: it would refuse, as by a webhook or a quota.
        """
        if not self.is_dry:
            metadata = {**body["metadata"], "name": f"{body['metadata']['name'][:58]}-next"}
            path = SERVICES.path(metadata["namespace"])
            try:
                self._access.request("POST", path, {"dryRun": "All"}, {**body, "metadata": metadata})
            except KubernetesError as error:
                if error.reason != "AlreadyExists":
                    raise

    def patch_service(self, service: Object, patch: dict[str, Any]) -> Object:
        """Patch a Service if it still is as it was read.

        :raises KubernetesError: among others 409 where the Service was changed since: it may be a person's by
            now, or another one of its name.
        """
        answer = self._patch_if_unchanged(service, patch)
        self._put_written(self._objects.services, answer)
        return answer

    def _patch_if_unchanged(self, service: Object, patch: dict[str, Any]) -> Object:
        path, metadata = SERVICES.path(*key_of(service)), service["metadata"]
        read = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        named = {**patch, "metadata": {**patch.get("metadata", {}), **read}}
        return self._send("services", "patch", path, named, service)

    def remove_owner_reference(self, service: Object, mirror_uid: str) -> None:
        """Remove the owner reference to a mirror from a Service that a person owns now.

        Otherwise Kubernetes would delete the Service with the mirror.
        """
        references = [
            one for one in service["metadata"].get("ownerReferences") or () if one.get("uid") != mirror_uid
        ]
        self._patch_if_unchanged(service, {"metadata": {"ownerReferences": references}})
        if not self.is_dry:
            _log.info(
                "removed a mirror's owner reference from a Service that a person owns now, so that it stays",
                extra={"service": "/".join(key_of(service))},
            )

    def list_services_taken_over(self, mirror: Object) -> list[Object]:
        """List the Services that have an owner reference to a mirror that does not serve them any longer.

        The API server is asked, since the local copy may be old: once the mirror is gone, nothing but the
        removal of the reference keeps Kubernetes from deleting them.
        """
        namespace, name = key_of(mirror)
        uid = mirror["metadata"]["uid"]
        return [
            service
            for page in self._access.pages(SERVICES.path(namespace))
            for service in page["items"]
            if any(one.get("uid") == uid for one in service["metadata"].get("ownerReferences") or ())
            and (service["metadata"].get("labels") or {}).get(MIRROR_LABEL) != name
        ]

    def remove_release_annotation(self, mirror: Object, *, was_held: bool) -> None:
        """Remove the annotation by which a person released the brake, so that it does not release the next
        hold.

        :param was_held: True if it released endpoints.
        """
        message = "dry run: would release a mirror's brake on a person's request, keeping the held endpoints"
        if self.is_dry:
            if was_held:
                _log.warning(message, extra={"mirror": "/".join(key_of(mirror))})
            return
        message = "released a mirror's brake on a person's request, removing the held endpoints"
        if not was_held:
            message = "taking a mirror's release annotation off: no endpoint is held"
        _log.warning(message, extra={"mirror": "/".join(key_of(mirror))})
        body = {"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: None}}}
        try:
            self._access.request(
                "PATCH", MIRRORS.path(*key_of(mirror)), body=body, content_type=MERGE_PATCH_TYPE
            )
        except KubernetesError as error:
            extra = {"mirror": "/".join(key_of(mirror)), "error": str(error)}
            _log.warning(
                "failed to remove the annotation that releases the brake: it may release the next hold as "
                "well",
                extra=extra,
            )

    def delete_service(self, service: Object) -> None:
        """Delete a mirror's Service if it still is as it was read."""
        self._delete(SERVICES, service, self._objects.services)

    def write_slices(self, plan: SlicePlan) -> KubernetesError | None:
        """Write the slices of one Service: create first, then update, then delete.

        Where a new slice is refused, as by a quota, the others are written all the same, but for those that
        hold an instance of the refused one: it would have no place.

        :returns: the first refusal.
        """
        refusal: KubernetesError | None = None
        ids_without_place = set[str]()
        for body in plan.creations:
            path = ENDPOINT_SLICES.path(body["metadata"]["namespace"])
            try:
                answer = self._send("endpointslices", "create", path, body, body)
            except KubernetesError as error:
                if error.reason == "AlreadyExists":
                    with self._lock:
                        self._taken.add(key_of(body))
                if error.status_code not in (*SINGLE_OBJECT_REFUSAL_CODES, 500):  # of a webhook that is away
                    raise
                refusal = refusal or error
                ids_without_place |= {one.instance_id for one in endpoints_in_slices([body])}
            else:
                self._put_written(self._objects.slices, answer)

        def may_be_written(item: Mapping[str, Any]) -> bool:
            held = self._objects.slices.get(*key_of(item)) if ids_without_place else None
            return held is None or ids_without_place.isdisjoint(
                one.instance_id for one in endpoints_in_slices([held])
            )

        for body in plan.updates:
            if may_be_written(body):
                path = ENDPOINT_SLICES.path(*key_of(body))
                answer = self._send("endpointslices", "update", path, body, body)
                self._put_written(self._objects.slices, answer)
        for item in plan.deletions:
            if may_be_written(item):
                self.delete_slice(item)
        return refusal

    def delete_slice(self, item: Mapping[str, Any]) -> None:
        """Delete a mirror's slice if it still is as it was read."""
        self._delete(ENDPOINT_SLICES, dict(item), self._objects.slices)

    def set_finalizer(self, mirror: Object, *, present: bool) -> bool:
        """Add or remove the mirror's finalizer and keep those of others; see :func:`set_finalizer`."""
        return set_finalizer(self._access, MIRRORS, mirror, MIRROR_FINALIZER, present=present)

    def write_status(self, mirror: Object, status: dict[str, Any]) -> Object:
        """Write a mirror's status."""
        path = MIRRORS.path(*key_of(mirror), "status")
        return self._access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE)

    def _delete(self, resource: ApiResource, item: Object, group: ReflectorGroup) -> None:
        metadata = item["metadata"]
        body = {
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "propagationPolicy": "Background",
        }
        self._count_write(resource.plural, "delete", item)
        if self.is_dry:
            return
        try:
            self._access.request("DELETE", resource.path(*key_of(item)), body=body)
        except KubernetesError as error:
            if is_api_unavailable(error):
                with self._lock:
                    self._unanswered_deletions[metadata["uid"]] = (resource, item, group)
            if error.status_code != 404:
                raise
        self._objects.remove_deleted(group, item)

    def _send(self, resource: str, verb: str, path: str, body: dict[str, Any], item: Object) -> Object:
        """Count a write and send it; in a dry run, count it and return the object.

        :param item: the object that is written, as far as it is known.
        """
        self._count_write(resource, verb, item)
        if self.is_dry:
            return {**item, "metadata": {"uid": "", "resourceVersion": "", **item["metadata"]}}
        method = {"create": "POST", "update": "PUT", "patch": "PATCH"}[verb]
        content_type = MERGE_PATCH_TYPE if verb == "patch" else "application/json"
        return self._access.request(method, path, body=body, content_type=content_type)

    def _put_written(self, group: ReflectorGroup, item: Object) -> None:
        if not self.is_dry:
            self._objects.put_written(group, item)

    def _count_write(self, resource: str, verb: str, item: Mapping[str, Any]) -> None:
        namespace, name = key_of(item)
        mirror = (item["metadata"].get("labels") or {}).get(MIRROR_LABEL, "")
        with self._lock:
            self.counts[resource, verb] += 1
            if mirror:
                self._sent[namespace, mirror].append(
                    f"{_VERB_SIGNS[verb]} {_RESOURCE_KINDS[resource]} {name}"
                )
