"""Rate limiter: many writes leave capacity to other clients, and each key has its own pace."""

from __future__ import annotations

import time

import pytest

from eurekube_provider.kube.rate_limiter import RateLimiter


def limiter(quiet_seconds: float = 10.0) -> RateLimiter[str]:
    """Return a rate limiter with intervals from 0.5 to 10 s."""
    return RateLimiter(lambda _: None, 0.5, 10.0, quiet_seconds)


def test_what_was_never_written_may_be_written_at_once() -> None:
    """A key without an earlier write may be written at once; keys do not affect each other."""
    pace = limiter()
    pace.record_write("a", 100.0)
    assert (pace.write_allowed_at("a"), pace.write_allowed_at("b")) == (100.5, 0.0)


def test_the_interval_doubles_while_there_is_always_more() -> None:
    """The interval of a key doubles up to the longest while writes go on; an urgent write waits for the
    shortest, and a quiet time resets it.
    """
    pace = limiter()
    now, intervals = 100.0, []
    pace.record_write("a", now)
    for _ in range(7):
        intervals.append(pace.write_allowed_at("a") - now)
        assert pace.write_allowed_at("a", is_urgent=True) - now == 0.5
        now = pace.write_allowed_at("a")
        pace.record_write("a", now)
    assert intervals == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    pace.record_write("a", now + 20.5)
    assert pace.write_allowed_at("a") - now == 21.0


def test_what_is_held_is_not_allowed_before() -> None:
    """A key on hold may not be written before its time, even urgently."""
    pace = limiter()
    pace.block_until("a", 105.0)
    pace.record_write("a", 100.0)
    assert pace.write_allowed_at("a", is_urgent=True) == 105.0


def test_the_earliest_turn_of_a_key_counts() -> None:
    """The earliest planned turn of a key counts; turns are taken once, in order of time."""
    pace = limiter()
    assert pace.schedule_turn("a", 3.0)
    assert pace.schedule_turn("b", 2.0)
    assert pace.schedule_turn("a", 1.0)
    assert not pace.schedule_turn("a", 2.5)
    assert pace.pop_due_key(0.5) is None
    assert pace.seconds_until_next_turn(0.5) == 0.5
    assert [pace.pop_due_key(9.0) for _ in range(3)] == ["a", "b", None]
    assert pace.seconds_until_next_turn(9.0) is None


def test_what_is_forgotten_has_neither_pace_nor_turn() -> None:
    """``forget`` drops pace and turn of one key, ``clear`` those of all."""
    for one in (True, False):
        pace = limiter()
        pace.schedule_turn("a", 1.0)
        pace.record_write("a", 100.0)
        pace.block_until("a", 200.0)
        if one:
            pace.forget("a")
        else:
            pace.clear()
        assert (pace.pop_due_key(9.0), pace.write_allowed_at("a")) == (None, 0.0)


def test_a_write_waits_for_quiet_for_a_while() -> None:
    """A write waits for a quiet moment until its deadline, and not at all after it."""
    waited: list[float] = []
    pace = RateLimiter[str](waited.append, 0.5, 10.0, 10.0)
    pace.wait_until_no_urgent_work(time.monotonic() + 2.0)
    pace.wait_until_no_urgent_work(time.monotonic() - 1.0)
    assert len(waited) == 1
    assert 1.5 < waited[0] <= 2.0


@pytest.mark.parametrize(("write", "expected"), [(0.0, 0.01), (0.02, 0.08), (9.0, 0.25)])
def test_a_pause_is_as_long_as_the_server_is_busy(
    monkeypatch: pytest.MonkeyPatch, write: float, expected: float
) -> None:
    """The pause after a write is four times the write's duration, within limits."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    limiter().pause_after_write(write)
    assert slept == [expected]
