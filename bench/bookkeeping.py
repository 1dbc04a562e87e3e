"""The operator's work for each syncer must stay linear: reconciles, Events, statuses, brake, retention,
doctor.

A part of P12. Each job is done once for every syncer, with ten instances each, in this process and without
servers. The time of a job for each syncer is compared between some number of syncers and ten times as many.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bench.harness import measure, show
from bench.reconciles import Reconciles
from eurekube_provider.core.brake import judge
from eurekube_provider.core.decision import Situation, State, decide
from eurekube_provider.core.identity import OWNER_KEY, Cluster, endpoint_of, pod_instance_id
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.doctor.checks import Requirements, findings_of
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot, attributed
from eurekube_provider.doctor.workload_checks import Workload
from eurekube_provider.eureka.table import Table
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.conditions import Report
from eurekube_provider.operator.ended_pods import EndedPods
from eurekube_provider.operator.status import StatusWriter

TIMES_AS_MANY = 10
INSTANCES = 10
"""Number of instances of each syncer."""

LIMIT = 2.0
"""Most growth of the time for each syncer at ten times as many: processor caches slow large tables down a
little, and quadratic work has 10.
"""

ROUNDS = 3
LONGEST_SECONDS = 600.0
CLUSTER = Cluster("bench", "bench-uid")
NOW = 1_800_000_000.0


class _Api:
    """A fake Kubernetes API that accepts every write."""

    def request(self, _method: str, _path: str, **_: object) -> dict[str, Any]:
        """Return the answer of an API server that accepted the write."""
        return {"metadata": {"resourceVersion": "2"}}


class _Sources:
    """Fake sources with one slice of pods for each syncer, all in one namespace, and no terminating pod."""

    def __init__(self, instances: Mapping[str, list[Instance]]) -> None:
        self.slices = self
        self._slices = {name: _pods(name, there) for name, there in instances.items()}

    def seen_terminating(self, _instance_id: str) -> bool:
        """Return False: no pod was seen terminating."""
        return False

    def slices_of(self, key: tuple[str, str]) -> list[dict[str, Any]]:
        """Return the EndpointSlices of one syncer."""
        return [self._slices[key[1]]]

    def without_list(self, _namespace: str) -> None:
        """Return None: the namespace has been listed."""

    def objects(self, _namespace: str) -> list[dict[str, Any]]:
        """Return the EndpointSlices of the namespace."""
        return list(self._slices.values())


def _pods(name: str, instances: list[Instance]) -> dict[str, Any]:
    pods = [endpoint_of(one.instance_id)[0] for one in instances]
    endpoints = [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": pod}} for pod in pods]
    return {"metadata": {"namespace": "shop", "name": name}, "endpoints": endpoints}


class Fleet:
    """Syncers, each with a Service, an EndpointSlice, a Deployment and ten pods, which are instances."""

    def __init__(self, count: int) -> None:
        names = [f"app-{number}" for number in range(count)]
        self.syncers = [_syncer(name) for name in names]
        self.instances = {
            name: [_instance(name, at * INSTANCES + number) for number in range(INSTANCES)]
            for at, name in enumerate(names)
        }
        self.pods = [_pod(name, one) for name, there in self.instances.items() for one in there]
        self.reconciles = Reconciles(CLUSTER, self.syncers, self.instances)
        self.snapshot = Snapshot(
            CLUSTER,
            syncers=tuple(self.syncers),
            services=tuple(
                {"metadata": _metadata(name), "spec": {"selector": {"app": name}}} for name in names
            ),
            slices=tuple(_slice(name, there) for name, there in self.instances.items()),
            workloads=tuple(map(_deployment, names)),
            eurekas={
                "default": EurekaSnapshot(
                    "default", tuple(one for there in self.instances.values() for one in there)
                )
            },
        )

    def events(self) -> None:
        """Record a warning Event for each syncer, and count two registrations of it."""
        recorder = EventRecorder(_Api(), "eurekube.io/bench", "bench")  # type: ignore[arg-type]
        recorder.start()
        for syncer in self.syncers:
            recorder.record(syncer, EventType.WARNING, "Braked", "removals are held back")
            recorder.aggregate(syncer, "Registered", INSTANCES, "registered")
            recorder.aggregate(syncer, "Registered", INSTANCES, "registered")
        recorder.stop(LONGEST_SECONDS)

    def statuses(self) -> None:
        """Report each syncer twice, and write the remaining statuses."""
        writer = StatusWriter(_Api())  # type: ignore[arg-type]
        writer.start()
        synced = Problem("Synced", "")
        for registered in (0, INSTANCES):
            report = Report(
                bool(registered),
                synced,
                is_synced=True,
                synced=synced,
                desired=INSTANCES,
                registered=registered,
            )
            for syncer in self.syncers:
                writer.report(syncer, report)
        writer.stop(LONGEST_SECONDS)

    def brake(self) -> None:
        """Have the brake judge a plan of each syncer in which one instance has vanished."""
        view = Table()
        for there in self.instances.values():
            for one in there:
                view.registered(one)
        known = BrakeMemory(CLUSTER, [view])  # type: ignore[list-item]
        for syncer in self.syncers:
            name = syncer["metadata"]["name"]
            there = self.instances[name]
            steps, now = plan(there[1:], there, _owner(name)), time.monotonic()
            history = known.history(("shop", name), _owner(name), now, is_released=False)
            known.note(("shop", name), now, judge(steps, history, lambda _: False, now, time.time()))

    def retention(self) -> None:
        """Decide about the instances of each syncer as if the syncer were refused."""
        pods = EndedPods(_Api(), _Sources(self.instances))  # type: ignore[arg-type]
        for syncer in self.syncers:
            name = syncer["metadata"]["name"]
            held, key = self.instances[name], ("shop", name)
            ended = pods.ids(key, held)
            decide(Situation(key, _owner(name), State.REFUSED, {"default": held}, ended=ended))

    def doctor(self) -> None:
        """Find the workloads that run the pods, and have the doctor check the whole snapshot."""
        workloads, pods = attributed(self.pods, self.snapshot.workloads)
        snapshot = replace(self.snapshot, workloads=tuple(workloads), pods=pods)
        assert len(workloads) == len(self.syncers)
        assert len(pods) == len(self.pods)
        assert findings_of(snapshot, Requirements(), NOW)


def growth(count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Measure all jobs for ``count`` syncers and for ten times as many.

    :returns: microseconds for each syncer, by job and count; and by job the ratio of the larger to the
        smaller fleet.
    """
    fleets = [Fleet(count), Fleet(count * TIMES_AS_MANY)]
    gc.freeze()  # so that collections look at what the jobs make, not at the fleets
    samples: dict[str, list[list[float]]] = {}
    try:
        for number in range(ROUNDS + 1):
            for place, fleet in enumerate(fleets):
                for name, work in _jobs(fleet).items():
                    seconds = measure(work).cpu_seconds
                    if number:  # the first round warms up
                        found = samples.setdefault(name, [[], []])
                        found[place].append(seconds / len(fleet.syncers) * 1e6)
    finally:
        gc.unfreeze()
    times: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name, found in samples.items():
        small, large = map(statistics.median, found)
        times |= {f"{name} at {count:,}": small, f"{name} at {count * TIMES_AS_MANY:,}": large}
        ratios[name] = large / small
        show(f"  {name}: {large:.0f} us a syncer, {ratios[name]:.2f} times as long")
    return times, ratios


