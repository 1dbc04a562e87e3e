"""P8: churn: rolling updates that change 200 endpoints a second in 100 slices.

A machine that has no processor time left at that rate measures itself: it is asked for fewer changes then,
and the record says how many.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as member

from bench.contestant import Contestant, cpu_seconds_of, idle_seconds
from bench.field import PORT, Field, endpoint
from bench.harness import Result, Size, show, spread
from bench.prober import Key, Prober, RawPatches, wait_until
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import SYNCERS
from lab import Lab, Process

BAR = (
    "final sets equal; kopf's lag p99 >= 2x ours; status writes <= 2 a second for each syncer; "
    "at the highest of 200, 150 and 100 changes a second that leaves 10 % of a core idle, or void"
)
SERVICES = 100
WIDTH = 10
"""Endpoints of a service at the start."""

RATES = (200, 150, 100)
"""Changes a second, of which the first is taken that the machine bears."""

_rates = list(RATES)
WRITERS = 8
SECONDS = {Size.FULL: 60.0, Size.QUICK: 10.0}
FOLLOWED = 0.1
"""The share of changes whose way is followed to the end."""

LOOK_SECONDS = 0.005
"""From one look at what is followed to the next: a lag is known to as much, and those that look leave the
processors to those that are measured."""

LEAST_IDLE_PERCENT = 10.0
"""Of one core, over all cores: with less a lag says more of the machine than of what is measured."""

_GIVEN_UP_SECONDS = 20.0
_RANGE = 100_000
GONE = "gone"


@dataclass(slots=True)
class Rollout:
    """One service under rolling updates: what its slice shows, and what a registry must show for it."""

    namespace: str
    name: str
    number: int
    endpoints: dict[int, str] = member(default_factory=dict)
    turn: int = 0

    def step(self) -> tuple[int, str, bytes]:
        """Change one endpoint: a new one comes unready, is ready, an old one terminates, and is gone.

        :returns: its number, what shall become of it, and the JSON patch of its slice.
        """
        kind, self.turn = self.turn % 4, self.turn + 1
        if kind == 0:
            self.number += 1
            self.endpoints[self.number] = "DOWN"
            return self.number, "DOWN", _patch("add", "/-", endpoint(self.number, ready=False))
        if kind == 1:
            self.endpoints[self.number] = "UP"
            conditions = endpoint(self.number)["conditions"]
            place = len(self.endpoints) - 1
            return self.number, "UP", _patch("replace", f"/{place}/conditions", conditions)
        oldest = next(iter(self.endpoints))
        if kind == 2:
            self.endpoints[oldest] = GONE
            conditions = endpoint(oldest, ready=False, terminating=True)["conditions"]
            return oldest, GONE, _patch("replace", "/0/conditions", conditions)
        del self.endpoints[oldest]
        return oldest, GONE, _patch("remove", "/0")

    def body(self) -> list[dict[str, object]]:
        """The slice's endpoints."""
        return [
            endpoint(number, ready=state == "UP", terminating=state == GONE)
            for number, state in self.endpoints.items()
        ]


def _patch(operation: str, place: str, value: object = None) -> bytes:
    """The JSON patch of one endpoint."""
    step = {"op": operation, "path": f"/endpoints{place}"} | ({"value": value} if value is not None else {})
    return json.dumps([step], separators=(",", ":")).encode()


