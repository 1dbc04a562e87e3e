"""Rules: judgements of a key's state by all that is known of it and by answers. Pure: times are arguments.

A write that got no answer may be carried out late, by a server that was frozen, when the write has been
undone. A registration that comes after the removal is newer than the removed instance, and an OUT_OF_SERVICE
that comes after Eurekube's mark was removed passes for a person's, for ever.

An OUT_OF_SERVICE that was answered may come late as well. A server waits 0.2 s for each of its peers, takes a
busy peer for one that was not told, and tells that one again for half a minute, even if the override was
cleared meanwhile. So this OUT_OF_SERVICE is at some servers, while a person's is at all of them.

A server also reorders changes within half a second: a registration replaces the one before it, and so
overtakes an override that was cleared between the two. Its peer then holds the last contents with the status
before. The timestamps are the same, so that no renewal reveals that the two servers differ. If the
registration is sent with that status, all servers have it, and for a minute and a half lists do not count
against the last write: the owner writes the status again.

If a pod of the same name follows within that half second, the last pod's OUT_OF_SERVICE may come over its
registration in this way, and go to every server. An OUT_OF_SERVICE that is everywhere just after Eurekube's
was set or removed is taken for Eurekube's: Eureka does not say who set it, and nobody else knew of the pod.

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

from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    LEAVING_KEY,
    Cluster,
    ClusterOwner,
    StackOwner,
    parse_owner,
)
from eurekube_provider.core.model import Instance, Status, newest, same_contents_but_status
from eurekube_provider.core.plan import with_current_leaving_mark
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.record import DroppedStackRegistration, InstanceRecord, PlannedCheck


class ListVerdict(Enum):
    """A judgement of a list's entry, which may be half a minute old, by what is known of its instance."""

    IGNORED = auto()  # it may be older than what was written or read meanwhile
    UNCHANGED = auto()  # the same as is known, as it was written
    CHANGED = auto()  # something else than lists said before, or nothing any more: it is believed
    NEEDS_UNCACHED_READ = auto()  # something else than was written or read: an uncached read must tell


def judge_list_entry(record: InstanceRecord, listed: Instance | None) -> ListVerdict:
    """Judge what a list shows under a key, None for no instance, by what is known of the key."""
    held = record.instance
    if record.confirmed_at is not None or held is listed:
        return ListVerdict.IGNORED
    if (
        held is None
        or listed is None
        or (held.owner, held.status) != (listed.owner, listed.status)
        or not same_contents_but_status(held, listed)
    ):
        return ListVerdict.NEEDS_UNCACHED_READ if record.is_confirmed else ListVerdict.CHANGED
    is_older = record.is_confirmed and held.last_dirty_timestamp_ms != listed.last_dirty_timestamp_ms
    return ListVerdict.IGNORED if is_older else ListVerdict.UNCHANGED


def has_unanswered_out_of_service(record: InstanceRecord, now: float) -> bool:
    """Return whether this process sent an OUT_OF_SERVICE that got no answer and may still arrive.

    A registration with the mark of leaving may be late, too, and keep the status that came with it.
    """
    sent = (record.unanswered_registration, record.unanswered_override)
    late = [one.instance.status for one in sent if one and one.may_still_arrive(now)]
    return Status.OUT_OF_SERVICE in late


def looks_manual_soon_after_ours(
    record: InstanceRecord, found: Instance, now: float, within_seconds: float
) -> bool:
    """Return whether an OUT_OF_SERVICE looks a person's, but this process changed one shortly before."""
    if record.override_changed_at is None or not looks_set_by_a_person(found):
        return False
    return now - record.override_changed_at < within_seconds


def looks_set_by_a_person(found: Instance) -> bool:
    """Return whether an OUT_OF_SERVICE is an override without Eurekube's mark, as a person sets it."""
    return found.overridden_status is Status.OUT_OF_SERVICE and not found.is_leaving


