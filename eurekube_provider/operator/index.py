"""Services, EndpointSlices and syncers, found by what they have to do with each other.

A reconcile of a syncer costs its own Services only, and a change concerns its own syncers only, however many
others the cluster has. Fed by the reflectors' threads, read by the workers.
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
"""By what Services and selectors find each other (a namespace and an app or a label), or slices a Service."""

T = TypeVar("T")


class Indexer(Generic[T]):
    """Holds objects by name, and finds them by index keys, as client-go's Indexer does.

    :param keys_of: the index keys of an object.
    """

    def __init__(self, keys_of: Callable[[T], Iterable[IndexKey]]) -> None:
        self._keys_of = keys_of
        self._by_index: dict[IndexKey, dict[tuple[str, str], T]] = defaultdict(dict)
        self.objects: dict[tuple[str, str], T] = {}

    def put(self, name: tuple[str, str], new: T | None) -> None:
        """Replace the object of this name; None takes it out."""
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
        """Find the objects of an index key, by name."""
        return self._by_index.get(key, {})


class Selectors:
    """Index of the syncers whose selectors match a Service; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexer: Indexer[Selector] = Indexer(lambda selector: [_index_key_of_selector(selector)])

    def changed(self, key: tuple[str, str], selector: Selector | None) -> None:
        """Something of this name came, selects something else, or went (None)."""
        with self._lock:
            self._indexer.put(key, selector)

    def of(self, key: tuple[str, str]) -> Selector | None:
        """Return the members of a name."""
        with self._lock:
            return self._indexer.objects.get(key)

    def selecting(self, service: Object) -> set[tuple[str, str]]:
        """The names of those that mean a Service."""
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
    """An index of objects by name; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._services: Indexer[Object] = Indexer(_index_keys_of_service)
        self._slices: Indexer[Object] = Indexer(_index_keys_of_slice)

    def service_changed(self, old: Object | None, new: Object | None) -> None:
        """A Service came (``old`` is None), changed, or went."""
        self._changed(self._services, old, new)

    def slice_changed(self, old: Object | None, new: Object | None) -> None:
        """An EndpointSlice came, changed, or went."""
        self._changed(self._slices, old, new)

    def _changed(self, indexer: Indexer[Object], old: Object | None, new: Object | None) -> None:
        subject = new or old
        if subject is not None:
            with self._lock:
                indexer.put(key_of(subject), new)

    def selected(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """The Services that a selector means, and their EndpointSlices."""
        with self._lock:
            found = self._services.by_index(_index_key_of_selector(selector)).values()
            services = [service for service in found if selector.selects(service)]
            slices = [
                item for service in services for item in self._slices.by_index(key_of(service)).values()
            ]
        return services, slices

    def service(self, namespace: str, name: str) -> Object | None:
        """One Service."""
        with self._lock:
            return self._services.objects.get((namespace, name))

    def slices_of(self, namespace: str, service: str) -> list[Object]:
        """The EndpointSlices of a Service, without those of mirrors."""
        with self._lock:
            return list(self._slices.by_index((namespace, service)).values())


def _index_keys_of_service(service: Object) -> Iterator[IndexKey]:
    namespace = service["metadata"]["namespace"]
    yield ("app", namespace, app_of(service))
    for key, value in (service["metadata"].get("labels") or {}).items():
        yield ("label", namespace, key, value)


def _index_key_of_selector(selector: Selector) -> IndexKey:
    """One of the index keys of every Service that is selected."""
    if selector.app:
        return ("app", selector.namespace, selector.app)
    key, value = min(selector.match_labels.items())
    return ("label", selector.namespace, key, value)


def _index_keys_of_slice(endpoint_slice: Object) -> Iterator[IndexKey]:
    service = service_of(endpoint_slice)
    if service:
        yield (endpoint_slice["metadata"]["namespace"], service)


def key_of(thing: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of a custom resource, or of anything else that has both."""
    return (thing["metadata"]["namespace"], thing["metadata"]["name"])
