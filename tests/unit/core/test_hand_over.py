"""The notes of a hand-over in a Lease, and the rules by which it is asked for and granted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eurekube_provider.core.hand_over import (
    CUT_OFF_NOTE_ANNOTATION,
    HAND_OVER_INTERVAL_SECONDS,
    HANDED_OVER_AT_ANNOTATION,
    LEASE_REQUEST_ANNOTATION,
    REQUEST_VALID_SECONDS,
    CutOffNote,
    LeaseRequest,
    format_cut_off_note,
    format_lease_request,
    grants_lease,
    parse_cut_off_note,
    parse_lease_request,
    was_handed_over_lately,
)
from eurekube_provider.runtime.clock import format_utc_time

SINCE = "2026-01-31T12:00:00Z"
NOTE = CutOffNote("pod-1", {"default": SINCE, "elsewhere": ""})
REQUEST = LeaseRequest("pod-2", NOTE)


def annotated(**annotations: str) -> dict[str, Any]:
    """Return a Lease's metadata with these annotations."""
    return {
        "annotations": {f"eurekube.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    }


def test_notes_and_requests_are_read_back() -> None:
    """Both sides understand what the other one wrote; a request names the note that it answers."""
    note = {CUT_OFF_NOTE_ANNOTATION: format_cut_off_note(NOTE)}
    request = {LEASE_REQUEST_ANNOTATION: format_lease_request(REQUEST, SINCE)}
    assert parse_cut_off_note({"annotations": note}) == NOTE
    assert parse_lease_request({"annotations": request}) == REQUEST
    assert NOTE.cut_off == {"default"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "no JSON", "[]", "null", "{}", '{"since": []}', '{"asker": "x"}', '{"asker": "x", "note": 1}'),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_an_annotation_that_somebody_else_wrote_is_none(text: str) -> None:
    """An annotation that cannot be read counts as none: the holder must go on renewing its Lease."""
    found = annotated(cut_off_from_eureka=text, lease_wanted_by=text, lease_handed_over_at=text)
    assert parse_cut_off_note(found) is None
    assert parse_lease_request(found) is None
    assert not was_handed_over_lately(found, time.time())
    assert parse_cut_off_note({}) is None


@pytest.mark.parametrize(
    ("lacked_by_holder", "usable", "expected"),
    [
        ("a", "ab", True),
        ("ab", "ab", True),
        ("ab", "a", True),
        ("a", "b", False),
        ("a", "a", False),
        ("a", "", False),
        ("ab", "", False),
        ("a", "abc", True),
        ("abc", "ab", True),
        ("a", "ac", False),
    ],
)
def test_only_a_replica_that_lacks_strictly_less_is_better_off(
    lacked_by_holder: str, usable: str, *, expected: bool
) -> None:
    """Of the holder's connections a replica must have each that the holder has, and at least one more."""
    note = CutOffNote(
        "pod-1", {name: SINCE if name in lacked_by_holder else "" for name in {*"ab", *lacked_by_holder}}
    )
    assert note.is_better_off(set(usable)) == expected


@pytest.mark.parametrize(
    ("present", "age_seconds", "expected"),
    [
        (NOTE, 0.0, True),
        (NOTE, REQUEST_VALID_SECONDS, False),
        (None, 0.0, False),
        (CutOffNote("pod-1", {"default": "2026-01-31T12:05:00Z", "elsewhere": ""}), 0.0, False),
        (CutOffNote("pod-1", {"default": SINCE, "elsewhere": SINCE}), 0.0, False),
        (CutOffNote("pod-3", NOTE.since_by_connection), 0.0, False),
    ],
    ids=[
        "asked and cut off",
        "asked long ago",
        "well again",
        "cut off again",
        "cut off from more",
        "another",
    ],
)
def test_a_lease_is_granted_to_whom_asks_for_what_still_is(
    present: CutOffNote | None, age_seconds: float, *, expected: bool
) -> None:
    """A request counts for seconds, and only for the note that it answers."""
    assert grants_lease(REQUEST, age_seconds, present) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, True), (-60.0, True), (HAND_OVER_INTERVAL_SECONDS - 1, True), (121.0, False)],
)
def test_a_lease_is_not_handed_over_twice_in_two_minutes(seconds: float, *, expected: bool) -> None:
    """A hand-over counts as recent also where the clock of the former holder is ahead."""
    now = 1_800_000_000.0
    at = {HANDED_OVER_AT_ANNOTATION: format_utc_time(now - seconds)}
    assert was_handed_over_lately({"annotations": at}, now) == expected
