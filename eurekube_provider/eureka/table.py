"""The records of one Eureka: from this process's writes and uncached reads, and from lists, which are only
hints.

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
from typing import TypeVar

from eurekube_provider.core.brake import counts
from eurekube_provider.core.identity import cluster_of
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.registry import RegistryListener
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.record import Dropped, Look, Record, Sent, Spreading
from eurekube_provider.eureka.rules import Listed
from eurekube_provider.runtime.clock import elapsed_seconds

T = TypeVar("T")

FEWEST_TO_PURGE = 1000

MOST_LOOKED_FOR = 10_000
"""The most removals for which servers are still to be asked; beyond it, the oldest are left to lapse."""


class Table:
    """All that is known of one Eureka; any number of threads may share it.

    :param urls: the URLs of its servers.
    :ivar listener: the receiver of changes; None before the registry is started.
    """

    def __init__(self, clock: Callable[[], float] = elapsed_seconds, urls: Sequence[str] = ()) -> None:
        self.clock = clock
        self.listener: RegistryListener | None = None
        self._urls = tuple(urls)
        self._lock = threading.Lock()
        self._records: dict[Key, Record] = {}
        self._expiring: dict[Key, Record] = {}
        self._looked_for: dict[Key, Record] = {}  # those that have looks, the longest ago first
        self._spreading: dict[Key, Record] = {}  # those that not every server was seen to hold
        self._purge_from = FEWEST_TO_PURGE
        self._count = 0
        self._by_application: dict[str, Counter[Key]] = defaultdict(Counter)
        self._by_owner: dict[str, Counter[Key]] = defaultdict(Counter)
        self._lost_by_owner: dict[str, set[Key]] = defaultdict(set)
        self._lost_overrides: set[Key] = set()
        # Kept up to date, since the brake asks at each reconcile how many of all are UP.
        self._up_by_owner: Counter[str] = Counter()
        self._up_by_cluster: Counter[str] = Counter()
        self._by_cluster: Counter[str] = Counter()
        self._by_name: dict[str, Counter[str]] = defaultdict(Counter)

    def tell(self, owners: Iterable[str | None]) -> None:
        """Notify the listener that instances of these owners have changed; None, for no owner, is skipped."""
        for owner in set(owners):
            if owner and self.listener is not None:
                self.listener.owner_changed(owner)

    def tell_of(self, instances: Collection[Instance]) -> None:
        """Notify the owners of these instances, and owners in an application in which one of them
        registered itself.
        """
        self.tell({one.owner for one in instances} | self._owners_of_same_applications(instances))

    def _owners_of_same_applications(self, instances: Iterable[Instance]) -> set[str | None]:
        names = {one.application for one in instances if one.owner is None}
        return {one.owner for name in names for one in self.application(name)}

    def found(self, instance: Instance, *, former: str | None = None) -> None:
        """Store an instance that an uncached read found.

        :param former: the owner before, where a server may not know of the hand-over.
        """
        with self._changing(instance.key) as record:
            self._stands(record, instance, former)

    def registered(self, instance: Instance) -> Instance | None:
        """Store an instance that was written; return the one that was known before."""
        with self._changing(instance.key) as record:
            before = record.held
            self._forget_override(record)
            is_handed_over = before is not None and before.owner != instance.owner
            self._stands(record, instance, before.owner if before is not None and is_handed_over else None)
            return before

    def gone(self, key: Key, *, is_forgotten: bool = False) -> None:
        """Remove an instance that an uncached read did not find.

        :param is_forgotten: True if the servers may have lost it: a person's override is then restored with
            it.
        """
        with self._changing(key) as record:
            self._mark_gone(record, is_forgotten=is_forgotten)

    def unseen(self, key: Key) -> None:
        """Remove an instance that no server holds; the next list that shows it is believed."""
        with self._changing(key) as record:
            self._drop(record)
            record.touched_at = None

    def removed(self, instance: Instance, *, is_certain: bool = False) -> None:
        """Store a removal, and plan checks (looks) of every server, where the instance may still come back.

        :param is_certain: True if it could come back only by a write of this process that got no answer.
        """
        with self._changing(instance.key) as record:
            newest, former = rules.newest_sent(record, instance, self.clock()), record.former_owners
            record.former_owners = frozenset()
            self._forget_override(record)
            self._forget_lost(record)
            if instance.is_leaving and len(self._urls) > 1:
                record.overridden_at = self.clock()  # an OUT_OF_SERVICE of ours that may come late
            self._mark_gone(record)
            if not is_certain or record.sent or record.status_sent or record.looks:
                self._look(record, newest, former, is_removed=True)

    def forgot(self, instance: Instance) -> None:
        """Remember for its owner an instance that no server holds any more, and that nobody removed."""
        with self._changing(instance.key) as record:
            lost = record.held or instance
            if lost.owner:
                record.lost = {**(record.lost or {}), lost.owner: lost}
                self._lost_by_owner[lost.owner].add(record.key)

    def lost(self, owner: str) -> list[Instance]:
        """Return the instances of an owner that the servers forgot."""
        with self._lock:
            keys = self._lost_by_owner.get(owner, ())
            return [lost[owner] for key in keys if (lost := self._records[key].lost)]

    def lost_override(self, key: Key) -> Status:
        """Return the override that an instance had when every server forgot it; else UNKNOWN."""
        with self._lock:
            record = self._records.get(key)
            lost = record.lost_override if record is not None else None
            return Status.UNKNOWN if lost is None else lost.overridden_status

    def give_up(self, owner: str, wanted: Collection[Key]) -> None:
        """Drop an owner's forgotten instances, and keep lost overrides only for the instances that it wants.

        A pod that takes the name of an ended one is another pod, and does not inherit the override.
        """
        with self._lock:
            for record in [self._records[key] for key in self._lost_by_owner.get(owner, ())]:
                self._forget_lost(record, owner)
                self._drop_if_blank(record)
            for record in [self._records[key] for key in self._lost_overrides]:
                lost = record.lost_override
                if lost is not None and lost.owner == owner and record.key not in wanted:
                    self._forget_override(record)
                    self._drop_if_blank(record)

    def unanswered(self, sent: Instance) -> None:
        """Remember a write that got no answer, be it a registration or an override.

        Every server will be checked for it: one may carry the write out late, when nobody wants it any more.
        """
        with self._changing(sent.key) as record:
            if sent.is_overridden:
                record.status_sent = Sent(sent, self.clock())
            else:
                record.sent = Sent(sent, self.clock())
            self._look(record, sent)

    def unanswered_many(self, sent: Iterable[Instance]) -> None:
        """Remember registrations of a batch that got no answer, without the overrides that they carried."""
        for one in sent:
            with self._changing(one.key) as record:
                own = one.status if one.is_leaving else Status.UP
                as_sent = replace(one, status=own, overridden_status=Status.UNKNOWN)
                record.sent = Sent(as_sent, self.clock())

    def overriding(self, instance: Instance) -> None:
        """Note that an override is about to be set or cleared.

        Every server will be checked for it: a server may tell another one of the override again later.
        """
        if len(self._urls) < 2:
            return
        with self._changing(instance.key) as record:
            record.overridden_at = self.clock()
            self._look(record, instance)

    def due(self, url: str) -> list[Look]:
        """Return the planned checks (looks) of a server that are due."""
        now = self.clock()
        with self._lock:
            looks = [record.looks.get(url) for record in self._looked_for.values() if record.looks]
        return [look for look in looks if look is not None and look.at <= now]

    def looked(
        self, url: str, looks: Iterable[Look], after_seconds: Sequence[float], *, was_away: bool = False
    ) -> None:
        """Plan the next checks of a server after these.

        :param after_seconds: the seconds after a removal at which servers are checked.
        :param was_away: True if the server did not answer before. It may have told the others of its
            instances, so that they are checked again.
        """
        at = self.clock() + after_seconds[0]
        with self._lock:
            for look in looks:
                record = self._records.get(look.instance.key)
                if record is None or record.looks is None or record.looks.get(url) is not look:
                    continue  # removed once more meanwhile
                planned = {**record.looks, url: look.following(after_seconds)}
                for other in self._urls if was_away else ():
                    pending = record.looks.get(other)
                    if other != url and (pending is None or pending.instance is look.instance):
                        rescheduled = replace(look, at=at, number=0)
                        planned[other] = min(pending or rescheduled, rescheduled, key=lambda one: one.at)
                record.looks = {place: one for place, one in planned.items() if one is not None} or None
                if record.looks is None:
                    self._looked_for.pop(record.key, None)
                    self._drop_if_blank(record)

    def accepted(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server accepted the renewals of these instances; only stacks' are remembered."""
        for key in [one.key for one in instances if rules.is_of_stack(one)]:
            with self._changing(key) as record:
                record.accepted_at = {**(record.accepted_at or {}), url: self.clock()}

    def accepted_lately(self, url: str, instance: Instance) -> bool:
        """Return whether a server accepted a renewal of the instance so recently that it cannot have
        evicted it since.
        """
        with self._lock:
            record = self._records.get(instance.key)
            return record is not None and rules.accepted_lately(record, url, instance, self.clock())

    def lacks(self, url: str, instance: Instance) -> bool:
        """Note that a server lacks an instance that others hold; return whether it has for so long that it
        is cut off.
        """
        with self._changing(instance.key) as record:
            record.lacking_since = {url: self.clock(), **(record.lacking_since or {})}
            return rules.is_cut_off(record, url, instance, self.clock())

    def lacks_no_more(self, url: str, key: Key) -> None:
        """Note that a server holds the instance."""
        with self._lock:
            record = self._records.get(key)
            if record is not None and record.lacking_since:
                record.lacking_since.pop(url, None)

    def took(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server took the registrations of these instances, of which others may not know yet."""
        if len(self._urls) < 2:
            return
        now = self.clock()
        with self._lock:
            for one in instances:
                record = self._record(one.key)
                is_up_before = record.held is not None and record.held.status is Status.UP
                if record.spreading is None and (one.status is not Status.UP or is_up_before):
                    continue
                spreading = record.spreading or Spreading(now)
                record.spreading = replace(spreading, seen=spreading.seen | {url}, is_leaving=False)
                self._spreading[record.key] = record
                self._seen_by_all(record)
                self._expires(record)

    def seen(self, url: str, keys: Iterable[Key]) -> None:
        """Note that a server was seen to hold these instances."""
        if not self._spreading:
            return
        with self._lock:
            for key in keys:
                record = self._spreading.get(key)
                if record is not None and record.spreading is not None:
                    spreading = record.spreading
                    record.spreading = replace(spreading, seen=spreading.seen | {url})
                    self._seen_by_all(record)

    def _seen_by_all(self, record: Record) -> None:
        if record.spreading is not None and record.spreading.seen >= set(self._urls):
            record.spreading = None
        if record.spreading is None:
            self._spreading.pop(record.key, None)

    def unseen_successors(self, leaving: Collection[Instance]) -> dict[str, list[Instance]]:
        """Return, by server, the successors of these instances that it was not seen to hold; see
        :mod:`.rules`.

        :param leaving: instances of one application. From now on they are nobody's successors.
        """
        if not self._spreading:
            return {}
        with self._lock:
            now, name = self.clock(), next(iter(leaving)).application
            if not any(application == name for application, _ in self._spreading):
                return {}
            theirs = [record.spreading for one in leaving if (record := self._records.get(one.key))]
            since = min((-math.inf if one is None else one.at for one in theirs), default=-math.inf)
            for one in leaving:
                if (record := self._spreading.get(one.key)) is not None and record.spreading is not None:
                    record.spreading = replace(record.spreading, is_leaving=True)
            found = dict[str, list[Instance]]()
            for url in self._urls:
                records = (self._records[key] for key in self._by_application.get(name, ()))
                if unseen := rules.unseen_successors(records, url, leaving, since, now):
                    found[url] = unseen
            return found

    def left(self, keys: Iterable[Key]) -> None:
        """Note that a server says that these instances were deregistered or evicted, and not registered
        again.
        """
        for key in keys:
            with self._changing(key) as record:
                record.left_at = self.clock()

    def evicted(self, keys: Iterable[Key]) -> None:
        """Note that one of several servers says that it evicted these instances: others may have their
        renewals.
        """
        for key in keys:
            with self._changing(key) as record:
                record.evicted_at = self.clock()

    def forget_who_left(self) -> None:
        """Forget, for instances that are registered again, that they left and that servers were asked for
        them.
        """
        with self._lock:
            for record in self._expiring.values():
                if record.held is not None:
                    record.left_at = record.evicted_at = record.asked_at = record.waits_at = None

    def may_ask(self, keys: Iterable[Key], most: int) -> list[Key]:
        """Choose the keys for which servers may be asked now, the longest unasked first, and note the
        question.

        Keys that an earlier question left out may still wait. If such a key has been unasked for longer it
        has its turn first: else a large application would keep all others from being asked for.

        :param most: the most keys within :data:`.windows.PROOFS_COUNTED`.
        """

        def asked_at(record: Record) -> float:
            return -math.inf if record.asked_at is None else record.asked_at

        with self._lock:
            now = self.clock()
            wanted = {key: self._record(key) for key in keys}
            known = [record for key, record in self._expiring.items() if key not in wanted]
            most -= sum(now - asked_at(one) < windows.PROOFS_COUNTED for one in (*known, *wanted.values()))
            waiting = [
                one for one in known if one.waits_at is not None and now - one.waits_at < windows.PROOF_TURN
            ]
            turns, chosen = sorted(map(asked_at, waiting)), list[Key]()
            for record in sorted(wanted.values(), key=asked_at):
                if len(chosen) + bisect_left(turns, asked_at(record)) < most:
                    record.asked_at, record.waits_at = now, None
                    chosen.append(record.key)
                else:
                    record.waits_at = now
                self._expires(record)
            return chosen

    def drop(self, instance: Instance, lacking: Set[str] = frozenset()) -> None:
        """Note that a stack's registration is not renewed, since it was removed.

        :param lacking: the servers that no longer held it when its renewal missed it.
        """
        with self._changing(instance.key) as record:
            before = record.dropped
            if before is not None and before.instance.written_at_ms == instance.written_at_ms:
                lacking = lacking | before.lacking
            record.dropped = Dropped(instance, self.clock(), lacking)

    def drop_no_more(self, key: Key) -> None:
        """Note that a stack's registration is renewed again."""
        with self._lock:
            if key in self._records:
                self._records[key].dropped = None

    def record(self, key: Key) -> Record:
        """Return a copy of a key's record as it is now."""
        with self._lock:
            record = self._records.get(key)
            return replace(record) if record is not None else Record(key)

    def marked(self, held: Iterable[Instance]) -> list[Instance]:
        """Return instances, with the mark of leaving added where their OUT_OF_SERVICE may be a late one of
        this process.
        """
        with self._lock:
            now = self.clock()
            return [
                rules.as_ours(one) if rules.passes_for_a_persons(one) and self._may_be_ours(one, now) else one
                for one in held
            ]

    def _may_be_ours(self, held: Instance, now: float) -> bool:
        """Return whether an OUT_OF_SERVICE that passes for a person's may be this process's; the lock must
        be held.
        """
        record = self._records.get(held.key)
        return record is not None and rules.is_out_by_us(record, now)

    def doubt(self) -> None:
        """Believe the next list: somebody else may have changed anything since this process wrote or read
        it.
        """
        with self._lock:
            for record in self._records.values():
                record.is_firm, record.touched_at = False, None

    def stand_by(self) -> None:
        """Believe the next list, and forget the state that only the leading replica needs."""
        self.doubt()
        with self._lock:
            for record in list(self._records.values()):
                record.former_owners = frozenset()
                self._forget_override(record)
                self._forget_lost(record)
                self._drop_if_blank(record)

    def get(self, key: Key) -> Instance | None:
        """Return the instance of a key; None for none."""
        with self._lock:
            record = self._records.get(key)
            return record.held if record is not None else None

    def holds(self, key: Key) -> bool:
        """Return whether a key has an instance."""
        return self.get(key) is not None

    def is_new(self, key: Key) -> bool:
        """Return whether a key has no instance, and none was written or removed lately."""
        with self._lock:
            record = self._records.get(key)
            return record is None or (record.held is None and record.touched_at is None)

    def owned(self, owner: str) -> list[Instance]:
        """Return the instances of an owner."""
        with self._lock:
            return self._held(self._by_owner.get(owner, ()))

    def known(self, owner: str = "", application: str = "") -> list[Instance]:
        """Return the instances of an owner, of an application, of both, or all."""
        if owner:
            owned, name = self.owned(owner), application.upper()
            return [one for one in owned if one.application == name] if name else owned
        if application:
            return self.application(application)
        with self._lock:
            return [record.held for record in self._records.values() if record.held is not None]

    def application(self, name: str) -> list[Instance]:
        """Return the instances of an application, no matter who owns them."""
        with self._lock:
            return self._held(self._by_application.get(name.upper(), ()))

    def owners(self) -> set[str]:
        """Return all owners that have an instance."""
        with self._lock:
            return set(self._by_owner)

    def clusters(self) -> set[str]:
        """Return the names of the clusters whose syncers have an instance."""
        with self._lock:
            return set(self._by_cluster)

    def count(self, owner: str) -> int:
        """Return how many instances an owner has."""
        with self._lock:
            return len(self._by_owner.get(owner, ()))

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """Return how many instances of an owner, or of a cluster's syncers, are UP, as the brake counts
        them.
        """
        with self._lock:
            return self._up_by_owner[owner] if owner else self._up_by_cluster[cluster]

    def owners_called(self, name: str) -> list[str]:
        """Return the owners of instances that callers find under a name: an application's or a VIP address.

        The empty owner stands for instances that Eurekube did not register.
        """
        with self._lock:
            return list(self._by_name.get(name.lower(), ()))

    def __len__(self) -> int:
        return self._count

    def merge(
        self, listed: Iterable[Instance], *, is_complete: bool = True, is_forgotten: bool = False
    ) -> tuple[list[Instance], list[Key]]:
        """Merge a list of the whole registry into the records.

        If an instance that registered itself has left, the owners of other instances in its application are
        notified.

        :param is_complete: True if an instance that the list lacks is gone, as far as a list can tell.
        :param is_forgotten: True if servers may have lost instances that the list lacks, see :meth:`gone`.
        :returns: the news: instances that were unknown or different, and are believed as listed; and the
            doubts: keys for which the list contradicts older firm knowledge.
        """
        suggested = {instance.key: instance for instance in listed}
        news: list[Instance] = []
        doubts: list[Key] = []
        left: list[Instance] = []
        with self._lock:
            self._purge(self.clock())
            for key, instance in suggested.items():
                record = self._records.get(key)
                if record is not None and record.held is instance:
                    continue
                record = record or self._record(key)
                said = rules.judge_listed(record, instance)
                if said is Listed.DOUBT:
                    doubts.append(key)
                elif said is Listed.NEWS:
                    news.append(instance)
                    self._hold(record, instance)
                elif said is Listed.SAME:
                    self._hold(record, instance)  # the same, so that the next list finds itself here
            unlisted = [record for key, record in self._records.items() if key not in suggested]
            for record in unlisted if is_complete else ():
                said = rules.judge_listed(record, None)
                if said is Listed.DOUBT:
                    doubts.append(record.key)
                elif said is Listed.NEWS:
                    left += [record.held] if record.held is not None else []
                    self._drop(record, is_forgotten=is_forgotten)
                    self._drop_if_blank(record)
        self.tell(self._owners_of_same_applications(left))
        return news, doubts

    def _held(self, keys: Iterable[Key]) -> list[Instance]:
        records = (self._records[key] for key in keys)
        return [record.held for record in records if record.held is not None]

    @contextmanager
    def _changing(self, key: Key) -> Iterator[Record]:
        """Yield a record that may be changed, with the lock held."""
        with self._lock:
            record = self._record(key)
            yield record
            self._expires(record)

    def _record(self, key: Key) -> Record:
        """Return the record of a key, made if there is none; the lock must be held, here and in the
        methods below.
        """
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(key)
        return record

    def _stands(self, record: Record, instance: Instance, former: str | None) -> None:
        """Store an instance that was written, or read past the caches."""
        if former:
            record.former_owners |= {former}
        self._forget_lost(record)
        self._hold(record, instance)
        record.is_firm, record.touched_at = True, self.clock()

    def _mark_gone(self, record: Record, *, is_forgotten: bool = False) -> None:
        record.touched_at, record.spreading = self.clock(), None
        self._drop(record, is_forgotten=is_forgotten)

    def _look(
        self, record: Record, instance: Instance, former: Set[str] = frozenset(), *, is_removed: bool = False
    ) -> None:
        """Plan checks of every server; for an instance that may only come late, just where none is planned
        yet.
        """
        if not self._urls:
            return
        look = Look(instance, self.clock() + windows.SWEEP[0], is_removed=is_removed, former=former)
        planned = dict.fromkeys(self._urls, look)
        if is_removed:
            record.looks = planned
            self._looked_for.pop(record.key, None)
        else:
            record.looks = {**planned, **(record.looks or {})}
        if record.looks is not None:
            self._looked_for[record.key] = record
        if len(self._looked_for) > MOST_LOOKED_FOR:
            oldest = self._looked_for.pop(next(iter(self._looked_for)))
            oldest.looks = None
            self._drop_if_blank(oldest)

    def _forget_lost(self, record: Record, owner: str = "") -> None:
        """Forget the lost instance of an owner, by default of any owner, so that it is not restored."""
        if record.lost is None:
            return
        left = {name: one for name, one in record.lost.items() if owner and name != owner}
        for name in record.lost.keys() - left.keys():
            self._lost_by_owner[name].discard(record.key)
            if not self._lost_by_owner[name]:
                del self._lost_by_owner[name]
        record.lost = left or None

    def _forget_override(self, record: Record) -> None:
        if record.lost_override is not None:
            record.lost_override = None
            self._lost_overrides.discard(record.key)

    def _drop_if_blank(self, record: Record) -> None:
        if record.is_blank():
            self._records.pop(record.key, None)

    def _expires(self, record: Record) -> None:
        """Note that a record has entries that expire; now and then forget expired entries, since that
        visits all such records.
        """
        self._expiring[record.key] = record
        if len(self._expiring) >= self._purge_from:  # no list comes that would do it
            self._purge(self.clock())

    def _purge(self, now: float) -> None:
        for record in [record for record in self._expiring.values() if not record.expire(now)]:
            del self._expiring[record.key]
            self._drop_if_blank(record)
        self._spreading = {key: one for key, one in self._spreading.items() if one.spreading is not None}
        self._purge_from = max(FEWEST_TO_PURGE, 2 * len(self._expiring))

    def _hold(self, record: Record, instance: Instance | None) -> None:
        """Set a record's instance, None for none, and update all indexes."""
        self._count_in(record, -1)
        record.held = instance
        self._count_in(record, 1)

    def _drop(self, record: Record, *, is_forgotten: bool = False) -> None:
        """Remove a record's instance; if servers forgot it, keep a person's override, but none of
        Eurekube's.
        """
        instance = record.held
        if is_forgotten and instance is not None and instance.is_overridden and not instance.is_leaving:
            record.lost_override = instance
            self._lost_overrides.add(record.key)
        self._hold(record, None)
        record.is_firm = False

    def _count_in(self, record: Record, by: int) -> None:
        """Add a record's instance to the counts and indexes (by 1), or remove it (by -1)."""
        instance, key = record.held, record.key
        if instance is None:
            return
        self._count += by
        _add_to(self._by_application, instance.application, key, by)
        owner = instance.owner or ""
        for name in instance.names:
            _add_to(self._by_name, name, owner, by)
        if not owner:
            return
        _add_to(self._by_owner, owner, key, by)
        cluster = cluster_of(owner)
        if cluster is not None:
            _add(self._by_cluster, cluster, by)
        if instance.status is Status.UP and counts(instance):
            _add(self._up_by_owner, owner, by)
            if cluster is not None:
                _add(self._up_by_cluster, cluster, by)


def _add_to(index: dict[str, Counter[T]], name: str, what: T, by: int) -> None:
    _add(index[name], what, by)
    if not index[name]:
        del index[name]


def _add(counter: Counter[T], what: T, by: int) -> None:
    counter[what] += by
    if not counter[what]:
        del counter[what]
