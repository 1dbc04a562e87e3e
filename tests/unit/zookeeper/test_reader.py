"""The reader of a ZooKeeper ensemble, with a fake client whose watches tests fire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import EventType, KazooState

from eurekube_provider.core.errors import ConfigurationError, RegistryDenied
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.registry import Healthy, Misconfigured
from eurekube_provider.zookeeper.codec import decode_node, encode_node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.ensemble import Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes
from eurekube_provider.zookeeper.reader import Reader
from lab.waiting import wait_until

ROOT, SERVICE, PATH = "/services", "/services/Rating", "/services/Rating/a"
INSTANCE = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080), vip_address="Rating")
Watch = Callable[[Any], None]


class FakeClient:
    """A fake kazoo client, with all nodes and their versions."""

    connected = True

    def __init__(self) -> None:
        self.versions: dict[str, int] = {ROOT: 0}
        self.denied: set[str] = set()
        self.watches: dict[tuple[str, str], Watch] = {}
        self.listeners: list[Callable[[KazooState], None]] = []
        self.add_listener, self.start_async = self.listeners.append, lambda: None

    def exists_async(self, _path: str, watch: Watch | None) -> Any:
        """Answer without content."""
        return SimpleNamespace(get=lambda timeout: watch and timeout)

    def get_async(self, path: str, watch: Watch | None) -> Any:
        """Answer with a node's content."""
        stat = SimpleNamespace(
            version=self.versions.get(path), mzxid=self.versions.get(path), mtime=1, ctime=1
        )
        return self._answer("data", path, watch, lambda: (encode_node(INSTANCE, 1), stat))

    def get_children_async(self, path: str, watch: Watch | None) -> Any:
        """Answer with the names of a node's children."""
        return self._answer(
            "children",
            path,
            watch,
            lambda: [one.rpartition("/")[2] for one in self.versions if one.rpartition("/")[0] == path],
        )

    def _answer(self, kind: str, path: str, watch: Watch | None, read: Callable[[], Any]) -> Any:
        def get(timeout: float) -> Any:
            assert timeout
            if path in self.denied:
                raise NoAuthError
            if path not in self.versions:
                raise NoNodeError
            if watch is not None:
                self.watches[kind, path] = watch
            return read()

        return SimpleNamespace(get=get)

    def fire(self, kind: str, path: str) -> None:
        """Report a change to a watch, which ends it."""
        self.watches.pop((kind, path))(SimpleNamespace(type=EventType.CHANGED, path=path))


@pytest.fixture
def played() -> FakeClient:
    """Return the fake client."""
    return FakeClient()


@pytest.fixture
def ensemble(played: FakeClient) -> Ensemble:
    """Return an ensemble with the fake client."""
    made = Ensemble(ZooKeeperConnection(("zk-1:2181",)))
    made.client = cast("Any", played)
    return made


@pytest.fixture
def nodes() -> KnownNodes:
    """Return an empty table of known nodes."""
    return KnownNodes(Cluster("lab", "uid-1"), checks_cluster=True)


@pytest.fixture
def refusals() -> list[ConfigurationError]:
    """Return a list of errors; the first one makes the reader refuse the registry."""
    return []


@pytest.fixture
def reader(ensemble: Ensemble, nodes: KnownNodes, refusals: list[ConfigurationError]) -> Iterator[Reader]:
    """Yield a reader that has read once."""
    made = Reader(ensemble, nodes, lambda: next(iter(refusals), None))
    made.start(None)
    wait_until(lambda: made.condition() == Healthy(), "the first reading", 5.0)
    yield made
    made.stop()


def test_what_was_written_here_is_followed(reader: Reader, nodes: KnownNodes, played: FakeClient) -> None:
    """A node that this operator wrote is watched even if it was noted before its service was listed, so that
    others' changes are seen.
    """
    played.versions |= {SERVICE: 0, PATH: 7}
    stat = SimpleNamespace(version=1, mzxid=7, mtime=1, ctime=1)
    nodes.store_and_return_owners(decode_node(PATH, encode_node(INSTANCE, 1), stat))
    played.fire("children", ROOT)
    wait_until(lambda: {("children", SERVICE), ("data", PATH)} <= played.watches.keys(), "watches", 5.0)
    assert reader.condition() == Healthy()
    del played.versions[PATH]
    played.fire("data", PATH)
    wait_until(lambda: nodes.paths() == [], "it to be gone", 5.0)
    played.versions[PATH] = 9
    played.fire("children", SERVICE)
    wait_until(lambda: ("data", PATH) in played.watches and nodes.paths() == [PATH], "it to be back", 5.0)


def test_another_cluster_ends_no_operator_that_serves(
    reader: Reader, played: FakeClient, refusals: list[ConfigurationError]
) -> None:
    """After a first successful reading a conflicting cluster name no longer makes the registry refused."""
    refusals.append(ConfigurationError("the name is in use"))
    before = reader.read_at
    played.listeners[0](KazooState.CONNECTED)
    wait_until(lambda: reader.read_at != before, "another reading", 5.0)
    assert not isinstance(reader.condition(), Misconfigured)


def test_an_acl_of_others_costs_only_what_it_guards(ensemble: Ensemble, played: FakeClient) -> None:
    """A node that an ACL hides is shown as unreadable, and a service that may not be listed is skipped."""
    played.versions |= {SERVICE: 0, PATH: 7, f"{SERVICE}/b": 8, f"{ROOT}/Stars": 0, f"{ROOT}/Stars/c": 9}
    played.denied = {f"{SERVICE}/b", f"{ROOT}/Stars"}
    read = ensemble.read_nodes(ensemble.list_instance_paths())
    found = {path: one.instance for path, one in read.items() if one is not None}
    assert {path: one.status for path, one in found.items()} == {
        PATH: Status.UP,
        f"{SERVICE}/b": Status.UNKNOWN,
    }
    assert "its ACL does not let our user read it" in found[f"{SERVICE}/b"].unreadable
    played.denied = {ROOT}
    with pytest.raises(RegistryDenied):
        ensemble.list_instance_paths()
