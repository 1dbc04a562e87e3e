"""The mapping from Kubernetes objects to desired instances: pure, on the API's raw JSON.

A problem with one object never hides the others: the mapping returns every instance that it can make, and
sentences on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from eurekube_provider.core.address_families import keep_first_address_family
from eurekube_provider.core.addresses import (
    Address,
    loses_load_balancer,
    ready_node_addresses,
    service_address,
)
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.host_ports import (
    HOST_PORT_FIELD,
    PODS_UNREAD_FIELD,
    FindPodOnHost,
    PodWithoutHostPort,
    with_host_ports,
)
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    LEAVING_KEY,
    NODE_KEY,
    OWNER_KEY,
    Cluster,
    cluster_part_of_id,
    id_without_cluster,
    label_to_metadata_key,
    pod_and_namespace_of_id,
    pod_instance_id,
    service_part_of_id,
)
from eurekube_provider.core.mapping_cache import EMPTY_SLICE_MAPPING, MappingCache, SliceMapping
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.networks import check_unambiguous_address
from eurekube_provider.core.objects import (
    Object,
    endpoint_name,
    endpoints_of,
    is_external_name,
    is_managed_by_kubernetes,
    is_ready,
    is_terminating,
    pod_name_of_endpoint,
    publishes_not_ready_addresses,
    qualified_name,
)
from eurekube_provider.core.ports import (
    PortNumberField,
    Ports,
    choose_port_objects,
    choose_ports,
    with_metadata_and_health_ports,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.routed_addresses import routed_address
from eurekube_provider.core.routes import Routes
from eurekube_provider.core.service_choice import ServiceAndSlices, choose_services
from eurekube_provider.core.syncer import Advertise, Mode, NotReady, PortReference, Syncer
from eurekube_provider.core.text import (
    MAX_METADATA_BYTES,
    check_instance_id,
    check_metadata,
    describe_oversized_metadata,
    describe_unfit_metadata_value,
)
from eurekube_provider.core.wording import format_count

FindLabelsOfPod = Callable[[str], Mapping[str, str]]
"""A function that returns the labels of a pod by the pod's name; none for an unknown pod."""

_COMPLETE_DESPITE_REASONS = frozenset({Reason.NO_MATCHING_SERVICE, Reason.EXTERNAL_NAME})
"""Reasons of problems despite which the set of desired instances is certain."""

_LONGEST_PORT, _LONGEST_ZONE = "65535", "z" * 63
"""The longest values that a port and an endpoint's zone give to the metadata: a zone is a node's label."""

_TOO_MUCH_PHRASE = f"since metadata have at most {MAX_METADATA_BYTES} bytes together"

NOT_READ_YET_REASONS = frozenset(
    {Reason.NAMESPACE_NOT_READ, Reason.NODES_NOT_READ, Reason.PODS_NOT_READ, Reason.ROUTES_NOT_READ}
)
"""Reasons of problems that end as soon as the operator has read some objects."""


