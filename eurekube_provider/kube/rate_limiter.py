"""Limits on how fast statuses and Events are written, so that they never delay more urgent work."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

LONGEST_WAIT_FOR_URGENT_SECONDS = 2.0
"""The longest time, in seconds, that a write waits for more urgent work."""

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.25
PAUSE_TO_WRITE_RATIO = 4.0
"""The length of the pause after a write, as a multiple of the write's duration.

So a writer with many writes leaves the API server and this machine's processor to others: the busier they
are, the longer it pauses.
"""

LONGEST_STOP_DELAY_SECONDS = 3.0
"""The longest time, in seconds, for which pending writes delay the end of a process that was asked to end."""


class RateLimiter(Generic[K]):
    """A limit on how often each key is written: its interval doubles while it has more to write each time.

    The caller's lock guards the methods about keys; all times are those of ``time.monotonic()``.

    :param wait_quiet: waits until no more urgent work is left, for at most a number of seconds.
    :param first_seconds: the shortest interval between two writes of a key.
    :param quiet_seconds: a key that rests for this time after its interval begins again with the shortest
        one.
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
        self._written: dict[K, tuple[float, float]] = {}  # when, and the interval before the next write
        self._not_before: dict[K, float] = {}
        self._turns: list[tuple[float, int, K]] = []  # a heap: when, a number, whose
        self._turn_at: dict[K, float] = {}  # the turn that counts, of several of one key
        self._turn_number = 0

    def wait_until_no_urgent_work(self, latest_at: float) -> None:
        """Wait, before a write, until no more urgent work is left, but no longer than until ``latest_at``."""
        patience = latest_at - time.monotonic()
        if patience > 0:
            self._wait_quiet(patience)

    @staticmethod
    def pause_after_write(write_seconds: float) -> None:
        """Pause after a write that took ``write_seconds``, to leave the server to others."""
        time.sleep(
            min(max(PAUSE_TO_WRITE_RATIO * write_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        )

    def record_write(self, key: K, now: float) -> None:
        """Record a write of a key at ``now``, and set the interval before its next write."""
        written_at, interval = self._written.get(key, (-math.inf, 0.0))
        if key not in self._written or now - written_at > interval + self._quiet_seconds:
            self._written[key] = now, self._first_seconds
        else:
            self._written[key] = now, min(2 * interval, self._longest_seconds)

    def block_until(self, key: K, until: float) -> None:
        """Allow no write of a key before ``until``."""
        self._not_before[key] = until

    def write_allowed_at(self, key: K, *, is_urgent: bool = False) -> float:
        """Return when the key may be written; an urgent write waits for the shortest interval only."""
        written_at, interval = self._written.get(key, (-math.inf, 0.0))
        since_write = written_at + (self._first_seconds if is_urgent else interval)
        return max(self._not_before.get(key, 0.0), since_write)

    def schedule_turn(self, key: K, at: float) -> bool:
        """Schedule a write of the key; return False if one is scheduled for ``at`` or earlier."""
        if key in self._turn_at and self._turn_at[key] <= at:
            return False
        self._turn_number += 1
        self._turn_at[key] = at
        heapq.heappush(self._turns, (at, self._turn_number, key))
        return True

    def pop_due_key(self, now: float) -> K | None:
        """Remove and return the next key whose scheduled time has come; None if there is none."""
        while self._turns and self._turns[0][0] <= now:
            at, _, key = heapq.heappop(self._turns)
            if self._turn_at.get(key) == at:  # else an earlier one took its place
                del self._turn_at[key]
                return key
        return None

    def seconds_until_next_turn(self, now: float) -> float | None:
        """Return the seconds until the next scheduled write; None if none is scheduled."""
        return max(0.0, self._turns[0][0] - now) if self._turns else None

    def forget(self, key: K) -> None:
        for table in (self._written, self._not_before, self._turn_at):
            table.pop(key, None)

    def clear(self) -> None:
        for table in (self._written, self._not_before, self._turn_at, self._turns):
            table.clear()
