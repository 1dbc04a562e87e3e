"""A proxy in front of a ZooKeeper server that reports each write, before and after it is done."""

import itertools
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum

from lab.tcp_proxy import TcpProxy

_WRITE_NAME_BY_OPERATION_CODE = {1: "create", 2: "delete", 5: "setData", 14: "multi", 15: "create2"}
"""Names of writes by the type of their request (ZooDefs.OpCode)."""


class WriteMoment(StrEnum):
    """A moment in the course of a write."""

    REQUEST_SENT = "asked"
    """The client has sent the write, and the server has not received it."""

    ANSWER_SENT = "done"
    """The server has answered, and the client has not received the answer."""


class WriteReportingProxy(TcpProxy):
    """A proxy before the server on `target_port` that calls `on_write` about each write, twice.

    `on_write` gets the write's number, from 1, its name and the moment. If it returns True, nothing more
    passes on that connection: neither the request nor the answer.
    """

    def __init__(self, target_port: int, on_write: Callable[[int, str, WriteMoment], bool]) -> None:
        super().__init__(target_port)
        self._on_write = on_write
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[socket.socket, int], tuple[int, str]] = {}
        self._callback_lock = threading.Lock()

    def _copy_bytes(self, connection: socket.socket, source: socket.socket, target: socket.socket) -> None:
        is_request = source is connection
        with suppress(OSError), source.makefile("rb") as stream:
            for number, frame in enumerate(_read_frames(stream.read)):
                # The first frame each way opens the session.
                if number and self._report_write(connection, frame, is_request=is_request):
                    break
                target.sendall(struct.pack(">i", len(frame)) + frame)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _report_write(self, connection: socket.socket, frame: bytes, *, is_request: bool) -> bool:
        """Report a frame to the callback if it is a write's request or answer; return whether the callback
        ends the connection.
        """
        (xid,) = struct.unpack_from(">i", frame)
        with self._callback_lock:
            if is_request:
                name = _WRITE_NAME_BY_OPERATION_CODE.get(struct.unpack_from(">i", frame, 4)[0])
                if name is None:
                    return False
                number = next(self._numbers)
                self._waiting[connection, xid] = number, name
                return self._on_write(number, name, WriteMoment.REQUEST_SENT)
            known = self._waiting.pop((connection, xid), None)
            return known is not None and self._on_write(*known, WriteMoment.ANSWER_SENT)


class KillAtWrite:
    """A callback for :class:`WriteReportingProxy` that kills a process at one of its writes.

    :ivar writes: the names of all writes that came.
    :ivar killed: the write at which it was killed, and the moment; empty where it was not.
    """

    def __init__(self, at: int, moment: WriteMoment) -> None:
        self._at, self._moment = at, moment
        self.process_id: int | None = None
        self.writes: list[str] = []
        self.killed = ""

    def kill_at_chosen_write(self, number: int, name: str, moment: WriteMoment) -> bool:
        """Kill the process if this is the chosen write and moment; return True once it was killed."""
        if moment is WriteMoment.REQUEST_SENT:
            self.writes.append(name)
        if number != self._at or moment is not self._moment or self.process_id is None:
            return bool(self.killed)
        os.kill(self.process_id, signal.SIGKILL)
        self.killed = f"{name} {moment}"
        return True


def _read_frames(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the frames that one side sends, each with its length before it."""
    while len(head := read(4)) == 4:
        (length,) = struct.unpack(">i", head)
        frame = read(length)
        if len(frame) < length:
            return
        yield frame
