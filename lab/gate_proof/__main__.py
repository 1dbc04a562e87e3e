"""`python -m lab.gate_proof VARIANT FILE`, inside a network of the lab's own: runs the proof and writes its
findings.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from eurekube_provider.core.drain_time import QUICK_CACHES_DRAIN
from eurekube_provider.core.prestop import add_drain_to_workload
from lab.eureka import EurekaServer
from lab.gate_proof import REPLICAS, SURGE, GateProofVariant
from lab.lab import Lab
from lab.listing import LONGEST_LIST_DELAY_SECONDS
from lab.operators import make_operator_process
from lab.pod import PodLife
from lab.processes import Process
from lab.progress import say
from lab.proof.calls import Call, read_calls, tally_calls
from lab.proof.form import PROOF_SETTINGS, ProofSettings
from lab.proof.subjects import PORT, Scenario, Strategy, Subject
from lab.spring import SpringClient, SpringGateway
from lab.staging import ProofStage
from lab.workloads import DEPLOYMENTS, Cluster, wait_for

NAMESPACE = "proof"
APPLICATION = "rating"
SMALL_APPLICATION, SMALL_REPLICAS = "review", 2
"""The application that is scaled to zero and back, and called through a Spring Cloud Gateway."""

GATEWAY_CALL_PAUSE_SECONDS = 0.1
CALLS_PER_SECOND = 20
_FREEZE_SECONDS = 25.0
_SCALED_TO_ZERO_SECONDS = 5.0
_POD_LIFE_TIME_FIELDS = ("ready_at", "opened_at", "deleted_at", "reported_at", "gone_at")
_TIMEOUT_SECONDS = 400.0
_READY_TIMEOUT_SECONDS = 120.0


_ESTABLISHED_TCP_STATE = "01"
"""State of an established connection in /proc/net/tcp."""

_QUICK_SERVER_CACHE_MS = QUICK_CACHES_DRAIN.server_cache_seconds * 1000

_QUICK_SETTINGS = replace(
    PROOF_SETTINGS["full"],
    drain=QUICK_CACHES_DRAIN,
    eureka_settings={"eureka.server.response-cache-update-interval-ms": f"{_QUICK_SERVER_CACHE_MS:g}"},
    client_settings={
        "eureka.client.registry-fetch-interval-seconds": f"{QUICK_CACHES_DRAIN.client_fetch_seconds:g}",
        "spring.cloud.loadbalancer.cache.ttl": f"{QUICK_CACHES_DRAIN.load_balancer_cache_seconds:g}s",
    },
)
"""Settings of a proof with the caches that the doctor advises, and all else as by default."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout.

    :ivar began: seconds since 1970, as are all times; ``opened`` is when the last gate opened.
    :ivar excused_seconds: seconds in which the disturbance kept the rollout from going on.
    :ivar stood: True if no old pod was deleted in that time.
    :ivar may_fail: True if calls may fail: they are counted, and are no failure of the proof.
    """

    name: str
    began: float
    opened: float
    ended: float
    excused_seconds: float = 0.0
    stood: bool = True
    may_fail: bool = False


class Stage(ProofStage):
    """A lab with real pods, three Eurekas, two operators that serve gates, and two kinds of callers."""

    def __init__(self, settings: ProofSettings) -> None:
        super().__init__()
        self.settings = settings
        self.operators: dict[str, Process] = {}
        self.clients: list[SpringClient] = []
        self._starts = 0

    def prepare(self) -> None:
        """Start servers, operators, the application and callers."""
        settings: dict[str, Any] = {
            "eureka_settings": self.settings.eureka_settings,
            "register_with_eureka": True,
        }
        self.lab = Lab(eureka=3, nodes=2, pods="real", **settings)
        self.cleanups.enter_context(self.lab)
        self.cluster = Cluster(self.lab.kubeconfig)
        self.install_crds()
        self.cluster.create_namespace(NAMESPACE)
        for name in ("operator-a", "operator-b"):
            self.start_operator(name)
        for name, replicas in ((APPLICATION, REPLICAS), (SMALL_APPLICATION, SMALL_REPLICAS)):
            self.cluster.apply(DEPLOYMENTS, self._deployment_object(name, replicas))
            self.cluster.apply_service(NAMESPACE, name, PORT)
            self.cluster.apply_syncer(NAMESPACE, name, **self._gate_spec)
        wait_for(lambda: self.is_rollout_complete, "ten pods", _TIMEOUT_SECONDS)
        client = self.launch_caller(self.lab, "caller", **self.settings.client_settings)
        self.clients.append(client)
        client.wait_until_ready()

        def does_caller_know_all_pods() -> bool:
            return len(client.get(f"/instances/{APPLICATION}").json()) == REPLICAS

        wait_for(does_caller_know_all_pods, "ten pods in the caller", LONGEST_LIST_DELAY_SECONDS)
        file = self.lab.directory / "calls.csv"
        client.begin_calls([APPLICATION], [APPLICATION], CALLS_PER_SECOND, file)
        self.call_files.append(file)

    def start_operator(self, name: str) -> None:
        """Start a replica of the operator, and wait until it works or stands by."""
        self._starts += 1
        environment = {
            "EUREKA_URL": ",".join(self.lab.eureka_urls),
            "KUBECONFIG": str(self.lab.kubeconfig),
            "WATCH_NAMESPACE": NAMESPACE,
            "GATE_NAMESPACE": "*",
            "LEASE_NAME": NAMESPACE,
            "POD_NAME": name,
            **self.settings.operator_settings,
        }
        log = self.lab.directory / "logs" / f"{name}-{self._starts}.log"
        operator = self.operators[name] = make_operator_process(name, log, **environment)
        self.cleanups.callback(operator.kill)
        operator.start()

    def kill_leader(self) -> str:
        """Send SIGKILL to the operator that leads; return its name."""
        holder = self.cluster.leader(NAMESPACE)
        self.operators[holder].kill()
        return holder

    def eurekas_in_use_first(self) -> list[EurekaServer]:
        """Return the Eureka servers, first those to which the caller is connected."""
        folder = Path(f"/proc/{self.clients[0].pid}")
        sockets = {str(one.readlink()) for one in (folder / "fd").iterdir()}
        used = set()
        for table in ("tcp", "tcp6"):
            for line in (folder / "net" / table).read_text().splitlines()[1:]:
                _, _, remote, state, *_, inode = line.split()[:10]
                if state == _ESTABLISHED_TCP_STATE and f"socket:[{inode}]" in sockets:
                    used.add(int(remote.rpartition(":")[2], 16))
        return sorted(self.lab.eurekas, key=lambda one: one.port not in used)

    @property
    def lives(self) -> list[PodLife]:
        """The recorded life of each pod so far, ordered by its start."""
        return list(self.lab.kubernetes.kubelet.lives)

    @property
    def is_rollout_complete(self) -> bool:
        """True if the Deployment's rollout is complete."""
        return self.cluster.is_rollout_complete(NAMESPACE, APPLICATION, REPLICAS)

    @property
    def _gate_spec(self) -> dict[str, Any]:
        if self.settings is PROOF_SETTINGS["full"]:
            return {}
        return {"readinessGate": {"callersSeconds": self.settings.drain.known_after_seconds}}

    def allow_open_gates_without_eureka(self) -> None:
        """Change the syncer so that gates open while no Eureka server answers."""
        gate = {**self._gate_spec.get("readinessGate", {}), "whenEurekaIsAway": "Open"}
        self.cluster.apply_syncer(NAMESPACE, APPLICATION, readinessGate=gate)

    def remove_gate(self) -> None:
        """Roll the application out with pods that declare no readiness gate."""
        self.cluster.apply(DEPLOYMENTS, self._deployment_object(declares_gate=False))

    def start_gateway(self) -> SpringGateway:
        """Start a Spring Cloud Gateway, and return it once it routes to the small application."""
        gateway = SpringGateway(
            self.lab.eureka_urls,
            name="gateway",
            log_directory=self.lab.directory / "logs",
            settings={"eureka.client.register-with-eureka": "false", **self.settings.client_settings},
        )
        self.cleanups.callback(gateway.close)
        gateway.start()
        wait_for(
            lambda: gateway.get(f"/{SMALL_APPLICATION}/").status_code == 200,
            "a route to each pod",
            LONGEST_LIST_DELAY_SECONDS,
        )
        return gateway

    def _deployment_object(
        self, name: str = APPLICATION, replicas: int = REPLICAS, *, declares_gate: bool = True
    ) -> dict[str, Any]:
        """Return a Deployment of the proof, with the drain, and no minReadySeconds."""
        item = Subject(Scenario.ROLLED, Strategy.NONE).deployment(replicas, self.settings.drain)
        spec = add_drain_to_workload(
            "Deployment", item["spec"], self.settings.drain, declares_gate=declares_gate
        )
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": dict(spec["template"]["spec"])}
        del template["spec"]["nodeSelector"]
        strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": SURGE}}
        selector = {"matchLabels": labels}
        return {
            **item,
            "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": {
                **spec,
                "minReadySeconds": 0,
                "selector": selector,
                "template": template,
                "strategy": strategy,
            },
        }


