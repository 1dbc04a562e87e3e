"""Protocols of the demo's surroundings: its servers, its operator and the workload with its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from eurekube_provider.core.model import Instance

Object = dict[str, Any]

NAMESPACE, APP, PORT = "shop", "rating", 8080
"""Namespace, name and port of the story's Service, for which the program makes a syncer."""


class StoryFailed(Exception):
    """Raised where a check of the story failed, or the story cannot go on."""


class Workload(Protocol):
    """The Service of the story and its pods."""

    def start(self, replicas: int) -> None:
        """Make the Service and ``replicas`` pods."""

    def scale(self, replicas: int) -> None:
        """Change the number of pods to ``replicas``."""

    def set_ready(self, pod: Object, *, ready: bool) -> None:
        """Make a pod ready or unready, as a readiness probe does."""

    def roll(self) -> None:
        """Replace all pods by new ones."""


class OperatorProcess(Protocol):
    """An operator's process that the demo has started."""

    @property
    def exit_code(self) -> int | None:
        """Return the process's exit code; None while it runs."""

    def read_output(self) -> str:
        """Return the operator's log so far."""

    def stop(self) -> None:
        """End the operator, unless it is to keep running after the story."""


class Stage(Protocol):
    """The surroundings of the demo: Kubernetes with the workload, Eureka, and commands on them."""

    @property
    def intro_lines(self) -> Sequence[str]:
        """Lines for a person that name the real parts of the demo."""

    @property
    def deploy_tool(self) -> str:
        """The name of the tool that deploys the program, e.g. ``eurekube apply``."""

    @property
    def eureka_urls(self) -> Sequence[str]:
        """The service URLs of the Eureka servers."""

    @property
    def kubeconfig(self) -> Path:
        """The path of a kubeconfig with all rights."""

    @property
    def renewal_proof_seconds(self) -> float:
        """Seconds for which the stack's registration must stand to prove that it is renewed."""

    @property
    def workload(self) -> Workload:
        """The Service of the story, with its pods."""

    def deploy(self) -> None:
        """Deploy the program's stack ``dev``, or raise StoryFailed with the output."""

    def take_down(self) -> None:
        """Remove the stack that :meth:`deploy` made, or raise StoryFailed with the output."""

    def start_operator(self, environment: Mapping[str, str]) -> OperatorProcess:
        """Start an operator as a process, with further environment variables."""

    def instances(self, application: str) -> list[Instance]:
        """Return Eureka's instances of an application at this moment, past its caches."""

    def pause(self, seconds: float) -> None:
        """Wait ``seconds``; an interruption raises an exception here and ends the demo."""
