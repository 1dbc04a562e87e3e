"""P18: many Services that joined one syncer, against a syncer for each."""

from __future__ import annotations

import statistics
import time

from bench.age import OPERATOR_PATHS
from bench.field import BenchLab
from bench.harness import Result, Size, print_progress
from bench.p3_start import DEFAULT_HEAP_MIB
from bench.prober import Prober
from lab import Lab

BAR = "one syncer for 500 Services costs at most 1.1x what 500 syncers cost: start, processor time, memory"
MEASURES = OPERATOR_PATHS
_MAX_RATIO = 1.1
SERVICE_COUNT = {Size.FULL: 500, Size.QUICK: 20}
"""Number of Services, of :data:`_ENDPOINTS_PER_SERVICE` endpoints, that one syncer serves, or a syncer
each.
"""
_ENDPOINTS_PER_SERVICE = 10
_CHANGE_COUNT = {Size.FULL: 100, Size.QUICK: 10}
ROUNDS = {Size.FULL: 3, Size.QUICK: 1}
_SETTLED_SECONDS = 3.0
"""Seconds after a start in which statuses are written."""


def run(size: Size) -> Result:
    """Start the operator with these Services, and change single endpoints."""
    with Lab(eureka=1, uncached_lists=True, eureka_heap_mib=DEFAULT_HEAP_MIB) as lab:
        found = _compare_joined(BenchLab(lab), Prober(lab.eureka_urls[0]), size)
    one, many = found["one syncer"], found["a syncer each"]
    ratios = {name: one[name] / many[name] for name in many}
    return Result(
        id="P18",
        title=f"{SERVICE_COUNT[size]} Services of one syncer",
        unit="as each row says",
        bar=BAR,
        ours=one,
        floor={},
        peers={"a syncer each": many},
        ratios=ratios,
        held=all(ratio <= _MAX_RATIO for ratio in ratios.values()),
    )


def _compare_joined(field: BenchLab, prober: Prober, size: Size) -> dict[str, dict[str, float]]:
    """Measure Services that joined one syncer, and as many with a syncer each, in turns.

    The first turn of each is not counted: in it the operator creates the syncers of the joined Services.

    :returns: for both, medians of seconds until all is registered, of processor seconds for that and for
        single changes, of a change's milliseconds, and of MiB.
    """
    numbers = range(SERVICE_COUNT[size] * _ENDPOINTS_PER_SERVICE)
    field.create_services(field.create_namespace("each"), numbers, syncers=True, each=_ENDPOINTS_PER_SERVICE)
    field.create_services(
        field.create_namespace("joined"), numbers, syncers=False, each=_ENDPOINTS_PER_SERVICE
    )
    field.create_syncer("joined", "all", selector={"services": "All"})
    found: dict[str, list[dict[str, float]]] = {"a syncer each": [], "one syncer": []}
    for turn in range(ROUNDS[size] + 1):
        for which, namespace in zip(found, ("each", "joined"), strict=True):
            measured = _measure_turn(field, prober, namespace, numbers, _CHANGE_COUNT[size])
            print_progress(
                f"  {which}: {', '.join(f'{name} {figure:.2f}' for name, figure in measured.items())}"
            )
            if turn:
                found[which].append(measured)
    return {
        which: {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
        for which, turns in found.items()
    }


def _measure_turn(
    field: BenchLab, prober: Prober, namespace: str, numbers: range, changes: int
) -> dict[str, float]:
    """Measure a cold start with these Services, and changes of one endpoint each."""
    keys = field.instance_keys(namespace, numbers, each=_ENDPOINTS_PER_SERVICE)
    with field.start_operator(WATCH_NAMESPACE=namespace) as operator:
        completed = prober.wait_until_registered(keys)
        found = {"start, s": completed - operator.started_at}
        time.sleep(_SETTLED_SECONDS)
        found["start, processor seconds"] = before = operator.cpu_seconds()
        took = []
        for number in range(changes):
            place = number * _ENDPOINTS_PER_SERVICE % len(numbers)
            took.append(
                _measure_change(field, prober, namespace, place // _ENDPOINTS_PER_SERVICE, keys[place])
            )
        found["changes, processor seconds"] = operator.cpu_seconds() - before
        found["a change, ms"] = statistics.median(took) * 1000
        found["memory, MiB"] = operator.memory_mib()
        for number in range(changes):
            field.patch_slice(
                namespace,
                f"app-{number % (len(numbers) // _ENDPOINTS_PER_SERVICE)}",
                [_readiness_patch(ready=True)],
            )
    prober.cancel(keys)
    return found


def _readiness_patch(*, ready: bool) -> dict[str, object]:
    return {"op": "replace", "path": "/endpoints/0/conditions/ready", "value": ready}


def _measure_change(
    field: BenchLab, prober: Prober, namespace: str, service: int, key: tuple[str, str]
) -> float:
    """Take the readiness of a Service's first endpoint; return the seconds until Eureka shows it as DOWN."""
    started = time.perf_counter()
    field.patch_slice(namespace, f"app-{service}", [_readiness_patch(ready=False)])
    while (prober.read(key) or {}).get("status") != "DOWN":
        if time.perf_counter() - started > 30:
            raise TimeoutError(f"{key} is not DOWN after 30 s")
    return time.perf_counter() - started
