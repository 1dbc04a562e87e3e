"""The runs of stacks: at most one of each target at a time, each on a thread of its own, and their counts."""

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
"""Most heavy runs in their first minute at once; each is a process that wants a processor."""

SLOT_SECONDS = 60.0
"""Seconds after which a heavy run does not count for :data:`MOST_RUNS` any more: it waits, perhaps in
vain.
"""

MOST_AT_ALL = 32
"""Most runs of all kinds at once. Of this number and of :data:`MOST_RUNS`, half is kept for targets whose
last run went well.
"""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    thread: threading.Thread
    began: float
    is_heavy: bool
    is_again: bool


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run of a target for one StackRefresh.

    :ivar uid: the StackRefresh's UID; by the end of the run another one may have its name.
    :ivar term: the term of leadership in which it was made.
    :ivar wanted: the digest of the state to run for.
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
    """A run that has ended, with its result and its duration in seconds."""

    request: RunRequest
    result: TriggerResult
    seconds: float


@dataclass(slots=True)
class RunHistory:
    """The counts of one StackRefresh's runs since this process began."""

    outcomes: Counter[TriggerOutcome] = field(default_factory=Counter)
    last_seconds: float = 0.0
    succeeded_at: float | None = None

    def count(self, ended: FinishedRun) -> None:
        """Count a run that has ended, by its outcome."""
        self.outcomes[ended.result.outcome] += 1
        self.last_seconds = ended.seconds
        if ended.result.outcome.is_good:
            self.succeeded_at = time.time()


class Runs:
    """The runs of targets, on threads of their own, as many at once as their targets allow.

    :param runners: by target.
    :param concurrency: by target; a target without one has a group of its own, and is heavy.
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

        :param is_again: its last run did not go well: repeated runs may take only half of all places.
        """
        limit, now = self._concurrency[target], time.monotonic()
        with self._lock:
            active = list(self._active.values())
            if limit.group in self._active or not _has_room(active, MOST_AT_ALL, is_again=is_again):
                return False
        young = [one for one in active if one.is_heavy and now - one.began < SLOT_SECONDS]
        return not limit.is_heavy or _has_room(young, MOST_RUNS, is_again=is_again)

    def frees_at(self) -> float | None:
        """Return when the next heavy run frees its place, by the monotonic clock; None where none will."""
        now = time.monotonic()
        with self._lock:
            times = [one.began + SLOT_SECONDS for one in self._active.values() if one.is_heavy]
        return min((at for at in times if at > now), default=None)

    def begin(self, request: RunRequest, run: Callable[[threading.Event], TriggerRun]) -> None:
        """Begin a run that :meth:`may_begin` allows.

        :param run: returns the run for the event that cancels it.
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
        """Return the runs that ended since the last call, and free their targets."""
        with self._lock:
            ended, self._ended = self._ended, []
            for one in ended:
                del self._active[self._concurrency[one.request.target].group]
        return ended

    def cancel(self) -> None:
        """Ask all runs, also those that begin later, to end soon; return at once."""
        self._cancelled.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until all runs have ended, or for the time-out."""
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
            _log.error("failed to run a stack, counting the run as failed", extra=about)
            result = TriggerResult.failed(f"the run broke off ({kind}); the operator's log says where")
        with self._lock:
            self._ended.append(FinishedRun(request, result, time.monotonic() - began))
        self._has_ended()


def runner_of(target: Target, access: KubeAccess) -> Runner:
    """Return the function that runs a target, by the kind of the target."""
    way = target.way
    if isinstance(way, PulumiStack):
        return requester(way, access)
    return worker(way) if isinstance(way, Automation) else caller(way)


def _has_room(active: Sequence[_ActiveRun], most: int, *, is_again: bool) -> bool:
    """Return whether one more run fits; repeated runs may take only half of ``most``."""
    return len(active) < most and not (is_again and sum(one.is_again for one in active) >= most // 2)
