"""The decision for one syncer: what changes at each registry, what waits, and for what. Pure.

All that was read for a syncer is a :class:`Situation`; :func:`decide` turns it into a :class:`Decision`. A
syncer that is refused, paused, in doubt or deleted is a row of :data:`RULES`, not a branch of its own. For
each instance that the syncer has at a registry, the first of these rows that is true decides:

==============================================  ===================================================== the
instance is wanted where it stands          it stays, and is brought up to date another syncer wants it
it is given to that syncer, as it stands its pod was seen terminating, or is gone        it leaves another pod
has its address                     it leaves the wishes of other syncers are not known yet   it stays it is
wanted elsewhere, or by another id        it leaves once it is registered there it is not wanted
it leaves ==============================================
=====================================================

Where the policy removes nothing, or the syncer is paused, an instance that leaves is not removed but lapses:
nobody renews it. The brake may hold back instances that leave without having been seen terminating.

A cluster may change its name. The instances that a syncer has under a former name are its own: the syncer
first takes them over under the ids that they have, and then the table is true of them, too. Instances under
another name of the cluster that nobody declared a former one are not changed, and are renewed as long as they
are in the way of the desired ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from eurekube_provider.core.brake import Braked, BrakeHistory, counts, judge
from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import without_cluster
from eurekube_provider.core.mapping import Desired, standing
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.plan import (
    Action,
    Change,
    Plan,
    Policy,
    Refusal,
    eviction,
    handover,
    plan,
    take_over,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.self_registered import SelfRegistration
from eurekube_provider.core.syncer import OnTermination, Syncer
from eurekube_provider.core.syncer_plan import plan_of_syncer

HEIR_POLL_SECONDS = 0.1
"""Seconds until the next decision while the wishes of another syncer are not known."""

REPORTED_WITHIN_SECONDS = 5.0
"""Seconds until the next decision while servers may not have told each other of a change; usually they
need half a second.
"""

RECHECK_SECONDS = 20.0
"""Seconds until the next decision for a syncer that is blocked by something whose end no event reports."""


class State(Enum):
    """The states of a syncer, as far as they decide what becomes of its instances."""

    SERVED = "served"
    DOUBTFUL = "doubtful"
    """More instances may be desired than are known."""

    PAUSED = "paused"
    REFUSED = "refused"
    """The syncer must not register what it asks for, or its spec cannot be read."""

    DELETED = "deleted"
    UNKNOWN = "unknown"
    """The operator cannot read whether the syncer exists."""


class Removes(Enum):
    """The kinds of unwanted instances that a state's rules remove."""

    ALL = "all"
    ENDED = "ended"
    TAKEN = "taken"
    """Only ended instances whose address another pod has already."""

    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one state of a syncer.

    :ivar registers: True if desired instances are registered and brought up to date.
    :ivar restores: True if instances that a registry forgot are registered again as they were.
    :ivar renews: True if instances that do not leave are renewed.
    :ivar takes_over: True if the syncer takes over its instances under a former name of the cluster.
    :ivar lapses: True if leaving instances are no longer renewed, and not removed.
    """

    registers: bool = False
    removes: Removes = Removes.NONE
    restores: bool = False
    is_braked: bool = False
    renews: bool = True
    takes_over: bool = True
    lapses: bool = False


RULES: Mapping[State, Rules] = {
    State.SERVED: Rules(registers=True, removes=Removes.ALL, is_braked=True),
    State.DOUBTFUL: Rules(registers=True, removes=Removes.ENDED, restores=True, is_braked=True),
    State.PAUSED: Rules(removes=Removes.TAKEN, restores=True, lapses=True, takes_over=False),
    State.REFUSED: Rules(removes=Removes.ENDED, restores=True, is_braked=True),
    State.DELETED: Rules(removes=Removes.ALL, renews=False),
    State.UNKNOWN: Rules(takes_over=False),
}

Place = tuple[str, Key]
"""The name of a registry, and the key of an instance there."""


@dataclass(frozen=True, slots=True)
class Heir:
    """Another syncer that wants an instance which this syncer gives up.

    :ivar syncer: the other syncer's namespace and name.
    :ivar wants: the instance as the other syncer wants it.
    """

    syncer: tuple[str, str]
    wants: Instance


_NOTHING_DESIRED = Desired()
_NO_HISTORY = BrakeHistory()


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known of a syncer at the time of a decision.

    :ivar key: the syncer's namespace and name.
    :ivar owner: the owner of the instances that may be changed.
    :ivar held: the owner's instances, by registry.
    :ivar home: the registry that the syncer names; empty where it registers nothing.
    :ivar syncer: the syncer's spec; None where it is refused, or asks for nothing any more.
    :ivar refusal: why the syncer is refused.
    :ivar claimed: the names under which the syncer had instances before.
    :ivar policy: whether instances may be removed; a deleted syncer's are removed in any case.
    :ivar neighbours: by registry, every instance of the applications that may be registered there.
    :ivar terminating: ids of held instances whose endpoints were seen terminating.
    :ivar ended: ids of held instances whose pods the cluster no longer has.
    :ivar taken: by id of held instances whose address a pod of another Service has now, that pod.
    :ivar forgotten: by registry, instances that it forgot and whose endpoints are still ready.
    :ivar same_eureka: other connections that lead to the servers of ``home``.
    :ivar doubts: other connections that may or may not lead to the servers of ``home``, with the reason for
        the doubt; None where time will tell.
    :ivar unlisted: instances that the owner may have at ``home`` though no list shows them.
    :ivar unread: why ``home`` cannot be changed.
    :ivar heirs: the instances that this syncer gives up and others want.
    :ivar is_awaited: True if the wishes of the other syncers are not known yet.
    :ivar is_forced: True if a person wants the deleted syncer to go at once, whatever it leaves in Eureka.
    :ivar former: by registry, the syncer's instances under former names of its cluster.
    :ivar unclaimed: by registry, the syncer's instances under other names of its cluster that nobody declared
        former ones.
    :ivar twins: instances that the syncer's pods registered themselves, by the key of the desired one.
    :ivar removable: instances that deleted pods had registered themselves, and that may be removed: the one
        exception to the rule that others' instances are left alone.
    :ivar self_registered: instances that pods, living or gone, registered themselves, and that are still in
        Eureka.
    :ivar notes: problems with others' instances.
    :ivar now: seconds, of a clock that does not jump; ``unix_now`` is the time of day.
    """

    key: tuple[str, str]
    owner: str
    state: State
    held: Mapping[str, Sequence[Instance]]
    home: str = ""
    syncer: Syncer | None = None
    refusal: Problem | None = None
    claimed: frozenset[str] = frozenset()
    desired: Desired = _NOTHING_DESIRED
    policy: Policy = Policy.SYNC
    neighbours: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    terminating: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    taken: Mapping[str, str] = field(default_factory=dict)
    forgotten: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    same_eureka: frozenset[str] = frozenset()
    doubts: Mapping[str, RegistryError | None] = field(default_factory=dict)
    unlisted: Sequence[Instance] = ()
    unread: RegistryError | None = None
    heirs: Mapping[Place, Heir] = field(default_factory=dict)
    is_awaited: bool = False
    is_forced: bool = False
    former: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    unclaimed: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    twins: Mapping[Key, Instance] = field(default_factory=dict)
    removable: Sequence[Instance] = ()
    self_registered: tuple[SelfRegistration, ...] = ()
    notes: tuple[Problem, ...] = ()
    brake: BrakeHistory = _NO_HISTORY
    now: float = 0.0
    unix_now: float = 0.0

    @property
    def kept_keys(self) -> frozenset[Key]:
        """The keys of instances that stay while the host port of their pods is not known."""
        if not self.desired.kept_pods:
            return frozenset()
        return frozenset(one.key for one in standing(self.desired, self.held.get(self.home, ())))

    @property
    def given_up(self) -> dict[str, list[Instance]]:
        """Instances, by registry, that other syncers may take over: no longer wanted, and not seen
        terminating.
        """
        if RULES[self.state].removes is not Removes.ALL:
            return {}
        found, wanted = {}, self.desired.keys
        for name, there in self.held.items():
            is_at_home = name == self.home or name in self.same_eureka or name in self.doubts
            instances = [*there, *(self.unlisted if name == self.home else ())]
            found[name] = [
                one
                for one in instances
                if one.instance_id not in self.terminating and not (is_at_home and one.key in wanted)
            ]
        return found

    @property
    def may_leave(self) -> list[Instance]:
        """The syncer's instances that are not wanted UP: their removal may depend on whether their pods
        ended.
        """
        down = {one.key for one in self.desired.instances if one.status is not Status.UP}
        up = self.desired.keys - down
        return [one for one in self.registered if one.key not in up]

    @property
    def registered(self) -> list[Instance]:
        """All instances of the syncer, under whatever name of its cluster."""
        by_name = (self.held, self.former, self.unclaimed)
        return [one for held in by_name for there in held.values() for one in there]


