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
        ReplicaSet have.
    """

    problem_sentence: str = ""
    applies_to_whole_workload: bool = True


class DrainCheck:
    """The drain check's thread and its findings; every method may be called from any thread.

    :param needed_seconds: for how long callers may call a pod after its deletion began; 0 to check no pod.
    :param changed: called with the key of a syncer whose finding has changed.
    :param wait_quiet: waits until no more urgent work is queued, for at most the given seconds.
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
        """Stop checking pods."""
        self._stopped.set()
        self._queue.close()

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the checking thread."""
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
        pods: list[tuple[PodNameAndAddress, PodNameAndAddress]] = []
        if syncer.mode is Mode.POD:  # else callers hold the Service's address, which stays
            selected = self._sources.select_services(syncer.selector)
            pods, has_others = first_and_last_pods_of_workloads(
                choose_services(syncer, *selected).meant_slices
            )
            if not pods and not has_others:
                return  # scaled to zero, say: nothing new is known
        known: dict[PodNameAndAddress, PodDrainFinding] = {}
        for first, last in pods:
            known[first] = self._finding_of_pod(key, first, syncer)
            if last != first and not known[first].applies_to_whole_workload:
                known[last] = self._finding_of_pod(key, last, syncer)
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
        """Return why callers lose calls when the pods behind a syncer end: empty where they lose none, None
        before the first check.
        """
        with self._lock:
            return self._problems.get(key) if self._needed_seconds else ""

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that was deleted."""
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

    def _finding_of_pod(self, key: SyncerKey, pod: PodNameAndAddress, syncer: Syncer) -> PodDrainFinding:
        """Return the finding on a pod, which is read once, since its spec cannot change."""
        with self._lock:
            if known := self._known.get(key, {}).get(pod):
                return known
        self._wait_quiet(LONGEST_WAIT_FOR_URGENT_SECONDS)
        found = list_objects_by_name(self._access, PODS, pod[0], syncer.selector.namespace)
        self._stopped.wait(SECONDS_BETWEEN_POD_READS)
        return judge_pod_drain(found[0], self._needed_seconds) if found else PodDrainFinding()


def first_and_last_pods_of_workloads(
    slices: Iterable[Object],
) -> tuple[list[tuple[PodNameAndAddress, PodNameAndAddress]], bool]:
    """Return the first and the last pod of each workload in EndpointSlices, and whether endpoints exist that
    are no pods.

    Workloads are told apart by pod names: pods of a ReplicaSet, StatefulSet or DaemonSet are named alike up
    to the last dash. A rolling update replaces a StatefulSet's last pod first, and its first pod last.
    """
    ends: dict[str, tuple[tuple[int, PodNameAndAddress], tuple[int, PodNameAndAddress]]] = {}
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
            rank = (len(name), (name, str(endpoint["addresses"][0])))  # 2 before 10
            stem = name.rpartition("-")[0] or name
            first, last = ends.get(stem, (rank, rank))
            ends[stem] = min(first, rank), max(last, rank)
    chosen = sorted(ends)[:MOST_WORKLOADS_PER_SYNCER]
    return [(ends[stem][0][1], ends[stem][1][1]) for stem in chosen], has_others


def judge_pod_drain(pod: Object, needed_seconds: int) -> PodDrainFinding:
    """Return the finding on how long a pod serves after its deletion began, from its spec.

    :param needed_seconds: for how long callers may call the pod after its deletion began.
    """
    kind, subject = _workload_kind_and_title(pod)
    spec = pod.get("spec") or {}
    applies_to_whole_workload = kind in ("Deployment", "ReplicaSet")
    serves = serving_seconds_after_deletion(spec)
    if serves >= needed_seconds or is_being_deleted(pod):
        return PodDrainFinding("", applies_to_whole_workload)
    found = [f"{one.problem_sentence}: {one.remedy}" for one in find_shortfalls(spec, needed_seconds)]
    return PodDrainFinding(
        f"a rolling update loses calls: pods of {subject} serve for {serves} s after their deletion began,"
        f" and {needed_seconds} s are needed; {join_sentences(found)}",
        applies_to_whole_workload,
    )


def _workload_kind_and_title(pod: Object) -> tuple[str, str]:
    """Return the kind of a pod's workload, and its kind and name for a person; the pod's own without one."""
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    kind, name = (str(owner["kind"]), str(owner["name"])) if owner else ("Pod", str(metadata["name"]))
    template = (metadata.get("labels") or {}).get("pod-template-hash")
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    return kind, f"{kind} {metadata['namespace']}/{name}"
