"""Servers that did not answer lately, and so are asked last."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer

_log = logging.getLogger(__name__)


class AvoidedPeers:
    """Remembers the servers of one Eureka that are asked last; any number of threads may share it."""

    def __init__(self, peers: Collection[Peer]) -> None:
        self._are_several = len(peers) > 1
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def holds(self, peer: Peer) -> bool:
        """Return whether a server is avoided now."""
        with self._lock:
            return self._until.get(peer.url, 0.0) > time.monotonic()

    def add(self, peer: Peer, does: str, error: str) -> None:
        """Ask a server last for a while, unless it is the only one.

        :param does: what is wrong with it, e.g. ``is slow``.
        """
        if not self._are_several:
            return
        with self._lock:
            is_news = peer.url not in self._until
            self._until[peer.url] = time.monotonic() + windows.AVOIDED
        if is_news:
            _log.warning(f"Eureka server {does} and is asked last", extra={"url": peer.url, "error": error})

    def answered(self, peer: Peer) -> None:
        """Avoid a server no more."""
        with self._lock:
            was_avoided = self._until.pop(peer.url, None) is not None
        if was_avoided:
            _log.warning("Eureka server answers again", extra={"url": peer.url})
