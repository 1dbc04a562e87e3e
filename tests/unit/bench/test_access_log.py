"""Counts of requests by client and kind, from a server's access log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.access_log import USER_AGENTS, AccessLog, RequestKind, request_kind, requests_per_change


@pytest.mark.parametrize(
    ("request_line", "kind"),
    [
        ("GET /eureka/apps/RATING/a%3A8080", RequestKind.READ),
        ("GET /eureka/instances/a", RequestKind.READ),
        ("POST /eureka/apps/RATING", RequestKind.WRITE),
        ("DELETE /eureka/apps/RATING/a", RequestKind.WRITE),
        ("PUT /eureka/apps/RATING/a/status", RequestKind.WRITE),
        ("POST /eureka/peerreplication/batch/", RequestKind.BATCH),
        ("PUT /eureka/apps/RATING/a", RequestKind.OTHER),
        ("GET /eureka/apps", RequestKind.OTHER),
        ("GET /eureka/apps/delta", RequestKind.OTHER),
        ("GET /eureka/apps/RATING", RequestKind.OTHER),
        ("GET /eureka/status", RequestKind.OTHER),
        ("GET /", RequestKind.OTHER),
    ],
)
def test_each_request_has_a_kind(request_line: str, kind: RequestKind) -> None:
    """Requests are sorted into reads, writes, batches and others; lists and renewals are others."""
    assert request_kind(*request_line.split()) is kind


def test_the_requests_of_one_client_within_its_turns_are_counted() -> None:
    """Requests of one client within its time spans are counted over all servers, without other clients'."""
    with AccessLog() as log:
        folder = Path(log.settings["server.tomcat.accesslog.directory"])
        (folder / "access-1.log").write_text(
            "1000 GET /eureka/apps/RATING/a eurekube\n"
            "1500 POST /eureka/apps/RATING eurekube\n"
            "1600 POST /eureka/apps/RATING python-requests/2.32\n"
            "2500 POST /eureka/apps/RATING eurekube\n"
            "9000 POST /eureka/apps/RATING eurekube\n"
        )
        (folder / "access-2.log").write_text(
            "1100 GET /eureka/apps/RATING/a prober\n1200 POST /eureka/peerreplication/batch/ eurekube\n"
        )
        assert log.count_requests(USER_AGENTS.ours, [(0.9, 1.6), (2.0, 3.0)]) == {
            RequestKind.READ: 1,
            RequestKind.WRITE: 2,
            RequestKind.BATCH: 1,
        }
        assert log.count_requests(USER_AGENTS.kopf, [(0.9, 1.6)]) == {}
    assert not folder.exists()


def test_lists_are_not_of_a_change() -> None:
    """Requests per change leave out lists and renewals, which are reported separately."""
    counts = Counter({RequestKind.READ: 2, RequestKind.WRITE: 4, RequestKind.BATCH: 1, RequestKind.OTHER: 8})
    assert requests_per_change(counts, 4) == {
        "requests a change": 1.75,
        "single reads a change": 0.5,
        "single writes a change": 1.0,
        "batches a change": 0.25,
        "other requests a change": 2.0,
    }


def test_batches_that_come_with_no_change_are_renewals() -> None:
    """Where the batches of changes are known, the others are not counted for changes."""
    counts = Counter({RequestKind.WRITE: 4, RequestKind.BATCH: 8})
    found = requests_per_change(counts, 4, 2)
    assert found["requests a change"] == 1.5
    assert found["batches a change"] == 2.0
    assert found["batches a change, that come with it"] == 0.5
