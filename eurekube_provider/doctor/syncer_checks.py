"""Checks of a EurekaSyncer: its spec, its Services, and the conditions that its operator reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eurekube_provider.core.condition_types import PROGRESS_CONDITION_TYPES, SyncerCondition
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, conditions_of
from eurekube_provider.core.ports import choose_ports
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.service_choice import ServiceChoice
from eurekube_provider.core.syncer import Advertise, Mode, Syncer
from eurekube_provider.core.wording import format_count, format_list
from eurekube_provider.doctor.finding import FALLBACK_REMEDY, Fault, Finding, Patch
from eurekube_provider.doctor.workload_checks import SelectedService, is_probed_by_http

_CONDITIONS_WITHOUT_FINDING = frozenset(
    {
        SyncerCondition.READY,
        SyncerCondition.SYNCED,
        SyncerCondition.LEASE_TOO_SHORT,
        SyncerCondition.DRAIN_TOO_SHORT,
        SyncerCondition.SELF_REGISTERED,
        SyncerCondition.UNREADABLE_INSTANCE,
        SyncerCondition.AMBIGUOUS_SERVICE,
        SyncerCondition.PAUSED,
        *PROGRESS_CONDITION_TYPES,
    }
)
"""Syncer conditions from which no finding is made: other checks report them, or a person may want them."""

_MAX_LISTED_NAMES = 5

SYNCER_RESOURCE = "eurekasyncers.eurekube.io"


def describe_syncer(syncer: Syncer) -> str:
    """Return kind, namespace and name of a syncer, for a person."""
    return f"EurekaSyncer {syncer.namespace}/{syncer.name}"


def syncer_spec_patch(syncer: Syncer, **spec: Any) -> Patch:
    """Return a patch of a syncer's ``spec``; None removes a field."""
    return Patch(SYNCER_RESOURCE, syncer.namespace, syncer.name, {"spec": spec})


def lease_findings(syncer: Syncer) -> Iterator[Finding]:
    """Yield a finding if a syncer's instances would lapse before another operator takes over."""
    problem = syncer.lease_problem
    if problem is not None:
        needed = syncer.shortest_safe_lease_seconds
        yield Finding(
            Fault.LEASE_TOO_SHORT,
            describe_syncer(syncer),
            problem.message,
            f"set spec.lease.durationSeconds to {needed} or more",
            syncer_spec_patch(syncer, lease={"durationSeconds": needed}),
        )


def service_findings(
    syncer: Syncer, choice: ServiceChoice, instances: Iterable[Instance]
) -> Iterator[Finding]:
    """Yield a finding if a syncer selects several Services, or it is unclear which one is meant. Eureka may
    have instances of an operator of an earlier version.
    """
    if choice.problem is not None:
        problem, remedy = choice.problem.message, choice.problem.remedy
        yield Finding(Fault.AMBIGUOUS_SERVICE, describe_syncer(syncer), problem, remedy)
        return
    wanted = set(_endpoint_addresses_and_ports(choice.meant_slices))
    other_services = {
        place: str(one["metadata"]["name"])
        for one, slices in choice.others
        for place in _endpoint_addresses_and_ports(slices)
    }
    strange = [
        one for one in instances if (one.ip_address, one.port.number) in other_services.keys() - wanted
    ]
    if strange:
        meant_names = format_list(
            [str(one["metadata"]["name"]) for one, _ in choice.meant], _MAX_LISTED_NAMES
        )
        names = format_list(
            sorted({other_services[one.ip_address, one.port.number] for one in strange}), _MAX_LISTED_NAMES
        )
        yield Finding(
            Fault.AMBIGUOUS_SERVICE,
            describe_syncer(syncer),
            f"Eureka holds {format_count(len(strange))} of it that belong to other Services with the"
            f" {syncer.selector.labels_in_words} ({names}), and callers of {syncer.application} call them",
            f"if callers shall not have them, run an operator of this version: it registers {meant_names} "
            f"alone, and removes {format_count(len(strange))} after a minute; to keep them, have another "
            f"syncer select {names} by spec.selector.matchLabels before; or select {meant_names} alone",
        )


def _endpoint_addresses_and_ports(slices: Iterable[Object]) -> Iterator[tuple[str, int]]:
    for one in slices:
        for endpoint in one.get("endpoints") or ():
            for port in one.get("ports") or ():
                if port.get("port"):
                    yield str(endpoint["addresses"][0]), int(port["port"])


