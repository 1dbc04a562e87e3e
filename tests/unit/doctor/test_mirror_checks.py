"""The doctor's findings about mirrors."""

from __future__ import annotations

from typing import Any

from eurekube_provider.core.mirror_conditions import MIRROR_REMEDIES
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.objects import MIRROR_LABEL
from eurekube_provider.doctor.checks import check_snapshot
from eurekube_provider.doctor.finding import Fault, Finding
from eurekube_provider.doctor.mirror_checks import mirror_findings
from eurekube_provider.doctor.reader import Snapshot
from eurekube_provider.doctor.workload_checks import WorkloadRequirements
from tests.unit.comparison.samples import CLUSTER, mirror, mirror_slice, mirror_status

NOW = 1_780_000_000.0
READ = "2026-05-28T20:26:40Z"  # which is NOW

Object = dict[str, Any]


def found(
    *items: Object,
    services: tuple[Object, ...] = (),
    slices: tuple[Object, ...] = (),
    there: tuple[str, ...] = (),
    now: float = NOW,
) -> list[Finding]:
    """Return the findings about these mirrors."""
    instances = [
        Instance(name, f"vm-{number}", "h", f"192.0.2.{number}", Port(80))
        for number, name in enumerate(there)
    ]
    return list(mirror_findings(items, services, slices, {"default": instances}, CLUSTER, now))


def service(name: str, mirror: str = "") -> Object:
    """Return a Service of a person, or of a mirror if one is named."""
    labels = {MIRROR_LABEL: mirror} if mirror else {}
    return {"metadata": {"namespace": "shop", "name": name, "labels": labels}}


def test_a_mirror_that_is_well_has_no_finding() -> None:
    """A mirror without problems has no finding, nor has one that is paused or holds removals for a while."""
    well = mirror("review", mirror_status(read=READ))
    assert found(well, services=(service("review", "review"),), slices=(mirror_slice("review"),)) == []
    for kind in ("Paused", "RemovalsHeld"):
        problem: dict[str, Any] = {kind: "so"}
        assert found(mirror("review", mirror_status(read=READ, **problem))) == []


def test_a_service_of_a_persons_is_named() -> None:
    """A person's Service under the mirror's name is a finding with both remedies, unless the mirror
    attaches to it.
    """
    (finding,) = found(mirror("review", mirror_status()), services=(service("review"),))
    assert (finding.fault, finding.subject) == (Fault.MIRROR_NAME_TAKEN, "EurekaMirror shop/review")
    assert "is somebody's" in finding.problem
    assert "spec.attachTo" in finding.remedy
    attached = mirror("x", mirror_status(), application="review", attachTo="review")
    assert found(attached, services=(service("review"),)) == []


def test_two_that_come_to_one_name_are_named() -> None:
    """Two applications of a pattern, or two mirrors, with the same Service name are a finding."""
    pattern = mirror("all", mirror_status("A_B"), pattern="*", allow=["*"])
    (finding,) = found(pattern, there=("A_B", "A-B"))
    assert finding.fault is Fault.MIRROR_NAME_TAKEN
    assert "A-B and A_B would both be the Service a-b" in finding.problem
    (finding,) = found(
        mirror("one", mirror_status(), application="review"),
        mirror("two", mirror_status(), application="review"),
    )
    assert finding.subject == "Service shop/review"
    assert "shop/one (REVIEW), EurekaMirror shop/two (REVIEW)" in finding.problem


def test_a_mirror_that_nobody_serves_is_named() -> None:
    """A mirror that no operator has read yet, or whose last read was long ago, is a finding; one that cannot
    reach
    Eureka gets its operator's message.
    """
    (finding,) = found(mirror("review"))
    assert finding.fault is Fault.MIRROR_NOT_SERVED
    assert "--mirrors" in finding.remedy
    (finding,) = found(mirror("review", mirror_status(read=READ)), now=NOW + 3600)
    assert (finding.fault, "60 min ago" in finding.problem) == (Fault.MIRROR_STALE, True)
    cut_off = mirror("review", mirror_status(read=READ, SourceUnreachable="no answer"))
    (finding,) = found(cut_off, now=NOW + 3600)
    assert finding.problem == "no answer; Eureka was last read for it 60 min ago"


def test_what_the_operator_says_is_passed_on() -> None:
    """A mirror's failing condition becomes a finding with its remedy; an unreadable spec is a finding of
    its own.
    """
    (finding,) = found(mirror("review", mirror_status(NotAttached="there is no such Service")))
    assert finding.problem == "its operator says NotAttached: there is no such Service"
    assert finding.remedy == MIRROR_REMEDIES["NotAttached"]
    (finding,) = found(mirror("review", mirror_status(NotAttached="none; to fix it: create it")))
    assert finding.problem == "its operator says NotAttached: none"
    assert finding.remedy == "create it"
    broken = mirror("review", mirror_status(), pattern="*")
    (finding,) = found(broken)
    assert (finding.fault, "spec.allow" in finding.problem) == (Fault.MIRROR_TROUBLE, True)


def test_what_a_mirror_that_is_gone_left_is_named() -> None:
    """Services and slices left by a deleted mirror are a finding; other owners' objects are not."""
    (finding,) = found(services=(service("review", "gone"), service("x")), slices=(mirror_slice("gone"),))
    assert finding.fault is Fault.MIRROR_LEFTOVER
    assert finding.remedy == "kubectl delete --namespace shop service/review endpointslice/review-0"


def test_mirrors_that_may_not_be_read_are_not_judged() -> None:
    """When mirrors may not be read, their slices are not reported as leftovers."""
    slices = (mirror_slice("review"),)
    for mirrors, faults in ((None, []), ((), [Fault.MIRROR_LEFTOVER])):
        snapshot = Snapshot(CLUSTER, mirrors=mirrors, slices=slices)
        assert [one.fault for one in check_snapshot(snapshot, WorkloadRequirements(), NOW)] == faults
