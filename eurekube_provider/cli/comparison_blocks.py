"""Comparisons of Kubernetes and Eureka as blocks for a person and as a document, for `status` and `watch`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eurekube_provider.cli.output import Block, Cell, Line, Table, Tone
from eurekube_provider.comparison.comparing import Comparison, compare
from eurekube_provider.comparison.discrepancy import DifferenceGroup, group_by_cause
from eurekube_provider.comparison.findings import (
    Severity,
    StatusFinding,
    eureka_findings,
    headline,
    status_findings,
)
from eurekube_provider.comparison.mirror_state import MirrorState, mirror_states
from eurekube_provider.comparison.operators import (
    describe_operators,
    findings_about_operators,
    operators_to_dict,
)
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import format_count
from eurekube_provider.doctor.inventory_reader import Inventory

_TONE_BY_STATE = {
    SyncState.NOT_READY: Tone.BAD,
    SyncState.NOT_KNOWN: Tone.WARNING,
    SyncState.NOT_SYNCED: Tone.WARNING,
    SyncState.SYNCED: Tone.GOOD,
    SyncState.NOT_COMPARED: Tone.DIM,
}
_TONE_BY_SEVERITY = {Severity.FAULT: Tone.BAD, Severity.WARNING: Tone.WARNING, Severity.NOTE: Tone.DIM}


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The result of ``eurekube status``, at a Unix time.

    :ivar unknown_applications: the applications that were asked for and that nothing read has.
    """

    inventory: Inventory
    comparisons: Sequence[Comparison]
    findings: Sequence[StatusFinding]
    mirrors: Sequence[MirrorState] = ()
    now_seconds: float = 0.0
    unknown_applications: Sequence[str] = ()

    @property
    def needs_attention(self) -> bool:
        """True if a finding needs a person's attention."""
        return any(one.severity is not Severity.NOTE for one in self.findings)

    def to_dict(self) -> dict[str, Any]:
        kubernetes = self.inventory.kubernetes
        return {
            "headline": headline(self.comparisons, self.mirrors),
            "cluster": kubernetes.cluster.name if kubernetes else None,
            "operators": operators_to_dict(self.inventory.operators, self.now_seconds)
            if self.inventory.operators
            else [],
            "eurekas": [
                {
                    "name": name,
                    "servers": read.server_count,
                    "instances": None if read.error else len(read.instances),
                    "error": read.error,
                }
                for name, read in self.inventory.eurekas.items()
            ],
            "missing": list(self.inventory.missing_sources),
            "unread": list(self.inventory.unread_parts),
            "troubles": [one.to_dict() for one in self.findings],
            "applications": [one.to_dict() for one in self.comparisons],
            "mirrors": [one.to_dict() for one in self.mirrors],
        }


def build_status_report(
    inventory: Inventory, applications: Collection[str] = (), *, only_differing: bool = False
) -> StatusReport:
    """Compare Kubernetes with Eureka as they were read; return comparisons, mirrors and findings.

    :param applications: the applications to show, in any case; empty for all.
    :param only_differing: leave out applications that are in sync, or have no counterpart to compare.
    """
    wanted = {name.upper() for name in applications}
    every = [
        one
        for one in compare(inventory.kubernetes, inventory.instances)
        if not wanted or one.application in wanted
    ]
    others = [
        finding
        for name, read in inventory.eurekas.items()
        for finding in eureka_findings(
            name, error=read.error, failed_servers=read.failures.items(), endangered=()
        )
    ]
    now = time.time()
    if inventory.operators is not None and inventory.kubernetes is not None:
        objects = [*inventory.kubernetes.syncers, *inventory.mirrors.mirror_objects]
        others += findings_about_operators(inventory.operators, objects, now)
    mirrors = [
        one
        for one in mirror_states(inventory.mirrors.mirror_objects, now)
        if not wanted or any(one.shows_application(name) for name in wanted)
    ]
    findings = status_findings(every, others, mirrors)
    known = {one.application for one in every}
    unknown = [name for name in wanted - known if not any(one.shows_application(name) for one in mirrors)]
    if only_differing:
        every = [one for one in every if one.state.needs_attention]
        mirrors = [one for one in mirrors if one.state.needs_attention]
    return StatusReport(inventory, every, findings, mirrors, now, sorted(unknown))


def status_blocks(status: StatusReport) -> Iterable[Block]:
    """Yield the status as blocks for a person: headline, findings, all applications, differences."""
    inventory = status.inventory
    for line in describe_operators(inventory.operators, status.now_seconds) if inventory.operators else ():
        yield Line.of(line, Tone.DIM)
    worst = status.findings[0].severity if status.findings else None
    tone = _TONE_BY_SEVERITY[worst] if worst else Tone.GOOD
    yield Line(
        (
            Cell(headline(status.comparisons, status.mirrors), tone),
            Cell(f"  ·  {_describe_sources(inventory)}", Tone.DIM),
        )
    )
    for finding in status.findings:
        yield from _finding_blocks(finding)
    problems = [one.problem for one in status.findings]
    if status.comparisons:
        column = inventory.registry_kind_name.upper()
        age = ", by its list, which may be 30 s old" if inventory.lists_lag else ""
        yield Line.of("")
        yield comparison_table(
            status.comparisons, column, shows_eureka_column=len(inventory.eurekas) > 1, problems=problems
        )
        yield Line.of(f"KUBERNETES: endpoints, ready/all; {column}: instances, UP/all{age}", Tone.DIM)
    if status.mirrors:
        yield Line.of("")
        yield mirror_table(status.mirrors, status.now_seconds, problems)
        yield Line.of("ENDPOINTS: ready/all; EUREKA READ: how old what the Service shows is", Tone.DIM)
    for one in status.comparisons:
        yield from _difference_blocks(one, problems, inventory.registry_kind_name)


