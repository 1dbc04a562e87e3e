"""The operators of a cluster, as their Leases and Eureka show them, and faults such as no leader. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from eurekube_provider.comparison.findings import Severity, StatusFinding, build_finding
from eurekube_provider.comparison.seen_remedies import FindingName
from eurekube_provider.core.lease_notes import ALL_NAMESPACES, LeaseNotes, parse_lease_notes
from eurekube_provider.core.objects import Object, parse_api_time, qualified_name
from eurekube_provider.core.registry_kinds import EUREKA, RegistryKind, registry_kind_of_url
from eurekube_provider.core.served import UNRENEWED_LIMIT_SECONDS
from eurekube_provider.core.wording import format_count

CLOCK_TOLERANCE_SECONDS = 60.0
"""Seconds by which the clocks of two machines may differ, when a Lease is judged by its own times."""

EUREKA_UNREAD_AFTER_SECONDS = 90.0
"""Seconds after which a Eureka counts as not read: a leader reads each one several times a minute."""


@dataclass(frozen=True, slots=True)
class OperatorState:
    """One operator, as its Lease shows it.

    :ivar renewed_at: the time of the Lease's last renewal, as Unix time.
    :ivar was_seen_renewed: True if the Lease was renewed between two reads, whatever the clocks say.
    """

    lease_name: str
    holder: str
    renewed_at: float | None
    duration_seconds: float
    notes: LeaseNotes
    was_seen_renewed: bool = False

    def is_leading(self, now: float) -> bool:
        """Return whether the holder of the Lease still leads."""
        if not self.holder or self.renewed_at is None:
            return False
        return self.was_seen_renewed or abs(now - self.renewed_at) <= self.duration_seconds

    def needs_second_read(self, now: float, *, nobody_leads: bool = False) -> bool:
        """Return whether a second read is needed to know that the holder leads, since clocks may differ;
        where nobody seems to lead, by hours, as after a sleep.
        """
        if not self.holder or self.renewed_at is None or self.is_leading(now):
            return False
        tolerance = self.duration_seconds + CLOCK_TOLERANCE_SECONDS
        return nobody_leads or abs(now - self.renewed_at) <= tolerance


@dataclass(frozen=True, slots=True)
class OperatorsSnapshot:
    """The cluster's operators, as far as they could be read.

    :ivar lease_error: the reason why their Leases could not be read; empty where they were read.
    :ivar instances_renewed_at: the last renewal of one of the cluster's instances, as Unix time; None without
        instances, or where no server gives the time.
    :ivar clock_ahead_seconds: the seconds by which this machine's clock is ahead of that of an operator that
        was seen renewing its Lease; 0 for less than :data:`CLOCK_TOLERANCE_SECONDS`. Ages are by the
        operator's clock.
    """

    states: tuple[OperatorState, ...] = ()
    lease_error: str = ""
    instances_renewed_at: float | None = None
    clock_ahead_seconds: float = 0.0

    @property
    def last_leader(self) -> OperatorState | None:
        """The operator whose Lease was renewed last."""
        return max(self.states, key=lambda one: one.renewed_at or 0.0, default=None)

    def leaders_or_last_leader(self, now: float) -> list[OperatorState]:
        """Return the operators that lead; without any, the one that led last."""
        alive = [one for one in self.states if one.is_leading(now)]
        return alive or ([self.last_leader] if self.last_leader else [])

    def are_instances_renewed(self, now: float) -> bool:
        """Return whether the cluster's instances are being renewed."""
        return (
            self.instances_renewed_at is not None
            and now - self.instances_renewed_at <= UNRENEWED_LIMIT_SECONDS
        )


def operator_state_from_lease(lease: Object, before: OperatorState | None = None) -> OperatorState:
    """Return the state of the operator that has a Lease, given its state some seconds ago, if known."""
    spec, metadata = lease.get("spec") or {}, lease["metadata"]
    renewed_at = _parse_time(spec.get("renewTime"))  # None: never, or by somebody who writes no time
    return OperatorState(
        qualified_name(lease),
        str(spec.get("holderIdentity") or ""),
        renewed_at,
        float(spec.get("leaseDurationSeconds") or 0),
        parse_lease_notes(metadata),
        before is not None and before.renewed_at != renewed_at,
    )


