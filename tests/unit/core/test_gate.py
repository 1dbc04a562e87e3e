"""The readiness gate: the decision in each case, and what the operator reads from a pod's object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.decision import SyncerState
from eurekube_provider.core.drain_time import CALLERS_LEAVE_HUNG_SERVER_SECONDS
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.gate import (
    UNSELECTED_POD_WAIT_SECONDS,
    GateDecision,
    GateReason,
    GateView,
    build_gate_condition,
    decide_gate,
    declares_gate,
    format_shown_by,
    held_since_unix,
    is_held_by_gate,
    is_ready_or_becoming_ready,
    mark_held_pods_ready,
    parse_shown_by,
    selects_pod,
)
from eurekube_provider.core.syncer import (
    READINESS_GATE,
    Mode,
    ReadinessGateSettings,
    Syncer,
    WhenEurekaIsAway,
)

Object = dict[str, Any]
SERVERS = {"http://a/eureka": 100.0, "http://b/eureka": 103.0}

KNOWN = GateView(
    ("shop", "rating"),
    SyncerState.COMPLETE,
    required_shown_seconds=102,
    has_instances=True,
    is_in_slices=True,
    is_desired=True,
    shown_since=SERVERS,
    read_at=205.0,
)
"""A syncer for which both servers have listed the pod for long enough."""

OPEN = ReadinessGateSettings(None, WhenEurekaIsAway.OPEN)
SILENT: Object = {"shown_since": {}, "is_eureka_away": True}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, GateReason.CALLERS_KNOW),
        ({"read_at": 204.9}, GateReason.CALLERS_LEARN),
        ({"required_shown_seconds": 102.1}, GateReason.CALLERS_LEARN),
        ({"shown_since": {**SERVERS, "http://c/eureka": 110.0}}, GateReason.CALLERS_LEARN),
        ({"shown_since": {**SERVERS, "http://c/eureka": None}}, GateReason.REGISTERING),
        ({"shown_since": {}}, GateReason.REGISTERING),
        ({"gate_settings": OPEN, "shown_since": {}}, GateReason.REGISTERING),
        ({"silent_since": {"http://c/eureka": 204.0}}, GateReason.EUREKA_HANGS),
        ({"silent_since": {"http://c/eureka": 204.0}, "gate_settings": OPEN}, GateReason.CALLERS_KNOW),
        (
            {"silent_since": {"http://c/eureka": 205.0 - CALLERS_LEAVE_HUNG_SERVER_SECONDS}},
            GateReason.CALLERS_KNOW,
        ),
        (
            {"silent_since": {"http://c/eureka": 205.1 - CALLERS_LEAVE_HUNG_SERVER_SECONDS}},
            GateReason.EUREKA_HANGS,
        ),
        (SILENT, GateReason.EUREKA_AWAY),
        ({**SILENT, "gate_settings": OPEN}, GateReason.OPEN_WITHOUT_EUREKA),
        # A server that answers says more than a list that cannot be read.
        (
            {"gate_settings": OPEN, "is_eureka_away": True, "shown_since": {"http://a/eureka": None}},
            GateReason.REGISTERING,
        ),
        ({"state": None}, GateReason.NOT_READ),
        ({"state": SyncerState.UNKNOWN}, GateReason.NOT_READ),
        ({"state": SyncerState.UNKNOWN, "has_other_ready_pod": False}, GateReason.NOT_READ),
        ({"state": SyncerState.INCOMPLETE}, GateReason.CALLERS_KNOW),
        ({"state": SyncerState.DELETED}, GateReason.NOT_WANTED),
        ({"mode": Mode.SERVICE}, GateReason.NOT_WANTED),
        ({"mode": Mode.SERVICE, "state": SyncerState.PAUSED}, GateReason.NOT_WANTED),
        ({"state": SyncerState.REFUSED}, GateReason.REFUSED),
        ({"state": SyncerState.REFUSED, "has_other_ready_pod": False}, GateReason.REFUSED),
        ({"state": SyncerState.REFUSED, "has_instances": False}, GateReason.NOT_WANTED),
        ({"state": SyncerState.PAUSED}, GateReason.PAUSED),
        ({"state": SyncerState.PAUSED, "gate_settings": OPEN}, GateReason.PAUSED),
        ({"has_other_ready_pod": False}, GateReason.NO_OTHER_POD_READY),
        ({"has_other_ready_pod": False, "state": SyncerState.PAUSED}, GateReason.NO_OTHER_POD_READY),
        ({"has_other_ready_pod": False, **SILENT}, GateReason.NO_OTHER_POD_READY),
        # Where the source may be broken, that no other pod is ready says nothing.
        (
            {"has_other_ready_pod": False, "is_registration_uncertain": True, "read_at": 0.0},
            GateReason.CALLERS_LEARN,
        ),
        ({"has_other_ready_pod": False, "is_in_slices": False, "read_at": 0.0}, GateReason.CALLERS_LEARN),
        ({"is_desired": False}, GateReason.NOT_WANTED),
        ({"is_desired": False, "is_in_slices": False}, GateReason.REGISTERING),
        ({"is_desired": False, "is_registration_uncertain": True}, GateReason.REGISTERING),
    ],
)
def test_each_case_has_its_reason(changes: Object, reason: GateReason) -> None:
    """The message names the syncer; a start time is given only while callers learn of the pod."""
    step = decide_gate([replace(KNOWN, **changes)], 60.0)
    assert (step.reason, step.syncer) == (reason, ("shop", "rating"))
    assert step.message.startswith("EurekaSyncer shop/rating: ")
    assert (step.shown_since is not None) == (reason is GateReason.CALLERS_LEARN)


def test_every_syncer_must_agree() -> None:
    """The gate stays closed while one of the pod's syncers waits."""
    waits = replace(KNOWN, syncer=("shop", "stars"), state=SyncerState.PAUSED)
    for views in ([KNOWN, waits], [waits, KNOWN]):
        assert decide_gate(views, 60.0).syncer == ("shop", "stars")


