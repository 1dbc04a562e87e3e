"""The threads that open the readiness gate of pods once callers know them: reads of Eureka, writes to pods.

:func:`~eurekube_provider.core.gate.decide_gate` decides. Here each server is asked, past its caches, for
the pods that wait. The time since which each server has shown a pod is remembered, and written into the pod's
condition, where the next leader finds it. A server that is silent for longer than one reading may have been
restarted without the pod: its time begins again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.decision import Decision, SyncerSituation, SyncerState
from eurekube_provider.core.errors import EurekubeError, KubernetesError, LeadershipLost, RegistryError
from eurekube_provider.core.event_reasons import PodEvent
from eurekube_provider.core.gate import (
    GateDecision,
    GateReason,
    GateView,
    build_gate_condition,
    decide_gate,
    format_shown_by,
    parse_shown_by,
)
from eurekube_provider.core.identity import pod_and_namespace_of_id
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.objects import is_being_deleted, is_ready, key_of, pod_name_of_endpoint
from eurekube_provider.core.plan import Action, Change, RefusalReason
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing, NeverRead, Registry, UncachedReading
from eurekube_provider.core.syncer import Mode, Syncer, connection_name
from eurekube_provider.core.wording import format_count, format_list
from eurekube_provider.kube.access import PODS, STRATEGIC_MERGE_PATCH_TYPE, KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.index import Object, SyncerKey
from eurekube_provider.operator.loop import Loop
from eurekube_provider.operator.sources import ClusterCache

_log = logging.getLogger(__name__)

SECONDS_BETWEEN_PASSES = 1.0

SECONDS_BETWEEN_SHOWN_POD_READS = 5.0
"""Seconds between two readings of a pod that every server shows; others are read in each pass."""

LONGEST_SILENCE_SECONDS = 7.0
"""Most seconds without an answer after which a server still counts as not restarted."""

MOST_CONCURRENT_WRITES = 4
"""Number of conditions that are written at once, on threads of their own, so that a slow API delays no check.
"""

RETRY_SECONDS = 5.0
"""Seconds until a condition is written again after a failure, such as a missing right."""

LONGEST_PASS_SECONDS = 120.0

ReadingKey = tuple[str, str, InstanceKey]
"""The name of a registry, the UID of a pod, and the key of the instance to look for there."""


@dataclass(frozen=True, slots=True)
class _LastDecision:
    """The last decision on a syncer.

    :ivar is_registration_uncertain: True if the syncer's desired instances are uncertain, or the brake holds
        removals.
    :ivar wanted_instance_by_pod_name: the instance that the syncer's registry must show, by pod name.
    :ivar newly_up_keys: the instances that this replica made UP and that callers did not find before.
    """

    situation: SyncerSituation
    is_registration_uncertain: bool
    wanted_instance_by_pod_name: Mapping[str, Instance]
    newly_up_keys: frozenset[InstanceKey]


@dataclass(slots=True)
class _PodReadings:
    """The readings of one pod's instance from all servers of a Eureka; all times are monotonic.

    :ivar required_shown_seconds: for how long each server must show the instance before the gate opens.
    :ivar shown_since: the time since which each reading has shown the instance, by server.
    :ivar last_answers: True for a server that showed the instance in the last reading, by server that
        answered.
    :ivar silent_since_by_server: the time since which a server is silent, by server that did not answer the
        last reading.
    :ivar silent_since: the beginning of the first of the latest readings that no server answered; None after
        an answer.
    """

    wanted_instance: Instance
    required_shown_seconds: float
    shown_since: dict[str, float] = field(default_factory=dict)
    answered_at: dict[str, float] = field(default_factory=dict)
    last_answers: dict[str, bool] = field(default_factory=dict)
    silent_since_by_server: Mapping[str, float] = field(default_factory=dict)
    last_reading_began_at: float | None = None
    silent_since: float | None = None

    def record_reading(self, reading: UncachedReading, began: float, ended: float) -> None:
        """Record the answers of a reading, which are empty if no server answered."""
        key = self.wanted_instance.key
        found = {server: there.get(key) for server, there in reading.instances_by_server.items()}
        answers = {server: self._is_wanted_instance_up(one) for server, one in found.items()}
        for server, at in list(self.answered_at.items()):
            if began - at > LONGEST_SILENCE_SECONDS:  # however long this reading took
                self.shown_since.pop(server, None)
        for server, is_shown in answers.items():
            self.answered_at[server] = ended
            if is_shown:
                self.shown_since.setdefault(server, max(ended, reading.unasked_until.get(server, ended)))
            else:
                self.shown_since.pop(server, None)
        self.last_answers, self.silent_since_by_server = answers, reading.silent_since
        self.last_reading_began_at = began
        if answers:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = began

    def _is_wanted_instance_up(self, found: Instance | None) -> bool:
        """Return whether it is UP at the pod's address: a former pod of its name had another one."""
        is_up = found is not None and found.status is Status.UP
        return is_up and found is not None and found.ip_address == self.wanted_instance.ip_address

    def is_read_due(self, now: float) -> bool:
        times = [self.shown_since.get(server) for server in self.last_answers]
        began = self.last_reading_began_at
        if began is None or not times or None in times:
            return True
        opens_at = max(one for one in times if one is not None) + self.required_shown_seconds
        return now - began >= SECONDS_BETWEEN_SHOWN_POD_READS or began < opens_at <= now


