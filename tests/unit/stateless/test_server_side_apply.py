"""Server-side apply without a state: objects of others are not changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.objects import STACK_LABEL
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, KubeAccess
from eurekube_provider.stateless.server_side_apply import ApplyEffect, ClusterObjects

PATH = "/api/v1/namespaces/shop"


class Api(KubeAccess):
    """An API with one namespace or none."""

    def __init__(self, labels: dict[str, str] | None) -> None:
        super().__init__(client.Configuration(host="http://127.0.0.1:1"))
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
        """Return the list of kinds, the namespace, or the written object."""
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
    """A namespace without this stack's label is not changed: labelled, it would be deleted with the stack,
    and others' objects with it.
    """
    api = Api(labels)
    assert (ClusterObjects(api).preview(NAMESPACE), ClusterObjects(api).apply(NAMESPACE)) == (
        ApplyEffect.NOT_OWNED,
        ApplyEffect.NOT_OWNED,
    )
    assert api.written == []


@pytest.mark.parametrize(
    ("labels", "effect"),
    [(None, ApplyEffect.CREATED), ({STACK_LABEL: "eurekube.dev"}, ApplyEffect.UNCHANGED)],
)
def test_a_namespace_of_the_stack_is(labels: dict[str, str] | None, effect: ApplyEffect) -> None:
    """A missing namespace is created, and one with this stack's label is updated."""
    api = Api(labels)
    assert ClusterObjects(api).apply(NAMESPACE) is effect
    assert api.written == ["PATCH"]


class BusyApi(Api):
    """An API that answers the first reads with 429, as for a kind whose CRD was just created."""

    def __init__(self, refusals: int) -> None:
        super().__init__({STACK_LABEL: "eurekube.dev"})
        self.refusals = refusals

    def request(self, method: str, path: str, *arguments: Any, **more: Any) -> dict[str, Any]:
        """Refuse the first requests, then answer; a list contains the namespace alone."""
        if self.refusals and path != "/api/v1":
            self.refusals -= 1
            raise KubernetesError("429: storage is (re)initializing", status_code=429)
        if path == "/api/v1/namespaces":
            ours = {**NAMESPACE["metadata"], "managedFields": [{"manager": "eurekube", "operation": "Apply"}]}
            copied = {"name": "copy", "managedFields": [{"manager": "hnc", "operation": "Update"}]}
            return {"items": [{"metadata": ours}, {"metadata": {**NAMESPACE["metadata"], **copied}}]}
        return super().request(method, path, *arguments, **more)


def test_a_read_that_the_api_server_is_too_busy_for_is_repeated() -> None:
    """A read answered with 429 is repeated for a limited time, for an object and for a list."""
    assert ClusterObjects(BusyApi(2)).apply(NAMESPACE) is ApplyEffect.UNCHANGED
    (found,) = ClusterObjects(BusyApi(2)).list_objects_of_stack("eurekube.dev", [("v1", "Namespace")])
    assert found["kind"] == "Namespace"
    with pytest.raises(KubernetesError, match="429"):
        ClusterObjects(BusyApi(2), busy_seconds=0.0).list_objects_of_stack(
            "eurekube.dev", [("v1", "Namespace")]
        )


def test_a_copy_by_a_controller_is_not_the_stacks() -> None:
    """An object with the stack's label that another manager wrote is left out: it would be deleted."""
    (found,) = ClusterObjects(BusyApi(0)).list_objects_of_stack("eurekube.dev", [("v1", "Namespace")])
    assert found["metadata"]["name"] == "shop"


def test_what_is_being_deleted_does_not_pass_for_applied(tmp_path: Path) -> None:
    """The API accepts a change of such an object, which then goes; nothing is written, and a dry run says
    the same.
    """
    path = "/api/v1/namespaces/default/configmaps"
    metadata = {"name": "one", "namespace": "default"}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "new"}}
    with KubernetesApi() as api:
        access = KubeAccess.load(api.write_kubeconfig(tmp_path / "kubeconfig"))
        old = {**item, "metadata": {**metadata, "finalizers": ["example.com/wait"]}, "data": {"a": "old"}}
        access.request("POST", path, body=old)
        access.request("DELETE", f"{path}/one")
        objects = ClusterObjects(access)
        for carry_out in (objects.preview, objects.apply):
            with pytest.raises(
                KubernetesError, match="ConfigMap default/one is being deleted, and waits for ex"
            ):
                carry_out(item)
        assert access.get(f"{path}/one")["data"] == {"a": "old"}
        body = {"metadata": {"finalizers": None}}
        access.request("PATCH", f"{path}/one", body=body, content_type=MERGE_PATCH_TYPE)
        assert objects.apply(item) is ApplyEffect.CREATED
