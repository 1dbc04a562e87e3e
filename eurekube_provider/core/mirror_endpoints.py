"""What a mirror shows of an application: the endpoints that its instances in Eureka become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster
from eurekube_provider.core.mirror import Mirror, ServicePort
from eurekube_provider.core.mirror_addresses import AddressPolicy, JudgedAddress
from eurekube_provider.core.mirror_conditions import MirrorCondition
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.problem import Problem

TargetPort = tuple[str, int, str]
"""A port of instances: the Service's port name, the number, and the protocol above TCP, empty for any."""

LONGEST_ID = 1000
"""The longest id of an instance that can be shown: a slice names a hundred, and all must fit into the API
server's store. One that does not would keep every other change of its application away."""

Resolved = Callable[[str], tuple[str, ...] | None]
"""The addresses of a host's name; None where it was never resolved."""


@dataclass(frozen=True, slots=True, order=True)
class EndpointGroup:
    """What all endpoints of one EndpointSlice share.

    :ivar family: ``IPv4`` or ``IPv6``.
    """

    family: str
    ports: tuple[TargetPort, ...]


@dataclass(frozen=True, slots=True)
class MirrorEndpoint:
    """One address at which an instance can be called.

    :ivar instance_id: of the instance in Eureka.
    :ivar zone: the zone of nodes it is in, empty where that is not known.
    """

    group: EndpointGroup
    address: str
    instance_id: str
    is_ready: bool
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Mapped:
    """What the instances of an application become.

    :ivar endpoints: no two of one group have one address.
    :ivar known: the ids of all instances that Eureka lists, also those that became no endpoint.
    :ivar unresolved: the ids of instances whose name was never resolved, and whether each is UP: the
        addresses that are shown for them stay.
    :ivar problems: one for each instance that became no endpoint.
    """

    endpoints: tuple[MirrorEndpoint, ...]
    known: frozenset[str]
    unresolved: Mapping[str, bool]
    problems: tuple[Problem, ...]


def is_echo(mirror: Mirror, instance: Instance, cluster: Cluster) -> bool:
    """Whether an instance is a syncer's, and so runs in this cluster, or in one that nobody asked for.

    What a stack registered, and what registered itself, is mirrored. A cluster may have had another name, or
    another operator that calls it by one: its UID stays the same.
    """
    owner = instance.owner or ""
    if owner.startswith(f"cluster/{cluster.name}/"):
        return True
    if not owner.startswith("cluster/"):
        return False
    is_own = instance.metadata.get(CLUSTER_UID_KEY) == cluster.uid
    return is_own or not mirror.includes_other_clusters


def mirrored_endpoints(
    mirror: Mirror,
    instances: Iterable[Instance],
    cluster: Cluster,
    policy: AddressPolicy,
    resolved: Resolved,
    failure_of: Callable[[str], str] = lambda _: "",
) -> Mapped:
    """Map an application's instances to endpoints. One that cannot be shown keeps no other away.

    :param failure_of: why the last lookup of a host's name failed; empty where it did not.
    """
    found: dict[tuple[tuple[TargetPort, ...], str], MirrorEndpoint] = {}
    groups: dict[tuple[str, tuple[TargetPort, ...]], EndpointGroup] = {}
    known: set[str] = set()
    unresolved: dict[str, bool] = {}
    problems: list[Problem] = []
    for instance in sorted(instances, key=lambda one: one.instance_id):
        known.add(instance.instance_id)
        if is_echo(mirror, instance, cluster):
            continue
        if len(instance.instance_id) > LONGEST_ID:
            sentence = (
                f"{instance.application} {instance.instance_id[:40]}… has an id of"
                f" {len(instance.instance_id)} characters: register it by one of {LONGEST_ID} at most"
            )
            problems.append(Problem(MirrorCondition.ADDRESS_REFUSED, sentence))
            continue
        ports = _ports_of(mirror, instance)
        if not ports:
            problems.append(_problem(MirrorCondition.NO_PORT, instance, "has no port that is enabled"))
            continue
        host = instance.ip_address or instance.host_name
        addresses, failure = _addresses_of(host, mirror, policy, resolved), failure_of(host)
        if addresses is None or failure:
            why = f" ({failure})" if failure else ""
            kept = "" if addresses is None else ": the addresses that it had are kept"
            sentence = f"is at {host!r}, a name that could not be resolved{why}{kept}"
            problems.append(_problem(MirrorCondition.UNRESOLVABLE, instance, sentence))
        if addresses is None:
            unresolved[instance.instance_id] = instance.status is Status.UP
            continue
        for address in addresses:
            if address.refusal:
                sentence = f"is at {address.text}, which {address.refusal}"
                problems.append(_problem(MirrorCondition.ADDRESS_REFUSED, instance, sentence))
                continue
            group = groups.get((address.family, ports))
            if group is None:
                group = groups[address.family, ports] = EndpointGroup(address.family, ports)
            endpoint = MirrorEndpoint(
                group,
                address.text,
                instance.instance_id,
                instance.status is Status.UP,
                mirror.zones.get(instance.zone or "", ""),
            )
            place = (ports, address.text)
            other = found.get(place)
            # Two registrations of one process: it can be called where one of them is UP.
            if other is None or (endpoint.is_ready and not other.is_ready):
                found[place] = endpoint
    return Mapped(tuple(found.values()), frozenset(known), unresolved, tuple(problems))


def named_after(service_ports: Iterable[Mapping[str, object]], mirror: Mirror) -> Mirror:
    """The mirror with its ports named as those of the Service of a person's to which it adds slices.

    A port that the Service has not by name keeps its name, unless it is the Service's only one.
    """
    names = [str(one.get("name") or "") for one in service_ports]
    if mirror.port.name not in names and len(names) == 1 and mirror.secure_port.name not in names:
        return replace(mirror, port=replace(mirror.port, name=names[0]))
    return mirror


def _ports_of(mirror: Mirror, instance: Instance) -> tuple[TargetPort, ...]:
    plain, secure = _target(mirror.port, instance.port), _target(mirror.secure_port, instance.secure_port)
    return plain + secure


def _target(port: ServicePort, given: Port) -> tuple[TargetPort, ...]:
    if given.enabled and 1 <= given.number <= 65535:
        return ((port.name, given.number, port.app_protocol),)
    return ()


def _addresses_of(
    host: str, mirror: Mirror, policy: AddressPolicy, resolved: Resolved
) -> list[JudgedAddress] | None:
    literal = policy.judged(host, mirror.allowed)
    if literal is not None:
        return [literal]
    names = resolved(host) if host else None
    if names is None:
        return None
    judged = (policy.judged(name, mirror.allowed) for name in names)
    return [address for address in judged if address is not None]


def _problem(reason: MirrorCondition, instance: Instance, sentence: str) -> Problem:
    return Problem(reason, f"{instance.application} {instance.instance_id} {sentence}")
