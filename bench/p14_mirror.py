"""P14: mirrors: from Eureka's answer to the last correct slice, at first and after one percent has
changed.
"""

from __future__ import annotations

import math
import random
import re
import statistics
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests

from bench.age import OPERATOR_PATHS
from bench.contestant import Contestant
from bench.field import Field
from bench.harness import Result, Size, percentile, show
from bench.peers.documents import document
from bench.prober import Prober
from bench.slices import Content, RawMirror, SliceWatch, applications_of
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS, SERVICES
from lab import Lab
from lab.ports import free_ports
from lab.proxy import Proxy
from lab.workloads import wait_for

MOST_EXTRA_REQUESTS = 0.2
"""Most additional requests for each reading: fewer than one in five readings, a matter of when measuring
begins and ends.
"""

BAR = (
    "first <= 1.5x the floor + 1 s; two applications that change: p50 <= 1.5x and p99 <= 2x the floor's;"
    " API writes = slices that differ; no request to Eureka more than by the same operator without mirrors"
)
MEASURES = OPERATOR_PATHS
APPLICATIONS = {Size.FULL: 200, Size.QUICK: 40}
AN_APPLICATION = 25
STARTS = {Size.FULL: 5, Size.QUICK: 1}
CHANGES = {Size.FULL: 30, Size.QUICK: 8}
"""Number of measured changes; each takes ten seconds and more for all contestants together."""
PERCENT = 0.01
SPREAD, TOGETHER = "1 % in as many applications", "1 % in two applications"
POLL = "poll that rewrites every slice"
RESYNC_SECONDS = 5
"""Seconds between readings, the operator's default while mirrored applications change."""

FEW_REPORTED = 0.05
"""Share of instances in the delta below which the registry counts as settled; a delta repeats three
minutes' changes.
"""

IDLE_SECONDS = {Size.FULL: 60.0, Size.QUICK: 10.0}
CIDR = "10.128.0.0/16"
_NAMESPACES = {"ours": "mirror-ours", "floor": "mirror-floor", POLL: "mirror-poll"}
_LONGEST_SECONDS = 120.0
_AT_WORK = {"ours": "became the leader", POLL: "looked"}
"""Log line of each contestant that tells that it has begun to follow Eureka."""

_NEVER_RENEWED = {"renewalIntervalInSecs": 30, "durationInSecs": 86400}


def run(size: Size) -> Result:
    """Measure all first slices in turn, again and again; then changes, the same for each contestant."""
    # The cache of the server holds an answer back, and what is measured begins when it comes.
    with Lab(eureka=1, quick_view=True) as lab, Proxy(lab.eurekas[0].port, keeps_heads=True) as front:
        stage = _Stage(lab, front, APPLICATIONS[size])
        first: dict[str, list[float]] = {name: [] for name in _NAMESPACES}
        for number in range(STARTS[size] + 1):
            for name in _NAMESPACES:
                seconds = stage.first(name)
                show(f"  first, {name}: {seconds:.2f} s")
                if number:
                    first[name].append(seconds)
        changes = stage.changes(CHANGES[size], IDLE_SECONDS[size])
    return _result(size, first, changes)


class _Changes:
    """The measurements of changes.

    :ivar milliseconds: by kind of change and contestant, until the last slice of each change was right.
    :ivar extra_writes: how many writes were too many, or missing.
    :ivar requests_a_reading: Eureka's requests between two readings: with mirrors (True), and by an operator
        without (False).
    """

    def __init__(self) -> None:
        self.milliseconds: dict[str, dict[str, list[float]]] = {
            what: {name: [] for name in _NAMESPACES} for what in (TOGETHER, SPREAD)
        }
        self.extra_writes = 0
        self.requests_a_reading = {True: 0.0, False: 0.0}
        self.memory_mib = 0.0