def give_cleared_status_back(held: Instance | None) -> Instance | None:
    """Return an instance UP whose override somebody cleared without naming the next status; None for another.

    A server leaves UNKNOWN behind, and answers renewals with 404 until the instance is registered again, as
    every client does then. What a program enforced is left to its program.
    """
    if held is None or held.status is not Status.UNKNOWN or held.is_overridden or held.enforced:
        return None
    return replace(held, status=Status.UP)


def add_leaving_mark(instance: Instance) -> Instance:
    """Return a copy of an instance with Eurekube's mark of leaving, so that its OUT_OF_SERVICE is undone."""
    return replace(instance, metadata={**instance.metadata, LEAVING_KEY: "true"})


def newest_version_that_may_come(record: InstanceRecord, removed: Instance, now: float) -> Instance:
    """Return the removed instance, or a later version that its owner sent and that may still come."""
    sent = record.unanswered_registration
    late = sent.instance if sent and sent.may_still_arrive(now) else removed
    if late.owner != removed.owner:
        return removed
    return max(removed, late, key=lambda one: one.written_at_ms)


def newer_timestamp_ms(have: Instance | None, now_ms: int) -> int:
    """Return a ``lastDirtyTimestamp`` in milliseconds that is newer than the stored one."""
    return max(now_ms, have.written_at_ms + 1) if have else now_ms


def registration_to_send(
    want: Instance, have: Instance | None, known: Instance | None = None, *, now_ms: int
) -> Instance | None:
    """Return the registration by which ``want`` replaces ``have``; None where that is as wanted.

    It is newer than any server's version, and keeps a person's override, and fields that are not known.

    :param want: if no instance is registered, with the override that it had before the servers forgot it.
    :param known: the instance that was known to be there. If it is newer than ``have``, the server that got
        it froze before the others heard of it: it tells them when it is back, and older versions give way.
    """
    latest = newest([have, known])
    if have and latest is have and have.status is want.status and same_contents_but_status(have, want):
        return None
    return replace(
        want,
        overridden_status=(have or want).overridden_status,
        last_dirty_timestamp_ms=newer_timestamp_ms(latest, now_ms),
        unknown_fields={**have.unknown_fields, **want.unknown_fields} if have else want.unknown_fields,
        data_center=have.data_center if have else want.data_center,
    )


def can_update_without_read(record: InstanceRecord, now: float) -> bool:
    """Return whether the registered instance is known well enough to write over it without another read.

    The update is then newer than the known instance by a millisecond, and gives way to anything that somebody
    else wrote since: a server keeps the newer of two. So no other write of this process may be under way, and
    the instance may have no override, which a registration does not preserve.

    Source: AbstractInstanceRegistry.register of Netflix/eureka.
    """
    at = record.confirmed_at
    return at is not None and now - at < windows.LONGEST_LIST_LAG_SECONDS and is_known_for_certain(record)


def is_known_for_certain(record: InstanceRecord) -> bool:
    """Return whether a write or an uncached read showed the registered instance, and nothing is known that
    may have changed it since.
    """
    held = record.instance
    if held is None or not record.is_confirmed:
        return False
    return record.lost_by_owner is None and not _is_in_doubt(record, held)


def lost_version_if_certain(record: InstanceRecord, owner: str) -> Instance | None:
    """Return the version of an owner's instance that the only server forgot, if it is known well enough to
    register it again without a read; else None.

    It is registered with its former timestamp, and gives way to anything that somebody registered since: a
    server keeps the newer of two. So nobody has set a status over it, and no write may still come.
    """
    lost = (record.lost_by_owner or {}).get(owner)
    if lost is None or lost.last_dirty_timestamp_ms is None or record.instance is not None:
        return None
    return None if _is_in_doubt(record, lost) else lost


def _is_in_doubt(record: InstanceRecord, version: Instance) -> bool:
    """Return whether a write of this process may still come over a version of an instance, a status stands
    over it, or a server may know another owner.
    """
    doubts = (
        record.unanswered_registration,
        record.unanswered_override,
        record.override_changed_at,
        record.lost_overridden_instance,
        record.checks_by_url,
    )
    return version.is_overridden or bool(record.former_owners) or any(one is not None for one in doubts)


