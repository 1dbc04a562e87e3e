"""The decision about a mirrored application: a table of known faults, and properties of random situations."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.identity import OWNER_KEY, Cluster
from eurekube_provider.core.mirror import Mirror, MirrorForm
from eurekube_provider.core.mirror_decision import (
    MirrorDecision,
    MirrorDecisionKind,
    MirrorSituation,
    decide_mirrored_service,
)
from eurekube_provider.core.mirror_endpoints import (
    EndpointGroup,
    HostLookup,
    MirrorEndpoint,
    host_names_to_resolve,
)
from eurekube_provider.core.mirror_guard import MIRROR_BRAKE_SECONDS
from eurekube_provider.core.mirror_slices import SlicePlan, endpoints_in_slices, plan_slices
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.mirrored_service import (
    build_slice_metadata,
    has_cluster_ip_of_form,
    mirrored_service_body,
    owner_reference,
)
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import ATTACH_MIRROR_ANNOTATION
from tests.unit import strategies

MIRROR = Mirror("shop", "legacy", application="REVIEW")
ADDED = replace(MIRROR, form=MirrorForm.ATTACHED, attach_to="review")
HEADLESS = replace(MIRROR, form=MirrorForm.HEADLESS)
POLICY = AddressPolicy(parse_networks(["192.0.2.0/24"]))
OWNER = {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaMirror", "name": "legacy", "uid": "uid-legacy"}
HTTP = EndpointGroup("IPv4", (("http", 8080, ""),))
ONE, OTHER = "http://one:8761/eureka", "http://other:8761/eureka"
OUT = Status.OUT_OF_SERVICE


def vm(name: str, address: str = "", **more: Any) -> Instance:
    """Return the instance of a machine; each one-letter name has an address of its own."""
    address = address or f"192.0.2.{ord(name)}"
    return Instance("REVIEW", name, address, address, Port(8080), **more)


def shown(names: str, source: str = "") -> tuple[MirrorEndpoint, ...]:
    """Return a ready endpoint for each machine of ``names``."""
    return tuple(
        MirrorEndpoint(HTTP, f"192.0.2.{ord(one)}", one, is_ready=True, source=source) for one in names
    )


def person(opted_in: str | None = None, port: str = "http") -> dict[str, Any]:
    """Return a person's Service."""
    annotations = {ATTACH_MIRROR_ANNOTATION: opted_in} if opted_in else {}
    metadata = {"namespace": "shop", "name": "review", "labels": {}, "annotations": annotations}
    return {"metadata": metadata, "spec": {"ports": [{"name": port}]}}


def ours(mirror: Mirror = MIRROR, port: str = "http", **spec: Any) -> dict[str, Any]:
    """Return the Service that the mirror has made."""
    body = mirrored_service_body(
        mirror, OWNER, "REVIEW", "review", [{"name": port, "port": 80, "protocol": "TCP"}]
    )
    body["metadata"]["uid"] = "uid-review"
    return {**body, "spec": {**body["spec"], **spec}}


def situation(lists: str = "", calls: str = "", mirror: Mirror = MIRROR, **more: Any) -> MirrorSituation:
    """Return a situation in which Eureka lists the machines ``lists``, and the Service calls the machines
    ``calls``.

    :param more: further fields; ``gone`` and ``absent`` name what left, ``registered`` what a server holds.
    """
    left = {key: frozenset(("REVIEW", one) for one in more.pop(key, "")) for key in ("gone", "absent")}
    registered = tuple(map(vm, more.pop("registered", "")))
    fields = {
        "current_endpoints": shown(calls),
        "instances": list(map(vm, lists)),
        "source": ONE,
        "unlisted": UnlistedInstances(registered, left["gone"] | left["absent"], left["absent"]),
        "now": 1000.0,
    }
    return MirrorSituation(
        mirror, Cluster("eks", "uid"), POLICY, "REVIEW", "review", OWNER, **{**fields, **more}
    )


