"""A proxy that misbehaves on demand, before a healthy server."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests

from lab.proxy import Fault, Proxy
from lab.waiting import wait_until

SAYS = b"all is well, and will be for as long as this server runs"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the text: in chunks, without a length, or with one, as the path says."""
        self.server.heard.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (SAYS[:10], SAYS[10:]):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/until-the-end":
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(SAYS)
        else:
            self.send_header("Content-Length", str(len(SAYS)))
            self.end_headers()
            self.wfile.write(SAYS)

    def do_POST(self) -> None:
        """Answer with the request's body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self) -> None:
        """Answer without a body."""
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Yield a server that always answers."""
    running = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    running.heard = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=running.serve_forever, args=(0.05,))
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def proxy(server: ThreadingHTTPServer) -> Iterator[Proxy]:
    """Yield a proxy before the server."""
    with Proxy(server.server_address[1]) as running:
        yield running


@pytest.fixture
def session() -> Iterator[requests.Session]:
    """Yield an HTTP client that keeps its connection open."""
    with requests.Session() as client:
        client.trust_env = False
        yield client


def url(proxy: Proxy, path: str = "/") -> str:
    """Return the URL of a server's path through the proxy."""
    return f"http://127.0.0.1:{proxy.port}{path}"


@pytest.mark.parametrize("path", ["/", "/chunks", "/until-the-end"])
def test_answers_pass_unchanged(proxy: Proxy, session: requests.Session, path: str) -> None:
    """Answers with a length, in chunks, or until the connection's end pass unchanged."""
    for _ in range(3):
        assert session.get(url(proxy, path), timeout=5).content == SAYS
    assert proxy.request_count == 3


def test_servers_take_turns(server: ThreadingHTTPServer, session: requests.Session) -> None:
    """Requests of one connection go to the servers in turn, without those that do not listen."""
    other = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    other.heard = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=other.serve_forever, args=(0.05,))
    thread.start()
    with Proxy(server.server_address[1], others=[other.server_address[1]]) as balancer:
        for number in range(4):
            assert session.get(url(balancer, f"/{number}"), timeout=5).content == SAYS
        other.shutdown()
        thread.join()
        other.server_close()
        with requests.Session() as again:
            again.trust_env = False
            for number in (4, 5):
                assert again.get(url(balancer, f"/{number}"), timeout=5).content == SAYS
    assert server.heard == ["/0", "/2", "/4", "/5"]  # type: ignore[attr-defined]
    assert other.heard == ["/1", "/3"]  # type: ignore[attr-defined]


def test_bodies_pass_unchanged(proxy: Proxy, session: requests.Session) -> None:
    """Request bodies pass unchanged, and the connection is usable after an answer without a body."""
    for body in (b"", b"x" * 300_000):
        assert session.post(url(proxy), data=body, timeout=5).content == body
        assert session.delete(url(proxy), timeout=5).status_code == 204


def test_a_status_in_the_servers_place(
    proxy: Proxy, session: requests.Session, server: ThreadingHTTPServer
) -> None:
    """The proxy answers with the ordered status, also on an open connection, and passes nothing to the
    server.
    """
    session.get(url(proxy), timeout=5)
    for status_code in (503, 401):
        proxy.answer(status_code)
        assert session.post(url(proxy), data=b"lost", timeout=5).status_code == status_code
    proxy.heal()
    assert session.get(url(proxy, "/again"), timeout=5).content == SAYS
    assert server.heard == ["/", "/again"]  # type: ignore[attr-defined]


def test_a_cut_answer(proxy: Proxy, session: requests.Session, server: ThreadingHTTPServer) -> None:
    """The server handles a request whose answer the proxy cuts off."""
    proxy.cut()
    with pytest.raises(requests.exceptions.RequestException):
        session.get(url(proxy, "/cut"), timeout=5)
    proxy.heal()
    assert session.get(url(proxy), timeout=5).content == SAYS
    assert server.heard == ["/cut", "/"]  # type: ignore[attr-defined]


