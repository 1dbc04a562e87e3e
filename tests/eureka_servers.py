"""The Eureka servers of the tests: real ones, or development servers whose clock the tests move.

``pytest --eureka=dev`` chooses the second kind. Tests get either from fixtures, and let the servers' time
pass by :data:`clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal

from eurekube_provider.dev.eureka.serving import EurekaServers
from lab import Lab
from lab.errors import LabError
from lab.eureka import SpringCloudRelease
from lab.waiting import wait_until

DEVELOPMENT: Literal["dev"] = "dev"
TRAINS: tuple[SpringCloudRelease, ...] = ("2025.0", "2025.1")
"""The release trains that we support."""

Train = SpringCloudRelease | Literal["dev"]

_STEPS_SECONDS = (0.1,) * 10 + (1.0,)
"""Seconds between two checks of a condition; the last value holds for all further checks, since each check
may read a list of hundreds of instances.
"""


class ServersClock:
    """The clock of the servers: real time, or the time of the development servers, which moves on without
    waiting.
    """

    def __init__(self) -> None:
        self._running: list[EurekaServers] = []
        self._ahead_seconds = 0.0

    def sleep(self, seconds: float) -> None:
        """Let the servers' time pass by so many seconds."""
        if not self._running:
            time.sleep(seconds)
            return
        self._ahead_seconds += seconds
        for servers in self._running:
            servers.advance(seconds)

    def time(self) -> float:
        """Return the servers' Unix time."""
        return time.time() + self._ahead_seconds

    def monotonic(self) -> float:
        """Return seconds of the servers' time that never go backwards."""
        return time.monotonic() + self._ahead_seconds

    def wait_until(self, condition: Callable[[], object], what: str, timeout_seconds: float) -> None:
        """Let time pass until the condition holds.

        :raises LabError: it does not in so many seconds of the servers' time.
        """
        if not self._running:
            wait_until(condition, what, timeout_seconds)
            return
        deadline = self.monotonic() + timeout_seconds
        steps = chain(_STEPS_SECONDS, repeat(_STEPS_SECONDS[-1]))
        while not condition():
            if self.monotonic() > deadline:
                raise LabError(f"waited {timeout_seconds:.0f} s of the servers' time in vain for {what}")
            self.sleep(next(steps))

    @contextmanager
    def running(self, servers: EurekaServers) -> Iterator[None]:
        """Keep the clock of these servers equal to that of all other development servers while the block
        runs.
        """
        servers.advance(self._ahead_seconds)
        self._running.append(servers)
        try:
            yield
        finally:
            self._running.remove(servers)


clock = ServersClock()


@dataclass(frozen=True, slots=True)
class DevelopmentServer:
    """One development server, with the attributes that a test reads of a real server."""

    servers: EurekaServers
    url: str

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self.url.split(":")[2].partition("/")[0])

    def count_cached_answers(self) -> int:
        """The number of rendered answers in the server's response caches."""
        with self.servers.lock:
            return len(self.servers.cluster.servers[self.url].caches.read_only)


@dataclass(frozen=True, slots=True)
class DevelopmentServers:
    """Development servers in memory, with the attributes that these tests read of a lab."""

    servers: EurekaServers

    @property
    def eureka_urls(self) -> list[str]:
        """The service URLs of the servers."""
        return self.servers.urls

    @property
    def eurekas(self) -> list[DevelopmentServer]:
        """Each of the servers."""
        return [DevelopmentServer(self.servers, url) for url in self.servers.urls]


Servers = Lab | DevelopmentServers


@contextmanager
def run_servers(
    train: Train,
    count: int = 1,
    *,
    is_quick: bool = False,
    is_sparing: bool = True,
    uncached_lists: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Servers]:
    """Run servers of a release train, or development servers.

    :param is_quick: True if development servers are quick.
    :param is_sparing: True if development servers preserve themselves where they are not quick.
    :param uncached_lists: True if the lists of real servers are as fresh as reads.
    :param settings: of real servers.
    """
    if train == DEVELOPMENT:
        with EurekaServers(count, quick=is_quick) as servers, clock.running(servers):
            for server in servers.cluster.servers.values():
                server.registry.self_preservation = is_sparing and not is_quick
            yield DevelopmentServers(servers)
        return
    with Lab(
        eureka=count,
        kubernetes=False,
        spring_cloud=train,
        uncached_lists=uncached_lists,
        eureka_settings=settings,
    ) as running:
        yield running
