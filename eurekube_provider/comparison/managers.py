"""Managers of instances in Eureka, read from the owner in an instance's metadata.

Another kind of owner is a member of :class:`ManagerKind`, a branch of :func:`manager_of` and one of
:func:`~eurekube_provider.comparison.explaining.predict_effects`.
"""

from __future__ import annotations

from dataclasses import dataclass

from eurekube_provider.comparison.ranked import RankedEnum
from eurekube_provider.core.identity import ClusterOwner, StackOwner, parse_owner
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
