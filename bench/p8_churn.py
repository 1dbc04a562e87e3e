"""P8: churn: rolling updates that change 200 endpoints a second in 100 slices.

The contestants, and half as often the floor, take turns of ten seconds on the same servers, which are warm;
all of them run all the time, and each watches its own namespace. Afterwards a traced operator takes turns, to
report the purpose of each request and the stages of a change; its lags are in none of the figures.

A machine that has no processor time left at 200 changes a second would measure itself. Then fewer changes a
second are made, and the record says how many.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import field as member

from bench import access_log
from bench.access_log import USER_AGENTS, AccessLog
from bench.age import OPERATOR_PATHS
from bench.attribution import Trace, count_traffic, mean_stage_milliseconds, notes_from_json
from bench.churn import (
    ENDPOINT_NUMBERS_PER_CONTESTANT,
    MIN_READ_INTERVAL_SECONDS,
    READ_INTERVAL_SHARE,
    SERVICE_COUNT,
    Churn,
)
from bench.contestant import Contestant, machine_idle_seconds, process_cpu_seconds
from bench.field import PORT, ROOT, BenchLab
from bench.harness import Result, Size, median_and_p99, print_progress
from bench.prober import wait_until
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import SYNCERS
from lab import Lab, Process

BAR = (
    "final sets equal; kopf's lag p50 >= 1.1x and p99 >= 2x ours; <= 1.2 requests to Eureka a change;"
    " Eureka's processor time <= 1.1x that with kopf; status writes <= 2 a second for each syncer;"
    " at the highest of 200, 150 and 100 changes a second that leaves 10 % of a core idle, or void"
)
MEASURES = OPERATOR_PATHS
RUNS = 3
"""Number of runs that make a record."""

RATES = (200, 150, 100)
"""Rates in changes a second; the first one that the machine can bear is measured."""

TURN_SECONDS = 10.0
PAUSE_SECONDS = 2.0
"""Seconds between two turns: a contestant's work after its turn, such as statuses, shall not hit the
other's turn.
"""

SETTLED_SECONDS = {Size.FULL: 45.0, Size.QUICK: PAUSE_SECONDS}
"""Seconds after a take-over until lists show everything; before, new instances are read before they are
registered.
"""

TURN_COUNT = {Size.FULL: 6, Size.QUICK: 1}
"""Number of turns of each contestant, after those that warm the servers and find the rate."""

TRACE_FOLDER = ROOT / "build" / "bench"
"""Folder in which the last trace is kept for further questions."""

MIN_IDLE_PERCENT = 10.0
"""Least idle time in percent of one core, over all cores: with less, a lag measures the machine."""


@dataclass(slots=True)
class Scale:
    """The scale of the benchmark.

    :ivar rates: changes a second, tried from the first on; the next run begins with the rate of the last one.
    :ivar followed: the share of changes that are followed until every server shows them.
    """

    id: str
    bar: str
    servers: int
    rates: list[int]
    followed: float


ONE_SERVER = Scale("P8", BAR, 1, list(RATES), 0.1)


@dataclass(slots=True)
class _ContestantTurns:
    """A contestant, its changes, and the cost of its turns so far.

    :ivar turns: how many of the turns that count it takes.
    """

    name: str
    agent: str
    churn: Churn
    process: Contestant
    turns: int
    used: Counter[str] = member(default_factory=Counter)
    elapsed: float = 0.0
    spans: list[tuple[float, float]] = member(default_factory=list)

    def clear_measurements(self) -> None:
        """Forget all measurements so far."""
        self.churn.clear_measurements()
        self.used.clear()
        self.elapsed = 0.0
        self.spans.clear()

    def cpu_percent_by_user(self) -> dict[str, float]:
        """Return each user of the processors in this contestant's turns, in percent of one core."""
        return {name: seconds / self.elapsed * 100 for name, seconds in self.used.items()}


def run(size: Size) -> Result:
    """Return the result with one server."""
    return run_contestants(ONE_SERVER, size)


