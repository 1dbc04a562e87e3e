"""A histogram of durations: counts by upper bound, cheap enough for every request."""

from __future__ import annotations

import threading
from bisect import bisect_left

from eurekube_provider.core.durations import BUCKET_BOUNDS_SECONDS, Distribution


class Histogram:
    """A histogram of durations; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BUCKET_BOUNDS_SECONDS) + 1)
        self._total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        place = bisect_left(BUCKET_BOUNDS_SECONDS, seconds)
        with self._lock:
            self._counts[place] += 1
            self._total_seconds += seconds

    def snapshot(self) -> Distribution:
        with self._lock:
            return Distribution(tuple(self._counts), self._total_seconds)
