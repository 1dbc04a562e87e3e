"""The schedule of a stack's runs: a pure function of time and of past events.

The functions read no clock and start nothing. Times are seconds of the caller's clock, which must never go
back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MAX_DEBOUNCE_FACTOR = 10
"""The number of debounce times after which a run begins even though changes go on."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 600.0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits on how often a stack may run.

    :param debounce_seconds: a run waits until nothing has changed for this time.
    :param min_interval_seconds: the least time between the beginnings of two runs.
    """

    debounce_seconds: float
    min_interval_seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state of one stack's schedule; each method returns the state that follows.

    A change only asks for a comparison: when the debounce time is over, the caller compares the wanted digest
    with the served one to find out whether a run is needed.

    :ivar served_digest: the digest of the last run that succeeded, if none failed since; else empty.
    :ivar first_change_at: the time since which something may have changed; None when nothing has.
    :ivar running_digest: the digest of the current run; None for no run.
    :ivar last_change_at: the time of the last possible change; None when nothing is pending.
    :ivar run_began_at: the time at which the last run began.
    :ivar consecutive_failures: the number of failed runs in a row.
    :ivar retry_at: the time before which nothing runs.
    :ivar is_last_request_running: True if the last request has not ended, so that the next run only waits for
        it.
    """

    served_digest: str = ""
    first_change_at: float | None = None
    last_change_at: float | None = None
    run_began_at: float = -math.inf
    running_digest: str | None = None
    consecutive_failures: int = 0
    retry_at: float = -math.inf
    is_last_request_running: bool = False

    @property
    def is_pending(self) -> bool:
        """True if a comparison, or a run, is still to come."""
        return self.last_change_at is not None

    def debounce_ends_at(self, limits: RunLimits) -> float | None:
        """Return when the debounce ends and the digests are compared; None while no comparison is pending."""
        if self.running_digest is not None or self.first_change_at is None or self.last_change_at is None:
            return None
        quiet = limits.debounce_seconds
        return min(self.last_change_at + quiet, self.first_change_at + quiet * MAX_DEBOUNCE_FACTOR)

    def run_due_at(self, limits: RunLimits) -> float | None:
        """Return when to run, if the comparison finds a difference; None while none is pending."""
        debounced = self.debounce_ends_at(limits)
        if debounced is None:
            return None
        if self.is_last_request_running:
            return max(debounced, self.retry_at)
        return max(debounced, self.run_began_at + limits.min_interval_seconds, self.retry_at)

    def after_change(self, now: float) -> Schedule:
        """Return the schedule after a possible change at ``now``: a comparison is pending."""
        first = now if self.first_change_at is None else self.first_change_at
        return replace(self, first_change_at=first, last_change_at=now)

    def after_no_difference(self) -> Schedule:
        """Return the schedule after a comparison that found no difference: nothing is pending."""
        return replace(self, first_change_at=None, last_change_at=None)

    def after_start(self, now: float, wanted: str) -> Schedule:
        """Return the schedule after the beginning of a run for ``wanted``. The served digest is unknown
        until the run succeeds.
        """
        return replace(
            self,
            first_change_at=None,
            last_change_at=None,
            run_began_at=self.run_began_at if self.is_last_request_running else now,
            running_digest=wanted,
            served_digest="",
            is_last_request_running=False,
        )

    def after_success(self) -> Schedule:
        """Return the schedule after a run that succeeded; changes during the run stay pending."""
        return replace(
            self,
            served_digest=self.running_digest or "",
            running_digest=None,
            consecutive_failures=0,
            retry_at=-math.inf,
        )

    def after_giving_up(self, now: float) -> Schedule:
        """Return the schedule after a run that was given up although its request goes on.

        Another run follows soon, whatever changes, and only waits for that request.
        """
        return replace(
            self if self.is_pending else self.after_change(self.run_began_at),
            running_digest=None,
            retry_at=now + FIRST_RETRY_SECONDS,
            is_last_request_running=True,
        )

    def after_failure(self, now: float, jitter: float) -> Schedule:
        """Return the schedule after a run that failed: another run follows, whatever changes.

        :param jitter: 0 to 1, to be drawn again each time.
        """
        failures = self.consecutive_failures + 1
        delay = retry_delay_seconds(failures) * (0.5 + jitter / 2)
        return replace(
            self if self.is_pending else self.after_change(self.run_began_at),
            running_digest=None,
            consecutive_failures=failures,
            retry_at=now + delay,
        )


def retry_delay_seconds(failures: int) -> float:
    """Return the delay in seconds after this many failures in a row; without jitter."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_RETRY_SECONDS)
