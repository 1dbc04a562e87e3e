"""The conditions Reconciling and Stalled of each kind of custom resource: pure.

kstatus, and by it Flux, kpt and others, knows no other conditions than these two and Ready: one that is
Reconciling is waited for, one that is Stalled has failed. Flux gives up at once on what is Stalled, and what
one apply creates comes in any order. So what only a person can change counts as on its way for two minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.objects import conditions_of, time_of
from eurekube_provider.core.problem import Problem

RECONCILING, STALLED = ConditionType.RECONCILING, ConditionType.STALLED

STALLED_SECONDS = 120.0
"""How long what only a person can change counts as on its way."""

RECHECK_SECONDS = 15.0
"""How often what is not stalled yet is looked at, though nothing changes."""

STUCK = frozenset(
    {
        ConditionType.CONFLICT,
        ConditionType.AMBIGUOUS_SERVICE,
        ConditionType.AMBIGUOUS_PORT,
        ConditionType.NO_PORT,
        ConditionType.NO_ADDRESS,
        Reason.NOT_ALLOWED,
        Reason.UNKNOWN_EUREKA,
        Reason.INVALID_INSTANCE,
        Reason.NO_MATCHING_SERVICE,
        Reason.EXTERNAL_NAME,
    }
)
"""Reasons of a EurekaSyncer that only a person can change."""

SETTLED = frozenset({ConditionType.PAUSED, ConditionType.SELF_REGISTERED, ConditionType.DEAD_SELF_REGISTERED})
"""Reasons of a EurekaSyncer that stay as long as a person wants it so."""


def progress(
    item: Mapping[str, Any], why: Problem | None, now: datetime, *, is_stuck: bool
) -> dict[str, Problem]:
    """Return which of the two conditions holds, with its text; neither where nothing is to be waited for.

    :param item: with its current status, which tells since when it waits for the same reason.
    :param why: the reason why the object does not have what its spec asks for.
    :param is_stuck: True if only a person can change that.
    """
    if why is None:
        return {}
    if is_stuck and is_stalled(item, why):
        return {STALLED: why}
    waits = conditions_of(item).get(RECONCILING)
    if is_stuck and waits is not None and _holds(waits, why):
        since = time_of(waits.get("lastTransitionTime"))
        if since is not None and (now - since).total_seconds() >= STALLED_SECONDS:
            return {STALLED: why}
    return {RECONCILING: why}


def is_stalled(item: Mapping[str, Any], why: Problem) -> bool:
    """Return whether the status says already that it is stalled for this reason."""
    return _holds(conditions_of(item).get(STALLED), why)


def _holds(condition: Mapping[str, Any] | None, why: Problem) -> bool:
    return condition is not None and condition["status"] == "True" and condition["reason"] == why.reason
