"""Renewals: every Eureka lease that this process holds is renewed at least twice a minute.

The server expects two renewals a minute from each instance, whatever its interval; fewer push the whole
registry towards self-preservation. Renewals of many instances are spread over the interval. With few
instances each renewal is one request, which the server forwards; with many they are sent in batches, to each
server by a sender of its own, so that a slow server delays only its own renewals.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import replace

from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.heartbeats import (
    HeartbeatListener,
    HeartbeatSender,
    RenewalCounts,
    RenewedInstance,
    SharedRenewalState,
)
from eurekube_provider.eureka.rules import is_same_version
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

PLAIN_THREADS, MOST_PLAIN_THREADS = 8, 32
"""The number of threads for plain renewals: at first, and the most when they fall behind."""


class Renewals:
    """The renewals of all instances that were added, until they are removed.

    :param interval_seconds: the longest time between two renewals of one instance.
    """

    def __init__(self, peers: Peers, *, interval_seconds: float = windows.RENEWAL_INTERVAL_SECONDS) -> None:
        self._peers = peers
        self._interval = interval_seconds
        self._state = SharedRenewalState()
        self._due: dict[int, list[InstanceKey]] = {}  # one planned anew is left in the list of its old tick
        self._soon: dict[int, set[InstanceKey]] = {}
        self._tick = self._current_tick()
        self._ticked_at = time.monotonic()
        self._stopped = threading.Event()
        self._is_late = False
        self._plain_sender = HeartbeatSender(self._state, peers, None)
        self._senders = [HeartbeatSender(self._state, peers, peer) for peer in peers.peers]
        self._plain_thread_count = 0
        self._threads = [threading.Thread(target=self._run, name="renewals", daemon=True)]
        self._threads += [self._make_plain_thread() for _ in range(PLAIN_THREADS)]
        self._threads += [
            threading.Thread(
                target=sender.run, args=(batch.MOST_ITEMS_PER_BATCH,), name=f"renewals-{number}", daemon=True
            )
            for number, sender in enumerate(self._senders)
        ]

    def start(self, listener: HeartbeatListener) -> None:
        """Begin to renew, and report findings to ``listener``."""
        self._state.listener = listener
        self._ticked_at = time.monotonic()
        for thread in tuple(self._threads):
            thread.start()

    def stop(self) -> None:
        """Stop renewing, and wait for renewals that are under way; no instance is removed from Eureka."""
        with self._state.lock:
            self._state.stopped = True
            for sender in (self._plain_sender, *self._senders):
                sender.work.notify_all()
        self._stopped.set()
        for thread in tuple(self._threads):
            if thread.is_alive():
                thread.join()

    def add(self, instance: Instance, *, just_registered: bool) -> None:
        """Renew ``instance`` from now on, or go on with its new contents; do nothing while standing by.

        :param just_registered: True if the Eureka lease is fresh, so that a full interval may pass.
        """
        with self._state.lock:
            if self._state.stands_by:
                return
            entry = self._state.entries.get(instance.key)
            if entry is not None:
                if entry.instance is not instance:
                    entry.instance, entry.period = instance, self._period_ticks(instance)
                    latest = self._current_tick() + entry.period
                    if entry.due > latest:  # it promises to renew sooner than before
                        self._schedule(entry, latest)
                return
            entry = RenewedInstance(instance, self._period_ticks(instance))
            self._state.entries[instance.key] = entry
            if just_registered:
                wait = random.uniform(entry.period / 2, entry.period)  # noqa: S311 - jitter, no secret
            else:
                soonest = min(entry.period, windows.FIRST_RENEWAL_SECONDS / windows.RENEWAL_TICK_SECONDS)
                wait = random.uniform(0, soonest)  # noqa: S311
                # Once soon, then at a moment of its own, so that all that came at once do not stay together.
                self._soon.setdefault(self._current_tick() + int(wait), set()).add(instance.key)
                wait = random.uniform(0, entry.period)  # noqa: S311
            self._schedule(entry, self._current_tick() + max(1, int(wait)))

    def remove(self, key: InstanceKey) -> Instance | None:
        """Stop renewing an instance, and wait for a renewal of it that is under way.

        :returns: the instance that was renewed; None for none.
        """
        with self._state.lock:
            entry = self._state.entries.pop(key, None)
            while entry is not None and entry.in_flight:
                self._state.settled.wait()
            return entry.instance if entry is not None else None

    def stand_by(self) -> None:
        """Stop all renewals until :meth:`resume`, and wait for those under way."""
        with self._state.lock:
            self._state.stands_by = True
            left = list(self._state.entries.values())
            self._state.entries.clear()
            self._state.settled.wait_for(lambda: not any(entry.in_flight for entry in left))

    def resume(self) -> None:
        """Allow renewals again after :meth:`stand_by`."""
        with self._state.lock:
            self._state.stands_by = False

    @property
    def is_standing_by(self) -> bool:
        """True if another replica renews."""
        with self._state.lock:
            return self._state.stands_by

    def renew_now(self, peer: Peer, keys: Iterable[InstanceKey]) -> None:
        """Renew these instances at one server at once, since the server may have forgotten them.

        What waited for the server to answer is sent at once, too.
        """
        in_batches = self._peers.uses_batches(len(self))
        with self._state.lock:
            due = {key: None for key in keys if key in self._state.entries}
            for sender in (self._plain_sender, *self._senders):
                if sender.peer in (peer, None):
                    if due and (sender.peer is not None) is in_batches:
                        sender.enqueue(due)
                    sender.retry_now()

    def hold_listed(self, listed: Iterable[Instance]) -> None:
        """Hold the listed object of each instance that is renewed in that version: once in memory."""
        with self._state.lock:
            for one in listed:
                entry = self._state.entries.get(one.key)
                if entry is not None and entry.instance is not one and is_same_version(entry.instance, one):
                    entry.instance = one

    def renew_soon(self, keys: Iterable[InstanceKey]) -> None:
        """Renew these instances once in addition, soon: something may be about to remove them."""
        with self._state.lock:
            held = {key for key in keys if key in self._state.entries}
            if held:
                ticks = int(windows.WRITE_REPLICATION_SECONDS / windows.RENEWAL_TICK_SECONDS)
                self._soon.setdefault(self._current_tick() + ticks, set()).update(held)

    def __contains__(self, key: InstanceKey) -> bool:
        with self._state.lock:
            return key in self._state.entries

    def find_not_renewed(self, instances: Iterable[Instance]) -> list[Instance]:
        """Return those of the instances that are not renewed."""
        with self._state.lock:
            return [one for one in instances if one.key not in self._state.entries]

    def get(self, key: InstanceKey) -> Instance | None:
        """Return the renewed instance of this key, as it was last written; None for none."""
        with self._state.lock:
            entry = self._state.entries.get(key)
            return entry.instance if entry is not None else None

    def is_renewed_as(self, instance: Instance) -> bool:
        """Return whether an instance is renewed in this version."""
        now = self.get(instance.key)
        return now is not None and is_same_version(now, instance)

    def is_renewal_current(self, key: InstanceKey) -> bool:
        """Return whether an instance was renewed within :data:`.windows.RENEWAL_INTERVAL_SECONDS`: its last
        renewal was not refused, and no server lets renewals wait.
        """
        with self._state.lock:
            entry = self._state.entries.get(key)
            if entry is None or entry.is_refused:
                return False
            longest = windows.LONGEST_RENEWAL_WAIT_SECONDS
            senders = (self._plain_sender, *self._senders)
            return not any(one.failing_seconds() or one.overdue_seconds() > longest for one in senders)

    def __len__(self) -> int:
        with self._state.lock:
            return len(self._state.entries)

    def renewed_instances(self) -> list[Instance]:
        """Return all renewed instances."""
        with self._state.lock:
            return [entry.instance for entry in self._state.entries.values()]

    def take_due_keys(self) -> dict[InstanceKey, None]:
        """Return the keys that are due now, and plan the next turn of each."""
        with self._state.lock:
            return self._take_due_keys(self._current_tick())

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the threads; only the one that hands out due renewals reports progress."""
        ticker, *senders = self._threads
        age = time.monotonic() - self._ticked_at
        renewed = self.counts.accepted_last_minute
        tickers = liveness_of_started_threads([ticker], age, windows.RENEWAL_TICK_STUCK_AFTER_SECONDS)
        threads = (*tickers, *liveness_of_started_threads(senders))
        return [replace(one, renewals_last_minute=renewed) for one in threads]

    @property
    def counts(self) -> RenewalCounts:
        """The numbers of renewals so far, by result."""
        with self._state.lock:
            return RenewalCounts(
                accepted=self._state.accepted,
                missing=self._state.missed,
                failed=self._state.failed,
                accepted_last_minute=self._state.accepted_last_minute(),
                refused_instances=sum(entry.is_refused for entry in self._state.entries.values()),
                overdue_seconds=max(
                    sender.overdue_seconds() for sender in (self._plain_sender, *self._senders)
                ),
            )

    def _run(self) -> None:
        """Hand out due renewals, tick by tick."""
        while True:
            self._ticked_at = time.monotonic()
            in_batches = self._uses_batches()  # may ask the servers: no lock is held
            with self._state.lock:
                if self._state.stopped:
                    return
                due = self._take_due_keys(self._current_tick())
                if due:
                    for sender in self._choose_senders(in_batches=in_batches):
                        sender.enqueue(due)
                self._add_thread_or_log_if_late()
            tick_seconds = windows.RENEWAL_TICK_SECONDS
            self._stopped.wait(tick_seconds - boot_clock_seconds() % tick_seconds)

    def _take_due_keys(self, now: int) -> dict[InstanceKey, None]:
        """Take the due keys, after a sleep all of them, and spread them again; the lock must be held."""
        if now - self._tick > self._interval / windows.RENEWAL_TICK_SECONDS:
            _log.warning(
                "renewing overdue instances now: the clock jumped, some may have lapsed",
                extra={"seconds": round((now - self._tick) * windows.RENEWAL_TICK_SECONDS)},
            )
        self._tick = now
        due: dict[InstanceKey, None] = {}
        for tick in [tick for tick in self._soon if tick <= now]:
            due.update(dict.fromkeys(self._soon.pop(tick)))
        for tick in [tick for tick in self._due if tick <= now]:
            for key in self._due.pop(tick):
                entry = self._state.entries.get(key)
                if entry is not None and entry.due == tick:
                    due[key] = None
                    following = tick + entry.period
                    if following <= now:
                        following = now + random.randint(1, entry.period)  # noqa: S311 - jitter, no secret
                    self._schedule(entry, following)
        return due

    def _make_plain_thread(self) -> threading.Thread:
        self._plain_thread_count += 1
        name = f"renewals-rest-{self._plain_thread_count - 1}"
        return threading.Thread(target=self._plain_sender.run, args=(1,), name=name, daemon=True)

    def _add_thread_or_log_if_late(self) -> None:
        """Start another thread where plain renewals wait for one, and log when all threads are too few.

        The state's lock must be held. Servers that do not answer are left out: their senders report them.
        """
        senders = [sender for sender in (self._plain_sender, *self._senders) if not sender.failing_seconds()]
        late = max((sender.overdue_seconds() for sender in senders), default=0.0)
        waits = self._plain_sender.overdue_seconds() if self._plain_sender in senders else 0.0
        if waits > windows.LONGEST_RENEWAL_WAIT_SECONDS and self._plain_thread_count < MOST_PLAIN_THREADS:
            thread = self._make_plain_thread()
            self._threads.append(thread)
            thread.start()
        if late > self._interval and not self._is_late:
            self._is_late = True
            _log.warning(
                "renewals fall behind, going on: Eureka answers too slowly, instances may lapse",
                extra={
                    "seconds": round(late),
                    "waiting": max(len(sender.pending) for sender in senders),
                    "instances": len(self._state.entries),
                    "hint": "name every Eureka server by a URL of its own, so that batches can be used",
                },
            )
        elif self._is_late and late < self._interval / 2:
            self._is_late = False
            _log.warning("renewals are on time again, going on as before")

    def _uses_batches(self) -> bool:
        try:
            return self._peers.uses_batches(len(self))
        except Exception:  # noqa: BLE001 - whatever a server said, renewals must go on
            _log.exception(
                "failed to check for batch support, renewing instances one by one until the next check"
            )
            return False

    def _choose_senders(self, *, in_batches: bool) -> list[HeartbeatSender]:
        """Return the senders to which due renewals are handed."""
        if not in_batches:
            return [self._plain_sender]
        is_away = any(one.failing_seconds() > windows.PLAIN_RENEWALS_AFTER_SECONDS for one in self._senders)
        return [*self._senders, self._plain_sender] if is_away else self._senders

    def _period_ticks(self, instance: Instance) -> int:
        """Return the number of ticks between two renewals; renewing more often than promised is harmless."""
        seconds = min(self._interval, instance.lease.renewal_interval_seconds)
        return max(1, int(seconds / windows.RENEWAL_TICK_SECONDS))

    def _schedule(self, entry: RenewedInstance, tick: int) -> None:
        entry.due = tick
        self._due.setdefault(tick, []).append(entry.instance.key)

    @staticmethod
    def _current_tick() -> int:
        return int(boot_clock_seconds() / windows.RENEWAL_TICK_SECONDS)
