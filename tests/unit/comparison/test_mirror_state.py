"""States of mirrors, in the same words as those of syncers."""

from __future__ import annotations

import pytest

from eurekube_provider.comparison.findings import Severity, headline, status_findings
from eurekube_provider.comparison.mirror_state import (
    STALE_STATUS_SECONDS,
    mirror_states,
    service_of_application,
)
from eurekube_provider.comparison.reported_state import SyncState
from tests.unit.comparison.samples import mirror, mirror_status

NOW = 1_780_000_000.0
READ = "2026-05-28T20:26:40Z"  # which is NOW


def test_the_worst_comes_first() -> None:
    """Mirrors are sorted by state, the worst first, with the reason from their conditions."""
    items = [
        mirror("a", mirror_status(read=READ)),
        mirror("b", mirror_status(NameTaken="the name is a person's")),
        mirror("c"),
        mirror("d", {**mirror_status(ready=0)}),
        mirror("e", mirror_status(), deleted=True),
    ]
    found = mirror_states(items, NOW)
    assert [(one.name, one.state) for one in found] == [
        ("d", SyncState.NOT_READY),
        ("c", SyncState.NOT_KNOWN),
        ("b", SyncState.NOT_SYNCED),
        ("e", SyncState.NOT_SYNCED),
        ("a", SyncState.SYNCED),
    ]
    assert [one.problem_text.partition(":")[0] for one in found] == [
        "EndpointsReady",
        "NotLookedAt",
        "NameTaken",
        "Deleted",
        "",
    ]
    assert headline([], found) == "mirrors: 1 not ready, 1 not known, 2 not synced, 1 synced"
    findings = status_findings([], (), found)
    assert (findings[0].severity, findings[0].subjects) == (Severity.FAULT, ("EurekaMirror shop/d",))
    assert len(findings) == 4


@pytest.mark.parametrize(
    ("age", "state"), [(STALE_STATUS_SECONDS, "synced"), (STALE_STATUS_SECONDS + 1, "not known")]
)
def test_what_nobody_has_read_for_long_is_not_known(age: float, state: str) -> None:
    """A mirror whose last read is too long ago is "not known", as its operator may be gone."""
    (found,) = mirror_states([mirror("review", mirror_status(read=READ))], NOW + age)
    assert (str(found.state), found.seconds_since_eureka_read(NOW + age)) == (state, age)
    assert found.to_dict()["lastReadAt"] == READ


def test_the_service_is_named_before_there_is_one() -> None:
    """Before a first status the Service's name comes from the spec; a pattern shows its first Service and the
    number of others.
    """
    (new,) = mirror_states([mirror("x", application="order", serviceName="legacy-{application}")], NOW)
    assert (new.services_text, new.to_dict()["services"]) == ("legacy-order", 0)
    (attached,) = mirror_states([mirror("x", application="order", attachTo="rating")], NOW)
    assert attached.services_text == "rating"
    several = {**mirror_status(), "mirrored": 3}
    (many,) = mirror_states([mirror("x", several, pattern="*", allow=["*"])], NOW)
    assert many.services_text == "review and 2 more"
    assert (
        many.shows_application("ANY"),
        attached.shows_application("ANY"),
        attached.shows_application("ORDER"),
    ) == (True, False, True)
    assert service_of_application(mirror("x", pattern="*"), "ORDER") == ""
