"""The doctor's reader of a snapshot of cluster and all Eureka servers; unread parts are named."""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eurekube_provider.comparison.operators import OperatorsSnapshot
from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.identity import Cluster, default_cluster_name
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, has_pod_ended, has_unshared_address, key_of, pod_addresses
from eurekube_provider.core.registry_kinds import EUREKA
from eurekube_provider.doctor.operators_reader import read_operators
from eurekube_provider.doctor.registry_checks import Disagreement, Pod
from eurekube_provider.doctor.workload_checks import Workload, WorkloadIndex
from eurekube_provider.eureka.peers import Peers, merge_lists
from eurekube_provider.eureka.self_preservation import FrontPage
from eurekube_provider.eureka.uncached_reads import RefusalByKey, read_instances
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    MIRRORS,
    NAMESPACES,
    PODS,
    SERVICES,
    SYNCERS,
    WORKLOADS_BY_KIND,
    ApiResource,
    KubeAccess,
    namespace_exists,
)
from eurekube_provider.operator.identity_check import CheckVerdict
from eurekube_provider.operator.registries import zookeeper_servers
from eurekube_provider.operator.selfcheck import INSTALL_CRDS_COMMAND, check_eureka, check_zookeeper
from eurekube_provider.operator.settings import Settings

if TYPE_CHECKING:
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

MAX_INSTANCES_REREAD = 500
"""The number of instances that differ between two servers' lists and are read again from all servers.
Lists are up to 30 s old, each server's in its own way, so that they differ in whatever changes.
"""

REPLICATION_WAIT_SECONDS = 3.0
"""Seconds after which a difference between servers counts as lasting: servers replicate within a second."""

