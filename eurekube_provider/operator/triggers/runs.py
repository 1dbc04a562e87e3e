"""The runs: at most one of each target at a time, each on a thread of its own; and how many there were."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.operator.triggers.run import Outcome, Result, Run, Runner, failed

_log = logging.getLogger(__name__)

MOST_RUNS = 4
"""So many targets run at once; each may be a process that wants a processor for itself."""


@dataclass(frozen=True, slots=True)
class Order:
    """Who has a target run, and what for.

    :ivar uid: the StackRefresh's; its name may be another one's by the end of the run.
    :ivar term: the term of leadership in which it was ordered.
    :ivar wanted: the digest of what it is for.
    """

    key: tuple[str, str]
    uid: str
    term: int
    target: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over."""

    order: Order
    result: Result
    seconds: float


@dataclass(slots=True)
class History:
    """What is counted of one StackRefresh, since this process began."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    last_seconds: float = 0.0
    succeeded_at: float | None = None

    def count(self, ended: Ended) -> None:
        """Another run has ended."""
        self.outcomes[ended.result.outcome] += 1
        self.last_seconds = ended.seconds
        if ended.result.outcome.is_good:
            self.succeeded_at = time.time()


class Runs:
    """What runs.

    :param runners: by target.
    :param has_ended: called on a run's thread when there is something for :meth:`take_ended`.
    """

    def __init__(self, runners: Mapping[str, Runner], has_ended: Callable[[], None]) -> None:
        self._runners = runners
        self._has_ended = has_ended
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._ended: list[Ended] = []
        self._cancelled = threading.Event()

    def may_begin(self, target: str) -> bool:
        """Whether a run of this target can begin now."""
        with self._lock:
            return target not in self._threads and len(self._threads) < MOST_RUNS

    def begin(self, order: Order, run: Callable[[threading.Event], Run]) -> None:
        """Begin a run, which :meth:`may_begin` allows.

        :param run: makes it, of the event that cancels it.
        """
        name = f"run-{order.target}"
        thread = threading.Thread(
            target=self._carry_out, args=(order, run(self._cancelled)), name=name, daemon=True
        )
        with self._lock:
            self._threads[order.target] = thread
        thread.start()

    def take_ended(self) -> list[Ended]:
        """What has ended since the last call; its targets are free again."""
        with self._lock:
            ended, self._ended = self._ended, []
            for one in ended:
                del self._threads[one.order.target]
        return ended

    def cancel(self) -> None:
        """Have all end soon, also those that begin later; returns at once."""
        self._cancelled.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until all have ended."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _carry_out(self, order: Order, run: Run) -> None:
        began = time.monotonic()
        try:
            result = self._runners[order.target](run)
        except EurekubeError as error:  # its text is ours, without credentials
            result = failed(f"the run broke off: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it was, the run is over
            # Neither status nor log repeats its text: a library may show in it what it was given to send.
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            kind = type(error).__name__
            about = {"refresh": "/".join(order.key), "error": kind, "where": where}
            _log.error("stack run broke off", extra=about)
            result = failed(f"the run broke off ({kind}); the operator's log says where")
        with self._lock:
            self._ended.append(Ended(order, result, time.monotonic() - began))
        self._has_ended()
