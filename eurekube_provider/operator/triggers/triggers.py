"""The controller of StackRefreshes, which runs their targets while this replica leads.

One thread reconciles and writes; runs have threads of their own. The reflectors only queue keys, and so wait
for neither.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.event_reasons import RefreshEvent
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.objects import is_being_deleted, key_of
from eurekube_provider.core.stack_refresh import StackRefresh
from eurekube_provider.core.syncer import selector_of
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, STACK_REFRESHES, KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.kube.reflector import Reflector, ReflectorGroup
from eurekube_provider.operator.index import Object, SelectorIndex
from eurekube_provider.operator.progress import STALLED_RECHECK_SECONDS
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import values_besides_status
from eurekube_provider.operator.triggers.entry import (
    DueRun,
    SelectServices,
    StackRefreshEntry,
    WasSeenTerminating,
    idempotency_key,
)
from eurekube_provider.operator.triggers.runs import (
    FinishedRun,
    RunPool,
    RunRequest,
    RunStatistics,
    runner_of,
)
from eurekube_provider.operator.triggers.targets import StackRun, StackRunner, StackRunOutcome
from eurekube_provider.operator.triggers.trigger_state import (
    REFUSAL_REASONS,
    RUNNING_OUTCOME,
    StackRefreshState,
    stack_refresh_status_patch,
)
from eurekube_provider.operator.watches import trim_custom_resource

_log = logging.getLogger(__name__)

RefreshKey = tuple[str, str]
"""Namespace and name of a StackRefresh."""

RETRY_SECONDS = 5.0
"""Seconds until a StackRefresh is tried again after the Kubernetes API refused a request."""

BATCH_WINDOW_SECONDS = 0.05

UNLISTED_RETRY_SECONDS = 1.0
"""Seconds until a StackRefresh is checked again while the StackRefreshes have not all been listed."""

LONGEST_CHECK_SECONDS = 300.0

LONGEST_STOP_SECONDS = 35.0

_EVENT_REASON_BY_OUTCOME = {
    StackRunOutcome.CHANGED: RefreshEvent.RUN_CHANGED,
    StackRunOutcome.UNCHANGED: RefreshEvent.RUN_UNCHANGED,
    StackRunOutcome.SUCCEEDED: RefreshEvent.RUN_SUCCEEDED,
    StackRunOutcome.FAILED: RefreshEvent.RUN_FAILED,
    StackRunOutcome.PENDING: RefreshEvent.RUN_PENDING,
    StackRunOutcome.LOCKED: RefreshEvent.STACK_LOCKED,
}

_ENDED_RUNS_KEY: RefreshKey = ("", "ended runs")
"""The key with which the queue hands out the ends of runs."""


class StackRefreshController:
    """The controller that runs targets for the StackRefreshes of an operator.

    :param selected: returns the Services of a selector and their EndpointSlices; called only by the leader.
    :param seen_terminating: returns whether a pod was seen terminating; called only by the leader.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: str,
        access: KubeAccess,
        events: EventRecorder,
        selected: SelectServices,
        runners: Mapping[str, StackRunner] | None = None,
        seen_terminating: WasSeenTerminating = lambda pod, namespace: False,  # noqa: ARG005
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._access = access
        self._events = events
        self._selected = selected
        self._seen_terminating = seen_terminating
        self._selectors = SelectorIndex()
        self.reflectors = ReflectorGroup(
            Reflector(access, STACK_REFRESHES, trim_custom_resource, self._refresh_changed, namespace)
            for namespace in settings.watch_namespaces or (None,)
        )
        made = runners or {name: runner_of(target, access) for name, target in settings.targets.items()}
        concurrency = {name: target.concurrency for name, target in settings.targets.items()}
        self._queue: WorkQueue[RefreshKey] = WorkQueue()
        self._queue.pause_and_check_idle()
        self._runs = RunPool(made, lambda: self._queue.add(_ENDED_RUNS_KEY), concurrency)
        self._begun_at: dict[str, float] = {}  # by target; also of StackRefreshes that are gone
        self._lock = threading.Lock()
        self._leads = False
        self._term = 0
        self._changed_at: dict[RefreshKey, float] = {}  # until it is reconciled
        self._entries: dict[RefreshKey, StackRefreshEntry] = {}
        self._entries_term = 0
        self._history: dict[RefreshKey, RunStatistics] = {}
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="triggers", daemon=True)

    def start(self) -> None:
        """Start to watch StackRefreshes, and wait for :meth:`lead`."""
        self.reflectors.start()
        self._thread.start()

    def lead(self) -> None:
        """Begin to run targets, including unfinished runs of another replica."""
        with self._lock:
            self._leads = True
            self._term += 1
        self.reflectors.retry_now()
        self._queue.resume()
        self._queue_changed(*map(key_of, self.reflectors.objects()))

    def stand_by(self) -> None:
        """Begin no more runs: another replica leads. Present ones go on, and their end is not recorded."""
        self._queue.pause_and_check_idle()
        with self._lock:
            self._leads = False

    def close(self) -> None:
        """Begin no more runs, and cancel the present ones; return at once."""
        self.reflectors.stop()
        self._runs.cancelled.set()
        self._queue.close()

    def join(self) -> None:
        """Wait until all threads have ended, or for :data:`LONGEST_STOP_SECONDS`, after :meth:`close`."""
        deadline = time.monotonic() + LONGEST_STOP_SECONDS
        if self._thread.is_alive():
            self._thread.join(timeout=LONGEST_STOP_SECONDS)
        self._runs.join(max(0.0, deadline - time.monotonic()))

    def service_changed(self, service: Object) -> None:
        """Queue the StackRefreshes that select a Service whose endpoints may have changed; return at once."""
        self._queue_changed(*self._selectors.keys_selecting(service))

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all threads but those of runs."""
        now = time.monotonic()
        age = now - (self._busy_since or now)
        return [
            *self.reflectors.liveness(),
            *liveness_of_started_threads([self._thread], age, LONGEST_CHECK_SECONDS),
        ]

    def run_statistics(self) -> dict[RefreshKey, RunStatistics]:
        """Return the counts of runs by existing StackRefresh."""
        there = {key_of(item) for item in self.reflectors.objects()}
        with self._lock:
            copies = {key: replace(one, outcomes=one.outcomes.copy()) for key, one in self._history.items()}
        return {key: one for key, one in copies.items() if key in there}

    def states(self) -> dict[RefreshKey, StackRefreshState]:
        """Return each StackRefresh's state as this replica knows it; empty while it does not lead."""
        return {key: entry.state for key, entry in self._current_entries().items()}

    def next_run_times(self) -> dict[RefreshKey, float]:
        """Return when each waiting StackRefresh may run, as Unix time."""
        offset = time.time() - time.monotonic()
        entries = self._current_entries().items()
        times = {key: entry.run_due_at(self._target_interval_ends_at(entry)) for key, entry in entries}
        return {key: at + offset for key, at in times.items() if at is not None}

    def _queue_changed(self, *keys: RefreshKey) -> None:
        now = time.monotonic()
        for key in keys:
            self._changed_at[key] = now
            self._queue.add_after(key, BATCH_WINDOW_SECONDS)

    def _refresh_changed(self, old: Object | None, new: Object | None) -> None:
        if old and new and values_besides_status(old) == values_besides_status(new):
            return  # our own status
        subject = new or old
        if subject is not None:
            self._selectors.put(key_of(subject), selector_of(new))
            self._queue_changed(key_of(subject))

    def _current_entries(self) -> dict[RefreshKey, StackRefreshEntry]:
        with self._lock:
            return dict(self._entries) if self._leads and self._entries_term == self._term else {}

    def _run(self) -> None:
        while (key := self._queue.get()) is not None:
            self._busy_since = time.monotonic()
            if self._entries_term != self._term:
                with self._lock:
                    self._entries, self._entries_term = {}, self._term
            try:
                if key == _ENDED_RUNS_KEY:
                    self._record_ended_runs()
                else:
                    self._reconcile(key)
            except LeadershipLost as error:
                self._queue.add_after(key, RETRY_SECONDS)
                _log.info(
                    "postponed checking a StackRefresh, changing nothing: another replica may lead by now",
                    extra={"refresh": "/".join(key), "error": str(error)},
                )
            except Exception as error:  # noqa: BLE001 - the others must be checked all the same
                self._queue.add_after(key, RETRY_SECONDS)
                is_expected = isinstance(error, KubernetesError)
                _log.log(
                    logging.WARNING if is_expected else logging.ERROR,
                    "failed to check a StackRefresh, retrying",
                    extra={"refresh": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS},
                    exc_info=not is_expected,
                )
            self._busy_since = None
            self._queue.done(key)

    def _record_ended_runs(self) -> None:
        """Record the ends of runs, and queue the StackRefreshes that may have waited for them."""
        ended = self._runs.pop_finished()
        for one in ended:
            self._record_run_end(one)
        keys = {one.request.key for one in ended}
        # What did not go well comes after all others; of equals, who waits longest is first.
        waiting = [
            (entry.state.is_retry, entry.schedule.first_change_at or 0.0, key)
            for key, entry in self._entries.items()
            if entry.schedule.is_pending or key in keys
        ]
        for _, _, key in sorted(waiting):
            self._queue.add(key)

    def _earliest_run_at(self, entry: StackRefreshEntry) -> float | None:
        """Return when a run for an entry may begin; None while other runs take all slots."""
        if entry.refresh is None:
            return None
        is_retry = entry.state.is_retry
        may_begin = self._runs.may_start_run(entry.refresh.target, is_retry=is_retry)
        return self._target_interval_ends_at(entry) if may_begin else None

    def _target_interval_ends_at(self, entry: StackRefreshEntry) -> float:
        """Return when the shortest interval of an entry's target is over, whoever ran it last."""
        target = self._settings.targets.get(entry.refresh.target) if entry.refresh else None
        if target is None:
            return -math.inf
        return self._begun_at.get(target.name, -math.inf) + target.shortest_interval_seconds

    def _update_entry(self, key: RefreshKey, changed_at: float | None) -> StackRefreshEntry | None:
        """Return the present entry of a StackRefresh; None if there is no such StackRefresh.

        :param changed_at: when it, or one of its Services, changed last; None if not since the last call.
        """
        item, entry = self.reflectors.get(*key), self._entries.get(key)
        if item is None or is_being_deleted(item):
            with self._lock:
                self._entries.pop(key, None)
                self._history.pop(key, None)
            return None
        if entry is None or entry.uid != str(item["metadata"].get("uid")):
            # From the API server, since a former leader may have just written it.
            item = self._request_or_none_on_404("GET", STACK_REFRESHES.path(*key))
            if item is None:
                return None  # its end is on its way to our copy
            state = StackRefreshState.from_object(item)
            changed_at = time.monotonic()
            entry = StackRefreshEntry(item, state, state.schedule(changed_at, datetime.now(UTC)))
            target, began_at = str(state.last_run.get("target") or ""), entry.schedule.run_began_at
            self._begun_at[target] = max(began_at, self._begun_at.get(target, began_at))
            with self._lock:
                self._entries[key] = entry
            if state.last_run.get("outcome") == RUNNING_OUTCOME:
                note = "the replica that began the last run did not see its end; it is run again"
                self._events.record(item, EventType.WARNING, RefreshEvent.RUN_CUT_OFF, note)
        elif changed_at is None:
            return entry
        elif values_besides_status(entry.refresh_object) != values_besides_status(item):
            if entry.refresh_object["spec"].get("selector") != item["spec"].get("selector"):
                entry.last_run_endpoints = {}  # what others were there says nothing of these
            entry.refresh_object = {**item, "status": entry.refresh_object.get("status")}
        else:
            entry.schedule = entry.schedule.after_change(changed_at)
            return entry
        entry.schedule = entry.schedule.after_change(changed_at)
        if not entry.parse_and_check_spec(self._settings):
            refusal = entry.state.ready
            self._events.record(entry.refresh_object, EventType.WARNING, refusal.reason, refusal.text)
        return entry

    def _reconcile(self, key: RefreshKey) -> None:
        """Begin a due run of a StackRefresh, or write its status; queue it for the next check."""
        if not self.reflectors.is_synced_or_forbidden:
            self._queue.add_after(key, UNLISTED_RETRY_SECONDS)  # the end of a list wakes nobody
            return
        entry = self._update_entry(key, self._changed_at.pop(key, None))
        if entry is None:
            return
        now, was_braked = time.monotonic(), entry.state.is_braked
        due = entry.compare_with_last_run(
            now, self._selected, self._seen_terminating, self._earliest_run_at(entry)
        )
        if entry.is_release_spent:
            entry.is_release_spent = False
            self._remove_release_annotation(key, was_held=False)
        if entry.state.is_braked and not was_braked:
            why = entry.state.synced
            self._events.record(entry.refresh_object, EventType.WARNING, why.reason, why.text)
        if due is not None and entry.refresh is not None:
            self._begin_run(key, entry, entry.refresh, due)
        elif not self._write_status(key, entry):
            return
        if entry.state.ready.reason in REFUSAL_REASONS:  # one that is refused is stalled after a while
            self._queue.add_after(key, STALLED_RECHECK_SECONDS)
        next_at = entry.next_check_at(self._earliest_run_at(entry))
        if next_at is None and entry.schedule.is_pending:
            next_at = self._runs.next_local_slot_free_at()
        if next_at is not None:
            self._queue.add_after(key, max(0.0, next_at - time.monotonic()))

    def _begin_run(
        self, key: RefreshKey, entry: StackRefreshEntry, refresh: StackRefresh, due: DueRun
    ) -> None:
        """Begin a run after its status says so: if this process dies, the next leader finds it there."""
        wanted_digest, addresses, endpoints = due
        before = entry.state
        entry.state = before.as_running(refresh, datetime.now(UTC))
        try:
            if not self._write_status(key, entry):
                return
        except Exception:
            entry.state = before
            raise
        run = StackRun(
            namespace=refresh.namespace,
            name=refresh.name,
            action=refresh.action,
            cluster=self._cluster,
            addresses=addresses,
            idempotency_key=idempotency_key(entry, wanted_digest),
            attempt=before.consecutive_failures + 1,
            timeout_seconds=self._settings.targets[refresh.target].timeout_seconds,
            cancelled=self._runs.cancelled,
        )
        is_released = entry.is_brake_released
        self._begun_at[refresh.target] = now = time.monotonic()
        entry.last_run_endpoints, entry.braked_since, entry.is_brake_released = endpoints, None, False
        entry.schedule = entry.schedule.after_start(now, wanted_digest)
        _log.info("starting a stack run", extra={"refresh": "/".join(key), "target": refresh.target})
        self._runs.start_run(
            RunRequest(key, entry.uid, self._entries_term, refresh.target, wanted_digest, before.is_retry),
            run,
        )
        if is_released:
            self._remove_release_annotation(key, was_held=True)

    def _record_run_end(self, ended: FinishedRun) -> None:
        """Record the end of a run, unless another replica has taken its StackRefresh over."""
        request, result, good = ended.request, ended.result, ended.result.outcome.is_success
        entry = self._entries.get(request.key)
        if entry is None or (entry.uid, self._entries_term) != (request.uid, request.leadership_term):
            return
        with self._lock:
            self._history.setdefault(request.key, RunStatistics()).count_run(ended)
        now = time.monotonic()
        if good:
            entry.schedule = entry.schedule.after_success()
        elif result.outcome is StackRunOutcome.PENDING:
            entry.schedule = entry.schedule.after_giving_up(now)
        else:
            entry.schedule = entry.schedule.after_failure(now, random.random())  # noqa: S311 - jitter, no secret
        retry_seconds = max(0.0, (entry.schedule.run_due_at(entry.run_limits) or now) - now)
        entry.state = entry.state.with_run_end(
            result, request.wanted_digest, ended.seconds, datetime.now(UTC), retry_seconds
        )
        if entry.refresh is None:
            entry.parse_and_check_spec(self._settings)  # it was changed meanwhile, to what cannot work
        reason = _EVENT_REASON_BY_OUTCOME[result.outcome]
        note = f"{request.target}: {result.message} ({ended.seconds:.1f} s)"
        self._events.record(
            entry.refresh_object, EventType.NORMAL if good else EventType.WARNING, reason, note
        )

    def _write_status(self, key: RefreshKey, entry: StackRefreshEntry) -> bool:
        """Write the status, unless the object already has it; return whether the object still exists."""
        item = entry.refresh_object
        status = stack_refresh_status_patch(item, entry.state, datetime.now(UTC))
        if not _has_patch_values(item.get("status") or {}, status):
            path = STACK_REFRESHES.path(*key, "status")
            written = self._request_or_none_on_404("PATCH", path, {"status": status})
            if written is None:
                with self._lock:
                    self._entries.pop(key, None)
                self._queue_changed(key)  # there may be another one of its name
                return False
            entry.refresh_object = {**item, "status": written.get("status")}
        return True

    def _remove_release_annotation(self, key: RefreshKey, *, was_held: bool) -> None:
        """Remove the release annotation, so that it does not release the next braked run as well."""
        message = "released the brake, as the release annotation asks: running the stack"
        if not was_held:
            message = "taking the release annotation off: no run is held"
        _log.warning(message, extra={"refresh": "/".join(key)})
        try:
            body = {"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: None}}}
            self._access.request(
                "PATCH", STACK_REFRESHES.path(*key), body=body, content_type=MERGE_PATCH_TYPE
            )
        except (KubernetesError, LeadershipLost) as error:
            _log.warning(
                "failed to remove the release annotation, going on: it also releases the next braked run",
                extra={"refresh": "/".join(key), "error": str(error)},
            )

    def _request_or_none_on_404(self, method: str, path: str, body: object = None) -> Object | None:
        try:
            return self._access.request(method, path, body=body, content_type=MERGE_PATCH_TYPE)
        except KubernetesError as error:
            if error.status_code != 404:
                raise
            return None


def _has_patch_values(status: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    def without_nulls(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: without_nulls(one) for key, one in value.items() if one is not None}
        return value

    return all(without_nulls(status.get(key)) == without_nulls(value) for key, value in patch.items())
