"""Which runs of the benchmark of churn count."""

from __future__ import annotations

from bench.p8_churn import LEAST_IDLE_PERCENT, void_reason


def test_a_run_on_a_busy_machine_is_void() -> None:
    """The reason has the idle share that was measured."""
    assert void_reason(LEAST_IDLE_PERCENT - 1.0).startswith("9.0 % of a core was idle")
    assert void_reason(LEAST_IDLE_PERCENT) == ""
