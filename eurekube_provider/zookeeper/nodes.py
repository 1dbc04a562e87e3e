"""The nodes of all instances, as they were read last; any number of threads may share them."""

from __future__ import annotations

import threading

from eurekube_provider.core.brake import counts
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, cluster_of
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.zookeeper.codec import Node


class Nodes:
    """The nodes by path; without ``checks_cluster`` another cluster of our name was ours once."""

    def __init__(self, cluster: Cluster, *, checks_cluster: bool) -> None:
        self._cluster, self._checks_cluster = cluster, checks_cluster
        self._lock = threading.Lock()
        self._nodes, self._removed = dict[str, Node](), dict[str, int]()

    def put(self, node: Node) -> set[str]:
        """Note what was read or written, unless it is older; return whose instances changed."""
        with self._lock:
            before = self._nodes.get(node.path)
            newest = before.mzxid if before is not None else self._removed.get(node.path, -1)
            if node.mzxid <= newest:
                return set()
            self._removed.pop(node.path, None)
            self._nodes[node.path] = node
            return {one.instance.owner or "" for one in (before, node) if one is not None}

    def drop(self, path: str, *, by_us: bool = False) -> set[str]:
        """Note that nothing stands there any more, and, removed by us, that no late answer brings it back."""
        with self._lock:
            before = self._nodes.pop(path, None)
            if by_us and before is not None:
                self._removed[path] = before.mzxid
            elif not by_us:
                self._removed.pop(path, None)
            return {before.instance.owner or ""} if before is not None else set()

    def all(self) -> list[Node]:
        """Return all of them."""
        with self._lock:
            return list(self._nodes.values())

    def paths(self, below: str = "") -> list[str]:
        """Return the paths, all or those of one service's node."""
        with self._lock:
            return [path for path in self._nodes if not below or path.rpartition("/")[0] == below]

    def known(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the instances of an owner, of an application, of both, or all.

        Of two of one key the older one comes last: a plan takes that one for what is there, and replaces it.
        """
        name, is_all = application.upper(), not (owner or application)
        found = [one for one in self.all() if owner in ("", one.instance.owner)]
        found = [one for one in found if name in ("", one.instance.application)]
        found = [one for one in found if is_all or not self.is_of_another_cluster(one.instance)]
        return [one.instance for one in sorted(found, key=lambda one: -one.mzxid)]

    def of_key(self, key: Key) -> list[Node]:
        """Return what stands under a key: one node, but for names that differ in case or changed just now."""
        return [one for one in self.all() if one.instance.key == key]

    def owners(self, *, called: str = "") -> set[str]:
        """Return who has instances, or some of a name: an empty owner has what nobody of ours registered."""
        there = [one.instance for one in self.all()]
        if not called:
            return {one.owner for one in there if one.owner}
        return {one.owner or "" for one in there if called.lower() in one.names}

    def clusters(self) -> set[str]:
        """Return the names of the clusters whose syncers have instances."""
        return {name for owner in self.owners() if (name := cluster_of(owner)) is not None}

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """Return how many instances of an owner, or of a cluster's syncers, are UP."""
        return sum(
            one.status is Status.UP and counts(one)
            for one in self.known(owner=owner)
            if one.owner and (owner or cluster_of(one.owner) == cluster)
        )

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Return whether a syncer of another cluster of our name owns it."""
        uid = instance.metadata.get(CLUSTER_UID_KEY) or self._cluster.uid
        is_named_so = self._cluster.syncer_of(instance.owner) is not None
        return self._checks_cluster and uid != self._cluster.uid and is_named_so
