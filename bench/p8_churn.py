"""P8: churn: rolling updates that change 200 endpoints a second in 100 slices."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as member

from bench.contestant import Contestant
from bench.field import PORT, Field, endpoint
from bench.harness import Result, Size, show, spread
from bench.prober import Key, Prober, wait_until
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import SYNCERS
from lab import Lab

BAR = "final sets equal; lag p99 <= 250 ms; status writes <= 2 a second for each syncer"
SERVICES = 100
WIDTH = 10
"""Endpoints of a service at the start."""

CHANGES_A_SECOND = 200
WRITERS = 4
SECONDS = {Size.FULL: 60.0, Size.QUICK: 10.0}
FOLLOWED = 0.15
"""The share of changes whose way is followed to the end."""

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

    def step(self) -> tuple[int, str]:
        """Change one endpoint: a new one comes unready, is ready, an old one terminates, and is gone.

        :returns: its number and what shall become of it.
        """
        kind, self.turn = self.turn % 4, self.turn + 1
        if kind == 0:
            self.number += 1
            self.endpoints[self.number] = "DOWN"
            return self.number, "DOWN"
        if kind == 1:
            self.endpoints[self.number] = "UP"
            return self.number, "UP"
        oldest = next(iter(self.endpoints))
        if kind == 2:
            self.endpoints[oldest] = GONE
        else:
            del self.endpoints[oldest]
        return oldest, GONE

    def body(self) -> list[dict[str, object]]:
        """The slice's endpoints."""
        return [
            endpoint(number, ready=state == "UP", terminating=state == GONE)
            for number, state in self.endpoints.items()
        ]


class Churn:
    """One contestant's minute.

    :param identify: the instance id that the contestant gives to an endpoint of a service.
    """

    def __init__(
        self, field: Field, namespace: str, offset: int, identify: Callable[[str, int], str]
    ) -> None:
        self._field = field
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
        pause, started, made = WRITERS / CHANGES_A_SECOND, time.perf_counter(), 0
        while (now := time.perf_counter()) < started + seconds:
            due = started + made * pause
            if now < due:
                time.sleep(due - now)
            rollout = chance.choice(rollouts)
            number, state = rollout.step()
            key = (rollout.name.upper(), self._identify(rollout.name, number))
            forgotten = state == GONE and number not in rollout.endpoints
            if not forgotten:
                self._latest[key] = state
            sent = time.perf_counter()
            change = {"op": "replace", "path": "/endpoints", "value": rollout.body()}
            self._field.patch_slice(rollout.namespace, rollout.name, [change])
            if not forgotten and chance.random() < FOLLOWED:
                self._followed.append((sent, key, state))
            made += 1
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
            time.sleep(0.001)


def run(size: Size) -> Result:
    """The operator's minute, then kopf's, each alone."""
    seconds = SECONDS[size]
    with Lab(eureka=1, quick_view=False) as lab:
        field = Field(lab)
        for name in ("ours", "kopf"):
            field.namespace(name)
        found = {
            "ours": Churn(field, "ours", 0, lambda name, number: field.instance_id("ours", name, number)),
            "kopf": Churn(field, "kopf", _RANGE, lambda name, n: f"pod-{n}.kopf.kopf:{name}:{PORT}"),
        }
        for rollout in found["ours"].rollouts:
            field.syncer("ours", rollout.name)
        writes = _StatusWrites(field, "ours")
        with field.operator() as operator:
            operator.wait_for("operator is ready")
            ours, busiest = _minute(operator, found["ours"], field, seconds, writes)
        with field.kopf("kopf_bridge.py", "kopf") as peer:
            kopf, _ = _minute(peer, found["kopf"], field, seconds, None)
    ours["status_writes_a_second"] = busiest
    return Result(
        id="P8",
        title=f"churn: {CHANGES_A_SECOND} endpoint changes a second in {SERVICES} slices for {seconds:.0f} s",
        unit="milliseconds of lag",
        bar=BAR,
        ours=ours,
        floor={},
        peers={"kopf": kopf},
        ratios={name: kopf[name] / ours[name] for name in ("p50_ms", "p99_ms")},
        held=ours["differing"] == 0
        and ours["lost"] == 0
        and ours["p99_ms"] <= 250
        and busiest <= 2
        and ours["changes_a_second"] >= 0.95 * CHANGES_A_SECOND,
        runs={name: [{"ms": ms} for ms in churn.milliseconds] for name, churn in found.items()},
        notes=["ratios are kopf's to ours; lost are changes that were neither applied nor superseded"],
    )


def _minute(
    contestant: Contestant, churn: Churn, field: Field, seconds: float, writes: _StatusWrites | None
) -> tuple[dict[str, float], float]:
    """One contestant's figures, and the most status writes a second of one syncer."""
    prober = Prober(field.lab.eureka_urls[0])
    wait_until(lambda: not churn.differing(prober), "all registered", 60.0, 0.5)
    time.sleep(2.0)
    if writes is not None:
        writes.counts.clear()
    cpu = contestant.cpu_seconds()
    made = churn.run(seconds)
    figures = {
        **spread(churn.milliseconds),
        "changes_a_second": made / seconds,
        "cpu_percent": (contestant.cpu_seconds() - cpu) / seconds * 100,
        "superseded": float(churn.superseded),
        "lost": float(len(churn.lost)),
    }
    busiest = max(writes.counts.values(), default=0) / seconds if writes is not None else 0.0
    with suppress(TimeoutError):
        wait_until(lambda: not churn.differing(prober), "the final set", 30.0, 0.5)
    figures["differing"] = float(len(churn.differing(prober)))
    show(f"  {contestant.name}: {figures}")
    return figures, busiest


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
