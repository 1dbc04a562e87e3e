"""P8: churn: rolling updates that change 200 endpoints a second in 100 slices.

Both contestants run all the time and take turns of ten seconds on the same servers, which are warm. What each
request of ours is for, and where a change spends its time, is reported by turns of a traced operator
afterwards, whose lags are in none of the figures.

A machine that has no processor time left at 200 changes a second measures itself: it is asked for fewer then,
and the record says how many.
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
from bench.access_log import AGENTS, AccessLog
from bench.age import OPERATOR_PATHS
from bench.attribution import Trace, attribute, from_json, traffic
from bench.churn import LOOK_SECONDS, LOOK_SHARE, RANGE, SERVICES, Churn
from bench.contestant import Contestant, cpu_seconds_of, idle_seconds
from bench.field import PORT, ROOT, Field
from bench.harness import Result, Size, show, spread
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
"""How many runs are a record."""

RATES = (200, 150, 100)
"""Rates in changes a second; the first that the machine can bear is measured."""

TURN_SECONDS = 10.0
PAUSE_SECONDS = 2.0
"""Between two turns: what a contestant does after its own, such as statuses, shall not hit the other's."""

SETTLED_SECONDS = {Size.FULL: 45.0, Size.QUICK: PAUSE_SECONDS}
"""After a take-over new instances are read before they are registered, until lists show everything."""

TURNS = {Size.FULL: 6, Size.QUICK: 1}
"""Of each contestant, after those that warm the servers and find the rate."""

TRACES = ROOT / "build" / "bench"
"""Where the last trace stays, for who wants to ask more of it."""

LEAST_IDLE_PERCENT = 10.0
"""Of one core, over all cores: with less a lag says more of the machine than of what is measured."""


@dataclass(slots=True)
class Scale:
    """How the benchmark is run.

    :ivar rates: changes a second, the first of which is tried first; the next run begins where one ended.
    :ivar followed: the share of changes whose way is followed.
    """

    id: str
    bar: str
    servers: int
    rates: list[int]
    followed: float


ONE_SERVER = Scale("P8", BAR, 1, list(RATES), 0.1)


@dataclass(slots=True)
class _Side:
    """A contestant, its changes, and what its turns cost so far."""

    name: str
    agent: str
    churn: Churn
    process: Contestant
    used: Counter[str] = member(default_factory=Counter)
    elapsed: float = 0.0
    spans: list[tuple[float, float]] = member(default_factory=list)

    def forget(self) -> None:
        """Forget what was measured so far."""
        self.churn.forget()
        self.used.clear()
        self.elapsed = 0.0
        self.spans.clear()

    def percent(self) -> dict[str, float]:
        """Return who used the processors in its turns; 100 is one core."""
        return {name: seconds / self.elapsed * 100 for name, seconds in self.used.items()}


def run(size: Size) -> Result:
    """Return the result with one server."""
    return measured(ONE_SERVER, size)


