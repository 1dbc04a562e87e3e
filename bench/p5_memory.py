"""P5: memory of an operator that holds 1,000, 10,000 and 50,000 instances."""

from __future__ import annotations

import time

from bench.age import OPERATOR_PATHS
from bench.field import BenchLab
from bench.harness import Result, Size, percentile, print_progress
from bench.p3_start import NAMESPACE
from bench.prober import Prober
from lab import Lab

BAR = "<= 90 MiB at 1,000; at 10,000 and 50,000 at most what a kopf operator holds"
MEASURES = OPERATOR_PATHS
SMALLEST_COUNT, SMALLEST_MIB = 1_000, 90.0
"""Smallest number of instances, and its bar in MiB: a kopf operator of that size is mostly its imports."""

INSTANCE_COUNTS = {Size.FULL: (SMALLEST_COUNT, 10_000, 50_000), Size.QUICK: (SMALLEST_COUNT,)}
WATCHED_SECONDS = {Size.FULL: 60.0, Size.QUICK: 20.0}
"""Seconds of watching: enough for four reads of the whole registry, after which the process is larger than
at start.
"""


def run(size: Size) -> Result:
    """Add endpoints up to each number, and measure three processes that are started again each time."""
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "floor": [], "kopf": []}
    with Lab(eureka=1) as lab:
        field = BenchLab(lab)
        field.create_namespace(NAMESPACE)
        there = 0
        for count in INSTANCE_COUNTS[size]:
            field.create_services(NAMESPACE, range(there, count), syncers=True)
            there = count
            found = {
                "floor": _idle_memory_mib(field),
                "kopf": _kopf_memory_mib(field, WATCHED_SECONDS[size] / 2),
                "ours": operator_memory_mib(field, count, WATCHED_SECONDS[size]),
            }
            for name, mib in found.items():
                print_progress(f"  {count:,} instances, {name}: {mib:.1f} MiB")
                runs[name].append({"instances": count, "mib": mib})
    figures = {
        name: {f"{run['instances']:,.0f}": run["mib"] for run in found} for name, found in runs.items()
    }
    ours, floor, kopf = figures["ours"], figures["floor"], figures["kopf"]
    return Result(
        id="P5",
        title="resident memory of the operator",
        unit="MiB",
        bar=BAR,
        ours=ours,
        floor=floor,
        peers={"kopf": kopf},
        headlines=tuple(f"{count:,}" for count in INSTANCE_COUNTS[size]),
        ratios={f"{count}, ours to floor": ours[count] / floor[count] for count in ours}
        | {f"{count}, kopf to ours": kopf[count] / ours[count] for count in ours},
        held=ours[f"{SMALLEST_COUNT:,}"] <= SMALLEST_MIB
        and all(ours[name] <= kopf[name] for name in ours if name != f"{SMALLEST_COUNT:,}"),
        runs=runs,
    )


def operator_memory_mib(field: BenchLab, count: int, watched_seconds: float) -> float:
    """Return the most memory in MiB that an operator takes while nothing changes, once Eureka holds all
    its instances.
    """
    (url,) = field.lab.eureka_urls
    with field.start_operator() as operator:
        prober = Prober(url)
        keys = field.instance_keys(NAMESPACE, range(count))
        prober.wait_until_registered(keys)
        operator.wait_for("operator is ready")
        seen = []
        end = time.monotonic() + watched_seconds
        while time.monotonic() < end:
            time.sleep(1.0)
            seen.append(operator.memory_mib())
    prober.cancel(keys)
    return percentile(seen, 1.0)


def _idle_memory_mib(field: BenchLab) -> float:
    with field.start_idle_interpreter("eurekube_provider.operator.__main__") as idle:
        idle.wait_for("idle")
        return idle.memory_mib()


def _kopf_memory_mib(field: BenchLab, watched_seconds: float) -> float:
    with field.start_kopf("kopf_index.py", NAMESPACE) as kopf:
        kopf.wait_for("Initial authentication has finished")
        end, seen = time.monotonic() + watched_seconds, 0.0
        while time.monotonic() < end:
            time.sleep(1.0)
            seen = max(seen, kopf.memory_mib())
        return seen
