"""The registries of one operator, by the names that ``spec.eureka`` may give, and their classes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from eurekube_provider.core.decision import REPORTED_WITHIN_SECONDS
from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, ClusterOwner
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.plan import Outcome, Plan
from eurekube_provider.core.registry import Registry, Unread, failure_of
from eurekube_provider.eureka.eureka_registry import EurekaRegistry

if TYPE_CHECKING:
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

_log = logging.getLogger(__name__)

MOST_COMPARED = 3
"""Most instances that are read at two connections to find out whether they lead to one Eureka."""


def _zookeeper(*given: Any, **more: Any) -> Registry:
    from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry

    return ZooKeeperRegistry(*given, **more)


KINDS: dict[str, Callable[..., Registry]] = {
    "Connection": EurekaRegistry.connected,
    "ZooKeeperConnection": _zookeeper,
}
"""Registry classes by the class of their connection."""


def zookeeper_servers(connection: Any) -> ZooKeeperServers:
    """Return the servers of a ZooKeeper connection, for a single check."""
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

    return ZooKeeperServers(connection)


def called_otherwise(registry: Registry, cluster: Cluster, key: tuple[str, str]) -> list[Instance]:
    """Return a syncer's instances at a registry under other names of its cluster, known by the cluster's UID.

    :param key: the syncer's namespace and name.
    """
    return [
        one
        for name in registry.clusters() - {cluster.name}
        for one in registry.known(owner=str(ClusterOwner(name, *key)))
        if cluster.owns_under_another_name(one.owner, one.metadata.get(CLUSTER_UID_KEY))
    ]


class Registries(dict[str, Registry]):
    """All registries, for the workers of one of them, which do not wait for another registry that fails.

    :param served: the connection whose workers these are; empty for callers that wait for any.
    :param alike: the pairs that are known to lead to one Eureka, which all workers share.
    """

    def __init__(
        self,
        registries: Mapping[str, Registry],
        served: str = "",
        alike: set[frozenset[str]] | None = None,
    ) -> None:
        super().__init__(registries)
        self._served = served
        self._alike = set[frozenset[str]]() if alike is None else alike

    @property
    def is_served_unread(self) -> bool:
        """True if the registry whose workers these are has never been read."""
        served = self.get(self._served)
        return served is not None and isinstance(served.condition(), Unread)

    def owned(self, owner: str) -> dict[str, list[Instance]]:
        """Return an owner's instances at each connection."""
        return {name: registry.known(owner=owner) for name, registry in self.items()}

    def called_otherwise(self, cluster: Cluster, key: tuple[str, str]) -> dict[str, list[Instance]]:
        """Return a syncer's instances under other names of its cluster, by connection; mostly none."""
        found = {name: called_otherwise(registry, cluster, key) for name, registry in self.items()}
        return found if any(found.values()) else {}

    def apply(self, name: str, steps: Plan, owner: str) -> Outcome:
        """Carry out a plan; see :meth:`~eurekube_provider.core.registry.Registry.apply`."""
        failure = self._failure_of(name)
        if failure is not None:
            return Outcome.of(steps.changes, [failure] * len(steps.changes))
        return self[name].apply(steps, owner)

    def same_eureka(
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
            there = {one.key for one in self[name].known(owner=owner)}
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

    def lead_to_same_eureka(self, home: str, other: str, keys: Iterable[Key]) -> bool | None:
        """Return whether two connections lead to one Eureka, or to servers that replicate to each other.

        Then an instance removed at one of them is removed at both. The proof is an instance that both show as
        written at the same moment, since a syncer that moves registers its instances anew. A proven pair is
        remembered, since a later change may be sent to one of them first.

        :param home: where the instances of these keys shall be; at ``other`` they are.
        :returns: None where that is not known yet: an instance was changed just now, or only one of them has
            it.
        :raises RegistryError: one of them cannot be read.
        """
        pair = frozenset((home, other))
        if pair in self._alike:
            return True
        failure = self._failure_of(other)
        if failure is not None:
            raise failure
        compared = sorted(keys, key=lambda key: self[home].get(key) is None)[:MOST_COMPARED]
        for name in (home, other):
            self[name].refresh(compared, known_too=True)
        versions = [(self[home].get(key), self[other].get(key)) for key in compared]
        both = [(one.written_at_ms, two.written_at_ms) for one, two in versions if one and two]
        if any(at and at == there for at, there in both):
            self._alike.add(pair)
            _log.warning(
                "kept the instances of a move between two connections: both lead to one Eureka",
                extra={"eureka": f"{home},{other}", "hint": "keep one of them"},
            )
            return True
        since_ms = (time.time() - REPORTED_WITHIN_SECONDS) * 1000
        return None if not both or any(at > since_ms for at, _ in both) else False

    def _failure_of(self, name: str) -> RegistryError | None:
        """Return why another connection's registry is not asked; None for one that is asked."""
        return failure_of(self[name].condition()) if self._served not in ("", name) else None

    def require_read(self, name: str) -> None:
        """Raise an error until a registry has been read once.

        :raises RegistryError: it has not.
        """
        condition = self[name].condition()
        if isinstance(condition, Unread):
            raise condition.error or RegistryUnreachable(f"the Eureka {name!r} has not been read yet")
