"""Exploration of ``eurekube keepalive`` beside edits of a stack: its threads, with runs of the stack as other
processes.

Three known weaknesses are excused:

* A registration that a stack removes within two minutes of a server's restart may be taken for forgotten,
  and come back. This happens if no other server can tell: there is only one, the other one does not answer,
  or the keepalive has just started and knows of no renewal that another server accepted.
* A registration that the only server forgets before a new keepalive has read it is missing until the next
  refresh.
* A registration that was removed while a server was frozen comes back if the keepalive that knew of the
  removal died, and the next one finds it there with a lapsed Eureka lease. The other server may have evicted
  it for lack of renewals, so that it may still serve, and is renewed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from eurekube_provider.cli import keepalive_command
from eurekube_provider.registrations import cancellation
from eurekube_provider.registrations.servers import SHARED_PEERS
from eurekube_provider.runtime import logs
from tests.explore.engine import Engine, Program, Run, memories
from tests.explore.explorer import ORDINARY_KEYS, command
from tests.explore.operator import threads
from tests.explore.operator.explorer import Outcome
from tests.explore.operator.world import INSTEAD, Fault, World, own_defaults, owned
from tests.explore.others import OWNER, Place, is_leaving, metadata
from tests.explore.part import WHOLE, Part, guarded, shrunk, without_one
from tests.explore.programs import at_two_servers, edit, statuses_of
from tests.explore.shells import PREFIX
from tests.explore.world import InlineExecutor

Act = Callable[["Kept"], None]
Faults = Mapping[int, Fault | Act]

NAMES = (
    "create",
    "create out of service",
    "remove",
    "remove with a drain",
    "change metadata",
    "another port and id",
    "another id",
    "another id, with a drain",
    "moved without an alias",
    "status enforced",
    "status no more enforced",
    "application: create",
    "application: remove",
    "application: remove with a drain",
    "application: one more, one less",
    "application: metadata",
    "application: moved without an alias",
)
"""Names of the edits that are tried."""

STEADY_SECONDS = 45.0
CALM_SECONDS = 240.0
"""Seconds of the final calm: longer than unrenewed Eureka leases live."""

HEAL_MS = 100_000
"""Milliseconds for which a restarted or frozen server may lack instances, or show removed ones."""

UNTIL_REFRESHED_MS = 300_000
"""Milliseconds for which a server may lack instances, or show removed ones, if nobody knows any more what
it held.
"""

READ_MS = 1_000
"""Milliseconds that a keepalive may take at its start to read the registrations."""

RESTART_MS = 2_000


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Have Pulumi's resources and the command reach only the simulated world, like the operator's code in
    :func:`owned`.
    """
    with owned(), contextlib.ExitStack() as stack:

        def replace(thing: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(thing, name, value))

        for name, module in list(sys.modules.items()):
            if name.startswith(
                (
                    "eurekube_provider.resources.",
                    "eurekube_provider.registrations.",
                    "eurekube_provider.stateless.",
                )
            ):
                for word, thing in list(vars(module).items()):
                    with contextlib.suppress(TypeError):  # what cannot be hashed is none of them
                        if thing is ThreadPoolExecutor:
                            replace(module, word, InlineExecutor)
                        elif thing in INSTEAD:
                            replace(module, word, INSTEAD[thing])
                own_defaults(module, replace)
        replace(cancellation.Cancellation, "make_interruptible_sleep", lambda _: threads.sleep)
        replace(logs, "set_up_logging", lambda *_: None)
        replace(keepalive_command, "stop_event_on_signals", threads.Event)
        try:
            yield
        finally:
            SHARED_PEERS.__init__()  # type: ignore[misc]
    for memory in memories():
        memory.__init__()


