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
    """The ends of a run. A preview or a check for drift is CHANGED where it found something to change."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    LOCKED = "locked"
    """Another run holds the stack; nothing was done."""


@dataclass(frozen=True, slots=True)
class StackRun:
    """The result of one run.

    :ivar changes: how many resources by what happens to them, in Pulumi's words: ``create``, ``update``,
        ``delete``, ``same``, ``replace`` ...; empty where it failed before anything was compared.
    :ivar seconds: how long it took, with everything.
    :ivar message: one sentence: what was done, or why it was not and who holds the stack.
    :ivar steps: the step of each resource that does not stay as it is.
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
