"""Objects that are applied without a state: what is somebody else's stays so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.objects import STACK_LABEL
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.stateless.server_side_apply import Effect, Objects

PATH = "/api/v1/namespaces/shop"


class Api(KubeAccess):
    """An API that may have one namespace."""

    def __init__(self, labels: dict[str, str] | None) -> None:
        super().__init__(client.ApiClient(client.Configuration(host="http://127.0.0.1:1")))
        self.labels = labels
        self.written: list[str] = []

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """A list of kinds, the namespace, or what was written."""
        assert content_type
        assert timeout_seconds is None
        if path == "/api/v1":
            return {"resources": [{"kind": "Namespace", "name": "namespaces", "namespaced": False}]}
        assert path == PATH
        if method != "GET":
            self.written.append((query or {}).get("dryRun", method))
            return dict(body)
        if self.labels is None:
            raise KubernetesError("not found", status_code=404)
        named = {"name": "shop", "labels": self.labels}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": named}


NAMESPACE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {STACK_LABEL: "eurekube.dev"}},
}


@pytest.mark.parametrize("labels", [{}, {STACK_LABEL: "eurekube.prod"}])
def test_a_namespace_of_somebody_else_is_not_written_to(labels: dict[str, str]) -> None:
    """With the stack's label on it, removing the stack would remove it and all that others have in it."""
    api = Api(labels)
    assert (Objects(api).preview(NAMESPACE), Objects(api).apply(NAMESPACE)) == (Effect.LEFT, Effect.LEFT)
    assert api.written == []


@pytest.mark.parametrize(
    ("labels", "effect"), [(None, Effect.CREATED), ({STACK_LABEL: "eurekube.dev"}, Effect.UNCHANGED)]
)
def test_a_namespace_of_the_stack_is(labels: dict[str, str] | None, effect: Effect) -> None:
    """One that is not there yet is made; its own is kept in line."""
    api = Api(labels)
    assert Objects(api).apply(NAMESPACE) is effect
    assert api.written == ["PATCH"]


class BusyApi(Api):
    """One that is too busy for the first reads, as for a kind whose CRD has just come."""

    def __init__(self, refusals: int) -> None:
        super().__init__({STACK_LABEL: "eurekube.dev"})
        self.refusals = refusals

    def request(self, method: str, path: str, *arguments: Any, **more: Any) -> dict[str, Any]:
        """The refusals, then what the other one answers; a list has the namespace alone."""
        if self.refusals and path != "/api/v1":
            self.refusals -= 1
            raise KubernetesError("429: storage is (re)initializing", status_code=429)
        if path == "/api/v1/namespaces":
            return {"items": [{"metadata": NAMESPACE["metadata"]}]}
        return super().request(method, path, *arguments, **more)


def test_a_read_that_the_api_server_is_too_busy_for_is_repeated() -> None:
    """Of an object and of a list; not for ever, and no other answer is."""
    assert Objects(BusyApi(2)).apply(NAMESPACE) is Effect.UNCHANGED
    (found,) = Objects(BusyApi(2)).of_stack("eurekube.dev", [("v1", "Namespace")])
    assert found["kind"] == "Namespace"
    with pytest.raises(KubernetesError, match="429"):
        Objects(BusyApi(2), busy_seconds=0.0).of_stack("eurekube.dev", [("v1", "Namespace")])
