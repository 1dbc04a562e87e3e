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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from eurekube_provider.core.errors import ConfigurationError, EurekubeError, KubernetesError
from eurekube_provider.core.event_reasons import ServiceEvent
from eurekube_provider.core.identity import Cluster, ClusterOwner, check_cluster_name, default_cluster_name
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.objects import Object
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Refused, Registry, Unread, failure_of
from eurekube_provider.core.syncer import awaits_release
from eurekube_provider.kube.access import LEASES, NAMESPACES, KubeAccess, is_api_away
from eurekube_provider.kube.elector import Elector
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.kube.rate_limiter import STOP_SECONDS
from eurekube_provider.operator import selfcheck
from eurekube_provider.operator.blind_renewals import BlindRenewals
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.derived_syncers import DerivedSyncers
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.dry_run import (
    PATIENCE_SECONDS,
    WRITES_SECONDS,
    DryAccess,
    DryRunRegistry,
    RunReport,
)
from eurekube_provider.operator.gates import Gates
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.leader_tasks import OperatorTasks
from eurekube_provider.operator.leadership import DuplicateOperatorCheck, Leadership, lease_elsewhere
from eurekube_provider.operator.lease_memory import LeaseMemory
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.registries import KINDS
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources
from eurekube_provider.operator.status import StatusPublisher, StatusWriter
from eurekube_provider.operator.triggers.triggers import Triggers
from eurekube_provider.operator.unserved import UnservedSyncers
from eurekube_provider.operator.web.http_server import WebServer, parse_address
from eurekube_provider.operator.web.routes import Routes
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.runtime.garbage_collection import settle_down
from eurekube_provider.version import __version__

if TYPE_CHECKING:
    from eurekube_provider.operator.mirror.mirrors import Mirrors

_log = logging.getLogger("eurekube_provider.operator")

_SYNC_NOTICE_SECONDS = 10.0

SWITCH_SECONDS = 0.001
"""Seconds after which a busy thread, such as one that parses a list, lets another thread run.

A change waits for other threads several times on its way to Eureka; Python's default is 5 ms each time.
"""

SILENT_EUREKA_SECONDS = 1.0
"""Seconds that the start waits for a Eureka without an answer once another Eureka was read."""


def run(settings: Settings, stop: threading.Event, run_report: RunReport | None = None) -> None:
    """Run the operator until ``stop`` is set, and deregister nothing at the end.

    :param run_report: takes every plan, and says whether plans are carried out, and whether to end once
        everything was reconciled. With one there is no election, no web and no trigger.
    :raises EurekubeError: it cannot start: no cluster, a cluster name in use, a web address in use.
    """
    routes = Routes(has_status_page=settings.status_page)
    address = parse_address(settings.web_address) if run_report is None else None
    web = WebServer(address, routes) if address else None
    if web:
        web.start()  # before anything is waited for: a start that takes long is no reason for a restart
        _log.info("web server listens", extra={"port": web.port})
    checking = selfcheck.BackgroundSelfCheck(settings)
    blind = BlindRenewals(settings) if run_report is None else None
    if blind:
        routes.watch(blind)
    give_up_at = time.monotonic() + PATIENCE_SECONDS if run_report and run_report.is_once else math.inf
    try:
        parts = _assemble(settings, stop, routes, run_report, checking, blind, give_up_at)
        if parts is not None:
            parts.run(stop, give_up_at)
    finally:
        checking.close()
        if blind:
            blind.stop()
        if web:
            web.stop()


