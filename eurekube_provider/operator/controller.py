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

from eurekube_provider.core.derived_syncer import split_derived_name
from eurekube_provider.core.errors import LeadershipLost, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner, parse_owner
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.registry import Refused, Registry, failure_of
from eurekube_provider.core.syncer import connection_of, is_deleted
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.gates import Gates
from eurekube_provider.operator.history import ReconcileHistory
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.progress import RECHECK_SECONDS, STUCK, is_stalled
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.registries import called_otherwise
from eurekube_provider.operator.reports import Decided, SyncerResult
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources
from eurekube_provider.operator.status import StatusPublisher
from eurekube_provider.operator.unresponsive import UnresponsiveWatch

_log = logging.getLogger(__name__)

WORKERS = 16
"""Number of workers for each Eureka: so many syncers' plans can be under way, or be sent in one batch."""

LONGEST_STOP_SECONDS = 10.0
"""Most seconds that :meth:`Controller.stop` waits for changes that are under way."""

HANGING_STOP_SECONDS = 0.3
"""Most seconds that :meth:`Controller.stop` waits for a Eureka that does not answer: waiting takes back no
change, and the next leader waits for the Lease.
"""

LONGEST_RECONCILE_SECONDS = 600.0
"""Seconds after which a reconcile counts as stuck although Eureka answers."""


