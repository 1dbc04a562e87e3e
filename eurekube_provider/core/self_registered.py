"""Search for instances that the pods behind a syncer registered themselves, by clients of their own. Pure.

An instance without a Eurekube owner was registered by a pod's own client if it has the pod's address and
port, or the pod's name as id or host name, or the pod's address with any port. The address with another port
proves nothing for a pod in its node's network, or where two live endpoints share the address: the pod must be
known to have it for itself. A name proves nothing where other namespaces and clusters have pods of that name,
such as those of a StatefulSet, unless the instance's address cannot be called from elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eurekube_provider.core.address_policy import parse_ip_address
from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.endpoint_presence import is_name_of_pod
from eurekube_provider.core.identity import pod_and_namespace_of_id
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.objects import Object
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import format_list

MAX_REGISTRATIONS_IN_STATUS = 100
"""The most registrations in a syncer's status; beyond that, those of living pods are left out first."""

MAX_ID_LENGTH_IN_STATUS, MAX_ADDRESS_LENGTH_IN_STATUS = 1024, 253
"""The longest id and address that the CRD takes: with a longer one the API server refuses all of a status."""

PodNameAndAddress = tuple[str, str]
"""A pod's name and address: the next pod of a StatefulSet has the same name."""

RENEWAL_TIME_SKEW_SECONDS = 15.0
"""Seconds by which one renewal's times may differ between servers: their clocks differ, and they get it
one after the other. The next renewal comes later than that.
"""

_GENERATED_POD_NAME_PATTERN = re.compile(r"-(?!\d+\Z)[bcdfghjklmnpqrstvwxz2456789]{5}\Z")
"""The end of a pod's name that Kubernetes made; digits alone may be a StatefulSet's number."""


@dataclass(frozen=True, slots=True, order=True)
class SelfRegistration:
    """An instance that a pod's own client registered, as a syncer's status keeps it.

    :ivar address: the instance's address; ``pod_address`` is the pod's, which may differ.
    """

    instance_id: str
    address: str
    pod: str
    pod_address: str

    def matches_instance(self, instance: Instance) -> bool:
        """Return whether an instance is the registered one, and has no Eurekube owner."""
        same = (instance.instance_id, instance.ip_address) == (self.instance_id, self.address)
        return same and not instance.owner


def find_self_registered_instances(
    desired: Sequence[Instance], unowned: Sequence[Instance], own: Collection[PodNameAndAddress]
) -> dict[InstanceKey, Instance]:
    """Return the instances that pods registered themselves, by the key of the pod's desired instance.

    :param desired: the instances that the syncer wants. Endpoints without a pod, which may be machines, and
        whole Services are not in the result.
    :param unowned: the application's instances without a Eurekube owner. One that is not UP and is at another
        port or address than the pod's blocks nothing, and is not in the result.
    :param own: the pods that have their address for themselves, as far as that is known.
    """
    if not unowned:
        return {}
    by_address: dict[str, list[Instance]] = {}
    by_name: dict[str, list[Instance]] = {}
    for one in sorted(unowned, key=lambda one: one.instance_id):
        by_address.setdefault(one.ip_address, []).append(one)
        for name in _possible_pod_names(one):
            by_name.setdefault(name, []).append(one)
    shared = _shared_addresses(desired)
    found: dict[InstanceKey, Instance] = {}
    for want in desired:
        address = want.ip_address
        pod, namespace = pod_and_namespace_of_id(want.instance_id)
        if not is_name_of_pod(pod):
            continue
        here = by_address.get(address, ())
        at_place = [one for one in here if one.port.number == want.port.number]
        is_own = (pod, address) in own and address not in shared
        of_name = [*by_name.get(pod, ()), *by_name.get(f"{pod}/{namespace}", ())]
        candidates = [
            *at_place,
            *(one for one in here if is_own and one.status is Status.UP),
            *(one for one in of_name if one.status is Status.UP and _name_proves_pod(one, pod, address)),
        ]
        if candidates:
            found[want.key] = candidates[0]
    return found


def find_pods_to_verify(desired: Sequence[Instance], unowned: Sequence[Instance]) -> set[PodNameAndAddress]:
    """Return the pods for which :func:`find_self_registered_instances` needs to know whether they have their
    address for themselves.
    """
    addresses = {one.ip_address for one in unowned if one.status is Status.UP}
    shared = _shared_addresses(desired) if addresses else frozenset()
    here = (one for one in desired if one.ip_address in addresses and one.ip_address not in shared)
    endpoints = ((pod_and_namespace_of_id(one.instance_id)[0], one.ip_address) for one in here)
    return {one for one in endpoints if is_name_of_pod(one[0])}


