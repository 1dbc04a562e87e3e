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

from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.decision import Decision, Situation, State
from eurekube_provider.core.errors import EurekubeError, KubernetesError, LeadershipLost, RegistryError
from eurekube_provider.core.event_reasons import PodEvent
from eurekube_provider.core.gate import (
    GateReason,
    GateStep,
    GateView,
    decide_gate,
    gate_condition,
    shown_in,
    shown_text,
)
from eurekube_provider.core.identity import endpoint_of
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.objects import is_ready, pod_of
from eurekube_provider.core.plan import Action, Change, RefusalReason
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing, Reading, Registry, Unread
from eurekube_provider.core.syncer import Mode, Syncer, connection_of, is_deleted
from eurekube_provider.core.wording import counted, listed
from eurekube_provider.kube.access import PODS, STRATEGIC_MERGE_PATCH, KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.index import Object, SyncerKey, key_of
from eurekube_provider.operator.sources import Sources

_log = logging.getLogger(__name__)

PASS_SECONDS = 1.0
"""Seconds between two looks at the pods that wait."""

READ_SECONDS = 5.0
"""Seconds between two readings of a pod that every server shows; other pods are read every
:data:`PASS_SECONDS`.
"""

SILENT_SECONDS = 7.0
"""Seconds that a server may be silent: it cannot have been restarted within that time."""

WRITES_AT_ONCE = 4
"""Number of conditions that are written at once, on threads of their own: a slow API delays no look."""

RETRY_SECONDS = 5.0
"""Seconds until a condition that could not be written, such as for a missing right, is tried again."""

LONGEST_PASS_SECONDS = 120.0

Place = tuple[str, str, Key]
"""The name of a registry, the UID of a pod, and the key of the instance to look for there."""


@dataclass(frozen=True, slots=True)
class _LastDecision:
    """The last decision on a syncer.

    :ivar wanted: by pod name, the instance that the syncer's registry must show.
    :ivar begun: the instances that this replica made UP again, since callers had lost them.
    """

    situation: Situation
    is_in_doubt: bool
    wanted: Mapping[str, Instance]
    begun: frozenset[Key]


@dataclass(slots=True)
class _PodReadings:
    """The readings of one pod in Eureka.

    :ivar wanted: the instance that each server must show, with its address, as UP.
    :ivar needed_seconds: for how long each server must show it.
    :ivar since: by server, since when each reading has shown it.
    :ivar answered: by server, when it answered last.
    :ivar last: the servers that answered the last reading, and whether each showed it.
    :ivar silent: by server that was silent in the last reading, since when.
    :ivar read_at: when the last reading began; None before the first.
    :ivar silent_since: when the first of the latest readings that no server answered began; None after an
        answer.
    """

    wanted: Instance
    needed_seconds: float
    since: dict[str, float] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)
    last: dict[str, bool] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    read_at: float | None = None
    silent_since: float | None = None

    def take(self, reading: Reading, began: float, ended: float) -> None:
        """Record the result of a reading, which names no server if none answered."""
        key = self.wanted.key
        found = {server: there.get(key) for server, there in reading.by_server.items()}
        answers = {server: self._shows(one) for server, one in found.items()}
        for server, at in list(self.answered.items()):
            if began - at > SILENT_SECONDS:  # however long this reading took
                self.since.pop(server, None)
        for server, is_shown in answers.items():
            self.answered[server] = ended
            if is_shown:
                self.since.setdefault(server, max(ended, reading.late.get(server, ended)))
            else:
                self.since.pop(server, None)
        self.last, self.silent, self.read_at = answers, reading.silent, began
        if answers:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = began

    def _shows(self, found: Instance | None) -> bool:
        """Return whether the found instance is UP at the pod's address, and not that of a former pod of
        its name.
        """
        is_up = found is not None and found.status is Status.UP
        return is_up and found is not None and found.ip_address == self.wanted.ip_address

    def is_due(self, now: float) -> bool:
        """Return whether this pod's instance must be read now."""
        times = [self.since.get(server) for server in self.last]
        if self.read_at is None or not times or None in times:
            return True
        opens_at = max(one for one in times if one is not None) + self.needed_seconds
        return now - self.read_at >= READ_SECONDS or self.read_at < opens_at <= now

    @property
    def view(self) -> dict[str, float | None]:
        """Time since which each server that answered last has shown the instance, by server; None if it
        does not show it.
        """
        return {
            server: self.since.get(server) if is_shown else None for server, is_shown in self.last.items()
        }