def _jobs(fleet: Fleet) -> Mapping[str, Callable[[], None]]:
    return {
        "reconciles": fleet.reconciles.run,
        "Events": fleet.events,
        "statuses": fleet.statuses,
        "brake": fleet.brake,
        "retention": fleet.retention,
        "doctor": fleet.doctor,
    }


def _metadata(name: str, **labels: str) -> dict[str, Any]:
    return {"namespace": "shop", "name": name, "uid": name, "labels": {"app": name, **labels}}


def _syncer(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": "EurekaSyncer",
        "metadata": {**_metadata(name), "resourceVersion": "1", "generation": 1},
        "spec": {"mode": "pod", "selector": {"app": name}},
    }


def _owner(name: str) -> str:
    return f"cluster/{CLUSTER.name}/shop/{name}"


def _instance(name: str, number: int) -> Instance:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    instance_id = pod_instance_id(f"{name}-{number}", "shop", CLUSTER.name, name, 8080)
    return Instance(name, instance_id, address, address, Port(8080), metadata={OWNER_KEY: _owner(name)})


def _pod(name: str, one: Instance) -> dict[str, Any]:
    pod, _ = endpoint_of(one.instance_id)
    metadata = {**_metadata(pod), "labels": {"app": name, "tier": "backend", "pod-template-hash": "1"}}
    return {"metadata": metadata, "spec": {}, "status": {"podIP": one.ip_address}}


def _slice(name: str, there: list[Instance]) -> dict[str, Any]:
    return {
        "metadata": _metadata(f"{name}-x", **{"kubernetes.io/service-name": name}),
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [one.ip_address]} for one in there],
    }


def _deployment(name: str) -> Workload:
    container = {"name": "app", "ports": [{"containerPort": 8080}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return Workload("Deployment", {"metadata": _metadata(name), "spec": spec})
