"""HTTP responses with one deadline for a whole response, and with a maximum size.

The read time-out of a socket starts again with each byte, so that an answer of one byte a second is read for
ever, and an endless answer until no memory is left. Here the time-out starts with the request; the bytes that
arrive extend the time-out in proportion, so that a large answer over a slow network is read to its end.

An answer that is requested with ``preload_content=False`` is read by its caller piece by piece, like a watch
of the Kubernetes API, and has neither a deadline nor a bound.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import urllib3
import urllib3.connection
from urllib3.poolmanager import pool_classes_by_scheme

BYTES_PER_TIMEOUT_EXTENSION = 512 * 1024
"""The bytes for which an answer's time-out is extended once: 100 kB a second, for one of five seconds."""

MAX_TIMEOUTS_PER_ANSWER = 60
"""The number of time-outs after which an answer ends, however much arrives: five minutes, for a time-out of
five seconds.

A large registry over a slow network takes that long, and an operator that cannot read it would lose the
instances that it renews.
"""

LONGEST_CONNECTION_SECONDS = 300.0
"""Seconds after which a connection is replaced: a host's name may lead to another server by then, while the
former one goes on answering. Eureka's Java client connects again after 20 minutes.
"""

# No more lines than http.client takes, none of which continues the one before, and only characters of ASCII.
_PLAIN_HEAD = re.compile(rb"HTTP/1\.1 ([2-5]\d\d)( [\t -~]*)?\r\n((?:[!-9;-~]+:[\t -~]*\r\n){0,99})\r\n")
_PLAIN_HEADER = re.compile(r"(.*?):[ \t]*(.*)\r\n")
_PLAIN_REQUEST_LINES = re.compile(
    r"(?:GET|POST|PUT|PATCH|DELETE) /[!-~]* HTTP/1\.1\r\n"
    r"Host: [-.0-9A-Za-z]+(?::[0-9]+)?\r\n(?:[!-9;-~]+: [\t -~]*\r\n)+"
)
_HEADERS_OF_URLLIB3 = frozenset(("host", "content-length", "transfer-encoding"))


class AnswerTooSlow(Exception):
    """The error for an answer that began and did not end in time.

    No :class:`OSError`: urllib3 would repeat the request, or take the error for a broken connection.
    """


class AnswerTooLarge(Exception):
    """The error for an answer that is larger than its bound."""


