"""Waits of the plugin process that end when Pulumi is interrupted.

A drain lasts for minutes. On the first Ctrl-C, or a SIGTERM, the engine sends every plugin a Cancel and waits
for the calls under way; on the second one, or when it dies, it hangs up. The plugin is in a process group of
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

MAX_CONCURRENT_CALLS = 1024
"""Calls that a provider serves at once: drains wait side by side, as many as ``--parallel`` allows."""

CONNECTION_CHECK_INTERVAL_SECONDS = 0.2
"""Seconds between two checks by a drain that the engine is still connected."""

InterruptibleSleep = Callable[[float], None]
"""A function that sleeps the given number of seconds.

:raises DrainInterrupted: the sleep was interrupted.
"""


class Cancellation:
    """Interruptible sleeps for all calls of a process; one cancel ends them together."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._cancelled = 0
        self._before_run: int | None = None
        self._local = threading.local()

    @contextmanager
    def limit_waits(self, seconds: float) -> Iterator[None]:
        """Within the context, refuse this call's sleeps that end after ``seconds``; 0 for no limit."""
        self._local.end = time.monotonic() + seconds if seconds else None
        try:
            yield
        finally:
            self._local.end = None

    def begin_run(self) -> None:
        """Begin a run of Pulumi, in which a cancel also ends calls that the engine sends after it."""
        with self._condition:
            self._before_run = self._cancelled

    def begin_call(self, drain_seconds: float) -> InterruptibleSleep:
        """Begin a call that may drain, and return the function by which the call sleeps.

        :raises DrainInterrupted: the call would drain, and its run was cancelled already.
        """
        with self._condition:
            if drain_seconds and self._before_run not in (None, self._cancelled):
                raise DrainInterrupted("interrupted before it began, and nothing was changed")
        return self.make_interruptible_sleep()

    def cancel(self) -> None:
        """End the waits of all calls that have begun."""
        with self._condition:
            self._cancelled += 1
            self._condition.notify_all()

    def make_interruptible_sleep(self) -> InterruptibleSleep:
        """Return a sleep for a call that begins now, which a disconnect of the caller interrupts, too."""
        with self._condition:
            before = self._cancelled if self._before_run is None else self._before_run
        is_heard = _make_connection_check()
        latest: float | None = getattr(self._local, "end", None)

        def wait(seconds: float) -> None:
            end = time.monotonic() + seconds
            if latest is not None and end > latest:  # known now: nothing stays out of service until then
                raise DrainInterrupted(
                    f"the custom time-out ends before the {seconds:g} seconds of its drain"
                )
            with self._condition:
                while (left := end - time.monotonic()) > 0:
                    if self._cancelled != before or not is_heard():
                        raise DrainInterrupted("interrupted")
                    self._condition.wait(min(left, CONNECTION_CHECK_INTERVAL_SECONDS))

        return wait


CANCELLATION = Cancellation()
"""The cancellation of all calls of this process."""


def _make_connection_check() -> Callable[[], bool]:
    """Return a function that returns True while the engine waits for the answer to this thread's call.

    The SDK hands gRPC's context to no provider: it is found among the locals of the callers' frames.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to it
    while frame is not None:
        context: Any = frame.f_locals.get("context")
        if callable(getattr(context, "is_active", None)):
            return lambda: bool(context.is_active())
        frame = frame.f_back
    return lambda: True
