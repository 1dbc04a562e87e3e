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
    :param longest_seconds: beyond this age it is stuck, and a restart would help.
    """

    name: str
    is_alive: bool
    age_seconds: float = 0.0
    longest_seconds: float = math.inf

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


class _Thread(Protocol):
    """What a loop's thread tells of itself."""

    name: str

    @property
    def ident(self) -> int | None:
        """The number of the thread; None before it was started."""

    def is_alive(self) -> bool:
        """Whether the thread runs."""


def liveness_of(
    threads: Iterable[_Thread], age_seconds: float = 0.0, longest_seconds: float = math.inf
) -> list[Liveness]:
    """The liveness of threads, without those that were never started."""
    return [
        Liveness(thread.name, thread.is_alive(), age_seconds, longest_seconds)
        for thread in threads
        if thread.ident is not None
    ]
