"""Faulty servers and proxies: the exit code and the message of each command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from eurekube_provider.cli.main import main
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.eureka.connection import Connection, SettingGetter
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.kube.access import KubeAccess
from lab.ports import free_ports
from lab.proxy import Proxy

ONE = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080), vip_address="rating")
PORTLESS = replace(ONE, instance_id="b", port=Port(0, enabled=False), secure_port=Port(0, enabled=False))


class Strange:
    """Two servers, the first one behind a proxy that can be made faulty.

    :ivar urls: URLs of the servers, the one behind the proxy first.
    """

    def __init__(self, servers: EurekaServers, proxy: Proxy) -> None:
        self.servers, self.proxy = servers, proxy
        self.urls = [f"http://127.0.0.1:{proxy.port}/eureka", servers.urls[1]]
        self.eureka_proxy = ""

    def black_hole(self) -> None:
        """Let the first server's host vanish without an answer."""
        self.proxy.vanish()

    def drip(self) -> None:
        """Let the first server send one byte at a time."""
        self.proxy.drip(0.05)

    def bloat(self) -> None:
        """Let the first server send more than is read once decompressed."""
        self.proxy.bloat(megabytes=200)

    def refusing_proxy(self) -> None:
        """Configure an HTTP proxy at a port where no process listens."""
        self.urls = self.urls[1:]
        self.eureka_proxy = f"http://ann:pa55@127.0.0.1:{free_ports(1)[0]}"

    def forbidding_proxy(self) -> None:
        """Configure an HTTP proxy that answers every request with 403."""
        self.proxy.answer(403)
        self.urls, self.eureka_proxy = self.urls[1:], f"http://127.0.0.1:{self.proxy.port}"

    def blocked_status(self) -> None:
        """Use a server behind a gateway that allows /apps only."""
        self.urls = self.urls[1:]
        answer = self.servers.cluster.request

        def ask(url: str, request: ServerRequest) -> ServerResponse:
            blocked = ServerResponse(404, "<html>not found</html>", "text/html")
            return answer(url, request) if request.path[0] == "apps" else blocked

        self.servers.cluster.request = ask  # type: ignore[method-assign]

    def two_names(self) -> None:
        """Configure the second server under two host names."""
        port = urlsplit(self.urls[1]).port
        self.urls = [self.urls[1], f"http://localhost:{port}/eureka"]


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> Iterator[Strange]:
    """Yield two servers that hold an instance with a port and one without."""
    configured = Connection.from_settings

    def quick(known: SettingGetter) -> Connection:
        return replace(configured(known), connect_timeout_seconds=0.2, read_timeout_seconds=0.4)

    def nowhere(*_: object) -> None:
        raise ConfigurationError("no way to the Kubernetes API was found")

    monkeypatch.setattr(Connection, "from_settings", quick)
    monkeypatch.setattr(KubeAccess, "load", nowhere)
    with ExitStack() as ends:
        servers = ends.enter_context(EurekaServers(2, quick=True))
        port = urlsplit(servers.urls[0]).port
        assert port is not None
        made = Strange(servers, ends.enter_context(Proxy(port)))
        for url in servers.urls:
            peer = Peer(url, Connection((url,)))
            for one in (ONE, PORTLESS):
                peer.register(one)
            peer.close()
        yield made


CHECK, INSTANCES, DRAIN = ("operator", "--check"), ("instances",), ("drain", "a", "--no-wait")


@pytest.mark.parametrize(
    ("fault", "command", "code", "sentence"),
    [
        (
            Strange.black_hole,
            INSTANCES,
            0,
            "could not read the Eureka server http://127.0.0.1:{first}/eureka",
        ),
        (Strange.black_hole, CHECK, 1, "http://127.0.0.1:{first}/eureka did not answer within"),
        (Strange.black_hole, DRAIN, 1, "not known what callers of http://127.0.0.1:{first}/eureka find"),
        (Strange.drip, INSTANCES, 0, "http://127.0.0.1:{first}/eureka began to answer, and had not ended"),
        (Strange.drip, CHECK, 1, "http://127.0.0.1:{first}/eureka began to answer, and had not ended"),
        (Strange.drip, DRAIN, 1, "not known what callers of http://127.0.0.1:{first}/eureka find"),
        (Strange.bloat, INSTANCES, 0, "http://127.0.0.1:{first}/eureka answers with more than 128 MiB"),
        (Strange.bloat, CHECK, 1, "http://127.0.0.1:{first}/eureka answers with more than 4 MiB"),
        (Strange.bloat, DRAIN, 1, "not known what callers of http://127.0.0.1:{first}/eureka find"),
        (Strange.refusing_proxy, INSTANCES, 2, "through the proxy http://127.0.0.1:{proxy} ("),
        (Strange.refusing_proxy, CHECK, 1, "check the proxy (eurekube:proxy, EUREKA_PROXY"),
        (Strange.refusing_proxy, DRAIN, 1, "through the proxy http://127.0.0.1:{proxy} ("),
        (Strange.forbidding_proxy, CHECK, 1, "answered 403 through the proxy http://127.0.0.1:{first}"),
        (Strange.forbidding_proxy, INSTANCES, 2, "it may be the proxy that refuses"),
        (Strange.blocked_status, CHECK, 1, "its registry can be read, and its status cannot"),
        (Strange.blocked_status, INSTANCES, 0, "RATING       a         UP      10.0.0.1:8080"),
        (Strange.blocked_status, DRAIN, 0, "OUT_OF_SERVICE on 1 server\n"),
        (Strange.two_names, CHECK, 1, "it is the same server as http://127.0.0.1:{second}/eureka"),
        (Strange.two_names, DRAIN, 0, "OUT_OF_SERVICE on 1 server\n"),
        (Strange.two_names, INSTANCES, 0, "10.0.0.1 (no port)"),
    ],
)
def test_each_says_what_is_wrong_and_where(
    strange: Strange,
    fault: Callable[[Strange], None],
    command: tuple[str, ...],
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each command names a server that cannot be read, never counts it as healthy, and shows no password."""
    second = urlsplit(strange.urls[1]).port
    fault(strange)
    monkeypatch.setenv("EUREKA_URL", ",".join(strange.urls))
    monkeypatch.setenv("EUREKA_PROXY", strange.eureka_proxy)
    began = time.monotonic()
    try:
        ended_with: int | str | None = main(list(command))
    except SystemExit as end:
        ended_with = end.code
    assert ended_with == code
    assert time.monotonic() - began < 60
    output = "".join(capfd.readouterr())
    proxy = urlsplit(strange.eureka_proxy).port
    assert sentence.format(first=strange.proxy.port, second=second, proxy=proxy) in output
    assert "pa55" not in output
