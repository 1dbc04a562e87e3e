"""``python -m tests.explore``: explore single faults first, then random sets of them, in several processes.

Each process has a seed of its own, which follows from the printed one: the same seed and number of processes
give the same sequences in the same order, until the time ends.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys

from tests.explore import campaign, sides
from tests.explore.fleet import Fleet, Order


def main() -> int:
    """Explore; return 1 if a rule was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [one a core]")
    parser.add_argument("--of", choices=sides.NAMES, help="only these")
    parser.add_argument("--edit", help="this edit only")
    parser.add_argument(
        "--share",
        type=float,
        default=0.9,
        help="of the time, what stacks get; the rest is the others' [0.9]",
    )
    parser.add_argument("--first", action="store_true", help="end at the first violation")
    parser.add_argument("--replay", metavar="SEQUENCE", help="run the one that a failure names")
    given = parser.parse_args()
    if given.replay:
        logging.disable(logging.CRITICAL)
        with campaign.quiet():
            failure = sides.replayed(given.replay)
        print(failure or "nothing is violated")
        return 1 if failure else 0
    order = Order(given.seed, given.minutes, max(1, given.jobs), given.of, given.edit, given.share)
    if not order.sides:
        parser.error(f"there is no such edit: {given.edit!r}")
    return Fleet(order, ends_at_first=given.first).run()


if __name__ == "__main__":
    sys.exit(main())
