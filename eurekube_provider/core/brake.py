"""The brake holds removals back when a source suddenly shows nothing: no whole application disappears.

The brake judges only endpoints that vanished, or became unready, without having been seen terminating. A
deleted pod is seen terminating before it goes; the pods of a broken source are not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.identity import NODE_KEY
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.plan import Action, Change
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.sliding_window import RecentChanges, count_losses

BRAKE_HOLD_SECONDS = 60.0
"""Seconds for which a braked removal waits; it is carried out afterwards if the source still asks for it."""

REPACKED_SLICES_HOLD_SECONDS = 10.0
"""Seconds for which removals wait while Kubernetes packs a Service's EndpointSlices again for other ports.

Kubernetes needs a few seconds for that. Where pods have different ports for long, an endpoint that ended
unseen is kept for no longer than this time.
"""

LOSS_WINDOW_SECONDS = 60.0
"""Seconds over which all syncers' removals are summed, less the arrivals at the same syncers."""

MAX_LOSS_SHARE_OF_SYNCER = 0.5
"""The share of a syncer's instances that are UP, above which an unexplained loss is braked."""

MAX_LOSS_SHARE_OF_OPERATOR = 0.3
"""The share of all the operator's instances that are UP, above which the losses of all syncers within
:data:`LOSS_WINDOW_SECONDS` are braked.
"""

MIN_REMOVALS_FOR_SHARES = 10
"""The number of removals below which the brake checks no share: shares mean nothing in small numbers."""

RELEASE_BRAKE_ANNOTATION = "eurekube.io/release-brake"
"""The annotation by which a person releases a syncer's brake: the held removals are carried out at once.

Any value will do. The operator removes the annotation once it has obeyed, or has found nothing held.
"""


_NO_RECENT_CHANGES = RecentChanges()


@dataclass(frozen=True, slots=True)
class HeldRemovals:
    """Removals that the brake holds back.

    :ivar since: when the wait began, by the clock of the decision.
    :ivar waits_until: when the wait ends, as an ISO 8601 time.
    :ivar seconds_until_next_decision: seconds until the next decision.
    :ivar held_seconds: seconds for which the removals have waited.
    """

    problem: Problem
    since: float
    waits_until: str
    seconds_until_next_decision: float
    held_seconds: float


@dataclass(frozen=True, slots=True)
class SiblingTotals:
    """Totals over all syncers that are derived from the same namespace's syncer.

    :ivar parent_qualified_name: ``namespace/name`` of the namespace's syncer.
    :ivar up_count: how many of their instances are UP, those of the judged syncer included.
    :ivar recent_changes: their changes within :data:`LOSS_WINDOW_SECONDS`.
    """

    parent_qualified_name: str
    up_count: int
    recent_changes: RecentChanges


@dataclass(frozen=True, slots=True)
class BrakeHistory:
    """Facts, beside the plan itself, by which the brake judges a plan.

    :ivar syncer_up_count: how many instances of the syncer are UP, at all registries.
    :ivar operator_up_count: how many instances of all the operator's syncers are UP.
    :ivar recent_changes: the instances that left without having been seen terminating within
        :data:`LOSS_WINDOW_SECONDS`, and those that came.
    :ivar held_removals: the removals that waited after the last decision.
    :ivar is_released: True if a person released the brake.
    :ivar siblings: all syncers that are derived from the same one; None for a syncer that is not derived.
    """

    syncer_up_count: int = 0
    operator_up_count: int = 0
    recent_changes: RecentChanges = _NO_RECENT_CHANGES
    held_removals: HeldRemovals | None = None
    is_released: bool = False
    siblings: SiblingTotals | None = None


