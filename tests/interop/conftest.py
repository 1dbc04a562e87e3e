"""Fixtures for clients of other authors, on real and development servers that our client shares with them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Change
from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.notes import ChangeOrder
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.writer import Writer
from lab import Lab, LabError
from lab.builds import find_tool
from lab.eureka import require_java
from lab.ports import HOST
from tests.eureka_servers import DEVELOPMENT

OWNER = "cluster/eks/shop/rating"

Register = Callable[[Instance], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each client meet a real server and a development server, or the latter alone."""
    if "eureka_url" in metafunc.fixturenames:
        is_development = metafunc.config.getoption("eureka") == DEVELOPMENT
        kinds = (DEVELOPMENT,) if is_development else ("real", DEVELOPMENT)
        metafunc.parametrize("eureka_url", kinds, indirect=True, scope="package")


@pytest.fixture(scope="package")
def eureka_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a server whose lists are always fresh, since foreign clients read nothing else; return its
    URL.
    """
    if request.param == DEVELOPMENT:
        with EurekaServers(quick=True) as servers:
            yield servers.urls[0]
        return
    try:
        require_java()
    except LabError as reason:
        pytest.skip(str(reason))
    lab = Lab(eureka=1, kubernetes=False, uncached_lists=True)
    try:
        lab.start()
    except LabError as reason:
        if find_tool("mvn") is not None:
            raise
        pytest.skip(str(reason))
    yield lab.eureka_urls[0]
    lab.stop()


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the clients' logs."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="package")
def peer(eureka_url: str) -> Iterator[Peer]:
    """Return our client of the server."""
    client = Peer(eureka_url, Connection((eureka_url,)))
    yield client
    client.close()


@pytest.fixture(scope="package")
def batching(eureka_url: str) -> Iterator[Peers]:
    """Return our client of the server, which sends batches."""
    client = Peers(Connection((eureka_url,), mode=BatchMode.BATCH))
    yield client
    client.close()


@pytest.fixture(params=["plain", "batch"])
def register(request: pytest.FixtureRequest, peer: Peer, batching: Peers) -> Register:
    """Return a function that registers an instance, once by a single request and once in a batch."""

    def in_a_batch(instance: Instance) -> None:
        order = ChangeOrder(Change(Action.REGISTER, instance), OWNER)
        assert Writer(batching).apply_in_batches([order]) == [None]

    return peer.register if request.param == "plain" else in_a_batch


class _Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = f"hello from {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class names it
        """Log nothing."""


class _IPv6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@contextmanager
def _served(server: ThreadingHTTPServer) -> Iterator[int]:
    with server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def greeter() -> Iterator[int]:
    """Start an HTTP server on 127.0.0.1 that answers with the requested path; return its port."""
    with _served(ThreadingHTTPServer((HOST, 0), _Greeter)) as port:
        yield port


@pytest.fixture(scope="session")
def ipv6_greeter() -> Iterator[int]:
    """Start an HTTP server on ::1 that answers with the requested path; return its port."""
    try:
        server = _IPv6Server(("::1", 0), _Greeter)
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    with _served(server) as port:
        yield port


@pytest.fixture
def app(unique_name: str) -> str:
    """Return the name of an application that no other test uses."""
    return unique_name
