"""Threads and clocks of the code under test, simulated on one thread, so that the explorer decides who runs
next.

A simulated thread is a greenlet. It runs until it waits for a lock, an event, an answer or a time. Time
passes only when all of them wait. The same sequence of decisions therefore gives the same run, however many
threads the code believes to have.
"""

from __future__ import annotations

import math
import queue as real_queue
import random as real_random
import time as real_time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime as real_datetime
from datetime import tzinfo
from typing import Any

from greenlet import getcurrent, greenlet

from eurekube_provider.dev.eureka.virtual_clock import Clock, Timer


class Killed(BaseException):
    """The simulated process is dead; nothing that it still tries takes effect."""


class Process:
    """Simulated threads (tasks) that live and die together.

    :ivar errors: the exceptions that ended a task of it that should have gone on.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.is_dead = False
        self.tasks: set[Task] = set()
        self.random = real_random.Random(f"{seed}-{name}")  # noqa: S311 - replayed by its seed
        self.errors: list[BaseException] = []


class Waiter:
    """A waiting task, in the queue of the object for which it waits."""

    __slots__ = ("is_over", "task", "timer")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.timer: Timer | None = None
        self.is_over = False


class Scheduler:
    """Runs the tasks of all processes, and lets time pass when all of them wait.

    :ivar current: the task that runs; None while none does.
    :ivar chance: in one of so many acquisitions of a lock, others run first; 0 for never. With 0 tasks change
        places only where they wait.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.current: Task | None = None
        self._ready: deque[tuple[Task, bool]] = deque()
        self.hub = getcurrent()
        self._doomed: list[Process] = []
        self.switches = 0
        self.chance = 0

    def run(self, until_ms: int, is_over: Callable[[], bool] | None = None) -> None:
        """Run tasks and timers until a time, or until ``is_over`` returns True, which is asked between two
        moments.
        """
        ready = self._ready
        while True:
            while ready:
                self._switch(*ready.popleft())
            if is_over is not None and is_over():
                return
            if not self.clock.run_next(until_ms):
                return

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Task:
        """Start ``work`` as a task of ``process``."""
        task = Task(self, process, name, work)
        process.tasks.add(task)
        self._ready.append((task, True))
        return task

    def wait(self, waiters: deque[Waiter], seconds: float | None = None) -> bool:
        """Have the current task wait in a queue; return whether another task woke it in time."""
        task = self.current
        if task is None:
            raise AssertionError("nobody waits outside of a task")
        if task.process.is_dead:
            raise Killed
        if seconds is not None and seconds <= 0:
            waiters = deque()  # others get their turn all the same
            seconds = 0.0
        waiter = Waiter(task)
        waiters.append(waiter)
        if seconds is not None and seconds < 1e7:
            delay_ms = math.ceil(seconds * 1000 - 1e-6)
            waiter.timer = self.clock.run_after(delay_ms, lambda: self._time_out(waiter))
        self.current = None
        woken: bool = self.hub.switch()
        return woken

    def give_way(self) -> None:
        """Let other tasks run first, at random."""
        task = self.current
        if task is not None and not task.process.is_dead and not task.process.random.randrange(self.chance):
            self.wait(deque(), 0.0)

    def sleep(self, seconds: float) -> None:
        """Have the current task sleep."""
        self.wait(deque(), seconds)

    def wake(self, waiter: Waiter) -> bool:
        """Wake a waiting task; return False if it does not wait any more."""
        if waiter.is_over or waiter.task.process.is_dead:
            return False
        waiter.is_over = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._ready.append((waiter.task, True))
        return True

    def kill(self, process: Process) -> None:
        """End all tasks of a process, as a kernel does.

        :raises Killed: the caller is one of them.
        """
        process.is_dead = True
        if self.current is not None:
            self._doomed.append(process)
            if self.current.process is process:
                raise Killed
        else:
            self._bury(process)

    def _time_out(self, waiter: Waiter) -> None:
        if not waiter.is_over and not waiter.task.process.is_dead:
            waiter.is_over = True
            self._ready.append((waiter.task, False))

    def _switch(self, task: Task, woken: bool) -> None:
        if task.process.is_dead or task.let.dead:
            return
        self.switches += 1
        self.current = task
        task.let.switch(woken)
        self.current = None
        while self._doomed:
            self._bury(self._doomed.pop())

    def _bury(self, process: Process) -> None:
        """End the tasks of a dead process: whatever they try on their way out raises at once."""
        for task in list(process.tasks):
            if task.let and not task.let.dead:  # one that never ran is only forgotten
                self.current = task
                task.let.throw(Killed)
                self.current = None
        process.tasks.clear()


