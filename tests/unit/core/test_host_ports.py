"""Pods that are registered at their nodes' addresses, with the host ports of their containers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.host_ports import PodOnHost
from eurekube_provider.core.mapping import DesiredInstances, desired_instances, registered_without_address
from eurekube_provider.core.model import Status
from eurekube_provider.core.syncer import Advertise, Mode, Syncer
from tests.unit.core.test_mapping import CLUSTER, HTTP, endpoint, endpoint_slice, service, syncer

Object = dict[str, Any]
ADMIN = {"name": "admin", "port": 9090, "protocol": "TCP"}


def pod(address: str = "10.0.0.1", *ports: Object, host: str = "192.0.2.1", **spec: Any) -> PodOnHost:
    """Return a pod on a node; its container has the host port 30080 for the port 8080 unless others are
    given.
    """
    given = list(ports or ({"containerPort": 8080, "hostPort": 30080, "protocol": "TCP"},))
    hosts = [{"ip": host}, {"ip": "203.0.113.1"}, {"ip": "2001:db8::1"}]
    status = {"podIP": address, "podIPs": [{"ip": address}], "hostIP": host, "hostIPs": hosts}
    return PodOnHost.of({"spec": {"containers": [{"ports": given}], **spec}, "status": status})


def mapped(slices: list[Object], known: dict[str, PodOnHost] | None, **fields: Any) -> DesiredInstances:
    """Map slices for a syncer that registers host ports; None for pods that were not read."""
    return desired_instances(
        syncer(advertise=Advertise.HOST_PORT, **fields),
        [service()],
        slices,
        CLUSTER,
        find_pod=(lambda name, address: there.if_at_address(address) if (there := known.get(name)) else None)
        if known is not None
        else None,
    )


def one(**conditions: bool) -> Object:
    """Return a slice with the pod ``a`` at 10.0.0.1."""
    return endpoint_slice(endpoint("10.0.0.1", "a", "zone-a", **(conditions or {"ready": True})))


def test_a_pod_is_registered_at_its_node() -> None:
    """The instance has the node's address and the host port, in its id, its URLs and its port."""
    (found,) = mapped([one()], {"a": pod()}, health_check_path="/health").instances
    assert (found.ip_address, found.host_name, found.port.number) == ("192.0.2.1", "192.0.2.1", 30080)
    assert found.instance_id == "a.shop.eks:rating:30080"
    assert found.health_check_url == "http://192.0.2.1:30080/health"
    assert (found.status, found.metadata["zone"]) == (Status.UP, "zone-a")


def test_ports_are_chosen_by_the_pods_numbers() -> None:
    """``port`` and ``metadataFromPorts`` name the pod's ports; their host ports are registered."""
    known = {
        "a": pod(
            "10.0.0.1",
            {"containerPort": 8080, "hostPort": 30080},
            {"containerPort": 9090, "hostPort": 30090},
        )
    }
    slices = [endpoint_slice(endpoint("10.0.0.1", "a", ready=True), ports=(HTTP, ADMIN))]
    (found,) = mapped(slices, known, port=9090, metadata_from_ports={"management.port": "http"}).instances
    assert (found.port.number, found.metadata["management.port"]) == (30090, "30080")


@pytest.mark.parametrize(
    ("ports", "spec", "expected"),
    [
        ([{"containerPort": 8080, "hostPort": 80, "hostIP": "0.0.0.0"}], {}, ("192.0.2.1", 80)),
        ([{"containerPort": 8080, "hostPort": 80, "hostIP": "::"}], {}, ("2001:db8::1", 80)),
        ([{"containerPort": 8080, "hostPort": 80, "hostIP": "203.0.113.1"}], {}, ("203.0.113.1", 80)),
        ([{"containerPort": 1}], {"hostNetwork": True}, ("10.0.0.1", 8080)),
        (
            [{"containerPort": 1}],
            {
                "initContainers": [
                    {"restartPolicy": "Always", "ports": [{"containerPort": 8080, "hostPort": 9}]}
                ]
            },
            ("192.0.2.1", 9),
        ),
    ],
    ids=["any address", "any IPv6 address", "one address", "host network", "sidecar"],
)
def test_where_the_node_accepts_calls(ports: list[Object], spec: Object, expected: tuple[str, int]) -> None:
    """A bound host port counts at its own address, a pod in the host network has each port, and sidecars
    count.
    """
    (found,) = mapped([one()], {"a": pod("10.0.0.1", *ports, **spec)}).instances
    assert (found.ip_address, found.port.number) == expected


