"""P18: many Services that joined one syncer, against a syncer for each."""

from __future__ import annotations

import statistics
import time

from bench.age import OPERATOR_PATHS
from bench.field import Field
from bench.harness import Result, Size, show
from bench.p3_start import HEAP_MIB
from bench.prober import Prober
from lab import Lab

BAR = "one syncer for 500 Services costs at most 1.1x what 500 syncers cost: start, processor time, memory"
MEASURES = OPERATOR_PATHS
_LIMIT = 1.1
SERVICES = {Size.FULL: 500, Size.QUICK: 20}
"""Number of Services, of :data:`_EACH` endpoints, that one syncer serves, or a syncer each."""
_EACH = 10
_CHANGES = {Size.FULL: 100, Size.QUICK: 10}
ROUNDS = {Size.FULL: 3, Size.QUICK: 1}
_SETTLED_SECONDS = 3.0
"""Seconds after a start in which statuses are written."""


def run(size: Size) -> Result:
    """Start the operator with these Services, and change single endpoints."""
    with Lab(eureka=1, quick_view=True, eureka_heap_mib=HEAP_MIB) as lab:
        found = _compare_joined(Field(lab), Prober(lab.eureka_urls[0]), size)
    one, many = found["one syncer"], found["a syncer each"]
    ratios = {name: one[name] / many[name] for name in many}
    return Result(
        id="P18",
        title=f"{SERVICES[size]} Services of one syncer",
        unit="as each row says",
        bar=BAR,
        ours=one,
        floor={},
        peers={"a syncer each": many},
        ratios=ratios,
        held=all(ratio <= _LIMIT for ratio in ratios.values()),
    )


def _compare_joined(field: Field, prober: Prober, size: Size) -> dict[str, dict[str, float]]:
    """Measure Services that joined one syncer, and as many with a syncer each, in turns.

    The first turn of each is not counted: in it the operator creates the syncers of the joined Services.

    :returns: for both, medians of seconds until all is registered, of processor seconds for that and for
        single changes, of a change's milliseconds, and of MiB.
    """
    numbers = range(SERVICES[size] * _EACH)
    field.services(field.namespace("each"), numbers, syncers=True, each=_EACH)
    field.services(field.namespace("joined"), numbers, syncers=False, each=_EACH)
    field.syncer("joined", "all", selector={"services": "All"})
    found: dict[str, list[dict[str, float]]] = {"a syncer each": [], "one syncer": []}
    for turn in range(ROUNDS[size] + 1):
        for which, namespace in zip(found, ("each", "joined"), strict=True):
            measured = _turn_of_joined(field, prober, namespace, numbers, _CHANGES[size])
            show(f"  {which}: {', '.join(f'{name} {figure:.2f}' for name, figure in measured.items())}")
            if turn:
                found[which].append(measured)
    return {
        which: {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
        for which, turns in found.items()
    }


def _turn_of_joined(
    field: Field, prober: Prober, namespace: str, numbers: range, changes: int
) -> dict[str, float]:
    """Measure a cold start with these Services, and changes of one endpoint each."""
    keys = field.keys(namespace, numbers, each=_EACH)
    with field.operator(WATCH_NAMESPACE=namespace) as operator:
        completed = prober.wait_complete(keys)
        found = {"start, s": completed - operator.started_at}
        time.sleep(_SETTLED_SECONDS)
        found["start, processor seconds"] = before = operator.cpu_seconds()
        took = []
        for number in range(changes):
            place = number * _EACH % len(numbers)
            took.append(_change(field, prober, namespace, place // _EACH, keys[place]))
        found["changes, processor seconds"] = operator.cpu_seconds() - before
        found["a change, ms"] = statistics.median(took) * 1000
        found["memory, MiB"] = operator.memory_mib()
        for number in range(changes):
            field.patch_slice(namespace, f"app-{number % (len(numbers) // _EACH)}", [_readiness(ready=True)])
    prober.cancel(keys)
    return found


def _readiness(*, ready: bool) -> dict[str, object]:
    return {"op": "replace", "path": "/endpoints/0/conditions/ready", "value": ready}


def _change(field: Field, prober: Prober, namespace: str, service: int, key: tuple[str, str]) -> float:
    """Take the readiness of a Service's first endpoint; return the seconds until Eureka shows it as DOWN."""
    started = time.perf_counter()
    field.patch_slice(namespace, f"app-{service}", [_readiness(ready=False)])
    while (prober.read(key) or {}).get("status") != "DOWN":
        if time.perf_counter() - started > 30:
            raise TimeoutError(f"{key} is not DOWN after 30 s")
    return time.perf_counter() - started
