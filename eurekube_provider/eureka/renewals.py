"""Renewals: every Eureka lease that we hold is renewed at least twice a minute.

The server counts on two renewals a minute from each instance whatever its interval says; fewer push the
whole registry towards self-preservation. Renewals of many instances are spread over the interval. With few
instances each is one request, which the server forwards; with many they travel in batches, to each server
on a lane of its own, so that a slow server delays nobody but itself.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eurekube_provider.core.clock import elapsed_seconds
from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.pulse import Pulse, pulses_of
from eurekube_provider.eureka import batch
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers

_log = logging.getLogger(__name__)

Key = tuple[str, str]

INTERVAL_SECONDS = 25.0
FIRST_WITHIN_SECONDS = 5.0
"""What was found at start may be about to lapse: nobody knows when it was renewed last."""

FORWARDED_AFTER_SECONDS = 60.0
"""A server that batches have not reached for as long gets its renewals from its peers, which may still reach
it: plain ones, since no batch is forwarded. Its Eureka leases live for 180 s by default."""

LONGEST_TICK_SECONDS = 120.0
"""A tick may have to ask every server what it is; one that takes longer is stuck."""

TICK_SECONDS = 0.5
REST_THREADS = 8
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.25, 5.0


class Listener(Protocol):
    """Who looks after what renewals find out. Called on a renewing thread, with no lock held."""

    def missing(self, instances: Sequence[Instance], peer: Peer | None) -> None:
        """A server does not hold these (404).

        :param peer: the server, in batches, where the others may hold them and go on being renewed; None
            for plain renewals, which end with this.
        """

    def newer(self, stored: Instance) -> None:
        """A server holds a newer version of what we renewed: somebody else wrote it."""

    def answers_again(self, peer: Peer) -> None:
        """A server answers after it had not."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Renewals since the start, by what became of them."""

    accepted: int
    missing: int
    failed: int


class _Entry:
    """One instance that is renewed."""

    __slots__ = ("due", "in_flight", "instance", "item", "period", "turn")

    def __init__(self, instance: Instance, interval_seconds: float) -> None:
        self.in_flight = 0
        self.due = 0
        self.turn = 0
        self.change(instance, interval_seconds)

    def change(self, instance: Instance, interval_seconds: float) -> None:
        self.instance = instance
        self.item = batch.heartbeat(instance)
        # A renewal more than is promised does no harm; a tick too late could.
        self.period = max(
            1, int(min(interval_seconds, instance.lease.renewal_interval_seconds) / TICK_SECONDS)
        )


