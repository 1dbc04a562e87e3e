"""What a running Pulumi program knows from its stack's configuration.

Light on purpose: the dynamic provider imports it too.
"""

from __future__ import annotations

import os
import signal

import pulumi
from pulumi.runtime import get_config, is_config_secret

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.resources.connections import NAMESPACE, configured_connection


class ProgramError(ConfigurationError, pulumi.RunError):
    """A setting of the program is missing or wrong. Pulumi shows its one sentence and no traceback."""


def program_setting(key: str) -> str | None:
    """The value of ``eurekube:<key>``, None where it is not set.

    Read past :class:`pulumi.Config`, which warns of secrets that are read in clear: whoever calls this
    keeps them out of properties.
    """
    value = get_config(f"{NAMESPACE}:{key}")
    return str(value) if value not in (None, "") else None


def program_connection() -> Connection:
    """The Eureka that this stack registers at.

    :raises ProgramError: none is configured, or its settings are wrong.
    """
    try:
        connection = configured_connection(program_setting)
    except ConfigurationError as error:
        raise ProgramError(str(error)) from None
    return connection


def warn_of_open_credentials() -> None:
    """Say so where credentials stand in clear in the stack's file, and so in its state as well."""
    url = program_setting("url") or ""
    if "@" in url and not is_config_secret(f"{NAMESPACE}:url"):
        pulumi.log.warn(
            f"{NAMESPACE}:url carries credentials in clear: set {NAMESPACE}:user and, with --secret,"
            f" {NAMESPACE}:password instead"
        )


def leave_quietly_when_interrupted() -> None:
    """End the program without a word on SIGINT.

    Pulumi interrupts the program as soon as a resource fails. Python would print two tracebacks of its own
    waiting then, above the one sentence that matters.
    """
    signal.signal(signal.SIGINT, lambda *_: os._exit(1))
