"""The Kubernetes objects that the operator watches, and the syncers that each change concerns.

Only the fields that the mapping reads are kept, so that ten thousand endpoints stay small.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from eurekube_provider.core.brake import BRAKE_HOLD_SECONDS
from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.derived_syncer import (
    Membership,
    derived_syncer,
    derived_syncer_name,
    is_namespace_syncer,
    membership_of_service,
    name_and_uid_of_parent_syncer,
    split_derived_syncer_name,
)
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.gate import mark_held_pods_ready, selects_pod
from eurekube_provider.core.host_ports import FindPodOnHost, PodOnHost, with_host_ports
from eurekube_provider.core.identity import Cluster, pod_and_namespace_of_id
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.mapping import (
    DesiredInstances,
    FindLabelsOfPod,
    desired_instances,
    without_pod_labels,
)
from eurekube_provider.core.mapping_cache import MappingCache
from eurekube_provider.core.objects import (
    MIRROR_SLICE_MANAGER,
    SLICE_MANAGED_BY_LABEL,
    app_name_of_service,
    is_being_deleted,
    is_external_name,
    key_of,
    pod_name_of_endpoint,
    resource_version,
    service_name_of_slice,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import REGISTER_BEFORE_READY_ANNOTATION, adapt_to_registry
from eurekube_provider.core.registry_kinds import EUREKA
from eurekube_provider.core.syncer import (
    Advertise,
    Mode,
    Selector,
    Syncer,
    claimed_names,
    connection_name,
    has_annotation,
    has_finalizer,
    selector_of,
)
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    NODES,
    PAGE_SIZE,
    PAGE_SIZE_OF_LARGE_OBJECTS,
    PODS,
    SERVICES,
    SYNCERS,
    ApiResource,
    KubeAccess,
    is_api_unavailable,
    list_objects_by_name,
)
from eurekube_provider.kube.reflector import (
    DENIAL_SETTLE_SECONDS,
    ChangeListener,
    Reflector,
    ReflectorGroup,
    TrimFunction,
)
from eurekube_provider.operator.gated_pods import GatedPods
from eurekube_provider.operator.index import Indexer, Object, SelectorIndex, ServiceIndex, SyncerKey
from eurekube_provider.operator.route_watches import RouteWatches
from eurekube_provider.operator.watches import (
    MappingCaches,
    OnDemandWatches,
    TerminatingEndpoints,
    WatchScope,
    trim_custom_resource,
    trim_node,
    trim_pod_to_host_ports,
    trim_pod_to_labels,
    trim_service,
    trim_slice,
)

_log = logging.getLogger(__name__)

MOST_POD_READS_PER_MAPPING = 20
"""Most pods that one mapping asks the API server for; the next mapping asks for the rest."""

NAMESPACE_SYNCER_DELAY_SECONDS = 1.0
"""Seconds for which changes of Services are gathered before their namespace's syncer is reconciled."""

_WATCH_USER_KEY_OF_GATES: SyncerKey = ("", "readiness gates")
"""Key by which the readiness gates count as a user of the watched nodes, like a syncer."""


