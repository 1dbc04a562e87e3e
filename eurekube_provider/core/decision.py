"""The decision for one syncer: what changes at each registry, what waits, and for what. Pure.

All that was read for a syncer is a :class:`SyncerSituation`; :func:`decide` turns it into a
:class:`Decision`. A syncer that is refused, paused, in doubt or deleted is a row of :data:`RULES_BY_STATE`,
not a branch of its own. For each instance that the syncer has at a registry, the first of these rules that
applies decides:

- It is desired where it is registered: it stays, and is brought up to date.
- Another syncer desires it: it is given to that syncer, unchanged.
- Its pod was seen terminating, or is gone: it is removed.
- Another pod has its address: it is removed.
- The desired instances of other syncers are not known yet: it stays.
- It is desired at another registry, or under another id: it is removed once it is registered there.
- It is not desired: it is removed.

Where the policy removes nothing, or the syncer is paused, an instance that would be removed
lapses instead: nobody renews it. The brake may delay removals of instances that were not seen terminating.

A cluster may change its name. The instances that a syncer has under a former name are its own: the syncer
first takes them over under the ids that they have, and then the rules above apply to them, too. Instances
under another name of the cluster that nobody declared a former one are not changed, and are renewed as long
as they are in the way of the desired ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from eurekube_provider.core.brake import BrakeHistory, BrakeJudgement, counts_for_brake, judge_removals
from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import id_without_cluster
from eurekube_provider.core.mapping import (
    DesiredInstances,
    registered_without_address,
    terminating_as_out_of_service,
)
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.plan import (
    Action,
    Change,
    Plan,
    Policy,
    Refusal,
    plan,
    plan_handover,
    plan_takeover,
    removal_of_dead_registration,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.self_registered import SelfRegistration
from eurekube_provider.core.syncer import OnTermination, Syncer

NEXT_OWNER_POLL_SECONDS = 0.1
"""Seconds until the next decision while the desired instances of another syncer are not known."""

REPLICATION_WAIT_SECONDS = 5.0
"""Seconds until the next decision while servers tell each other of a change, mostly in half a second."""

BLOCKED_RECHECK_SECONDS = 20.0
"""Seconds until the next decision for a syncer that is blocked by something whose end no event reports."""


class SyncerState(Enum):
    """The states of a syncer that determine which of its instances change."""

    COMPLETE = "complete"
    """The spec is valid, and the desired instances are known completely."""

    INCOMPLETE = "incomplete"
    """The desired instances are not known completely: more may be desired than are known."""

    PAUSED = "paused"
    REFUSED = "refused"
    """The syncer must not register what it asks for, or its spec cannot be read."""

    DELETED = "deleted"
    UNKNOWN = "unknown"
    """The operator cannot read whether the syncer exists."""


class RemovalScope(Enum):
    """The undesired instances that a state's rules remove."""

    ALL = "all"
    ENDED_PODS = "ended"
    """Only instances whose pods are terminating or gone."""

    ADDRESS_TAKEN = "taken"
    """Only ended instances whose address another pod has already."""

    NONE = "none"


@dataclass(frozen=True, slots=True)
class StateRules:
    """The rules for one state of a syncer.

    :ivar registers: True if desired instances are registered and brought up to date.
    :ivar removal_scope: which undesired instances are removed.
    :ivar restores_forgotten_instances: True if instances that a registry forgot are registered again as they
        were.
    :ivar uses_brake: True if the brake may hold changes back.
    :ivar renews: True if instances that do not leave are renewed.
    :ivar takes_over_under_former_cluster_names: True if the syncer takes over its instances under a former
        name of the cluster.
    :ivar lets_leaving_instances_lapse: True if leaving instances are no longer renewed, and not removed.
    """

    registers: bool = False
    removal_scope: RemovalScope = RemovalScope.NONE
    restores_forgotten_instances: bool = False
    uses_brake: bool = False
    renews: bool = True
    takes_over_under_former_cluster_names: bool = True
    lets_leaving_instances_lapse: bool = False


