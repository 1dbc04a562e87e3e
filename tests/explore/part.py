"""The share of all sequences that one of several processes tries."""

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
    """One of so many parts, counted from 0: no other one tries its single faults."""

    number: int = 0
    of: int = 1

    def dealt(self, seed: int, everything: list[_T]) -> list[_T]:
        """Return this part's share of ``everything``, in an order that the seed draws."""
        random.Random(seed).shuffle(everything)  # noqa: S311 - replayed by its seed
        return everything[self.number :: self.of]

    def draw(self, seed: int) -> random.Random:
        """Return this part's random source."""
        return random.Random(seed if self.of == 1 else f"{seed} {self.number}")  # noqa: S311 - as above


WHOLE = Part()


def guarded(sequence: Callable[[], str], replay: Callable[[], str]) -> str:
    """Return the violations of a sequence; an exception is one of them."""
    try:
        return sequence()
    except Exception:  # noqa: BLE001 - shown as a violation
        return f"{replay()}: the sequence cannot be run\n{format_exc()}"


def shrunk(
    sequence: _T, outcome: _Outcome, run: Callable[[_T], _Outcome], shorter: Callable[[_T], Iterable[_T]]
) -> tuple[_T, _Outcome]:
    """The shortest sequence of which something does not hold, and what it came to.

    :param outcome: of ``sequence`` itself, of which something does not hold.
    :param shorter: the sequences that are by one thing shorter.
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
    """The same faults but one, for each of them."""
    for at in faults:
        yield {other: one for other, one in faults.items() if other != at}


def kind(failure: str) -> str:
    """Return the kind of a violation: its first line without its figures."""
    return re.sub(r"\d+", "0", failure.split("\n", 1)[0])
