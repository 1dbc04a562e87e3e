"""The liveness of a loop: if its thread runs, and how long ago it made progress."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Liveness:
    """The liveness of one loop that runs on a thread.

    :param age_seconds: since the loop last made progress; 0 for a loop that only waits for work.
    :param max_age_seconds: beyond this age the loop is stuck, and a restart may help.
    :param renewals_last_minute: how many Eureka leases the loop's registry renewed within the last minute;
        None for a loop that has nothing to do with renewals.
    """

    name: str
    is_alive: bool
    age_seconds: float = 0.0
    max_age_seconds: float = math.inf
    renewals_last_minute: int | None = None

    @property
    def problem(self) -> str:
        """One sentence on why the loop is stuck; empty where it is not."""
        if not self.is_alive:
            return f"{self.name}: its thread has ended"
        if self.age_seconds > self.max_age_seconds:
            return (
                f"{self.name}: no progress for {self.age_seconds:.0f} s"
                f" (at most {self.max_age_seconds:.0f} s are expected)"
            )
        return ""


def restart_reasons(loops: Iterable[Liveness]) -> list[str]:
    """Return why the process must be restarted, a sentence for each loop that is stuck; empty for no reason.

    While the process still renews Eureka leases, only a stuck renewal loop is a reason. The fault that blocks
    another loop may keep the next process from starting, and then every lease that this process renews would
    lapse.
    """
    known = list(loops)
    still_renews = any(loop.renewals_last_minute for loop in known)
    return [
        loop.problem
        for loop in known
        if loop.problem and (loop.renewals_last_minute is not None or not still_renews)
    ]


class _Thread(Protocol):
    """The part of a thread's interface that a loop's liveness is read from."""

    name: str

    @property
    def ident(self) -> int | None:
        """The number of the thread; None before it was started."""

    def is_alive(self) -> bool:
        """Return whether the thread runs."""


def liveness_of(
    threads: Iterable[_Thread], age_seconds: float = 0.0, max_age_seconds: float = math.inf
) -> list[Liveness]:
    """Return the liveness of each thread that was started."""
    return [
        Liveness(thread.name, thread.is_alive(), age_seconds, max_age_seconds)
        for thread in threads
        if thread.ident is not None
    ]
