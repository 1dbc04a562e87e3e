"""Explanation of an instance: owner, renewer, last renewal, reason for its status, and outcomes of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.comparison.explaining import (
    InstanceObservation,
    LifecycleEvent,
    explain_instance,
    predict_effects,
    why_not_up,
)
from eurekube_provider.comparison.managers import manager_of
from eurekube_provider.core.model import DataCenter, Instance, Status
from eurekube_provider.core.registry_kinds import ZOOKEEPER
from eurekube_provider.core.syncer import Syncer
from tests.unit.comparison.samples import endpoint_slice, instance, syncer

NOW_MS = 1_000_000_000.0
STACK = "stack/acme/shop/dev/rating"


def observed(one: Instance, item: dict[str, Any] | None = None, **more: Any) -> InstanceObservation:
    """Return the observation of an instance with its cluster at hand."""
    found = Syncer.from_object(item) if item else None
    return InstanceObservation(one, manager_of(one, "lab"), was_cluster_read=True, syncer=found, **more)


def endpoint(ready: bool | None) -> Any:
    """Return an endpoint that is ready, not ready, or terminating (None)."""
    return endpoint_slice("rating", ready)["endpoints"][0]


def test_what_cannot_be_relied_on_is_reported_first() -> None:
    """The first fact warns of an instance that no request can name or that no server holds."""
    odd = instance("rating", instance_id="a/b", unreadable="no request can name the id 'a/b'")
    facts = explain_instance(observed(odd), NOW_MS).facts
    assert facts[0] == ("not safe", "no request can name the id 'a/b'")
    unseen = observed(instance("rating"), by_server={"http://e-1": None})
    topic, sentence = explain_instance(unseen, NOW_MS).facts[0]
    assert topic == "not safe"
    assert "every server answers 404" in sentence


def test_a_self_registered_out_of_service_is_no_health_problem() -> None:
    """For a self-registered OUT_OF_SERVICE the explanation gives an undrain command, quoted for a shell."""
    stuck = instance("vm", owner=None, status=Status.OUT_OF_SERVICE, instance_id="it; self")
    reason = why_not_up(observed(stuck))
    assert "it registered itself as OUT_OF_SERVICE" in reason
    assert reason.endswith("eurekube undrain 'it; self'")


def test_of_a_registry_without_renewals_none_is_explained() -> None:
    """And a status that a person set is taken back there, where `undrain` is refused."""
    there = instance("rating", status=Status.OUT_OF_SERVICE, data_center=DataCenter(ZOOKEEPER.name))
    facts = dict(explain_instance(observed(replace(there, overridden_status=there.status)), NOW_MS).facts)
    assert facts["why not UP"].endswith(ZOOKEEPER.undrain_instruction)
    assert not {"renewed by", "last renewed"} & facts.keys()
    own = replace(instance("vm", owner=None, status=Status.OUT_OF_SERVICE), data_center=there.data_center)
    assert "undrain" not in why_not_up(observed(own))
    assert explain_instance(observed(own), NOW_MS).facts[0][1].startswith("itself: its own ZooKeeper client")


def test_of_what_cannot_be_read_nothing_is_guessed() -> None:
    """Neither where callers would call it, nor why it is not UP."""
    odd = replace(
        instance("vm", owner=None, status=Status.UNKNOWN), host_name="", unreadable="it is no object"
    )
    facts = dict(explain_instance(observed(odd), NOW_MS).facts)
    assert facts["not safe"] == "it is no object"
    assert not {"callers", "why not UP"} & facts.keys()


def test_an_instance_of_a_syncer() -> None:
    """A syncer's instance is explained with all facts, and with the last renewal at each server."""
    one = instance("rating")
    held = {
        "http://e-1": replace(one, lease_ends_ms=int(NOW_MS) + 78_000),
        "http://e-2": replace(one, lease_ends_ms=int(NOW_MS) + 70_000),
        "http://e-3": None,
    }
    found = explain_instance(
        observed(
            one,
            syncer("rating"),
            by_server=held,
            failures={"http://e-4": "time-out"},
            endpoint=endpoint(True),
        ),
        NOW_MS,
    ).to_dict()
    assert found["facts"] == {
        "kept by": "syncer shop/rating (owner cluster/lab/shop/rating)",
        "callers": "find it under rating, at http://10.0.0.0:8080",
        "renewed by": "the operator of this cluster, whichever replica leads",
        "last renewed": "12 s ago at http://e-1, 20 s ago at http://e-2",
        "in Kubernetes": "pod shop/rating-0, endpoint 10.0.0.0 is ready",
        "servers": (
            "they differ: UP at http://e-1, UP at http://e-2, not there at http://e-3; http://e-4 did not"
            " answer: time-out"
        ),
    }
    assert list(found["if"]) == ["its pod is deleted", "its syncer is deleted", "the operator stops"]


def test_a_renewal_that_is_late_is_said() -> None:
    """A last renewal longer ago than the Eureka lease is reported as such."""
    one = instance("rating")
    held = {"http://e-1": replace(one, lease_ends_ms=int(NOW_MS) - 30_000)}
    facts = dict(explain_instance(observed(one, by_server=held), NOW_MS).facts)
    assert facts["last renewed"] == "120 s ago: that is longer than its Eureka lease of 90 s"
    assert dict(explain_instance(observed(one), NOW_MS).facts)["last renewed"] == "no server says"


