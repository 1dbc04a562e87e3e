"""``eurekube doctor``: finds what would cost callers an answer, and prints the change that mends it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

from eurekube_provider.cli.caches import add_cache_options, drain_of
from eurekube_provider.cli.terminal import complain, put
from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS
from eurekube_provider.core.errors import ConfigurationError, EurekubeError
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import counted
from eurekube_provider.doctor.checks import Requirements, findings_of
from eurekube_provider.doctor.finding import Fault, Finding, combined
from eurekube_provider.doctor.reader import Snapshot, read_snapshot
from eurekube_provider.operator.settings import add_settings, settings_from

WELL, FINDINGS, COULD_NOT_READ = 0, 1, 2
"""Exit codes. What could not be looked at counts more than what was found."""

_SETTINGS = frozenset({"config", "eureka-url", "kubeconfig", "context", "cluster-name", "cluster-domain"})


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Look at the cluster, the syncers, the workloads behind them, the mirrors and Eureka, and say what"
        " would cost callers an answer, with the exact change that mends it. Changes nothing. Whatever else"
        " the operator knows about Eureka (EUREKA_USER, EUREKA_PASSWORD, EUREKA_CA_FILE ...) is read from the"
        " environment here, too. Exit code: 0 all is well, 1 something was found, 2 something could not be"
        " looked at."
    )
    parser.add_argument("--namespace", "-n", metavar="NAME[,NAME...]", help="the namespaces to look at [all]")
    add_settings(parser, _SETTINGS)
    add_cache_options(parser)
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
        "--fix", action="store_true", help="print the kubectl commands that mend what they can"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="[text]")


def run(options: argparse.Namespace) -> int:
    """Read, check and print; return the exit code."""
    try:
        ignored = _ignored(options.ignore)
        requirements = Requirements(drain_of(options), options.shutdown_seconds)
        requirements.drain.grace_period_seconds(options.shutdown_seconds)
        said = {key: value for key, value in vars(options).items() if value is None or isinstance(value, str)}
        settings = settings_from({**said, "watch_namespace": options.namespace})
        snapshot = read_snapshot(settings)
    except EurekubeError as error:
        complain(f"eurekube doctor: could not look: {error}")
        return COULD_NOT_READ
    everything = findings_of(snapshot, requirements, time.time(), settings.watch_namespaces)
    findings = [one for one in everything if one.fault not in ignored]
    if options.output == "json":
        put(json.dumps(document(snapshot, findings), indent=2) + "\n")
    else:
        put(commands(findings) if options.fix else text(snapshot, findings))
    for sentence in snapshot.unseen:
        complain(f"eurekube doctor: could not look at {sentence}")
    return COULD_NOT_READ if snapshot.unseen else FINDINGS if findings else WELL


def _ignored(text: str) -> set[Fault]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Fault)]
    if unknown:
        raise ConfigurationError(
            f"--ignore {unknown[0]}: there is no such fault; there are {', '.join(Fault)}"
        )
    return {Fault(name) for name in names}


def text(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """Write the findings for a person."""
    lines = []
    for one in findings:
        said = (f"{one.fault}  {one.subject}", f"    {one.problem}", f"    mend: {one.remedy}")
        lines += [*(printable(line) for line in said), ""]
    seen = ", ".join(f"{count} {what}" for what, count in looked(snapshot).items())
    if not findings:
        return f"looked at {seen}: {'no faults there' if snapshot.unseen else 'all is well'}\n"
    faults = counted(len(findings), "fault")
    some = any(one.patch for one in findings)
    hint = "; --fix prints the kubectl commands that mend them" if some else ""
    return "\n".join([*lines, f"looked at {seen}: {faults}{hint}"]) + "\n"


def commands(findings: Sequence[Finding]) -> str:
    """Write commands for a shell, one for each object, and the rest as comments."""
    lines = [patch.command for patch in combined(findings)]
    rest = [one for one in findings if one.patch is None]
    # Whoever may register in Eureka chooses what stands in a subject, and a line's end would end the comment.
    lines += [printable(f"# {one.fault} {one.subject}: {' '.join(one.remedy.split())}") for one in rest]
    return "".join(f"{line}\n" for line in lines)


def document(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return findings and counts as plain JSON values."""
    return {
        "looked": looked(snapshot),
        "findings": [one.to_dict() for one in findings],
        "patches": [{**patch.to_dict(), "command": patch.command} for patch in combined(findings)],
        "unseen": list(snapshot.unseen),
    }


def looked(snapshot: Snapshot) -> dict[str, int]:
    """Count what was read."""
    return {
        "syncers": len(snapshot.syncers),
        **({"mirrors": len(snapshot.mirrors)} if snapshot.mirrors else {}),
        "services": len(snapshot.services),
        "workloads": len(snapshot.workloads),
        "instances": sum(len(one.instances) for one in snapshot.eurekas.values()),
        "Eureka servers": sum(one.servers for one in snapshot.eurekas.values()),
    }
