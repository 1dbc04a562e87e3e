"""From a change in the cluster to Eureka: which syncer is concerned, what it wants, what must change.

Level-triggered: an event says only *look again*. One syncer is looked at by one worker at a time; its
status and Events are written afterwards, by others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eurekube_provider.core.clock import elapsed_seconds
from eurekube_provider.core.errors import (
    ConfigurationError,
    EurekubeError,
    KubernetesError,
    LeadershipLost,
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import ClusterOwner
from eurekube_provider.core.mapping import Cluster, Desired, Problem, Syncer, desired_instances
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Plan, Policy, RefusalReason, plan
from eurekube_provider.core.pulse import Pulse, pulses_of
from eurekube_provider.eureka.apply import CarryOut, Outcome, apply
from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS, KubeAccess
from eurekube_provider.kube.events import EventRecorder, Kind
from eurekube_provider.operator.brake import Brake
from eurekube_provider.operator.looks import Look, Looks
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.registry import Registry
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources, SyncerKey
from eurekube_provider.operator.status import Report, StatusWriter, joined

_log = logging.getLogger(__name__)

FINALIZER = "eurekube.io/deregister"
"""Keeps a deleted syncer until its instances are out of Eureka."""

FORCE_DELETE_ANNOTATION = "eurekube.io/force-delete"
"""With any value on a deleted syncer: let it go at once, whatever it leaves in Eureka."""

WORKERS = 4
RECHECK_REFUSED_SECONDS = 20.0
LONGEST_STOP_SECONDS = 10.0

LONGEST_LOOK_SECONDS = 600.0
"""A look that takes longer although Eureka answers is stuck."""

_KEEPS_REGISTERED = frozenset({"NoMatchingService"})
"""Problems that leave no doubt about what is desired; every other one keeps what is registered."""

Object = Mapping[str, Any]


class Controller:
    """Brings Eureka to what the syncers ask for."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: KubeAccess,
        registry: Registry,
        statuses: StatusWriter,
        events: EventRecorder,
        queue: WorkQueue[SyncerKey],
        carry_out: CarryOut = apply,
    ) -> None:
        self._settings = settings
        self._carry_out = carry_out
        self._cluster = cluster
        self._access = access
        self._registry = registry
        self._statuses = statuses
        self._events = events
        self._queue = queue
        self._sources: Sources | None = None
        self._undone: dict[SyncerKey, float] = {}  # since when a deletion cannot be carried out
        self.history = Looks()
        self._busy_since: dict[str, float] = {}
        self._brake = Brake(cluster, registry.view, access)
        self._executor = ThreadPoolExecutor(8, thread_name_prefix="apply")
        self._workers = [
            threading.Thread(target=self._work, name=f"controller-{number}", daemon=True)
            for number in range(WORKERS)
        ]

    def start(self, sources: Sources) -> None:
        """Have the workers ready for :meth:`lead`. ``sources`` have synced."""
        self._sources = sources
        self._queue.pause()
        for worker in self._workers:
            worker.start()

    def pause(self) -> bool:
        """Begin nothing until :meth:`lead`; whether all that was begun has ended."""
        return self._queue.pause()

    def lead(self) -> None:
        """Look at every syncer, and at what deleted ones left behind; renew what is there at once."""
        assert self._sources is not None  # noqa: S101 - started before
        self._sources.hurry()
        self._registry.take_over()
        self._registry.expect(self._sources.endpoint_count())
        for syncer in self._sources.syncers.objects():
            if not syncer["metadata"].get("deletionTimestamp"):
                for instance in self._registry.view.owned(self._owner(_key(syncer))):
                    self._registry.hold(instance)
        self.all_concerned()
        for owner in self._registry.view.owners():
            self.owner_concerned(owner)
        self._queue.resume()

    def stand_by(self) -> None:
        """Another replica leads: renew no more, and forget what only holds for who leads. After pause()."""
        self._registry.stand_by()
        self._brake.forget_all()
        self._statuses.forget_all()
        self._undone.clear()

    @property
    def looks(self) -> Mapping[SyncerKey, Look]:
        """The last look at each syncer."""
        return self.history.last

    def pulses(self) -> list[Pulse]:
        """The workers. While Eureka is away a look may take as long as its time-outs do."""
        now = time.monotonic()
        answers = self._registry.failure is None
        return [
            pulse
            for worker in self._workers
            for pulse in pulses_of(
                [worker],
                now - self._busy_since.get(worker.name, now) if answers else 0.0,
                LONGEST_LOOK_SECONDS,
            )
        ]

    def stop(self) -> None:
        """Finish what is being worked on, and begin nothing more."""
        self._queue.close()
        deadline = time.monotonic() + LONGEST_STOP_SECONDS
        for worker in self._workers:
            if worker.is_alive():
                worker.join(timeout=max(0.0, deadline - time.monotonic()))
        self._executor.shutdown(wait=False, cancel_futures=True)

    def owner_concerned(self, owner: str) -> None:
        """Something of this owner is not as it was in Eureka."""
        ours = self._cluster.syncer_of(owner)
        if ours is not None and self._settings.watches(ours.namespace):
            self._queue.add((ours.namespace, ours.syncer))

    def all_concerned(self) -> None:
        """Look at every syncer again."""
        if self._sources is not None:
            for key in self._sources.syncer_keys():
                self._queue.add(key)

    def _work(self) -> None:
        name = threading.current_thread().name
        while (key := self._queue.get()) is not None:
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
                    self._report_failure(syncer, error)
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
        if not self._registry.peers.may_write():
            raise LeadershipLost("another replica may lead by now")
        started = time.monotonic()
        syncer = self._sources.syncers.get(*key)
        if syncer is None or syncer["metadata"].get("deletionTimestamp"):
            self._detach(key, syncer)
            return None
        self._require_read()
        try:
            wanted = self._admit(Syncer.from_object(syncer))
        except ConfigurationError as error:
            self._refuse(syncer, error)
            return None
        self._keep_finalizer(syncer)
        owner = wanted.owner(self._cluster)
        desired = self._desired(wanted)
        view = self._registry.view
        keeps = any(problem.reason not in _KEEPS_REGISTERED for problem in desired.problems)
        steps = plan(
            desired.instances,
            [*view.application(wanted.app), *view.owned(owner)],
            owner,
            Policy.UPSERT_ONLY if keeps else Policy.SYNC,
        )
        wished = steps
        steps, braked = self._brake.check(key, syncer, steps, owner, self._sources)
        outcome = self._apply(steps, owner)
        for instance in view.owned(owner):
            self._registry.hold(instance)
        if braked is not None:
            problem = Problem("Braked", braked.message)
            desired = replace(desired, problems=(problem, *desired.problems))
            self._queue.add_after(key, braked.wait_seconds)
        report = self._tell(syncer, wanted, desired, steps, outcome, time.monotonic() - started)
        held = (braked.held_seconds, braked.message) if braked else None
        self.history.saw(key, report, wished, outcome, held)
        errors = [failure.error for failure in outcome.failures]
        if steps.refusals or errors:
            self._queue.add_after(key, RECHECK_REFUSED_SECONDS)
        return next((error for error in errors if isinstance(error, RegistryError)), None)

    def _desired(self, wanted: Syncer) -> Desired:
        assert self._sources is not None  # noqa: S101 - workers start with the sources
        namespace = wanted.target_namespace
        services, slices = self._sources.services.objects(namespace), self._sources.slices.objects(namespace)
        return desired_instances(wanted, services, slices, self._cluster)

    def _apply(self, steps: Plan, owner: str) -> Outcome:
        registry = self._registry
        return self._carry_out(steps, owner, registry.peers, registry, self._executor, leases=registry.leases)

    def _admit(self, syncer: Syncer) -> Syncer:
        """Whether the operator's configuration lets this syncer publish.

        :raises ConfigurationError: it does not.
        """
        if not self._settings.may_select(syncer.namespace, syncer.target_namespace):
            raise ConfigurationError(
                f"spec.selector.namespace is {syncer.target_namespace}, and syncers of {syncer.namespace} may"
                " not select Services there: move the syncer, or allow it in the operator's configuration"
                f" with --cross-namespace {syncer.namespace}={syncer.target_namespace}"
            )
        if not self._settings.watches(syncer.target_namespace):
            raise ConfigurationError(
                f"spec.selector.namespace is {syncer.target_namespace}, which this operator does not watch:"
                " add it to --watch-namespace"
            )
        return syncer

    def _refuse(self, syncer: Object, error: ConfigurationError) -> None:
        """Say why nothing is done; what is registered stays and is renewed."""
        held = self._registry.view.owned(self._owner(_key(syncer)))
        for instance in held:
            self._registry.hold(instance)
        self._events.record(syncer, Kind.WARNING, "NotAllowed", str(error))
        report = Report(
            is_ready=False,
            reason="NotAllowed",
            message=str(error),
            desired=len(held),
            registered=len(held),
        )
        self._statuses.report(syncer, report)
        self.history.saw(_key(syncer), report)

    def _owner(self, key: SyncerKey) -> str:
        return str(ClusterOwner(self._cluster.name, *key))

    def _require_read(self) -> None:
        """Nothing is changed before the registry has been read once.

        :raises RegistryError: it has not.
        """
        if not self._registry.was_read:
            raise self._registry.failure or RegistryUnreachable("Eureka has not been read yet")

    def _detach(self, key: SyncerKey, syncer: Object | None) -> None:
        """The syncer is deleted: take out what it put in, then let it go."""
        if syncer is None or FINALIZER not in (syncer["metadata"].get("finalizers") or ()):
            self._take_out(key, syncer)
            return
        if FORCE_DELETE_ANNOTATION in (syncer["metadata"].get("annotations") or {}):
            self._let_go(key, syncer, f"the annotation {FORCE_DELETE_ANNOTATION} asks for it")
            return
        try:
            held = self._take_out(key, syncer)
        except RegistryError as error:
            waited = elapsed_seconds() - self._undone.setdefault(key, elapsed_seconds())
            left = self._settings.release_after_seconds - waited
            if left > 0:
                self._queue.add_after(key, left)
                raise
            self._let_go(key, syncer, f"Eureka could not be asked for {waited:.0f} s ({error})")
            return
        self._undone.pop(key, None)
        self._events.record(syncer, Kind.NORMAL, "Deregistered", f"{_count(held)} taken out of Eureka")
        self._set_finalizer(syncer, present=False)

    def _let_go(self, key: SyncerKey, syncer: Object, why: str) -> None:
        """Release a syncer whose instances could not be taken out: no namespace waits for Eureka for ever.

        They are renewed no more. The syncer's end is an event like any other, so that they are taken out as
        soon as Eureka answers, if they have not lapsed by then.
        """
        left = self._registry.abandon(self._owner(key))
        named = joined([f"{one.application} {one.instance_id}" for one in left]) or "nothing that is known of"
        note = f"released although its instances may still be in Eureka, because {why}; left behind: {named}"
        _log.warning("syncer released", extra={"syncer": "/".join(key), "left": len(left), "reason": why})
        self._events.record(syncer, Kind.WARNING, "LeftBehind", note)
        self._undone.pop(key, None)
        self._statuses.forget(key)
        self._brake.forget(key)
        self.history.forget(key, left)
        self._set_finalizer(syncer, present=False)

    def _take_out(self, key: SyncerKey, syncer: Object | None) -> int:
        """Deregister what a deleted syncer put in; how many instances.

        :raises RegistryError: something could not be deregistered.
        """
        self._require_read()
        owner = self._owner(key)
        registered = there = self._registry.view.owned(owner)
        held = len(there)
        if syncer is not None:
            # What was registered shortly before a restart may be in no list yet.
            with suppress(ConfigurationError):
                there = [*self._desired(Syncer.from_object(syncer)).instances, *there]
        steps = plan((), there, owner)
        outcome = self._apply(steps, owner)
        for failure in outcome.failures:
            if not isinstance(failure.error, OwnershipConflict):
                raise failure.error
            # Somebody else's by now: not ours to remove, and nothing to wait for.
        if held and outcome.done:
            _log.info(
                "syncer is gone, its instances were deregistered",
                extra={"syncer": "/".join(key), "deregistered": held},
            )
        self._statuses.forget(key)
        self._brake.forget(key)
        self.history.forget(key, registered)
        return held

    def _keep_finalizer(self, syncer: Object) -> None:
        if FINALIZER not in (syncer["metadata"].get("finalizers") or ()):
            self._set_finalizer(syncer, present=True)

    def _set_finalizer(self, syncer: Object, *, present: bool) -> None:
        """Write the finalizer before the first registration, remove it after the last deregistration."""
        path = SYNCERS.path(*_key(syncer))
        for attempt in (1, 2, 3):
            try:
                current = self._access.get(path)["metadata"]
                others = [name for name in current.get("finalizers") or () if name != FINALIZER]
                if current.get("deletionTimestamp") and present:
                    return
                finalizers = [*others, FINALIZER] if present else others
                body = {"metadata": {"resourceVersion": current["resourceVersion"], "finalizers": finalizers}}
                self._access.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            except KubernetesError as error:
                if error.status_code == 404:
                    return
                if error.status_code == 409 and attempt < 3:
                    continue
                raise
            return

    def _tell(
        self,
        syncer: Object,
        wanted: Syncer,
        desired: Desired,
        steps: Plan,
        outcome: Outcome,
        seconds: float,
    ) -> Report:
        """Log, Events and status of one look."""
        done = {action: sum(change.action is action for change in outcome.done) for action in Action}
        application = wanted.app.upper()
        if outcome.done:
            _log.info(
                "Eureka was brought in line",
                extra={
                    "syncer": f"{wanted.namespace}/{wanted.name}",
                    "application": application,
                    **{str(action): count for action, count in done.items() if count},
                    "milliseconds": round(seconds * 1000, 1),
                },
            )
        if done[Action.REGISTER]:
            self._events.record(
                syncer,
                Kind.NORMAL,
                "Registered",
                f"{_count(done[Action.REGISTER])} of {application} registered",
            )
        if done[Action.DEREGISTER]:
            self._events.record(
                syncer,
                Kind.NORMAL,
                "Deregistered",
                f"{_count(done[Action.DEREGISTER])} of {application} deregistered",
            )
        report = self._report(application, wanted, desired, steps, outcome)
        if not report.is_ready:
            self._events.record(syncer, Kind.WARNING, report.reason, report.message)
        self._statuses.report(syncer, report)
        return report

    def _report(
        self, application: str, wanted: Syncer, desired: Desired, steps: Plan, outcome: Outcome
    ) -> Report:
        owner = wanted.owner(self._cluster)
        there = {instance.key for instance in self._registry.view.owned(owner)}
        conflicts = [
            refusal.describe() for refusal in steps.refusals if refusal.reason is RefusalReason.CONFLICT
        ] + [
            str(failure.error) for failure in outcome.failures if isinstance(failure.error, OwnershipConflict)
        ]
        twins = [
            refusal.describe()
            for refusal in steps.refusals
            if refusal.reason is RefusalReason.SELF_REGISTERED
        ]
        problems = {problem.reason: problem.message for problem in desired.problems}
        if conflicts:
            problems["Conflict"] = joined(conflicts)
        if twins:
            problems["SelfRegistered"] = joined(twins)
        reason, message = next(iter(problems.items()), ("Synced", _summary(application, desired.instances)))
        report = Report(
            is_ready=not problems,
            reason=reason,
            message=message,
            application=application,
            desired=len(desired.instances),
            registered=sum(instance.key in there for instance in desired.instances),
            refused=len(conflicts) + len(twins),
            problems=problems,
        )
        failed = next((f.error for f in outcome.failures if isinstance(f.error, RegistryError)), None)
        if failed is not None:
            report = replace(report, is_ready=False, reason=_reason(failed), message=str(failed))
        return report

    def _report_failure(self, syncer: Object, error: EurekubeError) -> None:
        """A look that ended early still shows in the syncer's status and as an Event."""
        held = len(self._registry.view.owned(self._owner(_key(syncer))))
        before = syncer.get("status") or {}
        self._events.record(syncer, Kind.WARNING, _reason(error), str(error))
        report = Report(
            is_ready=False,
            reason=_reason(error),
            message=str(error),
            application=before.get("application", ""),
            desired=before.get("desired", held),
            registered=held,
        )
        self._statuses.report(syncer, report)
        self.history.saw(_key(syncer), report)


def _key(syncer: Object) -> SyncerKey:
    return (syncer["metadata"]["namespace"], syncer["metadata"]["name"])


def _reason(error: EurekubeError) -> str:
    if isinstance(error, RegistryUnreachable):
        return "EurekaUnreachable"
    if isinstance(error, RegistryDenied):
        return "EurekaDenied"
    if isinstance(error, RegistryError):
        return "EurekaRejected"
    return "KubernetesError" if isinstance(error, KubernetesError) else "Failed"


def _count(number: int) -> str:
    return "1 instance" if number == 1 else f"{number} instances"


def _summary(application: str, instances: tuple[Instance, ...]) -> str:
    up = sum(instance.status == "UP" for instance in instances)
    down = len(instances) - up
    return f"{_count(len(instances))} of {application} in Eureka" + (f", {down} not ready" if down else "")