def host_name_findings(syncer: Syncer, services: Iterable[Object], domain: str) -> Iterator[Finding]:
    """Yield findings if a syncer advertises a host name that callers outside cannot resolve."""
    if syncer.mode is not Mode.SERVICE or syncer.advertise is not Advertise.CLUSTER_DNS:
        return
    for service in services:
        metadata = service["metadata"]
        better = _reachable_address_kind(service)
        yield Finding(
            Fault.UNRESOLVABLE_HOST_NAME,
            describe_syncer(syncer),
            f"it advertises {metadata['name']}.{metadata['namespace']}.svc.{domain}, a name that only pods "
            "of the cluster can resolve",
            f"set spec.advertise to {better}"
            if better
            else "give the Service a load balancer and set spec.advertise to LoadBalancer, or take mode pod",
            syncer_spec_patch(syncer, advertise=str(better)) if better else None,
        )


def _reachable_address_kind(service: Object) -> Advertise | None:
    """Return the kind of address by which callers outside reach a Service; None where they cannot."""
    spec: Object = service.get("spec") or {}
    balancer = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress")
    if balancer:
        return Advertise.LOAD_BALANCER
    if spec.get("externalIPs"):
        return Advertise.EXTERNAL_IP
    return Advertise.NODE_PORT if any(one.get("nodePort") for one in spec.get("ports") or ()) else None


def secure_port_findings(syncer: Syncer, selected: SelectedService) -> Iterator[Finding]:
    """Yield a finding if a syncer's https port speaks http, as its name, its protocol or a probe shows."""
    if syncer.secure_port is None:
        return
    targets = [port for one in selected.slices for port in one.get("ports") or ()]
    offered = targets if syncer.mode is Mode.POD else (selected.service.get("spec") or {}).get("ports") or ()
    ports = choose_ports(offered, syncer.port, syncer.secure_port, "")
    if isinstance(ports, Problem):
        return  # the operator says so in the syncer's conditions
    number = ports.secure.number
    port = next(one for one in offered if one.get("port") == number)
    sign = _describe_http_sign(port)
    target = next((one["port"] for one in targets if one.get("name") == port.get("name")), number)
    if not sign and any(is_probed_by_http(one, int(target)) for one in selected.workloads):
        sign = "a probe asks it in plain http"
    if sign:
        yield Finding(
            Fault.SECURE_PORT_BY_MISTAKE,
            describe_syncer(syncer),
            f"spec.securePort is {syncer.secure_port}, and Spring calls https there; but {sign}",
            "remove spec.securePort, or name the port that speaks https",
            syncer_spec_patch(syncer, securePort=None),
        )


def _describe_http_sign(port: Object) -> str:
    name, protocol = str(port.get("name") or ""), str(port.get("appProtocol") or "")
    if protocol in ("http", "kubernetes.io/h2c", "kubernetes.io/ws"):
        return f"its appProtocol is {protocol}"
    return f"it is named {name}" if name == "http" or name.startswith("http-") else ""


def condition_findings(item: Object, syncer: Syncer) -> Iterator[Finding]:
    """Yield findings from a syncer's conditions, or a finding that no operator serves the syncer."""
    conditions = conditions_of(item)
    if SyncerCondition.READY not in conditions:
        yield Finding(
            Fault.SYNCER_TROUBLE,
            describe_syncer(syncer),
            "no operator has looked at it",
            "run the operator, and have it watch this namespace (--watch-namespace)",
        )
        return
    reported = [
        one
        for kind, one in conditions.items()
        if kind not in _CONDITIONS_WITHOUT_FINDING and one["status"] == "True"
    ]
    left_out = [one for one in reported if one["type"] == SyncerCondition.ENDPOINTS_LEFT_OUT]
    reported = [one for one in reported if one not in left_out]
    ready = conditions[SyncerCondition.READY]
    synced = conditions.get(SyncerCondition.SYNCED, ready)
    if not reported and synced["status"] == "False" and synced["reason"] not in _CONDITIONS_WITHOUT_FINDING:
        reported = [synced]
    if not (reported or left_out) and synced["status"] == "True" and ready["status"] == "False":
        reported = [ready]  # NoneUp
    for one in (*reported, *left_out):
        problem = Problem.of(one).with_remedy(SYNCER_REMEDIES)
        said, remedy = f"its operator says {problem}", problem.remedy or FALLBACK_REMEDY
        fault = Fault.ENDPOINTS_LEFT_OUT if one in left_out else Fault.SYNCER_TROUBLE
        yield Finding(fault, describe_syncer(syncer), said, remedy)