class _Stage:
    """A registry of many applications, behind a proxy that records when each answer came."""

    def __init__(self, lab: Lab, front: Proxy, applications: int) -> None:
        self._lab, self._front = lab, front
        self._field = Field(lab)
        self._prober = Prober(lab.eureka_urls[0])
        self._names = [f"app-{number}" for number in range(applications)]
        self._down: set[tuple[str, int]] = set()
        self._url = f"http://127.0.0.1:{front.port}/eureka"
        self._chance = random.Random(14)  # noqa: S311 - repeatable
        for name in _NAMESPACES.values():
            self._field.namespace(name)
        self._watches = {
            name: SliceWatch(lab.kubeconfig, namespace) for name, namespace in _NAMESPACES.items()
        }
        self._register([(name, number) for name in self._names for number in range(AN_APPLICATION)])
        self._field.access.request(
            "POST",
            MIRRORS.path(_NAMESPACES["ours"]),
            body={
                "apiVersion": "eurekube.io/v1alpha1",
                "kind": "EurekaMirror",
                "metadata": {"name": "all"},
                "spec": {"pattern": "APP-*", "allow": ["APP-*"]},
            },
        )

    def first(self, name: str) -> float:
        """Return the seconds from Eureka's first answer until every Service is right, starting with none."""
        self._clear(name)
        wanted = self._wanted(self._names)
        self._watches[name].forget()
        asked = time.perf_counter()
        if name == "floor":
            raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
            applications = self._listed()
            began = time.perf_counter()
            for application in applications:
                raw.create(application)
            ended = time.perf_counter()
            raw.close()
            return ended - began
        with self._contestant(name, RESYNC_SECONDS):
            shown = self._watches[name].wait_shown(wanted, _LONGEST_SECONDS)
            return max(shown.values()) - self._answered(asked, min(shown.values()))

    def changes(self, rounds: int, idle_seconds: float) -> _Changes:
        """Change one percent again and again, and measure how fast each contestant, running alone,
        follows.
        """
        found = _Changes()
        wait_for(self._stands, "the registrations to leave the delta", _LONGEST_SECONDS + 180.0)
        size = max(2, round(len(self._names) * AN_APPLICATION * PERCENT))
        for name in _NAMESPACES:
            with self._contestant(name, RESYNC_SECONDS) as contestant:
                if contestant is not None:  # what stands from before would be taken for its work
                    contestant.wait_for(_AT_WORK[name])
                self._watch_all(name)
                for number in range(rounds):
                    what = (TOGETHER, SPREAD)[number % 2]
                    names = self._change(size, together=what == TOGETHER)
                    before = self._writes(name)
                    took = self._follow(name, names)
                    if number > 1:  # the first of each kind warms up
                        found.milliseconds[what][name].append(took * 1000)
                    if name == "ours":
                        found.extra_writes += abs(self._writes(name) - before - len(names))
                if name == "ours":
                    found.requests_a_reading[True] = self._requests_a_reading(idle_seconds)
                    found.memory_mib = contestant.memory_mib() if contestant else 0.0
            if name == "ours":
                with self._operator(RESYNC_SECONDS, mirrors=False) as operator:
                    operator.wait_for(_AT_WORK[name])
                    found.requests_a_reading[False] = self._requests_a_reading(idle_seconds)
            for what, by_name in found.milliseconds.items():
                show(f"  {what}, {name}: {statistics.median(by_name[name]):.0f} ms")
        return found

    def _stands(self) -> bool:
        """Return whether the delta shows few instances, by a fresh answer: the first registrations have
        left it.
        """
        self._register([(self._names[0], 0)])
        listed = applications_of(self._prober.request("GET", "/apps/delta")[1])
        every = len(self._names) * AN_APPLICATION
        return sum(len(one["instance"]) for one in listed) <= FEW_REPORTED * every

    def _requests_a_reading(self, idle_seconds: float) -> float:
        """Return the requests to Eureka for each reading while nothing changes: lists, deltas, and the
        server's start time.
        """
        time.sleep(2 * RESYNC_SECONDS)  # what a start asks for
        begin = self._front.requests
        time.sleep(idle_seconds)
        return (self._front.requests - begin) / (idle_seconds / RESYNC_SECONDS)

    def _follow(self, name: str, names: Collection[str]) -> float:
        """Return the seconds from the answer that tells of a change until the change's slices are right."""
        wanted, changed = self._wanted(names), time.perf_counter()
        if name != "floor":
            shown = self._watches[name].wait_shown(wanted, _LONGEST_SECONDS)
            return max(shown.values()) - self._answered(changed, min(shown.values()))
        raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
        applications = [one for one in self._listed() if one["name"].lower() in names]
        began = time.perf_counter()
        for application in applications:
            raw.replace(application)
        ended = time.perf_counter()
        raw.close()
        return ended - began

    def _watch_all(self, name: str) -> None:
        """Wait until a contestant's slices show all applications as they are now."""
        if name == "floor":
            raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
            for application in self._listed():
                raw.replace(application)
            raw.close()
            return
        self._watches[name].wait_shown(self._wanted(self._names), _LONGEST_SECONDS)

    def _listed(self) -> list[Mapping[str, Any]]:
        """Return the applications that Eureka lists."""
        return list(applications_of(self._prober.request("GET", "/apps")[1]))

    def _answered(self, since: float, right: float) -> float:
        """Return when the first answer came that told of a change, which was complete at ``since``.

        An answer requested before ``since`` counts if a slice was right before the next answer came.
        """
        answers = [
            (asked, at)
            for asked, at, head in list(self._front.passed_on)
            if at >= since and re.match(r"GET /eureka/apps(/delta)? ", head)
        ]
        return min(at for asked, at in answers if asked >= since or at < right < _next(answers, since))

    @contextmanager
    def _contestant(self, name: str, seconds: int) -> Iterator[Contestant | None]:
        if name == "floor":
            yield None
            return
        if name == POLL:
            peer = self._field.bridge_to(self._url, "mirror_poll", _NAMESPACES[name], str(seconds))
            with peer:
                yield peer
            return
        with self._operator(seconds, mirrors=True) as operator:
            yield operator

    def _operator(self, seconds: int, *, mirrors: bool) -> Contestant:
        self._field.forget_leader()
        (self._port,) = free_ports(1)
        mirroring = {"MIRRORS": "true", "MIRROR_CIDRS": CIDR} if mirrors else {}
        return self._field.operator(
            EUREKA_URL=self._url,
            RESYNC_SECONDS=str(seconds),
            WEB_ADDRESS=f"127.0.0.1:{self._port}",
            **mirroring,
        )

    def _writes(self, name: str) -> int:
        """Return how many slice writes Eurekube's operator has sent."""
        if name != "ours":
            return 0
        page = requests.get(f"http://127.0.0.1:{self._port}/metrics", timeout=10).text
        pattern = r'^eurekube_mirror_writes_total\{resource="endpointslices",verb="\w+"\} (\S+)'
        return sum(int(float(count)) for count in re.findall(pattern, page, re.MULTILINE))

    def _change(self, size: int, *, together: bool) -> set[str]:
        """Switch ``size`` instances between up and down; return their applications."""
        if together:
            names = self._chance.sample(self._names, max(1, round(size / AN_APPLICATION)))
            changed = [(name, number) for name in names for number in range(AN_APPLICATION)]
        else:
            names = self._chance.sample(self._names, min(size, len(self._names)))
            changed = [(name, self._chance.randrange(AN_APPLICATION)) for name in names]
        self._down ^= set(changed)
        self._register(changed)
        return set(names)

    def _register(self, instances: Collection[tuple[str, int]]) -> None:
        stamp = str(time.time_ns() // 1_000_000)
        documents = [
            document(name, f"vm-{number}.{name}", self._address(name, number), 8080, up=is_up)
            | {"lastDirtyTimestamp": stamp, "leaseInfo": _NEVER_RENEWED}
            for name, number in instances
            for is_up in ((name, number) not in self._down,)
        ]
        self._prober.register_all(documents)

    def _wanted(self, names: Collection[str]) -> dict[str, Content]:
        return {
            name: frozenset(
                (self._address(name, number), (name, number) not in self._down)
                for number in range(AN_APPLICATION)
            )
            for name in names
        }

    def _address(self, name: str, number: int) -> str:
        place = int(name.removeprefix("app-")) * AN_APPLICATION + number
        return f"10.128.{place >> 8}.{place & 255}"

    def _clear(self, name: str) -> None:
        """Delete all objects that a contestant has made."""
        namespace = _NAMESPACES[name]
        for item in self._field.cluster.items(SERVICES, namespace):
            self._field.cluster.delete(SERVICES, item["metadata"]["name"], namespace)
        self._field.access.request("DELETE", ENDPOINT_SLICES.path(namespace))
        wait_for(lambda: not self._field.cluster.items(ENDPOINT_SLICES, namespace), "the slices to go", 60.0)


def _next(answers: list[tuple[float, float]], since: float) -> float:
    """Return when the first answer came that was requested at ``since`` or later."""
    return min((at for asked, at in answers if asked >= since), default=math.inf)


def _result(size: Size, first: dict[str, list[float]], changes: _Changes) -> Result:
    ours, floor, peer = (
        {"first, s": statistics.median(first[name])}
        | {
            f"{what}, {label} ms": value
            for what, by_name in changes.milliseconds.items()
            for label, value in (
                ("p50", statistics.median(by_name[name])),
                ("p99", percentile(by_name[name], 0.99)),
            )
        }
        for name in _NAMESPACES
    )
    median, together = f"{TOGETHER}, p50 ms", f"{TOGETHER}, p99 ms"
    held = (
        ours["first, s"] <= 1.5 * floor["first, s"] + 1
        and ours[median] <= 1.5 * floor[median]
        and ours[together] <= 2 * floor[together]
        and changes.extra_writes == 0
        and changes.requests_a_reading[True] <= changes.requests_a_reading[False] + MOST_EXTRA_REQUESTS
    )
    ratios = {f"{name}, ours to floor": ours[name] / floor[name] for name in ours}
    ratios |= {f"{name}, {POLL} to ours": peer[name] / ours[name] for name in ours}
    ours |= {
        "writes beside the slices that differ": float(changes.extra_writes),
        "requests to Eureka a reading": changes.requests_a_reading[True],
        "requests to Eureka a reading, without mirrors": changes.requests_a_reading[False],
        "resident memory, MiB": changes.memory_mib,
    }
    count = APPLICATIONS[size]
    return Result(
        id="P14",
        title=f"Eureka's answer until the slices of {count} applications with"
        f" {count * AN_APPLICATION:,} instances are right",
        unit="seconds and milliseconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        peers={POLL: peer},
        ratios=ratios,
        held=held,
        headlines=(together, median, "first, s"),
        runs={f"first, {name}": [{"seconds": value} for value in found] for name, found in first.items()}
        | {
            f"{what}, {name}": [{"ms": value} for value in found]
            for what, by_name in changes.milliseconds.items()
            for name, found in by_name.items()
        },
        notes=[
            "the floor writes the same Services and slices by hand out of the same answer, one by one",
            "ours is seen by a watch, the floor by the answer to its last write",
        ],
    )
