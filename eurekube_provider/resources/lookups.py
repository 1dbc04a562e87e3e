"""Lookups: what a program asks Eureka or a cluster while it runs, to build resources from the answer.

They run in every preview and update of the program, never in a refresh. An empty answer is an empty result;
a server that cannot be asked is an error. An offline preview asks nobody: the ``_output`` forms are unknown
then, and the plain ones answer with the placeholder that they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import pulumi

from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import SERVICE_NAME_LABEL
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.connections import NAMESPACE
from eurekube_provider.registrations.instance_fields import properties_of
from eurekube_provider.registrations.servers import PEERS
from eurekube_provider.resources.program import (
    OFFLINE_VARIABLE,
    InOneSentence,
    ProgramError,
    is_offline_preview,
    program_connection,
    program_setting,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundInstance:
    """One instance as Eureka holds it.

    :ivar status: its own, or the one that a person set over it.
    :ivar owner: who registered it, empty where no Eurekube did.
    """

    application: str
    instance_id: str
    host_name: str
    ip_address: str
    port: int
    port_enabled: bool
    secure_port: int
    secure_port_enabled: bool
    vip_address: str
    status: str
    zone: str
    owner: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundApplication:
    """An application as Eureka lists it, up to half a minute old.

    :ivar instances: by instance id; none where Eureka does not know the application.
    """

    name: str
    instances: tuple[FoundInstance, ...] = ()

    @property
    def up(self) -> tuple[FoundInstance, ...]:
        """Those that callers are sent to."""
        return tuple(each for each in self.instances if each.status == Status.UP)


@dataclass(frozen=True, slots=True)
class FoundEndpoint:
    """One address of a Service.

    :ivar name: the pod's name, else the address: a key for what is registered of it.
    :ivar ports: by their names; an empty name for the only one of a Service that has none.
    """

    name: str
    address: str
    ports: Mapping[str, int]
    ready: bool
    terminating: bool
    zone: str
    node: str


@dataclass(frozen=True, slots=True)
class FoundEndpoints:
    """A Service's EndpointSlices, joined; no endpoints where there is no such Service."""

    namespace: str
    service: str
    endpoints: tuple[FoundEndpoint, ...] = ()

    @property
    def ready(self) -> tuple[FoundEndpoint, ...]:
        """Those that callers can be sent to."""
        return tuple(each for each in self.endpoints if each.ready and not each.terminating)


def get_application(
    name: str, *, connection: str | None = None, offline: FoundApplication | None = None
) -> FoundApplication:
    """What Eureka's list of everything has of an application.

    :param connection: the name of one of ``eurekube:connections``; default the one of ``eurekube:url``.
    :param offline: the answer in an offline preview.
    :raises ProgramError: Eureka cannot be asked; or an offline preview has no answer.
    """
    if is_offline_preview():
        return _placeholder("get_application", offline)
    return _application(name, connection)


def get_application_output(
    name: pulumi.Input[str], *, connection: str | None = None
) -> pulumi.Output[FoundApplication]:
    """Look up an application by an output; the answer is one, too, unknown in an offline preview."""
    return _output(name, lambda known: _application(known, connection))


def get_instance(
    application: str,
    instance_id: str,
    *,
    connection: str | None = None,
    offline: FoundInstance | None = None,
) -> FoundInstance | None:
    """Read one instance as Eureka holds it at this moment; None where it holds none.

    :raises ProgramError: as with :func:`get_application`.
    """
    if is_offline_preview():
        return _placeholder("get_instance", offline)
    return _instance(application, instance_id, connection)


def get_instance_output(
    application: pulumi.Input[str], instance_id: pulumi.Input[str], *, connection: str | None = None
) -> pulumi.Output[FoundInstance | None]:
    """Look up an instance by outputs; the answer is one, too, unknown in an offline preview."""
    both = pulumi.Output.all(application, instance_id)
    return _output(both, lambda known: _instance(known[0], known[1], connection))


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
    if is_offline_preview():
        return _placeholder("get_endpoints", offline)
    return _endpoints(service, namespace, kubeconfig, context)


