"""A real Spring Cloud Zookeeper client finds and calls our registrations, and we read its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, Plan, plan
from eurekube_provider.core.registry import Healthy
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry
from lab.errors import LabError
from lab.waiting import wait_until
from lab.zookeeper import ZooKeeperClient, ZooKeeperEnsemble

pytestmark = [pytest.mark.lab, pytest.mark.real_server("ZooKeeper and its client run on Java")]

OWNER, ROOT = "cluster/lab/shop/rating", "/apps"
CACHE_SECONDS = 3.0
"""Lifetime of the load balancer's cache in seconds; with the default of 35 s a roll-out would take
minutes.
"""

DRAIN_SECONDS = CACHE_SECONDS + 3.0


class Pod(ThreadingHTTPServer):
    """A pod that is played by a web server, which answers with its name."""

    def __init__(self, name: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.name = name
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def instance(self, status: Status = Status.UP) -> Instance:
        """Return the instance to register for the pod."""
        metadata = {"eurekube.owner": OWNER, "eurekube.cluster-uid": "uid-1"}
        port, address = Port(self.server_port), "127.0.0.1"
        one = Instance("Rating", self.name, address, address, port, vip_address="Rating", metadata=metadata)
        return replace(one, status=status)

    def end(self) -> None:
        """Stop answering."""
        self.shutdown()
        self.server_close()


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """Start one ZooKeeper server."""
    with ZooKeeperEnsemble() as made:
        yield made


@pytest.fixture(scope="module")
def client(
    ensemble: ZooKeeperEnsemble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperClient]:
    """Start the client, which registers itself as well."""
    settings = {"spring.cloud.loadbalancer.cache.ttl": f"{CACHE_SECONDS:.0f}s"}
    log: Path = tmp_path_factory.mktemp("client")
    try:
        made = ZooKeeperClient(ensemble.url, ROOT, log, settings)
    except LabError as error:
        pytest.skip(str(error))
    made.start()
    yield made
    made.close()


@pytest.fixture
def registry(ensemble: ZooKeeperEnsemble) -> Iterator[ZooKeeperRegistry]:
    """Start an operator's registry that leads."""
    to = ZooKeeperConnection.from_settings({"url": ensemble.url + ROOT}.get)
    made = ZooKeeperRegistry(to, Cluster("lab", "uid-1"), "operator", 15.0)
    made.start()
    wait_until(lambda: made.condition() == Healthy(), "the first reading", 30.0)
    made.start_leading(0)
    yield made
    made.stop()


def holds(registry: ZooKeeperRegistry, *instances: Instance) -> None:
    """Bring the registry to these instances by a plan."""
    steps = plan(instances, registry.known_instances(application="rating"), OWNER)
    assert registry.apply(steps, OWNER).failures == ()


def test_it_finds_what_is_registered(client: ZooKeeperClient, registry: ZooKeeperRegistry) -> None:
    """The client finds a service by its name with its case; its discovery client returns DOWN instances,
    its load balancer does not.
    """
    up, down = Pod("up"), Pod("down")
    holds(registry, up.instance(), down.instance(Status.DOWN))
    try:
        found = {one["id"]: one for one in client.get("/instances/Rating")}
        assert set(found) == {"up", "down"}
        assert found["up"]["uri"] == f"http://127.0.0.1:{up.server_port}"
        assert found["up"]["metadata"]["eurekube.owner"] == OWNER
        assert client.get("/instances/rating") == []
        assert set(client.get("/calls/Rating/6")) == {"up"}
    finally:
        holds(registry)
        for one in (up, down):
            one.end()
    secure = replace(up.instance(), port=Port(8443, enabled=False), secure_port=Port(8443))
    holds(registry, secure)
    assert [one["uri"] for one in client.get("/instances/Rating")] == ["https://127.0.0.1:8443"]
    holds(registry)


def test_what_it_registers_itself_is_read(client: ZooKeeperClient, registry: ZooKeeperRegistry) -> None:
    """We read the client's own registration completely, without an owner."""
    wait_until(lambda: bool(registry.known_instances(application="caller")), "it to be read", 30.0)
    (one,) = registry.known_instances(application="caller")
    assert (one.owner, one.status, one.unreadable) == (None, Status.UP, "")
    assert one.port == Port(client.port)


def test_a_status_that_its_actuator_set_is_read_and_left(
    client: ZooKeeperClient, registry: ZooKeeperRegistry
) -> None:
    """A status that the client's actuator set is read, and our code does not change or remove that
    registration.
    """

    def status() -> Status:
        return registry.known_instances(application="caller")[0].status

    wait_until(lambda: bool(registry.known_instances(application="caller")), "it to be read", 30.0)
    client.set_status("OUT_OF_SERVICE")
    wait_until(lambda: status() is Status.OUT_OF_SERVICE, "the status", 30.0)
    (there,) = registry.known_instances(application="caller")
    for action in (Action.UPDATE, Action.DEREGISTER):
        outcome = registry.apply(Plan((Change(action, replace(there, status=Status.UP), there),)), OWNER)
        assert [type(one.error) for one in outcome.failures] == [OwnershipConflict]
    assert registry.known_instances(application="caller") == [there]
    client.set_status("UP")
    wait_until(lambda: status() is Status.UP, "the status", 30.0)