def called(decision: MirrorDecision) -> str:
    """Return the machines' letters that the decision calls, sorted; a capital letter is not ready."""
    named = ((chr(int(one.address.rpartition(".")[2])), one.is_ready) for one in decision.verdict.endpoints)
    return "".join(sorted(name if is_ready else name.upper() for name, is_ready in named))


@dataclass(frozen=True)
class Row:
    """A fault, with the expected decision.

    :ivar calls: the letters of the machines that the Service has after the decision, sorted; a capital letter
        is not ready.
    :ivar problems: the reasons of what is wrong.
    """

    situation: MirrorSituation
    kind: MirrorDecisionKind
    calls: str = ""
    problems: Sequence[str] = ()


SHOWS, REMOVES_SLICES, WRITES_NOTHING = MirrorDecisionKind
ROWS = {
    # Eureka is read.
    "a machine comes": Row(situation("abc", "ab"), SHOWS, "abc"),
    "a machine leaves, as a server says": Row(situation("ab", "abc", gone="c"), SHOWS, "ab"),
    "a server forgets": Row(situation("ab", "abc"), SHOWS, "abc"),
    "a server forgets what another holds": Row(situation("ab", "abc", registered="c"), SHOWS, "abc"),
    "no server holds it any more": Row(situation("ab", "abc", absent="c"), SHOWS, "ab"),
    "it vanished long ago": Row(situation("ab", "abc", held_since_by_id={"c": 700.0}), SHOWS, "ab"),
    "it vanished, and time goes on": Row(situation("ab", "abc", held_since_by_id={"c": 700.1}), SHOWS, "abc"),
    "all are absent": Row(situation("", "abc", absent="abc"), SHOWS, "abc", ["Braked"]),
    "all are absent for long": Row(
        situation("", "c", absent="c", held_since_by_id={"c": 0.0}, now=MIRROR_BRAKE_SECONDS), SHOWS
    ),
    "all are absent, and a person says so": Row(situation("", "abc", absent="abc", is_released=True), SHOWS),
    "another Eureka is read": Row(
        situation("a", current_endpoints=shown("bc", source=OTHER), absent="bc"), SHOWS, "abc", ["Braked"]
    ),
    "a machine is taken out of service": Row(
        situation(instances=[vm("a", status=OUT), vm("b")], current_endpoints=shown("ab")), SHOWS, "Ab"
    ),
    "its network is taken away": Row(
        situation(instances=[vm("a", "10.0.0.1"), vm("b")]), SHOWS, "b", ["AddressRefused"]
    ),
    "a name resolves nowhere any more": Row(
        situation(
            instances=[vm("a", "a.example")],
            current_endpoints=shown("a"),
            host_lookups={"a.example": HostLookup(("192.0.2.97",), "no answer")},
        ),
        SHOWS,
        "a",
        ["Unresolvable"],
    ),
    "a name was never resolved": Row(
        situation(instances=[vm("a", "a.example")], current_endpoints=shown("a")),
        SHOWS,
        "a",
        ["Unresolvable"],
    ),
    "a syncer of this cluster registered it": Row(
        situation(instances=[vm("a", metadata={OWNER_KEY: "cluster/eks/shop/review"})]), SHOWS
    ),
    "an endpoint is written by hand": Row(
        situation("a", current_endpoints=(*shown("a"), replace(shown("b")[0], instance_id=""))),
        SHOWS,
        "a",
        ["ForeignEndpoints"],
    ),
    "somebody put a selector on it": Row(
        situation("a", service=ours(selector={"app": "x"})), SHOWS, "a", ["ForeignEndpoints"]
    ),
    "somebody wrote a slice for it": Row(
        situation("a", service=ours(), foreign_slices=("review-1",)), SHOWS, "a", ["ForeignEndpoints"]
    ),
    "somebody made it an alias": Row(
        situation("a", service=ours(type="ExternalName", externalName="x.example")), SHOWS, "a", ["NotCalled"]
    ),
    # Eureka is silent.
    "it is silent": Row(situation("a", "abc", is_eureka_silent=True, absent="bc"), SHOWS, "abc"),
    "it is silent, and a slice is gone": Row(situation("abc", "", is_eureka_silent=True), SHOWS, "abc"),
    "it is silent since this replica leads": Row(
        situation("a", "abc", is_eureka_silent=True, was_shown_by_this_replica=False), WRITES_NOTHING
    ),
    "it is silent, and a person has the name": Row(
        situation("a", "a", is_eureka_silent=True, service_of_any_owner=person()),
        WRITES_NOTHING,
        problems=["NameTaken"],
    ),
    # Whose the Service is.
    "another mirror has the name": Row(
        situation("a", mirror_with_service_name="other", service_of_any_owner=ours()),
        WRITES_NOTHING,
        problems=["NameTaken"],
    ),
    "a person has the name": Row(
        situation("a", service_of_any_owner=person()), REMOVES_SLICES, problems=["NameTaken"]
    ),
    "the watch of Services is behind": Row(
        situation("a", mirror_with_service_name="legacy", service_of_any_owner=ours()), SHOWS, "a"
    ),
    "a person's Service opted in": Row(
        situation("a", mirror=ADDED, service_of_any_owner=person("legacy")), SHOWS, "a"
    ),
    "a person's Service opted out": Row(
        situation("a", "a", ADDED, service_of_any_owner=person()), REMOVES_SLICES, problems=["NotAttached"]
    ),
    "a person's Service is another mirror's": Row(
        situation("a", "a", ADDED, service_of_any_owner=person("beside")),
        REMOVES_SLICES,
        problems=["NotAttached"],
    ),
    "a person's Service is gone": Row(situation("a", "a", ADDED), REMOVES_SLICES, problems=["NotAttached"]),
    "a mirrored Service is to be added to": Row(
        situation("a", mirror=ADDED, service_of_any_owner=ours()), REMOVES_SLICES, problems=["NotAttached"]
    ),
}


