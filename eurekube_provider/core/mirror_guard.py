"""The guard keeps endpoints that vanished from Eureka's lists until their end is proved, or for some time.

A list that lacks an instance proves little: its server may have restarted, or may never have heard of the
instance. So an endpoint stays until a server says that the instance was deregistered or evicted, or no server
has it. Where no server can say so, the endpoint is removed after a time all the same: a mirror that never
forgets would send calls to addresses that somebody else has got meanwhile.

Absence proves something only at a server that once held the instance. So an endpoint from another Eureka than
the one that is read now stays until a person releases it, or this Eureka shows it. A removal of all endpoints
of an application, or of most of many, by absence alone waits much longer: the same URL may lead to another
Eureka than before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from eurekube_provider.core.mirror_endpoints import MappedEndpoints, MirrorEndpoint
from eurekube_provider.core.mirror_source import UnlistedInstances

MIN_ENDPOINTS_FOR_MAJORITY = 10
"""The number of ready endpoints from which on a removal of most of them by absence alone is braked; with
fewer endpoints, only a removal of all.
"""

MIRROR_BRAKE_SECONDS = 1800.0
"""Seconds for which braked endpoints are kept while the same Eureka is read without a gap: within that
time its clients have registered again.
"""


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The endpoints that a mirror must show, with those that are kept although Eureka no longer lists them.

    :ivar held_since_by_id: by id of each kept instance that Eureka does not list, the time since which it is
        kept.
    :ivar expired_ids: the ids of instances that were kept for long enough, and are removed now.
    :ivar braked_ids: the ids of those in ``held_since_by_id`` that absence would remove, were they not all or
        most endpoints.
    :ivar other_source_by_id: the ids of those in ``held_since_by_id`` that came from another Eureka, each
        with its servers.
    :ivar released_ids: the ids of instances that are removed because a person released them.
    """

    endpoints: tuple[MirrorEndpoint, ...]
    held_since_by_id: Mapping[str, float]
    expired_ids: tuple[str, ...] = ()
    braked_ids: tuple[str, ...] = ()
    other_source_by_id: Mapping[str, str] = field(default_factory=dict)
    released_ids: tuple[str, ...] = ()


def guard_endpoints(
    mapped: MappedEndpoints,
    shown: Iterable[MirrorEndpoint],
    unlisted: UnlistedInstances,
    held_since: Mapping[str, float],
    now: float,
    hold_seconds: float,
    source: str = "",
    *,
    is_released: bool = False,
) -> GuardVerdict:
    """Decide which existing endpoints stay beside those that Eureka lists.

    :param unlisted: what the servers say of instances that have endpoints and that Eureka does not list.
    :param held_since: :attr:`GuardVerdict.held_since_by_id` of the last decision.
    :param now: by any clock that only grows, in seconds; ``held_since`` is by the same clock.
    :param source: the servers that are read; empty where they are not known.
    :param is_released: True if a person released the removals.
    """
    places = {(one.group, one.address): one for one in mapped.endpoints}
    gone_by_absence_ids = {instance_id for _, instance_id in unlisted.gone_by_absence}
    proved = {instance_id for _, instance_id in unlisted.gone} - gone_by_absence_ids
    unproved: list[MirrorEndpoint] = []
    foreign: list[MirrorEndpoint] = []
    for one in shown:
        place = (one.group, one.address)
        if place in places:
            continue
        if one.instance_id in mapped.is_up_by_unresolved_id:
            places[place] = replace(one, is_ready=mapped.is_up_by_unresolved_id[one.instance_id], source="")
        elif one.instance_id and not (
            one.instance_id in mapped.listed_ids or one.instance_id in proved or not one.is_ready
        ):
            (foreign if one.is_from_another_eureka(source) else unproved).append(one)
    ready = sum(one.is_ready for one in places.values())
    is_braked = bool(unproved) and removes_too_many(len(unproved), ready + len(unproved))
    held_since_by_id: dict[str, float] = {}
    expired_ids: dict[str, None] = {}
    braked_ids: dict[str, None] = {}
    released_ids: dict[str, None] = {}
    for one in unproved:
        key = one.instance_id
        began = held_since.get(key, now)
        if is_braked and is_released:
            released_ids[key] = None
            continue
        if is_braked and now - began < max(hold_seconds, MIRROR_BRAKE_SECONDS):
            braked_ids[key] = None
        elif key in gone_by_absence_ids and not is_braked:
            continue
        elif now - began >= hold_seconds:
            expired_ids[key] = None
            continue
        held_since_by_id[key] = began
        places[one.group, one.address] = replace(one, source="")
    other_source_by_id: dict[str, str] = {}
    for one in foreign:
        if is_released:
            released_ids[one.instance_id] = None
        else:
            other_source_by_id[one.instance_id] = one.source
            held_since_by_id[one.instance_id] = now  # nothing comes nearer to its removal
            places[one.group, one.address] = one
    return GuardVerdict(
        tuple(places.values()),
        held_since_by_id,
        tuple(expired_ids),
        tuple(braked_ids),
        other_source_by_id,
        tuple(released_ids),
    )


def verdict_while_eureka_silent(
    mapped: MappedEndpoints, shown: Iterable[MirrorEndpoint], source: str
) -> GuardVerdict:
    """Return the endpoints while Eureka does not answer: the existing ones, and others of the last list.

    :param source: the servers that were read.
    """
    places = {(one.group, one.address): one for one in mapped.endpoints}
    for one in shown:
        if one.instance_id:
            is_foreign = one.is_from_another_eureka(source)
            places[one.group, one.address] = one if is_foreign else replace(one, source="")
    return GuardVerdict(tuple(places.values()), {})


def removes_too_many(unproved: int, ready: int) -> bool:
    """Return whether removals without proof are so many that Eureka's list itself is doubtful.

    :param unproved: how many endpoints would be removed.
    :param ready: how many endpoints are ready before, these included.
    """
    return unproved >= ready or (ready >= MIN_ENDPOINTS_FOR_MAJORITY and 2 * unproved > ready)


def find_unlisted_ids(
    shown: Iterable[MirrorEndpoint], listed: Collection[str], source: str = ""
) -> list[str]:
    """Return the ids of ready endpoints' instances that Eureka does not list: their end must be proved.

    :param source: the servers that are read: they can prove nothing of endpoints from another Eureka.
    """
    return sorted(
        {
            one.instance_id
            for one in shown
            if one.is_ready
            and one.instance_id
            and one.instance_id not in listed
            and not one.is_from_another_eureka(source)
        }
    )
