"""From Kubernetes objects to desired instances: pure, on the API's raw JSON.

A problem with one object never hides the others: what can be mapped is, and the rest is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eurekube_provider.core.errors import ConfigurationError, InvalidInstance
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    OWNER_KEY,
    ClusterOwner,
    parse_owner,
    pod_instance_id,
    service_instance_id,
)
from eurekube_provider.core.model import Instance, Port, Status

Object = Mapping[str, Any]
"""A Kubernetes object as the API sends it."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""The label by which an EndpointSlice names its Service."""


class Mode(StrEnum):
    """What of a Service becomes an instance."""

    POD = "pod"
    """Each endpoint: the callers must be able to reach pod addresses."""

    SERVICE = "service"
    """The Service itself, once: its load balancer's address, else its cluster IP."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Kubernetes cluster that the objects come from.

    :param name: part of every instance id and owner.
    :param uid: the UID of its kube-system namespace; two clusters of one name differ here.
    """

    name: str
    uid: str

    def syncer_of(self, owner: str | None) -> ClusterOwner | None:
        """The syncer of this cluster that ``owner`` names, None for any other owner."""
        parsed = parse_owner(owner)
        return parsed if isinstance(parsed, ClusterOwner) and parsed.cluster == self.name else None


@dataclass(frozen=True, slots=True)
class Syncer:
    """What an ``EurekaSyncer`` asks for.

    :param app: the label ``app`` of the Services meant, else their name; also the application's name.
    """

    namespace: str
    name: str
    mode: Mode
    target_namespace: str
    app: str

    @classmethod
    def from_object(cls, syncer: Object) -> Syncer:
        """Read the custom resource.

        :raises ConfigurationError: the API server would have refused it; an older CRD may be installed.
        """
        metadata, spec = syncer["metadata"], syncer.get("spec") or {}
        where = f"EurekaSyncer {metadata['namespace']}/{metadata['name']}"
        selector = spec.get("selector") or {}
        try:
            mode = Mode(str(spec.get("mode")))
        except ValueError:
            raise ConfigurationError(
                f"{where}: spec.mode is {spec.get('mode')!r}; it must be pod or service"
            ) from None
        if not selector.get("app"):
            raise ConfigurationError(
                f"{where}: spec.selector.app is missing: name the label app of the Service, or the Service"
            )
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            mode=mode,
            target_namespace=selector.get("namespace") or metadata["namespace"],
            app=selector["app"],
        )

    def owner(self, cluster: Cluster) -> str:
        """Who its instances belong to."""
        return str(ClusterOwner(cluster.name, self.namespace, self.name))


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something could not be mapped: a condition's reason and its message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Desired:
    """The instances that shall be there.

    :param terminating: ids of endpoints that were seen on their way out; they are not among ``instances``.
    """

    instances: tuple[Instance, ...] = ()
    problems: tuple[Problem, ...] = ()
    terminating: frozenset[str] = frozenset()


def app_of(service: Object) -> str:
    """The name by which syncers select a Service: its label ``app``, else its own name."""
    metadata = service["metadata"]
    return str((metadata.get("labels") or {}).get("app") or metadata["name"])


def desired_instances(
    syncer: Syncer, services: Iterable[Object], slices: Iterable[Object], cluster: Cluster
) -> Desired:
    """What ``syncer`` wants to see in Eureka.

    :param services: the Services of its target namespace; those that it does not select are passed over.
    :param slices: the EndpointSlices of that namespace.
    """
    selected = {service["metadata"]["name"]: service for service in services if app_of(service) == syncer.app}
    if not selected:
        return Desired(
            problems=(
                Problem(
                    "NoMatchingService",
                    f"no Service in namespace {syncer.target_namespace} has the label app={syncer.app},"
                    f" nor, without that label, the name {syncer.app}",
                ),
            )
        )
    by_service: dict[str, list[Object]] = {name: [] for name in selected}
    for endpoint_slice in slices:
        name = (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL)
        if name in by_service:
            by_service[name].append(endpoint_slice)
    map_service = _pod_instances if syncer.mode is Mode.POD else _service_instance
    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating: set[str] = set()
    for name, service in sorted(selected.items()):
        part = map_service(syncer, service, by_service[name], cluster)
        for instance in part.instances:
            # Two Services over one pod: a pod that is ready for one of them can be called.
            other = instances.get(instance.instance_id)
            if other is None or other.status is not Status.UP:
                instances[instance.instance_id] = instance
        problems.update(dict.fromkeys(part.problems))
        terminating |= part.terminating
    for instance_id in terminating:
        instances.pop(instance_id, None)
    return Desired(tuple(instances.values()), tuple(problems), frozenset(terminating))


