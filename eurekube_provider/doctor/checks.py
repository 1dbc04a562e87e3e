"""All checks of the doctor over a snapshot, in their order: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eurekube_provider.comparison.comparing import has_own_status_row
from eurekube_provider.comparison.findings import Severity
from eurekube_provider.comparison.operators import findings_about_operators
from eurekube_provider.comparison.reported_state import reported_state_of_object
from eurekube_provider.core.derived_syncer import is_namespace_syncer, name_and_uid_of_parent_syncer
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, qualified_name
from eurekube_provider.core.prestop import PreStopHook
from eurekube_provider.core.service_choice import choose_services
from eurekube_provider.core.syncer import Mode, Syncer
from eurekube_provider.doctor import registry_checks
from eurekube_provider.doctor import syncer_checks as syncers
from eurekube_provider.doctor.finding import UNREADABLE_SPEC_REMEDY, Fault, Finding
from eurekube_provider.doctor.mirror_checks import mirror_findings
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot
from eurekube_provider.doctor.workload_checks import (
    SelectedService,
    WorkloadIndex,
    WorkloadRequirements,
    drain_findings,
    gate_findings,
    readiness_findings,
)
from eurekube_provider.operator.index import ServiceIndex


def check_snapshot(
    snapshot: Snapshot, requirements: WorkloadRequirements, now_seconds: float, namespaces: Sequence[str] = ()
) -> list[Finding]:
    """Run all checks, and return each finding once.

    :param now_seconds: Unix time.
    :param namespaces: where given, only the Eureka instances of their pods and syncers are checked; Eureka's
        servers are checked in any case.
    """
    read, found = _parse_syncers(snapshot.syncers)
    found = [*_operator_findings(snapshot, now_seconds), *found]
    index = ServiceIndex()
    for service in snapshot.services:
        index.update_service(None, dict(service))
    for one in snapshot.slices:
        index.update_slice(None, dict(one))
    workloads = WorkloadIndex(snapshot.workloads)
    self_registered = {
        name: registry_checks.self_registered_by_address(eureka.instances)
        for name, eureka in snapshot.eurekas.items()
    }
    syncer_addresses: set[str] = set()
    for item, syncer in read:
        owner = syncer.owner(snapshot.cluster)
        home = snapshot.eurekas.get(syncer.eureka)
        held = [one for one in home.instances if one.owner == owner] if home else []
        choice = choose_services(syncer, *index.services_and_slices(syncer.selector))
        found += syncers.service_findings(syncer, choice, held)
        selected = [
            SelectedService(one, slices, workloads.find_by_service(one)) for one, slices in choice.meant
        ]
        of_syncer = _syncer_findings(snapshot, item, syncer, selected, self_registered.get(syncer.eureka, {}))
        found += [_without_derived_syncer_patch(item, one) for one in of_syncer]
        found += _workload_findings(snapshot, syncer, selected, requirements, now_seconds)
        syncer_addresses.update(
            endpoint["addresses"][0]
            for each in selected
            for one in each.slices
            for endpoint in one.get("endpoints") or ()
        )
    if snapshot.mirrors is not None:
        found += mirror_findings(
            snapshot.mirrors,
            snapshot.services,
            snapshot.slices,
            {name: eureka.instances for name, eureka in snapshot.eurekas.items()},
            snapshot.cluster,
            now_seconds,
        )
    for eureka in snapshot.eurekas.values():
        syncers_of_eureka = [syncer for _, syncer in read if syncer.eureka == eureka.name]
        found += _eureka_findings(
            snapshot,
            eureka,
            syncers_of_eureka,
            frozenset(syncer_addresses),
            now_seconds,
            is_namespace_limited=bool(namespaces),
        )
    return list({(one.fault, one.subject, one.problem): one for one in found}.values())


def _operator_findings(snapshot: Snapshot, now_seconds: float) -> Iterator[Finding]:
    if snapshot.operators is None:
        return
    objects = [*snapshot.syncers, *(snapshot.mirrors or ())]
    for one in findings_about_operators(snapshot.operators, objects, now_seconds):
        if one.severity is not Severity.NOTE:
            subject = one.subjects_text or f"the operator of cluster {snapshot.cluster.name}"
            yield Finding(Fault(one.problem.reason), subject, one.problem.message, one.problem.remedy)


def _parse_syncers(items: Sequence[Object]) -> tuple[list[tuple[Object, Syncer]], list[Finding]]:
    """Return the EurekaSyncers with their parsed specs, and findings about those that cannot be served."""
    read, found = [], []
    for item in items:
        if is_namespace_syncer(item):
            # Otherwise the syncers that are derived from this one report the problem.
            if has_own_status_row(item) and (problem := reported_state_of_object(item).problem) is not None:
                subject = f"EurekaSyncer {qualified_name(item)}"
                found.append(Finding(Fault.SYNCER_TROUBLE, subject, problem.message, problem.remedy))
            continue
        try:
            read.append((item, Syncer.from_object(item)))
        except ConfigurationError as error:
            subject = f"EurekaSyncer {qualified_name(item)}"
            found.append(Finding(Fault.SYNCER_TROUBLE, subject, str(error), UNREADABLE_SPEC_REMEDY))
    return read, found


def _without_derived_syncer_patch(item: Object, finding: Finding) -> Finding:
    """Return a finding whose remedy names the parent of a derived syncer; a patch of the derived syncer
    itself is left out, since the operator would revert it.
    """
    patch, (parent, _) = finding.patch, name_and_uid_of_parent_syncer(item)
    if patch is None or not parent or patch.resource != syncers.SYNCER_RESOURCE:
        return finding
    where = f"EurekaSyncer {patch.namespace}/{parent}, or by an annotation of the Service"
    return replace(finding, remedy=f"{finding.remedy}, in {where}", patch=None)


def _syncer_findings(
    snapshot: Snapshot,
    item: Object,
    syncer: Syncer,
    selected: Sequence[SelectedService],
    self_registered: Mapping[str, Sequence[Instance]],
) -> Iterator[Finding]:
    yield from syncers.condition_findings(item, syncer)
    yield from syncers.lease_findings(syncer)
    yield from syncers.host_name_findings(syncer, [one.service for one in selected], snapshot.cluster.domain)
    for one in selected:
        yield from syncers.secure_port_findings(syncer, one)
    for one in selected:
        yield from registry_checks.self_registered_findings(syncer, one, self_registered, snapshot.pods)


def _workload_findings(
    snapshot: Snapshot,
    syncer: Syncer,
    selected: Sequence[SelectedService],
    requirements: WorkloadRequirements,
    now_seconds: float,
) -> Iterator[Finding]:
    hook = PreStopHook.SLEEP if snapshot.supports_sleep_hook else PreStopHook.EXEC
    for workload in (one for each in selected for one in each.workloads):
        yield from readiness_findings(workload)
        yield from gate_findings(workload, now_seconds)
        if syncer.mode is Mode.POD:  # else callers hold the Service's address, which stays
            yield from drain_findings(workload, requirements, hook)


def _eureka_findings(
    snapshot: Snapshot,
    eureka: EurekaSnapshot,
    syncers_of_eureka: Sequence[Syncer],
    syncer_addresses: frozenset[str],
    now_seconds: float,
    *,
    is_namespace_limited: bool,
) -> Iterator[Finding]:
    judged: Sequence[Instance] = eureka.instances
    if is_namespace_limited:
        names = frozenset(name for syncer in syncers_of_eureka for name in syncer.names)
        judged = [
            one
            for one in judged
            if one.ip_address in snapshot.pods or {one.application.lower(), one.vip_address.lower()} & names
        ]
    yield from registry_checks.host_name_findings(
        judged, snapshot.pods, syncer_addresses, snapshot.cluster.domain
    )
    yield from registry_checks.secure_port_findings(judged)
    yield from registry_checks.vip_case_findings(judged, syncers_of_eureka, snapshot.cluster)
    yield from registry_checks.unreadable_findings(eureka.name, judged)
    yield from registry_checks.stuck_out_of_service_findings(judged)
    for url, front_page in eureka.front_pages.items():
        yield from registry_checks.self_preservation_findings(url, front_page, eureka.instances, now_seconds)
    yield from registry_checks.disagreement_findings(eureka.name, eureka.disagreements)
    for url, detail in eureka.server_problems:
        remedy = "put right what is said of it; where it is gone for good, take its URL out of the settings"
        yield Finding(Fault.SERVER_TROUBLE, f"Eureka server {url}", detail, remedy)
