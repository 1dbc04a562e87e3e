"""A finalizer is added and removed without changing others' finalizers."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import SYNCERS
from eurekube_provider.kube.finalizers import set_finalizer

OURS = "eurekube.io/deregister"
SYNCER: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "rating"}}


class Finalizers:
    """A fake API server with one syncer, whose finalizers another writer changes, too."""

    def __init__(self, *finalizers: str) -> None:
        self.held = list(finalizers)
        self.version = 1
        self.meanwhile: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        """Return the object, then let the other writer change it."""
        assert path.endswith("/namespaces/shop/eurekasyncers/rating")
        found = {"metadata": {"finalizers": list(self.held), "resourceVersion": str(self.version)}}
        for name in self.meanwhile:
            self.held.append(name)
            self.version += 1
        self.meanwhile.clear()
        return found

    def request(self, method: str, _path: str, body: Any, content_type: str) -> None:
        """Apply a merge patch, or refuse it if its version is outdated."""
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        if body["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
            raise KubernetesError("changed meanwhile", status_code=409)
        self.held = list(body["metadata"]["finalizers"])


@pytest.mark.parametrize("meanwhile", [[], ["somebody.example/too"]])
def test_finalizers_of_others_stay(meanwhile: list[str]) -> None:
    """Others' finalizers are kept, also those that are added while ours is written or removed."""
    api = Finalizers("somebody.example/first")
    for present, ours in ((True, [OURS]), (False, [])):
        api.meanwhile += meanwhile
        set_finalizer(api, SYNCERS, SYNCER, OURS, present=present)  # type: ignore[arg-type]
        assert sorted(set(api.held)) == sorted({"somebody.example/first", *meanwhile, *ours})