class _AnswerReader(io.RawIOBase):
    """A reader of one answer from a socket, for :class:`http.client.HTTPResponse`.

    The first bytes have the time-out of the socket. A small answer arrives with them, and costs nothing more.
    """

    def __init__(self, sock: socket.socket, most_bytes: int) -> None:
        self._raw = sock.makefile("rb", buffering=0)
        self._sock, self._most_bytes = sock, most_bytes
        self._timeout_seconds = sock.gettimeout()
        self._began_at = time.monotonic()
        self._count = 0

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Close the reader; the socket stays open for the next request."""
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        if self._count and self._timeout_seconds is not None:
            times = min(1 + self._count / BYTES_PER_TIMEOUT_EXTENSION, MAX_TIMEOUTS_PER_ANSWER)
            left = self._began_at + self._timeout_seconds * times - time.monotonic()
            if left <= 0:
                raise AnswerTooSlow
            self._sock.settimeout(left)
        try:
            count = self._sock.recv_into(buffer)
        except TimeoutError:
            if self._count:
                raise AnswerTooSlow from None
            raise
        self._count += count
        if self._count > self._most_bytes:
            raise AnswerTooLarge
        return count


class FinalResponse(http.client.HTTPResponse):
    """An HTTP response without the interim ones before it, such as 103, of which ``http.client`` skips 100
    alone: it would take any other for the answer, and the answer for that of the next request.

    A plain head, as nearly all are, is read here: ``http.client`` has a parser of e-mails read the headers,
    which takes a sixth of the processor time of a request. It still reads all other heads.
    """

    most_bytes: int | None = None

    def begin(self) -> None:
        if not self._read_plain_head():
            super().begin()
        while 100 <= self.status < 200:
            if self.status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise http.client.HTTPException("it changes to a protocol that nobody asked for")
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        if self.most_bytes is not None and self.length is not None and self.length > self.most_bytes:
            raise AnswerTooLarge

    def _read_plain_head(self) -> bool:
        """Read the head as ``http.client`` does; return False, with nothing read, unless it is plain and came
        as a whole with the first bytes.
        """
        found = _PLAIN_HEAD.match(self.fp.peek())
        if found is None:
            return False
        pairs, values = _PLAIN_HEADER.findall(found[3].decode()), dict[str, str]()
        for name, value in pairs:
            values[name.lower()] = value.lower()
        try:
            length = int(values.get("content-length", "-1"))
        except ValueError:
            return False
        if len(values) < len(pairs) or values.get("content-type", "").startswith(("message/", "multipart/")):
            return False
        self.fp.read(found.end())
        self.version, self.status, self.reason = 11, int(found[1]), (found[2] or b"").decode().strip()
        self.code = self.status
        self.headers = self.msg = http.client.HTTPMessage()
        for name, value in pairs:
            self.headers.set_raw(name, value)
        self.chunked = values.get("transfer-encoding") == "chunked"
        self.chunk_left = None
        if self.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self.length = 0
        else:
            self.length = None if self.chunked or length < 0 else length
        is_ended_by_closing = self.length is None and not self.chunked
        self.will_close = is_ended_by_closing or "close" in values.get("connection", "")
        return True


class _BoundedResponse(FinalResponse):
    """An HTTP response that raises AnswerTooLarge at once if its head gives too large a length."""

    def __init__(self, sock: socket.socket, most_bytes: int, method: str | None) -> None:
        super().__init__(_AnswerReader(sock, most_bytes), method=method)  # type: ignore[arg-type]
        self.most_bytes = most_bytes

    def read(self, amt: int | None = None) -> bytes:
        """Read the body.

        :raises AnswerTooLarge: a chunk claims a size for which there is no memory.
        """
        try:
            return super().read(amt)
        except (MemoryError, OverflowError):
            raise AnswerTooLarge from None


def plain_request(
    method: str, url: str, host: str, headers: Mapping[str, str], body: str | bytes | None
) -> bytes:
    """Return a request as urllib3 sends it, which takes several times as long; empty for one whose head is
    not plain.

    :param host: with the port, unless that is the scheme's.
    """
    names = frozenset(map(str.lower, headers))
    if "user-agent" not in names or not _HEADERS_OF_URLLIB3.isdisjoint(names):
        return b""
    text = body.encode() if isinstance(body, str) else body
    lines = [f"{method} {url} HTTP/1.1", f"Host: {host}"]
    if "accept-encoding" not in names:
        lines.append("Accept-Encoding: identity")
    if text is not None or method not in ("GET", "DELETE"):
        lines.append(f"Content-Length: {len(text or b'')}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, ""])
    is_plain = _PLAIN_REQUEST_LINES.fullmatch(head) and head.count("\n") == len(lines)
    return b"%b\r\n%b" % (head.encode(), text or b"") if is_plain else b""


class BoundedConnection(urllib3.connection.HTTPConnection):
    """A connection whose answers have a deadline and a bound. It sends a plain request's head and body in one
    piece, so that the server wakes up once for it. It connects again after
    :data:`LONGEST_CONNECTION_SECONDS`, unless that fails, as while no name can be resolved.

    :cvar most_bytes: the size of the largest answer, head and body, as it is sent.
    """

    most_bytes: ClassVar[int]
    _is_answer_bounded = _is_answer_decoded = True
    _plain_method = ""  # of the last request, if it was plain
    _connected_at = 0.0

    def connect(self) -> None:
        """Connect to where the host's name leads now."""
        super().connect()
        self._connected_at = time.monotonic()

    def _connect_again(self) -> None:
        """Replace the socket of an idle connection by a new one; keep it if that fails."""
        former, self.sock = self.sock, None
        try:
            self.connect()
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError):
            former, self.sock = self.sock, former
            self._connected_at = time.monotonic()
        if former is not None:
            former.close()

    def request(self, method: str, url: str, **options: Any) -> None:  # type: ignore[override]
        """Send one request, and note how its answer is read: one that is read piece by piece has no bound."""
        self._is_answer_bounded = options.get("preload_content", True)
        self._is_answer_decoded = options.get("decode_content", True)
        if self.sock is not None and time.monotonic() - self._connected_at >= LONGEST_CONNECTION_SECONDS:
            self._connect_again()
        host = self.host if self.port == self.default_port else f"{self.host}:{self.port}"
        headers, body = options.get("headers") or {}, options.get("body")
        is_direct = self._is_answer_bounded and self.proxy is None
        plain = plain_request(method, url, host, headers, body) if is_direct else b""
        self._plain_method = method if plain else ""
        if not plain:
            super().request(method, url, **options)
            return
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
        self.send(plain)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        """Read the answer; that to a plain request at once, without urllib3's layers."""
        if not self._plain_method:
            return super().getresponse()
        self.sock.settimeout(self.timeout)
        with _BoundedResponse(self.sock, self.most_bytes, self._plain_method) as answer:
            answer.begin()
            body = answer.read()
        if answer.will_close:
            self.close()
        is_final = bool(body) and not self._is_answer_decoded  # urllib3 takes empty bytes for none
        return urllib3.HTTPResponse(
            body if is_final else io.BytesIO(body),
            urllib3.HTTPHeaderDict(answer.headers.items()),
            answer.status,
            reason=answer.reason,
            preload_content=not is_final,
            decode_content=self._is_answer_decoded,
        )

    def response_class(  # type: ignore[override]
        self,
        sock: socket.socket,
        debuglevel: int = 0,  # noqa: ARG002 - as http.client calls it
        method: str | None = None,
        url: str | None = None,  # noqa: ARG002 - likewise
    ) -> http.client.HTTPResponse:
        """Return the response object of the next answer, also of a proxy's answer to CONNECT."""
        if not self._is_answer_bounded:
            return FinalResponse(sock, method=method)
        return _BoundedResponse(sock, self.most_bytes, method)


class BoundedHttpsConnection(BoundedConnection, urllib3.connection.HTTPSConnection):
    """A connection with TLS whose answers have a deadline and a bound."""


def bounded_pool_classes(
    most_bytes: int, bases: Mapping[str, type[urllib3.HTTPConnectionPool]] = pool_classes_by_scheme
) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """Return the classes of pools whose connections bound their answers, by the scheme of the URL.

    :param bases: the classes without bounds, such as those of a SOCKS proxy.
    """
    bound = {"most_bytes": most_bytes}
    plain = type(BoundedConnection.__name__, (BoundedConnection, bases["http"].ConnectionCls), bound)
    tls = type(BoundedHttpsConnection.__name__, (BoundedHttpsConnection, bases["https"].ConnectionCls), bound)
    return {
        "http": type("BoundedHttpPool", (bases["http"],), {"ConnectionCls": plain}),
        "https": type("BoundedHttpsPool", (bases["https"],), {"ConnectionCls": tls}),
    }
