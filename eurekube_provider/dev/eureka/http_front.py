"""HTTP in front of a model server, as Tomcat, Jersey and Spring make it in front of a real one.

Source: DiscoveryJerseyProvider and the annotations of the resources of Netflix/eureka; BasicErrorController
of Spring Boot.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from eurekube_provider.dev.eureka import xml_documents
from eurekube_provider.dev.eureka.cluster import NoAnswer
from eurekube_provider.dev.eureka.documents import (
    JSON,
    XML,
    ServerRequest,
    ServerResponse,
    Unreadable,
    preferred,
    written,
)
from eurekube_provider.dev.eureka.eureka_server import UNREADABLE, methods_of
from eurekube_provider.dev.http_listener import HttpListener

CONTEXT_PATH = "/eureka"

IDLE_SECONDS = 60.0
"""Tomcat's: how long a connection may say nothing, between requests and within one."""

_LISTS = (("apps",), ("apps", "delta"))
"""Resources that are packed for whoever accepts it."""

_BROKEN_PATH = re.compile(r"%(?![0-9a-f]{2})|%2f|%5c", re.IGNORECASE)
_REFUSED_PATH = re.compile(r"//|;|/\.\.?(/|$)|%(00|0a|0d|25|2e|3b|7f)", re.IGNORECASE)
"""What Tomcat and Spring Security have no request pass with, such as a slash within a segment."""

_MOST_HEAD_BYTES = 8192
"""Tomcat's: how long request line and headers may be."""

NO_HEADERS: Mapping[str, str] = {}

_log = logging.getLogger(__name__)


class Front(Protocol):
    """Knows the answers of one server."""

    def answer(self, request: ServerRequest) -> ServerResponse:
        """Answer a request to a resource that exists.

        :raises NoAnswer: the server is down.
        """

    def page(self) -> str:
        """Return the HTML of the server's front page.

        :raises NoAnswer: the server is down.
        """


class _BadRequest(Exception):
    """The request breaks the rules of HTTP."""


class EurekaListener(HttpListener):
    """Listens for one server, and asks its front."""

    front: Front

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, _EurekaHandler, "a Eureka server")

    @property
    def service_url(self) -> str:
        """Return the URL that clients are told."""
        return self.url + CONTEXT_PATH


