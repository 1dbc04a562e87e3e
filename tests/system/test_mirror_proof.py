"""A proof of mirrors: callers that know only a URL call machines that are registered only in Eureka, and
every call counts.

The cluster's DNS is a real CoreDNS, the callers are a plain HTTP client inside and a Spring Cloud client
outside, and the operator has the rights of its ServiceAccount.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.mirror_proof import run_mirror_proof
from lab.netns import network_unavailable_reason
from lab.spring import SpringClientMissing

# Of two attempts.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

ATTEMPTS = 2
"""The most runs that are tried: calls fail without any fault of ours if a Eureka server lists a machine too
long, see docs/guides/zero-downtime.md.
"""

LOAD_SECONDS = 3.0
"""Seconds that a busy machine may take in addition; the drain allows more."""

INSIDE = [(name, way) for name in ("review", "review-direct") for way in ("new", "open")]
OUTSIDE = [("rating", "load balancer"), ("review", "load balancer")]
LEAST_CALLS = 50

Report = dict[str, Any]


@pytest.fixture(scope="module")
def report() -> Report:
    """Return the report of the first run in which Eureka listed no machine for too long."""
    if reason := network_unavailable_reason():
        pytest.skip(reason)
    for _ in range(ATTEMPTS):
        try:
            found = run_mirror_proof()
        except SpringClientMissing as reason:
            pytest.skip(str(reason))
        print(arithmetic(found))
        if not is_stale(found):
            return found
    pytest.fail(f"in each of {ATTEMPTS} runs Eureka showed a machine for longer than its cache lasts")


def is_stale(report: Report) -> bool:
    """Return whether Eureka listed a machine for too long after it had left."""
    bound = report["bounds"]["server_cache_seconds"] + LOAD_SECONDS
    return any(one["shown_by_eureka_until"] > bound for one in report["machines"])


def arithmetic(report: Report) -> str:
    """Return the bounds, the calls and the machines as text, a line each."""
    lines = [f"{report['seconds']} s in all; {json.dumps(report['bounds'])}"]
    for name, phase in report["phases"].items():
        lines += [f"{name}, {phase['seconds']} s", *(f"  {json.dumps(one)}" for one in phase["calls"])]
    return "\n".join([*lines, *(json.dumps(one) for one in report["machines"])])


def counted(report: Report, phase: str, application: str, client: str) -> dict[str, Any]:
    """Return the counts of one caller's calls to one application, by their outcome."""
    found: dict[str, Any] = next(
        one
        for one in report["phases"][phase]["calls"]
        if (one["application"], one["client"]) == (application, client)
    )
    return found


@pytest.mark.parametrize(("application", "client"), [*INSIDE, *OUTSIDE])
def test_no_call_fails_while_machines_are_rolled(report: Report, application: str, client: str) -> None:
    """Every call is answered: by name or by Eureka, from inside or outside, to a machine or to a pod."""
    found = counted(report, "rolled", application, client)
    assert (found["failed"], found["outcomes"]) == (0, {}), arithmetic(report)
    assert found["calls"] >= LEAST_CALLS


@pytest.mark.parametrize(("application", "client"), INSIDE)
def test_a_kept_connection_is_renewed_no_more_often_than_machines_end(
    report: Report, application: str, client: str
) -> None:
    """A kept connection lasts as long as its machine, and a new connection never meets a machine that has
    ended.
    """
    found = counted(report, "rolled", application, client)
    assert found["on_new_connection"] <= (2 if client == "open" else 0), arithmetic(report)


def test_calls_fail_without_a_drain(report: Report) -> None:
    """Without a drain calls fail, which shows that the other tests can find a failure."""
    failed = sum(counted(report, "rolled", "legacy", way)["failed"] for way in ("new", "open"))
    assert failed > 0, arithmetic(report)


@pytest.mark.parametrize(("application", "client"), INSIDE)
def test_calls_fail_without_an_operator_until_it_is_back(
    report: Report, application: str, client: str
) -> None:
    """A drain does not help callers of the Service while no operator updates its slices; callers that read
    Eureka see no failure.
    """
    assert counted(report, "operator gone", application, client)["failed"] > 0
    assert counted(report, "operator gone", "review", "load balancer")["failed"] == 0
    assert counted(report, "operator back", application, client)["failed"] == 0


def test_a_machine_is_called_no_longer_than_computed(report: Report) -> None:
    """A machine leaves the slices once Eureka is read again, and its callers once the DNS answer expires."""
    bounds = report["bounds"]
    machines = [one for one in report["machines"] if one["application"] == "review"]
    assert len(machines) == 2
    for one in machines:
        left, called = one["left_slices_after"], one["last_called_after"]
        assert 0 < left["review"] <= bounds["slices_seconds"] + LOAD_SECONDS, one
        assert 0 < left["review-direct"] <= bounds["slices_seconds"] + LOAD_SECONDS, one
        # None: each call since then went to another machine, by chance or since the slices had followed.
        proxied, direct = called["review"] or 0.0, called["review-direct"] or 0.0
        assert proxied <= bounds["slices_seconds"] + LOAD_SECONDS, one
        assert direct <= bounds["slices_seconds"] + bounds["dns_seconds"] + LOAD_SECONDS, one
        assert one["stopped_after"] >= bounds["drain_seconds"], one
