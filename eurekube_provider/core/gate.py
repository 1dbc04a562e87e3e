"""The readiness gate ``eurekube.io/callers-know``: when a pod that declares it may become ready. Pure.

A pod whose containers are ready, and that only this gate keeps from being ready, is *held*. The operator
registers a held pod as if it were ready, and opens the gate once callers know the pod. The view of each
syncer that selects the pod is a :class:`GateView`; the first of these rules that applies decides:

- The syncer's spec is not known yet: the gate stays closed.
- The syncer is deleted, or in mode service: the gate opens.
- The syncer is refused: the gate stays closed; it opens if the syncer has nothing registered.
- No other pod of the Service is ready: the gate opens.
- The syncer is paused: the gate stays closed.
- The pod's endpoint cannot be an instance: the gate opens.
- No server of Eureka answers: the gate stays closed; it opens if the syncer's settings say so.
- A server of Eureka hangs: the gate stays closed until callers have left that server.
- A server does not show the pod as UP, or has not shown it for long enough: the gate stays closed.
- Otherwise callers know the pod: the gate opens.

The gate of a pod opens when it opens for each of these syncers. The operator never closes an open gate.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from eurekube_provider.core.decision import SyncerState
from eurekube_provider.core.drain_time import CALLERS_LEAVE_HUNG_SERVER_SECONDS
from eurekube_provider.core.objects import (
    Object,
    conditions_of,
    is_being_deleted,
    is_ready,
    is_terminating,
    parse_api_time,
    pod_name_of_endpoint,
)
from eurekube_provider.core.syncer import READINESS_GATE, Mode, ReadinessGateSettings, WhenEurekaIsAway
from eurekube_provider.core.wording import format_list

UNSELECTED_POD_WAIT_SECONDS = 5.0
"""Seconds for which a held pod waits although no syncer selects it: the watches of pods and syncers
deliver at different times.
"""


class GateReason(StrEnum):
    """The reasons that the condition of a pod's gate gives."""

    CALLERS_KNOW = "CallersKnow"
    """Every server that answers has shown the pod for as long as caches last."""

    NOT_WANTED = "NotWanted"
    """No syncer registers the pod."""

    NO_OTHER_POD_READY = "NoOtherPodReady"
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
    def opens_gate(self) -> bool:
        """True if the gate is open for this reason."""
        return self in _OPENING_REASONS

    @property
    def needs_intervention(self) -> bool:
        """True if the pod can go on only after somebody else acts."""
        return self in _INTERVENTION_REASONS


_INTERVENTION_REASONS = (
    GateReason.REFUSED,
    GateReason.PAUSED,
    GateReason.EUREKA_AWAY,
    GateReason.EUREKA_HANGS,
)

_OPENING_REASONS = frozenset(
    {
        GateReason.CALLERS_KNOW,
        GateReason.NOT_WANTED,
        GateReason.NO_OTHER_POD_READY,
        GateReason.OPEN_WITHOUT_EUREKA,
        GateReason.OPENED_BY_HAND,
    }
)


