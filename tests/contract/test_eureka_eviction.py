"""The time that an unrenewed instance stays, on servers that evict more often than by default."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from tests.contract.conftest import WAIT_SECONDS, Server, document, one
from tests.eureka_servers import Servers, Train, clock, run_servers


def lease(seconds: int) -> dict[str, int]:
    """Return the document of a lease of so many seconds."""
    return {"renewalIntervalInSecs": 1, "durationInSecs": seconds}


def threshold(server: Server) -> int:
    """Return the number of renewals a minute below which the server preserves itself, from its front page."""
    page = server.send("GET", "/../", headers={"Accept": "text/html"}).text
    found = re.search(r"Renews threshold</td>\s*<td>(\d+)", page)
    assert found, page
    return int(found[1])


def emptied(server: Server) -> int:
    """Remove other tests' instances; return the renewal threshold of the empty server."""
    for left in server.held():
        server.cancel(*left)
    return threshold(server)


def test_how_long_leases_live(quick: Server, app: str) -> None:
    """A lease that was never renewed ends after one duration, a renewed one after two, and one that was
    registered again after one.
    """
    seconds = 2
    ids = [f"{kind}.{app}" for kind in ("never", "renewed", "again")]
    started = clock.monotonic()
    for instance_id in ids:
        assert quick.register(document(app, instance_id, leaseInfo=lease(seconds))) == 204
    for instance_id in ids[1:]:
        assert quick.renew(app, instance_id) == 200
    assert quick.register(document(app, ids[2], leaseInfo=lease(seconds))) == 204
    lived: dict[str, float] = {}

    def all_gone() -> bool:
        for instance_id in ids:
            if instance_id not in lived and quick.get(app, instance_id) is None:
                lived[instance_id] = clock.monotonic() - started
        return len(lived) == 3

    clock.wait_until(all_gone, "the evictions", WAIT_SECONDS)
    assert lived[ids[0]] >= seconds
    assert lived[ids[2]] >= seconds
    assert lived[ids[1]] >= 2 * seconds
    assert max(lived[ids[0]], lived[ids[2]]) < lived[ids[1]]


def test_a_server_says_when_a_lease_ends(quick: Server, app: str) -> None:
    """A lease ends one duration after a renewal, and the server reports that end as the time of the last
    renewal.
    """
    quick.register(document(app, leaseInfo=lease(60)))
    asked_at = clock.time()
    assert quick.renew(app) == 200
    held = quick.get(app)
    assert held is not None
    ends = int(held["leaseInfo"]["lastRenewalTimestamp"]) / 1000
    assert asked_at + 59 <= ends <= clock.time() + 61


def test_a_delta_tells_an_eviction_from_a_removal(quick: Server, app: str) -> None:
    """A delta shows both as DELETED; an evicted instance is recognised by its lease, which had lapsed
    before the removal.
    """
    evicted, removed, peer = one(app), f"b.{app}", Peer(quick.url, Connection((quick.url,)))
    for instance_id in (evicted, removed):
        quick.register(document(app, instance_id, leaseInfo=lease(3)))
        assert quick.renew(app, instance_id) == 200
    assert quick.cancel(app, removed) == 200

    def lapsed() -> dict[str, bool]:
        _, delta = peer.read_delta_if_changed(b"") or (b"", None)
        assert delta is not None
        return {key[1]: key in delta.evicted_keys for key in delta.departed_keys if key[0] == app.upper()}

    assert lapsed() == {removed: False}
    clock.wait_until(lambda: evicted in lapsed(), "the eviction", WAIT_SECONDS)
    assert lapsed() == {removed: False, evicted: True}
    peer.close()


def test_a_status_renews_a_lease(quick: Server, app: str) -> None:
    """Setting a status renews the lease: the instance stays for twice its duration."""
    quick.register(document(app, leaseInfo=lease(1)))
    started = clock.monotonic()
    quick.put_status(app, "OUT_OF_SERVICE")
    clock.wait_until(lambda: quick.get(app) is None, "the eviction", WAIT_SECONDS)
    assert clock.monotonic() - started >= 2