@pytest.mark.parametrize("fault", ROWS)
def test_what_is_decided(fault: str) -> None:
    """The rows are known faults in Eureka's lists, and in the owner of the Service's name."""
    row = ROWS[fault]
    found = decide_mirrored_service(row.situation)
    problems = [one.reason for one in found.problems]
    assert (found.kind, called(found), problems) == (row.kind, row.calls, list(row.problems))
    is_made = row.kind is SHOWS and row.situation.mirror.form is not MirrorForm.ATTACHED
    assert (found.service is not None) == is_made


@pytest.mark.parametrize(
    ("mirror", "stands", "must_replace_service", "must_write_slices_first"),
    [
        (MIRROR, ours(), False, False),
        (MIRROR, ours(port="web"), False, True),
        (HEADLESS, ours(), True, False),
        (MIRROR, ours(HEADLESS, port="web"), True, False),
    ],
)
def test_how_a_service_is_changed(
    mirror: Mirror, stands: dict[str, Any], must_replace_service: bool, must_write_slices_first: bool
) -> None:
    """Another form replaces the Service, since its address is fixed; a port's new name is written after
    its slices.
    """
    found = decide_mirrored_service(situation("a", mirror=mirror, service=stands))
    assert (found.must_replace_service, found.must_write_slices_first) == (
        must_replace_service,
        must_write_slices_first,
    )
    assert found.service is not None
    assert has_cluster_ip_of_form(found.service, mirror.form)


UNCALLED_ROWS = [
    (MIRROR, ours(), ""),
    (MIRROR, ours(ipFamilies=["IPv4"]), ""),
    (MIRROR, ours(ipFamilies=["IPv6"]), "has no IPv4 address"),
    (HEADLESS, ours(HEADLESS, ipFamilies=["IPv6"]), ""),
    (MIRROR, ours(internalTrafficPolicy="Local"), "on the caller's own node alone"),
    (HEADLESS, ours(HEADLESS, internalTrafficPolicy="Local"), ""),
    (MIRROR, ours(type="ExternalName", externalName="x.example"), "is an alias of x.example"),
    (MIRROR, ours(port="web"), ""),
    (ADDED, person("legacy"), ""),
    (ADDED, person("legacy", port="any"), ""),
    (ADDED, person("legacy", port="https"), "has no port named http"),
]
"""A mirror, its Service, and a part of the reason why that calls no instance; empty where it does."""


