"""StackRefreshes for the status page: their specs, their states, and their next runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.objects import Object
from eurekube_provider.operator.index import key_of
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState, format_timestamp
from eurekube_provider.operator.triggers.triggers import StackRefreshController


def refresh_row_dicts(triggers: StackRefreshController) -> list[dict[str, Any]]:
    """Return a row for each StackRefresh, those that are not ready first.

    The leader's rows show its own state; another replica's rows show the objects' statuses, without the next
    run, which only the leader knows.
    """
    states, due = triggers.states(), triggers.next_run_times()
    found = []
    for item in triggers.reflectors.objects():
        key = key_of(item)
        found.append(
            _refresh_row_dict(item, states.get(key) or StackRefreshState.from_object(item), due.get(key))
        )
    return sorted(found, key=lambda row: (row["ready"] is True, row["namespace"], row["name"]))


def _refresh_row_dict(item: Object, state: StackRefreshState, due: float | None) -> dict[str, Any]:
    metadata, spec, run = item["metadata"], item.get("spec") or {}, state.last_run or {}
    begun = state.last_run_began_at
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "application": str((spec.get("selector") or {}).get("app") or "").upper(),
        "action": str(spec.get("action", "")),
        "target": str(spec.get("target", "")),
        "paused": bool(spec.get("paused")),
        "ready": state.is_ready,
        "reason": state.ready.reason,
        "message": state.ready.text,
        "synced": state.is_synced,
        "syncReason": state.synced.reason,
        "syncMessage": state.synced.text,
        "addresses": state.address_count,
        "failures": state.consecutive_failures,
        "outcome": str(run.get("outcome") or ""),
        "lastRunAt": None if begun is None else format_timestamp(begun),
        "nextRunAt": None if due is None else format_timestamp(datetime.fromtimestamp(due, UTC)),
    }
