"""An HTTP server of the standard library that ends on request, with all its connections and threads."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from eurekube_provider.core.errors import ConfigurationError


class HttpListener(ThreadingHTTPServer):
    """An HTTP server that listens on an address once it is made, and answers from :meth:`start` to
    :meth:`stop`.

    :param host: empty for every address of this machine.
    :param port: 0 for any free port.
    :ivar connections: the open connections, and since when each is open by the monotonic clock; oldest first.
    :raises ConfigurationError: the address cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    poll_seconds = 0.1
    """The most seconds that :meth:`stop` waits for the thread that accepts connections."""

    def __init__(
        self,
        host: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        name: str,
        advice: str = "choose another port or host, or end what listens there",
    ) -> None:
        self.connections: dict[socket.socket, float] = {}
        self.lock = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever,
            kwargs={"poll_interval": self.poll_seconds},
            name="http-listener",
            daemon=True,
        )
        try:
            place = host
            if host:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
                self.address_family, place = found[0], str(found[4][0])
            elif socket.has_dualstack_ipv6():
                self.address_family, place = socket.AF_INET6, "::"
            super().__init__((place, port), handler)
        except OSError as error:
            raise ConfigurationError(
                f"{name} cannot listen on {format_address(host, port)} ({error.strerror or error}): {advice}"
            ) from None

    def server_bind(self) -> None:
        """Bind the address, without the look-up of its name that HTTPServer makes."""
        if self.address_family == socket.AF_INET6:
            both = self.server_address[0] == "::"
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        TCPServer.server_bind(self)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The server's URL, such as ``http://127.0.0.1:8761``."""
        return f"http://{format_address(str(self.server_address[0]), self.port)}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, and shut down all connections, which their threads then close."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self.lock:
            for connection in self.connections:
                shut_down_connection(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.connections[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that disconnects is no error of the server."""


def shut_down_connection(connection: socket.socket) -> None:
    """Shut a connection down, so that the thread that reads from it closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def format_address(host: str, port: int) -> str:
    """Return an address in the form of a URL, with brackets for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