def test_a_delay(proxy: Proxy, session: requests.Session) -> None:
    """Answers are delayed as ordered; ``heal`` ends the delay of waiting requests."""
    proxy.delay(0.3)
    started = time.monotonic()
    assert session.get(url(proxy), timeout=5).content == SAYS
    assert time.monotonic() - started >= 0.3
    proxy.delay(30)
    threading.Timer(0.2, proxy.heal).start()
    assert session.get(url(proxy), timeout=5).content == SAYS


def test_no_answer(proxy: Proxy, session: requests.Session, server: ThreadingHTTPServer) -> None:
    """A request during ``hang`` is never answered, even after ``heal``; the next one is."""
    session.get(url(proxy), timeout=5)
    proxy.hang()
    with pytest.raises(requests.exceptions.Timeout):
        session.get(url(proxy, "/swallowed"), timeout=0.3)
    proxy.heal()
    assert session.get(url(proxy), timeout=5).content == SAYS
    assert server.heard == ["/", "/"]  # type: ignore[attr-defined]


def test_no_answer_after_some(proxy: Proxy, session: requests.Session, server: ThreadingHTTPServer) -> None:
    """After the ordered number of requests the next ones are held, and counted in ``held``."""
    session.get(url(proxy), timeout=5)
    proxy.hang_after(1)
    session.get(url(proxy, "/passed"), timeout=5)
    assert proxy.hanging_request_count == 0
    with pytest.raises(requests.exceptions.Timeout):
        session.get(url(proxy, "/held"), timeout=0.3)
    assert proxy.hanging_request_count == 1
    proxy.heal()
    assert proxy.hanging_request_count == 0
    assert server.heard == ["/", "/passed"]  # type: ignore[attr-defined]


def test_nobody_there(proxy: Proxy, session: requests.Session) -> None:
    """``refuse`` refuses new connections and resets open ones; ``heal`` listens on the same port again."""
    session.get(url(proxy), timeout=5)
    proxy.refuse()
    assert proxy.fault is Fault.REFUSE
    with pytest.raises(requests.exceptions.ConnectionError):
        session.get(url(proxy), timeout=5)
    with pytest.raises(requests.exceptions.ConnectionError, match="refused"):
        requests.get(url(proxy), timeout=5)
    proxy.heal()
    assert session.get(url(proxy), timeout=5).content == SAYS


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue refuses")
def test_a_host_that_is_gone(proxy: Proxy, session: requests.Session, server: ThreadingHTTPServer) -> None:
    """After ``vanish`` neither open nor new connections get any answer, until ``heal``."""
    session.get(url(proxy), timeout=5)
    heard = len(server.heard)  # type: ignore[attr-defined]
    proxy.vanish()
    with pytest.raises(requests.ReadTimeout):
        session.get(url(proxy), timeout=0.3)
    for _ in range(3):
        with pytest.raises(requests.ConnectTimeout):
            requests.get(url(proxy), timeout=0.3)
    proxy.vanish()
    assert len(server.heard) == heard  # type: ignore[attr-defined]
    proxy.heal()
    assert requests.get(url(proxy), timeout=5).content == SAYS
    assert session.get(url(proxy), timeout=5).content == SAYS


def test_a_server_that_is_gone(server: ThreadingHTTPServer, session: requests.Session) -> None:
    """Without a server behind the proxy the client's connection ends without an answer."""
    with Proxy(1) as lonely, pytest.raises(requests.exceptions.ConnectionError):
        session.get(url(lonely), timeout=5)
    assert server.heard == []  # type: ignore[attr-defined]


def test_nothing_is_left_open(server: ThreadingHTTPServer, session: requests.Session) -> None:
    """A stopped proxy leaves no thread behind."""
    with Proxy(server.server_address[1]) as proxy:
        session.get(url(proxy), timeout=5)
    name = f"proxy-{proxy.port}"
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(name)],
        "the end of its threads",
        5,
    )
