"""How long a deleted syncer waits for an Eureka that is away."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.operator import departure as module
from eurekube_provider.operator.departure import Departure
from eurekube_provider.operator.finalizer import FINALIZER

KEY = ("shop", "rating")
SYNCER: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "rating", "finalizers": [FINALIZER]}}
RELEASE_SECONDS = 600.0


class Scene:
    """A departure whose clock, Eureka and API server a test plays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.is_away, self.api_fails = 0.0, True, False
        self.released: list[float] = []
        self.events: list[str] = []
        monkeypatch.setattr(module, "elapsed_seconds", lambda: self.now)
        monkeypatch.setattr(module, "set_finalizer", self._release)
        view = SimpleNamespace(owned=lambda _: [])
        registry = SimpleNamespace(view=view, abandon=lambda _: [])
        self.departure = Departure(
            Cluster("lab", "u"),
            None,  # type: ignore[arg-type]
            {"default": registry},  # type: ignore[dict-item]
            SimpleNamespace(record=lambda *given: self.events.append(given[2])),  # type: ignore[arg-type]
            SimpleNamespace(add_after=lambda *_: None),  # type: ignore[arg-type]
            self._carry_out,
            lambda *_: None,  # type: ignore[arg-type]
            RELEASE_SECONDS,
            lambda *_: None,
        )

    def look(self, now: float, syncer: dict[str, Any] | None = SYNCER) -> None:
        """Look at the syncer at this time."""
        self.now = now
        with suppress(RegistryUnreachable, KubernetesError):
            self.departure.of(KEY, syncer, None)  # type: ignore[arg-type]

    def _carry_out(self, *_: Any) -> Any:
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
    """The next look lets it go."""
    scene.look(0)
    scene.api_fails = True
    scene.look(RELEASE_SECONDS + 1)
    scene.api_fails = False
    scene.look(RELEASE_SECONDS + 2)
    assert scene.released == [RELEASE_SECONDS + 2]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_wait_is_over_with_its_syncer(scene: Scene, is_away: bool) -> None:
    """Another one of the same name waits as long as any."""
    scene.look(0)
    scene.is_away = is_away
    scene.look(1, None)  # its finalizer was removed by hand
    scene.is_away = True
    scene.look(10 * RELEASE_SECONDS)
    assert (scene.released, scene.events) == ([], [])
