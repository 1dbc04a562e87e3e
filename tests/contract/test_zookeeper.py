"""Registrations in a real ZooKeeper while servers, sessions or other writers interfere."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from eurekube_provider.core.errors import (
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, ChangeError, Plan, plan
from eurekube_provider.core.registry import Failing, Healthy, Misconfigured, NeverRead
from eurekube_provider.zookeeper import zookeeper_registry
from eurekube_provider.zookeeper.codec import SPRING_STATUS_KEY, Node, encode_node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.ensemble import Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from eurekube_provider.zookeeper.writer import Writer, instance_path, marker_path
from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry
from lab.waiting import wait_until
from lab.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.faults.certificates import make_certificate

pytestmark = [pytest.mark.lab, pytest.mark.real_server("ZooKeeper runs on Java")]

CLUSTER, OWNER = Cluster("lab", "uid-1"), "cluster/lab/shop/rating"
SECONDS = 30.0


def instance(name: str, owner: str | None = OWNER, uid: str = CLUSTER.uid) -> Instance:
    """Return an instance of an owner."""
    metadata = {"eurekube.owner": owner, "eurekube.cluster-uid": uid} if owner else {}
    return Instance(
        "RATING", name, "10.0.0.1", "10.0.0.1", Port(8080), vip_address="Rating", metadata=metadata
    )


def registers(*instances: Instance) -> Plan:
    """Return a plan that registers these instances."""
    return Plan(tuple(Change(Action.REGISTER, one) for one in instances))


def removes(*instances: Instance) -> Plan:
    """Return a plan that removes these instances."""
    return plan((), instances, OWNER)


@pytest.fixture(scope="module")
def three() -> Iterator[ZooKeeperEnsemble]:
    """Start an ensemble of three servers; each test leaves it running."""
    with ZooKeeperEnsemble(3) as made:
        yield made


def connection(url: str, **said: str) -> ZooKeeperConnection:
    """Return a connection to this URL."""
    return ZooKeeperConnection.from_settings({"url": url, **said}.get)


@contextmanager
def leading(
    to: ZooKeeperConnection, cluster: Cluster = CLUSTER, may_write: Callable[[], bool] = lambda: True
) -> Iterator[ZooKeeperRegistry]:
    """Yield a registry that has read the ensemble and leads."""
    made = ZooKeeperRegistry(to, cluster, "operator", 15.0, may_write=may_write, check_cluster=True)
    made.start()
    try:
        wait_until(lambda: not isinstance(made.condition(), NeverRead), "the first reading", SECONDS)
        made.start_leading(0)
        yield made
    finally:
        made.stop()


@pytest.fixture
def to(three: ZooKeeperEnsemble, unique_name: str) -> ZooKeeperConnection:
    """Return a connection to the ensemble through proxies, with a root node of the test's own."""
    return connection(f"{three.proxied_url}/{unique_name}")


@pytest.fixture
def other(three: ZooKeeperEnsemble, to: ZooKeeperConnection) -> Iterator[ZooKeeperServers]:
    """Return another client of the same root node, which does not use the proxies."""
    made = ZooKeeperServers(connection(three.url + to.root))
    made.connect()
    yield made
    made.close()


@pytest.fixture
def registry(to: ZooKeeperConnection) -> Iterator[ZooKeeperRegistry]:
    """Return a registry that leads and has registered one instance."""
    with leading(to) as made:
        assert made.apply(registers(instance("a")), OWNER).failures == ()
        yield made


def is_well(registry: ZooKeeperRegistry) -> bool:
    """Return whether the registry has read the ensemble, which answers."""
    return registry.condition() == Healthy()


def ids(of: ZooKeeperServers | ZooKeeperRegistry) -> set[str]:
    """Return the ids of all instances; none if the server has just failed."""
    try:
        there = of.known_instances() if isinstance(of, ZooKeeperRegistry) else of.list_everywhere()[0]
    except RegistryError:
        return set()
    return {one.instance_id for one in there}


