"""The operator's parts, put together in the order that makes a start and an end safe.

The cluster's objects are complete and the registry was read before anything is changed; what is under way has
ended before the Lease is released, and renewals end last.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eurekube_provider.core.errors import EurekubeError, KubernetesError
from eurekube_provider.core.identity import Cluster, ClusterOwner, check_cluster_name, default_cluster_name
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.registry import Refused, Registry, Unread, failure_of
from eurekube_provider.kube.access import NAMESPACES, KubeAccess
from eurekube_provider.kube.elector import Elector
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.kube.rate_limiter import STOP_SECONDS
from eurekube_provider.operator import selfcheck
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.deletion import awaiting_release
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.dry_run import (
    PATIENCE_SECONDS,
    WRITES_SECONDS,
    DryAccess,
    Ledger,
    RecordedRegistry,
)
from eurekube_provider.operator.duties import LeaderDuties
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.leadership import DuplicateOperatorCheck, Leadership
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.registries import KINDS
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources
from eurekube_provider.operator.status import StatusPublisher, StatusWriter
from eurekube_provider.operator.triggers.triggers import Triggers
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
"""After so long a thread that has much to do, as one that reads a list, lets another one go on. A change
waits several times on its way to Eureka; Python's default is 5 ms each."""

SILENT_EUREKA_SECONDS = 1.0
"""How long an Eureka that has not answered yet is waited for once another one was read."""


def run(settings: Settings, stop: threading.Event, ledger: Ledger | None = None) -> None:
    """Run the operator until ``stop`` is set. Deregisters nothing on its way out.

    :param ledger: is told of every plan, and says whether plans are carried out, and whether to end once
        everything was reconciled. With one there is no election, no web and no trigger.
    :raises EurekubeError: it cannot start: no cluster, a cluster name in use, a web address in use.
    """
    routes = Routes()
    address = parse_address(settings.web_address) if ledger is None else None
    web = WebServer(address, routes) if address else None
    if web:
        web.start()  # before anything is waited for: a start that takes long is no reason for a restart
        _log.info("web is served", extra={"port": web.port})
    checking = selfcheck.BackgroundSelfCheck(settings)
    try:
        _run(settings, stop, routes, ledger, checking)
    finally:
        checking.close()
        if web:
            web.stop()


def _run(
    settings: Settings,
    stop: threading.Event,
    routes: Routes,
    ledger: Ledger | None,
    checking: selfcheck.BackgroundSelfCheck,
) -> None:
    started_at = time.time()
    is_dry = ledger is not None and ledger.is_dry
    give_up_at = time.monotonic() + PATIENCE_SECONDS if ledger and ledger.is_once else math.inf
    access = (DryAccess if is_dry else KubeAccess).load(settings.kubeconfig, settings.context)
    try:
        cluster = _cluster(settings, access, stop, give_up_at)
    except KubernetesError:
        checking.at_once(PATIENCE_SECONDS)
        raise
    if cluster is None:
        return
    is_elected = settings.leader_elect and ledger is None
    lease = settings.lease(access.namespace)
    duplicates = None
    if is_elected and settings.lease_namespace is None and not access.is_in_cluster:
        duplicates = DuplicateOperatorCheck(access, *lease, settings.lease_duration_seconds, stop.set)
        if not _is_the_only_one(duplicates, stop):
            return
    # A container that is restarted in its pod is another one.
    identity = f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
    elector = Elector(access, *lease, identity, settings.lease_timing) if is_elected else None
    leadership = Leadership(elector)
    if not is_dry:
        access = access.guarded(leadership.may_write)
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events = EventRecorder(access, "eurekube.io/operator", settings.pod_name, queue.wait_drained)
    statuses = ledger.statuses(access) if ledger else StatusWriter(access, queue.wait_drained)
    registries: dict[str, Registry] = {}
    for name, connection in settings.connections.items():
        registry = KINDS[type(connection).__name__](
            connection,
            cluster,
            settings.operator_name,
            settings.resync_seconds,
            may_write=(lambda: False) if is_dry else leadership.may_write,
            # A single pass ends before a server that was left behind could be told.
            waits_for_all=ledger is not None and ledger.is_once,
            check_cluster=not settings.take_over_cluster,
            follows_another=leadership.follows_another,
        )
        registries[name] = RecordedRegistry(registry, name, ledger) if ledger else registry
    sources = Sources(access, cluster, settings.watch_namespaces, queue.add, statuses.is_overwritten)
    drain_check = DrainCheck(access, sources, settings.needed_drain_seconds, queue.add, queue.wait_drained)
    reconciler = Reconciler(
        settings,
        cluster,
        access,
        registries,
        sources,
        drain_check,
        leadership.may_write,
        reads_each=ledger is not None,
    )
    publisher = StatusPublisher(events, statuses)
    controller = Controller(settings, cluster, registries, sources, reconciler, publisher, drain_check, queue)
    triggers = None
    if ledger is None:
        triggers = Triggers(
            settings,
            cluster.name,
            access,
            events,
            sources.selected,
            seen_terminating=sources.pod_seen_terminating,
        )
        sources.follow_services(triggers.service_changed)
    mirrors = None
    if settings.mirrors:
        # Only here: without mirrors none of it takes memory.
        from eurekube_provider.operator.mirror.mirrors import Mirrors

        mirrored = {name: one for name, one in registries.items() if isinstance(one, MirrorSource)}
        told = ledger.note_mirror if ledger else lambda *_: None
        mirrors = Mirrors(settings, cluster, access, events, sources, mirrored, told, is_dry=is_dry)
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
    )
    _log.info(
        "operator starts",
        extra={
            "version": __version__,
            "cluster": cluster.name,
            "operator": settings.operator_name,
            "eureka": ",".join(url for one in settings.connections.values() for url in one.service_urls),
            "namespaces": ",".join(settings.watch_namespaces) or "all",
            **({"dry_run": True} if is_dry else {}),
        },
    )
    events.start()
    statuses.start()
    sources.start()
    if duplicates:
        duplicates.start()
    for name, one in registries.items():
        one.start(_Listener(name, one, controller, stop, mirrors))
    routes.show(operator)
    try:
        if wait_until_read(sources, registries, stop, give_up_at):
            controller.start()
            if triggers:
                triggers.start()
            if mirrors:
                mirrors.start()
            settle_down()
            sys.setswitchinterval(SWITCH_SECONDS)
            _log.info("operator is ready", extra={"syncers": len(sources.syncer_keys())})
            if ledger and ledger.is_once:
                deleted = awaiting_release(sources.syncers.objects())
                controller.take_over()
                controller.lead()
                mirror_keys = mirrors.lead_once(stop, give_up_at) if mirrors else []
                while not controller.is_idle and not stop.wait(0.02):
                    pass
                keys = {*sources.syncer_keys(), *deleted}
                owners = {key: str(ClusterOwner(cluster.name, *key)) for key in keys}
                ledger.print(owners, deleted, mirror_keys)
            else:
                drain_check.start()
                leadership.follow(LeaderDuties(controller, sources, triggers, mirrors), stop)
        for one in registries.values():
            if isinstance(condition := one.condition(), Refused):
                raise condition.why
        if duplicates and duplicates.refusal:
            raise duplicates.refusal
    finally:
        _log.info("operator stops; nothing is deregistered")
        routes.close()
        if duplicates:
            duplicates.stop()
        sources.stop()
        leadership.close()
        if triggers:
            triggers.close()
        controller.stop()
        if mirrors:
            mirrors.stop()
        leadership.release()
        writes_seconds = longest_write_seconds(ledger, stop)
        statuses.stop(writes_seconds)
        events.stop(writes_seconds)
        for one in registries.values():
            one.stop()
        if triggers:
            triggers.join()  # last: a stack's run takes its time to end, which nobody else waits for


