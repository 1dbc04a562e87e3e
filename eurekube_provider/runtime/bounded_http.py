"""HTTP answers with a deadline for the whole of each, and with a bound on their size.

The read time-out of a socket counts from the last byte, so that a server which sends one byte a second is
read for ever, and one that never stops is read until no memory is left. Here the time-out counts from the
request; what comes extends it in proportion, so that a large answer over a slow network is read to its end.

An answer that is asked for with ``preload_content=False`` is read by its caller piece by piece, as a watch of
the Kubernetes API is, and has neither.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, ClassVar

import urllib3
import urllib3.connection

PIECE_BYTES = 512 * 1024
"""Each piece of an answer that has come is given the time-out once more: 100 kB a second, of five seconds."""

MOST_TIMEOUTS = 60
"""An answer ends after so many time-outs, whatever comes: five minutes, of five seconds. A large registry
over a slow network takes as long, and an operator that cannot read it loses what it renews.
"""


class SlowAnswer(Exception):
    """An answer began and did not end in time.

    No :class:`OSError`: urllib3 would send the request once more, or take it for a connection that broke.
    """


class LargeAnswer(Exception):
    """An answer is larger than what is read."""


class _AnswerReader(io.RawIOBase):
    """The socket of one answer, as :class:`http.client.HTTPResponse` reads it.

    The first bytes have the time-out of the socket. A small answer comes with them, so that it costs nothing.
    """

    def __init__(self, sock: socket.socket, most_bytes: int) -> None:
        self._raw = sock.makefile("rb", buffering=0)
        self._sock, self._most_bytes = sock, most_bytes
        self._timeout_seconds = sock.gettimeout()
        self._began_at = time.monotonic()
        self._count = 0

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the file that the answer is read from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def close(self) -> None:
        """Close it; the socket stays open for the next request."""
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int | None:
        """Read what has come.

        :raises SlowAnswer: its time is over.
        :raises LargeAnswer: it is too large.
        """
        if self._count and self._timeout_seconds is not None:
            times = min(1 + self._count / PIECE_BYTES, MOST_TIMEOUTS)
            left = self._began_at + self._timeout_seconds * times - time.monotonic()
            if left <= 0:
                raise SlowAnswer
            self._sock.settimeout(left)
        try:
            count = self._raw.readinto(buffer)
        except TimeoutError:
            if self._count:
                raise SlowAnswer from None
            raise
        self._count += count or 0
        if self._count > self._most_bytes:
            raise LargeAnswer
        return count


class _BoundedResponse(http.client.HTTPResponse):
    """An answer that is refused before it is read where its head says that it is too large."""

    def __init__(self, sock: socket.socket, most_bytes: int, method: str | None) -> None:
        super().__init__(_AnswerReader(sock, most_bytes), method=method)  # type: ignore[arg-type]
        self._most_bytes = most_bytes

    def begin(self) -> None:
        """Read the head.

        :raises LargeAnswer: the body is too large.
        """
        super().begin()
        if self.length is not None and self.length > self._most_bytes:
            raise LargeAnswer

    def read(self, amt: int | None = None) -> bytes:
        """Read the body.

        :raises LargeAnswer: there is no memory for what one of its chunks is said to have.
        """
        try:
            return super().read(amt)
        except (MemoryError, OverflowError):
            raise LargeAnswer from None


class BoundedConnection(urllib3.connection.HTTPConnection):
    """A connection whose answers have a deadline and a bound.

    :cvar most_bytes: the size of the largest answer, head and body, as it is sent.
    """

    most_bytes: ClassVar[int]
    _is_preloaded = True

    def request(self, *arguments: Any, preload_content: bool = True, **options: Any) -> None:
        """Send one request."""
        self._is_preloaded = preload_content
        super().request(*arguments, preload_content=preload_content, **options)

    def response_class(  # type: ignore[override]
        self,
        sock: socket.socket,
        debuglevel: int = 0,  # noqa: ARG002 - as http.client calls it
        method: str | None = None,
        url: str | None = None,  # noqa: ARG002 - likewise
    ) -> http.client.HTTPResponse:
        """Return the answer that is read next; a proxy's to CONNECT as well."""
        if not self._is_preloaded:
            return http.client.HTTPResponse(sock, method=method)
        return _BoundedResponse(sock, self.most_bytes, method)


class BoundedHttpsConnection(BoundedConnection, urllib3.connection.HTTPSConnection):
    """The same with TLS."""


def bounded_pools(
    most_bytes: int,
    http_class: type[BoundedConnection] = BoundedConnection,
    https_class: type[BoundedHttpsConnection] = BoundedHttpsConnection,
) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """Return the classes of pools whose connections bound their answers, by the scheme of the URL.

    :param most_bytes: see :class:`BoundedConnection`.
    """
    bound = {"most_bytes": most_bytes}
    plain = type(http_class.__name__, (http_class,), bound)
    tls = type(https_class.__name__, (https_class,), bound)
    return {
        "http": type("BoundedHttpPool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("BoundedHttpsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": tls}),
    }
