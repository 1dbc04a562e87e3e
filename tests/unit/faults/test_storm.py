"""Drawing of the storm's schedule of faults from a seed, without running it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.eureka_faults import NamedEurekaAway, PeerPaused, PeerSlow
from tests.faults.fault import API, Scale
from tests.faults.faults import KINDS
from tests.faults.storm import REST_SECONDS, Planned, Storm, carry_out, schedule, seed_of_commit

STORM = Storm(Scale())


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_draws_the_same_again(seed: int) -> None:
    """A seed always gives the same schedule; a longer one begins with the shorter one."""
    assert schedule(seed, STORM, minutes=60) == schedule(seed, STORM, minutes=60)
    assert (
        schedule(seed, STORM, minutes=10)
        == schedule(seed, STORM, minutes=60)[: len(schedule(seed, STORM, minutes=10))]
    )
    assert schedule(seed, STORM, minutes=10) != schedule(seed + 1, STORM, minutes=10)


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_has_every_kind(seed: int) -> None:
    """An hour has every kind of fault, and their numbers differ by two at most."""
    kinds = [type(one.fault) for planned in schedule(seed, STORM, minutes=60) for one in planned]
    assert set(KINDS) == set(kinds)
    counts = [kinds.count(kind) for kind in KINDS]
    assert max(counts) - min(counts) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_faults_that_need_each_other_stay_apart(seed: int) -> None:
    """Two faults that compete for a resource are separated by a rest."""
    for planned in schedule(seed, STORM, minutes=60):
        for first, second in itertools.combinations(planned, 2):
            one, other = first.fault, second.fault
            if one.takes & other.takes or one.takes & other.needs or one.needs & other.takes:
                assert first.at + one.seconds + REST_SECONDS <= second.at


def test_faults_overlap() -> None:
    """More than half of the rounds have overlapping faults."""

    def overlaps(planned: tuple[Planned, ...]) -> bool:
        return any(
            first.at + first.fault.seconds > second.at for first, second in itertools.combinations(planned, 2)
        )

    drawn = schedule(1, STORM, count=100)
    assert sum(map(overlaps, drawn)) > 50


@pytest.mark.parametrize("seed", range(5))
def test_a_scale_bounds_the_durations(seed: int) -> None:
    """A smaller scale has the same kinds of faults, none longer than its limits."""
    short = Storm(Scale(longest_seconds=3, away_seconds=4, silent_seconds=5, left_seconds=5))
    drawn = [one.fault for planned in schedule(seed, short, count=40) for one in planned]
    assert max(fault.seconds for fault in drawn) <= 5
    assert {type(fault) for fault in drawn} == set(KINDS)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_has_what_it_always_has(seed: int) -> None:
    """Each round has its required faults, in turn, and the drawn ones keep apart from them."""
    storm = replace(STORM, always=((PeerPaused,), (PeerSlow, NamedEurekaAway)))
    for number, planned in enumerate(schedule(seed, storm, count=10)):
        kinds = [type(one.fault) for one in planned]
        assert set(storm.always[number % 2]) <= set(kinds)
        for first, second in itertools.combinations(planned, 2):
            if first.fault.takes & second.fault.takes:
                assert first.at + first.fault.seconds + REST_SECONDS <= second.at


def test_each_commit_has_its_seed() -> None:
    """A commit gives a fixed seed, unless SEED sets another."""
    assert seed_of_commit({}) == seed_of_commit({"SEED": ""})
    assert 0 <= seed_of_commit({}) < 1_000_000
    assert seed_of_commit({"SEED": "42"}) == 42


def test_a_clock_is_stepped_for_one_process(tmp_path: Path) -> None:
    """The file steps the wall clock of one process at once; its monotonic clock is unchanged."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    program = """
import time
from datetime import UTC, datetime
from pathlib import Path
import sys
before = time.time(), datetime.now(UTC).timestamp(), time.monotonic()
Path(sys.argv[1]).write_text("-3600")
after = time.time(), datetime.now(UTC).timestamp(), time.monotonic()
print(*(round((now - then) / 60) for then, now in zip(before, after)))
"""
    folder = Path(__file__).parents[2] / "faults" / "clock"
    done = subprocess.run(
        [sys.executable, "-c", program, clock],
        env={**os.environ, "PYTHONPATH": str(folder), "STEPPED_CLOCK": str(clock)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["-60", "-60", "0"]


def test_a_fault_that_takes_longer_than_planned_is_waited_for() -> None:
    """A fault begins only after an earlier one on the same resource has ended, even if that takes longer
    than planned.
    """
    said: list[str] = []

    class Calm:
        """A storm's world without a judge."""

        def activity(self, *_: object) -> AbstractContextManager[None]:
            """Return a context that judges nothing."""
            return nullcontext()

    class Slow:
        """A fault that takes longer than its planned duration."""

        takes = needs = frozenset({API})
        seconds = 0.0
        excuses = ()

        def begin(self, _: object) -> Callable[[], None]:
            """Sleep, and return the function that ends the fault."""
            said.append("begins")
            time.sleep(0.3)
            return lambda: said.append("is over")

    planned = (Planned(0.0, Slow()), Planned(0.1, Slow()))  # type: ignore[arg-type]
    carry_out(Calm(), planned, lambda _: None)  # type: ignore[arg-type]
    assert said == ["begins", "is over"] * 2
