"""Findings of the status: sorted by severity, each problem once."""

from __future__ import annotations

from eurekube_provider.comparison.comparing import Comparison
from eurekube_provider.comparison.findings import (
    MAX_NAMED_SUBJECTS,
    Severity,
    StatusFinding,
    eureka_findings,
    headline,
    status_findings,
)
from eurekube_provider.comparison.managers import Manager, ManagerKind
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.core.problem import Problem


def compared(name: str, state: SyncState, reason: str = "", message: str = "") -> Comparison:
    """Return the comparison of the syncer ``shop/<name>`` with this state and problem."""
    problem = Problem(reason, message) if reason else None
    return Comparison(name.upper(), Manager(ManagerKind.SYNCER, f"shop/{name}"), state, problem=problem)


def test_one_reason_is_one_trouble() -> None:
    """One reason is one finding for all its syncers, with the first one's message as an example."""
    found = status_findings(
        [
            *(
                compared(f"a{number}", SyncState.NOT_SYNCED, "Conflict", f"a{number} taken")
                for number in range(8)
            ),
            compared("b", SyncState.NOT_READY, "NoMatchingService", "no Service"),
            compared("c", SyncState.SYNCED),
        ]
    )
    assert [(one.severity, one.problem.reason, len(one.subjects)) for one in found] == [
        (Severity.FAULT, "NoMatchingService", 1),
        (Severity.WARNING, "Conflict", 8),
    ]
    assert [one.problem.message for one in found] == ["no Service", "e.g. shop/a0: a0 taken"]
    assert found[1].subjects_text.endswith(
        f"shop/a{MAX_NAMED_SUBJECTS - 1} and {8 - MAX_NAMED_SUBJECTS} more"
    )


def test_the_worst_comes_first_and_a_cause_before_what_comes_of_it() -> None:
    """Among faults a Eureka that cannot be read comes before its syncers; notes come last."""
    of_eureka = eureka_findings(
        "default", error="no answer", failed_servers=[("http://e", "x")], endangered=(), share_warning="40 %"
    )
    found = status_findings([compared("b", SyncState.NOT_READY, "EurekaUnreachable", "no answer")], of_eureka)
    assert [(one.severity, one.subjects_text) for one in found] == [
        (Severity.FAULT, "Eureka default"),
        (Severity.FAULT, "shop/b"),
        (Severity.NOTE, "Eureka default"),
    ]


def test_a_server_that_is_away_and_one_that_preserves_itself() -> None:
    """A server that is away, or near self-preservation, is a warning while another one answers."""
    found = eureka_findings(
        "eu", error="", failed_servers=[("http://e-1", "time-out")], endangered=["http://e-2"]
    )
    assert [(one.severity, one.problem.reason, one.subjects) for one in found] == [
        (Severity.WARNING, "ServerAway", ("http://e-1",)),
        (Severity.WARNING, "SelfPreservation", ("http://e-2",)),
    ]
    assert StatusFinding(Severity.NOTE, Problem("a", "b")).subjects_text == ""


def test_the_sum_has_the_worst_first() -> None:
    """The headline counts states, the worst first."""
    states = [SyncState.SYNCED, SyncState.NOT_READY, SyncState.SYNCED, SyncState.NOT_COMPARED]
    assert headline([compared("x", one) for one in states]) == "1 not ready, 2 synced, 1 not compared"
    assert headline([]) == "no application is known"
