"""P2: renew 10,000 Eureka leases in 100 applications, one round."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import requests

from bench.age import REGISTRY_PATHS
from bench.harness import Result, Size, medians, print_progress, run_alternating, samples_to_json
from bench.peers.rest_bridge import renew_each, renew_each_in_threads
from bench.registry import OWNER, make_instances, renew_many
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import plan
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.batches import read_and_renew_everywhere
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.writer import Writer
from lab import Lab

BAR = (
    "wall <= 1/15 and CPU <= 1/40 of one PUT each; <= 2x the floor; in normal running no second carries more "
    "than twice the mean"
)
MEASURES = REGISTRY_PATHS
INSTANCE_COUNT = {Size.FULL: 10_000, Size.QUICK: 1_000}
ROUNDS = {Size.FULL: 5, Size.QUICK: 2}
_SPREAD_SECONDS = 2 * windows.RENEWAL_INTERVAL_SECONDS


class FailingListener:
    """A listener to renewals that fails on every report: any trouble spoils the benchmark."""

    def instances_missing(self, found: Sequence[Instance], peer: Peer | None) -> None:
        """Fail: a server lacks instances."""
        raise AssertionError(f"{len(found)} instances are missing at {peer}")

    def newer_version_found(self, stored: Instance) -> None:
        """Fail: another process wrote an instance."""
        raise AssertionError(f"{stored.instance_id} was written by somebody else")

    def server_answers_again(self, peer: Peer) -> None:
        """Fail: a server went away and came back."""
        raise AssertionError(f"{peer} went away")


def run(size: Size) -> Result:
    """Register 10,000 instances, then renew all of them in four ways, in turn."""
    count = INSTANCE_COUNT[size]
    with Lab(eureka=1, kubernetes=False, uncached_lists=True) as lab:
        (url,) = lab.eureka_urls
        peers = Peers(Connection.parse(url))
        outcome = Writer(peers).apply(plan(make_instances(count), (), OWNER), OWNER)
        assert len(outcome.done) == count
        reads = read_and_renew_everywhere(peers, make_instances(count))
        held = [found for one in make_instances(count) if (found := reads.newest(one.key)) is not None]
        assert len(held) == count
        samples = run_alternating(
            {
                "ours": lambda: _renew_by_eurekube(peers, held),
                "floor": lambda: _renew_by_hand(url, held),
                "one PUT each": lambda: renew_each(url, held),
                "one PUT each, 16 threads": lambda: renew_each_in_threads(url, held),
            },
            ROUNDS[size],
        )
        mean, most = _measure_normal_running(peers, held)
    figures = {name: medians(runs) for name, runs in samples.items()}
    ours, floor, rest = figures["ours"], figures["floor"], figures["one PUT each"]
    ratios = {
        "wall, ours to floor": ours["wall_seconds"] / floor["wall_seconds"],
        "wall, one PUT each to ours": rest["wall_seconds"] / ours["wall_seconds"],
        "CPU, one PUT each to ours": rest["cpu_seconds"] / ours["cpu_seconds"],
        "wall, 16 threads to ours": figures["one PUT each, 16 threads"]["wall_seconds"]
        / ours["wall_seconds"],
        "busiest second to mean": most / mean,
    }
    return Result(
        id="P2",
        title="renew 10,000 Eureka leases, one round",
        unit="seconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        peers={name: figure for name, figure in figures.items() if name not in ("ours", "floor")},
        ratios=ratios,
        held=ratios["wall, one PUT each to ours"] >= 15
        and ratios["CPU, one PUT each to ours"] >= 40
        and ratios["wall, ours to floor"] <= 2
        and ratios["busiest second to mean"] <= 2,
        runs=samples_to_json(samples),
        notes=[f"normal running: {mean:.0f} renewals a second in the mean, {most} in the busiest one"],
    )


def _renew_by_eurekube(peers: Peers, held: list[Instance]) -> None:
    assert not any(renew_many(peers, held).values())


def _renew_by_hand(url: str, held: list[Instance]) -> None:
    """Send batches of the same size by hand, over one connection."""
    bodies = [
        batch.batch_body(batch.heartbeat_item(instance) for instance in chunk) for chunk in batch.chunks(held)
    ]
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    with requests.Session() as session:
        for body in bodies:
            answer = session.post(f"{url}/peerreplication/batch/", data=body, headers=headers, timeout=10)
            assert all(item["statusCode"] == 200 for item in answer.json()["responseList"])


def _measure_normal_running(peers: Peers, held: list[Instance]) -> tuple[float, int]:
    """Let the renewals run as usual; return the mean and the greatest number of renewals in a second."""
    print_progress(f"  normal running for {_SPREAD_SECONDS:.0f} s")
    renewals = Renewals(peers)
    for instance in held:
        renewals.add(instance, just_registered=False)
    renewals.start(FailingListener())
    time.sleep(windows.RENEWAL_INTERVAL_SECONDS + 6)  # what was found at start is renewed soon, once
    seconds: Counter[int] = Counter()
    before, end = renewals.counts.accepted, time.monotonic() + _SPREAD_SECONDS
    while time.monotonic() < end:
        time.sleep(1.0)
        now = renewals.counts.accepted
        seconds[len(seconds)] = now - before
        before = now
    renewals.stop()
    return sum(seconds.values()) / len(seconds), max(seconds.values())
