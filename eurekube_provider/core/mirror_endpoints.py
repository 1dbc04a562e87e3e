"""The mapping from an application's instances in Eureka to a mirror's endpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eurekube_provider.core.address_policy import AddressPolicy, JudgedAddress
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster
from eurekube_provider.core.mirror import Mirror
from eurekube_provider.core.mirror_conditions import MirrorCondition
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.problem import Problem

TargetPort = tuple[str, int, str]
"""A port of instances: the Service's port name, the number, and the application protocol (empty for none)."""

MAX_MIRRORED_ID_LENGTH = 1000
"""The longest id of an instance that is mirrored: a slice has a hundred ids, and must fit into the API
server's store. A slice that does not fit would block every other change of its application.
"""


@dataclass(frozen=True, slots=True, order=True)
class EndpointGroup:
    """The address family and the ports that all endpoints of one EndpointSlice share.

    :ivar family: ``IPv4`` or ``IPv6``.
    """

    family: str
    ports: tuple[TargetPort, ...]


@dataclass(frozen=True, slots=True)
class MirrorEndpoint:
    """One address at which an instance can be called.

    :ivar instance_id: the id of the instance in Eureka; empty where somebody else wrote the endpoint.
    :ivar zone: the zone of the endpoint's node, empty where it is not known.
    :ivar source: the URLs of the servers that listed the endpoint, with spaces between them; empty for the
        servers that are read now, or where they are not known.
    """

    group: EndpointGroup
    address: str
    instance_id: str
    is_ready: bool
    zone: str = ""
    source: str = ""

    def is_from_another_eureka(self, source: str) -> bool:
        """Return whether the endpoint came from a Eureka that has no server in common with ``source``; False
        where either is not known.
        """
        return bool(self.source and source) and set(self.source.split()).isdisjoint(source.split())


@dataclass(frozen=True, slots=True)
class HostLookup:
    """The result of looking up a host name.

    :ivar addresses: the addresses of the last successful lookup; None before the first.
    :ivar failure: why the last lookup failed; empty where it succeeded.
    """

    addresses: tuple[str, ...] | None = None
    failure: str = ""


_NO_HOST_LOOKUP = HostLookup()


@dataclass(frozen=True, slots=True)
class MappedEndpoints:
    """The endpoints of an application's instances.

    :ivar endpoints: no two of one group have the same address.
    :ivar listed_ids: the ids of all instances that Eureka lists, also of those without an endpoint.
    :ivar is_up_by_unresolved_id: the ids of instances whose host name was never resolved, and whether each is
        UP: their existing endpoints stay.
    :ivar problems: one for each instance that has no endpoint, or whose data can be read in Eureka's lists
        only.
    """

    endpoints: tuple[MirrorEndpoint, ...]
    listed_ids: frozenset[str]
    is_up_by_unresolved_id: Mapping[str, bool]
    problems: tuple[Problem, ...]


def is_excluded_from_mirror(mirror: Mirror, instance: Instance, cluster: Cluster) -> bool:
    """Return whether a mirror leaves an instance out because a syncer, here or elsewhere, registered it.

    Instances that a stack registered, or that registered themselves, are mirrored; those of other clusters'
    syncers only with ``includeOtherClusters``. This cluster is known by its UID, too, since it may have had
    another name.
    """
    owner = instance.owner or ""
    if owner.startswith(f"cluster/{cluster.name}/"):
        return True
    if not owner.startswith("cluster/"):
        return False
    is_own = instance.metadata.get(CLUSTER_UID_KEY) == cluster.uid
    return is_own or not mirror.includes_other_clusters


def host_names_to_resolve(
    mirror: Mirror, instances: Iterable[Instance], cluster: Cluster, policy: AddressPolicy
) -> set[str]:
    """Return the host names, instead of IP addresses, of instances that are mirrored."""
    return {
        host
        for one in instances
        if (host := one.ip_address or one.host_name)
        and policy.judge_address(host, mirror.allowed_networks) is None
        and not is_excluded_from_mirror(mirror, one, cluster)
        and _instance_ports(mirror, one)
    }


