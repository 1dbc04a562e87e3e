"""The result of one syncer's reconcile, and the report for its status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eurekube_provider.core.brake import HeldRemovals
from eurekube_provider.core.decision import RULES, Decision, Situation, State
from eurekube_provider.core.errors import EurekubeError, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Outcome, Plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing, Unread
from eurekube_provider.core.syncer import Syncer, is_deleted
from eurekube_provider.operator.conditions import (
    EUREKA_FAILS,
    ConditionInput,
    Report,
    problem_of,
    report,
)
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import Sources

_NOTHING = Outcome()


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a deleted syncer.

    :ivar instances: the syncer's last instances.
    :ivar deregistered: how many of them were deregistered before the finalizer was removed.
    :ivar left_behind: why the finalizer was removed although instances may still be in Eureka; empty where
        none may.
    """

    instances: tuple[Instance, ...] = ()
    deregistered: int = 0
    left_behind: str = ""


@dataclass(frozen=True, slots=True)
class SyncerResult:
    """The result of a syncer's reconcile.

    :ivar syncer: the custom resource; None where it does not exist.
    :ivar report: the report for its status; None for none.
    :ivar asked: the syncer's spec, where it was carried out as far as that is possible.
    :ivar differing: all differences, resolved or not.
    :ivar held_back: the removals that wait.
    :ivar ended: the end of a deleted syncer, once it is gone.
    :ivar concerned: syncers that must be reconciled because of this.
    :ivar again_seconds: when to reconcile this one again, although nothing changes.
    :ivar error: why it must be tried again.
    """

    syncer: Object | None = None
    report: Report | None = None
    asked: Syncer | None = None
    differing: Plan | None = None
    outcome: Outcome = _NOTHING
    held_back: HeldRemovals | None = None
    ended: Ended | None = None
    concerned: frozenset[SyncerKey] = frozenset()
    again_seconds: float | None = None
    error: EurekubeError | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The situation of a syncer, and the decision on it.

    :ivar item: the custom resource; None where it does not exist.
    :ivar registries: the registries as the worker that carries it out uses them.
    """

    item: Object | None
    situation: Situation
    decision: Decision
    registries: Registries

    @property
    def asked(self) -> list[str]:
        """Names of the registries to which changes are sent."""
        return [name for name, steps in self.decision.at.items() if steps.plan]


class Reports:
    """The maker of syncers' reports; any number of workers may share it.

    :param waiting_pods: returns the problem of a syncer's pods that wait for callers.
    """

    def __init__(
        self,
        cluster: Cluster,
        registries: Registries,
        sources: Sources,
        drain_check: DrainCheck,
        waiting_pods: Callable[[SyncerKey], Problem | None],
    ) -> None:
        self._cluster = cluster
        self._registries = registries
        self._sources = sources
        self._drain_check = drain_check
        self._waiting_pods = waiting_pods

    def done(self, decided: Decided, outcome: Outcome, error: RegistryError | None = None) -> Report | None:
        """Return the report on a decision that is or was carried out; None for a syncer that gets no report.

        :param error: why Eureka cannot be asked, where the reconcile went on.
        """
        item, situation, decision = decided.item, decided.situation, decided.decision
        if item is None:
            return None
        if situation.refusal is not None:
            return self.ended_early(item, situation.refusal, decided.registries, error)
        if situation.syncer is None:  # it is being deleted
            return self.ended_early(item, problem_of(error), decided.registries) if error else None
        registry = decided.registries[situation.home]
        held = registry.known(owner=situation.owner)
        if not RULES[situation.state].takes_over:
            held += situation.former.get(situation.home, ())
        condition = registry.condition()
        if error is None and isinstance(condition, Failing) and condition.lasts:
            error = condition.error
        return report(
            ConditionInput(
                situation.syncer.application.upper(),
                held,
                len(situation.desired.instances),
                self._drain_check.problem(situation.key),
                syncer=situation.syncer,
                desired=situation.desired,
                steps=decision.differing,
                outcome=outcome,
                waiting=decision.waiting,
                braked=decision.brake.held.problem if decision.brake.held else None,
                read_error=error,
                claimed=situation.claimed,
                unclaimed=[one for there in situation.unclaimed.values() for one in there],
                taken=situation.taken if situation.state is State.PAUSED else {},
                notes=situation.notes,
                self_registered=situation.self_registered,
                waiting_pods=self._waiting_pods(situation.key),
            )
        )

    def waiting(self, decided: Decided, error: RegistryError) -> SyncerResult:
        """Return a result that reports changes waiting for a registry that does not answer."""
        decision, said = decided.decision, self.done(decided, _NOTHING, error)
        return SyncerResult(decided.item, said, differing=decision.differing, held_back=decision.brake.held)

    def unresponsive(self, key: SyncerKey, name: str, error: RegistryError) -> SyncerResult:
        """Return a result on a syncer that waits for its registry's first answer, without a report if it
        is not served.
        """
        item = self._sources.syncers.get(*key)
        syncer = self._sources.asked(item)
        if item is None or syncer is None or is_deleted(item):
            return SyncerResult()  # what cannot be asked for, the first reconcile says
        registry, held, registered = self._registries[name], list[Instance](), None
        if isinstance(registry.condition(), Unread):
            registered = (item.get("status") or {}).get("registered", 0)
        else:
            held = registry.known(owner=syncer.owner(self._cluster))
        application, desired = syncer.application.upper(), len(self._sources.desired(syncer).instances)
        drain = self._drain_check.problem(key)
        return SyncerResult(
            item, report(ConditionInput(application, held, desired, drain, problem_of(error), registered))
        )

    def ended_early(
        self, item: Object, failure: Problem, registries: Registries, error: RegistryError | None = None
    ) -> Report:
        """Return the report on a reconcile that ended early.

        :param registries: as its workers use them.
        :param error: why Eureka cannot be asked, beside the failure.
        """
        key, before = key_of(item), item.get("status") or {}
        owned = registries.owned(str(ClusterOwner(self._cluster.name, *key)))
        held = [one for there in owned.values() for one in there]
        application, desired = before.get("application", ""), before.get("desired", len(held))
        registered = None
        if failure.reason in EUREKA_FAILS and registries.is_served_unread:
            held, registered = [], before.get("registered", 0)
        drain = self._drain_check.problem(key)
        return report(
            ConditionInput(
                application,
                held,
                desired,
                drain,
                failure,
                registered,
                read_error=error,
                waiting_pods=self._waiting_pods(key),
            )
        )