class When(Enum):
    """The moment at which a part is started."""

    AT_ONCE = "before anything was read"
    ONCE_READ = "once the cluster's objects and the registries were read"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the operator, a row of the table of parts.

    :ivar stop: called in the order of :data:`ENDS`, even if :attr:`start` was not called.
    """

    name: str
    begins: When
    start: Callable[[], object] = lambda: None
    stop: Callable[[], object] = lambda: None


ENDS = (
    "routes",
    "duplicates",
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
class _Parts:
    """The operator's parts, connected with each other.

    :ivar table: all parts, in the order of the start.
    :ivar work: reconciles until the operator is asked to stop, or once.
    """

    table: tuple[Part, ...]
    work: Callable[[], None]
    sources: Sources
    registries: Mapping[str, Registry]
    duplicates: DuplicateOperatorCheck | None
    blind: BlindRenewals | None

    def run(self, stop: threading.Event, give_up_at: float) -> None:
        """Start all parts, work, and stop all parts."""
        try:
            self._begin(When.AT_ONCE)
            if wait_until_read(self.sources, self.registries, stop, give_up_at, self.blind):
                self._begin(When.ONCE_READ)
                settle_down()
                sys.setswitchinterval(SWITCH_SECONDS)
                _log.info("operator is ready", extra={"syncers": len(self.sources.syncer_keys())})
                self.work()
            self._raise_refusal()
        finally:
            _log.info("stopping the operator, no instance is deregistered")
            for part in sorted(self.table, key=lambda one: ENDS.index(one.name)):
                part.stop()

    def _begin(self, when: When) -> None:
        for part in self.table:
            if part.begins is when:
                part.start()

    def _raise_refusal(self) -> None:
        for one in self.registries.values():
            if isinstance(condition := one.condition(), Refused):
                raise condition.why
        if self.duplicates and self.duplicates.refusal:
            raise self.duplicates.refusal


def _assemble(
    settings: Settings,
    stop: threading.Event,
    routes: Routes,
    run_report: RunReport | None,
    checking: selfcheck.BackgroundSelfCheck,
    blind: BlindRenewals | None,
    give_up_at: float,
) -> _Parts | None:
    """Return the parts, connected but not started; None when the operator is asked to stop meanwhile.

    A part that this operator does not need is None, and has no row in the table.
    """
    started_at = time.time()
    is_dry = run_report is not None and run_report.is_dry
    is_elected = settings.leader_elect and not is_dry
    access = (DryAccess if is_dry else KubeAccess).load(settings.kubeconfig, settings.context)
    try:
        cluster = _cluster(settings, access, stop, give_up_at, blind)
    except KubernetesError:
        checking.at_once(PATIENCE_SECONDS)
        raise
    if cluster is None:
        return None
    lease = settings.lease(access.namespace)
    may_be_elsewhere = settings.lease_namespace is None and not access.is_in_cluster
    if run_report is not None and settings.leader_elect and may_be_elsewhere:
        try:
            lease = lease_elsewhere(access, *lease), lease[1]
        except (ConfigurationError, KubernetesError):
            if is_elected:
                raise
    duplicates = None
    if run_report is None and is_elected and may_be_elsewhere:
        duplicates = DuplicateOperatorCheck(access, *lease, settings.lease_duration_seconds, stop.set)
        if not _is_the_only_one(duplicates, stop):
            return None
    # A container that is restarted in its pod is another one.
    identity = f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
    registries: dict[str, Registry] = {}
    memory = LeaseMemory(settings, cluster, registries, goes_on=run_report is None)
    _read_lease_notes(memory, access, lease)
    elector = None
    if is_elected:
        elector = Elector(access, *lease, identity, settings.lease_timing, noted=memory.noted)
    leadership = Leadership(elector)
    if not is_dry:
        access = access.guarded(leadership.may_write)
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events = EventRecorder(access, "eurekube.io/operator", settings.pod_name, queue.wait_drained)
    statuses = run_report.statuses(access) if run_report else StatusWriter(access, queue.wait_drained)
    registries |= _registries(settings, cluster, leadership, run_report)
    sources = Sources(
        access,
        cluster,
        settings.watch_namespaces,
        queue.add,
        statuses.is_overwritten,
        settings.gated,
        queue.add_after,
        settings.advertise_from,
    )
    derived = DerivedSyncers(access, sources, partial(_report_refusal, events), waits=run_report is not None)
    gates = None
    if settings.gated and run_report is None:
        gates = Gates(
            access,
            sources,
            registries,
            settings.known_after_seconds,
            events,
            queue.add,
            leadership.may_write,
            settings.may_select,
            derived.refuses,
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
        memory.previous_names,
        gates.problem if gates else lambda _: None,
        derived,
        reads_each=run_report is not None,
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
        memory.previous_names,
        gates,
    )
    triggers = _triggers(settings, cluster, access, events, sources) if run_report is None else None
    mirrors = _mirrors(settings, cluster, access, events, sources, registries, run_report)
    unserved = None
    if settings.watch_namespaces and run_report is None:
        watched, may_write = settings.watch_namespaces, leadership.may_write
        unserved = UnservedSyncers(
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
    )
    _log.info(
        "starting the operator",
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
            one.start(_Listener(name, one, controller, stop, mirrors))

    def stop_registries() -> None:
        for one in registries.values():
            one.stop()

    def serve() -> None:
        drain_check.start()
        is_settled = blind.stop if blind else lambda: None
        leadership.follow(OperatorTasks(controller, sources, triggers, mirrors), stop, is_settled)

    def end_writes(of: StatusWriter | EventRecorder) -> None:
        of.stop(longest_write_seconds(run_report, stop))

    def reconcile_once(run_report: RunReport) -> None:
        if not leadership.win(stop, settings.lease_duration_seconds + PATIENCE_SECONDS):
            return
        _reconcile_once(run_report, cluster, sources, controller, mirrors, leadership, stop, give_up_at)
        for one in (statuses, events):  # while the Lease is held: nobody writes them later
            end_writes(one)

    at_once, once_read = When.AT_ONCE, When.ONCE_READ
    rows = (
        Part("events", at_once, events.start, lambda: end_writes(events)),
        Part("statuses", at_once, statuses.start, lambda: end_writes(statuses)),
        Part("sources", at_once, sources.start, sources.stop),
        Part("duplicates", at_once, duplicates.start, duplicates.stop) if duplicates else None,
        Part("registries", at_once, start_registries, stop_registries),
        Part("routes", at_once, lambda: routes.show(operator), routes.close),
        Part("leadership", at_once, stop=leadership.close),
        Part("Lease", at_once, stop=leadership.release),
        Part("gates", once_read, gates.start, gates.stop) if gates else None,
        Part("controller", once_read, controller.start, controller.stop),
        Part("triggers", once_read, triggers.start, triggers.close) if triggers else None,
        Part("stack runs", once_read, stop=triggers.join) if triggers else None,
        Part("unserved", once_read, unserved.start, unserved.stop) if unserved else None,
        Part("mirrors", once_read, mirrors.start, mirrors.stop) if mirrors else None,
    )
    work: Callable[[], None] = serve
    if run_report and run_report.is_once:
        work = partial(reconcile_once, run_report)
    return _Parts(
        table=tuple(row for row in rows if row),
        work=work,
        sources=sources,
        registries=registries,
        duplicates=duplicates,
        blind=blind,
    )


def _registries(
    settings: Settings, cluster: Cluster, leadership: Leadership, run_report: RunReport | None
) -> dict[str, Registry]:
    """Return the registry of each connection by its name; a run report, if given, records their plans."""
    is_dry = run_report is not None and run_report.is_dry
    registries: dict[str, Registry] = {}
    for name, connection in settings.connections.items():
        registry = KINDS[type(connection).__name__](
            connection,
            cluster,
            settings.operator_name,
            settings.resync_seconds,
            may_write=(lambda: False) if is_dry else leadership.may_write,
            # A single pass ends before a server that was left behind could be determined.
            waits_for_all=run_report is not None and run_report.is_once,
            check_cluster=not settings.take_over_cluster,
            follows_another=leadership.follows_another,
        )
        registries[name] = DryRunRegistry(registry, name, run_report) if run_report else registry
    return registries


def _triggers(
    settings: Settings, cluster: Cluster, access: KubeAccess, events: EventRecorder, sources: Sources
) -> Triggers:
    """Return the triggers of stacks, which follow the watched Services."""
    triggers = Triggers(
        settings,
        cluster.name,
        access,
        events,
        sources.selected,
        seen_terminating=sources.pod_seen_terminating,
    )
    sources.follow_services(triggers.service_changed)
    return triggers


def _report_refusal(events: EventRecorder, service: Object, why: Problem) -> None:
    """Have an Event say that a Service is refused."""
    events.record(
        {"apiVersion": "v1", "kind": "Service", **service},
        EventType.WARNING,
        ServiceEvent.SYNC_REFUSED,
        why.text,
    )


def _mirrors(
    settings: Settings,
    cluster: Cluster,
    access: KubeAccess,
    events: EventRecorder,
    sources: Sources,
    registries: Mapping[str, Registry],
    run_report: RunReport | None,
) -> Mirrors | None:
    """Return the mirrors; None where the settings have none, so that their objects take no memory."""
    if not settings.mirrors:
        return None
    from eurekube_provider.operator.mirror.mirrors import Mirrors

    mirrored = {name: one for name, one in registries.items() if isinstance(one, MirrorSource)}
    note = run_report.note_mirror if run_report else lambda *_: None
    is_dry = run_report is not None and run_report.is_dry
    return Mirrors(settings, cluster, access, events, sources, mirrored, note, is_dry=is_dry)


def _reconcile_once(
    run_report: RunReport,
    cluster: Cluster,
    sources: Sources,
    controller: Controller,
    mirrors: Mirrors | None,
    leadership: Leadership,
    stop: threading.Event,
    give_up_at: float,
) -> None:
    """Reconcile everything once and print the plans.

    :raises EurekubeError: the Lease was lost meanwhile.
    """
    deleted = frozenset(key_of(one) for one in sources.syncers.objects() if awaits_release(one))
    controller.take_over()
    controller.lead()
    mirror_keys = mirrors.lead_once(stop, give_up_at) if mirrors else []
    while not controller.is_idle and not stop.wait(0.02):
        leadership.require_lease()
    keys = {*sources.syncer_keys(), *deleted}
    owners = {key: str(ClusterOwner(cluster.name, *key)) for key in keys}
    run_report.print(owners, deleted, mirror_keys)


def longest_write_seconds(run_report: RunReport | None, stop: threading.Event) -> float:
    """Return how many seconds the end waits for statuses and Events that are still to be written."""
    return WRITES_SECONDS if run_report and run_report.is_once and not stop.is_set() else STOP_SECONDS


class _Listener:
    """A registry's listener: it has syncers and mirrors reconciled after a change, or ends the operator."""

    def __init__(
        self,
        name: str,
        registry: Registry,
        controller: Controller,
        stop: threading.Event,
        mirrors: Mirrors | None,
    ) -> None:
        self.owner_changed = controller.owner_changed
        self._mirrors = mirrors
        self._name, self._registry = name, registry
        self._controller = controller
        self._stop = stop

    def condition_changed(self) -> None:
        """Queue the syncers and mirrors of the registry; end the operator if its condition is Refused."""
        if isinstance(self._registry.condition(), Refused):
            self._stop.set()
        else:
            self._controller.registry_changed(self._name)
            if self._mirrors:
                self._mirrors.condition_changed(self._name)


