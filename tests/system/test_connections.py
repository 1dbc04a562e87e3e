"""An operator with several Eureka connections: where a syncer registers, and how it moves between them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from eurekube_provider.core.identity import Cluster as Identity
from eurekube_provider.core.model import Status
from eurekube_provider.core.registry import Healthy
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import SYNCERS, KubeAccess
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator.controller import WORKERS_PER_EUREKA, Controller
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import StatusPublisher, StatusWriter
from lab import Lab
from lab.proxy import Proxy
from lab.workloads import Cluster, wait_for
from tests.system.conftest import StartOperator, instances
from tests.system.test_syncer_fields import Shop

pytestmark = pytest.mark.lab

LISTED_SECONDS = 4.0
"""Seconds until a connection, which reads every second, has listed the registrations of another one."""

HANGS_SECONDS = 20.0
"""Time-out for a server that does not answer, in seconds: an action that takes less than half of it did
not wait.
"""


class Part(Protocol):
    """Part of an operator that runs between start and stop."""

    def start(self) -> None:
        """Start the part."""

    def stop(self) -> None:
        """Stop the part."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Peers]:
    """Return a client of a second Eureka, which shares nothing with the first."""
    with Lab(eureka=1, kubernetes=False) as running:
        peers = Peers(Connection.parse(running.eureka_urls))
        yield peers
        peers.close()


@pytest.fixture
def way(elsewhere: Peers) -> Iterator[Proxy]:
    """Return a proxy between the operator and the second Eureka."""
    port = urlsplit(elsewhere.peers[0].url).port
    assert port is not None
    with Proxy(port) as running:
        yield running


class Listener:
    """A registry's listener that has the controller reconcile."""

    def __init__(self, controller: Controller) -> None:
        self.instances_of_owner_changed = controller.enqueue_syncer_of_owner
        self.condition_changed = controller.enqueue_all


@pytest.fixture
def controller(lab: Lab, namespace: str, way: Proxy) -> Iterator[Controller]:
    """Start a controller with the connections ``default`` and ``elsewhere`` for the test's namespace."""
    there = replace(
        Connection.parse(f"http://127.0.0.1:{way.port}/eureka"), read_timeout_seconds=HANGS_SECONDS
    )
    connections = {"default": Connection.parse(lab.eureka_urls), "elsewhere": there}
    with leading(lab, namespace, connections) as running:
        yield running


@contextmanager
def leading(lab: Lab, namespace: str, connections: Mapping[str, Connection]) -> Iterator[Controller]:
    """Start a controller that leads, with these connections, for the test's namespace."""
    access = KubeAccess.load(lab.kubeconfig)
    identity = Identity("several", "uid")
    queue: WorkQueue[SyncerKey] = WorkQueue()
    events, statuses = EventRecorder(access, "test", "test"), StatusWriter(access)
    registries = {
        name: EurekaRegistry(Peers(connection), identity, "several", 1.0)
        for name, connection in connections.items()
    }
    settings = Settings(connections, watch_namespaces=(namespace,))
    sources = ClusterCache(access, identity, (namespace,), queue.add)
    drain_check = DrainCheck(access, sources, 0, queue.add)
    reconciler = Reconciler(settings, identity, access, registries, sources, drain_check, lambda: True)
    publisher = StatusPublisher(events, statuses)
    running = Controller(settings, identity, registries, sources, reconciler, publisher, drain_check, queue)
    with ExitStack() as ends:
        parts: list[Part] = [events, statuses, sources]
        for part in parts:
            part.start()
            ends.callback(part.stop)
        for registry in registries.values():
            registry.start(Listener(running))
            ends.callback(registry.stop)
        wait_for(
            lambda: (
                sources.is_synced and all(isinstance(one.condition(), Healthy) for one in registries.values())
            ),
            "a start",
        )
        running.start()
        running.start_renewals()
        running.lead()
        ends.callback(running.stop)
        yield running


@pytest.mark.usefixtures("controller")
def test_a_syncer_moves_to_another_eureka(
    cluster: Cluster, eureka: Peers, elsewhere: Peers, namespace: str
) -> None:
    """A moved syncer's instances are registered at the new Eureka before they leave the old one; a
    deletion looks at both.
    """
    shop = Shop(cluster, eureka, namespace)
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer()
    shop.wait_statuses("UP", "UP")
    assert instances(elsewhere, shop.app) == []
    shop.syncer(eureka="elsewhere")
    both = {shop.address(1): "UP", shop.address(2): "UP"}

    def there() -> dict[str, str]:
        return {one.ip_address: one.status.value for one in instances(elsewhere, shop.app)}

    wait_for(lambda: there() == both, "both at the new one", 60.0)
    shop.wait_statuses()
    shop.wait_condition("Synced", "True", "Synced")
    shop.syncer(eureka="nowhere")
    message = shop.wait_condition("Synced", "False", "UnknownEureka")
    assert "there are default, elsewhere" in message
    assert there() == both
    shop.cluster.delete(SYNCERS, "it", namespace)
    wait_for(lambda: there() == {}, "none left", 60.0)
    wait_for(lambda: cluster.get(SYNCERS, "it", namespace) is None, "the finalizer", 60.0)


