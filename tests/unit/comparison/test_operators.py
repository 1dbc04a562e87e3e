"""Judgement of a cluster's operators by their Leases and Eureka."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.comparison.operators import (
    OperatorsSnapshot,
    OperatorState,
    describe_operators,
    findings_about_operators,
    operator_state_from_lease,
    operators_to_dict,
)
from eurekube_provider.core.lease_notes import LeaseNotes, ServerNote, add_lease_notes
from eurekube_provider.runtime.clock import format_utc_time

NOW = 1_800_000_000.0
SYNCER = {"metadata": {"namespace": "shop", "name": "rating"}}


def lease(
    renewed_ago: float = 1.0, namespace: str = "ops", holder: str = "pod-1", **notes: Any
) -> dict[str, Any]:
    """Return a Lease object with the operator's notes."""
    known = LeaseNotes("eurekube", "east", watched_namespaces=("*",), is_cluster_name_given=True)
    made = LeaseNotes(**{**{name: getattr(known, name) for name in LeaseNotes.__dataclass_fields__}, **notes})
    return {
        "metadata": add_lease_notes({"namespace": namespace, "name": "eurekube-leader"}, made),
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": format_utc_time(NOW - renewed_ago).replace("Z", ".000000Z"),
        },
    }


def server(read_ago: float, answered_ago: float, error: str = "") -> ServerNote:
    """Return a leader's note about one server."""
    return ServerNote(
        "default",
        "http://e/eureka",
        format_utc_time(NOW - read_ago),
        format_utc_time(NOW - answered_ago),
        error,
    )


def read(*leases: dict[str, Any], error: str = "", renewed_ago: float | None = None) -> OperatorsSnapshot:
    """Return operators read from these Leases."""
    at = None if renewed_ago is None else NOW - renewed_ago
    return OperatorsSnapshot(tuple(map(operator_state_from_lease, leases)), error, at)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (read(lease(), renewed_ago=20), []),
        (read(lease(40), renewed_ago=20), ["fault OperatorAway"]),  # it died; its renewals were its last
        (read(lease(3600), renewed_ago=3600), ["fault OperatorAway"]),
        (read(lease(holder=""), renewed_ago=10), ["fault OperatorAway"]),
        (read(), ["fault OperatorAway"]),
        (read(renewed_ago=20), ["note OperatorAway"]),  # an operator without election
        (read(lease(3600), renewed_ago=20), ["note OperatorAway"]),
        (read(error="forbidden", renewed_ago=20), ["note OperatorAway"]),
        (read(error="forbidden"), []),  # that could not be read
        (read(lease(), renewed_ago=200), ["fault NotRenewed"]),
        (read(lease(), lease(namespace="default")), ["warning OperatorTwice"]),
        (read(lease(), lease(90, namespace="default")), []),
        (read(lease(watched_namespaces=("shop",)), lease(namespace="b", watched_namespaces=("pay",))), []),
        (
            read(
                lease(watched_namespaces=("shop",)), lease(namespace="b", watched_namespaces=("pay", "shop"))
            ),
            ["warning OperatorTwice"],
        ),
        (read(lease(watched_namespaces=("shop",)), lease(namespace="b")), ["warning OperatorTwice"]),
        (
            read(lease(watched_namespaces=()), lease(namespace="b")),
            ["warning OperatorTwice"],
        ),  # of an earlier version
        (read(lease(watched_namespaces=("pay",))), ["fault NotWatched"]),
        (read(lease(server_notes=(server(4, 2),))), []),
        (read(lease(server_notes=(server(200, 2),))), ["warning EurekaNotRead"]),
        (read(lease(server_notes=(ServerNote("default", "http://e/eureka"),))), ["warning EurekaNotRead"]),
    ],
)
def test_what_is_wrong_with_operators(found: OperatorsSnapshot, expected: list[str]) -> None:
    """Each situation gives its findings by severity and name, and each finding has a remedy."""
    findings = list(findings_about_operators(found, [SYNCER], NOW))
    assert [f"{one.severity} {one.problem.reason}" for one in findings] == expected
    assert all(one.problem.remedy for one in findings)


