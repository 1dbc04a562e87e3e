"""Exploration of the operator by ``python -m tests.explore``: every single fault, and several at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from eurekube_provider.eureka.connection import BatchMode
from tests.explore.operator import syncers
from tests.explore.operator.acts import (
    ACTS,
    a_server_freezes,
    a_server_restarts_empty,
    a_server_restarts_with_a_copy,
    a_stack_removes_behind_a_split,
    servers_lose_each_other,
)
from tests.explore.operator.edits import EDITS, GATED_EDITS, MIXED, Edit, together
from tests.explore.operator.explorer import Explored, Faults, Setup, describe_failure, replay
from tests.explore.operator.world import Fault, Happening, owned
from tests.explore.part import WHOLE, Part, guarded, shrunk, without_one

SETUPS = (
    Setup(1),
    Setup(2),
    Setup(3),
    Setup(1, replicas=2),
    Setup(2, replicas=2),
    Setup(1, chance=20),
    Setup(3, replicas=2, chance=5),
    Setup(1, replicas=2, mode=BatchMode.BATCH),
    Setup(2, mode=BatchMode.BATCH),
    Setup(3, replicas=2, mode=BatchMode.BATCH),
)

BALANCED = (Setup(2, is_balanced=True),)
"""Setups with a balancer, which are tried with single faults only."""

REPLACED_AT_ONCE = (
    "a StatefulSet's pod is replaced in one event, shown until it is gone",
    "a StatefulSet's pod is replaced at once, shown until it is gone",
)
"""Edits that behind a balancer may leave a pod out of service: see docs/reference/registry.md."""

HAPPENINGS: tuple[Happening, ...] = (*Fault, *ACTS)

_OF_SERVERS = (
    a_server_freezes,
    a_server_restarts_empty,
    a_server_restarts_with_a_copy,
    a_stack_removes_behind_a_split,
    servers_lose_each_other,
)

_MOST_FAULTS = 4

_DRAWN_SYNCERS = 0.15
"""The probability that a sequence of random syncers comes before the next fault."""

_BEGINS = (0.0, 0.0, 0.01, 0.5, 2.0, 5.0)
"""Seconds after which edits that are combined may begin."""


ALL_EDITS = (*EDITS, *GATED_EDITS)


def sequences(
    seed: int, end: float, edits: tuple[Edit, ...] = ALL_EDITS, part: Part = WHOLE
) -> Iterator[str]:
    """Try sequences until the time ``end``; yield the violations of each, or nothing.

    Each edit comes without a fault first. Then come single faults, each once, in an order that the seed
    draws, mixed with sets of several faults, combined edits and random syncers. An edit with a violation is
    not tried again; the others are.
    """
    draw, failed = part.draw(seed), set()

    def outcome(edit: Edit, faults: Faults, setup: Setup) -> str:
        failure = guarded(lambda: tried(edit, faults, setup), lambda: replay(edit, faults, setup))
        if failure:
            failed.add(edit)
        return failure

    with owned():
        places: dict[tuple[Edit, Setup], list[int]] = {}
        for edit in edits:
            for setup in (*SETUPS, *BALANCED):
                if edit in failed:
                    break
                if setup.is_balanced and edit.name in REPLACED_AT_ONCE:
                    continue
                calm = Explored(edit, {}, setup).run()
                places[edit, setup] = calm.numbers
                yield outcome(edit, {}, setup) if calm.violations else ""
        singles = part.dealt(
            seed,
            [
                (edit, setup, at, happening)
                for (edit, setup), numbers in places.items()
                for at in numbers
                for happening in _happenings(setup)
            ],
        )
        while time.monotonic() < end:
            faults: Faults
            if len(edits) > 1 and draw.random() < _DRAWN_SYNCERS:
                number = draw.randrange(1_000_000_000)
                yield guarded(partial(syncers.tried, number), partial(syncers.replay, number))
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
                if (edit, setup) not in places:
                    continue
                numbers = range(max(2 * max(places[edit, setup]), _MOST_FAULTS))
                count = draw.randint(2, _MOST_FAULTS)
                chosen = sorted(draw.sample(numbers, count))
                faults = {at: draw.choice(HAPPENINGS) for at in chosen}
            if edit not in failed:
                yield outcome(edit, faults, setup)
            elif failed.issuperset(edits):
                return


def _happenings(setup: Setup) -> tuple[Happening, ...]:
    """Return the possible events; behind a balancer those with known consequences are left out
    (docs/reference/registry.md).

    After a late answer, or a request that is carried out late, a pod's name may be taken again just after its
    status was set.
    """
    remains = (*_OF_SERVERS, Fault.SLOW, Fault.LATE) if setup.is_balanced else ()
    return tuple(one for one in HAPPENINGS if one not in remains)


def tried(edit: Edit, faults: Faults, setup: Setup, seed: int = 0) -> str:
    """Run a sequence; return its violations with the shortest sequence that shows them, or nothing."""
    outcome = Explored(edit, faults, setup, seed=seed).run()
    if not outcome.violations:
        return ""
    (edit, faults, setup), outcome = shrunk(
        (edit, faults, setup), outcome, lambda less: Explored(*less, seed=seed).run(), _shorter
    )
    return describe_failure(edit, faults, outcome, setup)


def _shorter(sequence: tuple[Edit, Faults, Setup]) -> Iterator[tuple[Edit, Faults, Setup]]:
    """Yield sequences with one fault, edit, replica or server less."""
    edit, faults, setup = sequence
    for fewer in without_one(faults):
        yield edit, fewer, setup
    for part in edit.parts:
        if len(edit.parts) > 1:
            yield together(*(other for other in edit.parts if other is not part)), faults, setup
    if setup.chance:
        yield edit, faults, replace(setup, chance=0)
    if setup.replicas > 1:
        yield edit, faults, replace(setup, replicas=1)
    if setup.servers > 1:
        yield edit, faults, replace(setup, servers=setup.servers - 1)
