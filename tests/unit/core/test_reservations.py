"""Names in Eureka, and the namespaces that may use them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eurekube_provider.core.problem import Problem
from eurekube_provider.core.reservations import Reservations, lookup_names
from eurekube_provider.core.syncer import claimed_names
from eurekube_provider.operator.conditions import ConditionInput, build_report
from eurekube_provider.operator.status import syncer_status


def test_names_are_the_applications_and_the_vip_addresses() -> None:
    """The names are in lower case and without duplicates."""
    assert lookup_names("RATING", "Stars, best", "stars") == {"rating", "stars", "best"}


@pytest.mark.parametrize(
    ("pairs", "namespace", "name", "expected"),
    [
        ("", "shop", "rating", None),
        ("pay=billing", "shop", "rating", None),
        ("pay=billing", "pay", "BILLING", True),
        ("pay=Billing", "shop", "billing", False),
        ("pay=billing,shop=billing", "shop", "billing", True),
        ("pay=bill*", "shop", "billing", False),
        ("pay=bill*,shop=billing", "pay", "billing", False),
        ("pay=bill*,shop=billing", "pay", "bills", True),
        ("platform=*,shop=rating", "platform", "rating", False),
        ("platform=*,shop=rating", "team", "other", False),
        ("*=*,pay=billing", "shop", "rating", True),
        ("*=*,pay=billing", "shop", "billing", False),
        ("team-*=rating", "team-a", "rating", True),
    ],
)
def test_reservations(pairs: str, namespace: str, name: str, expected: bool | None) -> None:
    """The longest reserved name that fits decides; a star fits any name or namespace."""
    written = frozenset((who, what) for who, _, what in (pair.partition("=") for pair in pairs.split(",")))
    found = Reservations(written if pairs else frozenset()).lets_register(namespace, name)
    assert found is expected


AT = "2026-01-02T03:04:05Z"
IN_SYNC = {"type": "Synced", "status": "True", "observedGeneration": 2, "lastTransitionTime": AT}
SPEC = {"mode": "pod", "selector": {"app": "rating"}, "vipAddress": "stars,Best"}


def written(status: dict[str, Any], spec: dict[str, Any] = SPEC) -> dict[str, Any]:
    """Return a syncer with this status."""
    metadata = {"namespace": "shop", "name": "rating", "generation": 2}
    return {"metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("status", "names"),
    [
        ({}, set()),
        ({"names": [], "application": "RATING", "lastSyncTime": AT}, set()),
        ({"names": [], "application": "RATING", "lastSyncTime": AT, "conditions": [IN_SYNC]}, set()),
        ({"names": ["rating", "stars"]}, {"rating", "stars"}),
        ({"application": "RATING"}, set()),
        ({"application": "RATING", "registered": 0}, set()),
        ({"application": "RATING", "registered": 1}, {"rating"}),
        ({"application": "RATING", "lastSyncTime": AT}, {"rating"}),
    ],
)
def test_names_that_a_syncer_has_had(status: dict[str, Any], names: set[str]) -> None:
    """In an older operator's status, which lists no names, the application's name counts once the syncer
    had an instance.
    """
    assert claimed_names(written(status)) == names


@pytest.mark.parametrize(
    ("synced", "spec", "names"),
    [
        (IN_SYNC, SPEC, {"rating", "stars", "best"}),
        ({**IN_SYNC, "status": "False"}, SPEC, {"rating"}),
        ({**IN_SYNC, "observedGeneration": 1}, SPEC, {"rating"}),
        (IN_SYNC, {**SPEC, "application": "other"}, {"rating"}),
        (IN_SYNC, {**SPEC, "mode": "pods"}, {"rating"}),
    ],
)
def test_what_an_older_operator_left_in_sync_keeps_all_its_names(
    synced: dict[str, Any], spec: dict[str, Any], names: set[str]
) -> None:
    """A syncer scaled to zero during the operator's upgrade keeps its VIP addresses if it was in sync
    before.
    """
    before = written({"application": "RATING", "lastSyncTime": AT, "conditions": [synced]}, spec)
    assert claimed_names(before) == names
    failure = build_report(ConditionInput("RATING", [], 0, failure=Problem("EurekaUnreachable", "no answer")))
    after = syncer_status(before, failure, datetime.now(UTC))
    assert claimed_names(written(after, spec)) == names
