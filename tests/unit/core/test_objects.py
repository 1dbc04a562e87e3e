"""Objects that a mirror made, which no syncer or stack of Eurekube registers."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mapping import desired_instances
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
    is_mirrored,
    service_name_of_slice,
)
from eurekube_provider.core.syncer import Mode, Selector, Syncer
from eurekube_provider.operator.index import ServiceIndex
from eurekube_provider.operator.watches import trim_service, trim_slice
from eurekube_provider.registrations.discovered import map_endpoints

Object = dict[str, Any]
OURS = {SLICE_MANAGED_BY_LABEL: MIRROR_SLICE_MANAGER}


def service(**labels: str) -> Object:
    """Return the Service ``review`` with a port."""
    spec = {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    return {"metadata": {"namespace": "shop", "name": "review", "labels": labels}, "spec": spec}


def endpoint_slice(address: str, name: str = "review-1", **labels: str) -> Object:
    """Return a slice of the Service ``review`` with one endpoint."""
    return {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "labels": {SERVICE_NAME_LABEL: "review", **labels},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }


def registered(mode: Mode, services: list[Object], slices: list[Object]) -> list[str]:
    """Return the addresses that the syncer ``review`` registers for these Services and slices."""
    index = ServiceIndex()
    for one in services:
        index.update_service(None, trim_service(one))
    for one in slices:
        index.update_slice(None, trim_slice(one))
    syncer = Syncer("shop", "review", mode, Selector("shop", "review"), "review")
    desired = desired_instances(syncer, *index.services_and_slices(syncer.selector), Cluster("eks", "uid"))
    return [one.ip_address for one in desired.instances]


@pytest.mark.parametrize("mode", Mode)
def test_a_syncer_registers_no_mirrored_service(mode: Mode) -> None:
    """A mirrored Service of the selected name is skipped: registered again, its instances would stay in
    Eureka for ever.
    """
    mirrored = service(**{MIRROR_LABEL: "review"})
    assert registered(mode, [mirrored], [endpoint_slice("192.0.2.1", **OURS)]) == []
    assert registered(mode, [service()], [endpoint_slice("192.0.2.1")]) != []


def test_a_syncer_registers_the_pods_beside_a_mirrors_slices() -> None:
    """In a Service to which a mirror adds slices, the syncer registers the pods only."""
    slices = [endpoint_slice("10.0.0.1"), endpoint_slice("192.0.2.1", "review-m-1", **OURS)]
    assert registered(Mode.POD, [service()], slices) == ["10.0.0.1"]


def test_a_mirrors_slice_is_of_no_service() -> None:
    """A mirror's slice counts as none of the Service, and its endpoints are not kept in memory for
    syncers.
    """
    ours = endpoint_slice("192.0.2.1", **OURS)
    assert (is_mirrored(ours), service_name_of_slice(ours)) == (True, None)
    assert trim_slice(ours)["endpoints"] == []
    others = endpoint_slice("10.0.0.1")
    assert (is_mirrored(others), service_name_of_slice(others)) == (False, "review")


def test_a_lookup_of_endpoints_leaves_a_mirrors_out() -> None:
    """A stack that registers looked-up endpoints must not register instances that Eureka already has."""
    slices = [endpoint_slice("10.0.0.1"), endpoint_slice("192.0.2.1", **OURS)]
    assert [one.address for one in map_endpoints(slices)] == ["10.0.0.1"]
