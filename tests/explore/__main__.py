"""``python -m tests.explore``: single faults first, then random sets of them, until the time is over."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator

from tests.explore import campaign
from tests.explore.operator import campaign as of_clusters
from tests.explore.operator import edits as cluster_edits
from tests.explore.programs import EDITS, SECOND_THOUGHTS

Sequences = Callable[[int, float], Iterator[str]]
"""By a seed and the end of the time: what did not hold of each sequence, or nothing."""


def main() -> int:
    """Explore; 1 where something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--edit", help="this edit only")
    parser.add_argument("--of", choices=("stacks", "clusters"), help="only these")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seed, minutes = arguments.seed, arguments.minutes
    campaigns = _campaigns(arguments.edit)
    if arguments.of:
        campaigns = {arguments.of: campaigns[arguments.of]}
    print(f"exploring {', '.join(campaigns)} for {minutes} minutes, seed {seed}", flush=True)
    for what, sequences in campaigns.items():
        began, used, number = time.monotonic(), time.process_time(), 0
        for failure in sequences(seed, began + minutes * 60 / len(campaigns)):
            number += 1
            if failure:
                print(failure)
                used = time.process_time() - used
                print(f"{what}: a violation after {number} sequences, {used:.1f} s of the processor")
                return 1
        seconds, used = time.monotonic() - began, time.process_time() - used
        print(
            f"{what}: {number} sequences without a violation, {seconds:.0f} s ({used:.0f} s of the processor)"
        )
    return 0


def _campaigns(edit: str | None) -> dict[str, Sequences]:
    """What is explored, by its name; with one edit only where one is named."""
    stacks = tuple(one for one in (*EDITS, *SECOND_THOUGHTS) if edit in (None, one.name))
    clusters = tuple(one for one in cluster_edits.EDITS if edit in (None, one.name))
    found: dict[str, Sequences] = {}
    if stacks:
        found["stacks"] = lambda seed, end: campaign.sequences(seed, end, stacks)
    if clusters:
        found["clusters"] = lambda seed, end: of_clusters.sequences(seed, end, clusters)
    return found


if __name__ == "__main__":
    sys.exit(main())
