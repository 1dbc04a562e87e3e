"""The operator's unchanged Reconciler and EurekaRegistry, driven by one loop without threads.

Work that threads do in an operator is done in rounds: syncers in the queue are reconciled, the registry is
read, swept and renewed, statuses are written. The seed draws the next round among those that are due. A round
that waits lets time pass, in which the cluster, its Eureka servers and others act.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial
from itertools import product
from typing import Any

from eurekube_provider.core.errors import KubernetesError, LeadershipLost, RegistryError
from eurekube_provider.core.identity import ClusterOwner, parse_owner
from eurekube_provider.core.model import InstanceKey
from eurekube_provider.core.objects import key_of
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.kube.access import ENDPOINT_SLICES, MERGE_PATCH_TYPE, SERVICES, SYNCERS, KubeAccess
from eurekube_provider.kube.reflector import Reflector
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.registries import instances_under_other_cluster_names
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import syncer_status
from eurekube_provider.operator.unresponsive import UnresponsiveEurekaWatch
from tests.explore.explorer import command
from tests.explore.operator import threads
from tests.explore.operator.acts import ACTS
from tests.explore.operator.edits import EDITS, Edit
from tests.explore.operator.explorer import Explored, Faults, Setup, called, describe_failure
from tests.explore.operator.rules import CLUSTER
from tests.explore.operator.stepwise import Stepwise, owned
from tests.explore.operator.threads import Process, Task
from tests.explore.operator.world import Fault, Happening, World
from tests.explore.part import WHOLE, Part, guarded, shrunk, without_one

SETUPS = (Setup(1), Setup(2), Setup(3))

LOOK_SECONDS = 4.0
"""Seconds between two checks of servers that were restarted or are back, which a reading need not notice."""

ROUND_SECONDS = 1.0
"""Seconds between two rounds of renewals, of checked removals, and of the cluster's objects."""

WAIT_SHARE = 0.3
"""The share of each wait for an answer that passes: one loop waits for silent servers in turn, threads
side by side.
"""

CHECK_MS = 1_000
"""Milliseconds between two checks whether a Eureka answers."""

OVERTAKEN_MS = round(windows.REMOVAL_CHECKS_AFTER_SECONDS[-1] * 1000)
"""Milliseconds until the second check of removals finds an instance that an overtaken batch brought back."""

RETRY_SECONDS = 2.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 60.0

_MOST_FAULTS = 4

Round = Callable[[], float]
"""A function that does a round's work; it returns the seconds until the next time."""


