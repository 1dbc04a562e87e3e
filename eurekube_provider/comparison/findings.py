"""Findings about Kubernetes and Eureka, worst first; one finding names all objects with the same fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eurekube_provider.comparison.comparing import Comparison
from eurekube_provider.comparison.ranked import RankedEnum
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.comparison.seen_remedies import REMEDY_BY_FINDING_NAME, FindingName
from eurekube_provider.core.problem import Problem

if TYPE_CHECKING:
    from eurekube_provider.comparison.mirror_state import MirrorState

MAX_NAMED_SUBJECTS = 5


class Severity(RankedEnum):
    """The severities of a finding, worst first."""

    FAULT = "fault"
    """Callers do not find instances that they should find, or soon will not."""

    WARNING = "warning"
    """Eureka, or one of its servers, is not as it should be."""

    NOTE = "note"
    """Nothing is wrong now, but another event may make it a fault."""


@dataclass(frozen=True, slots=True)
class StatusFinding:
    """One fault, of one or several objects, with the problem of the first."""

    severity: Severity
    problem: Problem
    subjects: Sequence[str] = ()

    @property
    def subjects_text(self) -> str:
        """Return the names of the objects with this finding; empty if it is about no object."""
        names = ", ".join(self.subjects[:MAX_NAMED_SUBJECTS])
        more = len(self.subjects) - MAX_NAMED_SUBJECTS
        return f"{names} and {more} more" if more > 0 else names

    def to_dict(self) -> dict[str, Any]:
        return {
            "severity": str(self.severity),
            "name": self.problem.reason,
            "message": self.problem.text,
            "subjects": list(self.subjects),
        }


_SEVERITY_BY_STATE = {
    SyncState.NOT_READY: Severity.FAULT,
    SyncState.NOT_KNOWN: Severity.WARNING,
    SyncState.NOT_SYNCED: Severity.WARNING,
}


def status_findings(
    comparisons: Iterable[Comparison],
    others: Iterable[StatusFinding] = (),
    mirrors: Iterable[MirrorState] = (),
) -> list[StatusFinding]:
    """Return all findings, worst first, of which comparisons, and mirrors, with one reason share one;
    ``others`` come first among those of equal severity: most likely they are the cause.
    """
    found = [*_findings_by_reason(comparisons), *_findings_by_reason(mirrors)]
    return sorted([*others, *found], key=lambda one: one.severity.rank)


def _findings_by_reason(rows: Iterable[Comparison | MirrorState]) -> list[StatusFinding]:
    """Return one finding for each severity and reason, those with the most objects first."""
    by_reason: dict[tuple[Severity, str], list[tuple[Problem, str]]] = {}
    for one in rows:
        if one.problem is not None:
            key = (_SEVERITY_BY_STATE[one.state], one.problem.reason)
            by_reason.setdefault(key, []).append((one.problem, one.subject))
    found = []
    for (severity, _), those in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        problem, name = those[0]
        if any(one != problem for one, _ in those):
            problem = replace(problem, message=f"e.g. {name}: {problem.message}")
        found.append(StatusFinding(severity, problem, tuple(name for _, name in those)))
    return found


def build_finding(
    severity: Severity, name: FindingName, message: str, subjects: Sequence[str] = ()
) -> StatusFinding:
    """Return a finding that is about no application, with its remedy."""
    return StatusFinding(severity, Problem(name, message, REMEDY_BY_FINDING_NAME[name]), subjects)


def eureka_findings(
    name: str,
    *,
    error: str,
    failed_servers: Iterable[tuple[str, str]],
    endangered: Sequence[str],
    share_warning: str = "",
) -> list[StatusFinding]:
    """Return the faults of one Eureka.

    :param error: the reason why Eureka cannot be read; empty where it can.
    :param failed_servers: the servers that do not answer, with the reason.
    :param endangered: the servers in self-preservation, or that one more missing renewal would put there.
    :param share_warning: a warning about our share of this Eureka's renewals.
    """
    eureka = f"Eureka {name}"
    found = []
    if error:
        message = f"{eureka} cannot be read: {error}"
        found.append(build_finding(Severity.FAULT, FindingName.EUREKA_UNREACHABLE, message, (eureka,)))
    found += [
        build_finding(
            Severity.WARNING, FindingName.SERVER_AWAY, f"the Eureka server {url} is away: {why}", (url,)
        )
        for url, why in failed_servers
        if not error
    ]
    if endangered:
        message = (
            "self-preservation is on, or is with the next renewal that is missing: the dead stay listed, and "
            "callers call them"
        )
        found.append(
            build_finding(Severity.WARNING, FindingName.SELF_PRESERVATION, message, tuple(endangered))
        )
    if share_warning:
        found.append(build_finding(Severity.NOTE, FindingName.LARGE_RENEWAL_SHARE, share_warning, (eureka,)))
    return found


def headline(comparisons: Sequence[Comparison], mirrors: Sequence[MirrorState] = ()) -> str:
    """Return how many are in each state, e.g. ``2 not ready, 7 synced; mirrors: 1 synced``."""
    applications = _format_state_counts(one.state for one in comparisons)
    of_mirrors = _format_state_counts(one.state for one in mirrors)
    parts = [applications, f"mirrors: {of_mirrors}" if of_mirrors else ""]
    return "; ".join(part for part in parts if part) or "no application is known"


def _format_state_counts(states: Iterable[SyncState]) -> str:
    counts = dict.fromkeys(SyncState, 0)
    for one in states:
        counts[one] += 1
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
