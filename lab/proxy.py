"""A proxy in front of one HTTP server that misbehaves on request: slow, broken, mute, or not there at all.

It reads whole requests and answers, so that an order holds for the next request even on a connection that has
been open for long. Connections to the server are not shared between clients.
"""

import itertools
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import TracebackType
from typing import BinaryIO, Self

from lab.errors import LabError
from lab.ports import HOST, free_ports

_ACCEPT_SECONDS = 0.1
_CONNECT_SECONDS = 2.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_NO_BODY = (204, 304)


class Fault(StrEnum):
    """A fault with which a proxy treats requests."""

    NONE = "none"
    DELAY = "delay"
    """Pass the request on, but later."""

    ANSWER = "answer"
    """Answer the request in the server's place."""

    CUT = "cut"
    """Pass the request on, and reset the connection in the middle of the answer."""

    HANG = "hang"
    """Accept the request and never answer."""

    DRIP = "drip"
    """Pass the request on, and send its answer one byte after the other."""

    BLOAT = "bloat"
    """Pass the request on, and answer with less than a megabyte that decompresses to nearly a gigabyte."""

    REFUSE = "refuse"
    """Stop listening, and reset the open connections."""

    VANISH = "vanish"
    """Answer nothing, not even a connection attempt, like a host that is gone."""


@dataclass(frozen=True, slots=True)
class _Orders:
    fault: Fault = Fault.NONE
    seconds: float = 0.0
    status_code: int = 0
    megabytes: int = 0
    after: int = 0
    """Number of the last request that is still passed on without the fault."""


class _Reset(Exception):
    """Signal that the client's connection must be reset."""


