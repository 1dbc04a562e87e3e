"""Comparisons of Kubernetes with Eureka, for each application and its manager, worst first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from eurekube_provider.comparison.discrepancy import Difference, differences_in_plan, group_by_cause
from eurekube_provider.comparison.managers import Manager, ManagerKind, NamespacedSyncerName, manager_of
from eurekube_provider.comparison.reported_state import (
    NEVER_RECONCILED_STATE,
    SyncState,
    reported_state_of_object,
)
from eurekube_provider.comparison.seen_remedies import ObservedReason, observed_problem
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.decision import plan_syncer_changes
from eurekube_provider.core.derived_syncer import is_namespace_syncer
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import Cluster, ClusterOwner, parse_owner
from eurekube_provider.core.mapping import DesiredInstances, keep_registered_ids, limited_to_registered_ports
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, is_being_deleted, key_of
from eurekube_provider.core.plan import Action, Plan, plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.self_registered import find_self_registered_instances
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME, Syncer, connection_name
from eurekube_provider.core.wording import format_list

ALL_SERVICES_PLACEHOLDER = "*"
"""Shown in place of an application's name for a syncer that registers each Service of its namespace."""

_REASONS_HOLDING_ALL_STEPS = frozenset({Reason.NOT_ALLOWED, Reason.UNKNOWN_EUREKA})


@dataclass(frozen=True, slots=True)
class InstanceCount:
    """The number of instances or endpoints, and the number of those that are UP, None where not counted."""

    total: int
    up: int | None = None

    def __str__(self) -> str:
        return str(self.total) if self.up is None else f"{self.up}/{self.total}"

    def to_dict(self) -> dict[str, int | None]:
        return {"up": self.up, "total": self.total}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one application: the instances that its manager wants, and those in Eureka.

    :ivar kubernetes: the count of endpoints; None where Kubernetes was not read, or has no part in it.
    :ivar eureka: the count of instances; None where Eureka was not read.
    :ivar differing_count: the number of instances that differ; ``differences`` are the first of them.
    """

    application: str
    manager: Manager
    state: SyncState
    eureka_name: str = DEFAULT_CONNECTION_NAME
    problem: Problem | None = None
    kubernetes: InstanceCount | None = None
    eureka: InstanceCount | None = None
    differing_count: int = 0
    differences: Sequence[Difference] = ()

    @property
    def subject(self) -> str:
        """The manager's name; the application's where there is nothing to compare."""
        is_compared = self.state is not SyncState.NOT_COMPARED
        return (is_compared and self.manager.name) or self.application

    @property
    def sort_key(self) -> tuple[object, ...]:
        """The sort key: worst first, then by name."""
        return (self.state.rank, self.manager.kind.rank, self.application, self.manager.name)

    def to_dict(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "keeper": {"kind": str(self.manager.kind), "name": self.manager.name},
            "eurekaName": self.eureka_name,
            "state": str(self.state),
            "reason": self.problem.reason if self.problem else "",
            "message": self.problem.text if self.problem else "",
            "kubernetes": self.kubernetes.to_dict() if self.kubernetes else None,
            "eureka": self.eureka.to_dict() if self.eureka else None,
            "differing": self.differing_count,
            "groups": [
                {"cause": group.cause, "instances": [one.to_dict() for one in group.differences]}
                for group in group_by_cause(self.differences)
            ],
        }


@dataclass(frozen=True, slots=True)
class KubernetesInventory:
    """The syncers of one cluster, as they were read.

    :ivar desired: the desired instances of each syncer, as far as they can be mapped.
    :ivar namespaces: the namespaces that were read; empty for all.
    :ivar cluster_names: the cluster's name for each syncer whose operator gives it another one.
    """

    cluster: Cluster
    syncers: Sequence[Object] = ()
    desired: Mapping[NamespacedSyncerName, DesiredInstances] = field(default_factory=dict)
    namespaces: Collection[str] = ()
    unread_namespaces: Collection[str] = ()
    cluster_names: Mapping[NamespacedSyncerName, str] = field(default_factory=dict)

    def cluster_of_syncer(self, key: NamespacedSyncerName) -> Cluster:
        """Return the cluster with the name that a syncer's operator gives to it."""
        return replace(self.cluster, name=self.cluster_names.get(key, self.cluster.name))

    def owner_of_syncer(self, key: NamespacedSyncerName) -> str:
        return str(ClusterOwner(self.cluster_of_syncer(key).name, *key))

    def parse_syncer_of_this_cluster(self, owner: str) -> NamespacedSyncerName | None:
        """Return the syncer of this cluster that ``owner`` names; None for any other owner."""
        parsed = parse_owner(owner)
        key = (parsed.namespace, parsed.syncer) if isinstance(parsed, ClusterOwner) else ("", "")
        return key if owner == self.owner_of_syncer(key) else None

    def manager_of(self, instance: Instance) -> Manager:
        """Return the manager of an instance, as seen from this cluster."""
        key = self.parse_syncer_of_this_cluster(instance.owner or "")
        return manager_of(instance, self.cluster_of_syncer(key or ("", "")).name)


