"""One run of a stack: what is asked of a target, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eurekube_provider.core.model import EMPTY
from eurekube_provider.core.stack_refresh import Addresses, StackAction


class TriggerOutcome(StrEnum):
    """How a run ended."""

    CHANGED = "Changed"
    """It went well, and changed something; of a preview, there is something to change."""

    UNCHANGED = "Unchanged"
    """It went well, and there was nothing to change."""

    SUCCEEDED = "Succeeded"
    """It went well; this target does not say whether anything changed."""

    FAILED = "Failed"
    """It failed; it is tried again."""

    LOCKED = "Locked"
    """Somebody else works on the stack; nothing was done."""

    PENDING = "Pending"
    """The requested run has not ended, and is not requested again: the next try waits on for it."""

    @property
    def is_good(self) -> bool:
        """Return whether the stack is served."""
        return self not in (TriggerOutcome.FAILED, TriggerOutcome.LOCKED, TriggerOutcome.PENDING)


@dataclass(frozen=True, slots=True)
class TriggerRun:
    """One run of a target, as the target is asked for it.

    :ivar key: equal for every try of the same thing, also by another replica.
    :ivar attempt: the number of the try, from 1 on.
    :ivar timeout_seconds: from now.
    :ivar cancelled: set when the operator ends: give up soon, nobody waits for the result.
    """

    namespace: str
    name: str
    action: StackAction
    cluster: str
    addresses: Addresses
    key: str
    attempt: int
    timeout_seconds: float
    cancelled: threading.Event


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """The result of one run of a target.

    :ivar message: one sentence.
    :ivar changes: how many resources were treated how, e.g. ``{"create": 2}``; empty where not known.
    """

    outcome: TriggerOutcome
    message: str
    changes: Mapping[str, int] = field(default_factory=lambda: EMPTY)

    @classmethod
    def failed(cls, message: str) -> TriggerResult:
        """The result of a run that failed, and why."""
        return cls(TriggerOutcome.FAILED, message)


Runner = Callable[[TriggerRun], TriggerResult]
"""Carries a run out, on a thread of its own; what it raises is a failure."""
