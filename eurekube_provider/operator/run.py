"""The operator's parts, started and stopped in a safe order.

The copies of the cluster's objects are complete and the registries are read before anything is changed.
Changes that are under way end before the Lease is released, and renewals end after it.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eurekube_provider.core.errors import ConfigurationError, EurekubeError, KubernetesError
from eurekube_provider.core.event_reasons import ServiceEvent
from eurekube_provider.core.identity import Cluster, ClusterOwner, check_cluster_name, default_cluster_name
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.objects import Object, key_of
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Misconfigured, NeverRead, Registry, reading_error
from eurekube_provider.core.syncer import awaits_finalizer_removal
from eurekube_provider.kube.access import LEASES, NAMESPACES, KubeAccess, is_api_unavailable
from eurekube_provider.kube.elector import Elector
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.kube.rate_limiter import LONGEST_STOP_DELAY_SECONDS
from eurekube_provider.kube.reflector import DENIAL_SETTLE_SECONDS
from eurekube_provider.operator import selfcheck
from eurekube_provider.operator.blind_renewals import LeaseWatch, RenewalsWithoutKubernetes
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.derived_syncers import DerivedSyncerController
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.dry_run import (
    LONGEST_FINAL_WRITE_SECONDS_OF_ONCE,
    LONGEST_READ_WAIT_SECONDS,
    DryRunAccess,
    RecordingRegistry,
    RunReport,
)
from eurekube_provider.operator.gates import GateOpener
from eurekube_provider.operator.hand_over import HandOver
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.leadership import DuplicateOperatorCheck, Leadership, find_lease_namespace
from eurekube_provider.operator.lease_memory import LeaseMemory
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.registries import REGISTRY_FACTORY_BY_CONNECTION_CLASS
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import StatusPublisher, StatusWriter
from eurekube_provider.operator.triggers.triggers import StackRefreshController
from eurekube_provider.operator.unserved import UnservedSyncerSearch
from eurekube_provider.operator.web.http_server import WebServer, parse_address
from eurekube_provider.operator.web.routes import WebRoutes
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.runtime.garbage_collection import freeze_objects_and_collect_rarely
from eurekube_provider.runtime.memory_allocation import give_back_freed_memory
from eurekube_provider.version import __version__

if TYPE_CHECKING:
    from eurekube_provider.operator.mirror.mirrors import MirrorController

_log = logging.getLogger("eurekube_provider.operator")

API_RETRY_SECONDS = 2.0

_SECONDS_BETWEEN_UNREAD_WARNINGS = 10.0

THREAD_SWITCH_SECONDS = 0.001
"""Seconds after which a busy thread, such as one that parses a list, lets another thread run.

A change waits for other threads several times on its way to Eureka; Python's default is 5 ms each time.
"""

SILENT_EUREKA_WAIT_SECONDS = 1.0
"""Seconds that the start waits for a Eureka without an answer once another Eureka was read."""


def run(settings: Settings, stop: threading.Event, run_report: RunReport | None = None) -> None:
    """Run the operator until ``stop`` is set, and deregister nothing at the end.

    :param run_report: records every plan; its settings decide whether plans are carried out, and whether the
        operator ends once everything was reconciled. With a report there is no web server and no trigger.
    :raises EurekubeError: it cannot start: no cluster, a cluster name in use, a web address in use.
    """
    give_back_freed_memory()
    blind = RenewalsWithoutKubernetes(settings) if run_report is None else None
    routes = WebRoutes(blind, has_status_page=settings.status_page)
    address = parse_address(settings.web_address) if run_report is None else None
    web = WebServer(address, routes) if address else None
    if web:
        web.start()  # before anything is waited for: a start that takes long is no reason for a restart
        _log.info("web server listens, serving health and metrics", extra={"port": web.port})
    self_check = selfcheck.BackgroundSelfCheck(settings)
    give_up_at = (
        time.monotonic() + LONGEST_READ_WAIT_SECONDS if run_report and run_report.is_once else math.inf
    )
    try:
        parts = _assemble_parts(settings, stop, routes, run_report, self_check, blind, give_up_at)
        if parts is not None:
            parts.run(stop, give_up_at)
    finally:
        self_check.close()
        if blind:
            blind.stop()
        if web:
            web.stop()


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """One part of the operator, a row of the table of parts.

    :ivar start: called before anything was read.
    :ivar start_once_read: called once the cluster's objects and the registries were read.
    :ivar stop: called in the order of :data:`PART_NAMES_IN_STOP_ORDER`, even if no start was.
    """

    name: str
    start: Callable[[], object] = lambda: None
    start_once_read: Callable[[], object] = lambda: None
    stop: Callable[[], object] = lambda: None


PART_NAMES_IN_STOP_ORDER = (
    "routes",
    "duplicates",
    "hand-over",
    "unserved",
    "sources",
    "leadership",
    "triggers",
    "gates",
    "controller",
    "mirrors",
    "Lease",
    "statuses",
    "events",
    "registries",
    "stack runs",
)
"""The order in which parts are stopped: first the parts that begin changes, then the Lease, then renewals.

