"""P16: its figures, and the conditions of its bar."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bench.p16_callers import gate_figures, holds_bar, table_columns

REPORT: dict[str, Any] = {
    "drain": {"known_after_seconds": 102, "replication_seconds": 1, "take_over_seconds": 17},
    "acts": [
        {
            "name": "rolled",
            "began": 1000.0,
            "opened": 1215.0,
            "ended": 1300.0,
            "excused_seconds": 0.0,
            "stood": True,
            "may_fail": False,
        },
        {
            "name": "without the gate",
            "began": 2000.0,
            "opened": 2030.0,
            "ended": 2300.0,
            "excused_seconds": 0.0,
            "stood": True,
            "may_fail": True,
        },
    ],
    "failures": [],
    "counted_failures": {"without the gate": {"failed": 7, "calls": 900}},
    "pods": [
        {
            "pod": "old",
            "ready": 500.0,
            "opened": 500.0,
            "deleted": 1110.0,
            "clients": {"feign": (600.0, 1150.0), "balanced": (610.0, 1130.0)},
        },
        {
            "pod": "new",
            "ready": 1005.0,
            "opened": 1108.0,
            "deleted": None,
            "clients": {"feign": (1045.0, 1300.0), "balanced": (1065.0, 1300.0)},
        },
        {
            "pod": "ungated",
            "ready": 2010.0,
            "opened": None,
            "deleted": None,
            "clients": {"feign": (2080.0, 2300.0)},
        },
    ],
}


def changed(pod: int, **fields: Any) -> dict[str, Any]:
    """Return the report with other fields of one pod."""
    report = copy.deepcopy(REPORT)
    report["pods"][pod] |= fields
    return report


def test_times_are_counted_from_ready_and_from_the_end() -> None:
    """First calls are timed from readiness of new pods, last calls from the start of a pod's end, for each
    client.
    """
    assert gate_figures(REPORT) == {
        "a client's first call, after the containers are ready, p50": 50.0,
        "the same, at most": 60.0,
        "the gate opens, after the containers are ready, at least": 103.0,
        "a client's last call, after the pod's end began, p50": 30.0,
        "the same as the last, at most": 40.0,
        "computed, to learn": 102,
        "the roll-out of ten pods": 215.0,
        "failed calls": 0.0,
    }
    assert holds_bar(REPORT)


def test_a_rollout_without_the_gate_is_a_column_of_its_own() -> None:
    """Its failed calls are shown, and do not count against the bar."""
    (_, _), (name, figures) = table_columns("defaults", REPORT)
    assert name == "defaults, without the gate"
    assert figures == {
        "a client's first call, after the containers are ready, p50": 70.0,
        "the same, at most": 70.0,
        "a client's last call, after the pod's end began, p50": 0.0,
        "the same as the last, at most": 0.0,
        "the roll-out of ten pods": 30.0,
        "failed calls": 7.0,
    }


@pytest.mark.parametrize(
    "report",
    [
        {**REPORT, "failures": [{"at": 1100.0}]},
        changed(1, clients={"feign": (1108.5, 1300.0)}),
        changed(1, clients={}),
        changed(1, clients={"feign": (1107.5, 1300.0)}, opened=1200.0),
        changed(0, clients={"feign": (600.0, 1231.0)}),
        {**REPORT, "acts": [{**REPORT["acts"][0], "opened": 1270.0}]},
        {**REPORT, "acts": [{**REPORT["acts"][0], "stood": False}]},
    ],
    ids=[
        "a failed call",
        "opened before",
        "never called",
        "learned late",
        "called for too long",
        "a slow rollout",
        "old pods deleted without Eureka",
    ],
)
def test_the_bar_does_not_hold(report: dict[str, Any]) -> None:
    """The bar is missed if any one of its parts is."""
    assert not holds_bar(report)
