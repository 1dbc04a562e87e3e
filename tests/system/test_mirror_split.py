"""A mirror with three Eureka servers, one of which is cut off from the others and still answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import EurekaLease, Instance, Port
from eurekube_provider.core.objects import SERVICE_NAME_LABEL
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS
from lab.peering import PeeredEurekas
from lab.waiting import wait_until
from lab.workloads import Cluster
from tests.system.conftest import StartOperator

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SHORT, LONG = EurekaLease(1, 4), EurekaLease(30, 600)
LEVEL_SECONDS = 40.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeredEurekas]:
    """Start three Eureka servers that evict lapsed instances within a second."""
    with PeeredEurekas(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture
def at(servers: PeeredEurekas) -> Iterator[list[Peers]]:
    """Return a client of each server alone, like an instance that knows only that server."""
    each = [Peers(Connection.parse([server.url])) for server in servers.servers]
    yield each
    for one in each:
        one.close()


def test_what_one_side_of_a_split_holds_goes_on_to_be_called(
    servers: PeeredEurekas, at: list[Peers], cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    """The server that the operator reads evicts an instance that renews only at the others: the endpoint
    stays. An instance that deregisters at that server leaves at once.
    """
    app = f"{namespace}-review"
    stays, leaves = (
        Instance(app, f"vm-{number}", f"192.0.2.{number}", f"192.0.2.{number}", Port(8080), lease=lease)
        for number, lease in ((1, SHORT), (2, LONG))
    )
    cluster.apply(
        MIRRORS,
        {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaMirror",
            "metadata": {"namespace": namespace, "name": "review"},
            "spec": {"application": app, "serviceName": "review"},
        },
    )

    def shows() -> dict[str, bool]:
        return {
            one["addresses"][0]: one["conditions"]["ready"]
            for item in cluster.items(ENDPOINT_SLICES, namespace, **{SERVICE_NAME_LABEL: "review"})
            for one in item.get("endpoints") or ()
        }

    Writer(at[1]).register(stays)
    Writer(at[1]).register(leaves)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(1.0):
            try:
                at[1].renew(stays)
            except RegistryError as error:  # a busy machine: the next one comes
                print("not renewed:", error)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        operator = start_operator(
            EUREKA_URL=",".join(servers.urls), MIRRORS="true", MIRROR_CIDRS="192.0.2.0/24"
        )
        wait_until(lambda: shows() == {"192.0.2.1": True, "192.0.2.2": True}, "both", LEVEL_SECONDS)
        servers.isolate_server(0)
        wait_until(lambda: stays.key not in servers.list_instances(0), "its eviction", LEVEL_SECONDS)
        assert {stays.key, leaves.key} <= servers.list_instances(1).keys() & servers.list_instances(2).keys()
        Writer(at[0]).remove(leaves)
        wait_until(lambda: shows() == {"192.0.2.1": True}, "the other one to leave", LEVEL_SECONDS)
        # That reading of the server that is cut off, and several more, lacked both.
        assert not ended.wait(10.0)
        assert shows() == {"192.0.2.1": True}
        servers.heal()
        wait_until(lambda: stays.key in servers.list_instances(0), "it to be back everywhere", LEVEL_SECONDS)
        assert not ended.wait(5.0)
        assert shows()["192.0.2.1"]
        assert "RemovedWithoutProof" not in operator.text()
    finally:
        ended.set()
        renewing.join()
        servers.heal()