A stack's run ends last: it takes long, and no other part waits for it.
"""


@dataclass(frozen=True, slots=True)
class _OperatorParts:
    """The operator's parts, connected with each other.

    :ivar parts_in_start_order: all parts, in the order of the start.
    :ivar main_task: reconciles until the operator is asked to stop, or once.
    :ivar on_unread: see :func:`wait_until_read`.
    """

    parts_in_start_order: tuple[OperatorPart, ...]
    main_task: Callable[[], None]
    sources: ClusterCache
    registries: Mapping[str, Registry]
    duplicates: DuplicateOperatorCheck | None
    on_unread: Callable[[Collection[KubernetesError]], None]

    def run(self, stop: threading.Event, give_up_at: float) -> None:
        """Start all parts, work, and stop all parts."""
        try:
            for part in self.parts_in_start_order:
                part.start()
            if wait_until_read(self.sources, self.registries, stop, give_up_at, self.on_unread):
                for part in self.parts_in_start_order:
                    part.start_once_read()
                freeze_objects_and_collect_rarely()
                sys.setswitchinterval(THREAD_SWITCH_SECONDS)
                _log.info(
                    "operator is ready, reconciling as soon as it leads",
                    extra={"syncers": len(self.sources.syncer_keys())},
                )
                self.main_task()
            self._raise_if_misconfigured_or_duplicate()
        finally:
            _log.info(
                "stopping the operator: deregistering nothing; without another replica, instances in Eureka"
                " lapse, and those in ZooKeeper stay"
            )
            for part in sorted(
                self.parts_in_start_order, key=lambda one: PART_NAMES_IN_STOP_ORDER.index(one.name)
            ):
                part.stop()

    def _raise_if_misconfigured_or_duplicate(self) -> None:
        for one in self.registries.values():
            if isinstance(condition := one.condition(), Misconfigured):
                raise condition.why
        if self.duplicates and self.duplicates.refusal:
            raise self.duplicates.refusal


def _assemble_parts(
    settings: Settings,
    stop: threading.Event,
    routes: WebRoutes,
    run_report: RunReport | None,
    self_check: selfcheck.BackgroundSelfCheck,
    blind: RenewalsWithoutKubernetes | None,
    give_up_at: float,
) -> _OperatorParts | None:
    """Return the parts, connected but not started; None when the operator is asked to stop meanwhile.

    A part that this operator does not need is None, and has no row in the table.
    """
    started_at = time.time()
    is_dry = run_report is not None and run_report.is_dry
    is_elected = settings.leader_elect and not is_dry
    access = (DryRunAccess if is_dry else KubeAccess).load(settings.kubeconfig, settings.context)
    lease = settings.lease_namespace_and_name(access.namespace)
    lease_watch = LeaseWatch(access, lease if is_elected else None, settings.lease_duration_seconds)
    try:
        cluster = _wait_for_cluster_identity(settings, access, stop, give_up_at, blind, lease_watch)
    except KubernetesError:
        self_check.run_now_and_wait(LONGEST_READ_WAIT_SECONDS)
        raise
    if cluster is None:
        return None
    may_be_elsewhere = settings.lease_namespace is None and not access.is_in_cluster
    if run_report is not None and settings.leader_elect and may_be_elsewhere:
        try:
            lease = find_lease_namespace(access, *lease), lease[1]
        except ConfigurationError as error:
            if is_elected:
                hint = "if no operator can be running any more, do without it: --without-lease"
                raise ConfigurationError(f"{error}; {hint}") from None
        except KubernetesError:
            if is_elected:
                raise
    duplicates = None
    if run_report is None and is_elected and may_be_elsewhere:
        duplicates = DuplicateOperatorCheck(access, *lease, settings.lease_duration_seconds, stop.set)
        if not _check_duplicates_until_api_answers(duplicates, stop):
            return None
    # A container that is restarted in its pod is another one.
    identity = f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
    registries: dict[str, Registry] = {}
    memory = LeaseMemory(settings, cluster, registries, is_long_running=run_report is None)
    _load_lease_annotations(memory, access, lease)
    elector = None
    hand_over = HandOver(identity, registries, lambda: sources.is_current)
    if is_elected:
        elector = Elector(
            access,
            *lease,
            identity,
            settings.lease_timing,
            make_metadata=lambda metadata: hand_over.add_note(memory.add_notes(metadata)),
        )
    leadership = Leadership(elector, hand_over.find_successor)
    if not is_dry:
        access = access.with_write_check(leadership.may_write)
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events = EventRecorder(access, "eurekube.io/operator", settings.pod_name, queue.wait_drained)
    statuses = StatusWriter(access, queue.wait_drained)
    registries |= _create_registries(settings, cluster, leadership, run_report)
    sources = ClusterCache(
        access,
        cluster,
        settings.watch_namespaces,
        queue.add,
        statuses.is_overwritten,
        settings.watched_gate_namespaces,
        queue.add_after,
        settings.advertise_from,
        statuses.forget,
    )
    derived = DerivedSyncerController(
        access, sources, partial(_record_refusal_event, events), waits=run_report is not None
    )
    gates = None
    if settings.watched_gate_namespaces and run_report is None:
        gates = GateOpener(
            access,
            sources,
            registries,
            settings.seconds_until_callers_know_pods,
            events,
            queue.add,
            leadership.may_write,
            settings.may_select,
            derived.is_service_refused,
        )
    drain_check = DrainCheck(access, sources, settings.needed_drain_seconds, queue.add, queue.wait_drained)
    reconciler = Reconciler(
        settings,
        cluster,
        access,
        registries,
        sources,
        drain_check,
        leadership.may_write,
        memory.previous_cluster_names,
        gates.problem if gates else lambda _: None,
        derived,
        reads_each_instance=run_report is not None,
    )
    publisher = StatusPublisher(events, statuses)
    controller = Controller(
        settings,
        cluster,
        registries,
        sources,
        reconciler,
        publisher,
        drain_check,
        queue,
        memory.previous_cluster_names,
        gates,
    )
    triggers = None
    if run_report is None:
        triggers = StackRefreshController(
            settings,
            cluster.name,
            access,
            events,
            sources.select_services,
            seen_terminating=sources.was_pod_seen_terminating,
        )
        sources.follow_services(triggers.service_changed)
    mirrors = _create_mirrors(settings, cluster, access, events, sources, registries, run_report)
    unserved = None
    if settings.watch_namespaces and run_report is None:
        watched, may_write = settings.watch_namespaces, leadership.may_write
        unserved = UnservedSyncerSearch(
            watched, cluster, access, registries, events, memory.dropped_namespaces, may_write
        )
    operator = RunningOperator(
        settings,
        cluster,
        access.server,
        sources,
        registries,
        controller,
        statuses,
        queue,
        is_leader=leadership.may_write if is_elected else lambda: None,
        started_at=started_at,
        triggers=triggers,
        mirrors=mirrors,
        blind=blind,
        unserved=unserved,
        hand_over_count=lambda: elector.hand_over_count if elector else 0,
    )
    _log.info(
        "starting the operator, reading the cluster and each registry first",
        extra={
            "version": __version__,
            "cluster": cluster.name,
            "operator": settings.operator_name,
            "eureka": ",".join(url for one in settings.connections.values() for url in one.service_urls),
            "namespaces": ",".join(settings.watch_namespaces) or "all",
            **({"dry_run": True} if is_dry else {}),
        },
    )

    def start_registries() -> None:
        for name, one in registries.items():
            one.start(_RegistryListener(name, one, controller, stop, mirrors))

    def stop_registries() -> None:
        for one in registries.values():
            one.stop()

    def run_until_stopped() -> None:
        drain_check.start()
        on_leader_known = blind.stop if blind else lambda: None
        leadership.run_tasks(_OperatorTasks(controller, sources, triggers, mirrors), stop, on_leader_known)

    def write_remaining(of: StatusWriter | EventRecorder) -> None:
        of.stop(longest_final_write_seconds(run_report, stop))

    def reconcile_once(run_report: RunReport) -> None:
        if not leadership.wait_for_lease(stop, settings.lease_duration_seconds + LONGEST_READ_WAIT_SECONDS):
            return
        deleted = frozenset(key_of(one) for one in sources.syncers.objects() if awaits_finalizer_removal(one))
        controller.start_renewals()
        controller.lead()
        mirror_keys = mirrors.reconcile_all_once(stop, give_up_at) if mirrors else []
        while not controller.is_idle and not stop.wait(0.02):
            leadership.require_lease()
        keys = {*sources.syncer_keys(), *deleted}
        owners = {key: str(ClusterOwner(cluster.name, *key)) for key in keys}
        reports = {key: last.report for key, last in controller.history.last.items()}
        run_report.print(owners, reports, deleted, mirror_keys)
        for one in (statuses, events):  # while the Lease is held: nobody writes them later
            write_remaining(one)

    rows = (
        OperatorPart("events", events.start, stop=lambda: write_remaining(events)),
        OperatorPart("statuses", statuses.start, stop=lambda: write_remaining(statuses)),
        OperatorPart("sources", sources.start, stop=sources.stop),
        OperatorPart("duplicates", duplicates.start, stop=duplicates.stop) if duplicates else None,
        OperatorPart("registries", start_registries, stop=stop_registries),
        OperatorPart("routes", lambda: routes.show_operator(operator), stop=routes.show_stopping),
        OperatorPart("leadership", stop=leadership.forbid_changes),
        OperatorPart("Lease", stop=leadership.release_lease),
        OperatorPart("hand-over", start_once_read=lambda: hand_over.start(elector), stop=hand_over.stop)
        if elector and run_report is None
        else None,
        OperatorPart("gates", start_once_read=gates.start, stop=gates.stop) if gates else None,
        OperatorPart("controller", start_once_read=controller.start, stop=controller.stop),
        OperatorPart("triggers", start_once_read=triggers.start, stop=triggers.close) if triggers else None,
        OperatorPart("stack runs", stop=triggers.join) if triggers else None,
        OperatorPart("unserved", start_once_read=unserved.start, stop=unserved.stop) if unserved else None,
        OperatorPart("mirrors", start_once_read=mirrors.start, stop=mirrors.stop) if mirrors else None,
    )
    main_task: Callable[[], None] = run_until_stopped
    if run_report and run_report.is_once:
        main_task = partial(reconcile_once, run_report)
    return _OperatorParts(
        parts_in_start_order=tuple(row for row in rows if row),
        main_task=main_task,
        sources=sources,
        registries=registries,
        duplicates=duplicates,
        on_unread=partial(blind.start_if_unread, lease=lease_watch, cluster=cluster)
        if blind
        else lambda _: None,
    )


def _create_registries(
    settings: Settings, cluster: Cluster, leadership: Leadership, run_report: RunReport | None
) -> dict[str, Registry]:
    """Return the registry of each connection by its name; a run report, if given, records their plans."""
    is_dry = run_report is not None and run_report.is_dry
    registries: dict[str, Registry] = {}
    for name, connection in settings.connections.items():
        registry = REGISTRY_FACTORY_BY_CONNECTION_CLASS[type(connection).__name__](
            connection,
            cluster,
            settings.operator_name,
            settings.resync_seconds,
            may_write=(lambda: False) if is_dry else leadership.may_write,
            # A single pass ends before a server that was left behind could be determined.
            waits_for_all_servers=run_report is not None and run_report.is_once,
            check_cluster=not settings.take_over_cluster,
            may_follow_another_leader=leadership.had_earlier_leader,
        )
        registries[name] = RecordingRegistry(registry, name, run_report) if run_report else registry
    return registries


def _record_refusal_event(events: EventRecorder, service: Object, why: Problem) -> None:
    events.record(
        {"apiVersion": "v1", "kind": "Service", **service},
        EventType.WARNING,
        ServiceEvent.SYNC_REFUSED,
        why.text,
    )


def _create_mirrors(
    settings: Settings,
    cluster: Cluster,
    access: KubeAccess,
    events: EventRecorder,
    sources: ClusterCache,
    registries: Mapping[str, Registry],
    run_report: RunReport | None,
) -> MirrorController | None:
    """Return the mirrors; None where the settings have none, so that their objects take no memory."""
    if not settings.mirrors:
        return None
    from eurekube_provider.operator.mirror.mirrors import MirrorController

    mirrored = {name: one for name, one in registries.items() if isinstance(one, MirrorSource)}
    note = run_report.record_mirror if run_report else lambda *_: None
    is_dry = run_report is not None and run_report.is_dry
    return MirrorController(settings, cluster, access, events, sources, mirrored, note, is_dry=is_dry)


def longest_final_write_seconds(run_report: RunReport | None, stop: threading.Event) -> float:
    """Return how many seconds a stopping operator waits for statuses and Events to be written."""
    return (
        LONGEST_FINAL_WRITE_SECONDS_OF_ONCE
        if run_report and run_report.is_once and not stop.is_set()
        else LONGEST_STOP_DELAY_SECONDS
    )


@dataclass(frozen=True, slots=True)
class _OperatorTasks:
    """The leader's tasks of this operator: syncers, mirrors, and the stacks' triggers."""

    controller: Controller
    sources: ClusterCache
    triggers: StackRefreshController | None
    mirrors: MirrorController | None

    def is_cluster_copy_current(self) -> bool:
        return self.sources.is_current

    def pause_and_check_idle(self) -> bool:
        have_ended = self.mirrors.pause_and_check_idle() if self.mirrors else True
        return self.controller.pause_and_check_idle() and have_ended

    def start_renewals(self) -> None:
        self.controller.start_renewals()

    def lead(self) -> None:
        self.controller.lead()
        if self.mirrors:
            self.mirrors.lead()
        if self.triggers:
            self.triggers.lead()

    def stand_by(self) -> None:
        self.controller.stand_by()
        if self.triggers:
            self.triggers.stand_by()
        if self.mirrors:
            self.mirrors.stand_by()


@dataclass(frozen=True, slots=True)
class _RegistryListener:
    """A listener that queues syncers and mirrors when their registry changes, or ends the operator."""

    name: str
    registry: Registry
    controller: Controller
    stop: threading.Event
    mirrors: MirrorController | None

    def instances_of_owner_changed(self, owner: str) -> None:
        self.controller.enqueue_syncer_of_owner(owner)

    def condition_changed(self) -> None:
        if isinstance(self.registry.condition(), Misconfigured):
            self.stop.set()
        else:
            self.controller.enqueue_syncers_of_eureka(self.name)
            if self.mirrors:
                self.mirrors.enqueue_mirrors_of_eureka(self.name)


def _load_lease_annotations(memory: LeaseMemory, access: KubeAccess, lease: tuple[str, str]) -> None:
    """Read the Lease's annotations into ``memory``; a replica that takes the Lease reads them again."""
    try:
        memory.load_notes(access.get(LEASES.path(*lease)).get("metadata") or {})
    except KubernetesError as error:
        if error.status_code != 404:
            _log.warning(
                "failed to read the Lease's annotations, starting without them", extra={"error": str(error)}
            )