@dataclass(frozen=True)
class DesiredInstances:
    """The instances that a syncer wants in Eureka, and what could not be mapped.

    :param terminating_ids: ids of endpoints that were seen terminating; they are not among ``instances``.
    :param are_slices_being_repacked: True if an endpoint that no EndpointSlice has may be on its way to
        another one, because the slices of one Service have different ports: if those are changed, Kubernetes
        packs one slice after the other again.
    :param left_out_endpoint_sentences: sentences on endpoints of the Services that cannot be instances.
    :param left_out_metadata_sentences: sentences on metadata, or health checks, that instances lack.
    :param has_endpoints: True if the Services have endpoints that are not terminating.
    :param status_without_address: by the place in an instance's id
        (:func:`.identity.pod_and_namespace_of_id`), the status of a whole Service whose address or port is
        not known: if the Service is registered, callers must not call it while it is not ready.
    :param pods_without_host_port: by the place in an instance's id, live pods whose host port is not known.
    :param other_services: the Services that the selector finds and that are not the one meant, with their
        EndpointSlices.
    :param unread_metadata_keys: the keys of metadata that come from labels of pods which nobody may read: an
        instance keeps those that it is registered with, and a new one has none.
    :param ambiguous_candidates: where it is not clear which Service is meant, the instances of each, the
        fewest first, and last those of Services that publish endpoints which are not ready; see
        :func:`limited_to_registered_ports`.
    """

    instances: tuple[Instance, ...] = ()
    problems: tuple[Problem, ...] = ()
    terminating_ids: frozenset[str] = frozenset()
    are_slices_being_repacked: bool = False
    left_out_endpoint_sentences: tuple[str, ...] = ()
    has_endpoints: bool = False
    status_without_address: Mapping[tuple[str, str], Status] = field(default_factory=dict)
    other_services: tuple[ServiceAndSlices, ...] = field(default=(), compare=False)
    ambiguous_candidates: tuple[tuple[Instance, ...], ...] = ()
    left_out_metadata_sentences: tuple[str, ...] = ()
    pods_without_host_port: Mapping[tuple[str, str], PodWithoutHostPort] = field(default_factory=dict)
    unread_metadata_keys: frozenset[str] = frozenset()

    @cached_property
    def keys(self) -> frozenset[InstanceKey]:
        """The keys of :attr:`instances`."""
        return frozenset([one.key for one in self.instances])

    @property
    def has_unread_pods(self) -> bool:
        """True if the pod of an endpoint was not read."""
        return any(not one.address for one in self.pods_without_host_port.values())

    @property
    def may_be_incomplete(self) -> bool:
        """True if more than ``instances`` may be desired: registered instances are then kept."""
        return bool(self.problems) and any(
            problem.reason not in _COMPLETE_DESPITE_REASONS for problem in self.problems
        )

    @property
    def has_unread_objects(self) -> bool:
        """True if something that the syncer needs has not been read yet."""
        return bool(self.problems) and any(
            problem.reason in NOT_READ_YET_REASONS for problem in self.problems
        )

    def ids_of_other_services(self, instances: Iterable[Instance]) -> frozenset[str]:
        """Return the ids of those among the instances that belong to a Service in :attr:`other_services`, or
        to one of its endpoints.
        """
        if not self.other_services:
            return frozenset()
        endpoints = {
            (endpoint_name(endpoint), port.get(number))
            for _, slices in self.other_services
            for one in slices
            for endpoint in one.get("endpoints") or ()
            for port in one.get("ports") or ()
            for number in ("port", HOST_PORT_FIELD)
        }
        wholes = {service_part_of_id(service["metadata"]["name"]) for service, _ in self.other_services}
        found = set()
        for one in instances:
            name, _ = pod_and_namespace_of_id(one.instance_id)
            if name in wholes or (name, one.port.number) in endpoints:
                found.add(one.instance_id)
        return frozenset(found)


def desired_instances(
    syncer: Syncer,
    services: Iterable[Object],
    slices: Iterable[Object],
    cluster: Cluster,
    *,
    nodes: Iterable[Object] | None = None,
    labels_of_pod: FindLabelsOfPod | None = None,
    find_pod: FindPodOnHost | None = None,
    mapped: MappingCache | None = None,
    routes: Routes | None = None,
) -> DesiredInstances:
    """Map a syncer's Services and EndpointSlices to the instances that it wants in Eureka.

    :param services: Services of the syncer's target namespace; those that it does not select are passed over.
    :param slices: EndpointSlices of that namespace; those of other Services are passed over.
    :param nodes: the cluster's nodes; None as long as they have not been read. Used only where
        :attr:`Syncer.needs_nodes`.
    :param labels_of_pod: returns a pod's labels; None as long as the pods have not been read. Used only where
        :attr:`Syncer.needs_pod_labels`.
    :param find_pod: returns a pod with its host ports; None as long as the pods have not been read. Used
        only where :attr:`Syncer.needs_host_ports`.
    :param mapped: the result of an earlier mapping, which is brought up to date.
    :param routes: None as long as they have not been read. Used only where :attr:`Syncer.needs_routes`.
    """
    selected = [one for one in services if syncer.selector.selects(one)]
    if not selected:
        sentence = f"no Service in namespace {syncer.selector.namespace} {syncer.selector.describe()}"
        return DesiredInstances(problems=(Problem(Reason.NO_MATCHING_SERVICE, sentence),))
    if syncer.needs_pod_labels and labels_of_pod is None:
        sentence = "the labels of the pods have not been read yet: nothing is changed before"
        return DesiredInstances(problems=(Problem(Reason.PODS_NOT_READ, sentence),))
    if syncer.needs_host_ports:
        if find_pod is None:
            sentence = "the host ports of the pods have not been read yet: nothing is changed before"
            return DesiredInstances(problems=(Problem(Reason.PODS_NOT_READ, sentence),))
        slices, mapped = with_host_ports(slices, find_pod), None
    choice = choose_services(syncer, selected, slices)
    if mapped is not None:
        mapped.keep_only_services([qualified_name(service) for service, _ in choice.meant])
    parts: list[DesiredInstances] = []
    for service, slices in choice.meant:
        if is_external_name(service):
            parts.append(_desired_of_external_name(service))
        elif syncer.mode is Mode.POD:
            parts.append(_pod_instances(syncer, service, slices, cluster, labels_of_pod, mapped))
        else:
            parts.append(_service_instance(syncer, service, slices, cluster, nodes, routes))
    if choice.problem is not None:
        candidates = [
            (publishes_not_ready_addresses(service), len(part.instances), part.instances)
            for (service, _), part in zip(choice.meant, parts, strict=True)
        ]
        candidates.sort(key=lambda one: one[:2])
        return DesiredInstances(
            problems=(choice.problem,),
            has_endpoints=_has_live_endpoints(choice.meant_slices),
            ambiguous_candidates=tuple(instances for *_, instances in candidates),
        )
    desired = parts[0] if len(parts) == 1 else _merge_desired(parts)
    return replace(desired, other_services=tuple(choice.others)) if choice.others else desired