class Gates:
    """The service that opens readiness gates; every method may be called from any thread.

    :param registries: by the name that ``spec.eureka`` may give.
    :param computed_seconds: how long callers need to learn of a pod, where the syncer does not say.
    :param changed: called with a syncer whose waiting pods have changed.
    :param may_write: returns True if this replica leads.
    :param may_select: returns True if a syncer of the first namespace may select Services of the second.
    :param is_refused: returns True if the Service of a derived syncer is refused.
    """

    def __init__(
        self,
        access: KubeAccess,
        sources: Sources,
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
        self._may_write = may_write
        self._may_select = may_select
        self._is_refused = is_refused
        self._lock = threading.Lock()
        self._asked: dict[SyncerKey, _LastDecision] = {}
        self._problems: dict[SyncerKey, Problem] = {}
        self._shown: dict[Place, _PodReadings] = {}
        self._readings: set[str] = set()  # the registries that are being read
        self._lapsed: set[str] = set()  # UIDs of pods whose time began again here
        self._refused: dict[tuple[str, str], float] = {}  # when a pod's condition could not be written
        self._wanted: dict[SyncerKey, tuple[Mapping[str, Instance], Desired]] = {}  # of this look
        self._writing: set[tuple[str, str]] = set()  # the pods whose conditions are being written
        self._stopped = threading.Event()
        self._active_at = time.monotonic()
        self._executor = ThreadPoolExecutor(max(1, len(registries)), thread_name_prefix="gates-read")
        self._writers = ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="gates-write")
        self._thread = threading.Thread(target=self._run, name="gates", daemon=True)

    def start(self) -> None:
        """Start the deciding thread; the sources must have synced."""
        self._active_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop opening gates."""
        self._stopped.set()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._writers.shutdown(wait=False, cancel_futures=True)

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the deciding thread."""
        return liveness_of([self._thread], time.monotonic() - self._active_at, LONGEST_PASS_SECONDS)

    def note(self, situation: Situation, decision: Decision) -> None:
        """Remember the last decision on a syncer."""
        refused = {
            one.instance.key: one.actual
            for one in decision.differing.refusals
            if one.reason is RefusalReason.SELF_REGISTERED
        }
        wanted = {
            endpoint_of(one.instance_id)[0]: refused.get(one.key, one) for one in situation.desired.instances
        }
        is_in_doubt = situation.desired.is_in_doubt or decision.brake.held is not None
        steps = decision.at.get(situation.home)
        begun = {one.instance.key for one in steps.plan.changes if _begins(one)} if steps else set()
        with self._lock:
            before = self._asked.get(situation.key)
            lasting = {*begun, *(before.begun if before else ())} & {one.key for one in wanted.values()}
            self._asked[situation.key] = _LastDecision(situation, is_in_doubt, wanted, frozenset(lasting))
            for (home, _, key), shown in self._shown.items():
                if home == situation.home and key in begun:
                    shown.since.clear()

    def problem(self, key: SyncerKey) -> Problem | None:
        """Return the problem of a syncer's pods that wait for callers; None where none waits."""
        with self._lock:
            return self._problems.get(key)

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that was deleted."""
        with self._lock:
            self._asked.pop(key, None)
            self._problems.pop(key, None)

    def forget_all(self) -> None:
        """Forget all decisions and readings: another replica leads."""
        with self._lock:
            self._asked.clear()
            self._problems.clear()
            self._shown.clear()
            self._lapsed.clear()

    def _run(self) -> None:
        while not self._stopped.wait(PASS_SECONDS):
            self._active_at = time.monotonic()
            try:
                if self._may_write():
                    self.look()
            except LeadershipLost:
                continue  # who leads now goes on
            except Exception:  # noqa: BLE001 - the thread must go on with the others
                if not self._stopped.is_set():
                    _log.exception("failed to check readiness gates, retrying")

    def look(self) -> None:
        """Look once at all pods that wait, and write their conditions."""
        if not self._sources.is_settled:
            return
        self._wanted = {}
        waiting = self._sources.gated_pods.waiting()  # before: a pod that comes between is on no dead node
        held = self._sources.gated_pods.held()
        views = {key_of(pod): self._views(pod) for pod, _ in held}
        self._read({place for them in views.values() for _, place in them if place is not None})
        self._lapsed &= {str(pod["metadata"]["uid"]) for pod in waiting}
        with self._lock:
            for gone in self._refused.keys() - {key_of(pod) for pod in waiting}:
                del self._refused[gone]
        for pod in waiting:
            if key_of(pod) not in views:
                self._write(pod, _NODE_NOT_READY, None)
        waiting_by_syncer: dict[SyncerKey, list[tuple[str, GateStep]]] = {}
        unread = self._sources.unread_namespaces()
        for pod, held_seconds in held:
            if not views[key_of(pod)] and any(self._may_select(one, key_of(pod)[0]) for one in unread):
                continue  # a syncer that wants it may be in a namespace that was not read
            seen = [self._with_reading(view, place) for view, place in views[key_of(pod)]]
            step = decide_gate(seen, held_seconds)
            self._write(pod, step, next((one for one in seen if one.syncer == step.syncer), None))
            if step.syncer is not None and not step.reason.opens:
                waiting_by_syncer.setdefault(step.syncer, []).append((key_of(pod)[1], step))
        self._tell({key: _problem_of(steps) for key, steps in waiting_by_syncer.items()})

    def _views(self, pod: Object) -> list[tuple[GateView, Place | None]]:
        """Return the view of each syncer that selects a pod, and the instance to read; Eureka is not asked
        here.
        """
        found: dict[SyncerKey, list[Object]] = {}
        joining: list[tuple[GateView, Place | None]] = []
        for service in self._sources.services_of_pod(pod):
            for key in self._sources.selecting(service):
                found.setdefault(key, []).append(service)
            derived = (one for one in self._sources.joining(service) if not self._is_refused(key_of(one)))
            joining.extend((self._joining_view(one, service, pod), None) for one in derived)
        return [*(self._view(key, services, pod) for key, services in sorted(found.items())), *joining]

    def _joining_view(self, item: Object, service: Object, pod: Object) -> GateView:
        """Return the view of a derived syncer that does not exist yet, and will register the pod."""
        key, syncer = key_of(item), self._sources.asked(item)
        if syncer is None:
            return GateView(key)
        wanted, desired = self._wanted_now(key, syncer)
        return replace(
            self._view_of_endpoints(key, [service], pod),
            state=State.PAUSED if syncer.is_paused else State.SERVED,
            mode=syncer.mode,
            is_wanted=key_of(pod)[1] in wanted,
            is_in_doubt=desired.is_in_doubt,
        )

    def _view_of_endpoints(self, key: SyncerKey, services: Collection[Object], pod: Object) -> GateView:
        """Return the part of a syncer's view that the endpoints of its Services tell."""
        name = key_of(pod)[1]
        endpoints = [
            endpoint
            for service in services
            for one in self._sources.slices_of_service(*key_of(service))
            for endpoint in one["endpoints"]
        ]
        return GateView(
            key,
            is_listed=any(pod_of(one) == name for one in endpoints),
            others_ready=any(is_ready(one) and pod_of(one) != name for one in endpoints),
        )

    def _view(
        self, key: SyncerKey, services: Collection[Object], pod: Object
    ) -> tuple[GateView, Place | None]:
        with self._lock:
            asked = self._asked.get(key)
        item = self._sources.syncers.get(*key)
        if asked is None or item is None:
            return GateView(key), None
        name, situation = key_of(pod)[1], asked.situation
        syncer: Syncer | None = self._sources.asked(item) or situation.syncer
        view = self._view_of_endpoints(key, services, pod)
        instance = asked.wanted.get(name)
        is_in_doubt, has_registered = asked.is_in_doubt, bool(situation.registered)
        if instance is None and view.is_listed and syncer is not None and situation.state in _REGISTERS:
            # It may have come since, and its worker waits for a Eureka that does not answer.
            wanted, desired = self._wanted_now(key, syncer)
            instance, is_in_doubt = wanted.get(name), is_in_doubt or desired.is_in_doubt
            if is_in_doubt and not (desired.is_unread or has_registered):
                # As where none has the port: only a person can change that, and callers know no other pod.
                is_in_doubt = self._may_have_registered(situation.owner, item)
        elif situation.state is State.REFUSED:
            has_registered = has_registered or self._may_have_registered(situation.owner, item)
        view = replace(
            view,
            state=State.DELETED if is_deleted(item) else situation.state,
            is_wanted=instance is not None,
            is_in_doubt=is_in_doubt,
            has_registered=has_registered,
        )
        if syncer is None:
            return view, None
        seconds = syncer.readiness_gate.callers_seconds
        view = replace(
            view,
            mode=syncer.mode,
            gate=syncer.readiness_gate,
            needed_seconds=self._computed_seconds if seconds is None else seconds,
        )
        if instance is None or syncer.eureka not in self._registries or syncer.mode is Mode.SERVICE:
            return view, None
        place = (syncer.eureka, str(pod["metadata"]["uid"]), instance.key)
        with self._lock:
            if place not in self._shown:
                begins = place[1] in self._lapsed or instance.key in asked.begun
                self._shown[place] = (
                    _PodReadings(instance, 0.0) if begins else _remembered(key, pod, instance)
                )
            shown = self._shown[place]
            shown.wanted, shown.needed_seconds = instance, view.needed_seconds
        return view, place

    def _may_have_registered(self, owner: str, item: Object) -> bool:
        """Return whether an owner has instances, or may have instances in a registry that was not read
        yet.
        """
        named = self._registries.get(connection_of(item))
        conditions = [one.condition() for one in ([named] if named else self._registries.values())]
        is_unread = any(isinstance(one, Unread) for one in conditions)
        return is_unread or any(one.known(owner=owner) for one in self._registries.values())

    def _wanted_now(self, key: SyncerKey, syncer: Syncer) -> tuple[Mapping[str, Instance], Desired]:
        """Return the instances that a syncer wants now, by pod and as a whole; computed once in each look."""
        if key not in self._wanted:
            desired = self._sources.desired(syncer)
            by_pod = {endpoint_of(one.instance_id)[0]: one for one in desired.instances}
            self._wanted[key] = by_pod, desired
        return self._wanted[key]

    def _with_reading(self, view: GateView, place: Place | None) -> GateView:
        """Return the view with the readings of Eureka added; before the first reading its state is None."""
        if place is None:
            return view
        condition = self._registries[place[0]].condition()
        with self._lock:
            shown = self._shown.get(place)
            if shown is None or shown.read_at is None:
                return replace(view, state=None)
            is_silent = shown.silent_since is not None
            is_silent = is_silent and time.monotonic() - (shown.silent_since or 0.0) >= SILENT_SECONDS
            is_lasting = isinstance(condition, Failing) and condition.lasts
            is_lasting |= isinstance(condition, Unread) and is_silent
            return replace(
                view,
                is_away=is_lasting,
                shown_since=shown.view,
                silent=shown.silent,
                read_at=shown.read_at,
            )

    def _read(self, places: Collection[Place]) -> None:
        """Start the readings that are due, each registry on a thread of its own: one that hangs delays no
        other.
        """
        now = time.monotonic()
        with self._lock:
            for gone in self._shown.keys() - set(places):
                del self._shown[gone]
                self._lapsed.add(gone[1])
            due: dict[str, list[_PodReadings]] = {}
            for (name, _, _), shown in self._shown.items():
                if name not in self._readings and shown.is_due(now):
                    due.setdefault(name, []).append(shown)
            self._readings |= due.keys()
        for name, those in due.items():
            self._executor.submit(self._read_now, name, those)

    def _read_now(self, name: str, those: Collection[_PodReadings]) -> None:
        began = time.monotonic()
        reading = Reading({})
        try:
            reading = self._registries[name].read_everywhere([one.wanted.key for one in those])
        except RegistryError as error:
            _log.info("failed to read the instances of gated pods, retrying", extra={"error": str(error)})
        finally:
            with self._lock:
                for one in those:
                    one.take(reading, began, time.monotonic())
                self._readings.discard(name)

    def _write(self, pod: Object, step: GateStep, view: GateView | None) -> None:
        """Write a pod's gate condition if it differs from the present one."""
        message = step.message
        if step.since is not None and view is not None:
            unix = time.time() - (time.monotonic() - step.since)
            message = f"{message}; {shown_text(view.shown_since, unix)}"
        before = pod["condition"]
        if before and step.reason is GateReason.NOT_READ:
            return  # what stands there says more
        # Never older than the pod: by a clock that is behind, its node would look lost after the gate opened.
        wanted = gate_condition(step, message, before, max(time.time(), pod["held_from"]))
        same = ("status", "reason") if step.since is not None and _is_same(before, message) else _ALL
        if all(before.get(key) == wanted[key] for key in same):
            return
        metadata: dict[str, Any] = {"uid": pod["metadata"]["uid"]}
        if not step.reason.opens:
            # Somebody may have opened it since: only what was read is replaced.
            metadata["resourceVersion"] = pod["metadata"]["resourceVersion"]
        body = {"metadata": metadata, "status": {"conditions": [wanted]}}
        with self._lock:
            refused_at = self._refused.get(key_of(pod), -math.inf)
            if key_of(pod) in self._writing or time.monotonic() - refused_at < RETRY_SECONDS:
                return
            self._writing.add(key_of(pod))
        self._writers.submit(self._patch, pod, step, body, time.monotonic())

    def _patch(self, pod: Object, step: GateStep, body: Object, decided_at: float) -> None:
        """Send a gate condition, unless it has waited so long that it may be outdated."""
        namespace, name = key_of(pod)
        try:
            if time.monotonic() - decided_at <= SILENT_SECONDS:
                self._access.request(
                    "PATCH",
                    PODS.path(namespace, name, "status"),
                    body=body,
                    content_type=STRATEGIC_MERGE_PATCH,
                )
                self._written(pod, step)
        except LeadershipLost:
            pass  # who leads now goes on
        except KubernetesError as error:
            self._not_written(pod, error)
        except Exception:  # noqa: BLE001 - it is tried again at the next look
            _log.exception("failed to write a readiness gate, retrying", extra={"pod": f"{namespace}/{name}"})
        finally:
            with self._lock:
                self._writing.discard((namespace, name))

    def _written(self, pod: Object, step: GateStep) -> None:
        """Record an Event, and for an opened gate a log line, after a condition was written."""
        namespace, name = key_of(pod)
        with self._lock:
            self._refused.pop((namespace, name), None)
        regarding = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
        if step.reason.is_trouble:
            self._events.record(regarding, EventType.WARNING, PodEvent.GATE_WAITS, step.message)
        if step.reason.opens:
            _log.info(
                "opened a readiness gate",
                extra={"pod": f"{namespace}/{name}", "reason": str(step.reason), "why": step.message},
            )
            self._events.record(regarding, EventType.NORMAL, PodEvent.GATE_OPENED, step.message)

    def _not_written(self, pod: Object, error: EurekubeError) -> None:
        """Log once for each pod that its condition cannot be written; a later look tries again."""
        status, key = getattr(error, "status_code", None), key_of(pod)
        if status in (404, 409):
            return  # it is gone, or has changed
        with self._lock:
            is_news = key not in self._refused
            self._refused[key] = time.monotonic()
        if is_news:
            _log.warning(
                "failed to write a readiness gate, retrying",
                extra={"pod": "/".join(key), "error": str(error)},
            )

    def _tell(self, problems: Mapping[SyncerKey, Problem]) -> None:
        """Queue the syncers whose problem of waiting pods has changed."""
        with self._lock:
            before, self._problems = self._problems, dict(problems)
        for key in before.keys() | problems.keys():
            if before.get(key) != problems.get(key):
                self._changed(key)


