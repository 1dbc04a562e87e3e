"""From a change in the cluster to Eureka: which syncer is concerned, what it wants, what must change.

Level-triggered: an event says only *look again*. One syncer is looked at by one worker at a time; its
status and Events are written afterwards, by others. Each Eureka has workers of its own: one that hangs holds
up none of the others' syncers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.errors import (
    ConfigurationError,
    EurekubeError,
    KubernetesError,
    LeadershipLost,
    RegistryError,
)
from eurekube_provider.core.identity import Cluster, ClusterOwner, endpoint_of
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.mapping import Desired, leaving
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Change, Outcome, Plan, Policy, plan
from eurekube_provider.core.registry import Condition, Failing, Refused, Registry, Unread, failure_of
from eurekube_provider.core.syncer import DEFAULT_CONNECTION, OnTermination, Syncer, claimed_names
from eurekube_provider.eureka.forgotten import restorable
from eurekube_provider.kube.access import PODS, KubeAccess
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator.conditions import Finding, Reconciled, Report, reason_of, report
from eurekube_provider.operator.deletion import Deletion, has_finalizer, set_finalizer
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.history import Look, Looks
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.ownership_transfer import Offered, OwnershipTransfer
from eurekube_provider.operator.permission import NameTaken, Permissions, UnknownEureka
from eurekube_provider.operator.publisher import StatusPublisher
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.removal_brake import Brake
from eurekube_provider.operator.retention import remains
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources
from eurekube_provider.operator.status import StatusWriter
from eurekube_provider.operator.terminating import ended
from eurekube_provider.operator.unresponsive import UnresponsiveWatch

_log = logging.getLogger(__name__)

WORKERS = 16
"""So many syncers' plans can be under way to one Eureka, or gather to travel together."""

RECHECK_REFUSED_SECONDS = 20.0
LONGEST_STOP_SECONDS = 10.0

HANGING_STOP_SECONDS = 0.3
"""The same for what is under way to an Eureka that does not answer: waiting takes back nothing of it, and the
next leader waits for the Lease."""

LONGEST_LOOK_SECONDS = 600.0
"""A look that takes longer although Eureka answers is stuck."""

Object = Mapping[str, Any]

_NOTHING = Outcome()


