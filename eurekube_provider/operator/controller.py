"""The operator's workers: which syncer is reconciled when, and while this replica leads.

Level-triggered: an event says only *reconcile again*. One syncer is reconciled by one worker at a time; its
status and Events are written afterwards, by others. Each Eureka has workers of its own: one that hangs holds
up none of the others' syncers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

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
"""How many syncers' plans can be under way to one Eureka, or gather to travel together."""

LONGEST_STOP_SECONDS = 10.0
"""For so long the end waits for what is under way."""

HANGING_STOP_SECONDS = 0.3
"""For what is under way to a Eureka that does not answer: waiting takes back nothing of it, and the next
leader waits for the Lease."""

LONGEST_RECONCILE_SECONDS = 600.0
"""A reconcile that takes longer although Eureka answers is stuck."""


class Controller:
    """Has the syncers reconciled, each by one worker at a time.

    :param registries: by the name that ``spec.eureka`` may give.
    :param sources: they have synced when :meth:`start` is called.
    :param previous_names: asked for the former names of the cluster.
    :param gates: gets each decision; None where no readiness gate is served.
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
        """Have the workers ready for :meth:`lead`."""
        self._unresponsive.start()
        self._queue.pause()
        for _, worker in self._workers:
            worker.start()

    def worker_group_of(self, key: SyncerKey) -> str:
        """Return the Eureka whose workers reconcile a syncer: the one it names, or that has its instances."""
        syncer = self._sources.syncers.get(*key)
        if syncer is not None and (named := connection_of(syncer)) in self._registries:
            return named
        owner = self._owner(key)
        holding = (name for name, registry in self._registries.items() if registry.known(owner=owner))
        return next(holding, next(iter(self._registries)))

    def pause(self) -> bool:
        """Begin nothing until :meth:`lead`; whether all that was begun has ended."""
        with self._terms:
            self._leads = False
            return self._queue.pause()

    def take_over(self) -> None:
        """Renew at once what is there; reconcile nothing yet.

        Of each Eureka on a thread of its own: who answers is not kept waiting by who does not.
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
            _log.exception("failed to take over the renewals of a Eureka", extra={"eureka": name})
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
        """Reconcile every syncer, and what deleted ones left behind. After :meth:`take_over`.

        What changed last comes first: nobody has reconciled that yet.
        """
        with self._terms:
            self._leads = True
            for name in self._taken_over:
                self._begin(name)
        self.all_changed()

    def _begin(self, name: str) -> None:
        """Reconcile a Eureka's syncers from now on, and what deleted ones left behind there."""
        self._queue.resume(name)
        for owner in self._registries[name].owners():
            self.owner_changed(owner)

    @property
    def is_idle(self) -> bool:
        """Return whether everything has been reconciled since this replica leads."""
        with self._terms:
            return len(self._taken_over) == len(self._registries) and self._queue.is_idle

    def stand_by(self) -> None:
        """Renew no more, and forget what only holds for who leads: another replica does. After pause()."""
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
        """Tell of all threads. While a Eureka is away a reconcile may take as long as its time-outs do."""
        now = time.monotonic()
        workers = []
        for registry, worker in self._workers:
            fails = failure_of(registry.condition()) is not None
            busy_seconds = 0.0 if fails else now - self._busy_since.get(worker.name, now)
            workers += liveness_of([worker], busy_seconds, LONGEST_RECONCILE_SECONDS)
        gates = self._gates.liveness() if self._gates is not None else ()
        return [*workers, *self._unresponsive.liveness(), *self.drain_check.liveness(), *gates]

    def stop(self) -> None:
        """Finish what is being worked on, and begin nothing more."""
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
        """Have a syncer reconciled, by whatever name of its cluster: something of it changed in Eureka."""
        found = parse_owner(owner)
        if not isinstance(found, ClusterOwner) or not self._settings.watches(found.namespace):
            return
        if found.cluster == self._cluster.name or found.cluster in self._previous_names():
            self._queue.add((found.namespace, found.syncer))

    def all_changed(self) -> None:
        """Reconcile every syncer again, what changed before first."""
        for key in self._sources.syncer_keys():
            self._queue.add(key, is_news=False)

    def registry_changed(self, name: str) -> None:
        """Reconcile each syncer that registers or has something at a Eureka that was read, or cannot be."""
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
                    "reconcile of a syncer ended: this replica does not lead any more",
                    extra={"syncer": "/".join(key), "error": str(error)},
                )
            except Exception:  # noqa: BLE001 - one syncer must not stop the others
                self._queue.retry(key)
                _log.exception("reconcile of a syncer failed, retrying", extra={"syncer": "/".join(key)})
            finally:
                self._busy_since.pop(name, None)
                self.history.count(key, time.monotonic() - started, failed=failed)
                self._queue.done(key)

    def _reconcile(self, key: SyncerKey, group: str, started: float) -> bool:
        """Reconcile one syncer, and let everybody know; returns whether it must be tried again."""
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
        self._take(key, result, time.monotonic() - started)
        if result.error is None:
            self._queue.forget_failures(key)
        else:
            delay = self._queue.retry(key)
            _log.warning(
                "reconcile of a syncer failed, retrying",
                extra={"syncer": "/".join(key), "error": str(result.error), "retry_seconds": round(delay, 1)},
            )
        return result.error is not None

    def _take(self, key: SyncerKey, result: SyncerResult, seconds: float) -> None:
        """Do what a reconcile came to: what else is to be reconciled, and what is reported to people."""
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
        """A Eureka is silent: while it is being taken over nobody reconciles its syncers, so they say so."""
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
        """Report to people while nothing is done."""
        if result.report is not None and result.syncer is not None:
            self._publisher.publish(result.syncer, result.report)
            self.history.record(key, result.report, result.differing, result.outcome, result.held_back)

    def _owner(self, key: SyncerKey) -> str:
        return str(ClusterOwner(self._cluster.name, *key))
