"""What ``python -m tests.explore`` tries of the operator: every single fault, and several at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from eurekube_provider.eureka.connection import Mode
from tests.explore.operator.acts import ACTS
from tests.explore.operator.edits import EDITS, MIXED, Edit, together
from tests.explore.operator.explorer import Explored, Faults, Setup, told
from tests.explore.operator.world import Fault, Happening, owned

SETUPS = (
    Setup(1),
    Setup(2),
    Setup(3),
    Setup(1, replicas=2),
    Setup(2, replicas=2),
    Setup(1, chance=20),
    Setup(3, replicas=2, chance=5),
    Setup(2, mode=Mode.BATCH),
    Setup(3, replicas=2, mode=Mode.BATCH),
)

HAPPENINGS: tuple[Happening, ...] = (*Fault, *ACTS)

_MOST_FAULTS = 4

_BEGINS = (0.0, 0.0, 0.01, 0.5, 2.0, 5.0)
"""When edits begin that happen together, in seconds."""


def sequences(seed: int, end: float, edits: tuple[Edit, ...] = EDITS) -> Iterator[str]:
    """Try sequences until ``end``; what did not hold of each, or nothing.

    Each edit without a fault comes first. Then each single fault, once, in an order that the seed draws, with
    sets of several, and edits that happen together, in between.
    """
    draw = random.Random(seed)  # noqa: S311 - replayed by its seed
    with owned():
        places: dict[tuple[Edit, Setup], list[int]] = {}
        for edit in edits:
            for setup in SETUPS:
                outcome = Explored(edit, {}, setup).run()
                places[edit, setup] = [at for at, what in enumerate(outcome.places) if what]
                yield told(edit, {}, outcome, setup) if outcome.violations else ""
        singles = [
            (edit, setup, at, happening)
            for (edit, setup), numbers in places.items()
            for at in numbers
            for happening in HAPPENINGS
        ]
        draw.shuffle(singles)
        while time.monotonic() < end:
            faults: Faults
            kind = draw.random()
            if singles and kind < 0.5:
                edit, setup, at, happening = singles.pop()
                faults = {at: happening}
            elif kind < 0.75 and len(edits) > 1:
                count = draw.randint(2, 3)
                edit = together(*((draw.choice(MIXED), draw.choice(_BEGINS)) for _ in range(count)))
                setup = draw.choice(SETUPS)
                chosen = sorted(draw.sample(range(60), draw.randint(0, 2)))
                faults = {at: draw.choice(HAPPENINGS) for at in chosen}
            else:
                edit, setup = draw.choice(edits), draw.choice(SETUPS)
                numbers = range(2 * max(places[edit, setup]))
                count = draw.randint(2, _MOST_FAULTS)
                chosen = sorted(draw.sample(numbers, count))
                faults = {at: draw.choice(HAPPENINGS) for at in chosen}
            yield tried(edit, faults, setup)


def tried(edit: Edit, faults: Faults, setup: Setup, seed: int = 0) -> str:
    """What did not hold in a sequence, shrunk to its shortest; empty where all did."""
    outcome = Explored(edit, faults, setup, seed=seed).run()
    if not outcome.violations:
        return ""
    is_shorter = True
    while is_shorter and len(faults) > 1:
        is_shorter = False
        for at in faults:
            fewer = {other: one for other, one in faults.items() if other != at}
            again = Explored(edit, fewer, setup, seed=seed).run()
            if again.violations:
                faults, outcome, is_shorter = fewer, again, True
                break
    return told(edit, faults, outcome, setup)