class _Book:
    """What the renewals and their lanes share; ``lock`` guards all of it.

    :ivar settled: notified when renewals in flight have ended.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.settled = threading.Condition(self.lock)
        self.entries: dict[Key, _Entry] = {}
        self.stopped = False
        self.stands_by = False
        self.accepted = self.missed = self.failed = 0
        self._minute: deque[tuple[float, int]] = deque()
        self._in_minute = 0

    def count(self, *, accepted: int = 0, missed: int = 0, failed: int = 0) -> None:
        """Add to the counts."""
        self.accepted += accepted
        self.missed += missed
        self.failed += failed
        if accepted:
            self._minute.append((time.monotonic(), accepted))
            self._in_minute += accepted
        self.last_minute()

    def last_minute(self) -> int:
        """Renewals accepted within the last 60 seconds."""
        while self._minute and self._minute[0][0] < time.monotonic() - 60.0:
            self._in_minute -= self._minute.popleft()[1]
        return self._in_minute


class Renewals:
    """Renews what it is given until it is told to stop.

    :param interval_seconds: the longest time between two renewals of one instance.
    """

    def __init__(
        self, peers: Peers, listener: Listener, *, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._peers = peers
        self._interval = interval_seconds
        self._book = _Book()
        self._due: dict[int, set[Key]] = {}
        self._soon: dict[int, set[Key]] = {}
        self._tick = self._now()
        self._ticked_at = time.monotonic()
        self._stopped = threading.Event()
        self._rest = _Lane(self._book, listener, peers, None)
        self._lanes = [_Lane(self._book, listener, peers, peer) for peer in peers.peers]
        self._threads = [threading.Thread(target=self._run, name="renewals", daemon=True)]
        self._threads += [
            threading.Thread(target=self._rest.run, args=(1,), name=f"renewals-rest-{number}", daemon=True)
            for number in range(REST_THREADS)
        ]
        self._threads += [
            threading.Thread(
                target=lane.run, args=(batch.MOST_ITEMS,), name=f"renewals-{number}", daemon=True
            )
            for number, lane in enumerate(self._lanes)
        ]

    def start(self) -> None:
        """Begin to renew."""
        self._ticked_at = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Renew no more and wait for the renewals in flight; removes nothing from Eureka."""
        with self._book.lock:
            self._book.stopped = True
            for lane in (self._rest, *self._lanes):
                lane.work.notify_all()
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def add(self, instance: Instance, *, just_registered: bool) -> None:
        """Renew ``instance`` from now on, or go on with its new contents; does nothing while standing by.

        :param just_registered: its Eureka lease is fresh, so that a full interval may pass.
        """
        with self._book.lock:
            if self._book.stands_by:
                return
            entry = self._book.entries.get(instance.key)
            if entry is not None:
                if entry.instance is not instance:
                    entry.change(instance, self._interval)
                return
            entry = self._book.entries[instance.key] = _Entry(instance, self._interval)
            if just_registered:
                wait = random.uniform(entry.period / 2, entry.period)  # noqa: S311 - jitter, no secret
            else:
                wait = random.uniform(0, min(entry.period, FIRST_WITHIN_SECONDS / TICK_SECONDS))  # noqa: S311
                # Once soon, then at a moment of its own, so that all that came at once do not stay together.
                self._soon.setdefault(self._now() + int(wait), set()).add(instance.key)
                wait = random.uniform(0, entry.period)  # noqa: S311
            self._plan(entry, self._now() + max(1, int(wait)))

    def remove(self, key: Key) -> None:
        """Renew it no more; when this returns, no renewal of it is in flight."""
        with self._book.lock:
            entry = self._book.entries.pop(key, None)
            while entry is not None and entry.in_flight:
                self._book.settled.wait()

    def stand_by(self) -> None:
        """Renew nothing until :meth:`resume`; when this returns, no renewal is in flight."""
        with self._book.lock:
            self._book.stands_by = True
            left = list(self._book.entries.values())
            self._book.entries.clear()
            self._book.settled.wait_for(lambda: not any(entry.in_flight for entry in left))

    def resume(self) -> None:
        """Take on renewals again."""
        with self._book.lock:
            self._book.stands_by = False

    @property
    def stands_by(self) -> bool:
        """Whether somebody else renews."""
        with self._book.lock:
            return self._book.stands_by

    def renew_all_now(self, peer: Peer) -> None:
        """Send every renewal to one server at once: it may have forgotten them all."""
        in_batches = self._peers.uses_batches(len(self))
        with self._book.lock:
            for lane in self._lanes if in_batches else [self._rest]:
                if lane.peer is peer or lane.peer is None:
                    lane.hand(dict.fromkeys(self._book.entries))
                    lane.hurry()

    def __contains__(self, key: Key) -> bool:
        with self._book.lock:
            return key in self._book.entries

    def __len__(self) -> int:
        with self._book.lock:
            return len(self._book.entries)

    def held(self) -> list[Instance]:
        """What is renewed."""
        with self._book.lock:
            return [entry.instance for entry in self._book.entries.values()]

    def pulses(self) -> list[Pulse]:
        """The renewing threads; only the one that hands out what is due goes round by itself."""
        ticker, *lanes = self._threads
        age = time.monotonic() - self._ticked_at
        return pulses_of([ticker], age, LONGEST_TICK_SECONDS) + pulses_of(lanes)

    @property
    def counts(self) -> Counts:
        """How the renewals went so far, on every server together."""
        with self._book.lock:
            return Counts(self._book.accepted, self._book.missed, self._book.failed)

    @property
    def last_minute(self) -> int:
        """Renewals accepted within the last 60 seconds, on every server together."""
        with self._book.lock:
            return self._book.last_minute()

    def _run(self) -> None:
        """Hand out what is due, tick by tick."""
        while True:
            self._ticked_at = time.monotonic()
            in_batches = self._peers.uses_batches(len(self))  # may ask the servers: no lock is held
            with self._book.lock:
                if self._book.stopped:
                    return
                due = self._take_due(self._now())
                if due:
                    for lane in self._lanes_for(in_batches=in_batches):
                        lane.hand(due)
            self._stopped.wait(TICK_SECONDS - elapsed_seconds() % TICK_SECONDS)

    def _lanes_for(self, *, in_batches: bool) -> list[_Lane]:
        """Where to send what is due."""
        if not in_batches:
            return [self._rest]
        is_cut_off = any(lane.failing_seconds() > FORWARDED_AFTER_SECONDS for lane in self._lanes)
        return [*self._lanes, self._rest] if is_cut_off else self._lanes

    def _take_due(self, now: int) -> dict[Key, None]:
        """What is due; after a sleep of the machine all of it, and spread anew afterwards."""
        if now - self._tick > self._interval / TICK_SECONDS:
            _log.warning(
                "time jumped: what was missed is renewed at once",
                extra={"seconds": round((now - self._tick) * TICK_SECONDS)},
            )
        self._tick = now
        due: dict[Key, None] = {}
        for tick in [tick for tick in self._soon if tick <= now]:
            due.update(dict.fromkeys(self._soon.pop(tick)))
        for tick in [tick for tick in self._due if tick <= now]:
            for key in self._due.pop(tick):
                entry = self._book.entries.get(key)
                if entry is not None and entry.due == tick:
                    due[key] = None
                    following = tick + entry.period
                    if following <= now:
                        following = now + random.randint(1, entry.period)  # noqa: S311 - jitter, no secret
                    self._plan(entry, following)
        return due

    def _plan(self, entry: _Entry, tick: int) -> None:
        entry.due = tick
        self._due.setdefault(tick, set()).add(entry.instance.key)

    @staticmethod
    def _now() -> int:
        return int(elapsed_seconds() / TICK_SECONDS)