@dataclass(frozen=True, slots=True)
class GateView:
    """The facts by which one syncer decides on the gate of a held pod that it selects.

    :ivar syncer: the syncer's namespace and name.
    :ivar state: the syncer's state; None before the first decision for the syncer.
    :ivar gate_settings: the syncer's settings for gates.
    :ivar required_shown_seconds: for how long each server must have shown the pod.
    :ivar has_instances: True if the syncer has instances in Eureka.
    :ivar is_in_slices: True if an EndpointSlice of the Service has the pod's endpoint.
    :ivar is_desired: True if the syncer's desired instances include the pod.
    :ivar is_registration_uncertain: True if more may be desired than is known, or the brake holds something
        back.
    :ivar has_other_ready_pod: True if another endpoint of the Service is ready.
    :ivar is_eureka_away: True if no server answers, and none has for some time.
    :ivar shown_since: by server that answered the last reading, the time since which each of its answers
        showed the pod as UP to callers; None where the last answer did not. Seconds of a clock that does not
        jump.
    :ivar silent_since: by server that gave no answer to the last reading, the time since which it has been
        silent, by the same clock.
    :ivar read_at: when the last reading began, by the same clock.
    """

    syncer: tuple[str, str]
    state: SyncerState | None = None
    mode: Mode = Mode.POD
    gate_settings: ReadinessGateSettings = field(default_factory=ReadinessGateSettings)
    required_shown_seconds: float = 0.0
    has_instances: bool = False
    is_in_slices: bool = False
    is_desired: bool = False
    is_registration_uncertain: bool = False
    has_other_ready_pod: bool = True
    is_eureka_away: bool = False
    shown_since: Mapping[str, float | None] = field(default_factory=dict)
    silent_since: Mapping[str, float] = field(default_factory=dict)
    read_at: float = 0.0

    @property
    def shown_by_all_since(self) -> float | None:
        """The time since which all servers that answer show the pod; None if one does not or none answers."""
        times = list(self.shown_since.values())
        if not times or None in times:
            return None
        return max(one for one in times if one is not None)

    @property
    def hanging_servers(self) -> list[str]:
        """The silent servers whose callers may still be waiting for them."""
        return sorted(
            server
            for server, since in self.silent_since.items()
            if self.read_at - since < CALLERS_LEAVE_HUNG_SERVER_SECONDS
        )


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The decision on a pod's gate.

    :ivar syncer: the syncer that decided; None where no syncer selects the pod.
    :ivar shown_since: the time since which all servers show the pod, while callers still learn of it.
    """

    reason: GateReason
    message: str
    syncer: tuple[str, str] | None = None
    shown_since: float | None = None


def decide_gate(views: Sequence[GateView], held_seconds: float) -> GateDecision:
    """Decide whether the gate of a held pod opens.

    :param views: the view of each syncer that selects the pod's Service, or is about to be derived for it.
    :param held_seconds: for how long the pod has been held.
    """
    if not views:
        if held_seconds < UNSELECTED_POD_WAIT_SECONDS:
            return GateDecision(GateReason.NOT_READ, "no EurekaSyncer that registers the pod was found yet")
        return GateDecision(GateReason.NOT_WANTED, "no EurekaSyncer registers the pod")
    steps = [_decide_for_syncer(view) for view in views]
    return next((one for one in steps if not one.reason.opens_gate), steps[0])


def _decide_for_syncer(view: GateView) -> GateDecision:
    reason, message = _reason_and_message(view)
    since = view.shown_by_all_since if reason is GateReason.CALLERS_LEARN else None
    return GateDecision(reason, f"EurekaSyncer {'/'.join(view.syncer)}: {message}", view.syncer, since)


def _reason_and_message(view: GateView) -> tuple[GateReason, str]:
    """Return one syncer's decision on the gate and its sentence, by the rules in this module's docstring."""
    state = view.state
    if state is None or state is SyncerState.UNKNOWN:
        return GateReason.NOT_READ, "what it asks for has not been read yet"
    if state is SyncerState.DELETED:
        return GateReason.NOT_WANTED, "it is being deleted"
    if view.mode is Mode.SERVICE:
        return GateReason.NOT_WANTED, "it registers the Service, and not its pods"
    if state is SyncerState.REFUSED:
        if view.has_instances:
            return GateReason.REFUSED, "it is refused, so that the pod is not registered; its status says why"
        return GateReason.NOT_WANTED, "it is refused, and nothing of it is registered"
    if view.is_in_slices and not view.has_other_ready_pod and not view.is_registration_uncertain:
        return (
            GateReason.NO_OTHER_POD_READY,
            "no other pod of the Service is ready, so that nobody can be called",
        )
    if state is SyncerState.PAUSED:
        return GateReason.PAUSED, "it is paused, so that the pod is not registered"
    if not view.is_desired:
        if view.is_in_slices and not view.is_registration_uncertain:
            return GateReason.NOT_WANTED, "the pod's endpoint cannot be registered"
        return GateReason.REGISTERING, "the pod is not registered yet"
    return _reason_and_message_by_servers(view)


def _reason_and_message_by_servers(view: GateView) -> tuple[GateReason, str]:
    since = view.shown_by_all_since
    if view.is_eureka_away and not view.shown_since:
        if view.gate_settings.when_eureka_is_away is WhenEurekaIsAway.OPEN:
            return GateReason.OPEN_WITHOUT_EUREKA, "no server of Eureka answers, and whenEurekaIsAway is Open"
        return GateReason.EUREKA_AWAY, "no server of Eureka answers, so that callers cannot learn of the pod"
    if since is None:
        lacking = sorted(server for server, at in view.shown_since.items() if at is None)
        where = f" by {format_list(lacking, 3)}" if lacking else ""
        return GateReason.REGISTERING, f"the pod is not shown as UP{where} yet"
    if view.hanging_servers and view.gate_settings.when_eureka_is_away is WhenEurekaIsAway.WAIT:
        return GateReason.EUREKA_HANGS, (
            f"{format_list(view.hanging_servers, 3)} does not answer, and callers that use it cannot learn "
            f"of the pod; they leave it within {CALLERS_LEAVE_HUNG_SERVER_SECONDS:g} s"
        )
    if view.read_at - since >= view.required_shown_seconds:
        return GateReason.CALLERS_KNOW, (
            f"every server of Eureka that answers has shown the pod for {view.required_shown_seconds:g} s"
        )
    return (
        GateReason.CALLERS_LEARN,
        f"callers know the pod {view.required_shown_seconds:g} s after Eureka shows it",
    )


# Readers of the gate in a pod's object.


def declares_gate(pod_spec: Object) -> bool:
    """Return whether a pod's spec, or a template's, declares the gate."""
    return any(one.get("conditionType") == READINESS_GATE for one in pod_spec.get("readinessGates") or ())


def is_gate_open(pod: Object) -> bool:
    """Return whether the gate's condition is True."""
    return conditions_of(pod).get(READINESS_GATE, {}).get("status") == "True"


