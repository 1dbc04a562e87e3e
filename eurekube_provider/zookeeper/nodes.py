"""The nodes of all instances, as they were last read; any number of threads may share them."""

from __future__ import annotations

import threading

from eurekube_provider.core.brake import counts_for_brake
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, cluster_name_of_owner
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.zookeeper.codec import Node


class KnownNodes:
    """The nodes by path; without ``checks_cluster`` another cluster of the same name counts as this one."""

    def __init__(self, cluster: Cluster, *, checks_cluster: bool) -> None:
        self._cluster, self._checks_cluster = cluster, checks_cluster
        self._lock = threading.Lock()
        self._nodes, self._removed = dict[str, Node](), dict[str, int]()

    def store_and_return_owners(self, node: Node) -> set[str]:
        """Store a node that was read or written, unless it is older; return the changed owners."""
        with self._lock:
            before = self._nodes.get(node.path)
            newest = before.mzxid if before is not None else self._removed.get(node.path, -1)
            if node.mzxid <= newest:
                return set()
            self._removed.pop(node.path, None)
            self._nodes[node.path] = node
            return {one.instance.owner or "" for one in (before, node) if one is not None}

    def remove_and_return_owners(self, path: str, *, by_us: bool = False) -> set[str]:
        """Remove a node that is gone; after our own removal, late answers do not bring it back."""
        with self._lock:
            before = self._nodes.pop(path, None)
            if by_us and before is not None:
                self._removed[path] = before.mzxid
            elif not by_us:
                self._removed.pop(path, None)
            return {before.instance.owner or ""} if before is not None else set()

    def update_and_return_owners(self, path: str, node: Node | None) -> set[str]:
        """Store a node as it was read, or remove it where it is gone; return the changed owners."""
        return self.remove_and_return_owners(path) if node is None else self.store_and_return_owners(node)

    def all_nodes(self) -> list[Node]:
        with self._lock:
            return list(self._nodes.values())

    def paths(self, service_path: str = "") -> list[str]:
        """Return the paths of all nodes, or of those below one service's node."""
        with self._lock:
            return [
                path for path in self._nodes if not service_path or path.rpartition("/")[0] == service_path
            ]

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the instances of an owner, of an application, of both, or all.

        Of two with the same key the older one comes last, so that a plan replaces the older one.
        """
        name, is_all = application.upper(), not (owner or application)
        found = [one for one in self.all_nodes() if owner in ("", one.instance.owner)]
        found = [one for one in found if name in ("", one.instance.application)]
        found = [one for one in found if is_all or not self.is_of_other_cluster_of_same_name(one.instance)]
        return [one.instance for one in sorted(found, key=lambda one: -one.mzxid)]

    def nodes_of_key(self, key: InstanceKey) -> list[Node]:
        """Return the nodes of a key: one, except where names differ in case, or the name has just changed."""
        return [one for one in self.all_nodes() if one.instance.key == key]

    def owners(self, *, lookup_name: str = "") -> set[str]:
        """Return the owners of instances, or of those under a name; the empty owner stands for foreign
        instances."""
        there = [one.instance for one in self.all_nodes()]
        if not lookup_name:
            return {one.owner for one in there if one.owner}
        return {one.owner or "" for one in there if lookup_name.lower() in one.names}

    def cluster_names(self) -> set[str]:
        """Return the names of the clusters whose syncers have instances."""
        return {name for owner in self.owners() if (name := cluster_name_of_owner(owner)) is not None}

    def count_up_instances(self, *, owner: str = "", cluster: str = "") -> int:
        """Return how many instances of an owner, or of a cluster's syncers, are UP."""
        return sum(
            one.status is Status.UP and counts_for_brake(one)
            for one in self.known_instances(owner=owner)
            if one.owner and (owner or cluster_name_of_owner(one.owner) == cluster)
        )

    def is_of_other_cluster_of_same_name(self, instance: Instance) -> bool:
        """Return whether a syncer of another cluster with this cluster's name owns the instance."""
        uid = instance.metadata.get(CLUSTER_UID_KEY) or self._cluster.uid
        is_named_so = self._cluster.parse_syncer_of_this_cluster(instance.owner) is not None
        return self._checks_cluster and uid != self._cluster.uid and is_named_so
