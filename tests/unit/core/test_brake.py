"""The brake: which removals it holds back, and which it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.registry import OWNER, make_instances
from eurekube_provider.core import brake
from eurekube_provider.core.brake import (
    BRAKE_HOLD_SECONDS,
    REPACKED_SLICES_HOLD_SECONDS,
    BrakeHistory,
    BrakeJudgement,
)
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Change, Plan, plan
from eurekube_provider.core.sliding_window import RecentChanges, SlidingChangeWindow

NOTHING = RecentChanges()


def judge_removals(
    steps: Plan,
    up: int,
    of_all: int,
    recent_changes: RecentChanges,
    seen_terminating: Callable[[str], bool],
    *,
    are_slices_being_repacked: bool = False,
) -> BrakeJudgement:
    """Return the brake's judgement on a plan without a hold from before."""
    history = BrakeHistory(up, of_all, recent_changes)
    terminating_ids = set(filter(seen_terminating, [one.instance.instance_id for one in steps.changes]))
    desired = DesiredInstances(are_slices_being_repacked=are_slices_being_repacked)
    return brake.judge_removals(steps.changes, history, terminating_ids, desired, 0.0, 0.0)


def changes_not_held(steps: Plan, judgement: BrakeJudgement) -> list[Change]:
    """Return the plan's changes that the brake does not hold back."""
    held = set(map(id, judgement.held_changes))
    return [change for change in steps.changes if id(change) not in held]


def taking_away(there: int, gone: int, arriving: int = 0) -> Plan:
    """Return a plan in which the first ``gone`` of ``there`` instances vanish and ``arriving`` new ones
    come.
    """
    actual = make_instances(there)
    new = [
        replace(one, instance_id=f"new-{one.instance_id}") for one in make_instances(there + arriving)[there:]
    ]
    return plan([*actual[gone:], *new], actual, OWNER)


def never(_: str) -> bool:
    """Return False: no endpoint was seen terminating."""
    return False


@pytest.mark.parametrize(
    ("there", "gone", "arriving", "trips"),
    [
        (1, 1, 0, False),
        (2, 1, 0, False),
        (2, 2, 0, True),
        (18, 9, 0, False),
        (18, 10, 0, True),
        (20, 10, 0, False),
        (5, 5, 5, False),
        (40, 30, 30, False),
    ],
)
def test_limits_of_a_syncer(there: int, gone: int, arriving: int, trips: bool) -> None:
    """The brake holds a loss of all of two or more instances, or of more than half and at least ten; arrivals
    offset losses.
    """
    judgement = judge_removals(taking_away(there, gone, arriving), there, 10_000, NOTHING, never)
    assert trips == bool(judgement.held_removals)


def test_seen_terminating() -> None:
    """Removals of endpoints that were seen terminating are never held."""
    steps = taking_away(30, 30)
    judgement = judge_removals(steps, 30, 30, NOTHING, lambda _: True)
    assert (judgement.held_removals, judgement.held_changes) == (None, ())


def test_what_may_be_packed_again_waits_for_seconds() -> None:
    """While slices may be rewritten, one removal of many waits for seconds, and too many wait for a
    minute.
    """
    for there, gone, seconds in ((30, 1, REPACKED_SLICES_HOLD_SECONDS), (30, 30, BRAKE_HOLD_SECONDS)):
        steps = taking_away(there, gone)
        judgement = judge_removals(steps, there, 10_000, NOTHING, never, are_slices_being_repacked=True)
        assert judgement.held_removals is not None
        assert judgement.held_removals.seconds_until_next_decision == seconds + 0.1
        assert not changes_not_held(steps, judgement)
    assert judge_removals(taking_away(30, 1), 30, 10_000, NOTHING, never).held_removals is None


def test_unready_counts_like_gone() -> None:
    """If all instances of a syncer would turn DOWN at once, the brake holds the changes."""
    actual = make_instances(3)
    desired = [replace(one, status=Status.DOWN) for one in actual]
    steps = plan(desired, actual, OWNER)
    judgement = judge_removals(steps, 3, 3, NOTHING, never)
    assert judgement.held_removals
    assert changes_not_held(steps, judgement) == []


def test_down_already() -> None:
    """Removals of instances that are DOWN are never held, since callers do not use them."""
    actual = [replace(one, status=Status.DOWN) for one in make_instances(30)]
    assert judge_removals(plan([], actual, OWNER), 0, 100, NOTHING, never) == BrakeJudgement()


