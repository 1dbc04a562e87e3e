"""The cluster's own addresses, where no mirror may send calls.

Known from what the API tells of networks (ServiceCIDRs, the nodes' pod networks), from what a person said of
them, and from the Services and endpoints that the operator watches anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from eurekube_provider.core.address_policy import AddressPolicy, own_addresses
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.networks import Network, networks_of
from eurekube_provider.core.objects import Object
from eurekube_provider.kube.access import NODES, SERVICE_CIDRS, KubeAccess

REFRESH_SECONDS, OLDEST_SECONDS = 60.0, 120.0
"""How often it is read again, between reconciles; and how old it may be when one begins."""


class ClusterAddresses:
    """Addresses that mirrors may show in this cluster; any number of threads may share it.

    :param allowed: the operator's networks.
    :param cluster: networks that a person named as the cluster's own.
    :param services: all Services that are watched; ``slices`` all EndpointSlices but the mirrors'.
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
        """Return the addresses that may be mirrored, read two minutes ago at most; the same object while it
        stays so.

        :raises KubernetesError: it was never read, and cannot be.
        """
        with self._lock:
            return self._not_older_than(OLDEST_SECONDS)

    def refresh(self) -> bool:
        """Read it again where it is a minute old; whether it became another one.

        It takes two lists and a look at all that is watched: time that no change has to wait for.
        """
        with self._lock:
            before = self._policy
            if before is not None:
                self._not_older_than(REFRESH_SECONDS)
            return self._policy is not before

    def _not_older_than(self, seconds: float) -> AddressPolicy:
        """Return the addresses that may be mirrored, read again where they are older than that; the lock is
        held.
        """
        now, known = self._clock(), self._policy
        if known is not None and now - self._read_at < seconds:
            return known
        try:
            read = self._read()
        except KubernetesError:
            if known is None:
                raise
            read = known  # what was known is better than nothing, and the next minute comes
        self._policy = known if known == read else read
        self._read_at = now
        return self._policy

    def _read(self) -> AddressPolicy:
        networks = [*self._cluster, *self._service_networks(), *self._pod_networks()]
        own = own_addresses(self._services(), self._slices())
        return AddressPolicy(self._allowed, tuple(dict.fromkeys(networks)), own)

    def _service_networks(self) -> tuple[Network, ...]:
        try:
            items = self._items(SERVICE_CIDRS.path())
        except KubernetesError as error:
            if error.status_code == 404:  # Kubernetes before 1.33
                return ()
            raise
        return networks_of(cidr for item in items for cidr in (item.get("spec") or {}).get("cidrs") or ())

    def _pod_networks(self) -> tuple[Network, ...]:
        items = self._items(NODES.path())
        return networks_of(cidr for item in items for cidr in (item.get("spec") or {}).get("podCIDRs") or ())

    def _items(self, path: str) -> list[Object]:
        return [item for page in self._access.pages(path) for item in page.get("items") or ()]