def is_held_by_gate(pod: Object) -> bool:
    """Return whether the gate alone keeps a pod from being ready, by the kubelet's rules."""
    return _is_ready_but_for_gate(pod) and not is_gate_open(pod)


def held_since_unix(pod: Object) -> float:
    """Return the Unix time since which a held pod has been held, by its conditions; 0 for unknown."""
    return max(
        _parse_api_time_as_unix(one.get("lastTransitionTime"))
        for one in _conditions_required_beside_gate(pod)
    )


def is_ready_or_becoming_ready(pod: Object) -> bool:
    """Return whether a pod with an open gate is ready, or will be once its kubelet has seen the gate.

    False for a pod that does not declare the gate, and for one whose node is gone: Ready became False after
    the gate had opened.
    """
    if not (_is_ready_but_for_gate(pod) and is_gate_open(pod)):
        return False
    conditions = conditions_of(pod)
    ready, gate = conditions.get("Ready", {}), conditions[READINESS_GATE]
    is_earlier = (ready.get("lastTransitionTime") or "") <= (gate.get("lastTransitionTime") or "")
    return ready.get("status") == "True" or is_earlier


def _is_ready_but_for_gate(pod: Object) -> bool:
    """Return whether the containers of a pod that declares the gate are ready, and its other gates open."""
    if not declares_gate(pod.get("spec") or {}) or is_being_deleted(pod):
        return False
    return all(one.get("status") == "True" for one in _conditions_required_beside_gate(pod))


def _conditions_required_beside_gate(pod: Object) -> list[Object]:
    """Return the conditions of a pod's containers and of its other gates; an empty one for a missing one."""
    others = {one["conditionType"] for one in pod["spec"]["readinessGates"]} - {READINESS_GATE}
    conditions = conditions_of(pod)
    return [conditions.get(kind, {}) for kind in ("ContainersReady", *others)]


def mark_held_pods_ready(
    slices: Iterable[dict[str, Any]], held: Collection[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Return EndpointSlices with held pods marked ready, so that they are registered.

    EndpointSlices and endpoints that do not change stay the same objects.

    :param held: namespaces and names of the held pods.
    """
    found = []
    for one in slices:
        namespace, endpoints = one["metadata"]["namespace"], one.get("endpoints") or ()
        after = [_mark_ready_if_held(each, namespace, held) for each in endpoints]
        is_same = all(new is old for new, old in zip(after, endpoints, strict=True))
        found.append(one if is_same else {**one, "endpoints": after})
    return found


def _mark_ready_if_held(endpoint: Object, namespace: str, held: Collection[tuple[str, str]]) -> Object:
    if (
        is_ready(endpoint)
        or is_terminating(endpoint)
        or (namespace, pod_name_of_endpoint(endpoint)) not in held
    ):
        return endpoint
    return {**endpoint, "conditions": {**(endpoint.get("conditions") or {}), "ready": True}}


def selects_pod(service: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a Service's selector selects a pod with these labels."""
    selector = (service.get("spec") or {}).get("selector") or {}
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


# The text in the condition's message, for people and for the replica that leads next.

_SHOWN_BY_PATTERN = re.compile(r"shown by (\S+(?:, \S+)*) since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$")
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def format_shown_by(servers: Iterable[str], since_unix: float) -> str:
    """Return the end of a condition's message that says which servers show a pod, and since when."""
    at = datetime.fromtimestamp(since_unix, UTC).strftime(_TIME_FORMAT)
    return f"shown by {', '.join(sorted(servers))} since {at}"


def parse_shown_by(message: str) -> tuple[frozenset[str], float] | None:
    """Parse the text that :func:`format_shown_by` wrote: the servers, and the Unix time; None where a message
    has no such text.
    """
    found = _SHOWN_BY_PATTERN.search(message)
    since_unix = _parse_api_time_as_unix(found[2]) if found is not None else 0.0
    return (frozenset(found[1].split(", ")), since_unix) if found is not None and since_unix else None


def _parse_api_time_as_unix(text: object) -> float:
    """Return the Unix time of an RFC 3339 text; 0 for any other value."""
    found = parse_api_time(text)
    return found.timestamp() if found is not None else 0.0


def build_gate_condition(step: GateDecision, message: str, before: Object, now_unix: float) -> dict[str, Any]:
    """Return the gate's condition for a pod's status.

    :param before: the condition that the status has now; empty for none.
    """
    status = "True" if step.reason.opens_gate else "False"
    stamp = datetime.fromtimestamp(now_unix, UTC).strftime(_TIME_FORMAT)
    kept = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": READINESS_GATE,
        "status": status,
        "reason": str(step.reason),
        "message": message,
        "lastTransitionTime": kept or stamp,
    }
