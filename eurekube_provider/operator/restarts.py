"""Finds out that an Eureka server was restarted, and so has forgotten what it held."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers

_log = logging.getLogger(__name__)

MEMORY_SECONDS = 120.0
"""How long after a server's restart a missing registration is put down to its lost memory."""


class Restarts:
    """Of the servers of one Eureka; any number of threads may share it.

    :param restarted: called with a server that was restarted since it was asked the last time.
    """

    def __init__(self, peers: Peers, restarted: Callable[[Peer], None]) -> None:
        self._peers = peers
        self._restarted = restarted
        self._lock = threading.Lock()
        self._started_by_url: dict[str, int] = {}
        self._seen_at = -MEMORY_SECONDS

    @property
    def started_by_url(self) -> Mapping[str, int]:
        """When each server was started, in milliseconds by its own clock; those that said so."""
        with self._lock:
            return dict(self._started_by_url)

    @property
    def lost_memory(self) -> bool:
        """Whether what is missing may have been forgotten, and not removed."""
        return time.monotonic() - self._seen_at < MEMORY_SECONDS

    def notice(self) -> None:
        """Ask each server since when it runs. Raises nothing."""
        started_by_url, _ = self._peers.each(lambda peer: peer.status().started_timestamp_ms)
        for peer in self._peers.peers:
            started = started_by_url.get(peer.url)
            if started is None:
                continue
            with self._lock:
                before = self._started_by_url.get(peer.url)
                self._started_by_url[peer.url] = started
            if before is not None and before != started:
                self._seen_at = time.monotonic()
                _log.warning("an Eureka server was restarted", extra={"url": peer.url})
                self._restarted(peer)
