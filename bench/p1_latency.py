"""P1: from an EndpointSlice's patch until an uncached read of Eureka shows the instance.

Each contestant, the floor too, is a process of its own, and the same reads end its samples.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from bench.field import PORT, Field, endpoint
from bench.harness import Result, Size, show, spread
from bench.prober import Key, Prober, wait_until
from lab import Lab

BAR = (
    "p50 <= 1.25x the floor's p50; p99 <= 1.5x the floor's p99; above the floor, kopf >= 1.5x ours in both"
    " (floor: a process of a raw watch and raw registers)"
)
SAMPLES = {Size.FULL: 1000, Size.QUICK: 60}
WARM_UP = 40
SERVICES = 20
_RANGE = 65_536
"""Addresses of each contestant; one that two of them register would be refused as a twin."""

_PAUSE_SECONDS = 0.02
"""What a contestant does after a registration (a status, an Event, a log line) shall not hit the next one."""

_LONGEST_SECONDS = 10.0
_POLL_LONGEST_SECONDS = 45.0


def run(size: Size) -> Result:
    """One endpoint after the other, each contestant in turn; who begins changes."""
    samples = SAMPLES[size]
    with Lab(eureka=1) as lab:
        field = Field(lab)
        for position, name in enumerate(("ours", "kopf", "floor", "poll"), 1):
            field.namespace(name)
            for service in range(SERVICES):
                field.service(name, f"{name}-{service}", [endpoint(position * _RANGE - 1 - service)])
                if name == "ours":
                    field.syncer(name, f"{name}-{service}")
        with (
            field.operator() as operator,
            field.kopf("kopf_bridge.py", "kopf") as kopf,
            field.bridge("raw_bridge", "floor") as floor_bridge,
            field.bridge("poll_bridge", "poll") as poll,
        ):
            operator.wait_for("operator is ready")
            kopf.wait_for("Initial authentication has finished")
            floor_bridge.wait_for("watching")
            poll.wait_for("looked")
            contestants = _Contestants(field)
            runs: dict[str, list[dict[str, float]]] = {"ours": [], "floor": [], "kopf": []}
            work: dict[str, Callable[[int], dict[str, float]]] = {
                "ours": contestants.ours,
                "floor": contestants.floor,
                "kopf": contestants.kopf,
            }
            for number in range(WARM_UP + samples):
                for name in _turn(tuple(work), number):
                    found = work[name](number)
                    if number >= WARM_UP:
                        runs[name].append(found)
                    time.sleep(_PAUSE_SECONDS)
                contestants.poll(number)
                time.sleep(_PAUSE_SECONDS)  # others, too, are told of the slice that it changed
                if number % 100 == 99:
                    show(f"  {number + 1} of {WARM_UP + samples}")
            runs["30 s poll"] = contestants.polled()
    figures = {name: spread([run["ms"] for run in found]) for name, found in runs.items()}
    ours, floor, kopf_figures = figures["ours"], figures["floor"], figures["kopf"]
    ratios = {
        "p50, ours to floor": ours["p50_ms"] / floor["p50_ms"],
        "p99, ours to floor": ours["p99_ms"] / floor["p99_ms"],
        "p50, kopf to ours": kopf_figures["p50_ms"] / ours["p50_ms"],
        "p99, kopf to ours": kopf_figures["p99_ms"] / ours["p99_ms"],
        "p50, above the floor, kopf to ours": _above_floor(kopf_figures, ours, floor, "p50_ms"),
        "p99, above the floor, kopf to ours": _above_floor(kopf_figures, ours, floor, "p99_ms"),
        "p50, 30 s poll to ours": figures["30 s poll"]["p50_ms"] / ours["p50_ms"],
        "p99, 30 s poll to ours": figures["30 s poll"]["p99_ms"] / ours["p99_ms"],
    }
    return Result(
        id="P1",
        title=f"EndpointSlice patch until Eureka shows the instance, {samples} samples each",
        unit="milliseconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        headlines=("p50_ms", "p99_ms"),
        peers={name: figures[name] for name in ("kopf", "30 s poll")},
        ratios=ratios,
        held=ratios["p50, ours to floor"] <= 1.25
        and ratios["p99, ours to floor"] <= 1.5
        and ratios["p50, above the floor, kopf to ours"] >= 1.5
        and ratios["p99, above the floor, kopf to ours"] >= 1.5,
        runs=runs,
    )


def _above_floor(
    other: Mapping[str, float], ours: Mapping[str, float], floor: Mapping[str, float], figure: str
) -> float:
    """How many times as far as ours another one is above what nobody can go below."""
    return (other[figure] - floor[figure]) / max(ours[figure] - floor[figure], floor[figure] / 100)


def _turn(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Each time another one begins, so that none always comes after the same other."""
    begin = number % len(names)
    return names[begin:] + names[:begin]


class _Contestants:
    """One sample of each contestant; a sample is a new endpoint in one of its twenty slices."""

    def __init__(self, field: Field) -> None:
        (url,) = field.lab.eureka_urls
        self._field = field
        self._prober = Prober(url)
        self._pending: deque[tuple[float, Key]] = deque()
        self._polled: list[dict[str, float]] = []
        self._poller = threading.Thread(target=self._follow, args=(Prober(url),), daemon=True)
        self._poller.start()

    def ours(self, number: int) -> dict[str, float]:
        """By the operator."""
        name = f"ours-{number % SERVICES}"
        return self._seen("ours", name, number, self._field.instance_id("ours", name, number))

    def kopf(self, number: int) -> dict[str, float]:
        """By the kopf handler."""
        name, offset = f"kopf-{number % SERVICES}", number + _RANGE
        return self._seen("kopf", name, offset, f"pod-{offset}.kopf.kopf:{name}:{PORT}")

    def floor(self, number: int) -> dict[str, float]:
        """By a raw watch and raw registers."""
        name, offset = f"floor-{number % SERVICES}", number + 2 * _RANGE
        return self._seen("floor", name, offset, f"pod-{offset}")

    def poll(self, number: int) -> None:
        """By the 30 s poll, some time."""
        name, offset = f"poll-{number % SERVICES}", number + 3 * _RANGE
        started = self._patch("poll", name, offset)
        if number >= WARM_UP:
            self._pending.append((started, (name.upper(), f"pod-{offset}.poll.rest:{name}:{PORT}")))

    def polled(self) -> list[dict[str, float]]:
        """What the 30 s poll took, once it has seen all."""
        wait_until(lambda: not self._pending, "the 30 s poll", _POLL_LONGEST_SECONDS)
        return self._polled

    def _seen(self, namespace: str, name: str, number: int, instance_id: str) -> dict[str, float]:
        key = (name.upper(), instance_id)
        started = self._patch(namespace, name, number)
        seen = wait_until(lambda: self._prober.shows(key), str(key), _LONGEST_SECONDS, 0.0003)
        return {"ms": (seen - started) * 1000}

    def _patch(self, namespace: str, name: str, number: int) -> float:
        started = time.perf_counter()
        change = {"op": "add", "path": "/endpoints/-", "value": endpoint(number)}
        self._field.patch_slice(namespace, name, [change])
        return started

    def _follow(self, prober: Prober) -> None:
        """The poll registers everything it finds at once, so that only the oldest is looked for."""
        while True:
            while self._pending and prober.shows(self._pending[0][1]):
                started, _ = self._pending.popleft()
                self._polled.append({"ms": (time.perf_counter() - started) * 1000})
            time.sleep(0.1)
