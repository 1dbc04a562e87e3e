"""The cluster's own addresses, which no mirror may put into an EndpointSlice."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.address_policy import collect_cluster_addresses
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.operator.mirror.cluster_addresses import (
    OLDEST_SECONDS,
    REFRESH_SECONDS,
    AddressPolicyCache,
)
from eurekube_provider.operator.watches import trim_service

Object = dict[str, Any]


class Api:
    """An API server whose lists a test sets; an error in place of a list is raised."""

    def __init__(self, **lists: list[Object] | KubernetesError) -> None:
        self.lists = lists

    def pages(self, path: str) -> Iterator[Object]:
        """Return the list of a kind as one page, or raise its error."""
        found = self.lists.get(path.rpartition("/")[2], [])
        if isinstance(found, KubernetesError):
            raise found
        yield {"items": found}


def service(address: str) -> Object:
    """Return a Service with this cluster IP."""
    return {"metadata": {"namespace": "shop", "name": "x"}, "spec": {"clusterIP": address}}


def pods(*addresses: str, kind: str = "Pod") -> Object:
    """Return an EndpointSlice whose endpoints refer to objects of this kind."""
    return {"endpoints": [{"addresses": [one], "targetRef": {"kind": kind}} for one in addresses]}


def refused(addresses: AddressPolicyCache, text: str) -> bool:
    """Return True if the policy refuses an address."""
    return bool(addresses.policy().refusal_clause(ipaddress.ip_address(text)))


def test_the_clusters_own_networks_and_addresses_are_refused() -> None:
    """The API names networks of Services and nodes, the configuration names more, and the watches name
    Services and pods.
    """
    api = Api(
        servicecidrs=[{"spec": {"cidrs": ["10.96.0.0/16", "fd00::/112"]}}],
        nodes=[{"spec": {"podCIDRs": ["10.244.0.0/24"]}}, {"spec": {}}],
    )
    addresses = AddressPolicyCache(
        api,  # type: ignore[arg-type]
        parse_networks(["0.0.0.0/0", "::/0"]),
        parse_networks(["172.16.0.0/16"]),
        lambda: [service("10.1.0.1"), service("None"), {"metadata": {}, "spec": {}}],
        lambda: [pods("10.2.0.1"), pods("10.3.0.1", kind="Node")],
    )
    own = ["10.96.0.1", "fd00::1", "10.244.0.9", "172.16.3.4", "10.1.0.1", "10.2.0.1"]
    assert [one for one in own if not refused(addresses, one)] == []
    assert [one for one in ("10.3.0.1", "10.245.0.1", "192.0.2.1") if refused(addresses, one)] == []


def test_a_pod_with_its_nodes_address_takes_no_machine_away() -> None:
    """An application outside of Kubernetes may run on a machine that is a node, too: it goes on to be shown
    once a DaemonSet with the host's network has a Service there.
    """
    node = {"status": {"addresses": [{"type": "InternalIP", "address": "10.3.0.1"}, {"type": "Hostname"}]}}
    addresses = AddressPolicyCache(
        Api(nodes=[node, {}]),  # type: ignore[arg-type]
        parse_networks(["10.0.0.0/8"]),
        (),
        list,
        lambda: [pods("10.3.0.1", "10.2.0.1")],
    )
    assert not refused(addresses, "10.3.0.1")
    assert refused(addresses, "10.2.0.1")


def test_a_cluster_without_service_networks_in_its_api_is_older() -> None:
    """A 404 for ServiceCIDRs means Kubernetes before 1.33; any other error is raised."""
    nowhere = parse_networks([])
    old = Api(servicecidrs=KubernetesError("no such kind", status_code=404))
    assert AddressPolicyCache(old, nowhere, (), list, list).policy().cluster_networks == ()  # type: ignore[arg-type]
    for path in ("servicecidrs", "nodes"):
        denied = Api(**{path: KubernetesError("forbidden", status_code=403)})
        with pytest.raises(KubernetesError):
            AddressPolicyCache(denied, nowhere, (), list, list).policy()  # type: ignore[arg-type]


def test_what_was_known_serves_while_the_api_is_away() -> None:
    """The policy is refreshed once a minute, stays the same object while nothing changes, and survives an
    API failure.
    """
    now = [1000.0]
    api, services = Api(), [service("10.1.0.1")]
    addresses = AddressPolicyCache(
        api,  # type: ignore[arg-type]
        (),
        (),
        lambda: services,
        list,
        lambda: now[0],
    )
    assert (
        not addresses.refresh_and_check_changed()
    )  # anyone who needs it first reads it, and learns why it cannot be
    first = addresses.policy()
    services.append(service("10.1.0.2"))
    assert not addresses.refresh_and_check_changed()
    now[0] += REFRESH_SECONDS
    assert addresses.policy() is first
    assert addresses.refresh_and_check_changed()
    second = addresses.policy()
    assert second.cluster_addresses == {"10.1.0.1", "10.1.0.2"}
    now[0] += REFRESH_SECONDS
    assert not addresses.refresh_and_check_changed()
    assert addresses.policy() is second
    api.lists["nodes"] = KubernetesError("away")
    now[0] += OLDEST_SECONDS
    assert addresses.policy() is second


def test_a_reconcile_waits_for_what_nobody_has_refreshed() -> None:
    """A policy that is too old, since no refresh succeeded, is read again before it is used."""
    now = [1000.0]
    services = [service("10.1.0.1")]
    addresses = AddressPolicyCache(Api(), (), (), lambda: services, list, lambda: now[0])  # type: ignore[arg-type]
    addresses.policy()
    services.append(service("10.1.0.2"))
    now[0] += OLDEST_SECONDS
    assert addresses.policy().cluster_addresses == {"10.1.0.1", "10.1.0.2"}


def test_both_addresses_of_a_dual_stack_service_are_the_clusters_own() -> None:
    """Both cluster IPs of the Service are listed, since Kubernetes before 1.33 has no ServiceCIDRs that
    contain them.
    """
    spec = {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}
    service = trim_service({"metadata": {"namespace": "shop", "name": "review"}, "spec": spec})
    assert collect_cluster_addresses([service], []) == {"10.0.0.1", "fd00::1"}
