"""P3: cold start: from the process's start until all endpoints are in an empty Eureka."""

from __future__ import annotations

import statistics
import time

from bench.age import OPERATOR_PATHS
from bench.field import ENDPOINTS_PER_SERVICE, BenchLab
from bench.harness import Result, Size, print_progress
from bench.peers.documents import registration_document
from bench.prober import Key, Prober, RawWatch
from lab import Lab

BAR = "<= 2x the floor + 0.5 s; >= 10x faster than one REST register each"
MEASURES = OPERATOR_PATHS
INSTANCE_COUNT = {Size.FULL: 10_000, Size.QUICK: 1_000}
ROUNDS = {Size.FULL: 5, Size.QUICK: 2}
DEFAULT_HEAP_MIB = 2048
"""Heap of the server in MiB: it remembers each change, also of earlier starts, for three minutes. P12 uses
it, too.
"""

NAMESPACE = "shop"
REST_CONTESTANT = "one REST register each"


def run(size: Size) -> Result:
    """Start the operator, the floor and the peer in turn, each with an empty Eureka before it."""
    count = INSTANCE_COUNT[size]
    with Lab(eureka=1, uncached_lists=True, eureka_heap_mib=DEFAULT_HEAP_MIB) as lab:
        field = BenchLab(lab)
        field.create_namespace(NAMESPACE)
        field.create_services(NAMESPACE, range(count), syncers=True)
        runs = _measure_starts(field, count, ROUNDS[size])
    median = {name: statistics.median(run["seconds"] for run in found) for name, found in runs.items()}
    ours, floor, rest = median["ours"], median["floor"], median[REST_CONTESTANT]
    return Result(
        id="P3",
        title=(
            f"cold start: {count:,} endpoints of {count // ENDPOINTS_PER_SERVICE} services into an empty "
            "Eureka"
        ),
        unit="seconds",
        bar=BAR,
        ours={"seconds": ours},
        floor={"seconds": floor},
        peers={REST_CONTESTANT: {"seconds": rest}},
        ratios={"ours to floor": ours / floor, f"{REST_CONTESTANT} to ours": rest / ours},
        held=ours <= 2 * floor + 0.5 and rest / ours >= 10,
        runs=runs,
    )


def _measure_starts(field: BenchLab, count: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Measure ``rounds`` cold starts of each contestant in turn, after one that does not count.

    The first start also puts the finalizers on the syncers, which later starts find there.
    """
    prober, all_keys = Prober(field.lab.eureka_urls[0]), field.instance_keys(NAMESPACE, range(count))
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "floor": [], REST_CONTESTANT: []}
    for number in range(rounds + 1):
        for name, start, cluster in (
            ("ours", _start_operator, field.cluster_name),
            ("floor", _register_by_hand, "floor"),
            (REST_CONTESTANT, _start_rest_bridge, "rest"),
        ):
            keys = [(app, key.replace(f".{field.cluster_name}:", f".{cluster}:")) for app, key in all_keys]
            seconds = start(field, prober, keys)
            prober.cancel(keys)
            print_progress(f"  {name}: {seconds:.2f} s")
            if number:
                runs[name].append({"seconds": seconds})
    return runs


def _start_operator(field: BenchLab, prober: Prober, keys: list[Key]) -> float:
    """Start the operator with its default settings, in a cluster without a former leader."""
    field.delete_leader_lease()
    with field.start_operator() as operator:
        return prober.wait_until_registered(keys) - operator.started_at


def _register_by_hand(field: BenchLab, prober: Prober, keys: list[Key]) -> float:
    """Register by hand, in a process that runs already: a paged list, and batches."""
    watch = RawWatch(field.lab.kubeconfig, NAMESPACE)
    started = time.perf_counter()
    stamp = str(time.time_ns() // 1_000_000)
    documents = []
    for page in watch.pages(NAMESPACE):
        for item in page["items"]:
            name, port = item["metadata"]["labels"]["kubernetes.io/service-name"], item["ports"][0]["port"]
            for endpoint in item["endpoints"]:
                instance_id = f"{endpoint['targetRef']['name']}.{NAMESPACE}.floor:{name}:{port}"
                body = registration_document(name, instance_id, endpoint["addresses"][0], port)
                documents.append({**body, "lastDirtyTimestamp": stamp})
    prober.register_all(documents)
    return prober.wait_until_registered(keys) - started


def _start_rest_bridge(field: BenchLab, prober: Prober, keys: list[Key]) -> float:
    """Start the bridge that sends one POST for each instance."""
    with field.start_bridge("rest_bridge", "register", NAMESPACE) as bridge:
        return prober.wait_until_registered(keys) - bridge.started_at
