"""The HTTP server in front of a model server; it behaves as Tomcat, Jersey and Spring in front of a real one.

Source: DiscoveryJerseyProvider and the annotations of the resources of Netflix/eureka; BasicErrorController
of Spring Boot.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from eurekube_provider.dev.eureka import documents, xml_documents
from eurekube_provider.dev.eureka.cluster import NoAnswer
from eurekube_provider.dev.eureka.documents import JSON, XML, ServerRequest, ServerResponse, preferred
from eurekube_provider.dev.eureka.eureka_server import UNREADABLE, methods_of
from eurekube_provider.runtime.http_listener import HttpListener

HTML = "text/html;charset=UTF-8"

_IDLE_SECONDS = 60.0
"""Seconds that Tomcat lets a connection be silent, between requests and within one."""

_MOST_HEAD_BYTES = 8192
"""Bytes that Tomcat allows for request line and headers."""

_BROKEN_PATH = re.compile(r"%(?![0-9a-f]{2})|%2f|%5c", re.IGNORECASE)
_REFUSED_PATH = re.compile(r"//|;|/\.\.?(/|$)|%(00|0a|0d|25|2e|3b|7f|e2%80%a[89])", re.IGNORECASE)
"""Paths that Tomcat and Spring Security refuse, such as one with a slash within a segment."""

_PACKED = (("apps",), ("apps", "delta"))
_READ_TYPES = (JSON, XML, "*/*", "application/*")
_NO_HEADERS: Mapping[str, str] = {}

_log = logging.getLogger(__name__)


class _BadRequest(Exception):
    """A request that breaks the rules of HTTP."""


class EurekaListener(HttpListener):
    """The HTTP listener of one model server.

    :ivar service_url: the URL that clients use.
    :ivar answer: answers a request to a resource that exists, or to the front page, whose path is empty;
        raises :class:`NoAnswer` where the server is down.
    """

    answer: Callable[[ServerRequest], ServerResponse]

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, _EurekaHandler, "a Eureka server")
        self.service_url = f"{self.url}/eureka"


class _EurekaHandler(BaseHTTPRequestHandler):
    server: EurekaListener
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece

    def __getattr__(self, name: str) -> Any:
        """Return the common handler for every HTTP method."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        try:
            if len(self.raw_requestline) + len(bytes(self.headers)) > _MOST_HEAD_BYTES:
                raise _BadRequest
            data = self._body()
            parts = urlsplit(self.path)
            if _BROKEN_PATH.search(parts.path):
                raise _BadRequest
        except _BadRequest:
            self.close_connection = True
            self._send(ServerResponse(400, "<h1>400 Bad Request</h1>", HTML))
            return
        try:
            query: dict[str, str] = {}
            for key, value in parse_qsl(parts.query, keep_blank_values=True):
                query.setdefault(key, value)
            self._serve(tuple(unquote(one) for one in parts.path.split("/") if one), query, data)
        except NoAnswer:
            self.close_connection = True
        except OSError:
            raise  # the client is gone
        except Exception:  # noqa: BLE001 - the next request must be answered all the same
            _log.exception("failed to answer a request", extra={"path": self.path})
            self._fail(500)

    def _serve(self, path: tuple[str, ...], query: dict[str, str], data: bytes) -> None:
        method = "GET" if self.command == "HEAD" else self.command
        if (method, path) == ("GET", ()):
            self._send(self.server.answer(ServerRequest(method, path)))
            return
        is_ours = path[:1] == ("eureka",)
        path = path[2:] if path[1:2] == ("v2",) else path[1:]
        methods = methods_of(path) if is_ours else ()
        allowed = {"Allow": ",".join((*methods, "OPTIONS"))}
        kind, _, parameters = self.headers.get("Content-Type", "").lower().partition(";")
        charset = parameters.partition("charset=")[2].strip('" ')
        is_readable = kind.strip() in _READ_TYPES and charset in ("", "utf-8", "iso-8859-1")
        if is_ours and _REFUSED_PATH.search(self.path.partition("?")[0]):
            self._fail(400)
        elif not methods:
            self._fail(404)
        elif method == "OPTIONS":
            self._send(ServerResponse(200), allowed)
        elif method not in methods:
            self._fail(405, allowed)
        elif method == "POST" and (kind or data) and not is_readable:
            self._fail(415)
        elif preferred(self.headers.get("Accept", "")) is None:
            self._fail(406)
        else:
            body = _document(kind.strip(), data) if method == "POST" and kind else None
            request = ServerRequest(method, path, query, dict(self.headers), body)
            self._reply(self.server.answer(request), is_packed=path in _PACKED)

    def _reply(self, response: ServerResponse, *, is_packed: bool) -> None:
        """Send the model's answer, with the headers and texts that a real server's libraries add."""
        if response is UNREADABLE and self.headers["Content-Type"] != JSON:
            text = "<error><message>cannot parse request body</message></error>"
            self._send(replace(response, text=text, media_type=self.headers["Content-Type"]))
        elif response.status_code >= 400 and not response.text:
            self._fail(response.status_code)
        elif is_packed and "gzip" in self.headers.get("Accept-Encoding", ""):
            kind = JSON if "json" in self.headers.get("Accept", "") else XML
            self._send(replace(response, media_type=kind), {"Content-Encoding": "gzip"})
        else:
            self._send(response)

    def _body(self) -> bytes:
        """Read the body of a request, by its length or in chunks."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(iter(self._chunk, b""))
        length = self.headers.get("Content-Length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise _BadRequest
        return self._read(int(length))

    def _chunk(self) -> bytes:
        """Read one chunk of a body; return empty bytes for the last one, after its trailer."""
        size = re.match(rb"([0-9a-fA-F]+)\s*(;|$)", self.rfile.readline(1024))
        if size is None:
            raise _BadRequest
        data = self._read(int(size[1], 16))
        while (end := self.rfile.readline(1024)) not in (b"\r\n", b"\n", b""):
            if data:
                raise _BadRequest
        if not end:
            raise _BadRequest
        return data

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise _BadRequest
        return data

    def handle_expect_100(self) -> bool:
        """Ask a client that waits for 100 Continue to send its body, at once."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _fail(self, code: int, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Send an error in Spring's form, without a body where the client accepts only other media types."""
        words, path = HTTPStatus(code).phrase, self.path.partition("?")[0]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        found = {"timestamp": now, "status": code, "error": words, "path": path}
        texts = {
            JSON: (documents.written(found), JSON),
            XML: (xml_documents.written({"Map": found}, is_pretty=False), f"{XML};charset=UTF-8"),
            "text/html": (f"<h1>{code} {words}</h1>", HTML),
        }
        form = preferred(self.headers.get("Accept", ""), tuple(texts))
        self._send(ServerResponse(code, *texts[form]) if form else ServerResponse(code), headers)

    def _send(self, response: ServerResponse, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        data = response.text.encode()
        if "Content-Encoding" in headers:
            data = gzip.compress(data, mtime=0)  # clients compare what they get, byte by byte
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
        """Return the server's name for the header ``Server``."""
        return "eurekube-dev"

    def log_message(self, *_: object) -> None:
        """Log no requests."""


def _document(kind: str, data: bytes) -> Any:
    """Return a body, parsed; an empty text where it cannot be read."""
    try:
        return json.loads(data) if kind == JSON else xml_documents.read_instance(data)
    except (documents.Unreadable, ValueError, RecursionError):
        return ""