def test_who_was_taken_out_of_service_waits_with_the_others() -> None:
    """A broken source must not remove an instance that a person took out of service: it would come back
    UP.
    """
    up = make_instances(3)
    out = replace(up[0], status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    steps = plan([], [out, *up[1:]], OWNER)
    judgement = judge_removals(steps, 2, 2, NOTHING, never)
    assert (len(judgement.held_changes), changes_not_held(steps, judgement)) == (3, [])
    of_others = judge_removals(steps, 2, 2, NOTHING, lambda instance_id: instance_id == out.instance_id)
    assert [change.instance.instance_id for change in changes_not_held(steps, of_others)] == [out.instance_id]


def test_share_of_the_operator() -> None:
    """Removals of all syncers add up: more than 30 % of all instances within a minute, and at least ten,
    are held.
    """
    steps = taking_away(10, 4)
    assert not judge_removals(steps, 10, 30, RecentChanges(5), never).held_removals
    assert judge_removals(steps, 10, 30, RecentChanges(6), never).held_removals
    assert not judge_removals(steps, 10, 40, RecentChanges(6), never).held_removals


def test_held_back_keeps_the_rest() -> None:
    """While removals are held, registrations and updates are carried out."""
    actual: list[Instance] = make_instances(12)
    new = replace(actual[0], instance_id="new", status=Status.DOWN)
    steps = plan([new], actual, OWNER)
    kept = changes_not_held(steps, judge_removals(steps, 12, 12, NOTHING, never))
    assert [change.instance.instance_id for change in kept] == ["new"]


def test_what_came_is_set_against_what_left_there() -> None:
    """New instances offset only losses of the same syncer within the minute, and no more than those."""
    steps = taking_away(10, 4)
    one, nine = frozenset("x"), frozenset(range(9))
    assert not judge_removals(steps, 10, 30, RecentChanges(6, arrived_keys=one), never).held_removals
    assert judge_removals(
        steps, 10, 30, RecentChanges(6, left_keys=one, arrived_keys=one), never
    ).held_removals
    assert judge_removals(
        steps, 10, 30, RecentChanges(10, arrived_keys=nine), never
    ).held_removals  # ten are gone elsewhere


def test_what_is_tried_again_counts_once() -> None:
    """A removal that Eureka refuses and that is repeated counts once among the recent losses."""
    steps = taking_away(13, 1)
    (gone,) = (change.instance.key for change in steps.changes)
    others = frozenset(range(8))
    assert not judge_removals(steps, 13, 13, RecentChanges(left_keys=others | {gone}), never).held_removals
    assert judge_removals(steps, 13, 13, RecentChanges(left_keys=others | {"another"}), never).held_removals


def test_a_short_lived_instance_is_lost() -> None:
    """No arrival makes up for an instance that came and left within the window."""
    window: SlidingChangeWindow[str, int] = SlidingChangeWindow(60.0, counts_short_lived=True)
    window.add_changes(0.0, "shop", (), range(3))
    window.add_changes(1.0, "shop", (0, 1), ())
    assert window.recent_changes(1.0, "other") == RecentChanges(2)
    assert window.recent_changes(1.0, "shop").short_lived_keys == {0, 1}
    window.add_changes(2.0, "shop", (0, 77), ())  # the first is tried again, the second was there before
    assert window.recent_changes(2.0, "other") == RecentChanges(2)
    window.add_changes(3.0, "shop", (78,), ())
    assert window.recent_changes(3.0, "other") == RecentChanges(3)
    assert window.recent_changes(60.5, "other") == RecentChanges(
        4
    )  # the arrivals are forgotten before the losses
    assert window.recent_changes(63.5, "other") == RecentChanges()
    assert window.recent_changes(63.5, "shop") == RecentChanges()


def test_the_window_counts_each_syncer_by_itself() -> None:
    """One syncer's new instances offset no loss of another; a repeated removal counts once; all expire
    after a minute.
    """
    window: SlidingChangeWindow[str, int] = SlidingChangeWindow(60.0)
    window.add_changes(0.0, "grew", (), range(100, 150))
    window.add_changes(0.0, "shrank", range(5), ())
    window.add_changes(1.0, "shrank", range(5), ())
    window.add_changes(2.0, "turned", range(10, 20), range(20, 28))
    assert window.recent_changes(2.0, "other") == RecentChanges(7)
    assert window.recent_changes(2.0, "shrank") == RecentChanges(2, frozenset(range(5)))
    assert window.recent_changes(2.0, "turned") == RecentChanges(
        5, frozenset(range(10, 20)), frozenset(range(20, 28))
    )
    assert window.recent_changes(61.5, "other") == RecentChanges(2)
    assert window.recent_changes(62.5, "other") == RecentChanges()
    assert window.recent_changes(62.5, "shrank") == RecentChanges()
