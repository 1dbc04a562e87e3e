"""What ``python -m tests.explore`` tries of stacks: every single fault and act, and several at once."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import time
from collections.abc import Iterator, Sequence

from tests.explore import generated
from tests.explore.engine import Engine
from tests.explore.explorer import Explored, acts, singles, tried
from tests.explore.programs import EDITS, SECOND_THOUGHTS, Edit
from tests.explore.stateless import Stateless
from tests.explore.world import Fault, Faults

SERVERS = (1, 2)

_MOST_FAULTS = 5

Trial = tuple[Edit, Faults, int, type[Engine] | type[Stateless]]


def sequences(seed: int, end: float, edits: Sequence[Edit] = (*EDITS, *SECOND_THOUGHTS)) -> Iterator[str]:
    """Try sequences until ``end``; what did not hold of each, or nothing.

    Each edit comes without trouble first. Then single faults, single acts of others and sets of several
    faults take turns, in an order that the seed draws; single ones come once each. Between them come
    generated programs.
    """
    draw = random.Random(seed)  # noqa: S311 - replayed by its seed
    with contextlib.redirect_stderr(io.StringIO()):  # what the providers say of each sequence
        lengths: dict[tuple[str, int], int] = {}
        of_faults: list[Trial] = []
        of_others: list[Trial] = []
        for edit, servers in itertools.product(edits, SERVERS):
            yield tried(edit, {}, servers)
            requests = lengths[edit.name, servers] = Explored(edit, {}, servers).run().requests
            of_faults += [(edit, faults, servers, Engine) for faults in singles(edit, servers)]
            if edit.needs_no_engine and servers == 1:
                of_faults += [(edit, faults, servers, Stateless) for faults in singles(edit, tool=Stateless)]
            of_others += [
                (edit, {at: act}, servers, Engine)
                for at, act in itertools.product(range(requests), acts(edit, servers))
            ]
        draw.shuffle(of_faults)
        draw.shuffle(of_others)
        # What needs a refresh, or the same program once more, is not asked of several faults at once.
        any_faults = [edit for edit in edits if edit in EDITS]
        is_all = len(edits) > 1
        while time.monotonic() < end and (of_faults or of_others or any_faults):
            if is_all:
                yield generated.tried(draw.randrange(1_000_000_000))
            for left in (of_faults, of_others):
                if left:
                    yield tried(*left.pop())
            if any_faults:
                edit, servers = draw.choice(any_faults), draw.choice((1, *SERVERS))
                places = draw.sample(range(3 * lengths[edit.name, servers]), draw.randint(2, _MOST_FAULTS))
                several: Faults = {place: draw.choice(tuple(Fault)) for place in sorted(places)}
                yield tried(edit, several, servers)
