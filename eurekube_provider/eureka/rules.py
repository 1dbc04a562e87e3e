"""Rules: judgements of a key's state, by all that is known of it and by the answer of a server or a list.
Pure: times are arguments.

A write that got no answer may be carried out late, by a server that was frozen, when the write has been
undone. A registration that comes after the removal is newer than the removed instance, and an OUT_OF_SERVICE
that comes after Eurekube's mark was removed passes for a person's, for ever.

An OUT_OF_SERVICE that was answered may come late as well. A server waits 0.2 s for each of its peers, takes a
busy peer for one that was not told, and tells it again for half a minute, even if the override was cleared
meanwhile. It tells that peer only, so that this OUT_OF_SERVICE is at some servers, while a person's is at all
of them.

A server also reorders changes within half a second: a registration replaces the one before it, and so
overtakes an override that was cleared between the two. Its peer then holds the last contents with the status
before. The timestamps are the same, so that no renewal reveals that the two servers differ. If the
registration is sent with that status, all servers have it, and for a minute and a half lists do not count
against the last write: the owner writes the status again.

If a pod of the same name follows within that half second, the last pod's OUT_OF_SERVICE may come over its
registration in this way, and go to every server. An OUT_OF_SERVICE that is everywhere just after Eurekube's
was set or removed is taken for Eurekube's: Eureka does not say who set a status, and nobody else knew of the
new pod yet.

A server that accepted the renewal of a stack's registration lately, and now answers that it does not hold it,
has not evicted it: its Eureka lease has not ended yet. Unless the server was restarted since, it was asked to
remove the registration. Another server that still holds it has missed the removal, and a renewal there would
bring the registration back everywhere. Renewals of syncers' instances are not remembered in this way: the
cluster says which of them are wanted.

A plain write goes to one server, which tells the others within a second. If the servers cannot reach each
other for long, or do not name each other, the far servers hear of no registration, while a removal is sent to
each server: their callers would lose every pod that is replaced. So the operator that renews an instance
registers it at the far servers, too. A stack's registration is not copied, since it may have been removed
there. An instance that is out of service by an override, at either server, is not copied either: nobody calls
it, and at the far server nobody would clear the override.

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
    """The possible judgements of a list's entry, which may be half a minute old, beside what is known of
    its key.
    """

    NOTHING = auto()  # it may be older than what was written or read meanwhile
    SAME = auto()  # the same as is known, as it was written
    NEWS = auto()  # something else than lists said before, or nothing any more: it is believed
    DOUBT = auto()  # something else than was written or read: an uncached read must tell


def judge_listed(record: Record, listed: Instance | None) -> Listed:
    """Judge what a list shows under a key, None for no instance, by what is known of the key."""
    held = record.held
    if record.touched_at is not None or held is listed:
        return Listed.NOTHING
    if held is None or listed is None or not _are_equal(held, listed):
        return Listed.DOUBT if record.is_firm else Listed.NEWS
    is_older = record.is_firm and held.last_dirty_timestamp_ms != listed.last_dirty_timestamp_ms
    return Listed.NOTHING if is_older else Listed.SAME


def is_out_by_us(record: Record, now: float) -> bool:
    """Return whether an OUT_OF_SERVICE may be a late one that this process sent without getting an answer.

    A registration with the mark of leaving may be late, too, and keep the status that came with it.
    """
    late = [sent for sent in (record.sent, record.status_sent) if sent and sent.may_come(now)]
    return any(sent.instance.status is Status.OUT_OF_SERVICE for sent in late)


def may_be_sent_again(record: Record, found: Instance, now: float) -> bool:
    """Return whether an OUT_OF_SERVICE passes for a person's, and this process set or cleared one within a
    minute.
    """
    return _was_overridden(record, found, now, windows.STATUS_SENT_AGAIN)


def is_just_set(record: Record, found: Instance, now: float) -> bool:
    """Return whether an OUT_OF_SERVICE passes for a person's, but came too soon after this process's to be
    a person's.
    """
    return _was_overridden(record, found, now, windows.OUR_STATUS)


def _was_overridden(record: Record, found: Instance, now: float, within: float) -> bool:
    if record.overridden_at is None or not passes_for_a_persons(found):
        return False
    return now - record.overridden_at < within


def passes_for_a_persons(found: Instance) -> bool:
    """Return whether an instance is OUT_OF_SERVICE by an override without Eurekube's mark of leaving, as
    if a person had set it.
    """
    return found.overridden_status is Status.OUT_OF_SERVICE and not found.is_leaving


def as_ours(instance: Instance) -> Instance:
    """Copy an instance with Eurekube's mark of leaving, so that its OUT_OF_SERVICE is undone."""
    return replace(instance, metadata={**instance.metadata, LEAVING_KEY: "true"})


