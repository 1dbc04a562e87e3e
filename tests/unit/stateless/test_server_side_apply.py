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
        return {"metadata": {"name": "shop", "labels": self.labels}}


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
