"""``python -m tests.explore``: every single fault, then random sets of them, until the time is over."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import logging
import random
import sys
import time
from collections.abc import Iterator

from tests.explore.explorer import Explored, Faults, Outcome, explore, told
from tests.explore.operator import campaign
from tests.explore.operator import edits as cluster_edits
from tests.explore.programs import EDITS, SECOND_THOUGHTS, Edit
from tests.explore.world import Fault

_MOST_FAULTS = 5


def main() -> int:
    """Explore; 1 where something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--edit", help="this edit only")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    edits = [edit for edit in (*EDITS, *SECOND_THOUGHTS) if arguments.edit in (None, edit.name)]
    of_clusters = tuple(edit for edit in cluster_edits.EDITS if arguments.edit in (None, edit.name))
    seconds = arguments.minutes * 60 / (bool(edits) + bool(of_clusters) or 1)
    number = len(edits) + len(of_clusters)
    print(f"exploring {number} edits for {arguments.minutes} minutes, seed {arguments.seed}", flush=True)
    tried = 0
    for failure in itertools.chain(
        _of_stacks(edits, arguments.seed, seconds), _of_clusters(of_clusters, arguments.seed, seconds)
    ):
        tried += 1
        if failure:
            print(failure)
            print(f"{tried} sequences until a violation, seed {arguments.seed}")
            return 1
    print(f"{tried} sequences without a violation, seed {arguments.seed}")
    return 0


def _of_stacks(edits: list[Edit], seed: int, seconds: float) -> Iterator[str]:
    """What did not hold in each sequence of a stack's edits; empty where all did."""
    for edit, faults, outcome in _all(edits, seed, time.monotonic() + seconds) if edits else ():
        yield told(edit, faults, outcome) if outcome.violations else ""


def _of_clusters(edits: tuple[cluster_edits.Edit, ...], seed: int, seconds: float) -> Iterator[str]:
    """The same beside an operator, of a cluster's edits."""
    if edits:
        yield from campaign.sequences(seed, time.monotonic() + seconds, edits)


def _all(edits: list[Edit], seed: int, end: float) -> Iterator[tuple[Edit, Faults, Outcome]]:
    """What is tried, until ``end``."""
    draw = random.Random(seed)  # noqa: S311 - replayed by its seed
    lengths: dict[str, int] = {}
    with contextlib.redirect_stderr(io.StringIO()):  # what the providers say of each sequence
        for edit in edits:
            for faults, outcome in explore(edit, most_faults=1):
                lengths.setdefault(edit.name, outcome.requests)
                yield edit, faults, outcome
            for faults, outcome in explore(edit, most_faults=1, servers=2):
                yield edit, faults, outcome
        # What needs a refresh, or the same program once more, is not asked of several faults at once.
        any_faults = [edit for edit in edits if edit in EDITS]
        while any_faults and time.monotonic() < end:
            edit = draw.choice(any_faults)
            places = draw.sample(range(3 * lengths[edit.name]), draw.randint(2, _MOST_FAULTS))
            faults = {place: draw.choice(list(Fault)) for place in sorted(places)}
            yield edit, faults, Explored(edit, faults).run()


if __name__ == "__main__":
    sys.exit(main())
