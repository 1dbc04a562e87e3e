"""The mapping from Kubernetes objects to desired instances: pure, on the API's raw JSON.

A problem with one object never hides the others: what can be mapped is, and the rest is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eurekube_provider.core.addresses import Address, node_addresses, service_address
from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    LEAVING_KEY,
    NODE_KEY,
    OWNER_KEY,
    Cluster,
    metadata_key,
    node_instance_id,
    pod_instance_id,
    service_instance_id,
)
from eurekube_provider.core.mapping_cache import NOT_MAPPED, MappingCache, SliceMapping
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import (
    Object,
    is_packed_by_kubernetes,
    is_ready,
    is_terminating,
    qualified,
    service_of,
)
from eurekube_provider.core.ports import Ports, choose_ports
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Advertise, Mode, NotReady, Syncer
from eurekube_provider.core.text import check_instance_id, check_metadata

LabelsOfPod = Callable[[str], Mapping[str, str]]
"""The labels of a pod by its name; none for one that is not known."""

_CERTAIN = frozenset({Reason.NO_MATCHING_SERVICE})
"""Problems that leave no doubt about what is desired."""

UNREAD = frozenset({Reason.NAMESPACE_NOT_READ, Reason.NODES_NOT_READ, Reason.PODS_NOT_READ})
"""Problems that end by themselves as soon as something was read."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The instances that a syncer wants in Eureka, and what could not be mapped.

    :param terminating: ids of endpoints that were seen on their way out; they are not among ``instances``.
    :param is_repacked: whether what is in no EndpointSlice may be on its way to another one, since those of
        one Service have different ports: if those are changed, Kubernetes packs one after the other anew.
    """

    instances: tuple[Instance, ...] = ()
    problems: tuple[Problem, ...] = ()
    terminating: frozenset[str] = frozenset()
    is_repacked: bool = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether more may be desired than ``instances``: what is registered is kept then."""
        return any(problem.reason not in _CERTAIN for problem in self.problems)

    @property
    def is_unread(self) -> bool:
        """Whether something that the syncer needs has not been read yet."""
        return any(problem.reason in UNREAD for problem in self.problems)


def desired_instances(
    syncer: Syncer,
    services: Iterable[Object],
    slices: Iterable[Object],
    cluster: Cluster,
    *,
    nodes: Iterable[Object] | None = None,
    labels_of_pod: LabelsOfPod | None = None,
    mapped: MappingCache | None = None,
) -> Desired:
    """Map a syncer's Services and EndpointSlices to the instances that it wants in Eureka.

    :param services: Services of its target namespace; those that it does not select are passed over.
    :param slices: EndpointSlices of that namespace; those of other Services are passed over.
    :param nodes: the cluster's nodes; None as long as they have not been read.
    :param labels_of_pod: None as long as the pods have not been read. Both are asked for only where
        :attr:`Syncer.needs_nodes` or :attr:`Syncer.needs_pods` says so.
    :param mapped: what was mapped before, which is brought up to date.
    """
    selected = {one["metadata"]["name"]: one for one in services if syncer.selector.selects(one)}
    if not selected:
        sentence = f"no Service in namespace {syncer.selector.namespace} {syncer.selector.describe()}"
        return Desired(problems=(Problem(Reason.NO_MATCHING_SERVICE, sentence),))
    if syncer.needs_pods and labels_of_pod is None:
        sentence = "the labels of the pods have not been read yet: nothing is changed before"
        return Desired(problems=(Problem(Reason.PODS_NOT_READ, sentence),))
    by_service: dict[str, list[Object]] = {name: [] for name in selected}
    for endpoint_slice in slices:
        name = service_of(endpoint_slice)
        if name in by_service:
            by_service[name].append(endpoint_slice)
    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating: set[str] = set()
    is_repacked = False
    if mapped is not None:
        mapped.forget_others(map(qualified, selected.values()))
    for name, service in sorted(selected.items()):
        if syncer.mode is Mode.POD:
            part = _pod_instances(syncer, service, by_service[name], cluster, labels_of_pod, mapped)
        else:
            part = _service_instance(syncer, service, by_service[name], cluster, nodes)
        if len(selected) == 1:
            return part
        for instance in part.instances:
            # Two Services over one pod: a pod that is ready for one of them can be called.
            other = instances.get(instance.instance_id)
            if other is None or other.status is not Status.UP:
                instances[instance.instance_id] = instance
        problems.update(dict.fromkeys(part.problems))
        terminating |= part.terminating
        is_repacked |= part.is_repacked
    for instance_id in terminating:
        instances.pop(instance_id, None)
    return Desired(tuple(instances.values()), tuple(problems), frozenset(terminating), is_repacked)


def leaving(desired: Desired, actual: Iterable[Instance]) -> list[Instance]:
    """Return registered instances whose endpoints terminate, as OUT_OF_SERVICE until the endpoint is gone.

    It is marked as ours to undo: the next pod of a StatefulSet has the same id, and must not be taken for one
    that a person put out of service. What a person did put out of service stays as it is.
    """
    return [
        one
        if one.status is Status.OUT_OF_SERVICE
        else replace(one, status=Status.OUT_OF_SERVICE, metadata={**one.metadata, LEAVING_KEY: "true"})
        for one in actual
        if one.instance_id in desired.terminating
    ]


