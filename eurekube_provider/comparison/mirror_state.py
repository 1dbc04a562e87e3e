"""The state of each EurekaMirror, in the same words and order as a syncer's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eurekube_provider.comparison.reported_state import ReportedState, SyncState, reported_state_of_object
from eurekube_provider.comparison.seen_remedies import ObservedReason, observed_problem
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.mirror import Mirror
from eurekube_provider.core.mirror_conditions import MirroredServiceCounts
from eurekube_provider.core.mirror_names import mirrored_service_name
from eurekube_provider.core.objects import Object, is_being_deleted, parse_api_time
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME

STALE_STATUS_SECONDS = 900.0
"""Seconds after which a mirror's status is stale: its operator writes it every five minutes."""

MAX_NAMED_SERVICES = 20


@dataclass(frozen=True, slots=True)
class MirrorState:
    """The state of one mirror, as its operator reported it.

    :ivar item: the EurekaMirror.
    :ivar mirror: its spec; None where that cannot be read.
    :ivar application: the application in upper case; a pattern where the mirror shows several.
    :ivar state: the conditions Ready and Synced as one word.
    :ivar eureka_read_at: when the operator last read Eureka for this mirror, in RFC 3339; empty where that is
        not known.
    """

    item: Object
    namespace: str
    name: str
    mirror: Mirror | None
    application: str
    eureka_name: str
    services: tuple[MirroredServiceCounts, ...]
    service_count: int
    endpoint_count: int
    ready_count: int
    held_count: int
    reported: ReportedState
    state: SyncState
    problem: Problem | None
    eureka_read_at: str

    @property
    def subject(self) -> str:
        """Kind, namespace and name of the mirror, for a person."""
        return f"EurekaMirror {self.namespace}/{self.name}"

    @property
    def sort_key(self) -> tuple[object, ...]:
        """The sort key: worst first, then by name."""
        return (self.state.rank, self.application, self.namespace, self.name)

    @property
    def services_text(self) -> str:
        """The mirror's Service, or the first one and the number of others."""
        more = max(self.service_count, len(self.services)) - 1
        name = self.services[0].service if self.services else ""
        return f"{name} and {more} more" if name and more > 0 else name

    @property
    def problem_text(self) -> str:
        """The problem in one line, without its remedy; empty without a problem."""
        return str(self.problem or "")

    @property
    def applications(self) -> frozenset[str]:
        """All applications that the mirror shows or names."""
        return frozenset({self.application, *(one.application for one in self.services)})

    def shows_application(self, application: str) -> bool:
        """Return whether the mirror shows, or would show, an application, given in upper case."""
        return application in self.applications or (
            self.mirror is not None and self.mirror.selects_application(application)
        )

    def seconds_since_eureka_read(self, now_seconds: float) -> float | None:
        """Return the seconds since Eureka was read for the mirror, at a Unix time; None if not known."""
        read_at = parse_api_time(self.eureka_read_at)
        return now_seconds - read_at.timestamp() if read_at else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "application": self.application,
            "eureka": self.eureka_name,
            "state": str(self.state),
            **self.reported.to_dict(),
            "why": self.problem_text,
            "services": self.service_count,
            "service": self.services_text,
            "serviceNames": [one.service for one in self.services[:MAX_NAMED_SERVICES]],
            "endpoints": self.endpoint_count,
            "readyEndpoints": self.ready_count,
            "heldEndpoints": self.held_count,
            "lastReadAt": self.eureka_read_at or None,
        }


def mirror_states(items: Iterable[Object], now_seconds: float) -> list[MirrorState]:
    """Return the state of each mirror at a Unix time, worst first."""
    return sorted(
        (_mirror_state_of_object(item, now_seconds) for item in items), key=lambda one: one.sort_key
    )


def try_parse_mirror(item: Object) -> Mirror | None:
    """Return a mirror's parsed spec; None where the spec cannot be read."""
    try:
        return Mirror.from_object(item)
    except ConfigurationError:
        return None


def service_of_application(item: Object, application: str) -> str:
    """Return the name of the Service with which a mirror shows, or would show, an application, or nothing."""
    for one in _services_in_status(item):
        if one.application == application:
            return one.service
    mirror = try_parse_mirror(item)
    if mirror is None:
        return ""
    return mirror.attach_to or mirrored_service_name(mirror.service_name, application) or ""


def _mirror_state_of_object(item: Object, now_seconds: float) -> MirrorState:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    application = str(spec.get("application") or spec.get("pattern") or "").upper()
    services = tuple(_services_in_status(item))
    service_count = int(status.get("mirrored") or 0)
    if not services and spec.get("application") and (name := service_of_application(item, application)):
        services = (MirroredServiceCounts(application, name),)
    reported = reported_state_of_object(item)
    found = MirrorState(
        item=item,
        namespace=str(item["metadata"]["namespace"]),
        name=str(item["metadata"]["name"]),
        mirror=try_parse_mirror(item),
        application=application,
        eureka_name=str(spec.get("eureka") or DEFAULT_CONNECTION_NAME),
        services=services,
        service_count=service_count,
        endpoint_count=int(status.get("endpoints") or 0),
        ready_count=int(status.get("ready") or 0),
        held_count=int(status.get("held") or 0),
        reported=reported,
        state=reported.state,
        problem=reported.problem,
        eureka_read_at=str(status.get("lastReadTime") or ""),
    )
    if is_being_deleted(item):
        problem = observed_problem(
            ObservedReason.DELETED, "it was deleted, and waits until its Services are gone"
        )
        return replace(found, state=SyncState.NOT_SYNCED, problem=problem)
    age = found.seconds_since_eureka_read(now_seconds)
    if found.state is SyncState.SYNCED and age is not None and age > STALE_STATUS_SECONDS:
        message = (
            f"Eureka was last read for it {age / 60:.0f} min ago: no operator with --mirrors looks after it"
        )
        return replace(
            found, state=SyncState.NOT_KNOWN, problem=observed_problem(ObservedReason.STALE, message)
        )
    return found


def _services_in_status(item: Object) -> Iterable[MirroredServiceCounts]:
    listed: Iterable[Mapping[str, Any]] = (item.get("status") or {}).get("services") or ()
    for one in listed:
        yield MirroredServiceCounts(
            str(one.get("application") or ""),
            str(one.get("name") or ""),
            int(one.get("endpoints") or 0),
            int(one.get("ready") or 0),
            int(one.get("held") or 0),
        )
