"""Managers of instances in Eureka, read from the owner in an instance's metadata, and the names that the
operators of one cluster, each serving its own syncers, give to it: instances carry its UID, and the name.

Another kind of owner is a member of :class:`ManagerKind`, a branch of :func:`manager_of` and one of
:func:`~eurekube_provider.comparison.explaining.predict_effects`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from eurekube_provider.comparison.ranked import RankedEnum
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, ClusterOwner, StackOwner, parse_owner
from eurekube_provider.core.model import Instance


class ManagerKind(RankedEnum):
    """The kinds of managers, in the order in which they are shown."""

    SYNCER = "syncer"
    """A syncer of this cluster."""

    OTHER_CLUSTER = "other cluster"
    """A syncer of another cluster."""

    STACK = "stack"
    """A Pulumi stack."""

    OTHER = "other"
    """An owner of a form that this version does not know."""

    ITSELF = "itself"
    """The application registers itself."""


@dataclass(frozen=True, slots=True)
class Manager:
    """The manager of an instance.

    :ivar name: ``namespace/syncer``; ``cluster/namespace/syncer``; ``organization/project/stack``; the owner
        as it is written; empty for the application itself.
    """

    kind: ManagerKind
    name: str = ""

    def __str__(self) -> str:
        if self.kind is ManagerKind.OTHER_CLUSTER:
            cluster, _, syncer = self.name.partition("/")
            return f"syncer {syncer} of cluster {cluster}"
        if self.kind in (ManagerKind.SYNCER, ManagerKind.STACK):
            return f"{self.kind} {self.name}"
        return self.name or "itself"


def manager_of(instance: Instance, cluster: str | None) -> Manager:
    """Return the manager of an instance as seen from the cluster that was read; None without a cluster."""
    owner = parse_owner(instance.owner)
    if isinstance(owner, ClusterOwner):
        if owner.cluster == cluster:
            return Manager(ManagerKind.SYNCER, f"{owner.namespace}/{owner.syncer}")
        return Manager(ManagerKind.OTHER_CLUSTER, f"{owner.cluster}/{owner.namespace}/{owner.syncer}")
    if isinstance(owner, StackOwner):
        return Manager(ManagerKind.STACK, f"{owner.organization}/{owner.project}/{owner.stack}")
    return Manager(ManagerKind.OTHER, instance.owner) if instance.owner else Manager(ManagerKind.ITSELF)


NamespacedSyncerName = tuple[str, str]


def find_cluster_name(
    uid: str, instances: Iterable[Instance], namespaces: Collection[str] = ()
) -> str | None:
    """Return the name that an operator gives to the cluster of a UID; None where no instance has the UID, or
    none of a syncer of these namespaces, empty for all.
    """
    owners = (owner for one in instances if (owner := owner_in_cluster(one, uid)))
    return next((one.cluster for one in owners if not namespaces or one.namespace in namespaces), None)


def cluster_names_by_syncer(
    cluster: Cluster, instances: Iterable[Instance]
) -> dict[NamespacedSyncerName, str]:
    """Return the cluster's other name by syncer, where no instance of the syncer has the name that counts."""
    found: dict[NamespacedSyncerName, str] = {}
    for one in instances:
        if owner := owner_in_cluster(one, cluster.uid):
            key = (owner.namespace, owner.syncer)
            found[key] = cluster.name if owner.cluster == cluster.name else found.get(key, owner.cluster)
    return {key: name for key, name in found.items() if name != cluster.name}


def owner_in_cluster(instance: Instance, uid: str) -> ClusterOwner | None:
    """Return the owner of an instance that has the cluster's UID; None where the UID is not known."""
    owner = parse_owner(instance.owner)
    is_of_cluster = uid and instance.metadata.get(CLUSTER_UID_KEY) == uid
    return owner if is_of_cluster and isinstance(owner, ClusterOwner) else None
