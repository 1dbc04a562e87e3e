"""Notes of an operator at its Lease: the names of its cluster, the namespaces that it watches, how it fares.

The Lease outlives every process of the operator, and its holder writes it every few seconds anyway. So it
tells the next process by which names the cluster was called before, and people when a Eureka was read last.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import check_cluster_name
from eurekube_provider.core.objects import Object

OPERATOR_LABEL = "eurekube.io/operator"
"""Label of a Lease: the name of the operator whose replicas share it."""

CLUSTER_NAME = "eurekube.io/cluster-name"
NAME_IS_GIVEN = "eurekube.io/cluster-name-is-given"
PREVIOUS_CLUSTER_NAMES = "eurekube.io/previous-cluster-names"
WATCHED_NAMESPACES = "eurekube.io/watched-namespaces"
DROPPED_NAMESPACES = "eurekube.io/dropped-namespaces"
EUREKA_READ = "eurekube.io/eureka-read"
"""Annotations of a Lease."""

MOST_NAMES = 10
"""How many former names of a cluster are remembered: the latest ones."""

MOST_DROPPED = 50

ALL_NAMESPACES = "*"


@dataclass(frozen=True, slots=True)
class ServerRead:
    """One Eureka server, as the leader saw it last.

    :ivar eureka: the connection's name.
    :ivar read_at: when its Eureka was read last, as RFC 3339; empty for never.
    :ivar answered_at: when this server gave a usable answer last.
    :ivar error: why it cannot be used; empty while it can.
    """

    eureka: str
    url: str
    read_at: str = ""
    answered_at: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class LeaseNotes:
    """The notes that stand at a Lease; each empty where nobody wrote it.

    :ivar previous_names: former names of the cluster, the latest first.
    :ivar namespaces: those that are watched; :data:`ALL_NAMESPACES` alone for all.
    :ivar is_name_given: True if the cluster's name stands in the operator's settings.
    :ivar dropped: those that were watched before, and are not any more.
    """

    operator: str = ""
    cluster_name: str = ""
    previous_names: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    servers: tuple[ServerRead, ...] = field(default=())
    dropped: tuple[str, ...] = ()
    is_name_given: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names that the cluster has had, the latest first."""
        return tuple(dict.fromkeys(filter(None, (self.cluster_name, *self.previous_names))))

    def called(self, name: str, others: Iterable[str] = ()) -> LeaseNotes:
        """Return them for an operator that calls the cluster by this name.

        :param others: former names that a person gives.
        """
        before = dict.fromkeys(one for one in (*self.names, *others) if one != name)
        return replace(self, cluster_name=name, previous_names=tuple(before)[:MOST_NAMES])

    def watching(self, namespaces: tuple[str, ...]) -> LeaseNotes:
        """Return them for an operator that watches these namespaces, none for all."""
        before = dict.fromkeys((*self.namespaces, *self.dropped))
        dropped = tuple(one for one in before if namespaces and one not in (*namespaces, ALL_NAMESPACES))
        return replace(self, namespaces=namespaces or (ALL_NAMESPACES,), dropped=dropped[:MOST_DROPPED])


def read_notes(metadata: Object) -> LeaseNotes:
    """Return what a Lease's metadata say; what is unreadable there, no matter who wrote it, says nothing."""
    found: Mapping[str, Any] = metadata.get("annotations") or {}
    labels: Mapping[str, Any] = metadata.get("labels") or {}
    names = [str(found.get(CLUSTER_NAME) or ""), *str(found.get(PREVIOUS_CLUSTER_NAMES) or "").split(",")]
    current, *previous = [name if _is_name(name) else "" for name in names]
    return LeaseNotes(
        str(labels.get(OPERATOR_LABEL) or ""),
        current,
        tuple(filter(None, previous))[:MOST_NAMES],
        tuple(filter(None, str(found.get(WATCHED_NAMESPACES) or "").split(","))),
        _servers(str(found.get(EUREKA_READ) or "")),
        tuple(filter(None, str(found.get(DROPPED_NAMESPACES) or "").split(","))),
        str(found.get(NAME_IS_GIVEN)) == "true",
    )


def with_notes(metadata: Object, notes: LeaseNotes) -> Object:
    """Return a Lease's metadata with these notes beside whatever else stands there."""
    said = {
        CLUSTER_NAME: notes.cluster_name,
        NAME_IS_GIVEN: str(notes.is_name_given).lower(),
        PREVIOUS_CLUSTER_NAMES: ",".join(notes.previous_names),
        WATCHED_NAMESPACES: ",".join(notes.namespaces),
        DROPPED_NAMESPACES: ",".join(notes.dropped),
        EUREKA_READ: json.dumps(
            [[one.eureka, one.url, one.read_at, one.answered_at, one.error] for one in notes.servers]
        ),
    }
    return {
        **metadata,
        "labels": {**(metadata.get("labels") or {}), OPERATOR_LABEL: notes.operator},
        "annotations": {**(metadata.get("annotations") or {}), **said},
    }


def _is_name(name: str) -> bool:
    try:
        check_cluster_name(name)
    except ConfigurationError:
        return False
    return True


def _servers(text: str) -> tuple[ServerRead, ...]:
    try:
        return tuple(ServerRead(*map(str, one)) for one in json.loads(text))
    except (ValueError, TypeError):
        return ()
