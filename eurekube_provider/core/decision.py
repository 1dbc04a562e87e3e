"""The decision for one syncer: what is done at each registry, what waits, and for what. Pure.

All that was read for a syncer is a :class:`Situation`, and :func:`decide` makes a :class:`Decision` of it. A
syncer that is refused, paused, in doubt or deleted is a row of :data:`RULES`, and has no path of its own. Of
an instance that it has at a registry the first of these is true:

==========================================  =====================================================
it is wanted where it stands                it stays, and is brought up to date
another syncer wants it                     it is given to that one, as it stands
it ended: seen terminating, or without pod  it leaves
another pod has its address                 it leaves
what others want is not known yet           it stays
it is wanted elsewhere, or by another id    it leaves once it stands there
it is not wanted                            it leaves
==========================================  =====================================================

To leave is to lapse where the policy removes nothing, or the syncer is paused. The brake may hold back what
leaves and was not seen terminating.

A cluster may be called otherwise than it was. What the same syncer has under a former name is its own: it is
given to it first, under the id that it has, and then one of these is true of it as well. What it has under
another name of the cluster that nobody said is a former one is left as it is, and renewed for as long as it
is in the way of what is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from eurekube_provider.core.brake import Braked, BrakeHistory, counts, judge
from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import without_cluster
from eurekube_provider.core.mapping import Desired
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
"""Between two looks at what another syncer wants, while that is not known."""

REPORTED_WITHIN_SECONDS = 5.0
"""Servers tell each other of a change within half a second, unless they are busy."""

RECHECK_SECONDS = 20.0
"""After which a syncer is decided again in whose way something stands that nobody tells of."""


class State(Enum):
    """The states of a syncer, as far as they decide what becomes of its instances."""

    SERVED = "served"
    DOUBTFUL = "doubtful"
    """More may be wanted than is known."""

    PAUSED = "paused"
    REFUSED = "refused"
    """It must not register what it asks for, or cannot be read."""

    DELETED = "deleted"
    UNKNOWN = "unknown"
    """Nobody can read whether it is there."""


class Removes(Enum):
    """The instances that leave where they are not wanted."""

    ALL = "all"
    ENDED = "ended"
    TAKEN = "taken"
    """Of those that ended, the ones whose address another pod has by now."""

    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one state of a syncer.

    :ivar registers: True if what is wanted is registered and brought up to date.
    :ivar restores: True if what a registry forgot comes back as it stood.
    :ivar renews: True if what does not leave is renewed.
    :ivar takes_over: True if what it has under a former name of the cluster is given to it.
    :ivar lapses: True if what leaves is renewed no more, and not removed.
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
"""The name of a registry, and an instance that stands there."""


@dataclass(frozen=True, slots=True)
class Heir:
    """Another syncer that wants an instance as well.

    :ivar syncer: its namespace and name.
    :ivar wants: the instance as it wants it.
    """

    syncer: tuple[str, str]
    wants: Instance


_NOTHING_DESIRED = Desired()
_NO_HISTORY = BrakeHistory()


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known of a syncer when it is decided what to do.

    :ivar key: its namespace and name.
    :ivar owner: the owner of the instances that may be changed.
    :ivar held: the owner's instances, by registry.
    :ivar home: the registry that the syncer names; empty where it registers nothing.
    :ivar syncer: its spec; None where it is refused, or asks for nothing any more.
    :ivar refusal: why it is refused.
    :ivar claimed: the names that it has been called by before.
    :ivar policy: True if something may be removed; a deleted syncer's instances are in any case.
    :ivar neighbours: by registry, everything under the applications that may be registered there.
    :ivar terminating: ids of held instances whose endpoints were seen terminating.
    :ivar ended: ids of held instances of whose pods the cluster has none any more.
    :ivar taken: by id of held instances, the pod of another Service that has their address by now.
    :ivar forgotten: by registry, what it forgot, and whose endpoint is still ready.
    :ivar same_eureka: other connections that lead to the servers of ``home``.
    :ivar doubts: other connections of which that is not known, with the reason; None where time will tell.
    :ivar unlisted: instances at ``home`` that the owner may have there though no list shows them.
    :ivar unread: why ``home`` cannot be changed.
    :ivar heirs: the instances that this syncer gives up and others want.
    :ivar is_awaited: True if what they want is not known yet.
    :ivar is_forced: True if a person wants the deleted syncer to go at once, whatever it leaves behind.
    :ivar former: by registry, what the syncer has under former names of its cluster.
    :ivar unclaimed: by registry, what it has under other names of its cluster of which nobody said that they
        are former ones.
    :ivar twins: instances that the syncer's pods registered themselves, by the key of the desired one.
    :ivar removable: instances that deleted pods had registered themselves, and those that may be removed for
        that: the one exception to the rule that others' instances are left alone.
    :ivar self_registered: instances that pods, gone or not, registered themselves, and that are still there.
    :ivar notes: problems with others' instances beside its own.
    :ivar now: seconds, of a clock that does not jump; ``unix_now`` is the time as people read it.
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
    def given_up(self) -> dict[str, list[Instance]]:
        """By registry, what other syncers may have: not wanted any more, and not seen terminating."""
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
        """The instances that it has and does not want UP: of these it counts whether they ended."""
        down = {one.key for one in self.desired.instances if one.status is not Status.UP}
        up = self.desired.keys - down
        return [one for one in self.registered if one.key not in up]

    @property
    def registered(self) -> list[Instance]:
        """All that the syncer has, by whatever name of its cluster."""
        by_name = (self.held, self.former, self.unclaimed)
        return [one for held in by_name for there in held.values() for one in there]


@dataclass(frozen=True, slots=True)
class RegistrySteps:
    """The changes at one registry.

    :ivar registrations: these, updates, and changes of statuses.
    :ivar moves: removals of what stands at the registry that the syncer names.
    :ivar takeovers: updates of what the syncer had under a former name of its cluster.
    :ivar evictions: removals of what pods that are gone registered themselves: nobody else's are removed.
    :ivar lapses: instances that are renewed no more, and left to the registry to forget.
    :ivar renewals: instances under another name of its cluster, which are renewed all the same.
    :ivar refusals: instances that are left alone since somebody else's is there; see :class:`~.plan.Plan`.
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
        """The changes by which the brake judges: callers miss nothing of the others."""
        return (*self.restores, *self.registrations, *self.removals)

    @property
    def plan(self) -> Plan:
        """All of it as one plan, without what is somebody else's."""
        changes = (*self.takeovers, *self.handovers, *self.judged, *self.moves)
        return Plan(changes, self.refusals, self.doubled)

    def without(self, held: frozenset[int]) -> RegistrySteps:
        """Return them without what the brake holds back, by identity."""
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
    """The changes for a syncer, and whatever they wait for.

    :ivar at: by registry, in the order in which it is done: where something is given first, then the
        syncer's own.
    :ivar differing: all that differs at the registry that it names, done or not.
    :ivar waiting: how many changes a paused syncer does not make.
    :ivar brake: the changes that are held back, and why.
    :ivar again_seconds: when to decide again, though nothing tells of a change.
    :ivar error: why something waits that is to be tried again.
    """

    at: Mapping[str, RegistrySteps]
    differing: Plan = _NOTHING
    waiting: int = 0
    brake: Braked = _NOT_BRAKED
    again_seconds: float | None = None
    error: RegistryError | None = None


