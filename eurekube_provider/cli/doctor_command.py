"""The command ``eurekube doctor``, which finds faults that make callers' requests fail, and their fixes."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from eurekube_provider.cli.caches import add_drain_duration_options, drain_from_options
from eurekube_provider.cli.inventory_options import INVENTORY_SETTING_NAMES
from eurekube_provider.cli.terminal import print_error_line, print_text
from eurekube_provider.comparison.operators import describe_operators, operators_to_dict
from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS, QUICK_CACHES_DRAIN, Drain
from eurekube_provider.core.errors import ConfigurationError, EurekubeError
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import format_count
from eurekube_provider.doctor.checks import check_snapshot
from eurekube_provider.doctor.finding import Fault, Finding, Severity, merge_patches
from eurekube_provider.doctor.reader import Snapshot, read_snapshot
from eurekube_provider.doctor.workload_checks import WorkloadRequirements
from eurekube_provider.operator.settings import add_setting_flags, load_settings

WELL_EXIT_CODE, FINDINGS_EXIT_CODE, COULD_NOT_READ_EXIT_CODE = 0, 1, 2
"""Exit codes: all well, faults found, parts not read. A part that was not read outweighs a fault."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Look at the cluster, the syncers, the workloads behind them, the mirrors and Eureka, and say what"
        " would cost callers an answer, with the exact change that fixes it. Changes nothing. Whatever else"
        " the operator knows about Eureka (EUREKA_USER, EUREKA_PASSWORD, EUREKA_CA_FILE ...) is read from the"
        " environment here, too. Exit code: 0 all is well, 1 something was found, be it an error or a"
        " warning, 2 something could not be looked at."
    )
    parser.add_argument("--namespace", "-n", metavar="NAME[,NAME...]", help="the namespaces to look at [all]")
    add_setting_flags(parser, frozenset(INVENTORY_SETTING_NAMES))
    add_drain_duration_options(parser)
    parser.add_argument(
        "--shutdown-seconds",
        type=int,
        default=DEFAULT_SHUTDOWN_SECONDS,
        metavar="SECONDS",
        help=f"what a process needs to end after SIGTERM [{DEFAULT_SHUTDOWN_SECONDS}]",
    )
    parser.add_argument(
        "--ignore", metavar="FAULT[,FAULT...]", default="", help=f"pass over these: {', '.join(Fault)}"
    )
    parser.add_argument(
        "--fix", action="store_true", help="print the kubectl commands that fix what they can"
    )
    parser.add_argument(
        "--readiness-gate",
        action="store_true",
        help="fix a short minReadySeconds by the readiness gate eurekube.io/callers-know",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="[text]")


def run(options: argparse.Namespace) -> int:
    try:
        ignored = _parse_ignored_faults(options.ignore)
        requirements = WorkloadRequirements(
            drain_from_options(options), options.shutdown_seconds, options.readiness_gate
        )
        requirements.drain.grace_period_seconds(options.shutdown_seconds)
        said = {key: value for key, value in vars(options).items() if value is None or isinstance(value, str)}
        settings = load_settings({**said, "watch_namespace": options.namespace})
        snapshot = read_snapshot(settings)
    except EurekubeError as error:
        print_error_line(f"eurekube doctor: could not look: {error}")
        return COULD_NOT_READ_EXIT_CODE
    everything = check_snapshot(snapshot, requirements, time.time(), settings.watch_namespaces)
    found = (one for one in everything if one.fault not in ignored)
    findings = sorted(found, key=lambda one: one.severity.rank)
    if options.output == "json":
        print_text(json.dumps(report_to_dict(snapshot, findings), indent=2) + "\n")
    else:
        print_text(
            format_fix_commands(findings)
            if options.fix
            else format_report(snapshot, findings, advise_quicker_caches(requirements.drain))
        )
    for sentence in snapshot.unread_parts:
        print_error_line(f"eurekube doctor: could not look at {sentence}")
    return (
        COULD_NOT_READ_EXIT_CODE
        if snapshot.unread_parts
        else FINDINGS_EXIT_CODE
        if findings
        else WELL_EXIT_CODE
    )