def measured(scale: Scale, size: Size) -> Result:
    """Let both contestants take turns, then a traced operator alone."""
    with AccessLog() as log, Lab(eureka=scale.servers, eureka_settings=log.settings) as lab:
        field = Field(lab)
        for name in ("ours", "kopf"):
            field.namespace(name)
        ours = Churn(field, "ours", 0, lambda name, n: field.instance_id("ours", name, n), scale.followed)
        kopf = Churn(field, "kopf", RANGE, lambda name, n: f"pod-{n}.kopf.kopf:{name}:{PORT}", scale.followed)
        for rollout in ours.rollouts:
            field.syncer("ours", rollout.name)
        writes = _StatusWrites(field, "ours")
        with field.operator() as operator, field.kopf("kopf_bridge.py", "kopf") as peer:
            sides = (
                _Side("ours", AGENTS.ours, ours, operator),
                _Side("kopf", AGENTS.kopf, kopf, peer),
            )
            operator.wait_for("operator is ready")
            for side in sides:
                wait_until(lambda: not side.churn.differing(), "all registered", 120.0, 0.5)  # noqa: B023
            _warm(min(scale.rates), sides, lab)  # cold servers take most of a core for themselves
            rate = bearable_rate(scale, lambda rate: _warm(rate, sides, lab))
            writes.counts.clear()
            began = access_log.now()
            for number in range(TURNS[size]):
                for side in sides if number % 2 == 0 else sides[::-1]:
                    _turn(side, sides, lab, rate)
            whole = (began, access_log.now())
            figures = {side.name: _figures(side, scale) for side in sides}
            for side, other in (sides, sides[::-1]):
                sent = log.counts(side.agent, [whole])  # what looks back comes in the other's turns as well
                figures[side.name] |= access_log.a_change(sent, len(side.churn.changes))
                resting = log.counts(other.agent, side.spans).total() / side.elapsed
                figures[side.name]["resting_requests_a_second"] = resting
        busiest = max(writes.counts.values(), default=0) / ours.seconds
        figures["ours"] |= {"status_writes_a_second": busiest, "changes_asked_a_second": float(rate)}
        runs = {
            f"{side.name}{label}": [{"ms": ms} for ms in side.churn.milliseconds(choose)]
            for side in sides
            for label, choose in _choices(scale)
        }
        stages, traced = _attributed(field, ours, scale, rate, size)
    figures["ours"] |= traced
    return result_of(scale, rate, figures, runs, stages)


