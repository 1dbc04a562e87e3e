"""How a server's restart is recognised, and what it remembers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import requests

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import EurekaLease
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import BATCHES_FROM_LEASES, Peers
from eurekube_provider.eureka.restart_detection import running_seconds
from lab import Lab
from lab.eureka import SpringCloud
from lab.listing import LISTED_WITHIN_SECONDS
from lab.ports import HOST
from lab.proxy import Proxy
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, Server, document, on_one_train, rating
from tests.logged_lines import everything_logged

pytestmark = pytest.mark.lab


@pytest.fixture(params=[False, True], ids=["strangers", "clients of each other"])
def copies(request: pytest.FixtureRequest) -> bool:
    """Whether the servers are clients of each other, which copy at their start what their neighbours list."""
    return bool(request.param)


@pytest.fixture
def neighbours(copies: bool, request: pytest.FixtureRequest, spring_cloud: SpringCloud) -> Iterator[Lab]:
    """Servers that are peers, and clients of each other or not."""
    if not copies:
        yield request.getfixturevalue("three")
        return
    with Lab(eureka=2, kubernetes=False, register_with_eureka=True, spring_cloud=spring_cloud) as running:
        yield running


def test_what_a_restarted_server_holds(
    neighbours: Lab, copies: bool, http: requests.Session, app: str
) -> None:
    """It copies its neighbour's registry only where it is a client; its start time tells of the restart."""
    first, second, *others = (Server(url, http) for url in neighbours.eureka_urls)
    first.register(document(app))
    wait_until(lambda: second.status(app) == "UP", "the copy", WAIT_SECONDS)
    client = Peer(first.url, Connection((first.url,)))
    before = client.status()
    assert before.started_timestamp_ms is not None
    assert client.status().started_timestamp_ms == before.started_timestamp_ms
    replicas = {url.rstrip("/") for url in before.registered_replicas}
    assert replicas == {server.url for server in (second, *others)}
    if copies:  # what it copies is its neighbour's list, which is up to half a minute old
        neighbour = Peer(second.url, Connection((second.url,)))
        wait_until(
            lambda: app.upper() in {one.application for one in neighbour.list_instances()},
            "the list",
            LISTED_WITHIN_SECONDS,
        )
        neighbour.close()
    neighbours.eurekas[0].kill()
    neighbours.eurekas[0].start()
    if copies:
        wait_until(lambda: first.status(app) == "UP", "the copy", WAIT_SECONDS)
    else:
        assert first.get(app) is None
    assert second.status(app) == "UP"
    after = client.status()
    assert after.started_timestamp_ms is not None
    assert after.started_timestamp_ms > before.started_timestamp_ms
    client.close()


def test_what_a_server_says_of_itself(peer: Peer, server: Server, app: str) -> None:
    """Its start time stays while it is written to, and a lone server has no replicas."""
    before = peer.status()
    server.register(document(app))
    server.renew(app)
    server.cancel(app)
    after = peer.status()
    assert before.started_timestamp_ms is not None
    assert after.started_timestamp_ms == before.started_timestamp_ms
    assert (after.registered_replicas, after.unavailable_replicas) == ((), ())
    assert after.uptime


def youngest_seconds(urls: Sequence[str]) -> float:
    """For how long the server has run that was started last."""
    peers = Peers(Connection(tuple(urls)))
    statuses, _ = peers.everywhere(lambda peer: peer.status())
    peers.close()
    assert len(statuses) == len(urls)
    return min(running_seconds(status, time.time()) or 0.0 for status in statuses.values())


@on_one_train
def test_two_servers_behind_one_url(frail: Lab, http: requests.Session, app: str) -> None:
    """Being sent to one or the other is no restart: renewals keep their pace, and what a person removed stays
    away. A real restart is noticed, and what was lost is back.
    """
    with (
        Proxy(frail.eurekas[0].port, others=[frail.eurekas[1].port]) as balancer,
        everything_logged() as log,
    ):
        servers = [Server(url, http) for url in frail.eureka_urls[:2]]
        peers = Peers(Connection((f"http://{HOST}:{balancer.port}/eureka",)))
        registry = EurekaRegistry(peers, Cluster("eks", "uid"), "operator", 60.0)
        ours = [
            replace(rating(app, f"{number}.{app}"), metadata={"eurekube.owner": f"cluster/eks/shop/{app}"})
            for number in range(20)
        ]
        stacks = replace(
            rating(app, f"vm.{app}"),
            metadata={"eurekube.owner": f"stack/o/p/s/{app}", "eurekube.renewer": "operator"},
            lease=EurekaLease(renewal_interval_seconds=2),
        )

        class Listener:
            """Registers what is missing."""

            def owner_changed(self, _owner: str) -> None:
                """Register it."""
                register()

            def condition_changed(self) -> None:
                """Do nothing."""

        def register() -> None:
            """As a look at the syncer does."""
            for instance in ours:
                if instance.key not in registry.renewals:
                    peers.register(instance)
                    registry.instances.registered(instance)

        wait_until(
            lambda: youngest_seconds(frail.eureka_urls[:2]) > 3.0,
            "both to have run for a while",
            WAIT_SECONDS,
        )
        registry.start(Listener())
        registry.renewals.resume()
        try:
            wait_until(lambda: registry.reachability.was_read, "the first reading", WAIT_SECONDS)
            began = time.monotonic()
            register()
            peers.register(stacks)
            registry.instances.registered(stacks)
            wait_until(lambda: registry.restarts.servers_behind == 2, "both to have answered", WAIT_SECONDS)
            wait_until(lambda: servers[1].get(app, stacks.instance_id), "the copies", WAIT_SECONDS)

            def is_dropped() -> bool:
                for (
                    server
                ) in servers:  # again and again: one has the other register what is just being renewed
                    server.cancel(app, stacks.instance_id)
                return any("removed by somebody" in line for line in log)

            wait_until(is_dropped, "the removal to be noticed", WAIT_SECONDS)
            wait_until(lambda: time.monotonic() > began + 12.0, "many looks at both", WAIT_SECONDS)
            assert [server.get(app, stacks.instance_id) for server in servers] == [None, None]
            assert not any("was restarted" in line for line in log), "\n".join(log)
            assert registry.renewals.counts.accepted < 3 * len(ours)
            assert not peers.uses_batches(BATCHES_FROM_LEASES)
            frail.eurekas[0].kill()
            frail.eurekas[0].start()
            wait_until(lambda: registry.restarts.lost_memory, "the restart to be noticed", WAIT_SECONDS)
            wait_until(
                lambda: all(servers[0].get(app, instance.instance_id) for instance in ours),
                "all to be back",
                WAIT_SECONDS,
            )
            assert sum("was restarted" in line for line in log) == 1
        finally:
            registry.stop()
            peers.close()