def is_done(registry: ZooKeeperRegistry, steps: Plan) -> bool:
    """Carry out a plan; return whether all changes succeeded."""
    return registry.apply(steps, OWNER).failures == ()


@pytest.mark.parametrize("fault", ["kill", "pause", "cut off"])
def test_a_member_that_fails_costs_nothing(
    three: ZooKeeperEnsemble, registry: ZooKeeperRegistry, other: ZooKeeperServers, fault: str
) -> None:
    """If any member fails another one is used within seconds, and changes made meanwhile are found."""
    for server, proxy in zip(three.servers, three.proxies, strict=True):
        if fault == "cut off":
            proxy.hang()
        else:
            getattr(server, fault)()
        try:
            wait_until(
                lambda: registry.apply(registers(instance("b")), OWNER).failures == (), "a write", SECONDS
            )
            wait_until(lambda: "b" in ids(other), "it to be seen", SECONDS)
            path = instance_path(other.connection.root, instance("c"))
            other.client.retry(other.client.create, path, encode_node(instance("c"), 1))
            wait_until(lambda: ids(registry) == {"a", "b", "c"}, "what somebody else wrote", SECONDS)
            gone = removes(instance("b"), instance("c"))
            wait_until(partial(is_done, registry, gone), "a removal", SECONDS)
        finally:
            proxy.heal()
            if fault == "kill":
                server.start()
            elif fault == "pause":
                server.resume()
        wait_until(lambda: ids(other) == ids(registry) == {"a"}, "all to be level", SECONDS)
    wait_until(lambda: is_well(registry), "it to be well", SECONDS)


def test_without_a_majority_everything_stays(
    three: ZooKeeperEnsemble, registry: ZooKeeperRegistry, other: ZooKeeperServers
) -> None:
    """Without a majority nothing is removed, and no write is reported as done; due removals happen once
    the ensemble answers.
    """

    def followers() -> list[ZooKeeperServer]:
        """Return the followers; a server that just came back is none yet."""
        return [server for server in three.servers if server.read_role() == "follower"]

    wait_until(lambda: len(followers()) == 2, "a leader with two followers", SECONDS)
    ends = followers()
    for server in ends:
        server.kill()
    try:
        wait_until(lambda: isinstance(registry.condition(), Failing), "it to be noticed", SECONDS)
        outcome = registry.apply(registers(instance("b")), OWNER)
        assert [type(one.error) for one in outcome.failures] == [RegistryUnreachable]
        assert ids(registry) == {"a"}
        registry.let_lapse(instance("a"))

        def lasts() -> bool:
            """Return whether the registry has noticed the loss for good: a leader answers until it misses
            its followers.
            """
            found = registry.condition()
            return isinstance(found, Failing) and found.lasts

        wait_until(lasts, "it to last", SECONDS)
    finally:
        for server in ends:
            server.launch()
        for server in ends:
            server.wait_until_ready()
    wait_until(lambda: is_well(registry) and "a" not in ids(registry), "the removal", SECONDS)
    wait_until(lambda: other.client.connected, "the other one to be connected", SECONDS)
    # A write that got no answer may have been done: the leader sees it, and judges it by its owner.
    assert {one.instance_id for one in other.list_everywhere()[0]} == ids(registry)


def test_a_lost_session_takes_nothing_out(
    three: ZooKeeperEnsemble, registry: ZooKeeperRegistry, other: ZooKeeperServers
) -> None:
    """No instance leaves when a session is lost or expires, and changes made meanwhile are found."""
    for proxy in three.proxies:
        proxy.hang()
    time.sleep(8.0)  # a session lives for six seconds
    assert ids(other) == {"a"}
    other.client.create(instance_path(other.connection.root, instance("b")), encode_node(instance("b"), 1))
    for proxy in three.proxies:
        proxy.heal()
    wait_until(lambda: ids(registry) == {"a", "b"} and is_well(registry), "everything to be read", SECONDS)


