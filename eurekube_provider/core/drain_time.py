"""Arithmetic of a drain: for how long callers still call an instance that has left Eureka.

Pure. Callers call a removed instance until every cache between Eureka and them has forgotten it, and all
these caches may have their greatest age at the same time. A pod that serves for that long fails no call; a
shorter time is a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from eurekube_provider.core.errors import ConfigurationError

CALLERS_LEAVE_HUNG_SERVER_SECONDS = 600.0
"""Seconds after which callers have left a Eureka server that hangs, and know what another server shows.

Spring's client waits 180 s for an answer, may choose the same server a second time, and doubles its interval
of 30 s with each fetch that takes longer: it asks another server up to 540 s later (538 s were measured). Its
load balancer's cache adds 35 s.
"""

CALLERS_RETURN_TO_SERVER_SECONDS = 300.0
"""Seconds after which callers ask a server again that hung: their interval may have doubled up to tenfold."""

DEFAULT_SHUTDOWN_SECONDS = 30
"""Seconds that a process gets to end after SIGTERM: Kubernetes' default for a whole grace period."""


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
    def total_cache_seconds(self) -> float:
        """Seconds: the greatest age of all caches between a server's registry and the callers together."""
        caches = self.server_cache_seconds, self.client_fetch_seconds, self.load_balancer_cache_seconds
        return math.fsum(caches)

    @property
    def forgotten_after_seconds(self) -> int:
        """Seconds from an instance's removal in Eureka until the last caller has forgotten it."""
        return math.ceil(self.total_cache_seconds + self.replication_seconds)

    @property
    def known_after_seconds(self) -> int:
        """Seconds from the time when every server shows an instance until the last caller knows it."""
        return math.ceil(self.total_cache_seconds + self.margin_seconds)

    @property
    def prestop_seconds(self) -> int:
        """Seconds from the beginning of a pod's deletion until its process may be asked to end.

        Longer than :attr:`forgotten_after_seconds`, since the removal itself may have to wait for an operator
        that takes over.
        """
        return math.ceil(math.fsum(getattr(self, field.name) for field in fields(self)))

    @property
    def min_ready_seconds(self) -> int:
        """Seconds that a new pod must be ready before a rollout ends the next old one (``minReadySeconds``).

        A new instance takes the same way through the same caches as a removed one.
        """
        return self.prestop_seconds

    def grace_period_seconds(self, shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS) -> int:
        """Return ``terminationGracePeriodSeconds``, which includes the preStop: a shorter one cuts it off.

        :param shutdown_seconds: the time that the process itself needs after SIGTERM.
        :raises ConfigurationError: ``shutdown_seconds`` is less than 1: the process would be killed at once.
        """
        if shutdown_seconds < 1:
            raise ConfigurationError(
                f"drain: a process needs at least 1 second to end after SIGTERM, not {shutdown_seconds!r}"
            )
        return self.prestop_seconds + shutdown_seconds


QUICK_CACHES_DRAIN = Drain(server_cache_seconds=3, client_fetch_seconds=5, load_balancer_cache_seconds=2)
"""Settings of caches by which callers learn of changes within 10 s, for more requests to Eureka."""
