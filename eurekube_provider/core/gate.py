"""The readiness gate ``eurekube.io/callers-know``: when a pod that declares it may become ready. Pure.

A pod whose containers are ready, and that only this gate keeps from being ready, is *held*. The operator
registers a held pod as if it were ready, and opens the gate once callers know the pod. The view of each
syncer that selects the pod is a :class:`GateView`; the first of these that is true decides:

==========================================  ================================================== the syncer's
wishes are not known yet       the gate waits the syncer is deleted, or in mode service   it opens the syncer
is refused                       it waits; it opens where nothing is registered no other pod of the Service is
ready        it opens the syncer is paused                        it waits the pod's endpoint cannot be an
instance    it opens no server of Eureka answers                 it waits; it opens where the syncer says so a
server of Eureka hangs                    it waits, until its callers have left it a server does not show the
pod as UP        it waits a server has not shown it for long enough   it waits else
callers know the pod: it opens ==========================================
==================================================

The gate of a pod opens when it opens for each of these syncers. Once open, nothing here closes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from eurekube_provider.core.decision import State
from eurekube_provider.core.drain_time import CALLERS_LEAVE_SECONDS
from eurekube_provider.core.objects import Object, conditions_of, is_ready, is_terminating, pod_of, time_of
from eurekube_provider.core.syncer import GATE, Mode, ReadinessGate, WhenEurekaIsAway
from eurekube_provider.core.wording import listed

UNWANTED_SECONDS = 5.0
"""Seconds for which a held pod waits although no syncer selects it: the watches of pods and syncers
deliver at different times.
"""


class GateReason(StrEnum):
    """The reasons that the condition of a pod's gate gives."""

    CALLERS_KNOW = "CallersKnow"
    """Every server that answers has shown the pod for as long as caches last."""

    NOT_WANTED = "NotWanted"
    """No syncer registers the pod."""

    NO_OTHER_READY = "NoOtherPodReady"
    """No other pod of the Service is ready, so that callers would have none meanwhile."""

    OPEN_WITHOUT_EUREKA = "OpenWithoutEureka"
    """No server answers, and the syncer says ``whenEurekaIsAway: Open``."""

    OPENED_BY_HAND = "OpenedByHand"
    """A person opened the gate, by ``eurekube gate open``."""

    NOT_READ = "NotRead"
    """The syncer's spec is not known yet."""

    NODE_NOT_READY = "NodeNotReady"
    """The pod's node is not ready, so that nobody knows whether the pod is."""

    REFUSED = "Refused"
    """The syncer may not register what it asks for, and has instances in Eureka."""

    PAUSED = "Paused"
    """The syncer is paused."""

    EUREKA_AWAY = "EurekaAway"
    """No server of Eureka answers."""

    EUREKA_HANGS = "EurekaHangs"
    """A server of Eureka does not answer and does not refuse connections: its callers wait for its answer."""

    REGISTERING = "Registering"
    """A server does not show the pod as UP yet."""

    CALLERS_LEARN = "CallersLearn"
    """Every server that answers shows the pod; callers' caches may still be older than that."""

    @property
    def opens(self) -> bool:
        """True if the gate is open for this reason."""
        return self in _OPEN

    @property
    def is_trouble(self) -> bool:
        """True if the pod can go on only after somebody else acts."""
        return self in _TROUBLE


_TROUBLE = (GateReason.REFUSED, GateReason.PAUSED, GateReason.EUREKA_AWAY, GateReason.EUREKA_HANGS)

_OPEN = frozenset(
    {
        GateReason.CALLERS_KNOW,
        GateReason.NOT_WANTED,
        GateReason.NO_OTHER_READY,
        GateReason.OPEN_WITHOUT_EUREKA,
        GateReason.OPENED_BY_HAND,
    }
)


@dataclass(frozen=True, slots=True)
class GateView:
    """The view that one syncer has of a held pod which it selects.

    :ivar syncer: the syncer's namespace and name.
    :ivar state: the syncer's state; None before the first decision for the syncer.
    :ivar needed_seconds: for how long each server must have shown the pod.
    :ivar has_registered: True if the syncer has instances in Eureka.
    :ivar is_listed: True if an EndpointSlice of the Service has the pod's endpoint.
    :ivar is_wanted: True if the syncer's desired instances include the pod.
    :ivar is_in_doubt: True if more may be desired than is known, or the brake holds something back.
    :ivar others_ready: True if another endpoint of the Service is ready.
    :ivar is_away: True if no server answers, and none has for some time.
    :ivar shown_since: by server that answered the last reading, the time since which each of its answers
        showed the pod as UP to callers; None where the last answer did not. Seconds of a clock that does not
        jump.
    :ivar silent: by server that gave no answer to the last reading, the time since which it has been silent,
        by the same clock.
    :ivar read_at: when the last reading began, by the same clock.
    """

    syncer: tuple[str, str]
    state: State | None = None
    mode: Mode = Mode.POD
    gate: ReadinessGate = field(default_factory=ReadinessGate)
    needed_seconds: float = 0.0
    has_registered: bool = False
    is_listed: bool = False
    is_wanted: bool = False
    is_in_doubt: bool = False
    others_ready: bool = True
    is_away: bool = False
    shown_since: Mapping[str, float | None] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    read_at: float = 0.0

    @property
    def known_since(self) -> float | None:
        """The time since which all servers that answer have shown the pod; None where one does not, or
        none answers.
        """
        times = list(self.shown_since.values())
        if not times or None in times:
            return None
        return max(one for one in times if one is not None)

    @property
    def hanging(self) -> list[str]:
        """The silent servers whose callers may still be waiting for them."""
        return sorted(
            server for server, since in self.silent.items() if self.read_at - since < CALLERS_LEAVE_SECONDS
        )


