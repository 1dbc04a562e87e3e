"""Lookups in Eureka or in a cluster for a running program, which builds resources from the answers.

They run in every preview and update of the program, never in a refresh. An empty answer is an empty result; a
server that cannot be asked is an error. An offline preview asks no server: the ``_output`` forms then return
an unknown output, and the plain ones the placeholder of the argument ``offline``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pulumi

from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.connections import CONFIG_NAMESPACE, OFFLINE_VARIABLE
from eurekube_provider.registrations.discovered import (
    FoundApplication,
    FoundEndpoints,
    FoundInstance,
    find_application,
    find_endpoints,
    find_instance,
)
from eurekube_provider.registrations.servers import SHARED_PEERS
from eurekube_provider.resources.program import (
    ConvertToProgramError,
    ProgramError,
    is_offline_preview,
    program_connection,
    program_setting,
)

T = TypeVar("T")


def get_application(
    name: str, *, connection: str | None = None, offline: FoundApplication | None = None
) -> FoundApplication:
    """Return an application from Eureka's full list.

    :param connection: the name of one of ``eurekube:connections``; default the connection of
        ``eurekube:url``.
    :param offline: the answer in an offline preview.
    :raises ProgramError: Eureka cannot be asked; or an offline preview has no answer.
    """
    return _ask_unless_offline("get_application", offline, lambda: find_application(_peers(connection), name))


def get_application_output(
    name: pulumi.Input[str], *, connection: str | None = None
) -> pulumi.Output[FoundApplication]:
    """Return an application as an output, for a name that may be an output; unknown in an offline preview."""
    return _ask_as_output(name, lambda given: find_application(_peers(connection), given))


def get_instance(
    application: str, instance_id: str, *, connection: str | None = None, offline: FoundInstance | None = None
) -> FoundInstance | None:
    """Return one instance as Eureka holds it at this moment; None where Eureka does not hold it.

    :raises ProgramError: as with :func:`get_application`.
    """
    return _ask_unless_offline(
        "get_instance", offline, lambda: find_instance(_peers(connection), application, instance_id)
    )


def get_instance_output(
    application: pulumi.Input[str], instance_id: pulumi.Input[str], *, connection: str | None = None
) -> pulumi.Output[FoundInstance | None]:
    """Return an instance as an output, for arguments that may be outputs; unknown in an offline preview."""
    both = pulumi.Output.all(application, instance_id)
    return _ask_as_output(both, lambda given: find_instance(_peers(connection), given[0], given[1]))


def get_endpoints(
    service: str,
    namespace: str,
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    offline: FoundEndpoints | None = None,
) -> FoundEndpoints:
    """Read a Service's endpoints from the cluster, so that the program can register them.

    :param kubeconfig: default ``eurekube:kubeconfig``, else as kubectl finds it.
    :raises ProgramError: as with :func:`get_application`.
    """
    return _ask_unless_offline(
        "get_endpoints", offline, lambda: _find_endpoints(service, namespace, kubeconfig, context)
    )


def get_endpoints_output(
    service: pulumi.Input[str],
    namespace: pulumi.Input[str],
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
) -> pulumi.Output[FoundEndpoints]:
    """Return endpoints as an output, for arguments that may be outputs; unknown in an offline preview."""
    both = pulumi.Output.all(service, namespace)
    return _ask_as_output(both, lambda given: _find_endpoints(given[0], given[1], kubeconfig, context))


def _ask_unless_offline(name: str, offline: Any, ask: Callable[[], T]) -> T:
    if not is_offline_preview():
        with ConvertToProgramError():
            return ask()
    if offline is None:
        raise ProgramError(
            f"{name} has no answer in an offline preview ({CONFIG_NAMESPACE}:offline, {OFFLINE_VARIABLE}): "
            f"use {name}_output, which is unknown then, or give it a placeholder with offline=..."
        )
    placeholder: T = offline
    return placeholder


def _ask_as_output(arguments: pulumi.Input[Any], ask: Callable[[Any], T]) -> pulumi.Output[T]:
    """Return the answer to ``arguments`` as an output, which is unknown in an offline preview."""
    if is_offline_preview():
        unknown: Any = pulumi.output.UNKNOWN
        return pulumi.Output.from_input(unknown)
    return pulumi.Output.from_input(arguments).apply(ConvertToProgramError()(ask))


def _peers(connection: str | None) -> Peers:
    return SHARED_PEERS.get(program_connection(connection))


def _find_endpoints(
    service: str, namespace: str, kubeconfig: str | Path | None, context: str | None
) -> FoundEndpoints:
    # The program runs in the project's directory, which the path may be relative to.
    if not kubeconfig and not context:
        context = program_setting("context")
    return find_endpoints(service, namespace, kubeconfig or program_setting("kubeconfig"), context)
