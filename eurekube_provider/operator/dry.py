"""For ``--dry-run``: clients that read like any other and change nothing at all.

Whatever is built on them may do its work unaltered: no write leaves this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import requests

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
    ) -> dict[str, Any]:
        """See :meth:`KubeAccess.request`."""
        if method == "GET":
            return super().request(method, path, query, body, content_type)
        return dict(body or {})


class DryPeer(Peer):
    """One Eureka server that is read only; a write is answered as if it had gone well."""

    def _request(self, method: str, path: str, what: str, **more: Any) -> requests.Response | None:
        if method == "GET":
            return super()._request(method, path, what, **more)
        answer = requests.Response()
        answer.status_code = 200
        return answer

    def batch(self, items: Sequence[bytes]) -> list[Answer]:
        """Send nothing; see :meth:`Peer.batch`."""
        return [Answer(200)] * len(items)


class DryPeers(Peers):
    """An Eureka cluster that is read only."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.close()
        self.peers = tuple(DryPeer(url, connection) for url in connection.service_urls)