def test_an_operator_that_nobody_needs_is_not_missed() -> None:
    """Without syncers and mirrors a missing operator is no finding."""
    assert list(findings_about_operators(read(), [], NOW)) == []
    assert list(findings_about_operators(read(lease(3600)), [], NOW)) == []


def test_clocks_that_differ_are_settled_by_another_look() -> None:
    """A Lease that seems expired counts as alive if a second read shows a renewal."""
    seems_old = operator_state_from_lease(lease(40))
    assert (seems_old.is_leading(NOW), seems_old.needs_second_read(NOW)) == (False, True)
    again = operator_state_from_lease(lease(36), before=seems_old)
    assert again.is_leading(NOW)
    assert not operator_state_from_lease(lease(40), before=seems_old).is_leading(NOW)
    dead: OperatorState = operator_state_from_lease(lease(100))
    assert (dead.is_leading(NOW), dead.needs_second_read(NOW)) == (False, False)
    never = operator_state_from_lease(
        {"metadata": {"namespace": "ops", "name": "x"}, "spec": {"holderIdentity": "a"}}
    )
    assert (never.is_leading(NOW), never.needs_second_read(NOW)) == (False, False)


def test_who_leads_is_said_first_with_the_age_of_what_is_known() -> None:
    """The text has a line for each leading operator, its cluster name and each server, or for the last
    leader.
    """
    lines = list(
        describe_operators(read(lease(server_notes=(server(4, 2),)), lease(900, "old"), renewed_ago=12), NOW)
    )
    assert lines == [
        "operator eurekube: pod-1 leads by the Lease ops/eurekube-leader, renewed 1 s ago",
        "  it calls the cluster east, and watches all namespaces",
        "  Eureka default was read 4 s ago; http://e/eureka answered 2 s ago",
        "its instances in Eureka were renewed 12 s ago",
    ]
    (first, *_) = describe_operators(read(lease(900), lease(3600, "old")), NOW)
    assert (
        first
        == "operator eurekube: nobody leads by the Lease ops/eurekube-leader, renewed 900 s ago by pod-1"
    )
    assert list(describe_operators(read(), NOW)) == ["operator: it has no Lease"]
    once = list(describe_operators(read(lease(watched_namespaces=())), NOW))
    assert once[1] == "  it calls the cluster east"
    assert list(describe_operators(read(error="no"), NOW)) == ["operator: its Lease cannot be read (no)"]
    unnamed = list(
        describe_operators(
            read(lease(is_cluster_name_given=False, server_notes=(server(4, 90, "no answer"),))), NOW
        )
    )
    assert "set --cluster-name east" in unnamed[2]
    assert unnamed[3] == "  Eureka default was read 4 s ago; http://e/eureka failed: no answer"


def test_a_zookeeper_forgets_nothing() -> None:
    """Of an operator with ZooKeeper alone the sentences name ZooKeeper, where nothing lapses."""
    note = ServerNote("default", "zookeeper://zk-1:2181/services")
    left = read(lease(900, is_cluster_name_given=False, server_notes=(note,)))
    assert list(describe_operators(left, NOW))[2:] == [
        "  ZooKeeper default was read never; zookeeper://zk-1:2181/services answered never"
    ]
    (away,) = findings_about_operators(left, [SYNCER], NOW)
    assert "what is in ZooKeeper stays, also when its pod has ended" in away.problem.text
    assert "lapse" not in away.problem.text
    (unread,) = findings_about_operators(read(lease(server_notes=(note,))), [SYNCER], NOW)
    assert "read the ZooKeeper default never" in unread.problem.text
    both = read(lease(900, server_notes=(note, server(4, 2))))
    (away,) = findings_about_operators(both, [SYNCER], NOW)
    assert "what is in Eureka lapses, what is in ZooKeeper stays" in away.problem.text


def test_operators_as_json() -> None:
    """Operators become JSON with Lease, liveness, age and servers."""
    (one,) = operators_to_dict(read(lease(server_notes=(server(4, 2),))), NOW)
    assert (one["lease"], one["isAlive"], one["renewedSecondsAgo"]) == ("ops/eurekube-leader", True, 1)
    assert one["servers"][0]["readAt"] == format_utc_time(NOW - 4)
