"""The check that the pods behind each syncer serve for as long as callers still call them.

The controller schedules a check of each syncer that it has reconciled. A few seconds later the check's own
thread reads one or two pods of each workload behind the syncer. The check never delays a registration, and
keeps sentences, not pods.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.objects import Object, is_being_deleted, is_terminating
from eurekube_provider.core.prestop import serving_seconds_after_deletion
from eurekube_provider.core.service_choice import choose_services
from eurekube_provider.core.shortfall import find_shortfalls
from eurekube_provider.core.syncer import Mode, Syncer
from eurekube_provider.core.wording import join_sentences
from eurekube_provider.kube.access import PODS, KubeAccess, list_objects_by_name
from eurekube_provider.kube.rate_limiter import LONGEST_WAIT_FOR_URGENT_SECONDS
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.sources import ClusterCache

_log = logging.getLogger(__name__)

CHECK_DELAY_SECONDS = 5.0
"""Seconds between a reconcile and its check; changes in that time are checked together."""

RETRY_SECONDS = 300.0
"""Seconds until the next check after one that failed, such as for a pod that cannot be read."""

SECONDS_BETWEEN_POD_READS = 0.1
"""Seconds between two reads of pods: a start with a thousand syncers reads ten pods a second."""

MOST_WORKLOADS_PER_SYNCER = 4
"""Most workloads that are checked behind one syncer; a Deployment in mid-rollout counts as two."""

PodNameAndAddress = tuple[str, str]
"""Name and IP address of a pod: the address tells apart two pods of a StatefulSet that had one name."""


@dataclass(frozen=True, slots=True)
class PodDrainFinding:
    """The finding on how long a pod serves after its deletion began, from the pod's spec.

    :ivar problem_sentence: why callers lose calls when the pod ends; empty where they lose none.
    :ivar applies_to_whole_workload: True if all pods of the workload have the same spec, as those of a
        ReplicaSet have that is named after its template.
    """

    problem_sentence: str = ""
    applies_to_whole_workload: bool = True


class DrainCheck:
    """The drain check's thread and its findings; every method may be called from any thread.

    :param needed_seconds: for how long callers may call a pod after its deletion began; 0 to check no pod.
    """

    def __init__(
        self,
        access: KubeAccess,
        sources: ClusterCache,
        needed_seconds: int,
        changed: Callable[[SyncerKey], None],
        wait_quiet: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._access = access
        self._needed_seconds = needed_seconds
        self._changed = changed
        self._wait_quiet = wait_quiet
        self._sources = sources
        self._queue: WorkQueue[SyncerKey] = WorkQueue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._specs: dict[SyncerKey, Syncer] = {}
        self._known: dict[SyncerKey, dict[PodNameAndAddress, PodDrainFinding]] = {}
        self._problems: dict[SyncerKey, str] = {}
        self._thread = threading.Thread(target=self._run, name="drains", daemon=True)

    def start(self) -> None:
        """Start the checking thread; the sources must have synced."""
        if self._needed_seconds:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._queue.close()

    def liveness(self) -> list[Liveness]:
        return liveness_of_started_threads([self._thread])

    def check_soon(self, syncer: Syncer) -> None:
        """Schedule a check of a syncer's pods, since its endpoints may have changed; return at once."""
        if not self._needed_seconds:
            return
        key = (syncer.namespace, syncer.name)
        self._specs[key] = syncer
        self._queue.add_after(key, CHECK_DELAY_SECONDS)

    def check_now(self, syncer: Syncer) -> None:
        """Check the pods behind a syncer now.

        :raises KubernetesError: a pod cannot be read.
        """
        key = (syncer.namespace, syncer.name)
        workloads: list[list[PodNameAndAddress]] = []
        if syncer.mode is Mode.POD:  # else callers hold the Service's address, which stays
            selected = self._sources.select_services(syncer.selector)
            workloads, has_others = pods_of_workloads(choose_services(syncer, *selected).meant_slices)
            if not workloads and not has_others:
                return  # scaled to zero, say: nothing new is known
        with self._lock:
            known_before = self._known.get(key, {})
        known: dict[PodNameAndAddress, PodDrainFinding] = {}
        for pods in workloads:
            known |= self._findings_of_workload(pods, known_before, syncer)
        found = (one.problem_sentence for one in known.values())
        problem = join_sentences(list(dict.fromkeys(filter(None, found))))
        if self._sources.syncers.get(*key) is None:
            return
        with self._lock:
            before = self._problems.get(key)
            self._known[key], self._problems[key] = known, problem
        if problem != before:
            self._changed(key)

    def problem_sentence(self, key: SyncerKey) -> str | None:
        """Return why calls are lost when a syncer's pods end: empty for none, None before the first check."""
        with self._lock:
            return self._problems.get(key) if self._needed_seconds else ""

    def forget(self, key: SyncerKey) -> None:
        with self._lock:
            for table in (self._specs, self._known, self._problems):
                table.pop(key, None)

    def on_leadership_lost(self) -> None:
        """Forget all findings: another replica checks from now on."""
        with self._lock:
            for table in (self._specs, self._known, self._problems):
                table.clear()

    def _run(self) -> None:
        while (key := self._queue.get()) is not None:
            try:
                if (syncer := self._specs.get(key)) is not None:
                    self.check_now(syncer)
            except Exception as error:  # noqa: BLE001 - the thread must go on, also with this syncer
                is_expected = isinstance(error, KubernetesError)
                _log.log(
                    logging.WARNING if is_expected else logging.ERROR,
                    "failed to check how long a syncer's pods serve after their deletion began, retrying",
                    extra={"syncer": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS},
                    exc_info=not is_expected,
                )
                self._queue.add_after(key, RETRY_SECONDS)
            self._queue.done(key)

    def _findings_of_workload(
        self,
        pods: list[PodNameAndAddress],
        known: Mapping[PodNameAndAddress, PodDrainFinding],
        syncer: Syncer,
    ) -> dict[PodNameAndAddress, PodDrainFinding]:
        """Return the finding on one pod, or those on the first and the last where pods may differ.

        A pod is read once, since its spec cannot change, and speaks for its workload for as long as it lives,
        whichever pods come and go beside it.
        """
        chosen = [one for one in pods if one in known] or pods[-1:]
        found = {one: known.get(one) or self._read_pod(one[0], syncer) for one in chosen}
        if all(one.applies_to_whole_workload for one in found.values()):
            return found
        ends = dict.fromkeys((pods[0], pods[-1]))
        return {one: found.get(one) or self._read_pod(one[0], syncer) for one in ends}

    def _read_pod(self, name: str, syncer: Syncer) -> PodDrainFinding:
        self._wait_quiet(LONGEST_WAIT_FOR_URGENT_SECONDS)
        found = list_objects_by_name(self._access, PODS, name, syncer.selector.namespace)
        self._stopped.wait(SECONDS_BETWEEN_POD_READS)
        return judge_pod_drain(found[0], self._needed_seconds) if found else PodDrainFinding()


