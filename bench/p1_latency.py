"""P1: from an EndpointSlice's patch until an uncached read of Eureka shows the instance.

Each contestant, the floor too, is a process of its own, and the same reads end its samples.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack

from bench import access_log
from bench.access_log import USER_AGENTS, AccessLog, RequestKind
from bench.age import OPERATOR_PATHS
from bench.field import PORT, BenchLab, endpoint
from bench.harness import Result, Size, median_and_p99, print_progress
from bench.prober import Key, Prober, wait_until
from lab import Lab

BAR = (
    "p50 <= 1.25x the floor's p50; p99 <= 1.5x the floor's p99; above the floor, kopf >= 1.5x ours in both"
    " (floor: a process of a raw watch and raw registers)"
)
MEASURES = OPERATOR_PATHS
SAMPLES = {Size.FULL: 1000, Size.QUICK: 60}
WARM_UP_SAMPLES = 40
SERVICE_COUNT = 20
_ADDRESSES_PER_CONTESTANT = 65_536
"""Number of addresses of each contestant: an address that two of them register would be refused as a twin."""

_PAUSE_SECONDS = 0.02
"""Seconds between samples: a contestant's work after a registration (status, Event, log) shall not delay
the next one.
"""

_REQUESTS_OF_CHANGE_SECONDS = 0.1
"""Seconds after a patch in which a batch counts for it; one that comes later renews.

The 99th percentile until the first server shows an instance is 30 ms.
"""

_LONGEST_SECONDS = 10.0
_POLL_LONGEST_SECONDS = 45.0


POLL_CONTESTANT = "30 s poll"
ADDRESS_OFFSETS = {"ours": 0, "kopf": _ADDRESSES_PER_CONTESTANT, "floor": 2 * _ADDRESSES_PER_CONTESTANT}
AWAITED_CONTESTANTS = ("ours", "floor", "kopf")
"""Contestants whose every sample is awaited; the poll's samples are collected in the background."""

Runs = dict[str, list[dict[str, float]]]


def run(size: Size) -> Result:
    """Return the result with one server."""
    samples = SAMPLES[size]
    runs, requests = run_contestants(1, samples, with_poll=True)
    figures: dict[str, dict[str, float]] = {
        name: median_and_p99([run["ms"] for run in found]) | requests.get(name, {})
        for name, found in runs.items()
    }
    ours, floor, kopf_figures = figures["ours"], figures["floor"], figures["kopf"]
    ratios = {
        "p50, ours to floor": ours["p50_ms"] / floor["p50_ms"],
        "p99, ours to floor": ours["p99_ms"] / floor["p99_ms"],
        "p50, kopf to ours": kopf_figures["p50_ms"] / ours["p50_ms"],
        "p99, kopf to ours": kopf_figures["p99_ms"] / ours["p99_ms"],
        "p50, above the floor, kopf to ours": _ratio_above_floor(kopf_figures, ours, floor, "p50_ms"),
        "p99, above the floor, kopf to ours": _ratio_above_floor(kopf_figures, ours, floor, "p99_ms"),
        "p50, 30 s poll to ours": figures[POLL_CONTESTANT]["p50_ms"] / ours["p50_ms"],
        "p99, 30 s poll to ours": figures[POLL_CONTESTANT]["p99_ms"] / ours["p99_ms"],
    }
    return Result(
        id="P1",
        title=f"EndpointSlice patch until Eureka shows the instance, {samples} samples each",
        unit="milliseconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        headlines=("p50_ms", "p99_ms"),
        peers={name: figures[name] for name in ("kopf", POLL_CONTESTANT)},
        ratios=ratios,
        held=ratios["p50, ours to floor"] <= 1.25
        and ratios["p99, ours to floor"] <= 1.5
        and ratios["p50, above the floor, kopf to ours"] >= 1.5
        and ratios["p99, above the floor, kopf to ours"] >= 1.5,
        runs=runs,
    )


