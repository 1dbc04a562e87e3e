"""The schedule of a stack's runs: a pure function of time and of past events.

The functions read no clock and start nothing. Times are seconds of the caller's clock, which must never go
back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LONGEST_WAIT_FACTOR = 10
"""The number of debounce times after which a run begins even though changes go on."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The limits on how often a stack may run.

    :param debounce_seconds: a run waits until nothing has changed for this time.
    :param interval_seconds: the least time between the beginnings of two runs.
    """

    debounce_seconds: float
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state of one stack's schedule; each method returns the state that follows.

    A touch only asks for a comparison: when the debounce time is over, the caller compares the wanted digest
    with the served one to find out whether a run is needed.

    :ivar served: the digest of the last run that succeeded, if none failed since; else empty.
    :ivar first_touch: the time since which something may have changed; None when nothing has.
    :ivar running: the digest of the current run; None for no run.
    :ivar failures: the number of failed runs in a row.
    :ivar retry_at: the time before which nothing runs.
    :ivar is_unended: True if the last request has not ended, so that the next run only waits for it.
    """

    served: str = ""
    first_touch: float | None = None
    last_touch: float | None = None
    begun_at: float = -math.inf
    running: str | None = None
    failures: int = 0
    retry_at: float = -math.inf
    is_unended: bool = False

    @property
    def is_pending(self) -> bool:
        """True if a comparison, or a run, is still to come."""
        return self.last_touch is not None

    def debounced_at(self, pace: Pace) -> float | None:
        """Return the time at which the debounce ends and the digests are compared; None while no
        comparison is pending.
        """
        if self.running is not None or self.first_touch is None or self.last_touch is None:
            return None
        quiet = pace.debounce_seconds
        return min(self.last_touch + quiet, self.first_touch + quiet * LONGEST_WAIT_FACTOR)

    def due_at(self, pace: Pace) -> float | None:
        """Return the time at which to run, if the comparison finds a difference; None while none is
        pending.
        """
        debounced = self.debounced_at(pace)
        if debounced is None:
            return None
        if self.is_unended:
            return max(debounced, self.retry_at)
        return max(debounced, self.begun_at + pace.interval_seconds, self.retry_at)

    def touched(self, now: float) -> Schedule:
        """Return the schedule after a moment at which something may have changed."""
        first = now if self.first_touch is None else self.first_touch
        return replace(self, first_touch=first, last_touch=now)

    def settled(self) -> Schedule:
        """Return the schedule after a comparison that found no difference: nothing is pending."""
        return replace(self, first_touch=None, last_touch=None)

    def begun(self, now: float, wanted: str) -> Schedule:
        """Return the schedule after the beginning of a run for ``wanted``. The served digest is unknown
        until the run succeeds.
        """
        return replace(
            self,
            first_touch=None,
            last_touch=None,
            begun_at=self.begun_at if self.is_unended else now,
            running=wanted,
            served="",
            is_unended=False,
        )

    def succeeded(self) -> Schedule:
        """Return the schedule after a run that succeeded; touches during the run stay pending."""
        return replace(self, served=self.running or "", running=None, failures=0, retry_at=-math.inf)

    def unended(self, now: float) -> Schedule:
        """Return the schedule after a run that was given up although its request goes on.

        Another run follows soon, whatever changes, and only waits for that request.
        """
        return replace(
            self if self.is_pending else self.touched(self.begun_at),
            running=None,
            retry_at=now + FIRST_RETRY_SECONDS,
            is_unended=True,
        )

    def failed(self, now: float, jitter: float) -> Schedule:
        """Return the schedule after a run that failed: another run follows, whatever changes.

        :param jitter: 0 to 1, to be drawn again each time.
        """
        failures = self.failures + 1
        delay = retry_delay(failures) * (0.5 + jitter / 2)
        return replace(
            self if self.is_pending else self.touched(self.begun_at),
            running=None,
            failures=failures,
            retry_at=now + delay,
        )


def retry_delay(failures: int) -> float:
    """Return the delay in seconds after this many failures in a row; without jitter."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_RETRY_SECONDS)
