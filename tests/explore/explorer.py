"""Tries faults at every request of an edit, and asks what must hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.explore.engine import FAILS, PREFIX, Engine, Program, Run
from tests.explore.programs import (
    OTHER_SPELLING,
    SECOND_SPELLING,
    SECOND_URL,
    URL,
    Edit,
    at_two_servers,
)
from tests.explore.world import Fault, World, owned
from tests.model.caches import ALL, DELTA, Key
from tests.model.cluster import Cluster
from tests.model.registry import Document, Info
from tests.model.server import Server
from tests.model.wire import Request

OWNER = "eurekube.owner"
LEAVING = "eurekube.leaving"
ENFORCED = "eurekube.enforced"
FOREIGN = ("billing".upper(), "foreign")

ORDINARY_KEYS = frozenset({Key("Application", ALL), Key("Application", DELTA)})
"""What ordinary clients ask for, and every server holds anyway."""

Place = tuple[str, str]
Faults = Mapping[int, Fault]


@dataclass(slots=True)
class Outcome:
    """What one sequence came to.

    :ivar violations: what did not hold, in the order in which it was seen.
    :ivar requests: how many requests and checkpoints the disturbed runs made.
    """

    trace: list[str]
    runs: list[Run]
    violations: list[str] = field(default_factory=list)
    requests: int = 0

    def may_fail(self, at: int, fault: Fault) -> bool:
        """Whether there can be such a fault: the state that is written is lost with the process only."""
        return not (fault.is_loss and self.trace[at].startswith("checkpoint"))


class Explored:
    """One edit with its faults, from a fresh server to the last look."""

    def __init__(self, edit: Edit, faults: Faults, servers: int = 1) -> None:
        self._edit, self._faults = edit if servers == 1 else at_two_servers(edit), faults
        self.cluster = Cluster([URL, SECOND_URL][:servers])
        self.world = World(self.cluster, aliases={OTHER_SPELLING: URL, SECOND_SPELLING: SECOND_URL})
        self.outcome = Outcome(self.world.trace, [])

    def run(self) -> Outcome:
        """Run it."""
        with owned(self.world):
            self._foreign()
            engine = Engine(self.world)
            first = engine.up(self._edit.first)
            assert first.ended_well, f"{self._edit.name}: the first run fails: {first.error}"
            if self._edit.is_old:
                self._age(engine)
            engine.aliases = self._edit.aliases
            self._wait()
            self._disturb(engine)
            self._settle(engine)
        return self.outcome

    def _age(self, engine: Engine) -> None:
        """Have state and Eureka be what 0.1.0 left."""
        for entry in engine.state:
            entry.outputs.pop("incarnation", None)
        for server in self.cluster.servers.values():
            for lease in server.registry.all():
                _metadata(lease.holder).pop("eurekube.incarnation", None)

    def _disturb(self, engine: Engine) -> None:
        steady = self._steady()
        self.world.trace.clear()
        self.world.faults = self._faults
        self.world.watch = lambda what: self._look(steady, what)
        for _ in range(max(self._edit.runs, len(self._faults))):
            before = len(self.world.trace)
            run = engine.up(self._edit.middle, refresh=self._edit.refresh, targets=self._edit.targets)
            self.outcome.runs.append(run)
            self.world.trace.append(f"-- up: {run.error or ('killed' if run.killed else run.steps)}")
            self._wait()
            if run.ended_well and before == 0 and not self._faults:
                break
        self.outcome.requests = len(self.world.trace)

    def _settle(self, engine: Engine) -> None:
        """What nothing disturbs: everything is as the program says, and stays so."""
        self.world.faults = {}
        steady = self._places(self._edit.first, self._edit.middle, self._edit.end)
        self.world.watch = lambda what: self._look(steady, what)
        for number in (1, 2):
            # What a killed run left behind stands in no state: a refresh sees it.
            run = engine.up(self._edit.end, refresh=self._edit.is_refreshed and number == 1)
            self.outcome.runs.append(run)
            self.world.trace.append(f"-- undisturbed up {number}: {run.error or run.steps}")
            if not run.ended_well:
                self._violated(f"an up that nothing disturbs fails: {run.error}")
                return
            if number == 2 and [step for step in run.steps if not step.startswith("read ")]:
                self._violated(f"an up after a good one still changes: {run.steps}")
            self._wait()
        self._compare()
        engine.refresh()
        again = engine.up(self._edit.end)
        if not again.ended_well:
            self._violated(f"an up after a refresh fails: {again.error}")
        if again.steps:
            self._violated(f"an up after a refresh still changes: {again.steps}")

    def _wait(self) -> None:
        """Until lists show what was written, and every cached answer is new."""
        self.cluster.clock.advance(40_000)

    def _compare(self) -> None:
        """Each server holds what the program says, and nothing else of ours."""
        for server in self.cluster.servers.values():
            self._compare_one(server)

    def _compare_one(self, server: Server) -> None:
        held = {
            (lease.holder.app, lease.holder.id): lease.holder
            for lease in server.registry.all()
            if str(_metadata(lease.holder).get(OWNER, "")).startswith(PREFIX)
        }
        wanted = self._wanted(self._edit.end)
        if held.keys() != wanted.keys():
            self._violated(f"Eureka holds {sorted(held)}, and the program wants {sorted(wanted)}")
        for place, info in held.items():
            if place in wanted and info.status != wanted[place]:
                self._violated(f"{place} is {info.status} and not {wanted[place]} in the end")
            if LEAVING in _metadata(info):
                self._violated(f"{place} is marked as leaving in the end")
            if _metadata(info).get(ENFORCED, "UP") != wanted.get(place):
                self._violated(f"{place} is marked as {_metadata(info).get(ENFORCED)} in the end")

    def _steady(self) -> set[Place]:
        return self._places(self._edit.first, self._edit.middle)

    def _places(self, *programs: Program) -> set[Place]:
        """What serves in each of these programs, so that it must never stop to."""
        places = [
            {place for place, status in self._wanted(program).items() if status == "UP"}
            for program in programs
        ]
        return set.intersection(*places)

    def _wanted(self, program: Program) -> dict[Place, str]:
        """The status of each instance of a program, by place."""
        wanted: dict[Place, str] = {}
        for urn, properties in program.items():
            if properties is FAILS:
                continue
            name = urn.rpartition("/")[2]
            status = str(properties.get("status") or "UP")
            app, port = str(properties["application"]), properties["port"]
            suffix = f"{app}:{port}"
            if "instances" in properties:
                # One that was renamed keeps the ids that it has.
                earlier = urn if urn in self._edit.first else self._edit.aliases.get(urn, urn)
                base = f"{earlier.rpartition('/')[2]}.dev.explored"
                for key, each in properties["instances"].items():
                    own = each.get("instance_id") or f"{key}.{base}:{suffix}"
                    wanted[app.upper(), str(own)] = status
            else:
                own = properties.get("instance_id") or f"{name}.dev.explored:{suffix}"
                wanted[app.upper(), str(own)] = status
        return wanted

    def _look(self, steady: set[Place], what: str) -> None:
        """What must hold at every moment."""
        for server in self.cluster.servers.values():
            self._look_at(server, steady, what)

    def _look_at(self, server: Server, steady: set[Place], what: str) -> None:
        registry = server.registry
        for app, instance_id in steady:
            info = registry.get(app, instance_id)
            if info is None:
                self._violated(f"{instance_id} is gone", what)
            elif info.status != "UP":
                self._violated(f"{instance_id} is {info.status}", what)
        strange = server.caches.read_only.keys() - ORDINARY_KEYS
        if strange:
            self._violated(f"Eureka's cache holds {min(strange)[:4]} with regions of its own", what)
        foreign = registry.get(*FOREIGN)
        if foreign is None or (foreign.status, foreign.dirty_ms) != ("UP", 1):
            self._violated("somebody else's instance was changed", what)

    def _violated(self, rule: str, what: str = "") -> None:
        line = f"{rule}, after {what}" if what else rule
        if line not in self.outcome.violations:
            self.outcome.violations.append(line)
            self.world.trace.append(f"!! {rule}")

    def _foreign(self) -> None:
        """An instance that somebody else registered, in an application of ours."""
        document: Document = {
            "instanceId": FOREIGN[1],
            "app": FOREIGN[0],
            "hostName": "10.9.9.9",
            "ipAddr": "10.9.9.9",
            "status": "UP",
            "port": {"$": 8080, "@enabled": "true"},
            "vipAddress": "billing",
            "dataCenterInfo": {"@class": "x", "name": "MyOwn"},
            "metadata": {"a": "b"},
            "lastDirtyTimestamp": "1",
        }
        self.cluster.request(URL, Request("POST", ("apps", FOREIGN[0]), body={"instance": document}))


def _metadata(info: Info) -> Document:
    return info.fields.get("metadata") or {}


def explore(edit: Edit, most_faults: int = 2, servers: int = 1) -> Iterator[tuple[Faults, Outcome]]:
    """Every sequence of an edit with at most so many faults; those with violations are yielded, too."""
    calm = Explored(edit, {}, servers).run()
    yield {}, calm
    places = itertools.product(range(calm.requests), edit.faults)
    singles = [{at: fault} for at, fault in places if calm.may_fail(at, fault)]
    lengths: dict[int, int] = {}
    for number, faults in enumerate(singles):
        outcome = Explored(edit, faults, servers).run()
        lengths[number] = outcome.requests
        yield faults, outcome
    if most_faults < 2:
        return
    for number, faults in enumerate(singles):
        (at,) = faults
        for later, fault in itertools.product(range(at + 1, lengths[number]), edit.faults):
            both = {**faults, later: fault}
            yield both, Explored(edit, both, servers).run()


def told(edit: Edit, faults: Faults, outcome: Outcome) -> str:
    """A failing sequence for a person."""
    lines: Sequence[str] = [f"{edit.name}: {'; '.join(outcome.violations)}"]
    disturbed = {number: fault.name for number, fault in faults.items()}
    return "\n".join([*lines, f"replay: {edit.name!r} {disturbed}", *(f"  {one}" for one in outcome.trace)])
