"""P1 with three servers: the time until the first and until the last of them shows an instance.

The floor registers at the first server, which replicates to the others half a second later; kopf writes to
all three itself.
"""

from __future__ import annotations

from bench.age import OPERATOR_PATHS
from bench.harness import Result, Size, median_and_p99
from bench.p1_latency import AWAITED_CONTESTANTS, run_contestants

BAR = (
    "until the first server shows it: p50 <= 1.25x and p99 <= 1.5x the floor's; until the last: p50 at most"
    " 10 ms and p99 at most 30 ms above the floor's; <= 4 requests to Eureka a change"
)
MEASURES = OPERATOR_PATHS
SAMPLES = {Size.FULL: 500, Size.QUICK: 30}


def run(size: Size) -> Result:
    """Measure each contestant in turn, with three servers, and return the result."""
    samples = SAMPLES[size]
    runs, requests = run_contestants(3, samples, with_poll=False)
    figures = {
        name: {
            **{
                f"first, {part}": ms for part, ms in median_and_p99([run["ms"] for run in runs[name]]).items()
            },
            **{
                f"last, {part}": ms
                for part, ms in median_and_p99([run["last_ms"] for run in runs[name]]).items()
            },
            **requests[name],
        }
        for name in AWAITED_CONTESTANTS
    }
    ours, floor = figures["ours"], figures["floor"]
    ratios = {
        f"first, {part}, ours to floor": ours[f"first, {part}_ms"] / floor[f"first, {part}_ms"]
        for part in ("p50", "p99")
    } | {
        f"last, {part}, ms above the floor": ours[f"last, {part}_ms"] - floor[f"last, {part}_ms"]
        for part in ("p50", "p99")
    }
    return Result(
        id="P1x3",
        title=f"EndpointSlice patch until three Eureka show the instance, {samples} samples each",
        unit="milliseconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        headlines=("first, p50_ms", "first, p99_ms", "last, p50_ms", "last, p99_ms"),
        peers={"kopf": figures["kopf"]},
        ratios=ratios,
        held=ratios["first, p50, ours to floor"] <= 1.25
        and ratios["first, p99, ours to floor"] <= 1.5
        and ratios["last, p50, ms above the floor"] <= 10
        and ratios["last, p99, ms above the floor"] <= 30
        and ours["requests a change"] <= 4,
        runs=runs,
    )