@dataclass(frozen=True, slots=True)
class SyncerPlan:
    """The operator's next steps for one syncer.

    :ivar steps: the changes that would remove all differences.
    :ivar hold_reason: the problem for which the operator holds back some or all steps; None where it holds
        back none.
    :ivar problems: problems of desired instances for which no step is held back.
    """

    key: NamespacedSyncerName
    owner: str
    eureka_name: str
    steps: Plan
    hold_reason: Problem | None = None
    problems: tuple[Problem, ...] = ()


def plan_syncers(
    kubernetes: KubernetesInventory, eurekas: Mapping[str, Sequence[Instance]]
) -> dict[NamespacedSyncerName, SyncerPlan]:
    """Return the plan of each syncer of these Eurekas, and of deleted syncers that have instances left."""
    found: dict[NamespacedSyncerName, SyncerPlan] = {}
    owned, named = _index_instances(eurekas)
    known = set(map(key_of, kubernetes.syncers))
    for item in kubernetes.syncers:
        key = key_of(item)
        owner, eureka = kubernetes.owner_of_syncer(key), connection_name(item)
        if eureka not in eurekas:
            continue
        registered = owned[eureka, owner]
        if is_namespace_syncer(item) and not registered:
            found[key] = SyncerPlan(key, owner, eureka, Plan())  # the syncers derived from it have the steps
            continue
        if is_being_deleted(item):
            held = Problem(ObservedReason.DELETED, "the syncer is being deleted")
            found[key] = SyncerPlan(key, owner, eureka, plan((), registered, owner), held)
            continue
        try:
            syncer = Syncer.from_object(item)
        except ConfigurationError as error:
            found[key] = SyncerPlan(key, owner, eureka, Plan(), Problem(Reason.NOT_ALLOWED, str(error)))
            continue
        desired = kubernetes.desired.get(key)
        if desired is None:
            continue
        desired = limited_to_registered_ports(desired, registered)
        desired = keep_registered_ids(desired, registered, kubernetes.cluster_of_syncer(key).name)
        of_application = named[eureka, syncer.application.upper()]
        unowned = [one for one in of_application if not one.owner]
        # Whether a pod has its address for itself is not known here: its own registration at another port
        # is left to what the operator reports.
        twins = find_self_registered_instances(desired.instances, unowned, ())
        steps = plan_syncer_changes(syncer, desired, registered, of_application, owner, twins)
        found[key] = _hold_back_steps(SyncerPlan(key, owner, eureka, steps), item, syncer, desired)
    for (eureka, owner), registered in list(owned.items()):
        gone = kubernetes.parse_syncer_of_this_cluster(owner)
        if gone is None or gone in known:
            continue
        if not kubernetes.namespaces or gone[0] in kubernetes.namespaces:
            held = Problem(ObservedReason.NO_SUCH_SYNCER, "there is no such syncer")
            found[gone] = SyncerPlan(gone, owner, eureka, plan((), registered, owner), held)
    return found


