"""P15: partial failure: changes and take-overs while one of three servers, or a second Eureka, is away."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.age import OPERATOR_PATHS
from bench.contestant import Contestant
from bench.field import BenchLab, Key, Object, endpoint
from bench.harness import Result, Size, print_progress
from bench.p10_failover import NAMESPACE, OperatorReplicas
from bench.prober import Prober
from lab import Lab
from lab.proxy import Proxy

SERVICE_COUNT = 40
"""Number of services of three pods; one pod is removed from each."""

TAKE_OVER_SECONDS = 1.0
BAR = (
    "one server away: the removals have left the others after <= 2x the floor + 1 s; a second Eureka hangs:"
    f" <= 1.2x the floor; take-over <= {TAKE_OVER_SECONDS:g} s after SIGTERM"
)
MEASURES = OPERATOR_PATHS
ROUNDS = {Size.FULL: 5, Size.QUICK: 1}
BATCH_MODES = ("auto", "batch")
ALL_ANSWER = "all answer"
SECOND_EUREKA_HANGS = "a second Eureka hangs"

_SECOND_CONNECTION = "elsewhere"
_SECOND_EUREKA_SERVICES = range(1000, 1000 + SERVICE_COUNT)
"""The numbers of the services that are registered at the second Eureka."""

_POD_NUMBERS_PER_SERVICE = 1000
"""Number of pod numbers reserved for each service."""

_LONGEST_SECONDS = 180.0
_SETTLE_SECONDS = 8.0
"""Seconds after a fault in which a returned server is asked again, and gets the changes that it missed."""


def run(size: Size) -> Result:
    """Remove a pod of each service under each fault in turn, again and again; then end leaders under some
    faults.
    """
    rounds = ROUNDS[size]
    seconds: dict[str, list[float]] = {}
    with (
        Lab(eureka=3) as lab,
        Lab(eureka=1, kubernetes=False) as second,
        Proxy(lab.eurekas[2].port) as front,
        Proxy(second.eurekas[0].port) as far,
    ):
        stage = _FaultStage(lab, front, far)
        for mode in BATCH_MODES:
            with stage.run_replicas(mode) as team:
                for number in range(rounds + 1):
                    for fault in (ALL_ANSWER, "frozen", "host gone", SECOND_EUREKA_HANGS):
                        name = f"{mode}, {fault}"
                        took = stage.measure_removals(team, fault)
                        print_progress(f"  {name}: {took:.2f} s")
                        if number:
                            seconds.setdefault(name, []).append(took)
                if mode == BATCH_MODES[0]:
                    for fault, _ in itertools.product(
                        (ALL_ANSWER, "frozen", SECOND_EUREKA_HANGS), range(rounds)
                    ):
                        seconds.setdefault(f"take-over, {fault}", []).append(
                            stage.measure_take_over(team, fault)
                        )
    ours = {name: statistics.median(found) for name, found in seconds.items()}
    floor = {name: value for name, value in ours.items() if name.endswith(ALL_ANSWER)}
    ours = {name: value for name, value in ours.items() if name not in floor}
    return Result(
        id="P15",
        title=(
            f"{SERVICE_COUNT} one-pod removals in {SERVICE_COUNT} services, or a change of leader, while "
            "something is away"
        ),
        unit="seconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        peers={},
        ratios={
            f"{name}, to all answering": value / _floor_figure(name, floor) for name, value in ours.items()
        },
        held=all(value <= _bar_seconds(name, floor) for name, value in ours.items()),
        runs={name: [{"seconds": value} for value in found] for name, found in seconds.items()},
        notes=[
            "the server that is away is the one that the operator asks first",
            "auto: single requests, since there are few Eureka leases",
        ],
    )


def _floor_figure(name: str, floor: dict[str, float]) -> float:
    return floor[f"{name.partition(', ')[0]}, {ALL_ANSWER}"]


def _bar_seconds(name: str, floor: dict[str, float]) -> float:
    """Return the bar of a figure in seconds."""
    if name.startswith("take-over"):
        return TAKE_OVER_SECONDS
    if name.endswith(SECOND_EUREKA_HANGS):
        return 1.2 * _floor_figure(name, floor)
    return 2 * _floor_figure(name, floor) + 1.0


class _FaultStage:
    """The servers, the faults, and services of three pods each, one of which comes and goes."""

    def __init__(self, lab: Lab, front: Proxy, far: Proxy) -> None:
        self._lab, self._front, self._far = lab, front, far
        self._field = BenchLab(lab)
        self._age = 0
        self._added = itertools.count(10_000_000)
        self._config = lab.directory / "eurekas.yaml"
        url = f"http://127.0.0.1:{far.port}/eureka"
        self._config.write_text(yaml.safe_dump({"connections": {_SECOND_CONNECTION: {"url": url}}}))
        self._field.create_namespace(NAMESPACE)
        for number in (*range(SERVICE_COUNT), *_SECOND_EUREKA_SERVICES):
            name = f"app-{number}"
            pods = (
                self._next_pod_number(number),
                *(_POD_NUMBERS_PER_SERVICE * number + one for one in (1, 2)),
            )
            self._field.create_service(NAMESPACE, name, map(endpoint, pods))
            self._field.create_syncer(
                NAMESPACE,
                name,
                **({"eureka": _SECOND_CONNECTION} if number in _SECOND_EUREKA_SERVICES else {}),
            )

    @contextmanager
    def run_replicas(self, mode: str) -> Iterator[OperatorReplicas]:
        """Run two replicas with this batch mode; the block begins once every pod is registered."""
        urls = [f"http://127.0.0.1:{self._front.port}/eureka", *self._lab.eureka_urls[:2]]
        team = OperatorReplicas(
            self._field, 2, EUREKA_URL=",".join(urls), EUREKA_MODE=mode, CONFIG=str(Path(self._config))
        )
        try:
            self._wait_until_registered()
            yield team
        finally:
            team.kill_all()

    def measure_removals(self, team: OperatorReplicas, fault: str) -> float:
        """Remove a pod of each service; return the seconds until the last has left the servers that
        answer.
        """
        team.wait_for_leader()
        keys = [self._next_pod_key(number) for number in range(SERVICE_COUNT)]
        with self._inject_fault(fault, is_busy=True):
            started = time.perf_counter()
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(self._terminate_pod, range(SERVICE_COUNT)))
            gone = max(self._wait_until_gone(url, keys) for url in self._lab.eureka_urls[:2])
        self._wait_until_gone(self._lab.eureka_urls[2], keys)
        self._age += 1
        for number in (*range(SERVICE_COUNT), *_SECOND_EUREKA_SERVICES):
            self._replace_endpoint(number, endpoint(self._next_pod_number(number)))
        self._wait_until_registered()
        return gone - started

    def measure_take_over(self, team: OperatorReplicas, fault: str) -> float:
        """End the leader and add a pod; return the seconds until the next leader has registered it."""
        team.wait_for_leader()
        with self._inject_fault(fault, is_busy=False):
            return team.measure_take_over(Contestant.terminate, next(self._added))

    @contextmanager
    def _inject_fault(self, fault: str, *, is_busy: bool) -> Iterator[None]:
        server = self._lab.eurekas[2]
        begin: dict[str, Callable[[], None]] = {
            "frozen": server.pause,
            "host gone": self._front.vanish,
            SECOND_EUREKA_HANGS: self._far.hang,
        }
        if fault == ALL_ANSWER:
            yield
            return
        begin[fault]()
        try:
            if fault == SECOND_EUREKA_HANGS and is_busy:
                for number in _SECOND_EUREKA_SERVICES:  # so that all who work for it wait
                    self._terminate_pod(number)
            yield
        finally:
            server.resume()
            self._front.heal()
            self._far.heal()
            time.sleep(_SETTLE_SECONDS)

    def _next_pod_number(self, service: int) -> int:
        """Return the number of the pod of a service that is removed next."""
        return _POD_NUMBERS_PER_SERVICE * service + 10 + self._age

    def _next_pod_key(self, service: int) -> Key:
        name = f"app-{service}"
        return name.upper(), self._field.instance_id(NAMESPACE, name, self._next_pod_number(service))

    def _terminate_pod(self, service: int) -> None:
        self._replace_endpoint(
            service, endpoint(self._next_pod_number(service), ready=False, terminating=True)
        )

    def _replace_endpoint(self, service: int, one: Object) -> None:
        change = {"op": "replace", "path": "/endpoints/0", "value": one}
        self._field.patch_slice(NAMESPACE, f"app-{service}", [change])

    def _wait_until_gone(self, url: str, keys: list[Key]) -> float:
        """Wait until the server holds none of the given instances; return that time by
        ``time.perf_counter()``.
        """
        prober, left = Prober(url), list(keys)
        deadline = time.monotonic() + _LONGEST_SECONDS
        while left := [key for key in left if prober.shows(key)]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} still holds {len(left)} of {len(keys)}, {left[0]} for one")
        prober.close()
        return time.perf_counter()

    def _wait_until_registered(self) -> None:
        """Wait until all three servers hold every ready pod."""
        keys = [self._next_pod_key(number) for number in range(SERVICE_COUNT)]
        deadline = time.monotonic() + _LONGEST_SECONDS
        for url in self._lab.eureka_urls:
            prober = Prober(url)
            while prober.count_held(keys) < len(keys):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{url} does not hold all of {len(keys)}")
                time.sleep(0.1)
            prober.close()
