"""One reconcile of one syncer: read the situation, decide, carry the decision out.

:class:`.situations.SituationReader` reads, :func:`.decision.decide` decides, and
:meth:`Reconciler.carry_out` alone writes, to registries and to Kubernetes. A reconcile has no thread and no
    lock, and reports to nobody: its whole result is in its :class:`SyncerResult`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.decision import (
    BLOCKED_RECHECK_SECONDS,
    RULES_BY_STATE,
    SyncerSituation,
    SyncerState,
    decide,
)
from eurekube_provider.core.derived_syncer import is_namespace_syncer
from eurekube_provider.core.errors import (
    EurekubeError,
    KubernetesError,
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import Cluster, ClusterOwner, cluster_name_of_owner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, is_being_deleted, key_of
from eurekube_provider.core.plan import Action, Change, Plan, PlanOutcome
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.registry import Failing, Registry
from eurekube_provider.core.syncer import FINALIZER, FORCE_DELETE_ANNOTATION, has_finalizer
from eurekube_provider.core.wording import join_sentences
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, SYNCERS, KubeAccess
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.conditions import (
    EUREKA_ERROR_REASONS,
    ConditionInput,
    SyncerReport,
    build_report,
    problem_of,
)
from eurekube_provider.operator.derived_syncers import DerivedSyncerController
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.reports import DecidedSituation, SyncerDeletion, SyncerResult
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.situations import SituationReader
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)


class Reconciler:
    """The reconciler of syncers; any number of workers may share it, each with a syncer of its own.

    :param reads_each_instance: see :class:`.situations.SituationReader`.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        sources: ClusterCache,
        drain_check: DrainCheck,
        may_write: Callable[[], bool],
        previous_cluster_names: Callable[[], Collection[str]] = tuple,
        waiting_pods: Callable[[SyncerKey], Problem | None] = lambda _: None,
        derived: DerivedSyncerController | None = None,
        *,
        reads_each_instance: bool = False,
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
            cluster,
            access,
            sources,
            permissions,
            self._brake,
            previous_cluster_names,
            reads_each_instance=reads_each_instance,
        )
        self._derived = derived or DerivedSyncerController(access, sources, waits=reads_each_instance)
        self._drain_check = drain_check
        self._waiting_pods = waiting_pods
        self._may_write = may_write
        self._release_after_seconds = settings.release_after_seconds
        self._reported_names: set[str] = set()
        self._undone: dict[SyncerKey, float] = {}  # since when a deletion cannot be carried out

    def reconcile(self, key: SyncerKey, worker_registry: str = "") -> SyncerResult:
        """Decide for one syncer and carry the decision out; see :meth:`decide`."""
        decided = self.decide(key, worker_registry)
        return self.carry_out(decided) if isinstance(decided, DecidedSituation) else decided

    def decide(self, key: SyncerKey, worker_registry: str = "") -> DecidedSituation | SyncerResult:
        """Read a syncer's situation and decide; return a result at once where that fails.

        :param worker_registry: the name of the registry whose workers ask: they do not wait for another
            registry that fails. Empty for a caller that waits for all.
        :raises LeadershipLost: this replica may not change anything any more.
        """
        if not self._may_write():
            raise LeadershipLost("another replica may lead by now")
        registries = self._registries[worker_registry]
        try:
            if (done := self._reconcile_if_namespace_or_derived(key, registries)) is not None:
                return done
            item, situation = self._reader.read(key, registries)
        except LeadershipLost:
            raise
        except EurekubeError as error:
            return self._failed_result(key, error, registries)
        self._log_unknown_cluster_names(situation)
        return DecidedSituation(item, situation, decide(situation), registries)

    def _reconcile_if_namespace_or_derived(
        self, key: SyncerKey, registries: Registries
    ) -> SyncerResult | None:
        """Reconcile a namespace's syncer, or a syncer derived from it; return None for all others.

        A namespace's syncer that has instances itself, as by an older CRD, is refused like an invalid one.
        """
        item = self._sources.syncers.get(*key)
        if item is None or not is_namespace_syncer(item):
            return self._derived.sync_with_service(key)
        owner = str(ClusterOwner(self._cluster.name, *key))
        return (
            None
            if any(registries.instances_of_owner(owner).values())
            else self._derived.reconcile_namespace_syncer(item)
        )

    def _log_unknown_cluster_names(self, situation: SyncerSituation) -> None:
        """Log once each name under which this cluster has instances and that no setting lists."""
        undeclared = situation.under_undeclared_cluster_names
        for one in [one for there in undeclared.values() for one in there] if undeclared else ():
            name = cluster_name_of_owner(one.owner) or ""
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

    def carry_out(self, decided: DecidedSituation) -> SyncerResult:
        """Carry a decision out.

        :raises LeadershipLost: this replica may not change anything any more.
        """
        try:
            if not self._prepare_registry_changes(decided):
                return SyncerResult(
                    decided.syncer_object, syncers_to_reconcile=frozenset([decided.situation.key])
                )
            return self._apply_decision(decided)
        except LeadershipLost:
            raise
        except EurekubeError as error:
            return self._failed_result(decided.situation.key, error, decided.registries)

    def on_leadership_lost(self) -> None:
        """Forget all that only the leader must remember, since another replica leads."""
        self._brake.on_leadership_lost()
        self._derived.on_leadership_lost()
        self._undone.clear()  # which counts again for each replica that leads

    def _prepare_registry_changes(self, decided: DecidedSituation) -> bool:
        """Write the finalizer and record the brake's judgement before a registry is changed.

        :returns: True if the registry may be changed; False if the syncer must be decided again.
        """
        key, item, situation = decided.situation.key, decided.syncer_object, decided.situation
        if item is not None and situation.syncer is not None and not has_finalizer(item):
            set_finalizer(self._access, SYNCERS, item, FINALIZER, present=True)
        if not self._brake.record_judgement_if_current(
            key, situation.now, decided.decision.brake_judgement, situation.brake_history.siblings
        ):
            return False
        was_held = decided.decision.brake_judgement.is_released
        # One that came too late, as after the brake's minute, must not wait for the next broken source.
        is_spent = situation.brake_history.is_released and situation.state is SyncerState.COMPLETE
        if was_held or is_spent:
            self._remove_release_annotation(key, was_held=was_held)
        if situation.state is SyncerState.COMPLETE:
            for registry in decided.registries.values():
                registry.stop_tracking_lost_instances(situation.owner, situation.desired.keys)
        return True

    def _remove_release_annotation(self, key: SyncerKey, *, was_held: bool) -> None:
        """Remove the release annotation, so that it does not release the next braked removals as well."""
        if not self._access.sends_writes:
            if was_held:
                _log.warning(
                    "dry run: would release the brake, as the release annotation asks, removing nothing",
                    extra={"syncer": "/".join(key)},
                )
            return
        message = "released the brake, as the release annotation asks: carrying out the held removals"
        if not was_held:
            message = "taking the release annotation off: no removal is held"
        _log.warning(message, extra={"syncer": "/".join(key)})
        try:
            body = {"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: None}}}
            self._access.request("PATCH", SYNCERS.path(*key), body=body, content_type=MERGE_PATCH_TYPE)
        except KubernetesError as error:
            extra = {"syncer": "/".join(key), "error": str(error)}
            _log.warning(
                "failed to remove the release annotation, going on: it also releases the next removals",
                extra=extra,
            )

    def _apply_decision(self, decided: DecidedSituation) -> SyncerResult:
        situation, decision, registries = decided.situation, decided.decision, decided.registries
        key = situation.key
        reads_all_registries = situation.state in (SyncerState.REFUSED, SyncerState.DELETED)
        outcome = PlanOutcome()
        handovers: list[Change] = []
        takeovers: list[Change] = []
        for name, steps in decision.steps_by_registry.items():
            handovers += steps.handovers
            takeovers += steps.takeovers
            plan = steps.plan
            if plan or name == situation.home_registry or reads_all_registries:
                outcome += self._apply_plan(registries, name, plan, situation)
            if steps.dead_registration_removals:
                outcome += self._remove_dead_self_registrations(
                    key, registries, name, Plan(steps.dead_registration_removals), situation.owner
                )
        concerned = {heir.syncer for heir in situation.next_owners.values()} | self._find_unblocked_syncers(
            decided, outcome
        )
        concerned.discard(key)
        if count := _count_done(outcome, handovers):
            _log.info(
                "handed a syncer's instances over to other syncers, which renew them from now on",
                extra={"syncer": "/".join(key), "handed_over": count},
            )
        there = registries.instances_of_owner(situation.owner)
        has_news = self._renew_or_let_lapse(decided, there)
        if count := _count_done(outcome, takeovers):
            has_news = True
            former = sorted(
                {cluster_name_of_owner(one.actual.owner) or "" for one in takeovers if one.actual}
            )
            _log.info(
                "took over a syncer's instances from a former name of the cluster, renewing them as its own",
                extra={"syncer": "/".join(key), "taken_over": count, "former": ",".join(former)},
            )
        if has_news:
            concerned.add(key)
        errors = [failure.error for failure in outcome.failures]
        error = next((one for one in errors if isinstance(one, RegistryError)), decision.error)
        if situation.state is SyncerState.DELETED:
            is_done = error is None and not has_news and not situation.awaits_next_owners
            ended = self._finish_deletion(decided, outcome, error, is_done=is_done)
            return replace(ended, syncers_to_reconcile=frozenset(concerned))
        waits = [
            decision.requeue_after_seconds,
            BLOCKED_RECHECK_SECONDS if errors and error is None else None,
        ]
        return SyncerResult(
            decided.syncer_object,
            self._reconcile_report(decided, there, outcome, decision.error),
            situation.syncer,
            decision.home_differences if situation.syncer is not None else None,
            outcome,
            decision.brake_judgement.held_removals,
            None,
            frozenset(concerned),
            min((one for one in waits if one is not None), default=None),
            error,
        )

    @staticmethod
    def _apply_plan(registries: Registries, name: str, plan: Plan, situation: SyncerSituation) -> PlanOutcome:
        """Apply a syncer's plan at a registry. If a server answers a change so strangely that removals are
        given up, endpoints that ended are removed all the same: else callers would find them for ever.
        """
        outcome = registries.apply(name, plan, situation.owner)
        if not outcome.failures:
            return outcome
        ended = situation.terminating_ids | situation.ended_ids
        given_up = tuple(
            one
            for one in outcome.failures
            if one.change.action is Action.DEREGISTER
            and one.change.instance.instance_id in ended
            and isinstance(one.error, RegistryUnreachable)
            and one.error.status_code is not None
        )
        left = tuple(one for one in outcome.failures if one not in given_up)
        if not given_up or not left:
            return outcome
        removals = Plan(tuple(one.change for one in given_up))
        return PlanOutcome(outcome.done, left) + registries.apply(name, removals, situation.owner)

    @staticmethod
    def _remove_dead_self_registrations(
        key: SyncerKey, registries: Registries, name: str, steps: Plan, owner: str
    ) -> PlanOutcome:
        """Remove instances that gone pods registered themselves, but none that turns out to have an owner."""
        outcome = registries.apply(name, steps, owner)
        for change in outcome.done:
            _log.warning(
                "removed an instance that a deleted pod had registered itself, callers find it no more",
                extra={"syncer": "/".join(key), "instance": change.instance.instance_id},
            )
        failures = (one for one in outcome.failures if not isinstance(one.error, OwnershipConflict))
        return PlanOutcome(outcome.done, tuple(failures))

    @staticmethod
    def _renew_or_let_lapse(decided: DecidedSituation, instances: Mapping[str, Collection[Instance]]) -> bool:
        """Renew the syncer's instances, except those that the decision lets lapse.

        :returns: True if the syncer has an instance that was unknown when the decision was made.
        """
        situation, has_news = decided.situation, False
        renews = RULES_BY_STATE[situation.state].renews
        for name, there in instances.items():
            registry, steps = decided.registries[name], decided.decision.steps_by_registry[name]
            lapsing = {one.key for one in steps.instances_to_lapse}
            known = {one.key for one in situation.instances_by_registry[name]}
            known.update([change.instance.key for change in steps.plan.changes])
            kept = list(steps.instances_to_renew)
            for one in there:
                has_news |= one.key not in known
                if one.key in lapsing:
                    registry.let_lapse(one)
                elif renews:
                    kept.append(one)
            registry.keep_registered(*kept)
            known.update([one.key for one in steps.instances_to_renew])
            for others in (situation.under_former_cluster_names, situation.under_undeclared_cluster_names):
                for one in others.get(name, ()):
                    if one.key not in known:
                        registry.let_lapse(one)
        return has_news

    def _find_unblocked_syncers(self, decided: DecidedSituation, outcome: PlanOutcome) -> set[SyncerKey]:
        """Return the syncers that a deregistered instance may have kept from registering."""
        is_deleted = decided.situation.state is SyncerState.DELETED
        ended = () if is_deleted else decided.situation.terminating_ids
        names = {
            change.instance.application
            for change in outcome.done
            if change.action is Action.DEREGISTER and change.instance.instance_id not in ended
        }
        return {other for name in names for other in self._sources.syncers_of(name)}

    def _finish_deletion(
        self, decided: DecidedSituation, outcome: PlanOutcome, error: RegistryError | None, *, is_done: bool
    ) -> SyncerResult:
        """Remove a deleted syncer's finalizer once Eureka is clean or away too long, or a person asks for it.

        A namespace that waits for the syncer to go does more harm then than instances that lapse.
        """
        item, situation, key = decided.syncer_object, decided.situation, decided.situation.key
        requeue_after_seconds, why = decided.decision.requeue_after_seconds, ""
        is_ours = item is not None and has_finalizer(item)
        if situation.is_force_deleted:
            why = f"the annotation {FORCE_DELETE_ANNOTATION} asks for it"
        elif is_done or not is_ours:
            self._undone.pop(key, None)
        elif error is not None:  # a round that only waits for others lets the time go on
            now = boot_clock_seconds()
            waited = now - self._undone.setdefault(key, now)
            left_seconds = self._release_after_seconds - waited
            if left_seconds > 0:
                requeue_after_seconds = left_seconds
            else:
                why = f"Eureka could not be asked for {waited:.0f} s ({error})"
        failure: EurekubeError | None = error
        ended = None
        if why or is_done:
            ended = (
                self._leave_instances_behind(decided, why)
                if why
                else self._completed_deletion(decided, outcome)
            )
            failure = self._forget_and_remove_finalizer(decided)
        said = None
        if failure is not None and item is not None:
            said = self._early_end_report(item, problem_of(failure), decided.registries)
        return SyncerResult(
            item, said, completed_deletion=ended, requeue_after_seconds=requeue_after_seconds, error=failure
        )

    def _completed_deletion(self, decided: DecidedSituation, outcome: PlanOutcome) -> SyncerDeletion:
        item, unlisted_instances = decided.syncer_object, decided.situation.unlisted_instances
        removed = [
            change.instance
            for steps in decided.decision.steps_by_registry.values()
            for change in steps.removals
        ]
        instances = tuple(one for one in removed if one not in unlisted_instances)
        if instances and outcome.done:
            _log.info(
                "deregistered the instances of a deleted syncer, removing its finalizer next",
                extra={"syncer": "/".join(decided.situation.key), "deregistered": len(instances)},
            )
        is_ours = item is not None and has_finalizer(item)
        return SyncerDeletion(instances, deregistered_count=len(instances) if is_ours else 0)

    def _leave_instances_behind(self, decided: DecidedSituation, why: str) -> SyncerDeletion:
        """Stop renewing a deleted syncer's instances that could not be deregistered.

        As soon as Eureka answers, the syncer's end is reconciled like any other event and deregisters the
        instances that have not lapsed.
        """
        left = []
        for name, there in decided.registries.instances_of_owner(decided.situation.owner).items():
            for one in there:
                decided.registries[name].let_lapse(one)
                left.append(one)
        names = [printable(f"{one.application} {one.instance_id}") for one in left]
        named = join_sentences(names) or "nothing that is known of"
        note = (
            f"released although its instances may still be registered, because {why}; left behind: {named};"
            " they are removed as soon as the registry answers and allows it, if they have not lapsed by then"
        )
        extra = {"syncer": "/".join(decided.situation.key), "left": len(left), "reason": why}
        if self._access.sends_writes:
            _log.warning(
                "gave up deregistering a deleted syncer's instances, letting them lapse and releasing the "
                "syncer",
                extra=extra,
            )
        else:
            _log.warning("dry run: would give up deregistering a deleted syncer's instances", extra=extra)
        return SyncerDeletion(tuple(left), left_behind_note=note)

    def _forget_and_remove_finalizer(self, decided: DecidedSituation) -> KubernetesError | None:
        key, item = decided.situation.key, decided.syncer_object
        self._reader.forget(key)
        for registry in decided.registries.values():
            registry.stop_tracking_lost_instances(decided.situation.owner)
        try:
            if item is not None and has_finalizer(item):
                set_finalizer(self._access, SYNCERS, item, FINALIZER, present=False)
        except KubernetesError as error:
            return error
        self._undone.pop(key, None)
        return None

    def result_while_waiting(
        self, key: SyncerKey, name: str, error: RegistryError, decided: DecidedSituation | None
    ) -> SyncerResult:
        """Return the result that a reconcile would have if it ended now, since a registry does not answer;
        an empty one for a syncer of which only its first reconcile says what it asks for.
        """
        if decided is None:
            item = self._sources.syncers.get(*key)
            if item is None or is_being_deleted(item) or self._sources.parse_spec_or_none(item) is None:
                return SyncerResult()
            return self._failed_result(key, error, self._registries[name])
        return SyncerResult(
            decided.syncer_object,
            self._reconcile_report(
                decided, decided.registries.instances_of_owner(decided.situation.owner), PlanOutcome(), error
            ),
            all_differences=decided.decision.home_differences,
            held_removals=decided.decision.brake_judgement.held_removals,
        )

    def _failed_result(self, key: SyncerKey, error: EurekubeError, registries: Registries) -> SyncerResult:
        item = self._sources.syncers.get(*key)
        said = self._early_end_report(item, problem_of(error), registries) if item is not None else None
        return SyncerResult(item, said, error=error)

    def _reconcile_report(
        self,
        decided: DecidedSituation,
        instances: Mapping[str, Sequence[Instance]],
        outcome: PlanOutcome,
        error: RegistryError | None = None,
    ) -> SyncerReport | None:
        """Return the report on a decision while or after it is carried out; None for no report.

        :param error: the error of a Eureka that cannot be asked, if the reconcile went on.
        """
        item, situation, decision = decided.syncer_object, decided.situation, decided.decision
        if item is None:
            return None
        if situation.refusal is not None:
            return self._early_end_report(item, situation.refusal, decided.registries, error)
        if situation.syncer is None:  # it is being deleted
            return self._early_end_report(item, problem_of(error), decided.registries) if error else None
        held = instances[situation.home_registry]
        if not RULES_BY_STATE[situation.state].takes_over_under_former_cluster_names:
            held = [*held, *situation.under_former_cluster_names.get(situation.home_registry, ())]
        condition = decided.registries[situation.home_registry].condition()
        if error is None and isinstance(condition, Failing) and condition.lasts:
            error = condition.error
        return build_report(
            ConditionInput(
                situation.syncer.application.upper(),
                held,
                len(situation.desired.instances),
                self._drain_check.problem_sentence(situation.key),
                syncer=situation.syncer,
                desired=situation.desired,
                plan=decision.home_differences,
                outcome=outcome,
                waiting_change_count=decision.paused_change_count,
                brake_problem=decision.brake_judgement.held_removals.problem
                if decision.brake_judgement.held_removals
                else None,
                read_error=error,
                claimed_names=situation.previously_claimed_names,
                instances_under_other_name=[
                    one for there in situation.under_undeclared_cluster_names.values() for one in there
                ],
                pods_reusing_addresses=situation.address_taker_by_id
                if situation.state is SyncerState.PAUSED
                else {},
                other_owner_problems=situation.problems_with_foreign_instances,
                self_registered=situation.self_registered,
                gate_problem=self._waiting_pods(situation.key),
            )
        )

    def _early_end_report(
        self, item: Object, failure: Problem, registries: Registries, error: RegistryError | None = None
    ) -> SyncerReport:
        """Return the report on a reconcile that ended early.

        :param error: why Eureka cannot be asked, beside the failure.
        """
        key, before = key_of(item), item.get("status") or {}
        owned = registries.instances_of_owner(str(ClusterOwner(self._cluster.name, *key)))
        held = [one for there in owned.values() for one in there]
        application, desired = before.get("application", ""), before.get("desired", len(held))
        registered = None
        if failure.reason in EUREKA_ERROR_REASONS:
            syncer = None if is_being_deleted(item) else self._sources.parse_spec_or_none(item)
            if syncer is not None:
                application = syncer.application.upper()
                desired = len(self._sources.desired(syncer).instances)
            if registries.is_worker_registry_unread:
                held, registered = [], before.get("registered", 0)
        drain = self._drain_check.problem_sentence(key)
        return build_report(
            ConditionInput(
                application,
                held,
                desired,
                drain,
                failure,
                registered,
                read_error=error,
                gate_problem=self._waiting_pods(key),
            )
        )


def _count_done(outcome: PlanOutcome, changes: Collection[Change]) -> int:
    meant = {id(change) for change in changes}
    return sum(id(change) in meant for change in outcome.done) if meant else 0
