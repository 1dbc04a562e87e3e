"""A finalizer comes and goes beside those of others."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import SYNCERS
from eurekube_provider.kube.finalizers import set_finalizer

OURS = "eurekube.io/deregister"
SYNCER: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "rating"}}


class Finalizers:
    """An API server with one syncer, whose finalizers somebody else writes, too."""

    def __init__(self, *finalizers: str) -> None:
        self.held = list(finalizers)
        self.version = 1
        self.meanwhile: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        """The object as it is now; somebody else may change it right after."""
        assert path.endswith("/namespaces/shop/eurekasyncers/rating")
        found = {"metadata": {"finalizers": list(self.held), "resourceVersion": str(self.version)}}
        for name in self.meanwhile:
            self.held.append(name)
            self.version += 1
        self.meanwhile.clear()
        return found

    def request(self, method: str, _path: str, body: Any, content_type: str) -> None:
        """A merge patch, which is refused where it is made for another version."""
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        if body["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
            raise KubernetesError("changed meanwhile", status_code=409)
        self.held = list(body["metadata"]["finalizers"])


@pytest.mark.parametrize("meanwhile", [[], ["somebody.example/too"]])
def test_finalizers_of_others_stay(meanwhile: list[str]) -> None:
    """Those that were there, and those that came while ours was written or removed."""
    api = Finalizers("somebody.example/first")
    for present, ours in ((True, [OURS]), (False, [])):
        api.meanwhile += meanwhile
        set_finalizer(api, SYNCERS, SYNCER, OURS, present=present)  # type: ignore[arg-type]
        assert sorted(set(api.held)) == sorted({"somebody.example/first", *meanwhile, *ours})
