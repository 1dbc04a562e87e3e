"""Workloads and addresses that the doctor derives from listed pods."""

from __future__ import annotations

from typing import Any

from eurekube_provider.doctor.reader import match_pods_to_workloads
from eurekube_provider.doctor.workload_checks import Workload


def pod(name: str, app: str = "rating", created: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    """Return a pod of the namespace shop."""
    metadata = {"namespace": "shop", "name": name, "labels": {"app": app}, "creationTimestamp": created}
    return {"metadata": {**metadata, **more}, "spec": {}, "status": {}}


def test_each_workload_has_its_newest_pod() -> None:
    """A workload gets its newest pod that is not being deleted; a pod without a workload becomes one of
    its own.
    """
    spec = {
        "selector": {"matchLabels": {"app": "rating"}},
        "template": {"metadata": {"labels": {"app": "rating"}}},
    }
    rating = Workload("Deployment", {"metadata": {"namespace": "shop", "name": "rating"}, "spec": spec})
    pods = [
        pod("new", created="2026-01-02T00:00:00Z"),
        pod("old"),
        pod("gone", created="2026-01-03T00:00:00Z", deletionTimestamp="x"),
        pod("alone", "other"),
    ]
    (workload, alone), _ = match_pods_to_workloads(pods, [rating])
    assert (workload.subject, workload.live_pod) == (rating.subject, pods[0])
    assert (alone.kind, alone.live_pod) == ("Pod", None)
    (idle,), _ = match_pods_to_workloads([], [rating])
    assert idle.live_pod is None


def test_a_pod_is_found_by_each_address_of_its_own() -> None:
    """A pod is found by its addresses of both IP families, but not by its node's address."""
    both = {**pod("both"), "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    of_node = {**pod("of-node"), "spec": {"hostNetwork": True}, "status": {"podIP": "10.0.0.9"}}
    _, by_address = match_pods_to_workloads([both, of_node], [])
    assert {address: one.name for address, one in by_address.items()} == {
        "10.0.0.1": "both",
        "fd00::1": "both",
    }
