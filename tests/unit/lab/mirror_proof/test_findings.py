"""Findings of the mirror's proof: calls that count as failed, and how long a machine was called."""

from __future__ import annotations

from pathlib import Path

from lab.mirror_proof.findings import Phase, RunRecord, make_report
from lab.pod import PodLife
from lab.proof.witness import ServerView
from lab.service_proxy import EndpointChange

BEGAN = 1_000.0


def life() -> PodLife:
    """Return a machine that left Eureka after one second and was stopped ten seconds later."""
    return PodLife(
        "",
        "review-1",
        {"app": "review"},
        "",
        "10.20.0.1",
        ready_at=BEGAN,
        deleted_at=BEGAN + 1,
        reported_at=BEGAN + 11,
    )


def recorded(folder: Path, *calls: tuple[float, str, str, str, str]) -> RunRecord:
    """Write calls (time, caller, application, target, outcome) to a file, and return the record of one
    phase of 20 s.
    """
    file = folder / "calls.csv"
    lines = (
        f"{round((BEGAN + at) * 1000)},{client},{application},{target},5,{outcome}\n"
        for at, client, application, target, outcome in calls
    )
    file.write_text("".join(lines))
    return RunRecord(
        [Phase("rolled", BEGAN, BEGAN + 20)],
        [file],
        [life()],
        [EndpointChange(BEGAN + 3, "review", "10.20.0.1", is_ready=False)],
        lambda _: [ServerView("eureka", held=0.0, shown=1.5, stale=0.0)],
    )


def test_a_call_on_a_new_connection_is_no_failure(tmp_path: Path) -> None:
    """A call that succeeds on a new connection is no failure, and is counted separately."""
    found = make_report(
        recorded(
            tmp_path,
            (2.0, "open", "review", "10.20.0.1", "ok"),
            (12.0, "open", "review", "10.20.0.2", "ok again"),
            (13.0, "open", "review", "", "ConnectionResetError"),
            (25.0, "open", "review", "", "after the phase"),
        )
    )
    (counted,) = found["phases"]["rolled"]["calls"]
    assert (counted["calls"], counted["failed"], counted["on_new_connection"]) == (3, 1, 1)
    assert counted["outcomes"] == {"ConnectionResetError": 1}
    assert counted["machines"] == 2


def test_how_long_a_machine_was_called_counts_from_its_leave(tmp_path: Path) -> None:
    """The time until a machine's last call counts from its leave, by caller; None without a later call."""
    found = make_report(
        recorded(
            tmp_path,
            (0.5, "new", "review-direct", "10.20.0.1", "ok"),
            (2.5, "new", "review", "10.20.0.1", "ok"),
            (4.0, "load balancer", "review", "10.20.0.1", "ok"),
        )
    )
    (machine,) = found["machines"]
    assert machine["left_slices_after"] == {"review": 2.0, "review-direct": None}
    assert machine["last_called_after"] == {"review": 1.5, "review-direct": None}
    assert machine["last_called_by_spring_after"] == 3.0
    assert machine["stopped_after"] == 10.0
    assert machine["shown_by_eureka_until"] == 1.5
