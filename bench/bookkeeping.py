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

from bench.harness import measure, print_progress
from bench.reconciles import SyncerReconciles
from eurekube_provider.core.brake import judge_removals
from eurekube_provider.core.decision import SyncerSituation, SyncerState, decide
from eurekube_provider.core.identity import OWNER_KEY, Cluster, pod_and_namespace_of_id, pod_instance_id
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.doctor.checks import check_snapshot
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot, match_pods_to_workloads
from eurekube_provider.doctor.workload_checks import Workload, WorkloadRequirements
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.ended_pods import EndedPodSearch
from eurekube_provider.operator.status import StatusWriter

GROWTH_FACTOR = 10
INSTANCES_PER_SYNCER = 10
"""Number of instances of each syncer."""

MAX_GROWTH_RATIO = 2.0
"""Most growth of the time for each syncer at ten times as many: processor caches slow large tables down a
little, and quadratic work has 10.
"""

ROUNDS = 3
LONGEST_SECONDS = 600.0
CLUSTER = Cluster("bench", "bench-uid")
NOW_UNIX_SECONDS = 1_800_000_000.0


class _FakeApi:
    """A fake Kubernetes API that accepts every write."""

    def request(self, _method: str, _path: str, **_: object) -> dict[str, Any]:
        """Return the answer of an API server that accepted the write."""
        return {"metadata": {"resourceVersion": "2"}}


class _FakeSources:
    """Fake sources with one slice of pods for each syncer, all in one namespace, and no terminating pod."""

    def __init__(self, instances: Mapping[str, list[Instance]]) -> None:
        self.slices = self
        self._slices = {name: _pod_slice(name, there) for name, there in instances.items()}

    def was_instance_seen_terminating(self, _instance_id: str) -> bool:
        """Return False: no pod was seen terminating."""
        return False

    def slices_of_syncer(self, key: tuple[str, str]) -> list[dict[str, Any]]:
        """Return the EndpointSlices of one syncer."""
        return [self._slices[key[1]]]

    def find_unsynced(self, _namespace: str) -> None:
        """Return None: the namespace has been listed."""

    def objects(self, _namespace: str) -> list[dict[str, Any]]:
        """Return the EndpointSlices of the namespace."""
        return list(self._slices.values())


def _pod_slice(name: str, instances: list[Instance]) -> dict[str, Any]:
    pods = [pod_and_namespace_of_id(one.instance_id)[0] for one in instances]
    endpoints = [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": pod}} for pod in pods]
    return {"metadata": {"namespace": "shop", "name": name}, "endpoints": endpoints}


class SyncerFleet:
    """Syncers, each with a Service, an EndpointSlice, a Deployment and ten pods, which are instances."""

    def __init__(self, count: int) -> None:
        names = [f"app-{number}" for number in range(count)]
        self.syncers = [_syncer(name) for name in names]
        self.instances = {
            name: [
                _instance(name, at * INSTANCES_PER_SYNCER + number) for number in range(INSTANCES_PER_SYNCER)
            ]
            for at, name in enumerate(names)
        }
        self.pods = [_pod(name, one) for name, there in self.instances.items() for one in there]
        self.reconciles = SyncerReconciles(CLUSTER, self.syncers, self.instances)
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

    def record_events(self) -> None:
        """Record a warning Event for each syncer, and count two registrations of it."""
        recorder = EventRecorder(_FakeApi(), "eurekube.io/bench", "bench")  # type: ignore[arg-type]
        recorder.start()
        for syncer in self.syncers:
            recorder.record(syncer, EventType.WARNING, "Braked", "removals are held back")
            recorder.record_instance_count(syncer, "Registered", INSTANCES_PER_SYNCER, "registered")
            recorder.record_instance_count(syncer, "Registered", INSTANCES_PER_SYNCER, "registered")
        recorder.stop(LONGEST_SECONDS)

    def write_statuses(self) -> None:
        """Report each syncer twice, and write the remaining statuses."""
        writer = StatusWriter(_FakeApi())  # type: ignore[arg-type]
        writer.start()
        synced = Problem("Synced", "")
        for registered in (0, INSTANCES_PER_SYNCER):
            report = SyncerReport(
                bool(registered),
                synced,
                is_synced=True,
                synced=synced,
                desired=INSTANCES_PER_SYNCER,
                registered=registered,
            )
            for syncer in self.syncers:
                writer.queue_report(syncer, report)
        writer.stop(LONGEST_SECONDS)

    def judge_by_brake(self) -> None:
        """Have the brake judge a plan of each syncer in which one instance has vanished."""
        view = InstanceTable()
        for there in self.instances.values():
            for one in there:
                view.store_written_and_return_previous(one)
        known = BrakeMemory(CLUSTER, [view])  # type: ignore[list-item]
        for syncer in self.syncers:
            name = syncer["metadata"]["name"]
            there = self.instances[name]
            steps, now = plan(there[1:], there, _owner(name)), time.monotonic()
            history = known.history(("shop", name), _owner(name), now, is_released=False)
            known.record_judgement_if_current(
                ("shop", name),
                now,
                judge_removals(steps.changes, history, (), DesiredInstances(), now, time.time()),
            )

    def decide_retention(self) -> None:
        """Decide about the instances of each syncer as if the syncer were refused."""
        pods = EndedPodSearch(_FakeApi(), _FakeSources(self.instances))  # type: ignore[arg-type]
        for syncer in self.syncers:
            name = syncer["metadata"]["name"]
            held, key = self.instances[name], ("shop", name)
            ended = pods.find_ended_instance_ids(key, held)
            decide(
                SyncerSituation(key, _owner(name), SyncerState.REFUSED, {"default": held}, ended_ids=ended)
            )

    def run_doctor(self) -> None:
        """Find the workloads that run the pods, and have the doctor check the whole snapshot."""
        workloads, pods = match_pods_to_workloads(self.pods, self.snapshot.workloads)
        snapshot = replace(self.snapshot, workloads=tuple(workloads), pods=pods)
        assert len(workloads) == len(self.syncers)
        assert len(pods) == len(self.pods)
        assert check_snapshot(snapshot, WorkloadRequirements(), NOW_UNIX_SECONDS)


def measure_growth(count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Measure all jobs for ``count`` syncers and for ten times as many.

    :returns: microseconds for each syncer, by job and count; and by job the ratio of the larger to the
        smaller fleet.
    """
    fleets = [SyncerFleet(count), SyncerFleet(count * GROWTH_FACTOR)]
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
        times |= {f"{name} at {count:,}": small, f"{name} at {count * GROWTH_FACTOR:,}": large}
        ratios[name] = large / small
        print_progress(f"  {name}: {large:.0f} us a syncer, {ratios[name]:.2f} times as long")
    return times, ratios


def _jobs(fleet: SyncerFleet) -> Mapping[str, Callable[[], None]]:
    return {
        "reconciles": fleet.reconciles.run,
        "Events": fleet.record_events,
        "statuses": fleet.write_statuses,
        "brake": fleet.judge_by_brake,
        "retention": fleet.decide_retention,
        "doctor": fleet.run_doctor,
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
    pod, _ = pod_and_namespace_of_id(one.instance_id)
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
