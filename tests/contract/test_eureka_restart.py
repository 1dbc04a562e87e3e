"""Signs of a server's restart, and the data that the server holds afterwards."""

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
from eurekube_provider.eureka.peers import FEWEST_LEASES_FOR_BATCHES, Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.restart_detection import running_seconds
from eurekube_provider.eureka.writer import Writer
from lab import Lab
from lab.eureka import FAST_LIST_SETTINGS, SpringCloudRelease
from lab.listing import LONGEST_LIST_DELAY_SECONDS
from lab.ports import HOST
from lab.proxy import Proxy
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, Server, document, rating
from tests.logged_lines import everything_logged


@pytest.fixture(params=[False, True], ids=["strangers", "clients of each other"])
def pair(request: pytest.FixtureRequest, spring_cloud: SpringCloudRelease) -> Iterator[Lab]:
    """Start servers that are clients of each other, and servers that are not."""
    if not request.param:
        yield request.getfixturevalue("three")
        return
    with Lab(
        eureka=2,
        kubernetes=False,
        register_with_eureka=True,
        spring_cloud=spring_cloud,
        eureka_settings=FAST_LIST_SETTINGS,  # what a server copies is its neighbour's list
    ) as running:
        yield running


@pytest.mark.real_server("it kills a server and starts it again")
def test_what_a_restarted_server_holds(
    pair: Lab, http: requests.Session, app: str, request: pytest.FixtureRequest
) -> None:
    """A restarted server copies its neighbour's registry only if it is a client of it; its start time
    shows the restart.
    """
    first, *others = (Server(url, http) for url in pair.eureka_urls)
    second = others[0]
    first.register(document(app))
    wait_until(lambda: second.status(app) == "UP", "the copy", WAIT_SECONDS)
    client = Peer(first.url, Connection((first.url,)))
    before = client.read_status()
    assert before.started_timestamp_ms is not None
    assert client.read_status().started_timestamp_ms == before.started_timestamp_ms
    assert {url.rstrip("/") for url in before.registered_replicas} == {other.url for other in others}
    copies = request.node.callspec.params["pair"]
    if copies:
        neighbour = Peer(second.url, Connection((second.url,)))
        wait_until(
            lambda: app.upper() in {one.application for one in neighbour.list_instances()},
            "the list",
            LONGEST_LIST_DELAY_SECONDS,
        )
        neighbour.close()
    pair.eurekas[0].kill()
    pair.eurekas[0].start()
    if copies:
        wait_until(lambda: first.status(app) == "UP", "the copy", WAIT_SECONDS)
    else:
        assert first.get(app) is None
    assert second.status(app) == "UP"
    after = client.read_status()
    assert after.started_timestamp_ms is not None
    assert after.started_timestamp_ms > before.started_timestamp_ms
    client.close()


def test_what_a_server_says_of_itself(peer: Peer, server: Server, app: str) -> None:
    """Writes do not change a server's start time, and a lone server has no replicas."""
    before = peer.read_status()
    server.register(document(app))
    server.renew(app)
    server.cancel(app)
    after = peer.read_status()
    assert before.started_timestamp_ms is not None
    assert after.started_timestamp_ms == before.started_timestamp_ms
    assert after.registered_replicas == ()
    assert after.uptime


def youngest_seconds(urls: Sequence[str]) -> float:
    """Return the shortest running time of these servers, in seconds."""
    peers = Peers(Connection(tuple(urls)))
    statuses, _ = peers.ask_all_or_raise(lambda peer: peer.read_status())
    peers.close()
    assert len(statuses) == len(urls)
    return min(running_seconds(status, time.time()) or 0.0 for status in statuses.values())


@pytest.mark.real_server("it kills a server and starts it again")
def test_two_servers_behind_one_url(http: requests.Session, app: str) -> None:
    """Behind a balancer, answers of different servers are no restart: renewals keep their pace, and what a
    person removed stays away.

    A real restart is noticed, and lost instances are registered again.
    """
    with (
        Lab(eureka=2, kubernetes=False) as lab,
        Proxy(lab.eurekas[0].port, others=[lab.eurekas[1].port]) as balancer,
        everything_logged() as log,
    ):
        servers = [Server(url, http) for url in lab.eureka_urls]
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
            """A listener that registers missing instances."""

            def instances_of_owner_changed(self, _owner: str) -> None:
                """Register the missing instances."""
                register()

            def condition_changed(self) -> None:
                """Do nothing."""

        def register() -> None:
            """Register the instances that are not renewed, as a syncer's reconcile does."""
            for instance in ours:
                if instance.key not in registry.renewals:
                    Writer(peers).register(instance)
                    registry.instances.note_registered(instance)

        wait_until(
            lambda: youngest_seconds(lab.eureka_urls) > 3.0, "both to have run for a while", WAIT_SECONDS
        )
        registry.start(Listener())
        registry.renewals.resume()
        try:
            wait_until(lambda: registry.reachability.has_been_read, "the first reading", WAIT_SECONDS)
            began = time.monotonic()
            register()
            Writer(peers).register(stacks)
            registry.instances.note_registered(stacks)
            wait_until(
                lambda: registry.restarts.most_servers_at_one_url == 2, "both to have answered", WAIT_SECONDS
            )
            wait_until(lambda: servers[1].get(app, stacks.instance_id), "the copies", WAIT_SECONDS)

            def is_dropped() -> bool:
                for (
                    server
                ) in servers:  # again and again: one has the other register what is just being renewed
                    server.cancel(app, stacks.instance_id)
                return any("somebody removed" in line for line in log)

            wait_until(is_dropped, "the removal to be noticed", WAIT_SECONDS)
            wait_until(lambda: time.monotonic() > began + 12.0, "many looks at both", WAIT_SECONDS)
            assert [server.get(app, stacks.instance_id) for server in servers] == [None, None]
            assert not any("was restarted" in line for line in log), "\n".join(log)
            assert registry.renewals.counts.accepted < 3 * len(ours)
            assert not peers.uses_batches(FEWEST_LEASES_FOR_BATCHES)
            lab.eurekas[0].kill()
            lab.eurekas[0].start()
            wait_until(
                lambda: registry.restarts.may_have_lost_memory, "the restart to be noticed", WAIT_SECONDS
            )
            wait_until(
                lambda: all(servers[0].get(app, instance.instance_id) for instance in ours),
                "all to be back",
                WAIT_SECONDS,
            )
            assert sum("was restarted" in line for line in log) == 1
        finally:
            registry.stop()
            peers.close()