def limited_to_registered_ports(desired: DesiredInstances, held: Iterable[Instance]) -> DesiredInstances:
    """Return the desired instances like the registered ones, where it is not clear which Service is meant.

    Nothing new is registered, but a pod that replaces a registered one is not new: without it, the next
    rolling update would leave no instance. So all endpoints of a Service are desired at the ports at which
    one of them is registered. A Service counts only if one of its registered instances is in no smaller
    Service: the Service of all pods does not bring the preview's pods along.

    :param held: the syncer's instances.
    """
    if not desired.ambiguous_candidates:
        return desired
    there = {(one.key[0], id_without_cluster(one.instance_id)) for one in held}
    found: dict[str, Instance] = {}
    for instances in desired.ambiguous_candidates:
        numbers = {
            one.port.number
            for one in instances
            if one.instance_id not in found and (one.key[0], id_without_cluster(one.instance_id)) in there
        }
        for one in instances:
            if one.port.number in numbers:
                found.setdefault(one.instance_id, one)
    return replace(desired, instances=tuple(found.values()), ambiguous_candidates=())


def _merge_desired(parts: Sequence[DesiredInstances]) -> DesiredInstances:
    """Return the union of the desired instances of several Services over the same pods: a pod that is ready
    in one of them is UP.
    """
    instances: dict[str, Instance] = {}
    terminating_ids = frozenset[str]().union(*(part.terminating_ids for part in parts))
    for part in parts:
        for instance in part.instances:
            other = instances.get(instance.instance_id)
            if other is None or other.status is not Status.UP:
                instances[instance.instance_id] = instance
    known = set(map(pod_and_namespace_of_id, instances))
    kept = {
        place: pod
        for part in parts
        for place, pod in part.pods_without_host_port.items()
        if place not in known
    }
    return DesiredInstances(
        tuple(one for one in instances.values() if one.instance_id not in terminating_ids),
        tuple(dict.fromkeys(problem for part in parts for problem in part.problems)),
        terminating_ids,
        any(part.are_slices_being_repacked for part in parts),
        tuple(dict.fromkeys(sentence for part in parts for sentence in part.left_out_endpoint_sentences)),
        any(part.has_endpoints for part in parts),
        left_out_metadata_sentences=tuple(
            dict.fromkeys(said for part in parts for said in part.left_out_metadata_sentences)
        ),
        pods_without_host_port=kept,
    )


def _desired_of_external_name(service: Object) -> DesiredInstances:
    """Return an empty mapping, with the problem, for a Service of type ExternalName.

    Its EndpointSlices are not read: Kubernetes leaves old ones behind, and nothing updates them.
    """
    target = (service.get("spec") or {}).get("externalName")
    sentence = (
        f"Service {qualified_name(service)} is a name for {target} alone, without endpoints and address"
    )
    return DesiredInstances(problems=(Problem(Reason.EXTERNAL_NAME, sentence),))


def _has_live_endpoints(slices: Iterable[Object]) -> bool:
    return not all(map(is_terminating, endpoints_of(slices)))


def keep_registered_ids(
    desired: DesiredInstances, held: Iterable[Instance], cluster: str
) -> DesiredInstances:
    """Return the desired instances under their ids in Eureka, whatever the cluster's name was then.

    An instance keeps its id while its endpoint lives. Under a new id it would be registered twice for a
    while, or not at all.

    :param held: the syncer's instances, also under former names of the cluster.
    :param cluster: the cluster's present name; an instance registered under this name keeps that id.
    """
    marks: dict[str, str] = {}
    there, former = list(held), set[InstanceKey]()
    for one in there:
        mark = marks.get(one.application)
        if mark is None:
            mark = marks[one.application] = cluster_part_of_id(one.application, cluster)
        if mark not in one.instance_id:
            former.add(one.key)
    if not former:  # as nearly always, of thousands at each reconcile
        return desired
    ids = {(name, id_without_cluster(id_)): id_ for name, id_ in former}
    taken = {one.key for one in there} - former

    def with_registered_id(one: Instance) -> Instance:
        id_ = None if one.key in taken else ids.get((one.key[0], id_without_cluster(one.instance_id)))
        return one if id_ is None else replace(one, instance_id=id_)

    ended = {id_without_cluster(one) for one in desired.terminating_ids}
    return replace(
        desired,
        instances=tuple(map(with_registered_id, desired.instances)),
        terminating_ids=desired.terminating_ids
        | {id_ for _, id_ in former if id_without_cluster(id_) in ended},
    )