@pytest.mark.parametrize(
    "ports",
    [
        [{"containerPort": 8080}],
        [{"containerPort": 8080, "hostPort": 80, "protocol": "UDP"}],
        [{"containerPort": 8080, "hostPort": 80, "hostIP": "127.0.0.1"}],
        [{"containerPort": 8080, "hostPort": 80, "hostIP": "::1"}],
        [{"containerPort": 8080, "hostPort": 80, "hostIP": "169.254.169.254"}],
        [{"containerPort": 8080, "hostPort": 80, "hostIP": "198.51.100.9"}],
        [{"containerPort": 8080, "hostPort": 80, "hostIP": "node"}],
        [{"containerPort": 8081, "hostPort": 80}],
    ],
    ids=["none", "UDP", "loopback", "IPv6 loopback", "link-local", "elsewhere", "no address", "another port"],
)
def test_without_a_host_port_nothing_is_registered(ports: list[Object]) -> None:
    """The pod's own address never stands in for a host port, and registered instances are kept in doubt."""
    desired = mapped([one()], {"a": pod("10.0.0.1", *ports)})
    assert desired.instances == ()
    (problem,) = desired.problems
    assert problem.reason == "NoPort"
    assert "port 8080 has no hostPort; the pods' containers must give one" in problem.message
    assert desired.may_be_incomplete


def test_an_init_container_that_ends_has_no_host_port() -> None:
    """Only init containers that run on accept calls."""
    spec: Object = {"initContainers": [{"ports": [{"containerPort": 8080, "hostPort": 9}]}]}
    assert mapped([one()], {"a": pod("10.0.0.1", {"containerPort": 1}, **spec)}).instances == ()


def test_pods_with_and_without_a_host_port() -> None:
    """Pods that lack the host port are counted, and do not hamper the others."""
    slices = [
        endpoint_slice(
            endpoint("10.0.0.1", "a", ready=True),
            endpoint("10.0.0.2", "b", ready=True),
            endpoint("10.0.0.3", ready=True),
            endpoint("10.0.0.4", "d", ready=True),
        )
    ]
    known = {
        "a": pod(),
        "b": pod("10.0.0.2", {"containerPort": 8080}),
        "d": pod("10.0.0.4", {"containerPort": 8080, "hostPort": 30081}, host="192.0.2.4"),
    }
    desired = mapped(slices, known)
    places = {(one.ip_address, one.port.number) for one in desired.instances}
    assert places == {("192.0.2.1", 30080), ("192.0.2.4", 30081)}
    assert desired.left_out_endpoint_sentences == (
        "2 endpoints of Service shop/rating without a hostPort for a TCP port",
    )
    assert not desired.may_be_incomplete


def test_ports_bound_to_several_addresses_are_no_one_instance() -> None:
    """An instance has one address: a port at another address has no host port."""
    ports = (
        {"containerPort": 8080, "hostPort": 80, "hostIP": "203.0.113.1"},
        {"containerPort": 9090, "hostPort": 90, "hostIP": "192.0.2.1"},
    )
    slices = [endpoint_slice(endpoint("10.0.0.1", "a", ready=True), ports=(HTTP, ADMIN))]
    known = {"a": pod("10.0.0.1", *ports)}
    (found,) = mapped(slices, known, port="http", metadata_from_ports={"management.port": "admin"}).instances
    assert (found.ip_address, found.port.number) == ("203.0.113.1", 80)
    assert "management.port" not in found.metadata


