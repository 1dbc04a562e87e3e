"""The figures of the servers' front pages, read only while somebody looks at them.

A front page lists the whole registry, so that it is read only if needed, and in the background: the caller
gets the known figures, and newer ones with the next request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.self_preservation import FrontPage


class FrontPages:
    """The figures of the servers' front pages, as they were last read."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = tuple(peers)
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, FrontPage | None]] = {}
        self._refreshed_at = -windows.FRONT_PAGE_INTERVAL_SECONDS

    def latest(self, url: str) -> FrontPage | None:
        """Return the figures recently read from a server; None where they cannot be read, or were not yet."""
        now = time.monotonic()
        with self._lock:
            is_old = now - self._refreshed_at >= windows.FRONT_PAGE_INTERVAL_SECONDS
            if is_old:
                self._refreshed_at = now
            at, figures = self._known.get(url, (now, None))
        if is_old:
            threading.Thread(target=self._refresh, name="figures", daemon=True).start()
        return figures if now - at < windows.KEEP_FRONT_PAGE_SECONDS else None

    def _refresh(self) -> None:
        for peer in self._peers:
            figures = peer.read_front_page()
            with self._lock:
                self._known[peer.url] = (time.monotonic(), figures)
