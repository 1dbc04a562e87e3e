"""A dry run sends no write, and its report says what was planned; a single pass reports what was done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.mirror_conditions import MirroredServiceCounts, MirrorReport
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import Action, Change, FailedChange, Plan, PlanOutcome
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Registry
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.dry_run import DryRunAccess, RecordingRegistry, RunReport

RATING = Instance("RATING", "a", "10.0.0.1", "10.0.0.1", Port(8080))
OWNER = "cluster/c/shop/rating"
REGISTER = Plan((Change(Action.REGISTER, RATING),))
NOTHING = PlanOutcome((), ())


class Played:
    """A registry that records the calls it receives."""

    def __init__(self, outcome: PlanOutcome = NOTHING) -> None:
        self.outcome = outcome
        self.asked: list[str] = []

    def apply(self, plan: Plan, _owner: str) -> PlanOutcome:
        """Return that all of the plan was done, or the outcome that a test has set."""
        self.asked.append("apply")
        return PlanOutcome(plan.changes) if self.outcome == NOTHING else self.outcome

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.asked.append(name)


def recorded(
    run_report: RunReport, outcome: PlanOutcome = NOTHING, name: str = "default"
) -> RecordingRegistry:
    """Return a registry whose plans go into the run's report."""
    played: Any = Played(outcome)
    return RecordingRegistry(played, name, run_report)


def test_a_dry_registry_is_read_and_never_changed() -> None:
    """Reads reach the wrapped registry, and no other call does."""
    played: Any = Played()
    dry: Registry = RecordingRegistry(played, "default", RunReport(is_once=True, is_dry=True))
    dry.start_leading(5)
    dry.keep_registered(RATING)
    dry.let_lapse(RATING)
    dry.stand_by()
    assert dry.apply(REGISTER, OWNER) == NOTHING
    assert played.asked == []
    dry.start()
    dry.refresh([RATING.key])
    dry.known_instances(owner=OWNER)
    assert played.asked == ["start", "refresh", "known_instances"]


def test_a_dry_cluster_is_read_and_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads reach the API server; each write is answered with its own body."""

    def request(self: KubeAccess, method: str, *_: Any) -> dict[str, Any]:  # noqa: ARG001
        raise KubernetesError(f"sent {method}")

    monkeypatch.setattr(KubeAccess, "request", request)
    access = DryRunAccess(client.Configuration(host="http://127.0.0.1:1"))
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert access.request(method, "/x", body={"a": 1}) == {"a": 1}
    with pytest.raises(KubernetesError, match="sent GET"):
        access.get("/x")


def report(reason: str) -> SyncerReport:
    """Return the report of a reconcile."""
    is_well = reason == "Synced"
    said = Problem(reason, "said so")
    return SyncerReport(is_well, said, is_well, said)


def output(run_report: RunReport, capsys: pytest.CaptureFixture[str], reason: str = "") -> str:
    """Print the report on one syncer, whose last reconcile had this reason, and return the output."""
    reports = {("shop", "rating"): report(reason)} if reason else {}
    run_report.print({("shop", "rating"): OWNER}, reports)
    return capsys.readouterr().out


def test_a_dry_plan_is_kept_and_not_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Of two reconciles in a dry run the last plan is reported, since the first one changed nothing."""
    run_report = RunReport(is_once=True, is_dry=True)
    registry = recorded(run_report)
    for _ in range(2):
        assert registry.apply(REGISTER, OWNER) == NOTHING
    assert (
        output(run_report, capsys, "Synced") == f"{OWNER}:\n  + RATING a UP 10.0.0.1:8080\n  1 to register\n"
    )
    assert not run_report.has_failed


def test_connections_with_the_same_urls_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Two connections to the same URLs may see different instances, and have separate plans."""
    run_report = RunReport(is_once=True, is_dry=True, output="json")
    for name, plan in (("one", REGISTER), ("other", Plan())):
        recorded(run_report, name=name).apply(plan, OWNER)
    (syncer,) = json.loads(output(run_report, capsys))["syncers"]
    assert [len(plan["changes"]) for plan in syncer["plans"]] == [1, 0]


def test_two_looks_in_one_pass_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    """When a pass reconciles a syncer twice, the report contains the changes of both reconciles."""
    run_report = RunReport(is_once=True, is_dry=False, output="json")
    registry = recorded(run_report)
    registry.apply(REGISTER, OWNER)
    registry.apply(Plan(), OWNER)
    (syncer,) = json.loads(output(run_report, capsys, "Synced"))["syncers"]
    assert [change["action"] for change in syncer["plans"][0]["changes"]] == ["register"]
    assert not run_report.has_failed


@pytest.mark.parametrize(
    ("reason", "failed"),
    [
        ("Synced", False),
        ("NoMatchingService", False),
        ("Braked", False),
        ("EurekaDenied", True),
        ("Failed", True),
    ],
)
def test_which_problems_are_failures(reason: str, failed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Every problem is printed; only a failed operation makes the run fail, a fault in the syncer does
    not.
    """
    run_report = RunReport(is_once=True, is_dry=False)
    assert (f"! {reason}: said so" in output(run_report, capsys, reason)) is (reason != "Synced")
    assert run_report.has_failed is failed


