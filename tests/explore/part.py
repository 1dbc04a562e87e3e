"""Which part of all sequences one of several processes tries."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exc
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """One of so many parts, counted from 0: no other one tries its single faults."""

    number: int = 0
    of: int = 1

    def dealt(self, seed: int, everything: list[_T]) -> list[_T]:
        """What of ``everything`` is this part's, in an order that the seed draws."""
        random.Random(seed).shuffle(everything)  # noqa: S311 - replayed by its seed
        return everything[self.number :: self.of]

    def draw(self, seed: int) -> random.Random:
        """What this part draws from."""
        return random.Random(seed if self.of == 1 else f"{seed} {self.number}")  # noqa: S311 - as above


WHOLE = Part()


def guarded(sequence: Callable[[], str], replay: Callable[[], str]) -> str:
    """What did not hold of a sequence; one that raises says so, and others go on."""
    try:
        return sequence()
    except Exception:  # noqa: BLE001 - shown as a violation
        return f"{replay()}: the sequence cannot be run\n{format_exc()}"


def kind(failure: str) -> str:
    """What makes a violation another one than those before: its first line without its figures."""
    return re.sub(r"\d+", "0", failure.split("\n", 1)[0])
