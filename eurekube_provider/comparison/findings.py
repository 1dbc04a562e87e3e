"""Findings about both Kubernetes and Eureka, worst first; one finding names all objects with the same
fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from eurekube_provider.comparison.comparing import Comparison
from eurekube_provider.comparison.ranked import Ranked
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.comparison.seen_remedies import FINDING_REMEDIES, FindingName
from eurekube_provider.core.problem import Problem

if TYPE_CHECKING:
    from eurekube_provider.comparison.mirror_state import MirrorState

MOST_SUBJECTS = 5
"""The number of objects with a finding that are named."""


class Severity(Ranked):
    """The severities of a finding, worst first."""

    FAULT = "fault"
    """Callers do not find instances that they should find, or soon will not."""

    WARNING = "warning"
    """Eureka, or one of its servers, is not as it should be."""

    NOTE = "note"
    """Nothing is wrong now, but another event may make it a fault."""


@dataclass(frozen=True, slots=True)
class StatusFinding:
    """One fault, of one or several objects.

    :ivar problem: the problem, of the first object where there are several.
    :ivar subjects: the objects that have it.
    """

    severity: Severity
    problem: Problem
    subjects: Sequence[str] = ()

    @property
    def subjects_text(self) -> str:
        """Return the names of the objects with this finding; empty if it is about no object."""
        named = ", ".join(self.subjects[:MOST_SUBJECTS])
        more = len(self.subjects) - MOST_SUBJECTS
        return f"{named} and {more} more" if more > 0 else named

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {
            "severity": str(self.severity),
            "name": self.problem.reason,
            "message": self.problem.text,
            "subjects": list(self.subjects),
        }


_SEVERITIES = {
    SyncState.NOT_READY: Severity.FAULT,
    SyncState.NOT_KNOWN: Severity.WARNING,
    SyncState.NOT_SYNCED: Severity.WARNING,
}


def status_findings(
    comparisons: Iterable[Comparison],
    others: Iterable[StatusFinding] = (),
    mirrors: Iterable[MirrorState] = (),
) -> list[StatusFinding]:
    """Return all findings, worst first; comparisons with the same reason share one finding, and mirrors do,
    too.

    :param others: other findings, which come first among those of equal severity: most likely they are the
        cause.
    """
    found = [
        *_findings_by_reason(comparisons, _name_of),
        *_findings_by_reason(mirrors, lambda one: one.subject),
    ]
    return sorted([*others, *found], key=lambda one: one.severity.rank)


_Shown = TypeVar("_Shown", Comparison, "MirrorState")


def _findings_by_reason(shown: Iterable[_Shown], named: Callable[[_Shown], str]) -> list[StatusFinding]:
    """Return one finding for each severity and reason, those with the most objects first."""
    by_reason: dict[tuple[Severity, str], list[tuple[Problem, str]]] = {}
    for one in shown:
        if one.problem is not None:
            key = (_SEVERITIES[one.state], one.problem.reason)
            by_reason.setdefault(key, []).append((one.problem, named(one)))
    found = []
    for (severity, _), those in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        problem, name = those[0]
        if any(one != problem for one, _ in those):
            problem = replace(problem, message=f"e.g. {name}: {problem.message}")
        found.append(StatusFinding(severity, problem, tuple(name for _, name in those)))
    return found


def _name_of(comparison: Comparison) -> str:
    name = comparison.manager.name
    return name if name and comparison.state is not SyncState.NOT_COMPARED else comparison.application


def finding(
    severity: Severity, name: FindingName, message: str, subjects: Sequence[str] = ()
) -> StatusFinding:
    """Return a finding that is about no application, with its remedy."""
    return StatusFinding(severity, Problem(name, message, FINDING_REMEDIES[name]), subjects)


def eureka_findings(
    name: str, *, error: str, away: Iterable[tuple[str, str]], endangered: Sequence[str], warning: str = ""
) -> list[StatusFinding]:
    """Return the faults of one Eureka.

    :param error: the reason why Eureka cannot be read; empty where it can.
    :param away: the servers that do not answer, with the reason.
    :param endangered: the servers in self-preservation, or that one more missing renewal would put there.
    :param warning: a warning about our share of this Eureka's renewals.
    """
    eureka = f"Eureka {name}"
    found = []
    if error:
        message = f"{eureka} cannot be read: {error}"
        found.append(finding(Severity.FAULT, FindingName.EUREKA_UNREACHABLE, message, (eureka,)))
    found += [
        finding(Severity.WARNING, FindingName.SERVER_AWAY, f"the Eureka server {url} is away: {why}", (url,))
        for url, why in away
        if not error
    ]
    if endangered:
        message = (
            "self-preservation is on, or is with the next renewal that is missing: the dead stay listed, and"
            " callers call them"
        )
        found.append(finding(Severity.WARNING, FindingName.SELF_PRESERVATION, message, tuple(endangered)))
    if warning:
        found.append(finding(Severity.NOTE, FindingName.SHARE, warning, (eureka,)))
    return found


def headline(comparisons: Sequence[Comparison], mirrors: Sequence[MirrorState] = ()) -> str:
    """Return the number of applications in each state, e.g. ``2 not ready, 1 not synced, 7 synced;
    mirrors: 1 synced``.
    """
    applications = _counted(one.state for one in comparisons)
    of_mirrors = _counted(one.state for one in mirrors)
    parts = [applications, f"mirrors: {of_mirrors}" if of_mirrors else ""]
    return "; ".join(part for part in parts if part) or "no application is known"


def _counted(states: Iterable[SyncState]) -> str:
    counts = dict.fromkeys(SyncState, 0)
    for one in states:
        counts[one] += 1
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
