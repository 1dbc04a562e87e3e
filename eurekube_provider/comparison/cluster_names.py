"""The names that the operators of one cluster give to it, read from their instances.

Instances carry the cluster's UID, and the name in their owner. Several operators may serve one cluster, each
its own syncers, under names of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, ClusterOwner, parse_owner
from eurekube_provider.core.model import Instance

NamespacedSyncerName = tuple[str, str]
"""Namespace and name of a syncer."""


def find_cluster_name(
    uid: str, instances: Iterable[Instance], namespaces: Collection[str] = ()
) -> str | None:
    """Return the name that an operator gives to a cluster; None where no instance has the cluster's UID.

    :param uid: the UID of the cluster's kube-system namespace.
    :param namespaces: the namespaces whose syncers are compared; empty for all.
    """
    owners = _owners_in_cluster(uid, instances)
    return next((one.cluster for one in owners if not namespaces or one.namespace in namespaces), None)


def cluster_names_by_syncer(
    cluster: Cluster, instances: Iterable[Instance]
) -> dict[NamespacedSyncerName, str]:
    """Return the cluster's name by syncer, for syncers whose instances all have another name for the cluster.

    :param cluster: the cluster, with the name that counts where instances have several.
    """
    found: dict[NamespacedSyncerName, str] = {}
    for owner in _owners_in_cluster(cluster.uid, instances):
        key = (owner.namespace, owner.syncer)
        found[key] = cluster.name if owner.cluster == cluster.name else found.get(key, owner.cluster)
    return {key: name for key, name in found.items() if name != cluster.name}


def _owners_in_cluster(uid: str, instances: Iterable[Instance]) -> Iterator[ClusterOwner]:
    """Yield the owners of the instances that have the cluster's UID; none where the UID is not known."""
    for one in instances:
        owner = parse_owner(one.owner)
        if uid and isinstance(owner, ClusterOwner) and one.metadata.get(CLUSTER_UID_KEY) == uid:
            yield owner