@dataclass(frozen=True, slots=True)
class BrakeJudgement:
    """The brake's judgement of one plan.

    :ivar held_changes: the changes that must wait: they take an instance that is UP from callers, and it was
        not seen terminating. Removals of instances that callers do not use wait with them: the removal of one
        that a person took out of service would lose that wish, and the source, once repaired, would bring the
        instance up.
    :ivar held_removals: why the changes wait, and until when; None where none does.
    :ivar left_keys: the keys of instances that go without having been seen terminating; empty while the brake
        holds their removal back.
    :ivar arrived_keys: the keys of instances that become usable.
    :ivar is_released: True if the removals go because a person released the brake.
    """

    held_changes: tuple[Change, ...] = ()
    held_removals: HeldRemovals | None = None
    left_keys: frozenset[InstanceKey] = frozenset()
    arrived_keys: frozenset[InstanceKey] = frozenset()
    is_released: bool = False


def judge_removals(
    changes: Sequence[Change],
    history: BrakeHistory,
    terminating_ids: Collection[str],
    desired: DesiredInstances,
    now: float,
    unix_now: float,
) -> BrakeJudgement:
    """Decide whether changes look like the result of a broken source, and which of them must then wait.

    :param terminating_ids: ids of instances whose endpoints were seen terminating.
    :param desired: what the syncer wants. Instances of other Services that its selector finds leave because
        another Service is chosen, and not because anything happened to them.
    :param now: seconds, of a clock that does not jump; ``unix_now`` is the time of day.
    """
    arrived_keys = frozenset([change.instance.key for change in changes if adds_capacity(change)])
    leaving = [change for change in changes if removes_capacity(change)]
    unexplained = tuple([one for one in leaving if one.instance.instance_id not in terminating_ids])
    if not unexplained:
        return BrakeJudgement(arrived_keys=arrived_keys)
    left_keys = frozenset(change.instance.key for change in unexplained)
    count, arriving = len(unexplained), len(arrived_keys)
    up, recent_changes = history.syncer_up_count, history.recent_changes
    # A change that is retried counts once.
    left_before = len(recent_changes.left_keys - left_keys)
    came_before = len(recent_changes.arrived_keys - arrived_keys)
    gone = count + left_before + recent_changes.losses_of_other_syncers
    lost = recent_changes.losses_of_other_syncers + max(0, count + left_before - arriving - came_before)
    vanished = tuple(one for one in unexplained if one.action is Action.DEREGISTER)
    ids = desired.ids_of_other_services([one.instance for one in vanished])
    aside = tuple(one for one in vanished if one.instance.instance_id in ids)
    seconds = BRAKE_HOLD_SECONDS
    if removes_all_of_several(up, len(leaving), arriving):
        reason = f"all {up} instances would go"
    elif removes_majority_of_many(up, count, arriving):
        reason = f"{count} of {up} instances would go"
    elif siblings := _describe_sibling_losses(history.siblings, left_keys, arrived_keys):
        reason = siblings
    elif gone >= MIN_REMOVALS_FOR_SHARES and lost > history.operator_up_count * MAX_LOSS_SHARE_OF_OPERATOR:
        reason = f"{gone} of this operator's {history.operator_up_count} instances would go within a minute"
    elif len(aside) > arriving + came_before:
        unexplained, count = (vanished if desired.are_slices_being_repacked else aside), len(aside)
        reason = f"{count} of {up} instances would go, which are of other Services with the selected labels"
    elif desired.are_slices_being_repacked and vanished:
        unexplained, count, seconds = vanished, len(vanished), REPACKED_SLICES_HOLD_SECONDS
        reason = f"{count} of {up} instances would go while EndpointSlices have different ports"
    else:
        return BrakeJudgement(left_keys=left_keys, arrived_keys=arrived_keys)
    ends = datetime.fromtimestamp(unix_now + seconds, UTC)
    since, until = now, f"{ends:%Y-%m-%dT%H:%M:%SZ}"
    if history.held_removals is not None:
        since, until = history.held_removals.since, history.held_removals.waits_until
    if history.is_released or now - since >= seconds:
        return BrakeJudgement(left_keys=left_keys, arrived_keys=arrived_keys, is_released=history.is_released)
    others = tuple(
        change
        for change in changes
        if change.action is Action.DEREGISTER
        and not removes_capacity(change)
        and change.instance.instance_id not in terminating_ids
    )
    problem = Problem(
        SyncerCondition.BRAKED,
        f"{reason}, and {count} of them without having been seen terminating: held back until {until} in "
        "case the source is broken",
        f"if the removals are meant, annotate the syncer with {RELEASE_BRAKE_ANNOTATION}=now",
    )
    held = HeldRemovals(problem, since, until, seconds - (now - since) + 0.1, now - since)
    return BrakeJudgement((*unexplained, *others), held, arrived_keys=arrived_keys)