def _hold_back_steps(
    planned: SyncerPlan, item: Object, syncer: Syncer, desired: DesiredInstances
) -> SyncerPlan:
    """Return a plan without the steps that the operator holds back, as the syncer and its status show."""
    steps, said = planned.steps, reported_state_of_object(item).synced
    held = None
    if said.reason in _REASONS_HOLDING_ALL_STEPS:
        held, steps = replace(said, message=str(said)), Plan(refusals=steps.refusals)
    elif syncer.is_paused:
        held = Problem(SyncerCondition.PAUSED, "the syncer is paused: nothing is changed")
    elif desired.may_be_incomplete:
        messages = "; ".join(problem.message for problem in desired.problems)
        held = replace(desired.problems[0], message=f"nothing is removed in doubt: {messages}")
        kept = (
            one
            for one in steps.changes
            if one.action is not Action.DEREGISTER or one.instance.instance_id in desired.terminating_ids
        )
        steps = replace(steps, changes=tuple(kept))
    elif said.reason == SyncerCondition.BRAKED:
        held = replace(said, message=f"removals are held back: {said.message}")
    return replace(planned, steps=steps, hold_reason=held, problems=() if held else tuple(desired.problems))


def compare(
    kubernetes: KubernetesInventory | None, eurekas: Mapping[str, Sequence[Instance]]
) -> list[Comparison]:
    """Return the comparisons, worst first, of a cluster, if it was read, and of Eurekas by connection."""
    found = list(_compare_syncers(kubernetes, eurekas)) if kubernetes else []
    manager = kubernetes.manager_of if kubernetes else partial(manager_of, cluster=None)
    known = {(one.eureka_name, one.manager) for one in found}
    beside = compare_without_kubernetes(eurekas, manager, known)
    if kubernetes and kubernetes.namespaces:
        asked = {*kubernetes.namespaces, *kubernetes.unread_namespaces}
        beside = [
            one
            for one in beside
            if one.manager.kind is not ManagerKind.SYNCER or one.manager.name.partition("/")[0] in asked
        ]
    return sorted([*found, *beside], key=lambda one: one.sort_key)


def compare_without_kubernetes(
    eurekas: Mapping[str, Iterable[Instance]],
    manager: Callable[[Instance], Manager],
    left_out: Collection[tuple[str, Manager]] = (),
) -> list[Comparison]:
    """Return a comparison, without a Kubernetes side, for each application and manager not left out."""
    rest: dict[tuple[str, str, Manager], list[Instance]] = defaultdict(list)
    for name, instances in eurekas.items():
        for instance in instances:
            kept_by = manager(instance)
            if (name, kept_by) not in left_out:
                rest[name, instance.application, kept_by].append(instance)
    return [_comparison_without_kubernetes(*key, those) for key, those in rest.items()]


def _compare_syncers(
    kubernetes: KubernetesInventory, eurekas: Mapping[str, Sequence[Instance]]
) -> Iterable[Comparison]:
    owned, _ = _index_instances(eurekas)
    plans = plan_syncers(kubernetes, eurekas)
    for item in filter(has_own_status_row, kubernetes.syncers):
        key, eureka = key_of(item), connection_name(item)
        registered = owned[eureka, kubernetes.owner_of_syncer(key)] if eureka in eurekas else None
        yield compare_syncer(item, kubernetes.desired.get(key), registered, plans.get(key))
    known = set(map(key_of, kubernetes.syncers))
    for key, planned in plans.items():
        if key not in known:
            registered = owned[planned.eureka_name, planned.owner]
            yield Comparison(
                ", ".join(sorted({one.application for one in registered})),
                Manager(ManagerKind.SYNCER, "/".join(key)),
                SyncState.NOT_SYNCED,
                planned.eureka_name,
                observed_problem(
                    ObservedReason.NO_SUCH_SYNCER,
                    "there is no such syncer: the operator deregisters what it had",
                ),
                InstanceCount(0, 0),
                count_instances(registered),
                len(registered),
                differences_in_plan(planned.steps, "its syncer is gone"),
            )