def adapt_to_registered(want: Instance, have: Instance | None, lost_override: Status) -> Instance:
    """Return the wanted instance adapted to the registered one, which may not be the planned one.

    A stack's instance is returned unchanged: its program decides about marks.

    :param lost_override: the status that a person had set before the servers forgot the instance.
    """
    if is_owned_by_stack(want):
        return want
    if have is not None:
        return with_current_leaving_mark(want, have)
    # Mostly there was none, and a copy of each of thousands takes a while.
    is_as_before = want.overridden_status is lost_override
    return want if is_as_before else replace(want, overridden_status=lost_override)


def apply_override(sent: Instance) -> Instance:
    """Return ``sent`` as a server holds it: an override hides the status, unless it is not UP."""
    if not sent.is_overridden or sent.status not in (Status.UP, Status.OUT_OF_SERVICE):
        return sent
    return replace(sent, status=sent.overridden_status)


def is_same_registration(held: Instance, removed: Instance) -> bool:
    """Return whether ``held`` is the removed instance, and not a later registration in its place.

    With the same incarnation it is the removed one even under another owner: the stack may have been renamed,
    and a server that was cut off may know only the former name.
    """
    if held.incarnation != removed.incarnation:
        return False
    return held.owner == removed.owner or bool(held.incarnation)


def is_same_version(one: Instance, other: Instance) -> bool:
    """Return whether timestamp, statuses and contents are the same, but for what the server computes."""
    return (
        one.last_dirty_timestamp_ms == other.last_dirty_timestamp_ms
        and one.status is other.status
        and one.overridden_status is other.overridden_status
        and same_contents_but_status(one, other)
    )


def is_owned_by_stack(instance: Instance) -> bool:
    """Return whether a stack owns the instance."""
    owner = instance.owner or ""
    # Most are syncers', and this is asked of each renewal.
    return owner.startswith("stack/") and isinstance(parse_owner(owner), StackOwner)


def has_accepted_renewal_lately(record: InstanceRecord, url: str, instance: Instance, now: float) -> bool:
    """Return whether a server accepted a renewal so recently that it cannot have evicted the instance.

    A renewed lease lives for twice its duration, but one that was registered again since only for once.
    """
    at = (record.renewed_at_by_url or {}).get(url)
    longest = min(instance.lease.duration_seconds, windows.REMEMBER_RENEWAL_SECONDS)
    return at is not None and now - at < longest


def is_departure_proof(said_at: float | None, now: float) -> bool:
    """Return whether a record's ``left_at``, or its ``evicted_at``, is so recent that it still counts."""
    return said_at is not None and now - said_at <= windows.KEEP_DEPARTURE_PROOF_SECONDS


def is_server_cut_off(record: InstanceRecord, url: str, instance: Instance, now: float) -> bool:
    """Return whether a server has lacked a syncer's instance so long that no other will tell it."""
    since = (record.lacking_since_by_url or {}).get(url)
    return (
        since is not None and now - since >= windows.CUT_OFF_AFTER_SECONDS and not is_owned_by_stack(instance)
    )


def may_copy_between_servers(held: Instance, lacking: Instance | None) -> bool:
    """Return whether to register another server's instance at one that is cut off: without an override.

    :param lacking: the instance at the server that is cut off, if it has one after all.
    """
    return not held.is_overridden and (lacking is None or not lacking.is_overridden)