Disturbance = Callable[[], tuple[float, bool]]
"""A disturbance of a rollout; it returns the seconds in which the rollout could not go on, and True if no old
pod was deleted in that time.
"""


class RolloutSequence:
    """The rollouts, one after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.rollouts: list[Rollout] = []

    def roll(
        self,
        name: str,
        disturb: Disturbance = lambda: (0.0, True),
        begin: Callable[[], None] | None = None,
        *,
        may_fail: bool = False,
    ) -> None:
        """Roll the application out, and call `disturb` while its first new pods wait for callers.

        :param begin: begins the rollout; by default a new version of the same template.
        :param may_fail: True to wait afterwards until callers know the new pods, so that each failed call
            counts for this rollout.
        """
        stage, known = self._stage, {id(life) for life in self._stage.lives}
        began = time.time()
        if begin is None:
            stage.cluster.roll(NAMESPACE, APPLICATION, str(len(self.rollouts) + 2))
        else:
            begin()

        def new_lives() -> list[PodLife]:
            return [life for life in stage.lives if id(life) not in known]

        wait_for(
            lambda: sum(life.ready_at is not None for life in new_lives()) >= SURGE,
            "new pods",
            _READY_TIMEOUT_SECONDS,
        )
        excused, stood = disturb()
        wait_for(lambda: stage.is_rollout_complete, f"{name}: the roll-out to end", _TIMEOUT_SECONDS)
        opened = max(life.opened_at or life.ready_at or 0.0 for life in new_lives())
        wait_for(self._are_deleted_pods_gone, f"{name}: the old pods to go", _TIMEOUT_SECONDS)
        if may_fail:
            time.sleep(stage.settings.drain.known_after_seconds)
        self.rollouts.append(Rollout(name, began, opened, time.time(), excused, stood, may_fail))
        say(f"{name}: {opened - began:.1f} s until the last pod was ready")

    def _are_deleted_pods_gone(self) -> bool:
        return not self._stage.lab.kubernetes.kubelet.has_ending_pods

    def kill_leader(self) -> tuple[float, bool]:
        """Kill the leading operator and start it again; the other one takes over: a `Disturbance`."""
        self._stage.start_operator(self._stage.kill_leader())
        return 0.0, True

    def make_freeze_disturbance(self, servers: int) -> Disturbance:
        """Return a disturbance for :meth:`roll` that freezes this number of Eureka servers for 25 seconds."""

        def disturb() -> tuple[float, bool]:
            deleted = self._count_deleted_pods()
            with self._freeze_servers(servers):
                time.sleep(_FREEZE_SECONDS)
                stood = self._count_deleted_pods() == deleted
            return _FREEZE_SECONDS, stood

        return disturb

    def freeze_until_rollout_ends(self) -> tuple[float, bool]:
        """Freeze all servers until the rollout has ended: a `Disturbance`."""
        began = time.time()
        with self._freeze_servers(len(self._stage.lab.eurekas)):
            wait_for(
                lambda: self._stage.is_rollout_complete,
                "the roll-out to end without Eureka",
                _TIMEOUT_SECONDS,
            )
            wait_for(self._are_deleted_pods_gone, "the old pods to go without Eureka", _TIMEOUT_SECONDS)
        return time.time() - began, False

    def scale_to_zero_and_back(self) -> dict[str, Any]:
        """Scale the small application to zero and back while it is called through a gateway."""
        stage, known = self._stage, {id(life) for life in self._stage.lives}
        calls = GatewayCalls(stage.start_gateway(), f"/{SMALL_APPLICATION}/")
        began = time.time()
        stage.cluster.scale(NAMESPACE, SMALL_APPLICATION, 0)
        wait_for(
            lambda: all(life.gone_at for life in stage.lives if life.labels["app"] == SMALL_APPLICATION),
            "the last pod to go",
            _TIMEOUT_SECONDS,
        )
        empty_at = time.time()
        time.sleep(_SCALED_TO_ZERO_SECONDS)
        stage.cluster.scale(NAMESPACE, SMALL_APPLICATION, SMALL_REPLICAS)

        def new_lives() -> list[PodLife]:
            return [life for life in stage.lives if id(life) not in known and life.opened_at]

        wait_for(lambda: len(new_lives()) == SMALL_REPLICAS, "the pods to be back", _TIMEOUT_SECONDS)
        time.sleep(stage.settings.drain.known_after_seconds + _SCALED_TO_ZERO_SECONDS)
        calls.end()
        return {
            "began": began,
            "empty": empty_at,
            "ready": min(life.ready_at or 0.0 for life in new_lives()),
            "opened": min(life.opened_at or 0.0 for life in new_lives()),
            "answers": calls.answers,
        }

    def _count_deleted_pods(self) -> int:
        return sum(life.deleted_at is not None for life in self._stage.lives)

    @contextmanager
    def _freeze_servers(self, servers: int) -> Iterator[None]:
        frozen = self._stage.eurekas_in_use_first()[:servers]
        for one in frozen:
            one.pause()
        say(f"froze {servers} Eureka servers")
        yield
        for one in frozen:
            one.resume()
        say(f"resumed {servers} Eureka servers")


class GatewayCalls:
    """Calls of one path through a gateway, one after the other, until they are ended.

    :ivar answers: the time when each call began, in seconds since 1970, and the answer's status.
    """

    def __init__(self, gateway: SpringGateway, path: str) -> None:
        self.answers: list[tuple[float, int]] = []
        self._gateway, self._path, self._ended = gateway, path, threading.Event()
        self._thread = threading.Thread(target=self._call_repeatedly, name="gateway-calls", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Make no more calls; wait for the last answer."""
        self._ended.set()
        self._thread.join()

    def _call_repeatedly(self) -> None:
        while not self._ended.wait(GATEWAY_CALL_PAUSE_SECONDS):
            at = time.time()
            self.answers.append((at, self._gateway.get(self._path).status_code))


