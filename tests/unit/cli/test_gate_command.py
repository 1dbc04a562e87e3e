"""``eurekube gate open``: the pods whose readiness gate it opens, and those that it leaves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from eurekube_provider.cli import gate_command
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.kube.access import KubeAccess

Object = dict[str, Any]


def pod(
    name: str, *, gate: str = "False", containers: str = "True", gates: tuple[str, ...] = (READINESS_GATE,)
) -> Object:
    """Return a pod whose gate has this status."""
    conditions = [{"type": "ContainersReady", "status": containers}, {"type": READINESS_GATE, "status": gate}]
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}"},
        "spec": {"readinessGates": [{"conditionType": one} for one in gates]},
        "status": {"conditions": conditions},
    }


class Api:
    """A fake Kubernetes API with a Deployment and its pods."""

    def __init__(self, *pods: Object, refused: str = "") -> None:
        self.pods, self.refused = pods, refused
        self.asked: list[str] = []
        self.sent: list[tuple[str, Object]] = []

    def get(self, path: str, query: Mapping[str, str]) -> Object:
        """Return the Deployment ``rating``, or a pod by its name."""
        name = query["fieldSelector"].removeprefix("metadata.name=")
        if path.endswith("pods"):
            return {"items": [one for one in self.pods if one["metadata"]["name"] == name]}
        expressions = [
            {"key": "tier", "operator": "In", "values": ["web", "api"]},
            {"key": "canary", "operator": "DoesNotExist"},
        ]
        selector = {"matchLabels": {"app": "rating"}, "matchExpressions": expressions}
        return {"items": [{"spec": {"selector": selector}}] if name == "rating" else []}

    def pages(self, path: str, query: Mapping[str, str]) -> Iterator[Object]:
        """Return all pods, and record the label selector."""
        assert path == "/api/v1/namespaces/shop/pods"
        self.asked.append(query["labelSelector"])
        yield {"items": list(self.pods)}

    def request(self, method: str, path: str, body: Object, content_type: str) -> Object:
        """Record a patch, or refuse it."""
        assert (method, content_type) == ("PATCH", "application/strategic-merge-patch+json")
        if self.refused and self.refused in path:
            raise KubernetesError("PATCH: forbidden", status_code=403)
        self.sent.append((path, body))
        return body


def run(monkeypatch: pytest.MonkeyPatch, api: Api, workload: str = "deployment/rating") -> int:
    """Run the command, and return its exit code."""
    monkeypatch.setattr(KubeAccess, "load", lambda *_: api)
    parser = argparse.ArgumentParser()
    gate_command.add_arguments(parser)
    return gate_command.run(parser.parse_args(["open", workload, "--namespace", "shop"]))


def test_the_pods_of_a_workload_that_wait_are_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only gates of ready pods that wait are opened; a pod whose gate is open, that is not ready, or that has
    no such gate is left.
    """
    api = Api(
        pod("waits"),
        pod("open", gate="True"),
        pod("starts", containers="False"),
        pod("other", gates=("example.org/other",)),
    )
    assert run(monkeypatch, api) == 0
    ((path, body),) = api.sent
    assert path == "/api/v1/namespaces/shop/pods/waits/status"
    assert body["metadata"] == {"uid": "uid-waits"}
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        READINESS_GATE,
        "True",
        "OpenedByHand",
    )
    assert api.asked == ["app=rating,tier in (web,api),!canary"]
    said = capsys.readouterr().out
    assert "pod shop/waits: its gate is open" in said
    assert "pod shop/starts: left as it is" in said


def test_a_single_pod_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pod/NAME`` opens the gate of one pod."""
    api = Api(pod("waits"), pod("also"))
    assert run(monkeypatch, api, "pod/also") == 0
    assert [path for path, _ in api.sent] == ["/api/v1/namespaces/shop/pods/also/status"]


def test_what_was_not_opened_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate that cannot be opened gives exit code 1, and the other gates are opened."""
    api = Api(pod("first"), pod("second"), refused="first")
    assert run(monkeypatch, api) == 1
    assert len(api.sent) == 1
    assert "the gate of pod shop/first is not open: PATCH: forbidden" in capsys.readouterr().err


def test_nothing_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a waiting pod the command says so and ends with 0."""
    assert run(monkeypatch, Api()) == 0
    assert "no pod of deployment/rating waits for callers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        ("rating", "must be a kind and a name"),
        ("service/rating", "must be a kind and a name"),
        ("deployment/", "must be a kind and a name"),
        ("deployment/none", "there is no deployment none in namespace shop"),
    ],
)
def test_a_workload_that_is_not_there(monkeypatch: pytest.MonkeyPatch, workload: str, sentence: str) -> None:
    """A workload that is malformed or does not exist is refused in one sentence."""
    with pytest.raises((ConfigurationError, argparse.ArgumentError), match=sentence):
        run(monkeypatch, Api(), workload)
