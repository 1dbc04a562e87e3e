"""A TCP proxy that forwards bytes unread, before an echo server."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from lab.ports import HOST
from lab.tcp_proxy import TcpProxy

PATIENCE_SECONDS = 20.0


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Send back everything received."""
        while data := self.request.recv(1024):
            self.request.sendall(data)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def tcp_proxy() -> Iterator[TcpProxy]:
    """Yield a proxy before an echo server."""
    with _Server((HOST, 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with TcpProxy(server.server_address[1]) as way:
            yield way
        server.shutdown()


def connect(tcp_proxy: TcpProxy) -> socket.socket:
    """Return a client's connection to the proxy."""
    return socket.create_connection((HOST, tcp_proxy.port), PATIENCE_SECONDS)


def says(client: socket.socket, word: bytes) -> bytes:
    """Return the answer to a word; empty when the connection ended."""
    try:
        client.sendall(word)
        return client.recv(1024)
    except ConnectionError:
        return b""


def test_bytes_go_through(tcp_proxy: TcpProxy) -> None:
    """Bytes pass in both directions, on several connections."""
    with connect(tcp_proxy) as one, connect(tcp_proxy) as other:
        assert says(one, b"first") == b"first"
        assert says(other, b"second") == b"second"
        assert says(one, b"third") == b"third"


def test_cut_ends_open_connections_only(tcp_proxy: TcpProxy) -> None:
    """``cut`` ends open connections, and new ones are served."""
    with connect(tcp_proxy) as one:
        assert says(one, b"first") == b"first"
        tcp_proxy.cut()
        assert says(one, b"second") == b""
    with connect(tcp_proxy) as other:
        assert says(other, b"third") == b"third"


def test_mute_silences_open_connections_until_it_heals(tcp_proxy: TcpProxy) -> None:
    """``mute`` silences open connections without closing them, and new ones work; ``heal`` resets the
    silent ones.
    """
    with connect(tcp_proxy) as one, connect(tcp_proxy) as other:
        assert says(one, b"first") == b"first"
        assert says(other, b"first") == b"first"
        tcp_proxy.mute()
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            says(one, b"second")
        with connect(tcp_proxy) as new:
            assert says(new, b"third") == b"third"
            tcp_proxy.heal()
            assert says(new, b"fourth") == b"fourth"
        assert other.recv(1024) == b""


def test_hang_silences_everybody(tcp_proxy: TcpProxy) -> None:
    """``hang`` silences all connections; ``heal`` resets those that lost bytes, and the others continue."""
    with connect(tcp_proxy) as talking, connect(tcp_proxy) as quiet:
        assert says(talking, b"first") == b"first"
        assert says(quiet, b"first") == b"first"
        tcp_proxy.hang()
        talking.settimeout(0.3)
        with pytest.raises(TimeoutError):
            says(talking, b"second")
        talking.settimeout(PATIENCE_SECONDS)
        tcp_proxy.heal()
        assert talking.recv(1024) == b""
        assert says(quiet, b"third") == b"third"


def test_refuse_is_not_there(tcp_proxy: TcpProxy) -> None:
    """``refuse`` ends open connections and refuses new ones, until ``heal``."""
    with connect(tcp_proxy) as one:
        assert says(one, b"first") == b"first"
        tcp_proxy.refuse()
        assert one.recv(1024) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(tcp_proxy)
    tcp_proxy.heal()
    with connect(tcp_proxy) as other:
        assert says(other, b"second") == b"second"
