"""The operator's notes in its Lease's metadata, written and read back."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.lease_notes import (
    MAX_PREVIOUS_CLUSTER_NAMES,
    LeaseNotes,
    ServerNote,
    add_lease_notes,
    parse_lease_notes,
)

SERVER = ServerNote("default", "http://eureka:8761/eureka", "2026-01-31T12:00:00Z", "", "no answer")
NOTES = LeaseNotes("eurekube", "east", ("0b2c1d3e", "lab"), ("shop", "pay"), (SERVER,), ("old",), True)


def test_notes_are_read_back_and_leave_the_rest() -> None:
    """Labels and annotations that a person put on the Lease stay."""
    there: dict[str, Any] = {
        "name": "eurekube-leader",
        "labels": {"team": "infra"},
        "annotations": {"note": "ours"},
    }
    written = add_lease_notes(there, NOTES)
    assert parse_lease_notes(written) == NOTES
    assert (written["name"], written["labels"]["team"], written["annotations"]["note"]) == (
        "eurekube-leader",
        "infra",
        "ours",
    )
    assert parse_lease_notes(there) == LeaseNotes()


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
    assert parse_lease_notes({"annotations": annotations}) == LeaseNotes(previous_cluster_names=("lab",))


def test_names_are_remembered_the_latest_first() -> None:
    """The list of former names has no duplicates, leaves the present name out, and is bounded."""
    assert LeaseNotes().with_cluster_name("east") == LeaseNotes(cluster_name="east")
    east = LeaseNotes(cluster_name="lab", previous_cluster_names=("old",)).with_cluster_name(
        "east", ["reported", "old"]
    )
    assert (east.cluster_name, east.previous_cluster_names) == ("east", ("lab", "old", "reported"))
    assert east.with_cluster_name("lab").previous_cluster_names == ("east", "old", "reported")
    many = LeaseNotes(cluster_name="east")
    for number in range(2 * MAX_PREVIOUS_CLUSTER_NAMES):
        many = many.with_cluster_name(f"name-{number}")
    assert len(many.previous_cluster_names) == MAX_PREVIOUS_CLUSTER_NAMES
    assert many.previous_cluster_names[0] == f"name-{2 * MAX_PREVIOUS_CLUSTER_NAMES - 2}"
