"""One loop and the writers that it begins: how long each of their requests takes is drawn, so who is next.

The writers are begun, joined and ended by the operator's own code, which takes them for threads. Each is a
greenlet that runs until its request is under way, or until it waits for another writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.explore.operator.stepwise import Stepwise
from tests.explore.operator.threads import Process, Scheduler, Task, Waiter
from tests.explore.operator.world import WIRE_SECONDS

WRITER = "mirror-writes"
"""The name of the threads that may run beside a loop."""

DELAYS_SECONDS = (0.0, 0.0, 0.001, 0.002, 0.005, 0.05)
"""Extra time of a request while others are under way: from none to longer than all of another's."""

LONGEST_SECONDS = 3600.0


class Interleaved(Stepwise):
    """Lets time pass in place where the loop waits, and the writers run meanwhile."""

    def go_on(self, until_ms: int) -> bool:
        while self._doomed:
            self._bury(self._doomed.pop())
        if self._ready:
            self._switch(*self._ready.popleft())
            return True
        return super().go_on(until_ms)

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Task:
        """Begin a writer.

        :raises AssertionError: it is any other thread.
        """
        if name != WRITER:
            return super().spawn(process, name, work)
        return Scheduler.spawn(self, process, name, work)

    def wait(self, waiters: deque[Waiter], seconds: float | None = None) -> bool:
        """Have a writer wait as a thread does, and the loop in place.

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
        """End a process with all its writers.

        :raises Killed: the caller is one of them.
        """
        Scheduler.kill(self, process)
