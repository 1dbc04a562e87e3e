"""Waiting for a condition instead of sleeping for a guess."""

import time
from collections.abc import Callable

from lab.errors import LabError

_POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], object], what: str, timeout_seconds: float) -> None:
    """Ask until the condition holds; a LabError that names `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"waited {timeout_seconds:.0f} s in vain for {what}")
        time.sleep(_POLL_SECONDS)
