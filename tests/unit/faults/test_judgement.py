"""Judgements of the fault suite's witness, and the effect of excuses, without running anything."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from eurekube_provider.core.model import Instance, Port, Status
from tests.faults.eureka_faults import PeerSplit
from tests.faults.excuse import Allowance, Excuse, Excuses, Explains, Span, allowance, brake_holds
from tests.faults.expected import Expected, Key
from tests.faults.fault import Scale
from tests.faults.faults import KINDS
from tests.faults.judgement import Stay, Wishes, losses, stays, still_staying
from tests.faults.storm import Storm, schedule

ONE: Key = ("RATING", "one.shop.east:rating:8080")
UP = Instance(
    *ONE, "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": "cluster/east/shop/rating"}
)
DOWN = replace(UP, status=Status.DOWN)
OUT = replace(UP, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
ASKED = Expected("UP", "10.0.0.1", ("shop", "rating"), "12:00:00")
STAY = Excuse(Explains.STAY)


def test_what_is_up_and_not_wanted_stays() -> None:
    """An instance of the cluster that is UP but not wanted is reported as staying; one that is DOWN, wanted
    or another owner's is not.
    """
    assert stays({ONE: UP}, set(), set(), {"east"}, set()) == {ONE: Explains.STAY}
    assert stays({ONE: UP}, set(), {ONE}, {"east"}, set()) == {ONE: Explains.UNREADY}
    assert stays({ONE: DOWN}, set(), set(), {"east"}, set()) == {}
    assert stays({ONE: UP}, {ONE}, set(), {"east"}, set()) == {}
    assert stays({ONE: UP}, set(), set(), {"east"}, {ONE}) == {}
    assert stays({ONE: UP}, set(), set(), {"west"}, set()) == {}
    assert stays({ONE: replace(UP, metadata={})}, set(), set(), {"east"}, set()) == {}


def test_a_stay_counts_without_a_break() -> None:
    """The time for which an unwanted instance stays restarts after a gap, or when its kind changes."""
    gone, unready = {ONE: Explains.STAY}, {ONE: Explains.UNREADY}
    once = still_staying({}, gone, 10.0)
    assert still_staying(once, gone, 20.0) == {ONE: Stay(Explains.STAY, 10.0)}
    assert still_staying(still_staying(once, {}, 20.0), gone, 30.0) == {ONE: Stay(Explains.STAY, 30.0)}
    assert still_staying(still_staying({}, unready, 10.0), gone, 20.0) == {ONE: Stay(Explains.STAY, 20.0)}


@pytest.mark.parametrize(
    ("held", "wished", "expected"),
    [
        ({}, set(), "gone from"),
        ({}, {ONE}, "gone from"),
        ({ONE: DOWN}, set(), "DOWN on"),
        ({ONE: DOWN}, {ONE}, "DOWN on"),
        ({ONE: OUT}, set(), "OUT_OF_SERVICE on"),
        ({ONE: OUT}, {ONE}, None),
        ({ONE: replace(OUT, overridden_status=Status.UNKNOWN)}, {ONE}, "OUT_OF_SERVICE on"),
        ({ONE: replace(OUT, status=Status.DOWN)}, {ONE}, "DOWN on"),
        ({ONE: UP}, set(), None),
    ],
)
def test_what_serves_and_is_lost(held: dict[Key, Instance], wished: set[Key], expected: str | None) -> None:
    """A ready instance that is gone, DOWN or OUT_OF_SERVICE is lost; a person's wish excuses only an override
    OUT_OF_SERVICE of this instance.
    """
    assert losses({ONE: UP}, held, {ONE}, wished).get(ONE) == expected
    assert losses({ONE: UP}, held, set(), wished) == {}
    assert losses({ONE: DOWN}, held, {ONE}, wished) == {}
    assert losses({}, held, {ONE}, wished) == {}


def test_what_is_wanted_without_a_break_is_not_doubted() -> None:
    """An instance wanted without a break may never be lost; one whose pod was replaced or unready
    meanwhile is doubted.
    """
    first = Wishes().read({ONE: ASKED}, 10.0)
    assert first.read({ONE: ASKED}, 20.0) == first
    assert first.may_be_lost_until(ONE, 5.0, [Span("f", Excuse(Explains.LOSS), 0.0)]) == Allowance(10.0)
    for between in ({}, {ONE: replace(ASKED, status="DOWN")}):
        again = first.read(between, 20.0).read({ONE: ASKED}, 30.0)
        assert (again.since, again.doubted) == ({ONE: 30.0}, {ONE: 20.0})
        assert again.may_be_lost_until(ONE, 5.0, []).until == 35.0
        assert again.without({ONE}).may_be_lost_until(ONE, 5.0, []).until == 30.0
    turned = first.read({ONE: replace(ASKED, turned="12:00:07")}, 20.0)
    assert (turned.since, turned.doubted) == ({ONE: 20.0}, {ONE: 20.0})


def test_a_person_who_edits_a_syncer_unsettles_it_alone() -> None:
    """An edited syncer makes only its own wanted instances doubted."""
    first = Wishes().read({ONE: ASKED}, 10.0)
    assert first.unsettled(("shop", "other"), 20.0) == first
    again = first.unsettled(("shop", "rating"), 20.0)
    assert (again.since, again.doubted) == ({ONE: 20.0}, {ONE: 20.0})


def test_an_excuse_lasts_as_long_as_its_fault_and_a_margin() -> None:
    """An excuse lasts until its fault's end plus a margin, or for its longest time if this is shorter."""
    assert Span("f", STAY, 10.0).until == math.inf
    assert Span("f", replace(STAY, margin_seconds=3.0), 10.0, 20.0).until == 23.0
    assert Span("f", replace(STAY, longest_seconds=6.0, margin_seconds=3.0), 10.0).until == 19.0
    assert Span("f", replace(STAY, longest_seconds=60.0), 10.0, 20.0).until == 20.0