def without_pod_labels(syncer: Syncer, desired: DesiredInstances, reason: str) -> DesiredInstances:
    """Return desired instances that were mapped without the labels of pods, with the problem that nobody may
    read these: new pods are registered all the same, since the old ones leave meanwhile.
    """
    sentence = f"the labels of the pods cannot be read: new pods are registered without them ({reason})"
    keys = frozenset(map(label_to_metadata_key, syncer.metadata_from_pod_labels))
    problems = (*desired.problems, Problem(Reason.PODS_NOT_READ, sentence))
    return replace(desired, problems=problems, unread_metadata_keys=keys)


def keep_registered_labels(desired: DesiredInstances, held: Iterable[Instance]) -> DesiredInstances:
    """Return the desired instances with the metadata from unread labels that they are registered with."""
    if not desired.unread_metadata_keys:
        return desired
    by_key = {one.key: one.metadata for one in held}

    def with_labels(one: Instance) -> Instance:
        there = by_key.get(one.key, {})
        kept = {key: there[key] for key in desired.unread_metadata_keys if key in there}
        return replace(one, metadata={**one.metadata, **kept}) if kept else one

    return replace(desired, instances=tuple(map(with_labels, desired.instances)))


def terminating_as_out_of_service(desired: DesiredInstances, actual: Iterable[Instance]) -> list[Instance]:
    """Return registered instances whose endpoints terminate, as OUT_OF_SERVICE until the endpoint is gone.

    A mark says that Eurekube set the status: the next pod of a StatefulSet has the same id, and must not be
    taken for an instance that a person put out of service. An instance that a person did put out of service
    stays as it is.
    """
    return [
        one
        if one.status is Status.OUT_OF_SERVICE
        else replace(one, status=Status.OUT_OF_SERVICE, metadata={**one.metadata, LEAVING_KEY: "true"})
        for one in actual
        if one.instance_id in desired.terminating_ids
    ]


def registered_without_address(desired: DesiredInstances, actual: Iterable[Instance]) -> list[Instance]:
    """Return registered instances whose address or port is not known now, with the present status.

    Everything else in the instances is kept.
    """
    found = []
    for one in actual:
        place, namespace = pod_and_namespace_of_id(one.instance_id)
        status = next(
            (
                status
                for (service, of), status in desired.status_without_address.items()
                if of == namespace and f"{place}.".startswith(f"{service}.")
            ),
            None,
        )
        if status is not None:
            found.append(replace(one, status=status))
        elif (pod := desired.pods_without_host_port.get((place, namespace))) and one.key not in desired.keys:
            kept = pod.registered_instance_to_keep(one)
            if kept is not None:
                found.append(kept)
    return found


