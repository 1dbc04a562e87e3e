"""One reconcile of one syncer: read the situation, decide, carry the decision out.

:class:`.situations.SituationReader` reads, :func:`.decision.decide` decides, and
:meth:`Reconciler.carry_out` alone writes, to registries and to Kubernetes. A reconcile has no thread and no
    lock, and reports to nobody: its whole result is in its :class:`SyncerResult`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from eurekube_provider.core.brake import RELEASE_ANNOTATION
from eurekube_provider.core.decision import RECHECK_SECONDS, RULES, Situation, State, decide
from eurekube_provider.core.derived_syncer import is_of_namespace
from eurekube_provider.core.errors import (
    EurekubeError,
    KubernetesError,
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
)
from eurekube_provider.core.identity import Cluster, ClusterOwner, cluster_of
from eurekube_provider.core.plan import Action, Outcome, Plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.syncer import FINALIZER, FORCE_DELETE_ANNOTATION, has_finalizer
from eurekube_provider.core.wording import joined
from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS, KubeAccess
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.conditions import problem_of
from eurekube_provider.operator.derived_syncers import DerivedSyncers
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.reports import Decided, Ended, Reports, SyncerResult
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.situations import SituationReader
from eurekube_provider.operator.sources import Sources
from eurekube_provider.runtime.clock import elapsed_seconds

_log = logging.getLogger(__name__)


class Reconciler:
    """The reconciler of syncers; any number of workers may share it, each with a syncer of its own.

    :param may_write: returns True if this replica leads, as far as it knows.
    :param previous_names: returns the former names of the cluster.
    :param waiting_pods: returns the problem of a syncer's pods that wait for callers.
    :param derived: the writer of derived syncers; by default one that reports no refused Service.
    :param reads_each: see :class:`.situations.SituationReader`.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        sources: Sources,
        drain_check: DrainCheck,
        may_write: Callable[[], bool],
        previous_names: Callable[[], Collection[str]] = tuple,
        waiting_pods: Callable[[SyncerKey], Problem | None] = lambda _: None,
        derived: DerivedSyncers | None = None,
        *,
        reads_each: bool = False,
    ) -> None:
        self._access = access
        self._cluster = cluster
        alike = set[frozenset[str]]()
        self._registries = {name: Registries(registries, name, alike) for name in ("", *registries)}
        self._sources = sources
        sources.connections = settings.connections
        self._brake = BrakeMemory(cluster, registries.values())
        permissions = Permissions(settings, cluster, self._registries[""], sources)
        self._reader = SituationReader(
            cluster, access, sources, permissions, self._brake, previous_names, reads_each=reads_each
        )
        self._derived = derived or DerivedSyncers(access, sources, waits=reads_each)
        self.reports = Reports(cluster, self._registries[""], sources, drain_check, waiting_pods)
        self._may_write = may_write
        self._release_after_seconds = settings.release_after_seconds
        self._reported_names: set[str] = set()
        self._undone: dict[SyncerKey, float] = {}  # since when a deletion cannot be carried out

    def reconcile(self, key: SyncerKey, served: str = "") -> SyncerResult:
        """Decide for one syncer and carry the decision out; see :meth:`decide`."""
        decided = self.decide(key, served)
        return self.carry_out(decided) if isinstance(decided, Decided) else decided

    def decide(self, key: SyncerKey, served: str = "") -> Decided | SyncerResult:
        """Read a syncer's situation and decide; return a result at once where that fails.

        :param served: the name of the registry whose workers ask: they do not wait for another registry that
            fails.
            Empty for a caller that waits for all.
        :raises LeadershipLost: this replica may not change anything any more.
        """
        if not self._may_write():
            raise LeadershipLost("another replica may lead by now")
        registries = self._registries[served]
        try:
            if (done := self._of_namespace(key, registries)) is not None:
                return done
            item, situation = self._reader.read(key, registries)
        except LeadershipLost:
            raise
        except EurekubeError as error:
            return self._failed(key, error, registries)
        self._tell_of_names(situation)
        return Decided(item, situation, decide(situation), registries)

    def _of_namespace(self, key: SyncerKey, registries: Registries) -> SyncerResult | None:
        """Do what concerns a namespace's syncer, or one that is derived from it; None to go on.

        One that has instances itself, as by an older CRD, is refused like any that cannot be read.
        """
        item = self._sources.syncers.get(*key)
        if item is None or not is_of_namespace(item):
            return self._derived.ensure(key)
        owner = str(ClusterOwner(self._cluster.name, *key))
        return None if any(registries.owned(owner).values()) else self._derived.reconcile(item)

    def _tell_of_names(self, situation: Situation) -> None:
        """Log once that the cluster has instances under another name which no setting lists as a former
        name.
        """
        for one in (one for there in situation.unclaimed.values() for one in there):
            name = cluster_of(one.owner) or ""
            if name not in self._reported_names:
                self._reported_names.add(name)
                _log.error(
                    "renewing instances unchanged: they are registered under another name of this cluster",
                    extra={
                        "other_name": name,
                        "syncer": "/".join(situation.key),
                        "hint": f"if the cluster was called so before, set --previous-cluster-name {name}; if"
                        " another operator serves the same syncers by that name, end one of the two",
                    },
                )

    def carry_out(self, decided: Decided) -> SyncerResult:
        """Carry a decision out.

        :raises LeadershipLost: this replica may not change anything any more.
        """
        try:
            if not self._prepare(decided):
                return SyncerResult(decided.item, concerned=frozenset([decided.situation.key]))
            return self._carry_out(decided)
        except LeadershipLost:
            raise
        except EurekubeError as error:
            return self._failed(decided.situation.key, error, decided.registries)

    def forget_all(self) -> None:
        """Forget the leader's memory: another replica leads."""
        self._brake.forget_all()
        self._derived.forget_all()
        self._reader.forget_all()
        self._undone.clear()  # which counts again for each replica that leads

    def _prepare(self, decided: Decided) -> bool:
        """Write the finalizer and remember the brake's state before a registry is changed.

        :returns: True if the registry may be changed; False if the syncer must be decided again.
        """
        key, item, situation = decided.situation.key, decided.item, decided.situation
        if item is not None and situation.syncer is not None and not has_finalizer(item):
            set_finalizer(self._access, SYNCERS, item, FINALIZER, present=True)
        if not self._brake.note(key, situation.now, decided.decision.brake, situation.brake.siblings):
            return False
        if decided.decision.brake.is_released:
            self._take_off_release(key)
        if situation.state is State.SERVED:
            for registry in decided.registries.values():
                registry.give_up(situation.owner, situation.desired.keys)
        return True

    def _take_off_release(self, key: SyncerKey) -> None:
        """Remove the release annotation that was obeyed: it shall not release the next hold as well."""
        _log.warning("released the brake on a person's request", extra={"syncer": "/".join(key)})
        try:
            body = {"metadata": {"annotations": {RELEASE_ANNOTATION: None}}}
            self._access.request("PATCH", SYNCERS.path(*key), body=body, content_type=MERGE_PATCH)
        except KubernetesError as error:
            extra = {"syncer": "/".join(key), "error": str(error)}
            _log.warning("failed to remove the annotation that releases the brake", extra=extra)

    def _carry_out(self, decided: Decided) -> SyncerResult:
        situation, decision, registries = decided.situation, decided.decision, decided.registries
        key = situation.key
        reads_all_registries = situation.state in (State.REFUSED, State.DELETED)
        outcome = Outcome()
        for name, steps in decision.at.items():
            plan = steps.plan
            if plan or name == situation.home or reads_all_registries:
                outcome += registries.apply(name, plan, situation.owner)
            if steps.evictions:
                outcome += self._evict(key, registries, name, Plan(steps.evictions), situation.owner)
        concerned = {heir.syncer for heir in situation.heirs.values()} | self._unblocked(decided, outcome)
        concerned.discard(key)
        handed_over = {id(change) for steps in decision.at.values() for change in steps.handovers}
        if count := sum(id(change) in handed_over for change in outcome.done):
            _log.info(
                "handed a syncer's instances over to other syncers",
                extra={"syncer": "/".join(key), "handed_over": count},
            )
        has_news = self._renew(decided) | self._has_taken_over(decided, outcome)
        if has_news:
            concerned.add(key)
        errors = [failure.error for failure in outcome.failures]
        error = next((one for one in errors if isinstance(one, RegistryError)), decision.error)
        if situation.state is State.DELETED:
            is_done = error is None and not has_news and not situation.is_awaited
            ended = self._end(decided, outcome, error, is_done=is_done)
            return replace(ended, concerned=frozenset(concerned))
        waits = [decision.again_seconds, RECHECK_SECONDS if errors and error is None else None]
        return SyncerResult(
            decided.item,
            self.reports.done(decided, outcome, decision.error),
            situation.syncer,
            decision.differing if situation.syncer is not None else None,
            outcome,
            decision.brake.held,
            None,
            frozenset(concerned),
            min((one for one in waits if one is not None), default=None),
            error,
        )

    def _has_taken_over(self, decided: Decided, outcome: Outcome) -> bool:
        """Return whether an instance was taken over from a former name of the cluster."""
        steps = [change for one in decided.decision.at.values() for change in one.takeovers]
        if not steps:
            return False
        meant = {id(change) for change in steps}
        count = sum(id(change) in meant for change in outcome.done)
        if not count:
            return False
        _log.info(
            "took over a syncer's instances from a former name of the cluster",
            extra={
                "syncer": "/".join(decided.situation.key),
                "taken_over": count,
                "former": ",".join(
                    sorted({cluster_of(one.actual.owner) or "" for one in steps if one.actual})
                ),
            },
        )
        return True

    @staticmethod
    def _evict(key: SyncerKey, registries: Registries, name: str, steps: Plan, owner: str) -> Outcome:
        """Remove instances that gone pods registered themselves; an instance that turns out to have an
        owner stays.
        """
        outcome = registries.apply(name, steps, owner)
        for change in outcome.done:
            _log.warning(
                "removed an instance that a deleted pod had registered itself",
                extra={"syncer": "/".join(key), "instance": change.instance.instance_id},
            )
        failures = (one for one in outcome.failures if not isinstance(one.error, OwnershipConflict))
        return Outcome(outcome.done, tuple(failures))

    def _renew(self, decided: Decided) -> bool:
        """Renew the syncer's instances, and let those lapse that may.

        :returns: True if the syncer has an instance that was unknown when the decision was made.
        """
        situation, registries = decided.situation, decided.registries
        has_news = False
        for name, there in registries.owned(situation.owner).items():
            steps = decided.decision.at[name]
            lapsing = {one.key for one in steps.lapses}
            known = {one.key for one in situation.held[name]}
            known |= {change.instance.key for change in steps.plan.changes}
            for one in there:
                has_news |= one.key not in known
                if one.key in lapsing:
                    registries[name].let_lapse(one)
                elif RULES[situation.state].renews:
                    registries[name].keep(one)
            renewed = {one.key for one in steps.renewals}
            others = (*situation.former.get(name, ()), *situation.unclaimed.get(name, ()))
            for one in others:
                if one.key in renewed:
                    registries[name].keep(one)
                elif one.key not in known:
                    registries[name].let_lapse(one)
        return has_news

    def _unblocked(self, decided: Decided, outcome: Outcome) -> set[SyncerKey]:
        """Return the syncers of an application from which an instance was deregistered that may have been
        in their way.
        """
        names = {
            change.instance.application
            for change in outcome.done
            if change.action is Action.DEREGISTER
            and (
                decided.situation.state is State.DELETED
                or change.instance.instance_id not in decided.situation.terminating
            )
        }
        return {other for name in names for other in self._sources.syncers_of(name)}

    def _end(
        self, decided: Decided, outcome: Outcome, error: RegistryError | None, *, is_done: bool
    ) -> SyncerResult:
        """Remove a deleted syncer's finalizer once Eureka is clean, a person asks for it, or Eureka is away
        too long.

        A namespace whose deletion waits for the syncer does more harm then than instances that lapse by
        themselves.
        """
        item, situation, key = decided.item, decided.situation, decided.situation.key
        again_seconds, why = decided.decision.again_seconds, ""
        is_ours = item is not None and has_finalizer(item)
        if situation.is_forced:
            why = f"the annotation {FORCE_DELETE_ANNOTATION} asks for it"
        elif is_done or not is_ours:
            self._undone.pop(key, None)
        elif error is not None:  # a round that only waits for others lets the time go on
            now = elapsed_seconds()
            waited = now - self._undone.setdefault(key, now)
            left_seconds = self._release_after_seconds - waited
            if left_seconds > 0:
                again_seconds = left_seconds
            else:
                why = f"Eureka could not be asked for {waited:.0f} s ({error})"
        failure: EurekubeError | None = error
        ended = None
        if why or is_done:
            ended = self._left_behind(decided, why) if why else self._end_of_deletion(decided, outcome)
            failure = self._release(decided)
        said = None
        if failure is not None and item is not None:
            said = self.reports.ended_early(item, problem_of(failure), decided.registries)
        return SyncerResult(item, said, ended=ended, again_seconds=again_seconds, error=failure)

    def _end_of_deletion(self, decided: Decided, outcome: Outcome) -> Ended:
        item, unlisted = decided.item, decided.situation.unlisted
        removed = [change.instance for steps in decided.decision.at.values() for change in steps.removals]
        instances = tuple(one for one in removed if one not in unlisted)
        if instances and outcome.done:
            _log.info(
                "deregistered the instances of a deleted syncer",
                extra={"syncer": "/".join(decided.situation.key), "deregistered": len(instances)},
            )
        is_ours = item is not None and has_finalizer(item)
        return Ended(instances, deregistered=len(instances) if is_ours else 0)

    def _left_behind(self, decided: Decided, why: str) -> Ended:
        """Stop renewing a deleted syncer's instances that could not be deregistered.

        As soon as Eureka answers, the syncer's end is reconciled like any other event and deregisters the
        instances that have not lapsed.
        """
        left = []
        for name, there in decided.registries.owned(decided.situation.owner).items():
            for one in there:
                decided.registries[name].let_lapse(one)
                left.append(one)
        names = [printable(f"{one.application} {one.instance_id}") for one in left]
        named = joined(names) or "nothing that is known of"
        note = (
            f"released although its instances may still be registered, because {why}; left behind: {named};"
            " they are removed as soon as the registry answers and allows it, if they have not lapsed by then"
        )
        extra = {"syncer": "/".join(decided.situation.key), "left": len(left), "reason": why}
        _log.warning("released a deleted syncer without deregistering its instances", extra=extra)
        return Ended(tuple(left), left_behind=note)

    def _release(self, decided: Decided) -> KubernetesError | None:
        """Forget a deleted syncer and remove its finalizer; return the error if that fails."""
        key, item = decided.situation.key, decided.item
        self._reader.forget(key)
        for registry in decided.registries.values():
            registry.give_up(decided.situation.owner)
        try:
            if item is not None and has_finalizer(item):
                set_finalizer(self._access, SYNCERS, item, FINALIZER, present=False)
        except KubernetesError as error:
            return error
        self._undone.pop(key, None)
        return None

    def _failed(self, key: SyncerKey, error: EurekubeError, registries: Registries) -> SyncerResult:
        """Return the result of a reconcile that ended early with an error."""
        item = self._sources.syncers.get(*key)
        said = self.reports.ended_early(item, problem_of(error), registries) if item is not None else None
        return SyncerResult(item, said, error=error)
