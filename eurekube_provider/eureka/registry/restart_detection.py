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

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.server_status import StatusPage
from eurekube_provider.eureka.rules import ServerAnswers

_log = logging.getLogger(__name__)

BALANCER_PROBE_CONNECTIONS = 6
"""The number of connections that are made to find several servers behind a balancer: with two servers, all
connections reach the same one once in 32 times.
"""

_UPTIME_PATTERN = re.compile(r"(\d+) days? (\d+):(\d+)")


def running_seconds(status: StatusPage, now: float) -> float | None:
    """Return the seconds for which the server has run, by its own clock; None where it does not say.

    :param now: Unix time by this machine's clock.
    """
    if status.started_timestamp_ms is None:
        return None
    seconds = now + (status.clock_ahead_seconds or 0.0) - status.started_timestamp_ms / 1000
    uptime = _UPTIME_PATTERN.fullmatch(status.uptime)
    if uptime is not None:  # of its process, in whole minutes: right even where a proxy wrote the date
        days, hours, minutes = map(int, uptime.groups())
        seconds = min(seconds, ((days * 24 + hours) * 60 + minutes + 1) * 60.0)
    return max(seconds, 0.0)


@dataclass(slots=True)
class StartTimes:
    """The start times that were seen at one URL. All other times are by the monotonic clock.

    :ivar runs_since: when the server that answered last was started.
    :ivar seen_at_by_start: by start time, when it was last seen.
    """

    first_read_at: float | None = None
    last_read_at: float = 0.0
    runs_since: float = 0.0
    seen_at_by_start: dict[int, float] = field(default_factory=dict)

    def add_and_detect_restart(self, started_ms: int, running_seconds: float, now: float) -> bool:
        """Note the start time of an answer; return whether the answer shows a restart."""
        is_news = started_ms not in self.seen_at_by_start
        unread_seconds = now - self.last_read_at + windows.CLOCK_ROUNDING_SECONDS
        is_restart = (
            is_news
            and self.first_read_at is not None
            and running_seconds <= now - self.first_read_at
            and running_seconds <= max(windows.RECENT_START_SECONDS, unread_seconds)
        )
        if self.first_read_at is None:
            self.first_read_at = self.last_read_at = now
        # By the last reading, not by now: while nobody answers, nothing is forgotten.
        since = self.last_read_at - windows.RECENT_START_SECONDS
        self.seen_at_by_start = {start: at for start, at in self.seen_at_by_start.items() if at >= since}
        self.seen_at_by_start[started_ms] = self.last_read_at = now
        self.runs_since = now - running_seconds
        return is_restart


class RestartDetection:
    """Detects restarts of the servers of one Eureka; any number of threads may share it.

    :param restarted: called with the URL's client when a server there was restarted since the first request.
    :ivar reaches_no_server: True if no server was reached when they were asked last.
    """

    def __init__(self, peers: Peers, restarted: Callable[[Peer], None]) -> None:
        self._peers = peers
        self._restarted = restarted
        self._lock = threading.Lock()
        self._starts_by_url: dict[str, StartTimes] = {}
        self._restart_seen_at = -windows.MEMORY_LOSS_SECONDS
        self.reaches_no_server = False

    @property
    def started_ms_by_url(self) -> Mapping[str, int]:
        """The time at which each server was started, in milliseconds by its own clock: the latest of
        several servers at one URL; servers that do not say are left out.
        """
        with self._lock:
            return {url: max(starts.seen_at_by_start) for url, starts in self._starts_by_url.items()}

    def uptime_seconds(self, url: str) -> float | None:
        """Return for how many seconds a server has run, by its own clock; None where it does not say."""
        with self._lock:
            starts = self._starts_by_url.get(url)
            return None if starts is None else time.monotonic() - starts.runs_since

    @property
    def most_servers_at_one_url(self) -> int:
        """The most servers that have answered lately at any one URL.

        1, except behind a load balancer, or for a while after a restart.
        """
        with self._lock:
            return max((len(starts.seen_at_by_start) for starts in self._starts_by_url.values()), default=1)

    def has_kept_memory(self, url: str) -> bool:
        """Return whether only one server has answered at ``url`` lately, and was not restarted.

        An instance that such a server lacks was not forgotten.
        """
        with self._lock:
            return url in self._starts_by_url and len(self._starts_by_url[url].seen_at_by_start) == 1

    @property
    def may_have_lost_memory(self) -> bool:
        """True if a missing instance may have been forgotten by a restarted server, and not removed."""
        return time.monotonic() - self._restart_seen_at < windows.MEMORY_LOSS_SECONDS

    def complete_server_answers(
        self, held_by_url: Mapping[str, Instance | None], *, have_all_answered: bool
    ) -> ServerAnswers:
        """Return the servers' answers on one key with their start times, and whether they lost their memory.

        :param have_all_answered: True if none of them failed to answer.
        """
        return ServerAnswers(
            held_by_url,
            have_all_answered=have_all_answered,
            started_ms_by_url=self.started_ms_by_url,
            urls_with_kept_memory=frozenset(filter(self.has_kept_memory, held_by_url)),
            may_have_lost_memory=self.may_have_lost_memory,
            most_servers_at_one_url=self.most_servers_at_one_url,
        )

    def detect_restarts(
        self, grace_seconds: float | None = None, *, ends_connections: bool = False
    ) -> frozenset[str]:
        """Ask at each URL for how long the server has run, and note restarts. Raises nothing.

        :param ends_connections: True to close each connection: a balancer may then choose another server.
        :param grace_seconds: as for :meth:`~eurekube_provider.eureka.peers.Peers.ask_all`.
        :returns: the URLs that answered.
        """
        answered: set[str] = set()
        statuses, failures = self._peers.ask_all(
            lambda peer: peer.read_status_and_close() if ends_connections else peer.read_status(),
            asks_avoided=True,
            grace_seconds=grace_seconds,
        )
        self.reaches_no_server = (
            bool(failures)
            and not statuses
            and all(isinstance(error, RegistryUnreachable) for error in failures.values())
        )
        for peer in self._peers.peers:
            status = statuses.get(peer.url)
            seconds = running_seconds(status, time.time()) if status is not None else None
            if status is None or status.started_timestamp_ms is None or seconds is None:
                continue
            answered.add(peer.url)
            with self._lock:
                now = time.monotonic()
                starts = self._starts_by_url.setdefault(peer.url, StartTimes())
                is_restart = starts.add_and_detect_restart(status.started_timestamp_ms, seconds, now)
            if is_restart:
                self._restart_seen_at = time.monotonic()
                _log.warning(
                    "a Eureka server was restarted, finding out what it forgot", extra={"url": peer.url}
                )
                self._restarted(peer)
        return frozenset(answered)

    def detect_servers_behind_balancer(self) -> None:
        """Find out whether several servers answer at one URL, by new connections. Raises nothing.

        A balancer of connections, as a Service, sends all requests of an open one to the same server.
        """
        for _ in range(BALANCER_PROBE_CONNECTIONS):
            if self.most_servers_at_one_url > 1:
                break
            self.detect_restarts(ends_connections=True)

    def detect_restarts_of_all(self) -> frozenset[str]:
        """Detect restarts until a balancer has reached each server, or until one is found."""
        servers = self.most_servers_at_one_url
        answered = frozenset[str]()
        for _ in range(servers + 1 if servers > 1 else 1):
            if self.may_have_lost_memory:
                break
            answered = self.detect_restarts()
        return answered
