"""Roll-outs with the readiness gate: ten real pods, three real Eurekas, unmodified Spring clients."""

from __future__ import annotations

from typing import Any

import pytest

from lab.gate_proof import REPLICAS, gateway_faults, longest_rollout_seconds, run_gate_proof
from lab.netns import network_unavailable_reason
from lab.spring import SpringClientMissing

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

ACTS = ["rolled", "leader killed", "one Eureka frozen", "all Eurekas frozen"]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Return the report of one run."""
    if reason := network_unavailable_reason():
        pytest.skip(reason)
    try:
        return run_gate_proof("short")
    except SpringClientMissing as reason:
        pytest.skip(str(reason))


def test_no_call_fails(report: dict[str, Any]) -> None:
    """No call fails in any roll-out, with or without a fault meanwhile."""
    assert [act["name"] for act in report["acts"]] == ACTS
    assert min(report["calls"].values()) > 1000
    assert report["failures"] == []


@pytest.mark.parametrize("name", ACTS)
def test_a_rollout_is_as_fast_as_callers_learn(report: dict[str, Any], name: str) -> None:
    """Each step takes the time that callers need and the start of its pods; delays that nobody can avoid
    are left out.
    """
    (act,) = (one for one in report["acts"] if one["name"] == name)
    assert act["opened"] - act["began"] <= longest_rollout_seconds(report, act)


def test_a_rollout_waits_while_a_eureka_hangs(report: dict[str, Any]) -> None:
    """While a Eureka server hangs, the roll-out removes no pod that callers know."""
    frozen = [act for act in report["acts"] if "frozen" in act["name"]]
    assert [act["stood"] for act in frozen] == [True, True]


def test_no_gate_opens_before_the_last_client_knows(report: dict[str, Any]) -> None:
    """When a pod's gate opens, each client has already called that pod."""
    new = [one for one in report["pods"] if one["opened"] and one["ready"] >= report["acts"][0]["began"]]
    assert len(new) == REPLICAS * len(ACTS)
    clients = set(report["calls"])
    for pod in new:
        assert set(pod["clients"]) == clients, pod
        assert max(first for first, _ in pod["clients"].values()) <= pod["opened"], pod


def test_a_gateway_follows_an_application_that_is_scaled_to_zero_and_back(report: dict[str, Any]) -> None:
    """Through Spring Cloud Gateway a call succeeds or finds no instance; none meets a pod that is gone.

    The first pod of an empty Service waits for nobody: its gate opens at once.
    """
    assert len(report["emptied"]["answers"]) > 100
    assert gateway_faults(report) == []