def test_dual_stack_nodes() -> None:
    """The node's address is of the endpoint's family."""
    status = {
        "podIP": "fd00::1",
        "hostIP": "192.0.2.1",
        "hostIPs": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}],
    }
    spec = {"containers": [{"ports": [{"containerPort": 8080, "hostPort": 30080}]}]}
    known = {"a": PodOnHost.of({"spec": spec, "status": status})}
    slices = [endpoint_slice(endpoint("fd00::1", "a", ready=True), family="IPv6")]
    (found,) = mapped(slices, known).instances
    assert (found.ip_address, found.host_name) == ("2001:db8::1", "[2001:db8::1]")


@pytest.mark.parametrize(
    "known", [{}, {"a": pod("10.0.0.9", host="192.0.2.9")}], ids=["unknown", "at another address"]
)
@pytest.mark.parametrize(
    ("ready", "held", "status"),
    [
        (True, Status.UP, Status.UP),
        (True, Status.DOWN, Status.DOWN),
        (False, Status.UP, Status.DOWN),
        (False, Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE),
    ],
)
def test_a_pod_that_was_not_read_keeps_its_instance(
    known: dict[str, PodOnHost], ready: bool, held: Status, status: Status
) -> None:
    """An instance stays registered; its status is lowered with the endpoint and never raised, since it may be
    at a node that is gone. Nothing new is registered, and no other pod's instance is touched.
    """
    before, other = mapped(
        [endpoint_slice(endpoint("10.0.0.1", "a", ready=True), endpoint("10.0.0.2", "a.1", ready=True))],
        {"a": pod(), "a.1": pod("10.0.0.2", host="192.0.2.2")},
    ).instances
    desired = mapped([one(ready=ready)], known)
    assert (desired.instances, desired.problems, desired.has_unread_pods) == ((), (), True)
    assert desired.left_out_endpoint_sentences == ("1 pod of Service shop/rating, not read yet",)
    (kept,) = registered_without_address(desired, [replace(before, status=held), other])
    assert (kept.key, kept.ip_address, kept.status) == (before.key, "192.0.2.1", status)


def test_a_pod_that_is_known_elsewhere_keeps_nothing() -> None:
    """A second slice with another address of a pod, as of a second network, changes nothing for the pod."""
    (held,) = mapped([one()], {"a": pod()}).instances
    slices = [one(), endpoint_slice(endpoint("10.9.0.1", "a", ready=False), name="rating-y")]
    desired = mapped(slices, {"a": pod()})
    assert [each.key for each in desired.instances] == [held.key]
    assert (registered_without_address(desired, [held]), desired.has_unread_pods) == ([], False)


def test_a_pod_that_another_service_knows_keeps_nothing() -> None:
    """Of two Services over the same pods, one lists a pod at an address that the pod has not: the other one's
    instance alone counts, also after the pod's host port changed.
    """
    (held,) = mapped([one()], {"a": pod()}).instances
    listed = endpoint_slice(endpoint("10.0.0.1", "a", ready=True), of="plain")
    beside = endpoint_slice(endpoint("10.9.0.1", "a", ready=True), name="headless-x", of="headless")
    known = {"a": pod("10.0.0.1", {"containerPort": 8080, "hostPort": 30081})}
    spec: Object = {"selector": {"app": "rating"}, "ports": [HTTP]}
    desired = desired_instances(
        syncer(advertise=Advertise.HOST_PORT),
        [service("plain", **spec), service("headless", **spec)],
        [listed, beside],
        CLUSTER,
        find_pod=lambda name, address: known[name].if_at_address(address),
    )
    assert [each.port.number for each in desired.instances] == [30081]
    assert (registered_without_address(desired, [held]), desired.has_unread_pods) == ([], False)


