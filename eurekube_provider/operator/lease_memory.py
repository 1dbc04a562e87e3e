"""The notes in an operator's Lease: the cluster's names, the watched namespaces, the Eureka servers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.lease_notes import (
    ALL_NAMESPACES,
    LeaseNotes,
    ServerNote,
    add_lease_notes,
    parse_lease_notes,
)
from eurekube_provider.core.objects import Object
from eurekube_provider.core.registry import Registry
from eurekube_provider.operator.settings import Settings
from eurekube_provider.runtime.clock import format_utc_time

MOST_NOTED_ERROR_LETTERS = 200


class LeaseMemory:
    """The copy of the Lease's notes: every replica reads them, and the holder writes them with each renewal;
    threads may share it, since it is only replaced as a whole.

    :param is_long_running: False for a single pass, which does not record the watched namespaces.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        registries: Mapping[str, Registry],
        *,
        is_long_running: bool = True,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._registries = registries
        self._is_long_running = is_long_running
        self._namespaces_of_all: tuple[str, ...] | None = None
        self._notes = self._complete_from_settings(LeaseNotes())

    def previous_cluster_names(self) -> tuple[str, ...]:
        """Return the former names of the cluster, from the settings and the Lease."""
        return self._notes.previous_cluster_names

    def dropped_namespaces(self, unwatched: Collection[str]) -> frozenset[str]:
        """Return the namespaces that this operator watched before and does not any more.

        :param unwatched: the namespaces with syncers that it does not watch: if it watched all, it dropped
            these, and the Lease gets their names.
        """
        dropped = frozenset(self._notes.dropped_namespaces)
        if ALL_NAMESPACES not in dropped:
            return dropped
        self._namespaces_of_all = tuple(sorted(unwatched))
        return dropped.difference([ALL_NAMESPACES]).union(unwatched)

    def load_notes(self, metadata: Object) -> None:
        """Replace the copy by the notes in a Lease's metadata, completed from the settings."""
        self._notes = self._complete_from_settings(parse_lease_notes(metadata))

    def add_notes(self, metadata: Object) -> Object:
        """Load the notes of a Lease's metadata; return it with this operator's notes, to be written."""
        self.load_notes(metadata)
        return add_lease_notes(metadata, self._notes)

    def _complete_from_settings(self, found: LeaseNotes) -> LeaseNotes:
        settings = self._settings
        with_cluster_name = found.with_cluster_name(self._cluster.name, settings.previous_cluster_names)
        return replace(
            with_cluster_name.with_watched_namespaces(settings.watch_namespaces, self._namespaces_of_all)
            if self._is_long_running
            else with_cluster_name,
            # A label has no more letters; a longer name is found by the Lease's own.
            operator=re.sub(r"[^A-Za-z0-9._-]", "-", settings.operator_name)[:63].strip("-._"),
            is_cluster_name_given=settings.cluster_name is not None,
            server_notes=tuple(self._server_notes()),
        )

    def _server_notes(self) -> Iterator[ServerNote]:
        for name, registry in self._registries.items():
            figures = registry.figures()
            read_at = "" if figures.read_at is None else format_utc_time(figures.read_at)
            for one in figures.servers:
                answered_at = "" if one.answered_at is None else format_utc_time(one.answered_at)
                error = one.error[:MOST_NOTED_ERROR_LETTERS]
                yield ServerNote(name, one.url, read_at, answered_at, error)
