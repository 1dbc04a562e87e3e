"""Servers that did not answer lately, and so are asked last."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from eurekube_provider.core.drain_time import CALLERS_RETURN_TO_SERVER_SECONDS
from eurekube_provider.core.errors import RegistryError, RegistrySilent
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PeerFault:
    """A fault of a server since it last answered.

    :ivar avoided_until: the time.monotonic until which it is asked last; 0 for the only server.
    :ivar silence: the time.monotonic when it was found silent first, and last; None if it was not.
    """

    avoided_until: float = 0.0
    silence: tuple[float, float] | None = None


class AvoidedPeers:
    """The servers of one Eureka that are asked last; any number of threads may share the object.

    :ivar faults: by URL; empty while every server answers.
    """

    def __init__(self, peers: Collection[Peer]) -> None:
        self._are_several = len(peers) > 1
        self._lock = threading.Lock()
        self.faults: dict[str, PeerFault] = {}
        self._late_until: dict[str, float] = {}

    def is_avoided(self, peer: Peer) -> bool:
        """Return whether a server is avoided now."""
        fault = self.faults.get(peer.url)
        return fault is not None and fault.avoided_until > time.monotonic()

    def avoid(self, peer: Peer, fault: str, error: RegistryError | str) -> None:
        """Ask a server last for a while, unless it is the only one.

        :param fault: the server's fault, e.g. ``is slow``.
        """
        now = time.monotonic()
        with self._lock:
            is_news = self._are_several and peer.url not in self.faults
            noted = self.faults.setdefault(peer.url, PeerFault())
            if isinstance(error, RegistrySilent):
                first, last = noted.silence or (now, now)
                noted.silence = (first if now - last <= windows.SAME_SILENCE_SECONDS else now), now
            if self._are_several:
                noted.avoided_until = now + windows.AVOID_SERVER_SECONDS
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
        now, fault = time.monotonic(), self.faults.get(url)
        first, last = (fault and fault.silence) or (now, now)
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
            fault = self.faults.pop(peer.url, None)
            if fault is not None and fault.silence is not None:
                now = time.monotonic()
                late_seconds = min(now - fault.silence[0], CALLERS_RETURN_TO_SERVER_SECONDS)
                self._late_until[peer.url] = now + late_seconds
        if fault is not None and self._are_several:
            _log.warning("Eureka server answers again, asking it as before", extra={"url": peer.url})
