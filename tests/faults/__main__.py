"""``python -m tests.faults --seed 42 --minutes 60``: run a storm, with a log to follow."""

from __future__ import annotations

import argparse
import sys
import time
from random import SystemRandom

from lab import LabError
from tests.faults.fault import Scale
from tests.faults.faults import KINDS
from tests.faults.operator_faults import REPLICAS
from tests.faults.storm import Storm, StormFailure, run, schedule
from tests.faults.world import World


def main() -> int:
    """Run a storm; return 0 if every invariant held, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="draws everything; by default a new one, which is printed")
    parser.add_argument("--minutes", type=float, default=10.0, help="no round begins later [10]")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead of minutes")
    parser.add_argument(
        "--only", default="", metavar="KIND[,KIND...]", help=f"of {', '.join(one.__name__ for one in KINDS)}"
    )
    parser.add_argument("--away-seconds", type=float, help="how long the API server is away [minutes x 10]")
    parser.add_argument("--slack", type=float, default=1.0, help="multiplies time limits, for a busy machine")
    parser.add_argument("--replicas", type=int, default=REPLICAS, help=f"of the operator [{REPLICAS}]")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else SystemRandom().randrange(1_000_000)
    away = options.away_seconds or min(600.0, options.minutes * 10)
    only = options.only.split(",") if options.only else [one.__name__ for one in KINDS]
    kinds = tuple(one for one in KINDS if one.__name__ in only)
    storm = Storm(Scale(away_seconds=away), kinds, slack=options.slack)
    plan = schedule(seed, storm, minutes=options.minutes, count=options.rounds)
    began = time.monotonic()

    def say(words: str) -> None:
        now = time.monotonic() - began
        print(f"{time.strftime('%H:%M:%S')} {int(now // 60):3}:{now % 60:04.1f} {words}", flush=True)

    say(f"seed {seed}, {options.minutes:g} minutes; the API server is away for {away:.0f} s when it is")
    for number, planned in enumerate(plan, start=1):
        say(f"round {number}:")
        for one in planned:
            say(f"  {one}")
    again = f"python -m tests.faults --seed {seed} --minutes {options.minutes:g} --away-seconds {away:g}"
    again += f" --only {options.only}" if options.only else ""
    again += f" --rounds {options.rounds}" if options.rounds else ""
    world = World(options.replicas, away, options.slack)
    try:
        with world:
            say("the world stands")
            done = run(world, plan, storm, say, minutes=None if options.rounds else options.minutes)
            say(f"clean: {done} rounds, {world.readings()}")
    except (StormFailure, LabError, TimeoutError) as error:
        say(f"FAILED: {error}")
        say(f"the logs: {world.directory / 'logs'}")
        say(f"the same again: {again}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
