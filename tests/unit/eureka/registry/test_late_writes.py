"""What a server that was frozen carries out when it is back is known as ours."""

from __future__ import annotations

from dataclasses import replace

from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.registry.late_writes import LateWrites, overtaken

ONE = Instance(
    "rating",
    "one",
    "10.0.0.1",
    "10.0.0.1",
    Port(8080),
    metadata={"eurekube.owner": "cluster/lab/shop/rating"},
    last_dirty_timestamp_ms=1000,
)
OUT = replace(ONE, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)


class Clock:
    """A clock that goes when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_status_of_ours_that_comes_late_does_not_pass_for_a_persons() -> None:
    """Only where one was sent and not answered a short while ago; what a person sets has no mark."""
    clock = Clock()
    late = LateWrites(clock)
    assert late.marked([OUT]) == [OUT]
    late.note(OUT)
    (marked,) = late.marked([OUT])
    assert marked.is_leaving
    other = replace(OUT, instance_id="another")
    assert late.marked([ONE, other]) == [ONE, other]
    clock.now += windows.UNLISTED + 1
    assert late.marked([OUT]) == [OUT]


def test_what_was_removed_is_swept_as_it_may_come_late() -> None:
    """A registration that was not answered may come after the removal, and is newer than what was removed."""
    late = LateWrites(Clock())
    newer = replace(ONE, last_dirty_timestamp_ms=2000)
    assert late.newest(ONE) == ONE
    late.note(newer)
    assert late.newest(ONE) == newer
    theirs = replace(ONE, metadata={"eurekube.owner": "stack/o/p/s/n"})
    assert late.newest(theirs) == theirs


def test_a_status_of_ours_that_was_answered_may_be_told_again_for_a_minute() -> None:
    """By a server that takes its peer for one that was not told; after that it is a person's."""
    clock = Clock()
    late = LateWrites(clock)
    assert not late.may_be_told_again(OUT)
    late.override(ONE)
    assert late.may_be_told_again(OUT)
    assert not late.may_be_told_again(ONE)
    assert not late.may_be_told_again(LateWrites.as_ours(OUT))
    assert not late.may_be_told_again(replace(OUT, instance_id="another"))
    clock.now += windows.STATUS_TOLD_AGAIN
    assert not late.may_be_told_again(OUT)


def test_a_status_that_stands_just_after_ours_is_no_persons() -> None:
    """Nobody is as quick; later only where it stands tells whose it is."""
    clock = Clock()
    late = LateWrites(clock)
    assert not late.is_just_set(OUT)
    late.override(ONE)
    assert late.is_just_set(OUT)
    assert not late.is_just_set(ONE)
    assert not late.is_just_set(replace(OUT, instance_id="another"))
    clock.now += windows.OUR_STATUS
    assert not late.is_just_set(OUT)
    assert late.may_be_told_again(OUT)


def test_a_persons_status_in_a_batch_stays_a_persons() -> None:
    """A batch carries it along with the registration; of ours, only what is leaving is OUT_OF_SERVICE."""
    late = LateWrites(Clock())
    newer = replace(OUT, last_dirty_timestamp_ms=2000)
    late.note_many([newer])
    assert late.marked([OUT]) == [OUT]
    assert late.newest(ONE).written_at_ms == 2000
    late.note_many([LateWrites.as_ours(newer)])
    assert late.marked([OUT])[0].is_leaving


def test_a_status_is_told_again_only_where_another_server_holds_it_as_written() -> None:
    """What a person set over it, what is newer, and what somebody else holds is not ours to set right."""
    down = replace(ONE, status=Status.DOWN)
    assert overtaken({"a": down, "b": ONE}, ONE) == ("a",)
    assert overtaken({"a": down, "b": None}, ONE) == ()
    assert overtaken({"a": down, "b": replace(ONE, last_dirty_timestamp_ms=900)}, ONE) == ()
    assert overtaken({"a": OUT, "b": ONE}, ONE) == ()
    assert overtaken({"a": replace(down, overridden_status=Status.DOWN), "b": ONE}, ONE) == ()
    assert overtaken({"a": replace(down, last_dirty_timestamp_ms=2000), "b": ONE}, ONE) == ()
    theirs = replace(down, metadata={"eurekube.owner": "stack/o/p/s/n"})
    assert overtaken({"a": theirs, "b": ONE}, ONE) == ()
    assert overtaken({"a": down, "b": OUT}, OUT) == ()
