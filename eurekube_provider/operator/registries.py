"""The registries of one operator, by the names that ``spec.eureka`` may give, and their classes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from eurekube_provider.core.decision import REPLICATION_WAIT_SECONDS
from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, ClusterOwner
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import Plan, PlanOutcome
from eurekube_provider.core.registry import NeverRead, Registry, reading_error
from eurekube_provider.eureka.eureka_registry import EurekaRegistry

if TYPE_CHECKING:
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

_log = logging.getLogger(__name__)

MOST_COMPARED_INSTANCES = 3
"""Most instances that are read at two connections to find out whether they lead to one Eureka."""


def _create_zookeeper_registry(*given: Any, **more: Any) -> Registry:
    from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry

    return ZooKeeperRegistry(*given, **more)


REGISTRY_FACTORY_BY_CONNECTION_CLASS: dict[str, Callable[..., Registry]] = {
    "Connection": EurekaRegistry.from_connection,
    "ZooKeeperConnection": _create_zookeeper_registry,
}
"""Functions that create a registry from its connection, by the name of the connection's class."""


def zookeeper_servers(connection: Any) -> ZooKeeperServers:
    """Return the servers of a ZooKeeper connection, for a single check."""
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

    return ZooKeeperServers(connection)


def instances_under_other_cluster_names(
    registry: Registry, cluster: Cluster, key: tuple[str, str]
) -> list[Instance]:
    """Return a syncer's instances under other names of its cluster, known by the cluster's UID."""
    return [
        one
        for name in registry.cluster_names() - {cluster.name}
        for one in registry.known_instances(owner=str(ClusterOwner(name, *key)))
        if cluster.has_syncer_under_another_name(one.owner, one.metadata.get(CLUSTER_UID_KEY))
    ]


class Registries(dict[str, Registry]):
    """All registries by connection name, as one connection's workers use them: without waiting for others.

    :param worker_registry: the name of the workers' connection; empty for callers that wait for any.
    :param same_eureka_pairs: the pairs that are known to lead to one Eureka, which all workers share.
    """

    def __init__(
        self,
        registries: Mapping[str, Registry],
        worker_registry: str,
        same_eureka_pairs: set[frozenset[str]],
    ) -> None:
        super().__init__(registries)
        self._worker_registry = worker_registry
        self._same_eureka_pairs = same_eureka_pairs

    @property
    def is_worker_registry_unread(self) -> bool:
        """True if the workers' own registry has never been read."""
        worker_registry = self.get(self._worker_registry)
        return worker_registry is not None and isinstance(worker_registry.condition(), NeverRead)

    def instances_of_owner(self, owner: str) -> dict[str, list[Instance]]:
        return {name: registry.known_instances(owner=owner) for name, registry in self.items()}

    def instances_under_other_cluster_names(
        self, cluster: Cluster, key: tuple[str, str]
    ) -> dict[str, list[Instance]]:
        """Return a syncer's instances under other names of its cluster, by connection; mostly none."""
        found = {name: instances_under_other_cluster_names(one, cluster, key) for name, one in self.items()}
        return {name: there for name, there in found.items() if there}

    def apply(self, name: str, steps: Plan, owner: str) -> PlanOutcome:
        """Carry out a plan; see :meth:`~eurekube_provider.core.registry.Registry.apply`."""
        failure = self._failure_of_other_registry(name)
        if failure is not None:
            return PlanOutcome.of(steps.changes, [failure] * len(steps.changes))
        return self[name].apply(steps, owner)

    def connections_to_same_eureka(
        self, home: str, owner: str, wanted: Collection[Instance]
    ) -> tuple[frozenset[str], dict[str, RegistryError | None]]:
        """Return the other connections that lead to the same Eureka as ``home``.

        :param wanted: the instances that ``owner`` wants at ``home``: a connection is compared only where it
            has some of them.
        :returns: the connections, and those not decided yet with the error, or None where a later read
            decides.
        """
        same_eureka, doubts = set[str](), dict[str, RegistryError | None]()
        for name in self.keys() - {home}:
            there = {one.key for one in self[name].known_instances(owner=owner)}
            keys = [one.key for one in wanted if one.key in there] if there else ()
            if not keys:
                continue
            try:
                answer = self.lead_to_same_eureka(home, name, keys)
            except RegistryError as error:
                doubts[name] = error
                continue
            if answer is None:
                doubts[name] = None
            elif answer:
                same_eureka.add(name)
        return frozenset(same_eureka), doubts

    def lead_to_same_eureka(self, home: str, other: str, keys: Iterable[InstanceKey]) -> bool | None:
        """Return whether two connections lead to one Eureka, or to servers that replicate to each other.

        Then an instance removed at one of them is removed at both. The proof is an instance that both show as
        written at the same moment, since a syncer that moves registers its instances anew. A proven pair is
        remembered, since a later change may be sent to one of them first.

        :param home: the connection at which the syncer wants the instances of these keys.
        :param other: the connection that has the instances now.
        :returns: None where that is not known yet: an instance was changed just now, or only one of them has
            it.
        :raises RegistryError: one of them cannot be read.
        """
        pair = frozenset((home, other))
        if pair in self._same_eureka_pairs:
            return True
        failure = self._failure_of_other_registry(other)
        if failure is not None:
            raise failure
        compared = sorted(keys, key=lambda key: self[home].get(key) is None)[:MOST_COMPARED_INSTANCES]
        for name in (home, other):
            self[name].refresh(compared, include_known=True)
        versions = [(self[home].get(key), self[other].get(key)) for key in compared]
        both = [(one.written_at_ms, two.written_at_ms) for one, two in versions if one and two]
        if any(at and at == there for at, there in both):
            self._same_eureka_pairs.add(pair)
            _log.warning(
                "kept the instances of a move between two connections, removing none: both lead to one "
                "Eureka",
                extra={"eureka": f"{home},{other}", "hint": "keep one of them"},
            )
            return True
        since_ms = (time.time() - REPLICATION_WAIT_SECONDS) * 1000
        return None if not both or any(at > since_ms for at, _ in both) else False

    def _failure_of_other_registry(self, name: str) -> RegistryError | None:
        """Return the error for which another connection's registry is not asked; None if it is asked."""
        return reading_error(self[name].condition()) if self._worker_registry not in ("", name) else None

    def require_read(self, name: str) -> None:
        """Raise an error until a registry has been read once."""
        condition = self[name].condition()
        if isinstance(condition, NeverRead):
            raise condition.error or RegistryUnreachable(f"the Eureka {name!r} has not been read yet")
