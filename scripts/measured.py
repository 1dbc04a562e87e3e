"""What `make bench` measured, in the words of the documentation: a test finds any other figure."""

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
    latency, churn, renewals, idle = map(result, ("P1", "P8", "P2", "P6"))
    kopf = latency["peers"]["kopf"]
    failed, failed_without = _failed_calls()
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
            f"{failed} in 5 scenarios",
            f"pods without a drain: {failed_without}",
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


def comparison_table() -> str:
    """What was measured beside others, in the same run, for docs/about/comparison.md."""
    latency, churn, memory, renewals, stacks = map(result, ("P1", "P8", "P5", "P2", "P9"))
    kopf, poll = latency["peers"]["kopf"], latency["peers"]["30 s poll"]
    small, large = "1,000", "50,000"
    single, plain = (stacks["peers"][name] for name in ("single", "plain dynamic resource"))
    rows = [
        (
            "kopf handler, latency in the median and p99 (P1)",
            f"{latency['ours']['p50_ms']:.1f} ms, {latency['ours']['p99_ms']:.1f} ms",
            f"{kopf['p50_ms']:.1f} ms, {kopf['p99_ms']:.1f} ms",
        ),
        (
            "kopf handler, p99 with 200 changes a second (P8)",
            f"{churn['ours']['p99_ms']:.0f} ms",
            f"{churn['peers']['kopf']['p99_ms']:.0f} ms",
        ),
        (
            "kopf index, memory at 1,000 and at 50,000 endpoints (P5)",
            f"{memory['ours'][small]:.0f} MiB, {memory['ours'][large]:.0f} MiB",
            f"{memory['peers']['kopf'][small]:.0f} MiB, {memory['peers']['kopf'][large]:.0f} MiB",
        ),
        (
            "a poll every 30 s, latency in the median (P1)",
            f"{latency['ours']['p50_ms']:.1f} ms",
            f"{poll['p50_ms'] / 1000:.1f} s",
        ),
        (
            "one renewal request each, 10,000 instances, a round (P2)",
            f"{renewals['ours']['wall_seconds']:.2f} s",
            f"{renewals['peers']['one PUT each']['wall_seconds']:.1f} s",
        ),
        (
            "a plain dynamic resource, 1,000 of them (P9)",
            f"{single['up_seconds']:.0f} s; as one application {stacks['ours']['up_seconds']:.1f} s",
            f"{plain['up_seconds']:.0f} s",
        ),
        ("pods without a drain, failed calls in five scenarios (P11)", *_failed_calls()),
    ]
    lines = ["| measured | Eurekube | the other |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {ours} | {other} |" for what, ours, other in rows)]) + "\n"


def _failed_calls() -> tuple[str, str]:
    """Those of callers of our pods, and of pods without a drain, in all scenarios."""
    rollout = result("P11")
    failed = [name for name in rollout["ours"] if name.startswith("failed calls")]
    of_both = (rollout["ours"], rollout["peers"]["no drain"])
    ours, without = (f"{sum(figures[name] for name in failed):,.0f}" for figures in of_both)
    return ours, without


def quoted_figures() -> dict[str, list[str]]:
    """The figures that a page has in its own sentences, as it must have them, by the page."""
    latency, start, restart, memory, stacks, fail_over, rollout, mirrors = (
        result(name) for name in ("P1", "P3", "P4", "P5", "P9", "P10", "P11", "P14")
    )
    gone = rollout["ours"]["every pod that was to go is gone after, s"]
    change = [mirrors["ours"][f"1 % in two applications, {part} ms"] for part in ("p50", "p99")]
    return {
        "about/weaknesses.md": [
            f"{fail_over['ours']['SIGKILL, longest_seconds']:.1f} s at the longest (P10)",
            f"an ordinary end takes {fail_over['ours']['SIGTERM, longest_seconds']:.2f} s",
            f"{gone:.0f} s for the five scenarios' pods (P11)",
            f"{latency['ratios']['p50, ours to floor']:.2f} times by hand in the median (P1)",
            f"{start['ratios']['ours to floor']:.1f} times at a cold start of 10,000 (P3)",
            f"{memory['ours']['50,000']:.0f} MiB against {memory['peers']['kopf']['50,000']:.0f} MiB (P5)",
            f"{stacks['peers']['single']['up_seconds']:.0f} s (P9)",
            f"one `EurekaApplication` takes {stacks['ours']['up_seconds']:.1f} s",
            f"{change[0]:.0f} ms in the median and {change[1]:.0f} ms at the 99th percentile",
        ],
        "guides/disasters.md": [f"10,000 instances took {restart['ours']['seconds']:.1f} s"],
    }