def _pod_instances(
    syncer: Syncer,
    service: Object,
    slices: list[Object],
    cluster: Cluster,
    labels_of_pod: LabelsOfPod | None,
    mapped: MappingCache | None,
) -> Desired:
    family = _address_type(service, slices)
    common = _labels_as_metadata(syncer.metadata_from_labels, service["metadata"].get("labels"))
    reads_pods = labels_of_pod is not None and bool(syncer.metadata_from_pod_labels)
    where = qualified(service)
    context = (syncer, cluster, common)
    known, before_by_zone = mapped.of(where, context) if mapped is not None and not reads_pods else ({}, {})
    fixed = _fixed_metadata(syncer, cluster)
    by_zone = dict(before_by_zone)  # thousands of instances share a handful of these
    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating: set[str] = set()
    parts: dict[str, tuple[Object, SliceMapping]] = {}
    for endpoint_slice in slices:
        if endpoint_slice.get("addressType", "IPv4") != family or not endpoint_slice.get("endpoints"):
            continue
        name = endpoint_slice["metadata"]["name"]
        before = known.get(name)
        if before is not None and before[0] is endpoint_slice:
            part = before[1]
        else:
            known_part = before[1] if before is not None else NOT_MAPPED
            part = _slice_instances(
                syncer, endpoint_slice, where, cluster, common, fixed, by_zone, labels_of_pod, known_part
            )
        parts[name] = (endpoint_slice, part)
        if instances.keys().isdisjoint(part.instances):
            instances.update(part.instances)
        else:  # an endpoint on its way from one slice to another: one that is ready can be called
            for instance_id, instance in part.instances.items():
                if instance.status is Status.UP or instance_id not in instances:
                    instances[instance_id] = instance
        problems.update(part.problems)
        terminating |= part.terminating
    for instance_id in terminating:
        instances.pop(instance_id, None)
    if mapped is not None and not reads_pods:
        mapped.keep(where, context, parts, by_zone)
    ports = [one.get("ports") for one, _ in parts.values() if is_packed_by_kubernetes(one)]
    # Else what is not ready is missing, too, and must go at once.
    is_repacked = syncer.not_ready is NotReady.DOWN and any(one != ports[0] for one in ports)
    return Desired(tuple(instances.values()), tuple(problems), frozenset(terminating), is_repacked)


def _slice_instances(
    syncer: Syncer,
    endpoint_slice: Object,
    service: str,
    cluster: Cluster,
    common: Mapping[str, str],
    fixed: Mapping[str, str],
    by_zone: dict[str, Mapping[str, str]],
    labels_of_pod: LabelsOfPod | None,
    before: SliceMapping,
) -> SliceMapping:
    where = f"EndpointSlice {qualified(endpoint_slice)} of Service {service}"
    ports = choose_ports(endpoint_slice.get("ports"), syncer.port, syncer.secure_port, where)
    if isinstance(ports, Problem):
        return SliceMapping({}, {ports: None}, frozenset())
    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating: set[str] = set()
    endpoints: dict[int, tuple[Object, Instance]] = {}
    known = before.endpoints if before.ports == ports else {}
    for endpoint in endpoint_slice["endpoints"]:
        same = known.get(id(endpoint))
        if same is not None:
            instance = same[1]
            if instance.status is Status.UP or instance.instance_id not in instances:
                instances[instance.instance_id] = instance
                endpoints[id(endpoint)] = same
            continue
        address = endpoint["addresses"][0]
        target = endpoint.get("targetRef") or {}
        pod = target["name"] if target.get("kind") == "Pod" and target.get("name") else None
        name = pod or address
        instance_id = pod_instance_id(
            name,
            syncer.selector.namespace,
            cluster.name,
            syncer.application,
            ports.plain.number,
        )
        if is_terminating(endpoint):
            terminating.add(instance_id)
            continue
        ready = is_ready(endpoint)
        if not ready and (instance_id in instances or syncer.not_ready is NotReady.REMOVE):
            continue
        zone = endpoint.get("zone") or ""
        try:
            # Kubernetes checks neither the zone nor the pod's name of hand-written slices.
            check_instance_id(instance_id)
            if pod and labels_of_pod is not None and syncer.metadata_from_pod_labels:
                of_pod = _labels_as_metadata(syncer.metadata_from_pod_labels, labels_of_pod(pod))
                metadata: Mapping[str, str] = _metadata(zone, {**common, **of_pod}, fixed)
            elif zone in by_zone:
                metadata = by_zone[zone]
            else:
                metadata = by_zone[zone] = _metadata(zone, common, fixed)
            instance = _instance(syncer, instance_id, Address.of(address), ports, metadata, is_up=ready)
            instances[instance_id] = instance
            endpoints[id(endpoint)] = (endpoint, instance)
        except InvalidInstance as error:
            problems[Problem(Reason.INVALID_INSTANCE, f"{where}: {error}")] = None
    return SliceMapping(instances, problems, frozenset(terminating), ports, endpoints)


