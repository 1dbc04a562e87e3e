"""What follows from what is known of one key, and from what a server or a list says of it.

Pure: times are arguments.

A write without an answer may be carried out late, by a server that was frozen, when it has been undone. A
registration that comes after the removal is newer than what was removed, and an OUT_OF_SERVICE that comes
after our mark was taken off passes for a person's, for ever.

An OUT_OF_SERVICE that was answered may come late as well. A server waits 0.2 s for each of its peers, takes a
busy one for one that was not told, and tells it again for half a minute: also what was taken off meanwhile.
It tells that one only, so that this OUT_OF_SERVICE stands at some servers, and a person's at all of them.

A server also sends what changed within half a second in an order of its own: a registration takes the place
of the one before it, and so goes ahead of what was taken off between the two. Its peer then holds the last
contents with the status that was asked for before. Their timestamps are the same, so that no renewal finds
that the two servers differ.

Where a pod of the same name follows within that half second, the last one's OUT_OF_SERVICE may so come over
its registration, and go to every server. What stands everywhere just after ours was set, or removed, is taken
for ours: Eureka does not say who set a status, and nobody else knew of the new pod yet.

A server that accepted the renewal of a stack's registration lately, and says now that it does not hold it,
has not evicted it: its Eureka lease has not ended yet. Unless it was restarted since, it was told to remove
it. Another server that still holds it has missed that, and a renewal there would bring it back everywhere. Of
a syncer's instances nothing of that is remembered: the cluster says what is wanted of them.

A plain write goes to one server, which tells the others within a second. Where they cannot reach each other
for long, or do not name each other, the far side hears of no registration, while a removal is sent to each
server: its callers would lose every pod that is replaced. So whoever renews tells it there. Of a stack's
registration nobody knows whether it was removed there. What is out of service by an override, at either
server, nobody calls: at the far side nobody would lift it again.

Source: ReplicationTaskProcessor and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto

from eurekube_provider.core.identity import LEAVING_KEY, StackOwner, parse_owner
from eurekube_provider.core.model import Instance, Status, newest
from eurekube_provider.core.plan import as_found, same_contents
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.record import Record


class Listed(Enum):
    """What a list says of a key, up to half a minute late."""

    NOTHING = auto()
    """It may be older than what was written or read meanwhile."""

    SAME = auto()
    """The same as is known, as it was written."""

    NEWS = auto()
    """Something else than lists said before, or nothing any more: it is believed."""

    DOUBT = auto()
    """Something else than was written or read: an uncached read must tell."""


def judge_listed(record: Record, listed: Instance | None) -> Listed:
    """Judge what a list shows under a key, None for nothing, by what is known of it."""
    held = record.held
    if record.touched_at is not None or held is listed:
        return Listed.NOTHING
    if held is None or listed is None or not _agree(held, listed):
        return Listed.DOUBT if record.is_firm else Listed.NEWS
    is_older = record.is_firm and held.last_dirty_timestamp_ms != listed.last_dirty_timestamp_ms
    return Listed.NOTHING if is_older else Listed.SAME


def is_out_by_us(record: Record, now: float) -> bool:
    """Whether an OUT_OF_SERVICE may be one of ours that no server answered, and that came late.

    A registration as leaving may be late, too, and keep the status that came with it.
    """
    late = [sent for sent in (record.sent, record.status_sent) if sent and sent.may_come(now)]
    return any(sent.instance.status is Status.OUT_OF_SERVICE for sent in late)


def may_be_told_again(record: Record, found: Instance, now: float) -> bool:
    """Whether an OUT_OF_SERVICE passes for a person's, and we set or took one off a minute ago."""
    return _was_overridden(record, found, now, windows.STATUS_TOLD_AGAIN)


def is_just_set(record: Record, found: Instance, now: float) -> bool:
    """Whether an OUT_OF_SERVICE passes for a person's, and came too soon after ours to be one's."""
    return _was_overridden(record, found, now, windows.OUR_STATUS)


def _was_overridden(record: Record, found: Instance, now: float, within: float) -> bool:
    if record.overridden_at is None or not passes_for_a_persons(found):
        return False
    return now - record.overridden_at < within


def passes_for_a_persons(found: Instance) -> bool:
    """Whether an instance is OUT_OF_SERVICE without our mark."""
    return found.overridden_status is Status.OUT_OF_SERVICE and not found.is_leaving


def as_ours(instance: Instance) -> Instance:
    """Copy an instance with our mark, which has its status undone."""
    return replace(instance, metadata={**instance.metadata, LEAVING_KEY: "true"})


def newest_sent(record: Record, removed: Instance, now: float) -> Instance:
    """Return what was removed, or what its owner sent of it later, which may still come."""
    late = record.sent.instance if record.sent and record.sent.may_come(now) else removed
    if late.owner != removed.owner:
        return removed
    return max(removed, late, key=lambda one: one.written_at_ms)


