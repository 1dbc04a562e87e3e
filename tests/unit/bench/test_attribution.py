"""Attribution of a change's time, from its patch to the answer to the write, to stages."""

from __future__ import annotations

import json

import pytest

from bench.attribution import (
    MEDIAN_COLUMN,
    SLOWEST_COLUMN,
    STAGES,
    TOTAL_ROW,
    WAIT_PARTS,
    Asked,
    Begun,
    Decided,
    Done,
    Note,
    RequestItem,
    Taken,
    Trace,
    count_traffic,
    mean_stage_milliseconds,
    notes_from_json,
    notes_to_json,
)
from bench.churn import GONE, Change

KEY = ("shop", "rating")
READ = RequestItem("Read", "RATING", "a", "")
UP = RequestItem("Register", "RATING", "a", "UP")
OTHERS = RequestItem("Register", "BILLING", "z", "UP")
CHANGE = Change(1.000, "shop", "rating", "7", ("RATING", "a"), "UP")
NOTES: list[Note] = [
    Begun(0.990, KEY),
    Taken(1.004, KEY, "7"),
    Done(1.010, KEY),
    Begun(1.013, KEY),
    Decided(1.014, KEY),
    Asked(1.012, 1.016, "controller", True, (OTHERS, RequestItem("Renew", "BILLING", "z", "UP"))),
    Asked(1.016, 1.019, "controller", False, (RequestItem("Read", "BILLING", "z", ""),)),
    Asked(1.020, 1.022, "controller", False, (READ,)),
    Asked(1.023, 1.026, "controller", False, (UP,)),
    Done(1.030, KEY),
]


def test_the_stages_are_the_whole_time() -> None:
    """The stages add up to the whole time; the wait for the syncer's former change is separate from the
    queue, and reads from writes.
    """
    stages = Trace(NOTES).stage_milliseconds(CHANGE)
    assert stages is not None
    assert [stages[name] for name in STAGES] == pytest.approx([4, 6, 3, 1, 6, 2, 1, 3])
    assert sum(stages[name] for name in STAGES) == pytest.approx(26)
    assert [stages[name] for name in WAIT_PARTS] == pytest.approx([2, 3])


def test_a_change_decided_before_its_event_spends_no_time_in_the_queue() -> None:
    """A change that a running worker sees before its event arrives has no time in the queue."""
    notes: list[Note] = [
        Taken(1.004, KEY, "7"),
        Begun(1.003, KEY),
        Decided(1.005, KEY),
        Asked(1.006, 1.008, "controller", False, (UP,)),
    ]
    stages = Trace(notes).stage_milliseconds(CHANGE)
    assert stages is not None
    assert [stages[name] for name in STAGES] == pytest.approx([4, 0, 0, 1, 1, 0, 0, 2])


@pytest.mark.parametrize(
    "notes",
    [
        [one for one in NOTES if not isinstance(one, Taken)],
        [one for one in NOTES if not (isinstance(one, Asked) and UP in one.items)],
        [Asked(0.900, 0.910, "controller", False, (UP,)), Taken(1.004, KEY, "7")],
    ],
    ids=["event", "write", "write of an earlier change"],
)
def test_a_change_that_was_not_seen_to_be_written_is_left_out(notes: list[Note]) -> None:
    """A change without a traced event or write, as when a later change replaced it, is left out."""
    assert Trace(notes).stage_milliseconds(CHANGE) is None
    assert mean_stage_milliseconds([CHANGE], Trace(notes)) == {}


def test_a_removal_is_written_by_a_removal() -> None:
    """A removal ends with a request that cancels its instance, not with a registration under its id."""
    removal = Change(1.000, "shop", "rating", "7", ("RATING", "a"), GONE)
    assert Trace(NOTES).stage_milliseconds(removal) is None
    cancelled = [*NOTES, Asked(1.040, 1.041, "controller", True, (RequestItem("Cancel", "RATING", "a", ""),))]
    stages = Trace(cancelled).stage_milliseconds(removal)
    assert stages is not None
    assert stages["Eureka, the write"] == pytest.approx(1)


def test_the_middle_tenth_and_the_slowest_hundredth_are_shown() -> None:
    """Mean stages and totals are reported for the median tenth and the slowest hundredth of changes."""
    notes: list[Note] = []
    changes = []
    for number in range(200):
        key, at, took = ("shop", f"s{number}"), float(number), 1.0 if number < 198 else 5.0
        named = (key[1].upper(), "a")
        notes += [
            Taken(at + 0.5, key, "1"),
            Asked(at + 0.5, at + took, "controller", False, (RequestItem("Register", *named, "UP"),)),
        ]
        changes.append(Change(at, *key, "1", named, "UP"))
    found = mean_stage_milliseconds(changes, Trace(notes))
    assert found[MEDIAN_COLUMN][TOTAL_ROW] == pytest.approx(1000)
    assert found[SLOWEST_COLUMN][TOTAL_ROW] == pytest.approx(5000)
    assert found[SLOWEST_COLUMN]["Eureka, the write"] == pytest.approx(4500)


def test_notes_travel_as_json() -> None:
    """Notes survive the conversion to JSON and back, as the operator writes them to a file."""
    assert notes_from_json(json.loads(json.dumps(notes_to_json(NOTES)))) == NOTES


def test_requests_are_counted_by_kind_in_the_turns_only() -> None:
    """Only requests within the time spans are counted; a batch with any write counts as a batch of writes."""
    batch = (UP, RequestItem("Cancel", "RATING", "b", ""), RequestItem("Renew", "RATING", "a", "UP"))
    notes = [
        Asked(1.0, 1.1, "controller", True, batch),
        Asked(1.0, 1.1, "controller", False, (READ,)),
        Asked(1.0, 1.1, "controller", False, (READ,)),
        Asked(1.0, 1.1, "controller", True, (RequestItem("Renew", "RATING", "c", "UP"),) * 5),
        Asked(1.0, 1.1, "controller", False, ()),
        Asked(3.0, 3.1, "controller", False, (UP,)),
    ]
    assert count_traffic(Trace(notes), [(0.0, 2.0)], 4) == {
        "batches of renewals a change": 0.25,
        "batches of writes a change": 0.25,
        "single reads a change": 0.5,
        "single reads, by controller a change": 0.5,
        "renewals a batch": 5.0,
        "writes a batch": 2.0,
    }
