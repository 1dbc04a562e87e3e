"""Rules: judgements of a key, by all that is known of it and by the word of a server or a list.

Pure: times are arguments.

A write without an answer may be carried out late, by a server that was frozen, when it has been undone. A
registration that comes after the removal is newer than what was removed, and an OUT_OF_SERVICE that comes
after our mark was taken off passes for a person's, for ever.

An OUT_OF_SERVICE that was answered may come late as well. A server waits 0.2 s for each of its peers, takes a
busy one for one that was not informed, and tells it again for half a minute: also what was taken off
meanwhile. It tells that one only, so that this OUT_OF_SERVICE stands at some servers, and a person's at all
of them.

A server also sends what changed within half a second in an order of its own: a registration takes the place
of the one before it, and so goes ahead of what was taken off between the two. Its peer then holds the last
contents with the status that was asked for before. Their timestamps are the same, so that no renewal finds
that the two servers differ. Where the registration is sent with that status, all servers have it, and
lists are not believed against what was written for a minute and a half: the owner writes it again.

Where a pod of the same name follows within that half second, the last one's OUT_OF_SERVICE may so come over
its registration, and go to every server. What stands everywhere just after ours was set, or removed, is taken
for ours: Eureka does not say who set a status, and nobody else knew of the new pod yet.

A server that accepted the renewal of a stack's registration lately, and says now that it does not hold it,
has not evicted it: its Eureka lease has not ended yet. Unless it was restarted since, it was asked to remove
it. Another server that still holds it has missed that, and a renewal there would bring it back everywhere. Of
a syncer's instances nothing of that is remembered: the cluster says what is wanted of them.

A plain write goes to one server, which tells the others within a second. Where they cannot reach each other
for long, or do not name each other, the far side hears of no registration, while a removal is sent to each
server: its callers would lose every pod that is replaced. So its renewer tells it there. Of a stack's
registration nobody knows whether it was removed there. What is out of service by an override, at either
server, nobody calls: at the far side nobody would lift it again.

Source: ReplicationTaskProcessor and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from eurekube_provider.core.identity import CLUSTER_UID_KEY, LEAVING_KEY, Cluster, StackOwner, parse_owner
from eurekube_provider.core.model import Instance, Status, newest, same_contents
from eurekube_provider.core.plan import as_found
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.record import Dropped, Look, Record


class Listed(Enum):
    """A list's word on a key, up to half a minute late."""

    NOTHING = auto()  # it may be older than what was written or read meanwhile
    SAME = auto()  # the same as is known, as it was written
    NEWS = auto()  # something else than lists said before, or nothing any more: it is believed
    DOUBT = auto()  # something else than was written or read: an uncached read must tell


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
    """Return whether an OUT_OF_SERVICE may be one of ours that no server answered, and that came late.

    A registration as leaving may be late, too, and keep the status that came with it.
    """
    late = [sent for sent in (record.sent, record.status_sent) if sent and sent.may_come(now)]
    return any(sent.instance.status is Status.OUT_OF_SERVICE for sent in late)


def may_be_sent_again(record: Record, found: Instance, now: float) -> bool:
    """Return whether an OUT_OF_SERVICE passes for a person's, and we set or took one off a minute ago."""
    return _was_overridden(record, found, now, windows.STATUS_SENT_AGAIN)


def is_just_set(record: Record, found: Instance, now: float) -> bool:
    """Return whether an OUT_OF_SERVICE passes for a person's, and came too soon after ours to be one's."""
    return _was_overridden(record, found, now, windows.OUR_STATUS)


def _was_overridden(record: Record, found: Instance, now: float, within: float) -> bool:
    if record.overridden_at is None or not passes_for_a_persons(found):
        return False
    return now - record.overridden_at < within


def passes_for_a_persons(found: Instance) -> bool:
    """Return whether an instance is OUT_OF_SERVICE without our mark."""
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
    :param known: the instance that was known to be there. Where it is newer than ``have``, the server that
        was notified of it is frozen before the others heard: it tells them when it is back, and what is older
        gives way.
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


def may_give_way(record: Record, now: float) -> bool:
    """Return whether what stands there is known well enough to write over it without another read.

    What is sent then is newer than that by a millisecond, and gives way to what somebody else wrote since:
    a server keeps the newer of two. So nothing of ours may be under way, and no status may stand over the
    instance's own, which a registration does not carry along.

    Source: AbstractInstanceRegistry.register of Netflix/eureka.
    """
    held, at = record.held, record.touched_at
    if held is None or not record.is_firm or at is None or now - at >= windows.UNLISTED:
        return False
    in_doubt = (record.sent, record.status_sent, record.overridden_at, record.lost, record.lost_override)
    return all(one is None for one in (*in_doubt, record.looks)) and not (
        held.is_overridden or record.former_owners
    )