def successors_not_seen_at(
    records: Iterable[InstanceRecord], url: str, leaving: Collection[Instance], since: float, now: float
) -> list[Instance]:
    """Return the instances that replace leaving ones of their application, and were not seen at a server.

    None if the server holds another instance, as far as is known, or if nothing replaces the leaving ones:
    the server then loses its last instance, as is wanted. An instance that registered itself, on a machine,
    does not count as a replacement: it would get the calls of all that leave. A stack's registrations count
    only for a stack's run, which knows what it has registered; anybody else might register one at a server
    that was asked to remove it.

    :param records: the records of the application.
    :param leaving: the instances, of one application, that are about to be removed at the server.
    :param since: when the first of these was registered, if lately: older ones are wherever these are.
    :returns: the longest registered first: if a server lacks that one, no other server tells it.
    """
    keys = {one.key for one in leaving}
    are_stacks = any(map(is_owned_by_stack, leaving))
    unseen = list[tuple[float, Instance]]()
    for record in records:
        held, spreading = record.instance, record.spreading
        if held is None or held.owner is None or held.status is not Status.UP or record.key in keys:
            continue
        if spreading is not None and spreading.is_leaving:
            continue
        if spreading is None or url in spreading.holder_urls or spreading.registered_at <= since:
            return []
        if now - spreading.registered_at >= windows.SUCCESSORS_SPREAD_SECONDS:
            return []
        if are_stacks or not is_owned_by_stack(held):
            unseen.append((spreading.registered_at, held))
    return [held for _, held in sorted(unseen, key=lambda one: one[0])]


def urls_with_other_status_than_written(
    held_by_url: Mapping[str, Instance | None], last_written: Instance
) -> tuple[str, ...]:
    """Return the URLs of servers with another status than the one last written, which another server holds.

    Servers with an override or a newer version, which somebody else wrote, are left out.

    :param held_by_url: the instance at each server that answered.
    """
    if last_written.is_overridden or last_written.status is Status.OUT_OF_SERVICE:
        return ()
    plain = {
        url: one
        for url, one in held_by_url.items()
        if one is not None and one.owner == last_written.owner and not one.is_overridden
    }
    if not any(
        one.written_at_ms == last_written.written_at_ms and one.status is last_written.status
        for one in plain.values()
    ):
        return ()
    return tuple(
        url
        for url, one in plain.items()
        if one.written_at_ms <= last_written.written_at_ms and one.status is not last_written.status
    )


def is_status_other_than_written_everywhere(
    held_by_url: Mapping[str, Instance | None], last_written: Instance
) -> bool:
    """Return whether all servers hold this process's last version with another status, and no override.

    :param held_by_url: the instance at each server that answered.
    """
    there = [one for one in held_by_url.values() if one is not None]
    return (
        bool(there)
        and not last_written.is_overridden
        and all(
            one.owner == last_written.owner
            and not one.is_overridden
            and one.written_at_ms == last_written.written_at_ms
            and one.status is not last_written.status
            for one in there
        )
    )


class InstanceVerdict(Enum):
    """A judgement of an instance in doubt, by the servers' answers."""

    UNDECIDED = auto()  # nobody knows yet: it is asked for again
    REGISTERED = auto()  # it stands, and is ours to renew
    FOREIGN = auto()  # somebody else has it, and it is left alone
    GONE = auto()  # no server holds it
    FORGOTTEN = auto()  # servers forgot it: it is restored
    LATE_WRITE = auto()  # a write came late, or went ahead of another one: what it did is undone
    LEFT_OVER = auto()  # it was removed, and a server holds it still, or again: it is removed there
    REMOVED = auto()  # it was removed elsewhere: it is neither restored nor renewed


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """The servers' answers on one key, and all that is known of these servers.

    :ivar held_by_url: the instance at each server that answered, by URL; None for none.
    :ivar have_all_answered: True if none of them failed to answer.
    :ivar started_ms_by_url: when each was started, by its own clock; without those that do not say.
    :ivar urls_with_kept_memory: those that are known to have forgotten nothing.
    :ivar may_have_lost_memory: True if one was restarted lately: what is missing may be forgotten.
    :ivar most_servers_at_one_url: the most servers that answer at one URL.
    """

    held_by_url: Mapping[str, Instance | None]
    have_all_answered: bool = True
    started_ms_by_url: Mapping[str, int] = field(default_factory=dict)
    urls_with_kept_memory: Set[str] = frozenset()
    may_have_lost_memory: bool = False
    most_servers_at_one_url: int = 1

    @property
    def newest(self) -> Instance | None:
        """The newest version that any of the servers holds."""
        return newest(self.held_by_url.values())


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners whose instances one operator renews and changes.

    :ivar operator_name: the value of ``eurekube.renewer`` in stacks' registrations.
    :ivar checks_cluster_uid: True if a cluster of the same name and another UID counts as another cluster;
        False if it counts as this cluster's past.
    """

    cluster: Cluster
    operator_name: str
    checks_cluster_uid: bool = False

    def is_renewed_by_this_operator(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster, or a stack that asks this operator, owns it."""
        return self.is_owned_by_syncer_of_this_cluster(instance) or self.is_renewed_for_stack(instance)

    def is_owned_by_syncer_of_this_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster owns the instance."""
        is_named_so = self.cluster.parse_syncer_of_this_cluster(instance.owner) is not None
        return is_named_so and not self.is_of_other_cluster_of_same_name(instance)

    def is_owned_under_any_name_of_this_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of this cluster owns the instance, under whatever name of the cluster."""
        uid = instance.metadata.get(CLUSTER_UID_KEY)
        is_under_present_name = self.is_owned_by_syncer_of_this_cluster(instance)
        return is_under_present_name or self.cluster.has_syncer_under_another_name(instance.owner, uid)

    def is_of_other_cluster_of_same_name(self, instance: Instance) -> bool:
        """Return whether a syncer of another cluster with this cluster's name owns the instance."""
        uid = instance.metadata.get(CLUSTER_UID_KEY) or self.cluster.uid
        if not self.checks_cluster_uid or uid == self.cluster.uid:
            return False
        return self.cluster.parse_syncer_of_this_cluster(instance.owner) is not None

    def is_renewed_for_stack(self, instance: Instance) -> bool:
        """Return whether a stack owns the instance and asks this operator to renew it."""
        return instance.renewer == self.operator_name and is_owned_by_stack(instance)


