"""The state of one manager's application, in the words of a syncer's conditions Ready and Synced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.comparison.ranked import Ranked
from eurekube_provider.comparison.seen_remedies import Seen, seen
from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.objects import conditions_of
from eurekube_provider.core.problem import Problem


class SyncState(Ranked):
    """The states, worst first: this is the order in which they are shown."""

    NOT_READY = "not ready"
    """Callers find nothing although something is meant to be found."""

    NOT_KNOWN = "not known"
    """Nobody can say: no operator has reconciled, or one world could not be read."""

    NOT_SYNCED = "not synced"
    """Eureka does not hold what Kubernetes has."""

    SYNCED = "synced"

    NOT_COMPARED = "not compared"
    """Nothing in Kubernetes is meant to be the same: a stack, another cluster or itself keeps it."""

    @property
    def is_fault(self) -> bool:
        """Return whether a person should look."""
        return self not in (SyncState.SYNCED, SyncState.NOT_COMPARED)


@dataclass(frozen=True, slots=True)
class ReportedState:
    """The conditions Ready and Synced of a syncer, as its operator reported them.

    :ivar is_ready: True if callers find what is meant to be found; None where nobody knows.
    :ivar is_synced: True if Eureka holds what the syncer wants; None where nobody has reconciled.
    """

    is_ready: bool | None
    ready: Problem
    is_synced: bool | None
    synced: Problem

    @property
    def state(self) -> SyncState:
        """The two conditions as one word."""
        if self.is_ready is False:
            return SyncState.NOT_READY
        if self.is_ready is None:
            return SyncState.NOT_KNOWN
        return SyncState.SYNCED if self.is_synced else SyncState.NOT_SYNCED

    @property
    def problem(self) -> Problem | None:
        """Return the problem that keeps it from being in sync; None where there is none."""
        if self.state is SyncState.SYNCED:
            return None
        return self.synced if self.state is SyncState.NOT_SYNCED else self.ready

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "ready": self.is_ready,
            "reason": self.ready.reason,
            "message": self.ready.text,
            "synced": self.is_synced,
            "syncReason": self.synced.reason,
            "syncMessage": self.synced.text,
        }


NEVER_RECONCILED = ReportedState(
    is_ready=None,
    ready=seen(Seen.NOT_LOOKED_AT, "no operator has looked at it yet"),
    is_synced=None,
    synced=Problem(Seen.NOT_LOOKED_AT, ""),
)


def reported_state_of(item: Mapping[str, Any]) -> ReportedState:
    """Read from a syncer's status what its operator wrote there last.

    :param item: the custom resource.
    """
    conditions = conditions_of(item)
    ready, synced = conditions.get(ConditionType.READY), conditions.get(ConditionType.SYNCED) or {}
    if ready is None:
        return NEVER_RECONCILED
    truth = {"True": True, "False": False}
    return ReportedState(
        is_ready=truth.get(ready.get("status", "")),
        ready=Problem.of(ready),
        is_synced=truth.get(synced.get("status", "")),
        synced=Problem.of(synced),
    )
