"""Excuses of faults: each covers one kind of judgement at one place, from the fault's beginning to a margin
after its end.

Nothing else is excused. A fault of one server excuses nothing at the others, and a fault of one cluster's
operators nothing about another cluster's instances.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from eurekube_provider.core.brake import BRAKE_HOLD_SECONDS
from eurekube_provider.core.drain_time import Drain
from eurekube_provider.eureka import windows
from eurekube_provider.kube.reflector import LONGEST_RETRY_DELAY_SECONDS
from tests.faults.operators import LEASE_SECONDS, RETRY_SECONDS

Syncer = tuple[str, str]

PROMPT_SECONDS = Drain().margin_seconds + Drain().replication_seconds
"""Longest time in seconds until a removed pod is UP at no reachable server, with a leader at work: the
drain's margin and its time for replication.
"""

KNOWLEDGE_SECONDS = 5.0
"""Seconds for which an instance that was wanted, unwanted and wanted again may be removed again, by a
request that was right when it was sent.
"""

TAKE_OVER_SECONDS = LEASE_SECONDS + RETRY_SECONDS
"""Seconds until another replica leads."""

START_SECONDS = 20.0
"""Seconds from an operator's launch until it is at work."""

RELIST_SECONDS = 5.0
"""Seconds from the end of a break of watches until they work again."""

RETURN_SECONDS = LONGEST_RETRY_DELAY_SECONDS + TAKE_OVER_SECONDS
"""Seconds from the return of an API server until a leader works: the reflectors' longest delay, and the
Lease.
"""

FOUND_SECONDS = windows.AVOID_SERVER_SECONDS + 5.0
"""Seconds from the return of a Eureka server until the operator uses it again, and has sent it the missed
changes.
"""

FORWARDED_SECONDS = 30.0
"""Seconds for which Eureka servers try to forward changes to a peer that missed them."""

RENEWED_SECONDS = 50.0
"""Seconds until each server has had a renewal of each instance, and with it a missed change: one is sent
every 25 s, not to all servers at a time.
"""


SWEPT_AFTER_SECONDS = windows.REMOVAL_CHECKS_AFTER_SECONDS[-1] + 3.0
"""Seconds after its removal until an instance that came back is removed again."""


class Explains(StrEnum):
    """The kind of judgement that an excuse concerns."""

    LOSS = "what was asked for again went once more"
    STAY = "what is gone stayed UP"
    UNREADY = "what is not ready stayed UP"
    GATE = "a gate opened without the server, or waited for its callers"


_OF_INSTANCES = (Explains.LOSS, Explains.STAY, Explains.UNREADY)
"""Kinds of judgement that faults of operators and clusters concern: no such fault excuses an open gate."""