def describe_operators(snapshot: OperatorsSnapshot, now: float) -> Iterator[str]:
    """Yield lines on each operator's leader, and when each server was read, at a Unix time."""
    if ahead := snapshot.clock_ahead_seconds:
        now -= ahead
        side = "ahead of" if ahead > 0 else "behind"
        yield f"this machine's clock is {abs(ahead):.0f} s {side} the operator's, by which ages are counted"
    for one in snapshot.leaders_or_last_leader(now):
        notes = one.notes
        name = f"operator {notes.operator}" if notes.operator else "operator"
        who = f"{one.holder} leads" if one.is_leading(now) else "nobody leads"
        last = "" if one.is_leading(now) else f" by {one.holder}" if one.holder else ", and released"
        yield f"{name}: {who} by the Lease {one.lease_name}, renewed {_format_age(one.renewed_at, now)}{last}"
        if notes.cluster_name:
            is_watching_all = ALL_NAMESPACES in notes.watched_namespaces
            watched = "all namespaces" if is_watching_all else ", ".join(notes.watched_namespaces)
            watches = f", and watches {watched}" if watched else ""  # of a single pass nobody noted it
            yield f"  it calls the cluster {notes.cluster_name}{watches}"
        lapses = any(kind.renewals for kind in _registry_kinds(notes))
        if notes.cluster_name and not notes.is_cluster_name_given and lapses:
            yield (
                "  its settings do not give that name: started while the Kubernetes API does not answer, it"
                f" would renew nothing, and all its instances would lapse; set --cluster-name"
                f" {notes.cluster_name}"
            )
        for server in notes.server_notes:
            said = (
                f"failed: {server.error}"
                if server.error
                else f"answered {_format_age(_parse_time(server.answered_at), now)}"
            )
            since = _format_age(_parse_time(server.read_at), now)
            kind = registry_kind_of_url(server.url).name
            yield f"  {kind} {server.eureka} was read {since}; {server.url} {said}"
    if not snapshot.states:
        error = snapshot.lease_error
        why = f"its Lease cannot be read ({error})" if error else "it has no Lease"
        yield f"operator: {why}"
    if snapshot.instances_renewed_at is not None:
        yield f"its instances in Eureka were renewed {_format_age(snapshot.instances_renewed_at, now)}"


def operators_to_dict(snapshot: OperatorsSnapshot, now: float) -> list[dict[str, Any]]:
    now -= snapshot.clock_ahead_seconds
    return [
        {
            "lease": one.lease_name,
            "holder": one.holder,
            "isAlive": one.is_leading(now),
            "renewedSecondsAgo": None if one.renewed_at is None else round(now - one.renewed_at),
            "operator": one.notes.operator,
            "cluster": one.notes.cluster_name,
            "namespaces": list(one.notes.watched_namespaces),
            "servers": [
                {
                    "eureka": server.eureka,
                    "url": server.url,
                    "readAt": server.read_at or None,
                    "answeredAt": server.answered_at or None,
                    "error": server.error,
                }
                for server in one.notes.server_notes
            ],
        }
        for one in snapshot.states
    ]