@pytest.mark.parametrize(("ready", "status"), [(True, Status.UP), (False, Status.DOWN)])
def test_a_pod_without_a_host_port_keeps_the_instance_at_its_own_address(ready: bool, status: Status) -> None:
    """After a syncer changed to host ports, pods that have none yet stay registered at their own address,
    beside the first that has one; an instance at another address, as of the pod before, does not.
    """
    old = endpoint("10.0.0.1", "a", ready=ready)
    (before,) = desired_instances(syncer(), [service()], [endpoint_slice(old)], CLUSTER).instances
    slices = [endpoint_slice(old, endpoint("10.0.0.2", "b", ready=True))]
    known = {"a": pod("10.0.0.1", {"containerPort": 8080}), "b": pod("10.0.0.2", host="192.0.2.2")}
    desired = mapped(slices, known)
    assert [each.ip_address for each in desired.instances] == ["192.0.2.2"]
    assert not desired.may_be_incomplete
    (kept,) = registered_without_address(desired, [before, replace(before, ip_address="192.0.2.9")])
    assert (kept.key, kept.ip_address, kept.status) == (before.key, "10.0.0.1", status)


def test_an_implicit_plain_port_needs_no_host_port() -> None:
    """With ``securePort`` alone, the port ``http`` is left out where it has no host port."""
    https = {"name": "https", "port": 8443, "protocol": "TCP"}
    slices = [endpoint_slice(endpoint("10.0.0.1", "a", ready=True), ports=(HTTP, https))]
    known = {"a": pod("10.0.0.1", {"containerPort": 8443, "hostPort": 30443})}
    (found,) = mapped(slices, known, secure_port="https").instances
    assert (found.secure_port.number, found.port.enabled) == (30443, False)
    (problem,) = mapped(slices, known, secure_port="https", port="http").problems
    assert problem.reason == "NoPort"


def test_host_ports_that_differ_are_no_repacking() -> None:
    """Pods with different host ports do not make their slices be taken for repacked ones."""
    packed = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    item = endpoint_slice(endpoint("10.0.0.1", "a", ready=True), endpoint("10.0.0.2", "b", ready=True))
    item["metadata"]["labels"] |= packed
    known = {"a": pod(), "b": pod("10.0.0.2", {"containerPort": 8080, "hostPort": 30081})}
    assert not mapped([item], known).are_slices_being_repacked


def test_a_terminating_pod_that_is_gone_leaves() -> None:
    """A terminating endpoint whose pod is not there any more keeps nothing; one whose pod is there is known
    to terminate.
    """
    gone = mapped([one(ready=False, terminating=True)], {})
    assert (dict(gone.pods_without_host_port), gone.problems, gone.left_out_endpoint_sentences) == (
        {},
        (),
        (),
    )
    there = mapped([one(ready=False, terminating=True)], {"a": pod()})
    assert there.terminating_ids == {"a.shop.eks:rating:30080"}


def test_before_the_pods_were_read_nothing_is_changed() -> None:
    """Until the first list of pods is complete, the mapping is unread."""
    desired = mapped([one()], None)
    assert (desired.has_unread_objects, desired.instances) == (True, ())


def test_host_ports_are_for_mode_pod() -> None:
    """An older CRD may let HostPort pass in mode service: the operator refuses it."""
    item: Object = {
        "metadata": {"namespace": "shop", "name": "x"},
        "spec": {"mode": "service", "selector": {"app": "rating"}, "advertise": "HostPort"},
    }
    with pytest.raises(ConfigurationError, match=r"spec\.advertise is HostPort, which is for mode pod"):
        Syncer.from_object(item)
    read = Syncer.from_object({**item, "spec": {**item["spec"], "mode": "pod"}})
    assert read.needs_host_ports
    assert read.mode is Mode.POD