def judge_checked_instance(
    check: PlannedCheck, record: InstanceRecord, found: Instance | None, now_ms: int
) -> InstanceVerdict:
    """Judge what one server holds of an instance that was removed, or may come late.

    :param found: the instance as it was read at the server.
    :returns: GONE; LEFT_OVER; FOREIGN for an instance without an owner; LATE_WRITE where the owner must say
        what is wanted, perhaps another one, to whom a hand-over may have come late, too.
    """
    if found is None:
        return InstanceVerdict.GONE
    removed = check.instance
    if (
        check.is_removed
        and (
            found.owner == removed.owner
            or found.owner in check.former_owners
            or _is_same_syncer_under_another_name(found, removed)
        )
        and record.instance is None  # else it was registered again, perhaps at this moment
        and found.written_at_ms <= (removed.last_dirty_timestamp_ms or now_ms)
    ):
        return InstanceVerdict.LEFT_OVER
    return InstanceVerdict.LATE_WRITE if found.owner else InstanceVerdict.FOREIGN


def _is_same_syncer_under_another_name(one: Instance, other: Instance) -> bool:
    """Return whether one syncer owns two versions of an instance, under different names of its cluster."""
    mine, theirs = parse_owner(one.owner), parse_owner(other.owner)
    uid = one.metadata.get(CLUSTER_UID_KEY)
    return (
        isinstance(mine, ClusterOwner)
        and isinstance(theirs, ClusterOwner)
        and (mine.namespace, mine.syncer) == (theirs.namespace, theirs.syncer)
        and bool(uid)
        and uid == other.metadata.get(CLUSTER_UID_KEY)
    )


def judge_late_instance(record: InstanceRecord, found: Instance) -> InstanceVerdict:
    """Judge an instance of this operator's that may have come late.

    :param found: the instance, with the mark of leaving if its override may be Eurekube's.
    :returns: LATE_WRITE where its owner must look at it; else REGISTERED.
    """
    known = record.instance
    return (
        InstanceVerdict.LATE_WRITE
        if known is None or (found.is_leaving and not known.is_leaving)
        else InstanceVerdict.REGISTERED
    )


def are_only_some_out_of_service(servers: ServerAnswers) -> bool:
    """Return whether only some of the servers have an OUT_OF_SERVICE."""
    held = [one.overridden_status for one in servers.held_by_url.values() if one is not None]
    is_everywhere = all(status is Status.OUT_OF_SERVICE for status in held)
    return servers.have_all_answered and not is_everywhere and Status.OUT_OF_SERVICE in held


