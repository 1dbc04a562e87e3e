"""P4: Eureka restarted empty: from its first good answer until all instances are back."""

from __future__ import annotations

import statistics
import time

from bench.age import OPERATOR_PATHS
from bench.field import ENDPOINTS_PER_SERVICE, BenchLab
from bench.harness import Result, Size, print_progress
from bench.p3_start import NAMESPACE
from bench.peers.documents import registration_document
from bench.prober import Key, Prober, wait_until
from lab import Lab

BAR = "<= 3x the floor + 0.5 s"
MEASURES = OPERATOR_PATHS
INSTANCE_COUNT = {Size.FULL: 10_000, Size.QUICK: 1_000}
ROUNDS = {Size.FULL: 5, Size.QUICK: 2}
_UP_SECONDS = 120.0


def run(size: Size) -> Result:
    """Kill the server under the operator, then without one, where the prober registers the instances; in
    turn.
    """
    count = INSTANCE_COUNT[size]
    with Lab(eureka=1) as lab:
        field = BenchLab(lab)
        field.create_namespace(NAMESPACE)
        field.create_services(NAMESPACE, range(count), syncers=True)
        keys = field.instance_keys(NAMESPACE, range(count))
        runs: dict[str, list[dict[str, float]]] = {"ours": [], "floor": []}
        for number in range(ROUNDS[size] + 1):
            found = {"ours": _measure_operator(field, keys), "floor": _measure_by_hand(field, keys)}
            for name, seconds in found.items():
                print_progress(f"  {name}: {seconds:.2f} s")
                if number:
                    runs[name].append({"seconds": seconds})
    median = {name: statistics.median(run["seconds"] for run in found) for name, found in runs.items()}
    return Result(
        id="P4",
        title=f"Eureka restarted empty: its first answer until all {count:,} are back",
        unit="seconds",
        bar=BAR,
        ours={"seconds": median["ours"]},
        floor={"seconds": median["floor"]},
        peers={},
        ratios={"ours to floor": median["ours"] / median["floor"]},
        held=median["ours"] <= 3 * median["floor"] + 0.5,
        runs=runs,
    )


def _measure_operator(field: BenchLab, keys: list[Key]) -> float:
    with field.start_operator() as operator:
        Prober(field.lab.eureka_urls[0]).wait_until_registered(keys)
        operator.wait_for("operator is ready")
        time.sleep(1.0)
        prober, answered = _restart_server(field)
        return prober.wait_until_registered(keys) - answered


def _measure_by_hand(field: BenchLab, our_keys: list[Key]) -> float:
    """Register by hand in batches, under ids of the floor's own."""
    keys = [(app, key.replace(f".{field.cluster_name}:", ".floor:")) for app, key in our_keys]
    stamp = str(time.time_ns() // 1_000_000)
    documents = [
        {
            **registration_document(f"app-{n // ENDPOINTS_PER_SERVICE}", key[1], f"10.0.0.{n % 250}", 8080),
            "lastDirtyTimestamp": stamp,
        }
        for n, key in enumerate(keys)
    ]
    prober, answered = _restart_server(field)
    prober.register_all(documents)
    seconds = prober.wait_until_registered(keys) - answered
    prober.cancel(keys)
    return seconds


def _restart_server(field: BenchLab) -> tuple[Prober, float]:
    """Kill the server and start it again; return a prober, and the time of the first good answer."""
    (server,) = field.lab.eurekas
    server.kill()
    server.launch()
    prober = Prober(server.url)

    def answers() -> bool:
        try:
            return prober.request("GET", "/apps")[0] == 200
        except OSError:
            return False

    return prober, wait_until(answers, "Eureka", _UP_SECONDS, 0.005)