def newer_than(have: Instance | None, now_ms: int) -> int:
    """Return a ``lastDirtyTimestamp`` in milliseconds that is newer than what is stored."""
    return max(now_ms, have.written_at_ms + 1) if have else now_ms


def next_write(
    want: Instance, have: Instance | None, known: Instance | None = None, *, now_ms: int
) -> Instance | None:
    """Return what is to be sent so that ``want`` stands over ``have``; None where it stands there already.

    It is newer than what any server holds. A person's override stays, and fields that we do not know survive.

    :param want: where nothing stands, with the override that it had before the servers forgot it.
    :param known: what was known to stand there. Where it is newer than ``have``, the server that was told of
        it is frozen before the others heard: it tells them when it is back, and what is older gives way.
    """
    latest = newest([have, known])
    if have is not None and latest is have and have.status is want.status and same_contents(have, want):
        return None
    return replace(
        want,
        overridden_status=(have or want).overridden_status,
        last_dirty_timestamp_ms=newer_than(latest, now_ms),
        unknown_fields={**have.unknown_fields, **want.unknown_fields} if have else want.unknown_fields,
        data_center=have.data_center if have else want.data_center,
    )


def wanted_over(want: Instance, have: Instance | None, lost_override: Status) -> Instance:
    """Return what was planned for something else than what stands there, as it is wanted over that.

    A stack's is wanted as it was planned: its program decides about marks by itself.

    :param lost_override: what a person had set over it when the servers forgot it.
    """
    if is_of_stack(want):
        return want
    return replace(want, overridden_status=lost_override) if have is None else as_found(want, have)


def overridden(sent: Instance) -> Instance:
    """Return ``sent`` as a server holds it: an override counts unless the instance says that it is not UP."""
    if not sent.is_overridden or sent.status not in (Status.UP, Status.OUT_OF_SERVICE):
        return sent
    return replace(sent, status=sent.overridden_status)


def came_back(held: Instance, removed: Instance) -> bool:
    """Whether ``held`` is what was removed, and not what was registered in its place since.

    Under another name of its stack it is, too: a server that was cut off may know the former one only.
    """
    if held.incarnation != removed.incarnation:
        return False
    return held.owner == removed.owner or bool(held.incarnation)


def is_of_stack(instance: Instance) -> bool:
    """Whether a stack owns it."""
    owner = instance.owner or ""
    # Most are syncers', and this is asked of each renewal.
    return owner.startswith("stack/") and isinstance(parse_owner(owner), StackOwner)


def accepted_lately(record: Record, url: str, instance: Instance, now: float) -> bool:
    """Whether a server accepted its renewal so lately that it cannot have evicted it since.

    A renewed lease lives for twice its duration, but one that was registered again since for once.
    """
    at = (record.accepted_at or {}).get(url)
    longest = min(instance.lease.duration_seconds, windows.RENEWAL_REMEMBERED)
    return at is not None and now - at < longest


def has_left(record: Record, now: float) -> bool:
    """Whether a server said not too long ago that it was deregistered or evicted, which proves it."""
    return record.left_at is not None and now - record.left_at <= windows.PROOF_KEPT


def is_cut_off(record: Record, url: str, instance: Instance, now: float) -> bool:
    """Whether a server has lacked it for so long that no other one will tell it; never of a stack's."""
    since = (record.lacking_since or {}).get(url)
    return since is not None and now - since >= windows.LACKING and not is_of_stack(instance)


def may_be_copied(held: Instance, lacking: Instance | None) -> bool:
    """Whether a server that is cut off is told of what another one holds, which nobody has out of service.

    :param lacking: what stands at the server that is cut off after all.
    """
    return not held.is_overridden and (lacking is None or not lacking.is_overridden)


def overtaken(held: Mapping[str, Instance | None], ours: Instance) -> tuple[str, ...]:
    """Return the servers that hold another status than we wrote last, where another one holds that one.

    A status that somebody set over it is theirs, and what is newer may be anybody's.

    :param held: by the servers that answered.
    """
    if ours.is_overridden or ours.status is Status.OUT_OF_SERVICE:
        return ()
    plain = {
        url: one
        for url, one in held.items()
        if one is not None and one.owner == ours.owner and not one.is_overridden
    }
    if not any(
        one.written_at_ms == ours.written_at_ms and one.status is ours.status for one in plain.values()
    ):
        return ()
    return tuple(
        url
        for url, one in plain.items()
        if one.written_at_ms <= ours.written_at_ms and one.status is not ours.status
    )


def _agree(one: Instance, other: Instance) -> bool:
    return one.owner == other.owner and one.status is other.status and same_contents(one, other)
