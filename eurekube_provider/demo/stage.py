"""The stage of the story: which servers it is played on, and who plays the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from eurekube_provider.core.model import Instance

Object = dict[str, Any]

NAMESPACE, APP, PORT = "shop", "rating", 8080
"""The Service of the story, for which the program makes a syncer."""


class StoryFailed(Exception):
    """A check of the story did not hold, or the story could not go on."""


class Workload(Protocol):
    """The Service of the story and its pods, which others make and end."""

    def start(self, replicas: int) -> None:
        """Make the Service and so many pods."""

    def scale(self, replicas: int) -> None:
        """Have so many pods."""

    def set_ready(self, pod: Object, *, ready: bool) -> None:
        """Have a pod become ready or unready, as a readiness probe does."""

    def roll(self) -> None:
        """Replace all pods by new ones."""


class OperatorProcess(Protocol):
    """An operator that was started."""

    @property
    def exit_code(self) -> int | None:
        """Return how it ended; None while it runs."""

    def text(self) -> str:
        """Return what it has logged."""

    def stop(self) -> None:
        """End it, unless it shall run on after the story."""


class Stage(Protocol):
    """Servers, and the way to deploy the program to them."""

    @property
    def opening(self) -> Sequence[str]:
        """Return what is played and what is real, in lines for a person."""

    @property
    def engine(self) -> str:
        """Return what deploys the program, e.g. ``eurekube apply``."""

    @property
    def eureka_urls(self) -> Sequence[str]:
        """Return the service URLs of the Eureka servers."""

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of somebody who may do everything."""

    @property
    def renewed_seconds(self) -> float:
        """Return how long the stack's registration must stand, to show that somebody renews it."""

    @property
    def workload(self) -> Workload:
        """Return the Service of the story."""

    def deploy(self) -> None:
        """Deploy the program's stack ``dev``.

        :raises StoryFailed: it cannot be deployed; says what was printed.
        """

    def take_down(self) -> None:
        """Remove what :meth:`deploy` made.

        :raises StoryFailed: it cannot be removed; says what was printed.
        """

    def start_operator(self, environment: Mapping[str, str]) -> OperatorProcess:
        """Start an operator as a process, with these variables besides the usual ones."""

    def instances(self, application: str) -> list[Instance]:
        """Return what Eureka holds of an application at this moment, past its caches."""

    def pause(self, seconds: float) -> None:
        """Wait; an interrupt ends the demo here."""
