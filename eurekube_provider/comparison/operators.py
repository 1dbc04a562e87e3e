"""The operators of a cluster, as their Leases and Eureka show them: who leads, and faults such as no leader,
two operators for one namespace, or syncers that no operator watches. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

from eurekube_provider.comparison.findings import Severity, StatusFinding, finding
from eurekube_provider.comparison.seen_remedies import FindingName
from eurekube_provider.core.lease_notes import ALL_NAMESPACES, LeaseNotes, read_notes
from eurekube_provider.core.objects import Object, qualified
from eurekube_provider.core.served import LEASE_SECONDS
from eurekube_provider.core.wording import counted

CLOCKS_DIFFER_SECONDS = 60.0
"""Seconds by which the clocks of two machines may differ, when a Lease is judged by its own times."""

NOT_READ_SECONDS = 90.0
"""Seconds after which a Eureka counts as not read: a leader reads each one several times a minute."""


@dataclass(frozen=True, slots=True)
class OperatorState:
    """One operator, as its Lease shows it.

    :ivar lease: the namespace and name of the Lease.
    :ivar holder: the identity of the holder; empty for none.
    :ivar renewed_at: the time of the Lease's last renewal, as Unix time.
    :ivar was_seen_renewed: True if the Lease was renewed between two reads, whatever the clocks say.
    """

    lease: str
    holder: str
    renewed_at: float | None
    duration_seconds: float
    notes: LeaseNotes
    was_seen_renewed: bool = False

    def is_alive(self, now: float) -> bool:
        """Return whether the holder of the Lease still leads."""
        if not self.holder or self.renewed_at is None:
            return False
        return self.was_seen_renewed or abs(now - self.renewed_at) <= self.duration_seconds

    def may_be_alive(self, now: float) -> bool:
        """Return whether a second read is needed to know that the holder leads, since clocks may differ."""
        if not self.holder or self.renewed_at is None or self.is_alive(now):
            return False
        return abs(now - self.renewed_at) <= self.duration_seconds + CLOCKS_DIFFER_SECONDS


@dataclass(frozen=True, slots=True)
class OperatorsRead:
    """The cluster's operators, as far as they could be read.

    :ivar error: the reason why their Leases could not be read; empty where they were read.
    :ivar renewed_at: the last renewal of one of the cluster's instances, as Unix time; None without
        instances, or where no server gives the time.
    """

    states: tuple[OperatorState, ...] = ()
    error: str = ""
    renewed_at: float | None = None

    @property
    def last(self) -> OperatorState | None:
        """The operator whose Lease was renewed last."""
        return max(self.states, key=lambda one: one.renewed_at or 0.0, default=None)

    def shown(self, now: float) -> list[OperatorState]:
        """Return the operators that lead; without any, the one that led last."""
        alive = [one for one in self.states if one.is_alive(now)]
        return alive or ([self.last] if self.last else [])

    def is_renewed(self, now: float) -> bool:
        """Return whether the cluster's instances are being renewed."""
        return self.renewed_at is not None and now - self.renewed_at <= LEASE_SECONDS


def operator_of(lease: Object, before: OperatorState | None = None) -> OperatorState:
    """Return the state of the operator that has a Lease.

    :param before: the state some seconds ago, from the same Lease.
    """
    spec, metadata = lease.get("spec") or {}, lease["metadata"]
    renewed_at = None
    with suppress(ValueError):  # it was never renewed, or by somebody who writes no time
        renewed_at = datetime.fromisoformat(str(spec.get("renewTime"))).timestamp()
    return OperatorState(
        qualified(lease),
        str(spec.get("holderIdentity") or ""),
        renewed_at,
        float(spec.get("leaseDurationSeconds") or 0),
        read_notes(metadata),
        before is not None and before.renewed_at != renewed_at,
    )


def operator_lines(read: OperatorsRead, now: float) -> Iterator[str]:
    """Yield lines for a person: each operator's leader, and when each server was read.

    :param now: Unix time.
    """
    for one in read.shown(now):
        notes = one.notes
        name = f"operator {notes.operator}" if notes.operator else "operator"
        who = f"{one.holder} leads" if one.is_alive(now) else "nobody leads"
        last = "" if one.is_alive(now) else f" by {one.holder}" if one.holder else ", and released"
        yield f"{name}: {who} by the Lease {one.lease}, renewed {_ago(one.renewed_at, now)}{last}"
        if notes.cluster_name:
            watched = "all namespaces" if ALL_NAMESPACES in notes.namespaces else ", ".join(notes.namespaces)
            yield f"  it calls the cluster {notes.cluster_name}, and watches {watched}"
        if notes.cluster_name and not notes.is_name_given:
            yield (
                "  its settings do not give that name: started while the Kubernetes API does not answer, it"
                f" would renew nothing, and all its instances would lapse; set --cluster-name"
                f" {notes.cluster_name}"
            )
        for server in notes.servers:
            said = (
                f"failed: {server.error}" if server.error else f"answered {_since(server.answered_at, now)}"
            )
            yield f"  Eureka {server.eureka} was read {_since(server.read_at, now)}; {server.url} {said}"
    if not read.states:
        why = f"its Lease cannot be read ({read.error})" if read.error else "it has no Lease"
        yield f"operator: {why}"
    if read.renewed_at is not None:
        yield f"its instances in Eureka were renewed {max(0.0, now - read.renewed_at):.0f} s ago"


