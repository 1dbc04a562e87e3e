"""P16: callers with the readiness gate: the time until they know a new pod, and until they forget one that
ends.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.age import OPERATOR_PATHS
from bench.harness import Result, Size
from lab.errors import LabError
from lab.gate_proof import GateFormName, prove_gate
from lab.netns import why_not

BAR = (
    "0 failed calls; no client calls a pod first later than computed after its containers are ready, nor "
    "last later than computed after its end; no gate opens before the last client knows"
)
MEASURES = (*OPERATOR_PATHS, "lab/gate_proof", "lab/proof")
PROGRAMS = ("unshare", "nsenter", "ip", "mount")
FORMS: tuple[GateFormName, ...] = ("defaults", "quick")

Report = dict[str, Any]


def run(size: Size) -> Result:
    """Roll ten pods out with the cache settings of each form."""
    if reason := why_not():
        raise LabError(f"P16 cannot run here: {reason}")
    forms: tuple[GateFormName, ...] = FORMS if size is Size.FULL else ("short",)
    reports = {form: prove_gate(form) for form in forms}
    figures = {form: figures_of(report) for form, report in reports.items()}
    first, *rest = forms
    return Result(
        id="P16",
        title="callers learn of pods",
        unit="seconds",
        bar=BAR,
        ours=figures[first],
        floor={},
        peers={form: figures[form] for form in rest},
        ratios={},
        held=all(holds(report) for report in reports.values()),
        notes=[f"{form}: {act['name']}" for form, report in reports.items() for act in report["acts"]],
    )


def figures_of(report: Report) -> dict[str, float]:
    """Return one form's rows of the table."""
    learned, forgotten = learned_seconds(report), forgotten_seconds(report)
    waited = [pod["opened"] - pod["ready"] for pod in new_pods(report)]
    act = report["acts"][0]
    return {
        "a client's first call, after the containers are ready, p50": statistics.median(learned),
        "the same, at most": max(learned),
        "the gate opens, after the containers are ready, at least": min(waited),
        "a client's last call, after the pod's end began, p50": statistics.median(forgotten),
        "the same as the last, at most": max(forgotten),
        "computed, to learn": report["drain"]["known_after_seconds"],
        "the roll-out of ten pods": act["opened"] - act["began"],
        "failed calls": float(len(report["failures"])),
    }


def holds(report: Report) -> bool:
    """Return whether a report holds the bar."""
    drain = report["drain"]
    forgotten = drain["known_after_seconds"] + drain["replication_seconds"] + drain["take_over_seconds"]
    return (
        not report["failures"]
        and max(learned_seconds(report)) <= drain["known_after_seconds"]
        and max(forgotten_seconds(report)) <= forgotten
        and all(max(first_calls(pod)) <= pod["opened"] for pod in new_pods(report))
    )


def new_pods(report: Report) -> list[dict[str, Any]]:
    """Return the pods whose gates opened in the first rollout, in which nothing else happens."""
    act = report["acts"][0]
    return [pod for pod in report["pods"] if act["began"] <= (pod["ready"] or 0) <= act["opened"]]


def first_calls(pod: dict[str, Any]) -> list[float]:
    """Return the time of each client's first call of a pod; infinity where no client called it."""
    return [first for first, _ in pod["clients"].values()] or [float("inf")]


def learned_seconds(report: Report) -> list[float]:
    """Return the seconds from ready containers to the first call, for each new pod and client."""
    return [first - pod["ready"] for pod in new_pods(report) for first in first_calls(pod)]


def forgotten_seconds(report: Report) -> list[float]:
    """Return the seconds from a pod's deletion to the last call, for each ended pod and client."""
    ended = [pod for pod in report["pods"] if pod["deleted"]]
    return [max(0.0, last - pod["deleted"]) for pod in ended for _, last in pod["clients"].values()] or [0.0]
