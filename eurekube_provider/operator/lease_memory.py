"""The memory that an operator keeps in its Lease: names of the cluster, and the namespaces that it
watched.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import replace

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.lease_notes import (
    LeaseNotes,
    ServerRead,
    read_notes,
    with_notes,
)
from eurekube_provider.core.objects import Object
from eurekube_provider.core.registry import Registry
from eurekube_provider.operator.settings import Settings
from eurekube_provider.runtime.clock import utc_time

LONGEST_ERROR = 200


class LeaseMemory:
    """The notes at the Lease: read by every replica, written with each renewal by the holder; threads may
    share it.

    :param registries: by their connections' names.
    :param goes_on: False for a single pass, which does not record the watched namespaces.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        registries: Mapping[str, Registry],
        *,
        goes_on: bool = True,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._registries = registries
        self._goes_on = goes_on
        self._lock = threading.Lock()
        self._notes = self._with_configured_names(LeaseNotes())

    def previous_names(self) -> tuple[str, ...]:
        """Return the former names of the cluster, from the settings and the Lease."""
        with self._lock:
            return self._notes.previous_names

    def dropped_namespaces(self) -> frozenset[str]:
        """Return the namespaces that this operator watched before and does not any more."""
        with self._lock:
            return frozenset(self._notes.dropped)

    def learn(self, metadata: Object) -> None:
        """Replace the remembered notes by those of the Lease."""
        notes = self._with_configured_names(read_notes(metadata))
        with self._lock:
            self._notes = notes

    def noted(self, metadata: Object) -> Object:
        """Return the Lease's metadata with this operator's notes, for its holder to write."""
        self.learn(metadata)
        with self._lock:
            notes = self._notes
        return with_notes(metadata, notes)

    def _with_configured_names(self, found: LeaseNotes) -> LeaseNotes:
        """Return the notes found at the Lease, completed from this operator's settings."""
        settings = self._settings
        called = found.called(self._cluster.name, settings.previous_cluster_names)
        return replace(
            called.watching(settings.watch_namespaces) if self._goes_on else called,
            # A label has no more letters; a longer name is found by the Lease's own.
            operator=re.sub(r"[^A-Za-z0-9._-]", "-", settings.operator_name)[:63].strip("-._"),
            is_name_given=settings.cluster_name is not None,
            servers=tuple(self._servers()),
        )

    def _servers(self) -> list[ServerRead]:
        found = []
        for name, registry in self._registries.items():
            figures = registry.figures()
            read_at = "" if figures.read_at is None else utc_time(figures.read_at)
            for one in figures.servers:
                answered_at = "" if one.answered_at is None else utc_time(one.answered_at)
                found.append(ServerRead(name, one.url, read_at, answered_at, one.error[:LONGEST_ERROR]))
        return found