def test_patience_counts_again_from_the_end_of_an_excuse() -> None:
    """The allowed time starts again at the end of each overlapping excuse; excuses before or after it add
    nothing.
    """
    assert allowance(100.0, 8.0, []) == Allowance(108.0)
    before, after = Span("before", STAY, 10.0, 99.0), Span("after", STAY, 109.0, 200.0)
    assert allowance(100.0, 8.0, [before, after]) == Allowance(108.0)
    one, two = Span("one", STAY, 90.0, 104.0), Span("two", STAY, 111.0, 130.0)
    assert allowance(100.0, 8.0, [two, one]) == Allowance(138.0, ("one", "two"))
    assert allowance(100.0, 8.0, [Span("on", STAY, 107.0)]).until == math.inf
    inner = Span("inner", STAY, 101.0, 103.0)
    assert allowance(100.0, 8.0, [Span("outer", STAY, 90.0, 120.0), inner]).until == 128.0


@pytest.mark.parametrize(
    ("excuse", "is_excused"),
    [
        (STAY, True),
        (replace(STAY, server=1), True),
        (replace(STAY, server=0), False),
        (replace(STAY, cluster="east"), True),
        (replace(STAY, cluster="west"), False),
        (replace(STAY, syncer=("shop", "rating")), True),
        (replace(STAY, syncer=("shop", "catalog")), False),
        (Excuse(Explains.LOSS), False),
        (brake_holds("east", ("shop", "rating"))[0], True),
        (brake_holds("east", ("guest", "rating"))[0], False),
    ],
)
def test_an_excuse_is_good_at_its_place_only(excuse: Excuse, is_excused: bool) -> None:
    """An excuse counts only for its judgement, server, cluster and syncer."""
    excuses = Excuses()
    excuses.give("a fault", [excuse], 10.0)
    assert bool(excuses.of(Explains.STAY, 1, "east", ("shop", "rating"))) is is_excused


def test_slack_is_for_the_margin_only() -> None:
    """Slack multiplies the margin of an excuse, and not the fault's own duration, which is known exactly."""
    excuses = Excuses(slack=2.0)
    numbers = excuses.give("f", [replace(STAY, margin_seconds=3.0, longest_seconds=7.0)], 0.0)
    (span,) = excuses.of(Explains.STAY, 0, "east", None)
    assert span.until == 13.0
    excuses.end(numbers, 1.0)
    (span,) = excuses.of(Explains.STAY, 0, "east", None)
    assert span.until == 7.0


def test_no_fault_of_a_server_excuses_what_stays_at_another() -> None:
    """Every excuse for a staying instance names a server or a cluster, except after a split between servers,
    whose missed removals reappear elsewhere.
    """
    drawn = [one.fault for planned in schedule(1, Storm(Scale()), count=100) for one in planned]
    assert {type(one) for one in drawn} == set(KINDS)
    for fault in drawn:
        for one in fault.excuses:
            is_narrow = one.cluster is not None or one.server is not None
            assert is_narrow or one.explains is not Explains.STAY or isinstance(fault, PeerSplit)
