"""A cache of what the EndpointSlices of a syncer were mapped to, so that a change costs little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.ports import Ports
from eurekube_provider.core.problem import Problem


@dataclass(frozen=True, slots=True)
class SliceMapping:
    """The instances and problems that one EndpointSlice was mapped to; never changed.

    :param endpoints: each endpoint and the instance that it was mapped to, by the object that the endpoint is
        (its ``id``, which is no other one's while it is held here).
    """

    instances: Mapping[str, Instance]
    problems: Mapping[Problem, None]
    terminating: frozenset[str]
    ports: Ports | None = None
    endpoints: Mapping[int, tuple[Object, Instance]] = field(default_factory=dict)


NOT_MAPPED = SliceMapping({}, {}, frozenset())

MOST_ZONES = 64
"""How many zones of a Service's endpoints have their metadata kept."""

SliceMappings = Mapping[str, tuple[Object, SliceMapping]]
ZoneAndPorts = tuple[str, tuple[tuple[str, str], ...]]
"""A zone, and the metadata that ports give."""

MetadataByZone = Mapping[ZoneAndPorts, Mapping[str, str]]


class MappingCache:
    """A cache of what each EndpointSlice of a syncer was mapped to: a change maps the changed endpoints only.

    Slices are distinguished by the objects that they are: one that changed is another object. So are
    endpoints:
    those that did not change stay the same objects. Any number of threads may share it.
    """

    def __init__(self) -> None:
        self._by_service: dict[str, tuple[object, SliceMappings, MetadataByZone]] = {}

    def of(self, service: str, context: object) -> tuple[SliceMappings, MetadataByZone]:
        """Return what a Service's slices were mapped to, by name, and the metadata of its instances, by zone.

        Both are empty where the context has changed.
        """
        held = self._by_service.get(service)
        return held[1:] if held is not None and held[0] == context else ({}, {})

    def keep(self, service: str, context: object, parts: SliceMappings, metadata: MetadataByZone) -> None:
        """Replace what is cached of a Service."""
        # A zone is whatever somebody wrote: of more than there can be, none is kept.
        self._by_service[service] = (context, parts, metadata if len(metadata) <= MOST_ZONES else {})

    def forget_others(self, services: Iterable[str]) -> None:
        """Drop what is cached of any other Service."""
        for gone in self._by_service.keys() - set(services):
            self._by_service.pop(gone, None)

    def __len__(self) -> int:
        return sum(len(parts) for _, parts, _ in self._by_service.values())