class Replica:
    """The parts of an operator without its threads: no Lease, no workers, no writer of statuses."""

    def __init__(self, world: World, process: Process, settings: Settings) -> None:
        self._world, self._process = world, process
        self._cluster = replace(CLUSTER, name=settings.cluster_name or CLUSTER.name)
        self._names = (self._cluster.name, *settings.previous_cluster_names)
        assert isinstance(world.scheduler, Stepwise)
        self._scheduler: Stepwise = world.scheduler
        self.stop = threads.Event()
        self._task = Task(self._scheduler, process, "loop", lambda: None)
        self._queue: dict[SyncerKey, float] = {}  # when each is due
        self._failures: dict[SyncerKey, int] = {}
        self._reports: dict[SyncerKey, tuple[Mapping[str, Any], SyncerReport]] = {}
        self._standing: dict[SyncerKey, tuple[int, Mapping[str, Any]]] = {}  # with its version
        self._sent: dict[SyncerKey, Mapping[str, Any]] = {}
        self._unsure: set[SyncerKey] = set()  # whose status was perhaps written
        self._turns: Counter[tuple[str, InstanceKey]] = Counter()  # how often each was renewed
        self._seen = 0
        self._lists_again = True
        self._led = False
        self._running: object = None
        with self._scheduler.within(self._task):
            self._build(settings)
        self._rounds: dict[str, tuple[float, Round]] = {"the cluster": (0.0, self._follow)}
        for name in self._registries:
            self._rounds[f"reading of {name}"] = (0.0, partial(self._read, name))
        now_ms = world.now_ms
        world.cluster.clock.run_every(now_ms + CHECK_MS, CHECK_MS, self._check)

    def _build(self, settings: Settings) -> None:
        def may_write() -> bool:
            return not self._process.is_dead

        self._access = access = KubeAccess.load(None).with_write_check(may_write)
        self._resync_seconds = settings.resync_seconds
        self._registries = {
            name: EurekaRegistry.from_connection(
                connection,
                self._cluster,
                settings.operator_name,
                settings.resync_seconds,
                may_write=may_write,
            )
            for name, connection in settings.connections.items()
        }
        self._sources = ClusterCache(
            access, self._cluster, (), self.add, self._is_overwritten, enqueue_later=self.add
        )
        drain_check = DrainCheck(access, self._sources, 0, self.add)
        self._reconciler = Reconciler(
            settings,
            self._cluster,
            access,
            self._registries,
            self._sources,
            drain_check,
            may_write,
            lambda: settings.previous_cluster_names,
        )
        self._unresponsive = UnresponsiveEurekaWatch(self._registries, on_changed=self.registry_changed)
        for name, registry in self._registries.items():
            registry.table.listener = _Listener(self, name)
            registry.renewals.stand_by()

    def add(self, key: SyncerKey, delay_seconds: float = 0.0) -> None:
        """Queue a syncer for a reconcile; an earlier time replaces a later one."""
        due = self._now + delay_seconds
        self._queue[key] = min(due, self._queue.get(key, due))

    def instances_of_owner_changed(self, owner: str) -> None:
        """Queue the syncer whose instances have changed."""
        found = parse_owner(owner)
        if isinstance(found, ClusterOwner) and found.cluster in self._names:
            self.add((found.namespace, found.syncer))

    def registry_changed(self, name: str) -> None:
        """Queue the syncers that register at a Eureka, or have instances there."""
        for key in self._sources.syncers_at_eureka_or_being_deleted(name):
            self.add(key)
        for owner in self._registries[name].owners():
            self.instances_of_owner_changed(owner)

    def deliver_watches(self) -> None:
        """Hand over the changes that the API server's watches report; if changes were missed, list again."""
        kube = self._world.kube
        if self._process.is_dead or self._lists_again:
            return
        if kube.is_expired(self._seen):
            self._lists_again = True
            return
        visible = kube.version if kube.behind is None else kube.behind
        news = [one for one in kube.changes if self._seen < one.version <= visible]
        self._seen = max(self._seen, visible)
        with self._scheduler.within(self._task):
            for change in news:
                reflector = self._reflectors.get(change.kind)
                if reflector is not None:
                    reflector.apply_event(change.type, change.item)

    def step(self) -> bool:
        """Do one due task, chosen at random; return False if none is due."""
        if self.stop.is_set():
            self._process.is_dead = True
        if self._process.is_dead:
            return False
        now = self._now
        due = [name for name, (at, _) in self._rounds.items() if at <= now]
        keys = [key for key, at in self._queue.items() if at <= now] if self._led else []
        if not due and not keys:
            return False
        could: list[str | SyncerKey] = [*due, *keys]
        self._running = chosen = self._process.random.choice(could)
        with self._scheduler.within(self._task):
            try:
                if isinstance(chosen, str):
                    work = self._rounds[chosen][1]
                    self._rounds[chosen] = (self._now + work(), work)
                else:
                    del self._queue[chosen]
                    self._reconcile(chosen)
            except Exception as error:  # noqa: BLE001 - shown as a violation
                self._process.errors.append(error)
                self._process.is_dead = True
        return True

    def go_round(self) -> None:
        """Renew, and check removals, while another round waits."""
        if self._process.is_dead:
            return
        for name, (_, work) in list(self._rounds.items()):
            if name.startswith(("renewals", "removals")) and name != self._running:
                self._rounds[name] = (self._now + work(), work)

    # --- rounds

    def _follow(self) -> float:
        """List the cluster if watches missed changes, and begin to lead once everything is known."""
        if self._lists_again:
            visible = self._world.kube.version if self._world.kube.behind is None else self._world.kube.behind
            try:
                for resource, reflector in self._groups:
                    reflector.replace_from_list(self._access.pages(resource.path()))
            except KubernetesError:
                return RETRY_SECONDS
            self._seen, self._lists_again = visible, False
        self.deliver_watches()
        if not self._led and all(one.reachability.has_been_read for one in self._registries.values()):
            self._lead()
        return ROUND_SECONDS

    def _lead(self) -> None:
        wanted = self._sources.estimate_wanted_by_eureka()
        for name, registry in self._registries.items():
            registry.start_leading(wanted[name])
            for syncer in self._sources.syncers.objects():
                if not syncer["metadata"].get("deletionTimestamp"):
                    key = key_of(syncer)
                    there = registry.known_instances(owner=str(ClusterOwner(self._cluster.name, *key)))
                    registry.keep_registered(
                        *there, *instances_under_other_cluster_names(registry, self._cluster, key)
                    )
            self._rounds[f"look at {name}"] = (self._now + LOOK_SECONDS, partial(self._look, name))
            self._rounds[f"renewals of {name}"] = (self._now, partial(self._renew, name))
            for number in range(len(registry.peers.peers)):
                self._rounds[f"removals of {name} {number}"] = (self._now, _Sweep(registry, number))
        self._rounds["statuses"] = (self._now, self._write)
        self._led = True
        for key in self._sources.syncer_keys():
            self.add(key)
        for registry in self._registries.values():
            for owner in registry.owners():
                self.instances_of_owner_changed(owner)

    def _read(self, name: str) -> float:
        registry = self._registries[name]
        try:
            registry.reader.read()
        except RegistryError as error:
            if registry.reachability.note_failure_and_check_lasting(error):
                self.registry_changed(name)
        is_well = registry.reachability.failure is None and registry.reachability.has_been_read
        return self._resync_seconds if is_well else RETRY_SECONDS

    def _look(self, name: str) -> float:
        registry = self._registries[name]
        if registry.reader.is_early_read_due:
            self._read(name)
        else:
            registry.reader.check_between_reads()
        return LOOK_SECONDS

    def _renew(self, name: str) -> float:
        registry = self._registries[name]
        for key in registry.renewals.take_due_keys():
            instance = registry.renewals.get(key)
            if instance is None:
                continue
            self._turns[name, key] += 1
            try:
                is_held = registry.peers.renew(instance, self._turns[name, key])
                if not is_held and registry.renewals.get(key) is not None:
                    registry.renewals.remove(key)
                    registry.repair.instances_missing([instance], None)
            except RegistryError:
                registry.renewals.renew_soon([key])
        return ROUND_SECONDS

    def _check(self) -> None:
        """Queue the syncers whose status about a Eureka's silence must change, even while a round waits."""
        if self._led and not self._process.is_dead:
            with self._scheduler.within(self._task):
                self._unresponsive.check_and_report()

    def _write(self) -> float:
        """Write the statuses that differ from the last known ones."""
        for key, (syncer, report) in list(self._reports.items()):
            del self._reports[key]
            if self._sources.syncers.get(*key) is None:
                self._standing.pop(key, None)
                self._unsure.discard(key)
                continue
            version, standing = max(
                self._standing.get(key, (-1, {})), (_version(syncer), syncer.get("status") or {}), key=_first
            )
            status = syncer_status({**syncer, "status": standing}, report, threads.Datetime.now(UTC))
            if key not in self._unsure and _gist(status) == _gist(standing):
                self._standing[key] = version, standing
                continue
            self._sent[key] = status
            try:
                path = SYNCERS.path(*key, "status")
                answer = self._access.request(
                    "PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE
                )
            except KubernetesError as error:
                if error.status_code != 404:
                    self._unsure.add(key)
                    self._reports.setdefault(key, (syncer, report))
                    return RETRY_SECONDS
                continue
            self._standing[key] = max(version, _version(answer)), status
            self._unsure.discard(key)
        return ROUND_SECONDS

    def _reconcile(self, key: SyncerKey) -> None:
        try:
            result = self._reconciler.reconcile(key)
        except LeadershipLost:
            self.add(key, 1.0)
            return
        for other in result.syncers_to_reconcile:
            self.add(other)
        if result.requeue_after_seconds is not None:
            self.add(key, result.requeue_after_seconds)
        if result.report is not None and result.syncer_object is not None:
            self._reports[key] = (result.syncer_object, result.report)
        if result.error is None:
            self._failures.pop(key, None)
        else:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.add(key, min(FIRST_DELAY_SECONDS * 2.0 ** (failures - 1), LONGEST_DELAY_SECONDS))

    # --- inside

    @property
    def _groups(self) -> list[tuple[Any, Reflector]]:
        sources = self._sources
        groups = ((SYNCERS, sources.syncers), (SERVICES, sources.services), (ENDPOINT_SLICES, sources.slices))
        return [(resource, one) for resource, group in groups for one in group.reflectors]

    @property
    def _reflectors(self) -> dict[str, Reflector]:
        return {resource.plural: reflector for resource, reflector in self._groups}

    @property
    def _now(self) -> float:
        return self._world.now_ms / 1000

    def _is_overwritten(self, syncer: Mapping[str, Any]) -> bool:
        key, gist = key_of(syncer), _gist(syncer.get("status") or {})
        version, standing = self._standing.get(key, (math.inf, {}))
        return (
            _version(syncer) > version and gist != _gist(standing) and gist != _gist(self._sent.get(key, {}))
        )


