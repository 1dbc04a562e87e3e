"""Lookups of applications, instances and endpoints for programs, and the classes of their answers.

Every answer is also a mapping of its fields, so that Pulumi can export it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from eurekube_provider.core.address_families import keep_first_address_family
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import SERVICE_NAME_LABEL, is_mirrored
from eurekube_provider.core.quoting import encodable
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import require_one_eureka_and_return_errors
from eurekube_provider.registrations.instance_fields import instance_to_properties
from eurekube_provider.runtime.extras import require_extra


class FieldMapping(Mapping[str, Any]):
    """A base of dataclasses that are also mappings of their fields."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        """Hide ``__iter__``, by which an export of Pulumi makes a list of names; loops do not need it."""
        if name == "__iter__":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __getitem__(self, name: str) -> Any:
        """Return a field's value."""
        if name not in set(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the fields."""
        return (each.name for each in fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Return the number of fields."""
        return len(fields(self))  # type: ignore[arg-type]


def to_plain_data(value: Any) -> Any:
    """Return a lookup's answer as dictionaries and lists, at any depth."""
    if isinstance(value, Mapping):
        return {key: to_plain_data(item) for key, item in value.items()}
    return [to_plain_data(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)  # an export reads its __dict__
class FoundInstance(FieldMapping):
    """One instance as Eureka holds it.

    :ivar status: the registered status, or the override that hides it.
    :ivar owner: the owner, empty where no Eurekube registered it.
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


@dataclass(frozen=True)  # an export reads its __dict__
class FoundApplication(FieldMapping):
    """An application as Eureka lists it, up to half a minute old.

    :ivar instances: sorted by instance id; empty where Eureka does not know the application.
    """

    name: str
    instances: tuple[FoundInstance, ...] = ()

    @property
    def up(self) -> tuple[FoundInstance, ...]:
        """The instances whose status is UP, which callers use."""
        return tuple(each for each in self.instances if each.status == Status.UP)


@dataclass(frozen=True)  # an export reads its __dict__
class FoundEndpoint(FieldMapping):
    """One address of a Service.

    :ivar name: the pod's name, else the address: a key for an instance registered for this endpoint.
    :ivar ports: port numbers by port name; an empty name for the only port of a Service whose port has none.
    :ivar zone: the name of the zone, and ``node`` that of the node; empty where it is not known.
    """

    name: str
    address: str
    ports: Mapping[str, int]
    ready: bool
    terminating: bool
    zone: str
    node: str


@dataclass(frozen=True)  # an export reads its __dict__
class FoundEndpoints(FieldMapping):
    """The endpoints of all EndpointSlices of a Service; empty where there is no such Service."""

    namespace: str
    service: str
    endpoints: tuple[FoundEndpoint, ...] = ()

    @property
    def ready(self) -> tuple[FoundEndpoint, ...]:
        """The endpoints that are ready and not terminating, to which callers can be sent."""
        return tuple(each for each in self.endpoints if each.ready and not each.terminating)


def find_application(peers: Peers, name: str) -> FoundApplication:
    """Return an application from Eureka's full list, up to half a minute old.

    :raises RegistryError: Eureka cannot be asked.
    """
    # The list that every client asks for: one of the application would stay in the server for good.
    listed = peers.list_instances()
    found = sorted(
        (each for each in listed if each.application == name.upper()), key=lambda each: each.instance_id
    )
    return FoundApplication(name.upper(), tuple(map(to_found_instance, found)))


def find_instance(peers: Peers, application: str, instance_id: str) -> FoundInstance | None:
    """Return one instance as Eureka holds it at this moment; None where Eureka does not hold it.

    :raises RegistryError: Eureka cannot be asked.
    """
    held = peers.read(application.upper(), instance_id)
    if held is None:
        require_one_eureka_and_return_errors(f"read {application.upper()} {instance_id}", peers)
        return None
    return to_found_instance(held)


def find_endpoints(
    service: str, namespace: str, kubeconfig: str | Path | None = None, context: str | None = None
) -> FoundEndpoints:
    """Return a Service's endpoints.

    :param kubeconfig: default as kubectl finds it.
    :raises EurekubeError: the cluster cannot be asked; MissingExtra where there is no client for it.
    """
    # Only here: a program without this lookup, and Pulumi's plugin process, load no Kubernetes client.
    with require_extra("kubernetes", "a lookup of endpoints"):
        from eurekube_provider.kube.access import ENDPOINT_SLICES, KubeAccess

    access = KubeAccess.load(str(Path(kubeconfig).expanduser()) if kubeconfig else None, context)
    answer = access.get(ENDPOINT_SLICES.path(namespace), {"labelSelector": f"{SERVICE_NAME_LABEL}={service}"})
    found = {each.name: each for each in map_endpoints(answer.get("items") or [])}
    return FoundEndpoints(namespace, service, tuple(found[name] for name in sorted(found)))


def map_endpoints(slices: Iterable[Mapping[str, Any]]) -> list[FoundEndpoint]:
    """Return the endpoints of EndpointSlices as the API sends them, without those of mirrors, which came from
    Eureka. Of a pod with two addresses the IPv4 one counts; host names count where there is no address.
    """
    found: list[FoundEndpoint] = []
    slices = [each for each in slices if not is_mirrored(each)]
    addressed, _ = keep_first_address_family({}, slices)
    for each in addressed or slices:
        listed = (port for port in each.get("ports") or () if port.get("port"))
        ports = {str(port.get("name") or ""): int(port["port"]) for port in listed}
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


def to_found_instance(instance: Instance) -> FoundInstance:
    """Convert an instance of Eureka to the form that lookups return."""
    properties = instance_to_properties(instance)
    metadata = {encodable(key): encodable(value) for key, value in instance.metadata.items()}
    properties |= {"zone": instance.zone or "", "metadata": metadata}
    # A program may hand them on to Pulumi.
    found: dict[str, Any] = {
        name: encodable(one) if isinstance(one, str) else one for name, one in properties.items()
    }
    return FoundInstance(**{each.name: found[each.name] for each in fields(FoundInstance)})
