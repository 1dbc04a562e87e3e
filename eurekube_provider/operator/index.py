"""An index that relates Services, EndpointSlices and syncers to each other.

Thanks to it a reconcile reads only the Services of its own syncer, and a change concerns only its own
syncers, however many others the cluster has. The reflectors' threads feed the index, and the workers read it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from eurekube_provider.core.objects import app_of, service_of
from eurekube_provider.core.syncer import Selector

Object = dict[str, Any]
SyncerKey = tuple[str, str]
IndexKey = tuple[str, ...]
"""Key that relates objects: a namespace and an app or label for Services and selectors, or a Service's name
for slices.
"""

T = TypeVar("T")


class Indexer(Generic[T]):
    """A table of objects by name and by index keys, like client-go's Indexer.

    :param keys_of: returns the index keys of an object.
    """

    def __init__(self, keys_of: Callable[[T], Iterable[IndexKey]]) -> None:
        self._keys_of = keys_of
        self._by_index: dict[IndexKey, dict[tuple[str, str], T]] = defaultdict(dict)
        self.objects: dict[tuple[str, str], T] = {}

    def put(self, name: tuple[str, str], new: T | None) -> None:
        """Replace the object of this name; None removes it."""
        old = self.objects.pop(name, None)
        for key in self._keys_of(old) if old is not None else ():
            del self._by_index[key][name]
            if not self._by_index[key]:
                del self._by_index[key]
        if new is not None:
            self.objects[name] = new
            for key in self._keys_of(new):
                self._by_index[key][name] = new

    def by_index(self, key: IndexKey) -> dict[tuple[str, str], T]:
        """Return the objects that have an index key, by name."""
        return self._by_index.get(key, {})


class Selectors:
    """Index of selectors by the name of their owner, such as a syncer; every method may be called from any
    thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexer: Indexer[Selector] = Indexer(lambda selector: [_index_key_of_selector(selector)])

    def changed(self, key: tuple[str, str], selector: Selector | None) -> None:
        """Replace the selector of a name; None removes it."""
        with self._lock:
            self._indexer.put(key, selector)

    def of(self, key: tuple[str, str]) -> Selector | None:
        """Return the selector of a name; None for an unknown name."""
        with self._lock:
            return self._indexer.objects.get(key)

    def selecting(self, service: Object) -> set[tuple[str, str]]:
        """Return the names whose selectors match a Service."""
        with self._lock:
            if not self._indexer.objects:  # as where no stack follows a Service
                return set()
            return {
                key
                for index_key in _index_keys_of_service(service)
                for key, selector in self._indexer.by_index(index_key).items()
                if selector.selects(service)
            }


class Index:
    """An index of Services and EndpointSlices; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._services: Indexer[Object] = Indexer(_index_keys_of_service)
        self._slices: Indexer[Object] = Indexer(_index_keys_of_slice)

    def service_changed(self, old: Object | None, new: Object | None) -> None:
        """Update the index for a Service that was added (``old`` is None), changed, or deleted (``new`` is
        None).
        """
        self._changed(self._services, old, new)

    def slice_changed(self, old: Object | None, new: Object | None) -> None:
        """Update the index for an EndpointSlice that was added (``old`` is None), changed, or deleted
        (``new`` is None).
        """
        self._changed(self._slices, old, new)

    def _changed(self, indexer: Indexer[Object], old: Object | None, new: Object | None) -> None:
        subject = new or old
        if subject is not None:
            with self._lock:
                indexer.put(key_of(subject), new)

    def selected(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """Return the Services that a selector matches, and their EndpointSlices."""
        with self._lock:
            found = self._services.by_index(_index_key_of_selector(selector)).values()
            services = [service for service in found if selector.selects(service)]
            slices = [
                item for service in services for item in self._slices.by_index(key_of(service)).values()
            ]
        return services, slices

    def service(self, namespace: str, name: str) -> Object | None:
        """Return one Service, or None if it does not exist."""
        with self._lock:
            return self._services.objects.get((namespace, name))

    def slices_of(self, namespace: str, service: str) -> list[Object]:
        """Return the EndpointSlices of a Service, without those of mirrors."""
        with self._lock:
            return list(self._slices.by_index((namespace, service)).values())


def _index_keys_of_service(service: Object) -> Iterator[IndexKey]:
    namespace = service["metadata"]["namespace"]
    yield ("app", namespace, app_of(service))
    yield ("service", namespace, service["metadata"]["name"])
    for key, value in (service["metadata"].get("labels") or {}).items():
        yield ("label", namespace, key, value)


def _index_key_of_selector(selector: Selector) -> IndexKey:
    """Return an index key that every Service selected by this selector has."""
    if selector.service:
        return ("service", selector.namespace, selector.service)
    if selector.app:
        return ("app", selector.namespace, selector.app)
    key, value = min(selector.match_labels.items())
    return ("label", selector.namespace, key, value)


def _index_keys_of_slice(endpoint_slice: Object) -> Iterator[IndexKey]:
    service = service_of(endpoint_slice)
    if service:
        yield (endpoint_slice["metadata"]["namespace"], service)


def key_of(thing: Mapping[str, Any]) -> tuple[str, str]:
    """Return the namespace and name of a Kubernetes object."""
    return (thing["metadata"]["namespace"], thing["metadata"]["name"])
