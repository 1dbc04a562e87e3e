"""Replication among three servers, and cases in which it loses changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contract.conftest import WAIT_SECONDS, Server, document, item
from tests.eureka_servers import Servers, clock

REPLICATION = {"x-netflix-discovery-replication": "true"}


def everywhere(servers: list[Server], what: Callable[[Server], object], expected: object) -> None:
    """Wait until every server gives the expected answer."""
    clock.wait_until(
        lambda: [what(server) for server in servers] == [expected] * len(servers), str(expected), WAIT_SECONDS
    )


def test_a_registration_is_forwarded(servers: list[Server], app: str) -> None:
    """Peers get a registration soon after the first server."""
    servers[0].register(document(app))
    everywhere(servers, lambda server: server.status(app), "UP")


def test_a_removal_is_forwarded(servers: list[Server], app: str) -> None:
    """If one server removes an instance, all servers remove it."""
    servers[0].register(document(app))
    everywhere(servers, lambda server: server.status(app), "UP")
    assert servers[1].cancel(app) == 200
    everywhere(servers, lambda server: server.status(app), None)


def test_a_status_is_forwarded(servers: list[Server], app: str) -> None:
    """An override is forwarded to the peers, and so is its clearing."""
    servers[0].register(document(app))
    everywhere(servers, lambda server: server.status(app), "UP")
    servers[1].put_status(app, "OUT_OF_SERVICE")
    everywhere(servers, lambda server: server.overridden(app), ("OUT_OF_SERVICE", "OUT_OF_SERVICE"))
    servers[2].delete_status(app, "UP")
    everywhere(servers, lambda server: server.overridden(app), ("UP", "UNKNOWN"))


def test_the_way_back_from_out_of_service_is_forwarded(servers: list[Server], app: str) -> None:
    """Setting UP and clearing it at once leaves UP and no override on every server."""
    servers[0].register(document(app, status="OUT_OF_SERVICE"))
    everywhere(servers, lambda server: server.status(app), "OUT_OF_SERVICE")
    servers[0].put_status(app, "UP")
    servers[0].delete_status(app, "UP")
    everywhere(servers, lambda server: server.overridden(app), ("UP", "UNKNOWN"))


def test_a_removal_where_it_is_not_held_is_sent_to_nobody(servers: list[Server], app: str) -> None:
    """A server that does not hold the instance answers 404 and forwards nothing: a removal must be sent to
    every server.
    """
    servers[0].register(document(app), **REPLICATION)
    assert servers[1].cancel(app) == 404
    marker = f"{app}-marker"  # what servers forward after this has arrived when the marker has
    servers[1].register(document(marker))
    everywhere(servers, lambda server: server.status(marker), "UP")
    assert servers[0].status(app) == "UP"


@pytest.mark.parametrize("way", ["header", "batch"])
def test_what_counts_as_replication_is_not_forwarded(servers: list[Server], app: str, way: str) -> None:
    """A write with the replication header, or in a batch, stays on its server."""
    if way == "header":
        assert servers[0].register(document(app), **REPLICATION) == 204
    else:
        assert servers[0].codes(item("Register", app, instanceInfo=document(app))) == [200]
    marker = f"{app}-marker"
    servers[0].register(document(marker))
    everywhere(servers, lambda server: server.status(marker), "UP")
    assert [server.status(app) for server in servers] == ["UP", None, None]


def test_a_batched_removal_is_not_forwarded(servers: list[Server], app: str) -> None:
    """A batch removes an instance on its server only."""
    servers[0].register(document(app))
    everywhere(servers, lambda server: server.status(app), "UP")
    assert servers[0].codes(item("Cancel", app)) == [200]
    marker = f"{app}-marker"
    servers[0].register(document(marker))
    everywhere(servers, lambda server: server.status(marker), "UP")
    assert [server.status(app) for server in servers] == [None, "UP", "UP"]


def test_a_plain_heartbeat_heals_the_peers(servers: list[Server], app: str) -> None:
    """A peer that missed a registration gets it with the next heartbeat that is forwarded."""
    servers[0].register(document(app), **REPLICATION)
    assert servers[0].renew(app) == 200
    everywhere(servers, lambda server: server.status(app), "UP")


def test_a_heartbeat_where_it_is_not_held_is_a_404(servers: list[Server], app: str) -> None:
    """A server that does not hold an instance answers its heartbeat with 404, even if its peers hold it."""
    servers[0].register(document(app), **REPLICATION)
    assert servers[1].renew(app) == 404
    assert servers[0].status(app) == "UP"


def test_an_older_registration_does_not_travel(servers: list[Server], app: str) -> None:
    """A registration with an older timestamp replaces the newer one on no server."""
    servers[0].register(document(app, lastDirtyTimestamp="2000"))
    everywhere(servers, lambda server: server.status(app), "UP")
    servers[1].register(document(app, lastDirtyTimestamp="1999", ipAddr="10.0.0.9"))
    marker = f"{app}-marker"
    servers[1].register(document(marker))
    everywhere(servers, lambda server: server.status(marker), "UP")
    held = [server.get(app) for server in servers]
    assert [one and one["ipAddr"] for one in held] == ["10.0.0.1"] * 3


def test_the_last_of_many_changes_wins_everywhere(servers: list[Server], app: str) -> None:
    """Many registrations in a row, sent to different servers, end with the newest on all.

    A newer registration may be batched before an older one and be refused there; a renewal at the server that
    holds the newest heals that. A server forwards a renewal once none has followed it for half a second, so
    that renewals must not come too often.
    """
    for number in range(20):
        stamped = document(app, lastDirtyTimestamp=str(2000 + number), ipAddr=f"10.0.1.{number}")
        servers[number % 3].register(stamped)

    def is_newest_everywhere() -> bool:
        servers[19 % 3].renew(app)
        clock.sleep(1.0)
        return [one and one["ipAddr"] for one in (server.get(app) for server in servers)] == ["10.0.1.19"] * 3

    clock.wait_until(is_newest_everywhere, "the newest everywhere", WAIT_SECONDS)


def test_a_status_overrides_the_registration_after_its_removal(servers: list[Server], app: str) -> None:
    """If an instance gets a status, is renewed at the peer, removed from both and registered again within
    half a second, the old status hides the new one.

    A replication task replaces an older one of its kind, so that the first server sends the new registration
    before the status that was set over the old one, and the status then hides the new registration on both
    servers.
    """

    def comes_over(app: str) -> bool:
        servers[0].register(document(app))
        everywhere(servers, lambda server: server.status(app), "UP")
        clock.sleep(1.0)
        servers[0].register(document(app))
        servers[0].put_status(app, "OUT_OF_SERVICE")
        servers[1].renew(app)
        servers[0].renew(app)
        for server in servers:
            server.cancel(app)
        servers[0].register(document(app, status="DOWN"))
        clock.sleep(2.0)
        servers[0].register(document(app))
        clock.sleep(2.0)
        return all(server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE") for server in servers)

    assert any(comes_over(f"{app}-{number}") for number in range(6))  # which order it is, is chance


def test_servers_name_their_replicas(three: Servers, servers: list[Server]) -> None:
    """``/status`` lists the peers to which a server forwards, in XML only."""
    assert servers[0].send("GET", "/status").status_code == 500
    answer = servers[0].send("GET", "/status", headers={"Accept": "application/xml"})
    assert answer.status_code == 200
    for url in three.eureka_urls[1:]:
        assert f"{url}/" in answer.text