def _pod_instances(
    syncer: Syncer,
    service: Object,
    slices: Sequence[Object],
    cluster: Cluster,
    labels_of_pod: FindLabelsOfPod | None,
    mapped: MappingCache | None,
) -> DesiredInstances:
    service_metadata, unfit = _service_metadata(syncer, service)
    if syncer.metadata_from_pod_labels:
        mapped = None  # labels may change without a change of the EndpointSlices
    else:
        labels_of_pod = None
    where, port = qualified_name(service), _preferred_port(syncer, service)
    context = (syncer, cluster, service_metadata, port)
    known, before_by_zone = mapped.lookup(where, context) if mapped is not None else ({}, {})
    metadata_by_zone = dict(before_by_zone)  # thousands of instances share a handful of these

    def metadata_of(pod: str, zone: str, ports: Ports) -> Mapping[str, str]:
        if pod and labels_of_pod is not None:
            fixed_metadata = _fixed_metadata(syncer, cluster)
            of_pod = _labels_as_metadata(syncer.metadata_from_pod_labels, labels_of_pod(pod))
            more = dict(ports.metadata)
            of_pod, too_much = _fitting(
                of_pod, {"zone": zone, **service_metadata}, {**more, **fixed_metadata}
            )
            unfit.extend(f"{key} of pods of Service {where}, {_TOO_MUCH_PHRASE}" for key in too_much)
            return _build_metadata(zone, {**service_metadata, **of_pod, **more}, fixed_metadata)
        metadata = metadata_by_zone.get((zone, ports.metadata))
        if metadata is None:
            fixed_metadata = _fixed_metadata(syncer, cluster)
            metadata = _build_metadata(zone, {**service_metadata, **dict(ports.metadata)}, fixed_metadata)
            metadata_by_zone[zone, ports.metadata] = metadata
        return metadata

    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating_ids: set[str] = set()
    parts: dict[str, SliceMapping] = {}
    addressed, left_out = keep_first_address_family(service, slices)
    without_host_port: list[Object] = []
    for endpoint_slice in addressed:
        if PODS_UNREAD_FIELD in endpoint_slice:
            without_host_port.append(endpoint_slice)
            continue
        name = endpoint_slice["metadata"]["name"]
        part = known.get(name, EMPTY_SLICE_MAPPING)
        if part.endpoint_slice is not endpoint_slice:
            part = _slice_instances(
                syncer,
                port if is_managed_by_kubernetes(endpoint_slice) else syncer.port,
                endpoint_slice,
                where,
                cluster,
                metadata_of,
                part,
            )
        parts[name] = part
        if part.ports is None and syncer.needs_host_ports and _slice_has_port(syncer, port, endpoint_slice):
            without_host_port.append(endpoint_slice)
        if instances.keys().isdisjoint(part.instances):
            instances.update(part.instances)
        else:  # an endpoint on its way from one slice to another: one that is ready can be called
            for instance_id, instance in part.instances.items():
                if instance.status is Status.UP or instance_id not in instances:
                    instances[instance_id] = instance
        problems.update(part.problems)
        terminating_ids |= part.terminating_ids
    for instance_id in terminating_ids:
        instances.pop(instance_id, None)
    if mapped is not None:
        mapped.store(where, context, parts, metadata_by_zone)
    kept: dict[tuple[str, str], PodWithoutHostPort] = {}
    if without_host_port:
        kept = _live_pods_without_host_port(without_host_port, instances)
        if count := sum(not one.address for one in kept.values()):
            left_out.append(f"{format_count(count, 'pod')} of Service {where}, not read yet")
    are_different = False
    if len(parts) > 1:
        there = [part.endpoint_slice for part in parts.values()]
        ports = [_ports_without_host_port_field(one) for one in there if is_managed_by_kubernetes(one)]
        are_different = any(one != ports[0] for one in ports)
    others = [one for one in problems if one.reason != SyncerCondition.NO_PORT] if problems else []
    lacks_port = len(others) < len(problems)
    if lacks_port and any(part.ports for part in parts.values()):
        # Of another application behind the Service, say.
        wanted = f"the TCP port {port}" if port is not None else "a TCP port"
        wanted = f"a hostPort for {wanted}" if syncer.needs_host_ports else wanted
        left_out += _describe_endpoints_without_port(where, wanted, parts.values())
        problems = dict.fromkeys(others)
    elif lacks_port and port != syncer.port and not syncer.needs_host_ports:
        lacking = Problem(
            SyncerCondition.NO_PORT,
            f"Service {where} has a TCP port {port}, and none of its EndpointSlices has it",
            f"give the pods the port {port}, or name in spec.port the one that callers use",
        )
        problems = dict.fromkeys([lacking, *others])
    return DesiredInstances(
        tuple(instances.values()),
        tuple(problems),
        frozenset(terminating_ids),
        # With Remove, endpoints that are not ready are missing as well, and are removed at once.
        syncer.not_ready is NotReady.DOWN and are_different,
        tuple(left_out),
        bool(instances) or _has_live_endpoints(slices),
        pods_without_host_port=kept,
        left_out_metadata_sentences=(
            *_describe_missing_further_ports(where, parts.values()),
            *dict.fromkeys(unfit),
        ),
    )


def _preferred_port(syncer: Syncer, service: Object) -> PortReference | None:
    """Return the port that a syncer names; else ``http`` if its Service has several ports and one has that
    name; else None: the EndpointSlice's own ports decide.

    An EndpointSlice has only the ports that its pods have, and its only port may be another one.
    """
    ports = (service.get("spec") or {}).get("ports") or ()
    if syncer.port is not None or syncer.secure_port is not None or len(ports) < 2:
        return syncer.port
    chosen = choose_port_objects(ports, None, None, "")
    is_http = not isinstance(chosen, Problem) and chosen[0] is not None and chosen[0].get("name") == "http"
    return "http" if is_http else None


