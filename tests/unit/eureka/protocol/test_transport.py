"""Transport of requests, and credentials that change while a process runs."""

from __future__ import annotations

import base64
import gzip
import http.client
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.transport import EurekaResponse, ResponseTooLarge, Transport

URL = "http://127.0.0.1:9/eureka"


class Server(Transport):
    """A transport to a server that accepts one password or token, and answers 403 for paths that end with
    "warming".
    """

    def __init__(self, connection: Connection, accepts: str) -> None:
        super().__init__(URL, connection)
        self.accepts = accepts
        self.shown: list[str] = []

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float | None,
    ) -> EurekaResponse:
        assert (method, body, timeout_seconds) == ("GET", None, None)
        kind, _, text = headers["Authorization"].partition(" ")
        secret = text if kind == "Bearer" else base64.b64decode(text).decode().partition(":")[2]
        self.shown.append(secret)
        return EurekaResponse(
            401 if secret != self.accepts else 403 if target.endswith("warming") else 200, {}, b""
        )

    def codes(self, *paths: str) -> list[int]:
        """Return the status codes of requests for these paths."""
        return [self.request("GET", path).status_code for path in paths]


def test_a_compressed_answer_that_is_damaged_is_no_answer() -> None:
    """A damaged gzip body is read as an empty text, and raises no unexpected error."""
    whole = gzip.compress(b"x" * 1000)
    for place in range(len(whole)):
        damaged = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        answer = EurekaResponse(200, {"Content-Encoding": "gzip"}, damaged)
        assert answer.text() in ("", "x" * 1000), place  # a header's time stamp may be any


def test_a_compressed_answer_that_says_that_it_is_too_large_is_not_begun() -> None:
    """No piece is made of an answer whose end says that it is larger than the bound."""
    answer = EurekaResponse(200, {"Content-Encoding": "gzip"}, gzip.compress(b"x" * 1001), most_bytes=1000)
    with pytest.raises(ResponseTooLarge):
        next(answer.pieces())


@pytest.mark.parametrize("given", [{"user": "me", "password": "old"}, {"token": "old"}])
def test_a_file_is_believed_once_the_server_takes_what_is_in_it(
    given: dict[str, Any], tmp_path: Path
) -> None:
    """New credentials in the file replace the old ones once the server refuses the old ones (401) and accepts
    the new ones; a 403 changes nothing.
    """
    file = tmp_path / "secret"
    file.write_text("old")
    server = Server(Connection((URL,), secret_file=file, **given), "old")
    assert server.codes("/apps", "/warming") == [200, 403]
    file.write_text("new")
    assert server.codes("/apps", "/warming", "/apps") == [200, 403, 200]
    server.accepts = "new"
    assert server.codes("/apps", "/apps") == [200, 200]
    assert server.shown[-3:] == ["old", "new", "new"]
    file.unlink()
    server.accepts = "newer"
    assert server.codes("/apps") == [401]


def test_without_a_file_nothing_is_sent_twice() -> None:
    """Without a secret file, a request refused with 401 is not sent again."""
    server = Server(Connection((URL,), "me", "old"), "new")
    assert server.codes("/apps") == [401]
    assert server.shown == ["old"]


def test_a_request_leaves_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and body of a request go to the socket in one call, on a new connection and on a used one."""
    body, pieces = b'{"instance":{}}', []
    send = http.client.HTTPConnection.send

    def noted(self: http.client.HTTPConnection, data: bytes) -> None:
        pieces.append(bytes(data))
        send(self, data)

    def serve() -> list[str]:
        connection, _ = listener.accept()
        found = []
        with connection, connection.makefile("rb") as file:
            for _ in range(2):
                found.append(file.readline().decode())
                while file.readline() != b"\r\n":
                    pass
                assert file.read(len(body)) == body
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        return found

    monkeypatch.setattr(http.client.HTTPConnection, "send", noted)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(60)
        served = pool.submit(serve)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/eureka"
        transport = Transport(url, Connection((url,)))
        for _ in range(2):
            answer = transport.request("POST", "/apps/RATING", data=body, headers={"Accept": "a/b"})
            assert answer.status_code == 204
        transport.close()
        assert served.result() == ["POST /eureka/apps/RATING HTTP/1.1\r\n"] * 2
    assert len(pieces) == 2
    for piece in pieces:
        head, _, sent = piece.partition(b"\r\n\r\n")
        assert b"Accept: a/b" in head
        assert b"\r\nDiscoveryIdentity-Name: eurekube\r\n" in head  # a rate limiter knows clients by it
        assert b"Content-Length: 15" in head
        assert sent == body


def test_a_proxy_of_the_environment_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unusable proxy in the environment raises ConfigurationError, without the proxy's credentials."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "socks5://me:hidden@proxy:1080")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    url = "http://eureka:8761/eureka"
    with pytest.raises(ConfigurationError, match="the proxy to Eureka cannot be used") as raised:
        Transport(url, Connection.parse(url))
    assert "hidden" not in str(raised.value)
