"""The reader of Kubernetes and Eureka for the commands that show them; it changes nothing.

It reads each Eureka's list, which every client gets, once from each server. Parts that cannot be read are
named, and the rest is still shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Self, cast

from eurekube_provider.comparison.comparing import KubernetesInventory
from eurekube_provider.comparison.managers import (
    Manager,
    cluster_names_by_syncer,
    find_cluster_name,
    manager_of,
)
from eurekube_provider.comparison.mirror_explaining import MirrorInventory
from eurekube_provider.comparison.operators import OperatorsSnapshot
from eurekube_provider.core.address_policy import collect_cluster_addresses
from eurekube_provider.core.errors import ConfigurationError, KubernetesError, RegistryError
from eurekube_provider.core.host_ports import FindPodOnHost, PodOnHost
from eurekube_provider.core.identity import Cluster, pod_and_namespace_of_id
from eurekube_provider.core.mapping import DesiredInstances, desired_instances
from eurekube_provider.core.model import EMPTY_MAPPING, Instance
from eurekube_provider.core.objects import Object, is_being_deleted, is_mirrored, pod_name_of_endpoint
from eurekube_provider.core.registry import adapt_to_registry
from eurekube_provider.core.registry_kinds import EUREKA, RegistryKind
from eurekube_provider.core.routes import Routes
from eurekube_provider.core.syncer import Advertise, Mode, Syncer, connection_name
from eurekube_provider.doctor.operators_reader import read_operators
from eurekube_provider.doctor.reader import ClusterReader
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import ENDPOINT_SLICES, NODES, PODS, SERVICES, SYNCERS, KubeAccess
from eurekube_provider.operator.index import ServiceIndex
from eurekube_provider.operator.registries import zookeeper_servers
from eurekube_provider.operator.route_watches import ROUTE_KINDS
from eurekube_provider.operator.settings import Settings

NO_EUREKA_MESSAGE = "Eureka is not at hand: give --eureka-url, or EUREKA_URL, to see its side"

ReportProgress = Callable[[str], None]
"""A function that takes a sentence about the current read."""


@dataclass(frozen=True, slots=True)
class EurekaListing:
    """The list of one Eureka's servers, up to 30 s old.

    :ivar instances: the instances that any server lists.
    :ivar server_count: the number of servers; ``failures`` has those that did not answer, by URL.
    :ivar error: the reason why no server could be read; empty where one was.
    """

    instances: tuple[Instance, ...] = ()
    server_count: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    registry_kind: RegistryKind = EUREKA


@dataclass(frozen=True, slots=True)
class Inventory:
    """Kubernetes and Eureka as they were read.

    :ivar kubernetes: the cluster; None where none is configured, or it does not answer.
    :ivar eurekas: each Eureka by its connection's name.
    :ivar missing_sources: a sentence for each of Kubernetes and Eureka that is not configured.
    :ivar unread_parts: a sentence for each part that could not be read.
    :ivar index: the cluster's Services and EndpointSlices.
    :ivar operators: the cluster's operators, as far as they were read; None where they were not asked for.
    """

    kubernetes: KubernetesInventory | None
    eurekas: Mapping[str, EurekaListing]
    missing_sources: tuple[str, ...] = ()
    unread_parts: tuple[str, ...] = ()
    index: ServiceIndex = field(default_factory=ServiceIndex)
    mirrors: MirrorInventory = field(default_factory=MirrorInventory)
    operators: OperatorsSnapshot | None = None

    @property
    def instances(self) -> dict[str, Sequence[Instance]]:
        """The instances of each Eureka that could be read, by the connection's name."""
        return {name: one.instances for name, one in self.eurekas.items() if not one.error}

    @property
    def registry_kind_name(self) -> str:
        """The name of the kind of all registries; "registry" where they are of several kinds."""
        kinds = {read.registry_kind.name for read in self.eurekas.values()} or {EUREKA.name}
        return kinds.pop() if len(kinds) == 1 else "registry"

    @property
    def lists_lag(self) -> bool:
        """Return whether the list of one of the registries may be half a minute old."""
        return any(read.registry_kind.lists_lag for read in self.eurekas.values())

    def manager_of(self, instance: Instance) -> Manager:
        """Return the manager of an instance, as far as the cluster was read."""
        return self.kubernetes.manager_of(instance) if self.kubernetes else manager_of(instance, None)

    @property
    def is_complete(self) -> bool:
        """Return whether Kubernetes and Eureka are configured and were read in full."""
        return not self.missing_sources and not self.unread_parts


