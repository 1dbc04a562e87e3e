"""The status of a EurekaMirror after a reconcile: pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from eurekube_provider.core.condition_types import MirrorReason, Reason
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirrorReport
from eurekube_provider.operator.progress import progress_conditions
from eurekube_provider.operator.status import make_condition, problem_conditions
from eurekube_provider.runtime.clock import format_utc_time

MOST_LISTED_SERVICES = 500
"""Most Services that a status lists; all are counted."""

STUCK_MIRROR_REASONS = frozenset(
    {
        MirrorCondition.NAME_TAKEN,
        MirrorCondition.NO_NAME,
        MirrorCondition.TOO_MANY_SERVICES,
        MirrorCondition.NOT_ATTACHED,
        MirrorReason.INVALID_SPEC,
        Reason.NOT_ALLOWED,
        Reason.UNKNOWN_EUREKA,
    }
)
"""Reasons of a mirror's condition that last until a person acts."""

HARMLESS_MIRROR_REASONS = frozenset(
    {
        MirrorCondition.PAUSED,
        MirrorCondition.NOT_CALLED,
        MirrorCondition.ADDRESS_REFUSED,
        MirrorCondition.UNRESOLVABLE,
        MirrorCondition.NO_PORT,
        MirrorCondition.UNREADABLE,
        MirrorCondition.FOREIGN_ENDPOINTS,
    }
)
"""Reasons of a mirror's condition that are no failure of the mirror: a person wants them, or others register
instances that a mirror cannot show.
"""

SECONDS_BETWEEN_READ_TIME_WRITES = 300.0
"""Seconds after which a status is written again only to renew the time at which Eureka was read."""


def mirror_status(item: Mapping[str, Any], report: MirrorReport, now: datetime) -> dict[str, Any]:
    """Return a mirror's status for a report; unchanged conditions keep their times."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions: list[Mapping[str, Any]] = []
    for kind, (holds, problem) in (
        (MirrorCondition.READY, report.ready_condition),
        (MirrorCondition.SYNCED, report.synced_condition),
    ):
        conditions.append(make_condition(item, kind, problem, stamp, holds=holds))
    is_synced, said = report.synced_condition
    why = None if is_synced or said.reason in HARMLESS_MIRROR_REASONS else said
    if MirrorCondition.PAUSED in report.problems:
        why = None
    problems = {
        **report.problems,
        **progress_conditions(item, why, now, is_stuck=said.reason in STUCK_MIRROR_REASONS),
    }
    conditions += problem_conditions(item, MirrorCondition, problems, stamp)
    status: dict[str, Any] = {
        "observedGeneration": item["metadata"].get("generation", 0),
        "conditions": conditions,
        "services": [
            {
                "application": one.application,
                "name": one.service,
                "endpoints": one.endpoints,
                "ready": one.ready,
                "held": one.held,
            }
            for one in report.services[:MOST_LISTED_SERVICES]
        ],
        "mirrored": len(report.services),
        "endpoints": report.endpoints,
        "ready": report.ready,
        "held": report.held,
    }
    if report.read_at is not None:
        status["lastReadTime"] = format_utc_time(report.read_at)
    return status


def must_write_status(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a status differs from the present one; a newer reading time alone counts every five
    minutes.

    :param present: the present status.
    """
    if {**present, "lastReadTime": None} != {**wanted, "lastReadTime": None}:
        return True
    old, new = present.get("lastReadTime"), wanted.get("lastReadTime")
    if old is None or new is None:
        return old != new
    age = datetime.fromisoformat(new) - datetime.fromisoformat(old)
    return age.total_seconds() >= SECONDS_BETWEEN_READ_TIME_WRITES