class Proxy:
    """A proxy before the server on `target_port` of this machine: `with Proxy(server.port) as front:`.

    Clients use `port` instead. With `tls` the proxy speaks TLS to them and plain HTTP to the server. `port`
    is a free one unless given. `others` are the ports of more servers: then it is a load balancer, which
    gives each server that listens a request in its turn. With `keeps_heads` every request's line and headers
    are kept in `heads`, and in `passed_on` once it was answered, after the times at which it came and the
    answer was sent (`time.perf_counter()`).
    """

    def __init__(
        self,
        target_port: int,
        *,
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
        others: Sequence[int] = (),
        keeps_heads: bool = False,
    ) -> None:
        self.heads: list[str] = []
        self.passed_on: list[tuple[float, float, str]] = []
        self._keeps_heads = keeps_heads
        self.target_port = target_port
        self._turns = itertools.cycle((target_port, *others))
        self._servers = 1 + len(others)
        self.port = port or free_ports(1)[0]
        self._tls = tls
        self._orders = _Orders()
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        self._deaf: list[socket.socket] = []
        self._accepting: threading.Thread | None = None
        self._connections: set[socket.socket] = set()
        self._requests = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; raise LabError where the port is taken."""
        if self._listener is not None:
            return
        for one in self._deaf:
            one.close()
        self._deaf = []
        listener = self._listen(128)
        listener.settimeout(_ACCEPT_SECONDS)
        self._listener = listener
        self._accepting = threading.Thread(
            target=self._accept, args=(listener,), name=f"proxy-{self.port}", daemon=True
        )
        self._accepting.start()

    def _listen(self, backlog: int) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, self.port))
        except OSError as error:
            listener.close()
            raise LabError(f"the proxy before port {self.target_port} cannot listen: {error}") from error
        listener.listen(backlog)
        return listener

    def stop(self) -> None:
        """Stop listening and end every connection."""
        self._obey(_Orders(Fault.REFUSE))
        for one in self._deaf:
            one.close()
        self._deaf = []

    @property
    def fault(self) -> Fault:
        """Present fault."""
        return self._orders.fault

    @property
    def requests(self) -> int:
        """Number of requests that have come so far, answered or not."""
        with self._changed:
            return self._requests

    def heal(self) -> None:
        """Pass everything on from now on."""
        self._obey(_Orders())

    def delay(self, seconds: float) -> None:
        """Pass everything on `seconds` later."""
        self._obey(_Orders(Fault.DELAY, seconds=seconds))

    def answer(self, status_code: int) -> None:
        """Answer every request with this status; none reaches the server."""
        self._obey(_Orders(Fault.ANSWER, status_code=status_code))

    def cut(self) -> None:
        """Pass each request on to the server, and reset the connection in the middle of the answer."""
        self._obey(_Orders(Fault.CUT))

    def hang(self) -> None:
        """Accept connections and requests, and answer none; no request reaches the server."""
        self._obey(_Orders(Fault.HANG))

    def hang_after(self, requests: int) -> None:
        """Pass `requests` more requests on, and hang afterwards; ``held`` counts the hanging ones."""
        self._obey(_Orders(Fault.HANG, after=self.requests + requests))

    @property
    def held(self) -> int:
        """Number of requests that hang since ``hang_after``."""
        with self._changed:
            is_hanging = self._orders.fault is Fault.HANG
            return max(0, self._requests - self._orders.after) if is_hanging else 0

    def drip(self, seconds: float = 1.0) -> None:
        """Send each answer one byte after the other, with `seconds` between two bytes."""
        self._obey(_Orders(Fault.DRIP, seconds=seconds))

    def bloat(self, megabytes: int = 800) -> None:
        """Replace each answer by one that decompresses to `megabytes`."""
        _bloated(megabytes)
        self._obey(_Orders(Fault.BLOAT, megabytes=megabytes))

    def refuse(self) -> None:
        """Refuse new connections and reset the open ones, until :meth:`heal`."""
        self._obey(_Orders(Fault.REFUSE))

    def vanish(self) -> None:
        """Lose all packets to the proxy, like a host that is gone, until :meth:`heal`; on Linux only."""
        self._obey(_Orders(Fault.VANISH))

    def _obey(self, orders: _Orders) -> None:
        with self._changed:
            self._orders = orders
            self._changed.notify_all()
        if orders.fault not in (Fault.REFUSE, Fault.VANISH):
            self.start()
            return
        listener, self._listener = self._listener, None
        if listener is not None and self._accepting is not None:
            listener.close()
            self._accepting.join()
        if orders.fault is Fault.VANISH:
            self._turn_deaf()
            return
        with self._changed:
            open_now = list(self._connections)
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it

    def _turn_deaf(self) -> None:
        """Listen with a full queue that is never emptied: connection attempts get no answer."""
        if self._deaf:
            return
        self._deaf = [self._listen(0)]
        while True:
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            filler.settimeout(_ACCEPT_SECONDS)
            self._deaf.append(filler)
            try:
                filler.connect((HOST, self.port))
            except TimeoutError:
                return

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            connection.settimeout(None)
            threading.Thread(
                target=self._attend, args=(connection,), name=f"proxy-{self.port}-connection", daemon=True
            ).start()

    def _attend(self, connection: socket.socket) -> None:
        """Serve one client until either side ends the connection."""
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with self._changed:
                self._connections.add(connection)
            with connection.makefile("rb") as requests:
                self._pass_on(connection, requests)
        except _Reset:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        except (OSError, ValueError):
            pass  # one of the two is gone, or the client dislikes our certificate
        finally:
            with self._changed:
                self._connections.discard(connection)
            connection.close()

    def _pass_on(self, connection: socket.socket, requests: BinaryIO) -> None:
        """Handle one client's requests, one after the other, to the connection's end."""
        servers: dict[int, tuple[socket.socket, BinaryIO]] = {}
        try:
            while (request := _read_request(requests)) is not None:
                came = time.perf_counter()
                head = request.partition(b"\r\n\r\n")[0].decode("latin-1")
                if self._keeps_heads:
                    self.heads.append(head)
                orders = self._await_turn()
                if orders.fault in (Fault.HANG, Fault.VANISH, Fault.REFUSE):
                    raise _Reset
                if orders.fault is Fault.ANSWER:
                    connection.sendall(_refusal(orders.status_code))
                    continue
                server, answers = self._next(servers)
                server.sendall(request)
                answer, stays_open = _read_answer(answers, is_head=request.startswith(b"HEAD "))
                if orders.fault is Fault.CUT:
                    connection.sendall(answer[: len(answer) // 2])
                    raise _Reset
                if orders.fault is Fault.DRIP:
                    self._drip(connection, answer, orders)
                elif orders.fault is Fault.BLOAT:
                    connection.sendall(_bloated(orders.megabytes))
                else:
                    connection.sendall(answer)
                if self._keeps_heads:
                    self.passed_on.append((came, time.perf_counter(), head))
                if not stays_open:
                    return
        finally:
            for server, answers in servers.values():
                answers.close()
                server.close()

    def _drip(self, connection: socket.socket, answer: bytes, orders: _Orders) -> None:
        """Send one byte after the other, until all are sent or the orders change."""
        for number in range(len(answer)):
            connection.sendall(answer[number : number + 1])
            with self._changed:
                if self._changed.wait_for(lambda: self._orders is not orders, orders.seconds):
                    raise _Reset

    def _next(self, servers: dict[int, tuple[socket.socket, BinaryIO]]) -> tuple[socket.socket, BinaryIO]:
        """Return one client's connection to the server whose turn it is; `servers` has the open
        connections.
        """
        for left in reversed(range(self._servers)):
            with self._changed:
                port = next(self._turns)
            if port not in servers:
                try:
                    server = socket.create_connection((HOST, port), _CONNECT_SECONDS)
                except ConnectionRefusedError:
                    if left:
                        continue
                    raise
                server.settimeout(None)
                servers[port] = server, server.makefile("rb")
            return servers[port]
        raise AssertionError("unreachable")

    def _await_turn(self) -> _Orders:
        """Hold a request up as long as the orders say; return the orders for it."""
        with self._changed:
            self._requests += 1
            number, arrived = self._requests, time.monotonic()
            while True:
                orders = self._orders
                if number <= orders.after:
                    return _Orders()
                if orders.fault in (Fault.HANG, Fault.VANISH):
                    self._changed.wait_for(lambda: self._orders.fault is not orders.fault)  # noqa: B023
                    return orders  # never answered, not even afterwards
                left = arrived + orders.seconds - time.monotonic()
                if orders.fault is not Fault.DELAY or left <= 0:
                    return orders
                self._changed.wait(left)


@cache
def _bloated(megabytes: int) -> bytes:
    packed = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    megabyte = b" " * 10**6
    body = b"".join([*(packed.compress(megabyte) for _ in range(megabytes)), packed.flush()])
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _refusal(status_code: int) -> bytes:
    body = b"the lab's proxy answers in the server's place"
    head = f"HTTP/1.1 {status_code} Fault\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _read_request(stream: BinaryIO) -> bytes | None:
    """Return one request as it came, head and body; None at the connection's end."""
    head, headers = _read_head(stream)
    if not head:
        return None
    return head + _read_body(stream, headers)


