"""P8 with three servers, the usual set-up: the time until the first and until the last of them shows a
change.
"""

from __future__ import annotations

from bench.age import OPERATOR_PATHS
from bench.harness import Result, Size
from bench.p8_churn import RATES, RUNS, Scale, run_contestants

BAR = (
    "final sets equal on all three; until the last server shows a change, kopf's lag p50 >= 1.1x and"
    " p99 >= 2x ours (kopf writes to all three itself); status writes <= 2 a second for each syncer; at the"
    " highest of 200, 150, 100 and 50 changes a second that leaves 10 % of a core idle, or void"
)
MEASURES = OPERATOR_PATHS
__all__ = ["BAR", "MEASURES", "RUNS", "run"]

THREE_SERVERS = Scale("P8x3", BAR, 3, [*RATES, 50], 0.05)


def run(size: Size) -> Result:
    """Return the result with three servers."""
    return run_contestants(THREE_SERVERS, size)