class Churn:
    """One contestant's minute.

    :param identify: the instance id that the contestant gives to an endpoint of a service.
    :param rate: changes a second.
    """

    def __init__(
        self, field: Field, namespace: str, offset: int, identify: Callable[[str, int], str], rate: int
    ) -> None:
        self._field = field
        self._rate = rate
        self._identify = identify
        self.rollouts: list[Rollout] = []
        for service in range(SERVICES):
            first = offset + service * _RANGE // SERVICES
            states = dict.fromkeys(range(first, first + WIDTH), "UP")
            rollout = Rollout(namespace, f"{namespace}-{service}", first + WIDTH - 1, states)
            self.rollouts.append(rollout)
            field.service(namespace, rollout.name, rollout.body())
        self._latest: dict[Key, str] = {}
        self._followed: list[tuple[float, Key, str]] = []
        self._writing = False
        self.milliseconds: list[float] = []
        self.superseded = 0
        self.lost: list[Key] = []

    def wanted(self) -> dict[Key, str]:
        """What the registry must hold."""
        return {
            (rollout.name.upper(), self._identify(rollout.name, number)): state
            for rollout in self.rollouts
            for number, state in rollout.endpoints.items()
            if state != GONE
        }

    def run(self, seconds: float) -> int:
        """Change and follow; how many changes were made."""
        self._writing = True
        follower = threading.Thread(target=self._follow, args=(Prober(self._field.lab.eureka_urls[0]),))
        follower.start()
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                made = list(pool.map(lambda lane: self._write(lane, seconds), range(WRITERS)))
        finally:
            self._writing = False
            follower.join()
        return sum(made)

    def differing(self, prober: Prober) -> set[Key]:
        """Where the registry is not as it must be."""
        wanted = self.wanted()
        asked = list(wanted.keys() | self._latest.keys())
        there = prober.statuses(asked)
        return {key for key in asked if wanted.get(key) != there.get(key)}

    def _write(self, lane: int, seconds: float) -> int:
        rollouts, chance = self.rollouts[lane::WRITERS], random.Random(lane)  # noqa: S311 - repeatable
        patches = RawPatches(self._field.lab.kubeconfig)
        pause, made = WRITERS / self._rate, 0
        started = time.perf_counter() + lane / self._rate
        while (now := time.perf_counter()) < started + seconds:
            due = started + made * pause
            if now < due:
                time.sleep(due - now)
            rollout = chance.choice(rollouts)
            number, state, patch = rollout.step()
            key = (rollout.name.upper(), self._identify(rollout.name, number))
            forgotten = state == GONE and number not in rollout.endpoints
            if not forgotten:
                self._latest[key] = state
            sent = time.perf_counter()
            patches.patch(rollout.namespace, rollout.name, patch)
            if not forgotten and chance.random() < FOLLOWED:
                self._followed.append((sent, key, state))
            made += 1
        patches.close()
        return made

    def _follow(self, prober: Prober) -> None:
        pending: list[tuple[float, Key, str]] = []
        while self._writing or pending or self._followed:
            while self._followed:
                pending.append(self._followed.pop())
            still = []
            for sent, key, state in pending:
                found = prober.read(key)
                waited = time.perf_counter() - sent
                if (found["status"] if found else GONE) == state:
                    self.milliseconds.append(waited * 1000)
                elif self._latest[key] != state:
                    self.superseded += 1
                elif waited > _GIVEN_UP_SECONDS:
                    self.lost.append(key)
                else:
                    still.append((sent, key, state))
            pending = still
            time.sleep(LOOK_SECONDS)


def run(size: Size) -> Result:
    """Return the result at the first rate that the machine bears, or the void one at the lowest.

    The next run of this process begins there.
    """
    while (result := _run_at(_rates[0], size)).void and len(_rates) > 1:
        show(f"  void with {_rates.pop(0)} changes a second: {result.void}")
    return result


def _run_at(rate: int, size: Size) -> Result:
    """The operator's minute, then kopf's, each alone."""
    seconds = SECONDS[size]
    with Lab(eureka=1) as lab:
        field = Field(lab)
        for name in ("ours", "kopf"):
            field.namespace(name)
        found = {
            "ours": Churn(
                field, "ours", 0, lambda name, number: field.instance_id("ours", name, number), rate
            ),
            "kopf": Churn(field, "kopf", _RANGE, lambda name, n: f"pod-{n}.kopf.kopf:{name}:{PORT}", rate),
        }
        for rollout in found["ours"].rollouts:
            field.syncer("ours", rollout.name)
        writes = _StatusWrites(field, "ours")
        with field.operator() as operator:
            operator.wait_for("operator is ready")
            ours, busiest = _minute(operator, found["ours"], field, seconds, writes)
        with field.kopf("kopf_bridge.py", "kopf") as peer:
            kopf, _ = _minute(peer, found["kopf"], field, seconds, None)
    ours |= {"status_writes_a_second": busiest, "changes_asked_a_second": float(rate)}
    return Result(
        id="P8",
        title=f"churn: {rate} endpoint changes a second in {SERVICES} slices for {seconds:.0f} s",
        unit="milliseconds of lag",
        bar=BAR,
        ours=ours,
        floor={},
        headlines=("p99_ms", "p50_ms"),
        void=void_reason(min(ours["idle_percent"], kopf["idle_percent"])),
        peers={"kopf": kopf},
        ratios={name: kopf[name] / ours[name] for name in ("p50_ms", "p99_ms")},
        held=ours["differing"] == 0
        and ours["lost"] == 0
        and kopf["p99_ms"] >= 2 * ours["p99_ms"]
        and busiest <= 2
        and ours["changes_a_second"] >= 0.95 * rate,
        runs={name: [{"ms": ms} for ms in churn.milliseconds] for name, churn in found.items()},
        notes=[
            "ratios are kopf's to ours; lost are changes that were neither applied nor superseded",
            f"a lag is known to {LOOK_SECONDS * 1000:.0f} ms and one read; lags are from the patch's sending",
            "cpu and idle: percent of one core, over all cores, while the changes were made",
        ],
    )