@dataclass(frozen=True, slots=True)
class GateStep:
    """The decision on a pod's gate.

    :ivar syncer: the syncer that decided; None where no syncer selects the pod.
    :ivar since: the time since which all servers show the pod, while callers still learn of it.
    """

    reason: GateReason
    message: str
    syncer: tuple[str, str] | None = None
    since: float | None = None


def decide_gate(views: Sequence[GateView], held_seconds: float) -> GateStep:
    """Decide whether the gate of a held pod opens.

    :param views: the view of each syncer that selects the pod's Service, or is about to be derived for it.
    :param held_seconds: for how long the pod has been held.
    """
    if not views:
        if held_seconds < UNWANTED_SECONDS:
            return GateStep(GateReason.NOT_READ, "no EurekaSyncer that registers the pod was found yet")
        return GateStep(GateReason.NOT_WANTED, "no EurekaSyncer registers the pod")
    steps = [_step_of(view) for view in views]
    return next((one for one in steps if not one.reason.opens), steps[0])


def _step_of(view: GateView) -> GateStep:
    reason, message = _reason_and_message(view)
    since = view.known_since if reason is GateReason.CALLERS_LEARN else None
    return GateStep(reason, f"EurekaSyncer {'/'.join(view.syncer)}: {message}", view.syncer, since)


def _reason_and_message(view: GateView) -> tuple[GateReason, str]:
    """Return one syncer's decision on the gate and its sentence, by the table of this module."""
    state = view.state
    if state is None or state is State.UNKNOWN:
        return GateReason.NOT_READ, "what it asks for has not been read yet"
    if state is State.DELETED:
        return GateReason.NOT_WANTED, "it is being deleted"
    if view.mode is Mode.SERVICE:
        return GateReason.NOT_WANTED, "it registers the Service, and not its pods"
    if state is State.REFUSED:
        if view.has_registered:
            return GateReason.REFUSED, "it is refused, so that the pod is not registered; its status says why"
        return GateReason.NOT_WANTED, "it is refused, and nothing of it is registered"
    if view.is_listed and not view.others_ready and not view.is_in_doubt:
        return GateReason.NO_OTHER_READY, "no other pod of the Service is ready, so that nobody can be called"
    if state is State.PAUSED:
        return GateReason.PAUSED, "it is paused, so that the pod is not registered"
    if not view.is_wanted:
        if view.is_listed and not view.is_in_doubt:
            return GateReason.NOT_WANTED, "the pod's endpoint cannot be registered"
        return GateReason.REGISTERING, "the pod is not registered yet"
    return _state_by_eureka(view)


def _state_by_eureka(view: GateView) -> tuple[GateReason, str]:
    since = view.known_since
    if view.is_away and not view.shown_since:
        if view.gate.when_eureka_is_away is WhenEurekaIsAway.OPEN:
            return GateReason.OPEN_WITHOUT_EUREKA, "no server of Eureka answers, and whenEurekaIsAway is Open"
        return GateReason.EUREKA_AWAY, "no server of Eureka answers, so that callers cannot learn of the pod"
    if since is None:
        lacking = sorted(server for server, at in view.shown_since.items() if at is None)
        where = f" by {listed(lacking, 3)}" if lacking else ""
        return GateReason.REGISTERING, f"the pod is not shown as UP{where} yet"
    if view.hanging and view.gate.when_eureka_is_away is WhenEurekaIsAway.WAIT:
        return GateReason.EUREKA_HANGS, (
            f"{listed(view.hanging, 3)} does not answer, and callers that use it cannot learn of the pod;"
            f" they leave it within {CALLERS_LEAVE_SECONDS:g} s"
        )
    if view.read_at - since >= view.needed_seconds:
        return GateReason.CALLERS_KNOW, (
            f"every server of Eureka that answers has shown the pod for {view.needed_seconds:g} s"
        )
    return GateReason.CALLERS_LEARN, f"callers know the pod after {view.needed_seconds:g} s"


