"""The conditions Reconciling and Stalled of each kind of custom resource: pure.

kstatus, and with it Flux, kpt and others, reads no other conditions than these two and Ready: a tool waits
for an object that is Reconciling, and one that is Stalled has failed. Flux gives up at once on a Stalled
object, while one apply creates its objects in any order. So a fault that only a person can fix counts as
Reconciling for two minutes before it is Stalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.objects import conditions_of, parse_api_time
from eurekube_provider.core.problem import Problem

RECONCILING, STALLED = SyncerCondition.RECONCILING, SyncerCondition.STALLED

STALLED_AFTER_SECONDS = 120.0
"""Seconds for which a fault that only a person can fix counts as Reconciling before it is Stalled."""

STALLED_RECHECK_SECONDS = 15.0
"""Seconds between checks of an object that may become Stalled, though nothing changes."""

STUCK_SYNCER_REASONS = frozenset(
    {
        SyncerCondition.CONFLICT,
        SyncerCondition.AMBIGUOUS_SERVICE,
        SyncerCondition.AMBIGUOUS_PORT,
        SyncerCondition.NO_PORT,
        SyncerCondition.NO_ADDRESS,
        Reason.NOT_ALLOWED,
        Reason.UNKNOWN_EUREKA,
        Reason.INVALID_INSTANCE,
        Reason.NO_MATCHING_SERVICE,
        Reason.EXTERNAL_NAME,
        Reason.SERVICE_REFUSED,
    }
)
"""Reasons of a EurekaSyncer's Synced that last until a person acts."""

INTENDED_STATE_REASONS = frozenset(
    {SyncerCondition.PAUSED, SyncerCondition.SELF_REGISTERED, SyncerCondition.DEAD_SELF_REGISTERED}
)
"""Reasons of a EurekaSyncer that last as long as a person wants them."""


def progress_conditions(
    item: Mapping[str, Any], why: Problem | None, now: datetime, *, is_stuck: bool
) -> dict[str, Problem]:
    """Return the condition Reconciling or Stalled; neither where the object is as its spec asks.

    :param item: the object with its current status, which tells since when it waits for the same reason.
    :param why: the reason why the object does not have what its spec asks for; None if it has.
    :param is_stuck: True if only a person can change that.
    """
    if why is None:
        return {}
    if is_stuck and is_stalled_for_reason(item, why):
        return {STALLED: why}
    waits = conditions_of(item).get(RECONCILING)
    if is_stuck and waits is not None and _is_true_for_reason(waits, why):
        since = parse_api_time(waits.get("lastTransitionTime"))
        if since is not None and (now - since).total_seconds() >= STALLED_AFTER_SECONDS:
            return {STALLED: why}
    return {RECONCILING: why}


def is_stalled_for_reason(item: Mapping[str, Any], why: Problem) -> bool:
    """Return whether the status already says Stalled for this reason."""
    return _is_true_for_reason(conditions_of(item).get(STALLED), why)


def _is_true_for_reason(condition: Mapping[str, Any] | None, why: Problem) -> bool:
    return condition is not None and condition["status"] == "True" and condition["reason"] == why.reason
