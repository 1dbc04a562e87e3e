"""``python -m eurekube_provider.operator``: reads its configuration, starts everything in order, and waits.

The order is what makes a start safe: the cluster's objects are complete and the registry was read before
anything is changed.
"""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence

from eurekube_provider.core.errors import (
    ConfigurationError,
    EurekubeError,
    KubernetesError,
    RegistryError,
)
from eurekube_provider.core.identity import ClusterOwner, check_cluster_name, default_cluster_name
from eurekube_provider.core.mapping import Cluster, Mode, Syncer, app_of, desired_instances
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.apply import apply
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import NAMESPACES, KubeAccess
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator import logs, selfcheck
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.dry import DryAccess, DryPeers
from eurekube_provider.operator.once import PATIENCE_SECONDS, Ledger, as_json
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.registry import Registry
from eurekube_provider.operator.settings import DEFAULT_CONNECTION, Settings, add_settings, settings_from
from eurekube_provider.operator.sources import AppKey, Sources, SyncerKey
from eurekube_provider.operator.status import StatusWriter
from eurekube_provider.operator.triggers import Webhook
from eurekube_provider.version import __version__

_log = logging.getLogger("eurekube_provider.operator")

_SYNC_NOTICE_SECONDS = 10.0

DESCRIPTION = "Keeps the endpoints of Kubernetes Services registered in Netflix Eureka."
EPILOG = (
    "Secrets come from EUREKA_PASSWORD, EUREKA_TOKEN and WEBHOOK_SECRET, or from the files that the flags"
    " ending with -file name. Exit codes: 0 done, or ended by a signal; 1 the configuration is wrong, a"
    " change failed, or --check found something to mend; 2 wrong usage."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; see :func:`start`."""
    parser = argparse.ArgumentParser(
        prog="python -m eurekube_provider.operator",
        description=DESCRIPTION,
        epilog=EPILOG,
        # An abbreviated flag could be meant for another one.
        allow_abbrev=False,
    )
    add_flags(parser)
    return start(parser.parse_args(arguments))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what the operator can be told, and what it can be asked for."""
    parser.add_argument(
        "--once",
        action="store_true",
        help="read everything, plan, carry it out, print the plans and end; renews nothing afterwards",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing, in Eureka or in Kubernetes: print the plans (with --once), or log them as they"
        " change",
    )
    parser.add_argument("--check", action="store_true", help="print what hampers the operator, and end")
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="how --once and --check print [text]"
    )
    add_settings(parser)


