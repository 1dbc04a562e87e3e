"""The plan of a mirrored Service's EndpointSlices: correct, with as few writes as possible."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from eurekube_provider.core.mirror_endpoints import EndpointGroup, MirrorEndpoint
from eurekube_provider.core.mirror_slices import (
    MAX_ENDPOINTS_PER_SLICE,
    SliceMetadata,
    SlicePlan,
    endpoints_in_slices,
    plan_slices,
    slice_group,
)
from eurekube_provider.core.objects import MIRROR_SLICE_MANAGER, SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL

Slices = dict[str, dict[str, Any]]

OWNER = SliceMetadata(
    "shop",
    "review",
    {SERVICE_NAME_LABEL: "review", SLICE_MANAGED_BY_LABEL: MIRROR_SLICE_MANAGER},
    {"eurekube.io/application": "REVIEW"},
    {"apiVersion": "v1", "kind": "Service", "name": "review", "uid": "u-1"},
)
GROUPS = [
    EndpointGroup(family, ((name, port, ""),))
    for family in ("IPv4", "IPv6")
    for name, port in (("http", 8080), ("http", 9090))
]
HTTP = GROUPS[0]


def endpoint(number: int, group: EndpointGroup = HTTP, **more: Any) -> MirrorEndpoint:
    """Return the endpoint of the instance with this number."""
    four = f"192.0.{number // 256}.{number % 256}"
    address = four if group.family == "IPv4" else f"2001:db8::{number:x}"
    return MirrorEndpoint(group, address, f"vm-{number}", **{"is_ready": True, **more})


def carried_out(plan: SlicePlan, standing: Slices) -> Slices:
    """Return the slices after the writes of a plan, with the API server's checks."""
    slices = copy.deepcopy(standing)
    for one in plan.creations:
        assert one["metadata"]["name"] not in slices
        slices[one["metadata"]["name"]] = one
    for one in plan.updates:
        before = slices[one["metadata"]["name"]]
        assert (before["addressType"], before["ports"]) == (one["addressType"], one["ports"])
        slices[one["metadata"]["name"]] = one
    for gone in plan.deletions:
        del slices[gone["metadata"]["name"]]
    return slices


def plan_and_carry_out(
    wanted: Iterable[MirrorEndpoint], standing: Slices | None = None
) -> tuple[SlicePlan, Slices]:
    """Plan slices for these endpoints; return the plan and the slices after it."""
    plan = plan_slices(OWNER, wanted, list((standing or {}).values()))
    return plan, carried_out(plan, standing or {})


