"""Services, EndpointSlices and syncers, found by what they have to do with each other.

A reconcile of a syncer costs its own Services only, and a change concerns its own syncers only, however many
others the cluster has. Fed by the reflectors' threads, read by the workers.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from eurekube_provider.core.objects import app_of, service_of
from eurekube_provider.core.syncer import Selector

Object = dict[str, Any]
SyncerKey = tuple[str, str]
Handle = tuple[str, ...]
"""A namespace and an app, or a namespace and a label: by what Services and selectors find each other."""

T = TypeVar("T")


class _Shelves(Generic[T]):
    """Things by name on shelves by handle; an empty shelf is taken down."""

    def __init__(self) -> None:
        self._shelves: dict[Handle, dict[tuple[str, str], T]] = defaultdict(dict)

    def put(self, handles: Iterable[Handle], name: tuple[str, str], thing: T) -> None:
        for handle in handles:
            self._shelves[handle][name] = thing

    def take(self, handles: Iterable[Handle], name: tuple[str, str]) -> None:
        for handle in handles:
            shelf = self._shelves.get(handle, {})
            shelf.pop(name, None)
            if not shelf:
                self._shelves.pop(handle, None)

    def on(self, handle: Handle) -> dict[tuple[str, str], T]:
        return self._shelves.get(handle, {})


class Selectors:
    """Whose selectors mean a Service; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shelves: _Shelves[Selector] = _Shelves()

    def changed(self, key: tuple[str, str], old: Selector | None, new: Selector | None) -> None:
        """Something of this name came, selects something else, or went."""
        with self._lock:
            if old is not None:
                self._shelves.take([_handle_of_selector(old)], key)
            if new is not None:
                self._shelves.put([_handle_of_selector(new)], key, new)

    def selecting(self, service: Object) -> set[tuple[str, str]]:
        """The names of those that mean a Service."""
        with self._lock:
            return {
                key
                for handle in _handles_of_service(service)
                for key, selector in self._shelves.on(handle).items()
                if selector.selects(service)
            }


class Index:
    """What belongs together; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._services: _Shelves[Object] = _Shelves()
        self._slices: _Shelves[Object] = _Shelves()
        self._selectors = Selectors()

    def service_changed(self, old: Object | None, new: Object | None) -> None:
        """A Service came (``old`` is None), changed, or went."""
        with self._lock:
            if old is not None:
                self._services.take(_handles_of_service(old), key_of(old))
            if new is not None:
                self._services.put(_handles_of_service(new), key_of(new), new)

    def slice_changed(self, old: Object | None, new: Object | None) -> None:
        """An EndpointSlice came, changed, or went."""
        with self._lock:
            if old is not None:
                self._slices.take(_handles_of_slice(old), key_of(old))
            if new is not None:
                self._slices.put(_handles_of_slice(new), key_of(new), new)

    def selector_changed(self, key: SyncerKey, old: Selector | None, new: Selector | None) -> None:
        """A syncer came, selects something else, or went."""
        self._selectors.changed(key, old, new)

    def selected(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """The Services that a selector means, and their EndpointSlices."""
        with self._lock:
            found = self._services.on(_handle_of_selector(selector)).values()
            services = [service for service in found if selector.selects(service)]
            slices = [
                item
                for service in services
                for item in self._slices.on(("slices", *key_of(service))).values()
            ]
        return services, slices

    def service(self, namespace: str, name: str) -> Object | None:
        """One Service."""
        with self._lock:
            return self._services.on(("name", namespace, name)).get((namespace, name))

    def selecting(self, service: Object) -> set[SyncerKey]:
        """The syncers that mean a Service."""
        return self._selectors.selecting(service)


def _handles_of_service(service: Object) -> Iterator[Handle]:
    namespace, name = key_of(service)
    yield ("name", namespace, name)
    yield ("app", namespace, app_of(service))
    for key, value in (service["metadata"].get("labels") or {}).items():
        yield ("label", namespace, key, value)


def _handle_of_selector(selector: Selector) -> Handle:
    """One of the handles of every Service that is selected."""
    if selector.app:
        return ("app", selector.namespace, selector.app)
    key, value = min(selector.match_labels.items())
    return ("label", selector.namespace, key, value)


def _handles_of_slice(endpoint_slice: Object) -> Iterator[Handle]:
    service = service_of(endpoint_slice)
    if service:
        yield ("slices", endpoint_slice["metadata"]["namespace"], service)


def key_of(thing: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of a custom resource, or of anything else that has both."""
    return (thing["metadata"]["namespace"], thing["metadata"]["name"])
