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
from bench.field import BenchLab
from bench.harness import Result, Size, percentile, print_progress
from bench.peers.documents import registration_document
from bench.prober import Prober
from bench.slices import RawMirror, ServiceContent, SliceWatch, parse_applications
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS, SERVICES
from lab import Lab
from lab.ports import free_ports
from lab.proxy import Proxy
from lab.workloads import wait_for

MAX_EXTRA_REQUESTS = 0.2
"""Most additional requests for each reading: fewer than one in five readings, a matter of when measuring
begins and ends.
"""

BAR = (
    "first <= 1.5x the floor + 1 s; two applications that change: p50 <= 1.5x and p99 <= 2x the floor's;"
    " API writes = slices that differ; no request to Eureka more than by the same operator without mirrors"
)
MEASURES = OPERATOR_PATHS
APPLICATIONS = {Size.FULL: 200, Size.QUICK: 40}
INSTANCES_PER_APPLICATION = 25
START_ROUNDS = {Size.FULL: 5, Size.QUICK: 1}
CHANGE_ROUNDS = {Size.FULL: 30, Size.QUICK: 8}
"""Number of measured changes; each takes ten seconds and more for all contestants together."""
CHANGED_SHARE = 0.01
SPREAD_CHANGE, JOINT_CHANGE = "1 % in as many applications", "1 % in two applications"
POLL_CONTESTANT = "poll that rewrites every slice"
RESYNC_SECONDS = 5
"""Seconds between readings, the operator's default while mirrored applications change."""

SETTLED_DELTA_SHARE = 0.05
"""Share of instances in the delta below which the registry counts as settled; a delta repeats three
minutes' changes.
"""

IDLE_SECONDS = {Size.FULL: 60.0, Size.QUICK: 10.0}
MIRROR_CIDR = "10.128.0.0/16"
_NAMESPACES = {"ours": "mirror-ours", "floor": "mirror-floor", POLL_CONTESTANT: "mirror-poll"}
_LONGEST_SECONDS = 120.0
_STARTED_LOG_LINES = {"ours": "became the leader", POLL_CONTESTANT: "looked"}
"""Line that each contestant logs when it begins to follow Eureka."""

_LONG_LEASE = {"renewalIntervalInSecs": 30, "durationInSecs": 86400}


def run(size: Size) -> Result:
    """Measure all first slices in turn, again and again; then changes, the same for each contestant."""
    # The cache of the server holds an answer back, and what is measured begins when it comes.
    with Lab(eureka=1, uncached_lists=True) as lab, Proxy(lab.eurekas[0].port, keeps_heads=True) as front:
        stage = _MirrorStage(lab, front, APPLICATIONS[size])
        first: dict[str, list[float]] = {name: [] for name in _NAMESPACES}
        for number in range(START_ROUNDS[size] + 1):
            for name in _NAMESPACES:
                seconds = stage.measure_first(name)
                print_progress(f"  first, {name}: {seconds:.2f} s")
                if number:
                    first[name].append(seconds)
        changes = stage.measure_changes(CHANGE_ROUNDS[size], IDLE_SECONDS[size])
    return _make_result(size, first, changes)


class _ChangeFigures:
    """The measurements of changes.

    :ivar milliseconds: by kind of change and contestant, until the last slice of each change was right.
    :ivar extra_writes: how many writes were too many, or missing.
    :ivar requests_a_reading: Eureka's requests between two readings: with mirrors (True), and by an operator
        without (False).
    """

    def __init__(self) -> None:
        self.milliseconds: dict[str, dict[str, list[float]]] = {
            what: {name: [] for name in _NAMESPACES} for what in (JOINT_CHANGE, SPREAD_CHANGE)
        }
        self.extra_writes = 0
        self.requests_a_reading = {True: 0.0, False: 0.0}
        self.memory_mib = 0.0


