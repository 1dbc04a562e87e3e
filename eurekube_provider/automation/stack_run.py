"""The result of one run of a stack, as a value that can be printed as one line of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eurekube_provider.automation.steps import Step


class StackOperation(StrEnum):
    """The operations on a stack."""

    PREVIEW = "preview"
    UP = "up"
    REFRESH = "refresh"
    DRIFT = "drift"


class RunOutcome(StrEnum):
    """The outcomes of a run. A preview or a check for drift is CHANGED where it found a change."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    LOCKED = "locked"
    """Another run holds the stack; nothing was done."""


@dataclass(frozen=True, slots=True)
class StackRun:
    """The result of one run.

    :ivar changes: the number of resources by operation, in Pulumi's words: ``create``, ``update``,
        ``delete``, ``same``, ``replace`` ...; empty where the run failed before the comparison.
    :ivar seconds: the duration of the whole run in seconds.
    :ivar message: one sentence on the outcome, or on the failure and the holder of the stack.
    :ivar steps: the step of each resource that changes.
    """

    action: StackOperation
    stack: str
    outcome: RunOutcome
    changes: Mapping[str, int]
    seconds: float
    message: str
    steps: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the result without its steps."""
        return {
            "action": self.action.value,
            "stack": self.stack,
            "outcome": self.outcome.value,
            "changes": dict(self.changes),
            "seconds": round(self.seconds, 3),
            "message": self.message,
        }
