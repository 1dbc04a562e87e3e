"""A proxy in front of one HTTP server that misbehaves on request: slow, broken, mute, or not there at all.

It reads whole requests and answers, so that a new fault holds for the next request even on a connection that
has been open for long. Connections to the server are not shared between clients.
"""

import itertools
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import BinaryIO, Self

from lab.errors import LabError
from lab.ports import HOST, free_ports

_ACCEPT_TIMEOUT_SECONDS = 0.1
_CONNECT_TIMEOUT_SECONDS = 2.0
_LINGER_OPTION_RESETTING_ON_CLOSE = struct.pack("ii", 1, 0)
_STATUS_CODES_WITHOUT_BODY = (204, 304)


class Fault(StrEnum):
    """A way in which a proxy disturbs requests."""

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
class _FaultSettings:
    fault: Fault = Fault.NONE
    seconds: float = 0.0
    status_code: int = 0
    megabytes: int = 0
    faultless_request_number: int = 0
    """Number of the last request that is still passed on without the fault."""


class _ResetConnection(Exception):
    """Raised where the client's connection must be reset."""


class Proxy:
    """A proxy before the server on `target_port` of this machine: `with Proxy(server.port) as front:`.

    Clients use `port` instead. With `tls` the proxy speaks TLS to them and plain HTTP to the server. `port`
    is a free one unless given. `others` are the ports of more servers: then it is a load balancer, which
    gives each server that listens a request in its turn. With `keeps_heads` every request's line and headers
    are kept in `heads`, and in `passed_on` once it was answered, after the times at which it came and the
    answer was sent (`time.perf_counter()`). `on_request` gets each request before it is passed on, and
    returns 0, or the status with which the proxy answers it in the server's place.
    """

    def __init__(
        self,
        target_port: int,
        *,
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
        others: Sequence[int] = (),
        keeps_heads: bool = False,
        on_request: Callable[[bytes], int] = lambda _: 0,
    ) -> None:
        self.heads: list[str] = []
        self.passed_on: list[tuple[float, float, str]] = []
        self._keeps_heads = keeps_heads
        self._on_request = on_request
        self.target_port = target_port
        self._turns = itertools.cycle((target_port, *others))
        self._servers = 1 + len(others)
        self.port = port or free_ports(1)[0]
        self._tls = tls
        self._fault_settings = _FaultSettings()
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        self._unanswered_sockets: list[socket.socket] = []
        self._accepting: threading.Thread | None = None
        self._connections: set[socket.socket] = set()
        self._requests = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; raise LabError where the port is taken."""
        if self._listener is not None:
            return
        for one in self._unanswered_sockets:
            one.close()
        self._unanswered_sockets = []
        listener = self._listen(128)
        listener.settimeout(_ACCEPT_TIMEOUT_SECONDS)
        self._listener = listener
        self._accepting = threading.Thread(
            target=self._accept_until_stopped, args=(listener,), name=f"proxy-{self.port}", daemon=True
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
        self._apply_fault(_FaultSettings(Fault.REFUSE))
        for one in self._unanswered_sockets:
            one.close()
        self._unanswered_sockets = []

    @property
    def fault(self) -> Fault:
        """The present fault."""
        return self._fault_settings.fault

    @property
    def request_count(self) -> int:
        """Number of requests that have come so far, answered or not."""
        with self._changed:
            return self._requests

    def heal(self) -> None:
        """Pass everything on from now on."""
        self._apply_fault(_FaultSettings())

    def delay(self, seconds: float) -> None:
        """Pass everything on `seconds` later."""
        self._apply_fault(_FaultSettings(Fault.DELAY, seconds=seconds))

    def answer(self, status_code: int) -> None:
        """Answer every request with this status; none reaches the server."""
        self._apply_fault(_FaultSettings(Fault.ANSWER, status_code=status_code))

    def cut(self) -> None:
        """Pass each request on to the server, and reset the connection in the middle of the answer."""
        self._apply_fault(_FaultSettings(Fault.CUT))

    def hang(self) -> None:
        """Accept connections and requests, and answer none; no request reaches the server."""
        self._apply_fault(_FaultSettings(Fault.HANG))

    def hang_after(self, requests: int) -> None:
        """Pass `requests` more requests on, and hang afterwards; ``hanging_request_count`` counts the hanging
        ones.
        """
        self._apply_fault(_FaultSettings(Fault.HANG, faultless_request_number=self.request_count + requests))

    @property
    def hanging_request_count(self) -> int:
        """Number of requests that hang since ``hang_after``."""
        with self._changed:
            is_hanging = self._fault_settings.fault is Fault.HANG
            return max(0, self._requests - self._fault_settings.faultless_request_number) if is_hanging else 0

    def drip(self, seconds: float = 1.0) -> None:
        """Send each answer one byte after the other, with `seconds` between two bytes."""
        self._apply_fault(_FaultSettings(Fault.DRIP, seconds=seconds))

    def bloat(self, megabytes: int = 800) -> None:
        """Replace each answer by one that decompresses to `megabytes`."""
        _make_bloated_answer(megabytes)
        self._apply_fault(_FaultSettings(Fault.BLOAT, megabytes=megabytes))

    def refuse(self) -> None:
        """Refuse new connections and reset the open ones, until :meth:`heal`."""
        self._apply_fault(_FaultSettings(Fault.REFUSE))

    def vanish(self) -> None:
        """Lose all packets to the proxy, like a host that is gone, until :meth:`heal`; on Linux only."""
        self._apply_fault(_FaultSettings(Fault.VANISH))

    def _apply_fault(self, settings: _FaultSettings) -> None:
        with self._changed:
            self._fault_settings = settings
            self._changed.notify_all()
        if settings.fault not in (Fault.REFUSE, Fault.VANISH):
            self.start()
            return
        listener, self._listener = self._listener, None
        if listener is not None and self._accepting is not None:
            listener.close()
            self._accepting.join()
        if settings.fault is Fault.VANISH:
            self._fill_backlog()
            return
        with self._changed:
            open_now = list(self._connections)
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it

    def _fill_backlog(self) -> None:
        """Listen with a full queue that is never emptied: connection attempts get no answer."""
        if self._unanswered_sockets:
            return
        self._unanswered_sockets = [self._listen(0)]
        while True:
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            filler.settimeout(_ACCEPT_TIMEOUT_SECONDS)
            self._unanswered_sockets.append(filler)
            try:
                filler.connect((HOST, self.port))
            except TimeoutError:
                return

    def _accept_until_stopped(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            connection.settimeout(None)
            threading.Thread(
                target=self._serve_client,
                args=(connection,),
                name=f"proxy-{self.port}-connection",
                daemon=True,
            ).start()

    def _serve_client(self, connection: socket.socket) -> None:
        """Serve one client until either side ends the connection."""
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with self._changed:
                self._connections.add(connection)
            with connection.makefile("rb") as requests:
                self._forward_requests(connection, requests)
        except _ResetConnection:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OPTION_RESETTING_ON_CLOSE)
        except (OSError, ValueError):
            pass  # one of the two is gone, or the client dislikes our certificate
        finally:
            with self._changed:
                self._connections.discard(connection)
            connection.close()

    def _forward_requests(self, connection: socket.socket, requests: BinaryIO) -> None:
        """Handle one client's requests, one after the other, to the connection's end."""
        servers: dict[int, tuple[socket.socket, BinaryIO]] = {}
        try:
            while (request := _read_request(requests)) is not None:
                came = time.perf_counter()
                head = request.partition(b"\r\n\r\n")[0].decode("latin-1")
                if self._keeps_heads:
                    self.heads.append(head)
                settings = self._hold_request_during_fault()
                if settings.fault in (Fault.HANG, Fault.VANISH, Fault.REFUSE):
                    raise _ResetConnection
                if settings.fault is Fault.ANSWER:
                    connection.sendall(_make_fault_answer(settings.status_code))
                    continue
                if status_code := self._on_request(request):
                    connection.sendall(_make_fault_answer(status_code))
                    continue
                server, answers = self._connect_to_next_server(servers)
                server.sendall(request)
                answer, stays_open = _read_answer(answers, is_head=request.startswith(b"HEAD "))
                if settings.fault is Fault.CUT:
                    connection.sendall(answer[: len(answer) // 2])
                    raise _ResetConnection
                if settings.fault is Fault.DRIP:
                    self._drip(connection, answer, settings)
                elif settings.fault is Fault.BLOAT:
                    connection.sendall(_make_bloated_answer(settings.megabytes))
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

    def _drip(self, connection: socket.socket, answer: bytes, settings: _FaultSettings) -> None:
        """Send one byte after the other, until all are sent or the fault changes."""
        for number in range(len(answer)):
            connection.sendall(answer[number : number + 1])
            with self._changed:
                if self._changed.wait_for(lambda: self._fault_settings is not settings, settings.seconds):
                    raise _ResetConnection

    def _connect_to_next_server(
        self, servers: dict[int, tuple[socket.socket, BinaryIO]]
    ) -> tuple[socket.socket, BinaryIO]:
        """Return one client's connection to the server whose turn it is; `servers` has the open
        connections.
        """
        for left in reversed(range(self._servers)):
            with self._changed:
                port = next(self._turns)
            if port not in servers:
                try:
                    server = socket.create_connection((HOST, port), _CONNECT_TIMEOUT_SECONDS)
                except ConnectionRefusedError:
                    if left:
                        continue
                    raise
                server.settimeout(None)
                servers[port] = server, server.makefile("rb")
            return servers[port]
        raise AssertionError("unreachable")

    def _hold_request_during_fault(self) -> _FaultSettings:
        """Hold a request as long as the present fault lasts or delays it; return the settings for the
        request.
        """
        with self._changed:
            self._requests += 1
            number, arrived = self._requests, time.monotonic()
            while True:
                settings = self._fault_settings
                if number <= settings.faultless_request_number:
                    return _FaultSettings()
                if settings.fault in (Fault.HANG, Fault.VANISH):
                    self._changed.wait_for(lambda: self._fault_settings.fault is not settings.fault)  # noqa: B023
                    return settings  # never answered, not even afterwards
                left = arrived + settings.seconds - time.monotonic()
                if settings.fault is not Fault.DELAY or left <= 0:
                    return settings
                self._changed.wait(left)


@cache
def _make_bloated_answer(megabytes: int) -> bytes:
    packed = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    megabyte = b" " * 10**6
    body = b"".join([*(packed.compress(megabyte) for _ in range(megabytes)), packed.flush()])
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _make_fault_answer(status_code: int) -> bytes:
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
    if is_head or int(head.split(None, 2)[1]) in _STATUS_CODES_WITHOUT_BODY:
        return head, stays_open
    if "content-length" not in headers and "transfer-encoding" not in headers:
        return head + stream.read(), False
    return head + _read_body(stream, headers), stays_open


def _read_head(stream: BinaryIO) -> tuple[bytes, dict[str, str]]:
    """Return the head as it came, and its headers by name in lower case; empty at the stream's end."""
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
