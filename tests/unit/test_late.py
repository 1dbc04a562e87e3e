"""What was sent and not answered is remembered for a while, and by nobody else's name."""

from __future__ import annotations

from dataclasses import replace

from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.operator.late import REMEMBERED_SECONDS, Late

OURS = Instance(
    "rating",
    "a-0.shop.c1:rating:8080",
    "10.1.0.1",
    "10.1.0.1",
    Port(8080),
    metadata={"eurekube.owner": "cluster/c1/shop/rating"},
    last_dirty_timestamp_ms=5,
)
OUT = replace(OURS, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)


def test_a_status_of_ours_that_came_late_carries_our_mark() -> None:
    """Else it would pass for a person's, and stay."""
    late = Late(lambda: 0.0)
    late.note(OUT)
    assert late.marked([OUT])[0].is_leaving
    assert late.marked([OURS]) == [OURS]


def test_a_persons_status_is_theirs() -> None:
    """Where we asked for none, for none of this instance, or long ago."""
    now = [0.0]
    late = Late(lambda: now[0])
    late.note(OURS)
    assert late.marked([OUT]) == [OUT]
    late.note(replace(OUT, instance_id="a-1"))
    assert late.marked([OUT]) == [OUT]
    late.note(OUT)
    now[0] = REMEMBERED_SECONDS + 1
    assert late.marked([OUT]) == [OUT]


def test_what_may_still_come_is_removed_by_its_time() -> None:
    """A registration that was not answered is newer than what was removed, unless somebody else sent it."""
    late = Late(lambda: 0.0)
    sent = replace(OURS, last_dirty_timestamp_ms=7)
    late.note(sent)
    assert late.newest(OURS) is sent
    newer = replace(OURS, last_dirty_timestamp_ms=9)
    assert late.newest(newer) is newer
    others = replace(OURS, metadata={"eurekube.owner": "cluster/c1/shop/other"})
    assert late.newest(others) is others
