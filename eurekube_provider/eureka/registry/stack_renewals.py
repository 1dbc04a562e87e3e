"""Renews what stacks registered and asked this operator to renew.

A stack's program does not run all the time: what a server forgot is restored here, and what a person removed
is left alone.

What one server holds and another one does not is on its way to that one, or that one has forgotten it, or it
was removed there and the first one has missed the removal: it was frozen or cut off. A renewal would bring
the last back on all servers, at an address where nobody is any more. So what is old enough, and lacks where a
server has run all the time, was removed; but where nobody renewed it for as long as its lease lasts, a server
may have evicted it just now, and it stays.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from eurekube_provider.core.errors import LeadershipLost, RegistryError, RegistryRejected
from eurekube_provider.core.identity import RENEWER_KEY
from eurekube_provider.core.model import Instance, Key, newest
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.instance_by_server import InstanceByServer
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.table import Table
from eurekube_provider.eureka.uncached_reads import UncachedReads, read_everywhere

_log = logging.getLogger(__name__)

NEW_AT_ONCE = 250
"""How many new registrations are read before the first of them are renewed."""

SPREAD_READINGS = 30
"""Where there are more, as after a change of leader, they are read in about so many parts, with two seconds
between them: on end, 10,000 would cost each server 12 s of its processor, and syncers' changes would wait.
"""

MOST_COMPARED = 8
"""How many others are read where one server lacks something: do servers hold the same at all?"""


@dataclass(frozen=True, slots=True)
class _Drop:
    """What is renewed no more, or never was.

    :ivar at: when it was looked at.
    :ivar lacking: the servers that held it no more when its renewal missed it: it was removed there.
    """

    instance: Instance
    at: float
    lacking: Set[str] = frozenset()

    def is_followed_by(self, found: Instance, held: Mapping[str, Instance | None]) -> bool:
        """Whether the instance was registered anew: later or, by any clock, where it had been removed."""
        is_there_again = any(held.get(url) for url in self.lacking)
        is_another = is_there_again and found.incarnation != self.instance.incarnation
        return is_another or found.written_at_ms > self.instance.written_at_ms


@dataclass(eq=False, repr=False)
class StackRenewals:
    """The stacks' registrations at one Eureka.

    :ivar _restore: registers what a server forgot.
    """

    _peers: Peers
    _table: Table
    _renewals: Renewals
    _restarts: RestartDetection
    _ownership: Ownership
    _restore: Callable[[Instance], None]
    _dropped: dict[Key, _Drop] = field(default_factory=dict, init=False)
    _suggested: dict[Key, Instance] = field(default_factory=dict, init=False)
    """What a list shows, and is not known otherwise."""
    _chunk: int = field(default=NEW_AT_ONCE, init=False)
    _compared: list[Key] = field(default_factory=list, init=False)
    """Some of all that was listed."""
    _forgotten: set[Key] = field(default_factory=set, init=False)
    """What a server forgot and is still to be restored."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def stand_by(self) -> None:
        """Forget everything: another replica renews."""
        self._forgotten.clear()
        with self._lock:
            self._suggested.clear()

    def take(self, listed: Iterable[Instance]) -> None:
        """Learn from a list of the whole registry; what is new to us is read by :meth:`check`.

        A list may be half a minute old, or that of a server which missed a removal.
        """
        if self._renewals.stands_by:
            return
        every = list(listed)
        ours = {
            one.key: one
            for one in every
            if RENEWER_KEY in one.metadata and self._ownership.is_renewed_for_stack(one)
        }
        # What stands again was perhaps restored without an answer: from now on, who removes it means it.
        self._forgotten.difference_update(ours)
        now = time.monotonic()
        with self._lock:
            self._dropped = {
                key: drop
                for key, drop in self._dropped.items()
                if key in ours or now - drop.at < windows.MEMORY_LOST
            }
            dropped = dict(self._dropped)
        suggested: dict[Key, Instance] = {}
        for key, instance in ours.items():
            if key in self._renewals:
                self._renewals.add(instance, just_registered=False)
            else:
                drop = dropped.get(key)  # looked at again once the list may be so old no more
                if drop is None or drop.is_followed_by(instance, {}) or now - drop.at > windows.LIST_LAG:
                    suggested[key] = instance
        suggested = dict(sorted(suggested.items(), key=lambda item: _lapses_at(item[1])))
        with self._lock:
            before = self._chunk if self._suggested else NEW_AT_ONCE
            self._chunk = max(before, -(-len(suggested) // SPREAD_READINGS))
            self._suggested = suggested
            if suggested:
                some = every[:: -(-len(every) // MOST_COMPARED)]  # of many applications
                self._compared = [one.key for one in some]

    def check(self) -> None:
        """Read what a list suggested on every server that answers, and renew what stands there.

        Of very many only a part, which may lapse first; the next reading goes on.
        """
        while not self._renewals.stands_by:
            with self._lock:
                chunk = list(itertools.islice(self._suggested.values(), self._chunk))
            if not chunk:
                return
            try:
                self._judge_all(chunk)
            except RegistryError:
                return  # looked at again soon: whoever reads the list says so
            with self._lock:
                for instance in chunk:
                    if self._suggested.get(instance.key) is instance:
                        del self._suggested[instance.key]
                following = next(iter(self._suggested.values()), None)
            if following is not None and _lapses_at(following) > time.time() + windows.LAPSES_SOON:
                return

    def _judge_all(self, listed: Sequence[Instance]) -> None:
        """Renew those that stand; one that nobody may read stops no other."""
        try:
            reads = self._read([one.key for one in listed])
        except RegistryRejected as error:
            if len(listed) > 1:
                for one in listed:
                    self._judge_all([one])
                return
            _log.warning(
                "a stack's registration is not renewed: Eureka refuses to say whether it stands",
                extra={**_log_fields(listed[0]), "error": str(error)},
            )
            self._drop(listed[0])
            return
        for one in listed:
            self._judge(one, reads)

    def _judge(self, listed: Instance, reads: UncachedReads) -> None:
        """Renew it if it stands."""
        held = {url: answers[listed.key] for url, answers in reads.by_url.items()}
        found = newest(held.values())
        if found is None or not self._ownership.is_renewed_for_stack(found):
            if not reads.failures:
                self._drop(listed)
            return
        with self._lock:
            dropped = self._dropped.get(found.key)
        is_news = dropped is None or dropped.is_followed_by(found, held)
        # What was removed before our eyes stands only on those that missed it, even if they alone answer.
        lacks = self._removed_at(held, windows.ON_ITS_WAY if is_news else 0.0, was_dropped=not is_news)
        if is_news and may_be_evicted(held, time.time()):
            lacks = ()
        elif dropped is not None and not is_news:
            lacks = lacks or tuple(url for url in dropped.lacking if url in held and held[url] is None)
        if lacks or (not is_news and reads.failures and not self._restarts.lost_memory):
            if is_news:
                _log.warning(
                    "a stack's registration stands on some servers only and is not renewed: it was removed"
                    " from the others; if it shall stand, run its stack with a refresh",
                    extra={**_log_fields(found), "lacking": ", ".join(lacks)},
                )
            self._drop(found)
            return
        with self._lock:
            self._dropped.pop(found.key, None)
        _log.info("renewing for a stack", extra={**_log_fields(found), "owner": found.owner})
        self._renewals.add(found, just_registered=False)

    def _drop(self, instance: Instance, lacking: Set[str] = frozenset()) -> None:
        with self._lock:
            before = self._dropped.get(instance.key)
            if before is not None and before.instance.written_at_ms == instance.written_at_ms:
                lacking |= before.lacking
            self._dropped[instance.key] = _Drop(instance, time.monotonic(), lacking)

    def lost(self, instance: Instance) -> None:
        """A server that held it does not, or none does: restored if one forgot it, else dropped."""
        self._renewals.remove(instance.key)
        self._table.gone(instance.key)
        try:
            answered = self._restarts.notice_all()
            by_server = self._read_by_server(instance.key)
            if not self._was_removed(instance, by_server) and (
                self._is_there(instance, by_server, answered)
                or self._restarts.lost_memory
                or instance.key in self._forgotten
            ):
                self._forgotten.add(instance.key)
                self._restore(by_server.found or instance)
                self._forgotten.discard(instance.key)
                _log.warning(
                    "restored a stack's registration that a server had lost", extra=_log_fields(instance)
                )
                return
            if self._may_be_forgotten(by_server, answered):
                self._renewals.add(instance, just_registered=True)  # the next renewal finds it missing again
                return
        except RegistryError as error:
            _log.warning(
                "a stack's registration could not be looked at",
                extra={**_log_fields(instance), "error": str(error)},
            )
            self._renewals.add(instance, just_registered=False)
            return
        except LeadershipLost:
            # The next renewal finds it missing again: it is restored as soon as this replica may write.
            self._renewals.add(instance, just_registered=True)
            return
        _log.warning(
            "a stack's registration was removed by somebody and is renewed no more",
            extra=_log_fields(instance),
        )
        lacking = frozenset(url for url, held in by_server.instances.items() if held is None)
        self._drop(newest((instance, by_server.found)) or instance, lacking)

    def _may_be_forgotten(self, by_server: InstanceByServer, answered: Collection[str]) -> bool:
        """Whether an instance stands nowhere, and no server says any more since when it runs, as one did.

        :param answered: the servers that said so just now.
        """
        if by_server.found is not None or self._restarts.lost_memory:  # then nobody was asked for it just now
            return False
        said_before = self._restarts.started_by_url.keys() & by_server.instances.keys()
        return bool(said_before) and not said_before & set(answered)

    def _was_removed(self, instance: Instance, by_server: InstanceByServer) -> bool:
        """Whether a server that neither forgot nor evicted it holds it no more, whichever other one was
        restarted: one of several that accepted its renewal lately, and has run all the time.
        """
        if len(self._peers.peers) == 1:
            return False

        def suspects() -> set[str]:
            return {
                url
                for url, held in by_server.instances.items()
                if held is None
                and self._peers.table.accepted_lately(url, instance)
                and self._restarts.has_memory(url)
            }

        if not suspects():
            return False
        told = self._restarts.notice()  # after the read: one that was restarted before it says so now
        return bool(told & suspects())

    def _is_there(self, instance: Instance, by_server: InstanceByServer, answered: Collection[str]) -> bool:
        """Whether a server holds it, and did not just miss its removal.

        :param answered: the servers of which it is known that they were not restarted just now; another one
            that lacks it may have forgotten it.
        """
        if by_server.found is None:
            return False
        told = {url: held for url, held in by_server.instances.items() if held or url in answered}
        if self._restarts.servers_behind == 1 and any(
            held is None and self._peers.table.accepted_lately(url, instance) for url, held in told.items()
        ):
            return False
        return not self._removed_at(told, 0.0)

    def _removed_at(
        self, held: Mapping[str, Instance | None], seconds: float, *, was_dropped: bool = False
    ) -> tuple[str, ...]:
        """The servers at which it was removed, see :func:`removed_at`; none where servers do not tell each
        other what they are told, nor behind a load balancer, where each answer may be another one's.

        :param was_dropped: it is known as removed, and neither a server's restart makes that less certain,
            nor that there is nothing else by which servers show that they share.
        """
        if self._restarts.lost_memory or self._restarts.servers_behind > 1:
            if not was_dropped:
                return ()
            held = {url: one for url, one in held.items() if one or self._restarts.has_memory(url)}
        urls = removed_at(held, self._restarts.started_by_url, time.time() - seconds)
        return urls if urls and (was_dropped or self._servers_share()) else ()

    def _servers_share(self) -> bool:
        """Whether anything that was listed stands on all servers that answer.

        :raises RegistryError: no server answered.
        """
        with self._lock:
            keys = list(self._compared)
        for key in keys:
            try:
                reads = read_everywhere(self._peers, [key])
            except RegistryRejected:
                continue  # whoever registered it, under whatever id
            if all(answers[key] is not None for answers in reads.by_url.values()):
                return True
        return False

    def _read(self, keys: list[Key]) -> UncachedReads:
        """Read on every server; behind a load balancer so often that it has sent us to each."""
        reads = read_everywhere(self._peers, keys)
        servers = self._restarts.servers_behind
        for _ in range(servers if servers > 1 else 0):
            missing = [key for key in keys if reads.newest(key) is None]
            if not missing:
                break
            reads = reads.joined(read_everywhere(self._peers, missing))
        return reads

    def _read_by_server(self, key: Key) -> InstanceByServer:
        """Look for it on every server; behind a load balancer so often that it has sent us to each."""
        by_server = self._peers.read_everywhere(*key)
        servers = self._restarts.servers_behind
        for _ in range(servers if servers > 1 else 0):
            if by_server.found is not None or self._restarts.lost_memory:
                break
            by_server = self._peers.read_everywhere(*key)
        return by_server


def _log_fields(instance: Instance) -> dict[str, str]:
    return {"application": instance.application, "instance": instance.instance_id}


def _lapses_at(listed: Instance) -> float:
    """Unix time at which a server may evict it if nobody renews it; 0 where the list does not say."""
    ends = listed.lease_ends_ms
    return 0.0 if ends is None else ends / 1000 + listed.lease.duration_seconds


def removed_at(
    held: Mapping[str, Instance | None], started_by_url: Mapping[str, int], since: float
) -> tuple[str, ...]:
    """The servers at which an instance was removed that others still hold.

    :param held: by the servers that answered.
    :param started_by_url: when each was started, in milliseconds; one that does not say may have forgotten.
    :param since: Unix time; what was written later may be on its way.
    """
    found = newest(held.values())
    if found is None or found.written_at_ms > since * 1000:
        return ()
    return tuple(
        url
        for url, instance in held.items()
        if instance is None and url in started_by_url and started_by_url[url] < found.written_at_ms
    )


def may_be_evicted(held: Mapping[str, Instance | None], now: float) -> bool:
    """Whether nobody renewed it for so long that a server may have evicted it by itself.

    :param now: Unix time.
    """
    ends = [one.lease_ends_ms for one in held.values() if one is not None and one.lease_ends_ms is not None]
    return bool(ends) and max(ends) < now * 1000