def _parse_ignored_faults(text: str) -> set[Fault]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Fault)]
    if unknown:
        raise ConfigurationError(
            f"--ignore {unknown[0]}: there is no such fault; there are {', '.join(Fault)}"
        )
    return {Fault(name) for name in names}


def format_report(snapshot: Snapshot, findings: Sequence[Finding], closing_note: str = "") -> str:
    """Return the findings, and a paragraph after them, as text for a person."""
    operators = snapshot.operators
    lines = list(map(printable, describe_operators(operators, time.time()))) if operators else []
    if lines:
        lines.append("")
    for one in findings:
        said = (f"{one.severity}: {one.fault}  {one.subject}", f"    {one.problem}", f"    fix: {one.remedy}")
        lines += [*(printable(line) for line in said), ""]
    if closing_note:
        lines += [closing_note, ""]
    object_counts = [
        format_count(count, kind.removesuffix("s")) for kind, count in snapshot.object_counts.items()
    ]
    counts = ", ".join(
        format_count(count, severity) for severity, count in count_by_severity(findings).items()
    )
    found = counts if findings or snapshot.unread_parts else "all is well"
    some = any(one.patch for one in findings)
    hint = "; --fix prints the kubectl commands that fix them" if some else ""
    return "\n".join([*lines, f"{found} in {', '.join(object_counts) or 'nothing'} read{hint}"]) + "\n"


def advise_quicker_caches(drain: Drain) -> str:
    """Return which settings let callers learn sooner, and their costs; empty if these are quick enough."""
    before, after = drain.total_cache_seconds, QUICK_CACHES_DRAIN.total_cache_seconds
    if before <= 2 * after:
        return ""
    server, fetch = QUICK_CACHES_DRAIN.server_cache_seconds, QUICK_CACHES_DRAIN.client_fetch_seconds
    costs = [
        f"{drain.client_fetch_seconds / fetch:g} times the fetches of each caller"
        if drain.client_fetch_seconds > fetch
        else "",
        f"{drain.server_cache_seconds / server:g} times the renderings of a list"
        if drain.server_cache_seconds > server
        else "",
    ]
    return (
        f"callers learn of a pod up to {before:g} s after Eureka shows it. It is {after:g} s with "
        f"eureka.server.response-cache-update-interval-ms={server * 1000:g} in Eureka, and "
        f"eureka.client.registry-fetch-interval-seconds={fetch:g} and "
        f"spring.cloud.loadbalancer.cache.ttl={QUICK_CACHES_DRAIN.load_balancer_cache_seconds:g}s in the "
        f"callers; that costs Eureka {' and '.join(filter(None, costs)) or 'nothing'}. Give drains and "
        "operator the same times then"
    )


def count_by_severity(findings: Sequence[Finding]) -> dict[str, int]:
    counts = Counter(one.severity for one in findings)
    return {str(severity): counts[severity] for severity in Severity}


def format_fix_commands(findings: Sequence[Finding]) -> str:
    """Return a shell command for each object to patch, and the other remedies as comments."""
    lines = [patch.command for patch in merge_patches(findings)]
    rest = [one for one in findings if one.patch is None]
    # Anyone who may register in Eureka chooses what stands in a subject, and a line's end would end the
    # comment.
    lines += [printable(f"# {one.fault} {one.subject}: {' '.join(one.remedy.split())}") for one in rest]
    return "".join(f"{line}\n" for line in lines)


def report_to_dict(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings, and their number by severity, as JSON values."""
    return {
        "operators": operators_to_dict(snapshot.operators, time.time()) if snapshot.operators else [],
        "looked": snapshot.object_counts,
        "counts": count_by_severity(findings),
        "findings": [one.to_dict() for one in findings],
        "patches": [{**patch.to_dict(), "command": patch.command} for patch in merge_patches(findings)],
        "unseen": list(snapshot.unread_parts),
    }
