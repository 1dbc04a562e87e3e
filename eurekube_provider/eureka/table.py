"""The records of one Eureka: our own writes and uncached reads, and lists, which only suggest.

A list is up to half a minute old, so that it never overrules what was written or read meanwhile; where it
contradicts older knowledge it raises a doubt, which an uncached read settles.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from eurekube_provider.core.brake import counts
from eurekube_provider.core.identity import cluster_of
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.eureka import rules
from eurekube_provider.eureka.record import Record, Sent
from eurekube_provider.eureka.rules import Listed
from eurekube_provider.runtime.clock import elapsed_seconds

T = TypeVar("T")
Rule = Callable[[Record, Instance, float], T]

FEWEST_TO_PURGE = 1000


class Table:
    """One Eureka as far as it is known; any number of threads may share it."""

    def __init__(self, clock: Callable[[], float] = elapsed_seconds) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._records: dict[Key, Record] = {}
        self._expiring: dict[Key, Record] = {}
        self._purge_from = FEWEST_TO_PURGE
        self._count = 0
        self._by_application: dict[str, set[Key]] = defaultdict(set)
        self._by_owner: dict[str, set[Key]] = defaultdict(set)
        self._lost_by_owner: dict[str, set[Key]] = defaultdict(set)
        self._lost_overrides: set[Key] = set()
        # Kept up to date, since the brake asks at each reconcile how many of all are UP.
        self._up_by_owner: Counter[str] = Counter()
        self._up_by_cluster: Counter[str] = Counter()
        self._by_name: dict[str, Counter[str]] = defaultdict(Counter)

    def found(self, instance: Instance, *, former: str | None = None) -> None:
        """Keep an instance that an uncached read found.

        :param former: whose it was before, where a server may not know that it was handed over.
        """
        with self._lock:
            self._stands(instance, former)

    def registered(self, instance: Instance) -> Instance | None:
        """Keep an instance that was written; returns what was known to stand there."""
        with self._lock:
            record = self._record(instance.key)
            before = record.held
            self._forget_override(record)
            is_handed_over = before is not None and before.owner != instance.owner
            self._stands(instance, before.owner if before is not None and is_handed_over else None)
            return before

    def gone(self, key: Key, *, is_forgotten: bool = False) -> None:
        """Hold no more what an uncached read did not find.

        :param is_forgotten: whether the servers may have lost it: what a person had set over its status comes
            back with it.
        """
        with self._lock:
            self._leaves(self._record(key), is_forgotten=is_forgotten)

    def removed(self, instance: Instance, *, was_overridden: bool) -> tuple[Instance, frozenset[str]]:
        """Hold no more what was removed; returns it as it may still come, and its former owners.

        :param was_overridden: whether an OUT_OF_SERVICE of ours was removed with it, which may come late.
        """
        with self._lock:
            record = self._record(instance.key)
            newest, former = rules.newest_sent(record, instance, self.clock()), record.former_owners
            record.former_owners = frozenset()
            self._forget_override(record)
            self._forget_lost(record)
            if was_overridden:
                record.overridden_at = self.clock()
            self._leaves(record)
            return newest, former

    def forgot(self, instance: Instance) -> None:
        """Remember for its owner what no server holds any more, and nobody removed."""
        with self._lock:
            record = self._record(instance.key)
            lost = record.held or instance
            if lost.owner:
                record.lost = {**(record.lost or {}), lost.owner: lost}
                self._lost_by_owner[lost.owner].add(record.key)

    def lost(self, owner: str) -> list[Instance]:
        """What the servers forgot of an owner."""
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
        """Remember a write that got no answer, be it a registration or, with an override, a status."""
        with self._lock:
            self._unanswered(sent)

    def unanswered_many(self, sent: Iterable[Instance]) -> None:
        """Remember registrations of a batch that got no answer, which carry a person's status along."""
        with self._lock:
            for one in sent:
                own = one.status if one.is_leaving else Status.UP
                self._unanswered(replace(one, status=own, overridden_status=Status.UNKNOWN))

    def overriding(self, key: Key) -> None:
        """Remember that a status over an instance's own is about to be set or taken off."""
        with self._lock:
            record = self._record(key)
            record.overridden_at = self.clock()
            self._expires(record)

    def accepted(self, url: str, instances: Iterable[Instance]) -> None:
        """Note that a server accepted the renewals of these."""
        for key in [one.key for one in instances if rules.is_of_stack(one)]:
            with self._lock:
                record = self._record(key)
                record.accepted_at = {**(record.accepted_at or {}), url: self.clock()}
                self._expires(record)

    def accepted_lately(self, url: str, instance: Instance) -> bool:
        """Whether a server accepted its renewal so lately that it cannot have evicted it since."""
        with self._lock:
            record = self._records.get(instance.key)
            return record is not None and rules.accepted_lately(record, url, instance, self.clock())

    def lacks(self, url: str, instance: Instance) -> bool:
        """Note that a server lacks what others hold; returns whether it is cut off: it has for long."""
        with self._lock:
            record = self._record(instance.key)
            record.lacking_since = {url: self.clock(), **(record.lacking_since or {})}
            self._expires(record)
            return rules.is_cut_off(record, url, instance, self.clock())

    def lacks_no_more(self, url: str, key: Key) -> None:
        """Note that a server holds it."""
        with self._lock:
            record = self._records.get(key)
            if record is not None and record.lacking_since:
                record.lacking_since.pop(url, None)

    def left(self, keys: Iterable[Key]) -> None:
        """Note that a server says that these were deregistered or evicted, and do not stand again."""
        with self._lock:
            for record in map(self._record, keys):
                record.left_at = self.clock()
                self._expires(record)

    def has_left(self, key: Key) -> bool:
        """Whether a server said so, and it did not stand again since."""
        with self._lock:
            record = self._records.get(key)
            return record is not None and rules.has_left(record, self.clock())

    def forget_who_left(self) -> None:
        """Forget of what stands again that it ever left."""
        with self._lock:
            for record in self._expiring.values():
                if record.held is not None:
                    record.left_at = None

    def judge(self, rule: Rule[T], found: Instance) -> T:
        """Return what a rule says of an instance that a server holds, by what is known of its key."""
        with self._lock:
            return rule(self._records.get(found.key) or Record(found.key), found, self.clock())

    def marked(self, held: Iterable[Instance]) -> list[Instance]:
        """Put our mark on instances whose OUT_OF_SERVICE may be one of ours that came late."""
        with self._lock:
            now = self.clock()
            ours = {key for key, record in self._expiring.items() if rules.is_out_by_us(record, now)}
        if not ours:
            return list(held)
        return [
            rules.as_ours(one) if one.key in ours and rules.passes_for_a_persons(one) else one for one in held
        ]

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
        """Whether something stands there."""
        return self.get(key) is not None

    def is_new(self, key: Key) -> bool:
        """Whether nothing stands there, and nothing was written or removed there lately."""
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
        """The instances of an application, whoever owns them."""
        with self._lock:
            return self._held(self._by_application.get(name.upper(), ()))

    def owners(self) -> set[str]:
        """All owners that have an instance."""
        with self._lock:
            return {owner for owner, keys in self._by_owner.items() if keys}

    def count(self, owner: str) -> int:
        """How many instances an owner has."""
        with self._lock:
            return len(self._by_owner.get(owner, ()))

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """How many instances of an owner, or of a cluster's syncers, are UP, as the brake counts them."""
        with self._lock:
            return self._up_by_owner[owner] if owner else self._up_by_cluster[cluster]

    def owners_called(self, name: str) -> list[str]:
        """The owners of instances that callers find under a name: an application's or a VIP address."""
        with self._lock:
            return list(self._by_name.get(name.lower(), ()))

    def __len__(self) -> int:
        return self._count

    def merge(
        self, listed: Iterable[Instance], *, is_complete: bool = True, is_forgotten: bool = False
    ) -> tuple[list[Instance], list[Key]]:
        """Take a list of the whole registry.

        :param is_complete: whether what it lacks is there no more, as far as a list can tell.
        :param is_forgotten: whether servers may have lost what it lacks, see :meth:`gone`.
        :returns: the news: instances that were not known, or otherwise, and are believed as listed; and the
            doubts: keys of which older firm knowledge and the list say different things.
        """
        # Thousands at each reading, most of them as before: nothing is called for those.
        suggested = {(instance.application, instance.instance_id): instance for instance in listed}
        news: list[Instance] = []
        doubts: list[Key] = []
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
                    self._drop(record, is_forgotten=is_forgotten)
                    self._tidy(record)
        return news, doubts

    def _held(self, keys: Iterable[Key]) -> list[Instance]:
        records = (self._records[key] for key in keys)
        return [record.held for record in records if record.held is not None]

    def _record(self, key: Key) -> Record:
        """The record of a key, made where there is none; the lock is held, here and below."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(key)
        return record

    def _stands(self, instance: Instance, former: str | None) -> None:
        """Hold what was written, or read past the caches."""
        record = self._record(instance.key)
        if former:
            record.former_owners |= {former}
        self._forget_lost(record)
        self._hold(record, instance)
        record.is_firm, record.touched_at = True, self.clock()
        self._expires(record)

    def _leaves(self, record: Record, *, is_forgotten: bool = False) -> None:
        record.touched_at = self.clock()
        self._drop(record, is_forgotten=is_forgotten)
        self._expires(record)

    def _unanswered(self, sent: Instance) -> None:
        record = self._record(sent.key)
        if sent.is_overridden:
            record.status_sent = Sent(sent, self.clock())
        else:
            record.sent = Sent(sent, self.clock())
        self._expires(record)

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
        self._purge_from = max(FEWEST_TO_PURGE, 2 * len(self._expiring))

    def _hold(self, record: Record, instance: Instance) -> None:
        old, names, key = record.held, instance.names, record.key
        if old is not None and (old.owner != instance.owner or old.names != names):
            self._drop(record)
            old = None
        if old is None or old.status is not instance.status or counts(old) is not counts(instance):
            self._count_up(old, -1)
            self._count_up(instance, 1)
        record.held = instance
        if old is not None:
            return
        self._count += 1
        self._by_application[instance.application].add(key)
        if instance.owner:
            self._by_owner[instance.owner].add(key)
            for name in names:
                self._by_name[name][instance.owner] += 1

    def _drop(self, record: Record, *, is_forgotten: bool = False) -> None:
        """Hold nothing; the status that a person set, and not ours, is kept of what servers forgot."""
        instance, key = record.held, record.key
        record.held, record.is_firm = None, False
        if instance is None:
            return
        if is_forgotten and instance.is_overridden and not instance.is_leaving:
            record.lost_override = instance
            self._lost_overrides.add(key)
        self._count -= 1
        self._count_up(instance, -1)
        for index, name in ((self._by_application, instance.application), (self._by_owner, instance.owner)):
            if name is not None and name in index:
                index[name].discard(key)
                if not index[name]:
                    del index[name]
        for name in instance.names if instance.owner else ():
            owners = self._by_name[name]
            owners[instance.owner or ""] -= 1
            if not owners[instance.owner or ""]:
                del owners[instance.owner or ""]
            if not owners:
                del self._by_name[name]

    def _count_up(self, instance: Instance | None, by: int) -> None:
        if instance is None or instance.status is not Status.UP or not instance.owner or not counts(instance):
            return
        for table, name in (
            (self._up_by_owner, instance.owner),
            (self._up_by_cluster, cluster_of(instance.owner)),
        ):
            if name is not None:
                table[name] += by
                if not table[name]:
                    del table[name]
