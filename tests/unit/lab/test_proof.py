"""Deployments and counts of the proof, without a run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eurekube_provider.core.drain_time import Drain
from lab.pod import PodLife
from lab.proof.calls import tally_calls
from lab.proof.findings import RemovedPod, Verdict, decide_verdict, make_finding
from lab.proof.form import PROOF_SETTINGS
from lab.proof.subjects import Scenario, Strategy, Subject
from lab.proof.witness import PodSighting, ServerView, summarize_sightings

LINES = """\
1000000,load balancer,rating-rolling-update-ours,10.0.1.1,3,ok
1000000,feign,rating-rolling-update-ours,10.0.1.2,2,ok
1004500,load balancer,rating-rolling-update-ours,10.0.1.1,3000,ConnectException HTTP connect timed out
1005000,feign,rating-rolling-update-ours,,0,IllegalStateException No instances available
1006000,feign,rating-rolling-update-ours,10.0.1.1,1,o"""
ROLLED = Subject(Scenario.ROLLED, Strategy.EUREKUBE_DRAIN)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a client's file of calls whose last line is incomplete."""
    path = tmp_path / "calls.csv"
    path.write_text(LINES)
    return path


def test_calls_are_counted_by_client_and_address(file: Path) -> None:
    """Calls are counted by client, address and outcome; an incomplete last line is ignored."""
    counted = tally_calls([file])[ROLLED.name]
    assert counted.calls == {"load balancer": 2, "feign": 2}
    assert [call.at for call in counted.failures] == [1004.5, 1005.0]
    assert counted.last_called == {"10.0.1.1": 1004.5, "10.0.1.2": 1000.0}
    assert counted.lowest_rate == 2 / 5


def test_how_long_a_removed_pod_was_called(file: Path) -> None:
    """The time from the deletion of a pod until its last call is reported for the pod that was called
    longest.
    """
    lives = [
        PodLife("proof", name, {"app": ROLLED.name}, "node-1", address, deleted_at=deleted_at)
        for name, address, deleted_at in (("a", "10.0.1.1", 1001.0), ("b", "10.0.1.2", 1002.0))
    ]
    other = PodLife("proof", "c", {"app": "other"}, "node-1", "10.0.1.1", deleted_at=900.0)
    finding = make_finding(
        ROLLED, PROOF_SETTINGS["full"], tally_calls([file])[ROLLED.name], [*lives, other], 1002.0
    )
    assert (finding.removed, finding.still_called_seconds, finding.bound_seconds) == (2, 3.5, 96)
    assert (finding.failed, finding.failures) == (2, {2: 1, 3: 1})


def test_only_what_a_server_has_no_longer_is_stale() -> None:
    """A server is stale for the longest time in which one delta showed an instance that it did not hold."""
    sights = [
        PodSighting(101.0, is_listed=True, is_registered=True),
        PodSighting(102.0, is_listed=True),
        PodSighting(105.0, is_listed=True),
        PodSighting(106.0, is_listed=False),
        PodSighting(107.0, is_listed=True),
        PodSighting(108.0, is_listed=True, is_registered=True),
        PodSighting(109.0, is_listed=True),
        PodSighting(110.0, is_listed=True),
        PodSighting(113.0, is_listed=True, version=2),
    ]
    assert summarize_sightings("one", sights, 100.0) == ServerView("one", held=8.0, shown=13.0, stale=3.0)


@pytest.mark.parametrize(
    ("called", "stale", "failed", "verdict"),
    [
        (4.0, 0.0, [], Verdict.HELD),
        (4.0, 30.0, [], Verdict.HELD),  # no caller asked that server
        (38.4, 34.0, ["10.0.1.1"], Verdict.STALE),
        (38.4, 34.0, [], Verdict.STALE),
        (38.4, 0.0, ["10.0.1.1"], Verdict.BROKEN),  # removed too late
        (38.4, 20.0, ["10.0.1.1"], Verdict.BROKEN),  # late, and stale as well
        (38.4, 34.0, ["10.0.1.1", "10.0.1.2"], Verdict.BROKEN),  # another one failed
        (38.4, 34.0, ["10.0.1.1", ""], Verdict.BROKEN),  # nobody was there to be called
        (13.5, 1.5, [], Verdict.BROKEN),  # a cache as old as it may be
        (8.0, 5.0, ["10.0.1.1"], Verdict.BROKEN),  # it ended while it was still to serve
    ],
)
def test_a_stale_server_is_blamed_for_no_more_than_it_did(
    called: float, stale: float, failed: list[str], verdict: Verdict
) -> None:
    """The verdict is STALE only if every pod with failed calls would have been within the bound without the
    server's stale time.
    """
    servers = [ServerView("one", 0.4, 0.6, 0.0), ServerView("two", 0.4, stale + 0.5, stale)]
    pods = [
        RemovedPod("a", "10.0.1.1", 1.0, called, 19.0, 0, servers),
        RemovedPod("b", "10.0.1.2", 20.0, 3.0, 19.0, 0, servers[:1]),
    ]
    assert decide_verdict(pods, failed, PROOF_SETTINGS["short"], 5) is verdict


def test_names_are_names() -> None:
    """Every application of the proof has a unique name that is valid for a Service."""
    names = [Subject(scenario, strategy).name for scenario in Scenario for strategy in Strategy]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 and name == name.lower() and " " not in name for name in names)


@pytest.mark.parametrize(
    ("strategy", "syncer"),
    [(Strategy.EUREKUBE_DRAIN, {}), (Strategy.OUT_OF_SERVICE, {"onTermination": "OutOfService"})],
)
def test_ours_is_the_arithmetic_and_nothing_else(strategy: Strategy, syncer: dict[str, str]) -> None:
    """Our Deployment differs from one without a drain only in the values that the drain arithmetic
    computes.
    """
    drain = Drain()
    plain = Subject(Scenario.ROLLED, Strategy.NONE).deployment(3, drain)["spec"]
    subject = Subject(Scenario.ROLLED, strategy)
    assert subject.syncer_spec == syncer
    ours = subject.deployment(3, drain)["spec"]
    pod = ours["template"]["spec"]
    assert pod["containers"][0].pop("lifecycle") == {"preStop": {"sleep": {"seconds": 120}}}
    assert pod.pop("terminationGracePeriodSeconds") == 150
    assert ours.pop("minReadySeconds") == 120
    assert pod == plain["template"]["spec"]
    assert set(ours) == set(plain)
