"""Distributions of durations, as counts by upper bound."""

from __future__ import annotations

from dataclasses import dataclass

BUCKET_BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the groups in which durations are counted, in ascending order."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of all durations observed so far.

    :param counts: by bound of :data:`BUCKET_BOUNDS_SECONDS`, how many durations were at most that long and
        longer than the bound before; the last count is of those longer than every bound.
    :param total_seconds: the sum of all durations.
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKET_BOUNDS_SECONDS) + 1)
    total_seconds: float = 0.0

    def __add__(self, other: Distribution) -> Distribution:
        """Return the distribution of the durations of both operands."""
        return Distribution(
            tuple(one + two for one, two in zip(self.counts, other.counts, strict=True)),
            self.total_seconds + other.total_seconds,
        )