def decide(situation: Situation) -> Decision:
    """Decide what is to be done for a syncer."""
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
    if situation.state is State.REFUSED or waiting or is_in_the_way or situation.desired.is_unread:
        waits.append(RECHECK_SECONDS)
    error = situation.unread
    if error is None and situation.policy is Policy.SYNC:
        error = next((why for why in situation.doubts.values() if why is not None), None)
    # Given first: another connection to the same Eureka may show the same instance as one that leaves.
    in_order = dict(sorted(at.items(), key=lambda one: not one[1].handovers))
    return Decision(in_order, differing, waiting, brake, min(waits, default=None), error)


def _is_moving(situation: Situation, home: RegistrySteps) -> bool:
    """Return whether something stands elsewhere that is registered now where it is wanted."""
    others = [there for name, there in situation.held.items() if there and name != situation.home]
    if not others or situation.state is not State.SERVED:
        return False
    coming = {change.instance.key for change in home.registrations if change.actual is None}
    return any(one.key in coming for there in others for one in there)


def _while_paused(situation: Situation, restores: tuple[Change, ...]) -> tuple[Plan, int]:
    """Return what differs for a paused syncer, and how many changes it does not make.

    :param restores: the changes that it makes.
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
    """The decision in a state, if the brake held nothing back."""

    situation: Situation
    rules: Rules

    def steps(self, name: str) -> RegistrySteps:
        """Return what is done at a registry."""
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
        """Sort what is held at a registry: what is given, as it is wanted and as it stands; what leaves; and
        what leaves since it stands at home. The rest stays.
        """
        situation, removes = self.situation, self.rules.removes
        wanted = situation.desired.keys
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
        """Return what is renewed though it is not the syncer's by name: nothing that ended, and where it is
        known what is wanted, only the same endpoints.
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
        """Return the endpoints that are UP at a registry as they are wanted: one more id is too many."""
        held, wanted = self.situation.held[name], self.situation.desired.keys
        up = (one for one in held if one.key in wanted and one.status is Status.UP)
        return frozenset(map(_endpoint, up))

    def _is_shown(self, one: Instance) -> bool:
        """Return whether an instance stays until its endpoint is gone, as OUT_OF_SERVICE."""
        syncer = self.situation.syncer
        is_kept = syncer is not None and syncer.on_termination is OnTermination.OUT_OF_SERVICE
        return is_kept and self.rules.registers and one.instance_id in self.situation.desired.terminating


def _endpoint(one: Instance) -> tuple[str, str, str]:
    """Return the endpoint of an instance, by whatever name of the cluster."""
    return one.application, without_cluster(one.instance_id), one.ip_address