class EngineWorld:
    """The part of a world that the simulated engine uses, played by the operator's world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def new_process(self) -> None:
        """Do nothing: each run already has a process of its own."""

    def point(self, what: str, carry_out: Callable[[], Any]) -> Any:
        """Write the state; the process may be killed before or after."""
        world = self._world
        process = threads.process_of_task()
        happening = world.happening_at(process, what, is_dull=False)
        if happening is Fault.KILLED_BEFORE:
            world.kill(process)
        if happening is not None and not isinstance(happening, Fault):
            world.act(happening)
        result = carry_out()
        if happening is Fault.KILLED_AFTER:
            world.kill(process)
        return result


class Kept:
    """One edit of a stack beside a keepalive process that renews its registrations."""

    def __init__(self, name: str, faults: Faults, servers: int = 1) -> None:
        found = edit(name)
        self.edit = found if servers == 1 else at_two_servers(found)
        self._faults = faults
        self.world = World.of(servers)
        self.world.act = lambda act: act(self)
        self.world.killed = self._killed
        self.outcome = Outcome(self.world.trace, self.world.places)
        self.keepers: list[threads.Process] = []
        self._engine = Engine(EngineWorld(self.world))  # type: ignore[arg-type]
        self._steady: set[Place] = set()
        self._excused: dict[str, int] = {}
        self.was_restarted = False
        self.was_frozen = False
        self._healed_ms = 0
        silences = {Fault.LATE, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.DRIPPED, Fault.BLOATED}
        self.was_silent = not silences.isdisjoint(faults.values())
        self._started_ms = 0
        self.world.changed = self._look

    def run(self) -> Outcome:
        """Run the edit, and return its outcome."""
        try:
            self.start()
            self.up(self.edit.first)
            self.go_on(STEADY_SECONDS)
            self._steady = self._serving(self.edit.first) & self._serving(self.edit.middle)
            self.world.begin_faults(self._faults)
            for _ in range(2):
                self.up(self.edit.middle)
                self.go_on(STEADY_SECONDS)
            self.world.end_faults()
            self.go_on(HEAL_MS / 1000)
            self.world.note("-- calm")
            last = self.up(self.edit.end, refresh=True)
            if last is None or not last.ended_well:
                self._violated(f"an up that nothing disturbs fails: {last and last.error}")
            else:
                self._steady |= self._serving(self.edit.end)
                self.go_on(CALM_SECONDS)
                self._compare()
        finally:
            for process in self.world.processes:
                if not process.is_dead:
                    self.world.scheduler.kill(process)
        for process in self.keepers:
            for error in process.errors:
                self._violated(f"a thread of the keepalive ends: {error!r}")
        return self.outcome

    def start(self) -> None:
        """Start a keepalive process."""
        process = threads.Process(f"keepalive-{len(self.keepers)}")
        self.world.processes.append(process)
        self.keepers.append(process)
        self._started_ms = self.world.now_ms
        options = argparse.Namespace(
            operator_name="eurekube",
            eureka_url=",".join(self.world.cluster.urls),
            resync_seconds="15",
            log_format=None,
            zookeeper=None,
            cluster_name=None,
            remove=False,
        )
        self.world.scheduler.spawn(process, "main", lambda: keepalive_command.run(options))

    def kill_keeper(self) -> None:
        """Kill the keepalive; another one starts a little later."""
        for process in self.keepers:
            if not process.is_dead:
                self.world.kill_later(process)

    def excuse(self, url: str, until_ms: int) -> None:
        """Allow that a server holds wrong instances until a time."""
        self._excused[url] = max(until_ms, self._excused.get(url, 0))

    def forgot(self, url: str) -> None:
        """Note that a server has lost its memory."""
        self.was_restarted = True
        has_read = not self.keepers[-1].is_dead and self.world.now_ms - self._started_ms > READ_MS
        is_alone = len(self.world.cluster.urls) == 1
        self.excuse(url, self.world.now_ms + (HEAL_MS if has_read or not is_alone else UNTIL_REFRESHED_MS))
        self._healed_ms = self.world.now_ms + HEAL_MS if is_alone else 0

    def _killed(self, process: threads.Process) -> None:
        if process in self.keepers:
            self.world.cluster.clock.run_after(RESTART_MS, self._restart)
            if self.world.now_ms < self._healed_ms:  # it alone knew what the only server has forgotten
                self.excuse(self.world.cluster.urls[0], self.world.now_ms + UNTIL_REFRESHED_MS)

    def _restart(self) -> None:
        self.world.note("-- the keepalive starts again")
        self.start()

    def up(self, program: Program, *, refresh: bool = False) -> Run | None:
        """Run the stack once to its end; return the result, or None if it was killed."""
        runs: list[Run] = []
        process = threads.Process(f"up-{len(self.world.processes)}")
        self.world.processes.append(process)
        self.world.scheduler.spawn(
            process, "main", lambda: runs.append(self._engine.up(program, refresh=refresh))
        )
        until = self.world.now_ms + 600_000
        self.world.scheduler.run(until, lambda: bool(runs) or process.is_dead)
        run = runs[0] if runs else None
        self.world.note(f"-- up: {'killed' if run is None else run.error or run.steps}")
        if process.errors:
            self._violated(f"a run of the stack ends: {process.errors[0]!r}")
        return run

    def go_on(self, seconds: float) -> None:
        """Let so much of the model's time pass, and check the rules."""
        until = self.world.now_ms + round(seconds * 1000)
        while self.world.now_ms < until:
            self.world.scheduler.run(min(until, self.world.now_ms + 5_000))
            self._look("time that passed")

    def _serving(self, program: Program) -> set[Place]:
        return {place for place, status in statuses_of(self.edit, program).items() if status == "UP"}

    def _look(self, what: str) -> None:
        """Check the rules that hold at every moment."""
        for url, server in self.world.cluster.servers.items():
            strange = server.caches.read_only.keys() - ORDINARY_KEYS
            if strange:
                self._violated(f"Eureka's cache holds {min(strange)[:4]}, after {what}")
            if url in self.world.cluster.down or self.world.now_ms < self._excused.get(url, 0):
                continue
            if url != self.world.cluster.urls[0] and what != "time that passed":
                continue  # it is informed a little later
            for place in self._steady:
                info = server.registry.get(*place)
                if info is None or info.status != "UP":
                    self._violated(f"{place[1]} is {info.status if info else 'gone'}, after {what}")

    @property
    def _may_come_back(self) -> bool:
        """True if a removed registration may come back, because the keepalive cannot tell it from one that
        a server forgot.
        """
        nobody_knows = len(self.keepers) > 1  # what the one before saw of the removal
        is_reported = len(self.world.cluster.urls) > 1 and not nobody_knows and not self.was_silent
        return (self.was_restarted and not is_reported) or (self.was_frozen and nobody_knows)

    def _compare(self) -> None:
        wanted = statuses_of(self.edit, self.edit.end)
        now_ms = self.world.now_ms
        for server in self.world.cluster.servers.values():
            held = {
                (lease.holder.app, lease.holder.id): lease.holder
                for lease in server.registry.all_leases()
                if str(metadata(lease.holder).get(OWNER, "")).startswith(PREFIX)
            }
            # What a frozen server was not notified of lapses there, once it does not preserve itself.
            lapsed = {
                (lease.holder.app, lease.holder.id)
                for lease in server.registry.all_leases()
                if lease.is_expired(now_ms)
            }
            held = {
                place: info
                for place, info in held.items()
                if place in wanted or not (self._may_come_back or place in lapsed)
            }
            if held.keys() != wanted.keys():
                self._violated(f"Eureka holds {sorted(held)}, and the program wants {sorted(wanted)}")
            # A server that preserves itself shows what nobody renews, until it does so no more.
            for lease in server.registry.all_leases():
                if (lease.holder.app, lease.holder.id) in wanted and lease.is_expired(now_ms):
                    self._violated(
                        f"{lease.holder.id} is gone as soon as its server evicts: nobody renews it"
                    )
            for place in held.keys() & wanted.keys():
                info = held[place]
                if info.status != wanted[place]:
                    self._violated(f"{place} is {info.status} and not {wanted[place]} in the end")
                if is_leaving(info):
                    self._violated(f"{place} is marked as leaving in the end")

    def _violated(self, rule: str) -> None:
        if rule not in self.outcome.violations:
            self.outcome.violations.append(rule)
            self.world.note(f"!! {rule}")