def run_contestants(
    servers: int, samples: int, *, with_poll: bool
) -> tuple[Runs, dict[str, dict[str, float]]]:
    """Register one endpoint after the other, each contestant in turn, with a changing first one.

    :returns: the times of each sample, and the requests to Eureka for each sample, by contestant.
    """
    names = ("ours", "kopf", "floor", *(["poll"] if with_poll else []))
    with AccessLog() as log, Lab(eureka=servers, eureka_settings=log.settings) as lab, ExitStack() as running:
        field = BenchLab(lab)
        for position, name in enumerate(names, 1):
            field.create_namespace(name)
            for service in range(SERVICE_COUNT):
                field.create_service(
                    name, f"{name}-{service}", [endpoint(position * _ADDRESSES_PER_CONTESTANT - 1 - service)]
                )
                if name == "ours":
                    field.create_syncer(name, f"{name}-{service}")
        # Each watches its own namespace, so that none works in another one's turn.
        begun = [
            (running.enter_context(field.start_operator(WATCH_NAMESPACE="ours")), "operator is ready"),
            (
                running.enter_context(field.start_kopf("kopf_bridge.py", "kopf")),
                "Initial authentication has finished",
            ),
            (running.enter_context(field.start_bridge("raw_bridge", "floor")), "watching"),
        ]
        if with_poll:
            begun.append((running.enter_context(field.start_bridge("poll_bridge", "poll")), "looked"))
        for contestant, word in begun:
            contestant.wait_for(word)
        contestants = _Sampler(field)
        runs: Runs = {name: [] for name in AWAITED_CONTESTANTS}
        began = access_log.unix_seconds()
        patched: dict[str, list[float]] = {name: [] for name in AWAITED_CONTESTANTS}
        for number in range(WARM_UP_SAMPLES + samples):
            if number == WARM_UP_SAMPLES:  # what stood at the start is registered by then
                began = access_log.unix_seconds()
            for name in _rotate(AWAITED_CONTESTANTS, number):
                patched[name].append(access_log.unix_seconds())
                found = contestants.measure(name, number)
                if number >= WARM_UP_SAMPLES:
                    runs[name].append(found)
                time.sleep(_PAUSE_SECONDS)
            if with_poll:
                contestants.begin_poll_sample(number)
                time.sleep(_PAUSE_SECONDS)  # others, too, are notified of the slice that it changed
            if number % 100 == 99:
                print_progress(f"  {number + 1} of {WARM_UP_SAMPLES + samples}")
        spans = [(began, access_log.unix_seconds())]
        if with_poll:
            runs[POLL_CONTESTANT] = contestants.wait_for_poll_samples()
        agents = {"ours": USER_AGENTS.ours, "floor": USER_AGENTS.raw, "kopf": USER_AGENTS.kopf}
        requests = {
            name: access_log.requests_per_change(
                log.count_requests(agents[name], spans),
                samples,
                log.count_requests(
                    agents[name],
                    [(at, at + _REQUESTS_OF_CHANGE_SECONDS) for at in patched[name][WARM_UP_SAMPLES:]],
                )[RequestKind.BATCH],
            )
            for name in AWAITED_CONTESTANTS
        }
    return runs, requests


def _ratio_above_floor(
    other: Mapping[str, float], ours: Mapping[str, float], floor: Mapping[str, float], figure: str
) -> float:
    """Return the ratio of another contestant's distance above the floor to ours."""
    return (other[figure] - floor[figure]) / max(ours[figure] - floor[figure], floor[figure] / 100)


def _rotate(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Return the contestants in an order that begins with another one each time."""
    begin = number % len(names)
    return names[begin:] + names[:begin]


class _Sampler:
    """The samples of all contestants; a sample is a new endpoint in one of a contestant's twenty slices."""

    def __init__(self, field: BenchLab) -> None:
        self._field = field
        self._probers = [Prober(url) for url in field.lab.eureka_urls]
        self._pending: deque[tuple[float, Key]] = deque()
        self._polled: list[dict[str, float]] = []
        follower = Prober(field.lab.eureka_urls[0])
        self._poller = threading.Thread(target=self._follow_poll, args=(follower,), daemon=True)
        self._poller.start()

    def measure(self, name: str, number: int) -> dict[str, float]:
        """Return the milliseconds of one sample, until the first and until the last server showed it."""
        service, numbered = f"{name}-{number % SERVICE_COUNT}", number + ADDRESS_OFFSETS[name]
        instance_ids = {
            "ours": self._field.instance_id("ours", service, numbered),
            "kopf": f"pod-{numbered}.kopf.kopf:{service}:{PORT}",
            "floor": f"pod-{numbered}",
        }
        key = (service.upper(), instance_ids[name])
        started = self._add_endpoint(name, service, numbered)
        waiting = list(self._probers)
        shown: list[float] = []

        def look() -> bool:
            for prober in list(waiting):
                if prober.shows(key):
                    waiting.remove(prober)
                    shown.append(time.perf_counter())
            return not waiting or len(shown) == 1

        wait_until(look, str(key), _LONGEST_SECONDS, 0.0003)
        if waiting:
            wait_until(lambda: look() and not waiting, str(key), _LONGEST_SECONDS, 0.002)
        return {"ms": (shown[0] - started) * 1000, "last_ms": (shown[-1] - started) * 1000}

    def begin_poll_sample(self, number: int) -> None:
        """Begin a sample of the 30 s poll, without waiting for its end."""
        name, offset = f"poll-{number % SERVICE_COUNT}", number + 3 * _ADDRESSES_PER_CONTESTANT
        started = self._add_endpoint("poll", name, offset)
        if number >= WARM_UP_SAMPLES:
            self._pending.append((started, (name.upper(), f"pod-{offset}.poll.rest:{name}:{PORT}")))

    def wait_for_poll_samples(self) -> list[dict[str, float]]:
        """Return the times of the 30 s poll, once it has registered every sample."""
        wait_until(lambda: not self._pending, "the 30 s poll", _POLL_LONGEST_SECONDS)
        return self._polled

    def _add_endpoint(self, namespace: str, name: str, number: int) -> float:
        started = time.perf_counter()
        change = {"op": "add", "path": "/endpoints/-", "value": endpoint(number)}
        self._field.patch_slice(namespace, name, [change])
        return started

    def _follow_poll(self, prober: Prober) -> None:
        """Watch for the oldest pending sample only: the poll registers all that it finds at once."""
        while True:
            while self._pending and prober.shows(self._pending[0][1]):
                started, _ = self._pending.popleft()
                self._polled.append({"ms": (time.perf_counter() - started) * 1000})
            time.sleep(0.1)