_NODE_NOT_READY = GateStep(GateReason.NODE_NOT_READY, "the pod's node is not ready")

_ALL = ("status", "reason", "message")

_REGISTERS = (State.SERVED, State.DOUBTFUL)


def _begins(change: Change) -> bool:
    """Return whether a change makes an instance UP that callers did not find before."""
    is_up = change.action is not Action.DEREGISTER and change.instance.status is Status.UP
    return is_up and (change.actual is None or change.actual.status is not Status.UP)


def _remembered(key: SyncerKey, pod: Object, wanted: Instance) -> _PodReadings:
    """Return the former leader's readings of a held pod for this syncer, from the pod's condition."""
    shown = _PodReadings(wanted, 0.0)
    message = str(pod["condition"].get("message") or "")
    before = shown_in(message) if message.startswith(f"EurekaSyncer {'/'.join(key)}: ") else None
    if before is not None and pod["condition"].get("reason") == GateReason.CALLERS_LEARN:
        servers, since_unix = before
        if pod["held_from"] > since_unix:
            return shown
        now = time.monotonic()
        shown.since = dict.fromkeys(servers, now - max(0.0, time.time() - since_unix))
        shown.answered = dict.fromkeys(servers, now)
    return shown


def _is_same(before: Object, message: str) -> bool:
    """Return whether a message names the same servers and, within a second, the same time as the present
    one.
    """
    old, new = shown_in(str(before.get("message") or "")), shown_in(message)
    return old is not None and new is not None and old[0] == new[0] and abs(old[1] - new[1]) <= 1.0


def _problem_of(steps: list[tuple[str, GateStep]]) -> Problem:
    """Return the problem of a syncer's waiting pods: first a cause that somebody else must remove."""
    steps = sorted(steps, key=lambda one: (not one[1].reason.is_trouble, one[0]))
    first = steps[0][1]
    alike = [name for name, step in steps if step.reason is first.reason]
    why = first.message.partition(": ")[2]
    return Problem(
        ConditionType.WAITING_FOR_CALLERS,
        f"{counted(len(steps), 'pod')} with the readiness gate wait; {listed(alike, 3)}: {why}",
    )
