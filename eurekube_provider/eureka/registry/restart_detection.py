"""Detection of Eureka servers that were restarted, and so have forgotten their instances.

Several servers may answer at one URL, behind a load balancer or a Kubernetes Service: each answer may come
from another one, with another start time. So a restart is a start time that was not seen at its URL lately,
of a server that has run for a shorter time than the URL is known.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import ServerStatus
from eurekube_provider.eureka.rules import Servers

_log = logging.getLogger(__name__)

READS_BEHIND_BALANCER = 6
"""The number of connections that are made to find several servers behind a balancer: with two servers, all
connections reach the same one once in 32 times.
"""

_UPTIME = re.compile(r"(\d+) days? (\d+):(\d+)")


def running_seconds(status: ServerStatus, now: float) -> float | None:
    """Return the seconds for which the server has run, by its own clock; None where it does not say.

    :param now: Unix time by this machine's clock.
    """
    if status.started_timestamp_ms is None:
        return None
    seconds = now + (status.clock_ahead_seconds or 0.0) - status.started_timestamp_ms / 1000
    uptime = _UPTIME.fullmatch(status.uptime)
    if uptime is not None:  # of its process, in whole minutes: right even where a proxy wrote the date
        days, hours, minutes = map(int, uptime.groups())
        seconds = min(seconds, ((days * 24 + hours) * 60 + minutes + 1) * 60.0)
    return max(seconds, 0.0)


@dataclass(slots=True)
class StartTimes:
    """The start times that were seen at one URL. All other times are by the monotonic clock.

    :ivar seen_at: by start time, when it was last seen.
    """

    first_read_at: float | None = None
    last_read_at: float = 0.0
    seen_at: dict[int, float] = field(default_factory=dict)

    def take(self, started_ms: int, running_seconds: float, now: float) -> bool:
        """Note the start time of an answer; return whether the answer shows a restart."""
        is_news = started_ms not in self.seen_at
        unread_seconds = now - self.last_read_at + windows.CLOCK_ROUNDING
        is_restart = (
            is_news
            and self.first_read_at is not None
            and running_seconds <= now - self.first_read_at
            and running_seconds <= max(windows.STARTED_LATELY, unread_seconds)
        )
        if self.first_read_at is None:
            self.first_read_at = self.last_read_at = now
        # By the last reading, not by now: while nobody answers, nothing is forgotten.
        since = self.last_read_at - windows.STARTED_LATELY
        self.seen_at = {start: at for start, at in self.seen_at.items() if at >= since}
        self.seen_at[started_ms] = self.last_read_at = now
        return is_restart


class RestartDetection:
    """Detects restarts of the servers of one Eureka; any number of threads may share it.

    :param restarted: called with the URL's client when a server there was restarted since the first request.
    """

    def __init__(self, peers: Peers, restarted: Callable[[Peer], None]) -> None:
        self._peers = peers
        self._restarted = restarted
        self._lock = threading.Lock()
        self._starts_by_url: dict[str, StartTimes] = {}
        self._runs_since: dict[str, float] = {}
        self._seen_at = -windows.MEMORY_LOST

    @property
    def started_by_url(self) -> Mapping[str, int]:
        """The time at which each server was started, in milliseconds by its own clock: the latest of
        several servers at one URL; servers that do not say are left out.
        """
        with self._lock:
            return {url: max(starts.seen_at) for url, starts in self._starts_by_url.items()}

    def runs_for(self, url: str) -> float | None:
        """Return for how many seconds a server has run, by its own clock; None where it does not say."""
        with self._lock:
            since = self._runs_since.get(url)
        return None if since is None else time.monotonic() - since

    @property
    def servers_behind(self) -> int:
        """The most servers that have answered lately at any one URL.

        1, except behind a load balancer, or for a while after a restart.
        """
        with self._lock:
            return max((len(starts.seen_at) for starts in self._starts_by_url.values()), default=1)

    def has_memory(self, url: str) -> bool:
        """Return whether only one server has answered at ``url`` lately, and was not restarted.

        An instance that such a server lacks was not forgotten.
        """
        with self._lock:
            return url in self._starts_by_url and len(self._starts_by_url[url].seen_at) == 1

    @property
    def lost_memory(self) -> bool:
        """True if a missing instance may have been forgotten by a restarted server, and not removed."""
        return time.monotonic() - self._seen_at < windows.MEMORY_LOST

    def servers(self, held: Mapping[str, Instance | None], *, are_all: bool) -> Servers:
        """Return servers' answers on one key together with what is known of these servers.

        :param are_all: True if none of them failed to answer.
        """
        return Servers(
            held,
            are_all=are_all,
            started_ms=self.started_by_url,
            with_memory=frozenset(filter(self.has_memory, held)),
            lost_memory=self.lost_memory,
            behind=self.servers_behind,
        )

    def notice(self, grace_seconds: float | None = None, *, ends_connections: bool = False) -> frozenset[str]:
        """Ask at each URL for how long the server has run, and note restarts. Raises nothing.

        :param ends_connections: True to close each connection after the answer: a balancer may send the next
            one to another server.
        :param grace_seconds: as for :meth:`~eurekube_provider.eureka.peers.Peers.each`.
        :returns: the URLs that answered.
        """
        answered: set[str] = set()
        statuses, _ = self._peers.each(
            lambda peer: peer.status_and_close() if ends_connections else peer.status(),
            asks_avoided=True,
            grace_seconds=grace_seconds,
        )
        for peer in self._peers.peers:
            status = statuses.get(peer.url)
            seconds = running_seconds(status, time.time()) if status is not None else None
            if status is None or status.started_timestamp_ms is None or seconds is None:
                continue
            answered.add(peer.url)
            with self._lock:
                now = time.monotonic()
                self._runs_since[peer.url] = now - seconds
                starts = self._starts_by_url.setdefault(peer.url, StartTimes())
                is_restart = starts.take(status.started_timestamp_ms, seconds, now)
            if is_restart:
                self._seen_at = time.monotonic()
                _log.warning("noticed that a Eureka server was restarted", extra={"url": peer.url})
                self._restarted(peer)
        return frozenset(answered)

    def detect_behind_balancer(self) -> None:
        """Find out whether several servers answer at one URL, by new connections. Raises nothing.

        A balancer of connections, such as a Kubernetes Service, sends all requests of one open connection to
        the same server.
        """
        for _ in range(READS_BEHIND_BALANCER):
            if self.servers_behind > 1:
                break
            self.notice(ends_connections=True)

    def notice_all(self) -> frozenset[str]:
        """Repeat :meth:`notice` so often that a balancer has reached each server, or until a restart is
        found.
        """
        servers = self.servers_behind
        answered: frozenset[str] = frozenset()
        for _ in range(servers + 1 if servers > 1 else 1):
            if self.lost_memory:
                break
            answered = self.notice()
        return answered