@dataclass(frozen=True, slots=True)
class _Listener:
    """A listener of a registry."""

    replica: Replica
    name: str

    def instances_of_owner_changed(self, owner: str) -> None:
        self.replica.instances_of_owner_changed(owner)

    def condition_changed(self) -> None:
        self.replica.registry_changed(self.name)


@dataclass(slots=True)
class _Sweep:
    """The round for one server that checks whether removed instances stay away."""

    registry: EurekaRegistry
    number: int
    was_away: bool = False

    def __call__(self) -> float:
        """Check once; return the seconds until the next check."""
        try:
            peer = self.registry.peers.peers[self.number]
            self.was_away = self.registry.repair.check_and_clean_server(peer, was_away=self.was_away)
        except RegistryError:
            self.was_away = True
            return RETRY_SECONDS
        except LeadershipLost:
            return RETRY_SECONDS
        return ROUND_SECONDS


def _first(pair: tuple[int, object]) -> int:
    return pair[0]


def _version(item: Mapping[str, Any]) -> int:
    return int(item["metadata"]["resourceVersion"])


def _gist(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in status.items() if key != "lastSyncTime"}


class Stepped(Explored):
    """One edit with its faults beside a :class:`Replica`, from the start to the final calm."""

    scheduler_type = Stepwise

    def __init__(self, edit: Edit, faults: Faults, setup: Setup, *, seed: int = 0) -> None:
        super().__init__(edit, faults, setup, seed=seed)
        self._replicas: list[Replica] = []
        scheduler = self.world.scheduler
        assert isinstance(scheduler, Stepwise)
        scheduler.step = self._step
        self.world.wait_share = WAIT_SHARE
        kube, looked = self.world.kube, self.world.kube.changed

        def changed(change: Any) -> None:
            looked(change)
            kube.scheduler.clock.run_after(kube.lag_ms, self._tell)

        kube.changed = changed

    def launched(self, settings: Settings) -> tuple[Process, Any]:
        """Start a replica that the loop drives; return its process and what stops it."""
        process = self.world.begin_process()
        former = tuple(one for one in self.witness.names if one != self.witness.cluster.name)
        replica = Replica(self.world, process, replace(settings, previous_cluster_names=former))
        self._replicas.append(replica)
        return process, replica.stop

    def name_cluster(self, name: str, *, beside_ms: int = 0) -> None:  # noqa: ARG002 - as said below
        """Stop the running replica at once, since without a Lease two would write, and start one with
        another cluster name.
        """
        super().name_cluster(name)

    def _take_steps(self) -> None:
        """Take the edit's steps at their times, also while a round of renewals waits for its answer."""
        delay_ms = 0
        for wait, step in self._edit.steps:
            delay_ms += round(wait * 1000)
            self.world.cluster.clock.run_after(delay_ms, partial(self._take_step, step))
        self.world.scheduler.run(self.world.now_ms + delay_ms)

    def another_round(self) -> None:
        """Renew, and check removals, while another round waits for its answer."""
        for replica in self._replicas:
            replica.go_round()

    def _step(self) -> bool:
        done = [replica.step() for replica in self._replicas]
        return any(done)

    def _tell(self) -> None:
        for replica in self._replicas:
            replica.deliver_watches()