def pods_of_workloads(slices: Iterable[Object]) -> tuple[list[list[PodNameAndAddress]], bool]:
    """Return the pods of each workload in EndpointSlices, by number, and whether other endpoints exist.

    Workloads are told apart by pod names: pods of a ReplicaSet, StatefulSet or DaemonSet are named alike up
    to the last dash. A rolling update replaces a StatefulSet's last pod first, and its first pod last.
    """
    pods_by_stem: dict[str, list[PodNameAndAddress]] = {}
    has_others = False
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.get("endpoints") or ():
            if is_terminating(endpoint):
                continue  # nothing fixes it any more
            target: Mapping[str, Any] = endpoint.get("targetRef") or {}
            if target.get("kind") != "Pod" or not target.get("name"):
                has_others = True
                continue
            name = str(target["name"])
            stem = name.rpartition("-")[0] or name
            pods_by_stem.setdefault(stem, []).append((name, str(endpoint["addresses"][0])))
    chosen = sorted(pods_by_stem)[:MOST_WORKLOADS_PER_SYNCER]
    # 2 before 10
    return [sorted(pods_by_stem[stem], key=lambda pod: (len(pod[0]), pod)) for stem in chosen], has_others


def judge_pod_drain(pod: Object, needed_seconds: int) -> PodDrainFinding:
    """Return the finding on how long a pod serves after its deletion began, from its spec."""
    subject, applies_to_whole_workload = _workload_title_and_uniformity(pod)
    spec = pod.get("spec") or {}
    serves = serving_seconds_after_deletion(spec)
    if serves >= needed_seconds or is_being_deleted(pod):
        return PodDrainFinding("", applies_to_whole_workload)
    found = [f"{one.problem_sentence}: {one.remedy}" for one in find_shortfalls(spec, needed_seconds)]
    return PodDrainFinding(
        f"a rolling update loses calls: pods of {subject} serve for {serves} s after their deletion began,"
        f" and {needed_seconds} s are needed; {join_sentences(found)}",
        applies_to_whole_workload,
    )


def _workload_title_and_uniformity(pod: Object) -> tuple[str, bool]:
    """Return the kind and name of a pod's workload for a person, or the pod's own without one; and whether
    all its pods have the same spec: a bare ReplicaSet keeps the pods of its former template.
    """
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    kind, name = (str(owner["kind"]), str(owner["name"])) if owner else ("Pod", str(metadata["name"]))
    labels = metadata.get("labels") or {}
    # An Argo Rollout's label has another prefix.
    hashes = [value for label, value in labels.items() if label.endswith("pod-template-hash")]
    is_uniform = kind == "ReplicaSet" and any(name.endswith(f"-{one}") for one in hashes if one)
    if is_uniform and (template := labels.get("pod-template-hash")):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    return f"{kind} {metadata['namespace']}/{name}", is_uniform
