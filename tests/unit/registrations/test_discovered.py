"""Results of lookups, made from a cluster's answers."""

from __future__ import annotations

from typing import Any

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.registrations.discovered import (
    FoundEndpoint,
    FoundEndpoints,
    map_endpoints,
    to_found_instance,
)


def test_endpoints_of_slices() -> None:
    """An endpoint is named after its pod, or else its address; its ports are named, and unknown readiness
    counts as ready.
    """
    slices: list[dict[str, Any]] = [
        {
            "ports": [{"name": "http", "port": 8080}, {"name": "broken"}],
            "endpoints": [
                {
                    "addresses": ["10.0.0.1"],
                    "conditions": {"ready": True},
                    "targetRef": {"kind": "Pod", "name": "rating-1"},
                    "zone": "zone-a",
                    "nodeName": "node-1",
                },
                {"addresses": ["10.0.0.2"], "conditions": {"ready": False, "terminating": True}},
            ],
        },
        {"ports": None, "endpoints": None},
    ]
    ports = {"http": 8080}
    assert map_endpoints(slices) == [
        FoundEndpoint("rating-1", "10.0.0.1", ports, True, False, "zone-a", "node-1"),
        FoundEndpoint("10.0.0.2", "10.0.0.2", ports, False, True, "", ""),
    ]
    other = [{"addressType": "IPv6", "endpoints": [{**slices[0]["endpoints"][0], "addresses": ["fd00::1"]}]}]
    for both in (other + slices, slices + other):
        assert [each.address for each in map_endpoints(both)] == ["10.0.0.1", "10.0.0.2"]
    assert [each.address for each in map_endpoints(other)] == ["fd00::1"]
    found = FoundEndpoints("shop", "rating", tuple(map_endpoints(slices)))
    assert [each.name for each in found.ready] == ["rating-1"]


def test_a_found_instance_has_characters_alone() -> None:
    """Half a surrogate pair, which Eureka hands on, becomes a question mark: Pulumi could not send it."""
    half = "a\ud800"
    found = to_found_instance(Instance("OLD", half, half, half, Port(8080), metadata={half: half}))
    assert (found.instance_id, found.host_name, dict(found.metadata)) == ("a?", "a?", {"a?": "a?"})