def servers_are_overtaken(explored: Stepped) -> None:
    """Have each server's next batch to a peer be overtaken by later ones, since a server sends several at
    once.
    """
    for server in explored.world.cluster.servers.values():
        for link in server.links.values():
            link.is_next_batch_overtaken = True
    explored.world.disturb(explored.world.now_ms + OVERTAKEN_MS)


def another_round(explored: Stepped) -> None:
    """Renew, and check removals, while a round waits for its answer."""
    explored.another_round()


HAPPENINGS: tuple[Happening, ...] = (*Fault, *ACTS, servers_are_overtaken, another_round)


def tried(edit: Edit, faults: Faults, setup: Setup, seed: int = 0) -> str:
    """Run a sequence; return its violations with the fewest faults that show them, or nothing."""
    outcome = Stepped(edit, faults, setup, seed=seed).run()
    if not outcome.violations:
        return ""
    faults, outcome = shrunk(
        faults, outcome, lambda less: Stepped(edit, less, setup, seed=seed).run(), without_one
    )
    return describe_failure(edit, faults, outcome, setup, replay(edit, faults, setup, seed))


def replay(edit: Edit, faults: Faults, setup: Setup, seed: int) -> str:
    """Return the command that runs a sequence again."""
    return command(f"reconciler.tried({called(edit, faults, setup)}, {seed})")


