"""Exponential back-off with jitter."""

from __future__ import annotations

import random

_MOST_DOUBLINGS = 30
"""The most times that a delay doubles; a float could double 1,023 times, and failures may go on for days."""


def backoff_seconds(failures: int, first_seconds: float, longest_seconds: float) -> float:
    """Return a delay in seconds that doubles with each failure, half of it random.

    :param failures: 0 for about ``first_seconds``.
    """
    longest = min(first_seconds * 2.0 ** min(failures, _MOST_DOUBLINGS), longest_seconds)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
