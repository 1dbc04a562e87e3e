"""Use of batches: servers are asked once, and the answer holds while no server answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import FEWEST_LEASES_FOR_BATCHES, Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage

URL = "http://127.0.0.1:8761/eureka"
MANY = FEWEST_LEASES_FOR_BATCHES


class Server:
    """The status of one server, read through a real Peer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replicas: tuple[str, ...] = ()
        self.away = False
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        monkeypatch.setattr(Peer, "read_status", lambda _: self.read_status())
        monkeypatch.setattr(Peer, "send_batch", lambda *_: [])

    def read_status(self) -> StatusPage:
        """Return the server's status once the gate is open, or raise while the server is away."""
        self.asked += 1
        self.gate.wait(10)
        if self.away:
            raise RegistryUnreachable("away", url=URL)
        return StatusPage("", 1, self.replicas)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return the only server."""
    return Server(monkeypatch)


def test_the_first_caller_waits_for_the_answer(server: Server) -> None:
    """Threads that ask at once all wait for one answer, and all use batches."""
    peers = Peers(Connection.parse(URL))
    server.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(peers.uses_batches, MANY) for _ in range(4)]
        server.gate.set()
        assert [answer.result(10) for answer in answers] == [True] * 4
    assert server.asked == 1


def test_few_leases_ask_nobody(server: Server) -> None:
    """Below the limit of leases single requests are used, and no server is asked."""
    assert not Peers(Connection.parse(URL)).uses_batches(MANY - 1)
    assert server.asked == 0


def test_an_unknown_replica_forbids_batches(server: Server) -> None:
    """Batches are not used if a server replicates to an unconfigured server, which would miss them."""
    server.replicas = ("http://10.0.0.9:8761/eureka/",)
    peers = Peers(Connection.parse(URL))
    assert not peers.uses_batches(MANY)
    assert "forwards to http://10.0.0.9:8761/eureka/, which" in (peers.topology.find_batch_obstacle() or "")


def test_a_balancer_that_servers_name_forbids_batches(server: Server) -> None:
    """Batches are not used if the servers behind one URL name this URL as their peer: a batch would reach
    one of them.
    """
    server.replicas = (f"{URL}/",)
    peers = Peers(Connection.parse(URL))
    assert not peers.uses_batches(MANY)
    assert "load balancer" in (peers.topology.find_batch_obstacle() or "")


@pytest.mark.parametrize(
    "url", ["http://me:pa#ss@eureka-2:8761/eureka/", "http://eureka-2:87610/eureka/", "http://[eureka/"]
)
def test_a_replica_whose_url_cannot_be_read_forbids_batches(
    server: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable replica URL forbids batches, raises no error, and shows no password in the log."""
    server.replicas = (url,)
    with caplog.at_level("INFO"):
        assert not Peers(Connection.parse(URL)).uses_batches(MANY)
    assert "ss" not in str([vars(record).get("reason") for record in caplog.records])


def test_servers_that_are_away_change_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no server answers, the last answer holds; the next one replaces it."""
    monkeypatch.setattr(windows, "TOPOLOGY_CACHE_SECONDS", 0.0)
    monkeypatch.setattr(windows, "AVOID_SERVER_SECONDS", 0.0)
    peers = Peers(Connection.parse(URL))
    server.away = True
    assert not peers.uses_batches(MANY)
    server.away = False
    assert peers.uses_batches(MANY)
    server.away = True
    assert peers.uses_batches(MANY)
    server.away, server.replicas = False, ("http://10.0.0.9:8761/eureka/",)
    assert not peers.uses_batches(MANY)
