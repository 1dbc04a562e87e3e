"""P6: the operator's cost while nothing changes: 10,000 instances, one Eureka and three."""

from __future__ import annotations

import time

from bench.age import OPERATOR_PATHS
from bench.contestant import Contestant
from bench.field import BenchLab
from bench.harness import Result, Size, print_progress
from bench.p3_start import NAMESPACE
from bench.prober import Prober
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from lab import Lab

BAR = (
    "< 2 % of a core with one Eureka, < 4 % with three; void if fewer than 2 renewals a minute for each were "
    "accepted"
)
MEASURES = OPERATOR_PATHS
INSTANCE_COUNT = {Size.FULL: 10_000, Size.QUICK: 1_000}
WATCHED_SECONDS = {Size.FULL: 120.0, Size.QUICK: 30.0}
MAX_PERCENT_BY_SERVERS = {1: 2.0, 3: 4.0}
_SETTLE_SECONDS = 70.0
"""Seconds until the servers' count of the last full minute holds ordinary renewals only."""


def run(size: Size) -> Result:
    """Measure the operator, an idle interpreter, and one PUT for each renewal; with one server, then with
    three.
    """
    count, watched = INSTANCE_COUNT[size], WATCHED_SECONDS[size]
    ours, floor, peer, renewals = {}, {}, {}, {}
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "floor": [], "one PUT each": []}
    for servers in MAX_PERCENT_BY_SERVERS:
        label = f"{servers} Eureka"
        with Lab(eureka=servers) as lab:
            field = BenchLab(lab)
            field.create_namespace(NAMESPACE)
            field.create_services(NAMESPACE, range(count), syncers=True)
            with (
                field.start_operator() as operator,
                field.start_idle_interpreter("eurekube_provider.operator.__main__") as idle,
            ):
                for url in lab.eureka_urls:
                    Prober(url).wait_until_registered(field.instance_keys(NAMESPACE, range(count)))
                time.sleep(_SETTLE_SECONDS)
                runs["ours"], runs["floor"], fewest = _measure_idle_cost(operator, idle, field, watched)
                ours[label], floor[label] = _cpu_percent(runs["ours"]), _cpu_percent(runs["floor"])
                renewals[label] = fewest / count
            print_progress(f"  {label}: {ours[label]:.2f} %, {renewals[label]:.2f} renewals a minute")
            with field.start_bridge("rest_bridge", "renew", NAMESPACE) as rest:
                rest.wait_for("registered")
                before, started = rest.cpu_seconds(), time.perf_counter()
                time.sleep(60.0)
                cpu, wall = rest.cpu_seconds() - before, time.perf_counter() - started
                runs["one PUT each"].append({"cpu_seconds": cpu, "wall_seconds": wall})
                peer[label] = cpu / wall * 100
    valid = all(each >= 2 for each in renewals.values())
    return Result(
        id="P6",
        title=f"processor time while nothing changes, {count:,} instances",
        unit="percent of a core",
        bar=BAR,
        ours=ours | {f"{label}, renewals a minute for each": each for label, each in renewals.items()},
        floor=floor,
        peers={"one PUT each": peer},
        ratios={f"{label}, one PUT each to ours": peer[label] / ours[label] for label in ours},
        held=all(ours[f"{servers} Eureka"] < limit for servers, limit in MAX_PERCENT_BY_SERVERS.items()),
        runs=runs,
        void="" if valid else "fewer than 2 renewals a minute for each instance were accepted",
    )


def _measure_idle_cost(
    operator: Contestant, idle: Contestant, field: BenchLab, seconds: float
) -> tuple[list[dict[str, float]], list[dict[str, float]], int]:
    """Return the processor time of both processes in steps of ten seconds, and the fewest renewals that a
    server got in a minute.
    """
    steps: dict[Contestant, list[dict[str, float]]] = {operator: [], idle: []}
    fewest: list[int] = []
    peers = [Peer(url, Connection.parse(url)) for url in field.lab.eureka_urls]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = {one: (one.cpu_seconds(), time.perf_counter()) for one in steps}
        time.sleep(10.0)
        for one, (cpu, wall) in before.items():
            step = {"cpu_seconds": one.cpu_seconds() - cpu, "wall_seconds": time.perf_counter() - wall}
            steps[one].append(step)
        for peer in peers:
            figures = peer.read_front_page()
            assert figures is not None
            fewest.append(figures.renewals_last_minute)
    return steps[operator], steps[idle], min(fewest)


def _cpu_percent(steps: list[dict[str, float]]) -> float:
    return sum(step["cpu_seconds"] for step in steps) / sum(step["wall_seconds"] for step in steps) * 100
