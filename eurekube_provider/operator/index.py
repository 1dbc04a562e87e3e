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
Handle = tuple[str, ...]
"""By what Services and selectors find each other (a namespace and an app or a label), or slices a Service."""

T = TypeVar("T")


class Shelves(Generic[T]):
    """Things by name, and on shelves by handle; an empty shelf is taken down."""

    def __init__(self, handles_of: Callable[[T], Iterable[Handle]]) -> None:
        self._handles_of = handles_of
        self._shelves: dict[Handle, dict[tuple[str, str], T]] = defaultdict(dict)
        self.things: dict[tuple[str, str], T] = {}

    def put(self, name: tuple[str, str], thing: T | None) -> None:
        """In place of what has this name; None puts nothing there."""
        before = self.things.pop(name, None)
        for handle in self._handles_of(before) if before is not None else ():
            del self._shelves[handle][name]
            if not self._shelves[handle]:
                del self._shelves[handle]
        if thing is not None:
            self.things[name] = thing
            for handle in self._handles_of(thing):
                self._shelves[handle][name] = thing

    def on(self, handle: Handle) -> dict[tuple[str, str], T]:
        return self._shelves.get(handle, {})


class Selectors:
    """Whose selectors mean a Service; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shelves: Shelves[Selector] = Shelves(lambda selector: [_handle_of_selector(selector)])

    def changed(self, key: tuple[str, str], selector: Selector | None) -> None:
        """Something of this name came, selects something else, or went (None)."""
        with self._lock:
            self._shelves.put(key, selector)

    def of(self, key: tuple[str, str]) -> Selector | None:
        """What something of this name selects."""
        with self._lock:
            return self._shelves.things.get(key)

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
        self._services: Shelves[Object] = Shelves(_handles_of_service)
        self._slices: Shelves[Object] = Shelves(_handles_of_slice)

    def service_changed(self, old: Object | None, new: Object | None) -> None:
        """A Service came (``old`` is None), changed, or went."""
        self._changed(self._services, old, new)

    def slice_changed(self, old: Object | None, new: Object | None) -> None:
        """An EndpointSlice came, changed, or went."""
        self._changed(self._slices, old, new)

    def _changed(self, shelves: Shelves[Object], old: Object | None, new: Object | None) -> None:
        subject = new or old
        if subject is not None:
            with self._lock:
                shelves.put(key_of(subject), new)

    def selected(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """The Services that a selector means, and their EndpointSlices."""
        with self._lock:
            found = self._services.on(_handle_of_selector(selector)).values()
            services = [service for service in found if selector.selects(service)]
            slices = [item for service in services for item in self._slices.on(key_of(service)).values()]
        return services, slices

    def service(self, namespace: str, name: str) -> Object | None:
        """One Service."""
        with self._lock:
            return self._services.things.get((namespace, name))


def _handles_of_service(service: Object) -> Iterator[Handle]:
    namespace = service["metadata"]["namespace"]
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
        yield (endpoint_slice["metadata"]["namespace"], service)


def key_of(thing: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of a custom resource, or of anything else that has both."""
    return (thing["metadata"]["namespace"], thing["metadata"]["name"])
