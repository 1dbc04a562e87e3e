"""The schedule of a stack's runs: a pure function of time and of what happened.

No clock is read here and nothing is started. Times are seconds of whatever clock the caller has, as long as
it never goes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LONGEST_WAIT_FACTOR = 10
"""Endless change cannot postpone a run for more than so many debounce times."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a stack may run.

    :param debounce_seconds: a run waits until nothing has changed for as long.
    :param interval_seconds: at least so long between the beginnings of two runs.
    """

    debounce_seconds: float
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state of one stack's schedule; each method returns the state that follows.

    A touch says only *compare again*: whether there is anything to do is found out when the time has come, by
    comparing what is wanted with what was served.

    :ivar served: the digest of the last run that succeeded, if none failed since; else empty.
    :ivar first_touch: since when something may have changed; None when nothing has.
    :ivar running: the digest of the current run; None when there is none.
    :ivar failures: runs that failed, in a row.
    :ivar retry_at: nothing runs before.
    :ivar is_unended: the last request has not ended, so that the next run only waits for it.
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
        """Return whether a comparison, or a run, is still to come."""
        return self.last_touch is not None

    def debounced_at(self, pace: Pace) -> float | None:
        """When the debounce time is over and what is wanted is compared; None while nothing is waited for."""
        if self.running is not None or self.first_touch is None or self.last_touch is None:
            return None
        quiet = pace.debounce_seconds
        return min(self.last_touch + quiet, self.first_touch + quiet * LONGEST_WAIT_FACTOR)

    def due_at(self, pace: Pace) -> float | None:
        """When to run, if there is something to do."""
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
        """The last run served what is wanted: there is nothing to do."""
        return replace(self, first_touch=None, last_touch=None)

    def begun(self, now: float, wanted: str) -> Schedule:
        """A run for ``wanted`` begins. Until it ends well nobody knows what the stack holds."""
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
        """The run ended well; what was touched meanwhile is reconciled in its time."""
        return replace(self, served=self.running or "", running=None, failures=0, retry_at=-math.inf)

    def unended(self, now: float) -> Schedule:
        """The run was given up, and what it asked for goes on: it is waited for, whatever changes."""
        return replace(
            self if self.is_pending else self.touched(self.begun_at),
            running=None,
            retry_at=now + FIRST_RETRY_SECONDS,
            is_unended=True,
        )

    def failed(self, now: float, jitter: float) -> Schedule:
        """The run failed: another one follows, whatever changes.

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
    """Compute the delay in seconds after so many failures in a row; without jitter."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_RETRY_SECONDS)