# What a pod's object says of its gate.


def declares_gate(pod_spec: Object) -> bool:
    """Return whether a pod's spec, or a template's, declares the gate."""
    return any(one.get("conditionType") == GATE for one in pod_spec.get("readinessGates") or ())


def is_gate_open(pod: Object) -> bool:
    """Return whether the gate's condition is True."""
    return conditions_of(pod).get(GATE, {}).get("status") == "True"


def is_held(pod: Object) -> bool:
    """Return whether the gate alone keeps a pod from being ready, by the kubelet's rules."""
    return _is_all_else_ready(pod) and not is_gate_open(pod)


def held_from(pod: Object) -> float:
    """Return the Unix time since which a held pod has been held, by its conditions; 0 for unknown."""
    return max(_unix(one.get("lastTransitionTime")) for one in _all_else(pod))


def is_opening(pod: Object) -> bool:
    """Return whether a pod with an open gate is ready, or will be once its kubelet has seen the gate.

    False for a pod whose node is gone: Ready became False after the gate had opened.
    """
    if not (_is_all_else_ready(pod) and is_gate_open(pod)):
        return False
    conditions = conditions_of(pod)
    ready, gate = conditions.get("Ready", {}), conditions[GATE]
    is_earlier = (ready.get("lastTransitionTime") or "") <= (gate.get("lastTransitionTime") or "")
    return ready.get("status") == "True" or is_earlier


def _is_all_else_ready(pod: Object) -> bool:
    """Return whether the containers of a pod that declares the gate are ready, and its other gates open."""
    if not declares_gate(pod.get("spec") or {}) or pod["metadata"].get("deletionTimestamp"):
        return False
    return all(one.get("status") == "True" for one in _all_else(pod))


def _all_else(pod: Object) -> list[Object]:
    """Return the conditions of a pod's containers and of its other gates; an empty one for each that is
    missing.
    """
    others = {one["conditionType"] for one in pod["spec"]["readinessGates"]} - {GATE}
    conditions = conditions_of(pod)
    return [conditions.get(kind, {}) for kind in ("ContainersReady", *others)]


def as_ready(slices: Iterable[dict[str, Any]], held: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return EndpointSlices with held pods marked ready, so that they are registered.

    EndpointSlices and endpoints that do not change stay the same objects.

    :param held: namespaces and names of the held pods.
    """
    found = []
    for one in slices:
        namespace, endpoints = one["metadata"]["namespace"], one.get("endpoints") or ()
        after = [_as_ready(each, namespace, held) for each in endpoints]
        is_same = all(new is old for new, old in zip(after, endpoints, strict=True))
        found.append(one if is_same else {**one, "endpoints": after})
    return found


def _as_ready(endpoint: Object, namespace: str, held: Collection[tuple[str, str]]) -> Object:
    if is_ready(endpoint) or is_terminating(endpoint) or (namespace, pod_of(endpoint)) not in held:
        return endpoint
    return {**endpoint, "conditions": {**(endpoint.get("conditions") or {}), "ready": True}}


def selects_pod(service: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a Service's selector selects a pod with these labels."""
    selector = (service.get("spec") or {}).get("selector") or {}
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


# What is written into the condition, for people and for the replica that leads next.

_SHOWN = re.compile(r"shown by (\S+(?:, \S+)*) since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def shown_text(servers: Iterable[str], since_unix: float) -> str:
    """Return the end of a condition's message that says which servers show a pod, and since when."""
    at = datetime.fromtimestamp(since_unix, UTC).strftime(_TIME)
    return f"shown by {', '.join(sorted(servers))} since {at}"


def shown_in(message: str) -> tuple[frozenset[str], float] | None:
    """Parse the text that :func:`shown_text` wrote: the servers, and the Unix time; None where a message
    has no such text.
    """
    found = _SHOWN.search(message)
    since_unix = _unix(found[2]) if found is not None else 0.0
    return (frozenset(found[1].split(", ")), since_unix) if found is not None and since_unix else None


def _unix(text: object) -> float:
    """Return the Unix time of an RFC 3339 text; 0 for any other value."""
    found = time_of(text)
    return found.timestamp() if found is not None else 0.0


def gate_condition(step: GateStep, message: str, before: Object, now_unix: float) -> dict[str, Any]:
    """Return the gate's condition for a pod's status.

    :param before: the condition that the status has now; empty for none.
    """
    status = "True" if step.reason.opens else "False"
    stamp = datetime.fromtimestamp(now_unix, UTC).strftime(_TIME)
    kept = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": GATE,
        "status": status,
        "reason": str(step.reason),
        "message": message,
        "lastTransitionTime": kept or stamp,
    }
