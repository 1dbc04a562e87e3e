"""The policy on addresses that mirrors may show: the cluster's own addresses are forbidden.

The cluster's addresses come from the API's networks (ServiceCIDRs, the nodes' pod networks), from networks in
the settings, and from the Services and endpoints that the operator watches anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from eurekube_provider.core.address_policy import AddressPolicy, collect_cluster_addresses
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.networks import Network, parse_networks
from eurekube_provider.core.objects import Object
from eurekube_provider.kube.access import NODES, SERVICE_CIDRS, KubeAccess

REFRESH_SECONDS, OLDEST_SECONDS = 60.0, 120.0
"""Seconds after which the addresses are read again between reconciles, and their greatest age in seconds when
a reconcile begins.
"""


class AddressPolicyCache:
    """A cache of the address policy of this cluster's mirrors; any number of threads may share it.

    :param allowed: the networks that the operator's settings allow.
    :param cluster: the networks that the operator's settings name as the cluster's own.
    :param services: returns all watched Services; ``slices`` returns all EndpointSlices but the mirrors'.
    """

    def __init__(
        self,
        access: KubeAccess,
        allowed: tuple[Network, ...],
        cluster: tuple[Network, ...],
        services: Callable[[], Iterable[Object]],
        slices: Callable[[], Iterable[Object]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._allowed, self._cluster = allowed, cluster
        self._services, self._slices = services, slices
        self._clock = clock
        self._lock = threading.Lock()
        self._policy: AddressPolicy | None = None
        self._read_at = 0.0

    def policy(self) -> AddressPolicy:
        """Return the address policy, read at most two minutes ago; an unchanged policy is the same object.

        :raises KubernetesError: the addresses were never read, and cannot be.
        """
        with self._lock:
            return self._policy_not_older_than(OLDEST_SECONDS)

    def refresh_and_check_changed(self) -> bool:
        """Read the addresses again if the last reading is a minute old; return whether the policy has
        changed.

        A reading lists Nodes and ServiceCIDRs and visits all watched objects; no change has to wait for it.
        """
        with self._lock:
            before = self._policy
            if before is not None:
                self._policy_not_older_than(REFRESH_SECONDS)
            return self._policy is not before

    def _policy_not_older_than(self, seconds: float) -> AddressPolicy:
        """Return the address policy, read again if it is older than ``seconds``; the caller holds the
        lock.
        """
        now, known = self._clock(), self._policy
        if known is not None and now - self._read_at < seconds:
            return known
        try:
            read = self._read_policy()
        except KubernetesError:
            if known is None:
                raise
            read = known  # what was known is better than nothing, and the next minute comes
        self._policy = known if known == read else read
        self._read_at = now
        return self._policy

    def _read_policy(self) -> AddressPolicy:
        nodes = self._list_items(NODES.path())
        networks = [*self._cluster, *self._service_networks(), *_pod_networks(nodes)]
        own = collect_cluster_addresses(self._services(), self._slices(), _addresses_of_nodes(nodes))
        return AddressPolicy(self._allowed, tuple(dict.fromkeys(networks)), own)

    def _service_networks(self) -> tuple[Network, ...]:
        try:
            items = self._list_items(SERVICE_CIDRS.path())
        except KubernetesError as error:
            if error.status_code == 404:  # Kubernetes before 1.33
                return ()
            raise
        return parse_networks(cidr for item in items for cidr in (item.get("spec") or {}).get("cidrs") or ())

    def _list_items(self, path: str) -> list[Object]:
        return [item for page in self._access.pages(path) for item in page.get("items") or ()]


def _pod_networks(nodes: Iterable[Object]) -> tuple[Network, ...]:
    return parse_networks(cidr for item in nodes for cidr in (item.get("spec") or {}).get("podCIDRs") or ())


def _addresses_of_nodes(nodes: Iterable[Object]) -> frozenset[str]:
    given = (one for item in nodes for one in (item.get("status") or {}).get("addresses") or ())
    return frozenset(str(one.get("address") or "") for one in given)
