"""Removals by the ZooKeeper registry, in which instances cannot lapse."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import ChangeError
from eurekube_provider.zookeeper import zookeeper_registry
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.reader import Reader
from eurekube_provider.zookeeper.writer import Writer
from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry


def instance(name: str) -> Instance:
    """Return an instance of this cluster."""
    metadata = {"eurekube.owner": "cluster/lab/shop/rating", "eurekube.cluster-uid": "uid-1"}
    return Instance("RATING", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata=metadata)


def test_what_is_wanted_again_or_is_not_ours_any_more_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that is kept again while another one is removed is not removed, and a removal that
    conflicts with another owner is not tried again.
    """
    asked: list[str] = []
    rounds = threading.Semaphore(0)

    def removed(_: Writer, one: Instance) -> ChangeError | None:
        asked.append(one.instance_id)
        made.keep_registered(instance("b"))
        return OwnershipConflict("it is somebody else's")

    monkeypatch.setattr(zookeeper_registry, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(Reader, "start", lambda *_: None)
    monkeypatch.setattr(Writer, "update_marker", lambda _: rounds.release())
    monkeypatch.setattr(Writer, "remove", removed)
    made = ZooKeeperRegistry(ZooKeeperConnection(("zk-1:2181",)), Cluster("lab", "uid-1"), "operator", 15.0)
    monkeypatch.setattr(KazooClient, "connected", True)
    made.let_lapse(instance("a"))
    made.let_lapse(instance("b"))
    made.start_leading(0)
    made.start()
    try:
        for _ in range(4):
            assert rounds.acquire(timeout=4.0)
        assert asked == ["a"]
    finally:
        made.stop()