def test_a_pod_of_no_syncer_waits_for_a_moment() -> None:
    """Syncer, Service and pod arrive by different watches: the gate opens only when no syncer has appeared
    for a while.
    """
    assert decide_gate([], UNSELECTED_POD_WAIT_SECONDS - 0.1).reason is GateReason.NOT_READ
    assert decide_gate([], UNSELECTED_POD_WAIT_SECONDS).reason is GateReason.NOT_WANTED


def test_reasons_open_or_wait() -> None:
    """Each reason opens the gate or keeps it closed, and no reason that counts as trouble opens it."""
    assert {one for one in GateReason if one.opens_gate} == {
        GateReason.CALLERS_KNOW,
        GateReason.NOT_WANTED,
        GateReason.NO_OTHER_POD_READY,
        GateReason.OPEN_WITHOUT_EUREKA,
        GateReason.OPENED_BY_HAND,
    }
    assert not any(one.opens_gate and one.needs_intervention for one in GateReason)


OTHER = "example.org/other"


def pod(*gates: str, **conditions: str) -> Object:
    """Return a pod with these gates; a condition is ``STATUS`` or ``STATUS@TIME``."""
    metadata = {"namespace": "shop", "name": "rating-1"}
    said = []
    for kind, state in conditions.items():
        status, _, at = state.partition("@")
        said.append({"type": kind, "status": status, **({"lastTransitionTime": at} if at else {})})
    spec = {"readinessGates": [{"conditionType": one} for one in gates]} if gates else {}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": said}}


def deleted(item: Object) -> Object:
    """Return the pod with a deletion timestamp."""
    return {**item, "metadata": {**item["metadata"], "deletionTimestamp": "2026-11-28T12:00:00Z"}}


READY = {"ContainersReady": "True"}


@pytest.mark.parametrize(
    ("item", "held"),
    [
        (pod(READINESS_GATE, **READY), True),
        (pod(READINESS_GATE, **READY, **{READINESS_GATE: "False"}), True),
        (pod(READINESS_GATE, **READY, **{READINESS_GATE: "True"}), False),
        (pod(READINESS_GATE, ContainersReady="False"), False),
        (pod(READINESS_GATE), False),
        (pod(**READY), False),
        (pod(OTHER, **READY), False),
        (pod(READINESS_GATE, OTHER, **READY), False),
        (pod(READINESS_GATE, OTHER, **READY, **{OTHER: "True"}), True),
        (deleted(pod(READINESS_GATE, **READY)), False),
    ],
)
def test_a_pod_is_held_by_our_gate_alone(item: Object, *, held: bool) -> None:
    """A pod is held if its containers and all other gates are ready, and it is not being deleted."""
    assert is_held_by_gate(item) is held


@pytest.mark.parametrize(
    ("ready", "gate", "opening"),
    [
        ("True@2026-11-28T12:00:00Z", "True@2026-11-28T12:00:00Z", True),
        ("True@2026-11-28T12:09:00Z", "True@2026-11-28T12:00:00Z", True),
        ("False@2026-11-28T12:00:00Z", "True@2026-11-28T12:00:01Z", True),
        ("False@2026-11-28T12:00:02Z", "True@2026-11-28T12:00:01Z", False),
        ("False@2026-11-28T12:00:00Z", "False@2026-11-28T12:00:01Z", False),
    ],
)
def test_a_pod_whose_gate_opened_counts_until_its_kubelet_says_so(
    ready: str, gate: str, *, opening: bool
) -> None:
    """A pod that was ready after its gate opened and no longer is, as on a lost node, does not count."""
    item = pod(READINESS_GATE, **READY, Ready=ready, **{READINESS_GATE: gate})
    assert is_ready_or_becoming_ready(item) is opening
    assert not is_ready_or_becoming_ready(deleted(item))


def test_since_when_a_pod_is_held() -> None:
    """A pod is held since the last of its containers and other gates became ready."""
    item = pod(
        READINESS_GATE,
        OTHER,
        ContainersReady="True@1970-01-01T00:01:00Z",
        **{OTHER: "True@1970-01-01T00:02:00Z"},
    )
    assert held_since_unix(item) == 120.0
    assert held_since_unix(pod(READINESS_GATE, **READY)) == 0.0


