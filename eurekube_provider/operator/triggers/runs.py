"""Runs of stacks, each on a thread of its own, at most one of each target at a time; and their counts."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.triggers.automation import automation_runner
from eurekube_provider.operator.triggers.pulumi_stack import pulumi_stack_runner
from eurekube_provider.operator.triggers.targets import (
    AutomationStack,
    ConcurrencyLimit,
    PulumiStack,
    StackRun,
    StackRunner,
    StackRunOutcome,
    StackRunResult,
    Target,
)

_log = logging.getLogger(__name__)

MOST_STARTING_LOCAL_RUNS = 4
"""Most runs of local processes that are in their first minute at once; each needs a processor."""

LOCAL_RUN_SLOT_SECONDS = 60.0
"""Seconds after which a run of a local process does not count for :data:`MOST_STARTING_LOCAL_RUNS` any more:
by then it mostly waits.
"""

MOST_CONCURRENT_RUNS = 32
"""Most runs of all kinds at once. Of this number and of :data:`MOST_STARTING_LOCAL_RUNS`, half is kept for
targets whose last run went well.
"""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """A run that is under way, or whose end nobody has taken note of yet.

    :ivar began_at: the monotonic time at which the run began.
    """

    thread: threading.Thread
    began_at: float
    runs_local_process: bool
    is_retry: bool


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run of a target for one StackRefresh.

    :ivar uid: the StackRefresh's UID; by the end of the run another one may have its name.
    """

    key: tuple[str, str]
    uid: str
    leadership_term: int
    target: str
    wanted_digest: str
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended, with its result and its duration in seconds."""

    request: RunRequest
    result: StackRunResult
    seconds: float


@dataclass(slots=True)
class RunStatistics:
    """The counts of one StackRefresh's runs since this process began.

    :ivar succeeded_at: Unix time at which a run succeeded last; None while none has.
    """

    outcomes: Counter[StackRunOutcome] = field(default_factory=Counter)
    last_run_seconds: float = 0.0
    succeeded_at: float | None = None

    def count_run(self, ended: FinishedRun) -> None:
        """Count a run that has ended, by its outcome."""
        self.outcomes[ended.result.outcome] += 1
        self.last_run_seconds = ended.seconds
        if ended.result.outcome.is_success:
            self.succeeded_at = time.time()


class RunPool:
    """The runs of targets, on threads of their own, as many at once as their targets allow.

    :param concurrency: by target; a target without one has a group of its own, and counts as a local process.
    :param on_run_ended: called on a run's thread when there is something for :meth:`pop_finished`.
    """

    def __init__(
        self,
        runners: Mapping[str, StackRunner],
        on_run_ended: Callable[[], None],
        concurrency: Mapping[str, ConcurrencyLimit] = EMPTY_MAPPING,
    ) -> None:
        self._runners = runners
        self._concurrency = {name: concurrency.get(name, ConcurrencyLimit(name)) for name in runners}
        self._on_run_ended = on_run_ended
        self._lock = threading.Lock()
        self._active: dict[str, _ActiveRun] = {}
        self._ended: list[FinishedRun] = []
        self.cancelled = threading.Event()

    def may_start_run(self, target: str, *, is_retry: bool = False) -> bool:
        """Return whether a run of this target can begin now.

        :param is_retry: its last run did not go well: repeated runs may take only half of all places.
        """
        limit, now = self._concurrency[target], time.monotonic()
        with self._lock:
            active = list(self._active.values())
            if limit.group in self._active or not _has_room(active, MOST_CONCURRENT_RUNS, is_retry=is_retry):
                return False
        young = [
            one for one in active if one.runs_local_process and now - one.began_at < LOCAL_RUN_SLOT_SECONDS
        ]
        return not limit.runs_local_process or _has_room(young, MOST_STARTING_LOCAL_RUNS, is_retry=is_retry)

    def next_local_slot_free_at(self) -> float | None:
        """Return when the next local run frees its slot, by the monotonic clock; None if no run will."""
        now = time.monotonic()
        with self._lock:
            times = [
                one.began_at + LOCAL_RUN_SLOT_SECONDS
                for one in self._active.values()
                if one.runs_local_process
            ]
        return min((at for at in times if at > now), default=None)

    def start_run(self, request: RunRequest, run: StackRun) -> None:
        """Begin a run that :meth:`may_start_run` allows."""
        name = f"run-{request.target}"
        thread = threading.Thread(target=self._execute_run, args=(request, run), name=name, daemon=True)
        limit = self._concurrency[request.target]
        with self._lock:
            self._active[limit.group] = _ActiveRun(
                thread, time.monotonic(), limit.runs_local_process, request.is_retry
            )
        thread.start()

    def pop_finished(self) -> list[FinishedRun]:
        """Return the runs that ended since the last call, and free their targets."""
        with self._lock:
            ended, self._ended = self._ended, []
            for one in ended:
                del self._active[self._concurrency[one.request.target].group]
        return ended

    def join(self, timeout_seconds: float) -> None:
        """Wait until all runs have ended, or for the time-out."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            threads = [one.thread for one in self._active.values()]
        for thread in threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _execute_run(self, request: RunRequest, run: StackRun) -> None:
        began_at = time.monotonic()
        try:
            result = self._runners[request.target](run)
        except EurekubeError as error:  # its text is ours, without credentials
            result = StackRunResult.failed(f"the run broke off: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it was, the run is over
            # Neither status nor log repeats its text: a library may show in it what it was given to send.
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            kind = type(error).__name__
            about = {"refresh": "/".join(request.key), "error": kind, "where": where}
            _log.error("failed to run a stack: unexpected error, counting the run as failed", extra=about)
            result = StackRunResult.failed(f"the run broke off ({kind}); the operator's log says where")
        seconds = time.monotonic() - began_at
        about = {"refresh": "/".join(request.key), "target": request.target, "outcome": str(result.outcome)}
        fields = {**about, "seconds": round(seconds, 1)}
        if result.outcome.is_success:
            _log.info("stack run succeeded, waiting for the next change", extra=fields)
        else:
            _log.warning(
                "stack run did not succeed, retrying unless its StackRefresh is gone or another replica "
                "leads",
                extra={**fields, "error": result.message},
            )
        with self._lock:
            self._ended.append(FinishedRun(request, result, seconds))
        self._on_run_ended()


def runner_of(target: Target, access: KubeAccess) -> StackRunner:
    """Return the function that runs a target, by the kind of the target."""
    way = target.run_method
    if isinstance(way, PulumiStack):
        return pulumi_stack_runner(way, access)
    if isinstance(way, AutomationStack):
        return automation_runner(way)
    from eurekube_provider.operator.triggers.webhook import webhook_runner  # late: requests takes 5 MiB

    return webhook_runner(way)


def _has_room(active: Sequence[_ActiveRun], most: int, *, is_retry: bool) -> bool:
    """Return whether one more run fits; repeated runs may take only half of ``most``."""
    return len(active) < most and not (is_retry and sum(one.is_retry for one in active) >= most // 2)
