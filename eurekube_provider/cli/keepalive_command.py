"""The command ``eurekube keepalive``, which renews stacks' registrations where no operator does."""

from __future__ import annotations

import argparse
import logging
import socket
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from eurekube_provider.cli.terminal import print_text
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME
from eurekube_provider.core.wording import format_count
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.operator.registries import zookeeper_servers
from eurekube_provider.operator.settings import load_settings
from eurekube_provider.runtime import logs
from eurekube_provider.runtime.signals import stop_event_on_signals

if TYPE_CHECKING:
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

_log = logging.getLogger("eurekube_provider.keepalive")

CONNECT_TIMEOUT_SECONDS = 1.0
"""The longest time, in seconds, to wait for a connection to a leftover instance's address."""

IDLE_CHECK_SECONDS, IDLE_CHECKS_BEFORE_WARNING = 5.0, 2
"""Seconds between two checks that anything is renewed, and the number of empty checks before a warning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Renew every registration of a stack that names this renewer, until SIGTERM; nothing is"
        " removed then. Needs no Kubernetes. Several may run at once. Whatever else the operator knows about"
        " Eureka (EUREKA_USER, EUREKA_PASSWORD, EUREKA_CA_FILE ...) is read from the environment here, too."
    )
    for flag, metavar, text in (
        ("operator-name", "NAME", "the name that the registrations give as their renewer [eurekube]"),
        ("eureka-url", "URL[,URL...]", "the Eureka servers [EUREKA_URL]"),
        ("resync-seconds", "SECONDS", "how often the whole registry is read, to find new ones [15]"),
        ("log-format", "json|text", "[text]"),
    ):
        parser.add_argument(f"--{flag}", metavar=metavar, help=text)
    parser.add_argument(
        "--zookeeper",
        action="store_true",
        help="renew nothing: list what an operator that ended left in the ZooKeeper of --eureka-url",
    )
    parser.add_argument(
        "--remove", action="store_true", help="with --zookeeper: remove it, where nothing answers at its port"
    )
    parser.add_argument(
        "--cluster-name", metavar="NAME", help="with --zookeeper: of which cluster; needed to remove"
    )


def run(options: argparse.Namespace) -> None:
    """Renew registrations until SIGTERM or SIGINT; raise ConfigurationError for an unusable setting."""
    if (options.remove or options.cluster_name) and not options.zookeeper:
        raise argparse.ArgumentError(None, "--remove and --cluster-name are for --zookeeper alone")
    if options.remove and not options.cluster_name:
        raise argparse.ArgumentError(None, "--remove needs --cluster-name: list first, without --remove")
    settings = load_settings({**vars(options), "log_format": options.log_format or "text"})
    logs.set_up_logging(settings.log_format, settings.log_level)
    stop = stop_event_on_signals()
    connection = settings.connections[DEFAULT_CONNECTION_NAME]
    if options.zookeeper:
        if connection.registry_kind.renewals:
            raise ConfigurationError(
                "--zookeeper is for a zookeeper:// URL: what Eureka holds lapses by itself"
            )
        with closing(zookeeper_servers(connection)) as servers:
            list_or_remove_leftovers(servers, options.cluster_name, removes=options.remove)
        return
    registry = EurekaRegistry.from_connection(
        connection,
        Cluster("", uid=""),  # none: no cluster's instances are looked after
        settings.operator_name,
        settings.resync_seconds,
        waits_for_all_servers=True,
    )
    _log.info(
        "starting keepalive, renewing all registrations that name this renewer",
        extra={"renewer": settings.operator_name, "eureka": ",".join(connection.service_urls)},
    )
    registry.start()
    # One server may have been restarted together with this: what it has forgotten stands on the others.
    registry.start_leading(0)
    warn_when_idle(registry, stop.wait, settings.operator_name)
    _log.info(
        "stopping keepalive: deregistering nothing, instances lapse unless another process renews them",
        extra={"renewed": registry.figures().renewed_here},
    )
    registry.stop()


def list_or_remove_leftovers(servers: ZooKeeperServers, cluster: str | None, *, removes: bool) -> None:
    """List instances that ended operators left in ZooKeeper, perhaps of one cluster, and remove those at
    whose address nothing answers; raise RegistryError where it cannot be read.
    """
    left = servers.nodes_of_ended_operators()
    for name in [one for one in left if cluster in (None, one)]:
        marker = servers.read_marker(name)
        said = f"operator {marker.operator}" if marker.operator else "an operator"
        print_text(
            f"cluster {name}: {said} has not written for minutes; {format_count(len(left[name]))} left:\n"
        )
        for node in left[name]:
            answers = accepts_connection(node.instance)
            state = "something answers there, kept" if answers else "nothing answers there"
            if removes and not answers:
                error = servers.remove(node)
                state = f"not removed: {error}" if error else "removed"
            print_text(f"  {node.path} {node.instance.address}: {state}\n")
    if not any(cluster in (None, one) for one in left):
        print_text("nothing is left behind: each cluster that has instances has an operator that writes\n")


def accepts_connection(instance: Instance) -> bool:
    """Return whether a connection can be made to the address at which callers would call an instance."""
    port = instance.port if instance.port.enabled else instance.secure_port
    try:
        with socket.create_connection((instance.ip_address, port.number), CONNECT_TIMEOUT_SECONDS):
            return True
    except (OSError, ValueError, OverflowError):  # an address that none can be
        return False


def warn_when_idle(registry: EurekaRegistry, wait: Callable[[float], bool], renewer: str) -> None:
    """Warn if Eureka was read and none of its instances names this renewer, or none does any more, as where
    another Eureka answers at the URL; ``wait`` returns True to end.
    """
    renewed, is_reported, looks = 0, False, 0
    while not wait(IDLE_CHECK_SECONDS):
        figures = registry.figures()
        if figures.renewed_here:
            renewed, is_reported, looks = figures.renewed_here, False, 0
            continue
        looks += figures.read_at is not None
        if looks >= IDLE_CHECKS_BEFORE_WARNING and not is_reported:
            is_reported = True
            _log.warning(
                "renewing no instance, reading Eureka again: no registration there names this renewer",
                extra={
                    "renewer": renewer,
                    "renewed_before": renewed,
                    "eureka": ",".join(one.url for one in figures.servers),
                    "hint": "if another Eureka answers there than before, what stacks registered at the"
                    " former one lapses; run the stacks again, or correct --eureka-url and --operator-name",
                },
            )