def describe_pods(stage: Stage, counted_from: float) -> list[dict[str, Any]]:
    """Return each pod's own times, and when each client called the pod first and last."""
    calls: dict[str, dict[str, tuple[float, float]]] = {}
    for file in stage.call_files:
        for call in read_calls(file):
            of_target = calls.setdefault(call.target, {})
            first, _ = of_target.get(call.client, (call.at, 0.0))
            of_target[call.client] = first, call.at
    return [
        {
            "pod": life.name,
            "ready": life.ready_at,
            "opened": life.opened_at,
            "deleted": life.deleted_at,
            "clients": calls.get(life.address, {}),
        }
        for life in stage.lives
        if life.labels["app"] == APPLICATION
        and ((life.ready_at or 0.0) >= counted_from or (life.deleted_at or 0.0) >= counted_from)
    ]


def explain_failures(failures: Iterable[Call], lives: Iterable[PodLife]) -> list[dict[str, Any]]:
    """Return failed calls with the called pod, and how many seconds before the call each change of it was."""
    pods = {life.address: life for life in lives}
    found = []
    for call in failures:
        life = pods.get(call.target)
        since = {} if life is None else {name: getattr(life, name) for name in _POD_LIFE_TIME_FIELDS}
        ago = {name: round(call.at - at, 3) for name, at in since.items() if at is not None}
        pod = None if life is None else life.name
        found.append({"at": call.at, "client": call.client, "outcome": call.outcome, "pod": pod, "ago": ago})
    return found