def start(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT, or do what ``--once`` or ``--check`` asks for.

    :param options: of :func:`add_flags`.
    :returns: 0 after a signal, or when all is done or well; 1 when the configuration is wrong, with one
        sentence on standard error, when a change failed, or when ``--check`` found something to mend.
    """
    try:
        settings = settings_from(vars(options))
    except ConfigurationError as error:
        print(f"eurekube operator: {error}", file=sys.stderr)
        return 1
    logs.set_up(settings.log_format, settings.log_level)
    if options.check:
        findings = selfcheck.check(settings)
        sys.stdout.write(
            as_json(selfcheck.as_json(findings)) if options.output == "json" else selfcheck.text(findings)
        )
        return int(any(finding.verdict is selfcheck.Verdict.WARNING for finding in findings))
    ledger = None
    if options.once or options.dry_run:
        ledger = Ledger(is_once=options.once, is_dry=options.dry_run, output=options.output)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(settings, stop, ledger)
    except EurekubeError as error:
        _log.error("the operator cannot run", extra={"error": str(error)})
        return 1
    return int(ledger is not None and ledger.is_once and ledger.has_failed)


def run(settings: Settings, stop: threading.Event, ledger: Ledger | None = None) -> None:
    """Run the operator until ``stop`` is set. Deregisters nothing on its way out.

    :param ledger: is told of every plan, and says whether plans are carried out, and whether to end after one
        look at everything.
    :raises EurekubeError: it cannot start: no cluster, a cluster name in use.
    """
    is_dry = ledger is not None and ledger.is_dry
    give_up_at = time.monotonic() + PATIENCE_SECONDS if ledger and ledger.is_once else math.inf
    checking = selfcheck.start(settings)
    access = (DryAccess if is_dry else KubeAccess).load(settings.kubeconfig, settings.context)
    try:
        cluster = _cluster(settings, access, stop, give_up_at)
    except KubernetesError:
        checking.join(timeout=PATIENCE_SECONDS)  # it says what else is missing
        raise
    if cluster is None:
        return
    connection = settings.connections[DEFAULT_CONNECTION]
    peers = (DryPeers if is_dry else Peers)(connection)
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events = EventRecorder(access, "eurekube.io/operator", settings.pod_name)
    statuses = ledger.statuses(access) if ledger else StatusWriter(access)
    registry = Registry(
        peers,
        cluster,
        settings.operator_name,
        settings.resync_seconds,
        concerned=lambda owner: controller.owner_concerned(owner),  # noqa: PLW0108 - made below
        reachable_again=lambda: controller.all_concerned(),  # noqa: PLW0108
    )
    carry_out = ledger.carry_out if ledger else apply
    controller = Controller(settings, cluster, access, registry, statuses, events, queue, carry_out)
    webhook: Webhook | None = None
    if settings.webhook and ledger is None:
        webhook = Webhook(settings.webhook, cluster.name, lambda key: _addresses(sources, cluster, key))
    touch = webhook.touch if webhook else lambda _: None
    sources = Sources(access, settings.watch_namespaces, queue.add, touch)
    _log.info(
        "operator starts",
        extra={
            "version": __version__,
            "cluster": cluster.name,
            "operator": settings.operator_name,
            "eureka": ",".join(connection.service_urls),
            "namespaces": ",".join(settings.watch_namespaces) or "all",
            **({"dry_run": True} if is_dry else {}),
        },
    )
    events.start()
    statuses.start()
    sources.start()
    registry.start()
    try:
        if not _wait_until_safe(sources, registry, controller, stop, give_up_at):
            return
        if not settings.take_over_cluster:
            registry.check_cluster()
        controller.start(sources)
        if webhook:
            services = sources.services.objects()
            webhook.start({(item["metadata"]["namespace"], app_of(item)) for item in services})
        _log.info("operator is ready", extra={"syncers": len(sources.syncer_keys())})
        if ledger and ledger.is_once:
            while not queue.is_idle and not stop.wait(0.02):
                pass
            ledger.print(
                {key: str(ClusterOwner(cluster.name, *key)) for key in sources.syncer_keys()},
            )
        else:
            stop.wait()
    finally:
        _log.info("operator stops; nothing is deregistered")
        sources.stop()
        if webhook:
            webhook.stop()
        controller.stop()
        registry.stop()
        statuses.stop()
        events.stop()
        peers.close()


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
        return Cluster(check_cluster_name(name), uid)


def _wait_until_safe(
    sources: Sources,
    registry: Registry,
    controller: Controller,
    stop: threading.Event,
    give_up_at: float,
) -> bool:
    """Wait until the cluster's objects are complete and Eureka was read; False when told to stop."""
    waited = 0.0
    told: RegistryError | None = None
    while not (sources.is_synced and registry.was_read):
        if stop.wait(0.02):
            return False
        waited += 0.02
        failure = registry.failure
        if failure is not None and str(failure) != str(told) and sources.is_synced:
            told = failure
            controller.cannot_begin(sources, failure)
        if waited >= _SYNC_NOTICE_SECONDS or time.monotonic() > give_up_at:
            waited = 0.0
            missing = [f"{kind} ({error})" for kind, error in sources.failures.items()]
            if not registry.was_read:
                missing.append(f"Eureka ({registry.failure})")
            if time.monotonic() > give_up_at:
                raise EurekubeError(
                    f"nothing was changed, since this could not be read within {PATIENCE_SECONDS:.0f} s:"
                    f" {'; '.join(missing)}"
                )
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
