"""Endpoints of a mirrored application's instances, and those kept for instances that vanished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, ServicePort
from eurekube_provider.core.mirror_conditions import (
    MIRROR_REMEDIES,
    MirrorCondition,
    MirroredServiceCounts,
    MirrorReport,
    merge_problems_by_reason,
)
from eurekube_provider.core.mirror_endpoints import (
    EndpointGroup,
    HostLookup,
    MappedEndpoints,
    MirrorEndpoint,
    mirrored_endpoints,
    with_service_port_names,
)
from eurekube_provider.core.mirror_guard import (
    MIRROR_BRAKE_SECONDS,
    find_unlisted_ids,
    guard_endpoints,
    removes_too_many,
)
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.networks import describe_ambiguous_address, parse_networks
from eurekube_provider.core.problem import Problem

MIRROR = Mirror("shop", "legacy", application="REVIEW")
CLUSTER = Cluster("eks", "uid")
POLICY = AddressPolicy(parse_networks(["192.0.2.0/24", "2001:db8::/32"]))
HTTP = EndpointGroup("IPv4", (("http", 8080, ""),))


def instance(number: int = 1, address: str = "", **more: Any) -> Instance:
    """An instance of REVIEW that registered itself."""
    address = address or f"192.0.2.{number}"
    return Instance("REVIEW", f"vm-{number}", address, address, Port(8080), **more)


def mapped(
    *instances: Instance, mirror: Mirror = MIRROR, names: Mapping[str, tuple[str, ...]] | None = None
) -> MappedEndpoints:
    """Map these instances to the mirror's endpoints."""
    lookups = {host: HostLookup(addresses) for host, addresses in (names or {}).items()}
    return mirrored_endpoints(mirror, instances, CLUSTER, POLICY, lookups)


@pytest.mark.parametrize("status", Status)
def test_only_what_is_up_is_ready(status: Status) -> None:
    """Instances of any other status become endpoints that are not ready."""
    (endpoint,) = mapped(instance(status=status)).endpoints
    assert (endpoint.group, endpoint.address, endpoint.instance_id) == (HTTP, "192.0.2.1", "vm-1")
    assert endpoint.is_ready is (status is Status.UP)


def test_https_is_a_port_of_its_own() -> None:
    """An enabled secure port becomes a port named https; an instance without an enabled port is reported
    as NoPort.
    """
    both = instance(secure_port=Port(8443))
    assert mapped(both).endpoints[0].group.ports == (("http", 8080, ""), ("https", 8443, "https"))
    secure = replace(both, port=Port(8080, enabled=False))
    assert mapped(secure).endpoints[0].group.ports == (("https", 8443, "https"),)
    none = mapped(instance(1), replace(instance(2), port=Port(8080, enabled=False)))
    assert [one.instance_id for one in none.endpoints] == ["vm-1"]
    assert [one.reason for one in none.problems] == [MirrorCondition.NO_PORT]


def test_what_no_request_can_name_is_shown_and_reported() -> None:
    """An instance whose id fits into no URL is mirrored; the condition warns that only lists can prove its
    end.
    """
    odd = replace(instance(1), instance_id="a/b", unreadable="no request can name the id 'a/b'")
    found = mapped(odd, instance(2))
    assert [one.instance_id for one in found.endpoints] == ["a/b", "vm-2"]
    assert [(one.reason, one.message) for one in found.problems] == [
        (MirrorCondition.UNREADABLE, "REVIEW a/b is not safe: no request can name the id 'a/b'")
    ]
    assert not MirrorReport(problems=merge_problems_by_reason(found.problems)).synced_condition[0]


def test_an_ambiguous_address_is_not_shown() -> None:
    """An address with leading zeros, which resolvers read differently, is left out and reported once."""
    odd = instance(
        1, "192.0.2.071", unreadable=f"ipAddr '192.0.2.071' {describe_ambiguous_address('192.0.2.071')}"
    )
    found = mapped(odd, instance(2), names={"192.0.2.071": ("192.0.2.57",)})
    assert [one.instance_id for one in found.endpoints] == ["vm-2"]
    assert [one.reason for one in found.problems] == [MirrorCondition.UNREADABLE]
    assert "some read 192.0.2.57" in found.problems[0].message
    (problem,) = mapped(replace(odd, unreadable="")).problems  # as a host's name may resolve to
    assert problem.reason == MirrorCondition.ADDRESS_REFUSED


