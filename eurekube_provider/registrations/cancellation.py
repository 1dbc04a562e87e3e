"""Waits of the plugin process that end when Pulumi is interrupted.

A drain lasts for minutes. On the first Ctrl-C, or a SIGTERM, the engine sends every plugin a Cancel and waits
for what is under way; on the second one, or when it dies, it hangs up. The plugin is in a process group of
its own and gets no signal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from eurekube_provider.core.errors import DrainInterrupted

POLL_SECONDS = 0.2
"""How often a drain checks whether the engine is still there."""

Wait = Callable[[float], None]
"""Sleeps so many seconds.

:raises DrainInterrupted: it was interrupted.
"""


class Cancellation:
    """The waits of a process, which are cancelled together."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._cancelled = 0
        self._before_run: int | None = None
        self._local = threading.local()

    @contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """Bound all waits of the call that this thread serves to so many seconds together; 0 for no bound."""
        self._local.end = time.monotonic() + seconds if seconds else None
        try:
            yield
        finally:
            self._local.end = None

    def begin_run(self) -> None:
        """Begin a run: from now on a cancel ends all its calls, whether they began before it or after it.

        The engine goes on to send what it had begun to write down when it was interrupted.
        """
        with self._condition:
            self._before_run = self._cancelled

    def begin(self, drain_seconds: float) -> Wait:
        """Begin a call that may drain, and give it its wait.

        :raises DrainInterrupted: it would, and its run was cancelled already.
        """
        with self._condition:
            if drain_seconds and self._before_run not in (None, self._cancelled):
                raise DrainInterrupted("interrupted before it began, and nothing was changed")
        return self.wait_of_this_call()

    def cancel(self) -> None:
        """End the waits of all calls that have begun."""
        with self._condition:
            self._cancelled += 1
            self._condition.notify_all()

    def wait_of_this_call(self) -> Wait:
        """The wait of a call that begins now, which also ends when the caller is gone."""
        with self._condition:
            before = self._cancelled if self._before_run is None else self._before_run
        is_heard = _caller_is_there()
        latest: float | None = getattr(self._local, "end", None)

        def wait(seconds: float) -> None:
            end = time.monotonic() + seconds
            if (
                latest is not None and end > latest
            ):  # known now: nothing has to stay out of service until then
                raise DrainInterrupted(
                    f"the custom time-out ends before the {seconds:g} seconds of its drain"
                )
            with self._condition:
                while (left := end - time.monotonic()) > 0:
                    if self._cancelled != before or not is_heard():
                        raise DrainInterrupted("interrupted")
                    self._condition.wait(min(left, POLL_SECONDS))

        return wait


CANCELLATION = Cancellation()
"""The waits of this process."""


def _caller_is_there() -> Callable[[], bool]:
    """Return whether the engine still waits for the answer to the call that this thread serves.

    The SDK hands gRPC's context to none of a provider's methods; it is found among its own callers' locals.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to it
    while frame is not None:
        context: Any = frame.f_locals.get("context")
        if callable(getattr(context, "is_active", None)):
            return lambda: bool(context.is_active())
        frame = frame.f_back
    return lambda: True
