"""``eureka-js-client`` registers, renews, follows deltas, sees a drain, and leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.protocol.peer import Peer
from lab.js_client import NodeMissing, provide_js_client_command
from lab.waiting import wait_until
from tests.interop.conftest import OWNER, Register
from tests.interop.line_client import WAIT_SECONDS, LineClient

pytestmark = pytest.mark.real_server("its client needs Node")

AMAZON = {
    "@class": "com.netflix.appinfo.AmazonInfo",
    "name": "Amazon",
    "metadata": {"instance-id": "i-0123", "local-ipv4": "10.0.0.9"},
}
MY_OWN = {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"}

Start = Callable[..., LineClient]


@pytest.fixture
def start(eureka_url: str, logs: Path) -> Iterator[Start]:
    """Return a function that starts clients; those that still run are ended afterwards."""
    try:
        command = provide_js_client_command()
    except NodeMissing as reason:
        pytest.skip(str(reason))
    place = urlsplit(eureka_url)
    running: list[LineClient] = []

    def start(application: str, **fields: Any) -> LineClient:
        settings = {
            "instance": {
                "app": application,
                "hostName": f"{application}.example",
                "ipAddr": "10.0.0.9",
                "vipAddress": application,
                "port": {"$": 9090, "@enabled": True},
                "dataCenterInfo": MY_OWN,
                **fields,
            },
            "eureka": {
                "host": place.hostname,
                "port": place.port,
                "heartbeatInterval": 500,
                "registryFetchInterval": 500,
                "fetchMetadata": False,
            },
        }
        client = LineClient([*command, json.dumps(settings)], logs / f"{application}.log")
        running.append(client)
        return client

    yield start
    for client in running:
        client.close()


def copy(app: str, number: int) -> Instance:
    """Return an instance of ours at an address of its own, by which the client tells instances apart."""
    host = f"10.0.0.{number}"
    return Instance(app, f"{app}-{number}", host, host, Port(8080), metadata={OWNER_KEY: OWNER})


def test_it_sees_what_we_register_by_deltas(start: Start, register: Register, peer: Peer, app: str) -> None:
    """The client sees new, drained and removed instances of ours by deltas."""
    register(copy(app, 1))
    client = start(f"{app}-caller")
    client.instances(app, f"{app}-1")
    register(copy(app, 2))
    (first, _) = client.instances(app, f"{app}-1", f"{app}-2")
    assert (first["ipAddr"], first["port"]) == ("10.0.0.1", {"$": 8080, "@enabled": "true"})
    assert first["metadata"][OWNER_KEY] == OWNER
    peer.set_status(copy(app, 2), Status.OUT_OF_SERVICE)
    wait_until(
        lambda: [one["status"] for one in client.ask("ofVip", app)] == ["UP", "OUT_OF_SERVICE"],
        "the status",
        WAIT_SECONDS,
    )
    peer.deregister(app, f"{app}-2")
    client.instances(app, f"{app}-1")
    counts = client.ask("counts")
    assert counts["delta"] > 2
    assert counts["failure"] == 0


def test_it_registers_renews_is_drained_and_leaves(start: Start, peer: Peer, app: str) -> None:
    """Without an instance id the client registers under its host name; it goes on renewing while it is out
    of service.
    """
    client = start(app)
    held = peer.read(app, f"{app}.example")
    assert held is not None
    assert (held.port, held.status, held.vip_address) == (Port(9090), Status.UP, app)
    peer.set_status(held, Status.OUT_OF_SERVICE)
    before = client.ask("counts")["heartbeat"]
    wait_until(lambda: client.ask("counts")["heartbeat"] > before + 2, "renewals", WAIT_SECONDS)
    drained = peer.read(*held.key)
    assert drained is not None
    assert drained.status is Status.OUT_OF_SERVICE
    peer.clear_status(held)
    client.close()
    assert peer.read(*held.key) is None


def test_the_id_of_an_amazon_instance(start: Start, peer: Peer, app: str) -> None:
    """Server and renewing client both use the id that an Amazon data centre names."""
    client = start(app, dataCenterInfo=AMAZON)
    held = peer.read(app, "i-0123")
    assert held is not None
    wait_until(lambda: client.ask("counts")["heartbeat"] > 2, "renewals", WAIT_SECONDS)
    client.close()
    assert peer.read(app, "i-0123") is None
