"""Virtual time, which passes only on request and runs due actions in their order.

A clock can be pickled with its timers, where the actions are methods of objects that can be pickled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

MODEL_START_MS = 1_800_000_000_000
"""The start of the model's time, in milliseconds of Unix time."""


@dataclass(slots=True, eq=False)
class Timer:
    """An action that runs at a certain time, and then, unless the interval is 0, at each interval."""

    action: Callable[[], None]
    interval_ms: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """The time of all servers in one model."""

    def __init__(self, now_ms: int = MODEL_START_MS) -> None:
        self.now_ms = now_ms
        self._timers: list[tuple[int, int, Timer]] = []  # when, a number, and what
        self._count = 0

    def run_after(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run ``action`` after so long; actions of one moment run in the order in which they were given."""
        return self._schedule(self.now_ms + delay_ms, Timer(action))

    def run_every(self, first_ms: int, interval_ms: int, action: Callable[[], None]) -> Callable[[], None]:
        """Run ``action`` at ``first_ms`` and then at each interval; return a function that ends this."""
        return self._schedule(first_ms, Timer(action, interval_ms)).cancel

    def _schedule(self, at_ms: int, timer: Timer) -> Timer:
        self._count += 1
        heapq.heappush(self._timers, (at_ms, self._count, timer))
        return timer

    @property
    def next_due_ms(self) -> int | None:
        """Return the time of the next action, even a cancelled one; None where there is none."""
        return self._timers[0][0] if self._timers else None

    def advance(self, milliseconds: int) -> None:
        until = self.now_ms + milliseconds
        while self.run_next(until):
            pass

    def run_next(self, until_ms: int) -> bool:
        """Let time pass to the next action, and run it; return False where none is due by ``until_ms``."""
        while self._timers and self._timers[0][0] <= until_ms:
            at_ms, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self.now_ms = max(self.now_ms, at_ms)
                if timer.interval_ms:
                    self._schedule(self.now_ms + timer.interval_ms, timer)
                timer.action()
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return False
