"""The decision on one syncer, and the result of its reconcile."""

from __future__ import annotations

from dataclasses import dataclass, field

from eurekube_provider.core.brake import HeldRemovals
from eurekube_provider.core.decision import Decision, SyncerSituation
from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Plan, PlanOutcome
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.registries import Registries


@dataclass(frozen=True, slots=True)
class SyncerDeletion:
    """The completed deletion of a syncer, after its finalizer was removed.

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
    :ivar applied_spec: the syncer's spec, if the reconcile applied it; None for an earlier end.
    :ivar all_differences: all differences from Eureka, resolved or not.
    :ivar requeue_after_seconds: seconds until this syncer must be reconciled again, even without a change.
    """

    syncer_object: Object | None = None
    report: SyncerReport | None = None
    applied_spec: Syncer | None = None
    all_differences: Plan | None = None
    outcome: PlanOutcome = field(default_factory=PlanOutcome)
    held_removals: HeldRemovals | None = None
    completed_deletion: SyncerDeletion | None = None
    syncers_to_reconcile: frozenset[SyncerKey] = frozenset()
    requeue_after_seconds: float | None = None
    error: EurekubeError | None = None


@dataclass(frozen=True, slots=True)
class DecidedSituation:
    """The situation of a syncer, and the decision on it.

    :ivar registries: the registries, as the worker that carries out the decision uses them.
    """

    syncer_object: Object | None
    situation: SyncerSituation
    decision: Decision
    registries: Registries

    @property
    def changed_registry_names(self) -> list[str]:
        return [name for name, steps in self.decision.steps_by_registry.items() if steps.plan]