class GateOpener(Loop):
    """The threads that open readiness gates; every method may be called from any thread.

    :param computed_seconds: how long callers need to learn of a pod, where the syncer's spec does not say.
    """

    def __init__(
        self,
        access: KubeAccess,
        sources: ClusterCache,
        registries: Mapping[str, Registry],
        computed_seconds: int,
        events: EventRecorder,
        changed: Callable[[SyncerKey], None],
        may_write: Callable[[], bool],
        may_select: Callable[[str, str], bool],
        is_refused: Callable[[SyncerKey], bool],
    ) -> None:
        self._access = access
        self._sources = sources
        self._registries = registries
        self._computed_seconds = computed_seconds
        self._events = events
        self._changed = changed
        self._may_select = may_select
        self._is_refused = is_refused
        self._lock = threading.Lock()
        self._asked: dict[SyncerKey, _LastDecision] = {}
        self._problems: dict[SyncerKey, Problem] = {}
        self._shown: dict[ReadingKey, _PodReadings] = {}
        self._readings: set[str] = set()  # the registries that are being read
        self._lapsed: set[str] = set()  # UIDs of pods whose time began again here
        self._refused: dict[tuple[str, str], float] = {}  # when a pod's condition could not be written
        self._wanted: dict[SyncerKey, tuple[Mapping[str, Instance], DesiredInstances]] = {}  # of this look
        self._writing: set[tuple[str, str]] = set()  # the pods whose conditions are being written
        self._executor = ThreadPoolExecutor(max(1, len(registries)), thread_name_prefix="gates-read")
        self._writers = ThreadPoolExecutor(MOST_CONCURRENT_WRITES, thread_name_prefix="gates-write")
        super().__init__(
            "gates",
            lambda: self.update_gates_of_waiting_pods() if may_write() else None,
            lambda: SECONDS_BETWEEN_PASSES,
            "failed to check readiness gates, leaving them as they are and retrying",
            LONGEST_PASS_SECONDS,
        )

    def stop(self) -> None:
        super().stop()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._writers.shutdown(wait=False, cancel_futures=True)

    def record_decision(self, situation: SyncerSituation, decision: Decision) -> None:
        refused = {
            one.instance.key: one.actual
            for one in decision.home_differences.refusals
            if one.reason is RefusalReason.SELF_REGISTERED
        }
        wanted = {
            pod_and_namespace_of_id(one.instance_id)[0]: refused.get(one.key, one)
            for one in situation.desired.instances
        }
        is_registration_uncertain = (
            situation.desired.may_be_incomplete or decision.brake_judgement.held_removals is not None
        )
        steps = decision.steps_by_registry.get(situation.home_registry)
        begun = {one.instance.key for one in steps.plan.changes if _makes_newly_up(one)} if steps else set()
        with self._lock:
            before = self._asked.get(situation.key)
            lasting = {*begun, *(before.newly_up_keys if before else ())} & {
                one.key for one in wanted.values()
            }
            self._asked[situation.key] = _LastDecision(
                situation, is_registration_uncertain, wanted, frozenset(lasting)
            )
            for (home_registry, _, key), shown in self._shown.items():
                if home_registry == situation.home_registry and key in begun:
                    shown.shown_since.clear()

    def problem(self, key: SyncerKey) -> Problem | None:
        """Return the problem of a syncer's pods that wait for their gate; None where no pod waits."""
        with self._lock:
            return self._problems.get(key)

    def forget(self, key: SyncerKey) -> None:
        with self._lock:
            self._asked.pop(key, None)
            self._problems.pop(key, None)

    def on_leadership_lost(self) -> None:
        """Forget all decisions and readings: another replica leads."""
        with self._lock:
            self._asked.clear()
            self._problems.clear()
            self._shown.clear()
            self._lapsed.clear()

    def update_gates_of_waiting_pods(self) -> None:
        """Decide once about each waiting pod's gate, write the conditions, and start the due readings."""
        if not self._sources.is_synced_or_forbidden:
            return
        self._wanted = {}
        # All of them first: a pod that comes between is on no dead node.
        waiting = self._sources.gated_pods.waiting_pods()
        held = self._sources.gated_pods.waiting_pods_on_ready_nodes()
        reached = {key_of(pod) for pod, _ in held}
        for pod in waiting:
            if key_of(pod) not in reached:
                self._start_write_of_changed_condition(pod, _NODE_NOT_READY_DECISION, None)
        needed = set[ReadingKey]()
        waiting_by_syncer: dict[SyncerKey, list[tuple[str, GateDecision]]] = {}
        unread = self._sources.unread_namespaces()
        for pod, held_seconds in held:
            try:
                views = self._views_of_pod(pod)
                needed |= {one for _, one in views if one is not None}
                if not views and any(self._may_select(one, key_of(pod)[0]) for one in unread):
                    continue  # a syncer that wants it may be in a namespace that was not read
                seen = [self._with_reading(view, reading_key) for view, reading_key in views]
                step = decide_gate(seen, held_seconds)
                view = next((one for one in seen if one.syncer == step.syncer), None)
                self._start_write_of_changed_condition(pod, step, view)
            except Exception:  # noqa: BLE001 - whatever it was, the others must be decided about
                _log.exception(
                    "failed to check a pod's readiness gate, leaving it as it is and retrying",
                    extra={"pod": "/".join(key_of(pod))},
                )
                with self._lock:
                    needed |= {one for one in self._shown if one[1] == str(pod["metadata"]["uid"])}
                continue
            if step.syncer is not None and not step.reason.opens_gate:
                waiting_by_syncer.setdefault(step.syncer, []).append((key_of(pod)[1], step))
        self._start_due_readings(needed)
        self._lapsed &= {str(pod["metadata"]["uid"]) for pod in waiting}
        with self._lock:
            for gone in self._refused.keys() - {key_of(pod) for pod in waiting}:
                del self._refused[gone]
        problems = {key: _problem_of_waiting_pods(steps) for key, steps in waiting_by_syncer.items()}
        with self._lock:
            before, self._problems = self._problems, problems
        for key in before.keys() | problems.keys():
            if before.get(key) != problems.get(key):
                self._changed(key)

    def _views_of_pod(self, pod: Object) -> list[tuple[GateView, ReadingKey | None]]:
        """Return the view of each syncer that selects a pod, or will once it is derived, with the key of the
        reading of the pod's instance that it needs, if any. No server is asked.
        """
        found: dict[SyncerKey, list[Object]] = {}
        joining: list[tuple[GateView, ReadingKey | None]] = []
        for service in self._sources.services_of_pod(pod):
            for key in self._sources.syncers_selecting(service):
                found.setdefault(key, []).append(service)
            derived = (
                one
                for one in self._sources.missing_derived_syncers(service)
                if not self._is_refused(key_of(one))
            )
            joining.extend((self._view_of_missing_derived_syncer(one, service, pod), None) for one in derived)
        return [
            *(self._view_of_syncer(key, services, pod) for key, services in sorted(found.items())),
            *joining,
        ]

    def _view_of_missing_derived_syncer(self, item: Object, service: Object, pod: Object) -> GateView:
        key, syncer = key_of(item), self._sources.parse_spec_or_none(item)
        if syncer is None:
            return GateView(key)
        wanted, desired = self._wanted_instances(key, syncer)
        return replace(
            self._view_of_endpoints(key, [service], pod),
            state=SyncerState.PAUSED if syncer.is_paused else SyncerState.COMPLETE,
            mode=syncer.mode,
            is_desired=key_of(pod)[1] in wanted,
            is_registration_uncertain=desired.may_be_incomplete,
        )

    def _view_of_endpoints(self, key: SyncerKey, services: Collection[Object], pod: Object) -> GateView:
        name = key_of(pod)[1]
        endpoints = [
            endpoint
            for service in services
            for one in self._sources.slices_of_service(*key_of(service))
            for endpoint in one["endpoints"]
        ]
        return GateView(
            key,
            is_in_slices=any(pod_name_of_endpoint(one) == name for one in endpoints),
            has_other_ready_pod=any(is_ready(one) and pod_name_of_endpoint(one) != name for one in endpoints),
        )

    def _view_of_syncer(
        self, key: SyncerKey, services: Collection[Object], pod: Object
    ) -> tuple[GateView, ReadingKey | None]:
        """Return a syncer's view of a pod, with the key of the reading that it needs, if any."""
        with self._lock:
            asked = self._asked.get(key)
        item = self._sources.syncers.get(*key)
        if asked is None or item is None:
            return GateView(key), None
        name, situation = key_of(pod)[1], asked.situation
        syncer: Syncer | None = self._sources.parse_spec_or_none(item) or situation.syncer
        view = self._view_of_endpoints(key, services, pod)
        instance = asked.wanted_instance_by_pod_name.get(name)
        is_registration_uncertain = asked.is_registration_uncertain
        has_instances = bool(situation.all_instances)
        if (
            instance is None
            and view.is_in_slices
            and syncer is not None
            and situation.state in _REGISTERING_STATES
        ):
            # It may have come since, and its worker waits for a Eureka that does not answer.
            wanted, desired = self._wanted_instances(key, syncer)
            instance, is_registration_uncertain = (
                wanted.get(name),
                is_registration_uncertain or desired.may_be_incomplete,
            )
            if is_registration_uncertain and not (desired.has_unread_objects or has_instances):
                # As where none has the port: only a person can change that, and callers know no other pod.
                is_registration_uncertain = self._may_have_instances_in_eureka(situation.owner, item)
        elif situation.state is SyncerState.REFUSED:
            has_instances = has_instances or self._may_have_instances_in_eureka(situation.owner, item)
        view = replace(
            view,
            state=SyncerState.DELETED if is_being_deleted(item) else situation.state,
            is_desired=instance is not None,
            is_registration_uncertain=is_registration_uncertain,
            has_instances=has_instances,
        )
        if syncer is None:
            return view, None
        seconds = syncer.readiness_gate.callers_seconds
        view = replace(
            view,
            mode=syncer.mode,
            gate_settings=syncer.readiness_gate,
            required_shown_seconds=self._computed_seconds if seconds is None else seconds,
        )
        if instance is None or syncer.eureka not in self._registries or syncer.mode is Mode.SERVICE:
            return view, None
        reading_key = (syncer.eureka, str(pod["metadata"]["uid"]), instance.key)
        with self._lock:
            if reading_key not in self._shown:
                begins = reading_key[1] in self._lapsed or instance.key in asked.newly_up_keys
                self._shown[reading_key] = (
                    _PodReadings(instance, 0.0) if begins else _readings_from_condition(key, pod, instance)
                )
            shown = self._shown[reading_key]
            shown.wanted_instance, shown.required_shown_seconds = instance, view.required_shown_seconds
        return view, reading_key

    def _may_have_instances_in_eureka(self, owner: str, item: Object) -> bool:
        """Return whether an owner has instances in Eureka, or a registry was not read that may have some."""
        every, named = self._registries.values(), self._registries.get(connection_name(item))
        is_unread = any(isinstance(one.condition(), NeverRead) for one in ([named] if named else every))
        return is_unread or any(one.known_instances(owner=owner) for one in every)

    def _wanted_instances(
        self, key: SyncerKey, syncer: Syncer
    ) -> tuple[Mapping[str, Instance], DesiredInstances]:
        """Return what a syncer wants now, by pod name and as a whole; computed once in each check."""
        if key not in self._wanted:
            desired = self._sources.desired(syncer)
            by_pod = {pod_and_namespace_of_id(one.instance_id)[0]: one for one in desired.instances}
            self._wanted[key] = by_pod, desired
        return self._wanted[key]

    def _with_reading(self, view: GateView, reading_key: ReadingKey | None) -> GateView:
        """Return the view with the readings of Eureka added; its state is None before the first reading."""
        if reading_key is None:
            return view
        condition = self._registries[reading_key[0]].condition()
        with self._lock:
            shown = self._shown.get(reading_key)
            if shown is None or shown.last_reading_began_at is None:
                return replace(view, state=None)
            now = time.monotonic()
            silent_seconds = 0.0 if shown.silent_since is None else now - shown.silent_since
            is_away = isinstance(condition, Failing) and condition.lasts
            is_away |= isinstance(condition, NeverRead) and silent_seconds >= LONGEST_SILENCE_SECONDS
            return replace(
                view,
                is_eureka_away=is_away,
                shown_since={
                    server: shown.shown_since.get(server) if is_shown else None
                    for server, is_shown in shown.last_answers.items()
                },
                silent_since=shown.silent_since_by_server,
                read_at=shown.last_reading_began_at,
            )

    def _start_due_readings(self, reading_keys: Collection[ReadingKey]) -> None:
        """Start the readings that are due, each registry's on a thread of its own: a registry that hangs
        delays no other. Forget the readings of all other keys.
        """
        now = time.monotonic()
        with self._lock:
            for gone in self._shown.keys() - set(reading_keys):
                del self._shown[gone]
                self._lapsed.add(gone[1])
            due: dict[str, list[_PodReadings]] = {}
            for (name, _, _), shown in self._shown.items():
                if name not in self._readings and shown.is_read_due(now):
                    due.setdefault(name, []).append(shown)
            self._readings |= due.keys()
        for name, pod_readings in due.items():
            self._executor.submit(self._read_and_record_instances, name, pod_readings)

    def _read_and_record_instances(self, name: str, pod_readings: Collection[_PodReadings]) -> None:
        began = time.monotonic()
        reading = UncachedReading({})
        try:
            reading = self._registries[name].read_everywhere(
                [one.wanted_instance.key for one in pod_readings]
            )
        except RegistryError as error:
            _log.info(
                "failed to read gated pods' instances, retrying: closed gates stay closed unless "
                "whenEurekaIsAway is Open",
                extra={"error": str(error)},
            )
        except Exception:  # noqa: BLE001 - else it would be lost in the executor
            _log.exception("failed to read gated pods' instances, retrying: unexpected error")
        finally:
            with self._lock:
                for one in pod_readings:
                    one.record_reading(reading, began, time.monotonic())
                self._readings.discard(name)

    def _start_write_of_changed_condition(
        self, pod: Object, step: GateDecision, view: GateView | None
    ) -> None:
        """Write a pod's gate condition on another thread if it has changed; return at once."""
        message = step.message
        if step.shown_since is not None and view is not None:
            unix = time.time() - (time.monotonic() - step.shown_since)
            message = f"{message}; {format_shown_by(view.shown_since, unix)}"
        before = pod["condition"]
        if before and step.reason is GateReason.NOT_READ:
            return  # what stands there says more
        # Never older than the pod: by a clock that is behind, its node would look lost after the gate opened.
        wanted = build_gate_condition(step, message, before, max(time.time(), pod["held_from"]))
        same = (
            ("status", "reason")
            if step.shown_since is not None and _has_same_servers_and_time(before, message)
            else ("status", "reason", "message")
        )
        if all(before.get(key) == wanted[key] for key in same):
            return
        metadata: dict[str, Any] = {"uid": pod["metadata"]["uid"]}
        if not step.reason.opens_gate:
            # Somebody may have opened it since: only what was read is replaced.
            metadata["resourceVersion"] = pod["metadata"]["resourceVersion"]
        body = {"metadata": metadata, "status": {"conditions": [wanted]}}
        with self._lock:
            refused_at = self._refused.get(key_of(pod), -math.inf)
            if key_of(pod) in self._writing or time.monotonic() - refused_at < RETRY_SECONDS:
                return
            self._writing.add(key_of(pod))
        self._writers.submit(self._send_condition_unless_outdated, pod, step, body, time.monotonic())

    def _send_condition_unless_outdated(
        self, pod: Object, step: GateDecision, body: Object, decided_at: float
    ) -> None:
        """Send a pod's gate condition, unless it has waited so long that the decision may be outdated."""
        namespace, name = key_of(pod)
        try:
            if time.monotonic() - decided_at <= LONGEST_SILENCE_SECONDS:
                self._access.request(
                    "PATCH",
                    PODS.path(namespace, name, "status"),
                    body=body,
                    content_type=STRATEGIC_MERGE_PATCH_TYPE,
                )
                self._report_written_condition(pod, step)
        except LeadershipLost:
            pass  # the new leader continues
        except KubernetesError as error:
            self._log_write_failure_once(pod, error)
        except Exception:  # noqa: BLE001 - it is tried again at the next look
            _log.exception(
                "failed to write a pod's readiness gate, retrying: the gate stays as it is until then",
                extra={"pod": f"{namespace}/{name}"},
            )
        finally:
            with self._lock:
                self._writing.discard((namespace, name))

    def _report_written_condition(self, pod: Object, step: GateDecision) -> None:
        namespace, name = key_of(pod)
        with self._lock:
            self._refused.pop((namespace, name), None)
        regarding = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
        if step.reason.needs_intervention:
            self._events.record(regarding, EventType.WARNING, PodEvent.GATE_WAITS, step.message)
        if step.reason.opens_gate:
            _log.info(
                "opened the readiness gate of a pod, which can become ready now",
                extra={"pod": f"{namespace}/{name}", "reason": str(step.reason), "why": step.message},
            )
            self._events.record(regarding, EventType.NORMAL, PodEvent.GATE_OPENED, step.message)

    def _log_write_failure_once(self, pod: Object, error: EurekubeError) -> None:
        """Log once for each pod that its condition cannot be written, with an Event where the API server
        refuses it; a later check writes it again.
        """
        status, key = getattr(error, "status_code", None), key_of(pod)
        if status in (404, 409):
            return  # it is gone, or has changed
        with self._lock:
            is_news = key not in self._refused
            self._refused[key] = time.monotonic()
        if is_news:
            _log.warning(
                "failed to write a pod's readiness gate, retrying: the gate stays as it is until then",
                extra={"pod": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS},
            )
            if status is not None:  # else the API server is away, which takes no Event either
                regarding = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
                why = f"the gate stays as it is, since its condition cannot be written: {error}"
                self._events.record(regarding, EventType.WARNING, PodEvent.GATE_WAITS, why)


