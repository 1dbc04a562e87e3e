"""A lane of the renewals: one way to the servers, with its own queue, threads and back-off.

A slow server holds up its own lane, and no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from eurekube_provider.core.clock import elapsed_seconds
from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import batch
from eurekube_provider.eureka.book import Book, Entry, Key
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers

_log = logging.getLogger(__name__)

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


class Lane:
    """The way to one server, in batches; or, for plain renewals, to whichever server answers.

    :ivar work: wakes this lane's threads and no others, since every thread that wakes for nothing costs as
        much as a renewal.
    """

    def __init__(self, book: Book, listener: Listener, peers: Peers, peer: Peer | None) -> None:
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

    def _take(self, most: int) -> list[Entry] | None:
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
                taken: list[Entry] = []
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

    def _send(self, entries: list[Entry]) -> list[batch.Answer]:
        if self.peer is not None:
            return self.peer.batch([entry.item for entry in entries])
        return [
            batch.Answer(200 if self._peers.renew(entry.instance, entry.turn) else 404) for entry in entries
        ]

    def _sent(self, entries: list[Entry], found: list[batch.Answer]) -> None:
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

    def _failed(self, entries: list[Entry], error: Exception) -> None:
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
