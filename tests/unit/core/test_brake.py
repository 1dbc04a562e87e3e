"""When removals wait, and when they must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.registry import OWNER, instances
from eurekube_provider.core.brake import HOLD_SECONDS, REPACK_SECONDS, judge
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Plan, plan
from eurekube_provider.core.sliding_window import RecentChanges, SlidingWindow

NOTHING = RecentChanges()


def taking_away(there: int, gone: int, arriving: int = 0) -> Plan:
    """Of ``there`` instances, the first ``gone`` vanish and others arrive."""
    actual = instances(there)
    new = [replace(one, instance_id=f"new-{one.instance_id}") for one in instances(there + arriving)[there:]]
    return plan([*actual[gone:], *new], actual, OWNER)


def never(_: str) -> bool:
    """No endpoint was seen terminating."""
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
    """All of two or more trip it, or more than half and at least ten; what arrives makes up for it."""
    judgement = judge(taking_away(there, gone, arriving), there, 10_000, NOTHING, never)
    assert trips == bool(judgement.reason)


def test_seen_terminating() -> None:
    """Endpoints that were seen terminating never trip it."""
    steps = taking_away(30, 30)
    judgement = judge(steps, 30, 30, NOTHING, lambda _: True)
    assert judgement.reason == ""
    assert judgement.held_back(steps) == steps


def test_what_may_be_packed_anew_waits_for_seconds() -> None:
    """One of many, which else goes at once; and for a minute where it is one of too many."""
    for there, gone, seconds in ((30, 1, REPACK_SECONDS), (30, 30, HOLD_SECONDS)):
        steps = taking_away(there, gone)
        judgement = judge(steps, there, 10_000, NOTHING, never, is_repacked=True)
        assert (bool(judgement.reason), judgement.hold_seconds) == (True, seconds)
        assert not judgement.held_back(steps).changes
    assert not judge(taking_away(30, 1), 30, 10_000, NOTHING, never).reason


def test_unready_counts_like_gone() -> None:
    """All going unready at once are doubted, and held back; nothing else is."""
    actual = instances(3)
    desired = [replace(one, status=Status.DOWN) for one in actual]
    steps = plan(desired, actual, OWNER)
    judgement = judge(steps, 3, 3, NOTHING, never)
    assert judgement.reason
    assert judgement.held_back(steps).changes == ()


def test_down_already() -> None:
    """Taking out what callers do not use anyway is never doubted."""
    actual = [replace(one, status=Status.DOWN) for one in instances(30)]
    assert judge(plan([], actual, OWNER), 0, 100, NOTHING, never).doubted == ()


def test_who_was_taken_out_of_service_waits_with_the_others() -> None:
    """A broken source would have it removed, and brought up when it is back: against a person's wish."""
    up = instances(3)
    out = replace(up[0], status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    steps = plan([], [out, *up[1:]], OWNER)
    judgement = judge(steps, 2, 2, NOTHING, never)
    assert (len(judgement.doubted), judgement.held_back(steps).changes) == (2, ())
    leaves = judge(steps, 2, 2, NOTHING, lambda instance_id: instance_id == out.instance_id).held_back(steps)
    assert [change.instance.instance_id for change in leaves.changes] == [out.instance_id]


def test_share_of_the_operator() -> None:
    """Small removals in many syncers add up: more than 30 % within a minute trip it, from ten on."""
    steps = taking_away(10, 4)
    assert judge(steps, 10, 30, RecentChanges(5), never).reason == ""
    assert judge(steps, 10, 30, RecentChanges(6), never).reason
    assert judge(steps, 10, 40, RecentChanges(6), never).reason == ""


def test_held_back_keeps_the_rest() -> None:
    """While removals wait, registrations and updates go on."""
    actual: list[Instance] = instances(12)
    new = replace(actual[0], instance_id="new", status=Status.DOWN)
    steps = plan([new], actual, OWNER)
    kept = judge(steps, 12, 12, NOTHING, never).held_back(steps)
    assert [change.instance.instance_id for change in kept.changes] == ["new"]


def test_what_came_is_set_against_what_left_there() -> None:
    """Of the same syncer within the minute, and never more than left."""
    steps = taking_away(10, 4)
    assert judge(steps, 10, 30, RecentChanges(elsewhere=6, came=1), never).reason == ""
    assert judge(steps, 10, 30, RecentChanges(elsewhere=6, left=1, came=1), never).reason
    assert judge(steps, 10, 30, RecentChanges(elsewhere=10, came=9), never).reason  # ten are gone elsewhere


def test_the_window_counts_each_syncer_by_itself() -> None:
    """What one gained makes up for no loss of another; what is tried again counts once, for a minute."""
    window: SlidingWindow[str, int] = SlidingWindow(60.0)
    window.note(0.0, "grew", (), range(100, 150))
    window.note(0.0, "shrank", range(5), ())
    window.note(1.0, "shrank", range(5), ())
    window.note(2.0, "turned", range(10, 20), range(20, 28))
    assert window.recent(2.0, "other", (), ()) == RecentChanges(elsewhere=7)
    assert window.recent(2.0, "shrank", {3, 4, 5}, {6}) == RecentChanges(elsewhere=2, left=3, came=0)
    assert window.recent(2.0, "turned", {10}, {20, 21}) == RecentChanges(elsewhere=5, left=9, came=6)
    assert window.recent(61.5, "other", (), ()) == RecentChanges(elsewhere=2)
    assert window.recent(62.5, "other", (), ()) == RecentChanges()
    assert len(window) == 0
