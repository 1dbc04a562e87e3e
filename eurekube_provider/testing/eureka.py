"""Eureka servers for a test, which starts them, moves their clock and checks their instances."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from eurekube_provider.core.model import EMPTY_MAPPING, Instance, Port, Status
from eurekube_provider.dev.eureka.documents import instance_info_document, parse_instance_info
from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.eureka.protocol.codec import instance_from_json, instance_to_json_object
from eurekube_provider.registrations.discovered import FoundInstance, to_found_instance
from eurekube_provider.testing.assertions import ExpectedInstances, RegistrationAssertions

_POLL_SECONDS = 0.02


class Eureka(RegistrationAssertions):
    """One Eureka of one or several servers, for one test: the fixtures ``eureka`` and ``eureka_servers``.

    :ivar url: the service URL of the first server, such as ``http://127.0.0.1:40001/eureka``.
    :ivar urls: the service URLs of all servers.
    """

    def __init__(self, servers: EurekaServers) -> None:
        self._servers = servers
        self.urls = tuple(servers.urls)
        self.url = self.urls[0]

    def instances_by_place(self) -> Mapping[str, Sequence[FoundInstance]]:
        """Return the instances that each server holds at this moment, past its caches, without lapsed
        ones.
        """
        with self._servers.lock:
            self.advance(0)  # the model's time is that of its last request
            return {url: [*self._instances_held_by(url)] for url in self.urls}

    def advance(self, seconds: float) -> None:
        """Let time pass for the servers only, without renewals.

        A lease that was never renewed ends after its duration, 90 s by default; a renewed one after twice its
        duration.
        """
        self._servers.advance(seconds)

    def register(
        self,
        application: str,
        instance_id: str,
        host_name: str,
        port: int,
        status: str = "UP",
        metadata: Mapping[str, str] = EMPTY_MAPPING,
    ) -> None:
        """Register an instance without an owner at the first server; nobody renews it.

        :raises InvalidInstance: Eureka could not hold one of the names.
        """
        instance = Instance(
            application,
            instance_id,
            host_name,
            host_name,
            Port(port),
            status=Status(status),
            metadata=metadata,
        )
        cluster = self._servers.cluster
        with self._servers.lock:
            self.advance(0)
            info = parse_instance_info(instance_to_json_object(instance), cluster.clock.now_ms)
            cluster.servers[self.url].registry.register(info, replicated=False)
            self.advance(0)  # the servers' thread learns when to replicate it

    def wait_registered(
        self, application: str, expected: ExpectedInstances | None = None, *, timeout_seconds: float = 10.0
    ) -> None:
        """Wait until another thread or process has made :meth:`assert_registered` succeed.

        :raises AssertionError: after the timeout, with the last difference.
        """
        __tracebackhide__ = True
        until = time.monotonic() + timeout_seconds
        while difference := self._describe_differences(application, expected):
            if time.monotonic() >= until:
                raise AssertionError(f"after {timeout_seconds:g} s: {difference}")
            time.sleep(_POLL_SECONDS)

    def wait_not_registered(self, application: str, *, timeout_seconds: float = 10.0) -> None:
        """Wait until :meth:`assert_not_registered` succeeds, as :meth:`wait_registered` does."""
        __tracebackhide__ = True
        self.wait_registered(application, {}, timeout_seconds=timeout_seconds)

    def _instances_held_by(self, url: str) -> Iterator[FoundInstance]:
        registry = self._servers.cluster.servers[url].registry
        for lease in registry.all_leases():
            if registry.get(lease.holder.app, lease.holder.id) is not None:
                yield to_found_instance(instance_from_json(instance_info_document(lease.holder, lease)))


class StartEureka(Protocol):
    """A function that starts a Eureka which ends with the test: the value of the fixture
    ``eureka_servers``.
    """

    def __call__(self, count: int = 1, *, quick: bool = True) -> Eureka:
        """Start ``count`` servers, which replicate to each other, on free ports of this machine.

        :param quick: lists that are never stale, evictions each second, no self-preservation; False for
            Eureka's own settings.
        """
        ...
