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
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    Cluster,
    check_cluster_name,
    cluster_name_of_owner,
)
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import ChangeError
from eurekube_provider.zookeeper.codec import Node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.ensemble import CALL_TIMEOUT_SECONDS, Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes
from eurekube_provider.zookeeper.writer import MARKER_UPDATE_INTERVAL_SECONDS, Writer, marker_path


class OperatorMarker(NamedTuple):
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
        self._paths: dict[InstanceKey, str] = {}

    def connect(self) -> None:
        """Connect at the first call; raise if there is no connection."""
        if not self._is_started:
            self._is_started = True
            self.client.start_async().wait(timeout=CALL_TIMEOUT_SECONDS)
        self._ensemble.require_connection()

    def read_nodes(self) -> list[Node]:
        """Read and return the nodes of all instances, and remember their paths."""
        self.connect()
        read = self._ensemble.read_nodes(self._ensemble.list_instance_paths())
        found = [one for one in read.values() if one is not None]
        self._paths = {one.instance.key: one.path for one in found}
        return found

    def list_everywhere(self) -> tuple[list[Instance], dict[str, RegistryError]]:
        return [one.instance for one in self.read_nodes()], {}

    def ask_all_or_raise(self, ask: Callable[[Any], Any]) -> tuple[dict[str, Any], dict[str, RegistryError]]:
        return {self.url: ask(self)}, {}

    def read(self, application: str, instance_id: str) -> Instance | None:
        key = (application.upper(), instance_id)
        if key not in self._paths:
            self.read_nodes()
        there = self._ensemble.read_nodes([self._paths[key]] if key in self._paths else ())
        return next((one.instance for one in there.values() if one is not None), None)

    def find_by_id(self, instance_id: str) -> Instance | None:
        return next(
            (one.instance for one in self.read_nodes() if one.instance.instance_id == instance_id), None
        )

    def nodes_of_ended_operators(self, addresses: Container[str] = ()) -> dict[str, list[Node]]:
        """Return, by cluster, nodes that an ended operator left, except those at these addresses."""
        found: dict[str, list[Node]] = {}
        for one in self.read_nodes():
            if one.instance.ip_address not in addresses:
                with suppress(ConfigurationError):  # a name that no operator has
                    name = check_cluster_name(cluster_name_of_owner(one.instance.owner) or "")
                    found.setdefault(name, []).append(one)
        return {name: there for name, there in found.items() if self.read_marker(name).is_old}

    def read_marker(self, cluster: str) -> OperatorMarker:
        """Return the marker of a cluster; an old one where the cluster has none."""
        path = marker_path(self.connection.root, cluster)
        try:
            with self._ensemble.translate_errors(f"read the marker {path}"):
                data, _ = self.client.get_async(path).get(timeout=CALL_TIMEOUT_SECONDS)
            said = json.loads(data)
            at = calendar.timegm(time.strptime(said["writtenAt"], "%Y-%m-%dT%H:%M:%SZ"))
            return OperatorMarker(
                str(said.get("operator") or ""), time.time() - at > 10 * MARKER_UPDATE_INTERVAL_SECONDS
            )
        except (NoNodeError, ValueError, TypeError, LookupError, AttributeError):
            return OperatorMarker()

    def remove(self, node: Node) -> ChangeError | None:
        """Remove a node, unless it belongs to another owner by now; return why it is still there."""
        one = node.instance
        cluster = Cluster(cluster_name_of_owner(one.owner) or "", one.metadata.get(CLUSTER_UID_KEY, ""))
        nodes = KnownNodes(cluster, checks_cluster=True)
        return Writer(self._ensemble, nodes, cluster, "", lambda: True).remove(one)