@pytest.mark.parametrize(("mirror", "service", "why"), UNCALLED_ROWS)
def test_what_a_service_does_not_call_is_not_ready(mirror: Mirror, service: dict[str, Any], why: str) -> None:
    """An endpoint that its Service cannot call stays, is named, and does not count as ready."""
    own, persons = (None, service) if mirror is ADDED else (service, None)
    seen = situation("a", mirror=mirror, service=own, service_of_any_owner=persons)
    decision = decide_mirrored_service(seen)
    counts = decision.endpoint_counts(seen)
    assert (counts.endpoints, counts.ready) == (1, int(not why))
    assert [one.reason for one in decision.problems] == ["NotCalled"] * bool(why)
    assert all(why in one.message for one in decision.problems)


@pytest.mark.parametrize(
    ("more", "is_time_independent"),
    [
        ({}, True),
        ({"calls": "b"}, False),
        ({"registered": "b", "calls": "b"}, False),
        ({"is_eureka_silent": True}, False),
        ({"instances": [vm("a", "a.example")]}, False),
        ({"instances": [vm("a", "10.0.0.1")]}, False),
    ],
)
def test_what_depends_on_time_or_answers_is_decided_again(
    more: dict[str, Any], is_time_independent: bool
) -> None:
    """A decision that depends on time or on answers is not final, although lists and cluster are
    unchanged.
    """
    assert decide_mirrored_service(situation("a", **more)).is_time_independent == is_time_independent