def the_keepalive_is_killed(kept: Kept) -> None:
    """Kill the keepalive, and start another one."""
    kept.kill_keeper()


def a_server_restarts(kept: Kept) -> None:
    """Restart the last Eureka server with an empty memory."""
    url = kept.world.cluster.urls[-1]
    kept.forgot(url)
    kept.world.cluster.restart(url)


def a_server_restarts_with_a_copy(kept: Kept) -> None:
    """Restart the last server with a copy of the first one's instances."""
    urls = kept.world.cluster.urls
    kept.forgot(urls[-1])
    kept.world.cluster.restart(urls[-1], copy_from=urls[0] if len(urls) > 1 else None)


def a_server_freezes(kept: Kept) -> None:
    """Freeze the first server for a while."""
    cluster = kept.world.cluster
    url = cluster.urls[0]
    kept.excuse(url, kept.world.now_ms + HEAL_MS)
    kept.was_silent = kept.was_frozen = True
    cluster.down.add(url)
    cluster.clock.run_after(30_000, lambda: cluster.down.discard(url))


ACTS: tuple[Act, ...] = (
    the_keepalive_is_killed,
    a_server_restarts,
    a_server_restarts_with_a_copy,
    a_server_freezes,
)

HAPPENINGS: tuple[Fault | Act, ...] = (*Fault, *ACTS)


