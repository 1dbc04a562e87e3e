"""The choice of the Services that a syncer means, among those that its selector finds. Pure.

A chart often gives one label to several Services of an application: for metrics, for a StatefulSet, for a
preview. Their ports and pods are not one application.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eurekube_provider.core.addresses import loses_load_balancer
from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.objects import (
    Object,
    endpoint_name,
    endpoints_of,
    is_external_name,
    is_headless,
    is_terminating,
    publishes_not_ready_addresses,
    service_name_of_slice,
)
from eurekube_provider.core.ports import (
    Ports,
    choose_port_objects,
    choose_ports,
    has_tcp_port,
    with_target_ports,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Mode, PortReference, Syncer
from eurekube_provider.core.wording import format_list

_MAX_NAMES_IN_MESSAGE = 5

SlicesByService = Mapping[str, Sequence[Object]]
"""EndpointSlices by the name of their Service."""

ServiceAndSlices = tuple[Object, Sequence[Object]]
"""A Service and its EndpointSlices."""


@dataclass(frozen=True, slots=True)
class ServiceChoice:
    """The Services that a syncer's selector finds, divided into meant and other ones.

    :ivar meant: the Services that the syncer means, by name, each with its EndpointSlices; all of them if it
        is not clear which ones it means.
    :ivar others: the Services that it does not mean, in the same way.
    :ivar problem: why it is not clear which Service is meant; None where it is clear.
    """

    meant: Sequence[ServiceAndSlices]
    others: Sequence[ServiceAndSlices] = ()
    problem: Problem | None = None

    @property
    def meant_slices(self) -> list[Object]:
        """The EndpointSlices of the Services that are meant."""
        return [one for _, slices in self.meant for one in slices]


def choose_services(syncer: Syncer, services: Iterable[Object], slices: Iterable[Object]) -> ServiceChoice:
    """Choose, among the Services that a syncer's selector finds, those whose endpoints become its instances.

    :param services: the Services that the selector finds.
    :param slices: EndpointSlices of their namespace; those of other Services are passed over.
    """
    services = list(services)
    if len(services) == 1:
        name = _service_name(services[0])
        return ServiceChoice([(services[0], [one for one in slices if service_name_of_slice(one) == name])])
    selected = {_service_name(one): one for one in sorted(services, key=_service_name)}
    by_service: dict[str, list[Object]] = {name: [] for name in selected}
    for one in slices:
        if (its_service := service_name_of_slice(one)) in by_service:
            by_service[its_service].append(one)
    meant = _choose_by_name_and_ports(syncer, selected, by_service)
    pairs = {name: (one, by_service[name]) for name, one in selected.items()}
    if isinstance(meant, Problem):
        return ServiceChoice(tuple(pairs.values()), problem=meant)
    meant_pairs = [pairs.pop(_service_name(one)) for one in meant]
    return ServiceChoice(meant_pairs, tuple(pairs.values()))


def _choose_by_name_and_ports(
    syncer: Syncer, selected: Mapping[str, Object], slices: SlicesByService
) -> tuple[Object, ...] | Problem:
    """Choose the Services that a syncer means.

    A Service of type ExternalName is not meant, nor is in mode service one whose load balancer goes, nor one
    without the port that the syncer names, as long as there is another one. Among the rest, a Service with
    the application's name is meant if there is one. Services with equal ports over the same pods count as
    one: mode pod reads all of them, mode service one. A Service that publishes addresses which are not ready
    is left out if another of these says which are ready.

    :param selected: the Services that the selector finds, in the order of their names.
    :returns: a problem if it is not clear which Service is meant.
    """
    candidates = [
        one
        for one in selected.values()
        if not is_external_name(one)
        and (syncer.mode is Mode.POD or not loses_load_balancer(one, syncer.advertise))
    ]
    if len(selected) == 1 or not candidates:
        return tuple(selected.values())
    candidates = [
        one for one in candidates if _has_ports(syncer, one, slices[_service_name(one)])
    ] or candidates
    called = syncer.selector.app or syncer.application.lower()
    named = next((one for one in candidates if _service_name(one) == called), None)
    if named is not None and not publishes_not_ready_addresses(named):
        return (named,)
    first = named or candidates[0]
    alike = [
        one for one in candidates if one is first or _have_same_ports_and_pods(syncer, first, one, slices)
    ]
    if named is None and len(alike) < len(candidates):
        return _ambiguous_service_problem(syncer, candidates)
    found = [one for one in alike if not publishes_not_ready_addresses(one)] or ([named] if named else alike)
    if syncer.mode is Mode.SERVICE:
        found = [min(found, key=lambda one: (is_headless(one), _service_name(one)))]
    return tuple(found)


def _ambiguous_service_problem(syncer: Syncer, candidates: Sequence[Object]) -> Problem:
    names = format_list([_service_name(one) for one in candidates], _MAX_NAMES_IN_MESSAGE)
    return Problem(
        SyncerCondition.AMBIGUOUS_SERVICE,
        f"several Services of namespace {syncer.selector.namespace} have the "
        f"{syncer.selector.labels_in_words}, and their ports or pods differ: {names}; what is registered is "
        "kept, and of the others only pods of the same Service and port are registered",
        f"call the Service that is meant {syncer.selector.app or syncer.application.lower()}, give it a "
        "label that the others lack and name that in spec.selector.matchLabels, or name in spec.port a "
        "port that it alone has",
    )


def _service_name(service: Object) -> str:
    return str(service["metadata"]["name"])


def _has_ports(syncer: Syncer, service: Object, slices: Iterable[Object]) -> bool:
    """Return whether a Service, or its EndpointSlices, have the ports that a syncer names, or any TCP port.

    In mode pod a port's number is the one in the pods, as in the EndpointSlices. While no pod shows the
    number behind a named target port, that port may have any number.
    """
    ports = (service.get("spec") or {}).get("ports") or ()
    wanted = [one for one in (syncer.port, syncer.secure_port) if one is not None]
    if syncer.mode is Mode.POD:
        in_pods = [port for one in slices for port in one.get("ports") or ()]
        ports = with_target_ports(ports)
        if not in_pods and not all(_is_port_number(one["port"]) for one in ports):
            wanted = [one for one in wanted if not _is_port_number(one)]
        ports = [*ports, *in_pods]
    return all(has_tcp_port(ports, one) for one in wanted or (None,))


def _is_port_number(port: PortReference) -> bool:
    return str(port).isdigit()


def _have_same_ports_and_pods(syncer: Syncer, one: Object, other: Object, slices: SlicesByService) -> bool:
    """Return whether two Services offer the same ports of the same pods.

    The Services' specs are compared first: Kubernetes updates the EndpointSlices of one later than the
    other's.
    """
    first, second = _pod_selector(one), _pod_selector(other)
    slices_of_both = slices[_service_name(one)], slices[_service_name(other)]
    if not (first and first == second):
        places = [_live_endpoint_names(each) for each in slices_of_both]
        if not places[0] or places[0] != places[1]:
            return False
    declared = [_declared_ports(syncer, each) for each in (one, other)]
    if declared[0] and declared[0] == declared[1]:
        return True
    offered = [_port_choices_of_slices(syncer, each) for each in slices_of_both]
    return syncer.mode is Mode.POD and bool(offered[0]) and offered[0] == offered[1]


def _pod_selector(service: Object) -> Mapping[str, str]:
    selector: Mapping[str, str] = (service.get("spec") or {}).get("selector") or {}
    return selector


def _live_endpoint_names(slices: Iterable[Object]) -> frozenset[str]:
    return frozenset(
        endpoint_name(endpoint) for endpoint in endpoints_of(slices) if not is_terminating(endpoint)
    )


def _declared_ports(syncer: Syncer, service: Object) -> object:
    """Return the ports that callers would use by the Service's spec; None where the spec does not say."""
    ports = (service.get("spec") or {}).get("ports") or ()
    if syncer.mode is Mode.POD:
        ports = with_target_ports(ports) if _pod_selector(service) else ()
    chosen = choose_port_objects(ports, syncer.port, syncer.secure_port, "")
    if isinstance(chosen, Problem):
        return None
    return tuple(str(one["port"]) if one else "" for one in chosen)


def _port_choices_of_slices(syncer: Syncer, slices: Iterable[Object]) -> frozenset[Ports | Problem]:
    """Return the ports that the syncer chooses from each slice with endpoints, or why it finds none."""
    return frozenset(
        choose_ports(one.get("ports"), syncer.port, syncer.secure_port, "")
        for one in slices
        if one.get("endpoints")
    )
