"""Several processes that explore at once, their reports, and their findings."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import multiprocessing
import queue
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.explore import part, sides
from tests.explore.part import Part

_REPORT_SECONDS = 2.0
"""Seconds between two reports of a process."""

_SAID_SECONDS = 60.0
"""Seconds between two printed summaries."""

_STUCK_SECONDS = 300.0
"""Seconds after which a sequence, which normally takes less than one, counts as stuck."""

_STDERR = 2
"""Descriptor of standard error, which is shown even while ``sys.stderr`` is replaced."""


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters of an exploration.

    :ivar share: the share of each process's time that is spent on stacks.
    """

    seed: int
    minutes: float
    jobs: int
    of: str | None
    edit: str | None
    share: float

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of the explored sides; the Reconciler alone only if it is asked for."""
        asked = (self.of,) if self.of else tuple(name for name in sides.NAMES if name != sides.RECONCILER)
        return tuple(name for name in sides.sides(self.edit) if name in asked)

    def turns(self, job: int) -> list[tuple[str, float]]:
        """Return the sides that one process explores, each with its seconds; every second process has the
        reverse order.
        """
        names = self.sides
        weights = {
            sides.STACKS: self.share,
            sides.CLUSTERS: (1 - self.share) * 0.6,
            sides.RECONCILER: 1.0,
            sides.MIRRORS: (1 - self.share) * 0.2,
            sides.KEEPALIVE: (1 - self.share) * 0.2,
        }
        total = sum(weights[name] for name in names) or 1.0
        turns = [(name, self.minutes * 60 * weights[name] / total) for name in names]
        return turns if job % 2 == 0 else turns[::-1]


@dataclass(frozen=True, slots=True)
class News:
    """The work of one process since its last report.

    :ivar seconds: processor time.
    """

    job: int
    side: str
    number: int
    seconds: float
    failure: str = ""


def explore(order: Order, job: int, said: Any) -> None:
    """Explore in one process until the time is over, and report progress."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    logging.disable(logging.CRITICAL)
    for side, seconds in order.turns(job):
        end = time.monotonic() + seconds
        reported_at, used, number = time.monotonic(), time.process_time(), 0
        faulthandler.dump_traceback_later(_STUCK_SECONDS, exit=True, file=_STDERR)
        for failure in sides.sides(order.edit)[side](order.seed, end, Part(job, order.jobs)):
            number += 1
            now = time.monotonic()
            if failure or now > reported_at + _REPORT_SECONDS:
                said.put(News(job, side, number, time.process_time() - used, failure))
                reported_at, used, number = now, time.process_time(), 0
                faulthandler.dump_traceback_later(_STUCK_SECONDS, exit=True, file=_STDERR)
            if now > end:
                break
        said.put(News(job, side, number, time.process_time() - used))
    faulthandler.cancel_dump_traceback_later()


class Fleet:
    """The processes of one exploration."""

    def __init__(self, order: Order, *, ends_at_first: bool = False) -> None:
        self._order, self._ends_at_first = order, ends_at_first
        self._numbers: Counter[str] = Counter()
        self._seconds = dict.fromkeys(sides.NAMES, 0.0)
        self.found: Counter[str] = Counter()
        self._began = time.monotonic()

    def run(self) -> int:
        """Run the processes; return 1 if a rule was violated."""
        order = self._order
        print(
            f"exploring {' and '.join(order.sides)} for {order.minutes:g} minutes in {order.jobs} processes,"
            f" seed {order.seed}",
            flush=True,
        )
        context = multiprocessing.get_context("spawn")
        said = context.Queue()
        jobs = [
            context.Process(target=explore, args=(order, job, said), daemon=True) for job in range(order.jobs)
        ]
        for one in jobs:
            one.start()
        try:
            self._listen(said, jobs)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        finally:
            for one in jobs:
                one.terminate()
                one.join()
        numbers = ", ".join(f"{self._numbers[side]:,} of {side}" for side in order.sides)
        print(
            f"seed {order.seed}: {numbers}, {self._numbers.total():,} sequences in all,"
            f" {(time.monotonic() - self._began) / 60:.1f} minutes, {len(self.found)} violations"
        )
        return 1 if self.found else 0

    def _listen(self, said: Any, jobs: list[Any]) -> None:
        """Receive reports until all processes have ended."""
        printed = time.monotonic()
        while True:
            alive = [one for one in jobs if one.is_alive()]
            with contextlib.suppress(queue.Empty):
                while True:
                    self.heard(said.get(timeout=0.5))
                    if self.found and self._ends_at_first:
                        return
            if time.monotonic() > printed + _SAID_SECONDS:
                printed = time.monotonic()
                self._say()
            if not alive:
                break
        for number, one in enumerate(jobs):
            if one.exitcode:
                self.found[f"process {number}"] += 1
                print(f"process {number} ended with {one.exitcode}: see above", flush=True)

    def heard(self, news: News) -> None:
        """Process a report; print the first violation of each kind."""
        self._numbers[news.side] += news.number
        self._seconds[news.side] += news.seconds
        if not news.failure:
            return
        kind = part.kind(news.failure)
        self.found[kind] += 1
        if self.found[kind] == 1:
            print(
                f"{news.side}: a violation after {self._numbers[news.side]:,} sequences,"
                f" {self._seconds[news.side]:.1f} s of the processor: {news.failure}",
                flush=True,
            )

    def _say(self) -> None:
        parts = [
            f"{self._numbers[side]:,} of {side}"
            f" ({self._numbers[side] / max(self._seconds[side], 0.1):.0f} a second of the processor)"
            for side in self._order.sides
        ]
        minutes = (time.monotonic() - self._began) / 60
        print(f"{minutes:5.1f} min: {', '.join(parts)}; {len(self.found)} violations", flush=True)
