"""A small HTTP server for people, probes and scrapers, which only reads and never delays the operator.

One function makes each response from path and query; this module does not know the content. A connection
carries one request and is ended after :data:`LONGEST_CONNECTION_SECONDS`, so that a client with many
connections locks nobody out: beyond :data:`MOST_CONNECTIONS` the oldest one of the client with the most
connections is ended.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.runtime.http_listener import HttpListener, shut_down_connection

_log = logging.getLogger(__name__)

HostAndPort = tuple[str, int]
"""Host (empty for every address of this machine) and port (0 for any free one)."""

LONGEST_CONNECTION_SECONDS = 10.0
"""Seconds after which a connection is ended, answered or not."""

MOST_CONNECTIONS = 32
"""Most connections at once; one more ends the oldest of the client that has most of them."""

_READ_METHODS = ("GET", "HEAD")
_MOST_QUERY_FIELDS = 10
"""Most fields of a query; a request with more is refused."""

_COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_DENY_ALL_SECURITY_POLICY = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the operator's web server.

    :param is_awaited: returns False once the connection was ended, so that nobody would read an answer.
    """

    path: str
    query: dict[str, str]
    accept: str
    is_awaited: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Response:
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK
    security_policy: str = _DENY_ALL_SECURITY_POLICY


Handler = Callable[[Request], Response | None]
"""Function that makes the response to a request; None where its path has no page."""


class WebServer(HttpListener):
    """The web server, which listens once it is made, and answers once it is started.

    :raises ConfigurationError: the address cannot be listened on.
    """

    request_queue_size = 1024
    poll_seconds = 0.2

    def __init__(self, address: HostAndPort, handler: Handler) -> None:
        self.handler = handler
        self._clients = WeakKeyDictionary[socket.socket, str]()
        advice = "choose another address, or an empty one to do without"
        super().__init__(*address, _RequestHandler, "--web-address: the operator", advice)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own; end another one where there are too many.

        One client's flood ends its own connections alone, and not that of a probe.
        """
        oldest = None
        with self.lock:
            if len(self.connections) >= MOST_CONNECTIONS:
                clients = [self._clients[one] for one in self.connections]
                most = Counter(clients).most_common(1)[0][0]
                oldest = list(self.connections)[clients.index(most)]
                del self.connections[oldest]
            self._clients[request] = str(client_address[0])
        if oldest is not None:
            shut_down_connection(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that are older than the limit, even if bytes still trickle in."""
        limit = time.monotonic() - LONGEST_CONNECTION_SECONDS
        with self.lock:
            overdue = [request for request, since in self.connections.items() if since < limit]
            for request in overdue:
                del self.connections[request]
        for request in overdue:
            shut_down_connection(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - its signature
        """Log an ended connection at debug level: a client that went away is no error of the operator."""
        _log.debug("a client ended its connection early, ignoring it", exc_info=True)


def parse_address(text: str) -> HostAndPort | None:
    """Parse ``HOST:PORT``, ``[IPv6]:PORT`` or ``:PORT``; return None for an empty text.

    :raises ConfigurationError: it is none of them.
    """
    if not text.strip():
        return None
    host, separator, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if (
        not separator
        or not (port.isascii() and port.isdigit() and int(port) <= 65535)
        or (not is_bracketed and (":" in host or "[" in host or "]" in host))
    ):
        raise ConfigurationError(
            f"{text!r} must be HOST:PORT, e.g. :8080, 127.0.0.1:8080 or [::1]:8080; empty to do without"
        )
    return (host[1:-1] if is_bracketed else host, int(port))


class _RequestHandler(BaseHTTPRequestHandler):
    """The handler of one connection: it answers one request with the server's handler."""

    timeout = LONGEST_CONNECTION_SECONDS
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def __init__(self, request: Any, client_address: Any, server: BaseServer) -> None:
        assert isinstance(server, WebServer)  # noqa: S101 - made by it only
        self._handler, self._open_connections = server.handler, server.connections
        self._security_policy = _DENY_ALL_SECURITY_POLICY
        super().__init__(request, client_address, server)

    def __getattr__(self, name: str) -> Any:
        """Return the handler of an HTTP method: GET and HEAD read, every other method is refused."""
        if name.startswith("do_"):
            return self._answer_get_or_head if name[3:] in _READ_METHODS else self._refuse_method
        raise AttributeError(name)

    def _answer_get_or_head(self) -> None:
        try:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, max_num_fields=_MOST_QUERY_FIELDS))
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        try:
            accept = self.headers.get("Accept", "")
            response = self._handler(Request(parts.path, query, accept, self._is_awaited))
        except Exception:  # noqa: BLE001 - the next request must be answered all the same
            _log.exception("failed to make a page, answering with status 500", extra={"path": parts.path})
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        if response is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._security_policy = response.security_policy
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _is_awaited(self) -> bool:
        return self.request in self._open_connections

    def _refuse_method(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    def send_response(self, code: int, message: str | None = None) -> None:
        """Send the status line, and the headers that every response has."""
        super().send_response(code, message)
        for name, value in _COMMON_HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self._security_policy)
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", ", ".join(_READ_METHODS))

    def version_string(self) -> str:
        """Return the server's name without Python's version, for the header ``Server``."""
        return "eurekube"

    def log_message(self, *_: object) -> None:
        """Log no request: probes come every few seconds."""