_NODE_NOT_READY_DECISION = GateDecision(GateReason.NODE_NOT_READY, "the pod's node is not ready")

_REGISTERING_STATES = (SyncerState.COMPLETE, SyncerState.INCOMPLETE)


def _makes_newly_up(change: Change) -> bool:
    """Return whether a change makes an instance UP that callers did not find before."""
    is_up = change.action is not Action.DEREGISTER and change.instance.status is Status.UP
    return is_up and (change.actual is None or change.actual.status is not Status.UP)


def _readings_from_condition(key: SyncerKey, pod: Object, wanted: Instance) -> _PodReadings:
    """Return the former leader's readings of a pod for a syncer, as the pod's condition records them."""
    shown = _PodReadings(wanted, 0.0)
    message = str(pod["condition"].get("message") or "")
    before = parse_shown_by(message) if message.startswith(f"EurekaSyncer {'/'.join(key)}: ") else None
    if before is not None and pod["condition"].get("reason") == GateReason.CALLERS_LEARN:
        servers, since_unix = before
        if pod["held_from"] > since_unix:
            return shown
        now = time.monotonic()
        shown.shown_since = dict.fromkeys(servers, now - max(0.0, time.time() - since_unix))
        shown.answered_at = dict.fromkeys(servers, now)
    return shown


def _has_same_servers_and_time(before: Object, message: str) -> bool:
    """Return whether a message names the condition's servers and, within a second, its time."""
    old, new = parse_shown_by(str(before.get("message") or "")), parse_shown_by(message)
    return old is not None and new is not None and old[0] == new[0] and abs(old[1] - new[1]) <= 1.0


def _problem_of_waiting_pods(steps: list[tuple[str, GateDecision]]) -> Problem:
    """Return the problem of a syncer's waiting pods; a cause that a person must remove comes first."""
    steps = sorted(steps, key=lambda one: (not one[1].reason.needs_intervention, one[0]))
    first = steps[0][1]
    alike = [name for name, step in steps if step.reason is first.reason]
    why = first.message.partition(": ")[2]
    return Problem(
        SyncerCondition.WAITING_FOR_CALLERS,
        f"the readiness gate holds {format_count(len(steps), 'pod')}; {format_list(alike, 3)}: {why}",
    )
