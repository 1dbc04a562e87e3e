"""The HTTP server: refused requests, headers of every answer, and clients that cannot block it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import requests

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.operator.web import http_server as module
from eurekube_provider.operator.web.http_server import Request, Response, WebServer, parse_address
from eurekube_provider.runtime.http_listener import format_address
from lab.waiting import wait_until


def site(request: Request) -> Response | None:
    """Serve ``/``, which repeats a query field, and ``/broken``, which raises."""
    if request.path == "/broken":
        raise ValueError("broken")
    return Response(request.query.get("say", "hello").encode()) if request.path == "/" else None


@pytest.fixture
def web() -> Iterator[WebServer]:
    """Yield a running server at a loopback port."""
    server = WebServer(("127.0.0.1", 0), site)
    server.start()
    yield server
    server.stop()


def ask(web: WebServer, path: str = "/", method: str = "GET") -> requests.Response:
    """Send one request, and return the answer."""
    return requests.request(method, f"http://127.0.0.1:{web.port}{path}", timeout=30, allow_redirects=False)


def test_reads_are_answered(web: WebServer) -> None:
    """GET returns the body, HEAD only its headers; query fields are decoded."""
    assert ask(web, "/?say=a%20b").text == "a b"
    head = ask(web, method="HEAD")
    assert (head.status_code, head.text, head.headers["Content-Length"]) == (200, "", "5")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FROBNICATE"])
def test_whatever_is_no_read_is_refused(web: WebServer, method: str) -> None:
    """Other methods get 405 with the allowed ones."""
    answer = ask(web, method=method)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/nowhere", "/../etc/passwd", "/%2e%2e/etc/passwd", "/index.html"])
def test_only_known_paths_exist(web: WebServer, path: str) -> None:
    """Other paths get 404, and no file is looked up."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=30) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert connection.makefile("rb").readline().split()[1] == b"404"


@pytest.mark.parametrize("path", ["/", "/nowhere", "/broken"])
def test_every_answer_is_safe_to_open(web: WebServer, path: str) -> None:
    """The headers forbid a browser to load anything, guess the type or store the page."""
    headers = ask(web, path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Server"] == "eurekube"


def test_a_page_that_fails_is_one_answer(web: WebServer) -> None:
    """An exception yields 500 without its text, which goes to the log; the next request is answered."""
    answer = ask(web, "/broken")
    assert (answer.status_code, "broken" in answer.text) == (500, False)
    assert ask(web).status_code == 200


def test_too_many_fields_are_a_bad_request(web: WebServer) -> None:
    """A query with a hundred fields gets 400."""
    assert ask(web, "/?" + "&".join(f"a{number}=1" for number in range(100))).status_code == 400


def test_silent_clients_keep_nobody_out(web: WebServer) -> None:
    """With more silent connections than the server keeps, a probe is answered, and the oldest are closed."""
    silent = [
        socket.create_connection(("127.0.0.1", web.port), timeout=30)
        for _ in range(module.MOST_CONNECTIONS * 2)
    ]
    try:
        assert ask(web).status_code == 200
        wait_until(lambda: _threads() <= module.MOST_CONNECTIONS, "the oldest to be ended", 30)
    finally:
        for connection in silent:
            connection.close()


def test_a_flood_of_one_client_ends_no_connection_of_another(web: WebServer) -> None:
    """A probe that was slow to ask is answered, however many connections another client opens meanwhile."""
    address = ("127.0.0.1", web.port)
    with socket.create_connection(address, timeout=30, source_address=("127.0.0.2", 0)) as probe:
        probe.sendall(b"GET / HTTP/1.0\r\n")
        flood = [socket.create_connection(address, timeout=30) for _ in range(module.MOST_CONNECTIONS * 2)]
        try:
            wait_until(lambda: _is_ended(flood[0]), "the flood's oldest connection to be ended", 30)
            probe.sendall(b"\r\n")
            assert probe.recv(100).startswith(b"HTTP/1.0 200")
        finally:
            for connection in flood:
                connection.close()


def test_a_page_knows_whether_somebody_waits_for_it() -> None:
    """A page that is asked for and not begun yet need not be made once its connection was ended."""
    awaited: list[bool] = []

    def look_while_crowded(request: Request) -> Response:
        awaited.append(request.is_awaited())
        asked.set()
        assert crowded.wait(30)
        awaited.append(request.is_awaited())
        return Response(b"")

    asked, crowded = threading.Event(), threading.Event()
    server = WebServer(("127.0.0.1", 0), look_while_crowded)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asked.wait(30)
        others = [
            socket.create_connection(("127.0.0.1", server.port), timeout=30)
            for _ in range(module.MOST_CONNECTIONS)
        ]
        wait_until(lambda: _is_ended(connection), "the connection to be ended", 30)
        crowded.set()
        wait_until(lambda: len(awaited) == 2, "the second look", 30)
        for other in others:
            other.close()
    server.stop()
    assert awaited == [True, False]


def _is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_slow_client_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends its request bit by bit is cut off after the usual time."""
    monkeypatch.setattr(module, "LONGEST_CONNECTION_SECONDS", 0.5)
    server = WebServer(("127.0.0.1", 0), site)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n")
        connection.settimeout(0.1)

        def is_ended() -> bool:
            try:
                connection.sendall(b"X-Slow: 1\r\n")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_ended, "the connection to be ended", 30)
    server.stop()


def _threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_a_taken_port_is_one_sentence(web: WebServer) -> None:
    """The error names the flag, the address, the reason and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        WebServer(("127.0.0.1", web.port), site)
    assert str(caught.value) == (
        f"--web-address: the operator cannot listen on 127.0.0.1:{web.port} (Address already in use):"
        " choose another address, or an empty one to do without"
    )


def test_without_a_host_it_listens_everywhere() -> None:
    """An empty host means all addresses, IPv4 and, where available, IPv6."""
    server = WebServer(("", 0), site)
    server.start()
    assert ask(server).text == "hello"
    server.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ("", 8080)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:9", ("::1", 9)),
        ("localhost:0", ("localhost", 0)),
        ("", None),
        (" ", None),
    ],
)
def test_addresses(text: str, expected: tuple[str, int] | None) -> None:
    """``HOST:PORT`` is parsed, with IPv6 in brackets, and shown in the same form."""
    assert parse_address(text) == expected
    if expected:
        assert format_address(*expected) == text


@pytest.mark.parametrize(
    "text", ["8080", "::1:8080", "host:", "host:99999", "host:-1", "[::1]", "a]:1", "h:٣"]
)
def test_other_texts_are_no_addresses(text: str) -> None:
    """The error says that ``HOST:PORT`` is expected."""
    with pytest.raises(ConfigurationError, match=r"^'.* must be HOST:PORT"):
        parse_address(text)