class ClusterCache:
    """Local copies of the syncers, Services and EndpointSlices, and of nodes and pods where a syncer needs
    them.

    :param concerned: called with the key of a syncer that must be reconciled again.
    :param is_overwritten: returns True if a syncer's status is not what its writer wrote last.
    :param gate_namespaces: where pods may declare the readiness gate; None among them for everywhere.
    :param enqueue_later: called with the key of a syncer to reconcile again, and the longest delay, seconds.
    :param advertise_from: the kinds of addresses for which Ingresses, or Gateways, may be watched.
    :param forget_status: called with the key of a syncer whose status is older than what its writer knows.
    :ivar connections: by name; the kind of registry limits what a syncer's spec may ask for.
    """

    def __init__(
        self,
        access: KubeAccess,
        cluster: Cluster,
        namespaces: tuple[str, ...],
        concerned: Callable[[SyncerKey], None],
        is_overwritten: Callable[[Object], bool] = lambda _: False,
        gate_namespaces: Sequence[WatchScope] = (),
        enqueue_later: Callable[[SyncerKey, float], None] = lambda *_: None,
        advertise_from: Collection[Advertise] = (),
        forget_status: Callable[[SyncerKey], None] = lambda _: None,
    ) -> None:
        self._access = access
        self._concerned = concerned
        self.enqueue_later = enqueue_later
        self._cluster = cluster
        self._followers: tuple[Callable[[Object], None], ...] = ()
        self._is_overwritten = is_overwritten
        self._forget_status = forget_status
        self._index = ServiceIndex()
        self._selectors = SelectorIndex()  # by which each syncer is found
        self._applications: Indexer[str] = Indexer(lambda name: [(name,)])  # of syncers, in upper case
        self._claims: Indexer[frozenset[str]] = Indexer(lambda names: [(name,) for name in names])
        self._of_namespaces: Indexer[str] = Indexer(lambda namespace: [(namespace,)])
        self._derived: Indexer[SyncerKey] = Indexer(lambda parent: [parent])
        self._mapped = MappingCaches()
        self._parsed: dict[SyncerKey, tuple[object, Syncer]] = {}
        self._vanished_at: dict[SyncerKey, float] = {}
        self.connections: Mapping[str, Connection] = {}
        self._terminating = TerminatingEndpoints()

        def new_group(
            resource: ApiResource,
            trim: TrimFunction,
            listener: ChangeListener,
            page_size: int = PAGE_SIZE,
            labels: str = "",
        ) -> ReflectorGroup:
            return ReflectorGroup(
                Reflector(
                    access,
                    resource,
                    trim,
                    listener,
                    namespace,
                    labels=labels,
                    on_denied=partial(self._report_denial, namespace),
                    page_size=page_size,
                )
                for namespace in namespaces or (None,)
            )

        self.syncers = new_group(SYNCERS, trim_custom_resource, self._syncer_changed)
        self.services = new_group(SERVICES, trim_service, self._service_changed)
        unmirrored = f"{SLICE_MANAGED_BY_LABEL}!={MIRROR_SLICE_MANAGER}"
        self.slices = new_group(
            ENDPOINT_SLICES, trim_slice, self._slice_changed, PAGE_SIZE_OF_LARGE_OBJECTS, unmirrored
        )

        self._nodes = OnDemandWatches(
            partial(
                Reflector,
                access,
                NODES,
                trim_node,
                self._node_changed,
                on_denied=partial(self._report_denial, None),
            ),
            self._report_nodes_changed,
        )

        def new_pod_reflector(scope: WatchScope, on_synced: Callable[[], None]) -> Reflector:
            return Reflector(
                access.with_metadata_only(), PODS, trim_pod_to_labels, self._pod_changed, scope, on_synced
            )

        self._pods = OnDemandWatches(new_pod_reflector, concerned)
        self._pods_on_hosts = OnDemandWatches(
            partial(Reflector, access, PODS, trim_pod_to_host_ports, self._host_ports_changed), concerned
        )
        self._routes = RouteWatches(access, namespaces, advertise_from, concerned, enqueue_later)
        self.gated_pods = GatedPods(
            access, gate_namespaces, self._gate_changed, self._is_node_ready, self._report_denial
        )
        self._groups = {"syncers": self.syncers, "services": self.services, "slices": self.slices}
        if gate_namespaces:  # else what waits for callers would be taken for not ready
            self._groups["gated pods"] = self.gated_pods
        self._all: dict[str, ReflectorGroup] = {
            **self._groups,
            "nodes": self._nodes,
            "pods": self._pods,
            "pods on hosts": self._pods_on_hosts,
            **self._routes.groups,
        }

    def follow_services(self, changed: Callable[[Object], None]) -> None:
        """Call ``changed`` with each Service that changes, or whose endpoints may have changed."""
        self._followers = (*self._followers, changed)

    def start(self) -> None:
        """Start to list and watch the cluster's objects."""
        for group in self._groups.values():
            group.start()
        if self.gated_pods.reflectors:
            self._nodes.set_needed_scopes(_WATCH_USER_KEY_OF_GATES, {None})

    def stop(self) -> None:
        """Stop reporting changes."""
        for group in self._all.values():
            group.stop()

    def retry_now(self) -> None:
        """Retry all lists and watches at once, since the API server answers again."""
        for group in self._all.values():
            group.retry_now()

    @property
    def is_current(self) -> bool:
        """True if all copies are as new as the last :meth:`retry_now`, except objects that may not be read.

        A copy counts even if no watch follows it at this moment: a proxy may end each watch at once.
        Ingresses, Gateways and HTTPRoutes do not count: their lists may fail for days, since others wrote
        the kinds, and only the syncers that need them wait for them.
        """
        routes = self._routes.groups
        return all(group.is_usable_by_new_leader for name, group in self._all.items() if name not in routes)

    @property
    def is_synced(self) -> bool:
        """True if the first lists of all kinds are complete; those watched on demand may be denied."""
        on_demand = [group for name, group in self._all.items() if name not in self._groups]
        return all(group.is_synced for group in self._groups.values()) and all(
            one.is_synced or one.is_access_denied for group in on_demand for one in group.reflectors
        )

    @property
    def is_synced_or_forbidden(self) -> bool:
        """True if all first lists are complete, except those of single namespaces that may not be read.

        Such a namespace must not stop the others: most likely it was deleted, with the operator's rights in
        it.
        """
        return all(group.is_synced_or_forbidden for group in self._groups.values())

    def unread_namespaces(self) -> dict[str, str]:
        """Return the namespaces whose objects have not all been read, each with the reason."""
        reasons: dict[str, str] = {}
        for group in self._groups.values():
            for one in group.reflectors:
                if one.namespace is not None and not one.is_synced:
                    reasons.setdefault(one.namespace, str(one.failure or "no answer yet"))
        return reasons

    def knows_syncers_of(self, namespace: str) -> bool:
        """Return whether all syncers of this namespace are known, so that an unknown one does not exist."""
        return self.syncers.find_unsynced(namespace) is None

    @property
    def failures(self) -> dict[str, KubernetesError]:
        """Kinds of objects that cannot be read at the moment, with the errors."""
        return {name: failure for name, group in self._all.items() if (failure := group.failure)}

    @property
    def watches_failing(self) -> dict[str, bool]:
        """For each kind of objects that is always watched: whether it cannot be read at the moment."""
        return {name: group.failure is not None for name, group in self._groups.items()}

    @property
    def watch_restart_counts(self) -> dict[tuple[str, str], int]:
        """Number of watch restarts, by kind and reason; see :attr:`Reflector.restarts`."""
        return {
            (name, reason): count
            for name, group in self._groups.items()
            for reason, count in group.restarts.items()
        }

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the reflectors' threads."""
        return [loop for group in self._all.values() for loop in group.liveness()]

    def syncer_keys(self) -> list[SyncerKey]:
        """Return the keys of all syncers."""
        return [key_of(syncer) for syncer in self.syncers.objects()]

    def syncers_of(self, application: str) -> frozenset[SyncerKey]:
        """Return the syncers that register under an application's name, given in upper case."""
        return frozenset(self._applications.find((application,)))

    def syncers_claiming_name(self, name: str) -> list[Object]:
        """Return the syncers that keep a lower-case name, since they have had instances under it."""
        keys = self._claims.find((name,))
        return [item for key in keys if (item := self.syncers.get(*key)) is not None]

    def derived_syncers_of(self, parent: SyncerKey) -> list[SyncerKey]:
        """Return the syncers that are derived from a namespace's."""
        return list(self._derived.find(parent))

    def parent_of(self, key: SyncerKey) -> SyncerKey | None:
        """Return the namespace's syncer that a syncer is derived from; None for any other."""
        return self._derived.get(key)

    def missing_derived_syncers(self, service: Object) -> Iterator[Object]:
        """Yield the derived syncers that a Service should have as a member of namespaces' syncers and that do
        not exist yet; none for a Service whose annotations are refused.
        """
        namespace, name = key_of(service)
        selecting = (self.syncers.get(*key) for key in self.syncers_selecting(service))
        there = {key_of(item) for item in selecting if item is not None and not is_being_deleted(item)}
        for key in self._of_namespaces.find((namespace,)):
            parent = self.syncers.get(*key)
            if parent is None or is_being_deleted(parent) or not is_namespace_syncer(parent):
                continue
            is_member = membership_of_service(parent, service) is Membership.MEMBER
            if is_member and (namespace, derived_syncer_name(key[1], name)) not in there:
                with suppress(ConfigurationError):
                    yield derived_syncer(parent, service)

    def has_just_vanished(self, key: SyncerKey) -> bool:
        """Return whether a syncer vanished within the last minute though its deletion had not begun: the API
        server may have been restored from a backup.
        """
        if time.monotonic() - self._vanished_at.get(key, -math.inf) < BRAKE_HOLD_SECONDS:
            return True
        self._vanished_at.pop(key, None)
        return False

    def knows_services_of(self, namespace: str) -> bool:
        """Return whether all Services of this namespace are known, so that an unknown one does not exist."""
        return self.services.find_unsynced(namespace) is None

    def service(self, namespace: str, name: str) -> Object | None:
        """Return one Service."""
        return self._index.service(namespace, name)

    def service_names_and_apps(self, selector: Selector) -> frozenset[str]:
        """Return the names and the ``app`` labels, in lower case, of the Services that a selector matches."""
        services, _ = self._index.services_and_slices(selector)
        return frozenset(
            name.lower()
            for service in services
            for name in (service["metadata"]["name"], app_name_of_service(service))
        )

    def desired(self, syncer: Syncer) -> DesiredInstances:
        """Return the instances that ``syncer`` wants in Eureka, by the present copy of the cluster."""
        desired, namespace = self._desired_by_copy(syncer), syncer.selector.namespace
        denied = self._find_denied_reflector(namespace, self.services, self.slices, self.gated_pods)
        if denied is None:
            return desired
        sentence = (
            f"the Services of namespace {namespace}, their endpoints or their pods may not be read any more:"
            f" what is registered is kept as it was last read ({denied.failure})"
        )
        problem = Problem(Reason.NAMESPACE_NOT_READ, sentence)
        return replace(desired, problems=(problem, *desired.problems))

    def _desired_by_copy(self, syncer: Syncer) -> DesiredInstances:
        namespace = syncer.selector.namespace
        unread = self._find_unsynced_reflector(namespace)
        if unread is not None:
            sentence = (
                f"the Services of namespace {namespace} and their endpoints cannot be read: nothing is"
                f" changed before ({unread.failure or 'no answer yet'})"
            )
            return DesiredInstances(problems=(Problem(Reason.NAMESPACE_NOT_READ, sentence),))
        services, slices = self._index.services_and_slices(syncer.selector)
        slices = self._with_gated_pods_ready(slices)
        nodes = self._nodes.reflector(None) if syncer.needs_nodes else None
        labels_of_pod: FindLabelsOfPod | None = None
        needs_pod_labels, is_on_hosts = syncer.needs_pod_labels, syncer.needs_host_ports
        pods = self._pods.reflector(namespace) if needs_pod_labels else None
        refusal = self._pods.failure if needs_pod_labels and pods is None else None
        if isinstance(refusal, KubernetesError) and not is_api_unavailable(refusal):
            unlabelled = self._desired_by_copy(replace(syncer, metadata_from_pod_labels=()))
            return without_pod_labels(syncer, unlabelled, str(refusal))
        if pods is not None:

            def labels_of_pod(name: str) -> Mapping[str, str]:
                pod = pods.get(namespace, name)
                return pod["labels"] if pod else {}

        desired = desired_instances(
            syncer,
            services,
            slices,
            self._cluster,
            nodes=nodes.objects() if nodes is not None else None,
            labels_of_pod=labels_of_pod,
            find_pod=self._host_port_finder(syncer, asks_api_server=True) if is_on_hosts else None,
            mapped=None if is_on_hosts else self._mapping_cache_of((syncer.namespace, syncer.name), slices),
            routes=self._routes.routes(syncer) if syncer.needs_routes else None,
        )
        if not desired.has_unread_objects or not (failure := self._failure_of_on_demand_objects(syncer)):
            return desired
        with_failure = tuple(replace(one, message=f"{one.message} ({failure})") for one in desired.problems)
        return replace(desired, problems=with_failure)

    def _failure_of_on_demand_objects(self, syncer: Syncer) -> KubernetesError | str | None:
        """Return the error of the objects, beside Services and EndpointSlices, that a syncer needs."""
        if syncer.needs_routes:
            return self._routes.failure_text(syncer)
        if syncer.needs_nodes:
            return self._nodes.failure
        return (syncer.needs_pod_labels and self._pods.failure) or (
            self._pods_on_hosts.failure if syncer.needs_host_ports else None
        )

    def _host_port_finder(self, syncer: Syncer, *, asks_api_server: bool) -> FindPodOnHost | None:
        """Return the function that finds the host ports of a syncer's pods; None where it needs none, or
        before they were read.

        :param asks_api_server: True to ask the API server for pods that the watch has not brought yet: old
            pods may leave meanwhile, and nobody would register the new ones.
        """
        namespace = syncer.selector.namespace
        pods = self._pods_on_hosts.reflector(namespace) if syncer.needs_host_ports else None
        if pods is None:
            return None
        left = MOST_POD_READS_PER_MAPPING if asks_api_server else 0

        def find_on_host(name: str, address: str) -> PodOnHost | None:
            nonlocal left
            pod = pods.get(namespace, name)
            on_host = pod["on_host"].if_at_address(address) if pod else None
            if on_host is None and left:
                left -= 1
                try:
                    there = list_objects_by_name(self._access, PODS, name, namespace)
                except KubernetesError:
                    left = 0
                else:
                    on_host = next(
                        (one for each in there if (one := PodOnHost.of(each).if_at_address(address))), None
                    )
            return on_host

        return find_on_host

    def _mapping_cache_of(self, key: SyncerKey, slices: list[Object]) -> MappingCache | None:
        """Return the mapping cache of an existing syncer; None for a syncer that does not exist."""
        if self.syncers.get(*key) is None:
            self._mapped.forget(key)
            return None
        return self._mapped.cache_for(key, sum([len(one["endpoints"]) for one in slices]))

    def parse_spec(self, syncer: Mapping[str, Any]) -> Syncer:
        """Return a syncer's spec, parsed once while it stays unchanged.

        :raises ConfigurationError: see :meth:`Syncer.from_object`, and :func:`.registry.adapt_to_registry`.
        """
        key = key_of(syncer)
        read_of = (syncer.get("spec"), has_annotation(syncer, REGISTER_BEFORE_READY_ANNOTATION))
        known = self._parsed.get(key)
        if known is not None and known[0] == read_of:
            return known[1]
        connection = self.connections.get(connection_name(syncer))
        kind = connection.registry_kind if connection is not None else EUREKA
        read = adapt_to_registry(Syncer.from_object(syncer), syncer, kind)
        if self.syncers.get(*key) is not None:
            self._parsed[key] = (read_of, read)
        return read

    def parse_spec_or_none(self, syncer: Mapping[str, Any] | None) -> Syncer | None:
        """Return a syncer's parsed spec; None if there is no syncer, or its spec is invalid."""
        if syncer is not None:
            with suppress(ConfigurationError):
                return self.parse_spec(syncer)
        return None

    def slices_of_syncer(self, key: SyncerKey) -> list[Object]:
        """Return the EndpointSlices behind a syncer, with the addresses at which it registers them; if its
        spec is invalid, by its last valid selector.
        """
        selector = self._selectors.get(key)
        if selector is None:
            return []
        slices = self._with_gated_pods_ready(self._index.services_and_slices(selector)[1])
        syncer = self.parse_spec_or_none(self.syncers.get(*key))
        find_pod = self._host_port_finder(syncer, asks_api_server=False) if syncer is not None else None
        return with_host_ports(slices, find_pod) if find_pod is not None else slices

    def _with_gated_pods_ready(self, slices: list[Object]) -> list[Object]:
        """Return the slices with those pods as ready that only wait for Eurekube's readiness gate."""
        ready = self.gated_pods.pods_registered_as_ready()
        return mark_held_pods_ready(slices, ready) if ready else slices

    def services_of_pod(self, pod: Object) -> list[Object]:
        """Return the Services that select a gated pod, or list it in an EndpointSlice."""
        (namespace, name), labels = key_of(pod), pod["metadata"].get("labels") or {}
        return [
            service
            for service in self.services.objects(namespace)
            if (selects_pod(service, labels) or name in self._pods_of_selectorless_service(service))
            and not is_external_name(service)  # which has no endpoints, so that its pods are none
        ]

    def _pods_of_selectorless_service(self, service: Object) -> set[str]:
        """Return the names of the pods in the EndpointSlices of a Service without a selector."""
        if service["spec"].get("selector"):
            return set()
        slices = self._index.slices_of(*key_of(service))
        return {pod_name_of_endpoint(endpoint) for one in slices for endpoint in one["endpoints"]}

    def syncers_selecting(self, service: Object) -> set[SyncerKey]:
        """Return the syncers that select a Service."""
        return self._selectors.keys_selecting(service)

    def was_instance_seen_terminating(self, instance_id: str) -> bool:
        """Return whether an instance's endpoint was lately seen terminating, and has not come back since."""
        return self.was_pod_seen_terminating(*pod_and_namespace_of_id(instance_id))

    def was_pod_seen_terminating(self, pod: str, namespace: str) -> bool:
        """Return whether a pod's (or address's) endpoint was lately seen terminating, and is not back."""
        return (namespace, pod) in self._terminating

    def select_services(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """Return the Services that a selector matches, and their EndpointSlices.

        :raises KubernetesError: not all of them have been read.
        """
        unread = self._find_unsynced_reflector(selector.namespace)
        denied = self._find_denied_reflector(selector.namespace, self.services, self.slices)
        if (unreadable := unread or denied) is not None:
            raise KubernetesError(
                f"the Services or EndpointSlices of the namespace {selector.namespace} have not been read"
                f" ({unreadable.failure or 'no answer yet'})"
            )
        return self._index.services_and_slices(selector)

    def slices_of_service(self, namespace: str, service: str) -> list[Object]:
        """Return the EndpointSlices of a Service, without those of mirrors, as far as they were read."""
        return self._index.slices_of(namespace, service)

    def _find_unsynced_reflector(self, namespace: str) -> Reflector | None:
        return self.services.find_unsynced(namespace) or self.slices.find_unsynced(namespace)

    @staticmethod
    def _find_denied_reflector(namespace: str, *groups: ReflectorGroup) -> Reflector | None:
        for one in groups:
            if (denied := one.find_denied_after_list(namespace)) is not None:
                return denied
        return None

    def syncers_at_eureka_or_being_deleted(self, eureka: str) -> list[SyncerKey]:
        """Return the syncers that register at a connection, and all that are being deleted."""
        return [
            key_of(syncer)
            for syncer in self.syncers.objects()
            if is_being_deleted(syncer) or connection_name(syncer) == eureka
        ]

    def estimate_wanted_by_eureka(self) -> Counter[str]:
        """Return about how many instances are wanted at each connection, counting Services or endpoints."""
        counts: Counter[str] = Counter()
        for item in self.syncers.objects():
            syncer = None if is_being_deleted(item) else self.parse_spec_or_none(item)
            if syncer is not None:
                services, slices = self._index.services_and_slices(syncer.selector)
                is_pod = syncer.mode is Mode.POD
                counts[syncer.eureka] += (
                    sum(len(one["endpoints"]) for one in slices) if is_pod else len(services)
                )
        return counts

    def _syncer_changed(self, old: Object | None, new: Object | None) -> None:
        subject = new or old
        if subject is None:
            return
        key = key_of(subject)
        parent, _ = name_and_uid_of_parent_syncer(subject)
        if parent != split_derived_syncer_name(key[1])[0]:
            parent = ""  # a copy of a derived syncer under another name is a person's own
        self._claims.put(key, claimed_names(new) if new is not None else None)
        self._of_namespaces.put(key, key[0] if is_namespace_syncer(new) else None)
        self._derived.put(key, (key[0], parent) if parent and new is not None else None)
        if parent:
            self.enqueue_later((key[0], parent), NAMESPACE_SYNCER_DELAY_SECONDS)
        if old and new and 0 < resource_version(new) < resource_version(old):
            # The API server was restored from a backup, with a status that its writer would not write again.
            self._forget_status(key)
            self._concerned(key)
        # A status that we wrote ourselves comes back as a change without a new generation.
        if old and new and values_besides_status(old) == values_besides_status(new):
            if old.get("status") != new.get("status") and self._is_overwritten(new):
                self._concerned(key)
            return
        self._vanished_at.pop(key, None)
        if old is not None and new is None and has_finalizer(old) and not is_being_deleted(old):
            self._vanished_at[key] = time.monotonic()
            self.enqueue_later(key, BRAKE_HOLD_SECONDS)
            _log.warning(
                "a syncer vanished whose deletion had not begun, as after a restore from a backup: keeping "
                "its instances for a minute",
                extra={"syncer": "/".join(key)},
            )
        after = self.parse_spec_or_none(new)
        if new is None:
            self._mapped.forget(key)
            self._parsed.pop(key, None)
        self._applications.put(key, after.application.upper() if after else None)
        # One that is refused still has instances: by what it said last, their end is its concern.
        selector = (selector_of(new) or self._selectors.get(key)) if new is not None else None
        self._selectors.put(key, selector)
        self._nodes.set_needed_scopes(key, {None} if after and after.needs_nodes else set())
        namespace: set[WatchScope] = {after.selector.namespace} if after else set()
        self._pods.set_needed_scopes(key, namespace if after and after.needs_pod_labels else set())
        self._pods_on_hosts.set_needed_scopes(key, namespace if after and after.needs_host_ports else set())
        self._routes.watch_needed_kinds(key, after)
        self._concerned(key)

    def _report_denial(self, namespace: WatchScope) -> None:
        """Queue the syncers whose copies are old once a denial has lasted."""
        for key in self.syncer_keys():
            selector = self._selectors.get(key)
            if selector is not None and namespace in (None, selector.namespace):
                self.enqueue_later(key, DENIAL_SETTLE_SECONDS)

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        self._index.update_service(old, new)
        self._report_services(*(service for service in (old, new) if service))
        subject = new or old
        if subject is None:
            return
        namespace, name = key_of(subject)
        for _, parent in self._of_namespaces.find((namespace,)):
            self._concerned((namespace, derived_syncer_name(parent, name)))
            self.enqueue_later((namespace, parent), NAMESPACE_SYNCER_DELAY_SECONDS)

    def _slice_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._terminating.update_from_slice(new)
        self._report_services(*self._index.update_slice(old, new))

    def _node_changed(self, _old: Object | None, _new: Object | None) -> None:
        for key in self._nodes.users_of(None):
            self._report_nodes_changed(key)

    def _report_nodes_changed(self, user: SyncerKey) -> None:
        if user != _WATCH_USER_KEY_OF_GATES:
            self._concerned(user)
            return
        for pod in self.gated_pods.pods_depending_on_nodes():
            self._gate_changed(pod)

    def _is_node_ready(self, name: str) -> bool:
        """Return whether a node is ready; True while nodes are not read, so that none leaves in doubt."""
        nodes = self._nodes.reflector(None)
        if nodes is None:
            return True
        node = nodes.get("", name)
        return node is not None and any(one["status"] == "True" for one in node["status"]["conditions"])

    def _gate_changed(self, pod: Object) -> None:
        self._report_services(*self.services_of_pod(pod))

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        # One that goes leaves its slice, too.
        if new is not None and (old is None or old["labels"] != new["labels"]):
            for key in self._pods.users_of(new["metadata"]["namespace"]):
                self._concerned(key)

    def _host_ports_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and old["on_host"] == new["on_host"]):
            return
        namespace, name = key_of(new)
        # A pod that no slice lists yet comes with its slice.
        listing = [
            one
            for one in self.slices.objects(namespace)
            if any(pod_name_of_endpoint(endpoint) == name for endpoint in one["endpoints"])
        ]
        services = [self._index.service(namespace, service_name_of_slice(one) or "") for one in listing]
        for key in {key for one in services if one for key in self._selectors.keys_selecting(one)}:
            if key in self._pods_on_hosts.users_of(namespace):
                self._concerned(key)

    def _report_services(self, *services: Object) -> None:
        for key in {key for service in services for key in self._selectors.keys_selecting(service)}:
            self._concerned(key)
        for service in services:
            for follower in self._followers:
                follower(service)


def values_besides_status(item: Object) -> tuple[object, ...]:
    """Return the values of a custom resource by which a change is told from a mere change of its status."""
    metadata = item["metadata"]
    return (
        item.get("spec"),
        metadata.get("deletionTimestamp"),
        metadata.get("annotations"),
        metadata.get("finalizers"),
        metadata.get("uid"),
        metadata.get("generation"),
    )