class _MirrorStage:
    """A registry of many applications, behind a proxy that records when each answer came."""

    def __init__(self, lab: Lab, front: Proxy, applications: int) -> None:
        self._lab, self._front = lab, front
        self._field = BenchLab(lab)
        self._prober = Prober(lab.eureka_urls[0])
        self._names = [f"app-{number}" for number in range(applications)]
        self._down: set[tuple[str, int]] = set()
        self._url = f"http://127.0.0.1:{front.port}/eureka"
        self._chance = random.Random(14)  # noqa: S311 - repeatable
        for name in _NAMESPACES.values():
            self._field.create_namespace(name)
        self._watches = {
            name: SliceWatch(lab.kubeconfig, namespace) for name, namespace in _NAMESPACES.items()
        }
        self._register(
            [(name, number) for name in self._names for number in range(INSTANCES_PER_APPLICATION)]
        )
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

    def measure_first(self, name: str) -> float:
        """Return the seconds from Eureka's first answer until every Service is right, starting with none."""
        self._delete_objects(name)
        wanted = self._expected_contents(self._names)
        self._watches[name].clear_contents()
        asked = time.perf_counter()
        if name == "floor":
            raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
            applications = self._list_applications()
            began = time.perf_counter()
            for application in applications:
                raw.create(application)
            ended = time.perf_counter()
            raw.close()
            return ended - began
        with self._run_contestant(name, RESYNC_SECONDS):
            shown = self._watches[name].wait_until_shown(wanted, _LONGEST_SECONDS)
            return max(shown.values()) - self._find_answer_time(asked, min(shown.values()))

    def measure_changes(self, rounds: int, idle_seconds: float) -> _ChangeFigures:
        """Change one percent again and again, and measure how fast each contestant, running alone,
        follows.
        """
        found = _ChangeFigures()
        wait_for(self._has_delta_settled, "the registrations to leave the delta", _LONGEST_SECONDS + 180.0)
        size = max(2, round(len(self._names) * INSTANCES_PER_APPLICATION * CHANGED_SHARE))
        for name in _NAMESPACES:
            with self._run_contestant(name, RESYNC_SECONDS) as contestant:
                if contestant is not None:  # what stands from before would be taken for its work
                    contestant.wait_for(_STARTED_LOG_LINES[name])
                self._wait_until_current(name)
                for number in range(rounds):
                    what = (JOINT_CHANGE, SPREAD_CHANGE)[number % 2]
                    names = self._switch_instances(size, together=what == JOINT_CHANGE)
                    before = self._count_slice_writes(name)
                    took = self._measure_change(name, names)
                    if number > 1:  # the first of each kind warms up
                        found.milliseconds[what][name].append(took * 1000)
                    if name == "ours":
                        found.extra_writes += abs(self._count_slice_writes(name) - before - len(names))
                if name == "ours":
                    found.requests_a_reading[True] = self._requests_a_reading(idle_seconds)
                    found.memory_mib = contestant.memory_mib() if contestant else 0.0
            if name == "ours":
                with self._start_operator(RESYNC_SECONDS, mirrors=False) as operator:
                    operator.wait_for(_STARTED_LOG_LINES[name])
                    found.requests_a_reading[False] = self._requests_a_reading(idle_seconds)
            for what, by_name in found.milliseconds.items():
                print_progress(f"  {what}, {name}: {statistics.median(by_name[name]):.0f} ms")
        return found

    def _has_delta_settled(self) -> bool:
        """Return whether the delta shows few instances, by a fresh answer: the first registrations have
        left it.
        """
        self._register([(self._names[0], 0)])
        listed = parse_applications(self._prober.request("GET", "/apps/delta")[1])
        every = len(self._names) * INSTANCES_PER_APPLICATION
        return sum(len(one["instance"]) for one in listed) <= SETTLED_DELTA_SHARE * every

    def _requests_a_reading(self, idle_seconds: float) -> float:
        """Return the requests to Eureka for each reading while nothing changes: lists, deltas, and the
        server's start time.
        """
        time.sleep(2 * RESYNC_SECONDS)  # what a start asks for
        begin = self._front.request_count
        time.sleep(idle_seconds)
        return (self._front.request_count - begin) / (idle_seconds / RESYNC_SECONDS)

    def _measure_change(self, name: str, names: Collection[str]) -> float:
        """Return the seconds from the answer that tells of a change until the change's slices are right."""
        wanted, changed = self._expected_contents(names), time.perf_counter()
        if name != "floor":
            shown = self._watches[name].wait_until_shown(wanted, _LONGEST_SECONDS)
            return max(shown.values()) - self._find_answer_time(changed, min(shown.values()))
        raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
        applications = [one for one in self._list_applications() if one["name"].lower() in names]
        began = time.perf_counter()
        for application in applications:
            raw.replace(application)
        ended = time.perf_counter()
        raw.close()
        return ended - began

    def _wait_until_current(self, name: str) -> None:
        """Wait until a contestant's slices show all applications as they are now."""
        if name == "floor":
            raw = RawMirror(self._lab.kubeconfig, _NAMESPACES[name])
            for application in self._list_applications():
                raw.replace(application)
            raw.close()
            return
        self._watches[name].wait_until_shown(self._expected_contents(self._names), _LONGEST_SECONDS)

    def _list_applications(self) -> list[Mapping[str, Any]]:
        """Return the applications that Eureka lists."""
        return list(parse_applications(self._prober.request("GET", "/apps")[1]))

    def _find_answer_time(self, since: float, right: float) -> float:
        """Return the time of the first answer that contained a change, which was complete at ``since``.

        An answer requested before ``since`` counts if a slice was right before the next answer came.
        """
        answers = [
            (asked, at)
            for asked, at, head in list(self._front.passed_on)
            if at >= since and re.match(r"GET /eureka/apps(/delta)? ", head)
        ]
        return min(
            at for asked, at in answers if asked >= since or at < right < _next_answer_time(answers, since)
        )

    @contextmanager
    def _run_contestant(self, name: str, seconds: int) -> Iterator[Contestant | None]:
        if name == "floor":
            yield None
            return
        if name == POLL_CONTESTANT:
            peer = self._field.start_bridge_to(self._url, "mirror_poll", _NAMESPACES[name], str(seconds))
            with peer:
                yield peer
            return
        with self._start_operator(seconds, mirrors=True) as operator:
            yield operator

    def _start_operator(self, seconds: int, *, mirrors: bool) -> Contestant:
        self._field.delete_leader_lease()
        (self._port,) = free_ports(1)
        mirroring = {"MIRRORS": "true", "MIRROR_CIDRS": MIRROR_CIDR} if mirrors else {}
        return self._field.start_operator(
            EUREKA_URL=self._url,
            RESYNC_SECONDS=str(seconds),
            WEB_ADDRESS=f"127.0.0.1:{self._port}",
            **mirroring,
        )

    def _count_slice_writes(self, name: str) -> int:
        """Return how many slice writes Eurekube's operator has sent."""
        if name != "ours":
            return 0
        page = requests.get(f"http://127.0.0.1:{self._port}/metrics", timeout=10).text
        pattern = r'^eurekube_mirror_writes_total\{resource="endpointslices",verb="\w+"\} (\S+)'
        return sum(int(float(count)) for count in re.findall(pattern, page, re.MULTILINE))

    def _switch_instances(self, size: int, *, together: bool) -> set[str]:
        """Switch ``size`` instances between up and down; return their applications."""
        if together:
            names = self._chance.sample(self._names, max(1, round(size / INSTANCES_PER_APPLICATION)))
            changed = [(name, number) for name in names for number in range(INSTANCES_PER_APPLICATION)]
        else:
            names = self._chance.sample(self._names, min(size, len(self._names)))
            changed = [(name, self._chance.randrange(INSTANCES_PER_APPLICATION)) for name in names]
        self._down ^= set(changed)
        self._register(changed)
        return set(names)

    def _register(self, instances: Collection[tuple[str, int]]) -> None:
        stamp = str(time.time_ns() // 1_000_000)
        documents = [
            registration_document(
                name, f"vm-{number}.{name}", self._instance_address(name, number), 8080, up=is_up
            )
            | {"lastDirtyTimestamp": stamp, "leaseInfo": _LONG_LEASE}
            for name, number in instances
            for is_up in ((name, number) not in self._down,)
        ]
        self._prober.register_all(documents)

    def _expected_contents(self, names: Collection[str]) -> dict[str, ServiceContent]:
        return {
            name: frozenset(
                (self._instance_address(name, number), (name, number) not in self._down)
                for number in range(INSTANCES_PER_APPLICATION)
            )
            for name in names
        }

    def _instance_address(self, name: str, number: int) -> str:
        place = int(name.removeprefix("app-")) * INSTANCES_PER_APPLICATION + number
        return f"10.128.{place >> 8}.{place & 255}"

    def _delete_objects(self, name: str) -> None:
        """Delete all objects that a contestant has made."""
        namespace = _NAMESPACES[name]
        for item in self._field.cluster.items(SERVICES, namespace):
            self._field.cluster.delete(SERVICES, item["metadata"]["name"], namespace)
        self._field.access.request("DELETE", ENDPOINT_SLICES.path(namespace))
        wait_for(lambda: not self._field.cluster.items(ENDPOINT_SLICES, namespace), "the slices to go", 60.0)


def _next_answer_time(answers: list[tuple[float, float]], since: float) -> float:
    """Return the time of the first answer that was requested at ``since`` or later; infinity if there is
    none.
    """
    return min((at for asked, at in answers if asked >= since), default=math.inf)


def _make_result(size: Size, first: dict[str, list[float]], changes: _ChangeFigures) -> Result:
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
    median, together = f"{JOINT_CHANGE}, p50 ms", f"{JOINT_CHANGE}, p99 ms"
    held = (
        ours["first, s"] <= 1.5 * floor["first, s"] + 1
        and ours[median] <= 1.5 * floor[median]
        and ours[together] <= 2 * floor[together]
        and changes.extra_writes == 0
        and changes.requests_a_reading[True] <= changes.requests_a_reading[False] + MAX_EXTRA_REQUESTS
    )
    ratios = {f"{name}, ours to floor": ours[name] / floor[name] for name in ours}
    ratios |= {f"{name}, {POLL_CONTESTANT} to ours": peer[name] / ours[name] for name in ours}
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
        f" {count * INSTANCES_PER_APPLICATION:,} instances are right",
        unit="seconds and milliseconds",
        bar=BAR,
        ours=ours,
        floor=floor,
        peers={POLL_CONTESTANT: peer},
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
