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
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
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
from eurekube_provider.operator.triggers.trigger_run import StackRun, StackRunner, StackRunOutcome
from eurekube_provider.operator.triggers.trigger_state import (
    REFUSAL_REASONS,
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
"""Seconds within which changes are reconciled together."""

LONGEST_WAIT_SECONDS = 30.0
"""Most seconds between two rounds of the controller's thread, even if nothing is due."""

LONGEST_ROUND_SECONDS = 300.0
"""Seconds after which a round of the controller's thread counts as stuck."""

LONGEST_STOP_SECONDS = 35.0
"""Most seconds that :meth:`StackRefreshController.join` waits for the threads."""

_EVENT_REASON_BY_OUTCOME = {
    StackRunOutcome.CHANGED: RefreshEvent.RUN_CHANGED,
    StackRunOutcome.UNCHANGED: RefreshEvent.RUN_UNCHANGED,
    StackRunOutcome.SUCCEEDED: RefreshEvent.RUN_SUCCEEDED,
    StackRunOutcome.FAILED: RefreshEvent.RUN_FAILED,
    StackRunOutcome.PENDING: RefreshEvent.RUN_PENDING,
    StackRunOutcome.LOCKED: RefreshEvent.STACK_LOCKED,
}
"""Reason of the Event on an ended run, by outcome."""


class StackRefreshController:
    """The controller that runs targets for the StackRefreshes of an operator.

    :param selected: returns the Services of a selector and their EndpointSlices; called only by the leader.
    :param seen_terminating: returns whether a pod was seen terminating; called only by the leader.
    :param runners: by target; default those of the settings' targets.
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
        self._runs = RunPool(made, self._wake_thread, concurrency)
        self._begun_at: dict[str, float] = {}  # by target; also of StackRefreshes that are gone
        self._condition = threading.Condition()
        self._is_woken = self._leads = self._stopped = False
        self._term = 0
        self._touched: dict[RefreshKey, float] = {}
        self._later: dict[RefreshKey, float] = {}  # whose status could not be read, and when to try again
        self._entries: dict[RefreshKey, StackRefreshEntry] = {}
        self._entries_term = 0
        self._history: dict[RefreshKey, RunStatistics] = {}
        self._round_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="triggers", daemon=True)

    def start(self) -> None:
        """Start to watch StackRefreshes, and wait for :meth:`lead`."""
        self._round_at = time.monotonic()
        self.reflectors.start()
        self._thread.start()

    def lead(self) -> None:
        """Begin to run targets, including unfinished runs of another replica."""
        with self._condition:
            self._leads = True
            self._term += 1
        self.reflectors.retry_now()
        self._wake_thread()

    def stand_by(self) -> None:
        """Begin no more runs: another replica leads. Present ones go on, and their end is not recorded."""
        with self._condition:
            self._leads = False
        self._wake_thread()

    def close(self) -> None:
        """Begin no more runs, and cancel the present ones; return at once."""
        self.reflectors.stop()
        self._runs.cancelled.set()
        self._stopped = True
        self._wake_thread()

    def join(self) -> None:
        """Wait until all threads have ended, or for :data:`LONGEST_STOP_SECONDS`, after :meth:`close`."""
        deadline = time.monotonic() + LONGEST_STOP_SECONDS
        if self._thread.is_alive():
            self._thread.join(timeout=LONGEST_STOP_SECONDS)
        self._runs.join(max(0.0, deadline - time.monotonic()))

    def service_changed(self, service: Object) -> None:
        """Queue the StackRefreshes that select a Service whose endpoints may have changed; return at once."""
        keys = self._selectors.keys_selecting(service)
        if keys:
            self._queue_changed(*keys)

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all threads but those of runs."""
        age = time.monotonic() - self._round_at
        return [
            *self.reflectors.liveness(),
            *liveness_of_started_threads([self._thread], age, LONGEST_ROUND_SECONDS),
        ]

    def run_statistics(self) -> dict[RefreshKey, RunStatistics]:
        """Return the counts of runs by existing StackRefresh."""
        there = {key_of(item) for item in self.reflectors.objects()}
        with self._condition:
            copies = {key: replace(one, outcomes=one.outcomes.copy()) for key, one in self._history.items()}
        return {key: one for key, one in copies.items() if key in there}

    def states(self) -> dict[RefreshKey, StackRefreshState]:
        """Return each StackRefresh's state as this replica knows it; empty while it does not lead."""
        with self._condition:
            return {key: entry.state for key, entry in self._entries.items()}

    def next_run_times(self) -> dict[RefreshKey, float]:
        """Return when each waiting StackRefresh may run, as Unix time."""
        offset = time.time() - time.monotonic()
        with self._condition:
            entries = list(self._entries.items())
        times = {key: entry.run_due_at(self._target_interval_ends_at(entry)) for key, entry in entries}
        return {key: at + offset for key, at in times.items() if at is not None}

    def _wake_thread(self) -> None:
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def _queue_changed(self, *keys: RefreshKey) -> None:
        now = time.monotonic()
        with self._condition:
            self._touched.update(dict.fromkeys(keys, now))
        self._wake_thread()

    def _refresh_changed(self, old: Object | None, new: Object | None) -> None:
        if old and new and values_besides_status(old) == values_besides_status(new):
            return  # our own status
        subject = new or old
        if subject is not None:
            self._selectors.put(key_of(subject), selector_of(new))
            self._queue_changed(key_of(subject))

    def _run(self) -> None:
        while True:
            self._round_at = time.monotonic()
            with self._condition:
                self._condition.wait_for(lambda: self._is_woken, self._wait_seconds())
                self._condition.wait_for(lambda: self._stopped, BATCH_WINDOW_SECONDS)
                if self._stopped:
                    return
                self._is_woken = False
                touched, self._touched = self._touched, {}
                if not self._leads or self._entries_term != self._term:
                    self._entries, self._later = {}, {}
            for ended in self._runs.pop_finished():
                self._call_or_retry_later(ended.request.key, partial(self._record_run_end, ended))
            if not self._leads:
                continue
            if not self.reflectors.is_synced_or_forbidden:
                with self._condition:
                    self._touched = {**touched, **self._touched}
                continue
            now = time.monotonic()
            if self._entries_term != self._term:
                self._entries_term = self._term
                touched = {key_of(item): now for item in self.reflectors.objects()}
            again = [key for key, at in self._later.items() if at <= now]
            for key in again:
                touched[key] = self._later.pop(key)
            for key, at in touched.items():
                self._call_or_retry_later(key, partial(self._update_entry, key, at))
            # What did not go well comes after all others; of equals, who waits longest is first.
            waiting = {
                key: (entry.state.is_retry, entry.schedule.first_change_at or 0.0)
                for key, entry in self._entries.items()
            }
            for key in sorted(waiting, key=lambda key: waiting[key]):
                self._call_or_retry_later(key, partial(self._reconcile, key))

    def _wait_seconds(self) -> float:
        """Return the seconds until a StackRefresh is due; at most 1 while the first list is incomplete,
        whose end wakes nobody.
        """
        now = time.monotonic()
        waits_for_list = self._leads and not self.reflectors.is_synced_or_forbidden
        times = [now + (1.0 if waits_for_list else LONGEST_WAIT_SECONDS), *self._later.values()]
        due = (entry.next_check_at(self._earliest_run_at(entry)) for entry in self._entries.values())
        times += [at for at in (self._runs.next_local_slot_free_at(), *due) if at is not None]
        return max(0.0, min(times) - now)

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

    def _call_or_retry_later(self, key: RefreshKey, do: Callable[[], None]) -> None:
        """Call a function for one StackRefresh; if it fails, log it, and retry without delaying others."""
        self._round_at = time.monotonic()  # many that each wait for the API in vain are no loop that is stuck
        try:
            do()
            return
        except LeadershipLost as error:
            _log.info(
                "postponed checking a StackRefresh, changing nothing: another replica may lead by now",
                extra={"refresh": "/".join(key), "error": str(error)},
            )
        except KubernetesError as error:
            _log.warning(
                "failed to check a StackRefresh, retrying",
                extra={"refresh": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS},
            )
        except Exception:  # noqa: BLE001
            _log.exception(
                "failed to check a StackRefresh, retrying: unexpected error",
                extra={"refresh": "/".join(key), "retry_seconds": RETRY_SECONDS},
            )
        at = time.monotonic() + RETRY_SECONDS
        entry = self._entries.get(key)
        if entry is None:
            self._later[key] = at
        else:
            entry.retry_not_before = at

    def _update_entry(self, key: RefreshKey, at: float) -> None:
        """Update the entry of a StackRefresh after a change of the StackRefresh or of its Services."""
        item, entry = self.reflectors.get(*key), self._entries.get(key)
        if item is None or is_being_deleted(item):
            with self._condition:
                self._entries.pop(key, None)
                self._history.pop(key, None)
            return
        if entry is None or entry.uid != str(item["metadata"].get("uid")):
            # From the API server, since a former leader may have just written it.
            item = self._request_or_none_on_404("GET", STACK_REFRESHES.path(*key))
            if item is None:
                return  # its end is on its way to our copy
            state = StackRefreshState.from_object(item)
            entry = StackRefreshEntry(item, state, state.schedule(time.monotonic(), datetime.now(UTC)))
            target, began_at = state.last_run_target, entry.schedule.run_began_at
            self._begun_at[target] = max(began_at, self._begun_at.get(target, began_at))
            with self._condition:
                self._entries[key] = entry
            if state.is_run_end_unrecorded:
                note = "the replica that began the last run did not see its end; it is run again"
                self._events.record(item, EventType.WARNING, RefreshEvent.RUN_CUT_OFF, note)
        elif values_besides_status(entry.refresh_object) != values_besides_status(item):
            if entry.refresh_object["spec"].get("selector") != item["spec"].get("selector"):
                entry.last_run_endpoints = {}  # what others were there says nothing of these
            entry.refresh_object = {**item, "status": entry.refresh_object.get("status")}
        else:
            entry.schedule = entry.schedule.after_change(at)
            return
        entry.schedule = entry.schedule.after_change(at)
        if not entry.parse_and_check_spec(self._settings):
            refusal = entry.state.ready
            self._events.record(entry.refresh_object, EventType.WARNING, refusal.reason, refusal.text)

    def _reconcile(self, key: RefreshKey) -> None:
        """Begin a due run of a StackRefresh, or write its status."""
        entry, now = self._entries[key], time.monotonic()
        if entry.retry_not_before > now:
            return
        was_braked = entry.state.is_braked
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
        elif entry.is_status_unwritten or entry.state.ready.reason in REFUSAL_REASONS:
            self._write_status(key, entry)  # one that is refused is stalled after a while

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
            RunRequest(key, entry.uid, self._term, refresh.target, wanted_digest, before.is_retry), run
        )
        if is_released:
            self._remove_release_annotation(key, was_held=True)

    def _record_run_end(self, ended: FinishedRun) -> None:
        """Record the end of a run, unless another replica has taken its StackRefresh over."""
        request, result, good = ended.request, ended.result, ended.result.outcome.is_success
        about = {"refresh": "/".join(request.key), "target": request.target, "outcome": str(result.outcome)}
        fields = {**about, "seconds": round(ended.seconds, 1)}
        if good:
            _log.info("stack run succeeded, waiting for the next change", extra=fields)
        else:
            _log.warning(
                "stack run did not succeed, retrying unless its StackRefresh is gone or another replica "
                "leads",
                extra={**fields, "error": result.message},
            )
        entry = self._entries.get(request.key)
        if entry is None or (entry.uid, self._entries_term) != (request.uid, request.leadership_term):
            return
        with self._condition:
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
        entry.is_status_unwritten = True
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
                with self._condition:
                    self._entries.pop(key, None)
                self._queue_changed(key)  # there may be another one of its name
                return False
            entry.refresh_object = {**item, "status": written.get("status")}
        entry.is_status_unwritten = False
        return True

    def _remove_release_annotation(self, key: RefreshKey, *, was_held: bool) -> None:
        """Remove the release annotation, so that it does not release the next braked run as well.

        :param was_held: True if it released a run.
        """
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
    """Return whether a status already has all values of a merge patch."""

    def without_nulls(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: without_nulls(one) for key, one in value.items() if one is not None}
        return value

    return all(without_nulls(status.get(key)) == without_nulls(value) for key, value in patch.items())
