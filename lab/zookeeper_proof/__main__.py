"""`python -m lab.zookeeper_proof FILE`, inside a network of the lab's own: runs the proof and writes its
findings.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import requests

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.prestop import add_drain_to_workload
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.servers import ZooKeeperServers
from lab.lab import Lab
from lab.operators import make_operator_process
from lab.pod import PodLife
from lab.processes import Process
from lab.progress import say
from lab.proof.subjects import PORT, Scenario, Strategy, Subject
from lab.sandbox import Sandbox
from lab.staging import ProofStage
from lab.workloads import DEPLOYMENTS, Cluster, Object, wait_for
from lab.zookeeper import ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperServer

NAMESPACE = "proof"
APPLICATION = "rating"
REPLICAS = 2
ENSEMBLE_ADDRESSES = ("10.20.0.11", "10.20.0.12", "10.20.0.13")
DRAIN_TIMES = Drain(server_cache_seconds=0, client_fetch_seconds=0)
"""The drain times: between a ZooKeeper and its callers is one cache, that of their load balancer."""

_FREEZE_SECONDS = 15.0
"""Seconds of a freeze: longer than the operator's session, and than an ensemble needs to elect a leader."""

_TIMEOUT_SECONDS = 240.0
_READY_TIMEOUT_SECONDS = 120.0
_CALLS_PER_REQUEST = 10


@dataclass(slots=True)
class Rollout:
    """One rollout; times are seconds since 1970.

    :ivar failed: errors that callers got; ``answered``: the pods that answered.
    :ivar there: the addresses that are registered at the end; ``ready``: those of the new pods.
    """

    name: str
    began: float
    ended: float = 0.0
    calls: int = 0
    failed: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    there: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)


class ContinuousCalls:
    """A client's calls, one after the other, until :meth:`end`."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._rollout: Rollout | None = None
        self._thread = threading.Thread(target=self._call_repeatedly, name="calls", daemon=True)
        self._thread.start()

    def count_for_rollout(self, rollout: Rollout) -> None:
        """Count all further calls for a rollout."""
        with self._lock:
            self._rollout = rollout

    def end(self) -> None:
        """End the calls."""
        self._ended.set()
        self._thread.join()

    def _call_repeatedly(self) -> None:
        while not self._ended.is_set():
            try:
                answers = self._client.get(f"/calls/{APPLICATION}/{_CALLS_PER_REQUEST}")
            except requests.RequestException as error:
                answers = [f"failed: the caller itself: {error}"]
            with self._lock:
                if self._rollout is not None:
                    self._rollout.calls += len(answers)
                    self._rollout.failed += [one for one in answers if one.startswith("failed: ")]
                    self._rollout.answered |= {
                        one.strip() for one in answers if not one.startswith("failed: ")
                    }
            time.sleep(0.1)


class Stage(ProofStage):
    """A lab with real pods, an ensemble of three ZooKeeper servers, two operators, and a caller."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: dict[str, Process] = {}
        self.sandboxes: list[Sandbox] = []
        self._starts = 0

    def prepare(self) -> None:
        """Start servers, operators, the application and its caller."""
        self.lab = Lab(eureka=0, nodes=2, pods="real")
        self.cleanups.enter_context(self.lab)
        self.sandboxes = [self.cleanups.enter_context(Sandbox(address)) for address in ENSEMBLE_ADDRESSES]
        self.ensemble = self.cleanups.enter_context(ZooKeeperEnsemble(3, sandboxes=self.sandboxes))
        self.cluster = Cluster(self.lab.kubeconfig)
        self.install_crds()
        self.cluster.create_namespace(NAMESPACE)
        for name in ("operator-a", "operator-b"):
            self.start_operator(name)
        self.cluster.apply(DEPLOYMENTS, _deployment_object())
        self.cluster.apply_service(NAMESPACE, APPLICATION, PORT)
        self.cluster.apply_syncer(NAMESPACE, APPLICATION)
        wait_for(lambda: self.is_rollout_complete, "the pods", _TIMEOUT_SECONDS)
        self.client = ZooKeeperClient(self.ensemble.url, "/services", self.lab.directory / "logs", {})
        self.cleanups.callback(self.client.close)
        self.client.start()
        wait_for(
            lambda: len(self.client.get(f"/instances/{APPLICATION}")) == REPLICAS, "the pods in the caller"
        )
        self.calls = ContinuousCalls(self.client)
        self.cleanups.callback(self.calls.end)

    def start_operator(self, name: str) -> None:
        """Start a replica of the operator, and wait until it works or stands by."""
        self._starts += 1
        environment = {
            "EUREKA_URL": self.ensemble.url,
            "KUBECONFIG": str(self.lab.kubeconfig),
            "WATCH_NAMESPACE": NAMESPACE,
            "LEASE_NAME": NAMESPACE,
            "POD_NAME": name,
            "CLUSTER_NAME": "proof",
        }
        log = self.lab.directory / "logs" / f"{name}-{self._starts}.log"
        operator = self.operators[name] = make_operator_process(name, log, **environment)
        self.cleanups.callback(operator.kill)
        operator.start()

    @property
    def leader(self) -> str:
        """Name of the operator that leads."""
        return self.cluster.leader(NAMESPACE)

    def find_ensemble_leader(self) -> int:
        """Return the index of the server that leads the ensemble."""
        roles = [one.read_role() for one in self.ensemble.servers]
        return roles.index("leader")

    @property
    def lives(self) -> list[PodLife]:
        """The recorded life of each pod so far, ordered by its start."""
        return list(self.lab.kubernetes.kubelet.lives)

    @property
    def is_rollout_complete(self) -> bool:
        """True if the Deployment's rollout is complete."""
        return self.cluster.is_rollout_complete(NAMESPACE, APPLICATION, REPLICAS)

    def read_registered_addresses(self) -> list[str]:
        """Return the addresses of the owned instances in ZooKeeper, sorted."""
        servers = ZooKeeperServers(ZooKeeperConnection.from_settings({"url": self.ensemble.url}.get))
        try:
            return sorted(one.ip_address for one in servers.list_everywhere()[0] if one.owner)
        finally:
            servers.close()