def _read_lease_notes(memory: LeaseMemory, access: KubeAccess, lease: tuple[str, str]) -> None:
    """Read the notes at the Lease; an elected replica reads them again from each Lease that it takes."""
    try:
        memory.learn(access.get(LEASES.path(*lease)).get("metadata") or {})
    except KubernetesError as error:
        if error.status_code != 404:
            _log.warning("failed to read the annotations of the Lease", extra={"error": str(error)})


def _is_the_only_one(duplicates: DuplicateOperatorCheck, stop: threading.Event) -> bool:
    """Check once for another operator of this name, as soon as the API answers; return False when asked to
    stop.

    :raises ConfigurationError: another operator leads by another Lease, or the Leases may not be listed.
    """
    while True:
        try:
            duplicates.check()
            return True
        except KubernetesError as error:
            _log.warning(
                "failed to look for another operator of this name, retrying before the start",
                extra={"error": str(error)},
            )
            if stop.wait(2.0):
                return False


def _cluster(
    settings: Settings,
    access: KubeAccess,
    stop: threading.Event,
    give_up_at: float,
    blind: BlindRenewals | None,
) -> Cluster | None:
    """Return the cluster's identity, after waiting for an API server that is away; None when asked to
    stop.
    """
    answered = threading.Event()
    if blind:
        blind.start_unless(answered)
    while True:
        try:
            uid = str(access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
            answered.set()
        except KubernetesError as error:
            if error.status_code in (401, 403):
                raise KubernetesError(
                    f"{error}; the operator must be allowed to get the namespace kube-system,"
                    " whose UID tells clusters apart",
                    status_code=error.status_code,
                ) from None
            if time.monotonic() > give_up_at:
                raise
            if blind:
                blind.start()
            _log.warning("failed to reach the Kubernetes API, retrying", extra={"error": str(error)})
            if stop.wait(2.0):
                return None
            continue
        name = settings.cluster_name or default_cluster_name(uid)
        return Cluster(check_cluster_name(name), uid, settings.cluster_domain)


def wait_until_read(
    sources: Sources,
    registries: Mapping[str, Registry],
    stop: threading.Event,
    give_up_at: float,
    blind: BlindRenewals | None = None,
) -> bool:
    """Wait until the cluster's objects are complete and each Eureka was asked; return False when asked to
    stop.

    A Eureka that hangs does not delay those that answer. The operator changes nothing at a Eureka that has
    not answered, but reports that on each syncer, and lets deleted syncers go in the end. The same holds for
    a single namespace that the operator may not read. A single pass (a finite ``give_up_at``) needs all
    answers.

    :param blind: started where the Kubernetes API went away meanwhile.
    :raises EurekubeError: something could not be read in time.
    """
    waited = 0.0
    needs_answers = math.isfinite(give_up_at)
    read_seconds = 0.0
    while True:
        conditions = {name: one.condition() for name, one in registries.items()}
        unread = {name: one for name, one in conditions.items() if isinstance(one, Unread | Refused)}
        is_known = sources.is_synced if needs_answers else sources.is_settled
        is_silent = read_seconds >= SILENT_EUREKA_SECONDS
        if is_known and all(not needs_answers and (failure_of(one) or is_silent) for one in unread.values()):
            break
        if stop.wait(0.02):
            return False
        if len(unread) < len(registries):
            read_seconds += 0.02
        if blind and not is_known and any(map(is_api_away, sources.failures.values())):
            blind.start()
        waited += 0.02
        if waited >= _SYNC_NOTICE_SECONDS or time.monotonic() > give_up_at:
            waited = 0.0
            missing = [f"{kind} ({error})" for kind, error in sources.failures.items()]
            missing += [
                f"Eureka {name!r} ({failure_of(one) or 'no answer yet'})" for name, one in unread.items()
            ]
            if time.monotonic() > give_up_at:
                raise EurekubeError(
                    f"nothing was changed, since this could not be read within {PATIENCE_SECONDS:.0f} s:"
                    f" {'; '.join(missing)}"
                )
            _log.warning("changing nothing until everything is read", extra={"missing": "; ".join(missing)})
    for namespace, why in sources.unread_namespaces().items():
        _log.warning(
            "not serving a namespace: its instances are kept and renewed",
            extra={"namespace": namespace, "error": why},
        )
    return True
