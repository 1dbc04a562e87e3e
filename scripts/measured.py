"""The documentation's sentences with measured figures of `make bench`: a test compares them with the
pages.
"""

from __future__ import annotations

from bench.record import (
    Record,
    find_record,
    format_headlines,
    format_measured_at,
    format_verdict,
    read_record,
)
from bench.report import TITLES
from scripts import scale_tables


def measured_table() -> str:
    """Return the README's table of five results with bar, day, commit, and the command that repeats each."""
    latency, churn, renewals, idle = map(read_record, ("P1", "P8", "P2", "P6"))
    failed, failed_without = _failed_calls()
    rows = [
        (
            "A change in Kubernetes until Eureka shows it, median and p99",
            _format_p50_and_p99(latency["ours"], 1),
            f"a kopf handler: {_format_p50_and_p99(latency['peers']['kopf'], 1)}",
            "P1",
        ),
        (
            f"The same with {_changes_a_second(churn)} changes a second, median and p99",
            _format_p50_and_p99(churn["ours"]),
            f"a kopf handler: {_format_p50_and_p99(churn['peers']['kopf'])}",
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
    lines = [
        "| measured | Eurekube | in the same run | bar | when | repeat it |",
        "|---|---|---|---|---|---|",
    ]
    for what, ours, other, name in rows:
        about = f"{format_verdict(read_record(name))} | {format_measured_at(read_record(name))}"
        lines.append(f"| {what} | {ours} | {other} | {about} | `make bench ONLY={name}` |")
    return "\n".join(lines) + "\n"


def missed_bars_table() -> str:
    """Return the table of benchmarks whose bar is not held, for docs/about/weaknesses.md."""
    rows = [
        f"| {title} ({name}) | {found['bar']} | {format_headlines(found['headlines'])} | "
        f"{format_measured_at(found)} |"
        for name, title in TITLES.items()
        if (found := find_record(name)) is not None and not found["held"]
    ]
    rows += [
        f"| {title} ({name}) | | not measured | |"
        for name, title in TITLES.items()
        if find_record(name) is None
    ]
    head = ["| not held | bar | measured | when |", "|---|---|---|---|"]
    return "\n".join([*head, *(rows or ["| none | | | |"])]) + "\n"


def _changes_a_second(churn: Record) -> str:
    """Return how many changes a second P8 made, which depends on the machine."""
    return f"{churn['ours'].get('changes_asked_a_second', 200):.0f}"


def _format_p50_and_p99(figures: dict[str, float], digits: int = 0) -> str:
    """Return the median and the 99th percentile, in milliseconds."""
    return f"{figures['p50_ms']:.{digits}f} and {figures['p99_ms']:.{digits}f} ms"


def comparison_table() -> str:
    """Return the table of figures measured beside rivals in the same run, for docs/about/comparison.md."""
    latency, churn, memory, renewals, stacks = map(read_record, ("P1", "P8", "P5", "P2", "P9"))
    poll = latency["peers"]["30 s poll"]
    small, large = "1,000", "50,000"
    single, plain = (stacks["peers"][name] for name in ("single", "plain dynamic resource"))
    rows = [
        (
            "kopf handler, latency, median and p99 (P1)",
            _format_p50_and_p99(latency["ours"], 1),
            _format_p50_and_p99(latency["peers"]["kopf"], 1),
        ),
        (
            f"kopf handler, latency with {_changes_a_second(churn)} changes a second, median and p99 (P8)",
            _format_p50_and_p99(churn["ours"]),
            _format_p50_and_p99(churn["peers"]["kopf"]),
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
    """Return the failed calls in all scenarios, to Eurekube's drained pods and to pods without a drain."""
    rollout = read_record("P11")
    failed = [name for name in rollout["ours"] if name.startswith("failed calls")]
    of_both = (rollout["ours"], rollout["peers"]["no drain"])
    ours, without = (f"{sum(figures[name] for name in failed):,.0f}" for figures in of_both)
    return ours, without


def quoted_figures() -> dict[str, list[str]]:
    """Return the phrases with measured figures that each page must contain, by page."""
    latency, start, restart, memory, churn, stacks, fail_over, rollout, mirrors = (
        read_record(name) for name in ("P1", "P3", "P4", "P5", "P8", "P9", "P10", "P11", "P14")
    )
    slower = [
        where
        for part, where in (("p50_ms", "in the median"), ("p99_ms", "at the 99th percentile"))
        if churn["peers"]["kopf"][part] < churn["ours"][part]
    ]
    gone = rollout["ours"]["every pod that was to go is gone after, s"]
    two, fifty = (
        [mirrors["ours"][f"1 % in {many} applications, {part} ms"] for part in ("p50", "p99")]
        for many in ("two", "as many")
    )
    return {
        "about/weaknesses.md": [
            f"{fail_over['ours']['SIGKILL, longest_seconds']:.1f} s at the longest (P10)",
            f"an ordinary end takes {fail_over['ours']['SIGTERM, longest_seconds']:.2f} s",
            f"{gone:.0f} s for the five scenarios' pods (P11)",
            f"{latency['ratios']['p50, ours to floor']:.2f} times by hand in the median (P1)",
            f"{start['ratios']['ours to floor']:.1f} times at a cold start of 10,000 (P3)",
            f"{restart['ratios']['ours to floor']:.1f} times when a Eureka server restarts empty (P4)",
            f"slower than a kopf handler {' and '.join(slower)}" if slower else "than a kopf handler",
            f"{_format_p50_and_p99(churn['ours'])} against {_format_p50_and_p99(churn['peers']['kopf'])}",
            f"{memory['ours']['50,000']:.0f} MiB against {memory['peers']['kopf']['50,000']:.0f} MiB (P5)",
            f"{stacks['peers']['single']['up_seconds']:.0f} s (P9)",
            f"one `EurekaApplication` takes {stacks['ours']['up_seconds']:.1f} s",
            f"{two[0]:.0f} ms in the median and {two[1]:.0f} ms at the 99th percentile",
            f"fifty change, {fifty[0]:.0f} and {fifty[1]:.0f} ms",
        ],
        "index.md": [
            f"{_format_p50_and_p99(latency['ours'], 1)}",
            f"a kopf handler takes {_format_p50_and_p99(latency['peers']['kopf'], 1)}",
        ],
        "guides/scale.md": scale_tables.measured_phrases(),
        "guides/disasters.md": [f"10,000 instances took {restart['ours']['seconds']:.1f} s"],
    }
