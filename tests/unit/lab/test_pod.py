"""Readiness gates of a pod of the lab's kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from lab.pod import open_gates

GATES = ("example.org/first", "example.org/second")


def pod(*gates: str, **conditions: str) -> dict[str, Any]:
    """Return a pod with these gates and conditions."""
    return {
        "spec": {"readinessGates": [{"conditionType": gate} for gate in gates]} if gates else {},
        "status": {"conditions": [{"type": key, "status": value} for key, value in conditions.items()]},
    }


@pytest.mark.parametrize(
    ("item", "is_open"),
    [
        (pod(), True),
        (pod(Ready="False"), True),
        (pod(*GATES), False),
        (pod(*GATES, **{GATES[0]: "True"}), False),
        (pod(*GATES, **{GATES[0]: "True", GATES[1]: "Unknown"}), False),
        (pod(*GATES, **dict.fromkeys(GATES, "True")), True),
        ({"spec": {"readinessGates": [{"conditionType": GATES[0]}]}}, False),
    ],
)
def test_each_gate_must_be_true(item: dict[str, Any], *, is_open: bool) -> None:
    """A gate is open only if its condition is True, not if it is missing, False or Unknown."""
    assert open_gates(item) is is_open