@dataclass(frozen=True, slots=True)
class Excuse:
    """An excuse for one kind of judgement; a place that is None means everywhere.

    :param server: the number of a Eureka server.
    :param cluster: the name of the cluster whose instances these are.
    :param syncer: namespace and name of the syncer that registered them.
    :param margin_seconds: for how long after the fault's end.
    :param longest_seconds: from the fault's beginning, however long it lasts, the margin not included.
    """

    explains: Explains
    server: int | None = None
    cluster: str | None = None
    syncer: Syncer | None = None
    margin_seconds: float = 0.0
    longest_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Span:
    """An excuse of a fault, with its times in ``time.monotonic()``.

    :param ended: when the fault was over; infinite while it is active.
    """

    fault: str
    excuse: Excuse
    began: float
    ended: float = math.inf

    @property
    def until(self) -> float:
        """The time at which the excuse ends."""
        return min(self.ended, self.began + self.excuse.longest_seconds) + self.excuse.margin_seconds

    def is_for(self, explains: Explains, server: int, cluster: str, syncer: Syncer | None) -> bool:
        """Return whether the excuse covers this judgement at this place."""
        mine = self.excuse
        return (
            mine.explains is explains
            and mine.server in (None, server)
            and mine.cluster in (None, cluster)
            and mine.syncer in (None, syncer)
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """The time until which a deviation is allowed, and the faults that prolonged it."""

    until: float
    faults: tuple[str, ...] = ()


def allowance(began: float, patience_seconds: float, spans: Iterable[Span]) -> Allowance:
    """Return how long a deviation that began then may last: its patience, counted anew from the end of each
    overlapping excuse.

    :param spans: the excuses for this judgement at this place.
    """
    until = began + patience_seconds
    faults: list[str] = []
    for span in sorted(spans, key=lambda one: one.began):
        if span.began <= until and began <= span.until:
            until = max(until, span.until + patience_seconds)
            faults.append(span.fault)
    return Allowance(until, tuple(faults))


def brake_holds(cluster: str, syncer: Syncer) -> tuple[Excuse, ...]:
    """Return the excuses for a syncer whose operator has logged that it holds removals back, or keeps the
    syncer of a Service that left.
    """
    return tuple(
        Excuse(one, cluster=cluster, syncer=syncer, longest_seconds=BRAKE_HOLD_SECONDS)
        for one in (Explains.STAY, Explains.UNREADY)
    )


def without_leader(cluster: str) -> tuple[Excuse, ...]:
    """Return the excuses while the leader is gone and another replica takes over."""
    return tuple(Excuse(one, cluster=cluster, longest_seconds=TAKE_OVER_SECONDS) for one in _OF_INSTANCES)


def without_operators(cluster: str) -> tuple[Excuse, ...]:
    """Return the excuses while no operator runs, until one has started."""
    margin = START_SECONDS + TAKE_OVER_SECONDS
    return tuple(Excuse(one, cluster=cluster, margin_seconds=margin) for one in _OF_INSTANCES)


def without_source(cluster: str, margin_seconds: float) -> tuple[Excuse, ...]:
    """Return the excuses while a cluster's operators hear nothing of its changes."""
    return tuple(Excuse(one, cluster=cluster, margin_seconds=margin_seconds) for one in _OF_INSTANCES)


def without_server(number: int) -> tuple[Excuse, ...]:
    """Return the excuses while clients cannot use a server.

    The server may carry out old requests later and forward them, or hold changes that it has not forwarded.
    Removals are affected at every server.
    """
    return (
        Excuse(Explains.STAY, server=number, margin_seconds=FOUND_SECONDS),
        Excuse(Explains.LOSS, margin_seconds=FOUND_SECONDS),
        Excuse(Explains.UNREADY, margin_seconds=RENEWED_SECONDS),
        Excuse(Explains.GATE, server=number, margin_seconds=FOUND_SECONDS),
    )


def without_peers() -> tuple[Excuse, ...]:
    """Return the excuses while servers do not replicate to each other.

    A renewal that could not be forwarded is forwarded later, before the removal: peers that do not know the
    instance then register it.
    """
    return (
        Excuse(Explains.STAY, margin_seconds=SWEPT_AFTER_SECONDS - PROMPT_SECONDS),
        Excuse(Explains.LOSS, margin_seconds=FORWARDED_SECONDS),
        Excuse(Explains.UNREADY, margin_seconds=RENEWED_SECONDS),
    )


class Excuses:
    """All excuses that faults have given; any thread may use them.

    :param slack: multiplies the margins, for a machine that others load.
    """

    def __init__(self, slack: float = 1.0) -> None:
        self.slack = slack
        self.used: Counter[str] = Counter()
        """The number of deviations that each fault has excused."""

        self._lock = threading.Lock()
        self._spans: dict[int, Span] = {}

    def give(self, fault: str, excuses: Iterable[Excuse], now: float) -> list[int]:
        """Add the excuses of a fault that begins; return their numbers for :meth:`end`."""
        numbers = []
        with self._lock:
            for one in excuses:
                scaled = replace(one, margin_seconds=one.margin_seconds * self.slack)
                numbers.append(len(self._spans))
                self._spans[numbers[-1]] = Span(fault, scaled, now)
        return numbers

    def end(self, numbers: Iterable[int], now: float) -> None:
        """End the excuses with these numbers."""
        with self._lock:
            for number in numbers:
                self._spans[number] = replace(self._spans[number], ended=now)

    def of(self, explains: Explains, server: int, cluster: str, syncer: Syncer | None) -> list[Span]:
        """Return the excuses that cover a judgement at a place."""
        with self._lock:
            spans = list(self._spans.values())
        return [one for one in spans if one.is_for(explains, server, cluster, syncer)]