class Task:
    """A simulated thread, with the public attributes of :class:`threading.Thread`."""

    numbers = 0

    def __init__(self, scheduler: Scheduler, process: Process, name: str, work: Callable[[], None]) -> None:
        Task.numbers += 1
        self.ident = Task.numbers
        self.process, self.name = process, name
        self.ended: deque[Waiter] = deque()
        self.is_over = False
        self._scheduler, self._work = scheduler, work
        self.let = greenlet(self._run, scheduler.hub)
        self.locals: dict[int, dict[str, Any]] = {}

    def _run(self, _: bool) -> None:
        try:
            self._work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - shown as a violation
            self.process.errors.append(error)
        self.is_over = True
        self.process.tasks.discard(self)
        for waiter in self.ended:
            self._scheduler.wake(waiter)


_current: Scheduler
"""The scheduler of the current sequence; see :func:`use`."""


def use(scheduler: Scheduler) -> None:
    """Run simulated threads on this scheduler from now on."""
    global _current  # noqa: PLW0603 - modules of the code under test are replaced once, not for each sequence
    _current = scheduler


class Lock:
    """A simulated :class:`threading.Lock`."""

    __slots__ = ("_is_held", "_waiters")

    def __init__(self) -> None:
        self._is_held = False
        self._waiters: deque[Waiter] | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._is_held:
            self._is_held = True
            return True
        if not blocking:
            return False
        if self._waiters is None:
            self._waiters = deque()
        return _current.wait(self._waiters, None if timeout < 0 else timeout)

    def release(self) -> None:
        """Release the lock, or pass it to the task that has waited longest."""
        while self._waiters:
            if _current.wake(self._waiters.popleft()):
                return
        self._is_held = False

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        if _current.chance:
            _current.give_way()
        if not self._is_held:
            self._is_held = True
            return True
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if self._waiters:
            self.release()
        else:
            self._is_held = False