def _live_pods_without_host_port(
    slices: Iterable[Object], instances: Iterable[str]
) -> dict[tuple[str, str], PodWithoutHostPort]:
    """Return the live pods of EndpointSlices that are not among the instances with these ids."""
    with_instance = set(map(pod_and_namespace_of_id, instances))
    return {
        place: PodWithoutHostPort(
            is_ready(endpoint), "" if PODS_UNREAD_FIELD in one else endpoint["addresses"][0]
        )
        for one in slices
        for endpoint in one["endpoints"]
        if (place := (pod_name_of_endpoint(endpoint), one["metadata"]["namespace"])) not in with_instance
        and place[0]
        and not is_terminating(endpoint)
    }


def _ports_without_host_port_field(endpoint_slice: Object) -> object:
    """Return the ports of an EndpointSlice as Kubernetes wrote them."""
    ports = endpoint_slice.get("ports")
    if not any(HOST_PORT_FIELD in one for one in ports or ()):
        return ports
    return [{key: value for key, value in one.items() if key != HOST_PORT_FIELD} for one in ports or ()]


def _slice_has_port(syncer: Syncer, port: PortReference | None, endpoint_slice: Object) -> bool:
    """Return whether an EndpointSlice has the port that callers use, with or without a host port."""
    packed = port if is_managed_by_kubernetes(endpoint_slice) else syncer.port
    chosen = choose_ports(endpoint_slice.get("ports"), packed, syncer.secure_port, "")
    return not isinstance(chosen, Problem)


def _describe_endpoints_without_port(service: str, wanted: str, parts: Collection[SliceMapping]) -> list[str]:
    """Return a sentence with the number of endpoints that lack the port which callers use; none if none
    does.

    :param wanted: the port, in words.
    """
    served = set(map(endpoint_name, endpoints_of(one.endpoint_slice for one in parts if one.ports)))
    count = sum(
        not is_terminating(endpoint) and endpoint_name(endpoint) not in served
        for endpoint in endpoints_of(one.endpoint_slice for one in parts if not one.ports)
    )
    return [f"{format_count(count, 'endpoint')} of Service {service} without {wanted}"] if count else []


def _describe_missing_further_ports(service: str, parts: Collection[SliceMapping]) -> list[str]:
    """Return sentences on metadata and health checks that are left out since EndpointSlices lack a port."""
    lacking = [one.ports.missing_phrases for one in parts if one.ports is not None and one.instances]
    sentences = []
    for name in dict.fromkeys(chain.from_iterable(lacking)):
        which = "the" if all(name in missing for missing in lacking) else "some"
        sentences.append(f"{name} of {which} endpoints of Service {service}")
    return sentences


def _slice_instances(
    syncer: Syncer,
    port: PortReference | None,
    endpoint_slice: Object,
    service: str,
    cluster: Cluster,
    metadata_of: Callable[[str, str, Ports], Mapping[str, str]],
    before: SliceMapping,
) -> SliceMapping:
    where = f"EndpointSlice {qualified_name(endpoint_slice)} of Service {service}"
    offered, labels = endpoint_slice.get("ports"), endpoint_slice["metadata"].get("labels")
    former, ports = before.endpoint_slice, before.ports
    if ports is None or (offered, labels) != (former.get("ports"), former["metadata"].get("labels")):
        registered = _registered_port_field(syncer)
        chosen = choose_ports(offered, port, syncer.secure_port, where, registered)
        if isinstance(chosen, Problem):
            return SliceMapping(endpoint_slice, {}, {chosen: None}, frozenset())
        ports = with_metadata_and_health_ports(chosen, offered, syncer, registered)
    instances: dict[str, Instance] = {}
    problems: dict[Problem, None] = {}
    terminating_ids: set[str] = set()
    mapped_endpoints: list[Object] = []
    instances_of_endpoints: list[Instance] = []
    known = before.instance_by_endpoint_id if before.ports == ports else {}
    for endpoint in endpoint_slice["endpoints"]:
        instance = known.get(id(endpoint))
        if instance is not None:
            if instance.status is Status.UP or instance.instance_id not in instances:
                instances[instance.instance_id] = instance
                mapped_endpoints.append(endpoint)
                instances_of_endpoints.append(instance)
            continue
        address = endpoint["addresses"][0]
        pod = pod_name_of_endpoint(endpoint)
        instance_id = pod_instance_id(
            pod or address, syncer.selector.namespace, cluster.name, syncer.application, ports.plain.number
        )
        if is_terminating(endpoint):
            terminating_ids.add(instance_id)
            continue
        ready = is_ready(endpoint)
        if not ready and (instance_id in instances or syncer.not_ready is NotReady.REMOVE):
            continue
        try:
            # Kubernetes checks neither the zone nor the pod's name of hand-written slices.
            check_instance_id(instance_id)
            metadata = metadata_of(pod, endpoint.get("zone") or "", ports)
            instance = _build_instance(syncer, instance_id, Address.of(address), ports, metadata, is_up=ready)
            instances[instance_id] = instance
            mapped_endpoints.append(endpoint)
            instances_of_endpoints.append(instance)
        except InvalidInstance as error:
            problems[Problem(Reason.INVALID_INSTANCE, f"{where}: {error}")] = None
    return SliceMapping(
        endpoint_slice,
        instances,
        problems,
        frozenset(terminating_ids),
        ports,
        tuple(mapped_endpoints),
        tuple(instances_of_endpoints),
    )