def newest_sent(record: Record, removed: Instance, now: float) -> Instance:
    """Return the removed instance, or a later version that its owner sent and that may still come."""
    late = record.sent.instance if record.sent and record.sent.may_come(now) else removed
    if late.owner != removed.owner:
        return removed
    return max(removed, late, key=lambda one: one.written_at_ms)


def newer_than(have: Instance | None, now_ms: int) -> int:
    """Return a ``lastDirtyTimestamp`` in milliseconds that is newer than the stored one."""
    return max(now_ms, have.written_at_ms + 1) if have else now_ms


def next_write(
    want: Instance, have: Instance | None, known: Instance | None = None, *, now_ms: int
) -> Instance | None:
    """Return the registration to send so that ``want`` replaces ``have``; None where ``have`` is already as
    wanted.

    It is newer than any server's version. A person's override stays, and fields that Eurekube does not know
    are kept.

    :param want: if no instance is registered, with the override that it had before the servers forgot it.
    :param known: the instance that was known to be there. If it is newer than ``have``, the server that got
        it froze before the others heard of it: it tells them when it is back, and older versions give way.
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
    """Return whether the registered instance is known well enough to write over it without another read.

    The update is then newer than the known instance by a millisecond, and gives way to anything that somebody
    else wrote since: a server keeps the newer of two. So no other write of this process may be under way, and
    the instance may have no override, which a registration does not preserve.

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
    """Return the wanted instance adapted to the one that is registered, which may differ from the one planned
    for.

    A stack's instance is returned unchanged: its program decides about marks.

    :param lost_override: the status that a person had set before the servers forgot the instance.
    """
    if is_of_stack(want):
        return want
    return replace(want, overridden_status=lost_override) if have is None else as_found(want, have)


def overridden(sent: Instance) -> Instance:
    """Return ``sent`` as a server holds it: an override hides the status, unless the instance registers as
    not UP.
    """
    if not sent.is_overridden or sent.status not in (Status.UP, Status.OUT_OF_SERVICE):
        return sent
    return replace(sent, status=sent.overridden_status)


def came_back(held: Instance, removed: Instance) -> bool:
    """Return whether ``held`` is the removed instance, and not a later registration in its place.

    With the same incarnation it is the removed one even under another owner: the stack may have been renamed,
    and a server that was cut off may know only the former name.
    """
    if held.incarnation != removed.incarnation:
        return False
    return held.owner == removed.owner or bool(held.incarnation)


def is_of_stack(instance: Instance) -> bool:
    """Return whether a stack owns the instance."""
    owner = instance.owner or ""
    # Most are syncers', and this is asked of each renewal.
    return owner.startswith("stack/") and isinstance(parse_owner(owner), StackOwner)


def accepted_lately(record: Record, url: str, instance: Instance, now: float) -> bool:
    """Return whether a server accepted a renewal of the instance so recently that it cannot have evicted it
    since.

    A renewed lease lives for twice its duration, but one that was registered again since only for once.
    """
    at = (record.accepted_at or {}).get(url)
    longest = min(instance.lease.duration_seconds, windows.RENEWAL_REMEMBERED)
    return at is not None and now - at < longest


def has_left(record: Record, now: float) -> bool:
    """Return whether a server recently said that the instance was deregistered or evicted, which proves
    that it left.
    """
    return record.left_at is not None and now - record.left_at <= windows.PROOF_KEPT


def was_evicted(record: Record, now: float) -> bool:
    """Return whether one of several servers recently said that it evicted the instance, and so had held
    it.
    """
    return record.evicted_at is not None and now - record.evicted_at <= windows.PROOF_KEPT


