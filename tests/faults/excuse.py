"""Excuses of a fault: one kind of judgement, at one place, from its beginning to a margin after its end.

Nothing else excuses anything. A fault that names a server excuses nothing at the others, and one that befalls
the operators of a cluster nothing of another cluster's instances.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from eurekube_provider.core.brake import HOLD_SECONDS
from eurekube_provider.core.drain_time import Drain
from eurekube_provider.eureka import windows
from eurekube_provider.kube.reflector import LONGEST_DELAY_SECONDS
from tests.faults.operators import LEASE_SECONDS, RETRY_SECONDS

Syncer = tuple[str, str]

PROMPT_SECONDS = Drain().margin_seconds + Drain().replication_seconds
"""Time for a removal in the drain's sum where a leader is at work: its margin, and from one server to its
peers. By then a pod that is gone must be UP at no server that can be reached."""

KNOWLEDGE_SECONDS = 5.0
"""An instance that was wanted, then not, then again may be removed once more for this long, by a request that
was right when it was sent."""

TAKE_OVER_SECONDS = LEASE_SECONDS + RETRY_SECONDS
"""By then another replica leads."""

START_SECONDS = 20.0
"""From an operator's launch until it is at work."""

RELIST_SECONDS = 5.0
"""From the end of watches that broke until they stand again."""

RETURN_SECONDS = LONGEST_DELAY_SECONDS + TAKE_OVER_SECONDS
"""From the return of an API server until a leader knows: the reflectors' longest delay, and the Lease."""

FOUND_SECONDS = windows.AVOIDED + 5.0
"""From the return of a Eureka server until the operator asks it again, and has sent it what it
missed."""

FORWARDED_SECONDS = 30.0
"""For as long Eureka servers go on trying to tell their peers what those missed."""

RENEWED_SECONDS = 50.0
"""By then each server has had a renewal of each instance, and with it a change that it missed: one comes
every 25 s, and not to all of them at a time."""


SWEPT_AFTER_SECONDS = windows.SWEEP[-1] + 3.0
"""By then after its removal an instance that came back is removed again."""


class Explains(StrEnum):
    """The judgement that an excuse concerns."""

    LOSS = "what was asked for again went once more"
    STAY = "what is gone stayed UP"
    UNREADY = "what is not ready stayed UP"


@dataclass(frozen=True, slots=True)
class Excuse:
    """An excuse with its place; what is not said means everywhere.

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
    """An excuse that a fault gives, and when; times are those of ``time.monotonic()``.

    :param ended: when the fault was over; never as long as it is on.
    """

    fault: str
    excuse: Excuse
    began: float
    ended: float = math.inf

    @property
    def until(self) -> float:
        """When it excuses nothing any more."""
        return min(self.ended, self.began + self.excuse.longest_seconds) + self.excuse.margin_seconds

    def is_for(self, explains: Explains, server: int, cluster: str, syncer: Syncer | None) -> bool:
        """Return whether it excuses this judgement at this place."""
        mine = self.excuse
        return (
            mine.explains is explains
            and mine.server in (None, server)
            and mine.cluster in (None, cluster)
            and mine.syncer in (None, syncer)
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """Until when something may be so, and the faults that gave it more than its patience."""

    until: float
    faults: tuple[str, ...] = ()


def allowance(began: float, patience_seconds: float, spans: Iterable[Span]) -> Allowance:
    """How long what began then may go on: its patience, counted again from the end of each excuse in its way.

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
    """Return the excuse that follows from the operator's own word that it holds a syncer's removals back."""
    return tuple(
        Excuse(one, cluster=cluster, syncer=syncer, longest_seconds=HOLD_SECONDS)
        for one in (Explains.STAY, Explains.UNREADY)
    )


def without_leader(cluster: str) -> tuple[Excuse, ...]:
    """The leader is gone, and another replica takes over."""
    return tuple(Excuse(one, cluster=cluster, longest_seconds=TAKE_OVER_SECONDS) for one in Explains)


def without_operators(cluster: str) -> tuple[Excuse, ...]:
    """No operator is there until the fault's end, and then they start."""
    margin = START_SECONDS + TAKE_OVER_SECONDS
    return tuple(Excuse(one, cluster=cluster, margin_seconds=margin) for one in Explains)


def without_source(cluster: str, margin_seconds: float) -> tuple[Excuse, ...]:
    """The operators of a cluster do not hear what happens there."""
    return tuple(Excuse(one, cluster=cluster, margin_seconds=margin_seconds) for one in Explains)


def without_server(number: int) -> tuple[Excuse, ...]:
    """Clients cannot use a server. It may carry out later, and tell the others, what was right before.

    It may also have taken a change of which it tells nobody. A removal is asked after everywhere.
    """
    return (
        Excuse(Explains.STAY, server=number, margin_seconds=FOUND_SECONDS),
        Excuse(Explains.LOSS, margin_seconds=FOUND_SECONDS),
        Excuse(Explains.UNREADY, margin_seconds=RENEWED_SECONDS),
    )


def without_peers() -> tuple[Excuse, ...]:
    """Servers do not tell each other what they hear from clients. A removal is asked after everywhere.

    A renewal that a server could not tell the others comes before the removal when it reaches them again:
    they do not know the instance, and it registers it there.
    """
    return (
        Excuse(Explains.STAY, margin_seconds=SWEPT_AFTER_SECONDS - PROMPT_SECONDS),
        Excuse(Explains.LOSS, margin_seconds=FORWARDED_SECONDS),
        Excuse(Explains.UNREADY, margin_seconds=RENEWED_SECONDS),
    )


class Excuses:
    """Those that were given so far; any thread may ask.

    :param slack: multiplies the margins, for a machine that others load.
    """

    def __init__(self, slack: float = 1.0) -> None:
        self.slack = slack
        self.used: Counter[str] = Counter()
        """How often each fault has excused something."""

        self._lock = threading.Lock()
        self._spans: dict[int, Span] = {}

    def give(self, fault: str, excuses: Iterable[Excuse], now: float) -> list[int]:
        """A fault begins; the numbers are for :meth:`end`."""
        numbers = []
        with self._lock:
            for one in excuses:
                scaled = replace(one, margin_seconds=one.margin_seconds * self.slack)
                numbers.append(len(self._spans))
                self._spans[numbers[-1]] = Span(fault, scaled, now)
        return numbers

    def end(self, numbers: Iterable[int], now: float) -> None:
        """The fault is over."""
        with self._lock:
            for number in numbers:
                self._spans[number] = replace(self._spans[number], ended=now)

    def of(self, explains: Explains, server: int, cluster: str, syncer: Syncer | None) -> list[Span]:
        """Those for a judgement at a place."""
        with self._lock:
            spans = list(self._spans.values())
        return [one for one in spans if one.is_for(explains, server, cluster, syncer)]
