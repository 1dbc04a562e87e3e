"""Attribution of a change's time, from its patch to the answer to the write, to stages."""

from __future__ import annotations

import json

import pytest

from bench.attribution import (
    MEDIAN,
    OF_THE_WAIT,
    SLOWEST,
    STAGES,
    TOTAL,
    Asked,
    Begun,
    Decided,
    Done,
    Item,
    Note,
    Taken,
    Trace,
    as_json,
    attribute,
    from_json,
    traffic,
)
from bench.churn import GONE, Change

KEY = ("shop", "rating")
READ = Item("Read", "RATING", "a", "")
UP = Item("Register", "RATING", "a", "UP")
OTHERS = Item("Register", "BILLING", "z", "UP")
CHANGE = Change(1.000, "shop", "rating", "7", ("RATING", "a"), "UP")
NOTES: list[Note] = [
    Begun(0.990, KEY),
    Taken(1.004, KEY, "7"),
    Done(1.010, KEY),
    Begun(1.013, KEY),
    Decided(1.014, KEY),
    Asked(1.012, 1.016, "controller", True, (OTHERS, Item("Renew", "BILLING", "z", "UP"))),
    Asked(1.016, 1.019, "controller", False, (Item("Read", "BILLING", "z", ""),)),
    Asked(1.020, 1.022, "controller", False, (READ,)),
    Asked(1.023, 1.026, "controller", False, (UP,)),
    Done(1.030, KEY),
]


def test_the_stages_are_the_whole_time() -> None:
    """The stages add up to the whole time; the wait for the syncer's former change is separate from the
    queue, and reads from writes.
    """
    stages = Trace(NOTES).stages(CHANGE)
    assert stages is not None
    assert [stages[name] for name in STAGES] == pytest.approx([4, 6, 3, 1, 6, 2, 1, 3])
    assert sum(stages[name] for name in STAGES) == pytest.approx(26)
    assert [stages[name] for name in OF_THE_WAIT] == pytest.approx([2, 3])


def test_a_change_decided_before_its_event_spends_no_time_in_the_queue() -> None:
    """A change that a running worker sees before its event arrives has no time in the queue."""
    notes: list[Note] = [
        Taken(1.004, KEY, "7"),
        Begun(1.003, KEY),
        Decided(1.005, KEY),
        Asked(1.006, 1.008, "controller", False, (UP,)),
    ]
    stages = Trace(notes).stages(CHANGE)
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
    assert Trace(notes).stages(CHANGE) is None
    assert attribute([CHANGE], Trace(notes)) == {}


def test_a_removal_is_written_by_a_removal() -> None:
    """A removal ends with a request that cancels its instance, not with a registration under its id."""
    removal = Change(1.000, "shop", "rating", "7", ("RATING", "a"), GONE)
    assert Trace(NOTES).stages(removal) is None
    cancelled = [*NOTES, Asked(1.040, 1.041, "controller", True, (Item("Cancel", "RATING", "a", ""),))]
    stages = Trace(cancelled).stages(removal)
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
            Asked(at + 0.5, at + took, "controller", False, (Item("Register", *named, "UP"),)),
        ]
        changes.append(Change(at, *key, "1", named, "UP"))
    found = attribute(changes, Trace(notes))
    assert found[MEDIAN][TOTAL] == pytest.approx(1000)
    assert found[SLOWEST][TOTAL] == pytest.approx(5000)
    assert found[SLOWEST]["Eureka, the write"] == pytest.approx(4500)


def test_notes_travel_as_json() -> None:
    """Notes survive the conversion to JSON and back, as the operator writes them to a file."""
    assert from_json(json.loads(json.dumps(as_json(NOTES)))) == NOTES


def test_requests_are_counted_by_kind_in_the_turns_only() -> None:
    """Only requests within the time spans are counted; a batch with any write counts as a batch of writes."""
    batch = (UP, Item("Cancel", "RATING", "b", ""), Item("Renew", "RATING", "a", "UP"))
    notes = [
        Asked(1.0, 1.1, "controller", True, batch),
        Asked(1.0, 1.1, "controller", False, (READ,)),
        Asked(1.0, 1.1, "controller", False, (READ,)),
        Asked(1.0, 1.1, "controller", True, (Item("Renew", "RATING", "c", "UP"),) * 5),
        Asked(1.0, 1.1, "controller", False, ()),
        Asked(3.0, 3.1, "controller", False, (UP,)),
    ]
    assert traffic(Trace(notes), [(0.0, 2.0)], 4) == {
        "batches of renewals a change": 0.25,
        "batches of writes a change": 0.25,
        "single reads a change": 0.5,
        "single reads, by controller a change": 0.5,
        "renewals a batch": 5.0,
        "writes a batch": 2.0,
    }
