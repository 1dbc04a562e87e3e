"""Instances whose pod is gone, since another pod has its address by the EndpointSlices."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.endpoint_presence import find_address_takers
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.objects import Object

READY, NOT_READY, TERMINATING = {"ready": True}, {"ready": False}, {"ready": False, "terminating": True}


def held(name: str = "a-1") -> Instance:
    """Return an instance of a syncer in the namespace ``shop``, at 10.0.0.1."""
    return Instance("RATING", f"{name}.shop.lab:rating:8080", "10.0.0.1", "10.0.0.1", Port(8080))


def slice_of(service: str, namespace: str, *endpoints: tuple[str, str, dict[str, bool]]) -> Object:
    """Return an EndpointSlice with endpoints given by pod, address and conditions; an empty name means no
    pod.
    """
    made: list[dict[str, Any]] = [
        {
            "addresses": [address],
            "conditions": conditions,
            **({"targetRef": {"kind": "Pod", "name": pod}} if pod else {}),
        }
        for pod, address, conditions in endpoints
    ]
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"namespace": namespace, "name": f"{service}-x", "labels": labels},
        "endpoints": made,
    }


OTHERS = slice_of("orders", "other", ("o-1", "10.0.0.1", READY))
CASES: dict[str, tuple[list[Object], bool]] = {
    "a ready pod of another Service": ([OTHERS], True),
    "in two of its Services": ([OTHERS, slice_of("orders-2", "other", ("o-1", "10.0.0.1", NOT_READY))], True),
    "beside what terminates": ([OTHERS, slice_of("x", "shop", ("a-1", "10.0.0.1", TERMINATING))], True),
    "a pod that is not ready": ([slice_of("orders", "other", ("o-1", "10.0.0.1", NOT_READY))], False),
    "a pod that terminates": ([slice_of("orders", "other", ("o-1", "10.0.0.1", TERMINATING))], False),
    "another address": ([slice_of("orders", "other", ("o-1", "10.0.0.2", READY))], False),
    "two live endpoints share it": ([OTHERS, slice_of("x", "other", ("x-1", "10.0.0.1", READY))], False),
    "its own endpoint shares it": ([OTHERS, slice_of("x", "shop", ("a-1", "10.0.0.1", NOT_READY))], False),
    "an endpoint without a pod shares it": ([OTHERS, slice_of("x", "other", ("", "10.0.0.1", READY))], False),
    "an endpoint without a pod": ([slice_of("x", "other", ("", "10.0.0.1", READY))], False),
    "its own pod": ([slice_of("rating", "shop", ("a-1", "10.0.0.1", READY))], False),
    "a sibling, which serves its callers": ([slice_of("rating", "shop", ("a-2", "10.0.0.1", READY))], False),
    "a pod of its name in another namespace": ([slice_of("r", "other", ("a-1", "10.0.0.1", READY))], True),
}


@pytest.mark.parametrize("described", CASES)
def test_an_address_that_another_pod_has_by_now(described: str) -> None:
    """Another pod at the address proves that the instance's pod is gone, unless two live endpoints share
    the address.
    """
    slices, is_taken = CASES[described]
    own = [one for one in slices if one["metadata"]["name"] == "rating-x"]
    place = (
        next(
            ((one["metadata"]["namespace"], one["endpoints"][0]["targetRef"]["name"]) for one in slices), None
        )
        if is_taken
        else None
    )
    found = find_address_takers([held()], own, slices)
    assert found == ({held().instance_id: place} if is_taken else {})


@pytest.mark.parametrize("name", ["10.0.0.1", "rating.svc"])
def test_what_is_no_pod_has_no_address_to_lose(name: str) -> None:
    """An instance of a hand-written endpoint or of a whole Service is never found gone."""
    assert find_address_takers([held(name)], [], [OTHERS]) == {}
