"""Faults: a fault draws its parameters from the seed, begins, lasts, and ends.

The target is drawn as a role or a number (the leader, the second server), so that the same seed has the same
effect in another run. While a fault lasts, no other fault may touch the parts that it *takes* or *needs*, so
that the invariants can hold.
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
    """Bounds on the length of faults: the long form has full ones, the short form smaller ones.

    :param longest_seconds: of a fault, where its kind does not say more.
    :param away_seconds: for how long the API server is away.
    :param silent_seconds: for how long a watch says nothing.
    :param left_seconds: for how long a Service has left its namespace's syncer, which keeps it for a minute.
    """

    longest_seconds: float = 40.0
    away_seconds: float = 600.0
    silent_seconds: float = 120.0
    left_seconds: float = 80.0

    def draw(self, random: Random, shortest: float, longest: float) -> float:
        """Draw a duration in seconds, rounded to tenths."""
        longest = min(longest, self.longest_seconds)
        return round(random.uniform(min(shortest, longest), longest), 1)


class Fault(ABC):
    """A fault with its parameters.

    :cvar takes: the parts that no other fault may disturb meanwhile.
    :cvar needs: the parts that other faults must not take.
    :cvar excused: the excuses for the witness, where no parameter names a place.
    :ivar seconds: how long it lasts, apart from the time that its beginning and its end take.
    """

    __slots__ = ()
    takes: ClassVar[Parts] = frozenset()
    needs: ClassVar[Parts] = frozenset()
    excused: ClassVar[tuple[Excuse, ...]] = ()
    seconds: float

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        """The deviations that the witness must excuse because of this fault."""
        return self.excused

    @classmethod
    @abstractmethod
    def draw(cls, random: Random, scale: Scale) -> Self:
        """Make a fault with random parameters."""

    @abstractmethod
    def begin(self, world: World) -> Callable[[], None]:
        """Begin the fault; return the function that ends it."""


def nothing() -> None:
    """Do nothing, as the end of a fault that needs none."""
