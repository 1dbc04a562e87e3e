"""A scheduler without threads: a caller that waits lets the model's time pass, and no other code runs
meanwhile.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from eurekube_provider.core.model import InstanceKey
from eurekube_provider.dev.eureka.virtual_clock import Clock
from eurekube_provider.eureka import peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.renewals import Renewals
from tests.explore.operator import world
from tests.explore.operator.threads import Killed, Process, Scheduler, Task, Waiter


class Stepwise(Scheduler):
    """A scheduler without threads.

    :ivar step: does one due task; returns False if none is due.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.step: Callable[[], bool] = lambda: False

    def run(self, until_ms: int, is_over: Callable[[], bool] | None = None) -> None:
        """Do the due steps until a time; time passes when none is due."""
        while self.clock.now_ms < until_ms and not (is_over is not None and is_over()):
            if not self.step():
                self.go_on(until_ms)

    def go_on(self, until_ms: int) -> bool:
        """Run the next timer that is due until a time; return False if there is none, and the time has
        passed.
        """
        return self.clock.run_next(until_ms)

    def spawn(self, _: Process, name: str, __: Callable[[], None]) -> Task:
        """Refuse to start a thread.

        :raises AssertionError: always.
        """
        raise AssertionError(f"the thread {name} was begun, where there is none")

    def wait(self, waiters: deque[Waiter], seconds: float | None = None) -> bool:
        """Let time pass with its timers; return whether one of them woke the caller.

        :raises AssertionError: nobody could wake the caller.
        """
        task = self.current
        if task is None or seconds is None:
            raise AssertionError("nobody else runs that could end this wait")
        if task.process.is_dead:
            raise Killed
        waiter = Waiter(task)
        waiters.append(waiter)
        until_ms = self.clock.now_ms + max(0, math.ceil(seconds * 1000 - 1e-6))
        self.current = None
        try:
            while not waiter.is_over and not task.process.is_dead and self.go_on(until_ms):
                pass
        finally:
            self.current = task
        if task.process.is_dead:
            raise Killed
        woken, waiter.is_over = waiter.is_over, True
        return woken

    def wake(self, waiter: Waiter) -> bool:
        """End a wait."""
        was_over, waiter.is_over = waiter.is_over, True
        return not was_over

    def kill(self, process: Process) -> None:
        """Kill a process: its current action raises.

        :raises Killed: the caller belongs to it.
        """
        process.is_dead = True
        if self.current is not None and self.current.process is process:
            raise Killed

    @contextlib.contextmanager
    def within(self, task: Task) -> Iterator[None]:
        """Run the block as ``task``; a kill of its process ends the block."""
        before, self.current = self.current, task
        try:
            yield
        except Killed:
            if before is not None and before.process is task.process:
                raise
        finally:
            self.current = before


class _Done:
    """A replacement of a future, whose work is already done."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._error: Exception | None = None
        self._value: Any = None
        try:
            self._value = work()
        except Exception as error:  # noqa: BLE001 - handed over as a pool does
            self._error = error

    def result(self) -> Any:
        """Return the result."""
        if self._error is not None:
            raise self._error
        return self._value


class _InPlace:
    """A replacement of thread pools and executors, whose work the caller does at once."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> _InPlace:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> _Done:
        """Run the function at once."""
        return _Done(lambda: function(*arguments))

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Run all calls at once."""
        return iter([function(*one) for one in zip(*iterables, strict=False)])

    def close(self) -> None:
        """Do nothing: no work is pending."""

    def shutdown(self, *_: object, **__: object) -> None:
        """Do nothing: no work is pending."""


def _renew_soon(renewals: Renewals, _: Peer, keys: Iterable[InstanceKey]) -> None:
    """Renew instances soon, in place of :meth:`Renewals.renew_now`, which uses threads."""
    renewals.renew_soon(keys)


@contextlib.contextmanager
def owned() -> Iterator[None]:
    """Have our code reach nothing but a world without threads while the block runs."""
    with (
        mock.patch.dict(world.INSTEAD, {ThreadPoolExecutor: _InPlace}),
        mock.patch.object(peers, "PeerExecutor", _InPlace),
        mock.patch.object(Renewals, "renew_now", _renew_soon),
        world.owned(),
    ):
        yield