def operators_to_dict(read: OperatorsRead, now: float) -> list[dict[str, Any]]:
    """Return the operators as JSON values."""
    return [
        {
            "lease": one.lease,
            "holder": one.holder,
            "isAlive": one.is_alive(now),
            "renewedSecondsAgo": None if one.renewed_at is None else round(now - one.renewed_at),
            "operator": one.notes.operator,
            "cluster": one.notes.cluster_name,
            "namespaces": list(one.notes.namespaces),
            "servers": [
                {
                    "eureka": server.eureka,
                    "url": server.url,
                    "readAt": server.read_at or None,
                    "answeredAt": server.answered_at or None,
                    "error": server.error,
                }
                for server in one.notes.servers
            ],
        }
        for one in read.states
    ]


def findings_of_operators(
    read: OperatorsRead, objects: Sequence[Object], now: float
) -> Iterator[StatusFinding]:
    """Yield findings about operators that do not serve syncers or mirrors.

    :param objects: the cluster's syncers and mirrors.
    :param now: Unix time.
    """
    alive = [one for one in read.states if one.is_alive(now)]
    if not alive and objects:
        yield from _nobody_leads(read, now)
    if alive and read.renewed_at is not None and not read.is_renewed(now):
        message = (
            f"{alive[0].holder} leads, and nobody has renewed the cluster's instances in Eureka for"
            f" {now - read.renewed_at:.0f} s: they lapse"
        )
        yield finding(Severity.FAULT, FindingName.NOT_RENEWED, message)
    for one, other in combinations(alive, 2):
        shared = _shared(one.notes, other.notes)
        if shared:
            message = (
                f"two operators lead, by the Leases {one.lease} and {other.lease}, and both serve {shared}:"
                " they change the same instances"
            )
            yield finding(Severity.WARNING, FindingName.OPERATOR_TWICE, message)
    for one in alive:
        for server in one.notes.servers:
            seconds = _seconds_since(server.read_at, now)
            if seconds is None or seconds > NOT_READ_SECONDS:
                when = _since(server.read_at, now)
                message = f"{one.holder} leads, and read the Eureka {server.eureka} {when}"
                yield finding(Severity.WARNING, FindingName.EUREKA_NOT_READ, message, (server.url,))
    if alive and all(one.notes.namespaces for one in alive):
        yield from _not_watched(alive, objects)


def _nobody_leads(read: OperatorsRead, now: float) -> Iterator[StatusFinding]:
    last = read.last
    led_at = last.renewed_at or 0.0 if last is not None else 0.0
    # What was renewed just before the leader ended does not show that somebody goes on.
    if read.renewed_at is not None and read.is_renewed(now) and read.renewed_at > led_at + LEASE_SECONDS:
        message = (
            "no Lease shows that an operator leads; somebody renews the cluster's instances all the same"
        )
        yield finding(Severity.NOTE, FindingName.OPERATOR_AWAY, message)
        return
    if read.error:
        return  # which is said as something that could not be read
    message = "no operator has a Lease in this cluster"
    if last is not None:
        who, when = last.holder or "a replica that released it", _ago(last.renewed_at, now)
        message = f"no operator leads: the Lease {last.lease} was renewed {when} by {who}"
    message += ": nothing is registered, renewed or removed, and what is in Eureka lapses"
    yield finding(Severity.FAULT, FindingName.OPERATOR_AWAY, message)


def _not_watched(alive: Iterable[OperatorState], objects: Iterable[Object]) -> Iterator[StatusFinding]:
    watched = {namespace for one in alive for namespace in one.notes.namespaces}
    if ALL_NAMESPACES in watched:
        return
    left = [one for one in objects if one["metadata"]["namespace"] not in watched]
    if left:
        message = (
            f"no operator that runs watches their namespaces ({', '.join(sorted(watched))} are watched):"
            f" {counted(len(left), 'object')} that nobody serves, whatever their status says"
        )
        yield finding(Severity.FAULT, FindingName.NOT_WATCHED, message, [qualified(one) for one in left])


def _shared(one: LeaseNotes, other: LeaseNotes) -> str:
    """Return the namespaces that two operators both watch, as text."""
    if not one.namespaces or not other.namespaces:
        return "perhaps the same namespaces"
    for all_of, some in ((one, other), (other, one)):
        if ALL_NAMESPACES in all_of.namespaces:
            return "all namespaces" if ALL_NAMESPACES in some.namespaces else ", ".join(some.namespaces)
    return ", ".join(sorted({*one.namespaces} & {*other.namespaces}))


def _ago(at: float | None, now: float) -> str:
    return "never" if at is None else f"{max(0.0, now - at):.0f} s ago"


def _seconds_since(stamp: str, now: float) -> float | None:
    try:
        return now - datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def _since(stamp: str, now: float) -> str:
    seconds = _seconds_since(stamp, now)
    return "never" if seconds is None else f"{max(0.0, seconds):.0f} s ago"
