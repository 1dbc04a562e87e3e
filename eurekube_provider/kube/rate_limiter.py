"""Limits how fast statuses and Events are written, which must never be in the way of more urgent work."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

PATIENCE_SECONDS = 2.0
"""A write waits at most this long, however much else there is to do."""

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.25
PAUSE_FACTOR = 4.0
"""A pause after a write is so many times as long as the write took: who has much to write leaves the API
server and our own processor to others, the more the busier they are.
"""

STOP_SECONDS = 3.0
"""For so long what is still to be written keeps a process that was asked to end."""


@dataclass(frozen=True, slots=True)
class _Write:
    """The last write of a key: when, and how long the next one waits."""

    at: float
    interval_seconds: float


class RateLimiter(Generic[K]):
    """Paces one writer, and each of its keys, whose interval doubles while there is always more to write.

    What concerns keys is guarded by the caller's lock; all times are those of ``time.monotonic()``.

    :param wait_quiet: waits until there is nothing more urgent to do, for so many seconds at most.
    :param first_seconds: the shortest interval between two writes of a key.
    :param longest_seconds: the longest one.
    :param quiet_seconds: a key that rests for so long after its interval begins again with the shortest one.
    """

    def __init__(
        self,
        wait_quiet: Callable[[float], None],
        first_seconds: float,
        longest_seconds: float,
        quiet_seconds: float,
    ) -> None:
        self._wait_quiet = wait_quiet
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._quiet_seconds = quiet_seconds
        self._written: dict[K, _Write] = {}
        self._not_before: dict[K, float] = {}
        self._turns: list[tuple[float, int, K]] = []  # a heap: when, a number, whose
        self._turn_at: dict[K, float] = {}  # the turn that counts, of several of one key
        self._turn_number = 0

    def wait(self, latest_at: float) -> None:
        """Wait for quiet before a write, but no longer than until then."""
        patience = latest_at - time.monotonic()
        if patience > 0:
            self._wait_quiet(patience)

    @staticmethod
    def pause(write_seconds: float) -> None:
        """Leave the server to others, after a write that took so long."""
        time.sleep(min(max(PAUSE_FACTOR * write_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))

    def wrote(self, key: K, now: float) -> None:
        """Count a write."""
        last = self._written.get(key)
        if last is None or now - last.at > last.interval_seconds + self._quiet_seconds:
            self._written[key] = _Write(now, self._first_seconds)
        else:
            self._written[key] = _Write(now, min(2 * last.interval_seconds, self._longest_seconds))

    def hold(self, key: K, until: float) -> None:
        """Allow no write before then."""
        self._not_before[key] = until

    def allowed_at(self, key: K, *, is_urgent: bool = False) -> float:
        """When the key may be written next; what is urgent waits for the shortest interval only."""
        allowed, last = self._not_before.get(key, 0.0), self._written.get(key)
        if last is None:
            return allowed
        return max(allowed, last.at + (self._first_seconds if is_urgent else last.interval_seconds))

    def plan(self, key: K, at: float) -> bool:
        """Give the key a turn then; False where it has one that comes as soon."""
        if key in self._turn_at and self._turn_at[key] <= at:
            return False
        self._turn_number += 1
        self._turn_at[key] = at
        heapq.heappush(self._turns, (at, self._turn_number, key))
        return True

    def take_turn(self, now: float) -> K | None:
        """The next key whose turn has come; its turn is over."""
        while self._turns and self._turns[0][0] <= now:
            at, _, key = heapq.heappop(self._turns)
            if self._turn_at.get(key) == at:  # else an earlier one took its place
                del self._turn_at[key]
                return key
        return None

    def wait_seconds(self, now: float) -> float | None:
        """How long it is until the next turn; None where there is none."""
        return max(0.0, self._turns[0][0] - now) if self._turns else None

    def forget(self, key: K) -> None:
        """Know nothing of a key."""
        for table in (self._written, self._not_before, self._turn_at):
            table.pop(key, None)

    def clear(self) -> None:
        """Know nothing of any key."""
        self._written.clear()
        self._not_before.clear()
        self._turn_at.clear()
        self._turns.clear()