def result_of(
    scale: Scale,
    rate: int,
    figures: dict[str, dict[str, float]],
    runs: dict[str, list[dict[str, float]]],
    stages: dict[str, dict[str, float]],
) -> Result:
    """Judge the figures of both contestants."""
    ours, kopf = figures["ours"], figures["kopf"]
    p50, p99 = headlines = _headlines(scale)
    ratios = {name: kopf[name] / ours[name] for name in headlines}
    eureka = "Eureka's processor time, ours to kopf's"
    ratios[eureka] = ours["eureka_cpu_percent"] / max(kopf["eureka_cpu_percent"], 0.01)
    is_cheap = ours["requests a change"] <= 1.2 and ratios[eureka] <= 1.1
    return Result(
        id=scale.id,
        title=f"churn: {rate} endpoint changes a second in {SERVICES} slices, {scale.servers} Eureka",
        unit="milliseconds of lag",
        bar=scale.bar,
        ours=ours,
        floor={},
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
    known = f"{LOOK_SECONDS * 1000:.0f} ms or {LOOK_SHARE:.0%} of it"
    return [
        "ratios are kopf's to ours; lost are changes that were neither applied nor superseded",
        f"lags are from the patch's sending; each is known to {known}, and one read",
        "cpu and idle: percent of one core, over all cores, in the contestant's own turns",
        "resting: the other contestant in these turns; batches: with renewals, which only ours sends",
        "where the time goes: of a traced operator, until Eureka's answer to the write",
    ]


def void_reason(idle_percent: float) -> str:
    """Return why a run counts for nothing on a machine with so much idle time, or "" if it counts."""
    if idle_percent >= LEAST_IDLE_PERCENT:
        return ""
    return f"{idle_percent:.1f} % of a core was idle, less than {LEAST_IDLE_PERCENT:g} %"


def _headlines(scale: Scale) -> tuple[str, str]:
    """Return the names of median and 99th percentile by which the contestants are compared."""
    until = "" if scale.servers == 1 else "last, "
    return f"{until}p50_ms", f"{until}p99_ms"


def _choices(scale: Scale) -> Sequence[tuple[str, Callable[[Iterable[float]], float]]]:
    """Return by which of several servers a change counts as shown, with what is put before the names."""
    return (("", min),) if scale.servers == 1 else (("first, ", min), ("last, ", max))


def bearable_rate(scale: Scale, warm: Callable[[int], float]) -> int:
    """Return the first rate of ``scale`` that leaves the machine some idle time, or the lowest one.

    :param warm: lets the contestants take turns at a rate; returns how many percent of a core were idle.
    """
    while True:
        rate = scale.rates[0]
        reason = void_reason(warm(rate))
        if not reason or len(scale.rates) == 1:
            return rate
        show(f"  too much with {scale.rates.pop(0)} changes a second: {reason}")


def _warm(rate: int, sides: Sequence[_Side], lab: Lab) -> float:
    """Let both take a turn that does not count; the idle percentage of who left less."""
    for side in sides:
        _turn(side, sides, lab, rate)
    idle = min(side.percent()["idle_percent"] for side in sides)
    for side in sides:
        side.forget()
    return idle


def _turn(side: _Side, sides: Sequence[_Side], lab: Lab, rate: int) -> None:
    """One turn, until what is followed was shown."""
    (resting,) = (one for one in sides if one is not side)
    began, started, before = access_log.now(), time.monotonic(), _used(side, resting, lab)
    side.churn.run(rate, TURN_SECONDS)
    after = _used(side, resting, lab)
    side.elapsed += time.monotonic() - started
    side.used.update({name: after[name] - seconds for name, seconds in before.items()})
    side.spans.append((began, access_log.now()))
    show(f"  {side.name}: {side.churn.made} changes so far")
    time.sleep(PAUSE_SECONDS)


def _used(side: _Side, resting: _Side, lab: Lab) -> dict[str, float]:
    """Return the processor time of each so far, in seconds."""
    servers: dict[str, Sequence[Process]] = {
        "eureka_cpu_percent": lab.eurekas,
        "api_server_cpu_percent": [lab.api_server],
        "etcd_cpu_percent": [lab.etcd],
    }
    return {
        "cpu_percent": side.process.cpu_seconds(),
        "resting_cpu_percent": resting.process.cpu_seconds(),
        **{
            name: sum(cpu_seconds_of(one.pid) for one in processes if one.pid is not None)
            for name, processes in servers.items()
        },
        "benchmark_cpu_percent": sum(os.times()[:2]),
        "idle_percent": idle_seconds(),
    }


def _figures(side: _Side, scale: Scale) -> dict[str, float]:
    """Return what a contestant's turns came to."""
    churn = side.churn
    figures: dict[str, float] = {}
    for label, choose in _choices(scale):
        found = spread(churn.milliseconds(choose))
        figures |= {f"{label}{name}": value for name, value in found.items()}
    with suppress(TimeoutError):
        wait_until(lambda: not churn.differing(), "the final set", 30.0, 0.5)
    figures |= {
        "samples": float(len(churn.milliseconds(min))),
        "changes_a_second": churn.made / churn.seconds,
        **side.percent(),
        "superseded": float(churn.superseded),
        "lost": float(len(churn.lost)),
        "differing": float(len(churn.differing())),
    }
    show(f"  {side.name}: {figures}")
    return figures


def _attributed(
    field: Field, churn: Churn, scale: Scale, rate: int, size: Size
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return where changes of a traced operator spend their time, and its lags and requests a change."""
    notes = field.lab.directory / "notes.json"
    with field.traced_operator(notes) as operator:
        operator.wait_for("operator is ready")
        wait_until(lambda: not churn.differing(), "all registered", 120.0, 0.5)
        churn.run(rate, TURN_SECONDS)  # it is warm then
        time.sleep(SETTLED_SECONDS[size])
        churn.forget()
        spans = []
        for _ in range(max(1, TURNS[size] // 2)):
            since = time.monotonic()
            churn.run(rate, TURN_SECONDS)
            spans.append((since, time.monotonic()))
            time.sleep(PAUSE_SECONDS)
    found = json.loads(notes.read_text(encoding="utf-8"))
    TRACES.mkdir(parents=True, exist_ok=True)
    kept = {"changes": list(map(asdict, churn.changes)), "spans": spans, "notes": found}
    (TRACES / f"{scale.id}.json").write_text(json.dumps(kept), encoding="utf-8")
    trace = Trace(from_json(found))
    sent = traffic(trace, spans, len(churn.changes))
    figures = {**spread(churn.milliseconds(min)), **sent}
    return attribute(churn.changes, trace), {f"traced, {name}": value for name, value in figures.items()}


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
