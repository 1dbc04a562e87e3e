"""P12: growth from 1,000 to 50,000 instances: renewals, a cold start, memory and bookkeeping."""

from __future__ import annotations

import statistics
import time

from bench import bookkeeping
from bench.age import OPERATOR_PATHS
from bench.field import PORT, BenchLab
from bench.harness import Result, Size, print_progress
from bench.p3_start import DEFAULT_HEAP_MIB
from bench.prober import Prober
from bench.registry import renew_many
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.batches import read_and_renew_at
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from lab import Lab

BAR = (
    "time and bytes an instance at 50,000 <= 1.3x those at 5,000;"
    f" bookkeeping a syncer at 5,000 <= {bookkeeping.MAX_GROWTH_RATIO:g}x that at 500"
)
MEASURES = (*OPERATOR_PATHS, "eurekube_provider/doctor")
SYNCER_COUNT = {Size.FULL: 500, Size.QUICK: 50}
"""Number of syncers for bookkeeping, which is also measured at ten times as many; each has ten instances."""
INSTANCE_COUNTS = {Size.FULL: (1_000, 5_000, 10_000, 50_000), Size.QUICK: (1_000, 2_000)}
ROUNDS = {Size.FULL: 3, Size.QUICK: 1}
WATCHED_SECONDS = {Size.FULL: 40.0, Size.QUICK: 5.0}
_COMPARED_COUNTS = {Size.FULL: (5_000, 50_000), Size.QUICK: (1_000, 2_000)}
_MAX_RATIO = 1.3

RENEW_FIGURE, START_FIGURE, MEMORY_FIGURE = (
    "renew, us an instance",
    "start, us an instance",
    "memory, KiB an instance",
)


def run(size: Size) -> Result:
    """Measure each number of instances in a namespace of its own; all of them in turn, again and again."""
    counts, rounds = INSTANCE_COUNTS[size], ROUNDS[size]
    runs: dict[str, list[dict[str, float]]] = {
        name: [] for name in (RENEW_FIGURE, START_FIGURE, MEMORY_FIGURE)
    }
    with Lab(eureka=1, uncached_lists=True, eureka_heap_mib=DEFAULT_HEAP_MIB) as lab:
        field = BenchLab(lab)
        for count in counts:
            field.create_namespace(f"n{count}")
            field.create_services(f"n{count}", range(count), syncers=True)
        prober, peers = Prober(lab.eureka_urls[0]), Peers(Connection.parse(lab.eureka_urls))
        for number in range(rounds + 1):
            for count in counts:
                watched = WATCHED_SECONDS[size] if number == rounds else 0.0
                found = _measure_round(field, prober, peers, count, watched)
                print_progress(
                    f"  {count:,}: {', '.join(f'{name} {figure:.1f}' for name, figure in found.items())}"
                )
                for name, figure in found.items():
                    if number:
                        runs[name].append({"instances": count, "an_instance": figure})
        peers.close()
    ours = {
        f"{name} at {count:,}": statistics.median(
            run["an_instance"] for run in found if run["instances"] == count
        )
        for name, found in runs.items()
        for count in counts
    }
    small, large = _COMPARED_COUNTS[size]
    ratios = {
        f"{name}, {large:,} to {small:,}": ours[f"{name} at {large:,}"] / ours[f"{name} at {small:,}"]
        for name in runs
    }
    kept, growth = bookkeeping.measure_growth(SYNCER_COUNT[size])
    return Result(
        id="P12",
        title="growth",
        unit="an instance",
        bar=BAR,
        ours=ours | {f"{name}, us a syncer": figure for name, figure in kept.items()},
        floor={},
        peers={},
        ratios=ratios | {f"{name}, a syncer at ten times as many": ratio for name, ratio in growth.items()},
        held=all(ratio <= _MAX_RATIO for ratio in ratios.values())
        and all(ratio <= bookkeeping.MAX_GROWTH_RATIO for ratio in growth.values()),
        runs=runs,
    )


def _measure_round(
    field: BenchLab, prober: Prober, peers: Peers, count: int, watched_seconds: float
) -> dict[str, float]:
    """Measure one start and one round of renewals, and the memory if it is watched for some seconds."""
    namespace = f"n{count}"
    keys = field.instance_keys(namespace, range(count))
    found: dict[str, float] = {}
    with field.start_operator(WATCH_NAMESPACE=namespace) as operator:
        completed = prober.wait_until_registered(keys)
        found[START_FIGURE] = (completed - operator.started_at) / count * 1e6
        end, most = time.monotonic() + watched_seconds, 0.0
        while time.monotonic() < end:
            time.sleep(1.0)
            most = max(most, operator.memory_mib())
        if most:
            found[MEMORY_FIGURE] = most * 1024 / count
    # Not from a list, as the prober: of 50,000 instances it is more than a small server has memory for.
    asked = [Instance(name, place, "asked", "asked", Port(PORT)) for name, place in keys]
    held = [one for one in read_and_renew_at(peers, peers.peers[0], asked).values() if one is not None]
    assert len(held) == count
    assert not any(renew_many(peers, held).values())
    started = time.perf_counter()
    assert not any(renew_many(peers, held).values())
    found[RENEW_FIGURE] = (time.perf_counter() - started) / count * 1e6
    prober.cancel(keys)
    return found
