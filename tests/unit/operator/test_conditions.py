"""The conditions Ready and Synced of one reconcile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.core.errors import OwnershipConflict, RegistryDenied, RegistryUnreachable
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import DataCenter, EurekaLease, Instance, Port, Status
from eurekube_provider.core.plan import (
    Action,
    Change,
    FailedChange,
    Plan,
    PlanOutcome,
    Refusal,
    RefusalReason,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.syncer import Mode, Selector, Syncer
from eurekube_provider.operator.conditions import ConditionInput, SyncerReport
from eurekube_provider.operator.conditions import build_report as report_of

SYNCER = Syncer("shop", "rating", Mode.POD, Selector("shop", "rating"), "rating")
DONE = PlanOutcome((), ())


def instances(*states: Status) -> tuple[Instance, ...]:
    """Return instances of the syncer with these statuses."""
    return tuple(
        Instance(
            "rating", f"{n}", f"10.0.0.{n}", f"10.0.0.{n}", Port(80), status=s, metadata={OWNER_KEY: "o"}
        )
        for n, s in enumerate(states)
    )


def report(
    syncer: Syncer,
    desired: DesiredInstances,
    plan: Plan,
    outcome: PlanOutcome,
    there: tuple[Instance, ...],
    **more: object,
) -> SyncerReport:
    """Return the report of a complete reconcile."""
    given = {"syncer": syncer, "desired": desired, "plan": plan, "outcome": outcome, **more}
    return report_of(ConditionInput(syncer.application.upper(), there, len(desired.instances), **given))  # type: ignore[arg-type]


def failure_report(
    application: str, reason: str, message: str, there: tuple[Instance, ...], desired: int, drain: str = ""
) -> SyncerReport:
    """Return the report of a reconcile that ended early."""
    return report_of(ConditionInput(application, there, desired, drain, Problem(reason, message)))


def found(there: tuple[Instance, ...], *problems: Problem, **more: object) -> SyncerReport:
    """Return the report of a reconcile that wanted two instances, both UP."""
    wanted = DesiredInstances(instances(Status.UP, Status.UP), problems)
    return report(SYNCER, wanted, Plan(), DONE, there, **more)


def said(one: SyncerReport) -> tuple[bool | None, str, bool | None, str]:
    """Return the status and reason of Ready and of Synced."""
    return one.is_ready, one.ready.reason, one.is_synced, one.synced.reason


def test_all_is_well() -> None:
    """Ready and Synced are True when every desired instance is UP."""
    one = found(instances(Status.UP, Status.UP))
    assert said(one) == (True, "Synced", True, "Synced")
    assert (one.desired, one.registered, one.refused) == (2, 2, 0)
    assert one.ready.text == "2 instances of RATING in Eureka"
    there = instances(Status.UP, Status.UP)
    one = found(tuple(replace(each, data_center=DataCenter("ZooKeeper")) for each in there))
    assert one.ready.text == "2 instances of RATING in ZooKeeper"


def test_nothing_is_desired() -> None:
    """A Service that is scaled to zero is Ready and Synced."""
    assert said(report(SYNCER, DesiredInstances(), Plan(), DONE, ())) == (True, "Synced", True, "Synced")


@pytest.mark.parametrize(
    ("left_out", "reason"), [((), "NoneUp"), (("2 endpoints with a host name",), "EndpointsLeftOut")]
)
def test_nothing_is_registered_though_there_are_endpoints(left_out: tuple[str, ...], reason: str) -> None:
    """Ready is False, since callers find no instance although there are endpoints."""
    desired = DesiredInstances(left_out_endpoint_sentences=left_out, has_endpoints=True)
    one = report(SYNCER, desired, Plan(), DONE, ())
    assert said(one) == (False, reason, True, "Synced")
    assert [*one.problems] == [reason][: len(left_out)]
    assert one.ready.remedy


def test_left_out_endpoints_are_reported_beside_the_registered() -> None:
    """Endpoints that cannot be registered leave Synced True."""
    mine = instances(Status.UP)
    one = report(
        SYNCER,
        DesiredInstances(mine, left_out_endpoint_sentences=("1 endpoint without the TCP port http",)),
        Plan(),
        DONE,
        mine,
    )
    assert said(one) == (True, "Synced", True, "Synced")
    assert "not registered: 1 endpoint without" in one.problems["EndpointsLeftOut"].text


def test_a_name_for_another_service_is_not_ready() -> None:
    """An ExternalName Service makes Ready and Synced False; the message counts the instances that Eureka
    still holds.
    """
    mine = instances(Status.UP)
    one = found(mine, Problem("ExternalName", "it is a name for x alone"))
    assert said(one) == (False, "ExternalName", False, "ExternalName")
    assert "Eureka holds 1 instance of RATING (1 UP)" in one.ready.text


def test_none_is_up() -> None:
    """When all instances are DOWN as desired, Synced is True, but Ready is False, since callers find none."""
    down = instances(Status.DOWN, Status.DOWN)
    one = report(SYNCER, DesiredInstances(down), Plan(), DONE, down)
    assert said(one) == (False, "NoneUp", True, "Synced")
    assert one.ready.text.endswith(f"none is UP; to fix it: {SYNCER_REMEDIES['NoneUp']}")


@pytest.mark.parametrize(
    ("statuses", "said_of_them"),
    [
        ((Status.UP, Status.OUT_OF_SERVICE), ", 1 taken out of service"),
        ((Status.DOWN, Status.OUT_OF_SERVICE), ", 1 taken out of service, 1 not ready: none is UP"),
        ((Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE), ", 2 taken out of service: none is UP"),
    ],
)
def test_what_a_person_took_out_is_not_called_not_ready(
    statuses: tuple[Status, ...], said_of_them: str
) -> None:
    """Ready's message tells instances that a person took out of service from those that are not ready. One
    that Eurekube took out, and is about to put back, is not ready.
    """
    one = found(instances(*statuses))
    assert one.ready.message == f"2 instances of RATING in Eureka{said_of_them}"
    mark = {OWNER_KEY: "o", LEAVING_KEY: "true"}
    ours = tuple(replace(each, metadata=mark) for each in instances(*statuses))
    assert "taken" not in found(ours).ready.message


def test_a_problem_with_something_up() -> None:
    """With one instance UP, Ready is True; Synced and the problem's own condition say what is wrong."""
    one = found(instances(Status.UP), Problem("NoPort", "which?"))
    assert said(one) == (True, "InstancesUp", False, "NoPort")
    fixed = Problem("NoPort", "which?", SYNCER_REMEDIES["NoPort"])
    assert one.ready.text == f"1 instance of RATING UP; {fixed.text}"
    assert one.synced == fixed
    assert one.problems == {"NoPort": fixed}


