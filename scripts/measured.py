"""What `make bench` measured, in the words of the documentation: no figure of the README was typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "bench" / "results"


def result(name: str) -> dict[str, Any]:
    """What a benchmark measured, as `make bench` wrote it."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def measured_table() -> str:
    """Five results with the command that repeats each, for the README."""
    latency, churn, renewals, rollout, idle = map(result, ("P1", "P8", "P2", "P11", "P6"))
    kopf = latency["peers"]["kopf"]
    failed = [name for name in rollout["ours"] if name.startswith("failed calls")]
    without = rollout["peers"]["no drain"]
    rows = [
        (
            "A change in Kubernetes until Eureka shows it, median and p99",
            f"{latency['ours']['p50_ms']:.1f} and {latency['ours']['p99_ms']:.1f} ms",
            f"a kopf handler: {kopf['p50_ms']:.1f} and {kopf['p99_ms']:.1f} ms",
            "P1",
        ),
        (
            "The same with 200 changes a second, p99",
            f"{churn['ours']['p99_ms']:.0f} ms",
            f"a kopf handler: {churn['peers']['kopf']['p99_ms']:.0f} ms",
            "P8",
        ),
        (
            "Failed calls of Spring clients while pods roll, scale and drain and servers die",
            f"{sum(rollout['ours'][name] for name in failed):,.0f} in {len(failed)} scenarios",
            f"pods without a drain: {sum(without[name] for name in failed):,.0f}",
            "P11",
        ),
        (
            "A round of renewals of 10,000 instances",
            f"{renewals['ours']['wall_seconds']:.2f} s",
            f"one request each: {renewals['peers']['one PUT each']['wall_seconds']:.1f} s",
            "P2",
        ),
        (
            "Processor time while 10,000 instances rest",
            f"{idle['ours']['1 Eureka']:.1f} % of a core",
            f"one request each: {idle['peers']['one PUT each']['1 Eureka']:.0f} %",
            "P6",
        ),
    ]
    lines = ["| measured | Eurekube | in the same run | repeat it |", "|---|---|---|---|"]
    lines += [f"| {what} | {ours} | {other} | `make bench ONLY={name}` |" for what, ours, other, name in rows]
    return "\n".join(lines) + "\n"