RULES_BY_STATE: Mapping[SyncerState, StateRules] = {
    SyncerState.COMPLETE: StateRules(registers=True, removal_scope=RemovalScope.ALL, uses_brake=True),
    SyncerState.INCOMPLETE: StateRules(
        registers=True,
        removal_scope=RemovalScope.ENDED_PODS,
        restores_forgotten_instances=True,
        uses_brake=True,
    ),
    SyncerState.PAUSED: StateRules(
        removal_scope=RemovalScope.ADDRESS_TAKEN,
        restores_forgotten_instances=True,
        lets_leaving_instances_lapse=True,
        takes_over_under_former_cluster_names=False,
    ),
    SyncerState.REFUSED: StateRules(
        removal_scope=RemovalScope.ENDED_PODS, restores_forgotten_instances=True, uses_brake=True
    ),
    SyncerState.DELETED: StateRules(removal_scope=RemovalScope.ALL, renews=False),
    SyncerState.UNKNOWN: StateRules(takes_over_under_former_cluster_names=False),
}

RegistryAndKey = tuple[str, InstanceKey]
"""The name of a registry, and the key of an instance in it."""


@dataclass(frozen=True, slots=True)
class NextOwner:
    """Another syncer that desires an instance which this syncer no longer desires.

    :ivar syncer: the other syncer's namespace and name.
    :ivar desired_instance: the instance as the other syncer desires it.
    """

    syncer: tuple[str, str]
    desired_instance: Instance


_NOTHING_DESIRED = DesiredInstances()
_NO_HISTORY = BrakeHistory()