def _describe_sources(inventory: Inventory) -> str:
    parts = []
    if inventory.kubernetes:
        parts.append(f"cluster {inventory.kubernetes.cluster.name or '(without a name)'}")
    for name, read in inventory.eurekas.items():
        parts.append(f"{read.registry_kind.name} {name} ({format_count(read.server_count, 'server')})")
    return ", ".join(parts)


def _finding_blocks(finding: StatusFinding) -> Iterable[Block]:
    tone = _TONE_BY_SEVERITY[finding.severity]
    subjects = f"  {finding.subjects_text}" if finding.subjects_text else ""
    yield Line((Cell(finding.problem.reason, tone), Cell(subjects)), 2)
    yield Line.of(finding.problem.message, indent=4)
    yield from remedy_blocks(finding.problem, indent=4)


def remedy_blocks(problem: Problem | None, indent: int) -> Iterable[Block]:
    """Yield a line with the remedy of a problem; nothing where no remedy is known."""
    if problem and problem.remedy:
        yield Line.of(f"to fix it: {problem.remedy}", indent=indent)


def comparison_table(
    comparisons: Sequence[Comparison],
    column: str,
    *,
    shows_eureka_column: bool = False,
    problems: Collection[Problem] = (),
) -> Table:
    """Return the table of applications in Kubernetes and in the registry, worst first.

    :param column: the title of the column with the registry's instances.
    :param shows_eureka_column: True if there are several registries, so that each row names its own.
    :param problems: the problems that are shown above: a row with the same problem names only the reason.
    """
    at = ("AT",) if shows_eureka_column else ()
    rows = [
        (
            Cell(one.application, Tone.STRONG if one.state.needs_attention else Tone.PLAIN),
            Cell(str(one.manager)),
            *([Cell(one.eureka_name)] if shows_eureka_column else ()),
            Cell(str(one.kubernetes) if one.kubernetes else "-"),
            Cell(str(one.eureka) if one.eureka else "-"),
            Cell(str(one.state), _TONE_BY_STATE[one.state]),
            _reason_cell(one.problem, problems),
        )
        for one in comparisons
    ]
    columns = ("APPLICATION", "KEPT BY", *at, "KUBERNETES", column, "STATE", "WHY")
    return Table(columns, rows, truncates_last_column=True)


def _reason_cell(problem: Problem | None, problems: Collection[Problem]) -> Cell:
    return Cell(problem.reason if problem and problem in problems else str(problem or ""))


def mirror_table(mirrors: Sequence[MirrorState], now_seconds: float, problems: Collection[Problem]) -> Table:
    """Return the table of mirrors at a Unix time, worst first."""
    rows = [
        (
            Cell(one.application, Tone.STRONG if one.state.needs_attention else Tone.PLAIN),
            Cell(f"{one.namespace}/{one.name}"),
            Cell(one.services_text or "-"),
            Cell(f"{one.ready_count}/{one.endpoint_count}"),
            Cell(_format_read_age(one, now_seconds)),
            Cell(str(one.state), _TONE_BY_STATE[one.state]),
            _reason_cell(one.problem, problems),
        )
        for one in mirrors
    ]
    columns = ("APPLICATION", "MIRROR", "SERVICE", "ENDPOINTS", "EUREKA READ", "STATE", "WHY")
    return Table(columns, rows, truncates_last_column=True)


def _format_read_age(mirror: MirrorState, now_seconds: float) -> str:
    age = mirror.seconds_since_eureka_read(now_seconds)
    if age is None:
        return "-"
    return f"{max(0.0, age):.0f} s ago" if age < 120 else f"{age / 60:.0f} min ago"


def _difference_blocks(comparison: Comparison, problems: Collection[Problem], kind: str) -> Iterable[Block]:
    groups, problem = group_by_cause(comparison.differences), comparison.problem
    if groups:
        yield Line.of("")
        yield Line.of(f"{comparison.application}, {comparison.manager}", Tone.STRONG)
    for group in groups:
        # Of a single cause it stands above already.
        if (
            len(groups) > 1
            or problem not in problems
            or problem is None
            or group.summary not in problem.message
        ):
            yield Line.of(group.summary, indent=2)
        yield from _instance_blocks(group, kind)


def _instance_blocks(group: DifferenceGroup, kind: str) -> Iterable[Block]:
    for one in group.first_differences:
        there = f"{one.kubernetes or 'not there'} in Kubernetes, {one.eureka or 'not there'} in {kind}"
        yield Line((Cell(f"{one.instance_id}  "), Cell(there, Tone.DIM)), 4)
    if group.omitted_count:
        yield Line.of(f"and {group.omitted_count} more", Tone.DIM, 4)