_LIST_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class EurekaSnapshot:
    """One Eureka as its servers showed it.

    :ivar instances: the instances that any server lists.
    :ivar front_pages: the servers' front pages by URL, as far as they can be read.
    :ivar server_problems: pairs of a server's URL and its problem.
    :ivar server_count: the number of servers that answered.
    """

    name: str
    instances: tuple[Instance, ...] = ()
    front_pages: Mapping[str, FrontPage] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = ()
    server_problems: tuple[tuple[str, str], ...] = ()
    server_count: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects and instances that the doctor checks.

    :ivar mirrors: the mirrors; empty for a cluster without the kind; None where they cannot be read.
    :ivar pods: the pods by address, without those that share their node's address.
    :ivar supports_sleep_hook: True if the cluster knows a preStop that sleeps (Kubernetes 1.30).
    :ivar unread_parts: a sentence for each part that could not be read.
    :ivar operators: the cluster's operators; None where they were not asked for.
    :ivar unread_kinds: the kinds of objects that could not be read, or not everywhere.
    """

    cluster: Cluster
    syncers: tuple[Object, ...] = ()
    mirrors: tuple[Object, ...] | None = ()
    services: tuple[Object, ...] = ()
    slices: tuple[Object, ...] = ()
    workloads: tuple[Workload, ...] = ()
    pods: Mapping[str, Pod] = field(default_factory=dict)
    eurekas: Mapping[str, EurekaSnapshot] = field(default_factory=dict)
    supports_sleep_hook: bool = True
    unread_parts: tuple[str, ...] = ()
    operators: OperatorsSnapshot | None = None
    unread_kinds: frozenset[str] = frozenset()

    @property
    def object_counts(self) -> dict[str, int]:
        """Return how many objects were read, by kind; a kind that could not be read is left out."""
        found = {
            "syncers": len(self.syncers),
            "mirrors": len(self.mirrors or ()),
            "services": len(self.services),
            "workloads": len(self.workloads),
            "instances": sum(len(one.instances) for one in self.eurekas.values()),
            "Eureka servers": sum(one.server_count for one in self.eurekas.values()),
        }
        unread_kinds = {"mirrors", *self.unread_kinds}
        if not found["Eureka servers"]:
            unread_kinds |= {"instances", "Eureka servers"}
        return {kind: count for kind, count in found.items() if count or kind not in unread_kinds}


def read_snapshot(settings: Settings) -> Snapshot:
    """Read the cluster and each Eureka that ``settings`` name; what does not answer is an unread part.

    :raises EurekubeError: the cluster cannot be asked at all, or a configuration cannot be used.
    """
    unread_parts: list[str] = []
    reader = ClusterReader(KubeAccess.load(settings.kubeconfig, settings.context), settings, unread_parts)
    minor = re.match(r"\d+", str(reader.access.get("/version").get("minor") or ""))
    unread_kinds: set[str] = set()

    def list_kind(kind: str, resource: ApiResource) -> list[Object]:
        before = len(unread_parts)
        found = reader.list_objects(resource)
        if len(unread_parts) > before:
            unread_kinds.add(kind)
        return found

    listed = [
        Workload(kind, one)
        for kind, where in WORKLOADS_BY_KIND.items()
        for one in list_kind("workloads", where)
    ]
    workloads, pods = match_pods_to_workloads(list_kind("pods", PODS), listed)
    syncers = list_kind("syncers", SYNCERS)
    reader.name_missing_namespaces(syncers)
    mirrors = reader.list_mirrors()
    cluster = reader.read_cluster()
    with ExitStack() as stack:
        peers, eurekas = dict[str, Peers](), dict[str, EurekaSnapshot]()
        for name, connection in settings.connections.items():
            if connection.registry_kind == EUREKA:
                peers[name] = stack.enter_context(closing(Peers(connection)))
                eurekas[name] = read_eureka(name, peers[name], unread_parts)
            else:
                servers = stack.enter_context(closing(zookeeper_servers(connection)))
                eurekas[name] = read_zookeeper(name, servers, pods, unread_parts)
        lists = [(one, eurekas[name].instances) for name, one in peers.items()]
        operators = read_operators(reader.access, cluster.uid, lists, settings.watch_namespaces, unread_parts)
    services, slices = list_kind("services", SERVICES), list_kind("endpointslices", ENDPOINT_SLICES)
    # Else a mirror that was made meanwhile would count as gone, and its Services as left behind.
    later = reader.list_mirrors() if mirrors is not None else None
    if mirrors is not None and later is not None:
        mirrors = list({key_of(one): one for one in (*mirrors, *later)}.values())
    return Snapshot(
        cluster=cluster,
        syncers=tuple(syncers),
        mirrors=None if mirrors is None or later is None else tuple(mirrors),
        services=tuple(services),
        slices=tuple(slices),
        workloads=tuple(workloads),
        pods=pods,
        eurekas=eurekas,
        supports_sleep_hook=minor is not None and int(minor[0]) >= 30,
        operators=operators,
        unread_kinds=frozenset(unread_kinds),
        unread_parts=tuple(unread_parts),
    )


class ClusterReader:
    """A reader of one cluster, which goes on where a part cannot be read.

    :param unread_parts: gets a sentence for each part that cannot be read.
    """

    def __init__(self, access: KubeAccess, settings: Settings, unread_parts: list[str]) -> None:
        self.access, self.unread_parts = access, unread_parts
        self._settings = settings
        self.watched: Sequence[str | None] = settings.watch_namespaces or (None,)

    def read_cluster(self) -> Cluster:
        """Return the cluster's name and UID."""
        uid, name = "", self._settings.cluster_name
        try:
            uid = str(self.access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
        except KubernetesError as error:
            if name is None:
                self.unread_parts.append(f"which instances are this cluster's: give --cluster-name ({error})")
        return Cluster(name or default_cluster_name(uid), uid, self._settings.cluster_domain)

    def list_objects(self, resource: ApiResource) -> list[Object]:
        """Return the objects of a kind in the watched namespaces, as far as they can be read."""
        return [one for each in self.watched for one in self.list_in(each, resource) or ()]

    def name_missing_namespaces(self, objects: Iterable[Object]) -> None:
        """Name the watched namespaces that do not exist, of those in which none of these objects is."""
        seen = {one["metadata"]["namespace"] for one in objects}
        self.unread_parts += [
            f"Kubernetes: there is no namespace {one}"
            for one in self.watched
            if one is not None and one not in seen and not namespace_exists(self.access, one)
        ]

    def list_in(
        self, namespace: str | None, resource: ApiResource, *, only_metadata: bool = False
    ) -> list[Object] | None:
        """Return the objects of a kind in a namespace, or in all; None where they cannot all be read."""
        access = self.access.with_metadata_only() if only_metadata else self.access
        try:
            return list(_iterate_objects(access, resource, namespace))
        except KubernetesError as error:
            self.unread_parts.append(_describe_read_failure(resource, namespace, error))
            return None

    def list_mirrors(self) -> list[Object] | None:
        """Return the mirrors, none for an unknown kind; None where they cannot be read."""
        refused: list[str] = []
        found: list[Object] = []
        for namespace in self.watched:
            try:
                found += _iterate_objects(self.access, MIRRORS, namespace)
            except KubernetesError as error:
                if error.status_code == 404:
                    continue
                if error.status_code == 403 and not self.access.serves_kind(MIRRORS):
                    return []
                refused.append(_describe_read_failure(MIRRORS, namespace, error))
        self.unread_parts += refused
        return None if refused else found


def _iterate_objects(access: KubeAccess, resource: ApiResource, namespace: str | None) -> Iterator[Object]:
    for page in access.pages(resource.path(namespace), timeout_seconds=_LIST_TIMEOUT_SECONDS):
        yield from page.get("items") or ()


def _describe_read_failure(resource: ApiResource, namespace: str | None, error: KubernetesError) -> str:
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    if resource is SYNCERS and error.status_code == 404:
        return (
            "syncers: the cluster does not know the kind EurekaSyncer: install it with "
            f"{INSTALL_CRDS_COMMAND}"
        )
    return f"{resource.plural} {where}: {error}"


def match_pods_to_workloads(
    pods: Sequence[Object], workloads: Sequence[Workload]
) -> tuple[list[Workload], dict[str, Pod]]:
    """Return the workloads, each with one of the pods that it runs, and others for pods of other owners; and
    the pods by address, without those that have ended.
    """
    index = WorkloadIndex(workloads)
    run_by = [(pod, index.find_by_pod(pod)) for pod in pods if not has_pod_ended(pod)]
    # Its newest pod most likely has a workload's current template.
    newest = {
        workload.subject: pod
        for pod, workload in sorted(run_by, key=lambda each: _creation_sort_key(each[0]))
        if workload is not None and not pod["metadata"].get("deletionTimestamp")
    }
    with_pods = [replace(one, live_pod=newest.get(one.subject)) for one in workloads]
    return [*with_pods, *_workloads_of_unmatched_pods(run_by)], _pods_by_address(run_by)


def _creation_sort_key(pod: Object) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp") or ""), str(pod["metadata"]["name"])


def _workloads_of_unmatched_pods(run_by: Iterable[tuple[Object, Workload | None]]) -> list[Workload]:
    """Return a workload for each owner that is none of the given ones, and for each pod without an owner."""
    found: dict[str, Workload] = {}
    for pod, workload in run_by:
        metadata = pod["metadata"]
        if workload is None and not metadata.get("deletionTimestamp"):
            owners = metadata.get("ownerReferences") or ({"uid": metadata["name"]},)
            found.setdefault(f"{metadata['namespace']}/{owners[0].get('uid')}", Workload("Pod", pod))
    return list(found.values())


def _pods_by_address(run_by: Iterable[tuple[Object, Workload | None]]) -> dict[str, Pod]:
    found = {}
    for pod, workload in run_by:
        for address in pod_addresses(pod):
            if has_unshared_address(pod, address):
                found[address] = Pod(str(pod["metadata"]["name"]), address, workload or Workload("Pod", pod))
    return found


def read_eureka(name: str, peers: Peers, unread_parts: list[str]) -> EurekaSnapshot:
    """Read the clients' list, up to 30 s old, from each server; ``unread_parts`` is told if none answers."""
    warnings = [one for one in check_eureka(name, peers) if one.verdict is CheckVerdict.WARNING]
    server_problems = [(one.subject.removeprefix(f"{name} "), one.detail) for one in warnings]
    lists, failures = peers.ask_all(lambda peer: peer.list_instances())
    if not lists:
        unread_parts.append(f"the Eureka {name}: {next(iter(failures.values()))}")
        return EurekaSnapshot(name, server_problems=tuple(server_problems))
    with ThreadPoolExecutor(len(peers.peers)) as pool:
        pages = pool.map(lambda peer: (peer.url, peer.read_front_page()), peers.peers)
        front_pages = {url: page for url, page in pages if page is not None}
    disagreements, unread = _find_disagreements(peers, lists)
    known = {one.subject for one in warnings if one.check == "eureka"}
    server_problems += [
        (url, f"its registry could not be read: {why}")
        for url, why in {**unread, **failures}.items()
        if f"{name} {url}" not in known
    ]
    instances = tuple(merge_lists(lists.values()))
    return EurekaSnapshot(
        name, instances, front_pages, tuple(disagreements), tuple(server_problems), len(lists)
    )


def read_zookeeper(
    name: str, servers: ZooKeeperServers, pods: Container[str], unread_parts: list[str]
) -> EurekaSnapshot:
    """Read one ZooKeeper ensemble, and what ended operators left there at none of the pods' addresses."""
    try:
        instances, _ = servers.list_everywhere()
    except RegistryError as error:
        unread_parts.append(f"the ZooKeeper {name}: {error}")
        return EurekaSnapshot(name)
    found = check_zookeeper(name, servers, pods)
    server_problems = tuple((one.subject, one.detail) for one in found if one.verdict is CheckVerdict.WARNING)
    return EurekaSnapshot(name, tuple(instances), server_problems=server_problems, server_count=1)


def _find_disagreements(
    peers: Peers, lists: Mapping[str, Sequence[Instance]]
) -> tuple[list[Disagreement], Mapping[str, RegistryError]]:
    """Return lasting differences between the servers' lists, and by URL why a server could not be read."""
    held = [{one.key: one.status for one in listed} for listed in lists.values()]
    keys = {key for statuses in held for key in statuses}
    differ = sorted(key for key in keys if len({statuses.get(key) for statuses in held}) > 1)
    if not differ:
        return [], {}
    time.sleep(REPLICATION_WAIT_SECONDS)
    compared = differ[:MAX_INSTANCES_REREAD]
    there, failures = peers.ask_all(lambda peer: read_instances(peer, compared, RefusalByKey()))
    seen = {
        key: {url: one.status if (one := held[key]) else None for url, held in there.items()}
        for key in compared
    }
    return [(key, statuses) for key, statuses in seen.items() if len(set(statuses.values())) > 1], failures
