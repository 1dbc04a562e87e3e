"""The state of an application under one manager, in the words of a syncer's conditions Ready and Synced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.comparison.ranked import RankedEnum
from eurekube_provider.comparison.seen_remedies import ObservedReason, observed_problem
from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.problem import Problem


class SyncState(RankedEnum):
    """The states of an application, worst first, in the order in which they are shown."""

    NOT_READY = "not ready"
    """Callers find no instance although some should be UP."""

    NOT_KNOWN = "not known"
    """The state is not known: no operator has reconciled, or Kubernetes or Eureka could not be read."""

    NOT_SYNCED = "not synced"
    """Eureka does not hold the instances that Kubernetes asks for."""

    SYNCED = "synced"

    NOT_COMPARED = "not compared"
    """Kubernetes has no counterpart: a stack, another cluster or the application itself keeps them."""

    @property
    def needs_attention(self) -> bool:
        return self not in (SyncState.SYNCED, SyncState.NOT_COMPARED)


@dataclass(frozen=True, slots=True)
class ReportedState:
    """The conditions Ready and Synced of a syncer, as its operator reported them.

    :ivar is_ready: True if callers find the syncer's instances; None where that is not known.
    :ivar is_synced: True if Eureka holds the instances that the syncer wants; None before the first
        reconcile.
    """

    is_ready: bool | None
    ready: Problem
    is_synced: bool | None
    synced: Problem

    @property
    def state(self) -> SyncState:
        """The conditions Ready and Synced as one word."""
        if self.is_ready is False:
            return SyncState.NOT_READY
        if self.is_ready is None:
            return SyncState.NOT_KNOWN
        return SyncState.SYNCED if self.is_synced else SyncState.NOT_SYNCED

    @property
    def problem(self) -> Problem | None:
        """The problem of the condition that is not met; None without one."""
        if self.state is SyncState.SYNCED:
            return None
        return self.synced if self.state is SyncState.NOT_SYNCED else self.ready

    def to_dict(self) -> dict[str, Any]:
        return {
            "ready": self.is_ready,
            "reason": self.ready.reason,
            "message": self.ready.text,
            "synced": self.is_synced,
            "syncReason": self.synced.reason,
            "syncMessage": self.synced.text,
        }


NEVER_RECONCILED_STATE = ReportedState(
    is_ready=None,
    ready=observed_problem(ObservedReason.NOT_LOOKED_AT, "no operator has looked at it yet"),
    is_synced=None,
    synced=Problem(ObservedReason.NOT_LOOKED_AT, ""),
)


def reported_state_of_object(item: Mapping[str, Any]) -> ReportedState:
    """Return the state that a syncer's operator last wrote in its status."""
    conditions = conditions_of(item)
    ready, synced = conditions.get(SyncerCondition.READY), conditions.get(SyncerCondition.SYNCED) or {}
    if ready is None:
        return NEVER_RECONCILED_STATE
    truth = {"True": True, "False": False}
    return ReportedState(
        is_ready=truth.get(ready.get("status", "")),
        ready=Problem.of(ready),
        is_synced=truth.get(synced.get("status", "")),
        synced=Problem.of(synced),
    )
