"""``eurekube keepalive``: renews what stacks registered, where no operator does."""

from __future__ import annotations

import argparse
import logging

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.syncer import DEFAULT_CONNECTION
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.operator.settings import settings_from
from eurekube_provider.runtime import logs
from eurekube_provider.runtime.signals import stopping

_log = logging.getLogger("eurekube_provider.keepalive")


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
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


def run(options: argparse.Namespace) -> None:
    """Renew until SIGTERM or SIGINT.

    :raises ConfigurationError: no URL, or a setting that cannot be used.
    """
    settings = settings_from({**vars(options), "log_format": options.log_format or "text"})
    logs.set_up(settings.log_format, settings.log_level)
    stop = stopping()
    connection = settings.connections[DEFAULT_CONNECTION]
    registry = EurekaRegistry.connected(
        connection,
        Cluster("", uid=""),  # none: no cluster's instances are looked after
        settings.operator_name,
        settings.resync_seconds,
        waits_for_all=True,
    )
    _log.info(
        "keepalive starts",
        extra={"renewer": settings.operator_name, "eureka": ",".join(connection.service_urls)},
    )
    registry.start()
    # One server may have been restarted together with this: what it has forgotten stands on the others.
    registry.take_over(0)
    stop.wait()
    _log.info("keepalive stops; nothing is removed", extra={"renewed": registry.figures().held})
    registry.stop()