def test_what_fixes_it_is_said_once_and_last() -> None:
    """The message ends with one remedy; a problem's own remedy replaces the general one of its reason."""
    own = Problem("NoMatchingService", "none is there", "make the Service rating")
    one = found(instances(Status.UP), own)
    said_once = "none is there; Eureka holds 1 instance of RATING (1 UP); to fix it: make the Service rating"
    assert one.ready.text == said_once
    assert one.problems["NoMatchingService"] == one.synced == own


def test_two_that_register_themselves_are_named_with_one_remedy() -> None:
    """The remedy that is the same for all self-registered instances appears once."""
    mine = instances(Status.UP, Status.UP)
    steps = Plan((), tuple(Refusal(RefusalReason.SELF_REGISTERED, one, one) for one in mine))
    one = report(SYNCER, DesiredInstances(mine), steps, DONE, ())
    assert one.problems["SelfRegistered"].text == (
        "RATING 0 at 10.0.0.0:80, RATING 1 at 10.0.0.1:80 registered themselves;"
        f" to fix it: {SYNCER_REMEDIES['SelfRegistered']}"
    )


def test_a_problem_with_nothing_up() -> None:
    """Without an instance UP, the problem is the reason of Ready, too."""
    assert said(found((), Problem("NoPort", "which?"))) == (False, "NoPort", False, "NoPort")


@pytest.mark.parametrize("kind", [RegistryUnreachable, RegistryDenied])
def test_eureka_cannot_be_asked(kind: type[RegistryUnreachable]) -> None:
    """Ready and Synced are False with the kind of failure as their reason."""
    reason = "EurekaUnreachable" if kind is RegistryUnreachable else "EurekaDenied"
    one = found(instances(Status.UP, Status.UP), read_error=kind("no answer"))
    assert said(one) == (False, reason, False, reason)


def test_refusals_and_failures() -> None:
    """A conflict in the plan and one that a write ran into are both reported and counted."""
    mine = instances(Status.UP)[0]
    theirs = replace(mine, metadata={OWNER_KEY: "theirs"})
    refused = Plan((), (Refusal(RefusalReason.SELF_REGISTERED, mine, theirs),))
    failure = FailedChange(Change(Action.REGISTER, mine), OwnershipConflict("belongs to others"))
    one = report(SYNCER, DesiredInstances((mine,)), refused, PlanOutcome((), (failure,)), ())
    assert set(one.problems) == {"Conflict", "SelfRegistered"}
    assert (one.refused, one.synced.reason) == (2, "Conflict")
    beside = report(
        SYNCER, DesiredInstances((mine,)), Plan(duplicates=refused.refusals), PlanOutcome(), (mine,)
    )
    assert set(beside.problems) == {"SelfRegistered"}


def test_paused() -> None:
    """A paused syncer is Synced until a change waits."""
    paused = replace(SYNCER, is_paused=True)
    both = instances(Status.UP, Status.UP)
    idle = report(paused, DesiredInstances(both), Plan(), DONE, both)
    assert said(idle) == (True, "Synced", True, "Synced")
    assert set(idle.problems) == {"Paused"}
    waiting = report(paused, DesiredInstances(both), Plan(), DONE, both, waiting_change_count=3)
    assert said(waiting) == (True, "InstancesUp", False, "Paused")
    assert "3 changes wait" in waiting.problems["Paused"].text


