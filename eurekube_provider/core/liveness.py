"""Liveness of a loop: whether its thread runs, and how long ago it made progress."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Liveness:
    """The liveness of one loop that runs on a thread.

    :param age_seconds: since it last made progress; 0 for a loop that only waits for work.
    :param longest_seconds: beyond this age it is stuck, and a restart may help.
    :param renewed: how many Eureka leases its registry renewed within the last minute; None for a loop that
        has nothing to do with renewals.
    """

    name: str
    is_alive: bool
    age_seconds: float = 0.0
    longest_seconds: float = math.inf
    renewed: int | None = None

    @property
    def problem(self) -> str:
        """Say in one sentence why the loop is stuck; empty where it is not."""
        if not self.is_alive:
            return f"{self.name}: its thread has ended"
        if self.age_seconds > self.longest_seconds:
            return (
                f"{self.name}: no progress for {self.age_seconds:.0f} s"
                f" (at most {self.longest_seconds:.0f} s are expected)"
            )
        return ""


def restart_reasons(loops: Iterable[Liveness]) -> list[str]:
    """Return why the process must be restarted, a sentence for each loop that is stuck; empty for no reason.

    While a process still renews, only a renewing loop of its is a reason: the fault that has another one
    stuck may keep the next process from starting, and everything would lapse that this one holds.
    """
    known = list(loops)
    still_renews = any(loop.renewed for loop in known)
    return [loop.problem for loop in known if loop.problem and (loop.renewed is not None or not still_renews)]


class _Thread(Protocol):
    """A loop's thread, and its progress."""

    name: str

    @property
    def ident(self) -> int | None:
        """The number of the thread; None before it was started."""

    def is_alive(self) -> bool:
        """Return whether the thread runs."""


def liveness_of(
    threads: Iterable[_Thread], age_seconds: float = 0.0, longest_seconds: float = math.inf
) -> list[Liveness]:
    """The liveness of threads, without those that were never started."""
    return [
        Liveness(thread.name, thread.is_alive(), age_seconds, longest_seconds)
        for thread in threads
        if thread.ident is not None
    ]
