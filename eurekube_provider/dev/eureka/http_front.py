"""HTTP in front of one model server: reads requests and writes answers, and decides nothing of Eureka."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, TCPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.dev.eureka.cluster import NoAnswer
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse

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
        try:
            self._server = _EurekaListener(host, port)
        except OSError as error:
            raise ConfigurationError(
                f"a Eureka server cannot listen on {host}:{port} ({error.strerror or error}): choose another"
                " port or host, or end what listens there"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}{CONTEXT_PATH}"
        self._server.answer = lambda request: answer(self.url, request)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="eureka-http", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and end all connections."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.end_connections()


class _EurekaListener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    answer: Callable[[ServerRequest], ServerResponse]

    def __init__(self, host: str, port: int) -> None:
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _EurekaHandler)

    def server_bind(self) -> None:
        """Bind, without looking up a name for the address as HTTPServer does."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that has ended."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wake the threads that wait for clients; each reads the end, and closes its connection."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the server."""


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
