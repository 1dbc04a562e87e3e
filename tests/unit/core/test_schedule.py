"""The schedule of a stack's runs: debounced, spaced, never overlapping, and delayed after failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.schedule import (
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    MAX_DEBOUNCE_FACTOR,
    RunLimits,
    Schedule,
    retry_delay_seconds,
)

PACE = RunLimits(debounce_seconds=2.0, min_interval_seconds=30.0)


@dataclass
class Played:
    """The runs of a stack, played in steps of a tenth of a second.

    :ivar ran: start time and wanted state of each run.
    """

    schedule: Schedule
    ran: list[tuple[float, str]] = field(default_factory=list)


def play(
    changes: Sequence[tuple[float, str]],
    until: float,
    *,
    pace: RunLimits = PACE,
    run_seconds: float = 3.0,
    failing_until: float = -1.0,
    served_digest: str = "a",
) -> Played:
    """Change the wanted state at these times, with runs of this length; runs that begin before
    ``failing_until`` fail.
    """
    played = Played(Schedule(served_digest=served_digest))
    wanted, ends_at = "a", 0.0
    left = sorted(changes)
    for tick in range(round(until * 10)):
        now, schedule = tick / 10, played.schedule
        while left and left[0][0] <= now:
            wanted = left.pop(0)[1]
            schedule = schedule.after_change(now)
        if schedule.running_digest is not None and now >= ends_at:
            failed = schedule.run_began_at < failing_until
            schedule = schedule.after_failure(now, 0.5) if failed else schedule.after_success()
        debounced, due = schedule.debounce_ends_at(pace), schedule.run_due_at(pace)
        if debounced is not None and debounced <= now and wanted == schedule.served_digest:
            schedule = schedule.after_no_difference()
        elif due is not None and due <= now:
            schedule = schedule.after_start(now, wanted)
            played.ran.append((now, wanted))
            ends_at = now + run_seconds
        played.schedule = schedule
    return played


def test_a_change_runs_after_the_quiet_time() -> None:
    """One run begins when nothing has changed for the debounce time."""
    played = play([(1.0, "b")], 60)
    assert played.ran == [(3.0, "b")]
    assert (played.schedule.served_digest, played.schedule.is_pending) == ("b", False)


def test_what_comes_back_to_what_was_served_runs_nothing() -> None:
    """A change that is undone in time, or an event without a change, starts no run."""
    assert play([(1.0, "b"), (1.5, "a")], 60).ran == []
    assert play([(1.0, "a")], 60).ran == []


def test_two_hundred_changes_in_ten_seconds_are_at_most_two_runs() -> None:
    """The last state is served by those runs."""
    changes = [(number / 20, f"state-{number}") for number in range(200)]
    for debounce in (0.1, 1.0, 2.0, 5.0):
        played = play(changes, 120, pace=RunLimits(debounce, 10.0))
        assert 1 <= len(played.ran) <= 2
        assert played.schedule.served_digest == "state-199"


def test_endless_change_does_not_postpone_a_run_for_ever() -> None:
    """A run begins after ten debounce times, although the state keeps changing."""
    changes = [(number / 2, f"state-{number}") for number in range(2, 200)]
    first, _ = play(changes, 90).ran[0]
    assert first == pytest.approx(1.0 + MAX_DEBOUNCE_FACTOR * PACE.debounce_seconds)


def test_runs_keep_their_distance() -> None:
    """The interval is measured between the starts of two runs."""
    played = play([(1.0, "b"), (10.0, "c"), (20.0, "d")], 120)
    assert played.ran == [(3.0, "b"), (33.0, "d")]


def test_what_changes_during_a_run_comes_together_after_it() -> None:
    """All changes during a run lead to one run after its end."""
    played = play([(1.0, "b"), (5.0, "c"), (20.0, "d"), (40.0, "e")], 200, run_seconds=50.0)
    assert played.ran == [(3.0, "b"), (53.0, "e")]


def test_a_failed_run_is_tried_again_after_longer_and_longer_times() -> None:
    """The delay grows with each failure until a run succeeds."""
    played = play([(1.0, "b")], 400, pace=RunLimits(1.0, 1.0), failing_until=100.0)
    after_start = [at for at, _ in played.ran]
    waits = [later - earlier - 3.0 for earlier, later in pairwise(after_start)]
    assert waits == pytest.approx(
        [0.75 * retry_delay_seconds(number) for number in range(1, len(after_start))], abs=0.2
    )
    assert (played.schedule.served_digest, played.schedule.consecutive_failures) == ("b", 0)


def test_after_a_failure_what_was_served_before_is_not_trusted() -> None:
    """A failed run may have done half of its work: a return to the former state is run, too."""
    played = play([(1.0, "b"), (4.0, "a")], 100, failing_until=5.0)
    assert [wanted for _, wanted in played.ran] == ["b", "a"]


def test_delays_grow_to_a_bound() -> None:
    """The delay doubles from FIRST_RETRY_SECONDS to LONGEST_RETRY_SECONDS."""
    assert retry_delay_seconds(1) == FIRST_RETRY_SECONDS
    assert retry_delay_seconds(2) == 2 * FIRST_RETRY_SECONDS
    assert retry_delay_seconds(1000) == LONGEST_RETRY_SECONDS


@given(
    st.lists(st.tuples(st.floats(0, 60), st.sampled_from("abc")), max_size=40),
    st.floats(0.1, 5.0),
    st.floats(0.1, 40.0),
    st.floats(0.1, 20.0),
    st.floats(-1.0, 60.0),
)
def test_whatever_happens_the_end_is_served(
    changes: list[tuple[float, str]], debounce: float, interval: float, run_seconds: float, failing: float
) -> None:
    """The last wanted state is served, and runs neither overlap nor come closer than the interval."""
    played = play(
        changes, 1500, pace=RunLimits(debounce, interval), run_seconds=run_seconds, failing_until=failing
    )
    wanted = sorted(changes, key=lambda change: change)[-1][1] if changes else "a"
    assert (played.schedule.served_digest, played.schedule.is_pending) == (wanted, False)
    after_start = [at for at, _ in played.ran]
    apart = min((later - earlier for earlier, later in pairwise(after_start)), default=1e9)
    assert apart >= max(interval, run_seconds) - 0.11