class Controller:
    """Brings Eureka to what the syncers ask for.

    :param registries: by the name that ``spec.eureka`` may give.
    :param reads_each: have a first plan say what there is, although lists may be old: each instance is read.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        statuses: StatusWriter,
        events: EventRecorder,
        queue: WorkQueue[SyncerKey],
        may_write: Callable[[], bool] = lambda: True,
        *,
        reads_each: bool = False,
    ) -> None:
        self.history = Looks()
        self.drains = DrainCheck(access, settings.needed_drain_seconds, queue.add, queue.wait_drained)
        self._settings = settings
        self._may_write = may_write
        self._reads_each = reads_each
        self._cluster = cluster
        self._access = access
        self._registries = registries
        self._admission = Permissions(settings, cluster, registries)
        self._teller = StatusPublisher(events, statuses)
        self._queue = queue
        self._sources: Sources | None = None
        self._brake = Brake(cluster, registries.values(), access)
        self._successors = OwnershipTransfer(
            cluster, queue, self._apply, self._admission.registry_of, waits_at_once=reads_each
        )
        self._departure = Deletion(
            cluster,
            access,
            registries,
            events,
            queue,
            self._apply,
            self._successors,
            settings.release_after_seconds,
            self._gone,
        )
        self._silence = UnresponsiveWatch(registries, self._hangs, self.registry_concerned)
        self._busy_since: dict[str, float] = {}
        self._workers = [
            (
                registry,
                threading.Thread(
                    target=self._work, args=(name,), name=f"controller-{name}-{number}", daemon=True
                ),
            )
            for name, registry in registries.items()
            for number in range(WORKERS)
        ]
        self._own = threading.local()
        self._terms = threading.Lock()
        self._term = 0
        self._leads = self._stands_by = False
        self._taken_over: set[str] = set()
        self._told_hanging: set[SyncerKey] = set()
        queue.divide(registries, self.lane_of)

    def start(self, sources: Sources) -> None:
        """Have the workers ready for :meth:`lead`. ``sources`` have synced."""
        self._sources = sources
        self._silence.start()
        self._queue.pause()
        for _, worker in self._workers:
            worker.start()

    def lane_of(self, key: SyncerKey) -> str:
        """Whose workers look at a syncer: those of the Eureka that it names, or where it has something."""
        syncer = self._sources.syncers.get(*key) if self._sources else None
        named = ((syncer or {}).get("spec") or {}).get("eureka") or DEFAULT_CONNECTION
        if syncer is not None and named in self._registries:
            return str(named)
        owner = self._owner(key)
        holding = (name for name, registry in self._registries.items() if registry.known(owner=owner))
        return next(holding, next(iter(self._registries)))

    def pause(self) -> bool:
        """Begin nothing until :meth:`lead`; whether all that was begun has ended."""
        with self._terms:
            self._leads = False
            return self._queue.pause()

    def take_over(self) -> None:
        """Renew at once what is there; look at nothing yet.

        Of each Eureka on a thread of its own: who answers is not kept waiting by who does not.
        """
        assert self._sources is not None  # noqa: S101 - started before
        self._sources.hurry()
        wanted = self._sources.wanted_at()
        with self._terms:
            self._term += 1
            self._leads = self._stands_by = False
            self._taken_over.clear()
            self._told_hanging.clear()
            for name in self._registries:
                threading.Thread(
                    target=self._take_over,
                    args=(self._term, name, wanted[name]),
                    name=f"take-over-{name}",
                    daemon=True,
                ).start()

    def _take_over(self, term: int, name: str, wanted: int) -> None:
        assert self._sources is not None  # noqa: S101 - started before
        registry = self._registries[name]
        try:
            registry.take_over(wanted)
            for syncer in self._sources.syncers.objects():
                if not syncer["metadata"].get("deletionTimestamp"):
                    for instance in registry.known(owner=self._owner(key_of(syncer))):
                        registry.keep(instance)
        except Exception:  # noqa: BLE001 - its syncers must be looked at all the same
            _log.exception("an Eureka could not be taken over", extra={"eureka": name})
        with self._terms:
            if term != self._term:
                if self._stands_by:
                    registry.stand_by()
                return
            if isinstance(registry.condition(), Refused):
                return
            self._taken_over.add(name)
            if self._leads:
                self._begin(name)

    @property
    def is_current(self) -> bool:
        """Whether this replica knows what there is in the cluster now, and so may act on it."""
        return self._sources is not None and self._sources.is_current

    def lead(self) -> None:
        """Look at every syncer, and at what deleted ones left behind. After :meth:`take_over`.

        At what changed last first: nobody has looked at that yet.
        """
        with self._terms:
            self._leads = True
            for name in self._taken_over:
                self._begin(name)
        self.all_concerned()

    def _begin(self, name: str) -> None:
        """Look at an Eureka's syncers from now on, and at what deleted ones left behind there."""
        self._queue.resume(name)
        for owner in self._registries[name].owners():
            self.owner_concerned(owner)

    @property
    def is_idle(self) -> bool:
        """Whether, since this replica leads, everything has been looked at."""
        with self._terms:
            return len(self._taken_over) == len(self._registries) and self._queue.is_idle

    def stand_by(self) -> None:
        """Another replica leads: renew no more, and forget what only holds for who leads. After pause()."""
        with self._terms:
            self._term += 1
            self._stands_by = True
        for registry in self._registries.values():
            registry.stand_by()
        self._brake.forget_all()
        self._teller.forget_all()
        self.drains.forget_all()
        self._departure.forget_all()
        self._successors.forget_all()
        self.history.forget_all()

    @property
    def looks(self) -> Mapping[SyncerKey, Look]:
        """The last look at each syncer."""
        return self.history.last

    def liveness(self) -> list[Liveness]:
        """All threads. While an Eureka is away a worker's look may take as long as its time-outs do."""
        now = time.monotonic()
        workers = [
            loop
            for registry, worker in self._workers
            for loop in liveness_of(
                [worker],
                now - self._busy_since.get(worker.name, now)
                if failure_of(registry.condition()) is None
                else 0.0,
                LONGEST_LOOK_SECONDS,
            )
        ]
        return [*workers, *self._silence.liveness(), *self.drains.liveness()]

    def stop(self) -> None:
        """Finish what is being worked on, and begin nothing more."""
        self._queue.close()
        self._silence.stop()
        self.drains.stop()
        now = time.monotonic()
        for registry, worker in self._workers:
            hangs = failure_of(registry.condition()) is not None
            deadline = now + (HANGING_STOP_SECONDS if hangs else LONGEST_STOP_SECONDS)
            if worker.is_alive():
                worker.join(timeout=max(0.0, deadline - time.monotonic()))

    def owner_concerned(self, owner: str) -> None:
        """Something of this owner is not as it was in Eureka."""
        ours = self._cluster.syncer_of(owner)
        if ours is not None and self._settings.watches(ours.namespace):
            self._queue.add((ours.namespace, ours.syncer))

    def all_concerned(self) -> None:
        """Look at every syncer again, at what changed before first."""
        if self._sources is not None:
            for key in self._sources.syncer_keys():
                self._queue.add(key, is_news=False)

    def registry_concerned(self, name: str) -> None:
        """An Eureka was read, or cannot be read: look at whoever registers there, or has something there."""
        if self._sources is None:
            return
        for key in self._sources.syncers_at(name):
            self._queue.add(key)
        for owner in self._registries[name].owners():
            self.owner_concerned(owner)

    def _work(self, lane: str) -> None:
        name = threading.current_thread().name
        self._own.registry = self._registries[lane]
        while (key := self._queue.get(lane)) is not None:
            started = self._busy_since[name] = time.monotonic()
            failed = True
            try:
                error = self._reconcile(key)
                failed = error is not None
                if error is None:
                    self._queue.forget_failures(key)
                else:
                    self._try_again(key, error)
            except LeadershipLost as error:
                self._queue.add_after(key, 1.0)  # by then the queue is paused, or all is looked at anew
                _log.info("syncer left as it is", extra={"syncer": "/".join(key), "error": str(error)})
            except EurekubeError as error:
                self._try_again(key, error)
                syncer = self._sources.syncers.get(*key) if self._sources else None
                if syncer is not None:
                    self._report_failure(syncer, reason_of(error), error)
            except Exception:  # noqa: BLE001 - one syncer must not stop the others
                self._queue.retry(key)
                _log.exception("syncer not brought in line, tried again", extra={"syncer": "/".join(key)})
            finally:
                self._busy_since.pop(name, None)
                self.history.took(key, time.monotonic() - started, failed=failed)
                self._queue.done(key)

    def _try_again(self, key: SyncerKey, error: EurekubeError) -> None:
        delay = self._queue.retry(key)
        _log.warning(
            "syncer not brought in line, tried again",
            extra={"syncer": "/".join(key), "error": str(error), "retry_seconds": round(delay, 1)},
        )

    def _reconcile(self, key: SyncerKey) -> EurekubeError | None:
        """Look at one syncer; returns why it must be looked at again, which its status says already."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        if not self._may_write():
            raise LeadershipLost("another replica may lead by now")
        started = time.monotonic()
        syncer = self._sources.syncers.get(*key)
        if syncer is None and not self._sources.knows_syncers_of(key[0]):
            self._hold(key)
            return None
        if syncer is None or syncer["metadata"].get("deletionTimestamp"):
            self._departure.of(key, syncer, self._sources)
            return None
        try:
            wanted = Syncer.from_object(syncer)
            claimed = claimed_names(syncer)
            registry = self._admission.registry_of(wanted, self._sources, claimed)
        except ConfigurationError as error:
            return self._refuse(syncer, error, started)
        if not has_finalizer(syncer):
            set_finalizer(self._access, syncer, present=True)
        owner = wanted.owner(self._cluster)
        desired = self._sources.desired(wanted, self._cluster)
        registry.refresh([(wanted.application.upper(), one) for one in desired.terminating])
        if self._reads_each:
            there = (*desired.instances, *registry.known(owner=owner))
            registry.refresh([one.key for one in there], known_too=True)
        wanted_keys = {instance.key for instance in desired.instances}
        offered = self._offer(key, wanted, desired, wanted_keys, registry, owner)
        strays = [
            (other, one) for other, one in self._strays(registry, owner) if not offered.keeps(other, one.key)
        ]
        steps = self._plan(wanted, desired, registry, owner, offered)
        back = self._put_back(wanted, desired, wanted_keys, registry, owner)
        keys_back = {one.instance.key for one in back}
        rest = tuple(one for one in steps.changes if one.instance.key not in keys_back)
        wished = replace(steps, changes=(*back, *rest))
        waiting = len(rest) + len(strays) if wanted.is_paused else 0
        steps = replace(wished, changes=back) if wanted.is_paused else wished
        if wanted.is_paused or desired.is_in_doubt or wanted.policy is not Policy.SYNC:
            leaves = {}
        else:
            leaves = {one.key: Change(Action.DEREGISTER, one, one) for _, one in strays}
        unwanted = tuple(change for key_, change in leaves.items() if key_ not in wanted_keys)
        allowed, hold = self._brake.check(
            key, syncer, replace(steps, changes=(*steps.changes, *unwanted)), owner, self._sources
        )
        if hold is not None:
            going = {id(change) for change in allowed.changes}
            steps = replace(steps, changes=tuple(one for one in steps.changes if id(one) in going))
            leaves = {k: one for k, one in leaves.items() if k in wanted_keys or id(one) in going}
            self._queue.add_after(key, hold.wait_seconds)
        held = (hold.held_seconds, hold.message) if hold else None

        def found(outcome: Outcome, trouble: RegistryError | None) -> Report:
            return report(
                Reconciled(
                    wanted.application.upper(),
                    registry.known(owner=owner),
                    len(desired.instances),
                    self.drains.problem(key),
                    syncer=wanted,
                    desired=desired,
                    steps=steps,
                    outcome=outcome,
                    waiting=waiting,
                    braked=hold.message if hold else "",
                    trouble=trouble,
                    claimed=claimed,
                )
            )

        def tell_waiting(error: RegistryError) -> None:
            told = found(Outcome(), error)
            self._teller.tell(syncer, told)
            self.history.saw(key, told, wished, None, held)

        with self._silence.watched(key, registry, tell_waiting if steps else None):
            outcome = offered.outcome + self._apply(_with(steps, offered, registry), owner, registry)
            outcome += self._take_out(strays, leaves, wanted_keys, registry, owner, offered)
        self._renew(key, wanted, desired, wanted_keys, owner, registry, offered)
        self._make_way(key, outcome)
        told = found(outcome, _lasting(registry.condition()))
        self._teller.tell_look(syncer, told, outcome, time.monotonic() - started)
        self.history.saw(key, told, wished, outcome, held)
        self.drains.look_soon(wanted)
        errors = [failure.error for failure in outcome.failures]
        failed = next((error for error in errors if isinstance(error, RegistryError)), None)
        if failed is None and (steps.refusals or steps.doubled or errors or desired.is_unread):
            self._queue.add_after(key, RECHECK_REFUSED_SECONDS)
        return failed

    def _offer(
        self,
        key: SyncerKey,
        wanted: Syncer,
        desired: Desired,
        wanted_keys: set[tuple[str, str]],
        registry: Registry,
        owner: str,
    ) -> Offered:
        """Give what the syncer wants no more to whoever wants it. In doubt nothing is let go of."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        if wanted.is_paused or desired.is_in_doubt:
            return Offered()
        unwanted = [
            (
                one,
                [
                    held
                    for held in one.known(owner=owner)
                    if one is not registry or held.key not in wanted_keys
                ],
            )
            for one in self._registries.values()
        ]
        leaves = [
            # What said goodbye is wanted by nobody.
            (one, [held for held in there if not self._seen_terminating(held.instance_id)])
            for one, there in unwanted
        ]
        asked = frozenset((one, held.key) for one, there in unwanted for held in there)
        return self._successors.offer(key, owner, leaves, self._sources, asked)

    def _make_way(self, key: SyncerKey, outcome: Outcome) -> None:
        """Look at those for whom what was taken out may have stood in the way."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        names = {
            change.instance.application
            for change in outcome.done
            if change.action is Action.DEREGISTER and not self._seen_terminating(change.instance.instance_id)
        }
        for other in {other for name in names for other in self._sources.syncers_of(name)} - {key}:
            self._queue.add(other)

    def _plan(
        self, wanted: Syncer, desired: Desired, registry: Registry, owner: str, offered: Offered
    ) -> Plan:
        """What must change at ``registry``. In doubt only what was seen on its way out is removed."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        there = registry.known(owner=owner)
        instances = desired.instances
        if wanted.on_termination is OnTermination.OUT_OF_SERVICE:
            instances = (*instances, *leaving(desired, there))
        application = registry.known(application=wanted.application)
        name = wanted.application.upper()
        elsewhere = (one for one in there if one.application != name)
        steps = plan(instances, [*application, *elsewhere], owner, wanted.policy)
        stays = tuple(
            one
            for one in steps.changes
            if one.action is not Action.DEREGISTER or not offered.keeps(registry, one.instance.key)
        )
        if len(stays) < len(steps.changes):
            steps = replace(steps, changes=stays)
        if not desired.is_in_doubt:
            return steps
        gone = desired.terminating
        if not wanted.is_paused and not desired.is_unread:
            gone |= self._ended([one for one in there if one.application == name])
        certain = tuple(
            change
            for change in steps.changes
            if change.action is not Action.DEREGISTER
            or change.instance.instance_id in gone
            or self._seen_terminating(change.instance.instance_id)
        )
        return replace(steps, changes=certain)

    def _seen_terminating(self, instance_id: str) -> bool:
        """Whether an instance's endpoint was seen terminating lately, and is not back since."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        return self._sources.seen_terminating(*endpoint_of(instance_id, self._cluster.name))

    def _ended(self, held: Collection[Instance]) -> frozenset[str]:
        """The ids of those of which the cluster has no pod any more, though none was seen terminating."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        namespaces = {endpoint_of(one.instance_id, self._cluster.name)[1] for one in held}
        if any(self._sources.slices.without_list(one) for one in namespaces):
            return frozenset()
        slices = [item for one in namespaces for item in self._sources.slices.objects(one)]

        def is_there(namespace: str, name: str) -> bool:
            # A list, since the operator may list pods; of this selector the API server reads one object.
            query = {"fieldSelector": f"metadata.name={name}"}
            return bool(self._access.get(PODS.path(namespace), query)["items"])

        try:
            return ended(held, slices, self._cluster.name, is_there)
        except KubernetesError:
            return frozenset()  # in doubt they stay

    def _strays(self, registry: Registry, owner: str) -> list[tuple[Registry, Instance]]:
        """What is registered at connections that the syncer no longer names."""
        others = [other for other in self._registries.values() if other is not registry]
        return [(other, one) for other in others for one in other.known(owner=owner)]

    def _take_out(
        self,
        strays: list[tuple[Registry, Instance]],
        leaves: Mapping[tuple[str, str], Change],
        wanted_keys: set[tuple[str, str]],
        registry: Registry,
        owner: str,
        offered: Offered,
    ) -> Outcome:
        """Remove strays: what is wanted still, only once it stands at ``registry``."""
        outcome = Outcome()
        for other in {id(other): other for other, _ in strays}.values():
            changes = []
            for _, one in (pair for pair in strays if pair[0] is other):
                has_moved = _holds(registry, one.key, owner)
                if one.key in leaves and (has_moved or one.key not in wanted_keys):
                    changes.append(leaves[one.key])
            outcome += self._apply(_with(Plan(tuple(changes)), offered, other), owner, other)
        return outcome

    def _renew(
        self,
        key: SyncerKey,
        wanted: Syncer,
        desired: Desired,
        wanted_keys: set[tuple[str, str]],
        owner: str,
        registry: Registry,
        offered: Offered,
    ) -> None:
        """Renew what is registered; with UpsertOnly, what is no longer desired, or not there, may lapse.

        What was found to be the syncer's while others were asked for what they want is looked at anew.
        """
        lapses = wanted.policy is Policy.UPSERT_ONLY and not wanted.is_paused and not desired.is_in_doubt
        has_come = False
        for one in self._registries.values():
            for instance in one.known(owner=owner):
                has_moved = one is not registry and _holds(registry, instance.key, owner)
                is_kept = offered.keeps(one, instance.key)
                if lapses and not is_kept and (instance.key not in wanted_keys or has_moved):
                    one.let_lapse(instance)
                else:
                    one.keep(instance)
                is_unwanted = one is not registry or instance.key not in wanted_keys
                has_come |= is_unwanted and offered.is_news(one, instance.key)
        if has_come:
            self._queue.add(key)

    def _apply(self, steps: Plan, owner: str, registry: Registry) -> Outcome:
        failure = failure_of(registry.condition())
        if failure is not None and getattr(self._own, "registry", registry) is not registry:
            # A worker of another Eureka does not wait for this one.
            return Outcome.of(steps.changes, [failure] * len(steps.changes))
        return registry.apply(steps, owner)

    def _owner(self, key: SyncerKey) -> str:
        return str(ClusterOwner(self._cluster.name, *key))

    def _gone(self, key: SyncerKey, instances: list[Instance]) -> None:
        """A deleted syncer has gone, and these instances with it."""
        self._teller.forget(key)
        self.drains.forget(key)
        self._brake.forget(key)
        self._forget_lost(self._owner(key))
        self.history.forget(key, instances)

    def _refuse(self, syncer: Object, error: ConfigurationError, started: float) -> EurekubeError | None:
        """Take out what said goodbye or ended unseen, keep the rest, and say why nothing else is done.

        :returns: why something could not be taken out yet.
        """
        key = key_of(syncer)
        owner, outcome = self._owner(key), Outcome()
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        is_paused = (syncer.get("spec") or {}).get("paused")
        gone: set[str] = set()
        for registry in self._registries.values() if not is_paused else ():
            gone |= self._ended(registry.known(owner=owner))
        remaining = {
            registry: remains(
                syncer, registry.known(owner=owner), lambda one: one in gone or self._seen_terminating(one)
            )
            for registry in self._registries.values()
        }
        leaves = Plan(tuple(one for parts in remaining.values() for one in parts.leaves.changes))
        allowed, hold = self._brake.check(key, syncer, leaves, owner, self._sources)
        going = {id(one) for one in allowed.changes}
        if hold is not None:
            self._queue.add_after(key, hold.wait_seconds)
        for registry, parts in remaining.items():
            goes = (one for one in parts.leaves.changes if id(one) in going)
            outcome += self._apply(Plan((*self._restored(registry, owner), *goes)), owner, registry)
            for one in parts.leaves.changes:
                if id(one) not in going:
                    registry.keep(one.instance)
            for instance in parts.lapses:
                registry.let_lapse(instance)
            for instance in parts.stays:
                registry.keep(instance)
        reason: str = Reason.UNKNOWN_EUREKA if isinstance(error, UnknownEureka) else Reason.NOT_ALLOWED
        if isinstance(error, NameTaken):
            reason = ConditionType.CONFLICT
        self._report_failure(syncer, reason, error, outcome, time.monotonic() - started)
        self._queue.add_after(key, RECHECK_REFUSED_SECONDS)  # what it selects now need not be what it holds
        return next((one.error for one in outcome.failures if isinstance(one.error, RegistryError)), None)

    def _put_back(
        self,
        wanted: Syncer,
        desired: Desired,
        wanted_keys: set[tuple[str, str]],
        registry: Registry,
        owner: str,
    ) -> tuple[Change, ...]:
        """What a registry forgot of what a syncer keeps that is paused, or cannot tell what it wants."""
        if not wanted.is_paused and not desired.is_in_doubt:
            self._forget_lost(owner)
            return ()
        back = self._restored(registry, owner)
        if wanted.is_paused:
            return back
        return tuple(one for one in back if one.instance.key not in wanted_keys)  # which its plan registers

    def _restored(self, registry: Registry, owner: str) -> tuple[Change, ...]:
        """What a registry forgot of what an owner keeps, as it stood, where nobody else stands."""
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        lost = [one for one in registry.forgotten(owner) if not self._seen_terminating(one.instance_id)]
        if not lost:
            return ()
        namespaces = {endpoint_of(one.instance_id, self._cluster.name)[1] for one in lost}
        slices = (item for one in namespaces for item in self._sources.slices.objects(one))
        back = restorable(lost, slices, self._cluster.name)
        there = [
            one for name in {one.application for one in back} for one in registry.known(application=name)
        ]
        return plan(back, there, owner, Policy.UPSERT_ONLY).of(Action.REGISTER)

    def _forget_lost(self, owner: str) -> None:
        for registry in self._registries.values():
            registry.give_up(owner)

    def _hold(self, key: SyncerKey) -> None:
        """Renew what a syncer has registered, and change nothing."""
        for registry in self._registries.values():
            for instance in registry.known(owner=self._owner(key)):
                registry.keep(instance)

    def _hangs(self, name: str, error: RegistryError) -> None:
        """An Eureka is silent: while it is being taken over nobody looks at its syncers, who must say so."""
        with self._terms:
            waits = self._leads and name not in self._taken_over
        for key in self._sources.syncers_at(name) if self._sources and waits else ():
            with self._terms:  # held, so that no look is overtaken
                if not self._leads or name in self._taken_over:
                    return
                if key not in self._told_hanging:
                    self._told_hanging.add(key)
                    self._tell_hanging(key, self._registries[name], error)

    def _tell_hanging(self, key: SyncerKey, registry: Registry, error: RegistryError) -> None:
        assert self._sources is not None  # noqa: S101 - who leads has them
        syncer = self._sources.syncers.get(*key)
        if syncer is None or syncer["metadata"].get("deletionTimestamp"):
            return
        try:
            wanted = Syncer.from_object(syncer)
        except ConfigurationError:
            return  # which the first look says
        name, drain = wanted.application.upper(), self.drains.problem(key)
        desired = len(self._sources.desired(wanted, self._cluster).instances)
        failure, held, registered = Finding(reason_of(error), str(error)), [], None
        if not isinstance(registry.condition(), Unread):
            held = registry.known(owner=self._owner(key))
        else:
            registered = (syncer.get("status") or {}).get("registered", 0)
        found = report(Reconciled(name, held, desired, drain, failure, registered))
        self._teller.tell(syncer, found)
        self.history.saw(key, found)

    def _report_failure(
        self,
        syncer: Object,
        reason: str,
        error: EurekubeError,
        outcome: Outcome = _NOTHING,
        seconds: float = 0.0,
    ) -> None:
        """A look that ended early still shows in the syncer's status and as an Event."""
        key, before = key_of(syncer), syncer.get("status") or {}
        owner = self._owner(key)
        held = [one for registry in self._registries.values() for one in registry.known(owner=owner)]
        desired = before.get("desired", len(held))
        application = before.get("application", "")
        drain = self.drains.problem(key)
        registry = getattr(self._own, "registry", None)
        failure, registered = Finding(reason, str(error)), None
        is_unread = registry is not None and isinstance(registry.condition(), Unread)
        if isinstance(error, RegistryError) and is_unread:
            held, registered = [], before.get("registered", 0)
        found = report(Reconciled(application, held, desired, drain, failure, registered))
        self._teller.tell_look(syncer, found, outcome, seconds)
        self.history.saw(key, found, outcome=outcome)


def _lasting(condition: Condition) -> RegistryError | None:
    """Why an Eureka cannot be read, where all its syncers are to say so."""
    return condition.error if isinstance(condition, Failing) and condition.lasts else None


def _holds(registry: Registry, key: tuple[str, str], owner: str) -> bool:
    held = registry.get(key)
    return held is not None and held.owner == owner


def _with(steps: Plan, offered: Offered, registry: Registry) -> Plan:
    """Beside what would be handed over, in a dry run."""
    shown = offered.shown.get(registry, ())
    return replace(steps, changes=(*shown, *steps.changes)) if shown else steps