def instances_out_of_service_at_some(lists: Iterable[Iterable[Instance]]) -> list[Instance]:
    """Return the instances that look taken out by a person in some servers' lists, and not in others'."""
    seen = [(one, looks_set_by_a_person(one)) for listed in lists for one in listed]
    others = {one.key for one, is_out in seen if not is_out}
    return [one for one, is_out in seen if is_out and one.key in others]


def judge_unlisted_instance(servers: ServerAnswers, *, have_servers_warmed_up: bool) -> InstanceVerdict:
    """Judge an instance that is no longer listed, and that no server says has left.

    :param have_servers_warmed_up: True if each runs long enough to know all, alone at its URL.
    :returns: REGISTERED if a server holds it, GONE if its absence is proved; else UNDECIDED.
    """
    if servers.newest is not None:
        return InstanceVerdict.REGISTERED
    is_proved = servers.have_all_answered and have_servers_warmed_up
    return InstanceVerdict.GONE if is_proved else InstanceVerdict.UNDECIDED


def judge_listed_stack_registration(
    record: InstanceRecord,
    servers: ServerAnswers,
    ownership: Ownership,
    now_seconds: float,
    do_servers_share_instances: Callable[[], bool],
) -> InstanceVerdict:
    """Judge a stack's registration that a list suggests to renew.

    If one server holds it and another one does not, it is on its way to the other one, or the other one has
    forgotten it, or it was removed there and the first one, frozen or cut off, has missed the removal. In the
    last case a renewal would bring it back on all servers, at an address where nobody is any more. So a
    registration that is old enough, and is missing at a server that has run all the time, was removed. But if
    nobody renewed it for as long as its lease lasts, the server may just have evicted it, and it is renewed.

    :param now_seconds: Unix time.
    :param do_servers_share_instances: called, where it matters, to find out whether servers do.
    :returns: REGISTERED, REMOVED, or UNDECIDED where a server that did not answer may hold it.
    """
    found, dropped = servers.newest, record.dropped
    if found is None or not ownership.is_renewed_for_stack(found):
        return InstanceVerdict.REMOVED if servers.have_all_answered else InstanceVerdict.UNDECIDED
    if dropped is None or is_registered_again(dropped, found, servers.held_by_url):
        if may_have_been_evicted(servers.held_by_url, now_seconds):
            return InstanceVerdict.REGISTERED
        is_removed = (
            bool(urls_where_removed(servers, now_seconds - windows.REGISTRATION_SPREAD_SECONDS))
            and do_servers_share_instances()
        )
        return InstanceVerdict.REMOVED if is_removed else InstanceVerdict.REGISTERED
    # What was removed before our eyes stands only on those that missed it, even if they alone answer. Neither
    # a server's restart makes that less certain, nor that nothing else shows any more that servers share.
    is_removed = bool(urls_where_removed(servers, now_seconds, was_dropped=True)) or any(
        url in servers.held_by_url and servers.held_by_url[url] is None for url in dropped.lacking_urls
    )
    return (
        InstanceVerdict.REMOVED
        if is_removed or not (servers.have_all_answered or servers.may_have_lost_memory)
        else InstanceVerdict.REGISTERED
    )