class Drawn:
    """Random situations from a seed, with machines and Services of every kind."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - draws cases, guards nothing

    def situation(self) -> MirrorSituation:
        """Return a random situation, whose slices contain the endpoints that are called."""
        draw = self._random.choice
        mirror = draw([MIRROR, MIRROR, HEADLESS, ADDED])
        source = draw([ONE, ONE, ONE, ""])
        owner = build_slice_metadata(
            mirror, "REVIEW", "review", {"uid": "uid-review"}, draw([ONE, ONE, OTHER])
        )
        current_endpoints = [replace(one, source="") for one in shown(self._some("abcdefghijklmno"))]
        slices = written(plan_slices(owner, current_endpoints, []), [])
        names = self._some("abcdefghijklmno")
        instances = [vm(one, draw(["", "", "", "10.0.0.1", f"{one}.example"])) for one in names]
        host_lookups = {
            one: draw([HostLookup(), HostLookup((f"192.0.2.{ord(one[0])}",)), HostLookup((), "no")])
            for one in sorted(host_names_to_resolve(mirror, instances, Cluster("eks", "uid"), POLICY))
        }
        absent = self._some("abcdefghijklmno")
        return situation(
            mirror=mirror,
            instances=instances,
            service=draw([None, ours(), ours(HEADLESS), ours(port="web")]),
            slices=slices,
            current_endpoints=endpoints_in_slices(slices),
            service_of_any_owner=draw(
                [None, person(), person("legacy"), person("beside"), person("legacy", "web")]
            ),
            mirror_with_service_name=draw(["", "", "legacy", "other"]),
            source=source,
            was_shown_by_this_replica=draw([True, True, False]),
            is_eureka_silent=draw([True, False, False]),
            is_released=draw([True, False, False, False]),
            gone=self._some("abcdefghijklmno"),
            absent=absent,
            host_lookups=host_lookups,
            held_since_by_id={one: draw([0.0, 699.0, 701.0]) for one in self._some("abcdefghijklmno")},
        )

    def _some(self, those: str) -> str:
        share = self._random.random()
        return "".join(one for one in those if self._random.random() < share)


def written(plan: SlicePlan, current_endpoints: Sequence[Any]) -> list[Any]:
    """Return the slices after a plan was carried out."""
    there: dict[str, Mapping[str, Any]] = {one["metadata"]["name"]: one for one in current_endpoints}
    for one in (*plan.creations, *plan.updates):
        there[one["metadata"]["name"]] = one
    for gone in plan.deletions:
        del there[gone["metadata"]["name"]]
    return list(there.values())


situations = st.integers(0, 2**63).map(lambda seed: Drawn(seed).situation())
thorough = settings(max_examples=max(500, strategies.EXAMPLES))
"""Settings of Hypothesis; ``EUREKUBE_EXAMPLES=10000`` tries more examples."""


@thorough
@given(situations)
def test_nothing_in_doubt_goes(found: MirrorSituation) -> None:
    """A called endpoint stays until its end is proved, its hold time is over, or a person releases it; while
    Eureka is silent all endpoints stay.
    """
    decision = decide_mirrored_service(found)
    if decision.kind is not SHOWS:
        return
    called_now = {one.address for one in decision.verdict.endpoints if one.is_ready}
    listed = {one.instance_id for one in found.instances}
    proved = {instance_id for _, instance_id in found.unlisted.gone - found.unlisted.gone_by_absence}
    absent = {instance_id for _, instance_id in found.unlisted.gone_by_absence}
    for one in found.current_endpoints:
        if found.is_eureka_silent:
            assert one.address in {each.address for each in decision.verdict.endpoints}
        elif not (found.is_released or one.instance_id in listed or one.instance_id in proved):
            held_for = found.now - found.held_since_by_id.get(one.instance_id, found.now)
            if one.is_from_another_eureka(found.source) or held_for < found.mirror.hold_seconds:
                is_absent = (
                    one.instance_id in absent and one.instance_id not in decision.verdict.held_since_by_id
                )
                assert one.address in called_now or is_absent


@thorough
@given(situations)
def test_nothing_of_others_is_touched(found: MirrorSituation) -> None:
    """A Service of a person that did not opt in, or of another mirror, gets no endpoint; no address outside
    the allowed networks is called.
    """
    decision = decide_mirrored_service(found)
    if decision.kind is not SHOWS:
        assert decision.service is None
        assert decision.verdict.endpoints == ()
    elif found.mirror.form is MirrorForm.ATTACHED:
        assert found.service_of_any_owner is not None
        assert found.service_of_any_owner["metadata"]["annotations"] == {ATTACH_MIRROR_ANNOTATION: "legacy"}
        assert decision.service is None
    else:
        assert (
            found.service is not None
            or found.mirror_with_service_name == "legacy"
            or found.service_of_any_owner is None
        )
    judge_address = [POLICY.judge_address(one.address) for one in decision.verdict.endpoints]
    assert all(one is not None and not one.refusal_clause for one in judge_address)


@thorough
@given(situations)
def test_a_second_decision_writes_nothing(found: MirrorSituation) -> None:
    """After the first decision was carried out and nothing else changed, the second plan is empty."""
    first = decide_mirrored_service(found)
    if first.kind is not SHOWS:
        return
    service: Any = copy.deepcopy(first.service)
    if service:
        service["metadata"]["uid"] = "uid-new"
    owner = OWNER if service is None else owner_reference(service)
    slices = written(first.slice_plan(found, owner), found.slices)
    second = replace(
        found,
        service=service,
        slices=slices,
        current_endpoints=endpoints_in_slices(slices),
        held_since_by_id=found.held_since_by_id if found.is_eureka_silent else first.verdict.held_since_by_id,
        mirror_with_service_name="legacy" if service else found.mirror_with_service_name,
        is_released=False,
    )
    again = decide_mirrored_service(second)
    assert (again.must_replace_service, again.must_write_slices_first) == (False, False)
    plan = again.slice_plan(second, owner)
    assert not plan, plan
