"""Faults of the Kubernetes API: of the server, its storage, and the watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from eurekube_provider.kube.access import SERVICES, SYNCERS
from lab.workloads import wait_for
from tests.faults.excuse import RELIST_SECONDS, RETURN_SECONDS, Excuse, without_source
from tests.faults.fault import API, LEASES, OPERATORS, WATCHES, Fault, Parts, Scale, nothing
from tests.faults.operators import Operator
from tests.faults.world import EAST_CLUSTER, SHOP, World


@dataclass(frozen=True, slots=True)
class ApiRestarted(Fault):
    """The API server is killed and started again."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({API})
    excused: ClassVar[tuple[Excuse, ...]] = without_source(EAST_CLUSTER, RETURN_SECONDS)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 0, 10))

    def begin(self, world: World) -> Callable[[], None]:
        world.lab.api_server.kill()
        return world.lab.api_server.start


@dataclass(frozen=True, slots=True)
class ApiAway(Fault):
    """The API server is killed and stays away for long, while Eureka leases must still be renewed."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({API, LEASES})
    excused: ClassVar[tuple[Excuse, ...]] = without_source(EAST_CLUSTER, RETURN_SECONDS)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:  # noqa: ARG003 - always for as long as was agreed
        return cls(scale.away_seconds)

    def begin(self, world: World) -> Callable[[], None]:
        world.lab.api_server.kill()
        return world.lab.api_server.start


@dataclass(frozen=True, slots=True)
class EtcdPaused(Fault):
    """etcd is frozen: the API server takes requests and cannot answer them."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({API})
    excused: ClassVar[tuple[Excuse, ...]] = without_source(EAST_CLUSTER, RETURN_SECONDS)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 3, 40))

    def begin(self, world: World) -> Callable[[], None]:
        world.lab.etcd.pause()

        def end() -> None:
            world.lab.etcd.resume()
            world.lab.api_server.wait_until_ready()

        return end


@dataclass(frozen=True, slots=True)
class WatchesCut(Fault):
    """All connections to the API server break, several times."""

    times: int
    seconds: float = 0.0
    takes: ClassVar[Parts] = frozenset({WATCHES})
    excused: ClassVar[tuple[Excuse, ...]] = without_source(EAST_CLUSTER, RELIST_SECONDS)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:  # noqa: ARG003 - it takes no time
        return cls(random.randint(1, 6))

    def begin(self, world: World) -> Callable[[], None]:
        for _ in range(self.times):
            for operator in world.east_operators:
                operator.tcp_proxy.cut()
            time.sleep(0.5)
        return nothing


@dataclass(frozen=True, slots=True)
class WatchesSilent(Fault):
    """Open connections to the API server carry no more data, and neither side is told."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({WATCHES})
    excused: ClassVar[tuple[Excuse, ...]] = without_source(EAST_CLUSTER, RELIST_SECONDS)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(round(random.uniform(scale.silent_seconds / 3, scale.silent_seconds), 1))

    def begin(self, world: World) -> Callable[[], None]:
        for operator in world.east_operators:
            operator.tcp_proxy.mute()

        def end() -> None:
            for operator in world.east_operators:
                operator.tcp_proxy.heal()

        return end


@dataclass(frozen=True, slots=True)
class WatchesExpired(Fault):
    """The watches break, and when they return the API server has forgotten the events that they missed
    (410).
    """

    seconds: float = 0.0
    takes: ClassVar[Parts] = frozenset({WATCHES, API})
    needs: ClassVar[Parts] = frozenset({OPERATORS})
    excused: ClassVar[tuple[Excuse, ...]] = without_source(EAST_CLUSTER, RETURN_SECONDS)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:  # noqa: ARG003 - nothing to choose
        return cls()

    def begin(self, world: World) -> Callable[[], None]:
        for operator in world.east_operators:
            operator.tcp_proxy.refuse()
        note = {"metadata": {"annotations": {"noted-at": str(time.monotonic())}}}
        for resource in (SERVICES, SYNCERS):
            path = resource.path(SHOP, "rating")
            world.insist(lambda path=path: world.patch(path, note))  # type: ignore[misc]
        world.lab.api_server.restart()
        heard = {operator: (operator.pid, len(operator.text())) for operator in world.east_operators}

        def has_heard(operator: Operator) -> bool:
            """Return whether the operator has logged the expired watch, has become leader and listed anew, or
            was restarted.

            An operator that was about to list again for an earlier outage logs nothing.
            """
            pid, begin = heard[operator]
            said = operator.text()[begin:]
            return operator.pid != pid or "watch expired" in said or "became the leader" in said

        def end() -> None:
            for operator in world.east_operators:
                operator.tcp_proxy.heal()
            wait_for(
                lambda: any(map(has_heard, heard)),
                "an operator to say that its watches expired",
                world.patience_seconds,
            )

        return end
