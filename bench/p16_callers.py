"""P16: callers with the readiness gate: the time until they know a new pod, and until they forget one that
ends.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from bench.age import OPERATOR_PATHS
from bench.harness import Result, Size
from lab.errors import LabError
from lab.gate_proof import GateProofVariant, gateway_faults, longest_rollout_seconds, run_gate_proof
from lab.netns import network_unavailable_reason

BAR = (
    "with the gate 0 failed calls, also with the leader killed, one or all Eurekas frozen; no client calls"
    " a pod first later than computed after its containers are ready, nor last later than computed after its"
    " end; no gate opens before the last client knows; a roll-out takes at most 1.2 times what callers need"
)
WITHOUT_GATE = "without the gate"
MEASURES = (*OPERATOR_PATHS, "lab/gate_proof", "lab/proof")
PROGRAMS = ("unshare", "nsenter", "ip", "mount")
PROOF_VARIANTS: tuple[GateProofVariant, ...] = ("defaults", "quick")

Report = dict[str, Any]


def run(size: Size) -> Result:
    """Roll ten pods out with the cache settings of each form, with and without the gate."""
    if reason := network_unavailable_reason():
        raise LabError(f"P16 cannot run here: {reason}")
    forms: tuple[GateProofVariant, ...] = PROOF_VARIANTS if size is Size.FULL else ("short",)
    reports = {form: run_gate_proof(form) for form in forms}
    columns = {
        column: figures for form, report in reports.items() for column, figures in table_columns(form, report)
    }
    first, *rest = columns
    return Result(
        id="P16",
        title="callers learn of pods",
        unit="seconds",
        bar=BAR,
        ours=columns[first],
        floor={},
        peers={column: columns[column] for column in rest},
        ratios={},
        held=all(holds_bar(report) for report in reports.values()),
        notes=[f"{form}: {act['name']}" for form, report in reports.items() for act in report["acts"]],
    )


def table_columns(form: str, report: Report) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the columns of one form: with the gate, and without it where that was tried."""
    yield form, gate_figures(report)
    for act in report["acts"]:
        if act["name"] == WITHOUT_GATE:
            yield f"{form}, without the gate", rollout_figures(report, act)


def gate_figures(report: Report) -> dict[str, float]:
    """Return one form's rows of the table for rollouts with the gate."""
    act = report["acts"][0]
    waited = [pod["opened"] - pod["ready"] for pod in new_pods(report, act)]
    return {
        **rollout_figures(report, act),
        "the gate opens, after the containers are ready, at least": min(waited),
        "computed, to learn": report["drain"]["known_after_seconds"],
        **{
            f"the roll-out of ten pods, {one['name']}": one["opened"] - one["began"]
            for one in report["acts"][1:]
            if not one["may_fail"]
        },
        "failed calls": float(len(report["failures"])),
        **{
            f"failed calls, {name}": float(counted["failed"])
            for name, counted in report["counted_failures"].items()
            if name != WITHOUT_GATE
        },
    }


def rollout_figures(report: Report, act: dict[str, Any]) -> dict[str, float]:
    """Return the rows that every rollout has."""
    learned, forgotten = seconds_to_first_call(report, act), seconds_to_last_call(report, act)
    figures = {
        "a client's first call, after the containers are ready, p50": statistics.median(learned),
        "the same, at most": max(learned),
        "a client's last call, after the pod's end began, p50": statistics.median(forgotten),
        "the same as the last, at most": max(forgotten),
        "the roll-out of ten pods": act["opened"] - act["began"],
    }
    if act["may_fail"]:
        counted = report["counted_failures"][act["name"]]
        figures["failed calls"] = float(counted["failed"])
    return figures


def holds_bar(report: Report) -> bool:
    """Return whether a report holds the bar."""
    drain, first = report["drain"], report["acts"][0]
    forgotten = drain["known_after_seconds"] + drain["replication_seconds"] + drain["take_over_seconds"]
    gated = [act for act in report["acts"] if not act["may_fail"]]
    return (
        not report["failures"]
        and not (report.get("emptied") and gateway_faults(report))
        and all(
            max(seconds_to_first_call(report, act)) <= learning_limit_seconds(report, act) for act in gated
        )
        and max(seconds_to_last_call(report, first)) <= forgotten
        and all(max(first_call_times(pod)) <= pod["opened"] for act in gated for pod in new_pods(report, act))
        and all(act["opened"] - act["began"] <= longest_rollout_seconds(report, act) for act in gated)
        and all(act["stood"] for act in gated)
    )


def learning_limit_seconds(report: Report, act: dict[str, Any]) -> float:
    """Return the longest time from ready containers to a client's first call in a rollout with the gate.

    A pod is registered later while no operator leads, and clients come back from a server that was away as
    late as it was away.
    """
    drain, excused = report["drain"], act["excused_seconds"]
    known, take_over = float(drain["known_after_seconds"]), float(drain["take_over_seconds"])
    if act is report["acts"][0]:
        return known
    return known + take_over + (known + excused if excused else 0.0)


def new_pods(report: Report, act: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pods that a rollout brought."""
    return [pod for pod in report["pods"] if act["began"] <= (pod["ready"] or 0) <= act["opened"]]


def first_call_times(pod: dict[str, Any]) -> list[float]:
    """Return the time of each client's first call of a pod; infinity where no client called it."""
    return [first for first, _ in pod["clients"].values()] or [float("inf")]


def seconds_to_first_call(report: Report, act: dict[str, Any]) -> list[float]:
    """Return the seconds from ready containers to the first call, for each new pod and client."""
    return [first - pod["ready"] for pod in new_pods(report, act) for first in first_call_times(pod)]


def seconds_to_last_call(report: Report, act: dict[str, Any]) -> list[float]:
    """Return the seconds from a pod's deletion to the last call, for each client and pod of a rollout."""
    ended = [pod for pod in report["pods"] if act["began"] <= (pod["deleted"] or 0) <= act["ended"]]
    return [max(0.0, last - pod["deleted"]) for pod in ended for _, last in pod["clients"].values()] or [0.0]
