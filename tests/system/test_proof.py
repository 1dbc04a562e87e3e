"""The short form of the proof: real pods end while real Spring Cloud clients call them without pause.

``python -m bench --only P11`` runs the long form, with caches as in production and with other strategies for
comparison.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.netns import network_unavailable_reason
from lab.proof import run_proof
from lab.proof.bystanders import GRACE_SECONDS, PRESTOP_SECONDS
from lab.proof.findings import Verdict
from lab.proof.form import PROOF_SETTINGS
from lab.proof.subjects import Scenario, Strategy
from lab.spring import SpringClientMissing

# Of three attempts.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

DRAINED = [
    (one.scenario, one.strategy)
    for one in PROOF_SETTINGS["short"].subjects
    if one.strategy.has_computed_drain
]
"""Scenarios and strategies that drain: pods serve for the computed time, deregistered or OUT_OF_SERVICE."""

LOAD_SECONDS = PROOF_SETTINGS["short"].drain.margin_seconds
"""Seconds that a busy machine may take in addition."""


ATTEMPTS = 3
"""The most runs that are tried.

Calls also fail if the machine gives the callers no processor time for seconds, or if a server lists a pod for
too long after its removal: see `docs/guides/zero-downtime.md`.
"""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Return the report of the first run that allows a judgement of the operator."""
    if reason := network_unavailable_reason():
        pytest.skip(reason)
    void = ""
    for _ in range(ATTEMPTS):
        try:
            found = run_proof("short")
        except SpringClientMissing as reason:
            pytest.skip(str(reason))
        void = why_void(found)
        if not void:
            return found
        print(void)
    pytest.fail(f"{ATTEMPTS} runs in a row say nothing about the operator; of the last one, {void}")


def why_void(report: dict[str, Any]) -> str:
    """Return why a run allows no judgement of the operator; empty if it does.

    A server's fault hides nothing: a run in which the operator may have been at fault counts.
    """
    alone = finding(report, Scenario.UNDISTURBED, Strategy.NONE)
    if alone["failed"]:
        return f"calls failed to the application that was left alone: {alone}"
    drained = [finding(report, *one) for one in DRAINED]
    stale = [one for one in drained if one["verdict"] == Verdict.STALE]
    if stale and not any(one["verdict"] == Verdict.BROKEN for one in drained):
        return "\n".join(f"{one['verdict']}: {evidence(one)}" for one in stale)
    return ""


def evidence(found: dict[str, Any]) -> str:
    """Return the fate of each removed pod as text, a line each."""
    return "\n".join([found["application"], *(json.dumps(pod) for pod in found["pods"])])


def finding(report: dict[str, Any], scenario: Scenario, strategy: Strategy) -> dict[str, Any]:
    """Return the findings about one application."""
    found: dict[str, Any] = next(
        one for one in report["findings"] if (one["scenario"], one["strategy"]) == (scenario, strategy)
    )
    assert bool(found["removed"]) == (scenario is not Scenario.UNDISTURBED)
    assert found["rate"] >= PROOF_SETTINGS["short"].calls_per_second / 2
    return found


def test_calls_fail_without_a_drain(report: dict[str, Any]) -> None:
    """Without a drain calls fail, which shows that the other tests can find a failure."""
    assert finding(report, Scenario.ROLLED, Strategy.NONE)["failed"] > 0


@pytest.mark.parametrize(("scenario", "strategy"), DRAINED)
def test_no_call_fails_with_ours(report: dict[str, Any], scenario: Scenario, strategy: Strategy) -> None:
    """With a drain every call is answered, despite faults of the application, its operator and its Eureka."""
    ours = finding(report, scenario, strategy)
    assert (ours["failed"], ours["outcomes"], ours["failures"]) == (0, {}, {}), evidence(ours)


@pytest.mark.parametrize(("scenario", "strategy"), DRAINED)
def test_a_removed_pod_is_called_no_longer_than_computed(
    report: dict[str, Any], scenario: Scenario, strategy: Strategy
) -> None:
    """The last call to a removed pod comes within the computed bound."""
    ours = finding(report, scenario, strategy)
    assert 0 < ours["still_called_seconds"] <= ours["bound_seconds"] + LOAD_SECONDS, evidence(ours)


def test_a_rollout_is_no_mass_removal(report: dict[str, Any]) -> None:
    """The brake holds no removal of a roll-out."""
    assert report["braked"] == []


def test_pods_end_as_a_kubelet_ends_them(report: dict[str, Any]) -> None:
    """preStop counts towards the grace period, SIGTERM follows it, and SIGKILL comes at the period's end."""
    cut_short, hooked, stubborn = (report["bystanders"][name] for name in ("cut-short", "hooked", "stubborn"))
    assert [one["was_killed"] for one in (cut_short, hooked, stubborn)] == [False, False, True]
    assert GRACE_SECONDS <= cut_short["reported_after_seconds"] <= GRACE_SECONDS + LOAD_SECONDS
    assert PRESTOP_SECONDS <= hooked["reported_after_seconds"] < GRACE_SECONDS
    assert stubborn["reported_after_seconds"] < GRACE_SECONDS <= stubborn["gone_after_seconds"]
