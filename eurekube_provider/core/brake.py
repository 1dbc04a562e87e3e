"""The brake holds removals back when a source suddenly shows nothing: no whole application disappears.

It judges only endpoints that vanished, or went unready, without having been seen terminating: a deleted pod
is seen terminating before it goes; of a broken source's pods nobody sees that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eurekube_provider.core.identity import NODE_KEY
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Action, Change, Plan
from eurekube_provider.core.sliding_window import RecentChanges

HOLD_SECONDS = 60.0
"""For as long a braked removal waits; then it goes on if the source still says so."""

REPACK_SECONDS = 10.0
"""Kubernetes packs all EndpointSlices of a Service anew within seconds. Where pods have different ports for
long, what ended unseen is kept for no longer."""

WINDOW_SECONDS = 60.0
"""The time for which the removals of the whole operator are added up, less what came at the same syncers."""

LARGEST_SHARE_OF_SYNCER = 0.5
LARGEST_SHARE_OF_OPERATOR = 0.3
FEWEST = 10
"""Shares mean nothing in small numbers: only so many removals can exceed one."""


@dataclass(frozen=True, slots=True)
class BrakeVerdict:
    """The judgement of one plan: which removals are doubted, and why they must wait.

    :ivar doubted: the changes after which an instance that is UP no longer is, not seen terminating.
    :ivar reason: why they must wait; empty where they need not.
    :ivar hold_seconds: for how long, at most.
    :ivar others: what waits with them: removals, not seen terminating, of what callers do not use. With
        one that a person took out of service, that wish would go, and a source that is back bring it up.
    """

    doubted: tuple[Change, ...]
    reason: str = ""
    others: tuple[Change, ...] = ()
    hold_seconds: float = HOLD_SECONDS

    def held_back(self, plan: Plan) -> Plan:
        """Return ``plan`` without the changes that must wait."""
        held = {id(change) for change in (*self.doubted, *self.others)}
        return replace(plan, changes=tuple(change for change in plan.changes if id(change) not in held))


def judge(
    plan: Plan,
    registered_up: int,
    operator_up: int,
    recent: RecentChanges,
    seen_terminating: Callable[[str], bool],
    *,
    is_repacked: bool = False,
) -> BrakeVerdict:
    """Decide whether ``plan`` looks like the result of a broken source.

    :param registered_up: how many instances of the syncer are UP now.
    :param operator_up: how many instances of all the operator's syncers are UP now.
    :param recent: what left, not seen terminating, within :data:`WINDOW_SECONDS`, and what came.
    :param seen_terminating: whether an instance id's endpoint was seen terminating.
    :param is_repacked: whether the syncer's EndpointSlices are packed anew, see :class:`.mapping.Desired`.
    """
    doubted = tuple(
        change
        for change in plan.changes
        if takes_away(change) and not seen_terminating(change.instance.instance_id)
    )
    if not doubted:
        return BrakeVerdict(())
    arriving = sum(map(brings, plan.changes))
    count, hold_seconds = len(doubted), HOLD_SECONDS
    gone = count + recent.left + recent.elsewhere
    lost = recent.elsewhere + max(0, count + recent.left - arriving - recent.came)
    leaving = sum(map(takes_away, plan.changes))
    if takes_all(registered_up, leaving, arriving):
        reason = f"all {registered_up} instances would go"
    elif takes_most(registered_up, count, arriving):
        reason = f"{count} of {registered_up} instances would go"
    elif gone >= FEWEST and lost > operator_up * LARGEST_SHARE_OF_OPERATOR:
        reason = f"{gone} of this operator's {operator_up} instances would go within a minute"
    elif is_repacked and (vanished := tuple(one for one in doubted if one.action is Action.DEREGISTER)):
        doubted, count, hold_seconds = vanished, len(vanished), REPACK_SECONDS
        reason = f"{count} of {registered_up} instances would go while EndpointSlices have different ports"
    else:
        return BrakeVerdict(doubted)
    others = tuple(
        change
        for change in plan.of(Action.DEREGISTER)
        if not takes_away(change) and not seen_terminating(change.instance.instance_id)
    )
    return BrakeVerdict(
        doubted, f"{reason}, and {count} of them without having been seen terminating", others, hold_seconds
    )


def doubt_of_source(before: int, leaving: int, doubted: int, arriving: int) -> str:
    """Say why a change of addresses that a stack follows looks like a broken source; empty if it does not.

    :param before: how many the stack was last run for.
    :param doubted: how many of those that leave were not seen terminating.
    """
    if not doubted:
        return ""
    if takes_all(before, leaving, arriving):
        reason = f"all {before} addresses would go"
    elif takes_most(before, doubted, arriving):
        reason = f"{doubted} of {before} addresses would go"
    else:
        return ""
    return f"{reason}, and {doubted} of them without having been seen terminating"


def takes_all(up: int, leaving: int, arriving: int) -> bool:
    """Whether nothing would be left of several instances that are UP."""
    return up >= 2 and leaving >= up and not arriving


def takes_most(up: int, doubted: int, arriving: int) -> bool:
    """Whether so many would go, and so few come, that it is a large share of those that are UP."""
    return doubted >= FEWEST and doubted - arriving > up * LARGEST_SHARE_OF_SYNCER


def counts(instance: Instance) -> bool:
    """Whether an instance is more than a Service's address at one more node, as they come and go."""
    return NODE_KEY not in instance.metadata


def brings(change: Change) -> bool:
    """Whether callers get an instance that they cannot use now."""
    if not counts(change.instance):
        return False
    if change.action is Action.DEREGISTER or change.instance.status is not Status.UP:
        return False
    return change.actual is None or change.actual.status is not Status.UP


def takes_away(change: Change) -> bool:
    """Whether callers lose an instance that they can use now."""
    actual = change.actual
    if actual is None or actual.status is not Status.UP or not counts(actual):
        return False
    return change.action is Action.DEREGISTER or change.instance.status is not Status.UP
