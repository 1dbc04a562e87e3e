"""The storm: rounds of random faults, after each of which all servers must agree again.

One seed gives one schedule. Within a round faults overlap unless they disturb what another one takes or
needs.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.faults.fault import Fault, Scale
from tests.faults.faults import KINDS
from tests.faults.operators import ROOT
from tests.faults.witness import summarised
from tests.faults.world import World

FEWEST, MOST = 3, 6
"""Smallest and largest number of faults in one round."""

SPREAD_SECONDS = 25.0
"""Seconds within which the faults of a round begin."""

REST_SECONDS = 10.0
"""Seconds between the end of one fault and the beginning of another that takes the same parts."""

LEVEL_SECONDS = 120.0
"""Longest time from the last fault until all servers agree, in seconds: 60 s, and 60 s for the brake."""

STEADY_SECONDS = 3.0
"""Seconds for which the servers must go on agreeing."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault, and the second of its round at which it begins."""

    at: float
    fault: Fault

    def __str__(self) -> str:
        return f"at {self.at:5.1f} s  {self.fault}"

    def disturbs(self, other: Planned, rest_seconds: float) -> bool:
        """Return whether two faults use the same parts too soon after each other."""
        apart = (
            self.at + self.fault.seconds + rest_seconds <= other.at
            or other.at + other.fault.seconds + rest_seconds <= self.at
        )
        return self.shares(other) and not apart

    def shares(self, other: Planned) -> bool:
        """Return whether one fault takes parts that the other takes or needs."""
        mine, others = self.fault, other.fault
        return bool((mine.takes & (others.takes | others.needs)) | (others.takes & mine.needs))


@dataclass(frozen=True, slots=True)
class Storm:
    """The kinds of faults in a storm, and its bounds.

    :param kinds: the faults that may happen.
    :param always: for each round the faults that it has in any case; after the last entry the first one
        follows again.
    :param rest_seconds: between the end of one fault and the beginning of another that takes the same.
    :param slack: how many times longer than promised everything may take, on a machine that others load.
    """

    scale: Scale
    kinds: tuple[type[Fault], ...] = KINDS
    always: tuple[tuple[type[Fault], ...], ...] = ((),)
    fewest: int = FEWEST
    most: int = MOST
    spread_seconds: float = SPREAD_SECONDS
    rest_seconds: float = REST_SECONDS
    slack: float = 1.0


class StormFailure(AssertionError):
    """An invariant did not hold."""


def rounds(random: Random, storm: Storm) -> Iterator[tuple[Planned, ...]]:
    """Yield rounds without end; every kind of fault comes once before any comes again."""
    deck: list[type[Fault]] = []
    for always in itertools.cycle(storm.always):
        number = random.randint(storm.fewest, storm.most)
        chosen: list[Planned] = [_drawn(kind, random, storm) for kind in always]
        passed: list[type[Fault]] = []
        while len(chosen) < number and (deck or not passed):
            if not deck:
                deck = list(storm.kinds)
                random.shuffle(deck)
            kind = deck.pop()
            planned = _drawn(kind, random, storm)
            if any(planned.disturbs(one, storm.rest_seconds) for one in chosen):
                passed.append(kind)
            else:
                chosen.append(planned)
        deck += reversed(passed)  # first in the next round
        yield tuple(sorted(chosen, key=lambda one: one.at))


def _drawn(kind: type[Fault], random: Random, storm: Storm) -> Planned:
    return Planned(round(random.uniform(0, storm.spread_seconds), 1), kind.draw(random, storm.scale))


def seed_of_commit(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number in ``SEED``, or else a number that follows from the commit."""
    said = environment.get("SEED")
    if said:
        return int(said)
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0  # no commit is known: an archive of the sources
    return int(done.stdout[:8], 16) % 1_000_000


def schedule(seed: int, storm: Storm, *, minutes: float = 0, count: int = 0) -> list[tuple[Planned, ...]]:
    """Return the rounds of a seed: a given number, or as many as last that many minutes."""
    result: list[tuple[Planned, ...]] = []
    lasts = 0.0
    for one in rounds(Random(seed), storm):  # noqa: S311 - chance that can be repeated is what is wanted
        if (count and len(result) == count) or (not count and lasts >= minutes * 60):
            return result
        result.append(one)
        lasts += max(planned.at + planned.fault.seconds for planned in one)
    return result


def run(
    world: World,
    plan: Sequence[tuple[Planned, ...]],
    storm: Storm,
    say: Callable[[str], None],
    *,
    minutes: float | None = None,
) -> int:
    """Carry out the rounds until the time is over; return how many there were.

    :raises StormFailure: an invariant did not hold; says which, and what was seen.
    """
    say(
        f"all registered {world.wait_level(LEVEL_SECONDS * storm.slack):.1f} s after the operators were ready"
    )
    began = time.monotonic()
    for number, planned in enumerate(plan, start=1):
        if minutes is not None and time.monotonic() - began >= minutes * 60:
            return number - 1
        say(f"round {number} of at most {len(plan)}")
        world.wish_out_of_service()
        world.witness.round_begins()
        carry_out(world, planned, say)
        world.heal()
        try:
            world.calm()
            took = world.wait_level(LEVEL_SECONDS * storm.slack)
            time.sleep(STEADY_SECONDS)
            took_again = world.wait_level(LEVEL_SECONDS * storm.slack)
        except TimeoutError as error:
            _judge(world, f"{error}\n")
            raise StormFailure(str(error)) from None
        used = ", ".join(f"{count} by {fault}" for fault, count in world.excuses.used.items())
        say(f"  excused so far: {used or 'nothing'}")
        say(
            f"  all level {took:.1f} s after the last pod was ready"
            + (" and again" if took_again > 2 else "")
        )
        _judge(world)
    return len(plan)


def carry_out(world: World, planned: Sequence[Planned], say: Callable[[str], None]) -> None:
    """Begin each fault at its time, and end all of them."""
    began = time.monotonic()
    failures: list[BaseException] = []
    over = {id(what): threading.Event() for what in planned}

    def one(what: Planned) -> None:
        time.sleep(max(0.0, began + what.at - time.monotonic()))
        for earlier in planned:
            if earlier.at < what.at and earlier.shares(what):
                over[
                    id(earlier)
                ].wait()  # a restart may take longer than planned, on a machine that others load
        try:
            with world.activity(str(what.fault), what.fault.excuses):
                say(f"  {what.fault} begins")
                end = what.fault.begin(world)
                time.sleep(what.fault.seconds)
                end()
                say(f"  {what.fault} is over")
        except BaseException as error:  # noqa: BLE001 - raised again below, on the storm's own thread
            failures.append(error)
        finally:
            over[id(what)].set()

    threads = [threading.Thread(target=one, args=(what,), name=str(what.fault)) for what in planned]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        _judge(world)
        raise failure


def _judge(world: World, before: str = "") -> None:
    if world.complaints:
        count = len(world.complaints)
        raise StormFailure(
            f"{before}{count} times something happened that must not:\n{summarised(world.complaints)}"
        )