FOREIGN = {
    # apache/dubbo#12243: Dubbo registers applications in the same place, under the same names.
    "dubbo": (
        (
            b'{"name":"Rating","id":"theirs","address":"10.0.0.7","port":20880,"sslPort":null,"payload":'
            b'{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"10.0.0.7:20880",'
            b'"name":"Rating","metadata":{"dubbo.metadata.storage-type":"local"}},'
            b'"registrationTimeUTC":1684124478000,"serviceType":"DYNAMIC","uriSpec":null}'
        ),
        "its payload's class is org.apache.dubbo.registry.zookeeper.ZookeeperInstance",
    ),
    # CURATOR-452: a node that its application has made, and not written yet.
    "empty": (b"", "Expecting value"),
    # spring-cloud-zookeeper#107: an application without instance-port.
    "no port": (
        (
            b'{"name":"Rating","id":"theirs","address":"10.0.0.7","port":null,"sslPort":null,"payload":'
            b'{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"Rating-1",'
            b'"name":"Rating","metadata":{"instance_status":"UP"}},"registrationTimeUTC":1635852567130,'
            b'"serviceType":"DYNAMIC","uriSpec":null}'
        ),
        "it has no address, or no port",
    ),
}
"""Nodes from public bug reports, and the reason that is shown for each."""


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_node_costs_its_service_and_no_other_one(
    client: ZooKeeperClient, registry: ZooKeeperRegistry, ensemble: ZooKeeperEnsemble, kind: str
) -> None:
    """With a foreign node the client cannot read any instance of that service; ours are still written, and
    the foreign node stays.
    """
    pod, data, why = Pod("pod"), *FOREIGN[kind]
    order = replace(pod.instance(), application="ORDER", vip_address="Order", secure_vip_address="")
    holds(registry, pod.instance())
    assert registry.apply(plan([order], (), OWNER), OWNER).failures == ()
    servers = ZooKeeperServers(ZooKeeperConnection.from_settings({"url": ensemble.url + ROOT}.get))
    servers.connect()
    path = f"{ROOT}/Rating/theirs"
    try:
        assert len(client.get("/instances/Rating")) == 1
        servers.client.create(path, data)
        wait_until(lambda: registry.get(("RATING", "theirs")) is not None, "it to be read", 30.0)
        theirs = registry.get(("RATING", "theirs"))
        assert theirs is not None
        assert why in theirs.unreadable
        with pytest.raises(requests.HTTPError):
            client.get("/instances/Rating")
        assert len(client.get("/instances/Order")) == 1
        changed = replace(pod.instance(), metadata={**pod.instance().metadata, "color": "red"})
        holds(registry, changed)
        assert servers.client.get(path)[0] == data
    finally:
        servers.client.delete(path)
        servers.close()
        wait_until(lambda: registry.get(("RATING", "theirs")) is None, "it to go", 30.0)
        assert registry.apply(plan((), [order], OWNER), OWNER).failures == ()
        holds(registry)
        pod.end()


def test_a_roll_out_with_a_drain_fails_no_call(client: ZooKeeperClient, registry: ZooKeeperRegistry) -> None:
    """Each new pod is registered before the old one is removed, which still answers as long as callers may
    call it.
    """
    serving = [Pod("one-1"), Pod("two-1")]
    holds(registry, *[one.instance() for one in serving])
    answers: list[str] = []
    ended = threading.Event()

    def call() -> None:
        while not ended.is_set():
            answers.extend(client.get("/calls/Rating/20"))

    wait_until(lambda: set(client.get("/calls/Rating/4")) == {"one-1", "two-1"}, "both to be called", 30.0)
    caller = threading.Thread(target=call)
    caller.start()
    try:
        for number, name in enumerate(("one-2", "two-2")):
            old, serving[number] = serving[number], Pod(name)
            holds(registry, old.instance(), *[one.instance() for one in serving])
            holds(registry, *[one.instance() for one in serving])
            time.sleep(DRAIN_SECONDS)
            old.end()
        wait_until(lambda: set(answers[-20:]) == {"one-2", "two-2"}, "the new ones to be called", 30.0)
    finally:
        ended.set()
        caller.join()
        holds(registry)
        for one in serving:
            one.end()
    assert [one for one in answers if one.startswith("failed")] == []
    assert {"one-1", "two-1", "one-2", "two-2"} == set(answers)
