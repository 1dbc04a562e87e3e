"""The tree of all errors that Eurekube raises on purpose.

A message is understood alone: what was tried, on which application and instance, at which server (never with
credentials), what came back and what to do next. Pulumi shows its users nothing but that one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.quoting import printable_lines


class EurekubeError(Exception):
    """The root of the tree: catching it catches every error that Eurekube raises on purpose.

    A message may repeat text that others wrote, and Eurekube, Pulumi and Kubernetes show it. So it contains
    no control characters that a terminal would obey.

    :ivar may_leave_resource: True if the failed operation may have left something behind, which a state
        should name.
    :ivar partial_resource: the id and the state of what was left behind, for an engine that can keep them.
    """

    may_leave_resource = False
    partial_resource: tuple[str, Mapping[str, Any]] | None = None

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class ConfigurationError(EurekubeError):
    """A setting is missing or wrong. Raised before anything was tried."""


class FileUnreadable(ConfigurationError):
    """A file that a setting names is not on this machine, or cannot be read."""


class InvalidInstance(EurekubeError, ValueError):
    """A desired instance cannot be registered.

    :ivar field: the model's field at fault, e.g. ``port``; empty where it concerns the whole.
    :ivar reason: the fault, and the right value.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class RegistryError(EurekubeError):
    """Eureka did not do what was asked.

    :ivar status_code: the HTTP status of the answer, None where there was none.
    :ivar url: the server, without credentials.
    """

    def __init__(self, message: str, *, url: str = "", status_code: int | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.status_code = status_code


class RegistryUnreachable(RegistryError):
    """A server gave no usable answer: connection refused, time-out, a 5xx, or an answer that no Eureka gives,
    such as a gateway's page. Trying again later may help.
    """


class RegistrySilent(RegistryUnreachable):
    """The server neither answered in time nor refused the connection: its other clients wait for it, too."""


class RegistryDenied(RegistryError):
    """Eureka answered 401 or 403: the credentials or the server's security settings are wrong; trying
    again does not help.
    """


class RegistryRejected(RegistryError):
    """Eureka understood the request and refused it, usually 400."""


class OwnershipConflict(EurekubeError):
    """The instance in Eureka belongs to another owner. It was left as it is."""


class SomeRegistrationsFailed(EurekubeError):
    """Some of many registrations that were changed together failed; the message names the first, and why."""


class DrainInterrupted(EurekubeError):
    """A drain was ended before its time: the instances are put back in service, and none was removed."""


class LeadershipLost(EurekubeError):
    """A change was not sent: this replica does not hold the Lease, or did not renew it in time.

    The replica that leads reads everything again, so that nothing needs to be retried here.
    """


class OperatorStillNeeded(EurekubeError):
    """An operator was not removed: it serves syncers that stay, or it could not be determined whether it
    does.
    """


class KubernetesError(EurekubeError):
    """The Kubernetes API answered with an error, or not at all.

    :ivar status_code: the HTTP status, None where there was no answer.
    :ivar reason: the API's machine-readable reason, e.g. ``AlreadyExists``; empty where it gave none.
    """

    def __init__(self, message: str, *, status_code: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status_code = status_code
        self.reason = reason