def test_families_are_kept_apart() -> None:
    """Endpoints of IPv4 and IPv6 go to different slices."""
    found = mapped(instance(1), instance(2, "[2001:db8::2]")).endpoints
    assert [(one.group.family, one.address) for one in found] == [
        ("IPv4", "192.0.2.1"),
        ("IPv6", "2001:db8::2"),
    ]


def test_what_our_syncers_registered_never_comes_back() -> None:
    """Registrations of other clusters' syncers are mirrored only on request, those of stacks always."""
    instances = [
        instance(number, metadata={"eurekube.owner": owner} if owner else {})
        for number, owner in enumerate(
            ["cluster/eks/shop/review", "cluster/gke/shop/review", "stack/acme/p/prod/review", ""], 1
        )
    ]

    def ids(mirror: Mirror) -> list[str]:
        return [one.instance_id for one in mapped(*instances, mirror=mirror).endpoints]

    assert ids(MIRROR) == ["vm-3", "vm-4"]
    assert ids(replace(MIRROR, includes_other_clusters=True)) == ["vm-2", "vm-3", "vm-4"]


def test_another_names_registration_never_comes_back() -> None:
    """A registration with this cluster's UID is its own, under whatever cluster name, and is not mirrored."""
    former = {"eurekube.owner": "cluster/old/shop/review", "eurekube.cluster-uid": CLUSTER.uid}
    others = {**former, "eurekube.cluster-uid": "another"}
    plain = {"eurekube.cluster-uid": CLUSTER.uid}
    instances = [instance(number, metadata=each) for number, each in enumerate((former, others, plain), 1)]
    found = mapped(*instances, mirror=replace(MIRROR, includes_other_clusters=True))
    assert [one.instance_id for one in found.endpoints] == ["vm-2", "vm-3"]


def test_one_bad_instance_keeps_no_other_away() -> None:
    """The report names the bad instance and its fault; the others are mirrored."""
    found = mapped(instance(1), instance(2, "127.0.0.1"), instance(3, "vm-3.example.com"))
    assert [one.instance_id for one in found.endpoints] == ["vm-1"]
    assert [one.reason for one in found.problems] == [
        MirrorCondition.ADDRESS_REFUSED,
        MirrorCondition.UNRESOLVABLE,
    ]
    assert "REVIEW vm-2 is at 127.0.0.1, which is a loopback address" in found.problems[0].message
    assert "REVIEW vm-3 is at 'vm-3.example.com'" in found.problems[1].message
    assert found.is_up_by_unresolved_id == {"vm-3": True}
    (problem,) = mapped(Instance("REVIEW", "vm-4", "", "", Port(8080))).problems
    assert problem.message == "REVIEW vm-4 has no address"


def test_names_become_the_addresses_that_they_resolve_to() -> None:
    """Addresses that a host name resolves to are checked like any other."""
    names = {"vm-1.example.com": ("192.0.2.7", "2001:db8::7", "127.0.0.1")}
    found = mapped(instance(1, "vm-1.example.com"), names=names)
    assert [one.address for one in found.endpoints] == ["192.0.2.7", "2001:db8::7"]
    assert [one.reason for one in found.problems] == [MirrorCondition.ADDRESS_REFUSED]


def test_two_registrations_at_one_address_are_one_endpoint() -> None:
    """The endpoint is ready if one of the two instances is UP."""
    down = instance(1, "192.0.2.1", status=Status.DOWN)
    up = instance(2, "192.0.2.1")
    (endpoint,) = mapped(down, up).endpoints
    assert (endpoint.instance_id, endpoint.is_ready) == ("vm-2", True)


