"""Virtual time: it passes only when somebody says so, and what is due runs in its order.

A clock can be pickled, with all that is due, where that is methods of things that can.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

EPOCH_MS = 1_800_000_000_000
"""When the model's time begins, in milliseconds of Unix time."""


@dataclass(slots=True, eq=False)
class Timer:
    """Something that is due."""

    action: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Have the action never run."""
        self.cancelled = True


@dataclass(slots=True, eq=False)
class _Recurring:
    """Something that is due again and again."""

    clock: Clock
    interval_ms: int
    action: Callable[[], None]
    timer: Timer | None = None

    def run(self) -> None:
        self.timer = self.clock.after(self.interval_ms, self.run)
        self.action()

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Clock:
    """The time of everything in one model."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self.now_ms = now_ms
        self._timers: list[tuple[int, int, Timer]] = []  # when, a number, and what
        self._count = 0

    def at(self, at_ms: int, action: Callable[[], None]) -> Timer:
        """Run ``action`` at this moment; what is due at the same moment runs in the order of these calls."""
        timer = Timer(action)
        self._count += 1
        heapq.heappush(self._timers, (at_ms, self._count, timer))
        return timer

    def after(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run ``action`` so many milliseconds from now."""
        return self.at(self.now_ms + delay_ms, action)

    def every(self, first_ms: int, interval_ms: int, action: Callable[[], None]) -> Callable[[], None]:
        """Run ``action`` at ``first_ms`` and then again and again; returns what ends it."""
        recurring = _Recurring(self, interval_ms, action)
        recurring.timer = self.at(first_ms, recurring.run)
        return recurring.end

    @property
    def next_due_ms(self) -> int | None:
        """When the next action is due, or was to be that is cancelled; None where there is none."""
        return self._timers[0][0] if self._timers else None

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and run what becomes due."""
        until = self.now_ms + milliseconds
        while self.run_next(until):
            pass

    def run_next(self, until_ms: int) -> bool:
        """Let time pass to the next thing that is due, and run it; False where nothing is before then."""
        while self._timers and self._timers[0][0] <= until_ms:
            at_ms, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self.now_ms = max(self.now_ms, at_ms)
                timer.action()
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return False
