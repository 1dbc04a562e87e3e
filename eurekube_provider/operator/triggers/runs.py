"""The runs: at most one of each target at a time, each on a thread of its own; and how many there were."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.model import EMPTY
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.triggers.automation import worker
from eurekube_provider.operator.triggers.pulumi_stack import requester
from eurekube_provider.operator.triggers.targets import Automation, Concurrency, PulumiStack, Target
from eurekube_provider.operator.triggers.trigger_run import Runner, TriggerOutcome, TriggerResult, TriggerRun
from eurekube_provider.operator.triggers.webhook import caller

_log = logging.getLogger(__name__)

MOST_RUNS = 4
"""How many heavy runs may be in their first minute at once; each is a process that wants a processor."""

SLOT_SECONDS = 60.0
"""After so long a heavy run counts no more: it waits for something, perhaps in vain."""

MOST_AT_ALL = 32
"""How many runs there may be at once, whatever they are. Half of either number is for targets whose last
run went well."""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    thread: threading.Thread
    began: float
    is_heavy: bool
    is_again: bool


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run of a target: whose it is, and what it is for.

    :ivar uid: the StackRefresh's; its name may be another one's by the end of the run.
    :ivar term: the term of leadership in which it was made.
    :ivar wanted: the digest of what it is for.
    :ivar is_again: True if it repeats a run that did not go well.
    """

    key: tuple[str, str]
    uid: str
    term: int
    target: str
    wanted: str
    is_again: bool = False


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is over."""

    request: RunRequest
    result: TriggerResult
    seconds: float


@dataclass(slots=True)
class RunHistory:
    """Counts the runs of one StackRefresh since this process began."""

    outcomes: Counter[TriggerOutcome] = field(default_factory=Counter)
    last_seconds: float = 0.0
    succeeded_at: float | None = None

    def count(self, ended: FinishedRun) -> None:
        """Count a run that has ended."""
        self.outcomes[ended.result.outcome] += 1
        self.last_seconds = ended.seconds
        if ended.result.outcome.is_good:
            self.succeeded_at = time.time()


class Runs:
    """Begins runs of targets on threads of their own, as many side by side as their targets allow.

    :param runners: by target.
    :param concurrency: by target; where there is none, a target has a group of its own, and is heavy.
    :param has_ended: called on a run's thread when there is something for :meth:`take_ended`.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        has_ended: Callable[[], None],
        concurrency: Mapping[str, Concurrency] = EMPTY,
    ) -> None:
        self._runners = runners
        self._concurrency = {name: concurrency.get(name, Concurrency(name)) for name in runners}
        self._has_ended = has_ended
        self._lock = threading.Lock()
        self._active: dict[str, _ActiveRun] = {}
        self._ended: list[FinishedRun] = []
        self._cancelled = threading.Event()

    def may_begin(self, target: str, *, is_again: bool = False) -> bool:
        """Return whether a run of this target can begin now.

        :param is_again: its last run did not go well: however many of those there are, they leave room.
        """
        limit, now = self._concurrency[target], time.monotonic()
        with self._lock:
            active = list(self._active.values())
            if limit.group in self._active or not _has_room(active, MOST_AT_ALL, is_again=is_again):
                return False
        young = [one for one in active if one.is_heavy and now - one.began < SLOT_SECONDS]
        return not limit.is_heavy or _has_room(young, MOST_RUNS, is_again=is_again)

    def frees_at(self) -> float | None:
        """When the next heavy run counts no more, by the monotonic clock; None where none will."""
        now = time.monotonic()
        with self._lock:
            times = [one.began + SLOT_SECONDS for one in self._active.values() if one.is_heavy]
        return min((at for at in times if at > now), default=None)

    def begin(self, request: RunRequest, run: Callable[[threading.Event], TriggerRun]) -> None:
        """Begin a run, which :meth:`may_begin` allows.

        :param run: makes it, of the event that cancels it.
        """
        name = f"run-{request.target}"
        thread = threading.Thread(
            target=self._carry_out, args=(request, run(self._cancelled)), name=name, daemon=True
        )
        limit = self._concurrency[request.target]
        with self._lock:
            self._active[limit.group] = _ActiveRun(thread, time.monotonic(), limit.is_heavy, request.is_again)
        thread.start()

    def take_ended(self) -> list[FinishedRun]:
        """Return the runs that ended since the last call; its targets are free again."""
        with self._lock:
            ended, self._ended = self._ended, []
            for one in ended:
                del self._active[self._concurrency[one.request.target].group]
        return ended

    def cancel(self) -> None:
        """Have all end soon, also those that begin later; returns at once."""
        self._cancelled.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until all have ended."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            threads = [one.thread for one in self._active.values()]
        for thread in threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _carry_out(self, request: RunRequest, run: TriggerRun) -> None:
        began = time.monotonic()
        try:
            result = self._runners[request.target](run)
        except EurekubeError as error:  # its text is ours, without credentials
            result = TriggerResult.failed(f"the run broke off: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it was, the run is over
            # Neither status nor log repeats its text: a library may show in it what it was given to send.
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            kind = type(error).__name__
            about = {"refresh": "/".join(request.key), "error": kind, "where": where}
            _log.error("stack run failed with an exception", extra=about)
            result = TriggerResult.failed(f"the run broke off ({kind}); the operator's log says where")
        with self._lock:
            self._ended.append(FinishedRun(request, result, time.monotonic() - began))
        self._has_ended()


def runner_of(target: Target, access: KubeAccess) -> Runner:
    """Return the function that has a target run, by the kind of the target."""
    way = target.way
    if isinstance(way, PulumiStack):
        return requester(way, access)
    return worker(way) if isinstance(way, Automation) else caller(way)


def _has_room(active: Sequence[_ActiveRun], most: int, *, is_again: bool) -> bool:
    """Return whether one more fits; of those that did not go well, into their half."""
    return len(active) < most and not (is_again and sum(one.is_again for one in active) >= most // 2)
