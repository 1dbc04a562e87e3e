"""The drain: how many seconds a pod must keep serving after its deletion began."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.kube.elector import ElectionTiming

PARTS = [field.name for field in fields(Drain)]
SECONDS = st.floats(min_value=0, max_value=600)


def test_defaults() -> None:
    """With the callers' default caches a pod serves for 120 s after its deletion began."""
    drain = Drain()
    assert drain.forgotten_after_seconds == 30 + 30 + 35 + 1
    assert drain.prestop_seconds == 30 + 30 + 35 + 1 + 17 + 7
    assert drain.min_ready_seconds == 120
    assert drain.known_after_seconds == 102
    assert drain.grace_period_seconds() == 150


def test_take_over_is_the_operators() -> None:
    """The default take-over time follows from the default timing of the operator's Lease."""
    timing = ElectionTiming()
    expected = timing.lease_duration_seconds + timing.retry_period_seconds
    assert expected == Drain().take_over_seconds


def test_tuned_caches() -> None:
    """Short caches of callers and servers shorten the drain, which is rounded up to whole seconds."""
    tuned = Drain(
        server_cache_seconds=0,
        client_fetch_seconds=5,
        load_balancer_cache_seconds=0,
        replication_seconds=0.5,
        margin_seconds=2,
    )
    assert tuned.forgotten_after_seconds == 6
    assert tuned.prestop_seconds == 25
    assert tuned.grace_period_seconds(shutdown_seconds=5) == 30


@given(st.fixed_dictionaries(dict.fromkeys(PARTS, SECONDS)), st.sampled_from(PARTS), SECONDS)
def test_every_part_counts(parts: dict[str, float], longer: str, by: float) -> None:
    """A longer part never shortens the drain, and the drain is never shorter than callers need."""
    drain = Drain(**parts)
    longer_drain = Drain(**{**parts, longer: parts[longer] + by})
    assert longer_drain.prestop_seconds >= drain.prestop_seconds
    assert drain.prestop_seconds >= drain.forgotten_after_seconds
    assert drain.grace_period_seconds(1) > drain.prestop_seconds


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), True, "30"])
def test_no_seconds(part: str, wrong: object) -> None:
    """A part that is no time is refused with its name."""
    with pytest.raises(ConfigurationError, match=rf"{part} must be seconds from 0 on, not"):
        Drain(**{part: wrong})  # type: ignore[arg-type]


def test_no_time_to_end() -> None:
    """A grace period that kills the process as soon as preStop ends is refused."""
    with pytest.raises(ConfigurationError, match="at least 1 second"):
        Drain().grace_period_seconds(shutdown_seconds=0)
