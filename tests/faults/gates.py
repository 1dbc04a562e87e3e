"""Judgements on readiness gates, as pure functions of two readings of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eurekube_provider.core.drain_time import CALLERS_RETURN_TO_SERVER_SECONDS
from eurekube_provider.core.syncer import READINESS_GATE
from tests.faults.excuse import Span
from tests.faults.expected import Key, Objects, conditions, declares_gate, named
from tests.faults.judgement import Wishes

CALLERS_SECONDS = 10
"""Seconds that callers need to learn of a pod, by the syncers of the storm: their caches are short.

Longer than the five seconds between two readings of a gate, so that a gate that waits for a reading alone is
seen to open too early.
"""

LEARN_SECONDS = CALLERS_SECONDS - 1.5
"""Seconds for which each server must have shown a pod whose gate opens.

A leader that goes on from another one's record has the time to a second.
"""

SETTLED_SECONDS = 10.0
"""Seconds for which another pod must have been ready and wanted, so that a gate must wait for callers: a
decision of before may be written for :data:`~eurekube_provider.operator.gates.LONGEST_SILENCE_SECONDS`.
"""

LATE_SECONDS = 20.0
"""Seconds by which a gate may open late: a registration, a leader's first decision, and a reading every five
seconds.
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """The readiness gate of one pod, by the readings so far; times in ``time.monotonic()``.

    :param opened_at: when a reading first showed it open; None while it is closed.
    :param waits_since: since when only the gate keeps the pod from being ready; None if it does not.
    """

    pod: tuple[str, str]
    opened_at: float | None
    waits_since: float | None


Gates = Mapping[str, Gate]
"""Gates by the UIDs of their pods."""


def gates_of(objects: Objects, before: Gates, began: float) -> dict[str, Gate]:
    """Return the gates after one more reading of their cluster, which began at a given time."""
    waiting, found = objects.waiting, {}
    for pod in filter(declares_gate, objects.pods):
        uid = str(pod["metadata"]["uid"])
        known = before.get(uid, Gate(named(pod), None, None))
        is_open = conditions(pod).get(READINESS_GATE) == "True"
        found[uid] = Gate(
            named(pod),
            _since(known.opened_at, began, holds=is_open),
            _since(known.waits_since, began, holds=named(pod) in waiting and not is_open),
        )
    return found


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now if before is None else before


def opened(before: Gates, now: Gates) -> list[Gate]:
    """Return the gates that opened between two readings."""
    return [
        one
        for uid, one in now.items()
        if one.opened_at is not None and (uid not in before or before[uid].opened_at is None)
    ]


def closed(before: Gates, now: Gates) -> list[Gate]:
    """Return the gates that were open and are not any more, which nobody may do."""
    return [
        one
        for uid, one in now.items()
        if one.opened_at is None and uid in before and before[uid].opened_at is not None
    ]


def instance_that_callers_must_know(
    gate: Gate, gates: Gates, wishes: Wishes, cluster_name: str, now: float
) -> Key | None:
    """Return the instance of a pod if callers had another pod of its syncer, so that its gate had to wait."""
    settled_at = now - SETTLED_SECONDS
    ready = {one.pod for one in gates.values() if one.opened_at is not None and one.opened_at <= settled_at}

    def key_of(pod: tuple[str, str]) -> Key | None:
        start = f"{pod[1]}.{pod[0]}.{cluster_name}:"
        return next((key for key in wishes.since if key[1].startswith(start)), None)

    mine = key_of(gate.pod)
    if mine is None:
        return None
    for key in filter(None, map(key_of, ready - {gate.pod})):
        if wishes.now[key].syncer == wishes.now[mine].syncer and wishes.since[key] <= settled_at:
            return mine
    return None


def must_be_open_at(since: float, slack: float, spans: Iterable[Span]) -> float:
    """Return the time at which a gate must be open if only it has kept its pod from being ready.

    :param since: since when it has, without a fault meanwhile.
    :param spans: the times at which a server was away, whose callers come back as late as it was.
    """
    ends = (one.until + min(one.ended - one.began, CALLERS_RETURN_TO_SERVER_SECONDS) for one in spans)
    return max([since, *ends]) + (CALLERS_SECONDS + LATE_SECONDS) * slack
