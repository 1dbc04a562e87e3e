"""How a server's restart is recognised, and what it remembers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from lab import Lab
from lab.eureka import SpringCloud
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, Server, document

pytestmark = pytest.mark.lab


@pytest.fixture(params=[False, True], ids=["strangers", "clients of each other"])
def pair(request: pytest.FixtureRequest, spring_cloud: SpringCloud) -> Iterator[Lab]:
    """Two servers, that are clients of each other or not."""
    with Lab(
        eureka=2, kubernetes=False, register_with_eureka=request.param, spring_cloud=spring_cloud
    ) as running:
        yield running


def test_what_a_restarted_server_holds(
    pair: Lab, http: requests.Session, app: str, request: pytest.FixtureRequest
) -> None:
    """It copies its neighbour's registry only where it is a client; its start time tells of the restart."""
    first, second = (Server(url, http) for url in pair.eureka_urls)
    first.register(document(app))
    wait_until(lambda: second.status(app) == "UP", "the copy", WAIT_SECONDS)
    client = Peer(first.url, Connection((first.url,)))
    before = client.status()
    assert before.started_timestamp_ms is not None
    assert client.status().started_timestamp_ms == before.started_timestamp_ms
    assert [url.rstrip("/") for url in before.registered_replicas] == [second.url]
    pair.eurekas[0].kill()
    pair.eurekas[0].start()
    copies = request.node.callspec.params["pair"]
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
