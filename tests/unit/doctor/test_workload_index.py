"""Index of the workloads behind Services and pods."""

from __future__ import annotations

from typing import Any

from eurekube_provider.doctor.workload_checks import Workload
from eurekube_provider.doctor.workload_index import WorkloadIndex


def workload(name: str, namespace: str = "shop", **labels: str) -> Workload:
    """Return a Deployment whose pods have these labels and whose selector requires all of them."""
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    return Workload("Deployment", {"metadata": {"namespace": namespace, "name": name}, "spec": spec})


def service(**selector: str) -> dict[str, Any]:
    """Return a Service of the namespace shop with this selector."""
    return {"metadata": {"namespace": "shop"}, "spec": {"selector": selector}}


def pod(**labels: str) -> dict[str, Any]:
    """Return a pod of the namespace shop with these labels."""
    return {"metadata": {"namespace": "shop", "labels": labels}}


ONE = workload("one", app="rating", track="stable", part="shop")
OTHER = workload("other", app="rating", track="canary", part="shop")
ELSEWHERE = workload("one", "else", app="rating", track="stable", part="shop")
INDEX = WorkloadIndex([ONE, OTHER, ELSEWHERE])


def test_a_service_selects_the_pods_of_workloads() -> None:
    """A Service finds the workloads of its namespace whose pods have all labels of its selector; without
    one, none.
    """
    assert INDEX.find_by_service(service(app="rating")) == [ONE, OTHER]
    assert INDEX.find_by_service(service(app="rating", track="canary")) == [OTHER]
    assert INDEX.find_by_service(service(app="rating", track="none")) == []
    assert INDEX.find_by_service(service()) == []
    assert WorkloadIndex([ELSEWHERE]).find_by_service(service(app="rating")) == []


def test_a_pod_belongs_to_the_workload_whose_selector_it_fits() -> None:
    """A pod belongs to the first workload whose selector its labels fulfil."""
    assert INDEX.find_by_pod(pod(app="rating", track="canary", part="shop", hash="1")) is OTHER
    assert INDEX.find_by_pod(pod(app="rating", part="shop")) is None
    assert INDEX.find_by_pod({"metadata": {"namespace": "shop"}}) is None
    twice = WorkloadIndex([workload("b", app="rating"), ONE])
    assert twice.find_by_pod(pod(app="rating", track="stable", part="shop")) == workload("b", app="rating")


def test_a_pod_without_a_workload_is_its_own() -> None:
    """A workload of the kind Pod is found by Services, and matches no other pod."""
    alone = Workload("Pod", {"metadata": {"namespace": "shop", "name": "a", "labels": {"app": "rating"}}})
    index = WorkloadIndex([alone])
    assert index.find_by_service(service(app="rating")) == [alone]
    assert index.find_by_pod(pod(app="rating")) is None
