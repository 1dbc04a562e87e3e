"""The names that the operators of one cluster, each serving its own syncers, give to it. Instances carry the
cluster's UID, and the name in their owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, ClusterOwner, parse_owner
from eurekube_provider.core.model import Instance

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