def main() -> None:
    """Run the proof and write its report."""
    parser = argparse.ArgumentParser(prog="python -m lab.gate_proof", description=__doc__)
    parser.add_argument("variant", choices=get_args(GateProofVariant))
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    settings = {
        "defaults": PROOF_SETTINGS["full"],
        "quick": _QUICK_SETTINGS,
        "short": PROOF_SETTINGS["short"],
    }[arguments.variant]
    with Stage(settings) as stage:
        time.sleep(settings.warm_up_seconds)
        counted_from = time.time()
        sequence = RolloutSequence(stage)
        sequence.roll("rolled")
        if arguments.variant != "quick":
            sequence.roll("leader killed", sequence.kill_leader)
            sequence.roll("one Eureka frozen", sequence.make_freeze_disturbance(1))
            sequence.roll("all Eurekas frozen", sequence.make_freeze_disturbance(3))
        counted_until = time.time()
        emptied = sequence.scale_to_zero_and_back() if arguments.variant != "quick" else None
        if arguments.variant == "defaults":
            stage.allow_open_gates_without_eureka()
            sequence.roll("all Eurekas frozen, and Open", sequence.freeze_until_rollout_ends, may_fail=True)
        if arguments.variant != "short":
            sequence.roll("without the gate", begin=stage.remove_gate, may_fail=True)
        for client in stage.clients:
            client.end_calls()
        found = tally_calls(stage.call_files, counted_from, counted_until)[APPLICATION]
        failed = {
            rollout.name: tally_calls(stage.call_files, rollout.began, rollout.ended)[APPLICATION]
            for rollout in sequence.rollouts
            if rollout.may_fail
        }
        if found.failures:
            for operator in stage.operators.values():
                say(operator.read_log_end())
        report = {
            "drain": {**asdict(settings.drain), "known_after_seconds": settings.drain.known_after_seconds},
            "acts": [asdict(rollout) for rollout in sequence.rollouts],
            "calls": dict(found.calls),
            "failures": explain_failures(found.failures, stage.lives),
            "counted_failures": {
                name: {"failed": len(one.failures), "calls": one.calls.total()}
                for name, one in failed.items()
            },
            "pods": describe_pods(stage, counted_from),
            "emptied": emptied,
        }
    arguments.file.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
