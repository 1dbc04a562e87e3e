"""The conditions Reconciling and Stalled, for tools that know no conditions of Eurekube."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eurekube_provider.core.condition_types import Reason, RefreshReason, SyncerCondition
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirroredServiceCounts, MirrorReport
from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.problem import Problem
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.mirror.mirror_status import mirror_status
from eurekube_provider.operator.progress import (
    INTENDED_STATE_REASONS,
    STALLED_AFTER_SECONDS,
    STUCK_SYNCER_REASONS,
)
from eurekube_provider.operator.status import syncer_status
from eurekube_provider.operator.triggers import trigger_state
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Object = dict[str, Any]


def report(reason: str = "", *others: str) -> SyncerReport:
    """Return a reconcile's report with one instance UP, which is all well without a reason."""
    well = Problem("Synced", "all well")
    problems = {one: Problem(one, f"{one} it is") for one in (reason, *others) if one}
    return SyncerReport(True, well, not reason, problems.get(reason, well), problems=problems)


def said(item: Object) -> dict[str, str]:
    """Return those of Reconciling and Stalled that are True, with their reasons."""
    found = conditions_of(item)
    return {
        kind: found[kind]["reason"]
        for kind in ("Reconciling", "Stalled")
        if found.get(kind, {}).get("status") == "True"
    }


def after(item: Object, found: SyncerReport, seconds: float) -> Object:
    """Return the syncer with the status that is written this number of seconds after the start."""
    return {**item, "status": syncer_status(item, found, NOW + timedelta(seconds=seconds))}


SYNCER: Object = {"metadata": {"namespace": "shop", "name": "rating", "generation": 1}}


@pytest.mark.parametrize("reason", sorted(STUCK_SYNCER_REASONS))
def test_what_only_a_person_can_change_is_stalled_after_two_minutes(reason: str) -> None:
    """A syncer with such a problem is Reconciling for two minutes, then Stalled, and neither once the
    problem is solved.
    """
    item = after(SYNCER, report(reason), 0)
    item = after(item, report(reason), STALLED_AFTER_SECONDS - 1)
    assert said(item) == {"Reconciling": reason}
    item = after(item, report(reason), STALLED_AFTER_SECONDS)
    assert said(item) == {"Stalled": reason}
    assert said(after(item, report(reason), 999)) == {"Stalled": reason}
    assert said(after(item, report(), 999)) == {}


def test_another_reason_begins_again() -> None:
    """The two minutes until Stalled start anew when the reason changes."""
    item = after(SYNCER, report(Reason.EUREKA_UNREACHABLE), 0)
    item = after(item, report(SyncerCondition.NO_PORT), 500)
    assert said(item) == {"Reconciling": "NoPort"}
    item = after(item, report(SyncerCondition.NO_PORT), 499 + STALLED_AFTER_SECONDS)
    assert said(item) == {"Reconciling": "NoPort"}
    assert said(after(item, report(SyncerCondition.NO_PORT), 500 + STALLED_AFTER_SECONDS)) == {
        "Stalled": "NoPort"
    }


@pytest.mark.parametrize(
    "reason",
    [Reason.EUREKA_UNREACHABLE, SyncerCondition.BRAKED, Reason.NODES_NOT_READ, Reason.FAILED, "Unheard"],
)
def test_what_may_pass_by_itself_is_never_stalled(reason: str) -> None:
    """A problem that may pass by itself, or an unknown reason, stays Reconciling."""
    item = after(after(SYNCER, report(reason), 0), report(reason), 99_999)
    assert said(item) == {"Reconciling": reason}


@pytest.mark.parametrize("reason", sorted(INTENDED_STATE_REASONS))
def test_what_a_person_wants_is_not_waited_for(reason: str) -> None:
    """A paused syncer, or one whose pods register themselves, is neither Reconciling nor Stalled."""
    assert said(after(SYNCER, report(reason), 0)) == {}
    assert said(after(SYNCER, report(SyncerCondition.NO_PORT, SyncerCondition.PAUSED), 0)) == {}


def test_a_note_is_not_waited_for() -> None:
    """DrainTooShort makes a syncer neither Reconciling nor Stalled."""
    noted = SyncerReport(
        True, Problem("Synced", ""), True, Problem("Synced", ""), problems={"DrainTooShort": Problem("", "")}
    )
    assert said(after(SYNCER, noted, 0)) == {}


def test_mirrors_and_stack_refreshes_say_the_same() -> None:
    """Mirrors and StackRefreshes become Stalled for reasons that only a person can change, Reconciling for
    others.
    """
    services = (MirroredServiceCounts("REVIEW", "review", 1, 1),)

    def mirror(item: Object, kind: str, seconds: float) -> Object:
        found = MirrorReport(services, {kind: Problem(kind, "so")})
        return {**item, "status": mirror_status(item, found, NOW + timedelta(seconds=seconds))}

    for kind, first, later in (
        (MirrorCondition.NAME_TAKEN, {"Reconciling": "NameTaken"}, {"Stalled": "NameTaken"}),
        (MirrorCondition.BRAKED, {"Reconciling": "Braked"}, {"Reconciling": "Braked"}),
        (MirrorCondition.ADDRESS_REFUSED, {}, {}),
    ):
        item = mirror(SYNCER, kind, 0)
        assert said(item) == first
        assert said(mirror(item, kind, STALLED_AFTER_SECONDS)) == later

    def refresh(item: Object, state: StackRefreshState, seconds: float) -> Object:
        return {
            **item,
            "status": trigger_state.stack_refresh_status_patch(item, state, NOW + timedelta(seconds=seconds)),
        }

    refused = StackRefreshState().as_refused(RefreshReason.UNKNOWN_TARGET, "no such target")
    item = refresh(SYNCER, refused, 0)
    assert said(item) == {"Reconciling": "UnknownTarget"}
    assert said(refresh(item, refused, STALLED_AFTER_SECONDS)) == {"Stalled": "UnknownTarget"}
    waiting = refresh(SYNCER, StackRefreshState(), 0)
    assert said(refresh(waiting, StackRefreshState(), 999)) == said(waiting) != {}


def test_what_the_crd_has_put_there_is_nobodys_word() -> None:
    """The CRD's default condition Ready, with its meaningless time, is ignored."""
    given = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "AwaitingOperator",
        "message": "no operator has looked at it yet",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    item = {**SYNCER, "status": {"conditions": [given]}}
    assert conditions_of(item) == {}
    braked = SyncerReport(None, Problem("Braked", ""), False, Problem("Braked", ""))
    assert conditions_of(after(item, braked, 0))["Ready"]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("time", ["yesterday", "2026-01-02T03:04:05", None])
def test_a_time_that_somebody_wrote_is_waited_from_again(time: str | None) -> None:
    """A transition time that cannot be read starts the two minutes anew, and does not prevent the status."""
    reason = min(STUCK_SYNCER_REASONS)
    item = after(SYNCER, report(reason), 0)
    waits = next(one for one in item["status"]["conditions"] if one["type"] == "Reconciling")
    waits["lastTransitionTime"] = time
    assert said(after(item, report(reason), 999)) == {"Reconciling": reason}
