"""Instances that an operator left in ZooKeeper, beside other clients' nodes."""

from __future__ import annotations

import pytest

from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.overrides import find_named_instances
from eurekube_provider.zookeeper.codec import Node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import OperatorMarker, ZooKeeperServers


def node(owner: str) -> Node:
    """Return a node of this owner."""
    metadata = {"eurekube.owner": owner}
    one = Instance("RATING", owner.replace("/", "-"), "10.0.0.1", "10.0.0.1", Port(8080), metadata=metadata)
    return Node(f"/services/rating/{one.instance_id}", one)


def test_an_unknown_name_is_an_error_that_names_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who asks for an instance by its id gets it, and learns what there is of an unknown name."""
    held = node("cluster/lab/shop/rating")
    monkeypatch.setattr(ZooKeeperServers, "read_nodes", lambda _: [held])
    servers = ZooKeeperServers(ZooKeeperConnection(("zk-1:2181",)))
    assert servers.find_by_id(held.instance.instance_id) == held.instance
    message = "^ZooKeeper has neither an application nor an instance nobody; it holds RATING$"
    with pytest.raises(RegistryRejected, match=message):
        find_named_instances(servers, "nobody")  # type: ignore[arg-type]
    servers.close()


def test_an_owner_that_no_operator_is_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner whose cluster name ZooKeeper refuses is skipped, and the leftovers of other clusters are
    found.
    """

    def marker(_: ZooKeeperServers, cluster: str) -> OperatorMarker:
        if cluster != "lab":
            raise RegistryRejected("relative paths not allowed")
        return OperatorMarker()

    nodes = [node("cluster/../shop/rating"), node("cluster/lab/shop/rating"), node("stack/a/b/c/d")]
    monkeypatch.setattr(ZooKeeperServers, "read_nodes", lambda _: nodes)
    monkeypatch.setattr(ZooKeeperServers, "read_marker", marker)
    servers = ZooKeeperServers(ZooKeeperConnection(("zk-1:2181",)))
    assert servers.nodes_of_ended_operators() == {"lab": [nodes[1]]}
    servers.close()
