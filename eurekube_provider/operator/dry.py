"""For ``--dry-run``: clients that read like any other and change nothing at all.

Whatever is built on them may do its work unaltered: no write leaves this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eurekube_provider.core.model import Instance, Status
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

    def register(self, instance: Instance) -> None:
        """Do nothing."""

    def renew(self, instance: Instance) -> bool:  # noqa: ARG002
        """Do nothing."""
        return True

    def deregister(self, application: str, instance_id: str) -> bool:  # noqa: ARG002
        """Do nothing."""
        return True

    def set_status(self, instance: Instance, status: Status) -> bool:  # noqa: ARG002
        """Do nothing."""
        return True

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:  # noqa: ARG002
        """Do nothing."""
        return True

    def batch(self, items: Sequence[bytes]) -> list[Answer]:
        """Do nothing."""
        return [Answer(200)] * len(items)


class DryPeers(Peers):
    """An Eureka cluster that is read only."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.close()
        self.peers = tuple(DryPeer(url, connection) for url in connection.service_urls)