def test_an_eviction_lowers_what_the_server_expects(quick: Server, app: str) -> None:
    """Evictions lower the expected number of renewals, so that they do not cause self-preservation."""
    empty = emptied(quick)
    count = 20
    for number in range(count):
        quick.register(document(app, f"{number}.{app}", leaseInfo=lease(5)))
    assert threshold(quick) >= empty + int(count * 2 * 0.85)
    clock.wait_until(lambda: not quick.held(app), "the evictions", WAIT_SECONDS)
    assert threshold(quick) == empty


def test_a_removal_lowers_what_the_server_expects(quick: Server, app: str) -> None:
    """Each new id raises the expected number of renewals and its removal lowers it; registering again
    changes nothing.
    """
    empty = emptied(quick)
    for _ in range(3):
        for number in range(10):
            quick.register(document(app, f"{number}.{app}"))
    assert empty + 16 <= threshold(quick) <= empty + 18
    for number in range(10):
        quick.cancel(app, f"{number}.{app}")
    assert threshold(quick) == empty


def test_an_eviction_ends_the_override(quick: Server, app: str) -> None:
    """An instance that registers again after its eviction has no override."""
    quick.register(document(app, leaseInfo=lease(1)))
    quick.put_status(app, "OUT_OF_SERVICE")
    clock.wait_until(lambda: not quick.held(app), "the eviction", WAIT_SECONDS)
    quick.register(document(app))
    assert quick.overridden(app) == ("UP", "UNKNOWN")


def test_heartbeats_keep_an_instance(quick: Server, app: str) -> None:
    """An instance that is renewed within its lease, plainly or in batches, stays."""
    quick.register(document(app, leaseInfo=lease(2)))
    until = clock.monotonic() + 5
    while clock.monotonic() < until:
        assert quick.renew(app) == 200
        assert quick.codes({"action": "Heartbeat", "appName": app.upper(), "id": f"one.{app}"}) == [200]
        clock.sleep(0.1)
    assert quick.status(app) == "UP"


@pytest.fixture(scope="module")
def sparing(one_train: Train) -> Iterator[Servers]:
    """Start a server that evicts five times a second, with self-preservation as by default."""
    settings = {"eureka.server.eviction-interval-timer-in-ms": "200"}
    with run_servers(one_train, settings=settings) as running:
        yield running


def test_self_preservation_spares_everything(sparing: Servers, http: requests.Session, app: str) -> None:
    """While a server gets fewer renewals than it expects it evicts nothing; only a removal takes an
    instance out.
    """
    server = Server(sparing.eureka_urls[0], http)
    for number in range(10):
        server.register(document(app, f"{number}.{app}", leaseInfo=lease(1)))
    clock.sleep(2.5)  # twice the leases, and several looks for lapsed ones; there is nothing to wait for
    assert len(server.held(app)) == 10
    assert all(server.get(app, f"{number}.{app}") for number in range(10))


@pytest.fixture(scope="module")
def slow(one_train: Train) -> Iterator[Servers]:
    """Start a server without self-preservation that evicts once a minute, as by default.

    A server with self-preservation, like the shared ones, still answers reads of lapsed instances.
    """
    settings = {"eureka.server.enable-self-preservation": "false"}
    with run_servers(one_train, is_sparing=False, settings=settings) as running:
        yield running


def test_a_lapsed_lease_is_not_read_although_it_is_there(
    slow: Servers, http: requests.Session, app: str
) -> None:
    """Between lapse and eviction an instance is listed, its read is a 404, and a renewal revives it."""
    server = Server(slow.eureka_urls[0], http)
    server.register(document(app, leaseInfo=lease(1)))
    clock.wait_until(lambda: server.get(app) is None, "the lapse", WAIT_SECONDS)
    assert len(server.held(app)) == 1
    assert server.renew(app) == 200
    assert server.status(app) == "UP"
