"""The order of all checks over a snapshot: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS, Drain
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, qualified, service_of
from eurekube_provider.core.prestop import PreStopHook
from eurekube_provider.core.syncer import Mode, Syncer
from eurekube_provider.doctor import registry_checks
from eurekube_provider.doctor import syncer_checks as syncers
from eurekube_provider.doctor.finding import Fault, Finding
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot
from eurekube_provider.doctor.workload_checks import Workload, drain_findings, of_service, readiness_findings


@dataclass(frozen=True, slots=True)
class Requirements:
    """The times that workloads must allow for.

    :ivar shutdown_seconds: what a process needs after SIGTERM.
    """

    drain: Drain = field(default_factory=Drain)
    shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS


def findings_of(
    world: Snapshot, standards: Requirements, now_seconds: float, namespaces: Sequence[str] = ()
) -> list[Finding]:
    """Run all checks, and return each finding once.

    :param now_seconds: Unix time.
    :param namespaces: where given, of Eureka's instances only those are judged that their pods or syncers
        have to do with; its servers are judged all the same.
    """
    read, found = _read_syncers(world.syncers)
    by_namespace: dict[str, list[Object]] = {}
    for service in world.services:
        by_namespace.setdefault(service["metadata"]["namespace"], []).append(service)
    slices: dict[str, list[Object]] = {}
    for one in world.slices:
        slices.setdefault(one["metadata"]["namespace"], []).append(one)
    for item, syncer in read:
        place = syncer.selector.namespace
        services = [one for one in by_namespace.get(place, ()) if syncer.selector.selects(one)]
        found += _of_syncer(world, item, syncer, services, slices.get(place, []))
        found += _of_workloads(world, syncer, services, standards)
    served = _served_addresses([syncer for _, syncer in read], by_namespace, slices)
    for eureka in world.eurekas.values():
        own = [syncer for _, syncer in read if syncer.eureka == eureka.name]
        found += _of_eureka(world, eureka, own, served, now_seconds, is_limited=bool(namespaces))
    return list({(one.fault, one.subject, one.problem): one for one in found}.values())


def _read_syncers(items: Sequence[Object]) -> tuple[list[tuple[Object, Syncer]], list[Finding]]:
    read, found = [], []
    for item in items:
        try:
            read.append((item, Syncer.from_object(item)))
        except ConfigurationError as error:
            subject = f"EurekaSyncer {qualified(item)}"
            found.append(
                Finding(
                    Fault.SYNCER_TROUBLE, subject, str(error), "install the CRD of this version, and mend it"
                )
            )
    return read, found


def _of_syncer(
    world: Snapshot, item: Object, syncer: Syncer, services: Sequence[Object], slices: Sequence[Object]
) -> Iterator[Finding]:
    yield from syncers.condition_findings(item, syncer)
    yield from syncers.lease_findings(syncer)
    yield from syncers.host_name_findings(syncer, services, world.cluster.domain)
    yield from syncers.secure_port_findings(syncer, services, slices, world.workloads)
    eureka = world.eurekas.get(syncer.eureka)
    if eureka is not None:
        yield from registry_checks.self_registered_findings(
            syncer, services, slices, world.workloads, eureka.instances
        )


def _of_workloads(
    world: Snapshot, syncer: Syncer, services: Sequence[Object], standards: Requirements
) -> Iterator[Finding]:
    workloads: list[Workload] = [one for each in services for one in of_service(each, world.workloads)]
    hook = PreStopHook.SLEEP if world.has_sleep else PreStopHook.EXEC
    for workload in workloads:
        yield from readiness_findings(workload)
        if syncer.mode is Mode.POD:  # else callers hold the Service's address, which stays
            yield from drain_findings(workload, standards.drain, hook, standards.shutdown_seconds)


def _served_addresses(
    read: Sequence[Syncer], services: Mapping[str, Sequence[Object]], slices: Mapping[str, Sequence[Object]]
) -> frozenset[str]:
    """Collect the addresses of all endpoints that syncers select."""
    found: set[str] = set()
    for syncer in read:
        place = syncer.selector.namespace
        names = {one["metadata"]["name"] for one in services.get(place, ()) if syncer.selector.selects(one)}
        for one in slices.get(place, ()):
            if service_of(one) in names:
                found.update(endpoint["addresses"][0] for endpoint in one.get("endpoints") or ())
    return frozenset(found)


def _of_eureka(
    world: Snapshot,
    eureka: EurekaSnapshot,
    own: Sequence[Syncer],
    served: frozenset[str],
    now_seconds: float,
    *,
    is_limited: bool,
) -> Iterator[Finding]:
    judged: Sequence[Instance] = eureka.instances
    if is_limited:
        names = frozenset(name for syncer in own for name in syncer.names)
        judged = [
            one
            for one in judged
            if one.ip_address in world.pods or {one.application.lower(), one.vip_address.lower()} & names
        ]
    yield from registry_checks.host_name_findings(judged, world.pods, served, world.cluster.domain)
    yield from registry_checks.secure_port_findings(judged)
    yield from registry_checks.vip_findings(judged, own, world.cluster)
    for url, figures in eureka.figures.items():
        yield from registry_checks.preservation_findings(url, figures, eureka.instances, now_seconds)
    yield from registry_checks.disagreement_findings(eureka.name, eureka.disagreements)
    for url, detail in eureka.troubles:
        yield Finding(Fault.SERVER_TROUBLE, f"Eureka server {url}", detail, "see what it says of itself")
