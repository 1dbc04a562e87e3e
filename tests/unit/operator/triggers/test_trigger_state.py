"""The status of a StackRefresh: its messages for people, and its state for the next leader."""

from __future__ import annotations

from datetime import UTC, datetime

from eurekube_provider.core.condition_types import RefreshReason
from eurekube_provider.core.remedies import REFRESH_REMEDIES
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState, stack_refresh_status_patch


def test_what_fixes_it_is_said_and_read_back_as_nothing_new() -> None:
    """Each condition's message ends with the remedy; the next leader reads the same state back and writes
    nothing.
    """
    reason = RefreshReason.NO_MATCHING_SERVICE
    state = StackRefreshState().as_refused(reason, "no Service in shop has the labels a=1")
    item = {"metadata": {"namespace": "shop", "name": "rating", "generation": 1}}
    status = stack_refresh_status_patch(item, state, datetime(2026, 1, 2, tzinfo=UTC))
    ready, synced = (
        next(one for one in status["conditions"] if one["type"] == kind) for kind in ("Ready", "Synced")
    )
    remedy = f"; to fix it: {REFRESH_REMEDIES[reason]}"
    assert ready["message"] == f"no Service in shop has the labels a=1{remedy}"
    assert synced["message"] == f"nothing is run{remedy}"
    found = StackRefreshState.from_object({**item, "status": status})
    assert (found.ready, found.synced) == (state.ready, state.synced)
    assert (
        stack_refresh_status_patch({**item, "status": status}, found, datetime(2026, 1, 2, 0, 1, tzinfo=UTC))
        == status
    )
