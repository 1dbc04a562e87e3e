"""The ensemble of a connection for short-lived callers: commands, doctor and self-check."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError

from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, check_cluster_name, cluster_of
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.plan import ChangeError
from eurekube_provider.zookeeper.codec import Node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.ensemble import CALL_SECONDS, Ensemble
from eurekube_provider.zookeeper.nodes import Nodes
from eurekube_provider.zookeeper.writer import MARKED_SECONDS, Writer, marker_path


class Marker(NamedTuple):
    """The operator that last wrote for a cluster, and True if none has written there for long."""

    operator: str = ""
    is_old: bool = True


class ZooKeeperServers:
    """One ensemble with the interface of a Eureka's servers; a question to all servers is asked once."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self.connection, self._ensemble = connection, Ensemble(connection)
        self.client, self.url, self.close = self._ensemble.client, self._ensemble.url, self._ensemble.close
        self.peers = (self,)
        self._is_started = False
        self._paths: dict[Key, str] = {}

    def connect(self) -> None:
        """Connect at the first call; raise if there is no connection."""
        if not self._is_started:
            self._is_started = True
            self.client.start_async().wait(timeout=CALL_SECONDS)
        self._ensemble.require_connection()

    def nodes(self) -> list[Node]:
        """Return the nodes of all instances."""
        self.connect()
        read = self._ensemble.nodes(self._ensemble.tree())
        found = [one for one in read.values() if one is not None]
        self._paths = {one.instance.key: one.path for one in found}
        return found

    def list_everywhere(self) -> tuple[list[Instance], dict[str, RegistryError]]:
        """Return all instances, and no failures, as a Eureka's servers do."""
        return [one.instance for one in self.nodes()], {}

    def everywhere(self, ask: Callable[[Any], Any]) -> tuple[dict[str, Any], dict[str, RegistryError]]:
        """Return the ensemble's answer by URL, and no failures, as a Eureka's servers do."""
        return {self.url: ask(self)}, {}

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return one instance."""
        key = (application.upper(), instance_id)
        if key not in self._paths:
            self.nodes()
        there = self._ensemble.nodes([self._paths[key]] if key in self._paths else ())
        return next((one.instance for one in there.values() if one is not None), None)

    def find(self, instance_id: str) -> Instance | None:
        """Return the instance of an id."""
        return next((one.instance for one in self.nodes() if one.instance.instance_id == instance_id), None)

    def left_behind(self, addresses: Container[str] = ()) -> dict[str, list[Node]]:
        """Return, by cluster, nodes that an ended operator left, except those at these addresses."""
        found: dict[str, list[Node]] = {}
        for one in self.nodes():
            if one.instance.ip_address not in addresses:
                with suppress(ConfigurationError):  # a name that no operator has
                    name = check_cluster_name(cluster_of(one.instance.owner) or "")
                    found.setdefault(name, []).append(one)
        return {name: there for name, there in found.items() if self.marker(name).is_old}

    def marker(self, cluster: str) -> Marker:
        """Return the marker of a cluster; an old one where the cluster has none."""
        path = marker_path(self.connection.root, cluster)
        try:
            with self._ensemble.asked(f"read the marker {path}"):
                data, _ = self.client.get_async(path).get(timeout=CALL_SECONDS)
            said = json.loads(data)
            at = calendar.timegm(time.strptime(said["writtenAt"], "%Y-%m-%dT%H:%M:%SZ"))
            return Marker(str(said.get("operator") or ""), time.time() - at > 10 * MARKED_SECONDS)
        except (NoNodeError, ValueError, TypeError, LookupError, AttributeError):
            return Marker()

    def remove(self, node: Node) -> ChangeError | None:
        """Remove a node, unless it belongs to another owner by now; return why it is still there."""
        one = node.instance
        cluster = Cluster(cluster_of(one.owner) or "", one.metadata.get(CLUSTER_UID_KEY, ""))
        nodes = Nodes(cluster, checks_cluster=True)
        return Writer(self._ensemble, nodes, cluster, "", lambda: True).remove(one)
