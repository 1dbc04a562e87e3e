"""Faults of the operator itself, its Eurekas and its StackRefreshes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eurekube_provider.comparison.findings import Severity, StatusFinding, build_finding, eureka_findings
from eurekube_provider.comparison.seen_remedies import FindingName
from eurekube_provider.core.problem import Problem


def operator_findings(
    stuck_loops: Sequence[str], unread_sources: Sequence[str], unreadable_kinds: Sequence[str]
) -> list[StatusFinding]:
    """Return the faults that keep the operator from its work.

    :param stuck_loops: a sentence for each loop that does not go on.
    :param unread_sources: a sentence for each source that was not read yet.
    :param unreadable_kinds: a sentence for each kind of object that cannot be read at the moment.
    """
    return [
        *(build_finding(Severity.FAULT, FindingName.OPERATOR_STUCK, sentence) for sentence in stuck_loops),
        *(
            build_finding(Severity.FAULT, FindingName.OPERATOR_NOT_READY, sentence)
            for sentence in unread_sources
        ),
        *(
            build_finding(Severity.WARNING, FindingName.KUBERNETES_UNREAD, sentence)
            for sentence in unreadable_kinds
        ),
    ]


def findings_of_eureka_row(eureka: Mapping[str, Any]) -> list[StatusFinding]:
    """Return the faults of one Eureka.

    :param eureka: the status document's row of this Eureka.
    """
    servers = eureka["servers"]
    return eureka_findings(
        eureka["name"],
        error=eureka["error"],
        failed_servers=[(one["url"], one["error"]) for one in servers if one["up"] is False],
        endangered=[one["url"] for one in servers if one["selfPreservation"]],
        share_warning=eureka["warning"],
    )


def refresh_findings(refreshes: Iterable[Mapping[str, Any]]) -> list[StatusFinding]:
    """Return findings on StackRefreshes that are refused or whose last run failed, one for each reason.

    :param refreshes: the StackRefreshes of the status document.
    """
    by_reason: dict[str, list[Mapping[str, Any]]] = {}
    for row in refreshes:
        if row["ready"] is False:
            by_reason.setdefault(row["reason"], []).append(row)
    return [
        StatusFinding(
            Severity.WARNING,
            Problem.of(those[0]),
            tuple(f"StackRefresh {one['namespace']}/{one['name']}" for one in those),
        )
        for those in by_reason.values()
    ]