class InventoryReader:
    """A reader of Kubernetes and Eureka, for any number of reads within its context.

    :raises ConfigurationError: the named kubeconfig, or its context, cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._progress: ReportProgress = lambda _: None
        self._missing: list[str] = []
        self._kinds_by_connection = {name: one.registry_kind for name, one in settings.connections.items()}
        # An ensemble answers whatever is asked of Peers here.
        self.peers: dict[str, Peers] = {
            name: Peers(one) if one.registry_kind == EUREKA else cast("Peers", zookeeper_servers(one))
            for name, one in settings.connections.items()
        }
        if not self.peers:
            self._missing.append(NO_EUREKA_MESSAGE)
        self.access: KubeAccess | None = None
        try:
            self.access = KubeAccess.load(settings.kubeconfig, settings.context)
        except ConfigurationError as error:
            if settings.kubeconfig or settings.context:
                raise
            self._missing.append(f"Kubernetes is not at hand: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peers in self.peers.values():
            peers.close()

    def read(self, progress: ReportProgress | None = None, *, asks_operators: bool = False) -> Inventory:
        """Read the configured cluster and each Eureka.

        :param progress: gets a sentence before each read.
        :param asks_operators: True if the operators' Leases are read as well.
        """
        self._progress = progress or (lambda _: None)
        unread_parts: list[str] = []
        eurekas = {name: self._read_eureka(name, peers, unread_parts) for name, peers in self.peers.items()}
        kubernetes, index, mirrors, operators = None, ServiceIndex(), MirrorInventory(), None
        if self.access is not None:
            everything = [one for read in eurekas.values() for one in read.instances]
            try:
                reader = _ClusterObjectReader(self.access, self._settings, unread_parts)
                kubernetes, index, mirrors = self._read_kubernetes(reader, everything)
                if kubernetes is not None and asks_operators:
                    self._progress("reading the operators' Leases")
                    listed = [(self.peers[name], one.instances) for name, one in eurekas.items()]
                    uid, namespaces = kubernetes.cluster.uid, self._settings.watch_namespaces
                    operators = read_operators(self.access, uid, listed, namespaces, unread_parts)
            except KubernetesError as error:
                unread_parts.append(f"Kubernetes: {error}")
        return Inventory(
            kubernetes, eurekas, tuple(self._missing), tuple(unread_parts), index, mirrors, operators
        )

    def _read_eureka(self, name: str, peers: Peers, unread_parts: list[str]) -> EurekaListing:
        kind = self._kinds_by_connection[name]
        self._progress(f"reading {kind.name} {name}")
        try:
            instances, failures = peers.list_everywhere()
        except RegistryError as error:
            unread_parts.append(f"{kind.name} {name}: {error}")
            return EurekaListing(server_count=len(peers.peers), error=str(error), registry_kind=kind)
        silent = {url: str(failure) for url, failure in failures.items()}
        unread_parts += [f"the Eureka server {url}: {why}" for url, why in silent.items()]
        return EurekaListing(tuple(instances), len(peers.peers), silent, registry_kind=kind)

    def _read_kubernetes(
        self, reader: _ClusterObjectReader, instances: Sequence[Instance]
    ) -> tuple[KubernetesInventory | None, ServiceIndex, MirrorInventory]:
        """Read a cluster, or nothing where its syncers cannot be read; raise where nobody answers."""
        self._progress(f"reading Kubernetes at {reader.access.server}")
        reader.access.get("/version")
        cluster = reader.read_cluster()
        if self._settings.cluster_name is None:
            # Its operator may call it otherwise.
            named = find_cluster_name(cluster.uid, instances, self._settings.watch_namespaces)
            cluster = replace(cluster, name=named or cluster.name)
        read = {one: reader.list_in(one, SYNCERS) for one in reader.watched}
        syncers = [item for found in read.values() for item in found or ()]
        reader.name_missing_namespaces(syncers)
        if all(found is None for found in read.values()):
            # Whatever is registered would pass for what a syncer left behind.
            return None, ServiceIndex(), MirrorInventory()
        mirrors = reader.list_mirrors() or []
        wanted = [try_parse_syncer(one, self._kinds_by_connection) for one in syncers]
        selected = {one.selector.namespace for one in wanted if one is not None}
        selected |= {item["metadata"]["namespace"] for item in mirrors}
        for namespace in sorted(selected) if self._settings.watch_namespaces else (None,):
            reader.read_services(namespace)
        namespaces = [one for one, found in read.items() if one is not None and found is not None]
        mirror_inventory = MirrorInventory(
            mirrors, reader.mirror_slices, collect_cluster_addresses(reader.services, reader.slices)
        )
        unreadable = [one for one, found in read.items() if one is not None and found is None]
        names = cluster_names_by_syncer(cluster, instances)
        kubernetes = KubernetesInventory(cluster, syncers, {}, namespaces, unreadable, names)
        desired = {
            key: reader.desired_instances(syncer, kubernetes.cluster_of_syncer(key))
            for syncer in wanted
            if syncer is not None and reader.has_read_services(syncer.selector.namespace)
            for key in [(syncer.namespace, syncer.name)]
        }
        return replace(kubernetes, desired=desired), reader.index, mirror_inventory


class _ClusterObjectReader(ClusterReader):
    """A reader of the objects that syncers need; objects that cannot be read are not taken for absent.

    :ivar slices: all EndpointSlices but the mirrors', which are ``mirror_slices``.
    """

    def __init__(self, access: KubeAccess, settings: Settings, unread_parts: list[str]) -> None:
        super().__init__(access, settings, unread_parts)
        self._namespaces: set[str | None] = set()
        self.index = ServiceIndex()
        self.services: list[Object] = []
        self.slices: list[Object] = []
        self.mirror_slices: list[Object] = []
        # They read at their first call, and return None for what cannot be read.
        self._nodes = cache(partial(self.list_in, None, NODES))
        self._routes = cache(self._read_routes)
        self._pod_labels = cache(self._read_pod_labels)
        self._pods_on_hosts = cache(self._read_pods_on_hosts)

    def read_services(self, namespace: str | None) -> None:
        services = self.list_in(namespace, SERVICES)
        slices = self.list_in(namespace, ENDPOINT_SLICES)
        for service in services or ():
            self.index.update_service(None, dict(service))
        for one in slices or ():
            self.index.update_slice(None, dict(one))
            (self.mirror_slices if is_mirrored(one) else self.slices).append(one)
        self.services += services or ()
        if services is not None and slices is not None:
            self._namespaces.add(namespace)

    def has_read_services(self, namespace: str) -> bool:
        return None in self._namespaces or namespace in self._namespaces

    def _read_routes(self, advertise: Advertise) -> Routes | None:
        before = len(self.unread_parts)
        found = {name: self.list_objects(kind) for name, kind in ROUTE_KINDS[advertise].items()}
        routes = Routes(**found, read_namespaces=self._settings.watch_namespaces or None)
        return routes if len(self.unread_parts) == before else None

    def _read_pod_labels(self, namespace: str) -> dict[str, Mapping[str, str]] | None:
        pods = self.list_in(namespace, PODS, only_metadata=True)
        if pods is None:
            return None
        return {pod["metadata"]["name"]: pod["metadata"].get("labels") or {} for pod in pods}

    def _read_pods_on_hosts(self, namespace: str) -> dict[str, PodOnHost] | None:
        pods = self.list_in(namespace, PODS)
        return None if pods is None else {pod["metadata"]["name"]: PodOnHost.of(pod) for pod in pods}

    def desired_instances(self, syncer: Syncer, cluster: Cluster) -> DesiredInstances:
        labels = self._pod_labels(syncer.selector.namespace) if syncer.needs_pod_labels else None
        on_hosts = self._pods_on_hosts(syncer.selector.namespace) if syncer.needs_host_ports else None
        return desired_instances(
            syncer,
            *self.index.services_and_slices(syncer.selector),
            cluster,
            nodes=self._nodes() if syncer.needs_nodes else None,
            routes=self._routes(syncer.advertise) if syncer.needs_routes else None,
            labels_of_pod=(lambda name: labels.get(name, {})) if labels is not None else None,
            find_pod=_pod_on_host_finder(on_hosts) if on_hosts is not None else None,
        )


def _pod_on_host_finder(pods: Mapping[str, PodOnHost]) -> FindPodOnHost:
    return lambda name, address: pod.if_at_address(address) if (pod := pods.get(name)) else None


def try_parse_syncer(
    item: Object, kinds_by_connection: Mapping[str, RegistryKind] = EMPTY_MAPPING
) -> Syncer | None:
    """Return a syncer's parsed spec; None for a syncer that is being deleted, or whose spec cannot be served.

    :param kinds_by_connection: the kinds of the registries by connection; a missing one is Eureka's.
    """
    if is_being_deleted(item):
        return None
    try:
        kind = kinds_by_connection.get(connection_name(item), EUREKA)
        return adapt_to_registry(Syncer.from_object(item), item, kind)
    except ConfigurationError:
        return None


def find_endpoint(inventory: Inventory, syncer: Syncer, instance: Instance) -> Object | None:
    """Return the endpoint with an instance's address, or, with host ports, of its pod."""
    if syncer.mode is not Mode.POD:
        return None
    _, slices = inventory.index.services_and_slices(syncer.selector)
    endpoints = (one for each in slices for one in each.get("endpoints") or ())
    if syncer.needs_host_ports:
        name, _ = pod_and_namespace_of_id(instance.instance_id)
        return next((one for one in endpoints if pod_name_of_endpoint(one) == name), None)
    return next((one for one in endpoints if one["addresses"][0] == instance.ip_address), None)
