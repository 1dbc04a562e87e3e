"""What ``python -m tests.explore`` tries of stacks: every single fault and act, and several at once."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import time
from collections.abc import Iterator, Sequence

from tests.explore.explorer import Explored, acts, singles, tried
from tests.explore.programs import EDITS, SECOND_THOUGHTS, Edit
from tests.explore.world import Fault, Faults

SERVERS = (1, 2)

_MOST_FAULTS = 5


def sequences(seed: int, end: float, edits: Sequence[Edit] = (*EDITS, *SECOND_THOUGHTS)) -> Iterator[str]:
    """Try sequences until ``end``; what did not hold of each, or nothing.

    Each single fault comes first; then single acts of others, of which there are many, in an order that the
    seed draws, with sets of several faults in between.
    """
    draw = random.Random(seed)  # noqa: S311 - replayed by its seed
    with contextlib.redirect_stderr(io.StringIO()):  # what the providers say of each sequence
        for edit, servers in itertools.product(edits, SERVERS):
            for faults in ({}, *singles(edit, servers)):
                yield tried(edit, faults, servers)
        lengths = {
            (edit.name, servers): Explored(edit, {}, servers).run().requests
            for edit, servers in itertools.product(edits, SERVERS)
        }
        of_others = [
            (edit, servers, at, act)
            for edit, servers in itertools.product(edits, SERVERS)
            for at, act in itertools.product(range(lengths[edit.name, servers]), acts(edit, servers))
        ]
        draw.shuffle(of_others)
        # What needs a refresh, or the same program once more, is not asked of several faults at once.
        any_faults = [edit for edit in edits if edit in EDITS]
        while time.monotonic() < end and (of_others or any_faults):
            if of_others:
                edit, servers, at, act = of_others.pop()
                yield tried(edit, {at: act}, servers)
            if any_faults:
                edit, servers = draw.choice(any_faults), draw.choice((1, *SERVERS))
                places = draw.sample(range(3 * lengths[edit.name, servers]), draw.randint(2, _MOST_FAULTS))
                several: Faults = {place: draw.choice(tuple(Fault)) for place in sorted(places)}
                yield tried(edit, several, servers)
