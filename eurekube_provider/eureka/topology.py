"""The servers and the peers to which they forward, by which to decide whether batches reach every server.

No server forwards a batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer

_log = logging.getLogger(__name__)

NO_SERVER_ANSWERS_OBSTACLE = "no server answers"
"""The reason for which it is not known whether batches can be used."""

ReplicaUrls = tuple[str, ...]
AskAll = Callable[
    [Callable[[Peer], ReplicaUrls]], tuple[Mapping[str, ReplicaUrls], Mapping[str, RegistryError]]
]
"""A function that asks every server; see :meth:`eurekube_provider.eureka.peers.Peers.ask_all`."""


class Topology:
    """The servers of one Eureka cluster, as they name each other.

    Batches work where every replica that a server names is one of the configured URLs, and not the URL at
    which that server was asked. They do not work behind a load balancer, whose URL the servers may name as
    that of all of them. While no server answers, the last result holds: otherwise servers that were all
    restarted would get their thousands of instances back one by one.
    """

    def __init__(self, urls: Sequence[str], each: AskAll) -> None:
        self._urls = urls
        self._each = each
        self._asking = threading.Lock()
        self._believed_until = 0.0
        self._works: bool | None = None  # None: nobody has asked yet, or no server has answered

    def allows_batches(self) -> bool:
        """Return whether batches reach every server; ask the servers where the last answer is too old."""
        # Another thread that asks meanwhile gets the old answer; where there is none, it waits.
        if time.monotonic() >= self._believed_until and self._asking.acquire(blocking=self._works is None):
            try:
                if time.monotonic() >= self._believed_until:
                    self._refresh()
            finally:
                self._asking.release()
        return bool(self._works)

    def _refresh(self) -> None:
        obstacle = self.find_batch_obstacle()
        if obstacle == NO_SERVER_ANSWERS_OBSTACLE:
            self._believed_until = time.monotonic() + windows.AVOID_SERVER_SECONDS
            return
        works = obstacle is None
        if works != self._works:
            if obstacle is None:
                _log.info(
                    "using batches for renewals and changes from now on: they reach every Eureka server",
                    extra={"reason": "the servers forward to configured ones only"},
                )
            else:
                _log.info(
                    "renewing and changing instances one by one until the next check: batches cannot be used",
                    extra={"reason": obstacle},
                )
        self._works = works
        self._believed_until = time.monotonic() + windows.TOPOLOGY_CACHE_SECONDS

    def find_batch_obstacle(self) -> str | None:
        """Ask the servers; return why batches cannot be used, :data:`NO_SERVER_ANSWERS_OBSTACLE`, or None."""
        known = set(map(_normalised_url, self._urls))

        def ask(peer: Peer) -> tuple[str, ...]:
            replicas = peer.read_status().registered_replicas
            peer.send_batch([])
            return replicas

        named, failures = self._each(ask)
        for url in self._urls:
            failure = failures.get(url)
            if failure is not None and not isinstance(failure, RegistryUnreachable):
                return f"they are refused: {failure}"
            replicas = named.get(url, ())
            unknown = [one for one in replicas if _normalised_url(one) not in known]
            if unknown:
                return f"{url} forwards to {_url_without_credentials(unknown[0])}, which is not configured"
            if _normalised_url(url) in map(_normalised_url, replicas):
                return (
                    f"the server at {url} forwards to this URL, so that a load balancer with several"
                    " servers may be behind it; or it takes itself for another one, since its"
                    " eureka.instance.hostname is not what its service URL says"
                )
        return None if named else NO_SERVER_ANSWERS_OBSTACLE


def _url_without_credentials(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _normalised_url(url: str) -> str:
    """Return a URL in a form that can be compared: without credentials, with case and slashes normalised.

    Servers name others by text that somebody wrote; a text that is not a URL is returned as it is.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}"