class RolloutSequence:
    """The rollouts, one after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.rollouts: list[Rollout] = []

    @contextmanager
    def disturb_nothing(self) -> Iterator[None]:
        """Disturb nothing during the block."""
        yield

    @contextmanager
    def kill_operator(self) -> Iterator[None]:
        """Kill the leading operator and start it again; the other operator takes over meanwhile."""
        name = self._stage.leader
        self._stage.operators[name].kill()
        say(f"{name} killed")
        self._stage.start_operator(name)
        yield

    @contextmanager
    def lose_operator_session(self) -> Iterator[None]:
        """Freeze the leading operator for longer than its ZooKeeper session lasts."""
        operator = self._stage.operators[self._stage.leader]
        operator.pause()
        time.sleep(_FREEZE_SECONDS)
        operator.resume()
        yield

    @contextmanager
    def kill_ensemble_leader(self) -> Iterator[None]:
        """Kill the server that leads the ensemble during the block."""
        server = self._ensemble_leader()
        server.kill()
        yield
        server.start()

    @contextmanager
    def freeze_ensemble_leader(self) -> Iterator[None]:
        """Freeze the server that leads the ensemble: its connections stay open, and nothing is answered."""
        server = self._ensemble_leader()
        server.pause()
        yield
        server.resume()

    @contextmanager
    def isolate_ensemble_leader(self) -> Iterator[None]:
        """Cut the server that leads the ensemble off from all clients and servers."""
        sandbox = self._stage.sandboxes[self._stage.find_ensemble_leader()]
        sandbox.cut()
        yield
        sandbox.heal()

    def _ensemble_leader(self) -> ZooKeeperServer:
        return self._stage.ensemble.servers[self._stage.find_ensemble_leader()]

    def roll(self, name: str, disturbance: Callable[[], AbstractContextManager[None]]) -> None:
        """Roll the application out during a disturbance, and record the calls."""
        stage, known = self._stage, {id(life) for life in self._stage.lives}
        wait_for(
            self._does_caller_know_all_pods, "the pods to be found by the caller", _READY_TIMEOUT_SECONDS
        )
        rollout = Rollout(name, time.time())
        stage.calls.count_for_rollout(rollout)
        stage.cluster.roll(NAMESPACE, APPLICATION, str(len(self.rollouts) + 2))
        with disturbance():
            wait_for(lambda: stage.is_rollout_complete, f"{name}: the roll-out to end", _TIMEOUT_SECONDS)
            wait_for(self._are_deleted_pods_gone, f"{name}: the old pods to go", _TIMEOUT_SECONDS)
        new = [life for life in stage.lives if id(life) not in known]
        rollout.ready = sorted(life.address for life in new)
        wait_for(lambda: {life.name for life in new} <= rollout.answered, "each new pod to be called")
        wait_for(
            lambda: stage.read_registered_addresses() == rollout.ready,
            "what is registered to be what is ready",
        )
        rollout.there = stage.read_registered_addresses()
        rollout.ended = time.time()
        self.rollouts.append(rollout)
        say(
            f"{name}: {rollout.ended - rollout.began:.1f} s, {rollout.calls} calls, {len(rollout.failed)} "
            "failed"
        )

    def _does_caller_know_all_pods(self) -> bool:
        with suppress(requests.RequestException):
            return len(self._stage.client.get(f"/instances/{APPLICATION}")) == REPLICAS
        return False

    def _are_deleted_pods_gone(self) -> bool:
        return not self._stage.lab.kubernetes.kubelet.has_ending_pods


def _deployment_object() -> Object:
    """Return the proof's Deployment, with the drain, and no minReadySeconds."""
    item = Subject(Scenario.ROLLED, Strategy.NONE).deployment(REPLICAS, DRAIN_TIMES)
    spec = add_drain_to_workload("Deployment", item["spec"], DRAIN_TIMES)
    del spec["minReadySeconds"]
    labels = {"app": APPLICATION}
    pod = dict(spec["template"]["spec"])
    del pod["nodeSelector"]
    (container,) = pod["containers"]
    says = {"name": "SAYS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    pod["containers"] = [{**container, "env": [*container["env"], says]}]
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return {
        **item,
        "metadata": {"namespace": NAMESPACE, "name": APPLICATION},
        "spec": {
            **spec,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "strategy": strategy,
        },
    }


def main() -> None:
    """Run the proof and write its report."""
    parser = argparse.ArgumentParser(prog="python -m lab.zookeeper_proof", description=__doc__)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    with Stage() as stage:
        sequence = RolloutSequence(stage)
        sequence.roll("rolled", sequence.disturb_nothing)
        sequence.roll("operator killed", sequence.kill_operator)
        sequence.roll("session lost", sequence.lose_operator_session)
        sequence.roll("member killed", sequence.kill_ensemble_leader)
        sequence.roll("member frozen", sequence.freeze_ensemble_leader)
        sequence.roll("member split", sequence.isolate_ensemble_leader)
        stage.calls.end()
        rollouts = [
            {**asdict(rollout), "answered": sorted(rollout.answered)} for rollout in sequence.rollouts
        ]
    arguments.file.write_text(json.dumps({"drain": asdict(DRAIN_TIMES), "acts": rollouts}))


if __name__ == "__main__":
    main()
