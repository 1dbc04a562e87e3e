"""Writes to a ZooKeeper ensemble whose parent node does not exist, with a fake client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError, RuntimeInconsistency

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import Action, Change, Plan
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.ensemble import Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes
from eurekube_provider.zookeeper.writer import Writer

CLUSTER, OWNER = Cluster("lab", "uid-1"), "cluster/lab/shop/rating"
INSTANCE = Instance(
    "RATING",
    "a",
    "10.0.0.1",
    "10.0.0.1",
    Port(8080),
    vip_address="Rating",
    metadata={"eurekube.owner": OWNER},
)


def answer(given: Callable[[], Any]) -> Any:
    """Return an asynchronous result as kazoo does."""
    return SimpleNamespace(get=lambda timeout: timeout and given())


class FakeClient:
    """A fake kazoo client without any node."""

    connected = True
    default_acl = None

    def __init__(self) -> None:
        self.made: list[str] = []

    def ensure_path_async(self, path: str, acl: object = None) -> Any:  # noqa: ARG002 - as kazoo has it
        """Create a node."""
        return answer(lambda: self.made.append(path))

    def get_async(self, *_: object, **_more: object) -> Any:
        """Fail with NoNodeError."""
        return answer(self._nothing)

    set_async = get_async

    def transaction(self) -> Any:
        """Create a node if its service's node exists, else fail."""
        stat = SimpleNamespace(version=1, mzxid=7, mtime=1, ctime=1)
        results = ["", stat] if "/services/Rating" in self.made else [NoNodeError(), RuntimeInconsistency()]
        given = answer(lambda: results)
        return SimpleNamespace(create=self._ignore, set_data=self._ignore, commit_async=lambda: given)

    def _ignore(self, *_: object) -> None:
        pass

    def _nothing(self) -> Any:
        raise NoNodeError


@pytest.fixture
def nodes() -> KnownNodes:
    """Return an empty table of known nodes."""
    return KnownNodes(CLUSTER, checks_cluster=True)


@pytest.fixture
def client() -> FakeClient:
    """Return a fake client."""
    return FakeClient()


@pytest.fixture
def writer(nodes: KnownNodes, client: FakeClient) -> Iterator[Writer]:
    """Yield a writer with the fake client."""
    ensemble = Ensemble(ZooKeeperConnection(("zk-1:2181",)))
    ensemble.client = cast("Any", client)
    made = Writer(ensemble, nodes, CLUSTER, "operator", lambda: True)
    yield made
    made.close()


def test_the_first_instance_of_a_service_makes_its_node(writer: Writer, nodes: KnownNodes) -> None:
    """A first instance creates its service's node; a marker that is removed while it is written causes no
    failure.
    """
    outcome = writer.apply(Plan((Change(Action.REGISTER, INSTANCE),)), OWNER)
    assert outcome.failures == ()
    assert [one.key for one in nodes.known_instances(owner=OWNER)] == [INSTANCE.key]


def test_what_is_to_be_replaced_stays_while_its_replacement_is_refused(
    writer: Writer, client: FakeClient
) -> None:
    """After a change of the port a pod's former node stays while the next one may not be created; that of a
    pod that ended goes.
    """
    refused = answer(lambda: [NoAuthError(), RuntimeInconsistency()])
    client.transaction = lambda: SimpleNamespace(  # type: ignore[method-assign]
        create=lambda *_: None, set_data=lambda *_: None, commit_async=lambda: refused
    )
    former, ended, following = (
        replace(INSTANCE, instance_id=one) for one in ("a:rating:8080", "b:rating:8080", "a:rating:9090")
    )
    ended = replace(ended, ip_address="10.0.0.2")
    plan = Plan(
        (
            Change(Action.REGISTER, following),
            Change(Action.DEREGISTER, former, former),
            Change(Action.DEREGISTER, ended, ended),
        )
    )
    outcome = writer.apply(plan, OWNER)
    assert [one.instance for one in outcome.done] == [ended]
    assert {one.change.instance.key for one in outcome.failures} == {following.key, former.key}
