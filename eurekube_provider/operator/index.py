"""An index that relates Services, EndpointSlices and syncers to each other.

With the index a reconcile reads only the Services of its own syncer, and a change concerns only its own
syncers, however many others the cluster has. The reflectors' threads feed the index, and the workers read it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from eurekube_provider.core.objects import app_name_of_service, key_of, service_name_of_slice
from eurekube_provider.core.syncer import Selector

Object = dict[str, Any]
"""A Kubernetes object as the API's JSON has it."""

SyncerKey = tuple[str, str]
"""Namespace and name of an EurekaSyncer."""

IndexKey = tuple[str, ...]
"""Key by which objects are found: a kind of key, a namespace and an app, label or name for Services and
selectors; a namespace and a Service's name for EndpointSlices.
"""

T = TypeVar("T")


class Indexer(Generic[T]):
    """A table of objects by name and by index keys, like client-go's Indexer; threads may share it.

    :param keys_of: returns the index keys of an object.
    """

    def __init__(self, keys_of: Callable[[T], Iterable[IndexKey]]) -> None:
        self._keys_of = keys_of
        self._lock = threading.Lock()
        self._by_index: dict[IndexKey, dict[tuple[str, str], T]] = defaultdict(dict)
        self._objects: dict[tuple[str, str], T] = {}

    def put(self, name: tuple[str, str], new: T | None) -> None:
        """Replace the object of this name; None removes it."""
        with self._lock:
            old = self._objects.pop(name, None)
            for key in self._keys_of(old) if old is not None else ():
                del self._by_index[key][name]
                if not self._by_index[key]:
                    del self._by_index[key]
            if new is not None:
                self._objects[name] = new
                for key in self._keys_of(new):
                    self._by_index[key][name] = new

    def get(self, name: tuple[str, str]) -> T | None:
        """Return the object of this name; None if there is none."""
        with self._lock:
            return self._objects.get(name)

    def find(self, key: IndexKey) -> dict[tuple[str, str], T]:
        """Return the objects that have an index key, by namespace and name."""
        with self._lock:
            return dict(self._by_index.get(key, {}))


class SelectorIndex(Indexer[Selector]):
    """Index of selectors by the namespace and name of the object that has the selector, such as a syncer."""

    def __init__(self) -> None:
        super().__init__(lambda selector: (_index_key_of_selector(selector),))

    def keys_selecting(self, service: Object) -> set[tuple[str, str]]:
        """Return namespace and name of the objects whose selectors match a Service."""
        with self._lock:
            if not self._objects:  # as where no stack follows a Service
                return set()
            return {
                key
                for index_key in _index_keys_of_service(service)
                for key, selector in self._by_index.get(index_key, {}).items()
                if selector.selects(service)
            }


class ServiceIndex:
    """An index of Services and EndpointSlices; every method may be called from any thread."""

    def __init__(self) -> None:
        self._services: Indexer[Object] = Indexer(_index_keys_of_service)
        self._slices: Indexer[Object] = Indexer(_index_keys_of_slice)

    def update_service(self, old: Object | None, new: Object | None) -> None:
        """Update the index for a Service; ``old`` is None for a new one, ``new`` for a deleted one."""
        if subject := new or old:
            self._services.put(key_of(subject), new)

    def update_slice(self, old: Object | None, new: Object | None) -> list[Object]:
        """Update the index for an EndpointSlice in the same way; return the Services that it belonged, or
        belongs, to. One that is not there yet tells when it comes.
        """
        if (subject := new or old) is None:
            return []
        self._slices.put(key_of(subject), new)
        names = {name for one in (old, new) if one is not None for name in _index_keys_of_slice(one)}
        return [service for name in names if (service := self._services.get(name)) is not None]

    def services_and_slices(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """Return the Services that a selector matches, and their EndpointSlices."""
        found = self._services.find(_index_key_of_selector(selector)).values()
        services = [service for service in found if selector.selects(service)]
        slices = [item for service in services for item in self._slices.find(key_of(service)).values()]
        return services, slices

    def service(self, namespace: str, name: str) -> Object | None:
        """Return one Service, or None if it does not exist."""
        return self._services.get((namespace, name))

    def slices_of(self, namespace: str, service: str) -> list[Object]:
        """Return the EndpointSlices of a Service, without those of mirrors."""
        return list(self._slices.find((namespace, service)).values())


def _index_keys_of_service(service: Object) -> list[IndexKey]:
    namespace, name = key_of(service)
    labels = service["metadata"].get("labels") or {}
    keys: list[IndexKey] = [("label", namespace, key, value) for key, value in labels.items()]
    return [("app", namespace, app_name_of_service(service)), ("service", namespace, name), *keys]


def _index_key_of_selector(selector: Selector) -> IndexKey:
    """Return an index key that every Service has which this selector matches."""
    if selector.service:
        return ("service", selector.namespace, selector.service)
    if selector.app:
        return ("app", selector.namespace, selector.app)
    key, value = min(selector.match_labels.items())
    return ("label", selector.namespace, key, value)


def _index_keys_of_slice(endpoint_slice: Object) -> list[tuple[str, str]]:
    service = service_name_of_slice(endpoint_slice)
    return [(endpoint_slice["metadata"]["namespace"], service)] if service else []