def _read_answer(stream: BinaryIO, *, is_head: bool) -> tuple[bytes, bool]:
    """Return one answer as it came, and whether the connection can be used again."""
    head, headers = _read_head(stream)
    if not head:
        raise ConnectionError("the server closed the connection")
    stays_open = headers.get("connection", "").lower() != "close"
    if is_head or int(head.split(None, 2)[1]) in _NO_BODY:
        return head, stays_open
    if "content-length" not in headers and "transfer-encoding" not in headers:
        return head + stream.read(), False
    return head + _read_body(stream, headers), stays_open


def _read_head(stream: BinaryIO) -> tuple[bytes, dict[str, str]]:
    lines: list[bytes] = []
    headers: dict[str, str] = {}
    while (line := stream.readline()) not in (b"\r\n", b"\n"):
        if not line:
            return b"", {}
        lines.append(line)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return b"".join([*lines, line]), headers


def _read_body(stream: BinaryIO, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return _read_exactly(stream, int(headers.get("content-length", "0")))
    parts: list[bytes] = []
    while True:
        line = stream.readline()
        size = int(line.split(b";")[0], 16)
        parts += [line, _read_exactly(stream, size)]
        if size == 0:
            break
        parts.append(stream.readline())
    while (line := stream.readline()) not in (b"\r\n", b"\n", b""):  # trailers
        parts.append(line)
    return b"".join([*parts, line])


def _read_exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError("the connection ended in the middle of a message")
    return data
