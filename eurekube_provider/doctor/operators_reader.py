"""The reader of the Leases of a cluster's operators, and of the last renewal of the cluster's instances."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from eurekube_provider.comparison.operators import OperatorsRead, OperatorState, operator_of
from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.identity import CLUSTER_UID_KEY, ClusterOwner, parse_owner
from eurekube_provider.core.lease_notes import OPERATOR_LABEL
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, qualified
from eurekube_provider.core.served import renewed_at
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import LEASES, KubeAccess, objects_named

DEFAULT_LEASE = "eurekube-leader"
"""The name of the Lease of an operator with the default name; older versions put no label on it."""

RENEWED_SECONDS = 4.0
"""Seconds between two reads of a Lease: its holder renews it every two seconds."""

MOST_READ = 3


def read_operators(
    access: KubeAccess,
    uid: str,
    eurekas: Iterable[tuple[Peers, Sequence[Instance]]],
    namespaces: Collection[str],
    unread: list[str],
    wait: Callable[[float], None] = time.sleep,
) -> OperatorsRead:
    """Read the operators' Leases, and when the cluster's instances were last renewed.

    :param uid: the UID of the cluster's kube-system namespace.
    :param eurekas: each Eureka with its listed instances; a few instances are read past its caches.
    :param namespaces: the namespaces whose syncers' instances are read; empty for all.
    :param unread: gets a sentence where the Leases cannot be read.
    :param wait: waits between two reads of a Lease, where differing clocks leave open if its holder is alive.
    """
    at = _renewed_at(uid, eurekas, namespaces)
    try:
        found = {one.lease: one for one in map(operator_of, _leases(access))}
        now = time.time()
        if any(one.may_be_alive(now) for one in found.values()):
            wait(RENEWED_SECONDS)
            found = {qualified(one): operator_of(one, found.get(qualified(one))) for one in _leases(access)}
    except KubernetesError as error:
        failed = OperatorsRead(error=str(error), renewed_at=at)
        if not failed.is_renewed(time.time()):
            unread.append(f"whether an operator leads: {error}")
        return failed
    return OperatorsRead(tuple(sorted(found.values(), key=_order)), renewed_at=at)


def _order(one: OperatorState) -> tuple[bool, str]:
    return (not one.holder, one.lease)


def _leases(access: KubeAccess) -> list[Object]:
    """Return all Leases of operators, of any name and version."""
    labelled = access.get(LEASES.path(), {"labelSelector": OPERATOR_LABEL}).get("items") or []
    named = objects_named(access, LEASES, DEFAULT_LEASE)
    every = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in (*named, *labelled)}
    return list(every.values())


def _renewed_at(
    uid: str, eurekas: Iterable[tuple[Peers, Sequence[Instance]]], namespaces: Collection[str]
) -> float | None:
    """Return the last renewal of an instance of the cluster's syncers; a few are read past the caches.

    The instances that the list shows as renewed last are read: others may be leftovers.
    """
    times: list[float] = []
    for peers, listed in eurekas:
        ours = [one for one in listed if _is_of_operator(one, uid, namespaces)]
        ours.sort(key=lambda one: one.lease_ends_ms or 0, reverse=True)
        for one in ours[:MOST_READ]:
            with suppress(RegistryError):
                found = peers.read(*one.key)
                if found is not None and (at := renewed_at(found)) is not None:
                    times.append(at)
    return max(times, default=None)


def _is_of_operator(one: Instance, uid: str, namespaces: Collection[str]) -> bool:
    owner = parse_owner(one.owner)
    if not isinstance(owner, ClusterOwner) or not uid or one.metadata.get(CLUSTER_UID_KEY) != uid:
        return False
    return not namespaces or owner.namespace in namespaces