def test_names_that_do_not_resolve_for_a_while(
    three: ZooKeeperEnsemble,
    registry: ZooKeeperRegistry,
    other: ZooKeeperServers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client survives host names that do not resolve for a while, where kazoo's ended for good
    (python-zk/kazoo#622).
    """
    resolve, away = socket.getaddrinfo, threading.Event()

    def resolved(host: Any, *rest: Any, **more: Any) -> Any:
        if away.is_set():
            raise socket.gaierror(-5, "No address associated with hostname")
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    away.set()
    for proxy in three.proxies:
        proxy.cut()
    wait_until(lambda: isinstance(registry.condition(), Failing), "it to be noticed", SECONDS)
    time.sleep(8.0)  # a session lives for six seconds
    assert ids(registry) == {"a"}
    path = instance_path(other.connection.root, instance("b"))
    other.client.create(path, encode_node(instance("b"), 1))
    away.clear()
    wait_until(lambda: is_well(registry) and ids(registry) == {"a", "b"}, "everything to be read", SECONDS)


def test_what_others_wrote_is_judged_by_its_owner(
    registry: ZooKeeperRegistry, other: ZooKeeperServers
) -> None:
    """The writer neither removes nor replaces a node that another client has put in place of ours, even
    before a watch reports it.
    """
    path = instance_path(other.connection.root, instance("a"))
    other.client.delete(path)
    other.client.create(path, encode_node(instance("a", None), 1))
    outcome = registry.apply(removes(instance("a")), OWNER)
    assert [type(one.error) for one in outcome.failures] == [OwnershipConflict]
    assert registry.apply(registers(instance("a")), OWNER).done == ()
    assert ids(other) == {"a"}


def test_a_persons_status_stays_and_the_removal_still_happens(
    registry: ZooKeeperRegistry, other: ZooKeeperServers
) -> None:
    """A status that the application's actuator set stays over an update, and does not stop the removal."""
    path = instance_path(other.connection.root, instance("a"))
    document = json.loads(other.client.get(path)[0])
    document["payload"]["metadata"][SPRING_STATUS_KEY] = "OUT_OF_SERVICE"
    other.client.set(path, json.dumps(document).encode())
    want = replace(instance("a"), metadata={**instance("a").metadata, "color": "red"})
    update = Plan((Change(Action.UPDATE, want, instance("a")),))
    assert registry.apply(update, OWNER).failures == ()
    found = other.read("RATING", "a")
    assert found is not None
    assert (found.status, found.metadata["color"]) == (Status.OUT_OF_SERVICE, "red")
    assert not plan([want], registry.known_instances(owner=OWNER), OWNER)
    assert registry.apply(removes(want), OWNER).failures == ()
    assert ids(other) == set()


class Raced(Ensemble):
    """A client for which another writer acts once, after its next read."""

    race: Callable[[], None] | None = None

    def read_nodes(
        self, paths: Iterable[str], watch: Callable[[Any], None] | None = None
    ) -> dict[str, Node | None]:
        """Read the nodes, then let another writer change them before the answer is used."""
        found = super().read_nodes(paths, watch)
        race, self.race = self.race, None
        if race is not None:
            race()
        return found


@pytest.fixture
def raced(to: ZooKeeperConnection) -> Iterator[tuple[Raced, Writer]]:
    """Return a client for which another writer acts once after its next read, and a writer that uses it."""
    ensemble = Raced(to)
    ensemble.client.start()
    writer = Writer(ensemble, KnownNodes(CLUSTER, checks_cluster=True), CLUSTER, "operator", lambda: True)
    assert writer.apply(registers(instance("a")), OWNER).failures == ()
    yield ensemble, writer
    writer.close()
    ensemble.close()


@pytest.mark.parametrize("act", ["update", "remove"])
def test_what_is_replaced_after_it_was_read_is_read_again(
    raced: tuple[Raced, Writer], other: ZooKeeperServers, act: str
) -> None:
    """If another client replaces our node after the read, the writer neither changes nor removes the new
    one.
    """
    ensemble, writer = raced
    path = instance_path(other.connection.root, instance("a"))
    theirs = encode_node(instance("a", None), 1)

    def replaces() -> None:
        other.client.delete(path)
        other.client.create(path, theirs)

    ensemble.race = replaces
    changed = replace(instance("a"), host_name="10.0.0.9")
    steps = removes(instance("a")) if act == "remove" else Plan((Change(Action.UPDATE, changed, changed),))
    assert [type(one.error) for one in writer.apply(steps, OWNER).failures] == [OwnershipConflict]
    assert other.client.get(path)[0] == theirs


def test_what_somebody_removed_does_not_come_back_by_an_update(
    registry: ZooKeeperRegistry, other: ZooKeeperServers
) -> None:
    """An update does not create a removed node again, since its pod may be gone; the next reconcile
    decides.
    """
    other.client.delete(instance_path(other.connection.root, instance("a")))
    changed = replace(instance("a"), host_name="10.0.0.9")
    assert registry.apply(Plan((Change(Action.UPDATE, changed, changed),)), OWNER).failures == ()
    assert ids(other) == set()
    wait_until(lambda: registry.known_instances() == [], "the watch", SECONDS)


def test_a_status_that_is_set_after_it_was_read_stays(
    raced: tuple[Raced, Writer], other: ZooKeeperServers
) -> None:
    """If a person sets a status after the read, the write that does not know of it is not carried out."""
    ensemble, writer = raced
    path = instance_path(other.connection.root, instance("a"))

    def sets_a_status() -> None:
        document = json.loads(other.client.get(path)[0])
        document["payload"]["metadata"][SPRING_STATUS_KEY] = "OUT_OF_SERVICE"
        other.client.set(path, json.dumps(document).encode())

    ensemble.race = sets_a_status
    changed = replace(instance("a"), host_name="10.0.0.9")
    assert writer.apply(Plan((Change(Action.UPDATE, changed, changed),)), OWNER).failures == ()
    found = other.read("RATING", "a")
    assert found is not None
    assert (found.status, found.host_name) == (Status.OUT_OF_SERVICE, "10.0.0.9")


def test_a_foreign_payload_costs_only_itself(registry: ZooKeeperRegistry, other: ZooKeeperServers) -> None:
    """A node with a foreign payload is shown as unreadable and never changed, and the others are read."""
    path = instance_path(other.connection.root, instance("theirs"))
    other.client.create(path, b'{"name": "Rating", "payload": {"@class": "com.example.Other"}}')
    wait_until(lambda: ids(registry) == {"a", "theirs"}, "it to be read", SECONDS)
    found = registry.get(("RATING", "theirs"))
    assert found is not None
    assert "com.example.Other" in found.unreadable
    for steps in (registers(instance("theirs")), removes(instance("theirs"))):
        assert [type(one.error) for one in registry.apply(steps, OWNER).failures] == [OwnershipConflict]
    assert b"com.example.Other" in other.client.get(path)[0]
    assert registry.apply(registers(instance("b")), OWNER).failures == ()


def test_a_changed_name_moves_the_node(registry: ZooKeeperRegistry, other: ZooKeeperServers) -> None:
    """The node under the former name is removed once the one under the new name exists, even if an earlier
    move stopped half-way.
    """
    moved = replace(instance("a"), vip_address="Stars", secure_vip_address="")
    other.client.create(instance_path(other.connection.root, moved), encode_node(moved, 1), makepath=True)
    wait_until(lambda: len(registry.known_instances(owner=OWNER)) == 2, "both", SECONDS)
    steps = plan([moved], registry.known_instances(owner=OWNER), OWNER)
    assert registry.apply(steps, OWNER).failures == ()
    assert [one.path for one in other.read_nodes()] == [instance_path(other.connection.root, moved)]
    assert not plan([moved], registry.known_instances(owner=OWNER), OWNER)


def test_another_cluster_of_our_name_is_refused(to: ZooKeeperConnection, registry: ZooKeeperRegistry) -> None:
    """A cluster of the same name with another UID is refused, and its nodes stay unchanged."""
    assert is_well(registry)
    twin = Cluster("lab", "uid-2")
    with leading(to, twin) as made:
        assert isinstance(made.condition(), Misconfigured)
        made.let_lapse(instance("a"))
        outcome = made.apply(removes(instance("a")), OWNER)
        assert [type(one.error) for one in outcome.failures] == [OwnershipConflict]
    assert ids(registry) == {"a"}


def test_a_replica_that_lost_the_lease_writes_nothing(
    to: ZooKeeperConnection, other: ZooKeeperServers
) -> None:
    """A replica that lost the Lease removes nothing, not even removals that were due."""
    leads = [True]
    with leading(to, may_write=lambda: leads[0]) as made:
        made.apply(registers(instance("a")), OWNER)
        leads[0] = False
        made.let_lapse(instance("a"))
        time.sleep(5.0)  # it looks each two seconds
        assert ids(other) == {"a"}


def test_the_marker_says_who_wrote(registry: ZooKeeperRegistry, other: ZooKeeperServers) -> None:
    """The marker names the operator; when it is old or gone its cluster's nodes count as left behind,
    except those of pods.
    """
    assert is_well(registry)
    assert other.read_marker("lab") == ("operator", False)
    assert other.nodes_of_ended_operators() == {}
    path = marker_path(other.connection.root, "lab")
    said = json.loads(other.client.get(path)[0])
    other.client.set(path, json.dumps({**said, "writtenAt": "2020-01-01T00:00:00Z"}).encode())
    assert [one.instance.instance_id for one in other.nodes_of_ended_operators()["lab"]] == ["a"]
    assert other.nodes_of_ended_operators({"10.0.0.1"}) == {}
    other.client.delete(path)
    (node,) = other.nodes_of_ended_operators()["lab"]
    assert other.remove(node) is None
    assert ids(other) == set()


def test_only_its_user_changes_what_was_written(three: ZooKeeperEnsemble, unique_name: str) -> None:
    """With a digest user everybody may read a node, and only that user may write it; a refused write says
    so.
    """
    to = connection(f"{three.url}/{unique_name}", user="eureka", password="s3cret")
    stranger = ZooKeeperServers(connection(f"{three.url}/{unique_name}"))
    stranger.connect()
    try:
        with leading(to) as made:
            assert made.apply(registers(instance("a")), OWNER).failures == ()
            assert ids(stranger) == {"a"}
            with pytest.raises(NoAuthError):
                stranger.client.set(instance_path(to.root, instance("a")), b"{}")
            service = instance_path(to.root, instance("a")).rpartition("/")[0]
            ours = ZooKeeperServers(to)
            ours.connect()
            ours.client.set_acls(service, [make_digest_acl("nobody", "else", all=True)])
            ours.close()
            outcome = made.apply(registers(instance("b")), OWNER)
            assert [type(one.error) for one in outcome.failures] == [RegistryDenied]
    finally:
        stranger.close()


def test_two_users_register_beside_each_other(three: ZooKeeperEnsemble, unique_name: str) -> None:
    """The first user creates the root and the markers' folder so that a second user can add nodes."""
    root = f"/{unique_name}"
    first = connection(three.url + root, user="first", password="s3cret")
    second = connection(three.url + root, user="second", password="s3cret")
    with leading(first) as made, leading(second, Cluster("other", "uid-2")) as other:
        assert made.apply(registers(instance("a")), OWNER).failures == ()
        theirs = replace(instance("b", "cluster/other/shop/rating", "uid-2"), vip_address="Other")
        assert other.apply(registers(theirs), "cluster/other/shop/rating").failures == ()
        stranger = ZooKeeperServers(connection(three.url + root))
        with closing(stranger):
            stranger.connect()
            stranger.client.create(f"{root}/theirs/c", encode_node(instance("c", None), 1), makepath=True)
            assert {one.path for one in stranger.read_nodes()} == {
                f"{root}/Rating/a",
                f"{root}/Other/b",
                f"{root}/theirs/c",
            }


def test_a_removal_that_is_denied_is_said_once_and_tried_again(
    registry: ZooKeeperRegistry,
    other: ZooKeeperServers,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A denied removal is logged once, tried again at long intervals, and happens once it is allowed."""
    monkeypatch.setattr(zookeeper_registry, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(zookeeper_registry, "DENIED_RETRY_SECONDS", 0.5)
    service = instance_path(other.connection.root, instance("a")).rpartition("/")[0]
    may_all_but_delete = make_acl("world", "anyone", read=True, write=True, create=True, admin=True)
    other.client.set_acls(service, [may_all_but_delete])
    tries: list[float] = []
    remove = Writer.remove

    def removed(self: Writer, one: Instance) -> ChangeError | None:
        tries.append(time.monotonic())
        return remove(self, one)

    monkeypatch.setattr(Writer, "remove", removed)
    registry.let_lapse(instance("a"))
    wait_until(lambda: len(tries) >= 4, "four tries", SECONDS)
    registry.let_lapse(instance("a"))  # as each reconcile of its syncer does
    wait_until(lambda: len(tries) >= 6, "two more", SECONDS)
    assert min(later - one for one, later in itertools.pairwise(tries)) >= 0.5
    (said,) = [vars(one) for one in caplog.records if "failed to remove" in one.message]
    assert "its ACL must let our user do so" in said["error"]
    assert ids(other) == {"a"}
    other.client.set_acls(service, OPEN_ACL_UNSAFE)
    wait_until(lambda: ids(other) == set(), "the removal", SECONDS)


# kazoo leaves the sockets of handshakes that failed to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls(tmp_path: Path, unique_name: str) -> None:
    """A TLS connection accepts the named authority, and no other."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates, and is not installed")
    own, strange = make_certificate(tmp_path, "own"), make_certificate(tmp_path, "strange")
    pem = tmp_path / "server.pem"
    pem.write_text(own.key.read_text() + own.certificate.read_text())
    with ZooKeeperEnsemble(pem=pem) as made:
        url = f"{made.tls_url}/{unique_name}"
        with leading(connection(url, **{"ca-file": str(own.certificate)})) as registry:
            assert registry.apply(registers(instance("a")), OWNER).failures == ()
        other = ZooKeeperServers(connection(url, **{"ca-file": str(strange.certificate)}))
        with closing(other), pytest.raises(RegistryUnreachable):
            other.connect()


def test_two_thousand_instances(
    registry: ZooKeeperRegistry, to: ZooKeeperConnection, three: ZooKeeperEnsemble
) -> None:
    """2,000 instances are registered, read by another replica, found after a lost connection, and removed."""
    many = [instance(f"many-{number}") for number in range(2_000)]
    assert registry.apply(registers(*many), OWNER).failures == ()
    with leading(to, may_write=lambda: False) as standby:
        assert len(standby.known_instances(owner=OWNER)) == len(many) + 1
        for proxy in three.proxies:
            proxy.cut()
        late = registers(instance("late"))
        wait_until(lambda: registry.apply(late, OWNER).failures == (), "a write", SECONDS)
        wait_until(lambda: is_well(standby) and is_well(registry), "both to be well", SECONDS)
        assert registry.apply(removes(*many), OWNER).failures == ()
        wait_until(lambda: len(standby.known_instances(owner=OWNER)) <= 2, "the removals to be seen", SECONDS)
