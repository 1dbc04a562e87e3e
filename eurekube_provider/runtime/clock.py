"""The clock by which Eureka leases and the Lease are renewed."""

import time


def elapsed_seconds() -> float:
    """Seconds that go on while the machine sleeps, unlike ``time.monotonic()``."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
