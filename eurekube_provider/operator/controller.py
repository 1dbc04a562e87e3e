"""The operator's workers: they choose the next syncer to reconcile, and work only while this replica leads.

The controller is level-triggered: an event says only *reconcile again*. One worker at a time reconciles a
syncer; other threads write its status and Events afterwards. Each Eureka has workers of its own, so that a
Eureka that hangs delays only its own syncers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from eurekube_provider.core.derived_syncer import split_derived_syncer_name
from eurekube_provider.core.errors import LeadershipLost, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner, parse_owner
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.objects import is_being_deleted, key_of
from eurekube_provider.core.registry import Misconfigured, Registry, reading_error
from eurekube_provider.core.syncer import connection_name
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.gates import GateOpener
from eurekube_provider.operator.history import ReconcileHistory
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.progress import (
    STALLED_RECHECK_SECONDS,
    STUCK_SYNCER_REASONS,
    is_stalled_for_reason,
)
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.registries import instances_under_other_cluster_names
from eurekube_provider.operator.reports import DecidedSituation, SyncerResult
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import StatusPublisher
from eurekube_provider.operator.unresponsive import UnresponsiveEurekaWatch

_log = logging.getLogger(__name__)

WORKERS_PER_EUREKA = 16
"""Workers of each Eureka: so many syncers' plans at most are carried out, or sent in one batch, at once."""

LONGEST_STOP_SECONDS = 10.0
"""Most seconds that :meth:`Controller.stop` waits for changes that are under way."""

LONGEST_STOP_SECONDS_IF_EUREKA_HANGS = 0.3
"""Most seconds that :meth:`Controller.stop` waits for a Eureka that does not answer: waiting takes back no
change, and the next leader waits for the Lease.
"""

LONGEST_RECONCILE_SECONDS = 600.0
"""Seconds after which a reconcile counts as stuck although Eureka answers."""


