"""Notes of an operator in its Lease: its cluster's names, the watched namespaces, Eureka servers' states.

The Lease outlives every process of the operator, and the leader writes it every few seconds anyway. From the
notes the next process learns former names of the cluster, and people learn when a Eureka was last read. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import check_cluster_name
from eurekube_provider.core.objects import Object

OPERATOR_LABEL = "eurekube.io/operator"
"""Label of a Lease: the name of the operator whose replicas share it."""

CLUSTER_NAME_ANNOTATION = "eurekube.io/cluster-name"
CLUSTER_NAME_IS_GIVEN_ANNOTATION = "eurekube.io/cluster-name-is-given"
PREVIOUS_CLUSTER_NAMES_ANNOTATION = "eurekube.io/previous-cluster-names"
WATCHED_NAMESPACES_ANNOTATION = "eurekube.io/watched-namespaces"
DROPPED_NAMESPACES_ANNOTATION = "eurekube.io/dropped-namespaces"
SERVER_NOTES_ANNOTATION = "eurekube.io/eureka-read"
"""The annotations of a Lease that hold the operator's notes."""

MAX_PREVIOUS_CLUSTER_NAMES = 10
"""The number of former names of a cluster that are kept, the latest ones."""

MAX_DROPPED_NAMESPACES = 50
"""The number of no longer watched namespaces that are kept."""


ALL_NAMESPACES = "*"


@dataclass(frozen=True, slots=True)
class ServerNote:
    """The state of one Eureka server, as the leader last saw it.

    :ivar eureka: the connection's name.
    :ivar read_at: when the connection's Eureka was last read, as RFC 3339; empty for never.
    :ivar answered_at: when this server last gave a usable answer.
    :ivar error: why the server cannot be used; empty while it can.
    """

    eureka: str
    url: str
    read_at: str = ""
    answered_at: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class LeaseNotes:
    """The notes in a Lease; a note that nobody wrote is empty.

    :ivar operator: the operator's name.
    :ivar previous_cluster_names: former names of the cluster, the latest first.
    :ivar watched_namespaces: the watched namespaces; :data:`ALL_NAMESPACES` alone for all.
    :ivar is_cluster_name_given: True if the operator's settings give the cluster's name.
    :ivar dropped_namespaces: namespaces that were watched before, and are no longer; with
        :data:`ALL_NAMESPACES` among them all were, and nobody has named those yet.
    """

    operator: str = ""
    cluster_name: str = ""
    previous_cluster_names: tuple[str, ...] = ()
    watched_namespaces: tuple[str, ...] = ()
    server_notes: tuple[ServerNote, ...] = ()
    dropped_namespaces: tuple[str, ...] = ()
    is_cluster_name_given: bool = False

    def with_cluster_name(self, name: str, others: Iterable[str] = ()) -> LeaseNotes:
        """Return the notes with ``name`` as the cluster's name, and its earlier names as previous ones.

        :param others: former names that a person gives.
        """
        names = (self.cluster_name, *self.previous_cluster_names, *others)
        before = dict.fromkeys(one for one in names if one not in ("", name))
        return replace(
            self, cluster_name=name, previous_cluster_names=tuple(before)[:MAX_PREVIOUS_CLUSTER_NAMES]
        )

    def with_watched_namespaces(
        self, namespaces: tuple[str, ...], namespaces_of_all: Iterable[str] | None = None
    ) -> LeaseNotes:
        """Return the notes with these watched namespaces, for none with all; others become dropped ones.

        :param namespaces_of_all: the names that take the place of :data:`ALL_NAMESPACES` among the dropped
            ones; None while nobody knows them.
        """
        before = dict.fromkeys((*self.watched_namespaces, *self.dropped_namespaces))
        if namespaces_of_all is not None and ALL_NAMESPACES in before:
            del before[ALL_NAMESPACES]
            before |= dict.fromkeys(namespaces_of_all)
        dropped_namespaces = tuple(one for one in before if namespaces and one not in namespaces)
        return replace(
            self,
            watched_namespaces=namespaces or (ALL_NAMESPACES,),
            dropped_namespaces=dropped_namespaces[:MAX_DROPPED_NAMESPACES],
        )


def parse_lease_notes(metadata: Object) -> LeaseNotes:
    """Return the notes in a Lease's metadata; a note that cannot be read is empty, no matter who wrote it."""
    found: Mapping[str, Any] = metadata.get("annotations") or {}
    labels: Mapping[str, Any] = metadata.get("labels") or {}
    all_cluster_names = [
        str(found.get(CLUSTER_NAME_ANNOTATION) or ""),
        *str(found.get(PREVIOUS_CLUSTER_NAMES_ANNOTATION) or "").split(","),
    ]
    current, *previous = [name if _is_cluster_name(name) else "" for name in all_cluster_names]
    return LeaseNotes(
        str(labels.get(OPERATOR_LABEL) or ""),
        current,
        tuple(filter(None, previous))[:MAX_PREVIOUS_CLUSTER_NAMES],
        tuple(filter(None, str(found.get(WATCHED_NAMESPACES_ANNOTATION) or "").split(","))),
        _parse_server_notes(str(found.get(SERVER_NOTES_ANNOTATION) or "")),
        tuple(filter(None, str(found.get(DROPPED_NAMESPACES_ANNOTATION) or "").split(","))),
        str(found.get(CLUSTER_NAME_IS_GIVEN_ANNOTATION)) == "true",
    )


def add_lease_notes(metadata: Object, notes: LeaseNotes) -> Object:
    """Return a Lease's metadata with these notes, and with everything else that the metadata have."""
    said = {
        CLUSTER_NAME_ANNOTATION: notes.cluster_name,
        CLUSTER_NAME_IS_GIVEN_ANNOTATION: str(notes.is_cluster_name_given).lower(),
        PREVIOUS_CLUSTER_NAMES_ANNOTATION: ",".join(notes.previous_cluster_names),
        WATCHED_NAMESPACES_ANNOTATION: ",".join(notes.watched_namespaces),
        DROPPED_NAMESPACES_ANNOTATION: ",".join(notes.dropped_namespaces),
        SERVER_NOTES_ANNOTATION: json.dumps(
            [[one.eureka, one.url, one.read_at, one.answered_at, one.error] for one in notes.server_notes]
        ),
    }
    return {
        **metadata,
        "labels": {**(metadata.get("labels") or {}), OPERATOR_LABEL: notes.operator},
        "annotations": {**(metadata.get("annotations") or {}), **said},
    }


def _is_cluster_name(name: str) -> bool:
    try:
        check_cluster_name(name)
    except ConfigurationError:
        return False
    return True


def _parse_server_notes(text: str) -> tuple[ServerNote, ...]:
    try:
        return tuple(ServerNote(*map(str, one)) for one in json.loads(text))
    except (ValueError, TypeError):
        return ()
