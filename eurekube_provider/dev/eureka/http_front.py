"""HTTP in front of one model server: reads requests and writes answers, and decides nothing of Eureka."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from eurekube_provider.dev.eureka.cluster import NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.http_listener import HttpListener

CONTEXT_PATH = "/eureka"

IDLE_SECONDS = 60.0
"""Tomcat's: how long a connection may say nothing, between requests and within one."""

Answer = Callable[[str, ServerRequest], ServerResponse]
"""Answers a request to the server of this service URL."""


class _BadRequest(Exception):
    """The request breaks the rules of HTTP."""


class HttpFront:
    """Listens for one server.

    :ivar url: the service URL of the server.
    :raises ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        self._listener = _EurekaListener(host, port, _EurekaHandler, "a Eureka server")
        self.url = f"{self._listener.url}{CONTEXT_PATH}"
        self._listener.answer = lambda request: answer(self.url, request)
        self.start, self.stop = self._listener.start, self._listener.stop


class _EurekaListener(HttpListener):
    answer: Callable[[ServerRequest], ServerResponse]


class _EurekaHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece

    def __init__(self, request: Any, client_address: Any, server: BaseServer) -> None:
        assert isinstance(server, _EurekaListener)  # noqa: S101 - made by it only
        self._answer = server.answer
        super().__init__(request, client_address, server)

    def __getattr__(self, name: str) -> Any:
        """Every method goes the same way."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        try:
            data = self._body()
        except _BadRequest:
            self.close_connection = True
            self._send(ServerResponse(HTTPStatus.BAD_REQUEST))
            return
        parts = urlsplit(self.path)
        segments = tuple(unquote(one) for one in parts.path.split("/") if one)
        if segments[:1] != (CONTEXT_PATH[1:],):
            self._send(ServerResponse(HTTPStatus.NOT_FOUND))
            return
        query: dict[str, str] = {}
        for key, value in parse_qsl(parts.query, keep_blank_values=True):
            query.setdefault(key, value)
        try:
            body = json.loads(data) if data else None
        except ValueError:
            body = None
        try:
            self._send(
                self._answer(ServerRequest(self.command, segments[1:], query, dict(self.headers), body))
            )
        except NoAnswer:
            self.close_connection = True

    def _body(self) -> bytes:
        """Read what the request carries, by its length or in chunks."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(iter(self._chunk, b""))
        length = self.headers.get("Content-Length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise _BadRequest
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise _BadRequest
        return data

    def _chunk(self) -> bytes:
        """Read one chunk; empty for the last one, with the trailer after it."""
        try:
            size = int(self.rfile.readline(1024).split(b";")[0].strip(), 16)
        except ValueError:
            raise _BadRequest from None
        if size < 0:
            raise _BadRequest
        data = self.rfile.read(size)
        if len(data) < size:
            raise _BadRequest
        end = self.rfile.readline(1024)
        while size == 0 and end not in (b"\r\n", b"\n", b""):
            end = self.rfile.readline(1024)
        if size and end not in (b"\r\n", b"\n"):
            raise _BadRequest
        return data

    def _send(self, response: ServerResponse) -> None:
        data = response.text.encode()
        self.send_response(response.status_code)
        if data:
            kind = "xml" if data.startswith(b"<") else "json"
            self.send_header("Content-Type", f"application/{kind}")
        if response.status_code != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""
