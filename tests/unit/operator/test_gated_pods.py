"""The operator's list of pods that declare the readiness gate, and which of them count as ready."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.kube import reflector
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.gated_pods import GatedPods
from lab.waiting import wait_until
from tests.unit.operator.quiet_api import QuietApi

EARLIER, LATER = "2026-11-28T12:00:00Z", "2026-11-28T12:02:00Z"


def opened(ready: str) -> dict[str, Any]:
    """Return a pod whose gate has just opened, with the condition Ready of its kubelet."""
    said = {"ContainersReady": ("True", EARLIER), "Ready": (ready, EARLIER), READINESS_GATE: ("True", LATER)}
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": at} for kind, (status, at) in said.items()
    ]
    return {
        "metadata": {"namespace": "shop", "name": "rating-1", "uid": "1", "resourceVersion": "1"},
        "spec": {"nodeName": "node-1", "readinessGates": [{"conditionType": READINESS_GATE}]},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("ready", "is_node_ready", "counts"),
    [("False", True, True), ("False", False, False), ("True", False, True)],
)
def test_a_pod_whose_kubelet_died_as_its_gate_opened_is_not_ready(
    ready: str, *, is_node_ready: bool, counts: bool
) -> None:
    """A pod with an open gate and Ready=False counts while its node is ready; one with Ready=True counts,
    since Kubernetes itself sets False on a lost node.
    """
    pods = GatedPods(KubeAccess(client.Configuration()), [None], lambda _: None, lambda _: is_node_ready)
    pods.reflectors[0].apply_event("ADDED", opened(ready))
    assert pods.pods_registered_as_ready() == ({("shop", "rating-1")} if counts else frozenset())
    assert [one["metadata"]["name"] for one in pods.pods_depending_on_nodes()] == ["rating-1"] * (
        ready == "False"
    )


def test_a_pod_that_may_not_be_read_any_more_is_as_ready_as_its_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a pod that became unready later would stay UP for ever."""
    monkeypatch.setattr(reflector, "DENIAL_SETTLE_SECONDS", 0.0)
    api, denied = QuietApi(monkeypatch), list[str | None]()
    api.objects["pods"] = [opened("True")]
    pods = GatedPods(
        KubeAccess(client.Configuration()), ["shop"], lambda _: None, lambda _: True, denied.append
    )
    pods.start()
    try:
        wait_until(lambda: pods.pods_registered_as_ready() == {("shop", "rating-1")}, "the first list", 20.0)
        api.refuse("pods", 403)
        wait_until(lambda: denied == ["shop"], "the denial", 20.0)
        assert pods.pods_registered_as_ready() == frozenset()
    finally:
        pods.stop()
        api.end()