class Controller:
    """The queue and the workers that reconcile syncers, each by one worker at a time.

    :param sources: the copies of Kubernetes' objects; they have synced when :meth:`start` is called.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        registries: Mapping[str, Registry],
        sources: ClusterCache,
        reconciler: Reconciler,
        publisher: StatusPublisher,
        drain_check: DrainCheck,
        queue: WorkQueue[SyncerKey],
        previous_cluster_names: Callable[[], Collection[str]] = tuple,
        gates: GateOpener | None = None,
    ) -> None:
        self.history = ReconcileHistory()
        self.drain_check = drain_check
        self._settings = settings
        self._cluster = cluster
        self._registries = registries
        self._sources = sources
        self._reconciler = reconciler
        self._publisher = publisher
        self._queue = queue
        self._previous_names = previous_cluster_names
        self._gates = gates
        self._unresponsive = UnresponsiveEurekaWatch(
            registries, self._report_wait, self.enqueue_syncers_of_eureka, self._find_untaken_syncers
        )
        self._busy_since: dict[str, float] = {}
        self._workers = [
            (
                registry,
                threading.Thread(
                    target=self._run_worker, args=(name,), name=f"controller-{name}-{number}", daemon=True
                ),
            )
            for name, registry in registries.items()
            for number in range(WORKERS_PER_EUREKA)
        ]
        self._terms = threading.Lock()
        self._term = 0
        self._leads = self._stands_by = False
        self._taken_over: set[str] = set()
        queue.divide_into_groups(registries, self.worker_group_of)

    def start(self) -> None:
        """Start the workers, which wait for :meth:`lead`."""
        self._unresponsive.start()
        self._queue.pause_and_check_idle()
        for _, worker in self._workers:
            worker.start()

    def worker_group_of(self, key: SyncerKey) -> str:
        """Return the Eureka whose workers reconcile a syncer: its spec's, else one with its instances."""
        syncers, parent = self._sources.syncers, split_derived_syncer_name(key[1])[0]
        syncer = syncers.get(*key) or syncers.get(key[0], parent)
        if syncer is not None and (named := connection_name(syncer)) in self._registries:
            return named
        owner = self._owner_name(key)
        holding = (
            name for name, registry in self._registries.items() if registry.known_instances(owner=owner)
        )
        return next(holding, next(iter(self._registries)))

    def pause_and_check_idle(self) -> bool:
        """Begin no reconcile until :meth:`lead`; return True once all that were begun have ended."""
        with self._terms:
            self._leads = False
        self._unresponsive.end_all_waits()
        return self._queue.pause_and_check_idle()

    def start_renewals(self) -> None:
        """Begin to renew the instances of all syncers, before the first reconcile; return at once.

        Each Eureka has a thread of its own, so that a Eureka that does not answer delays no other.
        """
        self._sources.retry_now()
        wanted = self._sources.estimate_wanted_by_eureka()
        with self._terms:
            self._term += 1
            self._leads = self._stands_by = False
            self._taken_over.clear()
            for name in self._registries:
                threading.Thread(
                    target=self._start_renewals_at_eureka,
                    args=(self._term, name, wanted[name]),
                    name=f"take-over-{name}",
                    daemon=True,
                ).start()

    def _start_renewals_at_eureka(self, term: int, name: str, wanted_count: int) -> None:
        """Renew the syncers' instances at one Eureka, then reconcile its syncers if this replica leads."""
        registry = self._registries[name]
        try:
            registry.start_leading(wanted_count)
            for syncer in self._sources.syncers.objects():
                if not is_being_deleted(syncer):
                    key = key_of(syncer)
                    registry.keep_registered(
                        *registry.known_instances(owner=self._owner_name(key)),
                        *instances_under_other_cluster_names(registry, self._cluster, key),
                    )
        except Exception:  # noqa: BLE001 - its syncers must be reconciled all the same
            _log.exception(
                "failed to begin the renewals at a Eureka, reconciling its syncers instead",
                extra={"eureka": name},
            )
        with self._terms:
            if term != self._term:
                if self._stands_by:
                    registry.stand_by()
                return
            if isinstance(registry.condition(), Misconfigured):
                return
            self._taken_over.add(name)
            if self._leads:
                self._start_reconciling_at_eureka(name)

    def lead(self) -> None:
        """Queue every syncer, and every owner with instances in Eureka, after :meth:`start_renewals`.

        The workers of a Eureka begin once the renewals there have begun. Syncers that changed last come
        first: nobody has reconciled those changes yet.
        """
        with self._terms:
            self._leads = True
            for name in self._taken_over:
                self._start_reconciling_at_eureka(name)
        self.enqueue_all()

    def _start_reconciling_at_eureka(self, name: str) -> None:
        """Begin to reconcile the syncers of a Eureka, also deleted syncers that have instances there."""
        self._queue.resume(name)
        for owner in self._registries[name].owners():
            self.enqueue_syncer_of_owner(owner)

    @property
    def is_idle(self) -> bool:
        """True if every syncer has been reconciled since this replica leads, and none waits for it again."""
        with self._terms:
            return len(self._taken_over) == len(self._registries) and self._queue.is_idle

    def stand_by(self) -> None:
        """Stop renewing, and forget what the leader learned; call after :meth:`pause_and_check_idle`."""
        with self._terms:
            self._term += 1
            self._stands_by = True
        for registry in self._registries.values():
            registry.stand_by()
        for part in (self._reconciler, self._publisher, self.drain_check, self._gates, self.history):
            if part is not None:
                part.on_leadership_lost()

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all threads; a reconcile may last as long as a Eureka's time-outs."""
        now = time.monotonic()
        workers = []
        for registry, worker in self._workers:
            fails = reading_error(registry.condition()) is not None
            busy_seconds = 0.0 if fails else now - self._busy_since.get(worker.name, now)
            workers += liveness_of_started_threads([worker], busy_seconds, LONGEST_RECONCILE_SECONDS)
        gates = self._gates.liveness() if self._gates is not None else ()
        return [*workers, *self._unresponsive.liveness(), *self.drain_check.liveness(), *gates]

    def stop(self) -> None:
        """Finish the reconciles that are under way, and begin no more."""
        self._queue.close()
        self._unresponsive.stop()
        self.drain_check.stop()
        now = time.monotonic()
        for registry, worker in self._workers:
            hangs = reading_error(registry.condition()) is not None
            deadline = now + (LONGEST_STOP_SECONDS_IF_EUREKA_HANGS if hangs else LONGEST_STOP_SECONDS)
            if worker.is_alive():
                worker.join(timeout=max(0.0, deadline - time.monotonic()))

    def enqueue_syncer_of_owner(self, owner: str) -> None:
        """Queue the syncer of an owner, since its instances changed in Eureka; do nothing for an owner of
        another cluster. Former names of this cluster count as this cluster.
        """
        found = parse_owner(owner)
        if not isinstance(found, ClusterOwner) or not self._settings.watches_namespace(found.namespace):
            return
        if found.cluster == self._cluster.name or found.cluster in self._previous_names():
            self._queue.add_rested((found.namespace, found.syncer))

    def enqueue_all(self) -> None:
        """Queue every syncer for a reconcile, after the syncers that are queued because they changed."""
        for key in self._sources.syncer_keys():
            self._queue.add(key, is_change=False)

    def enqueue_syncers_of_eureka(self, name: str) -> None:
        """Queue each syncer that names a Eureka or has instances there, which was read or cannot be read."""
        for key in self._sources.syncers_at_eureka_or_being_deleted(name):
            self._queue.add(key)
        for owner in self._registries[name].owners():
            self.enqueue_syncer_of_owner(owner)

    def _run_worker(self, group: str) -> None:
        """Reconcile the queued syncers of one Eureka, until the queue is closed."""
        name = threading.current_thread().name
        while (key := self._queue.get(group)) is not None:
            started = self._busy_since[name] = time.monotonic()
            failed = True
            try:
                failed = self._reconcile_or_queue_retry(key, group, started)
            except LeadershipLost as error:
                # By then the queue is paused, or all syncers are queued again.
                self._queue.add_after(key, 1.0)
                _log.info(
                    "postponed reconciling a syncer, changing nothing: this replica may not lead any more",
                    extra={"syncer": "/".join(key), "error": str(error)},
                )
            except Exception:  # noqa: BLE001 - one syncer must not stop the others
                self._queue.retry(key)
                _log.exception(
                    "failed to reconcile a syncer, retrying: its instances that were read are renewed",
                    extra={"syncer": "/".join(key)},
                )
            finally:
                self._busy_since.pop(name, None)
                self.history.count_reconcile_result(key, time.monotonic() - started, failed=failed)
                self._queue.done(key)

    def _reconcile_or_queue_retry(self, key: SyncerKey, group: str, started: float) -> bool:
        """Reconcile one syncer and report the result; return True if it failed and was queued again."""
        self._unresponsive.begin_wait(key, (group,))
        try:
            result = self._reconciler.decide(key, group)
            if isinstance(result, DecidedSituation):
                if self._gates is not None:
                    self._gates.record_decision(result.situation, result.decision)
                self._unresponsive.begin_wait(key, result.changed_registry_names, result)
                result = self._reconciler.carry_out(result)
        finally:
            self._unresponsive.end_wait(key)
        self._queue_and_publish_result(key, result, time.monotonic() - started)
        if result.error is None:
            self._queue.forget_failures(key)
        else:
            delay = self._queue.retry(key)
            _log.warning(
                "failed to reconcile a syncer, retrying: its instances that were read are renewed",
                extra={"syncer": "/".join(key), "error": str(result.error), "retry_seconds": round(delay, 1)},
            )
        return result.error is not None

    def _queue_and_publish_result(self, key: SyncerKey, result: SyncerResult, seconds: float) -> None:
        for other in result.syncers_to_reconcile:
            self._queue.add(other)
        if result.requeue_after_seconds is not None:
            self._queue.add_after(key, result.requeue_after_seconds)
        if result.completed_deletion is not None:
            if result.syncer_object is not None:
                self._publisher.publish_deletion(result.syncer_object, result.completed_deletion)
            self._publisher.forget(key)
            self.drain_check.forget(key)
            if self._gates is not None:
                self._gates.forget(key)
            self.history.forget(key, result.completed_deletion.instances)
        self._publish_report(key, result, seconds)
        if result.applied_spec is not None:
            self.drain_check.check_soon(result.applied_spec)

    def _publish_report(self, key: SyncerKey, result: SyncerResult, seconds: float) -> None:
        item, report = result.syncer_object, result.report
        if report is None or item is None:
            return
        self._publisher.publish_reconcile(item, report, result.outcome, seconds)
        why = report.synced
        if why.reason in STUCK_SYNCER_REASONS and not is_stalled_for_reason(item, why):
            self._queue.add_after(key, STALLED_RECHECK_SECONDS)
        self.history.record_reconcile(
            key, report, result.all_differences, result.outcome, result.held_removals
        )

    def _find_untaken_syncers(self, name: str) -> list[SyncerKey]:
        """Return the syncers that nobody reconciles, since their Eureka is not taken over yet."""
        with self._terms:
            waits = self._leads and name not in self._taken_over
        return self._sources.syncers_at_eureka_or_being_deleted(name) if waits else []

    def _report_wait(
        self, key: SyncerKey, name: str, error: RegistryError, decided: DecidedSituation | None
    ) -> None:
        result = self._reconciler.result_while_waiting(key, name, error, decided)
        self._publish_report(key, result, 0.0)

    def _owner_name(self, key: SyncerKey) -> str:
        return str(ClusterOwner(self._cluster.name, *key))
