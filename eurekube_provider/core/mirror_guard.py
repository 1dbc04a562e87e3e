"""The guard keeps endpoints that vanished from Eureka's lists until their end is proved, or for some time.

A list that lacks an instance proves little: it may be that of a server which was restarted, or which never
heard of the instance. So what was called a moment ago goes on to be called until a server says that it was
deregistered or evicted, or no server has it. Where nobody can say so, it goes after a time all the same: a
mirror that never forgets sends calls to addresses that are somebody else's by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from eurekube_provider.core.mirror_endpoints import Mapped, MirrorEndpoint


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The endpoints that a mirror shall show, with those that are kept although Eureka lists them no more.

    :ivar held: since when each instance is kept that Eureka does not list, by its id.
    :ivar expired: the ids of those that were kept for long enough, and go now.
    """

    endpoints: tuple[MirrorEndpoint, ...]
    held: Mapping[str, float]
    expired: tuple[str, ...] = ()


def guarded(
    mapped: Mapped,
    shown: Iterable[MirrorEndpoint],
    gone: Collection[str],
    held_since: Mapping[str, float],
    now: float,
    hold_seconds: float,
) -> GuardVerdict:
    """Decide which of the endpoints that are shown stay beside those that Eureka lists.

    :param gone: the ids of instances of which it is proved that they left Eureka.
    :param held_since: :attr:`GuardVerdict.held` of the last time.
    :param now: by any clock that only grows, in seconds; ``held_since`` is by the same one.
    """
    places = {(one.group, one.address): one for one in mapped.endpoints}
    held: dict[str, float] = {}
    expired: dict[str, None] = {}
    for one in shown:
        place = (one.group, one.address)
        if place in places:
            continue
        if one.instance_id in mapped.unresolved:
            places[place] = replace(one, is_ready=mapped.unresolved[one.instance_id])
            continue
        if one.instance_id in mapped.known or one.instance_id in gone or not one.is_ready:
            continue
        since = held_since.get(one.instance_id, now)
        if now - since >= hold_seconds:
            expired[one.instance_id] = None
        else:
            held[one.instance_id] = since
            places[place] = one
    return GuardVerdict(tuple(places.values()), held, tuple(expired))


def vanished(shown: Iterable[MirrorEndpoint], listed: Collection[str]) -> list[str]:
    """The ids of instances that are called and that Eureka does not list: proof is needed of their end."""
    return sorted({one.instance_id for one in shown if one.is_ready and one.instance_id not in listed})
