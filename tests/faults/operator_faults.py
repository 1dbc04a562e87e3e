"""Faults of operators: ends, pauses, changes of leader, and stepped clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from eurekube_provider.operator.gates import LONGEST_SILENCE_SECONDS
from tests.faults.excuse import KNOWLEDGE_SECONDS, Excuse, Explains, without_leader, without_operators
from tests.faults.fault import API, CLOCKS, LEASES, OPERATORS, WATCHES, Fault, Parts, Scale
from tests.faults.operators import Operator
from tests.faults.world import EAST_CLUSTER, World

REPLICAS = 3
LEADER = -1
"""Number that stands for the replica which leads when the fault begins."""


def _replica(world: World, number: int) -> Operator:
    return world.east_operators[(world.leader() if number == LEADER else number) % len(world.east_operators)]


def _draw_replica(random: Random) -> int:
    numbers: list[int] = [LEADER, LEADER, *range(REPLICAS)]
    return random.choice(numbers)


@dataclass(frozen=True, slots=True)
class OperatorKilled(Fault):
    """An operator gets SIGKILL, and is started again later."""

    replica: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({OPERATORS})
    needs: ClassVar[Parts] = frozenset({LEASES})
    excused: ClassVar[tuple[Excuse, ...]] = without_leader(EAST_CLUSTER)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(_draw_replica(random), scale.draw(random, 0, 30))

    def begin(self, world: World) -> Callable[[], None]:
        operator = _replica(world, self.replica)
        operator.kill()
        return operator.launch


@dataclass(frozen=True, slots=True)
class OperatorPaused(Fault):
    """An operator is frozen by SIGSTOP, and wakes up with outdated knowledge."""

    replica: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({OPERATORS})

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        return (
            *without_leader(EAST_CLUSTER),
            Excuse(Explains.LOSS, cluster=EAST_CLUSTER, margin_seconds=KNOWLEDGE_SECONDS),
        )

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(_draw_replica(random), scale.draw(random, 3, 40))

    def begin(self, world: World) -> Callable[[], None]:
        operator = _replica(world, self.replica)
        operator.pause()
        return operator.resume


@dataclass(frozen=True, slots=True)
class LeaderStopped(Fault):
    """The leader gets SIGTERM, releases the Lease, and ends in order."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({OPERATORS})
    needs: ClassVar[Parts] = frozenset({LEASES})
    excused: ClassVar[tuple[Excuse, ...]] = without_leader(EAST_CLUSTER)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 0, 10))

    def begin(self, world: World) -> Callable[[], None]:
        operator = _replica(world, LEADER)
        operator.stop()
        return operator.launch


@dataclass(frozen=True, slots=True)
class LeaderCutOff(Fault):
    """The leader alone loses the API server for longer than its Lease lasts, so that another replica
    leads.
    """

    hangs: bool
    seconds: float
    takes: ClassVar[Parts] = frozenset({OPERATORS, WATCHES})
    needs: ClassVar[Parts] = frozenset({API})
    excused: ClassVar[tuple[Excuse, ...]] = without_leader(EAST_CLUSTER)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(random.random() < 0.5, scale.draw(random, 8, 40))

    def begin(self, world: World) -> Callable[[], None]:
        tcp_proxy = _replica(world, LEADER).tcp_proxy
        if self.hangs:
            tcp_proxy.hang()
        else:
            tcp_proxy.refuse()
        return tcp_proxy.heal


@dataclass(frozen=True, slots=True)
class AllOperatorsKilled(Fault):
    """All operators are killed for a while that is shorter than the Eureka leases."""

    seconds: float
    takes: ClassVar[Parts] = frozenset({OPERATORS})
    needs: ClassVar[Parts] = frozenset({LEASES, API})
    excused: ClassVar[tuple[Excuse, ...]] = without_operators(EAST_CLUSTER)

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        return cls(scale.draw(random, 1, 25))

    def begin(self, world: World) -> Callable[[], None]:
        for operator in world.east_operators:
            operator.kill()

        def end() -> None:
            for operator in world.east_operators:
                operator.launch()

        return end


@dataclass(frozen=True, slots=True)
class ClockStepped(Fault):
    """An operator's wall clock is stepped, and stays so until the end."""

    replica: int
    step_seconds: int
    seconds: float
    takes: ClassVar[Parts] = frozenset({CLOCKS})
    # A leader whose clock is ahead takes another one's record of a waiting pod for older than it is.
    excused: ClassVar[tuple[Excuse, ...]] = (
        Excuse(Explains.GATE, cluster=EAST_CLUSTER, margin_seconds=LONGEST_SILENCE_SECONDS),
    )

    @classmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        step = random.choice([60, 3600, 86400 * 400]) * random.choice([-1, 1])
        return cls(_draw_replica(random), step, scale.draw(random, 5, 40))

    def begin(self, world: World) -> Callable[[], None]:
        operator = _replica(world, self.replica)
        operator.step_clock(self.step_seconds)
        return lambda: operator.step_clock(0)
