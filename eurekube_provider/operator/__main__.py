"""``python -m eurekube_provider.operator``: reads its configuration, starts everything in order, and waits.

The order is what makes a start safe: the cluster's objects are complete and the registry was read before
anything is changed.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

from eurekube_provider.core.errors import (
    ConfigurationError,
    EurekubeError,
    KubernetesError,
    RegistryError,
)
from eurekube_provider.core.identity import Cluster, check_cluster_name, default_cluster_name
from eurekube_provider.core.model import Status
from eurekube_provider.core.objects import app_of
from eurekube_provider.core.syncer import DEFAULT_CONNECTION, Mode, Selector, Syncer
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import NAMESPACES, KubeAccess
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator import logs
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.registry import Registry
from eurekube_provider.operator.settings import Settings, settings_from
from eurekube_provider.operator.sources import AppKey, Sources
from eurekube_provider.operator.status import StatusWriter
from eurekube_provider.operator.triggers import Webhook

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

    :raises EurekubeError: it cannot start: no cluster, a cluster name in use.
    """
    access = KubeAccess.load(settings.kubeconfig, settings.context)
    cluster = _cluster(settings, access, stop)
    if cluster is None:
        return
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events = EventRecorder(access, "eurekube.io/operator", settings.pod_name)
    statuses = StatusWriter(access)
    registries = {
        name: Registry(
            Peers(connection, settings.eureka_mode),
            cluster,
            settings.operator_name,
            settings.resync_seconds,
            concerned=lambda owner: controller.owner_concerned(owner),  # noqa: PLW0108 - made below
            reachability_changed=lambda: controller.all_concerned(),  # noqa: PLW0108
        )
        for name, connection in {DEFAULT_CONNECTION: settings.connection}.items()
    }
    controller = Controller(settings, cluster, access, registries, statuses, events, queue)
    webhook: Webhook | None = None
    if settings.webhook:
        webhook = Webhook(settings.webhook, cluster.name, lambda key: _addresses(sources, cluster, key))
    touch = webhook.touch if webhook else lambda _: None
    sources = Sources(access, settings.watch_namespaces, queue.add, touch)
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
    for registry in registries.values():
        registry.start()
    try:
        if not _wait_until_safe(sources, registries, controller, stop):
            return
        if not settings.take_over_cluster:
            for registry in registries.values():
                registry.check_cluster()
        controller.start(sources)
        if webhook:
            services = sources.services.objects()
            webhook.start({(item["metadata"]["namespace"], app_of(item)) for item in services})
        _log.info("operator is ready", extra={"syncers": len(sources.syncer_keys())})
        stop.wait()
    finally:
        _log.info("operator stops; nothing is deregistered")
        sources.stop()
        if webhook:
            webhook.stop()
        controller.stop()
        for registry in registries.values():
            registry.stop()
        statuses.stop()
        events.stop()
        for registry in registries.values():
            registry.peers.close()


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
        return Cluster(check_cluster_name(name), uid, settings.cluster_domain)


def _wait_until_safe(
    sources: Sources, registries: Mapping[str, Registry], controller: Controller, stop: threading.Event
) -> bool:
    """Wait until the cluster's objects are complete and Eureka was read; False when told to stop.

    Of several Eurekas one that does not answer holds up its own syncers only.
    """
    waited = 0.0
    told: RegistryError | None = None
    while not (sources.is_synced and _is_read(registries)):
        if stop.wait(0.02):
            return False
        waited += 0.02
        failure = next((one.failure for one in registries.values() if one.failure), None)
        if failure is not None and str(failure) != str(told) and sources.is_synced:
            told = failure
            controller.cannot_begin(sources, failure)
        if waited >= _SYNC_NOTICE_SECONDS:
            waited = 0.0
            missing = [f"{kind} ({error})" for kind, error in sources.failures.items()]
            missing += [
                f"Eureka {name} ({one.failure})" for name, one in registries.items() if not one.was_read
            ]
            _log.warning(
                "nothing is changed before everything was read", extra={"missing": "; ".join(missing)}
            )
    return True


def _is_read(registries: Mapping[str, Registry]) -> bool:
    """Whether one was read, and each of the others as well, or has failed to answer."""
    everyone = registries.values()
    return any(one.was_read for one in everyone) and all(one.was_read or one.failure for one in everyone)


def _addresses(sources: Sources, cluster: Cluster, key: AppKey) -> list[str]:
    """Where the Services of namespace and app can be called now."""
    namespace, app = key
    everything = Syncer(namespace, "", Mode.POD, Selector(namespace, app), app)
    return [
        f"{instance.ip_address}:{instance.port.number}"
        for instance in sources.desired(everything, cluster).instances
        if instance.status is Status.UP
    ]


if __name__ == "__main__":
    sys.exit(main())