def test_a_slice_says_all_that_kubernetes_reads() -> None:
    """An endpoint that is not UP is neither serving nor terminating, since kube-proxy falls back to
    endpoints that are both.
    """
    _, slices = plan_and_carry_out([endpoint(1), endpoint(2, is_ready=False)])
    (one,) = slices.values()
    assert one["addressType"] == "IPv4"
    assert one["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert one["metadata"]["labels"] == dict(OWNER.labels)
    assert one["metadata"]["ownerReferences"] == [dict(OWNER.owner_reference)]
    assert one["endpoints"] == [
        {
            "addresses": [f"192.0.0.{number}"],
            "conditions": {"ready": ready, "serving": ready, "terminating": False},
            "targetRef": {"kind": "EurekaInstance", "name": f"vm-{number}"},
        }
        for number, ready in ((1, True), (2, False))
    ]


def test_hints_are_on_every_ready_endpoint_or_on_none() -> None:
    """If one ready endpoint lacks hints, kube-proxy ignores all of them and logs that at each change."""
    _, slices = plan_and_carry_out(
        [endpoint(1, zone="a"), endpoint(2, zone="b"), endpoint(3, is_ready=False)]
    )
    (one,) = slices.values()
    assert [each.get("hints") for each in one["endpoints"]] == [
        {"forZones": [{"name": "a"}]},
        {"forZones": [{"name": "b"}]},
        None,
    ]
    _, slices = plan_and_carry_out([endpoint(1, zone="a"), endpoint(2)])
    (one,) = slices.values()
    assert [(each.get("zone"), each.get("hints")) for each in one["endpoints"]] == [("a", None), (None, None)]


def test_names_are_counted_and_repeat_themselves() -> None:
    """Slice names follow from a count, so that a restarted process recognizes a slice it has created."""
    plan, slices = plan_and_carry_out(map(endpoint, range(250)))
    again, _ = plan_and_carry_out(map(endpoint, range(250)))
    assert [one["metadata"]["name"] for one in plan.creations] == list(slices)
    assert plan == again
    assert [len(one["endpoints"]) for one in plan.creations] == [100, 100, 50]
    stem = next(iter(slices))[:-1]
    assert list(slices) == [f"{stem}{number}" for number in range(3)]
    assert stem.startswith("review-")


def test_changed_slices_are_filled_before_others_are_touched() -> None:
    """New endpoints go into slices that change anyway, since each write reaches every node."""
    _, slices = plan_and_carry_out(map(endpoint, range(300)))
    wanted = [endpoint(number) for number in range(300) if number not in (5, 105)]
    plan, after = plan_and_carry_out([*wanted, endpoint(1000), endpoint(1001)], slices)
    assert (len(plan.creations), len(plan.updates), len(plan.deletions)) == (0, 2, 0)
    assert sorted(len(one["endpoints"]) for one in after.values()) == [100, 100, 100]


def test_an_empty_slice_goes_unless_it_is_needed() -> None:
    """An emptied slice is refilled if there are new endpoints, which takes one write instead of two."""
    _, slices = plan_and_carry_out([endpoint(1)])
    plan, after = plan_and_carry_out([endpoint(2)], slices)
    assert (len(plan.updates), len(plan), len(after)) == (1, 1, 1)
    plan, after = plan_and_carry_out([], slices)
    assert (len(plan.deletions), len(plan), after) == (1, 1, {})


def test_another_port_is_another_slice_under_the_same_name() -> None:
    """A slice has one set of ports: the slice of the new port is created before the old one is deleted."""
    _, slices = plan_and_carry_out([endpoint(1)])
    plan, after = plan_and_carry_out([endpoint(1, GROUPS[1])], slices)
    assert (len(plan.creations), len(plan.deletions)) == (1, 1)
    (one,) = after.values()
    assert one["ports"][0] == {"name": "http", "port": 9090, "protocol": "TCP"}


def test_a_slice_that_somebody_emptied_is_filled_again() -> None:
    """A slice whose endpoints somebody removed gets them back, although it has no other fault."""
    _, slices = plan_and_carry_out([endpoint(1)])
    (one,) = slices.values()
    one["endpoints"] = []
    plan, after = plan_and_carry_out([endpoint(1)], slices)
    assert (len(plan.updates), len(plan)) == (1, 1)
    assert endpoints_in_slices(after.values()) == [endpoint(1)]


def test_what_somebody_changed_is_put_right() -> None:
    """The mirror restores labels, ports and endpoints, and keeps labels that others added."""
    _, slices = plan_and_carry_out([endpoint(1)])
    (one,) = slices.values()
    one["metadata"]["labels"]["team"] = "a"
    one["metadata"]["resourceVersion"] = "7"
    assert len(plan_and_carry_out([endpoint(1)], slices)[0]) == 0
    one["metadata"]["labels"].pop(SERVICE_NAME_LABEL)
    plan, _ = plan_and_carry_out([endpoint(1)], slices)
    (update,) = plan.updates
    assert update["metadata"]["labels"] == {**OWNER.labels, "team": "a"}
    assert update["metadata"]["resourceVersion"] == "7"
    one["endpoints"] += [{"addresses": ["192.0.2.66"]}]
    assert len(plan_and_carry_out([endpoint(1)], slices)[0].updates) == 1
    one["ports"][0]["port"] = 22
    plan, after = plan_and_carry_out([endpoint(1)], slices)
    assert (len(plan.creations), len(plan.deletions)) == (1, 1)
    assert endpoints_in_slices(after.values()) == [endpoint(1)]


_endpoints = st.dictionaries(
    st.tuples(st.integers(1, 330), st.sampled_from(GROUPS)),
    st.tuples(st.booleans(), st.sampled_from(["", "a", "b"])),
    max_size=330,
).map(
    lambda found: [
        endpoint(number, group, is_ready=ready, zone=zone) for (number, group), (ready, zone) in found.items()
    ]
)


@st.composite
def _large(draw: st.DrawFn) -> list[MirrorEndpoint]:
    """Draw many endpoints of one group, so that slices are full."""
    numbers = draw(st.sets(st.integers(1, 450), max_size=20))
    upto = draw(st.integers(0, 350))
    return [endpoint(number) for number in range(1, upto) if number not in numbers]


_wanted = _endpoints | _large()


@settings(deadline=None)
@given(st.lists(_wanted, min_size=1, max_size=4))
def test_the_slices_become_what_is_wanted(steps: list[list[MirrorEndpoint]]) -> None:
    """One plan yields exactly the wanted endpoints, at most 100 in a slice and one family in each; a
    second plan is empty.
    """
    slices: Slices = {}
    for wanted in steps:
        plan, slices = plan_and_carry_out(wanted, slices)
        found = endpoints_in_slices(slices.values())
        assert len(found) == len(wanted)
        assert set(found) == set(wanted)
        for one in slices.values():
            assert 1 <= len(one["endpoints"]) <= MAX_ENDPOINTS_PER_SLICE
            versions = {":" in each["addresses"][0] for each in one["endpoints"]}
            assert versions == {one["addressType"] == "IPv6"}
        assert len(plan_and_carry_out(wanted, slices)[0]) == 0
        written = [one["metadata"]["name"] for one in (*plan.creations, *plan.updates, *plan.deletions)]
        assert len(written) == len(set(written))


def _emptied(one: dict[str, Any]) -> None:
    one["endpoints"] = []


def _without_its_first(one: dict[str, Any]) -> None:
    del one["endpoints"][:1]


def _doubled(one: dict[str, Any]) -> None:
    one["endpoints"] = [*one["endpoints"], *one["endpoints"]]


def _with_a_strangers(one: dict[str, Any]) -> None:
    stranger = "203.0.113.9" if one["addressType"] == "IPv4" else "2001:db8:ffff::9"
    one["endpoints"] = [*one["endpoints"], {"addresses": [stranger]}]


def _all_ready(one: dict[str, Any]) -> None:
    one["endpoints"] = [{"addresses": each["addresses"]} for each in one["endpoints"]]


def _without_labels(one: dict[str, Any]) -> None:
    one["metadata"]["labels"] = {}


def _orphaned(one: dict[str, Any]) -> None:
    one["metadata"].pop("ownerReferences", None)


def _by_udp(one: dict[str, Any]) -> None:
    for port in one["ports"]:
        port["protocol"] = "UDP"


@settings(deadline=None)
@given(
    _wanted,
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(
                [
                    _emptied,
                    _without_its_first,
                    _doubled,
                    _with_a_strangers,
                    _all_ready,
                    _without_labels,
                    _orphaned,
                    _by_udp,
                ]
            ),
        ),
        max_size=5,
    ),
)
def test_whatever_somebody_does_to_the_slices_is_put_right(
    wanted: list[MirrorEndpoint], acts: list[tuple[int, Callable[[dict[str, Any]], None]]]
) -> None:
    """One plan repairs any change to the slices, and a second plan is empty."""
    _, slices = plan_and_carry_out(wanted)
    right = copy.deepcopy(slices)
    for number, act in acts if slices else ():
        act(list(slices.values())[number % len(slices)])
    _, after = plan_and_carry_out(wanted, slices)
    found = endpoints_in_slices(after.values())
    assert (len(found), set(found)) == (len(wanted), set(wanted))
    for one in after.values():
        assert {port["protocol"] for port in one["ports"]} == {"TCP"}
        assert OWNER.labels.items() <= one["metadata"]["labels"].items()
        assert one["metadata"]["ownerReferences"] == [OWNER.owner_reference]
    assert len(plan_and_carry_out(wanted, after)[0]) == 0
    if slices == right:
        assert after == right