class _Lane:
    """The way to one server, in batches; or, for plain renewals, to whichever server answers.

    :ivar work: wakes this lane's threads and no others, since every thread that wakes for nothing costs as
        much as a renewal.
    """

    def __init__(self, book: _Book, listener: Listener, peers: Peers, peer: Peer | None) -> None:
        self.peer = peer
        self.pending: dict[Key, None] = {}
        self.work = threading.Condition(book.lock)
        self._book = book
        self._listener = listener
        self._peers = peers
        self._lost: list[Instance] = []
        self._retry_seconds = 0.0
        self._failing_since = 0.0
        self._hurried = False

    def failing_seconds(self) -> float:
        """For how long nothing has reached the server; 0 while all is well."""
        return elapsed_seconds() - self._failing_since if self._retry_seconds else 0.0

    def hand(self, due: dict[Key, None]) -> None:
        """Renew these next; the book's lock is held."""
        self.pending.update(due)
        self.work.notify(len(due))

    def hurry(self) -> None:
        """Wait for no back-off: the server answers again; the book's lock is held."""
        self._hurried = True
        self.work.notify_all()

    def run(self, most: int) -> None:
        """Send what is pending until the end; on a thread of its own, or on several."""
        while (taken := self._take(most)) is not None:
            try:
                found = self._send(taken)
            except RegistryError as error:
                self._failed(taken, error)
            except Exception as error:  # noqa: BLE001 - the lane must go on
                _log.exception("renewals failed")
                self._failed(taken, error)
            else:
                self._sent(taken, found)

    def _take(self, most: int) -> list[_Entry] | None:
        book = self._book
        with book.lock:
            while not book.stopped:
                if (
                    self._retry_seconds
                    and self.work.wait_for(lambda: book.stopped or self._hurried, self._retry_seconds)
                    and not self._hurried
                ):
                    return None
                self._hurried = False
                taken: list[_Entry] = []
                while self.pending and len(taken) < most:
                    key = next(iter(self.pending))
                    del self.pending[key]
                    entry = book.entries.get(key)
                    if entry is not None:
                        entry.in_flight += 1
                        entry.turn += 1
                        taken.append(entry)
                if taken:
                    return taken
                self.work.wait()
            return None

    def _send(self, entries: list[_Entry]) -> list[batch.Answer]:
        if self.peer is not None:
            return self.peer.batch([entry.item for entry in entries])
        return [
            batch.Answer(200 if self._peers.renew(entry.instance, entry.turn) else 404) for entry in entries
        ]

    def _sent(self, entries: list[_Entry], found: list[batch.Answer]) -> None:
        book = self._book
        missing: list[Instance] = []
        newer: list[Instance] = []
        with book.lock:
            was_away, self._retry_seconds = self._retry_seconds > 0, 0.0
            for entry, answer in zip(entries, found, strict=True):
                entry.in_flight -= 1
                key = entry.instance.key
                if book.entries.get(key) is not entry:
                    continue  # removed meanwhile
                if answer.status_code == 404:
                    missing.append(entry.instance)
                    if self.peer is None:
                        del book.entries[key]
                elif answer.instance is not None:
                    newer.append(answer.instance)  # a 409, which renews all the same
            refused = sum(answer.status_code not in (200, 409) for answer in found)
            book.count(accepted=len(entries) - refused, missed=refused)
            book.settled.notify_all()
        self._tell(missing, newer, was_away=was_away)

    def _gathered(self, missing: list[Instance]) -> list[Instance]:
        """What to tell of now: nothing while more is about to be asked for.

        A server that lost its memory misses thousands, a few of each application in each batch. Told of
        batch by batch, they would be registered again in many small steps.
        """
        with self._book.lock:
            self._lost += missing
            if self.peer is not None and self.pending:
                return []
            lost, self._lost = self._lost, []
            if self.peer is None:
                return lost  # nobody renews these any more
            return [instance for instance in lost if instance.key in self._book.entries]

    def _tell(self, missing: list[Instance], newer: list[Instance], *, was_away: bool) -> None:
        try:
            if was_away and self.peer is not None:
                self._listener.answers_again(self.peer)
            missing = self._gathered(missing)
            if missing:
                self._listener.missing(missing, self.peer)
            for stored in newer:
                self._listener.newer(stored)
        except Exception:  # noqa: BLE001 - the lane must go on
            _log.exception("what a renewal found was not looked after")

    def _failed(self, entries: list[_Entry], error: Exception) -> None:
        book = self._book
        with book.lock:
            for entry in entries:
                entry.in_flight -= 1
                key = entry.instance.key
                if book.entries.get(key) is entry:
                    self.pending[key] = None
            book.count(failed=len(entries))
            is_news = self._retry_seconds == 0
            if is_news:
                self._failing_since = elapsed_seconds()
            self._retry_seconds = min(
                max(self._retry_seconds * 2, FIRST_RETRY_SECONDS), LONGEST_RETRY_SECONDS
            )
            book.settled.notify_all()
        if is_news:
            _log.warning(
                "renewals fail and are tried again", extra={"count": len(entries), "error": str(error)}
            )
