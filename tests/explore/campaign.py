"""Exploration of stacks by ``python -m tests.explore``: every single fault and act, and several at once."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from collections.abc import Iterator, Sequence

from tests.explore import generated
from tests.explore.engine import Engine, NativeEngine, RefreshingEngine
from tests.explore.explorer import Explored, acts, replay, singles, tried
from tests.explore.part import WHOLE, Part, guarded
from tests.explore.programs import EDITS, SECOND_THOUGHTS, Edit
from tests.explore.settled import Settled
from tests.explore.stateless import Stateless
from tests.explore.world import Fault, Faults

SERVERS = (1, 2)

ALL = (*EDITS, *SECOND_THOUGHTS)

_MOST_FAULTS = 5

SHELLS = (Engine, NativeEngine, RefreshingEngine)
"""Simulated engines: with the dynamic provider, with the native one, and with the native one and a read
before each update.
"""

Tool = type[Engine] | type[Stateless]
Trial = tuple[Edit, Faults, int, Tool]


def sequences(seed: int, end: float, edits: Sequence[Edit] = ALL, part: Part = WHOLE) -> Iterator[str]:
    """Try sequences until the time ``end``; yield the violations of each, or nothing.

    Each edit comes without a fault first. Then single faults, single acts of others and sets of several
    faults take turns, in an order that the seed draws; single ones come once each, and generated programs
    come between them. An edit with a violation is not tried again; the others are.
    """
    draw, failed, settled = part.draw(seed), set[str](), Settled()

    def outcome(edit: Edit, faults: Faults, servers: int, tool: Tool) -> str:
        failure = guarded(
            lambda: tried(edit, faults, servers, tool, settled), lambda: replay(edit, faults, servers, tool)
        )
        if failure:
            failed.add(edit.name)
        return failure

    with quiet():  # what the providers say of each sequence
        lengths: dict[tuple[str, int], int] = {}
        of_faults: list[Trial] = []
        of_others: list[Trial] = []
        for edit, servers in itertools.product(edits, SERVERS):
            if edit.name in failed:
                continue
            for tool in SHELLS:
                if edit.name not in failed:
                    yield outcome(edit, {}, servers, tool)
            if edit.name in failed:
                continue
            lengths[edit.name, servers] = Explored(edit, {}, servers).run().requests
            for tool in SHELLS:
                of_faults += [(edit, faults, servers, tool) for faults in singles(edit, servers, tool)]
                requests = Explored(edit, {}, servers, tool).run().requests
                of_others += [
                    (edit, {at: act}, servers, tool)
                    for at, act in itertools.product(range(requests), acts(edit, servers))
                ]
            if edit.needs_no_engine and servers == 1:
                of_faults += [(edit, faults, servers, Stateless) for faults in singles(edit, tool=Stateless)]
        of_faults, of_others = part.dealt(seed, of_faults), part.dealt(seed, of_others)
        # What needs a refresh, or the same program once more, is not asked of several faults at once.
        any_faults = [edit for edit in edits if edit in EDITS]
        is_all = len(edits) > 1
        while time.monotonic() < end and (of_faults or of_others or any_faults):
            if is_all:
                yield _generated(
                    draw.randrange(1_000_000_000), draw.choice(SHELLS), described=draw.random() < 0.5
                )
            for left in (of_faults, of_others):
                if left and (trial := left.pop())[0].name not in failed:
                    yield outcome(*trial)
            if any_faults:
                edit, servers = draw.choice(any_faults), draw.choice((1, *SERVERS))
                if edit.name in failed:
                    any_faults.remove(edit)
                    continue
                places = draw.sample(range(3 * lengths[edit.name, servers]), draw.randint(2, _MOST_FAULTS))
                several: Faults = {place: draw.choice(tuple(Fault)) for place in sorted(places)}
                yield outcome(edit, several, servers, draw.choice(SHELLS))


def _generated(seed: int, tool: type[Engine], *, described: bool) -> str:
    return guarded(
        lambda: generated.tried(seed, tool, described=described),
        lambda: generated.replay(seed, tool, described=described),
    )


def quiet() -> contextlib.AbstractContextManager[object]:
    """Hide what the code under test writes to standard error while the block runs."""
    return contextlib.redirect_stderr(io.StringIO())
