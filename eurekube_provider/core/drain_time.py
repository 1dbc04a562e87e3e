"""Arithmetic of a drain: for how long callers still call an instance that has left Eureka.

Pure. A removed instance is called until every cache between Eureka and the callers has forgotten it, and
all of them may be as old as they can get at the same time. Who serves for as long fails no call; who serves
for less has guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from eurekube_provider.core.errors import ConfigurationError

CALLERS_LEAVE_SECONDS = 600.0
"""By then callers have left a Eureka server that hangs, and know what another one shows.

Spring's client waits 180 s for an answer, may choose the same server once more, and doubles its interval of
30 s with each fetch that takes longer: it asks another server up to 540 s later (538 s were measured). Its
load balancer's cache adds 35 s.
"""

CALLERS_RETURN_SECONDS = 300.0
"""So late callers of a server that hung may ask it again, by an interval that was doubled up to tenfold."""

DEFAULT_SHUTDOWN_SECONDS = 30
"""Time that a process gets to end after SIGTERM: Kubernetes' default for a whole grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The longest times, in seconds, for which caches and hand-overs keep an instance known to its callers.

    The defaults are those of a Spring Cloud Eureka server, of its clients and of this operator: 120 s in all.

    :ivar server_cache_seconds: the server's read-only cache,
        ``eureka.server.response-cache-update-interval-ms``; 0 where that cache is not used.
    :ivar client_fetch_seconds: ``eureka.client.registry-fetch-interval-seconds`` of the slowest caller.
    :ivar load_balancer_cache_seconds: ``spring.cloud.loadbalancer.cache.ttl`` of the slowest caller; 0
        where that cache is off, 30 for Ribbon.
    :ivar replication_seconds: from one Eureka server to its peers.
    :ivar take_over_seconds: an operator dies and another takes its Lease over: the Lease's duration and a
        retry period.
    :ivar margin_seconds: requests under way, pauses and clocks.
    :raises ConfigurationError: a part is no number from 0 on.
    """

    server_cache_seconds: float = 30
    client_fetch_seconds: float = 30
    load_balancer_cache_seconds: float = 35
    replication_seconds: float = 1
    take_over_seconds: float = 17
    margin_seconds: float = 7

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0:
                raise ConfigurationError(f"drain: {field.name} must be seconds from 0 on, not {value!r}")

    @property
    def caches_seconds(self) -> float:
        """The age that all caches between a server's registry and the callers may have together."""
        caches = self.server_cache_seconds, self.client_fetch_seconds, self.load_balancer_cache_seconds
        return math.fsum(caches)

    @property
    def forgotten_after_seconds(self) -> int:
        """The time from the removal in Eureka until the last caller has forgotten the instance."""
        return math.ceil(self.caches_seconds + self.replication_seconds)

    @property
    def known_after_seconds(self) -> int:
        """The time from when every server shows an instance until the last caller knows it."""
        return math.ceil(self.caches_seconds + self.margin_seconds)

    @property
    def prestop_seconds(self) -> int:
        """The time from the beginning of a pod's deletion until its process may be asked to end.

        Longer than :attr:`forgotten_after_seconds`, since the removal itself may have to wait for an
        operator that takes over.
        """
        return math.ceil(math.fsum(getattr(self, field.name) for field in fields(self)))

    @property
    def min_ready_seconds(self) -> int:
        """For how long a new pod must be ready before a rollout lets the next old one go.

        What arrives takes the same way through the same caches as what leaves.
        """
        return self.prestop_seconds

    def grace_period_seconds(self, shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS) -> int:
        """``terminationGracePeriodSeconds``: preStop counts towards it, and a shorter one cuts it off.

        :param shutdown_seconds: the time that the process itself needs after SIGTERM.
        :raises ConfigurationError: it is less than 1: the process would be killed at once.
        """
        if shutdown_seconds < 1:
            raise ConfigurationError(
                f"drain: a process needs at least 1 second to end after SIGTERM, not {shutdown_seconds!r}"
            )
        return self.prestop_seconds + shutdown_seconds


QUICK = Drain(server_cache_seconds=3, client_fetch_seconds=5, load_balancer_cache_seconds=2)
"""Caches with which callers learn of a change within 10 s, at more requests to Eureka."""
