"""The records of one Eureka: from writes, uncached reads, and lists, which are only hints.

A list is up to half a minute old, so that it never overrules a recent write or read; where it contradicts
older knowledge, an uncached read decides.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

from eurekube_provider.core.brake import counts_for_brake
from eurekube_provider.core.identity import cluster_name_of_owner
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.registry import RegistryListener
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.listing import Listing, ListingMark
from eurekube_provider.eureka.record import (
    DroppedStackRegistration,
    InstanceRecord,
    PlannedCheck,
    SpreadingRegistration,
    UnansweredWrite,
)
from eurekube_provider.eureka.rules import ListVerdict
from eurekube_provider.runtime.clock import boot_clock_seconds

FEWEST_EXPIRING_TO_PURGE = 1000

MOST_PENDING_CHECKS = 10_000
"""The most removals for which servers are still to be asked; beyond it, the oldest are left to lapse."""


class InstanceTable:
    """All that is known of one Eureka; any number of threads may share it.

    :param urls: the URLs of its servers.
    :ivar listener: the receiver of changes; None before the registry is started.
    """

    def __init__(self, clock: Callable[[], float] = boot_clock_seconds, urls: Sequence[str] = ()) -> None:
        self.clock = clock
        self.listener: RegistryListener | None = None
        self._urls = tuple(urls)
        self._lock = threading.Lock()
        self._records: dict[InstanceKey, InstanceRecord] = {}
        self._expiring: dict[InstanceKey, InstanceRecord] = {}
        # Those with planned checks, the longest ago first.
        self._records_with_checks: dict[InstanceKey, InstanceRecord] = {}
        self._purge_from = FEWEST_EXPIRING_TO_PURGE
        self._by_application: dict[str, dict[InstanceKey, Instance]] = defaultdict(dict)
        self._snapshots_by_application: dict[str, tuple[Instance, ...]] = {}
        self._by_owner: dict[str, dict[InstanceKey, Instance]] = defaultdict(dict)
        self._lost_by_owner: dict[str, set[InstanceKey]] = defaultdict(set)
        self._lost_overrides: set[InstanceKey] = set()
        # Kept up to date, since the brake asks at each reconcile how many of all are UP.
        self._up_by_owner: Counter[str] = Counter()
        self._up_by_cluster: Counter[str] = Counter()
        self._by_cluster: Counter[str] = Counter()
        self._by_name: dict[str, Counter[str]] = defaultdict(Counter)
        # The list of the whole registry that was merged last, and the keys that hold another object than it
        # shows; all other keys hold the object that it shows.
        self._merged_mark: ListingMark | None = None
        self._keys_unlike_list: set[InstanceKey] = set()

    def notify_owners(self, owners: Iterable[str | None]) -> None:
        """Notify the listener that instances of these owners have changed; None, for no owner, is skipped."""
        for owner in set(owners):
            if owner and self.listener is not None:
                self.listener.instances_of_owner_changed(owner)

    def notify_affected_owners(self, instances: Collection[Instance]) -> None:
        """Notify the owners of these instances, and those beside one that registered itself."""
        self.notify_owners({one.owner for one in instances} | self._owners_beside_self_registered(instances))

    def _owners_beside_self_registered(self, instances: Iterable[Instance]) -> set[str | None]:
        names = {one.application for one in instances if one.owner is None}
        return {one.owner for name in names for one in self.instances_of_application(name)}

    def store_read_instance(self, instance: Instance, *, former_owner: str | None = None) -> None:
        """Store an instance that an uncached read found.

        :param former_owner: the owner before, where a server may not know of the hand-over.
        """
        with self._locked_record(instance.key) as record:
            self._store_confirmed_instance(record, instance, former_owner)

    def store_written_and_return_previous(self, instance: Instance) -> Instance | None:
        """Store an instance that was written; return the one that was known before."""
        with self._locked_record(instance.key) as record:
            before = record.instance
            self._forget_lost_override(record)
            former = before.owner if before is not None and before.owner != instance.owner else None
            self._store_confirmed_instance(record, instance, former)
            return before

    def store_confirmed_absence(self, key: InstanceKey, *, may_be_forgotten: bool = False) -> None:
        """Remove an instance that an uncached read did not find.

        :param may_be_forgotten: True if servers may have lost it: a person's override is kept to restore.
        """
        with self._locked_record(key) as record:
            self._store_confirmed_absence(record, may_be_forgotten=may_be_forgotten)

    def store_unconfirmed_absence(self, key: InstanceKey) -> None:
        """Remove an instance that no server holds; the next list that shows it is believed."""
        with self._locked_record(key) as record:
            self._remove_instance(record)
            record.confirmed_at = None

    def store_removal_and_plan_checks(self, instance: Instance, *, is_certain: bool = False) -> None:
        """Store a removal, and plan checks of every server, where the instance may still come back.

        :param is_certain: True if it could come back only by a write of this process that got no answer.
        """
        with self._locked_record(instance.key) as record:
            newest = rules.newest_version_that_may_come(record, instance, self.clock())
            former, record.former_owners = record.former_owners, frozenset()
            self._forget_lost_override(record)
            self._stop_restoring_lost_instance(record)
            if instance.is_leaving and len(self._urls) > 1:
                record.override_changed_at = self.clock()  # an OUT_OF_SERVICE of ours that may come late
            self._store_confirmed_absence(record)
            if (
                not is_certain
                or record.unanswered_registration
                or record.unanswered_override
                or record.checks_by_url
            ):
                self._plan_checks(record, newest, former, is_removed=True)

    def remember_lost_instance(self, instance: Instance) -> None:
        """Remember for its owner an instance that no server holds any more, and that nobody removed."""
        with self._locked_record(instance.key) as record:
            lost = record.instance or instance
            if lost.owner:
                record.lost_by_owner = {**(record.lost_by_owner or {}), lost.owner: lost}
                self._lost_by_owner[lost.owner].add(record.key)

    def instances_lost_by_registry(self, owner: str) -> list[Instance]:
        """Return the instances of an owner that the servers forgot."""
        with self._lock:
            keys = self._lost_by_owner.get(owner, ())
            return [lost[owner] for key in keys if (lost := self._records[key].lost_by_owner)]

    def lost_override(self, key: InstanceKey) -> Status:
        """Return the override that an instance had when every server forgot it; else UNKNOWN."""
        with self._lock:
            record = self._records.get(key)
            lost = record.lost_overridden_instance if record is not None else None
            return Status.UNKNOWN if lost is None else lost.overridden_status

    def stop_tracking_lost_instances(self, owner: str, wanted: Collection[InstanceKey]) -> None:
        """Drop an owner's forgotten instances, and keep lost overrides only for the instances that it wants.

        A pod that takes the name of an ended one is another pod, and does not inherit the override.
        """
        with self._lock:
            for key in tuple(self._lost_by_owner.get(owner, ())):
                record = self._records[key]
                self._stop_restoring_lost_instance(record, owner)
                self._drop_if_empty(record)
            for key in tuple(self._lost_overrides):
                record = self._records[key]
                lost = record.lost_overridden_instance
                if lost is not None and lost.owner == owner and record.key not in wanted:
                    self._forget_lost_override(record)
                    self._drop_if_empty(record)

    def remember_unanswered_write(self, sent: Instance) -> None:
        """Remember a write that got no answer, be it a registration or an override.

        Every server will be checked for it: one may carry the write out late, when nobody wants it any more.
        """
        with self._locked_record(sent.key) as record:
            if sent.is_overridden:
                record.unanswered_override = UnansweredWrite(sent, self.clock())
            else:
                record.unanswered_registration = UnansweredWrite(sent, self.clock())
            self._plan_checks(record, sent)

    def remember_unanswered_registrations(self, sent: Iterable[Instance]) -> None:
        """Remember registrations in a batch that got no answer, without the overrides that they carried."""
        for one in sent:
            with self._locked_record(one.key) as record:
                own = one.status if one.is_leaving else Status.UP
                as_sent = replace(one, status=own, overridden_status=Status.UNKNOWN)
                record.unanswered_registration = UnansweredWrite(as_sent, self.clock())

    def note_override_change(self, instance: Instance, seconds_ago: float = 0.0) -> None:
        """Note that an override is about to be set or cleared, or that a former leader may have done so.

        Every server will be checked for it: a server may tell another one of the override again later.

        :param seconds_ago: the age that the change has for these checks.
        """
        if len(self._urls) < 2:
            return
        with self._locked_record(instance.key) as record:
            record.override_changed_at = self.clock() - seconds_ago
            self._plan_checks(record, instance)

    def due_checks(self, url: str) -> list[PlannedCheck]:
        """Return the planned checks of a server that are due."""
        now = self.clock()
        with self._lock:
            checks = [(one.checks_by_url or {}).get(url) for one in self._records_with_checks.values()]
        return [check for check in checks if check is not None and check.due_at <= now]

    def plan_next_checks(
        self,
        url: str,
        done_checks: Iterable[PlannedCheck],
        after_seconds: Sequence[float],
        *,
        was_away: bool = False,
    ) -> None:
        """Plan the next checks of a server after these.

        :param after_seconds: the seconds after a removal at which servers are checked.
        :param was_away: True if the server did not answer before. It may have told the others of its
            instances, so that they are checked again.
        """
        at = self.clock() + after_seconds[0]
        with self._lock:
            for check in done_checks:
                record = self._records.get(check.instance.key)
                if not (record and record.checks_by_url and record.checks_by_url.get(url) is check):
                    continue  # removed once more meanwhile
                planned = {**record.checks_by_url, url: check.next_check(after_seconds)}
                for other in self._urls if was_away else ():
                    pending = record.checks_by_url.get(other)
                    if other != url and (pending is None or pending.instance is check.instance):
                        rescheduled = replace(check, due_at=at, checks_before=0)
                        planned[other] = min(pending or rescheduled, rescheduled, key=lambda one: one.due_at)
                left = {place: one for place, one in planned.items() if one is not None}
                record.checks_by_url = left or None
                if record.checks_by_url is None:
                    self._records_with_checks.pop(record.key, None)
                    self._drop_if_empty(record)

    def note_accepted_renewals(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server accepted the renewals of these instances; only stacks' are remembered."""
        for key in [one.key for one in instances if rules.is_owned_by_stack(one)]:
            with self._locked_record(key) as record:
                record.renewed_at_by_url = {**(record.renewed_at_by_url or {}), url: self.clock()}

    def has_accepted_renewal_lately(self, url: str, instance: Instance) -> bool:
        """See :func:`.rules.has_accepted_renewal_lately`."""
        with self._lock:
            record = self._records.get(instance.key)
            return bool(record and rules.has_accepted_renewal_lately(record, url, instance, self.clock()))

    def note_missing_and_check_cut_off(self, url: str, instance: Instance) -> bool:
        """Note that a server lacks an instance that others hold; return whether the server has lacked it for
        so long that it counts as cut off from the others.
        """
        with self._locked_record(instance.key) as record:
            record.lacking_since_by_url = {url: self.clock(), **(record.lacking_since_by_url or {})}
            return rules.is_server_cut_off(record, url, instance, self.clock())

    def note_held_at(self, url: str, key: InstanceKey) -> None:
        """Note that a server was seen to hold an instance."""
        with self._lock:
            record = self._records.get(key)
            if record is not None and record.lacking_since_by_url:
                record.lacking_since_by_url.pop(url, None)
            if record is not None:
                self._add_holder(record, url)

    def note_registered_at(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server took the registrations of these instances, of which others may not know yet."""
        if len(self._urls) < 2:
            return
        now = self.clock()
        with self._lock:
            for one in instances:
                record = self._get_or_create_record(one.key)
                is_up_before = record.instance is not None and record.instance.status is Status.UP
                if record.spreading is None and (one.status is not Status.UP or is_up_before):
                    continue
                record.spreading = replace(record.spreading or SpreadingRegistration(now), is_leaving=False)
                self._add_holder(record, url)
                self._mark_expiring(record)

    def _add_holder(self, record: InstanceRecord, url: str) -> None:
        """Note a holder of a registration that is spreading, which ends once every server holds it."""
        if record.spreading is not None:
            urls = record.spreading.holder_urls | {url}
            is_everywhere = urls >= set(self._urls)
            record.spreading = None if is_everywhere else replace(record.spreading, holder_urls=urls)

    def note_leaving_and_find_unseen_successors(
        self, leaving: Collection[Instance]
    ) -> dict[str, list[Instance]]:
        """Note that these instances leave, so that they are nobody's successors any more; return, by server,
        their own successors that it was not seen to hold, see :mod:`.rules`.

        :param leaving: instances of one application.
        """
        if len(self._urls) < 2:
            return {}
        with self._lock:
            now, name = self.clock(), next(iter(leaving)).application
            records = [self._records[key] for key in self._by_application.get(name, ())]
            theirs = [record for one in leaving if (record := self._records.get(one.key))]
            registered_at = [one.spreading.registered_at if one.spreading else -math.inf for one in theirs]
            since = min(registered_at, default=-math.inf)
            for record in theirs:
                record.spreading = record.spreading and replace(record.spreading, is_leaving=True)
            found = {
                url: rules.successors_not_seen_at(records, url, leaving, since, now) for url in self._urls
            }
            return {url: unseen for url, unseen in found.items() if unseen}

    def note_departures(self, left: Iterable[InstanceKey], evicted: Iterable[InstanceKey] = ()) -> None:
        """Note that a server says that instances were deregistered or evicted, and not registered again.

        :param evicted: those that one of several servers evicted: others may have their renewals.
        """
        for key in left:
            with self._locked_record(key) as record:
                record.left_at = self.clock()
        for key in evicted:
            with self._locked_record(key) as record:
                record.evicted_at = self.clock()

    def forget_departures_of_registered(self) -> None:
        """Forget of registered instances that they left, and that servers were asked for them."""
        with self._lock:
            for record in self._expiring.values():
                if record.instance is not None:
                    record.left_at = record.evicted_at = None
                    record.departure_asked_at = record.departure_deferred_at = None

    def choose_keys_to_ask_servers_about(self, keys: Iterable[InstanceKey], most: int) -> list[InstanceKey]:
        """Choose the keys to ask servers about now, the longest unasked first, and note the question.

        Keys that an earlier question left out may still wait. If such a key has been unasked for longer it
        has its turn first: else a large application would keep all others from being asked for.

        :param most: the most keys within :data:`.windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS`.
        """

        def asked_at(record: InstanceRecord) -> float:
            return -math.inf if record.departure_asked_at is None else record.departure_asked_at

        with self._lock:
            now = self.clock()
            wanted = {key: self._get_or_create_record(key) for key in keys}
            known = [record for key, record in self._expiring.items() if key not in wanted]
            asked = [asked_at(one) for one in (*known, *wanted.values())]
            most -= sum(now - at < windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS for at in asked)
            waiting = [
                one
                for one in known
                if one.departure_deferred_at is not None
                and now - one.departure_deferred_at < windows.DEFERRED_QUESTION_TURN_SECONDS
            ]
            turns, chosen = sorted(map(asked_at, waiting)), list[InstanceKey]()
            for record in sorted(wanted.values(), key=asked_at):
                if len(chosen) + bisect_left(turns, asked_at(record)) < most:
                    record.departure_asked_at, record.departure_deferred_at = now, None
                    chosen.append(record.key)
                else:
                    record.departure_deferred_at = now
                self._mark_expiring(record)
            return chosen

    def store_dropped_registration(self, instance: Instance, lacking_urls: Set[str] = frozenset()) -> None:
        """Note that a stack's registration is not renewed, since it was removed.

        :param lacking_urls: the servers that no longer held it when its renewal missed it.
        """
        with self._locked_record(instance.key) as record:
            before = record.dropped
            if before is not None and before.instance.written_at_ms == instance.written_at_ms:
                lacking_urls = lacking_urls | before.lacking_urls
            record.dropped = DroppedStackRegistration(instance, self.clock(), lacking_urls)

    def forget_dropped_registration(self, key: InstanceKey) -> None:
        """Note that a stack's registration is renewed again."""
        with self._lock:
            if key in self._records:
                self._records[key].dropped = None

    def copy_record(self, key: InstanceKey) -> InstanceRecord:
        """Return a copy of a key's record as it is now."""
        with self._lock:
            record = self._records.get(key)
            return replace(record) if record is not None else InstanceRecord(key)

    def add_leaving_marks_to_late_overrides(self, held: Collection[Instance]) -> Collection[Instance]:
        """Return instances, with the mark of leaving added where their OUT_OF_SERVICE may be a late one of
        this process; the same collection where none is.
        """
        with self._lock:
            now = self.clock()
            late = {
                record.key
                for record in self._expiring.values()  # few, and all with an unanswered write
                if rules.has_unanswered_out_of_service(record, now)
            }
        if not late:
            return held
        return [
            rules.add_leaving_mark(one) if one.key in late and rules.looks_set_by_a_person(one) else one
            for one in held
        ]

    def believe_next_list(self) -> None:
        """Believe the next list: somebody else may have changed anything since the last write or read."""
        with self._lock:
            for record in self._records.values():
                record.is_confirmed, record.confirmed_at = False, None

    def stand_by(self) -> None:
        """Believe the next list, and forget the state that only the leading replica needs."""
        self.believe_next_list()
        with self._lock:
            for record in list(self._records.values()):
                record.former_owners = frozenset()
                self._forget_lost_override(record)
                self._stop_restoring_lost_instance(record)
                self._drop_if_empty(record)

    def get(self, key: InstanceKey) -> Instance | None:
        """Return the instance of a key; None for none."""
        with self._lock:
            return self._instance_of(key)

    def has_instance(self, key: InstanceKey) -> bool:
        """Return whether a key has an instance."""
        return self.get(key) is not None

    def is_key_unused(self, key: InstanceKey) -> bool:
        """Return whether a key has no instance, and none was written or removed lately."""
        with self._lock:
            record = self._records.get(key)
            return record is None or (record.instance is None and record.confirmed_at is None)

    def instances_of_owner(self, owner: str) -> list[Instance]:
        """Return the instances of an owner."""
        with self._lock:
            return list(self._by_owner.get(owner, {}).values())

    def known_instances(self) -> list[Instance]:
        """Return all instances."""
        with self._lock:
            return [record.instance for record in self._records.values() if record.instance is not None]

    def instances_of_application(self, name: str) -> list[Instance]:
        """Return the instances of an application, no matter who owns them."""
        with self._lock:
            return list(self._by_application.get(name.upper(), {}).values())

    def instances_by_application(self) -> dict[str, tuple[Instance, ...]]:
        """Return all instances by application, as the same object while nothing changes in one."""
        with self._lock:
            for name in self._by_application.keys() - self._snapshots_by_application.keys():
                self._snapshots_by_application[name] = tuple(self._by_application[name].values())
            return dict(self._snapshots_by_application)

    def was_confirmed_within(self, key: InstanceKey, seconds: float) -> bool:
        """Return whether an instance was written, read past the caches or removed within these seconds, if so
        recently that a list may not show it.
        """
        with self._lock:
            record = self._records.get(key)
            at = record.confirmed_at if record is not None else None
            return at is not None and self.clock() - at <= seconds

    def owners(self) -> set[str]:
        """Return all owners that have an instance."""
        with self._lock:
            return set(self._by_owner)

    def cluster_names(self) -> set[str]:
        """Return the names of the clusters whose syncers have an instance."""
        with self._lock:
            return set(self._by_cluster)

    def count_instances(self, owner: str) -> int:
        """Return how many instances an owner has."""
        with self._lock:
            return len(self._by_owner.get(owner, ()))

    def count_up_instances(self, *, owner: str = "", cluster: str = "") -> int:
        """Return how many instances of an owner, or a cluster's syncers, are UP by the brake's count."""
        with self._lock:
            return self._up_by_owner[owner] if owner else self._up_by_cluster[cluster]

    def owners_found_under_name(self, name: str) -> list[str]:
        """Return the owners of instances that callers find under a name: an application's or a VIP address.

        The empty owner stands for instances that Eurekube did not register.
        """
        with self._lock:
            return list(self._by_name.get(name.lower(), ()))

    def merge_list(
        self, listed: Iterable[Instance], *, is_complete: bool = True, may_be_forgotten: bool = False
    ) -> tuple[list[Instance], list[InstanceKey]]:
        """Merge a list of the whole registry into the records.

        If an instance that registered itself has left, the owners beside it are notified.

        :param is_complete: True if an instance that the list lacks is gone, as far as a list can tell.
        :param may_be_forgotten: True if servers may have lost instances that the list lacks, see
            :meth:`store_confirmed_absence`.
        :returns: the news: instances that were unknown or different, and are believed as listed; and the
            doubts: keys for which the list contradicts older firm knowledge.
        """
        listing = Listing.of(listed)
        news: list[Instance] = []
        doubts: list[InstanceKey] = []
        left: list[Instance] = []
        with self._lock:
            self._purge_expired(self.clock())
            keys = self._keys_that_may_differ(listing) if is_complete else listing.by_key.keys()
            for key in keys:
                instance, record = listing.by_key.get(key), self._records.get(key)
                if record is None and instance is None:
                    continue
                record = record or self._get_or_create_record(key)
                said = rules.judge_list_entry(record, instance)
                if said is ListVerdict.NEEDS_UNCACHED_READ:
                    doubts.append(key)
                elif said is ListVerdict.CHANGED and instance is None:
                    left += [record.instance] if record.instance is not None else []
                    self._remove_instance(record, may_be_forgotten=may_be_forgotten)
                    self._drop_if_empty(record)
                elif said is ListVerdict.CHANGED and instance is not None:
                    news.append(instance)
                    self._set_instance(record, instance)
                elif said is ListVerdict.UNCHANGED:
                    self._set_instance(record, instance)  # the same, so that the next list finds itself here
            if is_complete:
                self._merged_mark = listing.mark
                self._keys_unlike_list = {
                    key for key in keys if self._instance_of(key) is not listing.by_key.get(key)
                }
        self.notify_owners(self._owners_beside_self_registered(left))
        return news, doubts

    def _keys_that_may_differ(self, listing: Listing) -> Collection[InstanceKey]:
        """Return the keys under which a list of the whole registry may show another object than is held here.

        Of thousands of instances nearly all are the same objects as in the list that was merged before.
        """
        changed = listing.keys_changed_since(self._merged_mark)
        if changed is None:
            return dict.fromkeys((*listing.by_key, *self._records))
        return dict.fromkeys((*changed, *self._keys_unlike_list))

    @contextmanager
    def _locked_record(self, key: InstanceKey) -> Iterator[InstanceRecord]:
        """Yield a record that may be changed, with the lock held."""
        with self._lock:
            record = self._get_or_create_record(key)
            yield record
            self._mark_expiring(record)

    def _get_or_create_record(self, key: InstanceKey) -> InstanceRecord:
        """Return the record of a key, perhaps a new one; the lock must be held, here and below."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = InstanceRecord(key)
        return record

    def _instance_of(self, key: InstanceKey) -> Instance | None:
        record = self._records.get(key)
        return record.instance if record is not None else None

    def _store_confirmed_instance(
        self, record: InstanceRecord, instance: Instance, former_owner: str | None
    ) -> None:
        if former_owner:
            record.former_owners |= {former_owner}
        self._stop_restoring_lost_instance(record)
        self._set_instance(record, instance)
        record.is_confirmed, record.confirmed_at = True, self.clock()

    def _store_confirmed_absence(self, record: InstanceRecord, *, may_be_forgotten: bool = False) -> None:
        record.confirmed_at, record.spreading = self.clock(), None
        self._remove_instance(record, may_be_forgotten=may_be_forgotten)

    def _plan_checks(
        self,
        record: InstanceRecord,
        instance: Instance,
        former_owners: Set[str] = frozenset(),
        *,
        is_removed: bool = False,
    ) -> None:
        """Plan checks of every server, the first soon, and keep those of a removal until the next one."""
        if not self._urls:
            return
        check = PlannedCheck(
            instance,
            self.clock() + windows.REMOVAL_CHECKS_AFTER_SECONDS[0],
            is_removed=is_removed,
            former_owners=former_owners,
        )
        before: dict[str, PlannedCheck] = {} if is_removed else record.checks_by_url or {}
        record.checks_by_url = {
            url: replace(before.get(url, check), due_at=check.due_at, checks_before=0) for url in self._urls
        }
        self._records_with_checks.pop(record.key, None)
        self._records_with_checks[record.key] = record
        if len(self._records_with_checks) > MOST_PENDING_CHECKS:
            oldest = self._records_with_checks.pop(next(iter(self._records_with_checks)))
            oldest.checks_by_url = None
            self._drop_if_empty(oldest)

    def _stop_restoring_lost_instance(self, record: InstanceRecord, owner: str = "") -> None:
        """Forget the lost instance of an owner, by default of any owner, so that it is not restored."""
        if record.lost_by_owner is None:
            return
        left = {name: one for name, one in record.lost_by_owner.items() if owner and name != owner}
        for name in record.lost_by_owner.keys() - left.keys():
            self._lost_by_owner[name].discard(record.key)
            if not self._lost_by_owner[name]:
                del self._lost_by_owner[name]
        record.lost_by_owner = left or None

    def _forget_lost_override(self, record: InstanceRecord) -> None:
        if record.lost_overridden_instance is not None:
            record.lost_overridden_instance = None
            self._lost_overrides.discard(record.key)

    def _drop_if_empty(self, record: InstanceRecord) -> None:
        if record.is_empty():
            self._records.pop(record.key, None)

    def _mark_expiring(self, record: InstanceRecord) -> None:
        """Note that a record has entries that expire; now and then, forget all expired ones."""
        self._expiring[record.key] = record
        if len(self._expiring) >= self._purge_from:  # no list comes that would do it
            self._purge_expired(self.clock())

    def _purge_expired(self, now: float) -> None:
        for record in [
            record for record in self._expiring.values() if not record.forget_expired_and_check_any_left(now)
        ]:
            del self._expiring[record.key]
            self._drop_if_empty(record)
        self._purge_from = max(FEWEST_EXPIRING_TO_PURGE, 2 * len(self._expiring))

    def _set_instance(self, record: InstanceRecord, instance: Instance | None) -> None:
        """Set a record's instance, None for none, and update all indexes."""
        before, record.instance = record.instance, instance
        self._keys_unlike_list.add(record.key)
        counts_change = before is None or instance is None or _counted_by(before) != _counted_by(instance)
        if before is not None and counts_change:
            _remove_from_index(self._by_application, before.application, record.key)
            if before.owner:
                _remove_from_index(self._by_owner, before.owner, record.key)
            self._add_to_counts(before, -1)
        if instance is not None:
            self._by_application[instance.application][record.key] = instance
            if instance.owner:
                self._by_owner[instance.owner][record.key] = instance
            if counts_change:
                self._add_to_counts(instance, 1)
        self._snapshots_by_application.pop(record.key[0], None)

    def _remove_instance(self, record: InstanceRecord, *, may_be_forgotten: bool = False) -> None:
        """Remove a record's instance; if servers forgot it, keep a person's override, but not Eurekube's."""
        instance = record.instance
        if may_be_forgotten and instance is not None and instance.is_overridden and not instance.is_leaving:
            record.lost_overridden_instance = instance
            self._lost_overrides.add(record.key)
        if instance is not None:
            self._set_instance(record, None)
        record.is_confirmed = False

    def _add_to_counts(self, instance: Instance, by: int) -> None:
        """Count an instance (by 1), or count it no more (by -1)."""
        owner = instance.owner or ""
        for name in instance.names:
            _add_to_counter(self._by_name[name], owner, by)
            if not self._by_name[name]:
                del self._by_name[name]
        cluster = cluster_name_of_owner(owner)
        if cluster is not None:
            _add_to_counter(self._by_cluster, cluster, by)
        if owner and instance.status is Status.UP and counts_for_brake(instance):
            _add_to_counter(self._up_by_owner, owner, by)
            if cluster is not None:
                _add_to_counter(self._up_by_cluster, cluster, by)


def _counted_by(one: Instance) -> tuple[object, ...]:
    """Return all by which an instance is counted, and found in the indexes of keys."""
    return one.owner, one.status, one.vip_address, one.secure_vip_address, counts_for_brake(one)


def _remove_from_index(index: dict[str, dict[InstanceKey, Instance]], name: str, key: InstanceKey) -> None:
    del index[name][key]
    if not index[name]:
        del index[name]


def _add_to_counter(counter: Counter[str], name: str, by: int) -> None:
    counter[name] += by
    if not counter[name]:
        del counter[name]