def merge_self_registrations(
    self_registered_by_key: Mapping[InstanceKey, Instance],
    before: Iterable[SelfRegistration],
    desired: Iterable[Instance],
    unowned: Sequence[Instance],
) -> tuple[SelfRegistration, ...]:
    """Return the self-registrations known now, and earlier ones whose instances are still registered; none
    that is too long for a status.
    """
    addresses = {one.key: one.ip_address for one in desired if one.key in self_registered_by_key}
    pods = {key: pod_and_namespace_of_id(key[1])[0] for key in self_registered_by_key}
    found = {
        SelfRegistration(twin.instance_id, twin.ip_address, pods[key], addresses[key])
        for key, twin in self_registered_by_key.items()
        if len(twin.instance_id) <= MAX_ID_LENGTH_IN_STATUS
        and len(twin.ip_address) <= MAX_ADDRESS_LENGTH_IN_STATUS
    }
    there = {(one.instance_id, one.ip_address) for one in unowned}
    there -= {(one.instance_id, one.address) for one in found}
    kept = [one for one in before if (one.instance_id, one.address) in there]
    return (*sorted(kept), *sorted(found))[:MAX_REGISTRATIONS_IN_STATUS]


def is_unchanged_and_unrenewed(held: Instance, known: Instance) -> bool:
    """Return whether an instance is as it was last known, and nobody has registered or renewed it since;
    False where the end of a lease is not known.
    """
    if held.lease_ends_ms is None or known.lease_ends_ms is None:
        return False
    is_same = (held.ip_address, held.written_at_ms) == (known.ip_address, known.written_at_ms)
    return is_same and held.lease_ends_ms - known.lease_ends_ms < RENEWAL_TIME_SKEW_SECONDS * 1000


def dead_registrations_problem(dead: Sequence[SelfRegistration], application: str, why_not: str) -> Problem:
    """Return the problem that pods' own registrations outlived the pods.

    :param why_not: why one of them is not removed, where removal is asked for, or what is not known about it.
    """
    names = format_list(
        [printable(f"{application} {one.instance_id} at {one.address} of pod {one.pod}") for one in dead], 3
    )
    are = "registered itself, and is an endpoint no more"
    if len(dead) > 1:
        are = "registered themselves, and are endpoints no more"
    message = f"{names} {are}: callers go on calling until the Eureka lease ends"
    return Problem(SyncerCondition.DEAD_SELF_REGISTERED, f"{message}; {why_not}" if why_not else message)


def unreadable_instances_problem(odd: Sequence[Instance]) -> Problem | None:
    """Return the problem that others' instances of an application cannot be read; None for none."""
    names = [printable(f"{one.application} {one.instance_id} ({one.unreadable})") for one in odd]
    said = f"cannot be read, and left as it was found: {format_list(names, 3)}"
    return Problem(SyncerCondition.UNREADABLE_INSTANCE, said) if odd else None


def read_self_registrations(item: Object) -> tuple[SelfRegistration, ...]:
    """Read the pods' own registrations from a syncer's status."""
    entries = (item.get("status") or {}).get("selfRegistered") or ()
    names = ("instanceId", "address", "pod", "podAddress")
    return tuple(SelfRegistration(*(str(one.get(name) or "") for name in names)) for one in entries)


def to_status_entries(registrations: Iterable[SelfRegistration]) -> list[dict[str, str]]:
    """Return self-registrations as a syncer's status keeps them."""
    return [
        {"instanceId": one.instance_id, "address": one.address, "pod": one.pod, "podAddress": one.pod_address}
        for one in registrations
    ]


def is_certainly_registered_by_pod(instance: Instance, pod: str, namespace: str, address: str) -> bool:
    """Return whether an instance without a Eurekube owner has a pod's name, and is certainly that pod's."""
    return bool(_possible_pod_names(instance) & {pod, f"{pod}/{namespace}"}) and _name_proves_pod(
        instance, pod, address
    )


def _possible_pod_names(instance: Instance) -> set[str]:
    """Return the names that may be a pod's: the id, its first part, the host name, and ``pod/namespace``
    of a host name in the cluster's domain.
    """
    host = instance.host_name
    found = {instance.instance_id, instance.instance_id.partition(":")[0], host}
    parts = host.split(".")
    return found | {f"{parts[0]}/{parts[2]}"} if len(parts) > 3 and parts[3] == "svc" else found


def _name_proves_pod(one: Instance, pod: str, address: str) -> bool:
    """Return whether a pod's name in an instance proves that it is that pod's: no other pod can have both
    the name and the address.
    """
    return (
        one.ip_address == address
        or bool(_GENERATED_POD_NAME_PATTERN.search(pod))
        or not _is_routable(one.ip_address)
    )


def _is_routable(text: str) -> bool:
    """Return whether an address may lead to another machine, unlike a loopback or link-local address."""
    address = parse_ip_address(text)
    return address is not None and not (
        address.is_loopback or address.is_unspecified or address.is_link_local
    )


def _shared_addresses(desired: Iterable[Instance]) -> frozenset[str]:
    counts = Counter(one.ip_address for one in desired)
    return frozenset(address for address, count in counts.items() if count > 1)