def is_cut_off(record: Record, url: str, instance: Instance, now: float) -> bool:
    """Return whether a server has lacked a syncer's instance for so long that no other server will tell
    it.
    """
    since = (record.lacking_since or {}).get(url)
    return since is not None and now - since >= windows.LACKING and not is_of_stack(instance)


def may_be_copied(held: Instance, lacking: Instance | None) -> bool:
    """Return whether another server's instance may be registered at a server that is cut off: not with an
    override.

    :param lacking: the instance at the server that is cut off, if it has one after all.
    """
    return not held.is_overridden and (lacking is None or not lacking.is_overridden)


def unseen_successors(
    records: Iterable[Record], url: str, leaving: Collection[Instance], since: float, now: float
) -> list[Instance]:
    """Return the instances that replace leaving ones of their application, and that a server was not seen to
    hold.

    None if the server holds another instance, as far as is known, or if nothing replaces the leaving ones:
    the server then loses its last instance, as is wanted. An instance that registered itself, on a machine,
    does not count as a replacement: it would get the calls of all that leave. A stack's registrations count
    only for a stack's run, which knows what it has registered; anybody else might register one at a server
    that was asked to remove it.

    :param records: the records of the application.
    :param leaving: the instances, of one application, that are about to be removed at the server.
    :param since: when the first of these was registered, if that was lately: older instances are wherever
        these are.
    :returns: the instances, the longest registered first: if a server lacks that one, no other server tells
        it.
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
    """Return the servers whose instance has another status than this process last wrote, while another server
    has that one.

    An override is somebody's wish, and a newer version may be anybody's: both are left out.

    :param held: the instance at each server that answered.
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
    """Return whether all servers that hold this process's last version have it with another status, without
    an override.

    :param held: the instance at each server that answered.
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


def _are_equal(one: Instance, other: Instance) -> bool:
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
    """The servers' answers on one key, and all that is known of these servers.

    :ivar held: the instance at each server that answered, by URL; None for none.
    :ivar are_all: True if none of them failed to answer.
    :ivar started_ms: when each was started, by its own clock; without those that do not say.
    :ivar with_memory: those that are known to have forgotten nothing.
    :ivar lost_memory: True if one was restarted lately, so that a missing instance may have been forgotten.
    :ivar behind: the most servers that answer at one URL.
    """

    held: Mapping[str, Instance | None]
    are_all: bool = True
    started_ms: Mapping[str, int] = field(default_factory=dict)
    with_memory: Set[str] = frozenset()
    lost_memory: bool = False
    behind: int = 1

    @property
    def found(self) -> Instance | None:
        """The newest version that any of the servers holds."""
        return newest(self.held.values())


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners whose instances one operator renews and changes.

    :ivar operator_name: the value of ``eurekube.renewer`` in stacks' registrations.
    :ivar checks_cluster: True if a cluster of the same name and another UID counts as another cluster; False
        if it counts as this cluster's past.
    """

    cluster: Cluster
    operator_name: str
    checks_cluster: bool = False

    def is_ours(self, instance: Instance) -> bool:
        """Return whether the instance belongs to a syncer of this cluster, or to a stack that asks this
        operator to renew it.
        """
        return self.is_syncers(instance) or self.is_renewed_for_stack(instance)

    def is_syncers(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster owns the instance."""
        is_named_so = self.cluster.syncer_of(instance.owner) is not None
        return is_named_so and not self.is_of_another_cluster(instance)

    def is_of_this_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster owns the instance, under whatever name of the cluster."""
        uid = instance.metadata.get(CLUSTER_UID_KEY)
        return self.is_syncers(instance) or self.cluster.owns_under_another_name(instance.owner, uid)

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of another cluster with this cluster's name owns the instance."""
        uid = instance.metadata.get(CLUSTER_UID_KEY) or self.cluster.uid
        if not self.checks_cluster or uid == self.cluster.uid:
            return False
        return self.cluster.syncer_of(instance.owner) is not None

    def is_renewed_for_stack(self, instance: Instance) -> bool:
        """Return whether a stack owns the instance and asks this operator to renew it."""
        return instance.renewer == self.operator_name and is_of_stack(instance)


def judge_look(look: Look, record: Record, found: Instance | None, now_ms: int) -> Verdict:
    """Judge what one server holds of an instance that was removed, or may come late.

    :param found: the instance as it was read at the server.
    :returns: GONE; LEFT; THEIRS for an instance without an owner; LATE where the owner must say what is
        wanted, perhaps another owner to whom the instance was handed over, since the hand-over may have come
        late, too.
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
    """Judge an instance of this operator's that may have come late.

    :param found: the instance, with the mark of leaving if its override may be Eurekube's.
    :returns: LATE where its owner must look at it; else OURS.
    """
    known = record.held
    return Verdict.LATE if known is None or (found.is_leaving and not known.is_leaving) else Verdict.OURS


def is_sent_again(servers: Servers) -> bool:
    """Return whether only some of the servers have an OUT_OF_SERVICE."""
    held = [one.overridden_status for one in servers.held.values() if one is not None]
    is_everywhere = all(status is Status.OUT_OF_SERVICE for status in held)
    return servers.are_all and not is_everywhere and Status.OUT_OF_SERVICE in held


def judge_unlisted(servers: Servers, *, have_settled: bool) -> Verdict:
    """Judge an instance that is no longer listed, and that no server says has left.

    :param have_settled: True if each server has run for long enough to have heard of all living instances,
        and is alone at its URL.
    :returns: OURS if a server holds it, GONE if its absence is proved; else UNREAD.
    """
    if servers.found is not None:
        return Verdict.OURS
    return Verdict.GONE if servers.are_all and have_settled else Verdict.UNREAD


def judge_listed_for_stack(
    record: Record, servers: Servers, ownership: Ownership, now_seconds: float, share: Callable[[], bool]
) -> Verdict:
    """Judge a stack's registration that a list suggests to renew.

    If one server holds it and another one does not, it is on its way to the other one, or the other one has
    forgotten it, or it was removed there and the first one, frozen or cut off, has missed the removal. In the
    last case a renewal would bring it back on all servers, at an address where nobody is any more. So a
    registration that is old enough, and is missing at a server that has run all the time, was removed. But if
    nobody renewed it for as long as its lease lasts, the server may just have evicted it, and it is renewed.

    :param now_seconds: Unix time.
    :param share: called, where it matters, to find out whether servers tell each other of their instances.
    :returns: OURS, REMOVED, or UNREAD where a server that did not answer may hold it.
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
    """Judge a stack's registration that a renewal missed at a server that held it, or at all servers.

    :param lately: the servers that accepted its renewal lately and now lack it.
    :param removed_from: those of them that have forgotten nothing, as they said after the read: whichever
        other server was restarted, the registration was removed there.
    :param answered: the servers that, just before the read, told for how long they have run; any other that
        lacks the registration may have forgotten it.
    :param is_restoring: True if it was judged LOST before, and could not be restored.
    :returns: LOST, REMOVED, or UNREAD where no server holds it and none tells any more for how long it has
        run.
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

    None if a server has lost its memory, nor behind a load balancer, where each answer may come from another
    server.

    :param since: Unix time; a later registration may still be on its way.
    :param was_dropped: True if the removal is known: then answers of servers that have forgotten nothing
        count in these cases, too.
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
    """Return whether nobody has renewed the instance for so long that a server may have evicted it."""
    ends = [one.lease_ends_ms for one in held.values() if one is not None and one.lease_ends_ms is not None]
    return bool(ends) and max(ends) < now_seconds * 1000


def is_suggested(record: Record, listed: Instance, now: float) -> bool:
    """Return whether a list suggests to renew a registration: a removed one only once the list cannot be
    too old.
    """
    dropped = record.dropped
    is_news = dropped is None or is_registered_again(dropped, listed)
    return is_news or (dropped is not None and now - dropped.at > windows.LIST_LAG)


def is_registered_again(
    dropped: Dropped, found: Instance, held: Mapping[str, Instance | None] | None = None
) -> bool:
    """Return whether a registration is newer than the dropped one: by its time, or because it is at a
    server where that was removed.
    """
    is_there_again = any((held or {}).get(url) for url in dropped.lacking)
    is_another = is_there_again and found.incarnation != dropped.instance.incarnation
    return is_another or found.written_at_ms > dropped.instance.written_at_ms