def mirrored_endpoints(
    mirror: Mirror,
    instances: Iterable[Instance],
    cluster: Cluster,
    policy: AddressPolicy,
    host_lookups: Mapping[str, HostLookup],
) -> MappedEndpoints:
    """Map an application's instances to endpoints; one that cannot be mirrored does not hinder the others."""
    found: dict[tuple[tuple[TargetPort, ...], str], MirrorEndpoint] = {}
    groups: dict[tuple[str, tuple[TargetPort, ...]], EndpointGroup] = {}
    listed_ids: set[str] = set()
    is_up_by_unresolved_id: dict[str, bool] = {}
    problems: list[Problem] = []
    for instance in sorted(instances, key=lambda one: one.instance_id):
        listed_ids.add(instance.instance_id)
        if is_excluded_from_mirror(mirror, instance, cluster):
            continue
        if instance.unreadable:
            problems.append(
                _instance_problem(MirrorCondition.UNREADABLE, instance, f"is not safe: {instance.unreadable}")
            )
        if len(instance.instance_id) > MAX_MIRRORED_ID_LENGTH:
            sentence = (
                f"{instance.application} {instance.instance_id[:40]}… has an id of "
                f"{len(instance.instance_id)} characters: register it by one of {MAX_MIRRORED_ID_LENGTH} at "
                "most"
            )
            problems.append(Problem(MirrorCondition.ADDRESS_REFUSED, sentence))
            continue
        ports = _instance_ports(mirror, instance)
        if not ports:
            problems.append(
                _instance_problem(MirrorCondition.NO_PORT, instance, "has no port that is enabled")
            )
            continue
        host = instance.ip_address or instance.host_name
        lookup = host_lookups.get(host, _NO_HOST_LOOKUP)
        addresses = _judge_host_addresses(host, mirror, policy, lookup)
        if addresses is None or lookup.failure:
            why = f"could not be resolved ({lookup.failure})" if lookup.failure else "is being resolved"
            kept = "" if addresses is None else ": the addresses that it had are kept"
            sentence = f"is at {host!r}, a name that {why}{kept}" if host else "has no address"
            problems.append(_instance_problem(MirrorCondition.UNRESOLVABLE, instance, sentence))
        if addresses is None:
            is_up_by_unresolved_id[instance.instance_id] = instance.status is Status.UP
            continue
        for address in addresses:
            if address.refusal_clause and address.refusal_clause in instance.unreadable:
                continue
            if address.refusal_clause:
                sentence = f"is at {address.canonical_text}, which {address.refusal_clause}"
                problems.append(_instance_problem(MirrorCondition.ADDRESS_REFUSED, instance, sentence))
                continue
            group = groups.get((address.family, ports))
            if group is None:
                group = groups[address.family, ports] = EndpointGroup(address.family, ports)
            endpoint = MirrorEndpoint(
                group,
                address.canonical_text,
                instance.instance_id,
                instance.status is Status.UP,
                mirror.zones.get(instance.zone or "", ""),
            )
            place = (ports, address.canonical_text)
            other = found.get(place)
            # Two registrations of one process: it can be called where one of them is UP.
            if other is None or (endpoint.is_ready and not other.is_ready):
                found[place] = endpoint
    # In another group as well: of two slices with one address and port kube-proxy takes either readiness.
    called = {(one.address, port[:2]) for one in found.values() if one.is_ready for port in one.group.ports}
    endpoints = [
        one
        for one in found.values()
        if one.is_ready or called.isdisjoint((one.address, port[:2]) for port in one.group.ports)
    ]
    return MappedEndpoints(tuple(endpoints), frozenset(listed_ids), is_up_by_unresolved_id, tuple(problems))


def host_name_problem(
    instance: Instance, policy: AddressPolicy, resolve_host: Callable[[str], tuple[str, ...] | None]
) -> Problem | None:
    """Return the problem that an instance's host name, which Spring's clients call, resolves to other
    addresses than the one that the mirror shows; None if it does not.

    :param resolve_host: returns the addresses of a host name; None where it was never resolved, which is no
        problem here.
    """
    shown = policy.judge_address(instance.ip_address) if instance.ip_address != instance.host_name else None
    if shown is None or not instance.host_name or policy.judge_address(instance.host_name) is not None:
        return None
    judgements = (policy.judge_address(one) for one in resolve_host(instance.host_name) or ())
    called = [one.canonical_text for one in judgements if one is not None and one.family == shown.family]
    if not called or shown.canonical_text in called:
        return None
    sentence = (
        f"is called at {shown.canonical_text} (ipAddr) by the Service, and by Spring's clients at"
        f" {instance.host_name} (hostName), which resolves to {', '.join(called)} here"
    )
    return _instance_problem(MirrorCondition.HOST_NAME_DIFFERS, instance, sentence)


def with_service_port_names(service_ports: Iterable[Mapping[str, object]], mirror: Mirror) -> Mirror:
    """Return the mirror with its ports named as those of the person's Service to which it adds slices.

    The plain port takes the name of the Service's only port, and with it the secure port, by which callers of
    port 443 must get to an instance that has one; otherwise the names stay.
    """
    ports = [(str(one.get("name") or ""), one.get("port")) for one in service_ports]
    if len(ports) != 1 or ports[0][0] in (mirror.port.name, mirror.secure_port.name):
        return mirror
    name, number = ports[0]
    secure = replace(mirror.secure_port, name=name) if number == 443 else mirror.secure_port
    return replace(mirror, port=replace(mirror.port, name=name), secure_port=secure)


def _instance_ports(mirror: Mirror, instance: Instance) -> tuple[TargetPort, ...]:
    pairs = ((mirror.port, instance.port), (mirror.secure_port, instance.secure_port))
    by_name = {
        port.name: (port.name, given.number, port.app_protocol)
        for port, given in pairs
        if given.enabled and 1 <= given.number <= 65535
    }
    return tuple(by_name.values())


def _judge_host_addresses(
    host: str, mirror: Mirror, policy: AddressPolicy, lookup: HostLookup
) -> list[JudgedAddress] | None:
    literal = policy.judge_address(host, mirror.allowed_networks)
    if literal is not None:
        return [literal]
    if lookup.addresses is None:
        return None
    judgements = (policy.judge_address(one, mirror.allowed_networks) for one in lookup.addresses)
    return [address for address in judgements if address is not None]


def _instance_problem(reason: MirrorCondition, instance: Instance, sentence: str) -> Problem:
    return Problem(reason, f"{instance.application} {instance.instance_id} {sentence}")