def sequences(seed: int, end: float, edits: tuple[Edit, ...] = EDITS, part: Part = WHOLE) -> Iterator[str]:
    """Try sequences until the time ``end``; yield the violations of each, or nothing.

    Each sequence has a random order of its own. Every edit comes without a fault first, then edits with up to
    four faults. An edit with a violation is not tried again; the others are.
    """
    draw, left = part.draw(seed), list(edits)
    lengths: dict[tuple[Edit, Setup], int] = {}

    def outcome(edit: Edit, faults: Faults, setup: Setup) -> str:
        order = draw.randrange(1_000_000)
        failure = guarded(
            lambda: tried(edit, faults, setup, order), lambda: replay(edit, faults, setup, order)
        )
        if failure:
            left.remove(edit)
        return failure

    with owned():
        for edit, setup in product(edits, SETUPS):
            if edit in left:
                lengths[edit, setup] = len(Stepped(edit, {}, setup).run().places)
                yield outcome(edit, {}, setup)
        while left and time.monotonic() < end:
            edit, setup = draw.choice(left), draw.choice(SETUPS)
            count = draw.randint(0, _MOST_FAULTS)
            places = range(lengths[edit, setup])
            chosen = sorted(draw.sample(places, min(count, len(places))))
            yield outcome(edit, {at: draw.choice(HAPPENINGS) for at in chosen}, setup)
