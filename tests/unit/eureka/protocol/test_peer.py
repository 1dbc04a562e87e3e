"""Headers and parameters that a peer adds to a request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer

SEEN: list[tuple[str, str | None]] = []
CONNECTION: list[str | None] = []


class Receiver(BaseHTTPRequestHandler):
    """A server that answers every read with 404, as Eureka does for an instance that it does not hold."""

    def do_GET(self) -> None:
        SEEN.append((self.path, self.headers["Authorization"]))
        CONNECTION.append(self.headers["Connection"])
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """Yield the port of a server on this machine."""
    SEEN.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_connection_ends_where_the_next_one_is_to_lead_elsewhere(port: int) -> None:
    """``read_status_and_close`` sends ``Connection: close``, so that a load balancer may choose another
    server next; ``status`` does not.
    """
    peer = Peer(url := f"http://127.0.0.1:{port}/eureka", Connection((url,)))
    CONNECTION.clear()
    for ask in (peer.read_status_and_close, peer.read_status):
        with pytest.raises(RegistryRejected):
            ask()
    peer.close()
    assert CONNECTION == ["close", None]


def read(connection: Connection) -> None:
    """Read an instance that the server does not hold."""
    peer = Peer(connection.service_urls[0], connection)
    assert peer.read("RATING", "a b") is None
    peer.close()


def test_bearer_token(port: int) -> None:
    """A token is sent as a bearer token."""
    read(Connection.parse(f"http://127.0.0.1:{port}/eureka", token="t-1"))
    assert SEEN == [("/eureka/apps/RATING/a%20b", "Bearer t-1")]


def test_basic_authentication(port: int) -> None:
    """User and password are sent as UTF-8."""
    read(Connection.parse(f"http://127.0.0.1:{port}/eureka", "ann", "größe"))
    assert SEEN == [("/eureka/apps/RATING/a%20b", "Basic YW5uOmdyw7bDn2U=")]


def test_proxy(port: int) -> None:
    """A configured proxy gets the whole URL, even of a host name that only the proxy can resolve."""
    read(Connection.parse("http://eureka.invalid:8761/eureka", proxy=f"http://127.0.0.1:{port}"))
    assert SEEN == [("http://eureka.invalid:8761/eureka/apps/RATING/a%20b", None)]


def test_the_environment_changes_nothing(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session takes proxies from the environment, but neither a .netrc nor a CA bundle."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent.pem")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "")
    read(Connection.parse("http://eureka.invalid:8761/eureka"))
    assert [path for path, _ in SEEN] == ["http://eureka.invalid:8761/eureka/apps/RATING/a%20b"]