def wanted_over(want: Instance, have: Instance | None, lost_override: Status) -> Instance:
    """Return what was planned for something else than what stands there, as it is wanted over that.

    A stack's is wanted as it was planned: its program decides about marks by itself.

    :param lost_override: the status that a person had set over it when the servers forgot it.
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
    """Return whether ``held`` is what was removed, and not what was registered in its place since.

    Under another name of its stack it is, too: a server that was cut off may know the former one only.
    """
    if held.incarnation != removed.incarnation:
        return False
    return held.owner == removed.owner or bool(held.incarnation)


def is_of_stack(instance: Instance) -> bool:
    """Return whether a stack owns it."""
    owner = instance.owner or ""
    # Most are syncers', and this is asked of each renewal.
    return owner.startswith("stack/") and isinstance(parse_owner(owner), StackOwner)


def accepted_lately(record: Record, url: str, instance: Instance, now: float) -> bool:
    """Return whether a server accepted its renewal so lately that it cannot have evicted it since.

    A renewed lease lives for twice its duration, but one that was registered again since for once.
    """
    at = (record.accepted_at or {}).get(url)
    longest = min(instance.lease.duration_seconds, windows.RENEWAL_REMEMBERED)
    return at is not None and now - at < longest


def has_left(record: Record, now: float) -> bool:
    """Return whether a server said not too long ago that it was deregistered or evicted, which proves it."""
    return record.left_at is not None and now - record.left_at <= windows.PROOF_KEPT


def was_evicted(record: Record, now: float) -> bool:
    """Return whether one of several servers said not too long ago that it evicted it, and so held it."""
    return record.evicted_at is not None and now - record.evicted_at <= windows.PROOF_KEPT


def is_cut_off(record: Record, url: str, instance: Instance, now: float) -> bool:
    """Return whether a server has lacked a syncer's instance for so long that no other one tells it."""
    since = (record.lacking_since or {}).get(url)
    return since is not None and now - since >= windows.LACKING and not is_of_stack(instance)


def may_be_copied(held: Instance, lacking: Instance | None) -> bool:
    """Return whether a server that is cut off is notified of what another one holds: nothing out of service.

    :param lacking: the instances at the server that is cut off after all.
    """
    return not held.is_overridden and (lacking is None or not lacking.is_overridden)


def unseen_successors(
    records: Iterable[Record], url: str, leaving: Collection[Instance], since: float, now: float
) -> list[Instance]:
    """Return the instances that replace others of their application, and that a server was not seen to hold.

    None where the server holds another one, as far as is known, and none where nothing replaces them: it
    loses its last one then, as is wanted. An instance that registered itself, on a machine, is no such one:
    it would get the calls of all that leave. A stack's run knows what it has registered; nobody else may tell
    a server of that, which may have been asked to remove it.

    :param records: those of the application.
    :param leaving: the instances that are about to be removed there, of one application.
    :param since: when the first of those was registered, as far as that was lately: what is older stands
        wherever they do.
    :returns: the longest ago first: a server that has not that one learns nothing by the others.
    """
    keys = {one.key for one in leaving}
    are_stacks = any(map(is_of_stack, leaving))
    unseen = list[tuple[float, Instance]]()
    for record in records:
        held, spreading = record.held, record.spreading
        if held is None or held.owner is None or held.status is not Status.UP or record.key in keys:
            continue
        if spreading is not None and spreading.is_leaving:
            continue
        if spreading is None or url in spreading.seen or spreading.at <= since:
            return []
        if now - spreading.at >= windows.SUCCESSORS_SENT:
            return []
        if are_stacks or not is_of_stack(held):
            unseen.append((spreading.at, held))
    return [held for _, held in sorted(unseen, key=lambda one: one[0])]


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


def is_overtaken_everywhere(held: Mapping[str, Instance | None], ours: Instance) -> bool:
    """Return whether all that hold what we wrote last have another status, which nobody set over it.

    :param held: by the servers that answered.
    """
    there = [one for one in held.values() if one is not None]
    return (
        bool(there)
        and not ours.is_overridden
        and all(
            one.owner == ours.owner
            and not one.is_overridden
            and one.written_at_ms == ours.written_at_ms
            and one.status is not ours.status
            for one in there
        )
    )


def _agree(one: Instance, other: Instance) -> bool:
    return one.owner == other.owner and one.status is other.status and same_contents(one, other)