def test_a_registration_that_is_down_hides_no_other_at_its_address_and_port() -> None:
    """Of two slices with one address and port kube-proxy takes the readiness of either: what is not ready is
    left out where a registration with further ports is UP; at another port it stays.
    """
    both = replace(instance(2, "192.0.2.1"), secure_port=Port(8443))
    found = mapped(instance(1, status=Status.DOWN), both)
    assert [(one.instance_id, one.is_ready) for one in found.endpoints] == [("vm-2", True)]
    found = mapped(replace(instance(1, status=Status.DOWN), port=Port(8081)), both)
    assert [(one.instance_id, one.is_ready) for one in found.endpoints] == [("vm-1", False), ("vm-2", True)]


def test_zones_are_those_of_the_nodes() -> None:
    """``spec.zones`` maps an instance's zone to one of the nodes; an unmapped zone is left out."""
    zoned = replace(MIRROR, zones={"dc1": "eu-1a"})
    found = mapped(instance(1, metadata={"zone": "dc1"}), instance(2, metadata={"zone": "dc2"}), mirror=zoned)
    assert [one.zone for one in found.endpoints] == ["eu-1a", ""]


def test_ports_are_named_as_the_service_that_they_join() -> None:
    """Attached slices use the name of the Service's only port."""
    assert with_service_port_names([{"name": "web", "port": 80}], MIRROR).port == ServicePort("web", 80)
    assert with_service_port_names([{"port": 80}], MIRROR).port == ServicePort("", 80)
    for ports in ([{"name": "web"}, {"name": "admin"}], [{"name": "http"}], [{"name": "https"}]):
        assert with_service_port_names(ports, MIRROR) == MIRROR


def test_callers_of_port_443_get_to_the_secure_port() -> None:
    """Where the Service's only port is 443, an instance is called at its secure port if it has one."""
    mirror = with_service_port_names([{"port": 443}], MIRROR)
    both, plain = mapped(instance(1, secure_port=Port(8443)), instance(2), mirror=mirror).endpoints
    assert both.group.ports == (("", 8443, "https"),)
    assert plain.group.ports == (("", 8080, ""),)


def shown(number: int, **more: Any) -> MirrorEndpoint:
    """Return an endpoint that is in a slice already."""
    return MirrorEndpoint(HTTP, f"192.0.2.{number}", f"vm-{number}", **{"is_ready": True, **more})


def gone(*numbers: int) -> UnlistedInstances:
    """Return servers' answers by which these instances are proved to have left."""
    return UnlistedInstances(gone=frozenset(("RATING", f"vm-{one}") for one in numbers))


def test_what_vanishes_waits_for_its_proof() -> None:
    """The endpoint of a vanished instance is held, and goes at once when its end is proved."""
    listed = mapped(instance(1))
    verdict = guard_endpoints(listed, [shown(1), shown(2)], gone(), {}, 100.0, 300.0)
    assert [one.instance_id for one in verdict.endpoints] == ["vm-1", "vm-2"]
    assert (verdict.held_since_by_id, verdict.expired_ids) == ({"vm-2": 100.0}, ())
    verdict = guard_endpoints(listed, [shown(1), shown(2)], gone(2), verdict.held_since_by_id, 101.0, 300.0)
    assert [one.instance_id for one in verdict.endpoints] == ["vm-1"]
    assert (verdict.held_since_by_id, verdict.expired_ids) == ({}, ())


def test_nothing_waits_for_ever() -> None:
    """A held endpoint goes after the hold time, and is named as expired."""
    nothing, since = gone(), {"vm-1": 100.0}
    there, listed = [shown(1), shown(2)], mapped(instance(2))
    verdict = guard_endpoints(listed, there, nothing, since, 399.9, 300.0)
    assert verdict.held_since_by_id == {"vm-1": 100.0}
    verdict = guard_endpoints(listed, there, nothing, since, 400.0, 300.0)
    assert ([one.instance_id for one in verdict.endpoints], verdict.held_since_by_id) == (["vm-2"], {})
    assert verdict.expired_ids == ("vm-1",)


def test_what_is_not_called_need_not_wait() -> None:
    """An unready endpoint goes without proof; a listed instance that is DOWN becomes unready at once."""
    assert guard_endpoints(mapped(), [shown(1, is_ready=False)], gone(), {}, 0.0, 300.0).endpoints == ()
    down = mapped(instance(1, status=Status.DOWN))
    (endpoint,) = guard_endpoints(down, [shown(1)], gone(), {}, 0.0, 300.0).endpoints
    assert not endpoint.is_ready