def _check_duplicates_until_api_answers(duplicates: DuplicateOperatorCheck, stop: threading.Event) -> bool:
    """Check once for another operator of this name, once the API answers; False when asked to stop."""
    while True:
        try:
            duplicates.require_no_duplicate()
            return True
        except KubernetesError as error:
            _log.warning(
                "failed to look for another operator of this name, retrying before the start",
                extra={"error": str(error), "retry_seconds": API_RETRY_SECONDS},
            )
            if stop.wait(API_RETRY_SECONDS):
                return False


def _wait_for_cluster_identity(
    settings: Settings,
    access: KubeAccess,
    stop: threading.Event,
    give_up_at: float,
    blind: RenewalsWithoutKubernetes | None,
    lease_watch: LeaseWatch,
) -> Cluster | None:
    """Return the cluster's identity, however late the API server answers; None when asked to stop.

    :raises KubernetesError: the API server denies it, and the process, which does not know the cluster's
        name, could renew nothing meanwhile.
    """
    answered = threading.Event()
    if blind:
        blind.start_if_api_is_silent(answered)
    settles_at = -math.inf  # until then a denial may be that of an API server which has just started
    while True:
        try:
            uid = str(access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
            answered.set()
        except KubernetesError as error:
            if not is_api_unavailable(error):
                answered.set()
            else:
                settles_at = time.monotonic() + API_RETRY_SECONDS + DENIAL_SETTLE_SECONDS
            if error.status_code in (401, 403) and time.monotonic() >= settles_at:
                needed = (
                    "the API server does not accept the operator's credentials: renew them"
                    if error.status_code == 401
                    else "the operator must be allowed to get the namespace kube-system, whose UID tells"
                    " clusters apart"
                )
                error = KubernetesError(f"{error}; {needed}", status_code=error.status_code)
                if blind is None or settings.cluster_name is None:
                    raise error from None
            if time.monotonic() > give_up_at:
                raise
            if blind:
                blind.start_if_unread([error], lease_watch)
            _log.warning(
                "failed to reach the Kubernetes API, retrying before the start: nothing is changed until "
                "then",
                extra={"error": str(error), "retry_seconds": API_RETRY_SECONDS},
            )
            if stop.wait(API_RETRY_SECONDS):
                return None
            continue
        name = settings.cluster_name or default_cluster_name(uid)
        return Cluster(check_cluster_name(name), uid, settings.cluster_domain)


def wait_until_read(
    sources: ClusterCache,
    registries: Mapping[str, Registry],
    stop: threading.Event,
    give_up_at: float,
    on_unread: Callable[[Collection[KubernetesError]], None] = lambda _: None,
) -> bool:
    """Wait until the cluster's objects are complete and each Eureka was asked; False when asked to stop.

    A Eureka that hangs does not delay those that answer. The operator changes nothing at a Eureka that has
    not answered, but reports that on each syncer, and lets deleted syncers go in the end. The same holds for
    a single namespace that the operator may not read. A single pass (a finite ``give_up_at``) needs all
    answers.

    :param on_unread: called again and again with the errors for which the cluster cannot be read.
    :raises EurekubeError: something could not be read in time.
    """
    waited = 0.0
    needs_answers = math.isfinite(give_up_at)
    read_seconds = 0.0
    while True:
        conditions = {name: one.condition() for name, one in registries.items()}
        unread = {name: one for name, one in conditions.items() if isinstance(one, NeverRead | Misconfigured)}
        is_known = sources.is_synced if needs_answers else sources.is_synced_or_forbidden
        is_silent = read_seconds >= SILENT_EUREKA_WAIT_SECONDS
        if is_known and all(
            not needs_answers and (reading_error(one) or is_silent) for one in unread.values()
        ):
            break
        if stop.wait(0.02):
            return False
        if len(unread) < len(registries):
            read_seconds += 0.02
        if not is_known:
            on_unread(sources.failures.values())
        waited += 0.02
        if waited >= _SECONDS_BETWEEN_UNREAD_WARNINGS or time.monotonic() > give_up_at:
            waited = 0.0
            missing = [f"{kind} ({error})" for kind, error in sources.failures.items()]
            missing += [
                f"Eureka {name!r} ({reading_error(one) or 'no answer yet'})" for name, one in unread.items()
            ]
            if time.monotonic() > give_up_at:
                raise EurekubeError(
                    "nothing was changed, since this could not be read within "
                    f"{LONGEST_READ_WAIT_SECONDS:.0f} s:"
                    f" {'; '.join(missing)}"
                )
            _log.warning(
                "failed to read everything so far, changing nothing and retrying",
                extra={"missing": "; ".join(missing)},
            )
    for namespace, why in sources.unread_namespaces().items():
        _log.warning(
            "failed to read a namespace, keeping and renewing its instances unchanged",
            extra={"namespace": namespace, "error": why},
        )
    return True
