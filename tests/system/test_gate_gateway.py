"""Two gated pods behind a real Spring Cloud Gateway: scaled to none and back, and rolled without Eureka."""

from __future__ import annotations

from typing import Any

import pytest

from lab.gate_proof import prove_gate
from lab.netns import why_not
from lab.spring import SpringClientMissing

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

LOOK_SECONDS = 5.0
"""Between a change and the next look of gateway, kubelet and operator, on a machine that is busy."""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Return the report of one run."""
    if reason := why_not():
        pytest.skip(reason)
    try:
        return prove_gate("gateway")
    except SpringClientMissing as reason:
        pytest.skip(str(reason))


def test_two_pods_go_and_come_back(report: dict[str, Any]) -> None:
    """No pod that ended is called; a gate opens at once, since no other pod is ready, and calls go on."""
    scaled = report["scaled"]
    assert set(scaled["failed_while_away"]) <= {"404", "503"}  # no route, no instance
    assert min(scaled["opened"]) <= LOOK_SECONDS
    assert max(scaled["opened"]) <= report["known_after_seconds"] + LOOK_SECONDS
    assert scaled["answered_after_opening"] <= report["known_after_seconds"] + LOOK_SECONDS
    assert scaled["failed_once_answered"] == {}


def test_a_gate_that_opens_without_eureka_costs_calls(report: dict[str, Any]) -> None:
    """The roll-out goes on, the old pods end, and callers know none of the new ones until Eureka is back."""
    opened = report["open"]
    assert opened["rolled"] < opened["away"]
    assert sum(opened["failed"].values()) > 0
    assert opened["last_failed_after_return"] <= report["known_after_seconds"] + 4 * LOOK_SECONDS