class RLock:
    """A simulated :class:`threading.RLock`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._count and self._owner is _current.current:
            self._count += 1
            return True
        got = self._lock.acquire(blocking, timeout)
        if got:
            self._owner, self._count = _current.current, 1
        return got

    def release(self) -> None:
        self._count -= 1
        if self._count <= 0:
            self._owner, self._count = None, 0
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """A simulated :class:`threading.Condition`."""

    def __init__(self, lock: Lock | RLock | None = None) -> None:
        self._lock = lock if lock is not None else RLock()
        self._waiters: deque[Waiter] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        woken = _current.wait(self._waiters, timeout)
        self._lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else monotonic() + timeout
        result = predicate()
        while not result:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        while n > 0 and self._waiters:
            n -= _current.wake(self._waiters.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    """A simulated :class:`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: deque[Waiter] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        while self._waiters:
            _current.wake(self._waiters.popleft())

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            _current.wait(self._waiters, timeout)
        return self._is_set


class Semaphore:
    """A simulated :class:`threading.Semaphore`."""

    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._waiters: deque[Waiter] = deque()

    def acquire(self) -> bool:
        if self._value > 0:
            self._value -= 1
            return True
        return _current.wait(self._waiters)

    def release(self) -> None:
        while self._waiters:
            if _current.wake(self._waiters.popleft()):
                return
        self._value += 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Thread:
    """A simulated :class:`threading.Thread`."""

    def __init__(
        self,
        *,
        target: Callable[..., Any],
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        name: str = "",
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._work = lambda: target(*args, **(kwargs or {}))
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return self._task.ident if self._task else None

    def start(self) -> None:
        process = process_of_task()
        if not process.is_dead:
            self._task = _current.spawn(process, self.name, self._work)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_over

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None and not self._task.is_over:
            _current.wait(self._task.ended, timeout)


class Local:
    """A simulated :class:`threading.local`."""

    def _values(self) -> dict[str, Any]:
        task = _current.current
        assert task is not None
        return task.locals.setdefault(id(self), {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value


def process_of_task() -> Process:
    """Return the simulated process whose task is running."""
    assert _current.current is not None
    return _current.current.process


class Threading:
    """A replacement of the module ``threading``."""

    Thread, Lock, RLock, Condition, Event, Semaphore = Thread, Lock, RLock, Condition, Event, Semaphore
    local = Local

    @staticmethod
    def current_thread() -> Task:
        assert _current.current is not None
        return _current.current

    @staticmethod
    def get_ident() -> int:
        assert _current.current is not None
        return _current.current.ident


def monotonic() -> float:
    """Return the model's time in seconds."""
    return _current.clock.now_ms / 1000


def sleep(seconds: float) -> None:
    _current.sleep(seconds)


class Time:
    """A replacement of the module ``time``."""

    time = monotonic = perf_counter = staticmethod(monotonic)
    sleep = staticmethod(sleep)
    gmtime, strftime = staticmethod(real_time.gmtime), staticmethod(real_time.strftime)


class Datetime(real_datetime):
    """A replacement of the class ``datetime``."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Datetime:
        return cls.fromtimestamp(monotonic(), tz)


class Randomness:
    """A replacement of the module ``random``: each process has a sequence of its own."""

    @staticmethod
    def uniform(low: float, high: float) -> float:
        return process_of_task().random.uniform(low, high)

    @staticmethod
    def randint(low: int, high: int) -> int:
        return process_of_task().random.randint(low, high)

    @staticmethod
    def random() -> float:
        return process_of_task().random.random()


class SimpleQueue:
    """A simulated :class:`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters: deque[Waiter] = deque()

    def __class_getitem__(cls, _: object) -> type[SimpleQueue]:
        return cls

    def put(self, item: Any) -> None:
        self._items.append(item)
        while self._waiters and not _current.wake(self._waiters.popleft()):
            pass

    def get(self, timeout: float | None = None) -> Any:
        until = None if timeout is None else monotonic() + timeout
        while not self._items:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise real_queue.Empty
            _current.wait(self._waiters, left)
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class Queue:
    """A replacement of the module ``queue``."""

    SimpleQueue, Empty = SimpleQueue, real_queue.Empty


class Future:
    """The future result of a simulated pool's work."""

    def __init__(self) -> None:
        self.is_done = Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def result(self) -> Any:
        self.is_done.wait()
        if self.error is not None:
            raise self.error
        return self.value


class Pool:
    """A replacement of ``ThreadPoolExecutor``, whose threads end when no work is left."""

    def __init__(self, max_workers: int = 8, thread_name_prefix: str = "pool") -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._work: deque[tuple[Future, Callable[[], Any]]] = deque()
        self._threads = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Future:
        future = Future()
        self._work.append((future, lambda: function(*arguments, **named)))
        if self._threads < self._most:
            self._threads += 1
            Thread(target=self._run, name=f"{self._name}_{self._threads}").start()
        return future

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(function, *one) for one in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._work.clear()
        if wait:
            for future, _ in list(self._work):
                future.is_done.wait()

    def _run(self) -> None:
        while self._work:
            future, work = self._work.popleft()
            try:
                future.value = work()
            except Exception as error:  # noqa: BLE001 - handed over as a pool does
                future.error = error
            future.is_done.set()
        self._threads -= 1
