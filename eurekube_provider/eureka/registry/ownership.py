"""Whose an instance is, as far as renewals and changes are concerned."""

from __future__ import annotations

from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.rules import is_of_stack


class Ownership:
    """What one operator renews.

    :param operator_name: what the ``eurekube.renewer`` of stacks' registrations says.
    :param checks_cluster: whether another cluster of our name is another one; else it was ours once.
    """

    def __init__(self, cluster: Cluster, operator_name: str, *, checks_cluster: bool) -> None:
        self._cluster = cluster
        self._operator_name = operator_name
        self._checks_cluster = checks_cluster

    def is_ours(self, instance: Instance) -> bool:
        """Whether an instance is a syncer's of this cluster, or a stack's that asks us to renew it."""
        return self.is_syncers(instance) or self.is_renewed_for_stack(instance)

    def is_syncers(self, instance: Instance) -> bool:
        """Whether a syncer of this cluster owns it."""
        is_named_so = self._cluster.syncer_of(instance.owner) is not None
        return is_named_so and not self.is_of_another_cluster(instance)

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Whether a syncer of another cluster owns it that has our name: both began when neither had any."""
        uid = instance.metadata.get(CLUSTER_UID_KEY, self._cluster.uid)
        if not self._checks_cluster or uid == self._cluster.uid:
            return False
        return self._cluster.syncer_of(instance.owner) is not None

    def is_renewed_for_stack(self, instance: Instance) -> bool:
        """Whether a stack owns it and asks this operator to renew it."""
        return instance.renewer == self._operator_name and is_of_stack(instance)