def test_a_short_lease_is_only_to_be_known() -> None:
    """LeaseTooShort is reported, and leaves Ready and Synced True."""
    both = instances(Status.UP, Status.UP)
    one = report(replace(SYNCER, lease=EurekaLease(5, 6)), DesiredInstances(both), Plan(), DONE, both)
    assert said(one) == (True, "Synced", True, "Synced")
    assert set(one.problems) == {"LeaseTooShort"}


def test_a_drain_that_is_too_short_is_only_to_be_known() -> None:
    """DrainTooShort leaves Ready and Synced True, and is also reported when a reconcile ends early; an
    unchecked drain makes it Unknown.
    """
    both = instances(Status.UP, Status.UP)
    one = report(SYNCER, DesiredInstances(both), Plan(), DONE, both, drain_problem_sentence="too short")
    assert said(one) == (True, "Synced", True, "Synced")
    drain = Problem("DrainTooShort", "too short", SYNCER_REMEDIES["DrainTooShort"])
    assert (one.problems, one.unchecked_condition_types) == ({"DrainTooShort": drain}, frozenset())
    early = failure_report("RATING", "NotAllowed", "no", both, 2, "too short")
    assert said(early) == (False, "NotAllowed", False, "NotAllowed")
    assert early.problems == {
        "NotAllowed": Problem("NotAllowed", "no", SYNCER_REMEDIES["NotAllowed"]),
        "DrainTooShort": drain,
    }
    unknown = report(SYNCER, DesiredInstances(both), Plan(), DONE, both, drain_problem_sentence=None)
    assert (dict(unknown.problems), set(unknown.unchecked_condition_types)) == ({}, {"DrainTooShort"})


def test_a_look_that_ended_early() -> None:
    """After a failed reconcile Ready stays True if Eureka holds an instance UP; Synced is False."""
    one = failure_report("RATING", "KubernetesError", "no", instances(Status.UP), 2)
    assert said(one) == (True, "InstancesUp", False, "KubernetesError")
    assert (one.desired, one.registered) == (2, 1)


@pytest.mark.parametrize("reason", ["NotAllowed", "UnknownEureka"])
def test_a_refused_syncer_is_not_ready(reason: str) -> None:
    """Nobody updates the instances of a refused syncer; the message counts those that Eureka still holds."""
    one = failure_report("RATING", reason, "no", instances(Status.UP, Status.DOWN), 3)
    assert said(one) == (False, reason, False, reason)
    assert one.ready.text.startswith("no; Eureka holds 2 instances of RATING (1 UP): renewed until")
    assert (one.desired, one.registered) == (3, 2)
    assert said(failure_report("", "NotAllowed", "no", (), 0)) == (False, "NotAllowed", False, "NotAllowed")


BRAKED = Problem("Braked", "all 2 instances would go: held back until 2026-01-01T00:01:00Z", "wait")
NOTHING_MATCHES = Problem("NoMatchingService", "no Service in namespace shop is called rating")


def test_a_wrong_selector_on_a_serving_syncer() -> None:
    """When the selector matches no Service, Ready's message says what Eureka holds and until when the
    brake keeps it.
    """
    wrong = replace(SYNCER, selector=Selector("shop", "ratnig"), application="ratnig")
    two = instances(Status.UP, Status.UP)
    one = report(
        wrong, DesiredInstances(problems=(NOTHING_MATCHES,)), Plan(), DONE, two, brake_problem=BRAKED
    )
    assert said(one) == (False, "NoMatchingService", False, "Braked")
    assert one.ready.text == (
        f"{NOTHING_MATCHES.message}; Eureka holds 2 instances of RATING (2 UP), {BRAKED.message};"
        f" to fix it: {SYNCER_REMEDIES['NoMatchingService']}"
    )
    assert (one.desired, one.registered) == (0, 2)


def test_nobody_knows_whether_what_the_brake_holds_can_be_called() -> None:
    """When no endpoint is ready and the brake doubts that, Ready is Unknown."""
    two = instances(Status.UP, Status.UP)
    for desired in ((), instances(Status.DOWN, Status.DOWN)):
        one = report(SYNCER, DesiredInstances(desired), Plan(), DONE, two, brake_problem=BRAKED)
        assert said(one) == (None, "Braked", False, "Braked")
        assert "Eureka holds 2 instances of RATING (2 UP)" in one.ready.text
        assert "until 2026" in one.ready.text
    one = report(SYNCER, DesiredInstances(two[:1]), Plan(), DONE, two, brake_problem=BRAKED)
    assert said(one) == (True, "InstancesUp", False, "Braked")  # one is ready beyond doubt


def test_what_is_on_its_way_out_is_not_counted() -> None:
    """An instance that is out of service while its pod terminates counts neither as registered nor as
    desired.
    """
    three = instances(Status.UP, Status.UP, Status.UP)
    mark = {OWNER_KEY: "o", LEAVING_KEY: "true"}
    out = replace(instances(Status.UP)[0], instance_id="out", status=Status.OUT_OF_SERVICE, metadata=mark)
    one = report(SYNCER, DesiredInstances(three), Plan(), DONE, (*three, out))
    assert (one.registered, one.desired) == (3, 3)