def _service_instance(
    syncer: Syncer,
    service: Object,
    slices: Sequence[Object],
    cluster: Cluster,
    nodes: Iterable[Object] | None,
    routes: Routes | None,
) -> DesiredInstances:
    has_ready_endpoint = any(map(is_ready, endpoints_of(slices)))
    has_endpoints = has_ready_endpoint or _has_live_endpoints(slices)
    name = service["metadata"]["name"]
    if not syncer.address and loses_load_balancer(service, syncer.advertise):
        sentence = f"the deletion of Service {qualified_name(service)} takes its load balancer away"
        return DesiredInstances(
            problems=(Problem(Reason.NO_MATCHING_SERVICE, sentence),), has_endpoints=has_endpoints
        )
    found = _places_and_ports(syncer, service, slices, cluster, nodes, routes)
    if isinstance(found, Problem) and found.reason != Reason.NODES_NOT_READ:
        # Not removed with Remove either: nobody could register it again as soon as an endpoint is ready.
        status = Status.UP if has_ready_endpoint else Status.DOWN
        place = (service_part_of_id(name), syncer.selector.namespace)
        return DesiredInstances(
            problems=(found,), has_endpoints=has_endpoints, status_without_address={place: status}
        )
    if not has_ready_endpoint and syncer.not_ready is NotReady.REMOVE:
        return DesiredInstances(has_endpoints=has_endpoints)
    if isinstance(found, Problem):
        return DesiredInstances(problems=(found,), has_endpoints=has_endpoints)
    places, ports = found
    names = (syncer.selector.namespace, cluster.name, syncer.application, ports.plain.number)
    service_metadata, unfit = _service_metadata(syncer, service)
    instances = []
    try:
        for number, (node, address) in enumerate(places):
            # The first has the Service's own id, whichever node that is: it stood there alone once.
            marks = {NODE_KEY: node} if number else {}
            instance_id = pod_instance_id(service_part_of_id(name, node if number else ""), *names)
            check_instance_id(instance_id)
            fixed_metadata = {**_fixed_metadata(syncer, cluster), **marks}
            metadata = _build_metadata("", {**service_metadata, **dict(ports.metadata)}, fixed_metadata)
            instances.append(
                _build_instance(syncer, instance_id, address, ports, metadata, is_up=has_ready_endpoint)
            )
    except InvalidInstance as error:
        problem = Problem(Reason.INVALID_INSTANCE, f"Service {qualified_name(service)}: {error}")
        return DesiredInstances(problems=(problem,), has_endpoints=has_endpoints)
    lacking = [f"{missing} of Service {qualified_name(service)}" for missing in ports.missing_phrases]
    return DesiredInstances(
        tuple(instances), has_endpoints=has_endpoints, left_out_metadata_sentences=(*lacking, *unfit)
    )


def _registered_port_field(syncer: Syncer) -> PortNumberField:
    if syncer.mode is Mode.POD:
        return "hostPort" if syncer.needs_host_ports else "port"
    return "nodePort" if syncer.advertise is Advertise.NODE_PORT else "port"


