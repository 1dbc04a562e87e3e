"""One run of a stack: the request to a target, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.stack_refresh import AddressesByService, StackAction


class StackRunOutcome(StrEnum):
    """The outcome of a run."""

    CHANGED = "Changed"
    """The run succeeded and changed something; a preview found something to change."""

    UNCHANGED = "Unchanged"
    """The run succeeded with nothing to change."""

    SUCCEEDED = "Succeeded"
    """The run succeeded; this kind of target does not say whether anything changed."""

    FAILED = "Failed"
    """The run failed, and is tried again."""

    LOCKED = "Locked"
    """Another process works on the stack; nothing was done."""

    PENDING = "Pending"
    """The requested run has not ended; the next try waits for the same run, and requests no new one."""

    @property
    def is_success(self) -> bool:
        """True if the run succeeded."""
        return self not in (StackRunOutcome.FAILED, StackRunOutcome.LOCKED, StackRunOutcome.PENDING)


@dataclass(frozen=True, slots=True)
class StackRun:
    """One run of a target, as the target gets it.

    :ivar namespace: the namespace of the StackRefresh.
    :ivar name: the name of the StackRefresh.
    :ivar cluster: the cluster's name.
    :ivar addresses: the addresses that the run is for.
    :ivar idempotency_key: equal for every try of the same run, also by another replica.
    :ivar attempt: the number of the try, from 1 on.
    :ivar timeout_seconds: seconds from now after which the run is given up.
    :ivar cancelled: set when the operator ends: give up soon, nobody waits for the result.
    """

    namespace: str
    name: str
    action: StackAction
    cluster: str
    addresses: AddressesByService
    idempotency_key: str
    attempt: int
    timeout_seconds: float
    cancelled: threading.Event


@dataclass(frozen=True, slots=True)
class StackRunResult:
    """The result of one run of a target.

    :ivar message: one sentence.
    :ivar changes: number of resources by operation, e.g. ``{"create": 2}``; empty where not known.
    """

    outcome: StackRunOutcome
    message: str
    changes: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)

    @classmethod
    def failed(cls, message: str) -> StackRunResult:
        """Return the result of a failed run with its reason."""
        return cls(StackRunOutcome.FAILED, message)


StackRunner = Callable[[StackRun], StackRunResult]
"""Function that carries a run out on a thread of its own; an exception counts as a failure."""
