"""P11: services are rolled, scaled down and disturbed while Spring Cloud clients call them without pause."""

from __future__ import annotations

from typing import Any

from bench.age import OPERATOR_PATHS
from bench.harness import Result, Size
from lab.errors import LabError
from lab.netns import network_unavailable_reason
from lab.proof import run_proof
from lab.proof.subjects import Scenario, Strategy

BAR = (
    "0 failed calls at >= 20 calls a second each, in every scenario; "
    "void unless no drain failed calls, and what was left alone did not"
)
MEASURES = (*OPERATOR_PATHS, "lab/proof")
PROGRAMS = ("unshare", "nsenter", "ip", "mount")
MIN_CALLS_A_SECOND = 20.0
GONE_AFTER_FIGURE = "every pod that was to go is gone after, s"

Finding = dict[str, Any]


def run(size: Size) -> Result:
    """Run the proof once; in each scenario all strategies meet the same moments."""
    if reason := network_unavailable_reason():
        raise LabError(f"P11 cannot run here: {reason}")
    report = run_proof("full" if size is Size.FULL else "short")
    findings: list[Finding] = report["findings"]
    by_strategy = {
        strategy: _strategy_figures([one for one in findings if one["strategy"] == strategy])
        for strategy in Strategy
    }
    ours = by_strategy.pop(Strategy.EUREKUBE_DRAIN)
    ours[GONE_AFTER_FIGURE] = report["events"][-1]["second"]
    bounds = {
        _still_called_row(one): one["bound_seconds"]
        for one in findings
        if one["strategy"] == Strategy.EUREKUBE_DRAIN
    }
    notes = [f"{event['second']:7.1f} s: {event['what']}" for event in report["events"]]
    return Result(
        id="P11",
        title="rollouts under calls without pause",
        unit="failed calls, and seconds after a pod's deletion began",
        bar=BAR,
        ours=ours,
        floor={},
        peers={
            **{str(name): figures for name, figures in by_strategy.items() if figures},
            "computed": bounds,
        },
        ratios={
            f"{one['scenario']}, still called to computed": one["still_called_seconds"] / one["bound_seconds"]
            for one in findings
            if one["strategy"] == Strategy.EUREKUBE_DRAIN
        },
        held=_holds_bar(findings),
        void=_void_reason(findings),
        runs={
            one["application"]: [
                {"second": int(second), "failed": count} for second, count in one["failures"].items()
            ]
            for one in findings
        },
        notes=[*notes, *report["braked"]],
    )


def _holds_bar(findings: list[Finding]) -> bool:
    """Return whether no call to a draining pod failed, and every client called often enough."""
    draining = [one for one in findings if Strategy(one["strategy"]).has_computed_drain]
    return all(one["failed"] == 0 for one in draining) and all(
        one["rate"] >= MIN_CALLS_A_SECOND for one in findings
    )


def _void_reason(findings: list[Finding]) -> str:
    """Return the reason why the run does not count, or "" if it counts."""
    alone = [one for one in findings if one["scenario"] == Scenario.UNDISTURBED]
    unprotected = [one for one in findings if one["strategy"] == Strategy.NONE and one not in alone]
    if any(one["failed"] for one in alone):
        return "calls of pods that were left alone failed"
    if not unprotected or any(one["failed"] == 0 for one in unprotected):
        return "in some scenario no call failed without a drain"
    return ""


def _strategy_figures(findings: list[Finding]) -> dict[str, float]:
    """Return one strategy's rows of the table."""
    rows: dict[str, float] = {f"failed calls, {one['scenario']}": one["failed"] for one in findings}
    rows |= {f"of all calls, {one['scenario']}": one["calls"] for one in findings}
    rows |= {f"slowest answer, {one['scenario']}, s": one["slowest_answer_seconds"] for one in findings}
    rows |= {_still_called_row(one): one["still_called_seconds"] for one in findings}
    return rows


def _still_called_row(finding: Finding) -> str:
    return f"still called after, {finding['scenario']}, s"
