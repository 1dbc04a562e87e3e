"""Several model servers that replicate to each other, and the network between them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.eureka.eureka_server import EurekaServer
from eurekube_provider.dev.eureka.instance_registry import EVICTION_INTERVAL_MS, Document, InstanceInfo
from eurekube_provider.dev.eureka.replication import ReplicationLink
from eurekube_provider.dev.eureka.virtual_clock import Clock


class NoAnswer(Exception):
    """Raised in place of an answer by a server that is gone, frozen or cut off."""


class EurekaCluster:
    """A cluster of model servers, by URL.

    :ivar down: the servers that answer nobody: ended, frozen, or gone with their host.
    :ivar cut: the pairs of servers, from and to, that cannot reach each other.
    """

    def __init__(
        self,
        urls: Sequence[str],
        clock: Clock | None = None,
        *,
        self_preservation: bool = True,
        use_read_only_cache: bool = True,
        eviction_interval_ms: int = EVICTION_INTERVAL_MS,
    ) -> None:
        self.clock = clock or Clock()
        self.urls = tuple(urls)
        self.down: set[str] = set()
        self.cut: set[tuple[str, str]] = set()
        self._new_server = partial(
            EurekaServer,
            clock=self.clock,
            self_preservation=self_preservation,
            use_read_only_cache=use_read_only_cache,
            eviction_interval_ms=eviction_interval_ms,
        )
        self.servers: dict[str, EurekaServer] = {}
        for url in self.urls:
            self._start_server(url, ())

    def request(self, url: str, request: ServerRequest) -> ServerResponse:
        """Send a request to one server, or raise NoAnswer where it does not answer."""
        if url in self.down:
            raise NoAnswer(url)
        return self.servers[url].handle(request)

    def restart(self, url: str, *, copy_from: str | None = None) -> None:
        """End a server and start it again, empty or with the instances of another server."""
        self.servers[url].close()
        copied: list[InstanceInfo] = []
        if copy_from is not None and copy_from not in self.down:
            copied = [lease.holder for lease in self.servers[copy_from].registry.all_leases()]
        self.down.discard(url)
        self._start_server(url, copied)

    def _start_server(self, url: str, copied: Sequence[InstanceInfo]) -> None:
        server = self._new_server(url)
        server.started_ms -= self.urls.index(url)  # no two at the same moment: it tells them apart
        self.servers[url] = server
        for other in self.urls:
            if other != url:
                deliver = partial(self._deliver_batch, url, other)
                server.links[other] = ReplicationLink(self.clock, server.registry, deliver)
        server.open(copied)

    def _deliver_batch(self, sender: str, to: str, items: list[Document]) -> ServerResponse | None:
        if sender in self.down or to in self.down or (sender, to) in self.cut:
            return None
        request = ServerRequest("POST", ("peerreplication", "batch"), body={"replicationList": items})
        return self.servers[to].handle(request)
