"""A scheduler for one loop and the writers that it starts: each request takes a random time, which decides
who runs next.

The operator's own code starts, joins and ends the writers, which it takes for threads. Each is a greenlet
that runs until it sends a request or waits for another writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.explore.operator.stepwise import Stepwise
from tests.explore.operator.threads import Process, Scheduler, Task, Waiter
from tests.explore.operator.world import WIRE_SECONDS

WRITER = "mirror-writes"
"""The name of the threads that may run beside the loop."""

DELAYS_SECONDS = (0.0, 0.0, 0.001, 0.002, 0.005, 0.05)
"""Seconds that a request may take in addition: from none to longer than another's whole request."""

LONGEST_SECONDS = 3600.0


class Interleaved(Stepwise):
    """A scheduler that lets time pass while the loop waits, and runs the writers meanwhile."""

    def go_on(self, until_ms: int) -> bool:
        while self._doomed:
            self._bury(self._doomed.pop())
        if self._ready:
            self._switch(*self._ready.popleft())
            return True
        return super().go_on(until_ms)

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Task:
        """Start a writer.

        :raises AssertionError: the thread is not a writer.
        """
        if name != WRITER:
            return super().spawn(process, name, work)
        return Scheduler.spawn(self, process, name, work)

    def wait(self, waiters: deque[Waiter], seconds: float | None = None) -> bool:
        """Have a writer wait as a thread does, or let time pass for the loop.

        :raises AssertionError: nobody woke the loop.
        """
        task = self.current
        if task is None or not task.process.tasks:
            return super().wait(waiters, seconds)
        if seconds == WIRE_SECONDS:
            seconds += task.process.random.choice(DELAYS_SECONDS)
        if task in task.process.tasks:
            return Scheduler.wait(self, waiters, seconds)
        woken = super().wait(waiters, LONGEST_SECONDS if seconds is None else seconds)
        if seconds is None and not woken:
            raise AssertionError("the writers never end")
        return woken

    def wake(self, waiter: Waiter) -> bool:
        if waiter.task in waiter.task.process.tasks:
            return Scheduler.wake(self, waiter)
        return super().wake(waiter)

    def kill(self, process: Process) -> None:
        """Kill a process with all its writers.

        :raises Killed: the caller is one of them.
        """
        Scheduler.kill(self, process)
