"""The reader of the Leases of a cluster's operators, and of the last renewal of the cluster's instances."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from eurekube_provider.comparison.managers import owner_in_cluster
from eurekube_provider.comparison.operators import (
    CLOCK_TOLERANCE_SECONDS,
    OperatorsSnapshot,
    operator_state_from_lease,
)
from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.lease_notes import OPERATOR_LABEL
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, key_of, qualified_name
from eurekube_provider.core.served import last_renewed_unix
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import LEASES, KubeAccess, list_objects_by_name

DEFAULT_LEASE_NAME = "eurekube-leader"
"""The name of the Lease of an operator with the default name; older versions put no label on it."""

SECOND_LEASE_READ_SECONDS = 4.0
"""Seconds between two reads of a Lease: its holder renews it every two seconds."""

MAX_INSTANCES_READ_PAST_CACHES = 3
"""The number of instances of each Eureka that are read one by one, to find the last renewal."""


def read_operators(
    access: KubeAccess,
    uid: str,
    eurekas: Iterable[tuple[Peers, Sequence[Instance]]],
    namespaces: Collection[str],
    unread_parts: list[str],
    wait: Callable[[float], None] = time.sleep,
) -> OperatorsSnapshot:
    """Read the operators' Leases, and when the cluster's instances were last renewed.

    :param uid: the UID of the cluster's kube-system namespace.
    :param eurekas: each Eureka with its listed instances; a few instances are read past its caches.
    :param namespaces: the namespaces whose syncers' instances are read; empty for all.
    :param unread_parts: gets a sentence where the Leases cannot be read.
    :param wait: waits between two reads of a Lease, where differing clocks leave open if its holder is alive.
    """
    at = _read_last_renewal(uid, eurekas, namespaces)
    try:
        found = {one.lease_name: one for one in map(operator_state_from_lease, _list_operator_leases(access))}
        now, ahead = time.time(), 0.0
        nobody_leads = not any(one.is_leading(now) for one in found.values())
        if any(one.needs_second_read(now, nobody_leads=nobody_leads) for one in found.values()):
            wait(SECOND_LEASE_READ_SECONDS)
            found = {
                qualified_name(one): operator_state_from_lease(one, found.get(qualified_name(one)))
                for one in _list_operator_leases(access)
            }
            times = [one.renewed_at for one in found.values() if one.was_seen_renewed and one.renewed_at]
            if times and abs(time.time() - max(times)) > CLOCK_TOLERANCE_SECONDS:
                ahead = time.time() - max(times)
    except KubernetesError as error:
        failed = OperatorsSnapshot(lease_error=str(error), instances_renewed_at=at)
        if not failed.are_instances_renewed(time.time()):
            unread_parts.append(f"whether an operator leads: {error}")
        return failed
    states = tuple(sorted(found.values(), key=lambda one: (not one.holder, one.lease_name)))
    return OperatorsSnapshot(states, instances_renewed_at=at, clock_ahead_seconds=ahead)


def _list_operator_leases(access: KubeAccess) -> list[Object]:
    """Return all Leases of operators, of any name and version."""
    labelled = access.get(LEASES.path(), {"labelSelector": OPERATOR_LABEL}).get("items") or []
    named = list_objects_by_name(access, LEASES, DEFAULT_LEASE_NAME)
    every = {key_of(one): one for one in (*named, *labelled)}
    return list(every.values())


def _read_last_renewal(
    uid: str, eurekas: Iterable[tuple[Peers, Sequence[Instance]]], namespaces: Collection[str]
) -> float | None:
    """Return the last renewal of the cluster's instances; the newest of a list are read past the caches."""
    times: list[float] = []
    for peers, listed in eurekas:
        ours = [
            one
            for one in listed
            if (owner := owner_in_cluster(one, uid)) and (not namespaces or owner.namespace in namespaces)
        ]
        ours.sort(key=lambda one: one.lease_ends_ms or 0, reverse=True)
        for one in ours[:MAX_INSTANCES_READ_PAST_CACHES]:
            with suppress(RegistryError):
                found = peers.read(*one.key)
                if found is not None and (at := last_renewed_unix(found)) is not None:
                    times.append(at)
    return max(times, default=None)
