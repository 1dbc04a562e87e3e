"""What is renewed, and how that went: the lease table that the renewals and their senders share."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer


class LeaseEntry:
    """One instance that is renewed.

    :ivar due: the tick at which that is next.
    :ivar period: as many ticks lie between two renewals.
    :ivar is_refused: whether the last plain renewal was answered with a refusal.
    """

    __slots__ = ("due", "in_flight", "instance", "is_refused", "item", "period", "turn")

    def __init__(self, instance: Instance, period: int) -> None:
        self.in_flight = 0
        self.is_refused = False
        self.due = 0
        self.turn = 0
        self.change(instance, period)

    def change(self, instance: Instance, period: int) -> None:
        """Go on with new contents."""
        self.instance = instance
        self.item = batch.heartbeat(instance)
        self.period = period


class HeartbeatListener(Protocol):
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


class LeaseTable:
    """What the renewals and their senders share; ``lock`` guards all of it.

    :ivar settled: notified when renewals in flight have ended.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.settled = threading.Condition(self.lock)
        self.entries: dict[Key, LeaseEntry] = {}
        self.listener: HeartbeatListener | None = None
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
