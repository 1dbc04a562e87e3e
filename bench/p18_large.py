"""P18: one operator with 100,000 instances, with its default settings on real servers."""

from __future__ import annotations

import re
import statistics
import time

import urllib3

from bench.age import OPERATOR_PATHS
from bench.contestant import Contestant, idle_seconds
from bench.field import AN_APPLICATION, Field
from bench.harness import Result, Size, show
from bench.p3_start import NAMESPACE
from bench.prober import Key, Prober, wait_until
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from lab import Lab
from lab.ports import free_ports

BAR = "all are registered and renewed at least twice a minute, and the registry is read"
MEASURES = OPERATOR_PATHS
COUNT = {Size.FULL: 100_000, Size.QUICK: 2_000}
WATCHED_SECONDS = {Size.FULL: 60.0, Size.QUICK: 60.0}
SETTLE_SECONDS = {Size.FULL: 70.0, Size.QUICK: 62.0}
"""Until the server's count of the last full minute holds nothing but ordinary renewals."""

CHANGES = 20
HEAP_MIB = 3072
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)

Figures = dict[str, float]


def run(size: Size) -> Result:
    """Start an operator beside that many endpoints, watch it while nothing changes, and change some."""
    count, watched = COUNT[size], WATCHED_SECONDS[size]
    (port,) = free_ports(1)
    web = f"127.0.0.1:{port}"
    with Lab(eureka=1, eureka_heap_mib=HEAP_MIB) as lab:
        field = Field(lab)
        field.namespace(NAMESPACE)
        field.services(NAMESPACE, range(count), syncers=True)
        show(f"  {count:,} endpoints of {count // AN_APPLICATION:,} services are there")
        (url,) = lab.eureka_urls
        prober, keys = Prober(url), field.keys(NAMESPACE, range(count))
        with field.operator(WEB_ADDRESS=web) as operator:
            ours = {"start, s": prober.wait_complete(keys) - operator.started_at}
            operator.wait_for("operator is ready")
            time.sleep(SETTLE_SECONDS[size])
            ours |= _watch(operator, web, Peer(url, Connection.parse(url)), count, watched)
            ours |= _change(field, prober, keys)
        prober.close()
    for name, figure in ours.items():
        show(f"  {name}: {figure:.4g}")
    return Result(
        id="P18",
        title=f"one operator with {count:,} instances",
        unit="seconds, MiB and counts",
        bar=BAR,
        ours=ours,
        floor={},
        peers={},
        headlines=("memory, MiB", "start, s"),
        ratios={"memory, KiB an instance": ours["memory, MiB"] * 1024 / count},
        held=ours["renewals a minute for each"] >= 2 and ours["age of the registry as read, s"] < 60,
    )


def _watch(operator: Contestant, web: str, peer: Peer, count: int, seconds: float) -> Figures:
    """Return what it takes and sends while nothing changes."""
    before, cpu, idle, started = _metrics(web), operator.cpu_seconds(), idle_seconds(), time.perf_counter()
    most = 0.0
    while time.perf_counter() < started + seconds:
        time.sleep(1.0)
        most = max(most, operator.memory_mib())
    took = time.perf_counter() - started
    cpu, idle, after = operator.cpu_seconds() - cpu, idle_seconds() - idle, _metrics(web)
    figures = peer.figures()
    assert figures is not None

    def more(metric: str) -> float:
        return sum(value - before.get(name, 0) for name, value in after.items() if name[0] == metric) / took

    (read_at,) = (
        value for name, value in after.items() if name[0] == "eurekube_registry_read_timestamp_seconds"
    )
    return {
        "memory, MiB": most,
        "CPU, percent of a core": cpu / took * 100,
        "requests to Eureka a second": more("eurekube_eureka_requests_total"),
        "renewals a second": more("eurekube_heartbeats_total"),
        "renewals a minute for each": figures.last_minute / count,
        "renewals a minute below which Eureka keeps all": float(figures.threshold),
        "age of the registry as read, s": time.time() - read_at,
        "idle, percent of a core": idle / took * 100,
    }


def _change(field: Field, prober: Prober, keys: list[Key]) -> Figures:
    """Return the median time from a patch of a slice until Eureka shows it, one change at a time."""
    seconds = []
    path, down = "/endpoints/0/conditions", {"ready": False, "serving": False, "terminating": False}
    for number in range(CHANGES):
        started = time.perf_counter()
        change = {"op": "replace", "path": path, "value": down}
        field.patch_slice(NAMESPACE, f"app-{number}", [change])
        _wait_down(prober, keys[number * AN_APPLICATION])
        seconds.append(time.perf_counter() - started)
    return {"a change, p50, ms": statistics.median(seconds) * 1000, "the slowest, ms": max(seconds) * 1000}


def _wait_down(prober: Prober, key: Key) -> None:
    wait_until(lambda: (prober.read(key) or {}).get("status") == "DOWN", f"{key} to be DOWN", 60.0)


def _metrics(web: str) -> dict[tuple[str, str], float]:
    answer = urllib3.request("GET", f"http://{web}/metrics", timeout=30)
    assert answer.status == 200
    return {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(answer.data.decode())}