def _describe_sibling_losses(
    siblings: SiblingTotals | None, left_keys: frozenset[InstanceKey], arrived_keys: frozenset[InstanceKey]
) -> str:
    """Return a sentence if all or most instances of a namespace's syncers would go in a minute; else empty.

    :param left_keys: the keys that would leave now, and ``arrived_keys`` those that would come, of the judged
        syncer.
    """
    if siblings is None:
        return ""
    recent_changes = siblings.recent_changes
    short_lived_keys = recent_changes.short_lived_keys | (left_keys & recent_changes.arrived_keys)
    gone, new = recent_changes.left_keys | left_keys, (recent_changes.arrived_keys | arrived_keys) - left_keys
    changes = RecentChanges(0, gone, new, short_lived_keys)
    lost = recent_changes.losses_of_other_syncers + count_losses(changes)
    before = (
        siblings.up_count + len(recent_changes.left_keys - left_keys) + recent_changes.losses_of_other_syncers
    )
    if recent_changes.losses_of_other_syncers and (
        removes_all_of_several(before, lost, 0) or removes_majority_of_many(before, lost, 0)
    ):
        return (
            f"{lost} of {before} instances of all Services of {siblings.parent_qualified_name} would go "
            "within a minute"
        )
    return ""


def describe_suspicious_address_loss(before: int, leaving: int, unexplained: int, arriving: int) -> str:
    """Return why a change of the addresses that a stack follows looks like a broken source; empty if not.

    :param before: the number of addresses for which the stack was last run.
    :param unexplained: the number of leaving addresses that were not seen terminating.
    """
    if not unexplained:
        return ""
    if removes_all_of_several(before, leaving, arriving):
        reason = f"all {before} addresses would go"
    elif removes_majority_of_many(before, unexplained, arriving):
        reason = f"{unexplained} of {before} addresses would go"
    else:
        return ""
    return f"{reason}, and {unexplained} of them without having been seen terminating"


def removes_all_of_several(up: int, leaving: int, arriving: int) -> bool:
    """Return whether a plan removes all of several instances that are UP, and adds none."""
    return up >= 2 and leaving >= up and not arriving


def removes_majority_of_many(up: int, unexplained: int, arriving: int) -> bool:
    """Return whether the removals that were not seen terminating, less the arrivals, are a large share of the
    instances that are UP.
    """
    return unexplained >= MIN_REMOVALS_FOR_SHARES and unexplained - arriving > up * MAX_LOSS_SHARE_OF_SYNCER


def counts_for_brake(instance: Instance) -> bool:
    """Return whether the brake counts an instance: all but those at further nodes, which come and go."""
    return NODE_KEY not in instance.metadata


def adds_capacity(change: Change) -> bool:
    """Return whether a change gives callers an instance that they cannot use now."""
    if not counts_for_brake(change.instance):
        return False
    if change.action is Action.DEREGISTER or change.instance.status is not Status.UP:
        return False
    return change.actual is None or change.actual.status is not Status.UP


def removes_capacity(change: Change) -> bool:
    """Return whether a change takes from callers an instance that they can use now."""
    actual = change.actual
    if actual is None or actual.status is not Status.UP or not counts_for_brake(actual):
        return False
    return change.action is Action.DEREGISTER or change.instance.status is not Status.UP