def test_an_instance_that_was_just_registered_is_not_late() -> None:
    """Before the first renewal a server shows the time of the registration, without the lease's duration."""
    at = int(NOW_MS) - 12_000
    one = replace(instance("rating"), lease_ends_ms=at, last_updated_timestamp_ms=at)
    facts = dict(explain_instance(observed(one, by_server={"http://e-1": one}), NOW_MS).facts)
    assert facts["last renewed"] == "12 s ago"


DOWN = instance("rating", 0, Status.DOWN)
WAITING = {
    "status": {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
}
UNREADY = {"status": {"containerStatuses": [{"name": "main", "ready": False, "state": {"running": {}}}]}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            observed(DOWN, syncer("rating"), endpoint=endpoint(False), pod=WAITING),
            "container main waits: CrashLoopBackOff",
        ),
        (
            observed(DOWN, syncer("rating"), endpoint=endpoint(False), pod=UNREADY),
            "container main is not ready, by its readinessProbe",
        ),
        (
            observed(DOWN, syncer("rating"), endpoint=endpoint(False)),
            "Kubernetes says that its endpoint is not ready",
        ),
        (observed(DOWN, syncer("rating"), endpoint=endpoint(None)), "its pod is being deleted"),
        (
            observed(DOWN, syncer("rating"), endpoint=endpoint(True)),
            "the operator has not brought that to Eureka yet",
        ),
        (observed(DOWN, syncer("rating")), "no EndpointSlice has its address any more"),
        (observed(DOWN, syncer("rating", mode="service")), "no endpoint of its Service is ready"),
        (
            observed(replace(DOWN, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)),
            "somebody set OUT_OF_SERVICE",
        ),
        (
            observed(instance("rating", 0, Status.OUT_OF_SERVICE, metadata={"eurekube.leaving": "true"})),
            "on its way out: the operator",
        ),
        (
            observed(instance("rating", 0, Status.DOWN, owner=STACK, metadata={"eurekube.enforced": "DOWN"})),
            "program enforces the status DOWN",
        ),
        (observed(instance("rating", 0, Status.DOWN, owner=STACK)), "the stack registered it as DOWN"),
        (
            observed(instance("rating", 0, Status.STARTING, owner=None)),
            "the application says STARTING of itself",
        ),
        (observed(instance("rating", 0, Status.DOWN, owner="mirror/eu")), "mirror/eu says DOWN"),
    ],
)
def test_why_an_instance_is_not_up(found: InstanceObservation, expected: str) -> None:
    """The reason comes from whatever decides the status: pod, endpoint, operator, person, stack or
    application.
    """
    assert expected in why_not_up(found)
    assert "why not UP" in dict(explain_instance(found, NOW_MS).facts)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "it is deregistered at the moment at which the deletion begins"),
        (
            {"onTermination": "OutOfService"},
            "it is OUT_OF_SERVICE from that moment until its endpoint is gone",
        ),
        ({"policy": "UpsertOnly"}, "policy is UpsertOnly: it lapses: Eureka forgets it 180 to 240 s after"),
        ({"paused": True}, "nothing: the syncer is paused"),
        ({"mode": "service"}, "after the last one it is DOWN"),
        ({"mode": "service", "notReady": "Remove"}, "after the last one it is deregistered"),
    ],
)
def test_when_a_pod_is_deleted(spec: dict[str, Any], expected: str) -> None:
    """The outcome of a pod's deletion depends on the syncer's spec."""
    one = instance("rating")
    outcomes = dict(
        predict_effects(one, manager_of(one, "lab"), Syncer.from_object(syncer("rating", **spec)))
    )
    assert expected in outcomes[LifecycleEvent.POD_DELETED]


def test_callers_of_a_zookeeper_have_one_cache() -> None:
    """Between a ZooKeeper and its callers is the load balancer's cache alone, and nothing lapses there."""
    one = instance("rating", data_center=DataCenter(ZOOKEEPER.name))
    outcomes = dict(predict_effects(one, manager_of(one, "lab"), Syncer.from_object(syncer("rating"))))
    assert "the last caller forgets it within 35 s" in outcomes[LifecycleEvent.POD_DELETED]
    assert outcomes[LifecycleEvent.OPERATOR_STOPS].endswith(
        "without one it stays until somebody removes it: ZooKeeper forgets nothing, but what ends with its"
        " own session"
    )


@pytest.mark.parametrize(
    ("owner", "metadata", "event", "expected"),
    [
        (
            STACK,
            {"eurekube.renewer": "eurekube"},
            LifecycleEvent.RENEWER_STOPS,
            "another replica of 'eurekube' goes on",
        ),
        (
            STACK,
            {"eurekube.renewer": "self"},
            LifecycleEvent.OPERATOR_STOPS,
            "nothing: its application renews it",
        ),
        (
            STACK,
            {"eurekube.renewer": "eurekube"},
            LifecycleEvent.STACK_DESTROYED,
            "it is deregistered, after the drain",
        ),
        (None, {}, LifecycleEvent.OPERATOR_STOPS, "nothing: Eurekube has nothing to do with it"),
        ("cluster/eks-2/shop/r", {}, LifecycleEvent.RENEWER_STOPS, "the operator of cluster eks-2 renews it"),
        ("mirror/eu", {}, LifecycleEvent.RENEWER_STOPS, "mirror/eu decides"),
        ("", {}, LifecycleEvent.OPERATOR_STOPS, "a standby replica goes on within 17 s"),
    ],
)
def test_what_would_become_of_it(
    owner: str | None, metadata: dict[str, str], event: LifecycleEvent, expected: str
) -> None:
    """The outcome of an event depends on the instance's owner and renewer."""
    one = instance("rating", owner=owner, metadata=metadata)
    assert expected in dict(predict_effects(one, manager_of(one, "lab")))[event]
