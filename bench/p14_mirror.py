"""P14: mirrors: from Eureka's answer to the last slice that is right, first and after one percent changed."""

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
"""A reading: less than one more in five, which is where the time of measurement begins and ends."""

BAR = (
    "first <= 1.5x the floor + 1 s; two applications that change: p50 <= 1.5x and p99 <= 2x the floor's;"
    " API writes = slices that differ; no request to Eureka more than by the same operator without mirrors"
)
MEASURES = OPERATOR_PATHS
APPLICATIONS = {Size.FULL: 200, Size.QUICK: 40}
AN_APPLICATION = 25
STARTS = {Size.FULL: 5, Size.QUICK: 1}
CHANGES = {Size.FULL: 30, Size.QUICK: 8}
"""Each takes ten seconds and more for all contestants together."""
PERCENT = 0.01
SPREAD, TOGETHER = "1 % in as many applications", "1 % in two applications"
POLL = "poll that rewrites every slice"
RESYNC_SECONDS = 5
"""As often as the operator reads by default while what mirrors follow changes."""

FEW_REPORTED = 0.05
"""A delta repeats what changed in three minutes; a registry that stands has few of its instances in it."""

IDLE_SECONDS = {Size.FULL: 60.0, Size.QUICK: 10.0}
CIDR = "10.128.0.0/16"
_NAMESPACES = {"ours": "mirror-ours", "floor": "mirror-floor", POLL: "mirror-poll"}
_LONGEST_SECONDS = 120.0
_AT_WORK = {"ours": "this replica leads", POLL: "looked"}
"""A log line that a contestant writes once it follows."""

_NEVER_RENEWED = {"renewalIntervalInSecs": 30, "durationInSecs": 86400}


def run(size: Size) -> Result:
    """All first slices in turn, again and again; then changes, of which each contestant has the same."""
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
    """Measured changes.

    :ivar milliseconds: by what changed and who followed, until the last slice of each was right.
    :ivar extra_writes: how many writes were too many, or missing.
    :ivar requests_a_reading: all that Eureka was asked between two readings: with mirrors (True), and by an
        operator without (False).
    """

    def __init__(self) -> None:
        self.milliseconds: dict[str, dict[str, list[float]]] = {
            what: {name: [] for name in _NAMESPACES} for what in (TOGETHER, SPREAD)
        }
        self.extra_writes = 0
        self.requests_a_reading = {True: 0.0, False: 0.0}
        self.memory_mib = 0.0


class _Stage:
    """A registry of so many applications, behind a proxy that knows when an answer was there."""

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
        """Seconds from the answer until everything stands; before it, nothing does."""
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
        """Change a percent, so often, and see who follows how fast; each follows alone."""
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
        """Return whether the first registrations are neither news any more nor a cached answer."""
        self._register([(self._names[0], 0)])
        listed = applications_of(self._prober.request("GET", "/apps/delta")[1])
        every = len(self._names) * AN_APPLICATION
        return sum(len(one["instance"]) for one in listed) <= FEW_REPORTED * every

    def _requests_a_reading(self, idle_seconds: float) -> float:
        """Return the requests to Eureka while nothing changes: lists or deltas, and since when its server
        runs.
        """
        time.sleep(2 * RESYNC_SECONDS)  # what a start asks for
        begin = self._front.requests
        time.sleep(idle_seconds)
        return (self._front.requests - begin) / (idle_seconds / RESYNC_SECONDS)

    def _follow(self, name: str, names: Collection[str]) -> float:
        """Seconds from the answer that tells of a change until its slices are right."""
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
        """Wait until a contestant has all as it is now."""
        if name == "floor":
            raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
            for application in self._listed():
                raw.replace(application)
            raw.close()
            return
        self._watches[name].wait_shown(self._wanted(self._names), _LONGEST_SECONDS)

    def _listed(self) -> list[Mapping[str, Any]]:
        """Return Eureka's answer, parsed."""
        return list(applications_of(self._prober.request("GET", "/apps")[1]))

    def _answered(self, since: float, right: float) -> float:
        """When the first answer was there that reported a change, which was complete at ``since``.

        One that was asked for before may tell of it: it did where something was right before the next one.
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
        """How many writes of slices ours has sent."""
        if name != "ours":
            return 0
        page = requests.get(f"http://127.0.0.1:{self._port}/metrics", timeout=10).text
        pattern = r'^eurekube_mirror_writes_total\{resource="endpointslices",verb="\w+"\} (\S+)'
        return sum(int(float(count)) for count in re.findall(pattern, page, re.MULTILINE))

    def _change(self, size: int, *, together: bool) -> set[str]:
        """Have so many instances change sides, up or down; the applications that they are of."""
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
        """Take away all that a contestant has made."""
        namespace = _NAMESPACES[name]
        for item in self._field.cluster.items(SERVICES, namespace):
            self._field.cluster.delete(SERVICES, item["metadata"]["name"], namespace)
        self._field.access.request("DELETE", ENDPOINT_SLICES.path(namespace))
        wait_for(lambda: not self._field.cluster.items(ENDPOINT_SLICES, namespace), "the slices to go", 60.0)


def _next(answers: list[tuple[float, float]], since: float) -> float:
    """When the first of these answers was there that was asked for after that time."""
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