class _EurekaHandler(BaseHTTPRequestHandler):
    server: EurekaListener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece

    def __getattr__(self, name: str) -> Any:
        """Every method goes the same way."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        try:
            if len(self.raw_requestline) + len(bytes(self.headers)) > _MOST_HEAD_BYTES:
                raise _BadRequest
            data = self._body()
            path, query = _target(self.path)
        except _BadRequest:
            self.close_connection = True
            self._send(ServerResponse(400, "<h1>400 Bad Request</h1>", "text/html;charset=utf-8"))
            return
        try:
            self._serve(path, query, data)
        except NoAnswer:
            self.close_connection = True
        except OSError:
            raise  # the client is gone
        except Exception:  # noqa: BLE001 - the next request must be answered all the same
            _log.exception(
                "a request could not be answered", extra={"method": self.command, "path": self.path}
            )
            self._fail(500)

    def _serve(self, path: tuple[str, ...], query: dict[str, str], data: bytes) -> None:
        method = "GET" if self.command == "HEAD" else self.command
        if not path and method == "GET":
            self._send(ServerResponse(200, self.server.front.page(), "text/html; charset=utf-8"))
            return
        if path[:1] != (CONTEXT_PATH[1:],) or _REFUSED_PATH.search(self.path.partition("?")[0]):
            self._fail(404 if path[:1] != (CONTEXT_PATH[1:],) else 400)
            return
        path = path[2:] if path[1:2] == ("v2",) else path[1:]
        methods = methods_of(path)
        allowed = {"Allow": ",".join((*methods, "OPTIONS"))}
        if not methods:
            self._fail(404)
        elif method == "OPTIONS":
            self._send(ServerResponse(200), allowed)
        elif method not in methods:
            self._fail(405, allowed)
        elif method == "POST" and not (self._is_readable_type() or self._has_no_body(data)):
            self._fail(415)
        elif preferred(self.headers.get("Accept", "")) is None:
            self._fail(406)
        else:
            body = self._document(path, data) if method == "POST" else None
            headers = dict(self.headers)
            response = self.server.front.answer(ServerRequest(method, path, query, headers, body))
            self._reply(response, is_list=path in _LISTS)

    def _reply(self, response: ServerResponse, *, is_list: bool) -> None:
        """Send the model's answer, with what the libraries around a real server add to it."""
        if response is UNREADABLE and self.headers["Content-Type"] != JSON:
            text = "<error><message>cannot parse request body</message></error>"
            self._send(replace(response, text=text, media_type=self.headers["Content-Type"]))
        elif response.status_code >= 400 and not response.text:
            self._fail(response.status_code)
        elif is_list and "gzip" in self.headers.get("Accept-Encoding", ""):
            kind = JSON if "json" in self.headers.get("Accept", "") else XML
            self._send(replace(response, media_type=kind), {"Content-Encoding": "gzip"})
        else:
            self._send(response)

    def handle_expect_100(self) -> bool:
        """Have a client that waits for it send its body, at once."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _is_readable_type(self) -> bool:
        kind = self.headers.get("Content-Type", "").lower()
        charset = kind.partition("charset=")[2].strip('" ')
        is_known = kind.partition(";")[0].strip() in (JSON, XML, "*/*", "application/*")
        return is_known and charset in ("", "utf-8", "iso-8859-1")

    def _has_no_body(self, data: bytes) -> bool:
        return not data and "Content-Type" not in self.headers

    def _document(self, path: tuple[str, ...], data: bytes) -> Any:
        """Read a body; None for one that says nothing, and a text for what cannot be read."""
        if self._has_no_body(data):
            return None
        try:
            if self.headers.get("Content-Type", "").lower().partition(";")[0].strip() == JSON:
                return json.loads(data)
            return xml_documents.read_instance(data) if path[0] == "apps" else ""
        except (Unreadable, ValueError, RecursionError):
            return ""

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

    def _fail(self, code: int, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Send an error in the form of Spring, which shows none where only other forms are accepted."""
        words, path = HTTPStatus(code).phrase, self.path.partition("?")[0]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        found = {"timestamp": now, "status": code, "error": words, "path": path}
        match preferred(self.headers.get("Accept", ""), (JSON, XML, "text/html")):
            case "application/json":
                response = ServerResponse(code, written(found))
            case "application/xml":
                text = xml_documents.written({"Map": found}, is_pretty=False)
                response = ServerResponse(code, text, f"{XML};charset=UTF-8")
            case "text/html":
                response = ServerResponse(code, f"<h1>{code} {words}</h1>", "text/html;charset=UTF-8")
            case _:
                response = ServerResponse(code)
        self._send(response, headers)

    def _send(self, response: ServerResponse, headers: Mapping[str, str] = NO_HEADERS) -> None:
        data = response.text.encode()
        if "Content-Encoding" in headers:
            data = gzip.compress(data)
        self.send_response(response.status_code)
        if data or self.command == "OPTIONS":
            self.send_header("Content-Type", response.media_type)
        if response.status_code != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def version_string(self) -> str:
        """Return who answers."""
        return "eurekube-dev"

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def _target(target: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the segments of the path, decoded, and the first value of each field of the query.

    :raises _BadRequest: the path cannot be decoded, or has a slash within a segment.
    """
    parts = urlsplit(target)
    if _BROKEN_PATH.search(parts.path):
        raise _BadRequest
    query: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        query.setdefault(key, value)
    return tuple(unquote(one) for one in parts.path.split("/") if one), query
