"""The liveness of a loop: if its thread runs, and how long ago it made progress."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Liveness:
    """The liveness of one loop that runs on a thread.

    :param seconds_without_progress: since the loop last made progress; 0 for a loop that only waits for work.
    :param max_seconds_without_progress: beyond this age the loop is stuck, and a restart may help.
    :param renewals_last_minute: how many Eureka leases the loop's registry renewed within the last minute;
        None for a loop that has nothing to do with renewals.
    """

    name: str
    is_alive: bool
    seconds_without_progress: float = 0.0
    max_seconds_without_progress: float = math.inf
    renewals_last_minute: int | None = None

    @property
    def problem_sentence(self) -> str:
        """One sentence on why the loop is stuck; empty where it is not."""
        if not self.is_alive:
            return f"{self.name}: its thread has ended"
        if self.seconds_without_progress > self.max_seconds_without_progress:
            return (
                f"{self.name}: no progress for {self.seconds_without_progress:.0f} s"
                f" (at most {self.max_seconds_without_progress:.0f} s are expected)"
            )
        return ""


def describe_restart_reasons(loops: Iterable[Liveness]) -> list[str]:
    """Return why the process must be restarted, a sentence for each loop that is stuck; empty for no reason.

    While the process still renews Eureka leases, only a stuck renewal loop is a reason. The fault that blocks
    another loop may keep the next process from starting, and then every lease that this process renews would
    lapse.
    """
    known = list(loops)
    still_renews = any(loop.renewals_last_minute for loop in known)
    return [
        loop.problem_sentence
        for loop in known
        if loop.problem_sentence and (loop.renewals_last_minute is not None or not still_renews)
    ]


class _Thread(Protocol):
    """The part of a thread's interface that a loop's liveness is read from."""

    name: str

    @property
    def ident(self) -> int | None:
        """The number of the thread; None before it was started."""

    def is_alive(self) -> bool:
        """Return whether the thread runs."""


def liveness_of_started_threads(
    threads: Iterable[_Thread],
    seconds_without_progress: float = 0.0,
    max_seconds_without_progress: float = math.inf,
) -> list[Liveness]:
    """Return the liveness of each thread that was started."""
    return [
        Liveness(thread.name, thread.is_alive(), seconds_without_progress, max_seconds_without_progress)
        for thread in threads
        if thread.ident is not None
    ]
