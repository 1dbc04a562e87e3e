"""Subjects of the proof: one application for each disturbance and each strategy against it."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.prestop import add_drain_to_workload
from lab.workloads import Object

PORT = 8080
POOL_LABEL = "lab/pool"
_WEB_SERVER_SCRIPT = Path(__file__).parents[1] / "web.py"
_PRESTOP_SLEEP_SECONDS = 10


class Scenario(StrEnum):
    """The disturbance of an application while it is called."""

    ROLLED = "rolling update"
    SCALED = "scale down"
    DRAINED = "node drained"
    OPERATOR = "operator killed"
    """A rolling update during which the leading operator is killed."""

    PEER = "Eureka peer restarted"
    """A rolling update during which the Eureka server that everybody asks first is restarted."""

    UNDISTURBED = "left alone"
    """No disturbance: if calls fail here, the machine or the callers are at fault, and the run is
    worthless.
    """

    @property
    def namespace(self) -> str:
        """Namespace of its applications; separate where an operator or a Eureka is disturbed for this
        scenario alone.
        """
        own = {Scenario.OPERATOR: "proof-operator", Scenario.PEER: "proof-peer"}
        return own.get(self, "proof")

    @property
    def pool(self) -> str:
        """Pool of nodes on which its pods run."""
        return "drained" if self is Scenario.DRAINED else "common"


class Strategy(StrEnum):
    """An application's way to end its pods while they are called."""

    NONE = "no drain"
    SLEEP = "10 s sleep"
    EUREKUBE_DRAIN = "ours"
    OUT_OF_SERVICE = "out of service"
    """Eurekube's drain, with a syncer that shows OUT_OF_SERVICE in Eureka until the pod is gone."""

    @property
    def has_computed_drain(self) -> bool:
        """True if its pods serve on for the computed time of a drain."""
        return self in (Strategy.EUREKUBE_DRAIN, Strategy.OUT_OF_SERVICE)


@dataclass(frozen=True, slots=True)
class Subject:
    """One application, which callers call by its name."""

    scenario: Scenario
    strategy: Strategy

    @property
    def name(self) -> str:
        """Name `rating-...` of the application, at most 45 characters."""
        return "-".join(["rating", *self.scenario.lower().split(), *self.strategy.split()])

    def longest_called_seconds(self, drain: Drain) -> float:
        """Return the longest time in seconds that a removed instance may still be called, without the
        margin.
        """
        takes_over = self.scenario is Scenario.OPERATOR
        return drain.forgotten_after_seconds + (drain.take_over_seconds if takes_over else 0)

    @property
    def syncer_spec(self) -> Object:
        """Fields of its syncer's spec besides the selector."""
        return {"onTermination": "OutOfService"} if self.strategy is Strategy.OUT_OF_SERVICE else {}

    def deployment(self, replicas: int, drain: Drain) -> Object:
        """Return the Deployment as a user of that strategy writes it; all else is Kubernetes' default."""
        container: Object = {
            "name": "rating",
            "image": "example.invalid/rating",
            "command": [sys.executable, "-I", "-S", str(_WEB_SERVER_SCRIPT)],
            "env": [{"name": "PORT", "value": str(PORT)}],
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 2},
        }
        pod: Object = {"nodeSelector": {POOL_LABEL: self.scenario.pool}, "containers": [container]}
        spec: Object = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": self.name}},
            "template": {"metadata": {"labels": {"app": self.name}}, "spec": pod},
        }
        if self.strategy is Strategy.SLEEP:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": _PRESTOP_SLEEP_SECONDS}}}
        if self.strategy.has_computed_drain:
            spec = add_drain_to_workload("Deployment", spec, drain)
        metadata = {"namespace": self.scenario.namespace, "name": self.name}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
