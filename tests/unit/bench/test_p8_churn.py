"""The churn benchmark's bar, and the runs that count."""

from __future__ import annotations

import pytest

from bench.p8_churn import MIN_IDLE_PERCENT, Scale, find_bearable_rate, make_result, void_reason

OURS = {
    "p50_ms": 20.0,
    "p99_ms": 50.0,
    "requests a change": 1.1,
    "eureka_cpu_percent": 20.0,
    "idle_percent": 60.0,
    "differing": 0.0,
    "lost": 0.0,
    "status_writes_a_second": 0.1,
    "changes_a_second": 200.0,
}
KOPF = {"p50_ms": 23.0, "p99_ms": 101.0, "eureka_cpu_percent": 19.0, "idle_percent": 70.0}
FLOOR = {"p50_ms": 10.0, "p99_ms": 20.0}
LATER = {"first, p50_ms": 5.0, "first, p99_ms": 9.0, "last, p50_ms": 20.0, "last, p99_ms": 50.0}


def scale(servers: int = 1) -> Scale:
    """Return the scale of a benchmark with this number of servers."""
    return Scale("P8", "a bar", servers, [200, 150, 100], 0.1)


def test_a_run_on_a_busy_machine_is_void() -> None:
    """A run with too little idle CPU is void, and the reason has the measured share."""
    assert void_reason(MIN_IDLE_PERCENT - 1.0).startswith("9.0 % of a core was idle")
    assert void_reason(MIN_IDLE_PERCENT) == ""


def test_a_machine_is_asked_for_as_many_changes_as_it_bears() -> None:
    """The rate of changes is lowered until enough CPU is idle, and kept for the next run; the lowest is
    always used.
    """
    of_machine = scale()
    assert find_bearable_rate(of_machine, {200: 3.0, 150: 40.0}.__getitem__) == 150
    assert find_bearable_rate(of_machine, {150: 40.0}.__getitem__) == 150
    assert find_bearable_rate(of_machine, lambda _: 3.0) == 100
    assert find_bearable_rate(of_machine, lambda _: 3.0) == 100


def test_a_bar_that_is_held() -> None:
    """A run that meets every part of the bar is held, with p99 and p50 as headlines."""
    found = make_result(scale(), 200, {"ours": OURS, "kopf": KOPF, "floor": FLOOR}, {}, {})
    assert found.held
    assert found.void == ""
    assert found.headlines == ("p99_ms", "p50_ms")
    assert found.ratios["p99_ms"] == pytest.approx(2.02)
    assert found.ratios["p99_ms, ours to floor"] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p50_ms", 22.0),
        ("p99_ms", 51.0),
        ("requests a change", 1.3),
        ("eureka_cpu_percent", 22.0),
        ("differing", 1.0),
        ("lost", 1.0),
        ("status_writes_a_second", 3.0),
        ("changes_a_second", 180.0),
    ],
)
def test_each_part_of_the_bar_can_be_missed(name: str, value: float) -> None:
    """One figure that misses its limit makes the whole bar missed."""
    assert not make_result(
        scale(), 200, {"ours": {**OURS, name: value}, "kopf": KOPF, "floor": FLOOR}, {}, {}
    ).held


def test_either_contestant_on_a_busy_machine_makes_a_run_void() -> None:
    """A run is void if the machine was too busy for either contestant."""
    busy = {"ours": {**OURS, "idle_percent": 3.0}, "kopf": KOPF, "floor": FLOOR}
    assert make_result(scale(), 200, busy, {}, {}).void
    assert make_result(
        scale(), 200, {"ours": OURS, "kopf": {**KOPF, "idle_percent": 3.0}, "floor": FLOOR}, {}, {}
    ).void


def test_with_three_servers_the_last_one_counts() -> None:
    """With three servers the bar is judged by the last server to show a change, and not by the number of
    requests.
    """
    ours = {**OURS, **LATER, "requests a change": 5.0}
    kopf = {**KOPF, "first, p50_ms": 4.0, "first, p99_ms": 8.0, "last, p50_ms": 22.5, "last, p99_ms": 101.0}
    found = make_result(scale(3), 200, {"ours": ours, "kopf": kopf, "floor": {**FLOOR, **LATER}}, {}, {})
    assert found.held
    assert found.headlines == ("last, p99_ms", "last, p50_ms")
    assert not make_result(
        scale(3),
        200,
        {"ours": {**ours, "last, p99_ms": 51.0}, "kopf": kopf, "floor": {**FLOOR, **LATER}},
        {},
        {},
    ).held
