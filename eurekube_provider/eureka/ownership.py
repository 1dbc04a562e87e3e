"""Whose an instance is, as far as renewals are concerned."""

from __future__ import annotations

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.accepted_renewals import is_of_stack


class Ownership:
    """What one operator renews.

    :param operator_name: what the ``eurekube.renewer`` of stacks' registrations says.
    """

    def __init__(self, cluster: Cluster, operator_name: str) -> None:
        self._cluster = cluster
        self._operator_name = operator_name

    def is_ours(self, instance: Instance) -> bool:
        """Whether an instance is a syncer's of this cluster, or a stack's that asks us to renew it."""
        return self.is_syncers(instance) or self.is_renewed_for_stack(instance)

    def is_syncers(self, instance: Instance) -> bool:
        """Whether a syncer of this cluster owns it."""
        return self._cluster.syncer_of(instance.owner) is not None

    def is_renewed_for_stack(self, instance: Instance) -> bool:
        """Whether a stack owns it and asks this operator to renew it."""
        return instance.renewer == self._operator_name and is_of_stack(instance)