@dataclass(frozen=True, slots=True)
class SyncerSituation:
    """The facts about one syncer from which :func:`decide` derives its decision.

    :ivar key: the syncer's namespace and name.
    :ivar owner: the owner of the instances that may be changed.
    :ivar instances_by_registry: the owner's instances, by registry.
    :ivar home_registry: the registry that the syncer names; empty where it registers nothing.
    :ivar syncer: the syncer's spec; None if it is refused or deleted.
    :ivar refusal: why the syncer is refused.
    :ivar previously_claimed_names: the names under which the syncer had instances before.
    :ivar policy: whether instances may be removed; a deleted syncer's are removed in any case.
    :ivar application_instances: by registry, every instance of the applications that may be registered there.
    :ivar terminating_ids: ids of held instances whose endpoints were seen terminating.
    :ivar ended_ids: ids of held instances whose pods the cluster no longer has.
    :ivar address_taker_by_id: by id of held instances whose address a pod of another Service has now, that
        pod.
    :ivar restorable_by_registry: by registry, instances that it forgot and whose endpoints are still ready.
    :ivar connections_to_same_eureka: other connections that lead to the servers of ``home_registry``.
    :ivar connections_to_maybe_same_eureka: other connections that may or may not lead to the servers of
        ``home_registry``, with the reason for the doubt; None if the doubt ends by itself.
    :ivar unlisted_instances: instances that the owner may have at ``home_registry`` though no list shows
        them.
    :ivar home_registry_error: why ``home_registry`` cannot be changed.
    :ivar next_owners: by registry and key, the syncer that desires an instance next.
    :ivar awaits_next_owners: True if the desired instances of the other syncers are not known yet.
    :ivar is_force_deleted: True if a person releases the deleted syncer at once, whatever stays in Eureka.
    :ivar under_former_cluster_names: by registry, the syncer's instances under former names of its cluster.
    :ivar under_undeclared_cluster_names: by registry, the syncer's instances under other names of its cluster
        that nobody declared former ones.
    :ivar self_registered_by_key: instances that the syncer's pods registered themselves, by the key of the
        desired one.
    :ivar removable_dead_registrations: instances that deleted pods had registered themselves, and that may be
        removed: the one exception to the rule that others' instances are left alone.
    :ivar self_registered: instances that pods, living or gone, registered themselves, and that are still in
        Eureka.
    :ivar problems_with_foreign_instances: problems with others' instances.
    :ivar now: seconds, of a clock that does not jump; ``unix_now`` is the time of day.
    """

    key: tuple[str, str]
    owner: str
    state: SyncerState
    instances_by_registry: Mapping[str, Sequence[Instance]]
    home_registry: str = ""
    syncer: Syncer | None = None
    refusal: Problem | None = None
    previously_claimed_names: frozenset[str] = frozenset()
    desired: DesiredInstances = _NOTHING_DESIRED
    policy: Policy = Policy.SYNC
    application_instances: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    terminating_ids: frozenset[str] = frozenset()
    ended_ids: frozenset[str] = frozenset()
    address_taker_by_id: Mapping[str, str] = field(default_factory=dict)
    restorable_by_registry: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    connections_to_same_eureka: frozenset[str] = frozenset()
    connections_to_maybe_same_eureka: Mapping[str, RegistryError | None] = field(default_factory=dict)
    unlisted_instances: Sequence[Instance] = ()
    home_registry_error: RegistryError | None = None
    next_owners: Mapping[RegistryAndKey, NextOwner] = field(default_factory=dict)
    awaits_next_owners: bool = False
    is_force_deleted: bool = False
    under_former_cluster_names: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    under_undeclared_cluster_names: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    self_registered_by_key: Mapping[InstanceKey, Instance] = field(default_factory=dict)
    removable_dead_registrations: Sequence[Instance] = ()
    self_registered: tuple[SelfRegistration, ...] = ()
    problems_with_foreign_instances: tuple[Problem, ...] = ()
    brake_history: BrakeHistory = _NO_HISTORY
    now: float = 0.0
    unix_now: float = 0.0

    @property
    def available_to_next_owners(self) -> dict[str, list[Instance]]:
        """The instances, by registry, that other syncers may take over: this syncer no longer desires them,
        and they were not seen terminating.
        """
        if RULES_BY_STATE[self.state].removal_scope is not RemovalScope.ALL:
            return {}
        found, wanted = {}, self.desired.keys
        for name, there in self.instances_by_registry.items():
            is_at_home = (
                name == self.home_registry
                or name in self.connections_to_same_eureka
                or name in self.connections_to_maybe_same_eureka
            )
            instances = [*there, *(self.unlisted_instances if name == self.home_registry else ())]
            found[name] = [
                one
                for one in instances
                if one.instance_id not in self.terminating_ids and not (is_at_home and one.key in wanted)
            ]
        return found

    @property
    def instances_not_desired_up(self) -> list[Instance]:
        """The instances that are not desired as UP: their removal may depend on whether their pods ended."""
        up = {one.key for one in self.desired.instances if one.status is Status.UP}
        return [one for one in self.all_instances if one.key not in up]

    @property
    def all_instances(self) -> list[Instance]:
        """All instances of the syncer, under its cluster's present name or any other."""
        by_name = (
            self.instances_by_registry,
            self.under_former_cluster_names,
            self.under_undeclared_cluster_names,
        )
        return [one for held in by_name for there in held.values() for one in there]


