"""An HTTP server of the standard library that ends when it is told to, connections and threads included."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from eurekube_provider.core.errors import ConfigurationError


class HttpListener(ThreadingHTTPServer):
    """Listens on an address from its making, and answers from :meth:`start` to :meth:`stop`.

    :param port: 0 for one that is free.
    :param name: of the server, for an error and for its threads.
    :raises ConfigurationError: the address cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler], name: str) -> None:
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, name=name, daemon=True
        )
        try:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((host, port), handler)
        except OSError as error:
            raise ConfigurationError(
                f"{name} cannot listen on {host}:{port} ({error.strerror or error}): choose another"
                " port or host, or end what listens there"
            ) from None

    def server_bind(self) -> None:
        """Bind, without looking up a name for the address as HTTPServer does."""
        TCPServer.server_bind(self)

    @property
    def url(self) -> str:
        """Return where it listens, such as ``http://127.0.0.1:8761``."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and end all connections: their threads read the end, and close them."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that has ended."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the server."""