def test_what_was_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    """A change that failed is reported with its error."""
    failure = FailedChange(REGISTER.changes[0], RegistryUnreachable("no connection to http://a/e"))
    run_report = RunReport(is_once=True, is_dry=False)
    recorded(run_report, PlanOutcome((), (failure,))).apply(REGISTER, OWNER)
    assert "failed: no connection to http://a/e" in output(run_report, capsys, "Synced")
    assert run_report.has_failed


def test_a_syncer_that_was_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """A syncer without a reconcile is reported as NotLookedAt, and the run has failed."""
    run_report = RunReport(is_once=True, is_dry=False)
    assert run_report.has_failed
    assert "! NotLookedAt" in output(run_report, capsys)
    assert run_report.has_failed


def test_a_syncer_on_its_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A deleted syncer has no report; its plan is printed, and the run succeeds."""
    run_report = RunReport(is_once=True, is_dry=False)
    recorded(run_report).apply(Plan((Change(Action.DEREGISTER, RATING, RATING),)), OWNER)
    assert output(run_report, capsys) == f"{OWNER}:\n  - RATING a\n  1 to deregister\n"
    assert not run_report.has_failed


def test_no_syncer_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    """A run without syncers says so and succeeds."""
    run_report = RunReport(is_once=True, is_dry=False)
    run_report.print({}, {})
    assert capsys.readouterr().out == "there are no syncers, and nothing is left of one\n"
    assert not run_report.has_failed


MIRROR = ("shop", "review")


@pytest.mark.parametrize("is_dry", [False, True])
def test_mirrors_are_reported_beside_the_syncers(capsys: pytest.CaptureFixture[str], is_dry: bool) -> None:
    """Each write is a line; a dry run prints only the writes of the last reconcile."""
    run_report = RunReport(is_once=True, is_dry=is_dry)
    shown = MirrorReport((MirroredServiceCounts("REVIEW", "review", 1, 1),))
    run_report.record_mirror(MIRROR, shown, ["+ Service review"])
    run_report.record_mirror(MIRROR, shown, ["~ EndpointSlice review-0"])
    run_report.print({}, {}, mirrors=[MIRROR])
    writes = ["~ EndpointSlice review-0"] if is_dry else ["+ Service review", "~ EndpointSlice review-0"]
    count = "1 write" if is_dry else "2 writes"
    assert capsys.readouterr().out.splitlines()[1:] == [
        "mirror shop/review:",
        *(f"  {one}" for one in (*writes, count)),
    ]
    assert not run_report.has_failed


@pytest.mark.parametrize(
    ("report", "reason", "has_failed"),
    [
        (None, "NotLookedAt", True),
        (MirrorReport(failure=Problem(Reason.KUBERNETES_ERROR, "busy")), "KubernetesError", True),
        (
            MirrorReport(problems={"SourceUnreachable": Problem("SourceUnreachable", "no answer")}),
            "SourceUnreachable",
            True,
        ),
        (MirrorReport(problems={"NameTaken": Problem("NameTaken", "somebody's")}), "NameTaken", False),
    ],
)
def test_what_is_wrong_with_a_mirror_is_reported(
    capsys: pytest.CaptureFixture[str], report: MirrorReport | None, reason: str, has_failed: bool
) -> None:
    """The run fails for a mirror that was not reconciled, and succeeds for one whose problem a person must
    fix.
    """
    run_report = RunReport(is_once=True, is_dry=False, output="json")
    if report is not None:
        run_report.record_mirror(MIRROR, report, [])
    run_report.print({}, {}, mirrors=[MIRROR])
    (found,) = json.loads(capsys.readouterr().out)["mirrors"]
    assert (found["mirror"], found["problem"]["reason"]) == ("shop/review", reason)
    assert run_report.has_failed is has_failed