class Verdict(Enum):
    """A judgement of an instance in doubt, by the servers' answers."""

    UNREAD = auto()  # nobody knows yet: it is asked for again
    OURS = auto()  # it stands, and is ours to renew
    THEIRS = auto()  # somebody else has it, and it is left alone
    GONE = auto()  # no server holds it
    LOST = auto()  # servers forgot it: it is restored
    LATE = auto()  # a write came late, or went ahead of another one: what it did is undone
    LEFT = auto()  # it was removed, and a server holds it still, or again: it is removed there
    REMOVED = auto()  # it was removed elsewhere: it is neither restored nor renewed


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers' answers of one key, and all that is known of these servers.

    :ivar held: the instance at each server that answered, by URL; None for none.
    :ivar are_all: True if none of them failed to answer.
    :ivar started_ms: when each was started, by its own clock; without those that do not say.
    :ivar with_memory: those that are known to have forgotten nothing.
    :ivar lost_memory: True if one was restarted lately, so that what is missing may be forgotten.
    :ivar behind: how many answer at one URL, at most.
    """

    held: Mapping[str, Instance | None]
    are_all: bool = True
    started_ms: Mapping[str, int] = field(default_factory=dict)
    with_memory: Set[str] = frozenset()
    lost_memory: bool = False
    behind: int = 1

    @property
    def found(self) -> Instance | None:
        """The newest version that any of them holds."""
        return newest(self.held.values())


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners whose instances one operator renews and changes.

    :ivar operator_name: the value of ``eurekube.renewer`` in stacks' registrations.
    :ivar checks_cluster: True if another cluster of our name is another one; else it was ours once.
    """

    cluster: Cluster
    operator_name: str
    checks_cluster: bool = False

    def is_ours(self, instance: Instance) -> bool:
        """Return whether an instance is a syncer's of this cluster, or a stack's that asks us to renew it."""
        return self.is_syncers(instance) or self.is_renewed_for_stack(instance)

    def is_syncers(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster owns it."""
        is_named_so = self.cluster.syncer_of(instance.owner) is not None
        return is_named_so and not self.is_of_another_cluster(instance)

    def is_of_this_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster owns it, by whatever name of the cluster."""
        uid = instance.metadata.get(CLUSTER_UID_KEY)
        return self.is_syncers(instance) or self.cluster.is_called_otherwise(instance.owner, uid)

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of another cluster of our name owns it: both began when neither had any."""
        uid = instance.metadata.get(CLUSTER_UID_KEY) or self.cluster.uid
        if not self.checks_cluster or uid == self.cluster.uid:
            return False
        return self.cluster.syncer_of(instance.owner) is not None

    def is_renewed_for_stack(self, instance: Instance) -> bool:
        """Return whether a stack owns it and asks this operator to renew it."""
        return instance.renewer == self.operator_name and is_of_stack(instance)


def judge_look(look: Look, record: Record, found: Instance | None, now_ms: int) -> Verdict:
    """Judge what one server holds of what was removed, or may come late.

    :param found: as it was read there.
    :returns: GONE, LEFT, THEIRS of what nobody owns; LATE where its owner must say what is wanted: perhaps of
        another owner, to whom it was handed over, which may have come late as well.
    """
    if found is None:
        return Verdict.GONE
    removed = look.instance
    if (
        look.is_removed
        and (found.owner == removed.owner or found.owner in look.former)
        and record.held is None  # else it was registered again, perhaps at this moment
        and found.written_at_ms <= (removed.last_dirty_timestamp_ms or now_ms)
    ):
        return Verdict.LEFT
    return Verdict.LATE if found.owner else Verdict.THEIRS


def judge_late(record: Record, found: Instance) -> Verdict:
    """Judge what is ours, and may have come when nobody expected it any more.

    :param found: with our mark, where the status over it may be ours.
    :returns: LATE where its owner must look at it; else OURS.
    """
    known = record.held
    return Verdict.LATE if known is None or (found.is_leaving and not known.is_leaving) else Verdict.OURS


def is_sent_again(servers: Servers) -> bool:
    """Return whether an OUT_OF_SERVICE stands at some servers only."""
    held = [one.overridden_status for one in servers.held.values() if one is not None]
    is_everywhere = all(status is Status.OUT_OF_SERVICE for status in held)
    return servers.are_all and not is_everywhere and Status.OUT_OF_SERVICE in held


def judge_unlisted(servers: Servers, *, have_settled: bool) -> Verdict:
    """Judge what is listed no more, and of which no server says that it left.

    :param have_settled: True if each server has run for so long that it has heard of all that live, and is
        alone at its URL.
    :returns: OURS where it stands, GONE where that is proved; else UNREAD.
    """
    if servers.found is not None:
        return Verdict.OURS
    return Verdict.GONE if servers.are_all and have_settled else Verdict.UNREAD


def judge_listed_for_stack(
    record: Record, servers: Servers, ownership: Ownership, now_seconds: float, share: Callable[[], bool]
) -> Verdict:
    """Judge a stack's registration that a list suggests to renew.

    What one server holds and another one does not is on its way to that one, or that one has forgotten it, or
    it was removed there and the first one has missed the removal: it was frozen or cut off. A renewal would
    bring the last back on all servers, at an address where nobody is any more. So what is old enough, and
    lacks where a server has run all the time, was removed; but where nobody renewed it for as long as its
    lease lasts, a server may have evicted it just now, and it stays.

    :param now_seconds: Unix time.
    :param share: asked whether servers tell each other what they get, where that counts.
    :returns: OURS, REMOVED, or UNREAD where somebody who did not answer may hold it.
    """
    found, dropped = servers.found, record.dropped
    if found is None or not ownership.is_renewed_for_stack(found):
        return Verdict.REMOVED if servers.are_all else Verdict.UNREAD
    if dropped is None or is_registered_again(dropped, found, servers.held):
        if may_be_evicted(servers.held, now_seconds):
            return Verdict.OURS
        is_removed = bool(removed_at(servers, now_seconds - windows.ON_ITS_WAY)) and share()
        return Verdict.REMOVED if is_removed else Verdict.OURS
    # What was removed before our eyes stands only on those that missed it, even if they alone answer. Neither
    # a server's restart makes that less certain, nor that nothing else shows any more that servers share.
    is_removed = bool(removed_at(servers, now_seconds, was_dropped=True)) or any(
        url in servers.held and servers.held[url] is None for url in dropped.lacking
    )
    return Verdict.REMOVED if is_removed or not (servers.are_all or servers.lost_memory) else Verdict.OURS


def judge_missing_of_stack(
    servers: Servers,
    lately: Set[str],
    removed_from: Set[str],
    answered: Set[str],
    now_seconds: float,
    share: Callable[[], bool],
    *,
    is_restoring: bool = False,
) -> Verdict:
    """Judge a stack's registration that a renewal missed at a server that held it, or at all of them.

    :param lately: the servers that accepted its renewal lately and lack it.
    :param removed_from: those of them that have forgotten nothing, as they said after they were read:
        whichever other one was restarted, it was removed there.
    :param answered: those that said just before the read since when they run; another one that lacks it may
        have forgotten it.
    :param is_restoring: True if it was judged LOST before, and could not be restored.
    :returns: LOST, REMOVED, or UNREAD where it stands nowhere and no server says any more since when it runs.
    """
    if removed_from:
        return Verdict.REMOVED
    if servers.lost_memory or is_restoring:
        return Verdict.LOST
    if servers.found is None:
        said_before = servers.started_ms.keys() & servers.held.keys()
        return Verdict.UNREAD if said_before and not said_before & answered else Verdict.REMOVED
    those = replace(servers, held={url: one for url, one in servers.held.items() if one or url in answered})
    if servers.behind == 1 and lately & those.held.keys():
        return Verdict.REMOVED
    return Verdict.REMOVED if removed_at(those, now_seconds) and share() else Verdict.LOST


def removed_at(servers: Servers, since: float, *, was_dropped: bool = False) -> tuple[str, ...]:
    """Return the servers at which an instance was removed that others still hold.

    None where one has lost its memory, nor behind a load balancer, where each answer may be another one's.

    :param since: Unix time; what was written later may be on its way.
    :param was_dropped: True if it is known as removed: then servers that have forgotten nothing tell so, too.
    """
    held, found = servers.held, servers.found
    if servers.lost_memory or servers.behind > 1:
        if not was_dropped:
            return ()
        held = {url: one for url, one in held.items() if one or url in servers.with_memory}
    if found is None or found.written_at_ms > since * 1000:
        return ()
    started = servers.started_ms
    return tuple(
        url
        for url, one in held.items()
        if one is None and url in started and started[url] < found.written_at_ms
    )


def may_be_evicted(held: Mapping[str, Instance | None], now_seconds: float) -> bool:
    """Return whether nobody renewed it for so long that a server may have evicted it by itself."""
    ends = [one.lease_ends_ms for one in held.values() if one is not None and one.lease_ends_ms is not None]
    return bool(ends) and max(ends) < now_seconds * 1000


def is_suggested(record: Record, listed: Instance, now: float) -> bool:
    """Return whether a list suggests to renew it: not what was removed, until the list is old no more."""
    dropped = record.dropped
    is_news = dropped is None or is_registered_again(dropped, listed)
    return is_news or (dropped is not None and now - dropped.at > windows.LIST_LAG)


def is_registered_again(
    dropped: Dropped, found: Instance, held: Mapping[str, Instance | None] | None = None
) -> bool:
    """Return whether it was registered after it was dropped: later, or where it had been removed."""
    is_there_again = any((held or {}).get(url) for url in dropped.lacking)
    is_another = is_there_again and found.incarnation != dropped.instance.incarnation
    return is_another or found.written_at_ms > dropped.instance.written_at_ms