@settings(deadline=None)
@given(_wanted, _wanted)
def test_only_slices_that_must_change_are_written(
    before: list[MirrorEndpoint], after: list[MirrorEndpoint]
) -> None:
    """Slices that lose or change an endpoint are written; for new endpoints only as many more as they
    need.
    """
    has_zone_hints = [all(one.zone for one in each if one.is_ready) for each in (before, after)]
    _, slices = plan_and_carry_out(before)
    plan, _ = plan_and_carry_out(after, slices)
    if has_zone_hints[0] != has_zone_hints[1]:
        return  # then every endpoint changes
    stays = {(one.group, one.address): one for one in after}
    places = {(one.group, one.address) for one in before}
    for group in {slice_group(one) for one in slices.values()} | {one.group for one in after}:
        mine = [one for one in slices.values() if slice_group(one) == group]
        must = [
            one
            for one in mine
            if any(stays.get((each.group, each.address)) != each for each in endpoints_in_slices([one]))
        ]
        news = sum(one.group == group and (one.group, one.address) not in places for one in after)
        room = sum(
            MAX_ENDPOINTS_PER_SLICE
            - sum((each.group, each.address) in stays for each in endpoints_in_slices([one]))
            for one in must
        )
        more = math.ceil(max(0, news - room) / MAX_ENDPOINTS_PER_SLICE)
        written = [
            one for one in (*plan.creations, *plan.updates, *plan.deletions) if slice_group(one) == group
        ]
        assert len(written) <= len(must) + more