def test_an_instance_that_moved_leaves_its_old_address() -> None:
    """A listed instance's former address goes without a wait."""
    verdict = guard_endpoints(mapped(instance(1, "192.0.2.99")), [shown(1)], gone(), {}, 0.0, 300.0)
    assert [one.address for one in verdict.endpoints] == ["192.0.2.99"]


def test_a_name_that_cannot_be_resolved_keeps_its_addresses() -> None:
    """The addresses are taken from the slices, so that they survive a restart; the status is Eureka's."""
    for status in (Status.UP, Status.DOWN):
        listed = mapped(instance(1, "vm-1.example.com", status=status))
        (endpoint,) = guard_endpoints(listed, [shown(1)], gone(), {}, 0.0, 300.0).endpoints
        assert (endpoint.address, endpoint.is_ready) == ("192.0.2.1", status is Status.UP)


def test_proof_is_asked_for_what_is_called_and_not_listed() -> None:
    """Each instance with a ready endpoint that is missing from the list is asked about once."""
    there = [shown(1), shown(2), replace(shown(2), address="192.0.2.22"), shown(3, is_ready=False)]
    assert find_unlisted_ids(there, {"vm-1"}) == ["vm-2"]


_numbers = st.sets(st.integers(1, 12))


@given(_numbers, _numbers, _numbers, st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_nothing_is_removed_without_proof_before_its_time(
    standing: set[int], listed: set[int], ended: set[int], steps: list[int]
) -> None:
    """Repeated reconciles keep an unproved endpoint for the hold time, or longer if most instances are
    missing, and no longer.
    """
    ended -= listed
    there = [shown(number) for number in sorted(standing)]
    held: Mapping[str, float] = {}
    began, now = 0.0, 0.0
    for step in steps:
        now += step
        verdict = guard_endpoints(mapped(*map(instance, listed)), there, gone(*ended), held, now, 300.0)
        ids = {one.instance_id for one in verdict.endpoints}
        assert ids >= {f"vm-{one}" for one in listed}
        assert not ids & {f"vm-{one}" for one in ended}
        unproved = {f"vm-{one}" for one in standing - listed - ended}
        if step == steps[0] and now == step:
            began = now
        is_braked = removes_too_many(len(unproved), len(unproved | {f"vm-{one}" for one in listed}))
        if now - began < (MIRROR_BRAKE_SECONDS if is_braked else 300.0):
            assert unproved <= ids
        else:
            assert not unproved & ids
        there, held = list(verdict.endpoints), verdict.held_since_by_id


def test_a_report_says_what_is_wrong_first() -> None:
    """Ready is True if callers reach each Service, Synced if the endpoints match Eureka."""
    some = (
        MirroredServiceCounts("A", "a", endpoints=2, ready=1),
        MirroredServiceCounts("B", "b", endpoints=1),
    )
    report = MirrorReport(
        some, merge_problems_by_reason([Problem(MirrorCondition.UNRESOLVABLE, f"x{n}") for n in range(5)])
    )
    unresolvable = Problem("Unresolvable", "x0; x1; x2; and 2 more", MIRROR_REMEDIES["Unresolvable"])
    assert report.problems == {"Unresolvable": unresolvable}
    assert report.synced_condition == (False, unresolvable)
    remedy = MIRROR_REMEDIES["NoneReady"]
    assert report.ready_condition == (False, Problem("NoneReady", "no endpoint is ready of b", remedy))
    is_ready, said = MirrorReport(some[:1]).ready_condition
    assert (is_ready, said.reason, said.remedy) == (True, "EndpointsReady", "")
    assert MirrorReport().synced_condition[0]
    assert MirrorReport().ready_condition == (
        False,
        Problem("NoneReady", "no application is mirrored", remedy),
    )
    failed = MirrorReport(failure=Problem("KubernetesError", "it broke"))
    remedy = MIRROR_REMEDIES["KubernetesError"]
    assert (
        failed.synced_condition
        == failed.ready_condition
        == (
            False,
            Problem("KubernetesError", "it broke", remedy),
        )
    )