def test_slices_call_held_pods_ready() -> None:
    """Held pods count as ready, except terminating ones; slices without a held pod stay the same objects."""

    def endpoint(name: str, **conditions: bool) -> Object:
        return {
            "addresses": ["10.0.0.1"],
            "conditions": conditions,
            "targetRef": {"kind": "Pod", "name": name},
        }

    changed: Object = {
        "metadata": {"namespace": "shop", "name": "a"},
        "endpoints": [
            endpoint("held", ready=False, serving=False),
            endpoint("old", ready=False),
            endpoint("ends", ready=False, terminating=True),
        ],
    }
    same = {"metadata": {"namespace": "other", "name": "b"}, "endpoints": [endpoint("held", ready=False)]}
    held = {("shop", "held"), ("shop", "ends")}
    first, second = mark_held_pods_ready([changed, same], held)
    assert [one["conditions"]["ready"] for one in first["endpoints"]] == [True, False, False]
    assert first["endpoints"][1] is changed["endpoints"][1]
    assert second is same
    assert changed["endpoints"][0]["conditions"]["ready"] is False


def test_a_service_selects_a_pod_by_all_its_labels() -> None:
    """A Service without a selector selects no pod."""
    service = {"spec": {"selector": {"app": "rating", "tier": "web"}}}
    assert selects_pod(service, {"app": "rating", "tier": "web", "version": "2"})
    assert not selects_pod(service, {"app": "rating"})
    assert not selects_pod({"spec": {}}, {"app": "rating"})


def test_what_the_next_leader_reads_is_what_was_written() -> None:
    """The condition's message yields the servers and the time, in whole seconds."""
    shown_by = format_shown_by(["http://b/eureka", "http://a/eureka"], 120.4)
    text = f"callers know the pod 102 s after Eureka shows it; {shown_by}"
    assert parse_shown_by(text) == (frozenset({"http://a/eureka", "http://b/eureka"}), 120.0)
    assert parse_shown_by("callers know the pod 102 s after Eureka shows it") is None


def test_what_somebody_else_wrote_stops_nobody() -> None:
    """An impossible date in a message or a condition is read as unknown."""
    assert parse_shown_by("shown by http://a/eureka since 2026-13-45T12:00:00Z") is None
    assert held_since_unix(pod(READINESS_GATE, ContainersReady="True@0000-01-01T00:00:00Z")) == 0.0


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    """``lastTransitionTime`` changes only with the status, as with other controllers of Kubernetes."""
    wait = GateDecision(GateReason.CALLERS_LEARN, "")
    first = build_gate_condition(wait, "one", {}, 60.0)
    assert first == {
        "type": READINESS_GATE,
        "status": "False",
        "reason": "CallersLearn",
        "message": "one",
        "lastTransitionTime": "1970-01-01T00:01:00Z",
    }
    assert build_gate_condition(wait, "two", first, 90.0)["lastTransitionTime"] == "1970-01-01T00:01:00Z"
    opened = build_gate_condition(GateDecision(GateReason.CALLERS_KNOW, ""), "three", first, 90.0)
    assert (opened["status"], opened["lastTransitionTime"]) == ("True", "1970-01-01T00:01:30Z")


def test_a_template_declares_the_gate() -> None:
    """The gate is found among other readiness gates."""
    assert declares_gate(pod(OTHER, READINESS_GATE)["spec"])
    assert not declares_gate(pod(OTHER)["spec"])
    assert not declares_gate({})


def read(**gate: object) -> ReadinessGateSettings:
    """Return the gate's settings, read from a syncer's spec."""
    spec = {"mode": "pod", "selector": {"app": "rating"}, "readinessGate": gate}
    return Syncer.from_object(
        {"metadata": {"namespace": "shop", "name": "rating"}, "spec": spec}
    ).readiness_gate


def test_a_syncer_says_how_long_callers_need() -> None:
    """By default the seconds are computed, and pods wait while Eureka is unreachable."""
    assert read() == ReadinessGateSettings(None, WhenEurekaIsAway.WAIT)
    assert read(callersSeconds="Computed", whenEurekaIsAway="Open") == OPEN
    assert read(callersSeconds=0).callers_seconds == 0


@pytest.mark.parametrize(
    ("gate", "sentence"),
    [
        ({"callersSeconds": -1}, "spec.readinessGate.callersSeconds is -1; it must be Computed or seconds"),
        ({"callersSeconds": True}, "callersSeconds is True"),
        ({"callersSeconds": "soon"}, "callersSeconds is 'soon'"),
        ({"whenEurekaIsAway": "Never"}, "spec.readinessGate.whenEurekaIsAway is 'Never'; it must be Wait or"),
    ],
)
def test_what_an_older_crd_let_in_is_refused(gate: Object, sentence: str) -> None:
    """An invalid value is refused in one sentence that names the field."""
    with pytest.raises(ConfigurationError, match=sentence):
        read(**gate)