def void_reason(idle_percent: float) -> str:
    """Return why a run counts for nothing on a machine with so much idle time, or "" if it counts."""
    if idle_percent >= LEAST_IDLE_PERCENT:
        return ""
    return f"{idle_percent:.1f} % of a core was idle, less than {LEAST_IDLE_PERCENT:g} %"


def _minute(
    contestant: Contestant, churn: Churn, field: Field, seconds: float, writes: _StatusWrites | None
) -> tuple[dict[str, float], float]:
    """One contestant's figures, and the most status writes a second of one syncer."""
    prober = Prober(field.lab.eureka_urls[0])
    wait_until(lambda: not churn.differing(prober), "all registered", 60.0, 0.5)
    time.sleep(2.0)
    if writes is not None:
        writes.counts.clear()
    shares = _Shares(contestant, field.lab)
    made = churn.run(seconds)
    figures = {
        **spread(churn.milliseconds),
        "samples": float(len(churn.milliseconds)),
        "changes_a_second": made / seconds,
        **shares.percent(),
        "superseded": float(churn.superseded),
        "lost": float(len(churn.lost)),
    }
    busiest = max(writes.counts.values(), default=0) / seconds if writes is not None else 0.0
    with suppress(TimeoutError):
        wait_until(lambda: not churn.differing(prober), "the final set", 30.0, 0.5)
    figures["differing"] = float(len(churn.differing(prober)))
    show(f"  {contestant.name}: {figures}")
    return figures, busiest


class _Shares:
    """Who used the processors, from its making on."""

    def __init__(self, contestant: Contestant, lab: Lab) -> None:
        self._contestant, self._lab = contestant, lab
        self._started, self._before = time.perf_counter(), self._used()

    def percent(self) -> dict[str, float]:
        """Processor time by name; 100 is one core."""
        elapsed, used = time.perf_counter() - self._started, self._used()
        return {name: (used[name] - before) / elapsed * 100 for name, before in self._before.items()}

    def _used(self) -> dict[str, float]:
        others: dict[str, Sequence[Process]] = {
            "eureka_cpu_percent": self._lab.eurekas,
            "api_server_cpu_percent": [self._lab.api_server],
            "etcd_cpu_percent": [self._lab.etcd],
        }
        pids = {
            name: [one.pid for one in processes if one.pid is not None] for name, processes in others.items()
        }
        return {
            "cpu_percent": self._contestant.cpu_seconds(),
            **{name: sum(map(cpu_seconds_of, found)) for name, found in pids.items()},
            "benchmark_cpu_percent": sum(os.times()[:2]),
            "idle_percent": idle_seconds(),
        }


class _StatusWrites:
    """Counts, by watching them, how often each syncer was written to."""

    def __init__(self, field: Field, namespace: str) -> None:
        self._field, self._path = field, SYNCERS.path(namespace)
        self.counts: Counter[str] = Counter()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        query = {"resourceVersion": self._field.access.get(self._path)["metadata"]["resourceVersion"]}
        with suppress(KubernetesError):  # the lab's end
            for event in self._field.access.watch(self._path, query, 600.0):
                if event["type"] == "MODIFIED":
                    self.counts[event["object"]["metadata"]["name"]] += 1
