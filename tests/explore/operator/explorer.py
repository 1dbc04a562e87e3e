"""Runs an edit of the cluster beside its operator, with faults at requests, and checks the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.operator.settings import Settings
from tests.explore.explorer import command
from tests.explore.operator.edits import Edit, Step
from tests.explore.operator.kube import Change
from tests.explore.operator.rules import BRAKE_MS, TAKE_OVER_MS, Witness
from tests.explore.operator.threads import Process, Scheduler
from tests.explore.operator.workloads import SHOP, Workloads
from tests.explore.operator.world import BALANCER_URL, OTHER_URL, Fault, Happening, World

Faults = Mapping[int, Happening]

STEADY_SECONDS = 50.0
"""Seconds from the start until the operator trusts lists."""

WINDOW_SECONDS = 6.0
"""Seconds after the last step of an edit in which requests are numbered, and faults may happen."""

CALM_SECONDS = 75.0
"""Seconds from the last disturbance until everything must be as the cluster wants; a brake may add a
minute.
"""

MOST_READS_A_SECOND = 300
"""The most reads of all servers in a second: more are sent only where reads cause each other."""

RESTART_MS = 2_000

KUBELET_MS = 1_500
"""Milliseconds until a kubelet sees that a readiness gate is open."""


@dataclass(slots=True)
class Outcome:
    """The result of one sequence.

    :ivar places: the requests before the calm, by number; empty text for requests at which a fault makes no
        difference.
    """

    trace: list[str]
    places: list[str]
    violations: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        """The numbers of requests at which a fault makes a difference; of all requests if there are none."""
        return [at for at, what in enumerate(self.places) if what] or list(range(len(self.places)))


@dataclass(frozen=True, slots=True)
class Setup:
    """The circumstances in which an edit is run.

    :param replicas: of the operator; of several, one leads.
    :param mode: True if changes and renewals travel in batches.
    :param chance: in one of so many acquisitions of a lock, others run first; 0 for never.
    :param is_balanced: True if one URL is known, behind which a balancer asks the servers in turn.
    """

    servers: int = 1
    replicas: int = 1
    mode: BatchMode = BatchMode.REST
    chance: int = 0
    is_balanced: bool = False


ONE_SERVER = Setup()


class Explored:
    """One edit of a cluster with its faults, from the start to the final calm."""

    scheduler_type: type[Scheduler] = Scheduler

    def __init__(self, edit: Edit, faults: Faults, setup: Setup = ONE_SERVER, *, seed: int = 0) -> None:
        self._edit, self._faults, self._setup = edit, faults, setup
        self.world = World.of(setup.servers, seed, self.scheduler_type)
        self.workloads = Workloads(self.world.kube)
        self.witness = Witness(self.world, edit.keeps)
        self.outcome = Outcome(self.world.trace, self.world.places, self.witness.violations)
        self._stops: dict[Process, Any] = {}
        self.workloads.name_cluster = self.name_cluster
        self.workloads.registers_itself = self.witness.pod_registers_itself
        self.world.act = lambda act: act(self)

    def run(self) -> Outcome:
        """Run the edit, and return its outcome."""
        try:
            self._begin()
            self._disturb()
            self._settle()
        finally:
            self.world.scheduler.chance = 0
            for process in self.world.processes:
                if not process.is_dead:
                    self.world.scheduler.kill(process)
        return self.outcome

    def _begin(self) -> None:
        workloads = self.workloads
        if self._edit.is_gated:
            self._begin_kubelets()
        workloads.service()
        for number in range(3):
            workloads.pod(f"a-{number}")
        workloads.syncer(**self._edit.spec)
        self._edit.begin(workloads)
        self.witness.register_foreign()
        for _ in range(self._setup.replicas):
            self._start()
        self._pass(STEADY_SECONDS)
        self.world.scheduler.chance = self._setup.chance
        self.witness.watch()
        self.witness.look()

    def _begin_kubelets(self) -> None:
        """Have a node be ready, and its kubelet look at each change of a pod."""
        kube, clock = self.world.kube, self.world.cluster.clock
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": []}
        kube.put("nodes", {"metadata": {"name": "node-1"}, "status": ready})
        told = kube.changed

        def changed(change: Change) -> None:
            told(change)
            clock.run_after(KUBELET_MS, partial(self.workloads.kubelet, change))

        kube.changed = changed

    def _start(self) -> None:
        urls = (BALANCER_URL,) if self._setup.is_balanced else self.world.cluster.urls
        connection = Connection(urls, mode=self._setup.mode)
        connections = {"default": connection}
        if self._edit.names_another:
            connections["other"] = Connection((OTHER_URL,))
        settings = Settings(
            connections,
            retry_period_seconds=3.0,
            publish=frozenset({(SHOP, "stars")}),
            strict_names=True,
            web_address="",
            drain_seconds=0,
            gate_namespaces=(SHOP,) if self._edit.is_gated else (),
            pod_name="operator",
            cluster_name=self.witness.cluster.name if len(self.witness.names) > 1 else None,
        )
        process, stop = self.launched(settings)
        self._stops[process] = stop

    def launched(self, settings: Settings) -> tuple[Process, Any]:
        """Start a replica; return its process, and the event that stops it in order."""
        return self.world.start(settings)

    def end_in_peace(self) -> None:
        """Stop the running replicas in order; others start a little later."""
        self.world.disturb()
        for process, stop in self._stops.items():
            if not process.is_dead and not stop.is_set():
                stop.set()
                self.witness.led_again()
                self._killed(process)

    def name_cluster(self, name: str, *, beside_ms: int = 0) -> None:
        """Stop the running replicas, and start others that use another cluster name.

        :param beside_ms: for so long one that knows the new name runs beside those that know the old one.
        """
        self.witness.name_cluster(name)
        if beside_ms:
            before = list(self._stops.items())
            self._restart()
            self.world.disturb(self.world.now_ms + beside_ms)
            self.world.cluster.clock.run_after(beside_ms, lambda: self._end(before))
        else:
            self.end_in_peace()

    def _end(self, those: list[tuple[Process, Any]]) -> None:
        for process, stop in those:
            if not process.is_dead and not stop.is_set():
                self.world.disturb()
                self.witness.led_again()
                stop.set()

    def kill_all(self) -> None:
        """Kill the running replicas."""
        self.witness.led_again()
        for process, stop in self._stops.items():
            if not process.is_dead and not stop.is_set():
                self.world.kill_later(process)

    def _disturb(self) -> None:
        world = self.world
        world.begin_faults(self._faults)
        world.killed = self._killed
        self.witness.brake_ms = BRAKE_MS if self._edit.is_braked else 0
        self.witness.hides_terminations = self._edit.is_braked and len(self._edit.parts) > 1
        if any(isinstance(one, Fault) and one.kills for one in self._faults.values()):
            self.witness.take_over_ms = TAKE_OVER_MS
        if self._edit.unobserved:
            world.kube.behind = world.kube.version
        self._take_steps()
        if self._edit.unobserved:
            self._pass(0.5)
            world.kube.thaw()
            world.kube.expire()
        world.disturb()
        self._pass(WINDOW_SECONDS)
        world.end_faults()
        world.note("-- calm")

    def _take_steps(self) -> None:
        for wait, step in self._edit.steps:
            self._pass(wait)
            self._take_step(step)

    def _take_step(self, step: Step) -> None:
        self.world.note("-- a step of the edit")
        step(self.workloads)

    def _settle(self) -> None:
        calm_ms = round(CALM_SECONDS * 1000) + self.witness.brake_ms + self.witness.doubled_ms
        end = max(self.world.disturbed_ms, self.world.now_ms) + calm_ms
        while self.world.now_ms < end and not self.witness.violations:
            self._pass(min(5.0, (end - self.world.now_ms) / 1000))
        self.witness.compare()
        a_second = Counter(int(line[:7]) // 1000 for line in self.world.trace if " GET " in line)
        if a_second and max(a_second.values()) > MOST_READS_A_SECOND:
            self.outcome.violations.append(f"it asks servers {max(a_second.values())} times in a second")

    def _pass(self, seconds: float) -> None:
        self.world.scheduler.run(self.world.now_ms + round(seconds * 1000))

    def _killed(self, _: Process) -> None:
        self.world.cluster.clock.run_after(RESTART_MS, self._restart)

    def _restart(self) -> None:
        self.world.note("-- the operator starts again")
        self.world.disturb()
        self._start()


def describe_failure(
    edit: Edit, faults: Faults, outcome: Outcome, setup: Setup = ONE_SERVER, replayed: str = ""
) -> str:
    """Describe a failing sequence for a person.

    :param replayed: the command that runs it again, where that is not :func:`replay`.
    """
    replayed = replayed or replay(edit, faults, setup)
    lines = [f"{edit.name}: {'; '.join(outcome.violations)}", f"replay: {replayed}"]
    return "\n".join([*lines, *(f"  {one}" for one in outcome.trace)])


def replay(edit: Edit, faults: Faults, setup: Setup) -> str:
    """Return the command that runs a sequence again."""
    return command(f"clusters.tried({called(edit, faults, setup)})")


def called(edit: Edit, faults: Faults, setup: Setup) -> str:
    """Return the arguments of a sequence as Python code."""
    happenings = ", ".join(
        f"{at}: {f'Fault.{one.name}' if isinstance(one, Fault) else one.__name__}"
        for at, one in faults.items()
    )
    given = f"{setup.servers}, {setup.replicas}, Mode.{setup.mode.name}, {setup.chance}"
    if setup.is_balanced:
        given += ", is_balanced=True"
    what = edit.name if edit.parts else f"edit({edit.name!r})"
    return f"{what}, {{{happenings}}}, Setup({given})"
