"""A proxy for bytes that it does not interpret, such as TLS: open, broken, silent, or closed.

Unlike :class:`~lab.proxy.Proxy` it ends no TLS and knows no requests, so that clients see the server's own
certificate, and a watch that lasts for minutes passes unchanged.
"""

import socket
import threading
from contextlib import suppress
from typing import BinaryIO

from lab.ports import HOST
from lab.proxy import Fault, Proxy

_CHUNK_BYTES = 65536
_CONNECT_TIMEOUT_SECONDS = 2.0


class TcpProxy(Proxy):
    """A proxy before the server on `target_port`; clients use `port`.

    It can `refuse`, `hang` (no byte passes, on any connection), `cut` (once, all open connections) and `mute`
    (the open connections fall silent for good, as when a firewall forgot them; new ones work). Silent
    connections are reset by `heal`.
    """

    def __init__(self, target_port: int, *, port: int | None = None) -> None:
        super().__init__(target_port, port=port)
        self._silent: set[socket.socket] = set()

    def heal(self) -> None:
        """Pass everything on from now on."""
        super().heal()
        with self._changed:
            silent, self._silent = self._silent, set()
        _shut_down(silent)

    def cut(self) -> None:
        """Break the open connections; new ones work."""
        with self._changed:
            connections = set(self._connections)
        _shut_down(connections)

    def mute(self) -> None:
        """Silence the open connections for good; new ones work."""
        with self._changed:
            self._silent |= self._connections

    def _forward_requests(self, connection: socket.socket, requests: BinaryIO) -> None:  # noqa: ARG002 - bytes, no requests
        server = socket.create_connection((HOST, self.target_port), _CONNECT_TIMEOUT_SECONDS)
        server.settimeout(None)
        answers = threading.Thread(
            target=self._copy_bytes,
            args=(connection, server, connection),
            name=f"tcp-proxy-{self.port}",
            daemon=True,
        )
        answers.start()
        try:
            self._copy_bytes(connection, connection, server)
        finally:
            _shut_down({server})
            answers.join()
            server.close()
            with self._changed:
                self._silent.discard(connection)

    def _copy_bytes(self, connection: socket.socket, source: socket.socket, target: socket.socket) -> None:
        """Carry bytes one way until either end is gone, and drop those of silent connections."""
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if not self._mark_if_silent(connection):
                    target.sendall(data)
        _shut_down({source, target})

    def _mark_if_silent(self, connection: socket.socket) -> bool:
        """Return whether a connection is silent, and remember it: once it has lost bytes, it stays silent."""
        with self._changed:
            if self._fault_settings.fault is Fault.HANG:
                self._silent.add(connection)
            return connection in self._silent


def _shut_down(connections: set[socket.socket]) -> None:
    """End connections; their threads wake up and close them."""
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
