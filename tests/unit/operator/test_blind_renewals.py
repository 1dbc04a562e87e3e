"""Renewals by a process that could not read its cluster, at a registry in memory."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import OWNER_KEY, Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.operator import blind_renewals
from eurekube_provider.operator.blind_renewals import LeaseWatch, RenewalsWithoutKubernetes
from eurekube_provider.operator.registries import REGISTRY_FACTORY_BY_CONNECTION_CLASS
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.web.http_server import Request
from eurekube_provider.operator.web.routes import WebRoutes
from lab.waiting import wait_until
from tests.registries.memory import MemoryConnection, MemoryRegistry


def registered(connection: MemoryConnection, name: str, owner: str) -> Instance:
    """Register an instance of this owner."""
    id_ = f"{name}.shop.east:rating:8080"
    made = Instance("rating", id_, "10.0.0.1", "10.0.0.1", Port(8080), metadata={OWNER_KEY: owner})
    connection.put(made)
    return made


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> MemoryConnection:
    """Return a registry with two instances of this cluster, one under a former name, and three of others."""
    monkeypatch.setitem(
        REGISTRY_FACTORY_BY_CONNECTION_CLASS, "MemoryConnection", MemoryRegistry.from_connection
    )
    monkeypatch.setattr(blind_renewals, "POLL_SECONDS", 0.005)
    made = MemoryConnection()
    registered(made, "a", "cluster/east/shop/rating")
    registered(made, "b", "cluster/earlier/shop/rating")
    registered(made, "c", "cluster/west/shop/rating")
    registered(made, "d", "stack/o/p/s/n")
    registered(made, "e", "")
    return made


def blind(connection: MemoryConnection, **settings: Any) -> RenewalsWithoutKubernetes:
    """Return blind renewals that have not been started."""
    connections: Any = {"default": connection}
    return RenewalsWithoutKubernetes(Settings(connections, web_address="", **settings))


def test_only_this_clusters_instances_in_eureka_are_renewed(connection: MemoryConnection) -> None:
    """Instances under the cluster's present and former names in the settings are renewed, also later ones,
    until the stop.
    """
    started = blind(connection, cluster_name="east", previous_cluster_names=("earlier",))
    assert (started.renewed_instance_count, started.status_sentence) == (0, "")
    before = dict(connection.held)
    started.start()
    started.start()
    assert len(connection.clients) == 1
    wait_until(lambda: started.renewed_instance_count == 2, "renewals", 10.0)
    registered(connection, "f", "cluster/east/shop/rating")
    wait_until(lambda: started.renewed_instance_count == 3, "renewals of what is there later", 10.0)
    assert "3 instances that Eureka shows as the cluster east's are renewed" in started.status_sentence
    assert before.items() <= connection.held.items()
    started.stop()
    wait_until(lambda: not connection.clients, "the end", 10.0)
    assert (started.renewed_instance_count, started.status_sentence) == (0, "")
    started.start()
    assert connection.clients == []


def test_who_does_not_know_its_name_renews_nothing_and_says_so(
    connection: MemoryConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """Without ``cluster_name`` in the settings the name would come from the unreachable API server."""
    unnamed = blind(connection)
    with caplog.at_level(logging.WARNING):
        unnamed.start()
        unnamed.start()
    assert connection.clients == []
    (record,) = caplog.records
    assert "the cluster's name is not known" in record.message
    unnamed.stop()


def test_status_and_metrics_tell_of_it(connection: MemoryConnection) -> None:
    """The web pages report blind renewals before the operator's parts exist."""
    started = blind(connection, cluster_name="east")
    routes = WebRoutes(started)

    def page(path: str) -> str:
        answer = routes(Request(path, {}, "text/plain"))
        assert answer is not None
        return answer.body.decode()

    assert "eurekube_blind_renewals 0.0" in page("/metrics")
    assert "the Kubernetes API has not said yet which cluster this is\n" in page("/readyz")
    started.start()
    wait_until(lambda: started.renewed_instance_count == 1, "renewals", 10.0)
    assert "eurekube_blind_renewals 1.0" in page("/metrics")
    for path in ("/readyz", "/", "/status.json"):
        assert "1 instance that Eureka shows as the cluster east" in page(path)
    assert page("/healthz").startswith("ok")
    started.stop()


class Lease:
    """An access to the Kubernetes API that reads one Lease, renewed at each reading while ``is_renewed``."""

    def __init__(self) -> None:
        self.is_renewed = True
        self.error: KubernetesError | None = None
        self.reads = 0

    def get(self, path: str) -> dict[str, Any]:
        """Return the Lease."""
        assert path.endswith("/namespaces/eurekube-system/leases/eurekube-leader")
        self.reads += self.is_renewed
        if self.error is not None:
            raise self.error
        return {"spec": {"holderIdentity": "other", "renewTime": str(self.reads)}}


def watch_of(lease: Lease, *, is_elected: bool = True) -> LeaseWatch:
    """Return the watch of this Lease of 30 seconds, which is asked each 10 seconds."""
    access: Any = lease
    name = ("eurekube-system", "eurekube-leader") if is_elected else None
    seconds = itertools.count(0.0, 10.0)
    return LeaseWatch(access, name, 30.0, lambda: next(seconds))


@pytest.mark.parametrize("code", [None, 403, 404])
def test_where_the_api_refuses_nobody_renews_beside_a_leader(
    connection: MemoryConnection, code: int | None
) -> None:
    """A leader lets lapse what must go, such as an address that another pod has: who was denied the cluster
    begins once nobody renews the Lease, or nobody can.
    """
    started, lease, denied = blind(connection), Lease(), KubernetesError("denied", status_code=403)
    watch = watch_of(lease)
    for _ in range(10):
        started.start_if_unread([denied], watch, Cluster("east", "uid"))
    assert connection.clients == []
    lease.is_renewed = False
    lease.error = KubernetesError("refused", status_code=code) if code else None
    for _ in range(3 if code else 2):
        started.start_if_unread([denied], watch, Cluster("east", "uid"))
    assert connection.clients == [], "it may be renewed at any moment"
    started.start_if_unread([denied], watch, Cluster("east", "uid"))
    wait_until(lambda: started.renewed_instance_count == 1, "renewals", 10.0)
    assert "shows as the cluster east's are renewed" in started.status_sentence
    started.stop()


def test_what_may_be_read_needs_no_other_renewals(connection: MemoryConnection) -> None:
    """Without an error nothing begins; where the API is away, and without an election, it begins at once."""
    for errors, is_elected, begins in (
        ([], False, False),
        ([KubernetesError("away", status_code=503)], True, True),
        ([KubernetesError("denied", status_code=403)], False, True),
    ):
        started = blind(connection, cluster_name="east")
        started.start_if_unread(errors, watch_of(Lease(), is_elected=is_elected))
        assert bool(connection.clients) is begins
        started.stop()
        wait_until(lambda: not connection.clients, "the end", 10.0)
