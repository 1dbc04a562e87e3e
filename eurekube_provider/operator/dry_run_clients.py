"""For ``--dry-run``: an access to the Kubernetes API that reads like any other and changes nothing at all.

Whatever is built on it may do its work unaltered: no write leaves this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