def run_contestants(scale: Scale, size: Size) -> Result:
    """Let the contestants take turns, then a traced operator alone."""
    turns = TURN_COUNT[size]
    with AccessLog() as log, Lab(eureka=scale.servers, eureka_settings=log.settings) as lab:
        field = BenchLab(lab)
        ids: dict[str, Callable[[str, int], str]] = {
            "ours": lambda name, n: field.instance_id("ours", name, n),
            "kopf": lambda name, n: f"pod-{n}.kopf.kopf:{name}:{PORT}",
            "floor": lambda _, n: f"pod-{n}",
        }
        for name in ids:
            field.create_namespace(name)
        ours, kopf, floor = (
            Churn(field, name, number * ENDPOINT_NUMBERS_PER_CONTESTANT, identify, scale.followed)
            for number, (name, identify) in enumerate(ids.items())
        )
        for rollout in ours.rollouts:
            field.create_syncer("ours", rollout.name)
        writes = _StatusWriteCounter(field, "ours")
        with (
            field.start_operator(WATCH_NAMESPACE="ours") as operator,
            field.start_kopf("kopf_bridge.py", "kopf") as peer,
            field.start_bridge("raw_churn_bridge", "floor") as raw,
        ):
            sides = (
                _ContestantTurns("ours", USER_AGENTS.ours, ours, operator, turns),
                _ContestantTurns("kopf", USER_AGENTS.kopf, kopf, peer, turns),
                _ContestantTurns("floor", USER_AGENTS.raw, floor, raw, -(-turns // 2)),
            )
            operator.wait_for("operator is ready")
            for side in sides:
                wait_until(lambda: not side.churn.find_differences(), "all registered", 120.0, 0.5)  # noqa: B023
            _warm_up(min(scale.rates), sides, lab)  # cold servers take most of a core for themselves
            rate = find_bearable_rate(scale, lambda rate: _warm_up(rate, sides, lab))
            writes.counts.clear()
            began = access_log.unix_seconds()
            for number in range(turns):
                for side in sides if number % 2 == 0 else sides[::-1]:
                    if number < side.turns:
                        _run_turn(side, sides, lab, rate)
            whole = (began, access_log.unix_seconds())
            figures = {side.name: _turn_figures(side, scale) for side in sides}
            for side in sides:
                # What looks back comes in the others' turns as well.
                sent = log.count_requests(side.agent, [whole])
                figures[side.name] |= access_log.requests_per_change(sent, len(side.churn.changes))
                others = (log.count_requests(one.agent, side.spans) for one in sides if one is not side)
                resting = sum(one.total() for one in others) / side.elapsed
                figures[side.name]["resting_requests_a_second"] = resting
        busiest = max(writes.counts.values(), default=0) / ours.seconds
        figures["ours"] |= {"status_writes_a_second": busiest, "changes_asked_a_second": float(rate)}
        runs = {
            f"{side.name}{label}": [{"ms": ms} for ms in side.churn.lag_milliseconds(choose)]
            for side in sides
            for label, choose in _server_choices(scale)
        }
        stages, traced = _run_traced_operator(field, ours, scale, rate, size)
    figures["ours"] |= traced
    return make_result(scale, rate, figures, runs, stages)


def make_result(
    scale: Scale,
    rate: int,
    figures: dict[str, dict[str, float]],
    runs: dict[str, list[dict[str, float]]],
    stages: dict[str, dict[str, float]],
) -> Result:
    """Return the result from the figures of all contestants, with the verdict on the bar."""
    ours, kopf, floor = figures["ours"], figures["kopf"], figures["floor"]
    p50, p99 = headlines = _headlines(scale)
    ratios = {name: kopf[name] / ours[name] for name in headlines}
    ratios |= {f"{name}, ours to floor": ours[name] / floor[name] for name in headlines}
    eureka = "Eureka's processor time, ours to kopf's"
    ratios[eureka] = ours["eureka_cpu_percent"] / max(kopf["eureka_cpu_percent"], 0.01)
    is_cheap = ours["requests a change"] <= 1.2 and ratios[eureka] <= 1.1
    return Result(
        id=scale.id,
        title=f"churn: {rate} endpoint changes a second in {SERVICE_COUNT} slices, {scale.servers} Eureka",
        unit="milliseconds of lag",
        bar=scale.bar,
        ours=ours,
        floor=floor,
        headlines=(p99, p50),
        void=void_reason(min(ours["idle_percent"], kopf["idle_percent"])),
        peers={"kopf": kopf},
        ratios=ratios,
        held=ours["differing"] == 0
        and ours["lost"] == 0
        and ratios[p50] >= 1.1
        and ratios[p99] >= 2
        and (is_cheap or scale.servers > 1)
        and ours["status_writes_a_second"] <= 2
        and ours["changes_a_second"] >= 0.95 * rate,
        runs=runs,
        stages=stages,
        notes=_notes(),
    )


def _notes() -> list[str]:
    known = f"{MIN_READ_INTERVAL_SECONDS * 1000:.0f} ms or {READ_INTERVAL_SHARE:.0%} of it"
    return [
        "ratios are kopf's to ours; lost are changes that were neither applied nor superseded",
        f"lags are from the patch's sending; each is known to {known}, and one read",
        "cpu and idle: percent of one core, over all cores, in the contestant's own turns",
        "resting: the other contestants in these turns; batches: with renewals, which only ours sends",
        "where the time goes: of a traced operator, until Eureka's answer to the write",
    ]


def void_reason(idle_percent: float) -> str:
    """Return the reason why a run on a machine with this idle time does not count, or "" if it counts."""
    if idle_percent >= MIN_IDLE_PERCENT:
        return ""
    return f"{idle_percent:.1f} % of a core was idle, less than {MIN_IDLE_PERCENT:g} %"


def _headlines(scale: Scale) -> tuple[str, str]:
    """Return the names of the median and the 99th percentile by which the contestants are compared."""
    until = "" if scale.servers == 1 else "last, "
    return f"{until}p50_ms", f"{until}p99_ms"


def _server_choices(scale: Scale) -> Sequence[tuple[str, Callable[[Iterable[float]], float]]]:
    """Return the ways to choose the server that must show a change, each with a prefix for the figures'
    names.
    """
    return (("", min),) if scale.servers == 1 else (("first, ", min), ("last, ", max))


def find_bearable_rate(scale: Scale, warm: Callable[[int], float]) -> int:
    """Return the first rate of ``scale`` that leaves the machine some idle time, or the lowest one.

    :param warm: lets the contestants take turns at a rate; returns how many percent of a core were idle.
    """
    while True:
        rate = scale.rates[0]
        reason = void_reason(warm(rate))
        if not reason or len(scale.rates) == 1:
            return rate
        print_progress(f"  too much with {scale.rates.pop(0)} changes a second: {reason}")


def _warm_up(rate: int, sides: Sequence[_ContestantTurns], lab: Lab) -> float:
    """Let all contestants take a turn that does not count; return the smaller idle percentage of ours and
    kopf's.
    """
    for side in sides:
        _run_turn(side, sides, lab, rate)
    idle = min(side.cpu_percent_by_user()["idle_percent"] for side in sides[:2])
    for side in sides:
        side.clear_measurements()
    return idle


def _run_turn(side: _ContestantTurns, sides: Sequence[_ContestantTurns], lab: Lab, rate: int) -> None:
    """Let a contestant take one turn, until its followed changes are shown."""
    began, started = access_log.unix_seconds(), time.monotonic()
    before = _read_cpu_seconds(side, sides, lab)
    side.churn.run(rate, TURN_SECONDS)
    after = _read_cpu_seconds(side, sides, lab)
    side.elapsed += time.monotonic() - started
    side.used.update({name: after[name] - seconds for name, seconds in before.items()})
    side.spans.append((began, access_log.unix_seconds()))
    print_progress(f"  {side.name}: {side.churn.made} changes so far")
    time.sleep(PAUSE_SECONDS)


def _read_cpu_seconds(
    side: _ContestantTurns, sides: Sequence[_ContestantTurns], lab: Lab
) -> dict[str, float]:
    """Return the processor seconds so far of the contestants, the servers and the benchmark, and the idle
    seconds.
    """
    servers: dict[str, Sequence[Process]] = {
        "eureka_cpu_percent": lab.eurekas,
        "api_server_cpu_percent": [lab.api_server],
        "etcd_cpu_percent": [lab.etcd],
    }
    return {
        "cpu_percent": side.process.cpu_seconds(),
        "resting_cpu_percent": sum(one.process.cpu_seconds() for one in sides if one is not side),
        **{
            name: sum(process_cpu_seconds(one.pid) for one in processes if one.pid is not None)
            for name, processes in servers.items()
        },
        "benchmark_cpu_percent": sum(os.times()[:2]),
        "idle_percent": machine_idle_seconds(),
    }


def _turn_figures(side: _ContestantTurns, scale: Scale) -> dict[str, float]:
    """Return the figures of a contestant's turns."""
    churn = side.churn
    figures: dict[str, float] = {}
    for label, choose in _server_choices(scale):
        found = median_and_p99(churn.lag_milliseconds(choose))
        figures |= {f"{label}{name}": value for name, value in found.items()}
    with suppress(TimeoutError):
        wait_until(lambda: not churn.find_differences(), "the final set", 30.0, 0.5)
    figures |= {
        "samples": float(len(churn.lag_milliseconds(min))),
        "changes_a_second": churn.made / churn.seconds,
        **side.cpu_percent_by_user(),
        "superseded": float(churn.superseded_count),
        "lost": float(len(churn.lost)),
        "differing": float(len(churn.find_differences())),
    }
    print_progress(f"  {side.name}: {figures}")
    return figures


def _run_traced_operator(
    field: BenchLab, churn: Churn, scale: Scale, rate: int, size: Size
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the stages in which changes of a traced operator spend their time, and its lags and requests
    for each change.
    """
    notes = field.lab.directory / "notes.json"
    with field.start_traced_operator(notes, WATCH_NAMESPACE="ours") as operator:
        operator.wait_for("operator is ready")
        wait_until(lambda: not churn.find_differences(), "all registered", 120.0, 0.5)
        churn.run(rate, TURN_SECONDS)  # it is warm then
        time.sleep(SETTLED_SECONDS[size])
        churn.clear_measurements()
        spans = []
        for _ in range(max(1, TURN_COUNT[size] // 2)):
            since = time.monotonic()
            churn.run(rate, TURN_SECONDS)
            spans.append((since, time.monotonic()))
            time.sleep(PAUSE_SECONDS)
    found = json.loads(notes.read_text(encoding="utf-8"))
    TRACE_FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {"changes": list(map(asdict, churn.changes)), "spans": spans, "notes": found}
    (TRACE_FOLDER / f"{scale.id}.json").write_text(json.dumps(kept), encoding="utf-8")
    trace = Trace(notes_from_json(found))
    sent = count_traffic(trace, spans, len(churn.changes))
    figures = {**median_and_p99(churn.lag_milliseconds(min)), **sent}
    return mean_stage_milliseconds(churn.changes, trace), {
        f"traced, {name}": value for name, value in figures.items()
    }


class _StatusWriteCounter:
    """A watch that counts the writes to each syncer."""

    def __init__(self, field: BenchLab, namespace: str) -> None:
        self._field, self._path = field, SYNCERS.path(namespace)
        self.counts: Counter[str] = Counter()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        query = {"resourceVersion": self._field.access.get(self._path)["metadata"]["resourceVersion"]}
        with suppress(KubernetesError):  # the lab's end
            for event in self._field.access.watch(self._path, query, 600.0):
                if event["type"] == "MODIFIED":
                    self.counts[event["object"]["metadata"]["name"]] += 1
