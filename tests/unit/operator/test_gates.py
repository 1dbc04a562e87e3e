"""The threads that open readiness gates, with faked parts around them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.operator.gates import GateOpener
from lab.waiting import wait_until


def test_an_error_about_one_pod_delays_no_other_ones_gate() -> None:
    """While the decision about one pod fails, the gate of a pod that no syncer wants is opened."""

    def waiting(name: str) -> dict[str, Any]:
        metadata = {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"}
        return {"metadata": metadata, "condition": {}, "held_from": 0.0}

    def services_of_pod(pod: dict[str, Any]) -> list[Any]:
        if pod["metadata"]["name"] == "odd":
            raise RuntimeError("a fault")
        return []

    pods = [waiting("odd"), waiting("good")]
    sources = SimpleNamespace(
        is_synced_or_forbidden=True,
        gated_pods=SimpleNamespace(
            waiting_pods=lambda: pods, waiting_pods_on_ready_nodes=lambda: [(pod, 1e6) for pod in pods]
        ),
        unread_namespaces=list,
        services_of_pod=services_of_pod,
    )
    access = Mock()
    gates = GateOpener(
        access,
        sources,  # type: ignore[arg-type]
        {},
        0,
        Mock(),
        lambda _: None,
        lambda: True,
        lambda *_: True,
        lambda _: False,
    )
    gates.update_gates_of_waiting_pods()
    wait_until(lambda: access.request.called, "the write", 10)
    gates.stop()
    ((_, path), options) = access.request.call_args
    assert path == "/api/v1/namespaces/shop/pods/good/status"
    (condition,) = options["body"]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == (READINESS_GATE, "True")
