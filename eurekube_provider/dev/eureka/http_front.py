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
from eurekube_provider.dev.eureka.documents import (
    JSON_MEDIA_TYPE,
    XML_MEDIA_TYPE,
    ServerRequest,
    ServerResponse,
    preferred_media_type,
)
from eurekube_provider.dev.eureka.eureka_server import UNREADABLE_BODY_RESPONSE, allowed_methods
from eurekube_provider.runtime.http_listener import HttpListener

HTML_MEDIA_TYPE = "text/html;charset=UTF-8"

_IDLE_TIMEOUT_SECONDS = 60.0
"""Seconds that Tomcat lets a connection be silent, between requests and within one."""

_MAX_HEAD_BYTES = 8192
"""Bytes that Tomcat allows for request line and headers."""

_BROKEN_PATH_PATTERN = re.compile(r"%(?![0-9a-f]{2})|%2f|%5c", re.IGNORECASE)
_REFUSED_PATH_PATTERN = re.compile(r"//|;|/\.\.?(/|$)|%(00|0a|0d|25|2e|3b|7f|e2%80%a[89])", re.IGNORECASE)
"""Paths that Tomcat and Spring Security refuse, such as one with a slash within a segment."""

_GZIPPED_PATHS = (("apps",), ("apps", "delta"))
_READABLE_MEDIA_TYPES = (JSON_MEDIA_TYPE, XML_MEDIA_TYPE, "*/*", "application/*")
_NO_HEADERS: Mapping[str, str] = {}

_log = logging.getLogger(__name__)


class _BadRequest(Exception):
    """Raised for a request that breaks the rules of HTTP."""


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
    timeout = _IDLE_TIMEOUT_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece

    def __getattr__(self, name: str) -> Any:
        """Return the common handler for every HTTP method."""
        if name.startswith("do_"):
            return self._handle_request
        raise AttributeError(name)

    def _handle_request(self) -> None:
        try:
            if len(self.raw_requestline) + len(bytes(self.headers)) > _MAX_HEAD_BYTES:
                raise _BadRequest
            data = self._read_body()
            parts = urlsplit(self.path)
            if _BROKEN_PATH_PATTERN.search(parts.path):
                raise _BadRequest
        except _BadRequest:
            self.close_connection = True
            self._send_response(ServerResponse(400, "<h1>400 Bad Request</h1>", HTML_MEDIA_TYPE))
            return
        try:
            query: dict[str, str] = {}
            for key, value in parse_qsl(parts.query, keep_blank_values=True):
                query.setdefault(key, value)
            self._answer_request(tuple(unquote(one) for one in parts.path.split("/") if one), query, data)
        except NoAnswer:
            self.close_connection = True
        except OSError:
            raise  # the client is gone
        except Exception:  # noqa: BLE001 - the next request must be answered all the same
            _log.exception(
                "failed to handle a request, answering with status 500 and going on",
                extra={"path": self.path},
            )
            self._send_error(500)

    def _answer_request(self, path: tuple[str, ...], query: dict[str, str], data: bytes) -> None:
        method = "GET" if self.command == "HEAD" else self.command
        if (method, path) == ("GET", ()):
            self._send_response(self.server.answer(ServerRequest(method, path)))
            return
        is_ours = path[:1] == ("eureka",)
        path = path[2:] if path[1:2] == ("v2",) else path[1:]
        methods = allowed_methods(path) if is_ours else ()
        allowed = {"Allow": ",".join((*methods, "OPTIONS"))}
        kind, _, parameters = self.headers.get("Content-Type", "").lower().partition(";")
        charset = parameters.partition("charset=")[2].strip('" ')
        is_readable = kind.strip() in _READABLE_MEDIA_TYPES and charset in ("", "utf-8", "iso-8859-1")
        if is_ours and _REFUSED_PATH_PATTERN.search(self.path.partition("?")[0]):
            self._send_error(400)
        elif not methods:
            self._send_error(404)
        elif method == "OPTIONS":
            self._send_response(ServerResponse(200), allowed)
        elif method not in methods:
            self._send_error(405, allowed)
        elif method == "POST" and (kind or data) and not is_readable:
            self._send_error(415)
        elif preferred_media_type(self.headers.get("Accept", "")) is None:
            self._send_error(406)
        else:
            body = _parse_body(kind.strip(), data) if method == "POST" and kind else None
            request = ServerRequest(method, path, query, dict(self.headers), body)
            self._send_model_response(self.server.answer(request), may_be_gzipped=path in _GZIPPED_PATHS)

    def _send_model_response(self, response: ServerResponse, *, may_be_gzipped: bool) -> None:
        """Send the model's answer, with the headers and texts that a real server's libraries add."""
        if response is UNREADABLE_BODY_RESPONSE and self.headers["Content-Type"] != JSON_MEDIA_TYPE:
            text = "<error><message>cannot parse request body</message></error>"
            self._send_response(replace(response, text=text, media_type=self.headers["Content-Type"]))
        elif response.status_code >= 400 and not response.text:
            self._send_error(response.status_code)
        elif may_be_gzipped and "gzip" in self.headers.get("Accept-Encoding", ""):
            kind = JSON_MEDIA_TYPE if "json" in self.headers.get("Accept", "") else XML_MEDIA_TYPE
            self._send_response(replace(response, media_type=kind), {"Content-Encoding": "gzip"})
        else:
            self._send_response(response)

    def _read_body(self) -> bytes:
        """Read the body of a request, by its length or in chunks."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(iter(self._read_chunk, b""))
        length = self.headers.get("Content-Length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise _BadRequest
        return self._read_exactly(int(length))

    def _read_chunk(self) -> bytes:
        """Read one chunk of a body; return empty bytes for the last one, after its trailer."""
        size = re.match(rb"([0-9a-fA-F]+)\s*(;|$)", self.rfile.readline(1024))
        if size is None:
            raise _BadRequest
        data = self._read_exactly(int(size[1], 16))
        while (end := self.rfile.readline(1024)) not in (b"\r\n", b"\n", b""):
            if data:
                raise _BadRequest
        if not end:
            raise _BadRequest
        return data

    def _read_exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise _BadRequest
        return data

    def handle_expect_100(self) -> bool:
        """Ask a client that waits for 100 Continue to send its body, at once."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _send_error(self, code: int, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Send an error in Spring's form, without a body where the client accepts only other media types."""
        words, path = HTTPStatus(code).phrase, self.path.partition("?")[0]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        found = {"timestamp": now, "status": code, "error": words, "path": path}
        texts = {
            JSON_MEDIA_TYPE: (documents.to_compact_json(found), JSON_MEDIA_TYPE),
            XML_MEDIA_TYPE: (
                xml_documents.to_xml({"Map": found}, is_pretty=False),
                f"{XML_MEDIA_TYPE};charset=UTF-8",
            ),
            "text/html": (f"<h1>{code} {words}</h1>", HTML_MEDIA_TYPE),
        }
        form = preferred_media_type(self.headers.get("Accept", ""), tuple(texts))
        self._send_response(ServerResponse(code, *texts[form]) if form else ServerResponse(code), headers)

    def _send_response(self, response: ServerResponse, headers: Mapping[str, str] = _NO_HEADERS) -> None:
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
        return "eurekube-dev"

    def log_message(self, *_: object) -> None:
        """Log no requests."""


def _parse_body(kind: str, data: bytes) -> Any:
    """Return a body, parsed; an empty text where it cannot be read."""
    try:
        return json.loads(data) if kind == JSON_MEDIA_TYPE else xml_documents.parse_instance_xml(data)
    except (documents.UnreadableBody, ValueError, RecursionError):
        return ""
