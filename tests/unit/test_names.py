"""Which namespaces may be called by which names."""

from __future__ import annotations

import pytest

from eurekube_provider.core.names import Reservations, claimed_names, names_of


def test_names_are_the_applications_and_the_vip_addresses() -> None:
    """In lower case, each once."""
    assert names_of("RATING", "Stars, best", "stars") == {"rating", "stars", "best"}


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
    """The longest name that fits counts, and a star fits any."""
    written = frozenset((who, what) for who, _, what in (pair.partition("=") for pair in pairs.split(",")))
    found = Reservations(written if pairs else frozenset()).allow(namespace, name)
    assert found is expected


@pytest.mark.parametrize(
    ("status", "names"),
    [
        ({}, set()),
        ({"names": [], "application": "RATING", "lastSyncTime": "2026-01-02T03:04:05Z"}, set()),
        ({"names": ["rating", "stars"]}, {"rating", "stars"}),
        ({"application": "RATING"}, set()),
        ({"application": "RATING", "lastSyncTime": "2026-01-02T03:04:05Z"}, {"rating"}),
    ],
)
def test_names_that_a_syncer_has_had(status: dict[str, object], names: set[str]) -> None:
    """What an older operator wrote counts for the application, once it was in sync."""
    assert claimed_names(status) == names