@dataclass(frozen=True, slots=True)
class RegistrySteps:
    """The changes at one registry.

    :ivar takeovers: updates of the syncer's instances under a former name of its cluster.
    :ivar registrations: registrations, updates, and changes of statuses.
    :ivar moves: removals of instances that are registered already at the registry that the syncer names.
    :ivar evictions: removals of instances that pods which are gone had registered themselves; no other
        foreign instance is removed.
    :ivar lapses: instances that are no longer renewed, so that the registry forgets them.
    :ivar renewals: instances under another name of the cluster, which are renewed all the same.
    :ivar refusals: instances that are not changed since another owner's is in their place; see
        :class:`~.plan.Plan`.
    """

    takeovers: tuple[Change, ...] = ()
    handovers: tuple[Change, ...] = ()
    restores: tuple[Change, ...] = ()
    registrations: tuple[Change, ...] = ()
    removals: tuple[Change, ...] = ()
    moves: tuple[Change, ...] = ()
    evictions: tuple[Change, ...] = ()
    lapses: tuple[Instance, ...] = ()
    renewals: tuple[Instance, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    doubled: tuple[Refusal, ...] = ()

    @property
    def judged(self) -> tuple[Change, ...]:
        """The changes that the brake judges; the others take no instance from callers."""
        return (*self.restores, *self.registrations, *self.removals)

    @property
    def plan(self) -> Plan:
        """The changes as one plan, without the evictions of instances of other owners."""
        changes = (*self.takeovers, *self.handovers, *self.judged, *self.moves)
        return Plan(changes, self.refusals, self.doubled)

    def without(self, held: frozenset[int]) -> RegistrySteps:
        """Return the steps without the changes that the brake holds back.

        :param held: the ``id()`` of each change that is held back.
        """
        return replace(
            self,
            registrations=tuple(one for one in self.registrations if id(one) not in held),
            removals=tuple(one for one in self.removals if id(one) not in held),
        )


_NO_STEPS = RegistrySteps()
_NOTHING = Plan()
_NOT_BRAKED = Braked()


@dataclass(frozen=True, slots=True)
class Decision:
    """The changes for a syncer, and the reasons for which changes wait.

    :ivar at: the steps by registry, in the order of execution: registries with hand-overs first, then the
        syncer's own changes.
    :ivar differing: all differences at the registry that the syncer names, carried out or not.
    :ivar waiting: how many changes a paused syncer does not make.
    :ivar brake: the changes that are held back, and why.
    :ivar again_seconds: seconds until the next decision, though no event reports a change.
    :ivar error: why a change waits that is to be tried again.
    """

    at: Mapping[str, RegistrySteps]
    differing: Plan = _NOTHING
    waiting: int = 0
    brake: Braked = _NOT_BRAKED
    again_seconds: float | None = None
    error: RegistryError | None = None


def decide(situation: Situation) -> Decision:
    """Decide what changes for a syncer at each registry, what waits, and when to decide again."""
    if situation.is_forced:
        return Decision({name: RegistrySteps(lapses=tuple(there)) for name, there in situation.held.items()})
    rules = RULES[situation.state]
    draft = _Draft(situation, rules)
    names = sorted(situation.held, key=lambda name: name != situation.home)
    at = {name: draft.steps(name) for name in names}
    home = at.get(situation.home, _NO_STEPS)
    differing, waiting = Plan(home.judged, home.refusals, home.doubled), 0
    if situation.state is State.PAUSED and situation.syncer is not None:
        differing, waiting = _while_paused(situation, home.restores)
        at[situation.home] = replace(home, refusals=differing.refusals, doubled=differing.doubled)
    brake = _NOT_BRAKED
    if rules.is_braked:
        given = [one.actual for steps in at.values() for one in steps.handovers if one.actual is not None]
        given_up = sum(one.status is Status.UP and counts(one) for one in given)
        brake = judge(
            Plan(tuple(change for steps in at.values() for change in steps.judged)),
            replace(situation.brake, registered_up=situation.brake.registered_up - given_up),
            situation.terminating.__contains__,
            situation.now,
            situation.unix_now,
            is_repacked=situation.desired.is_repacked,
            ids_aside=situation.desired.ids_aside,
        )
        held = frozenset(map(id, brake.changes))
        at = {name: steps.without(held) if held else steps for name, steps in at.items()}
    waits = [brake.held.wait_seconds] if brake.held else []
    if situation.is_awaited:
        waits.append(HEIR_POLL_SECONDS)
    if situation.doubts or _is_moving(situation, home):
        waits.append(REPORTED_WITHIN_SECONDS)
    is_in_the_way = bool(differing.refusals or differing.doubled or any(situation.unclaimed.values()))
    is_in_the_way |= any(one.reason == ConditionType.DEAD_SELF_REGISTERED for one in situation.notes)
    # Nobody tells a paused syncer which other pods get an address.
    is_unread = situation.desired.is_unread or situation.desired.awaits_pods
    if situation.state is State.REFUSED or waiting or is_in_the_way or is_unread:
        waits.append(RECHECK_SECONDS)
    error = situation.unread
    if error is None and situation.policy is Policy.SYNC:
        error = next((why for why in situation.doubts.values() if why is not None), None)
    # Given first: another connection to the same Eureka may show the same instance as one that leaves.
    in_order = dict(sorted(at.items(), key=lambda one: not one[1].handovers))
    return Decision(in_order, differing, waiting, brake, min(waits, default=None), error)


def _is_moving(situation: Situation, home: RegistrySteps) -> bool:
    """Return whether an instance at another registry is now being registered at the syncer's own."""
    others = [there for name, there in situation.held.items() if there and name != situation.home]
    if not others or situation.state is not State.SERVED:
        return False
    coming = {change.instance.key for change in home.registrations if change.actual is None}
    return any(one.key in coming for there in others for one in there)


def _while_paused(situation: Situation, restores: tuple[Change, ...]) -> tuple[Plan, int]:
    """Return the plan that a paused syncer would have, and the number of its changes that are not made.

    :param restores: the changes that the paused syncer makes all the same.
    """
    state = State.DOUBTFUL if situation.desired.is_in_doubt else State.SERVED
    meant = _Draft(situation, RULES[state]).steps(situation.home)
    restored = {change.instance.key for change in restores}
    changes = (*meant.registrations, *meant.removals)
    rest = tuple(change for change in changes if change.instance.key not in restored)
    elsewhere = sum(len(there) for name, there in situation.held.items() if name != situation.home)
    return Plan((*restores, *rest), meant.refusals, meant.doubled), len(rest) + elsewhere


@dataclass(frozen=True, slots=True)
class _Draft:
    """The steps for a syncer in one state, before the brake holds any of them back."""

    situation: Situation
    rules: Rules

    def steps(self, name: str) -> RegistrySteps:
        """Return the changes at one registry."""
        situation, is_home = self.situation, name == self.situation.home
        if is_home and situation.unread is not None:
            return _NO_STEPS
        neighbours = situation.neighbours.get(name, ())
        restores: tuple[Change, ...] = ()
        if self.rules.restores and (lost := situation.forgotten.get(name, ())):
            to_restore = [
                one for one in lost if not (self.rules.registers and one.key in situation.desired.keys)
            ]
            restores = plan(to_restore, neighbours, situation.owner, Policy.UPSERT_ONLY).of(Action.REGISTER)
        former = situation.former.get(name, ()) if self.rules.takes_over else ()
        registered = _NOTHING
        if self.rules.registers and is_home and situation.syncer is not None:
            desired = situation.desired
            if taken_over := {one.key for one in former}:
                left = tuple(one for one in desired.instances if one.key not in taken_over)
                desired = replace(desired, instances=left)
            registered = plan_of_syncer(
                situation.syncer,
                desired,
                situation.held[name],
                neighbours,
                situation.owner,
                situation.twins,
            )
        given, leaving, moved = self._sorted(name, is_home=is_home)
        lapses: tuple[Instance, ...] = ()
        keeps_all = situation.policy is Policy.UPSERT_ONLY and situation.state is not State.DELETED
        if keeps_all or self.rules.lapses:
            lapses, leaving, moved = (*leaving, *moved), [], []
        evicts = is_home and situation.state is State.SERVED and situation.policy is Policy.SYNC
        return RegistrySteps(
            take_over(former, situation.owner).changes if former else (),
            handover(given).changes if given else (),
            restores,
            tuple(change for change in registered.changes if change.action is not Action.DEREGISTER),
            plan((), leaving, situation.owner).changes if leaving else (),
            plan((), moved, situation.owner).changes if moved else (),
            tuple(eviction(one) for one in situation.removable) if evicts else (),
            lapses,
            self._renewed(name),
            registered.refusals,
            registered.doubled,
        )

    def _sorted(
        self, name: str, *, is_home: bool
    ) -> tuple[list[tuple[Instance, Instance]], list[Instance], list[Instance]]:
        """Sort the instances that the syncer holds at a registry by what becomes of them.

        :returns: the instances given to other syncers (as wanted, and as they stand); those that leave; and
            those that leave because they are registered at ``home``. Instances in none of the lists stay.
        """
        situation, removes = self.situation, self.rules.removes
        wanted = situation.desired.keys | situation.kept_keys
        given: list[tuple[Instance, Instance]] = []
        leaving: list[Instance] = []
        moved: list[Instance] = []
        stand_here: frozenset[tuple[str, str, str]] | None = None
        home = () if is_home else situation.held.get(situation.home, ())
        at_home = {one.key for one in home} if situation.held[name] else set[Key]()
        is_here = is_home or name in situation.same_eureka
        may_be_here = is_here or name in situation.doubts
        for one in situation.held[name] if removes is not Removes.NONE else ():
            is_wanted = one.key in wanted
            is_taken = one.instance_id in situation.taken
            if is_taken and removes is not Removes.ALL and not self.rules.registers:
                leaving.append(one)  # also where the next pod of a StatefulSet has its name
                continue
            if removes is Removes.TAKEN or (is_wanted and may_be_here) or (is_here and self._is_shown(one)):
                continue
            if removes is Removes.ALL and (name, one.key) in situation.heirs:
                given.append((situation.heirs[name, one.key].wants, one))
            elif is_taken or one.instance_id in situation.terminating or one.instance_id in situation.ended:
                leaving.append(one)
            elif removes is Removes.ENDED or situation.is_awaited:
                continue
            elif not is_wanted:
                if stand_here is None:
                    stand_here = self._wanted_and_up(name) if is_home else frozenset()
                (moved if _endpoint(one) in stand_here else leaving).append(one)
            elif one.key in at_home:
                moved.append(one)
        if is_home and not situation.is_awaited:
            leaving += [one for one in situation.unlisted if (name, one.key) not in situation.heirs]
        return given, leaving, moved

    def _renewed(self, name: str) -> tuple[Instance, ...]:
        """Return the instances under other names of the cluster that are renewed: none that ended, and
        once the desired instances are known, only those of the same endpoints.
        """
        situation = self.situation
        left = situation.unclaimed.get(name, ())
        if not self.rules.takes_over:
            left = (*left, *situation.former.get(name, ()))
        if not left or not self.rules.renews:
            return ()

        wanted = set(map(_endpoint, situation.desired.instances))
        return tuple(
            one
            for one in left
            if one.instance_id not in situation.terminating
            and one.instance_id not in situation.ended
            and one.instance_id not in situation.taken
            and (_endpoint(one) in wanted or situation.state is not State.SERVED)
        )

    def _wanted_and_up(self, name: str) -> frozenset[tuple[str, str, str]]:
        """Return the endpoints of desired instances that are UP at a registry: a second id for one of them
        is superfluous.
        """
        held, wanted = self.situation.held[name], self.situation.desired.keys
        up = (one for one in held if one.key in wanted and one.status is Status.UP)
        return frozenset(map(_endpoint, up))

    def _is_shown(self, one: Instance) -> bool:
        """Return whether a terminating instance stays as OUT_OF_SERVICE until its endpoint is gone."""
        syncer = self.situation.syncer
        is_kept = syncer is not None and syncer.on_termination is OnTermination.OUT_OF_SERVICE
        return is_kept and self.rules.registers and one.instance_id in self.situation.desired.terminating


def _endpoint(one: Instance) -> tuple[str, str, str]:
    """Return the endpoint of an instance (application, id and IP address) without the cluster's name in
    the id.
    """
    return one.application, without_cluster(one.instance_id), one.ip_address
