"""Remedies for each problem of `status` and the status page."""

from __future__ import annotations

import itertools

from eurekube_provider.comparison.comparing import compare
from eurekube_provider.comparison.findings import eureka_findings, status_findings
from eurekube_provider.comparison.mirror_state import STALE_STATUS_SECONDS, mirror_states
from eurekube_provider.comparison.seen_remedies import (
    REMEDY_BY_FINDING_NAME,
    REMEDY_BY_OBSERVED_REASON,
    FindingName,
    ObservedReason,
)
from eurekube_provider.core.model import Status
from tests.unit.comparison.samples import instance, mirror, mirror_status, syncer, world

NOW = 1_780_000_000.0
READ = "2026-05-28T20:26:40Z"  # which is NOW


def test_no_name_is_without_a_remedy() -> None:
    """Each problem name has a remedy, and each remedy a problem name."""
    assert set(REMEDY_BY_OBSERVED_REASON) == set(ObservedReason)
    assert set(REMEDY_BY_FINDING_NAME) == set(FindingName)


def test_every_trouble_says_what_fixes_it() -> None:
    """Every finding about applications, mirrors, Eurekas and the operator has a remedy."""
    odd = instance("odd", owner=None, status=Status.UNKNOWN, unreadable="it is no object")
    down = [instance("legacy", 3, Status.DOWN, owner=None), instance("order"), odd]
    items = [syncer("a", {}), syncer("b"), syncer("c", deleted=True)]
    applications = list(
        itertools.chain.from_iterable(
            compare(world(one, ready=(True, True)), {"default": down}) for one in items
        )
    )
    mirrors = [mirror("x"), mirror("y", mirror_status(read=READ)), mirror("z", mirror_status(), deleted=True)]
    findings = [
        *status_findings(applications, (), mirror_states(mirrors, NOW + STALE_STATUS_SECONDS + 1)),
        *eureka_findings(
            "a", error="no answer", failed_servers=(), endangered=["http://e"], share_warning="40 %"
        ),
        *eureka_findings("b", error="", failed_servers=[("http://e", "time-out")], endangered=()),
    ]
    by_leases = {  # tests/unit/comparison/test_operators.py
        FindingName.OPERATOR_AWAY,
        FindingName.TWO_OPERATORS,
        FindingName.INSTANCES_NOT_RENEWED,
        FindingName.EUREKA_NOT_READ,
        FindingName.NAMESPACE_NOT_WATCHED,
    }
    by_the_operator = {  # tests/unit/operator/web/test_status_page.py
        FindingName.OPERATOR_STUCK,
        FindingName.OPERATOR_NOT_READY,
        FindingName.KUBERNETES_UNREAD,
    }
    found = {one.problem.reason for one in findings}
    elsewhere = {*map(str, by_leases | by_the_operator)}
    assert found >= {*map(str, ObservedReason), *map(str, FindingName)} - elsewhere
    assert [one.problem.reason for one in findings if not one.problem.remedy] == []
