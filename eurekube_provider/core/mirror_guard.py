"""The guard keeps endpoints that vanished from Eureka's lists until their end is proved, or for some time.

A list that lacks an instance proves little: it may be that of a server which was restarted, or which never
heard of the instance. So what was called a moment ago goes on to be called until a server says that it was
deregistered or evicted, or no server has it. Where nobody can say so, it goes after a time all the same: a
mirror that never forgets sends calls to addresses that are somebody else's by then.

Absence proves something only at a server that once held the instance. So what came from another Eureka than
the one that is read now waits for a person, or until it is seen here. And what would take all endpoints of an
application, or most of many, by absence alone waits much longer: behind the same URL there may be another
Eureka than before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from eurekube_provider.core.mirror_endpoints import Mapped, MirrorEndpoint

FEWEST = 10
"""Of so many ready endpoints most must not go at once by absence alone; of fewer, all."""

BRAKE_SECONDS = 1800.0
"""For as long they wait while the same Eureka is read without a gap: its clients have registered by then."""


@dataclass(frozen=True, slots=True)
class Unlisted:
    """The knowledge of instances that are shown and that Eureka does not list.

    :ivar gone: the ids of those of which it is proved that they left.
    :ivar absent: the ids of those of ``gone`` of which absence alone proves it.
    :ivar held_since: :attr:`GuardVerdict.held` of the last time.
    :ivar source: the servers that are read; empty where nobody can name them.
    :ivar is_released: True if a person says that the removals are meant.
    """

    gone: Collection[str] = ()
    absent: Collection[str] = ()
    held_since: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    is_released: bool = False


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The endpoints that a mirror shall show, with those that are kept although Eureka lists them no more.

    :ivar held: since when each instance is kept that Eureka does not list, by its id.
    :ivar expired: the ids of those that were kept for long enough, and go now.
    :ivar braked: the ids of those of ``held`` that would go by absence alone, were they not all or most.
    :ivar elsewhere: the ids of those of ``held`` that came from another Eureka, each with its servers.
    :ivar released: the ids of those that a person let go.
    """

    endpoints: tuple[MirrorEndpoint, ...]
    held: Mapping[str, float]
    expired: tuple[str, ...] = ()
    braked: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    released: tuple[str, ...] = ()


def guarded(
    mapped: Mapped,
    shown: Iterable[MirrorEndpoint],
    unlisted: Unlisted,
    now: float,
    hold_seconds: float,
) -> GuardVerdict:
    """Decide which of the endpoints that are shown stay beside those that Eureka lists.

    :param now: by any clock that only grows, in seconds; ``unlisted.held_since`` is by the same one.
    """
    places = {(one.group, one.address): one for one in mapped.endpoints}
    proved = set(unlisted.gone).difference(unlisted.absent)
    doubted: list[MirrorEndpoint] = []
    foreign: list[MirrorEndpoint] = []
    for one in shown:
        place = (one.group, one.address)
        if place in places:
            continue
        if one.instance_id in mapped.unresolved:
            places[place] = replace(one, is_ready=mapped.unresolved[one.instance_id], source="")
        elif one.instance_id and not (
            one.instance_id in mapped.known or one.instance_id in proved or not one.is_ready
        ):
            (foreign if one.is_from_elsewhere(unlisted.source) else doubted).append(one)
    ready = sum(one.is_ready for one in places.values())
    is_braked = bool(doubted) and is_too_much(len(doubted), ready + len(doubted))
    since = unlisted.held_since
    held: dict[str, float] = {}
    expired: dict[str, None] = {}
    braked: dict[str, None] = {}
    released: dict[str, None] = {}
    for one in doubted:
        key = one.instance_id
        began = since.get(key, now)
        if is_braked and unlisted.is_released:
            released[key] = None
            continue
        if is_braked and now - began < max(hold_seconds, BRAKE_SECONDS):
            braked[key] = None
        elif key in unlisted.absent and not is_braked:
            continue
        elif now - began >= hold_seconds:
            expired[key] = None
            continue
        held[key] = began
        places[one.group, one.address] = replace(one, source="")
    elsewhere: dict[str, str] = {}
    for one in foreign:
        if unlisted.is_released:
            released[one.instance_id] = None
        else:
            elsewhere[one.instance_id] = one.source
            held[one.instance_id] = now  # nothing comes nearer to its removal
            places[one.group, one.address] = one
    return GuardVerdict(
        tuple(places.values()), held, tuple(expired), tuple(braked), elsewhere, tuple(released)
    )


def restored(mapped: Mapped, shown: Iterable[MirrorEndpoint], source: str) -> GuardVerdict:
    """Decide what is shown while Eureka does not answer: all that is, and of its last list what lacks.

    :param source: the servers that were read.
    """
    places = {(one.group, one.address): one for one in mapped.endpoints}
    for one in shown:
        if one.instance_id:
            is_foreign = one.is_from_elsewhere(source)
            places[one.group, one.address] = one if is_foreign else replace(one, source="")
    return GuardVerdict(tuple(places.values()), {})


def is_too_much(doubted: int, ready: int) -> bool:
    """Return whether so much goes by absence alone that Eureka itself is in doubt.

    :param doubted: how many endpoints would go.
    :param ready: how many are ready before, these included.
    """
    return doubted >= ready or (ready >= FEWEST and 2 * doubted > ready)


def vanished(shown: Iterable[MirrorEndpoint], listed: Collection[str], source: str = "") -> list[str]:
    """The ids of instances that are called and that Eureka does not list: proof is needed of their end.

    :param source: the servers that are read: of what came from elsewhere they can prove nothing.
    """
    return sorted(
        {
            one.instance_id
            for one in shown
            if one.is_ready
            and one.instance_id
            and one.instance_id not in listed
            and not one.is_from_elsewhere(source)
        }
    )
