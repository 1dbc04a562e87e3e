"""Exploration of mirrors by ``python -m tests.explore``: kills, lost requests, and acts of others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tests.explore.explorer import command
from tests.explore.operator.mirror_edits import ACTS, FAULTS, KILLS, MIRROR_EDITS, MirrorEdit
from tests.explore.operator.mirrors import MirrorsExplored
from tests.explore.operator.stepwise import owned
from tests.explore.operator.world import Fault, Happening
from tests.explore.part import WHOLE, Part, guarded, shrunk, without_one

NAMES = tuple(one.name for one in MIRROR_EDITS)
SERVERS = (1, 2)
HAPPENINGS: tuple[Happening, ...] = (*KILLS, *FAULTS, *ACTS)

_MOST_FAULTS = 4

Faults = Mapping[int, Happening]


def tried(edit: MirrorEdit, faults: Faults, servers: int = 1, seed: int = 0) -> str:
    """Run a sequence; return its violations with the fewest faults that show them and the trace, or
    nothing.
    """
    outcome = MirrorsExplored(edit, faults, servers, seed=seed).run()
    if not outcome.violations:
        return ""
    faults, outcome = shrunk(
        faults, outcome, lambda less: MirrorsExplored(edit, less, servers, seed=seed).run(), without_one
    )
    said = f"{edit.name}: {'; '.join(outcome.violations)}\n  {replay(edit, faults, servers, seed)}"
    return "\n".join([said, *(f"  {one}" for one in outcome.trace)])


def replay(edit: MirrorEdit, faults: Faults, servers: int, seed: int) -> str:
    """Return the command that runs a sequence again."""
    happenings = ", ".join(
        f"{at}: {f'Fault.{one.name}' if isinstance(one, Fault) else one.__name__}"
        for at, one in faults.items()
    )
    return command(f"mirrors.tried(mirror_edit({edit.name!r}), {{{happenings}}}, {servers}, {seed})")


def sequences(
    seed: int, end: float, edits: Sequence[MirrorEdit] = MIRROR_EDITS, part: Part = WHOLE
) -> Iterator[str]:
    """Try sequences until the time ``end``; yield the violations of each, or nothing.

    Each sequence has a random order of its own. Every edit comes without a fault first, then edits with up to
    four faults. An edit with a violation is not tried again; the others are.
    """
    draw, left = part.draw(seed), list(edits)
    places: dict[tuple[MirrorEdit, int], list[int]] = {}

    def outcome(edit: MirrorEdit, faults: Faults, servers: int) -> str:
        order = draw.randrange(1_000_000)
        failure = guarded(
            lambda: tried(edit, faults, servers, order), lambda: replay(edit, faults, servers, order)
        )
        if failure:
            left.remove(edit)
        return failure

    with owned():
        for edit, servers in product(edits, SERVERS):
            if edit in left:
                places[edit, servers] = MirrorsExplored(edit, {}, servers).run().numbers
                yield outcome(edit, {}, servers)
        while left and time.monotonic() < end:
            edit, servers = draw.choice(left), draw.choice(SERVERS)
            there = places[edit, servers]
            chosen = sorted(draw.sample(there, min(draw.randint(1, _MOST_FAULTS), len(there))))
            yield outcome(edit, {at: draw.choice(HAPPENINGS) for at in chosen}, servers)
