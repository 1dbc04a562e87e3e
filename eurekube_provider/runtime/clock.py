"""A clock that counts while the machine sleeps, and Unix times as RFC 3339 text."""

from __future__ import annotations

import time


def boot_clock_seconds() -> float:
    """Return the seconds of a clock that goes on while the machine sleeps, unlike ``time.monotonic()``."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def format_utc_time(seconds: float) -> str:
    """Return Unix time as RFC 3339, in UTC, to the second: ``2026-01-31T12:00:00Z``."""
    # Twice as fast as by a datetime, and the status page has one for each syncer.
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
