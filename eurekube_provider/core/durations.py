"""How long things took, as counts by upper bound."""

from __future__ import annotations

from dataclasses import dataclass

BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Observed durations up to a moment.

    :param counts: how many were at most each of :data:`BOUNDS_SECONDS` and above the one before; the last
        one, how many were longer than all of them.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_SECONDS) + 1)
    total_seconds: float = 0.0

    def __add__(self, other: Distribution) -> Distribution:
        """The durations of both together."""
        return Distribution(
            tuple(one + two for one, two in zip(self.counts, other.counts, strict=True)),
            self.total_seconds + other.total_seconds,
        )