def choose_port(ports: Iterable[Object] | None, where: str) -> int | Problem:
    """The one port that callers use: the only TCP port, else the one named ``http``.

    :param ports: ``ports`` of an EndpointSlice or of a Service's spec.
    :param where: what they belong to, for the message.
    """
    tcp = [port for port in ports or () if port.get("protocol", "TCP") == "TCP" and port.get("port")]
    if len(tcp) == 1:
        return int(tcp[0]["port"])
    if not tcp:
        return Problem("NoPort", f"{where} has no TCP port")
    for port in tcp:
        if port.get("name") == "http":
            return int(port["port"])
    names = ", ".join(f"{port.get('name') or '(unnamed)'}={port['port']}" for port in tcp)
    return Problem("AmbiguousPort", f"{where} has several ports ({names}) and none is named http")


def _pod_instances(syncer: Syncer, service: Object, slices: list[Object], cluster: Cluster) -> Desired:
    family = _address_type(service, slices)
    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating: set[str] = set()
    for endpoint_slice in slices:
        if endpoint_slice.get("addressType", "IPv4") != family or not endpoint_slice.get("endpoints"):
            continue
        where = f"EndpointSlice {_name(endpoint_slice)} of Service {_name(service)}"
        port = choose_port(endpoint_slice.get("ports"), where)
        if isinstance(port, Problem):
            problems[port] = None
            continue
        for endpoint in endpoint_slice["endpoints"]:
            address = endpoint["addresses"][0]
            target = endpoint.get("targetRef") or {}
            pod = target["name"] if target.get("kind") == "Pod" and target.get("name") else address
            instance_id = pod_instance_id(pod, syncer.target_namespace, cluster.name, syncer.app, port)
            conditions = endpoint.get("conditions") or {}
            if conditions.get("terminating"):
                terminating.add(instance_id)
                continue
            ready = conditions.get("ready") is not False
            if not ready and instance_id in instances:
                continue
            try:
                instances[instance_id] = _instance(
                    syncer, cluster, instance_id, address, port, up=ready, zone=endpoint.get("zone")
                )
            except InvalidInstance as error:
                problems[Problem("InvalidInstance", f"{where}: {error}")] = None
    for instance_id in terminating:
        instances.pop(instance_id, None)
    return Desired(tuple(instances.values()), tuple(problems), frozenset(terminating))


def _service_instance(syncer: Syncer, service: Object, slices: list[Object], cluster: Cluster) -> Desired:
    address = service_address(service)
    if isinstance(address, Problem):
        return Desired(problems=(address,))
    port = choose_port((service.get("spec") or {}).get("ports"), f"Service {_name(service)}")
    if isinstance(port, Problem):
        return Desired(problems=(port,))
    has_ready_endpoint = any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        and not (endpoint.get("conditions") or {}).get("terminating")
        for endpoint_slice in slices
        for endpoint in endpoint_slice.get("endpoints") or ()
    )
    instance_id = service_instance_id(
        service["metadata"]["name"], syncer.target_namespace, cluster.name, syncer.app, port
    )
    return Desired((_instance(syncer, cluster, instance_id, address, port, up=has_ready_endpoint),))


def service_address(service: Object) -> str | Problem:
    """Where a whole Service can be called: its load balancer, else its cluster IP."""
    ingresses = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    for ingress in ingresses:
        address = ingress.get("ip") or ingress.get("hostname")
        if address:
            return str(address)
    cluster_ip = (service.get("spec") or {}).get("clusterIP")
    if cluster_ip and cluster_ip != "None":
        return str(cluster_ip)
    return Problem(
        "NoAddress",
        f"Service {_name(service)} has neither a load balancer's address nor a cluster IP:"
        " use mode pod, or give it an address",
    )


def _instance(
    syncer: Syncer,
    cluster: Cluster,
    instance_id: str,
    address: str,
    port: int,
    *,
    up: bool,
    zone: str | None = None,
) -> Instance:
    metadata = {OWNER_KEY: syncer.owner(cluster), CLUSTER_UID_KEY: cluster.uid}
    if zone:
        metadata["zone"] = zone
    host = f"[{address}]" if ":" in address else address
    return Instance(
        application=syncer.app,
        instance_id=instance_id,
        host_name=host,  # as in a URL: Spring builds one from it, and brackets make that of an IPv6 address
        ip_address=address,
        port=Port(port),
        status=Status.UP if up else Status.DOWN,
        metadata=metadata,
        home_page_url=f"http://{host}:{port}/",
    )


def _address_type(service: Object, slices: list[Object]) -> str:
    """One instance for a dual-stack pod: the Service's first family, else what the slices have."""
    families = (service.get("spec") or {}).get("ipFamilies") or ()
    offered = [str(endpoint_slice.get("addressType", "IPv4")) for endpoint_slice in slices]
    for family in (*families, "IPv4", "IPv6"):
        if family in offered:
            return str(family)
    return "IPv4"


def _name(thing: Object) -> str:
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