def _places_and_ports(
    syncer: Syncer,
    service: Object,
    slices: Sequence[Object],
    cluster: Cluster,
    nodes: Iterable[Object] | None,
    routes: Routes | None,
) -> tuple[Sequence[tuple[str, Address]], Ports] | Problem:
    """Return the addresses of a whole Service, with node ports each after its node's name, and its ports."""
    if syncer.needs_routes:
        routed = routed_address(syncer, service, routes, cluster.domain)
        if isinstance(routed, Problem):
            return routed
        # A host leads to one of the Service's ports alone.
        return [("", routed[0])], with_metadata_and_health_ports(routed[1], None, syncer)
    where = f"Service {qualified_name(service)}"
    offered, registered = (service.get("spec") or {}).get("ports"), _registered_port_field(syncer)
    ports = choose_ports(offered, syncer.port, syncer.secure_port, where, registered)
    places: Sequence[tuple[str, Address]] | Problem
    if syncer.address:
        places = [("", Address.of(syncer.address))]
    elif syncer.advertise is Advertise.NODE_PORT:
        places = ready_node_addresses(service, slices, nodes, max_nodes=syncer.node_count)
    else:
        numbers = frozenset() if isinstance(ports, Problem) else ports.enabled_numbers
        address = service_address(service, syncer.advertise, cluster.domain, numbers)
        places = address if isinstance(address, Problem) else [("", address)]
    if isinstance(places, Problem):
        return places
    if isinstance(ports, Problem):
        return ports
    return places, with_metadata_and_health_ports(ports, offered, syncer, registered)


def _build_instance(
    syncer: Syncer,
    instance_id: str,
    address: Address,
    ports: Ports,
    metadata: Mapping[str, str],
    *,
    is_up: bool,
) -> Instance:
    check_unambiguous_address(address.ip_address)
    plain = f"http://{address.host_name}:{ports.plain.number}"
    secure = f"https://{address.host_name}:{ports.secure.number}" if ports.secure.enabled else ""
    health, secure_health = _health_check_urls(syncer, address, ports)
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
        health_check_url=health,
        secure_health_check_url=secure_health,
    )


def _health_check_urls(syncer: Syncer, address: Address, ports: Ports) -> tuple[str, str]:
    """Return the URLs of the health check by http and by https; empty where there is none."""
    plain = ports.plain.number if ports.plain.enabled else 0
    secure = ports.secure.number if ports.secure.enabled else 0
    if syncer.health_check_port is not None:
        scheme, number = ports.health or ("", 0)
        plain, secure = number * (scheme == "http"), number * (scheme == "https")
    path = syncer.health_check_path
    return (
        f"http://{address.host_name}:{plain}{path}" if path and plain else "",
        f"https://{address.host_name}:{secure}{path}" if path and secure else "",
    )


def _fixed_metadata(syncer: Syncer, cluster: Cluster) -> dict[str, str]:
    """Return the metadata that win over labels and zones: the spec's, and Eurekube's own over those."""
    return {**syncer.metadata, OWNER_KEY: syncer.owner(cluster), CLUSTER_UID_KEY: cluster.uid}


def _build_metadata(
    zone: str, labels: Mapping[str, str], fixed_metadata: Mapping[str, str]
) -> dict[str, str]:
    metadata = {**({"zone": zone} if zone else {}), **labels, **fixed_metadata}
    check_metadata(metadata)
    return metadata


def _service_metadata(syncer: Syncer, service: Object) -> tuple[dict[str, str], list[str]]:
    """Return the metadata from a Service's labels and annotations as far as they fit beside the others, and
    sentences on those that do not.
    """
    found = _labels_as_metadata(syncer.metadata_from_labels, service["metadata"].get("labels"))
    unfit = []
    annotations = service["metadata"].get("annotations") or {}
    for key, annotation in syncer.metadata_from_annotations.items():
        value = annotations.get(annotation)
        if value and (problem := describe_unfit_metadata_value(value)):
            unfit.append(
                f"{key} of Service {qualified_name(service)}, whose annotation {annotation} {problem}"
            )
        elif value:
            found[key] = value
    if not found:
        return found, unfit
    of_ports = dict.fromkeys(syncer.metadata_from_ports, _LONGEST_PORT)
    found, too_much = _fitting(found, {"zone": _LONGEST_ZONE}, {**of_ports, **syncer.metadata})
    unfit += [f"{key} of Service {qualified_name(service)}, {_TOO_MUCH_PHRASE}" for key in too_much]
    return found, unfit


def _fitting(
    found: Mapping[str, str], under: Mapping[str, str], over: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the metadata that fit into one instance beside others, and the keys of those that do not.

    They are left out, since an instance that is refused for them would leave callers without its pod.

    :param under: metadata that the found ones replace; ``over``: metadata that replace the found ones.
    """
    if not describe_oversized_metadata({**under, **found, **over}):
        return dict(found), []
    kept: dict[str, str] = {}
    for key, value in found.items():
        if not describe_oversized_metadata({**under, **kept, key: value, **over}):
            kept[key] = value
    return kept, [key for key in found if key not in kept]


def _labels_as_metadata(wanted: Iterable[str], labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels that have a value, under their metadata keys; Eureka has no empty values."""
    return {label_to_metadata_key(label): value for label in wanted if (value := (labels or {}).get(label))}