def judge_missing_stack_registration(
    servers: ServerAnswers,
    accepted_lately: Set[str],
    removed_from: Set[str],
    answered: Set[str],
    now_seconds: float,
    do_servers_share_instances: Callable[[], bool],
    *,
    is_restoring: bool = False,
) -> InstanceVerdict:
    """Judge a stack's registration that a renewal missed at a server that held it, or at all servers.

    :param accepted_lately: the servers that accepted its renewal lately and now lack it.
    :param removed_from: those of them that have forgotten nothing, as they said after the read: whichever
        other server was restarted, the registration was removed there.
    :param answered: the servers that, just before the read, told for how long they have run; any other that
        lacks the registration may have forgotten it.
    :param is_restoring: True if it was judged FORGOTTEN before, and could not be restored.
    :returns: FORGOTTEN, REMOVED, or UNDECIDED where no server holds it or tells its uptime any more.
    """
    if removed_from:
        return InstanceVerdict.REMOVED
    if servers.may_have_lost_memory or is_restoring:
        return InstanceVerdict.FORGOTTEN
    if servers.newest is None:
        said_before = servers.started_ms_by_url.keys() & servers.held_by_url.keys()
        return (
            InstanceVerdict.UNDECIDED
            if said_before and not said_before & answered
            else InstanceVerdict.REMOVED
        )
    those = replace(
        servers, held_by_url={url: one for url, one in servers.held_by_url.items() if one or url in answered}
    )
    if servers.most_servers_at_one_url == 1 and accepted_lately & those.held_by_url.keys():
        return InstanceVerdict.REMOVED
    return (
        InstanceVerdict.REMOVED
        if urls_where_removed(those, now_seconds) and do_servers_share_instances()
        else InstanceVerdict.FORGOTTEN
    )


def is_held_in_another_region(record: InstanceRecord, servers: ServerAnswers, missed: Instance) -> bool:
    """Return whether all servers show the very version whose renewal they missed, and accepted none.

    A server that reads other regions (``remote-region-urls-with-name``) shows what those hold by an uncached
    read and in its lists, and answers its renewal with 404. A registration here would stay when the one there
    is removed. An UNKNOWN of the servers' own is missed by renewals, too, see
    :func:`give_cleared_status_back`.

    Source: InstanceResource and AbstractInstanceRegistry.getInstanceByAppAndId of Netflix/eureka.
    """
    shown = servers.held_by_url.values()
    return (
        bool(shown)
        and not record.renewed_at_by_url
        and servers.most_servers_at_one_url == 1
        and missed.status is not Status.UNKNOWN
        and all(one is not None and is_same_version(one, missed) for one in shown)
    )


def urls_where_removed(servers: ServerAnswers, since: float, *, was_dropped: bool = False) -> tuple[str, ...]:
    """Return the servers at which an instance was removed that others still hold.

    None if a server has lost its memory, nor behind a load balancer, where each answer may be another's.

    :param since: Unix time; a later registration may still be on its way.
    :param was_dropped: True if the removal is known: servers that kept their memory then count always.
    """
    held, found = servers.held_by_url, servers.newest
    if servers.may_have_lost_memory or servers.most_servers_at_one_url > 1:
        if not was_dropped:
            return ()
        held = {url: one for url, one in held.items() if one or url in servers.urls_with_kept_memory}
    if found is None or found.written_at_ms > since * 1000:
        return ()
    started = servers.started_ms_by_url
    lacking = (url for url, one in held.items() if one is None and url in started)
    return tuple(url for url in lacking if started[url] < found.written_at_ms)


def may_have_been_evicted(held_by_url: Mapping[str, Instance | None], now_seconds: float) -> bool:
    """Return whether nobody has renewed the instance for so long that a server may have evicted it."""
    ends = [one.lease_ends_ms for one in held_by_url.values() if one and one.lease_ends_ms is not None]
    return bool(ends) and max(ends) < now_seconds * 1000


def does_list_suggest_renewal(record: InstanceRecord, listed: Instance, now: float) -> bool:
    """Return whether to renew what a list shows: a removed one only once the list cannot be too old."""
    dropped = record.dropped
    is_news = dropped is None or is_registered_again(dropped, listed)
    return is_news or (dropped is not None and now - dropped.asked_at > windows.LIST_LAG_SECONDS)


def is_registered_again(
    dropped: DroppedStackRegistration,
    found: Instance,
    held_by_url: Mapping[str, Instance | None] | None = None,
) -> bool:
    """Return whether a registration is newer than the dropped one: by its time, or because a server
    holds it that had removed the dropped one.
    """
    is_there_again = any((held_by_url or {}).get(url) for url in dropped.lacking_urls)
    is_another = is_there_again and found.incarnation != dropped.instance.incarnation
    return is_another or found.written_at_ms > dropped.instance.written_at_ms