def get_endpoints_output(
    service: pulumi.Input[str],
    namespace: pulumi.Input[str],
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
) -> pulumi.Output[FoundEndpoints]:
    """Look up endpoints by outputs; the answer is one, too, unknown in an offline preview."""
    both = pulumi.Output.all(service, namespace)
    return _output(both, lambda known: _endpoints(known[0], known[1], kubeconfig, context))


def _placeholder(name: str, offline: T | None) -> T:
    if offline is None:
        raise ProgramError(
            f"{name} has no answer in an offline preview ({NAMESPACE}:offline, {OFFLINE_VARIABLE}): use"
            f" {name}_output, which is unknown then, or give it a placeholder with offline=..."
        )
    return offline


def _output(known: pulumi.Input[Any], ask: Callable[[Any], T]) -> pulumi.Output[T]:
    if is_offline_preview():
        return _unknown()
    return pulumi.Output.from_input(known).apply(ask)


def _unknown() -> pulumi.Output[Any]:
    """An output that is not known in this preview."""

    async def no() -> bool:
        return False

    return pulumi.Output(set(), no(), no())


@InOneSentence()
def _application(name: str, connection: str | None) -> FoundApplication:
    # The list that every client asks for: one of the application would stay in the server for good.
    listed = _peers(connection).list_instances()
    found = sorted(
        (each for each in listed if each.application == name.upper()), key=lambda each: each.instance_id
    )
    return FoundApplication(name.upper(), tuple(map(_found, found)))


@InOneSentence()
def _instance(application: str, instance_id: str, connection: str | None) -> FoundInstance | None:
    held = _peers(connection).read(application.upper(), instance_id)
    return None if held is None else _found(held)


def _peers(connection: str | None) -> Peers:
    return PEERS.of(program_connection(connection))


def _found(instance: Instance) -> FoundInstance:
    told = properties_of(instance)
    told |= {"zone": instance.zone or "", "metadata": dict(instance.metadata)}
    return FoundInstance(**{each.name: told[each.name] for each in fields(FoundInstance)})


@InOneSentence()
def _endpoints(
    service: str, namespace: str, kubeconfig: str | Path | None, context: str | None
) -> FoundEndpoints:
    # Only here: a program without this lookup, and Pulumi's plugin process, load no Kubernetes client.
    from eurekube_provider.kube.access import ENDPOINT_SLICES, KubeAccess

    path = kubeconfig or program_setting("kubeconfig")
    # The program runs in the project's directory, which the path may be relative to.
    if not kubeconfig and not context:
        context = program_setting("context")
    access = KubeAccess.load(str(Path(path).expanduser()) if path else None, context)
    answer = access.get(ENDPOINT_SLICES.path(namespace), {"labelSelector": f"{SERVICE_NAME_LABEL}={service}"})
    found = {each.name: each for each in map_endpoints(answer.get("items") or [])}
    return FoundEndpoints(namespace, service, tuple(found[name] for name in sorted(found)))


def map_endpoints(slices: Iterable[Mapping[str, Any]]) -> list[FoundEndpoint]:
    """The endpoints of EndpointSlices as the API sends them; of a dual-stack Service's, the IPv4 ones."""
    found: list[FoundEndpoint] = []
    slices = list(slices)
    families = {str(each.get("addressType") or "IPv4") for each in slices if each.get("endpoints")}
    family = next((one for one in ("IPv4", "IPv6", "FQDN") if one in families), None)
    for each in slices:
        if str(each.get("addressType") or "IPv4") != family:
            continue
        ports = {
            str(port.get("name") or ""): int(port["port"])
            for port in each.get("ports") or ()
            if port.get("port")
        }
        for endpoint in each.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            target = endpoint.get("targetRef") or {}
            address = str(endpoint["addresses"][0])
            found.append(
                FoundEndpoint(
                    name=str(target["name"]) if target.get("kind") == "Pod" else address,
                    address=address,
                    ports=ports,
                    ready=conditions.get("ready") is not False,
                    terminating=bool(conditions.get("terminating")),
                    zone=str(endpoint.get("zone") or ""),
                    node=str(endpoint.get("nodeName") or ""),
                )
            )
    return found
