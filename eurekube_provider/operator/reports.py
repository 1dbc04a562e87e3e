"""The result of one syncer's reconcile, and the report for its status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eurekube_provider.core.brake import HeldRemovals
from eurekube_provider.core.decision import RULES_BY_STATE, Decision, SyncerSituation, SyncerState
from eurekube_provider.core.errors import EurekubeError, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, is_being_deleted, key_of
from eurekube_provider.core.plan import Plan, PlanOutcome
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.conditions import (
    EUREKA_ERROR_REASONS,
    ConditionInput,
    SyncerReport,
    build_report,
    problem_of,
)
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import ClusterCache

_EMPTY_OUTCOME = PlanOutcome()


@dataclass(frozen=True, slots=True)
class SyncerDeletion:
    """The completed deletion of a syncer, after its finalizer was removed.

    :ivar instances: the syncer's last instances.
    :ivar deregistered_count: how many of them were deregistered before the finalizer was removed.
    :ivar left_behind_note: the reason why the finalizer was removed although instances may still be in
        Eureka; empty if none may.
    """

    instances: tuple[Instance, ...] = ()
    deregistered_count: int = 0
    left_behind_note: str = ""


@dataclass(frozen=True, slots=True)
class SyncerResult:
    """The result of a syncer's reconcile.

    :ivar syncer_object: the custom resource; None where it does not exist.
    :ivar report: the report for its status; None for none.
    :ivar applied_spec: the syncer's spec, if the reconcile applied it; None for an earlier end.
    :ivar all_differences: all differences from Eureka, resolved or not.
    :ivar held_removals: the removals that the brake holds back.
    :ivar completed_deletion: the completed deletion of a syncer; None for others.
    :ivar syncers_to_reconcile: other syncers that must be reconciled because of this result.
    :ivar requeue_after_seconds: seconds until this syncer must be reconciled again, even without a change.
    :ivar error: the error for which the reconcile must be retried.
    """

    syncer_object: Object | None = None
    report: SyncerReport | None = None
    applied_spec: Syncer | None = None
    all_differences: Plan | None = None
    outcome: PlanOutcome = _EMPTY_OUTCOME
    held_removals: HeldRemovals | None = None
    completed_deletion: SyncerDeletion | None = None
    syncers_to_reconcile: frozenset[SyncerKey] = frozenset()
    requeue_after_seconds: float | None = None
    error: EurekubeError | None = None


@dataclass(frozen=True, slots=True)
class DecidedSituation:
    """The situation of a syncer, and the decision on it.

    :ivar syncer_object: the custom resource; None where it does not exist.
    :ivar registries: the registries, as the worker that carries out the decision uses them.
    """

    syncer_object: Object | None
    situation: SyncerSituation
    decision: Decision
    registries: Registries

    @property
    def changed_registry_names(self) -> list[str]:
        """Names of the registries to which changes are sent."""
        return [name for name, steps in self.decision.steps_by_registry.items() if steps.plan]


class SyncerReporter:
    """A builder of reports for syncers' statuses; any number of workers may share it.

    :param waiting_pods: returns the problem of a syncer's pods that wait for callers.
    """

    def __init__(
        self,
        cluster: Cluster,
        sources: ClusterCache,
        drain_check: DrainCheck,
        waiting_pods: Callable[[SyncerKey], Problem | None],
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._drain_check = drain_check
        self._waiting_pods = waiting_pods

    def reconcile_report(
        self, decided: DecidedSituation, outcome: PlanOutcome, error: RegistryError | None = None
    ) -> SyncerReport | None:
        """Return the report on a decision while or after it is carried out; None for a syncer that gets no
        report.

        :param error: the error of a Eureka that cannot be asked, if the reconcile went on.
        """
        item, situation, decision = decided.syncer_object, decided.situation, decided.decision
        if item is None:
            return None
        if situation.refusal is not None:
            return self.early_end_report(item, situation.refusal, decided.registries, error)
        if situation.syncer is None:  # it is being deleted
            return self.early_end_report(item, problem_of(error), decided.registries) if error else None
        registry = decided.registries[situation.home_registry]
        held = registry.known_instances(owner=situation.owner)
        if not RULES_BY_STATE[situation.state].takes_over_under_former_cluster_names:
            held += situation.under_former_cluster_names.get(situation.home_registry, ())
        condition = registry.condition()
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

    def early_end_report(
        self, item: Object, failure: Problem, registries: Registries, error: RegistryError | None = None
    ) -> SyncerReport:
        """Return the report on a reconcile that ended early.

        :param registries: the registries, as the syncer's worker uses them.
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
                application, desired = (
                    syncer.application.upper(),
                    len(self._sources.desired(syncer).instances),
                )
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
