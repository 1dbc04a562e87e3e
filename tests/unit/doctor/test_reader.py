"""Workloads and addresses that the doctor derives from listed pods, and parts that it cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.objects import MIRROR_LABEL
from eurekube_provider.dev.eureka.documents import ServerRequest, ServerResponse
from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.doctor import reader
from eurekube_provider.doctor.finding import Fault
from eurekube_provider.doctor.mirror_checks import mirror_findings
from eurekube_provider.doctor.reader import match_pods_to_workloads, read_eureka
from eurekube_provider.doctor.workload_checks import Workload
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.settings import load_settings


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


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_has_no_address_and_no_workload(phase: str) -> None:
    """A job's completed pod, or an evicted one, keeps an address in its status that another pod has by now:
    a remedy would be for the wrong workload.
    """
    living = {**pod("a-living"), "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    ended = {**pod("job", "job"), "status": {"phase": phase, "podIP": "10.0.0.1"}}
    (workload,), by_address = match_pods_to_workloads([living, ended], [])
    assert {address: one.name for address, one in by_address.items()} == {"10.0.0.1": "a-living"}
    assert workload.subject.endswith("a-living")


@pytest.mark.parametrize("refused", [("apps",), ("apps", "RATING", "a")])
def test_a_server_whose_registry_cannot_be_read_is_no_healthy_one(
    refused: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers, and fails to list its registry or to show an instance, has a problem."""
    monkeypatch.setattr(reader, "REPLICATION_WAIT_SECONDS", 0)
    with EurekaServers(2, quick=True) as servers:
        first, second = servers.urls
        answer = servers.cluster.request

        def ask(url: str, request: ServerRequest) -> ServerResponse:
            is_refused = url == second and tuple(request.path) == refused
            return ServerResponse(500) if is_refused else answer(url, request)

        servers.cluster.cut.add((first, second))
        servers.cluster.request = ask  # type: ignore[method-assign]
        peers, unread_parts = Peers(Connection((first, second))), list[str]()
        one = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080), vip_address="rating")
        peers.peers[0].register(one)
        found = read_eureka("default", peers, unread_parts)
        peers.close()
    ((url, problem),) = found.server_problems
    assert url == second
    assert problem.startswith("its registry could not be read: ")
    assert not unread_parts


def test_a_mirror_that_is_made_meanwhile_has_left_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirrors are listed before and after the Services: one that is made, or goes, in between is no
    deleted mirror that left its Services.
    """
    listed: list[str] = []

    class Access:
        def get(self, *_: Any) -> dict[str, Any]:
            return {"metadata": {"uid": "uid-1"}}

        def pages(self, path: str, **_: Any) -> Iterator[dict[str, Any]]:
            kind = path.rpartition("/")[2]
            listed.append(kind)
            name = {"eurekamirrors": "before", "services": "review"}.get(kind)
            if kind == "eurekamirrors" and "services" in listed:
                name = "after"
            metadata = {"namespace": "shop", "name": name, "labels": {MIRROR_LABEL: "after"}}
            yield {"items": [{"metadata": metadata, "spec": {"application": "x"}}] if name else []}

    monkeypatch.setattr(KubeAccess, "load", lambda *_: Access())
    monkeypatch.setattr(reader, "read_operators", lambda *_: None)
    found = reader.read_snapshot(load_settings({}, needs_eureka=False))
    assert [one["metadata"]["name"] for one in found.mirrors or ()] == ["before", "after"]
    left = mirror_findings(found.mirrors or (), found.services, found.slices, {}, found.cluster, 0.0)
    assert Fault.MIRROR_LEFTOVER not in {one.fault for one in left}


def test_a_namespace_that_does_not_exist_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace of which the API server knows nothing is named: it may be misspelt."""

    class Access:
        def get(self, path: str, _query: Any = None) -> dict[str, Any]:
            if path.endswith("/shpo"):
                raise KubernetesError("not found", status_code=404)
            return {"metadata": {"uid": "uid-1"}}

        def pages(self, *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
            yield {}

    monkeypatch.setattr(KubeAccess, "load", lambda *_: Access())
    monkeypatch.setattr(reader, "read_operators", lambda *_: None)
    settings = load_settings({"watch_namespace": "shop,shpo"}, needs_eureka=False)
    assert reader.read_snapshot(settings).unread_parts == ("Kubernetes: there is no namespace shpo",)
