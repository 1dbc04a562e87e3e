"""Tries faults at every request of an edit of a stack, and checks the rules."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.eureka_server import EurekaServer
from eurekube_provider.dev.eureka.response_caches import ALL_APPS, ALL_APPS_DELTA, CacheKey
from tests.explore.engine import Engine, Program, Run
from tests.explore.others import ENFORCED, OWNER, Act, Deed, Others, Place, is_leaving, metadata
from tests.explore.part import shrunk, without_one
from tests.explore.programs import (
    OTHER_SPELLING,
    SECOND_SPELLING,
    SECOND_URL,
    URL,
    Edit,
    at_two_servers,
    places_of,
    statuses_of,
)
from tests.explore.settled import Settled, state_of
from tests.explore.shells import PREFIX
from tests.explore.stateless import Stateless
from tests.explore.world import Fault, Faults, World, owned

FOREIGN = ("BILLING", "foreign")

ORDINARY_KEYS = frozenset({CacheKey("Application", ALL_APPS), CacheKey("Application", ALL_APPS_DELTA)})
"""Cache keys of ordinary clients' requests, which add nothing to a server's cache."""


CONFLICT = re.compile("was left as it is|belongs to|registered itself")
"""Pattern of errors about an instance of another owner."""


Tool = Engine | Stateless
"""A tool that carries out a program: a simulated engine or ``eurekube apply``."""


@dataclass(slots=True)
class Outcome:
    """The result of one sequence.

    :ivar violations: the violated rules, in the order in which they were seen.
    :ivar requests: how many requests and checkpoints the disturbed runs made.
    """

    trace: list[str]
    runs: list[Run]
    violations: list[str] = field(default_factory=list)
    requests: int = 0

    def may_fail(self, at: int, fault: Fault | Act) -> bool:
        """Return whether a fault is possible at a request: nothing fails at the end of a run, and writing
        the state fails only with the process.
        """
        what = self.trace[at]
        return not (what.startswith("-- ") or (fault.is_loss and what.startswith("checkpoint")))


class Explored:
    """One edit of a stack with its faults, from a fresh server to the final comparison."""

    def __init__(
        self,
        edit: Edit,
        faults: Faults,
        servers: int = 1,
        tool: Callable[[World], Tool] = Engine,
        settled: Settled | None = None,
    ) -> None:
        self._given, self._faults = edit, faults
        self._edit = edit if servers == 1 else at_two_servers(edit)
        self.cluster = EurekaCluster([URL, SECOND_URL][:servers])
        self.world = World(self.cluster, aliases={OTHER_SPELLING: URL, SECOND_SPELLING: SECOND_URL})
        self._tool, self._settled = tool, settled
        self.outcome = Outcome(self.world.trace, [])
        self.others = Others(self.cluster, places_of(edit))
        self.world.act = self.others.act

    def run(self) -> Outcome:
        """Run the edit, and return its outcome."""
        with owned(self.world):
            engine = self._begin()
            engine.aliases = self._edit.aliases
            self._disturb(engine)
            self._settle(engine)
        return self.outcome

    def _begin(self) -> Tool:
        """Run the first program undisturbed, or continue from a kept copy of its result."""
        engine = self._tool(self.world)
        how = (len(self.cluster.urls), self._tool)
        kept = self._settled and self._settled.start(self._given, how)
        if kept:
            self.cluster, self.others, self.world.chance, state = kept
            self.world.cluster, self.world.act = self.cluster, self.others.act
            vars(engine).update(state)
            return engine
        self.others.register(FOREIGN, "10.9.9.9")
        self.others.register_strangers()
        first = engine.up(self._edit.first)
        assert first.ended_well, f"{self._edit.name}: the first run fails: {first.error}"
        if self._edit.is_old:
            self._age(engine)
        self._wait()
        if self._settled is not None:
            state = {name: each for name, each in vars(engine).items() if name not in ("world", "aliases")}
            self._settled.keep_start(self._given, how, (self.cluster, self.others, self.world.chance, state))
        return engine

    def _age(self, engine: Tool) -> None:
        """Change state and Eureka to what version 0.1.0 would have left."""
        for entry in engine.state:
            entry.outputs.pop("incarnation", None)
        for server in self.cluster.servers.values():
            for lease in server.registry.all_leases():
                metadata(lease.holder).pop("eurekube.incarnation", None)

    def _disturb(self, engine: Tool) -> None:
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

    def _settle(self, engine: Tool) -> None:
        """Run without faults until everything is as the program says, and stays so."""
        self.world.faults = {}
        self.others.calm()
        self._wait()
        steady = self._places(self._edit.first, self._edit.middle, self._edit.end)
        self.world.watch = lambda what: self._look(steady, what)
        doubled = self._doubled()
        passed: list[bytes] = []
        self._end(engine, doubled, passed)
        if self._settled is not None and not self.outcome.violations:
            self._settled.learn(passed)

    def _end(self, engine: Tool, doubled: set[Place], passed: list[bytes]) -> None:
        """Run twice, compare and refresh; stop at a state that is known to end well.

        :param passed: gets the states on the way.
        """
        for number in (1, 2):
            if self._settled is not None:
                beside = (self._edit.name, getattr(self._tool, "__name__", ""), number, doubled, engine.state)
                passed.append(state_of(self.cluster, self.others, beside))
                if self._settled.knows(passed[-1]):
                    return
            # What a killed run left behind stands in no state: a refresh sees it.
            run = engine.up(self._edit.end, refresh=self._edit.is_refreshed and number == 1)
            self.outcome.runs.append(run)
            self.world.trace.append(f"-- undisturbed up {number}: {run.error or run.steps}")
            if not run.ended_well:
                if not (self.others.stand_in_the_way and CONFLICT.search(run.error)):
                    self._violated(f"an up that nothing disturbs fails: {run.error}")
                return
            if number == 2 and [step for step in run.steps if not step.startswith("read ")]:
                self._violated(f"an up after a good one still changes: {run.steps}")
            self._wait()
        self.compare()
        for app, instance_id in self._doubled() - doubled:
            self._violated(
                f"{app} {instance_id} was registered where {self.others.beside} had registered itself"
            )
        engine.refresh()
        again = engine.up(self._edit.end)
        if not again.ended_well:
            self._violated(f"an up after a refresh fails: {again.error}")
        if again.steps:
            self._violated(f"an up after a refresh still changes: {again.steps}")

    def _doubled(self) -> set[Place]:
        """Return our instances whose address has also registered itself."""
        registry = self._first_server.registry
        itself = registry.get(*self.others.beside) if self.others.beside else None
        if itself is None:
            return set()
        return {
            (info.app, info.id)
            for info in (lease.holder for lease in registry.all_leases())
            if OWNER in metadata(info)
            and all(info.fields[key] == itself.fields[key] for key in ("ipAddr", "port"))
        }

    def _wait(self) -> None:
        """Wait until lists show all writes, and every cached answer is new."""
        self.cluster.clock.advance(2_000)
        self.world.watch("what servers sent each other")
        self.cluster.clock.advance(38_000)

    def compare(self) -> None:
        """Check that each server holds what the program says, and no other instance of ours."""
        for server in self.cluster.servers.values():
            self._compare_one(server)

    def _compare_one(self, server: EurekaServer) -> None:
        held = {
            (lease.holder.app, lease.holder.id): lease.holder
            for lease in server.registry.all_leases()
            if str(metadata(lease.holder).get(OWNER, "")).startswith(PREFIX)
        }
        wanted = {
            place: status
            for place, status in statuses_of(self._edit, self._edit.end).items()
            if place not in self.others.theirs
        }
        for place in self.others.contested:
            held.pop(place, None)
            wanted.pop(place, None)
        if held.keys() != wanted.keys():
            self._violated(f"Eureka holds {sorted(held)}, and the program wants {sorted(wanted)}")
        steady = self._places(self._edit.first, self._edit.middle, self._edit.end)
        for place, info in held.items():
            if place not in wanted:
                continue
            allowed = self._allowed(place, wanted[place], is_steady=place in steady)
            if info.status not in allowed:
                self._violated(f"{place} is {info.status} and not {' or '.join(allowed)} in the end")
            if is_leaving(info):
                self._violated(f"{place} is marked as leaving in the end")
            mark = metadata(info).get(ENFORCED, "UP")
            if mark != wanted[place] and place not in self.others.doubtful:
                self._violated(f"{place} is marked as {mark} in the end")

    def _allowed(self, place: Place, status: str, *, is_steady: bool) -> tuple[str, ...]:
        """Return the statuses that are right at the end: the program's, or a person's."""
        if place in self.others.out and is_steady:
            return ("OUT_OF_SERVICE",)
        if place in self.others.doubtful or (status == "UP" and place in self.others.out):
            return ("UP", "OUT_OF_SERVICE")
        if status != "UP" and len(self.cluster.urls) > 1:
            # What it was on the way there, or before, a slow server may tell last. Nobody calls any of them.
            return ("OUT_OF_SERVICE", "DOWN", "STARTING")
        return (status,)

    def _steady(self) -> set[Place]:
        return self._places(self._edit.first, self._edit.middle)

    def _places(self, *programs: Program) -> set[Place]:
        """Return the instances that each program has UP, which must be callable at every moment."""
        places = [
            {place for place, status in statuses_of(self._edit, program).items() if status == "UP"}
            for program in programs
        ]
        return set.intersection(*places)

    def _look(self, steady: set[Place], what: str) -> None:
        """Check the rules that hold at every moment."""
        for server in self.cluster.servers.values():
            self._look_at(server, steady, what)

    def _look_at(self, server: EurekaServer, steady: set[Place], what: str) -> None:
        registry, others = server.registry, self.others
        for place in steady:
            if place in others.theirs or place in others.removed or place in others.contested:
                continue
            info = registry.get(*place)
            if info is None:
                self._violated(f"{place[1]} is gone", what)
            elif info.status != "UP" and place not in others.out | others.doubtful:
                self._violated(f"{place[1]} is {info.status}", what)
            elif info.status == "UP" and place in others.out and server is self._first_server:
                self._violated(f"{place[1]}, which a person took out of service, is UP", what)
        strange = server.caches.read_only.keys() - ORDINARY_KEYS
        if strange:
            self._violated(f"Eureka's cache holds {min(strange)[:4]} with regions of its own", what)
        if server is self._first_server:  # the others are notified of it later
            for place in others.changed(server):
                self._violated(f"{place[1]}, which is somebody else's, was changed", what)

    @property
    def _first_server(self) -> EurekaServer:
        return self.cluster.servers[self.cluster.urls[0]]

    def _violated(self, rule: str, what: str = "") -> None:
        line = f"{rule}, after {what}" if what else rule
        if line not in self.outcome.violations:
            self.outcome.violations.append(line)
            self.world.trace.append(f"!! {rule}")


def singles(
    edit: Edit,
    servers: int = 1,
    tool: Callable[[World], Tool] = Engine,
    settled: Settled | None = None,
) -> Iterator[Faults]:
    """Yield every possible single fault of an edit."""
    calm = Explored(edit, {}, servers, tool, settled).run()
    for at, fault in itertools.product(range(calm.requests), edit.faults):
        if calm.may_fail(at, fault):
            yield {at: fault}


def acts(edit: Edit, servers: int = 1) -> list[Act]:
    """Return the possible acts of others during an edit.

    There are none if the last run does not refresh, and so cannot see them, or adopts what it finds.
    """
    programs = (edit.first, edit.middle, edit.end)
    if not edit.is_refreshed or any(
        each.get("on_conflict") == "adopt" for program in programs for each in program.values()
    ):
        return []
    numbers = range(len(places_of(edit)))
    return [
        Act(deed, number)
        for deed in Deed
        if servers > 1 or not deed.needs_several
        for number in (numbers if deed.is_about_one else (0,))
    ]


def tried(
    edit: Edit,
    faults: Faults,
    servers: int = 1,
    tool: Callable[[World], Tool] = Engine,
    settled: Settled | None = None,
) -> str:
    """Run a sequence; return its violations with the fewest faults and servers that show them, or nothing."""
    outcome = Explored(edit, faults, servers, tool, settled).run()
    if not outcome.violations:
        return ""

    def shorter(sequence: tuple[Faults, int]) -> Iterator[tuple[Faults, int]]:
        faults, servers = sequence
        yield from ((fewer, servers) for fewer in without_one(faults))
        if servers > 1:
            yield faults, 1

    (faults, servers), outcome = shrunk(
        (faults, servers), outcome, lambda less: Explored(edit, *less, tool).run(), shorter
    )
    return describe_failure(edit, faults, servers, outcome, tool)


def describe_failure(
    edit: Edit, faults: Faults, servers: int, outcome: Outcome, tool: Callable[[World], Tool] = Engine
) -> str:
    """Describe a failing sequence for a person."""
    return "\n".join(
        [
            f"{edit.name}: {'; '.join(outcome.violations)}",
            f"replay: {replay(edit, faults, servers, tool)}",
            *(f"  {one}" for one in outcome.trace),
        ]
    )


def replay(edit: Edit, faults: Faults, servers: int, tool: Callable[[World], Tool] = Engine) -> str:
    """Return the command that runs a sequence again."""
    shown = {
        number: f"Act({fault.deed}, {fault.number})" if isinstance(fault, Act) else str(fault)
        for number, fault in faults.items()
    }
    written = ", ".join(f"{number}: {fault}" for number, fault in shown.items())
    how = "" if tool is Engine else f", {getattr(tool, '__name__', tool)}"
    return command(f"stacks.tried(edit({edit.name!r}), {{{written}}}, {servers}{how})")


def command(sequence: str) -> str:
    """Return the command line that replays a sequence."""
    return f"python -m tests.explore --replay {shlex.quote(sequence)}"