def sequences(seed: int, end: float, names: Sequence[str] = NAMES, part: Part = WHOLE) -> Iterator[str]:
    """Try sequences until the time ``end``; yield the violations of each, or nothing.

    Single faults and acts come first, each once, in an order that the seed draws; then several at once.
    """
    draw, failed = part.draw(seed), set()

    def outcome(name: str, faults: Faults, servers: int) -> str:
        failure = guarded(lambda: tried(name, faults, servers), lambda: replay(name, faults, servers))
        if failure:
            failed.add(name)
        return failure

    with kept(), contextlib.redirect_stderr(io.StringIO()):  # what the providers say
        places: dict[tuple[str, int], list[int]] = {}
        for name, servers in itertools.product(names, (1, 2)):
            calm = Kept(name, {}, servers).run()
            places[name, servers] = calm.numbers
            yield outcome(name, {}, servers) if calm.violations else ""
        singles = part.dealt(
            seed,
            [
                (name, servers, at, happening)
                for (name, servers), numbers in places.items()
                for at in numbers
                for happening in HAPPENINGS
            ],
        )
        while time.monotonic() < end and not failed.issuperset(names):
            if singles and draw.random() < 0.7:
                name, servers, at, happening = singles.pop()
                faults: Faults = {at: happening}
            else:
                name, servers = draw.choice(list(places))
                numbers = places[name, servers]
                chosen = sorted(draw.sample(numbers, min(2, len(numbers))))
                faults = {at: draw.choice(HAPPENINGS) for at in chosen}
            if name not in failed:
                yield outcome(name, faults, servers)


def tried(name: str, faults: Faults, servers: int = 1) -> str:
    """Run a sequence; return its violations with the fewest faults that show them, or nothing."""
    outcome = Kept(name, faults, servers).run()
    if not outcome.violations:
        return ""
    faults, outcome = shrunk(faults, outcome, lambda fewer: Kept(name, fewer, servers).run(), without_one)
    return "\n".join(
        [
            f"keepalive: {name}: {'; '.join(outcome.violations)}",
            f"replay: {replay(name, faults, servers)}",
            *(f"  {one}" for one in outcome.trace),
        ]
    )


def replay(name: str, faults: Faults, servers: int) -> str:
    """Return the command that runs a sequence again."""
    written = ", ".join(
        f"{at}: {f'Fault.{one.name}' if isinstance(one, Fault) else one.__name__}"
        for at, one in faults.items()
    )
    return command(f"keepalive.tried({name!r}, {{{written}}}, {servers})")
