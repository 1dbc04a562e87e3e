"""For ``--dry-run``: clients that read like any other and change nothing at all.

Whatever is built on them may do its work unaltered: no write leaves this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eurekube_provider.eureka import transport
from eurekube_provider.eureka.batch import Answer
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess


class DryAccess(KubeAccess):
    """A Kubernetes API that is read only; a write is answered with what was sent."""

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """See :meth:`KubeAccess.request`."""
        if method == "GET":
            return super().request(method, path, query, body, content_type, timeout_seconds)
        return dict(body or {})


class DryPeer(Peer):
    """One Eureka server that is read only; a write is answered as if it had gone well."""

    def _request(self, method: str, path: str, what: str, **more: Any) -> transport.Answer | None:
        if method == "GET":
            return super()._request(method, path, what, **more)
        return transport.Answer(200, {}, b"")

    def batch(self, items: Sequence[bytes]) -> list[Answer]:
        """Send nothing; see :meth:`Peer.batch`."""
        return [Answer(200)] * len(items)


class DryPeers(Peers):
    """An Eureka cluster that is read only."""

    def __init__(
        self,
        connection: Connection,
        may_write: Callable[[], bool] = lambda: True,
        *,
        waits_for_all: bool = True,
    ) -> None:
        super().__init__(connection, may_write, waits_for_all=waits_for_all)
        for peer in self.peers:
            peer.close()
        self.peers = tuple(DryPeer(url, connection, may_write) for url in connection.service_urls)
