"""P17: one Eureka server with 5,000 to 50,000 instances: the sizes that a client fetches, and their cost.

Of Eurekube only one reading of the list is measured. The server has two settings that users do not have: its
lists are as fresh as reads (``uncached_lists``), so that each has the size in question, and it forgets
changes after ten seconds instead of three minutes, so that a delta has the changes in question alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import urllib3

from bench.age import REGISTRY_PATHS
from bench.contestant import machine_idle_seconds, process_cpu_seconds
from bench.harness import Result, Size, measure, print_progress
from bench.prober import Prober
from bench.registry import make_instance, renew_many
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.connection import DEFAULT_MAX_ANSWER_MIB, Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from lab import Lab
from lab.eureka import EurekaServer

BAR = (
    f"the list of 50,000 instances <= the largest answer that is read by default ({DEFAULT_MAX_ANSWER_MIB} "
    "MiB)"
)
MEASURES = REGISTRY_PATHS
INSTANCE_COUNTS = {Size.FULL: (5_000, 20_000, 50_000), Size.QUICK: (500, 1_000)}
FETCH_COUNT = {Size.FULL: 5, Size.QUICK: 2}
HEAP_MIB = 2048
_DELTA_RETENTION_SECONDS = 10
_EUREKA_SETTINGS = {
    "eureka.server.retention-time-in-m-s-in-delta-queue": str(_DELTA_RETENTION_SECONDS * 1000),
    "eureka.server.delta-retention-timer-interval-in-ms": "1000",
}
_MIB = 2**20

Figures = dict[str, float]


def run(size: Size) -> Result:
    """Fill one server step by step, measure it at each size, and have an empty one copy it at the end."""
    counts, ours = INSTANCE_COUNTS[size], Figures()
    idle, started = machine_idle_seconds(), time.perf_counter()
    with Lab(
        eureka=2,
        kubernetes=False,
        uncached_lists=True,
        eureka_heap_mib=HEAP_MIB,
        eureka_settings=_EUREKA_SETTINGS,
    ) as lab:
        server, empty = lab.eurekas
        empty.kill()
        peers = Peers(Connection.parse(server.url))
        held: list[Instance] = []
        for count in counts:
            more = [make_instance(number) for number in range(len(held), count)]
            held += more
            _register(peers.peers[0], more)
            found = _measure_server(server, peers, held, FETCH_COUNT[size])
            print_progress(
                f"  {count:,}: {', '.join(f'{name} {figure:.4g}' for name, figure in found.items())}"
            )
            ours |= {f"{name} at {count:,}": figure for name, figure in found.items()}
        renew_many(peers, held)
        ours |= {f"{name} at {counts[-1]:,}": figure for name, figure in _measure_copy(empty, held).items()}
        peers.close()
    ours["idle, percent of a core"] = (machine_idle_seconds() - idle) / (time.perf_counter() - started) * 100
    small, large = counts[0], counts[-1]
    per_instance = ("list, MiB", "list, gzip, MiB", "list that is made anew, s")
    return Result(
        id="P17",
        title="one Eureka server, by its size",
        unit="MiB and seconds",
        bar=BAR,
        ours=ours,
        floor={},
        peers={},
        headlines=(f"list, MiB at {large:,}",),
        ratios={
            f"{name}, an instance at {large:,} to {small:,}": (ours[f"{name} at {large:,}"] / large)
            / (ours[f"{name} at {small:,}"] / small)
            for name in per_instance
        },
        held=ours[f"list, MiB at {large:,}"] <= DEFAULT_MAX_ANSWER_MIB,
        notes=["its memory is that of the lab's JVM: no optimising compiler, one thread that collects"],
    )


def _register(peer: Peer, some: Sequence[Instance]) -> None:
    for chunk in batch.chunks(some):
        answers = peer.send_batch([batch.registration_item(one) for one in chunk])
        assert {answer.status_code for answer in answers} == {200}


def _measure_server(server: EurekaServer, peers: Peers, held: Sequence[Instance], fetches: int) -> Figures:
    """Return the cost of a server of this size, for itself and for each client."""
    (peer,) = peers.peers
    time.sleep(_DELTA_RETENTION_SECONDS + 2)  # until the delta has nothing of what filled it
    found = {"heap without a list, MiB": server.live_heap_bytes() / _MIB}
    client = urllib3.PoolManager(timeout=120)

    def fetch(path: str, encoding: str) -> int:
        headers = {"Accept": "application/json", "Accept-Encoding": encoding}
        answer = client.request("GET", server.url + path, headers=headers, decode_content=False)
        assert answer.status == 200
        return len(answer.data)

    anew, again, cpu = list[float](), list[float](), list[float]()
    for number in range(fetches):
        _register(peer, held[number : number + 1])
        before = process_cpu_seconds(server.pid or 0)
        anew.append(measure(lambda: fetch("/apps", "gzip")).wall_seconds)
        cpu.append(process_cpu_seconds(server.pid or 0) - before)
        again.append(measure(lambda: fetch("/apps", "gzip")).wall_seconds)
    found |= {
        "list, MiB": fetch("/apps", "identity") / _MIB,
        "list, gzip, MiB": fetch("/apps", "gzip") / _MIB,
        "list that is made anew, s": statistics.median(anew),
        "list that is made anew, CPU seconds of the server": statistics.median(cpu),
        "list that was made, gzip, s": statistics.median(again),
        "list that was made, plain, s": measure(lambda: fetch("/apps", "identity")).wall_seconds,
        "heap with the list, MiB": server.live_heap_bytes() / _MIB,
    }
    reading = measure(peer.list_instances)
    found["read by Eurekube, CPU seconds"] = reading.cpu_seconds
    time.sleep(_DELTA_RETENTION_SECONDS + 2)
    _register(peer, held[: len(held) // 100])
    found["delta of 1 %, KiB"] = fetch("/apps/delta", "identity") / 1024
    found["delta of 1 %, gzip, KiB"] = fetch("/apps/delta", "gzip") / 1024
    renew_many(peers, held)
    before = process_cpu_seconds(server.pid or 0)
    found["renewals of all by batches, s"] = measure(lambda: renew_many(peers, held)).wall_seconds
    found["renewals of all by batches, CPU seconds of the server"] = (
        process_cpu_seconds(server.pid or 0) - before
    )
    client.clear()
    return found


def _measure_copy(server: EurekaServer, held: Sequence[Instance]) -> Figures:
    """Return the seconds until an empty server answers, and until it has copied all instances from its
    peer.
    """
    started = time.perf_counter()
    server.start_with_registry_copy()
    answers = time.perf_counter() - started
    prober = Prober(server.url)
    complete = (
        prober.wait_until_registered([(one.application.upper(), one.instance_id) for one in held]) - started
    )
    prober.close()
    return {"a server that starts answers after, s": answers, "and has copied all after, s": complete}
