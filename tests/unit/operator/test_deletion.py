"""How long a deleted syncer waits for an Eureka that is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.registry import Well
from eurekube_provider.kube.access import SYNCERS
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator import deletion as module
from eurekube_provider.operator.deletion import FINALIZER, Deletion
from eurekube_provider.operator.ownership_transfer import OwnershipTransfer
from eurekube_provider.operator.registries import Registries

KEY = ("shop", "rating")
SYNCER: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "rating", "finalizers": [FINALIZER]}}
RELEASE_SECONDS = 600.0


class Scene:
    """A deletion whose clock, Eureka and API server a test plays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.is_away, self.api_fails = 0.0, True, False
        self.released: list[float] = []
        self.left_behind = ""
        monkeypatch.setattr(module, "elapsed_seconds", lambda: self.now)
        monkeypatch.setattr(module, "set_finalizer", self._release)
        registry: Any = SimpleNamespace(known=lambda **_: [], apply=self._apply, condition=Well)
        self.registries = Registries({"default": registry})
        nothing: Any = SimpleNamespace(syncers_of=lambda _: frozenset(), asked=lambda _: None)
        transfer = OwnershipTransfer(Cluster("lab", "u"), nothing, nothing)
        self.deletion = Deletion(Cluster("lab", "u"), nothing, nothing, transfer, RELEASE_SECONDS)

    def reconcile(self, now: float, syncer: dict[str, Any] | None = SYNCER) -> None:
        """Reconcile the syncer at this time."""
        self.now = now
        self.left_behind = self.deletion.of(KEY, syncer, self.registries).left_behind

    def _apply(self, *_: Any) -> Any:
        if self.is_away:
            raise RegistryUnreachable("away")
        return SimpleNamespace(done=(), failures=())

    def _release(self, *_: Any, **__: Any) -> None:
        if self.api_fails:
            raise KubernetesError("busy", status_code=503)
        self.released.append(self.now)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """An Eureka that is away."""
    return Scene(monkeypatch)


def test_an_api_that_fails_at_the_release_does_not_begin_the_wait_anew(scene: Scene) -> None:
    """The next reconcile lets it go."""
    scene.reconcile(0)
    scene.api_fails = True
    scene.reconcile(RELEASE_SECONDS + 1)
    scene.api_fails = False
    scene.reconcile(RELEASE_SECONDS + 2)
    assert scene.released == [RELEASE_SECONDS + 2]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_wait_is_over_with_its_syncer(scene: Scene, is_away: bool) -> None:
    """Another one of the same name waits as long as any."""
    scene.reconcile(0)
    scene.is_away = is_away
    scene.reconcile(1, None)  # its finalizer was removed by hand
    scene.is_away = True
    scene.reconcile(10 * RELEASE_SECONDS)
    assert (scene.released, scene.left_behind) == ([], "")


def test_a_deleted_syncer_waits_for_as_long_as_is_configured(scene: Scene) -> None:
    """What it registered is still to be taken out; then a namespace waits no longer for an Eureka."""
    scene.reconcile(0)
    scene.reconcile(RELEASE_SECONDS - 1)
    assert scene.released == []
    scene.reconcile(RELEASE_SECONDS + 1)
    assert scene.released == [RELEASE_SECONDS + 1]
    assert "Eureka could not be asked for 601 s (away)" in scene.left_behind


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
    for present, ours in ((True, [FINALIZER]), (False, [])):
        api.meanwhile += meanwhile
        set_finalizer(api, SYNCERS, SYNCER, FINALIZER, present=present)  # type: ignore[arg-type]
        assert sorted(set(api.held)) == sorted({"somebody.example/first", *meanwhile, *ours})
