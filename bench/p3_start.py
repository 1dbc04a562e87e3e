"""P3: cold start: from the process's start until all endpoints are in an empty Eureka."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.field import AN_APPLICATION, Field
from bench.harness import Result, Size, show
from bench.peers.documents import document
from bench.prober import Key, Prober, RawWatch
from lab import Lab

BAR = "<= 2x the floor + 1 s; >= 10x faster than one REST register each"
COUNT = {Size.FULL: 10_000, Size.QUICK: 1_000}
ROUNDS = {Size.FULL: 5, Size.QUICK: 2}
NAMESPACE = "shop"


def run(size: Size) -> Result:
    """Start the operator, the floor and the peer in turn, each with an empty Eureka before it."""
    count = COUNT[size]
    with Lab(eureka=1) as lab:
        field = Field(lab)
        field.namespace(NAMESPACE)
        field.services(NAMESPACE, range(count), syncers=True)
        runs = _starts(field, count, ROUNDS[size])
    median = {name: statistics.median(run["seconds"] for run in found) for name, found in runs.items()}
    ours, floor, rest = median["ours"], median["floor"], median["one REST register each"]
    return Result(
        id="P3",
        title=f"cold start: {count:,} endpoints of {count // AN_APPLICATION} services into an empty Eureka",
        unit="seconds",
        bar=BAR,
        ours={"seconds": ours},
        floor={"seconds": floor},
        peers={"one REST register each": {"seconds": rest}},
        ratios={"ours to floor": ours / floor, "one REST register each to ours": rest / ours},
        held=ours <= 2 * floor + 1 and rest / ours >= 10,
        runs=runs,
    )


def _starts(field: Field, count: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """So many cold starts of each contestant in turn, after one that does not count.

    The one that does not count also puts the finalizers on the syncers, which later starts find there.
    """
    (url,) = field.lab.eureka_urls
    prober = Prober(url)
    numbers = range(count)
    contestants: dict[str, Callable[[], float]] = {
        "ours": lambda: _ours(field, prober, field.keys(NAMESPACE, numbers)),
        "floor": lambda: _floor(field, prober, numbers),
        "one REST register each": lambda: _rest(field, prober, numbers),
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, start in contestants.items():
            prober.cancel_all()
            seconds = start()
            show(f"  {name}: {seconds:.2f} s")
            if number:
                runs[name].append({"seconds": seconds})
    return runs


def _ours(field: Field, prober: Prober, keys: list[Key]) -> float:
    """The operator with its default settings."""
    with field.operator() as operator:
        return prober.wait_complete(keys) - operator.started_at


def _floor(field: Field, prober: Prober, numbers: range) -> float:
    """By hand, in a process that runs already: a paged list, and batches."""
    watch = RawWatch(field.lab.kubeconfig, NAMESPACE)
    started = time.perf_counter()
    stamp = str(time.time_ns() // 1_000_000)
    keys: list[Key] = []
    documents = []
    for page in watch.pages(NAMESPACE):
        for item in page["items"]:
            name, port = item["metadata"]["labels"]["kubernetes.io/service-name"], item["ports"][0]["port"]
            for endpoint in item["endpoints"]:
                instance_id = f"{endpoint['targetRef']['name']}.{NAMESPACE}.floor:{name}:{port}"
                body = document(name, instance_id, endpoint["addresses"][0], port)
                documents.append({**body, "lastDirtyTimestamp": stamp})
                keys.append((name.upper(), instance_id))
    assert len(keys) == len(numbers)
    prober.register_all(documents)
    return prober.wait_complete(keys) - started


def _rest(field: Field, prober: Prober, numbers: range) -> float:
    """The bridge that sends one POST each."""
    names = [(f"app-{number // AN_APPLICATION}", number) for number in numbers]
    keys = [(name.upper(), f"pod-{number}.{NAMESPACE}.rest:{name}:8080") for name, number in names]
    with field.bridge("rest_bridge", "register", NAMESPACE) as bridge:
        return prober.wait_complete(keys) - bridge.started_at