def has_own_status_row(item: Object) -> bool:
    """Return whether a syncer is shown in a row of its own. A syncer of all Services of a namespace is shown
    by those derived from it, unless it is being deleted, refuses a Service, or was never reconciled.
    """
    if not is_namespace_syncer(item) or is_being_deleted(item):
        return True
    refused = ((item.get("status") or {}).get("applications") or {}).get("refused")
    return bool(refused) or reported_state_of_object(item) is NEVER_RECONCILED_STATE


def compare_syncer(
    item: Object,
    desired: DesiredInstances | None,
    registered: Sequence[Instance] | None,
    planned: SyncerPlan | None,
) -> Comparison:
    """Compare one syncer with Eureka; its operator's conditions count first, then the differences seen now.

    :param desired: the desired instances; None where they are not known.
    :param registered: the syncer's instances in Eureka; None where they were not read.
    """
    reported = reported_state_of_object(item)
    held = planned.hold_reason.message if planned and planned.hold_reason else ""
    found = differences_in_plan(planned.steps, held) if planned else []
    kubernetes = count_instances(desired.instances) if desired is not None else None
    eureka = count_instances(registered) if registered is not None else None
    state, problem = reported.state, reported.problem
    if is_being_deleted(item):
        state = SyncState.NOT_SYNCED
        problem = observed_problem(ObservedReason.DELETED, "it was deleted, and its instances leave")
    elif reported is NEVER_RECONCILED_STATE:
        if kubernetes and eureka and kubernetes.up and not eureka.up:
            state = SyncState.NOT_READY
            message = "no operator has looked at it yet, and callers find none of its ready endpoints"
            problem = observed_problem(ObservedReason.NOT_LOOKED_AT, message)
    elif found and (problem is None or problem.reason == SyncerCondition.CONFLICT):
        message = "; ".join(group.summary for group in group_by_cause(found))  # each cause once
        if problem is None:
            state, problem = SyncState.NOT_SYNCED, observed_problem(ObservedReason.DIFFERS, message)
        else:
            problem = Problem(problem.reason, message).with_remedy(SYNCER_REMEDIES)
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if registered is None and "registered" in status:
        eureka = InstanceCount(int(status["registered"]))
    return Comparison(
        _syncer_application(spec, status),
        Manager(ManagerKind.SYNCER, "/".join(key_of(item))),
        state,
        connection_name(item),
        problem,
        kubernetes,
        eureka,
        len(found),
        found,
    )


def _syncer_application(spec: Object, status: Object) -> str:
    if (spec.get("selector") or {}).get("services"):
        return ALL_SERVICES_PLACEHOLDER
    named = spec.get("application") or (spec.get("selector") or {}).get("app") or ""
    return str(named or status.get("application") or "").upper()


def _comparison_without_kubernetes(
    eureka: str, application: str, manager: Manager, those: Sequence[Instance]
) -> Comparison:
    """Return the comparison of instances that no syncer of the cluster keeps, without a Kubernetes side."""
    count = count_instances(those)
    problem = None if count.up else observed_problem(ObservedReason.NONE_UP, f"none of {count.total} is UP")
    if (odd := [one.unreadable for one in those if one.unreadable]) and problem is not None:
        problem = observed_problem(
            ObservedReason.UNREADABLE_INSTANCE,
            f"{len(odd)} of {count.total} cannot be read: {format_list(odd, 3)}",
        )
    state = SyncState.NOT_READY if problem else SyncState.NOT_COMPARED
    return Comparison(application, manager, state, eureka, problem, None, count)


def count_instances(instances: Iterable[Instance]) -> InstanceCount:
    """Count instances, and those that are UP."""
    statuses = [one.status for one in instances]
    return InstanceCount(len(statuses), statuses.count(Status.UP))


def _index_instances(
    eurekas: Mapping[str, Sequence[Instance]],
) -> tuple[dict[tuple[str, str], list[Instance]], dict[tuple[str, str], list[Instance]]]:
    owned: dict[tuple[str, str], list[Instance]] = defaultdict(list)
    named: dict[tuple[str, str], list[Instance]] = defaultdict(list)
    for name, instances in eurekas.items():
        for one in instances:
            named[name, one.application].append(one)
            if one.owner:
                owned[name, one.owner].append(one)
    return owned, named
