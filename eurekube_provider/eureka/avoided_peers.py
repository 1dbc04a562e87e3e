"""Servers that did not answer lately, and so are asked last."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from eurekube_provider.core.drain_time import CALLERS_RETURN_TO_SERVER_SECONDS
from eurekube_provider.core.errors import RegistryError, RegistrySilent
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer

_log = logging.getLogger(__name__)


class AvoidedPeers:
    """The servers of one Eureka that are asked last; any number of threads may share the object.

    :ivar avoided_until: by URL of each server with a fault since it last answered, the time.monotonic until
        which it is asked last; 0 for the only server. Empty while all answer.
    """

    def __init__(self, peers: Collection[Peer]) -> None:
        self._are_several = len(peers) > 1
        self._lock = threading.Lock()
        self.avoided_until: dict[str, float] = {}
        self._silent: dict[str, tuple[float, float]] = {}  # found so first, and last
        self._late_until: dict[str, float] = {}

    def is_avoided(self, peer: Peer) -> bool:
        """Return whether a server is avoided now."""
        return self.avoided_until.get(peer.url, 0.0) > time.monotonic()

    def avoid(self, peer: Peer, fault: str, error: RegistryError | str) -> None:
        """Ask a server last for a while, unless it is the only one.

        :param fault: the server's fault, e.g. ``is slow``.
        """
        now = time.monotonic()
        with self._lock:
            if isinstance(error, RegistrySilent):
                first, last = self._silent.get(peer.url, (now, now))
                self._silent[peer.url] = (first if now - last <= windows.SAME_SILENCE_SECONDS else now), now
            is_news = self._are_several and peer.url not in self.avoided_until
            self.avoided_until[peer.url] = now + windows.AVOID_SERVER_SECONDS if self._are_several else 0.0
        if is_news:
            _log.warning(
                "Eureka server failed or was slow, asking the other servers first for a while",
                extra={
                    "url": peer.url,
                    "reason": fault,
                    "seconds": windows.AVOID_SERVER_SECONDS,
                    "error": str(error),
                },
            )

    def silent_since(self, url: str) -> float:
        """Return the time.monotonic since which a server has been silent; now for one that is not.

        Failed requests count as one silence only soon after each other: in between it may have answered.
        """
        now = time.monotonic()
        with self._lock:
            first, last = self._silent.get(url, (now, now))
        return first if now - last <= windows.SAME_SILENCE_SECONDS else now

    def callers_may_be_away_until_by_url(self) -> dict[str, float]:
        """Return, by silent server, the time.monotonic until which its callers may not have come back.

        While a server hangs, Spring's client doubles its interval: it comes back that much later.
        """
        with self._lock:
            now = time.monotonic()
            self._late_until = {url: until for url, until in self._late_until.items() if until > now}
            return dict(self._late_until)

    def stop_avoiding(self, peer: Peer) -> None:
        """Stop avoiding a server, since it answers."""
        with self._lock:
            had_fault = self.avoided_until.pop(peer.url, None) is not None
            silence = self._silent.pop(peer.url, None)
            if silence is not None:
                now = time.monotonic()
                self._late_until[peer.url] = now + min(now - silence[0], CALLERS_RETURN_TO_SERVER_SECONDS)
        if had_fault and self._are_several:
            _log.warning("Eureka server answers again, asking it as before", extra={"url": peer.url})
