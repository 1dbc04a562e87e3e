"""Local copies of the mirrors, and of the Services and EndpointSlices that mirrors wrote."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.mirror import mirrored_application
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
    key_of,
)
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS, SERVICES, ApiResource, KubeAccess
from eurekube_provider.kube.reflector import Reflector, ReflectorGroup
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.sources import values_besides_status
from eurekube_provider.operator.watches import trim_custom_resource

MirrorKey = tuple[str, str]
"""Namespace and name of a mirror."""


class _MirrorSlices:
    """The EndpointSlices of one mirror. An index gives the same tuple until one of its slices changes.

    :ivar by_service: the slices by the name of their Service; ``by_application`` by the application that they
        show.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Object] = {}
        self.by_service: dict[str, tuple[Object, ...]] = {}
        self.by_application: dict[str, tuple[Object, ...]] = {}

    def put(self, name: str, item: Object | None) -> None:
        """Store a slice; None removes it."""
        for index, place_of in (
            (self.by_service, service_name_of_mirrors_slice),
            (self.by_application, mirrored_application),
        ):
            if (before := self.by_name.get(name)) is not None:
                place = place_of(before)
                left = tuple(one for one in index.pop(place) if one is not before)
                if left:
                    index[place] = left
            if item is not None:
                index[place_of(item)] = (*index.get(place_of(item), ()), item)
        self.by_name.pop(name, None)
        if item is not None:
            self.by_name[name] = item


class MirrorObjects:
    """Local copies of the cluster's objects; any number of threads may share them.

    :param namespaces: the namespaces that are watched; empty for all.
    :param concerned: called with the key of a mirror that must be reconciled.
    """

    def __init__(
        self, access: KubeAccess, namespaces: tuple[str, ...], concerned: Callable[[MirrorKey], None]
    ) -> None:
        self._concerned = concerned
        self._lock = threading.Lock()
        self._services: dict[MirrorKey, dict[str, Object]] = defaultdict(dict)
        self._slices: dict[MirrorKey, _MirrorSlices] = defaultdict(_MirrorSlices)

        def make_group(
            resource: ApiResource, listener: Callable[[Object | None, Object | None], None], labels: str = ""
        ) -> ReflectorGroup:
            return ReflectorGroup(
                Reflector(
                    access,
                    resource,
                    trim_custom_resource,
                    listener,
                    namespace,
                    self._enqueue_all_mirrors,
                    labels,
                )
                for namespace in namespaces or (None,)
            )

        self.mirrors = make_group(MIRRORS, self._enqueue_changed_mirror)
        self.services = make_group(SERVICES, partial(self._update, self._put_service), MIRROR_LABEL)
        is_ours = f"{SLICE_MANAGED_BY_LABEL}={MIRROR_SLICE_MANAGER}"
        self.slices = make_group(ENDPOINT_SLICES, partial(self._update, self._put_slice), is_ours)
        self._groups = (self.mirrors, self.services, self.slices)

    def start(self) -> None:
        """Start to list and watch the mirrors, their Services and their EndpointSlices."""
        for group in self._groups:
            group.start()

    def stop(self) -> None:
        """Stop reporting changes."""
        for group in self._groups:
            group.stop()

    def retry_now(self) -> None:
        """List and watch again at once where a retry is pending, since the API server answers again."""
        for group in self._groups:
            group.retry_now()

    @property
    def are_listed(self) -> bool:
        """True if all objects that may be read were listed."""
        return all(group.is_synced_or_forbidden for group in self._groups)

    def are_listed_in(self, namespace: str) -> bool:
        """Return whether all objects of a namespace were listed: the operator writes nothing there before.

        A namespace that may not be read, most likely since it was deleted, delays no other.
        """
        return all(group.find_unsynced(namespace) is None for group in self._groups)

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the reflectors' threads."""
        return [loop for group in self._groups for loop in group.liveness()]

    def mirror_keys(self) -> list[MirrorKey]:
        """Return the keys of all mirrors."""
        return [key_of(item) for item in self.mirrors.objects()]

    def services_of(self, key: MirrorKey) -> dict[str, Object]:
        """Return a mirror's Services, by name."""
        with self._lock:
            return dict(self._services.get(key, {}))

    def slices_of(self, key: MirrorKey) -> dict[str, tuple[Object, ...]]:
        """Return a mirror's EndpointSlices, by the name of their Service; while none of a Service's slices
        changes, they are the same object.
        """
        with self._lock:
            return dict(self._slices[key].by_service) if key in self._slices else {}

    def slices_by_application(self, key: MirrorKey) -> Mapping[str, Sequence[Object]]:
        """Return a mirror's EndpointSlices, by the application that they show."""
        with self._lock:
            return dict(self._slices[key].by_application) if key in self._slices else {}

    def slice_names_of(self, key: MirrorKey) -> Sequence[str]:
        """Return the names of a mirror's EndpointSlices."""
        with self._lock:
            return tuple(self._slices[key].by_name) if key in self._slices else ()

    def mirror_name_of_service(self, namespace: str, service: str) -> str:
        """Return the name of the mirror that wrote a Service; empty for a Service that no mirror wrote."""
        item = self.services.get(namespace, service)
        return _mirror_key(item)[1] if item is not None else ""

    def put_written(self, group: ReflectorGroup, item: Object) -> None:
        """Put a written object into the local copy, before the watch reports it."""
        namespace = item["metadata"]["namespace"]
        for one in group.reflectors:
            if one.namespace in (None, namespace):
                one.store_write_answer(item)

    def remove_deleted(self, group: ReflectorGroup, item: Object) -> None:
        """Remove a deleted object from the local copy, before the watch reports it."""
        for one in group.reflectors:
            if one.namespace in (None, item["metadata"]["namespace"]):
                one.remove_deleted(item)

    def _enqueue_all_mirrors(self) -> None:
        """Queue all mirrors, since one of the first lists is complete and mirrors may wait for it."""
        for key in self.mirror_keys():
            self._concerned(key)

    def _enqueue_changed_mirror(self, old: Object | None, new: Object | None) -> None:
        if old and new and values_besides_status(old) == values_besides_status(new):
            return  # its status, which is ours
        subject = new or old
        if subject is not None:
            self._concerned(key_of(subject))

    def _update(
        self, put: Callable[[MirrorKey, str, Object | None], None], old: Object | None, new: Object | None
    ) -> None:
        keys = set()
        with self._lock:
            for item, stands in ((old, False), (new, True)):
                if item is None:
                    continue
                key = _mirror_key(item)
                keys.add(key)
                put(key, item["metadata"]["name"], item if stands else None)
        for key in keys:
            self._concerned(key)

    def _put_service(self, key: MirrorKey, name: str, item: Object | None) -> None:
        services = self._services[key]
        services.pop(name, None)
        if item is not None:
            services[name] = item
        if not services:
            del self._services[key]

    def _put_slice(self, key: MirrorKey, name: str, item: Object | None) -> None:
        slices = self._slices[key]
        slices.put(name, item)
        if not slices.by_name:
            del self._slices[key]


def service_name_of_mirrors_slice(item: Object) -> str:
    """Return the name of the Service to which a mirror's slice belongs."""
    return str((item["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL, ""))


def _mirror_key(item: Object) -> MirrorKey:
    """Return the key of the mirror that wrote a Service or EndpointSlice, by its label."""
    metadata = item["metadata"]
    return metadata["namespace"], (metadata.get("labels") or {}).get(MIRROR_LABEL, "")
