"""The share of all sequences that one of several exploring processes tries."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from traceback import format_exc
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Judged(Protocol):
    """The result of a sequence.

    :ivar violations: the violated rules; empty for none.
    """

    violations: list[str]


_Outcome = TypeVar("_Outcome", bound=Judged)


@dataclass(frozen=True, slots=True)
class Part:
    """One of several parts of an exploration, numbered from 0; no two parts try the same single fault."""

    number: int = 0
    of: int = 1

    def dealt(self, seed: int, everything: list[_T]) -> list[_T]:
        """Return this part's share of ``everything``, in an order that the seed draws."""
        random.Random(seed).shuffle(everything)  # noqa: S311 - replayed by its seed
        return everything[self.number :: self.of]

    def draw(self, seed: int) -> random.Random:
        """Return this part's source of random numbers."""
        return random.Random(seed if self.of == 1 else f"{seed} {self.number}")  # noqa: S311 - as above


WHOLE = Part()


def guarded(sequence: Callable[[], str], replay: Callable[[], str]) -> str:
    """Run a sequence; return its violations, or the exception that it raised as one."""
    try:
        return sequence()
    except Exception:  # noqa: BLE001 - shown as a violation
        return f"{replay()}: the sequence cannot be run\n{format_exc()}"


def shrunk(
    sequence: _T, outcome: _Outcome, run: Callable[[_T], _Outcome], shorter: Callable[[_T], Iterable[_T]]
) -> tuple[_T, _Outcome]:
    """Return the shortest sequence that still violates a rule, and its outcome.

    :param outcome: of ``sequence`` itself, which violates a rule.
    :param shorter: gives the sequences that are shorter by one element.
    """
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for less in shorter(sequence):
            again = run(less)
            if again.violations:
                sequence, outcome, is_shorter = less, again, True
                break
    return sequence, outcome


def without_one(faults: Mapping[int, _T]) -> Iterator[Mapping[int, _T]]:
    """Yield the faults without one of them, for each fault."""
    for at in faults:
        yield {other: one for other, one in faults.items() if other != at}


def kind(failure: str) -> str:
    """Return the kind of a violation: its first line with every number replaced by 0."""
    return re.sub(r"\d+", "0", failure.split("\n", 1)[0])
