"""A cache of a syncer's mapped EndpointSlices, so that only changed endpoints are mapped again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.ports import Ports
from eurekube_provider.core.problem import Problem


@dataclass(frozen=True, slots=True)
class SliceMapping:
    """The instances and problems to which one EndpointSlice was mapped; immutable.

    :param problems: the keys are the problems, in order and each once.
    :param ports: the ports that were chosen; None where the slice has none that callers use.
    :param mapped_endpoints: the endpoints that were mapped to an instance.
    :param instances_of_endpoints: the instance of each of these endpoints, in the same order.
    """

    endpoint_slice: Object
    instances: Mapping[str, Instance]
    problems: Mapping[Problem, None]
    terminating_ids: frozenset[str]
    ports: Ports | None = None
    mapped_endpoints: tuple[Object, ...] = ()
    instances_of_endpoints: tuple[Instance, ...] = ()

    @property
    def instance_by_endpoint_id(self) -> dict[int, Instance]:
        """The instance of each mapped endpoint, by the ``id()`` of the endpoint's object (which is unique
        while the object is kept here).
        """
        ids = map(id, self.mapped_endpoints)
        return dict(zip(ids, self.instances_of_endpoints, strict=True))


EMPTY_SLICE_MAPPING = SliceMapping({}, {}, {}, frozenset())

MAX_CACHED_ZONES = 64
"""The number of zones of a Service's endpoints up to which their metadata are cached."""

SliceMappingsByName = Mapping[str, SliceMapping]
"""The mappings of EndpointSlices, by the slices' names."""

MetadataByZone = Mapping[tuple[str, tuple[tuple[str, str], ...]], Mapping[str, str]]
"""Metadata of instances, by zone and by the metadata that are made from ports."""


class MappingCache:
    """A cache of the mapping of each EndpointSlice of a syncer: a change maps the changed endpoints only.

    Slices and endpoints are compared by object identity: a changed one is a new object, an unchanged one
    stays the same object. Any number of threads may share the cache.
    """

    def __init__(self) -> None:
        self._by_service: dict[str, tuple[object, SliceMappingsByName, MetadataByZone]] = {}

    def lookup(self, service: str, context: object) -> tuple[SliceMappingsByName, MetadataByZone]:
        """Return the mappings of a Service's slices, by slice name, and its instances' metadata, by zone.

        Both are empty where the context has changed.
        """
        held = self._by_service.get(service)
        return held[1:] if held is not None and held[0] == context else ({}, {})

    def store(
        self, service: str, context: object, parts: SliceMappingsByName, metadata: MetadataByZone
    ) -> None:
        """Replace the cached mappings of a Service."""
        # Zones are free text: if there are too many, no metadata are cached.
        self._by_service[service] = (context, parts, metadata if len(metadata) <= MAX_CACHED_ZONES else {})

    def keep_only_services(self, services: Iterable[str]) -> None:
        """Drop the cached mappings of all Services but these."""
        for gone in self._by_service.keys() - set(services):
            self._by_service.pop(gone, None)

    def __len__(self) -> int:
        return sum(len(parts) for _, parts, _ in self._by_service.values())
