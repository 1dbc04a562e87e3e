"""Checks, by the API server, of pods that registered themselves in Eureka.

They find the pods that share no address with their node, and the pods that are gone.

After a pod was killed, the instance that it registered itself stays UP in Eureka until its lease ends, and in
self-preservation for ever. The instance has another owner, so the operator removes it only where a person
asks for that and nothing speaks against it: :meth:`SelfRegistrationCheck.removable_instances`.

All questions are asked before a syncer's changes are sent. So each answer is remembered for
:data:`.BLOCKED_RECHECK_SECONDS`, and an API server that does not answer gets no question for the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

from eurekube_provider.core.address_policy import parse_ip_address
from eurekube_provider.core.decision import BLOCKED_RECHECK_SECONDS
from eurekube_provider.core.endpoint_presence import pods_in_slices
from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.objects import (
    Object,
    has_pod_ended,
    has_unshared_address,
    is_mirrored,
    pod_addresses,
)
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.self_registered import (
    PodNameAndAddress,
    SelfRegistration,
    is_unchanged_and_unrenewed,
)
from eurekube_provider.kube.access import ENDPOINT_SLICES, PODS, KubeAccess, list_objects_by_name
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

MOST_SINGLE_POD_READS = 20
"""Most pods that one reconcile gets one by one; a greater number is listed at once."""

MOST_REMOVED_REGISTRATIONS = 10
"""Most registrations that one reconcile removes; the next one removes more."""

ABANDONED_AFTER_SECONDS, ABANDONED_AFTER_INTERVALS = 45.0, 1.5
"""Shortest time without renewal after which a registration counts as abandoned: in seconds, and in the
client's own renewal intervals; both must have passed.
"""


class SelfRegistrationCheck:
    """The checks of pods that registered themselves, which change nothing; workers may share them."""

    def __init__(self, access: KubeAccess, sources: ClusterCache) -> None:
        self._access = access
        self._sources = sources
        # Answers, and until when each holds. A pod cannot change whether it has its node's address.
        self._own: dict[SyncerKey, dict[PodNameAndAddress, tuple[bool, float]]] = {}
        self._gone: dict[SyncerKey, dict[SelfRegistration, tuple[bool, str, float]]] = {}
        # Why those looked at last were not removed, and until when none is looked at again.
        self._looked: dict[SyncerKey, tuple[str, float]] = {}
        # Of the API server: the last request without an answer, and until when none is sent.
        self._unanswered = ("", -inf)
        # As it was read first, and since when: by our clock, since servers' clocks differ.
        self._unrenewed: dict[SyncerKey, dict[InstanceKey, tuple[Instance, float]]] = {}

    def forget(self, key: SyncerKey) -> None:
        for memory in (self._own, self._gone, self._looked, self._unrenewed):
            memory.pop(key, None)

    def pods_with_address_other_than_node(
        self, key: SyncerKey, namespace: str, suspects: Collection[PodNameAndAddress]
    ) -> frozenset[PodNameAndAddress]:
        """Return the pods whose address is not their node's, without pods that cannot be read."""
        if not suspects:
            self._own.pop(key, None)
            return frozenset()
        before, now = self._own.get(key, {}), boot_clock_seconds()
        known = {one: before[one] for one in suspects if one in before and now < before[one][1]}
        asked = sorted(set(suspects) - known.keys())
        pods: dict[str, Object] = {}
        try:
            pods = {
                pod["metadata"]["name"]: pod for pod in self._read_pods(namespace, [one for one, _ in asked])
            }
        except KubernetesError as error:
            _log.warning(
                "failed to read pods that may have registered themselves, not matching addresses, retrying",
                extra={
                    "syncer": "/".join(key),
                    "error": str(error),
                    "retry_seconds": BLOCKED_RECHECK_SECONDS,
                },
            )
        soon = boot_clock_seconds() + BLOCKED_RECHECK_SECONDS
        for one in asked:
            pod = pods.get(one[0])
            known[one] = (has_unshared_address(pod, one[1]), inf) if pod else (False, soon)
        self._own[key] = known
        return frozenset(one for one, (is_own, _) in known.items() if is_own)

    def registrations_of_gone_pods(
        self, key: SyncerKey, namespace: str, registrations: Iterable[SelfRegistration]
    ) -> tuple[list[SelfRegistration], str]:
        """Return registrations whose pods are no endpoints any more and, as far as known, do not exist.

        :returns: the registrations, and why the pods could not be read; empty where they could.
        """
        slices = self._sources.slices_of_syncer(key)
        near = pods_in_slices(slices)
        addresses = _addresses_of_unmirrored_slices(slices)
        missing = [
            one
            for one in registrations
            if (namespace, one.pod) not in near and not {one.address, one.pod_address} & addresses
        ]
        if not missing:
            self._gone.pop(key, None)
            return [], ""
        before, now = self._gone.get(key, {}), boot_clock_seconds()
        known = {one: before[one] for one in missing if one in before and now < before[one][2]}
        asked = [one for one in missing if one not in known]
        pods, why = list[Object](), ""
        try:
            pods = self._read_pods(namespace, [one.pod for one in asked])
        except KubernetesError as error:
            why = f"whether the pod lives could not be asked for: {error}"
        alive = {
            (str(pod["metadata"]["name"]), address)
            for pod in pods
            if not has_pod_ended(pod)
            for address in _pod_and_node_addresses(pod)
        }
        soon = boot_clock_seconds() + BLOCKED_RECHECK_SECONDS
        known |= {one: ((one.pod, one.pod_address) not in alive, why, soon) for one in asked}
        self._gone[key] = known
        dead = [one for one in missing if known[one][0]]
        return dead, next((known[one][1] for one in dead if known[one][1]), "")

    def removable_instances(
        self, key: SyncerKey, registry: Registry, dead: Sequence[SelfRegistration], application: str
    ) -> tuple[list[Instance], str]:
        """Return the instances of gone pods that may be removed, none in doubt, and why the others may not.

        An instance may be removed if nobody has renewed it for longer than its client would have let pass, as
        the servers say, and if no EndpointSlice and no pod of the cluster has its address, nor the address of
        the pod that registered it, as the API server says at this moment.

        :param application: in upper case.
        """
        if not dead:
            self._unrenewed.pop(key, None)
            self._looked.pop(key, None)
            return [], ""
        why, until = self._looked.get(key, ("", -inf))
        if boot_clock_seconds() < until:
            return [], why
        found, why = self._find_removable(key, registry, dead, application)
        self._looked[key] = (why, boot_clock_seconds() + BLOCKED_RECHECK_SECONDS)
        return found, why

    def _find_removable(
        self, key: SyncerKey, registry: Registry, dead: Sequence[SelfRegistration], application: str
    ) -> tuple[list[Instance], str]:
        """Ask Eureka and the cluster for :meth:`removable_instances`; note since when each is not renewed."""
        keys = [(application, one.instance_id) for one in dead]
        odd = {one.key: one.unreadable for one in map(registry.get, keys) if one and one.unreadable}
        try:
            registry.refresh([key for key in keys if key not in odd], include_known=True)
        except RegistryError as error:
            return [], f"Eureka could not be asked for it: {error}"
        before, now = self._unrenewed.get(key, {}), boot_clock_seconds()
        known: dict[InstanceKey, tuple[Instance, float]] = {}
        due: list[tuple[Instance, set[str]]] = []
        for one in dead:
            held = registry.get((application, one.instance_id))
            if held is None or held.key in odd or not one.matches_instance(held):
                continue
            first, since = before.get(held.key, (held, now))
            if not is_unchanged_and_unrenewed(held, first):
                first, since = held, now
            known[held.key] = (first, since)
            interval = held.lease.renewal_interval_seconds
            if now - since >= max(ABANDONED_AFTER_SECONDS, ABANDONED_AFTER_INTERVALS * interval):
                due.append((held, {held.ip_address, one.pod_address}))
        self._unrenewed[key] = known
        why = next(iter(odd.values()), "")
        if not due:
            return [], why or "it is removed once nobody has renewed it for a while"
        try:
            with self._fail_fast_if_api_was_silent():
                used = self._addresses_in_use({address for _, addresses in due for address in addresses})
        except KubernetesError as error:
            return [], f"the cluster's pods and EndpointSlices could not be read: {error}"
        free = [held for held, addresses in due if not addresses & used]
        if len(free) < len(due):
            why = "a pod or an EndpointSlice has its address"
        return free[:MOST_REMOVED_REGISTRATIONS], why

    def _read_pods(self, namespace: str, names: Sequence[str]) -> list[Object]:
        if not names:
            return []
        with self._fail_fast_if_api_was_silent():
            if len(names) > MOST_SINGLE_POD_READS:
                wanted = set(names)
                found = (pod for page in self._access.pages(PODS.path(namespace)) for pod in page["items"])
                return [pod for pod in found if pod["metadata"]["name"] in wanted]
            return [
                pod for name in names for pod in list_objects_by_name(self._access, PODS, name, namespace)
            ]

    @contextmanager
    def _fail_fast_if_api_was_silent(self) -> Iterator[None]:
        """Let the block send requests, unless the API server left one without an answer a short while ago.

        Each such request takes 15 seconds, and a syncer's changes must not wait for that again and again.
        """
        message, until = self._unanswered
        if boot_clock_seconds() < until:
            raise KubernetesError(message)
        try:
            yield
        except KubernetesError as error:
            if error.status_code is None:
                self._unanswered = (str(error), boot_clock_seconds() + BLOCKED_RECHECK_SECONDS)
            raise

    def _addresses_in_use(self, addresses: set[str]) -> set[str]:
        """Return those of the addresses that a pod or an EndpointSlice of the cluster has now.

        Watched slices and queries by address come first, so that whole lists are read only if needed. Only
        whole lists show a pod's further addresses.
        """
        used = addresses & _addresses_of_unmirrored_slices(self._sources.slices.objects())
        for address in filter(parse_ip_address, addresses - used):  # what others registered may be any text
            query = {"fieldSelector": f"status.podIP={address}"}
            if not all(map(has_pod_ended, self._access.get(PODS.path(), query)["items"])):
                used.add(address)
        if used == addresses:
            return used
        for page in self._access.pages(PODS.path()):
            living = [pod for pod in page["items"] if not has_pod_ended(pod)]
            used |= addresses & {address for pod in living for address in _pod_and_node_addresses(pod)}
        for page in self._access.pages(ENDPOINT_SLICES.path()):
            used |= addresses & _addresses_of_unmirrored_slices(page["items"])
        return used


def _pod_and_node_addresses(pod: Object) -> set[str]:
    status = pod.get("status") or {}
    several = (str(one.get("ip") or "") for one in status.get("hostIPs") or ())
    return pod_addresses(pod) | ({str(status.get("hostIP") or ""), *several} - {""})


def _addresses_of_unmirrored_slices(slices: Iterable[Object]) -> set[str]:
    """Return the addresses of endpoints, without mirrors', which come from Eureka and prove nothing."""
    return {
        str(address)
        for one in slices
        if not is_mirrored(one)
        for endpoint in one.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    }
