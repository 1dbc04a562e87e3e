"""Differences between Kubernetes and Eureka, grouped by cause."""

from __future__ import annotations

from eurekube_provider.comparison.discrepancy import (
    MAX_NAMED_DIFFERENCES,
    difference_of_change,
    differences_in_plan,
    group_by_cause,
)
from eurekube_provider.core.model import Status
from eurekube_provider.core.plan import plan
from tests.unit.comparison.samples import instance


def test_what_registered_itself_is_one_group() -> None:
    """Differences of ten self-registered instances are one group, whose cause names no instance."""
    mine = [instance("rating", number) for number in range(10)]
    theirs = [instance("rating", number, owner=None, instance_id=f"vm-{number}") for number in range(10)]
    (group,) = group_by_cause(differences_in_plan(plan(mine, theirs, mine[0].owner or "")))
    assert len({one.why for one in group.differences}) == 10
    assert group.cause.startswith(
        "registered by its own client at the same address: switch its own Eureka client off"
    )
    assert (len(group.first_differences), group.omitted_count) == (
        MAX_NAMED_DIFFERENCES,
        10 - MAX_NAMED_DIFFERENCES,
    )


def test_an_error_is_the_same_for_all_but_for_their_names() -> None:
    """Errors that differ only in instance names are one group."""
    mine = [instance("rating", number) for number in range(3)]
    changes = plan(mine, [], mine[0].owner or "").changes
    found = [difference_of_change(one, f"{one.instance.instance_id}: nobody answers") for one in changes]
    (group,) = group_by_cause(found)
    assert group.cause == "…: nobody answers"
    assert found[0].why == f"{mine[0].instance_id}: nobody answers"


def test_the_largest_group_comes_first() -> None:
    """Groups are ordered by size, not by the order in which they were found."""
    there = [instance("rating", 0, Status.DOWN)]
    mine = [instance("rating", number) for number in range(3)]
    gone = [instance("rating", 7)]
    found = group_by_cause(differences_in_plan(plan(mine, [*there, *gone], mine[0].owner or "")))
    assert [(group.cause, len(group.differences)) for group in found] == [
        ("not in Eureka", 2),
        ("status: DOWN -> UP", 1),
        ("no longer in Kubernetes", 1),
    ]
    shown = [(one.kubernetes, one.eureka) for group in found for one in group.differences]
    assert shown[2:] == [("UP 10.0.0.0:8080", "DOWN 10.0.0.0:8080"), ("", "UP 10.0.0.7:8080")]


def test_fields_are_named_and_not_quoted() -> None:
    """A cause names the differing fields without their values, which differ between instances."""
    mine = instance("rating")
    there = instance("rating", metadata={"zone": "b"}, vip_address="old")
    (group,) = group_by_cause(differences_in_plan(plan([mine], [there], mine.owner or "")))
    assert group.cause == "vip_address, secure_vip_address, metadata.zone differ"