def longest_write_seconds(ledger: Ledger | None, stop: threading.Event) -> float:
    """For how long the end waits for statuses and Events that are still to be written."""
    return WRITES_SECONDS if ledger and ledger.is_once and not stop.is_set() else STOP_SECONDS


class _Listener:
    """Has syncers reconciled where a registry is not as it was, or ends the operator."""

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
        """Look at who registers there, or end where it must not be worked on."""
        if isinstance(self._registry.condition(), Refused):
            self._stop.set()
        else:
            self._controller.registry_changed(self._name)
            if self._mirrors:
                self._mirrors.condition_changed(self._name)


def _is_the_only_one(duplicates: DuplicateOperatorCheck, stop: threading.Event) -> bool:
    """Check once, as soon as the API answers; False when told to stop meanwhile.

    :raises ConfigurationError: somebody leads by another Lease, or that cannot be found out.
    """
    while True:
        try:
            duplicates.check()
            return True
        except KubernetesError as error:
            _log.warning("the Leases cannot be listed, tried again", extra={"error": str(error)})
            if stop.wait(2.0):
                return False


def _cluster(
    settings: Settings, access: KubeAccess, stop: threading.Event, give_up_at: float
) -> Cluster | None:
    """Which cluster this is; waits for an API server that is away, None when told to stop meanwhile."""
    while True:
        try:
            uid = str(access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
        except KubernetesError as error:
            if error.status_code in (401, 403):
                raise KubernetesError(
                    f"{error}; the operator must be allowed to get the namespace kube-system,"
                    " whose UID tells clusters apart",
                    status_code=error.status_code,
                ) from None
            if time.monotonic() > give_up_at:
                raise
            _log.warning("the Kubernetes API does not answer, tried again", extra={"error": str(error)})
            if stop.wait(2.0):
                return None
            continue
        name = settings.cluster_name or default_cluster_name(uid)
        return Cluster(check_cluster_name(name), uid, settings.cluster_domain)


def wait_until_read(
    sources: Sources, registries: Mapping[str, Registry], stop: threading.Event, give_up_at: float
) -> bool:
    """Wait until the cluster's objects are complete and each Eureka was asked; False when told to stop.

    One that hangs does not keep those that answer waiting. An operator to which an Eureka did not answer
    changes nothing there, but can say so on each syncer, and lets deleted ones go in the end; the same holds
    for a single namespace that it may not read. A single pass needs all answers.

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
            _log.warning(
                "nothing is changed before everything was read", extra={"missing": "; ".join(missing)}
            )
    for namespace, why in sources.unread_namespaces().items():
        _log.warning(
            "namespace is not served: what is registered from it is kept and renewed",
            extra={"namespace": namespace, "error": why},
        )
    return True
