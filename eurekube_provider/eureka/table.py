"""The records of one Eureka: our own writes and uncached reads, and lists, which only suggest.

A list is up to half a minute old, so that it never overrules what was written or read meanwhile; where it
contradicts older knowledge it raises a doubt, which an uncached read settles.
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
"""Removals that a server still has to be asked for; beyond, the oldest are left to lapse."""


class Table:
    """One Eureka as far as it is known; any number of threads may share it.

    :param urls: its servers.
    :ivar listener: the receiver of changes; none before its registry is started.
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
        """Tell the listener that instances of these owners are not what they were; of nobody's, nothing."""
        for owner in set(owners):
            if owner and self.listener is not None:
                self.listener.owner_changed(owner)

    def tell_of(self, instances: Collection[Instance]) -> None:
        """Tell whose these are, and who has others in an application of which one registered itself."""
        self.tell({one.owner for one in instances} | self._owners_beside(instances))

    def _owners_beside(self, instances: Iterable[Instance]) -> set[str | None]:
        names = {one.application for one in instances if one.owner is None}
        return {one.owner for name in names for one in self.application(name)}

    def found(self, instance: Instance, *, former: str | None = None) -> None:
        """Keep an instance that an uncached read found.

        :param former: the owner before, where a server may not know that it was handed over.
        """
        with self._changing(instance.key) as record:
            self._stands(record, instance, former)

    def registered(self, instance: Instance) -> Instance | None:
        """Keep an instance that was written; returns what was known to stand there."""
        with self._changing(instance.key) as record:
            before = record.held
            self._forget_override(record)
            is_handed_over = before is not None and before.owner != instance.owner
            self._stands(record, instance, before.owner if before is not None and is_handed_over else None)
            return before

    def gone(self, key: Key, *, is_forgotten: bool = False) -> None:
        """Hold no more what an uncached read did not find.

        :param is_forgotten: True if the servers may have lost it: what a person had set over its status comes
            back with it.
        """
        with self._changing(key) as record:
            self._leaves(record, is_forgotten=is_forgotten)

    def unseen(self, key: Key) -> None:
        """No server that answers holds it: what any list says of it next is believed."""
        with self._changing(key) as record:
            self._drop(record)
            record.touched_at = None

    def removed(self, instance: Instance, *, is_certain: bool = False) -> None:
        """Hold no more what was removed, and have every server looked at for it, as it may still come.

        :param is_certain: True if it may only come by a write of ours that got no answer.
        """
        with self._changing(instance.key) as record:
            newest, former = rules.newest_sent(record, instance, self.clock()), record.former_owners
            record.former_owners = frozenset()
            self._forget_override(record)
            self._forget_lost(record)
            if instance.is_leaving and len(self._urls) > 1:
                record.overridden_at = self.clock()  # an OUT_OF_SERVICE of ours that may come late
            self._leaves(record)
            if not is_certain or record.sent or record.status_sent or record.looks:
                self._look(record, newest, former, is_removed=True)

    def forgot(self, instance: Instance) -> None:
        """Remember for its owner what no server holds any more, and nobody removed."""
        with self._changing(instance.key) as record:
            lost = record.held or instance
            if lost.owner:
                record.lost = {**(record.lost or {}), lost.owner: lost}
                self._lost_by_owner[lost.owner].add(record.key)

    def lost(self, owner: str) -> list[Instance]:
        """Return what the servers forgot of an owner."""
        with self._lock:
            keys = self._lost_by_owner.get(owner, ())
            return [lost[owner] for key in keys if (lost := self._records[key].lost)]

    def lost_override(self, key: Key) -> Status:
        """The status that was set over an instance when every server forgot it; else UNKNOWN."""
        with self._lock:
            record = self._records.get(key)
            lost = record.lost_override if record is not None else None
            return Status.UNKNOWN if lost is None else lost.overridden_status

    def give_up(self, owner: str, wanted: Collection[Key]) -> None:
        """Let what the servers forgot of an owner be, and keep what was set over the status of what it wants.

        A pod that takes the name of one which ended meanwhile is another one.
        """
        with self._lock:
            for record in [self._records[key] for key in self._lost_by_owner.get(owner, ())]:
                self._forget_lost(record, owner)
                self._tidy(record)
            for record in [self._records[key] for key in self._lost_overrides]:
                lost = record.lost_override
                if lost is not None and lost.owner == owner and record.key not in wanted:
                    self._forget_override(record)
                    self._tidy(record)

    def unanswered(self, sent: Instance) -> None:
        """Remember a write that got no answer, be it a registration or, with an override, a status.

        Every server is looked at for it: one may carry it out late, when nobody wants it any more.
        """
        with self._changing(sent.key) as record:
            if sent.is_overridden:
                record.status_sent = Sent(sent, self.clock())
            else:
                record.sent = Sent(sent, self.clock())
            self._look(record, sent)

    def unanswered_many(self, sent: Iterable[Instance]) -> None:
        """Remember registrations of a batch that got no answer, which carry a person's status along."""
        for one in sent:
            with self._changing(one.key) as record:
                own = one.status if one.is_leaving else Status.UP
                as_sent = replace(one, status=own, overridden_status=Status.UNKNOWN)
                record.sent = Sent(as_sent, self.clock())

    def overriding(self, instance: Instance) -> None:
        """Remember that a status over an instance's own is about to be set or taken off.

        Every server is looked at for it: a server may tell another one of it again later.
        """
        if len(self._urls) < 2:
            return
        with self._changing(instance.key) as record:
            record.overridden_at = self.clock()
            self._look(record, instance)

    def due(self, url: str) -> list[Look]:
        """Return the looks at a server that are due."""
        now = self.clock()
        with self._lock:
            looks = [record.looks.get(url) for record in self._looked_for.values() if record.looks]
        return [look for look in looks if look is not None and look.at <= now]

    def looked(
        self, url: str, looks: Iterable[Look], after_seconds: Sequence[float], *, was_away: bool = False
    ) -> None:
        """Plan the looks at a server after these.

        :param after_seconds: when what was removed is looked for.
        :param was_away: True if the server did not answer before. It may have updated the others of what it
            held, so that they are looked at again.
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
                    self._tidy(record)

    def accepted(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server accepted the renewals of these."""
        for key in [one.key for one in instances if rules.is_of_stack(one)]:
            with self._changing(key) as record:
                record.accepted_at = {**(record.accepted_at or {}), url: self.clock()}

    def accepted_lately(self, url: str, instance: Instance) -> bool:
        """Return whether a server accepted its renewal so lately that it cannot have evicted it since."""
        with self._lock:
            record = self._records.get(instance.key)
            return record is not None and rules.accepted_lately(record, url, instance, self.clock())

    def lacks(self, url: str, instance: Instance) -> bool:
        """Note that a server lacks what others hold; returns whether it is cut off: it has for long."""
        with self._changing(instance.key) as record:
            record.lacking_since = {url: self.clock(), **(record.lacking_since or {})}
            return rules.is_cut_off(record, url, instance, self.clock())

    def lacks_no_more(self, url: str, key: Key) -> None:
        """Note that a server holds it."""
        with self._lock:
            record = self._records.get(key)
            if record is not None and record.lacking_since:
                record.lacking_since.pop(url, None)

    def took(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server took the registrations of these, of which others may not know yet."""
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
        """Note that a server was seen to hold these."""
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
        """Return what each server was not seen to hold of what replaces these, by URL; see :mod:`.rules`.

        :param leaving: of one application. They replace nothing from now on.
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
        """Note that a server says that these were deregistered or evicted, and do not stand again."""
        for key in keys:
            with self._changing(key) as record:
                record.left_at = self.clock()

    def evicted(self, keys: Iterable[Key]) -> None:
        """Note that one of several servers says that it evicted these: others may have their renewals."""
        for key in keys:
            with self._changing(key) as record:
                record.evicted_at = self.clock()

    def forget_who_left(self) -> None:
        """Forget of what stands again that it ever left, and that it was asked for."""
        with self._lock:
            for record in self._expiring.values():
                if record.held is not None:
                    record.left_at = record.evicted_at = record.asked_at = record.waits_at = None

    def may_ask(self, keys: Iterable[Key], most: int) -> list[Key]:
        """Choose the keys that servers may be asked for now, the longest ago first, and note that they are.

        Others wait that an earlier question left out. Where that was asked for longer ago it has its turn
        first: else a large application would keep all others from being asked for.

        :param most: within :data:`.windows.PROOFS_COUNTED`.
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

        :param lacking: the servers that held it no more when its renewal missed it.
        """
        with self._changing(instance.key) as record:
            before = record.dropped
            if before is not None and before.instance.written_at_ms == instance.written_at_ms:
                lacking = lacking | before.lacking
            record.dropped = Dropped(instance, self.clock(), lacking)

    def drop_no_more(self, key: Key) -> None:
        """Note that it is renewed again."""
        with self._lock:
            if key in self._records:
                self._records[key].dropped = None

    def record(self, key: Key) -> Record:
        """Return a copy of what is known of a key now."""
        with self._lock:
            record = self._records.get(key)
            return replace(record) if record is not None else Record(key)

    def marked(self, held: Iterable[Instance]) -> list[Instance]:
        """Put our mark on instances whose OUT_OF_SERVICE may be one of ours that came late."""
        with self._lock:
            now = self.clock()
            return [
                rules.as_ours(one) if rules.passes_for_a_persons(one) and self._may_be_ours(one, now) else one
                for one in held
            ]

    def _may_be_ours(self, held: Instance, now: float) -> bool:
        """Return whether what passes for a person's OUT_OF_SERVICE may be ours; the lock is held."""
        record = self._records.get(held.key)
        return record is not None and rules.is_out_by_us(record, now)

    def doubt(self) -> None:
        """Believe the next list: somebody else may have changed anything since we wrote or read it."""
        with self._lock:
            for record in self._records.values():
                record.is_firm, record.touched_at = False, None

    def stand_by(self) -> None:
        """Believe the next list, and forget what only holds for who leads."""
        self.doubt()
        with self._lock:
            for record in list(self._records.values()):
                record.former_owners = frozenset()
                self._forget_override(record)
                self._forget_lost(record)
                self._tidy(record)

    def get(self, key: Key) -> Instance | None:
        """One instance."""
        with self._lock:
            record = self._records.get(key)
            return record.held if record is not None else None

    def holds(self, key: Key) -> bool:
        """Return whether something stands there."""
        return self.get(key) is not None

    def is_new(self, key: Key) -> bool:
        """Return whether nothing stands there, and nothing was written or removed there lately."""
        with self._lock:
            record = self._records.get(key)
            return record is None or (record.held is None and record.touched_at is None)

    def owned(self, owner: str) -> list[Instance]:
        """The instances of an owner."""
        with self._lock:
            return self._held(self._by_owner.get(owner, ()))

    def known(self, owner: str = "", application: str = "") -> list[Instance]:
        """The instances of an owner, of an application, of both, or all."""
        if owner:
            owned, name = self.owned(owner), application.upper()
            return [one for one in owned if one.application == name] if name else owned
        if application:
            return self.application(application)
        with self._lock:
            return [record.held for record in self._records.values() if record.held is not None]

    def application(self, name: str) -> list[Instance]:
        """The instances of an application, no matter who owns them."""
        with self._lock:
            return self._held(self._by_application.get(name.upper(), ()))

    def owners(self) -> set[str]:
        """All owners that have an instance."""
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
        """Return how many of an owner, or of a cluster's syncers, are UP, as the brake counts them."""
        with self._lock:
            return self._up_by_owner[owner] if owner else self._up_by_cluster[cluster]

    def owners_called(self, name: str) -> list[str]:
        """Return the owners of instances that callers find under a name: an application's or a VIP address.

        An empty one is of what nobody of ours registered.
        """
        with self._lock:
            return list(self._by_name.get(name.lower(), ()))

    def __len__(self) -> int:
        return self._count

    def merge(
        self, listed: Iterable[Instance], *, is_complete: bool = True, is_forgotten: bool = False
    ) -> tuple[list[Instance], list[Key]]:
        """Take a list of the whole registry; the owners beside what registered itself and left are informed.

        :param is_complete: True if what it lacks is there no more, as far as a list can tell.
        :param is_forgotten: True if servers may have lost what it lacks, see :meth:`gone`.
        :returns: the news: instances that were not known, or otherwise, and are believed as listed; and the
            doubts: keys of which older firm knowledge and the list say different things.
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
                    self._tidy(record)
        self.tell(self._owners_beside(left))
        return news, doubts

    def _held(self, keys: Iterable[Key]) -> list[Instance]:
        records = (self._records[key] for key in keys)
        return [record.held for record in records if record.held is not None]

    @contextmanager
    def _changing(self, key: Key) -> Iterator[Record]:
        """Hand out a record that may be changed, with the lock held."""
        with self._lock:
            record = self._record(key)
            yield record
            self._expires(record)

    def _record(self, key: Key) -> Record:
        """The record of a key, made where there is none; the lock is held, here and below."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(key)
        return record

    def _stands(self, record: Record, instance: Instance, former: str | None) -> None:
        """Hold what was written, or read past the caches."""
        if former:
            record.former_owners |= {former}
        self._forget_lost(record)
        self._hold(record, instance)
        record.is_firm, record.touched_at = True, self.clock()

    def _leaves(self, record: Record, *, is_forgotten: bool = False) -> None:
        record.touched_at, record.spreading = self.clock(), None
        self._drop(record, is_forgotten=is_forgotten)

    def _look(
        self, record: Record, instance: Instance, former: Set[str] = frozenset(), *, is_removed: bool = False
    ) -> None:
        """Have every server looked at: of what only may come, where no look is planned yet."""
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
            self._tidy(oldest)

    def _forget_lost(self, record: Record, owner: str = "") -> None:
        """Put nothing back for an owner, by default for any."""
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

    def _tidy(self, record: Record) -> None:
        if record.is_blank():
            self._records.pop(record.key, None)

    def _expires(self, record: Record) -> None:
        """Note that something of it expires, and forget what did; as that costs what there is, seldom."""
        self._expiring[record.key] = record
        if len(self._expiring) >= self._purge_from:  # no list comes that would do it
            self._purge(self.clock())

    def _purge(self, now: float) -> None:
        for record in [record for record in self._expiring.values() if not record.expire(now)]:
            del self._expiring[record.key]
            self._tidy(record)
        self._spreading = {key: one for key, one in self._spreading.items() if one.spreading is not None}
        self._purge_from = max(FEWEST_TO_PURGE, 2 * len(self._expiring))

    def _hold(self, record: Record, instance: Instance | None) -> None:
        """Hold what stands there, None for nothing, and find it by whatever is asked for."""
        self._count_in(record, -1)
        record.held = instance
        self._count_in(record, 1)

    def _drop(self, record: Record, *, is_forgotten: bool = False) -> None:
        """Hold nothing; the status that a person set, and not ours, is kept of what servers forgot."""
        instance = record.held
        if is_forgotten and instance is not None and instance.is_overridden and not instance.is_leaving:
            record.lost_override = instance
            self._lost_overrides.add(record.key)
        self._hold(record, None)
        record.is_firm = False

    def _count_in(self, record: Record, by: int) -> None:
        """Count what is held in, by 1, or out, by -1."""
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