@dataclass(frozen=True, slots=True)
class RegistrySteps:
    """The changes at one registry.

    :ivar takeovers: updates of the syncer's instances under a former name of its cluster.
    :ivar handovers: updates that give instances to other syncers, which desire them next.
    :ivar restores: registrations of instances that the registry forgot.
    :ivar registrations: registrations, updates, and changes of statuses.
    :ivar removals: removals of instances that the syncer does not want, other than those of the next two
        fields.
    :ivar removals_after_move: removals of instances that are registered already at the registry that the
        syncer names.
    :ivar dead_registration_removals: removals of instances that pods which are gone had registered
        themselves; no other foreign instance is removed.
    :ivar instances_to_lapse: instances that are no longer renewed, so that the registry forgets them.
    :ivar instances_to_renew: instances under another name of the cluster, which are renewed all the same.
    :ivar refusals: instances that are not changed since another owner's is in their place; see
        :class:`~.plan.Plan`.
    :ivar duplicates: desired instances whose application registered itself, too; see :class:`~.plan.Plan`.
    """

    takeovers: tuple[Change, ...] = ()
    handovers: tuple[Change, ...] = ()
    restores: tuple[Change, ...] = ()
    registrations: tuple[Change, ...] = ()
    removals: tuple[Change, ...] = ()
    removals_after_move: tuple[Change, ...] = ()
    dead_registration_removals: tuple[Change, ...] = ()
    instances_to_lapse: tuple[Instance, ...] = ()
    instances_to_renew: tuple[Instance, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    duplicates: tuple[Refusal, ...] = ()

    @property
    def changes_for_brake(self) -> tuple[Change, ...]:
        """The changes that the brake judges; all others take no instance from callers."""
        return (*self.restores, *self.registrations, *self.removals)

    @property
    def plan(self) -> Plan:
        """All changes as one plan, except ``dead_registration_removals``, which change others' instances."""
        changes = (*self.takeovers, *self.handovers, *self.changes_for_brake, *self.removals_after_move)
        return Plan(changes, self.refusals, self.duplicates)

    def without_held_changes(self, held: frozenset[int]) -> RegistrySteps:
        """Return the steps without the changes that the brake holds back.

        :param held: the ``id()`` of each change that is held back.
        """
        return replace(
            self,
            registrations=tuple(one for one in self.registrations if id(one) not in held),
            removals=tuple(one for one in self.removals if id(one) not in held),
        )


_NO_STEPS = RegistrySteps()
_EMPTY_PLAN = Plan()
_NOT_BRAKED = BrakeJudgement()


@dataclass(frozen=True, slots=True)
class Decision:
    """The changes for a syncer, and the reasons for which changes wait.

    :ivar steps_by_registry: the steps by registry, in the order of execution: registries with hand-overs
        first, then the syncer's own changes.
    :ivar home_differences: all differences at the registry that the syncer names, carried out or not.
    :ivar paused_change_count: how many changes a paused syncer does not make.
    :ivar brake_judgement: the changes that are held back, and why.
    :ivar requeue_after_seconds: seconds until the next decision, though no event reports a change.
    :ivar error: why a change waits that is to be tried again.
    """

    steps_by_registry: Mapping[str, RegistrySteps]
    home_differences: Plan = _EMPTY_PLAN
    paused_change_count: int = 0
    brake_judgement: BrakeJudgement = _NOT_BRAKED
    requeue_after_seconds: float | None = None
    error: RegistryError | None = None


def decide(situation: SyncerSituation) -> Decision:
    """Decide what changes for a syncer at each registry, what waits, and when to decide again."""
    if situation.is_force_deleted:
        return Decision(
            {
                name: RegistrySteps(instances_to_lapse=tuple(there))
                for name, there in situation.instances_by_registry.items()
            }
        )
    rules = RULES_BY_STATE[situation.state]
    draft = _StepsDraft(situation, rules)
    names = sorted(situation.instances_by_registry, key=lambda name: name != situation.home_registry)
    steps_by_registry = {name: draft.steps(name) for name in names}
    home_steps = steps_by_registry.get(situation.home_registry, _NO_STEPS)
    home_differences = Plan(home_steps.changes_for_brake, home_steps.refusals, home_steps.duplicates)
    paused_change_count = 0
    if situation.state is SyncerState.PAUSED and situation.syncer is not None:
        home_differences, paused_change_count = _plan_while_paused(situation, home_steps.restores)
        steps_by_registry[situation.home_registry] = replace(
            home_steps, refusals=home_differences.refusals, duplicates=home_differences.duplicates
        )
    brake = _NOT_BRAKED
    changes = [change for steps in steps_by_registry.values() for change in steps.changes_for_brake]
    if rules.uses_brake and changes:
        history = situation.brake_history
        if handed_over := [one.actual for steps in steps_by_registry.values() for one in steps.handovers]:
            handed_over_up = sum(
                one is not None and one.status is Status.UP and counts_for_brake(one) for one in handed_over
            )
            history = replace(history, syncer_up_count=history.syncer_up_count - handed_over_up)
        brake = judge_removals(
            changes,
            history,
            situation.terminating_ids,
            situation.desired,
            situation.now,
            situation.unix_now,
        )
        if held := frozenset(map(id, brake.held_changes)):
            steps_by_registry = {
                name: steps.without_held_changes(held) for name, steps in steps_by_registry.items()
            }
    waits = [brake.held_removals.seconds_until_next_decision] if brake.held_removals else []
    if situation.awaits_next_owners:
        waits.append(NEXT_OWNER_POLL_SECONDS)
    if situation.connections_to_maybe_same_eureka or _is_moving_home(situation, home_steps):
        waits.append(REPLICATION_WAIT_SECONDS)
    is_in_the_way = (
        home_differences.refusals
        or home_differences.duplicates
        or any(situation.under_undeclared_cluster_names.values())
        or SyncerCondition.DEAD_SELF_REGISTERED
        in [one.reason for one in situation.problems_with_foreign_instances]
    )
    # No event tells a paused syncer that another pod gets an address.
    has_unread_objects = situation.desired.has_unread_objects or situation.desired.has_unread_pods
    if situation.state is SyncerState.REFUSED or paused_change_count or is_in_the_way or has_unread_objects:
        waits.append(BLOCKED_RECHECK_SECONDS)
    error = situation.home_registry_error
    if error is None and situation.policy is Policy.SYNC:
        whys = situation.connections_to_maybe_same_eureka.values()
        error = next((why for why in whys if why is not None), None)
    # Given first: another connection to the same Eureka may show the same instance as one that leaves.
    in_order = dict(sorted(steps_by_registry.items(), key=lambda one: not one[1].handovers))
    return Decision(in_order, home_differences, paused_change_count, brake, min(waits, default=None), error)


def _is_moving_home(situation: SyncerSituation, home_steps: RegistrySteps) -> bool:
    """Return whether an instance at another registry is now being registered at the syncer's own."""
    if len(situation.instances_by_registry) < 2 or situation.state is not SyncerState.COMPLETE:
        return False
    others = [
        there for name, there in situation.instances_by_registry.items() if name != situation.home_registry
    ]
    coming = {change.instance.key for change in home_steps.registrations if change.actual is None}
    return any(one.key in coming for there in others for one in there)


def _plan_while_paused(situation: SyncerSituation, restores: tuple[Change, ...]) -> tuple[Plan, int]:
    """Return the changes that a paused syncer would make, and the number of those that it does not make.

    :param restores: the changes that the syncer makes although it is paused.
    """
    state = SyncerState.INCOMPLETE if situation.desired.may_be_incomplete else SyncerState.COMPLETE
    meant = _StepsDraft(situation, RULES_BY_STATE[state]).steps(situation.home_registry)
    restored = {change.instance.key for change in restores}
    changes = (*meant.registrations, *meant.removals)
    rest = tuple(change for change in changes if change.instance.key not in restored)
    elsewhere = sum(
        len(there)
        for name, there in situation.instances_by_registry.items()
        if name != situation.home_registry
    )
    return Plan((*restores, *rest), meant.refusals, meant.duplicates), len(rest) + elsewhere


@dataclass(frozen=True, slots=True)
class _StepsDraft:
    """The steps for a syncer in one state, before the brake holds any of them back."""

    situation: SyncerSituation
    rules: StateRules

    def steps(self, name: str) -> RegistrySteps:
        """Return the changes at one registry."""
        situation, is_home = self.situation, name == self.situation.home_registry
        if is_home and situation.home_registry_error is not None:
            return _NO_STEPS
        application_instances = situation.application_instances.get(name, ())
        restores: tuple[Change, ...] = ()
        if self.rules.restores_forgotten_instances and (
            lost := situation.restorable_by_registry.get(name, ())
        ):
            to_restore = [
                one for one in lost if not (self.rules.registers and one.key in situation.desired.keys)
            ]
            restores = plan(to_restore, application_instances, situation.owner, Policy.UPSERT_ONLY).of(
                Action.REGISTER
            )
        under_former_cluster_names = (
            situation.under_former_cluster_names.get(name, ())
            if self.rules.takes_over_under_former_cluster_names
            else ()
        )
        registrations = _EMPTY_PLAN
        if self.rules.registers and is_home and situation.syncer is not None:
            desired = situation.desired
            if under_former_cluster_names:
                taken_over = {one.key for one in under_former_cluster_names}
                left = tuple(one for one in desired.instances if one.key not in taken_over)
                desired = replace(desired, instances=left)
            registrations = plan_syncer_changes(
                situation.syncer,
                desired,
                situation.instances_by_registry[name],
                application_instances,
                situation.owner,
                situation.self_registered_by_key,
            )
        handed_over, leaving, moved = self._sort_into_handed_leaving_moved(
            name, is_home=is_home, takes_over=bool(under_former_cluster_names)
        )
        instances_to_lapse: tuple[Instance, ...] = ()
        keeps_all = situation.policy is Policy.UPSERT_ONLY and situation.state is not SyncerState.DELETED
        if keeps_all or self.rules.lets_leaving_instances_lapse:
            instances_to_lapse, leaving, moved = (*leaving, *moved), [], []
        evicts = is_home and situation.state is SyncerState.COMPLETE and situation.policy is Policy.SYNC
        dead = situation.removable_dead_registrations if evicts else ()
        return RegistrySteps(
            takeovers=plan_takeover(under_former_cluster_names, situation.owner)
            if under_former_cluster_names
            else (),
            handovers=plan_handover(handed_over) if handed_over else (),
            restores=restores,
            registrations=tuple(
                [change for change in registrations.changes if change.action is not Action.DEREGISTER]
            ),
            removals=tuple(
                [
                    replace(one, is_terminated=one.instance.instance_id in situation.terminating_ids)
                    for one in plan((), leaving, situation.owner).changes
                ]
            )
            if leaving
            else (),
            removals_after_move=plan((), moved, situation.owner).changes if moved else (),
            dead_registration_removals=tuple(map(removal_of_dead_registration, dead)),
            instances_to_lapse=instances_to_lapse,
            instances_to_renew=self._instances_to_renew(name),
            refusals=registrations.refusals,
            duplicates=registrations.duplicates,
        )

    def _sort_into_handed_leaving_moved(
        self, name: str, *, is_home: bool, takes_over: bool
    ) -> tuple[list[tuple[Instance, Instance]], list[Instance], list[Instance]]:
        """Sort the syncer's instances at a registry into handed-over, leaving and moved ones.

        :param takes_over: True if others are taken over from a former name of the cluster: what vanished
            waits, so that the brake judges all of them together.
        :returns: the instances given to other syncers (as wanted, and as they stand); those that leave; and
            those that leave because they are registered at ``home_registry``. Instances in none of the lists
            stay.
        """
        situation, removal_scope = self.situation, self.rules.removal_scope
        instances_at_home = situation.instances_by_registry.get(situation.home_registry, ())
        wanted = situation.desired.keys
        if situation.desired.pods_without_host_port:
            kept = registered_without_address(situation.desired, instances_at_home)
            wanted = wanted.union(one.key for one in kept)
        handed_over: list[tuple[Instance, Instance]] = []
        leaving: list[Instance] = []
        moved: list[Instance] = []
        stand_here: frozenset[tuple[str, str, str]] | None = None
        syncer, staying_out_of_service = situation.syncer, frozenset[str]()
        if self.rules.registers and syncer and syncer.on_termination is OnTermination.OUT_OF_SERVICE:
            staying_out_of_service = situation.desired.terminating_ids
        held = situation.instances_by_registry[name]
        at_home = {one.key for one in instances_at_home} if held and not is_home else set[InstanceKey]()
        is_here = is_home or name in situation.connections_to_same_eureka
        may_be_here = is_here or name in situation.connections_to_maybe_same_eureka
        if removal_scope is RemovalScope.NONE:
            held = ()
        elif may_be_here and not situation.address_taker_by_id:  # nearly all stay
            held = [one for one in held if one.key not in wanted]
        for one in held:
            is_wanted = one.key in wanted
            is_taken = one.instance_id in situation.address_taker_by_id
            if is_taken and removal_scope is not RemovalScope.ALL and not self.rules.registers:
                leaving.append(one)  # also where the next pod of a StatefulSet has its name
                continue
            if (
                removal_scope is RemovalScope.ADDRESS_TAKEN
                or (is_wanted and may_be_here)
                or (is_here and one.instance_id in staying_out_of_service)
            ):
                continue
            if removal_scope is RemovalScope.ALL and (name, one.key) in situation.next_owners:
                handed_over.append((situation.next_owners[name, one.key].desired_instance, one))
            elif (
                is_taken
                or one.instance_id in situation.terminating_ids
                or one.instance_id in situation.ended_ids
            ):
                leaving.append(one)
            elif removal_scope is RemovalScope.ENDED_PODS or situation.awaits_next_owners or takes_over:
                continue
            elif not is_wanted:
                if stand_here is None:
                    stand_here = self._desired_up_endpoints(name) if is_home else frozenset()
                (moved if _endpoint_without_cluster(one) in stand_here else leaving).append(one)
            elif one.key in at_home:
                moved.append(one)
        if is_home and not situation.awaits_next_owners:
            leaving += [
                one for one in situation.unlisted_instances if (name, one.key) not in situation.next_owners
            ]
        return handed_over, leaving, moved

    def _instances_to_renew(self, name: str) -> tuple[Instance, ...]:
        """Return the instances under other names of the cluster to renew: none whose pod ended, and once the
        desired instances are known, only those of desired endpoints.
        """
        situation = self.situation
        left = situation.under_undeclared_cluster_names.get(name, ())
        if not self.rules.takes_over_under_former_cluster_names:
            left = (*left, *situation.under_former_cluster_names.get(name, ()))
        if not left or not self.rules.renews:
            return ()

        wanted = set(map(_endpoint_without_cluster, situation.desired.instances))
        return tuple(
            one
            for one in left
            if one.instance_id not in situation.terminating_ids
            and one.instance_id not in situation.ended_ids
            and one.instance_id not in situation.address_taker_by_id
            and (_endpoint_without_cluster(one) in wanted or situation.state is not SyncerState.COMPLETE)
        )

    def _desired_up_endpoints(self, name: str) -> frozenset[tuple[str, str, str]]:
        """Return the endpoints of desired instances that are UP at a registry, as
        :func:`_endpoint_without_cluster` names them: another instance of such an endpoint, under a second id,
        is superfluous.
        """
        held, wanted = self.situation.instances_by_registry[name], self.situation.desired.keys
        up = (one for one in held if one.key in wanted and one.status is Status.UP)
        return frozenset(map(_endpoint_without_cluster, up))


def _endpoint_without_cluster(one: Instance) -> tuple[str, str, str]:
    """Return the endpoint of an instance: application, id without the cluster's name, and IP address."""
    return one.application, id_without_cluster(one.instance_id), one.ip_address


def plan_syncer_changes(
    syncer: Syncer,
    desired: DesiredInstances,
    there: Sequence[Instance],
    application_instances: Iterable[Instance],
    owner: str,
    self_registered_by_key: Mapping[InstanceKey, Instance],
) -> Plan:
    """Return the changes for a syncer at the registry that it names.

    The caller may hold changes back: removals although more may be desired than is known, or all while the
    syncer is paused.

    :param there: the owner's instances at the registry.
    :param application_instances: all instances of the syncer's application at the registry, no matter who
        owns them.
    :param self_registered_by_key: instances that the syncer's pods registered themselves, see
        :func:`.self_registered.find_self_registered_instances`.
    """
    instances = desired.instances
    if desired.status_without_address or desired.pods_without_host_port:
        instances = (*instances, *registered_without_address(desired, there))
    if syncer.on_termination is OnTermination.OUT_OF_SERVICE:
        instances = (*instances, *terminating_as_out_of_service(desired, there))
    name = syncer.application.upper()
    elsewhere = [one for one in there if one.application != name]
    return plan(
        instances,
        [*application_instances, *elsewhere],
        owner,
        syncer.policy,
        self_registered_by_key=self_registered_by_key,
    )