def test_nothing_is_removed_between_two_connections_to_one_eureka(
    lab: Lab, cluster: Cluster, eureka: Peers, namespace: str
) -> None:
    """If two connections lead to one Eureka, moving a syncer between them removes none of its instances."""
    here = Connection.parse(lab.eureka_urls)
    shop = Shop(cluster, eureka, namespace)
    shop.service()
    shop.slices(shop.endpoint(1), shop.endpoint(2))
    shop.syncer()
    with leading(lab, namespace, {"default": here, "again": here}):
        shop.wait_statuses("UP", "UP")
        for spec in ({}, {"eureka": "again"}, {"eureka": "default", "metadata": {"color": "red"}}):
            shop.syncer(**spec)
            until = time.monotonic() + LISTED_SECONDS
            while time.monotonic() < until:
                assert [one.status for one in instances(eureka, shop.app)] == [Status.UP] * 2, spec
                time.sleep(0.02)
            shop.wait_condition("Synced", "True", "Synced")
        shop.slices(shop.endpoint(1))
        shop.wait_statuses("UP")
        shop.cluster.delete(SYNCERS, "it", namespace)
        shop.wait_statuses()
        wait_for(lambda: cluster.get(SYNCERS, "it", namespace) is None, "the finalizer", 60.0)


def test_an_eureka_that_hangs_holds_up_no_other(
    controller: Controller, cluster: Cluster, eureka: Peers, elsewhere: Peers, way: Proxy, namespace: str
) -> None:
    """A Eureka that hangs delays no other, however many syncers wait for it, even after a change of
    leader. The Eureka that hung gets its changes when it answers again.
    """
    shops = [Shop(cluster, eureka, namespace) for _ in range(WORKERS_PER_EUREKA + 5)]
    for number, shop in enumerate(shops):
        shop.app = f"{namespace}-{number}"
        shop.service()
        shop.slices(shop.endpoint(1))
        shop.syncer(called=shop.app, eureka="elsewhere" if number else "default")
    here, *there = shops
    here.wait_statuses("UP")
    wait_for(lambda: all(instances(elsewhere, shop.app) for shop in there), "all there", 60.0)
    way.hang()
    for shop in there:
        shop.slices(shop.endpoint(1), shop.endpoint(2))
    asked = way.request_count
    wait_for(lambda: way.request_count > asked, "a worker to be at it")
    started = time.monotonic()
    here.slices(here.endpoint(1), here.endpoint(2))
    here.wait_statuses("UP", "UP")
    assert time.monotonic() - started < HANGS_SECONDS / 2
    controller.pause_and_check_idle()
    controller.stand_by()
    started = time.monotonic()
    controller.start_renewals()
    controller.lead()
    here.slices(here.endpoint(1))
    here.wait_statuses("UP")
    assert time.monotonic() - started < HANGS_SECONDS / 2
    way.heal()
    wait_for(
        lambda: all(len(instances(elsewhere, shop.app)) == 2 for shop in there), "both of each there", 90.0
    )


def test_eureka_goes_and_comes_back(
    lab: Lab, cluster: Cluster, eureka: Peers, namespace: str, start_operator: StartOperator
) -> None:
    """Each syncer's status says that Eureka does not answer, and later that it does, even if nothing else
    changes.
    """
    shop = Shop(cluster, eureka, namespace)
    shop.service()
    shop.slices(shop.endpoint(1))
    shop.syncer()
    with Proxy(lab.eurekas[0].port) as front:
        # It hangs before it was read once: said so before the time-outs are over, which give another reason.
        front.hang()
        url = f"http://127.0.0.1:{front.port}/eureka"
        operator = start_operator(EUREKA_URL=url, LEADER_ELECT="false", ready=False)
        wait_for(lambda: "starting the operator" in operator.text(), "its start", 60.0)
        message = shop.wait_condition("Ready", "False", "EurekaUnreachable")
        assert f"{url} was asked and has not answered since" in message
        assert f"it will register 1 instance of {shop.app.upper()}; to fix it: start Eureka" in message
        front.heal()
        shop.wait_statuses("UP")
        shop.wait_condition("Synced", "True", "Synced")
        front.refuse()
        shop.wait_condition("Synced", "False", "EurekaUnreachable")
        assert shop.condition("Ready")[:2] == ("False", "EurekaUnreachable")
        front.heal()
        shop.wait_condition("Synced", "True", "Synced")
        wait_for(lambda: "EurekaReachable" in dict(shop.events()), "the Event", 60.0)

        # One that takes requests and answers none: found out before its time-outs are over, too.
        for endpoints in ((1,), (1, 2)):  # nothing is changed, and something
            front.hang()
            shop.slices(*map(shop.endpoint, endpoints))
            message = shop.wait_condition("Ready", "False", "EurekaUnreachable")
            assert "has not answered since" in message
            assert f"Eureka holds 1 instance of {shop.app.upper()} (1 UP)" in message
            front.heal()
            shop.wait_condition("Ready", "True", "Synced")
        shop.wait_statuses("UP", "UP")
    reasons = [reason for reason, _ in shop.events()]
    assert "EurekaUnreachable" in reasons
    assert reasons.count("EurekaReachable") == 1