def _service_instance(
    syncer: Syncer,
    service: Object,
    slices: list[Object],
    cluster: Cluster,
    nodes: Iterable[Object] | None,
) -> Desired:
    has_ready_endpoint = any(
        is_ready(endpoint) for endpoint_slice in slices for endpoint in endpoint_slice.get("endpoints") or ()
    )
    if not has_ready_endpoint and syncer.not_ready is NotReady.REMOVE:
        return Desired()
    places = _places(syncer, service, slices, cluster, nodes)
    if isinstance(places, Problem):
        return Desired(problems=(places,))
    ports = choose_ports(
        (service.get("spec") or {}).get("ports"),
        syncer.port,
        syncer.secure_port,
        f"Service {qualified(service)}",
        "nodePort" if syncer.advertise is Advertise.NODE_PORT else "port",
    )
    if isinstance(ports, Problem):
        return Desired(problems=(ports,))
    names = (syncer.selector.namespace, cluster.name, syncer.application, ports.plain.number)
    name = service["metadata"]["name"]
    labels = _labels_as_metadata(syncer.metadata_from_labels, service["metadata"].get("labels"))
    instances = []
    try:
        for number, (node, address) in enumerate(places):
            # The first has the Service's own id, whichever node that is: it stood there alone once.
            instance_id = (
                node_instance_id(name, node, *names) if number else service_instance_id(name, *names)
            )
            marks = {NODE_KEY: node} if number else {}
            check_instance_id(instance_id)
            metadata = _metadata("", labels, {**_fixed_metadata(syncer, cluster), **marks})
            instances.append(
                _instance(syncer, instance_id, address, ports, metadata, is_up=has_ready_endpoint)
            )
    except InvalidInstance as error:
        return Desired(problems=(Problem(Reason.INVALID_INSTANCE, f"Service {qualified(service)}: {error}"),))
    return Desired(tuple(instances))


def _places(
    syncer: Syncer, service: Object, slices: list[Object], cluster: Cluster, nodes: Iterable[Object] | None
) -> tuple[tuple[str, Address], ...] | Problem:
    """List the addresses of a whole Service; with node ports each with the name of its node."""
    if syncer.advertise is Advertise.NODE_PORT:
        return node_addresses(service, slices, nodes, most=syncer.nodes)
    address = service_address(service, slices, syncer.advertise, cluster.domain, nodes)
    return address if isinstance(address, Problem) else (("", address),)


def _instance(
    syncer: Syncer,
    instance_id: str,
    address: Address,
    ports: Ports,
    metadata: Mapping[str, str],
    *,
    is_up: bool,
) -> Instance:
    plain = f"http://{address.host_name}:{ports.plain.number}"
    secure = f"https://{address.host_name}:{ports.secure.number}" if ports.secure.enabled else ""
    health = syncer.health_check_path
    return Instance(
        application=syncer.application,
        instance_id=instance_id,
        host_name=address.host_name,
        ip_address=address.ip_address,
        port=ports.plain,
        secure_port=ports.secure,
        vip_address=syncer.vip_address,
        secure_vip_address=syncer.secure_vip_address,
        status=Status.UP if is_up else Status.DOWN,
        metadata=metadata,
        lease=syncer.lease,
        home_page_url=f"{secure or plain}{syncer.home_page_path}",
        status_page_url=f"{secure or plain}{syncer.status_page_path}" if syncer.status_page_path else "",
        health_check_url=f"{plain}{health}" if health and ports.plain.enabled else "",
        secure_health_check_url=f"{secure}{health}" if health and secure else "",
    )


def _fixed_metadata(syncer: Syncer, cluster: Cluster) -> dict[str, str]:
    """Return the metadata that win over labels and zones: the syncer's own values, and ours over these."""
    return {**syncer.metadata, OWNER_KEY: syncer.owner(cluster), CLUSTER_UID_KEY: cluster.uid}


def _metadata(zone: str, labels: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """Put together all metadata of an instance; refuse what clients could not read, and too much in sum."""
    metadata = {**({"zone": zone} if zone else {}), **labels, **fixed}
    check_metadata(metadata)
    return metadata


def _labels_as_metadata(wanted: Iterable[str], labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels that have a value, under their metadata keys; Eureka knows no empty value."""
    return {metadata_key(label): value for label in wanted if (value := (labels or {}).get(label))}


def _address_type(service: Object, slices: list[Object]) -> str:
    """Choose one address family, the Service's first if possible: a dual-stack pod is one instance."""
    families = (service.get("spec") or {}).get("ipFamilies") or ()
    offered = [str(endpoint_slice.get("addressType", "IPv4")) for endpoint_slice in slices]
    for family in (*families, "IPv4", "IPv6"):
        if family in offered:
            return str(family)
    return "IPv4"
