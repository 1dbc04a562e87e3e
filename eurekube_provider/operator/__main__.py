"""``python -m eurekube_provider.operator``: reads its configuration, starts everything in order, and waits.

The order is what makes a start safe: the cluster's objects are complete and the registry was read before
anything is changed.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Sequence

from eurekube_provider.core.errors import (
    ConfigurationError,
    EurekubeError,
    KubernetesError,
)
from eurekube_provider.core.identity import check_cluster_name, default_cluster_name
from eurekube_provider.core.mapping import Cluster, Mode, Syncer, app_of, desired_instances
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import NAMESPACES, KubeAccess
from eurekube_provider.kube.elector import Elector
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator import logs
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.leadership import Leadership
from eurekube_provider.operator.overview import Parts
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.registry import Registry
from eurekube_provider.operator.settings import Settings, settings_from
from eurekube_provider.operator.site import OperatorSite
from eurekube_provider.operator.sources import AppKey, Sources, SyncerKey
from eurekube_provider.operator.status import StatusWriter
from eurekube_provider.operator.triggers import Webhook
from eurekube_provider.operator.web import Web

_log = logging.getLogger("eurekube_provider.operator")

_SYNC_NOTICE_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT.

    :returns: 0 after a signal; 1 when the configuration is wrong, with one sentence on standard error.
    """
    try:
        settings = settings_from(arguments)
    except ConfigurationError as error:
        print(f"eurekube operator: {error}", file=sys.stderr)
        return 1
    logs.set_up(settings.log_format, settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(settings, stop)
    except EurekubeError as error:
        _log.error("the operator cannot run", extra={"error": str(error)})
        return 1
    return 0


def run(settings: Settings, stop: threading.Event) -> None:
    """Run the operator until ``stop`` is set. Deregisters nothing on its way out.

    :raises EurekubeError: it cannot start: no cluster, a cluster name in use, a web address in use.
    """
    site = OperatorSite()
    web = Web(settings.web_address, site) if settings.web_address else None
    if web:
        web.start()  # before anything is waited for: a start that takes long is no reason for a restart
        _log.info("web is served", extra={"port": web.port})
    try:
        _run(settings, stop, site)
    finally:
        if web:
            web.stop()


def _run(settings: Settings, stop: threading.Event, site: OperatorSite) -> None:
    started_at = time.time()
    access = KubeAccess.load(settings.kubeconfig, settings.context)
    cluster = _cluster(settings, access, stop)
    if cluster is None:
        return
    leadership = Leadership(_elector(settings, access))
    access = access.guarded(leadership.may_write)
    peers = Peers(settings.connection, settings.eureka_mode, leadership.may_write)
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events = EventRecorder(access, "eurekube.io/operator", settings.pod_name)
    statuses = StatusWriter(access)
    registry = Registry(
        peers,
        cluster,
        settings.operator_name,
        settings.resync_seconds,
        concerned=lambda owner: controller.owner_concerned(owner),  # noqa: PLW0108 - made below
        reachable_again=lambda: controller.all_concerned(),  # noqa: PLW0108
        check_cluster=not settings.take_over_cluster,
        refused=stop.set,
    )
    registry.renewals.stand_by()
    controller = Controller(settings, cluster, access, registry, statuses, events, queue)
    webhook: Webhook | None = None
    if settings.webhook:
        webhook = Webhook(
            settings.webhook,
            cluster.name,
            lambda key: _addresses(sources, cluster, key),
            leadership.may_write,
        )
    touch = webhook.touch if webhook else lambda _: None
    sources = Sources(access, settings.watch_namespaces, queue.add, touch)
    parts = Parts(
        settings,
        cluster,
        access.server,
        sources,
        {"default": registry},
        controller,
        statuses,
        queue,
        is_leader=leadership.may_write if settings.leader_elect else lambda: None,
        started_at=started_at,
    )
    _log.info(
        "operator starts",
        extra={
            "cluster": cluster.name,
            "operator": settings.operator_name,
            "eureka": ",".join(settings.connection.service_urls),
            "namespaces": ",".join(settings.watch_namespaces) or "all",
        },
    )
    events.start()
    statuses.start()
    sources.start()
    registry.start()
    site.show(parts)
    try:
        if _wait_until_read(sources, registry, stop):
            controller.start(sources)
            if webhook:
                services = sources.services.objects()
                webhook.start({(item["metadata"]["namespace"], app_of(item)) for item in services})
            _log.info("operator is ready", extra={"syncers": len(sources.syncer_keys())})
            leadership.follow(_Duties(controller, webhook), stop)
        if registry.refusal is not None:
            raise registry.refusal
    finally:
        _log.info("operator stops; nothing is deregistered")
        site.close()
        sources.stop()
        leadership.close()
        if webhook:
            webhook.stop()
        controller.stop()
        leadership.release()
        statuses.stop()
        events.stop()
        registry.stop()
        peers.close()


class _Duties:
    """What this operator does while it leads."""

    def __init__(self, controller: Controller, webhook: Webhook | None) -> None:
        self.pause = controller.pause
        self.stand_by = controller.stand_by
        self._controller = controller
        self._webhook = webhook

    def lead(self) -> None:
        """Everything, from Eureka to the webhook."""
        self._controller.lead()
        if self._webhook:
            self._webhook.lead()


def _elector(settings: Settings, access: KubeAccess) -> Elector | None:
    if not settings.leader_elect:
        return None
    return Elector(
        access,
        settings.lease_namespace or access.namespace,
        settings.lease_name,
        # A container that is restarted in its pod is another one.
        f"{settings.pod_name}_{uuid.uuid4().hex[:8]}",
        settings.lease_timing,
    )


def _cluster(settings: Settings, access: KubeAccess, stop: threading.Event) -> Cluster | None:
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
            _log.warning("the Kubernetes API does not answer, tried again", extra={"error": str(error)})
            if stop.wait(2.0):
                return None
            continue
        name = settings.cluster_name or default_cluster_name(uid)
        return Cluster(check_cluster_name(name), uid)


def _wait_until_read(sources: Sources, registry: Registry, stop: threading.Event) -> bool:
    """Wait until the cluster's objects are complete and Eureka was asked; False when told to stop.

    An operator to which Eureka did not answer changes nothing in it, but can say so on each syncer, and lets
    deleted ones go in the end.
    """
    waited = 0.0
    while not (sources.is_synced and (registry.was_read or registry.failure)):
        if stop.wait(0.02):
            return False
        waited += 0.02
        if waited >= _SYNC_NOTICE_SECONDS:
            waited = 0.0
            missing = [f"{kind} ({error})" for kind, error in sources.failures.items()]
            if not registry.was_read:
                missing.append("Eureka")
            _log.warning(
                "nothing is changed before everything was read", extra={"missing": "; ".join(missing)}
            )
    return True


def _addresses(sources: Sources, cluster: Cluster, key: AppKey) -> list[str]:
    """Where the Services of namespace and app can be called now."""
    namespace, app = key
    everything = Syncer(namespace, "", Mode.POD, namespace, app)
    desired = desired_instances(
        everything, sources.services.objects(namespace), sources.slices.objects(namespace), cluster
    )
    return [
        f"{instance.ip_address}:{instance.port.number}"
        for instance in desired.instances
        if instance.status is Status.UP
    ]


if __name__ == "__main__":
    sys.exit(main())
