"""Faults, worst first, each once however many objects it befalls."""

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
"""How many of those that one finding befalls are named."""


class Severity(Ranked):
    """How bad a finding is, worst first."""

    FAULT = "fault"
    """Callers do not find what they should, or soon will not."""

    WARNING = "warning"
    """Eureka is not as it should be, or a server of it."""

    NOTE = "note"
    """Nothing is wrong now; it may be when something else happens."""


@dataclass(frozen=True, slots=True)
class StatusFinding:
    """One thing that is wrong.

    :ivar problem: that of the first of them where it befalls several.
    :ivar subjects: the objects that have it.
    """

    severity: Severity
    problem: Problem
    subjects: Sequence[str] = ()

    @property
    def subjects_text(self) -> str:
        """Return the names of those that have it; empty for nobody in particular."""
        named = ", ".join(self.subjects[:MOST_SUBJECTS])
        more = len(self.subjects) - MOST_SUBJECTS
        return f"{named} and {more} more" if more > 0 else named

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
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
    """Everything that is wrong, worst first; comparisons with one reason are one finding, as are mirrors.

    :param others: other findings. Of equal severity it comes first: most likely it is the cause.
    """
    found = [
        *_findings_by_reason(comparisons, _name_of),
        *_findings_by_reason(mirrors, lambda one: one.subject),
    ]
    return sorted([*others, *found], key=lambda one: one.severity.rank)


_Shown = TypeVar("_Shown", Comparison, "MirrorState")


def _findings_by_reason(shown: Iterable[_Shown], named: Callable[[_Shown], str]) -> list[StatusFinding]:
    """One finding for each severity and reason, what befalls most of them first."""
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
    """A finding that is no application's, with what fixes it."""
    return StatusFinding(severity, Problem(name, message, FINDING_REMEDIES[name]), subjects)


def eureka_findings(
    name: str, *, error: str, away: Iterable[tuple[str, str]], endangered: Sequence[str], warning: str = ""
) -> list[StatusFinding]:
    """Return the faults of one Eureka.

    :param error: why it cannot be read; empty where it can.
    :param away: the servers that do not answer, with the reason.
    :param endangered: the servers that forget nobody, or will not with the next renewal that is missing.
    :param warning: a warning about our share of it.
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
    """The sum in one line, e.g. ``2 not ready, 1 not synced, 7 synced; mirrors: 1 synced``."""
    applications = _counted(one.state for one in comparisons)
    of_mirrors = _counted(one.state for one in mirrors)
    parts = [applications, f"mirrors: {of_mirrors}" if of_mirrors else ""]
    return "; ".join(part for part in parts if part) or "no application is known"


def _counted(states: Iterable[SyncState]) -> str:
    counts = dict.fromkeys(SyncState, 0)
    for one in states:
        counts[one] += 1
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
