"""The operator's notes in its Lease's metadata, written and read back."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.lease_notes import MOST_NAMES, LeaseNotes, ServerRead, read_notes, with_notes

SERVER = ServerRead("default", "http://eureka:8761/eureka", "2026-01-31T12:00:00Z", "", "no answer")
NOTES = LeaseNotes("eurekube", "east", ("0b2c1d3e", "lab"), ("shop", "pay"), (SERVER,), ("old",), True)


def test_notes_are_read_back_and_leave_the_rest() -> None:
    """Labels and annotations that a person put on the Lease stay."""
    there: dict[str, Any] = {
        "name": "eurekube-leader",
        "labels": {"team": "infra"},
        "annotations": {"note": "ours"},
    }
    written = with_notes(there, NOTES)
    assert read_notes(written) == NOTES
    assert (written["name"], written["labels"]["team"], written["annotations"]["note"]) == (
        "eurekube-leader",
        "infra",
        "ours",
    )
    assert read_notes(there) == LeaseNotes()


@pytest.mark.parametrize(
    "text", ["", "no JSON", "{}", "[1]", '[["default"]]', "null", '[["a","b","c","d","e","f"]]']
)
def test_what_is_unreadable_says_nothing(text: str) -> None:
    """An annotation that cannot be parsed is ignored, since others may write the Lease."""
    annotations = {
        "eurekube.io/eureka-read": text,
        "eurekube.io/cluster-name": "A B",
        "eurekube.io/previous-cluster-names": "x/y,lab,",
    }
    assert read_notes({"annotations": annotations}) == LeaseNotes(previous_names=("lab",))


def test_names_are_remembered_the_latest_first() -> None:
    """The list of former names has no duplicates, leaves the present name out, and is bounded."""
    assert LeaseNotes().called("east") == LeaseNotes(cluster_name="east")
    east = LeaseNotes(cluster_name="lab", previous_names=("old",)).called("east", ["reported", "old"])
    assert (east.cluster_name, east.previous_names) == ("east", ("lab", "old", "reported"))
    assert east.called("lab").previous_names == ("east", "old", "reported")
    many = LeaseNotes(cluster_name="east")
    for number in range(2 * MOST_NAMES):
        many = many.called(f"name-{number}")
    assert len(many.previous_names) == MOST_NAMES
    assert many.previous_names[0] == f"name-{2 * MOST_NAMES - 2}"
