"""Pairs of endpoints and instances."""

from __future__ import annotations

from eurekube_provider.comparison.pairs import EndpointInstancePair, pair_endpoints_with_instances
from eurekube_provider.core.model import Status
from tests.unit.comparison.samples import endpoint_slice, instance


def test_what_does_not_agree_comes_first() -> None:
    """Pairs that disagree in presence, status or manager come before those that agree."""
    slices = [endpoint_slice("rating", True, False, True, True, None)]
    mine = [instance("rating", 0), instance("rating", 1), instance("rating", 8)]
    other = instance("rating", 3, owner=None, instance_id="vm")
    found = pair_endpoints_with_instances(slices, mine, {other.ip_address: (other, "itself")})
    assert [(one.endpoint, one.endpoint_state, one.status, one.manager, one.agrees) for one in found] == [
        ("rating-1", "not ready", "UP", "", False),
        ("rating-2", "ready", "", "", False),
        ("rating-3", "ready", "UP", "itself", False),
        ("rating-4", "terminating", "", "", False),
        ("", "", "UP", "", False),
        ("rating-0", "ready", "UP", "", True),
    ]


def test_an_endpoint_of_two_slices_is_one() -> None:
    """An endpoint in two slices, as while slices are rearranged, is one pair."""
    slices = [endpoint_slice("rating", True), endpoint_slice("rating", True)]
    (pair,) = pair_endpoints_with_instances(slices, [instance("rating")], {})
    assert pair.agrees


def test_what_is_not_ready_and_not_up_agrees() -> None:
    """An endpoint that is not ready agrees with an instance that is not UP."""
    (pair,) = pair_endpoints_with_instances(
        [endpoint_slice("rating", False)], [instance("rating", 0, Status.DOWN)], {}
    )
    assert pair.agrees
    assert pair.to_dict()["agrees"] is True
    assert not EndpointInstancePair("10.0.0.1", "p", "ready").agrees
