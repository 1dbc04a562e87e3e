"""Faults: each fault draws its parameters from the seed, begins, lasts, and ends.

Who is meant is drawn as a role or a number (the leader, the second server), so that the same seed does the
same to another run. What a fault *takes* nobody else may disturb while it lasts, and what it *needs* must be
left alone by the others: the invariants must be able to hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from tests.faults.excuse import Excuse
from tests.faults.world import World

API = "the API of east"
LEASES = "leases: who renews must be able to, or to hand over"
OPERATORS = "the operators of east"
WATCHES = "the watches of east"
EUREKA = "the Eureka servers"
WORKLOADS = "the workloads of east"
WEST = "west"
NAMED_EUREKA = "the named Eureka server"
CLOCKS = "the clocks"

Parts = frozenset[str]


@dataclass(frozen=True, slots=True)
class Scale:
    """How long things take: the long form has everything, the short one is scaled down and says so.

    :param longest_seconds: of a fault, where its kind does not say more.
    :param away_seconds: for how long the API server is away.
    :param silent_seconds: for how long a watch says nothing.
    """

    longest_seconds: float = 40.0
    away_seconds: float = 600.0
    silent_seconds: float = 120.0

    def draw(self, random: Random, shortest: float, longest: float) -> float:
        """A duration, in tenths of a second."""
        longest = min(longest, self.longest_seconds)
        return round(random.uniform(min(shortest, longest), longest), 1)


class Fault(ABC):
    """One thing that goes wrong, with its parameters.

    :cvar takes: the parts that no other fault may disturb meanwhile; ``needs``: those that others must leave
        alone; ``excused`` what the witness may see because of it, where no parameter says where.
    :ivar seconds: how long it lasts, apart from the time that its beginning and its end take.
    """

    __slots__ = ()
    takes: ClassVar[Parts] = frozenset()
    needs: ClassVar[Parts] = frozenset()
    excused: ClassVar[tuple[Excuse, ...]] = ()
    seconds: float

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        """Return the excuses of this fault:"""
        return self.excused

    @classmethod
    @abstractmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        """With parameters of the seed's choice."""

    @abstractmethod
    def begin(self, world: World) -> Callable[[], None]:
        """Let it happen; returns what ends it."""


def nothing() -> None:
    """Nothing has to be ended."""
