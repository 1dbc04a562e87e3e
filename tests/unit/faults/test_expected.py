"""The instances that the fault suite computes from a cluster's objects, without any server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.derived_syncer import DERIVED_FROM_LABEL, SYNC_ANNOTATION
from eurekube_provider.core.syncer import READINESS_GATE
from tests.faults.excuse import Excuse, Explains, Span
from tests.faults.expected import Expected, Objects, expected_instances, stray_syncers
from tests.faults.gates import Gate, closed, gates_of, must_be_open_at, opened

KEY = ("STOCK", "one.market.east:stock:8080")
UP = Expected("UP", "10.0.0.1", ("market", "all.stock"), "12:00:00")


def _named(name: str, **metadata: Any) -> dict[str, Any]:
    return {"namespace": "market", "name": name, **metadata}


def _pod(*, gate: str = "True", containers: str = "True", ready: str = "True") -> dict[str, Any]:
    conditions = [
        {"type": READINESS_GATE, "status": gate},
        {"type": "ContainersReady", "status": containers},
        {"type": "Ready", "status": ready, "lastTransitionTime": "12:00:00"},
    ]
    return {
        "metadata": _named("one", uid="uid-1"),
        "spec": {"nodeName": "node", "readinessGates": [{"conditionType": READINESS_GATE}]},
        "status": {"conditions": conditions},
    }


def _objects(
    pod: dict[str, Any], said: str | None, services: str = "Annotated", node: str = "True"
) -> Objects:
    """Return a namespace's syncer, a Service that says how it joins, its pod, and a derived syncer."""
    syncer = {"metadata": _named("all"), "spec": {"mode": "pod", "selector": {"services": services}}}
    labels = {"labels": {DERIVED_FROM_LABEL: "all"}}
    derived = {
        "metadata": _named("all.stock", **labels),
        "spec": {"mode": "pod", "selector": {"service": "x"}},
    }
    annotations = {} if said is None else {SYNC_ANNOTATION: said}
    service = {
        "metadata": _named("stock", annotations=annotations),
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
    }
    is_ready = pod["status"]["conditions"][2]["status"] == "True"
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": is_ready}, "targetRef": {"name": "one"}}
    piece = {
        "metadata": _named("stock-1", labels={"kubernetes.io/service-name": "stock"}),
        "ports": [{"port": 8080}],
        "endpoints": [endpoint],
    }
    nodes = [{"metadata": {"name": "node"}, "status": {"conditions": [{"type": "Ready", "status": node}]}}]
    return Objects(nodes, [syncer, derived], [service], [pod], [piece])


@pytest.mark.parametrize(
    ("said", "services", "joins"),
    [
        ("true", "Annotated", True),
        ("pod", "Annotated", True),
        ("false", "Annotated", False),
        (None, "Annotated", False),
        ("true", "All", True),
        ("false", "All", False),
        (None, "All", True),
    ],
)
def test_the_services_of_a_namespace(said: str | None, services: str, *, joins: bool) -> None:
    """The Services that join have instances and a derived syncer, and no others have either."""
    objects = _objects(_pod(), said, services)
    assert expected_instances(objects, "east", ()) == ({KEY: UP} if joins else {})
    assert stray_syncers(objects) == ([] if joins else ["the syncer market/all.stock is left"])
    parent, derived = objects.syncers
    assert stray_syncers(replace(objects, syncers=[parent])) == (
        ["there is no syncer market/all.stock"] if joins else []
    )
    derived["metadata"]["deletionTimestamp"] = "now"
    assert "the syncer market/all.stock is being deleted" in stray_syncers(objects)


def test_a_service_may_choose_its_mode() -> None:
    """A Service that joins in mode service has one instance, at its own address."""
    (found,) = expected_instances(_objects(_pod(), "service"), "east", ()).items()
    assert found[0] == ("STOCK", "stock.svc.market.east:stock:80")
    assert (found[1].status, found[1].address) == ("UP", "10.96.0.1")


@pytest.mark.parametrize(
    ("pod", "node", "status"),
    [
        (_pod(gate="False", ready="False"), "True", "UP"),
        (_pod(ready="False"), "True", "UP"),
        (_pod(gate="False", ready="False"), "Unknown", "DOWN"),
        (_pod(gate="False", containers="False", ready="False"), "True", "DOWN"),
    ],
)
def test_a_pod_that_waits_for_its_gate(pod: dict[str, Any], node: str, status: str) -> None:
    """A pod is wanted UP if only its gate, or its kubelet's next look, keeps it from being ready."""
    (found,) = expected_instances(_objects(pod, "true", node=node), "east", ()).values()
    assert (found.status, found.turned) == (status, "" if status == "UP" else "12:00:00")


def test_a_gate_opens_once() -> None:
    """A gate that opened is reported once, and one that is closed afterwards as well."""
    shut = gates_of(_objects(_pod(gate="False", ready="False"), "true"), {}, 10.0)
    assert shut == {"uid-1": Gate(("market", "one"), None, 10.0)}
    assert gates_of(_objects(_pod(gate="False", ready="False"), "true"), shut, 20.0) == shut
    wide = gates_of(_objects(_pod(), "true"), shut, 30.0)
    assert wide == {"uid-1": Gate(("market", "one"), 30.0, None)}
    assert (opened(shut, wide), closed(shut, wide)) == ([wide["uid-1"]], [])
    assert (opened(wide, wide), closed(wide, wide)) == ([], [])
    assert (opened(wide, shut), closed(wide, shut)) == ([], [shut["uid-1"]])
    assert opened({}, wide) == [wide["uid-1"]]


def test_callers_come_back_as_late_as_their_server_was_away() -> None:
    """A gate must open in its time after the last fault, which is later if a server was away for long."""
    excuse = Excuse(Explains.GATE, server=1, margin_seconds=15.0)
    assert must_be_open_at(100.0, 1.0, []) == 130.0
    assert must_be_open_at(100.0, 2.0, []) == 160.0
    assert must_be_open_at(100.0, 1.0, [Span("f", excuse, 10.0, 20.0)]) == 130.0
    assert must_be_open_at(100.0, 1.0, [Span("f", excuse, 50.0, 90.0)]) == 175.0
