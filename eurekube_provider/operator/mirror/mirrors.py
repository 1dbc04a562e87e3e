"""The controller of mirrors: their queue and workers, their reconciles while this replica leads, and their
statuses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.event_reasons import MirrorEvent
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.mirror_conditions import MirrorReport
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.objects import MIRROR_KIND, Object, is_being_deleted, mirror_allowed_to_attach
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME
from eurekube_provider.core.wording import join_sentences
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.mirror.cluster_addresses import AddressPolicyCache
from eurekube_provider.operator.mirror.concurrent_writes import MOST_CONCURRENT_WRITES
from eurekube_provider.operator.mirror.host_names import COMPARED_HOST_NAME_TTL_SECONDS, HostNameCache
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_reconciler import MirrorReconciler, MirrorResult
from eurekube_provider.operator.mirror.mirror_status import (
    STUCK_MIRROR_REASONS,
    mirror_status,
    must_write_status,
)
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from eurekube_provider.operator.progress import STALLED_RECHECK_SECONDS, is_stalled_for_reason
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache

_log = logging.getLogger(__name__)

UNLISTED_RETRY_SECONDS = 1.0
"""Seconds until a mirror is tried again while the objects of its namespace have not all been listed."""

MOST_WRITING_RECONCILES_PER_READING = 8
"""Most reconciles with writes of one mirror between two readings of Eureka. More of them mean that another
writer, such as a webhook, changes the written objects: this must not cause endless writes.
"""

LOOKUP_MERGE_SECONDS = 1.0
"""Seconds after the news of a host name until mirrors are reconciled: each write is sent to every node."""

WRITE_PAUSE_SECONDS = 30.0
"""Seconds without writes after :data:`MOST_WRITING_RECONCILES_PER_READING`, unless Eureka is read sooner."""

CONFLICT_REPORT_RETRY_DELAY_SECONDS = 8.0
"""Retry delay in seconds from which a conflict is reported: the watch does not resolve it, as where a slice
of another owner has the name of a mirror's slice.
"""

LONGEST_RECONCILE_SECONDS = 600.0
"""Seconds after which a reconcile counts as stuck."""

LONGEST_STOP_SECONDS = 5.0
"""Most seconds that :meth:`MirrorController.stop` waits for reconciles that are under way."""


class MirrorController:
    """The controller of all mirrors, with one worker for each Eureka, so that a Eureka that hangs delays no
    other Eureka's mirrors.

    :param watched: the operator's copies of Services and EndpointSlices.
    :param sources: the registries that mirrors show, by the name of their connection; none is started yet.
    :param on_reconciled: called after each reconcile with the mirror's key, its report, and its writes.
    :param is_dry: nothing is written, and ``on_reconciled`` gets the planned writes.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: KubeAccess,
        events: EventRecorder,
        watched: ClusterCache,
        sources: Mapping[str, MirrorSource],
        on_reconciled: Callable[[MirrorKey, MirrorReport | None, list[str]], None] = lambda *_: None,
        *,
        is_dry: bool = False,
    ) -> None:
        self._sources, self._watched = sources, watched
        self._on_reconciled = on_reconciled
        self._events = events
        self._queue: WorkQueue[MirrorKey] = WorkQueue()
        self.objects = MirrorObjects(access, settings.watch_namespaces, self._queue.add)
        self._writer = MirrorWriter(access, self.objects, is_dry=is_dry)
        self._names = HostNameCache(self._enqueue_after_lookup)
        # One lookup at a time, which delays no lookup for endpoints.
        self._called_names = HostNameCache(
            lambda: None, ttl_seconds=COMPARED_HOST_NAME_TTL_SECONDS, threads=1, are_needed=False
        )
        self._addresses = AddressPolicyCache(
            access,
            settings.mirror_cidrs,
            settings.cluster_cidrs,
            watched.services.objects,
            watched.slices.objects,
        )
        self._reconciler = MirrorReconciler(
            cluster,
            self.objects,
            self._writer,
            sources,
            self._addresses.policy,
            self._names,
            watched.services.get,
            others_slices=watched.slices_of_service,
            called_names=self._called_names,
            writers=1
            if is_dry
            else MOST_CONCURRENT_WRITES,  # what would be written is reported in the order of the names
        )
        self._lock = threading.Lock()
        self._reports: dict[MirrorKey, MirrorReport] = {}
        self._statuses: dict[MirrorKey, Mapping[str, object]] = {}
        self._busy_since: dict[str, float] = {}
        self._rounds: Counter[MirrorKey] = Counter()
        """Number of reconciles with writes since Eureka was last read, by mirror."""
        self._writes_paused_until: dict[MirrorKey, float] = {}
        self._queue.divide_into_groups(sources, self._worker_group_of)
        self._queue.pause_and_check_idle()
        self._workers = [
            threading.Thread(target=self._run_worker, args=(name,), name=f"mirrors-{name}", daemon=True)
            for name in sources
        ]
        watched.follow_services(self._enqueue_mirrors_of_service)
        for name, source in sources.items():
            source.call_after_reads(partial(self.enqueue_mirrors_of_eureka, name))

    def start(self) -> None:
        """Start the watches and the workers; nothing is written before :meth:`lead`."""
        self.objects.start()
        for worker in self._workers:
            worker.start()

    def lead(self) -> None:
        """Begin to reconcile every mirror."""
        self.objects.retry_now()
        self._queue.resume()
        self._enqueue_all()

    def reconcile_all_once(self, stop: threading.Event, give_up_at: float) -> list[MirrorKey]:
        """Reconcile every mirror once, or twice if host names were looked up, and wait until all are done.

        :param give_up_at: when to go on with what was listed and looked up, by the monotonic clock.
        :returns: the keys of the mirrors that existed.
        """
        while not self.objects.are_listed and time.monotonic() < give_up_at and not stop.wait(0.02):
            pass
        keys = self.objects.mirror_keys()
        self.lead()
        self._wait_until_idle(stop)
        while self._names.is_looking_up and time.monotonic() < give_up_at and not stop.wait(0.02):
            pass
        if self._names.version:
            self._enqueue_all()
            self._wait_until_idle(stop)
        return keys

    def _wait_until_idle(self, stop: threading.Event) -> None:
        while not self._queue.is_idle and not stop.wait(0.02):
            pass

    def pause_and_check_idle(self) -> bool:
        """Begin no reconcile until :meth:`lead`; return True once all reconciles that were begun have
        ended.
        """
        return self._queue.pause_and_check_idle()

    def stand_by(self) -> None:
        """Forget all that this replica learned as the leader; call after :meth:`pause_and_check_idle`."""
        self._reconciler.on_leadership_lost()
        with self._lock:
            self._reports.clear()
            self._statuses.clear()

    def stop(self) -> None:
        """Finish the reconciles that are under way, and begin no more; all slices stay in the cluster."""
        self._queue.close()
        self.objects.stop()
        self._names.close()
        self._called_names.close()
        deadline = time.monotonic() + LONGEST_STOP_SECONDS
        for worker in self._workers:
            if worker.is_alive():
                worker.join(max(0.0, deadline - time.monotonic()))

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all threads."""
        now = time.monotonic()
        return [
            *self.objects.liveness(),
            *(
                one
                for worker in self._workers
                for one in liveness_of_started_threads(
                    [worker], now - self._busy_since.get(worker.name, now), LONGEST_RECONCILE_SECONDS
                )
            ),
        ]

    def reports(self) -> dict[MirrorKey, MirrorReport]:
        """Return each mirror's last report."""
        with self._lock:
            return dict(self._reports)

    @property
    def write_counts(self) -> Counter[tuple[str, str]]:
        """Number of writes sent, by resource and verb."""
        return self._writer.counts.copy()

    def _worker_group_of(self, key: MirrorKey) -> str:
        item = self.objects.mirrors.get(*key) or {}
        named = str((item.get("spec") or {}).get("eureka") or DEFAULT_CONNECTION_NAME)
        return named if named in self._sources else next(iter(self._sources))

    def enqueue_mirrors_of_eureka(self, name: str) -> None:
        """Queue the mirrors of a Eureka, since it was read, answers again or does not answer any more."""
        for key in self.objects.mirror_keys():
            if self._worker_group_of(key) == name:
                self._clear_write_pause(key)
                self._queue.add(key)

    def _enqueue_all(self) -> None:
        for key in self.objects.mirror_keys():
            self._queue.add(key)

    def _enqueue_after_lookup(self) -> None:
        """Queue the mirrors, since a host name has other addresses: a moment later, as many names may have.

        What is written then is no fight with another writer.
        """
        for key in self.objects.mirror_keys():
            self._clear_write_pause(key)
            self._queue.add_after(key, LOOKUP_MERGE_SECONDS)

    def _enqueue_mirrors_of_service(self, service: Object) -> None:
        """Queue the mirrors that a changed Service names, since a person may have opted in or out."""
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        opted_in = mirror_allowed_to_attach(service)
        if opted_in:
            self._queue.add((namespace, opted_in))
        for one in service["metadata"].get("ownerReferences") or ():  # kept where a person took it over
            if one.get("kind") == MIRROR_KIND:
                self._queue.add((namespace, str(one["name"])))
        for item in self.objects.mirrors.objects(namespace):
            if (item.get("spec") or {}).get("attachTo") == name:
                self._queue.add((namespace, item["metadata"]["name"]))

    def _run_worker(self, group: str) -> None:
        thread = threading.current_thread().name
        while (key := self._queue.get(group)) is not None:
            self._busy_since[thread] = time.monotonic()
            try:
                if not self._is_listed(key):
                    self._queue.add_after(key, UNLISTED_RETRY_SECONDS)
                    continue
                if self._pause_writes_if_too_many(key):
                    continue
                self._publish_result(key, self._reconciler.reconcile(key))
                self._queue.forget_failures(key)
                if self._addresses.refresh_and_check_changed():
                    self._enqueue_all()
            except LeadershipLost:
                self._queue.add_after(
                    key, UNLISTED_RETRY_SECONDS
                )  # by then the queue is paused, or all mirrors are queued again
            except KubernetesError as error:
                self._retry_after_error(key, error)
            except Exception:  # noqa: BLE001 - one mirror must not stop the others
                self._queue.retry(key)
                _log.exception(
                    "failed to reconcile a mirror, retrying: endpoints not written yet stay as they are",
                    extra={"mirror": "/".join(key)},
                )
            finally:
                self._busy_since.pop(thread, None)
                self._queue.done(key)

    def _pause_writes_if_too_many(self, key: MirrorKey) -> bool:
        """Pause the writes of a mirror that wrote too often, until Eureka's next reading or for
        :data:`WRITE_PAUSE_SECONDS`, and queue it for later; return True while they are paused.
        """
        if self._rounds[key] < MOST_WRITING_RECONCILES_PER_READING or self._is_being_deleted(key):
            return False
        now = time.monotonic()
        until = self._writes_paused_until.get(key)  # any thread may clear it
        if until is None:
            until = self._writes_paused_until[key] = now + WRITE_PAUSE_SECONDS
            _log.warning(
                "stopped writing a mirror's objects until Eureka's next list: another writer changes them",
                extra={"mirror": "/".join(key)},
            )
        left = until - now
        if left <= 0.0:
            self._clear_write_pause(key)
            return False
        self._queue.add_after(key, left)
        return True

    def _clear_write_pause(self, key: MirrorKey) -> None:
        self._rounds.pop(key, None)
        self._writes_paused_until.pop(key, None)

    def _is_listed(self, key: MirrorKey) -> bool:
        """Return whether all objects of a mirror's namespace were listed, including persons' Services and
        their endpoints; of a deleted mirror, its own objects that may be read.

        Before that, a Service of ``attachTo`` that is not in the copy may still exist, and so may slices in a
        person's Service, which stay with it.
        """
        if self._is_being_deleted(key):
            return self.objects.are_listed
        groups = (self._watched.services, self._watched.slices)
        return self.objects.are_listed_in(key[0]) and all(
            group.find_unsynced(key[0]) is None for group in groups
        )

    def _is_being_deleted(self, key: MirrorKey) -> bool:
        """Return whether a mirror is being deleted."""
        item = self.objects.mirrors.get(*key)
        return item is not None and is_being_deleted(item)

    def _retry_after_error(self, key: MirrorKey, error: KubernetesError) -> None:
        """Queue a mirror again after an error, and report the error unless the watch is about to resolve
        it.
        """
        delay = self._queue.retry(key)
        if error.status_code == 409 and delay < CONFLICT_REPORT_RETRY_DELAY_SECONDS:
            return  # the local copy was old: the watch updates it
        _log.warning(
            "failed to reconcile a mirror, retrying: endpoints not written yet stay as they are",
            extra={"mirror": "/".join(key), "error": str(error), "retry_seconds": round(delay, 1)},
        )
        with self._lock:
            before = self._reports.get(key, MirrorReport())
        failure = Problem(Reason.KUBERNETES_ERROR, str(error))
        report = self._reconciler.report_after_failure(key, before, failure)
        self._publish_result(key, MirrorResult(report))

    def _publish_result(self, key: MirrorKey, result: MirrorResult) -> None:
        """Publish the result of a reconcile in Events and in the mirror's status, and queue the next
        reconcile.
        """
        written = self._writer.pop_write_descriptions(key)
        self._rounds[key] += bool(written)
        self._on_reconciled(key, result.report, written)
        if result.requeue_after_seconds is not None:
            self._queue.add_after(key, result.requeue_after_seconds)
        item = self.objects.mirrors.get(*key)
        if item is None:
            with self._lock:
                self._reports.pop(key, None)
                self._statuses.pop(key, None)
            self._clear_write_pause(key)
            return
        if result.report is None:
            return
        _, why = result.report.synced_condition
        if why.reason in STUCK_MIRROR_REASONS and not is_stalled_for_reason(item, why):
            self._queue.add_after(key, STALLED_RECHECK_SECONDS)
        with self._lock:
            self._reports[key] = result.report
            stands = self._statuses.get(key) or item.get("status") or {}
        if result.expired_instance_names:
            named = join_sentences(result.expired_instance_names)
            note = (
                f"removed, since Eureka lists them no more, though nobody could say that they left: {named}"
            )
            self._events.record(item, EventType.WARNING, MirrorEvent.REMOVED_WITHOUT_PROOF, note)
        for problem in result.report.problems.values():
            self._events.record(item, EventType.WARNING, problem.reason, problem.text)
        if result.report.failure is not None:
            self._events.record(
                item, EventType.WARNING, result.report.failure.reason, result.report.failure.message
            )
        status = mirror_status({**item, "status": stands}, result.report, datetime.now(UTC))
        if not must_write_status(stands, status):
            return
        try:
            self._writer.write_status(item, status)
        except LeadershipLost:
            return
        except KubernetesError as error:
            if error.status_code != 404:
                _log.warning(
                    "failed to write a mirror's status, retrying: the status is old until then",
                    extra={"mirror": "/".join(key), "error": str(error), "retry_seconds": 5.0},
                )
                self._queue.add_after(key, 5.0)
            return
        with self._lock:
            self._statuses[key] = status