def findings_about_operators(
    snapshot: OperatorsSnapshot, objects: Sequence[Object], now: float
) -> Iterator[StatusFinding]:
    """Yield findings, at a Unix time, about operators that do not serve these syncers or mirrors."""
    now -= snapshot.clock_ahead_seconds
    alive = [one for one in snapshot.states if one.is_leading(now)]
    if not alive and objects:
        yield from _findings_without_leader(snapshot, now)
    if alive and snapshot.instances_renewed_at is not None and not snapshot.are_instances_renewed(now):
        message = (
            f"{alive[0].holder} leads, and nobody has renewed the cluster's instances in Eureka for"
            f" {now - snapshot.instances_renewed_at:.0f} s: they lapse"
        )
        yield build_finding(Severity.FAULT, FindingName.INSTANCES_NOT_RENEWED, message)
    for one, other in combinations(alive, 2):
        shared = _describe_shared_namespaces(one.notes, other.notes)
        if shared:
            message = (
                f"two operators lead, by the Leases {one.lease_name} and {other.lease_name}, and both serve "
                f"{shared}: they change the same instances"
            )
            yield build_finding(Severity.WARNING, FindingName.TWO_OPERATORS, message)
    for one in alive:
        for server in one.notes.server_notes:
            read_at = _parse_time(server.read_at)
            if read_at is None or now - read_at > EUREKA_UNREAD_AFTER_SECONDS:
                when = _format_age(read_at, now)
                kind = registry_kind_of_url(server.url).name
                message = f"{one.holder} leads, and read the {kind} {server.eureka} {when}"
                yield build_finding(Severity.WARNING, FindingName.EUREKA_NOT_READ, message, (server.url,))
    if alive and all(one.notes.watched_namespaces for one in alive):
        yield from _findings_about_unwatched_objects(alive, objects)


def _findings_without_leader(snapshot: OperatorsSnapshot, now: float) -> Iterator[StatusFinding]:
    last = snapshot.last_leader
    led_at = last.renewed_at or 0.0 if last is not None else 0.0
    # What was renewed just before the leader ended does not show that somebody goes on.
    renewed_at = snapshot.instances_renewed_at or 0.0
    if snapshot.are_instances_renewed(now) and renewed_at > led_at + UNRENEWED_LIMIT_SECONDS:
        message = (
            "no Lease shows that an operator leads; somebody renews the cluster's instances all the same"
        )
        yield build_finding(Severity.NOTE, FindingName.OPERATOR_AWAY, message)
        return
    if snapshot.lease_error:
        return  # which is said as something that could not be read
    message = "no operator has a Lease in this cluster"
    if last is not None:
        who, when = last.holder or "a replica that released it", _format_age(last.renewed_at, now)
        message = f"no operator leads: the Lease {last.lease_name} was renewed {when} by {who}"
    ends = sorted(
        f"what is in {kind.name} {'lapses' if kind.renewals else 'stays, also when its pod has ended'}"
        for kind in _registry_kinds(last.notes if last is not None else LeaseNotes())
    )
    message += f": nothing is registered, renewed or removed, and {', '.join(ends)}"
    yield build_finding(Severity.FAULT, FindingName.OPERATOR_AWAY, message)


def _findings_about_unwatched_objects(
    alive: Iterable[OperatorState], objects: Iterable[Object]
) -> Iterator[StatusFinding]:
    watched = {namespace for one in alive for namespace in one.notes.watched_namespaces}
    if ALL_NAMESPACES in watched:
        return
    left = [one for one in objects if one["metadata"]["namespace"] not in watched]
    if left:
        message = (
            f"no operator that runs watches their namespaces ({', '.join(sorted(watched))} are watched):"
            f" {format_count(len(left), 'object')} that nobody serves, whatever their status says"
        )
        yield build_finding(
            Severity.FAULT, FindingName.NAMESPACE_NOT_WATCHED, message, [qualified_name(one) for one in left]
        )


def _registry_kinds(notes: LeaseNotes) -> set[RegistryKind]:
    """Return the kinds of an operator's registries; Eureka's where it noted none."""
    return {registry_kind_of_url(server.url) for server in notes.server_notes} or {EUREKA}


def _describe_shared_namespaces(one: LeaseNotes, other: LeaseNotes) -> str:
    if not one.watched_namespaces or not other.watched_namespaces:
        return "perhaps the same namespaces"
    for all_of, some in ((one, other), (other, one)):
        if ALL_NAMESPACES in all_of.watched_namespaces:
            watched = some.watched_namespaces
            return "all namespaces" if ALL_NAMESPACES in watched else ", ".join(watched)
    return ", ".join(sorted({*one.watched_namespaces} & {*other.watched_namespaces}))


def _format_age(at: float | None, now: float) -> str:
    return "never" if at is None else f"{max(0.0, now - at):.0f} s ago"


def _parse_time(stamp: object) -> float | None:
    found = parse_api_time(stamp)
    return found.timestamp() if found else None