class Controller:
    """The queue and the workers that reconcile syncers, each by one worker at a time.

    :param registries: by the name that ``spec.eureka`` may give.
    :param sources: the copies of Kubernetes' objects; they have synced when :meth:`start` is called.
    :param previous_names: returns the former names of the cluster.
    :param gates: receives each decision; None where no readiness gate is served.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        registries: Mapping[str, Registry],
        sources: Sources,
        reconciler: Reconciler,
        publisher: StatusPublisher,
        drain_check: DrainCheck,
        queue: WorkQueue[SyncerKey],
        previous_names: Callable[[], Collection[str]] = tuple,
        gates: Gates | None = None,
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
        self._previous_names = previous_names
        self._gates = gates
        self._unresponsive = UnresponsiveWatch(registries, self._hangs, self.registry_changed)
        self._busy_since: dict[str, float] = {}
        self._workers = [
            (
                registry,
                threading.Thread(
                    target=self._work, args=(name,), name=f"controller-{name}-{number}", daemon=True
                ),
            )
            for name, registry in registries.items()
            for number in range(WORKERS)
        ]
        self._terms = threading.Lock()
        self._term = 0
        self._leads = self._stands_by = False
        self._taken_over: set[str] = set()
        self._reported_unresponsive: set[SyncerKey] = set()
        queue.divide(registries, self.worker_group_of)

    def start(self) -> None:
        """Start the workers, which wait for :meth:`lead`."""
        self._unresponsive.start()
        self._queue.pause()
        for _, worker in self._workers:
            worker.start()

    def worker_group_of(self, key: SyncerKey) -> str:
        """Return the Eureka whose workers reconcile a syncer: the one that its spec names, or that holds
        its instances.
        """
        syncers, parent = self._sources.syncers, split_derived_name(key[1])[0]
        syncer = syncers.get(*key) or syncers.get(key[0], parent)
        if syncer is not None and (named := connection_of(syncer)) in self._registries:
            return named
        owner = self._owner(key)
        holding = (name for name, registry in self._registries.items() if registry.known(owner=owner))
        return next(holding, next(iter(self._registries)))

    def pause(self) -> bool:
        """Begin no reconcile until :meth:`lead`; return whether all reconciles that were begun have ended."""
        with self._terms:
            self._leads = False
            return self._queue.pause()

    def take_over(self) -> None:
        """Renew the syncers' instances at once, and reconcile nothing yet.

        Each Eureka has a thread of its own, so that one that does not answer delays no other.
        """
        self._sources.retry_now()
        wanted = self._sources.wanted_at()
        with self._terms:
            self._term += 1
            self._leads = self._stands_by = False
            self._taken_over.clear()
            self._reported_unresponsive.clear()
            for name in self._registries:
                threading.Thread(
                    target=self._take_over,
                    args=(self._term, name, wanted[name]),
                    name=f"take-over-{name}",
                    daemon=True,
                ).start()

    def _take_over(self, term: int, name: str, wanted: int) -> None:
        registry = self._registries[name]
        try:
            registry.take_over(wanted)
            for syncer in self._sources.syncers.objects():
                if not is_deleted(syncer):
                    key = key_of(syncer)
                    there = registry.known(owner=self._owner(key))
                    for instance in (*there, *called_otherwise(registry, self._cluster, key)):
                        registry.keep(instance)
        except Exception:  # noqa: BLE001 - its syncers must be reconciled all the same
            _log.exception(
                "failed to take over the renewals of a Eureka: reconciling its syncers instead",
                extra={"eureka": name},
            )
        with self._terms:
            if term != self._term:
                if self._stands_by:
                    registry.stand_by()
                return
            if isinstance(registry.condition(), Refused):
                return
            self._taken_over.add(name)
            if self._leads:
                self._begin(name)

    def lead(self) -> None:
        """Queue every syncer, and what deleted syncers left behind, for the workers; call after
        :meth:`take_over`. Return at once.

        A Eureka whose take-over has not finished begins when it has.

        Syncers that changed last come first: nobody has reconciled those changes yet.
        """
        with self._terms:
            self._leads = True
            for name in self._taken_over:
                self._begin(name)
        self.all_changed()

    def _begin(self, name: str) -> None:
        """Begin to reconcile the syncers of a Eureka, and what deleted syncers left behind there."""
        self._queue.resume(name)
        for owner in self._registries[name].owners():
            self.owner_changed(owner)

    @property
    def is_idle(self) -> bool:
        """True if every syncer has been reconciled since this replica leads."""
        with self._terms:
            return len(self._taken_over) == len(self._registries) and self._queue.is_idle

    def stand_by(self) -> None:
        """Stop renewing and forget the leader's memory, since another replica leads; call after
        :meth:`pause`.
        """
        with self._terms:
            self._term += 1
            self._stands_by = True
        for registry in self._registries.values():
            registry.stand_by()
        self._reconciler.forget_all()
        self._publisher.forget_all()
        self.drain_check.forget_all()
        if self._gates is not None:
            self._gates.forget_all()
        self.history.forget_all()

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all threads; while a Eureka is away, a reconcile may last as long as its
        time-outs.
        """
        now = time.monotonic()
        workers = []
        for registry, worker in self._workers:
            fails = failure_of(registry.condition()) is not None
            busy_seconds = 0.0 if fails else now - self._busy_since.get(worker.name, now)
            workers += liveness_of([worker], busy_seconds, LONGEST_RECONCILE_SECONDS)
        gates = self._gates.liveness() if self._gates is not None else ()
        return [*workers, *self._unresponsive.liveness(), *self.drain_check.liveness(), *gates]

    def stop(self) -> None:
        """Finish the reconciles that are under way, and begin no more."""
        self._queue.close()
        self._unresponsive.stop()
        self.drain_check.stop()
        now = time.monotonic()
        for registry, worker in self._workers:
            hangs = failure_of(registry.condition()) is not None
            deadline = now + (HANGING_STOP_SECONDS if hangs else LONGEST_STOP_SECONDS)
            if worker.is_alive():
                worker.join(timeout=max(0.0, deadline - time.monotonic()))

    def owner_changed(self, owner: str) -> None:
        """Queue the syncer of an owner whose instances changed in Eureka, also under a former name of the
        cluster.
        """
        found = parse_owner(owner)
        if not isinstance(found, ClusterOwner) or not self._settings.watches(found.namespace):
            return
        if found.cluster == self._cluster.name or found.cluster in self._previous_names():
            self._queue.add((found.namespace, found.syncer))

    def all_changed(self) -> None:
        """Queue every syncer for a reconcile; those queued because they changed come first."""
        for key in self._sources.syncer_keys():
            self._queue.add(key, is_news=False)

    def registry_changed(self, name: str) -> None:
        """Queue each syncer that registers at a Eureka or has instances there: this Eureka was read, or
        cannot be read.
        """
        for key in self._sources.syncers_at(name):
            self._queue.add(key)
        for owner in self._registries[name].owners():
            self.owner_changed(owner)

    def _work(self, group: str) -> None:
        name = threading.current_thread().name
        while (key := self._queue.get(group)) is not None:
            started = self._busy_since[name] = time.monotonic()
            failed = True
            try:
                failed = self._reconcile(key, group, started)
            except LeadershipLost as error:
                self._queue.add_after(key, 1.0)  # by then the queue is paused, or all is reconciled again
                _log.info(
                    "postponed reconciling a syncer: this replica may not lead any more",
                    extra={"syncer": "/".join(key), "error": str(error)},
                )
            except Exception:  # noqa: BLE001 - one syncer must not stop the others
                self._queue.retry(key)
                _log.exception("failed to reconcile a syncer, retrying", extra={"syncer": "/".join(key)})
            finally:
                self._busy_since.pop(name, None)
                self.history.count(key, time.monotonic() - started, failed=failed)
                self._queue.done(key)

    def _reconcile(self, key: SyncerKey, group: str, started: float) -> bool:
        """Reconcile one syncer and report the result; return whether the reconcile failed and is tried
        again.
        """
        reports = self._reconciler.reports
        with self._unresponsive.watched(
            key, [group], lambda error: self._say(key, reports.unresponsive(key, group, error))
        ):
            decided = self._reconciler.decide(key, group)
        if isinstance(decided, Decided):
            if self._gates is not None:
                self._gates.note(decided.situation, decided.decision)
            with self._unresponsive.watched(
                key, decided.asked, lambda error: self._say(key, reports.waiting(decided, error))
            ):
                result = self._reconciler.carry_out(decided)
        else:
            result = decided
        self._apply_result(key, result, time.monotonic() - started)
        if result.error is None:
            self._queue.forget_failures(key)
        else:
            delay = self._queue.retry(key)
            _log.warning(
                "failed to reconcile a syncer, retrying",
                extra={"syncer": "/".join(key), "error": str(result.error), "retry_seconds": round(delay, 1)},
            )
        return result.error is not None

    def _apply_result(self, key: SyncerKey, result: SyncerResult, seconds: float) -> None:
        """Queue the syncers that a reconcile's result concerns, and publish its status and Events."""
        for other in result.concerned:
            self._queue.add(other)
        if result.again_seconds is not None:
            self._queue.add_after(key, result.again_seconds)
        if result.ended is not None:
            if result.syncer is not None:
                self._publisher.publish_end(result.syncer, result.ended)
            self._publisher.forget(key)
            self.drain_check.forget(key)
            if self._gates is not None:
                self._gates.forget(key)
            self.history.forget(key, result.ended.instances)
        if result.report is not None and result.syncer is not None:
            self._publisher.publish_reconcile(result.syncer, result.report, result.outcome, seconds)
            why = result.report.synced
            if why.reason in STUCK and not is_stalled(result.syncer, why):
                self._queue.add_after(key, RECHECK_SECONDS)
            self.history.record(key, result.report, result.differing, result.outcome, result.held_back)
        if result.asked is not None:
            self.drain_check.check_soon(result.asked)

    def _hangs(self, name: str, error: RegistryError) -> None:
        """Report a silent Eureka in the status of its syncers, which nobody reconciles during its
        take-over.
        """
        with self._terms:
            waits = self._leads and name not in self._taken_over
        for key in self._sources.syncers_at(name) if waits else ():
            with self._terms:  # held, so that no reconcile is overtaken
                if not self._leads or name in self._taken_over:
                    return
                if key not in self._reported_unresponsive:
                    self._reported_unresponsive.add(key)
                    self._say(key, self._reconciler.reports.unresponsive(key, name, error))

    def _say(self, key: SyncerKey, result: SyncerResult) -> None:
        """Publish a report about a syncer while its reconcile waits."""
        if result.report is not None and result.syncer is not None:
            self._publisher.publish(result.syncer, result.report)
            self.history.record(key, result.report, result.differing, result.outcome, result.held_back)

    def _owner(self, key: SyncerKey) -> str:
        return str(ClusterOwner(self._cluster.name, *key))
