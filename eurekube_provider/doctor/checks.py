"""All checks of the doctor over a snapshot, in their order: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eurekube_provider.comparison.comparing import has_own_row
from eurekube_provider.comparison.findings import Severity
from eurekube_provider.comparison.operators import findings_of_operators
from eurekube_provider.comparison.reported_state import reported_state_of
from eurekube_provider.core.derived_syncer import controller_of, is_of_namespace
from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS, Drain
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, qualified
from eurekube_provider.core.prestop import PreStopHook
from eurekube_provider.core.service_choice import choose_services
from eurekube_provider.core.syncer import Mode, Syncer
from eurekube_provider.doctor import registry_checks
from eurekube_provider.doctor import syncer_checks as syncers
from eurekube_provider.doctor.finding import Fault, Finding
from eurekube_provider.doctor.mirror_checks import mirror_findings
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot
from eurekube_provider.doctor.workload_checks import (
    Workload,
    drain_findings,
    gate_findings,
    readiness_findings,
)
from eurekube_provider.doctor.workload_index import WorkloadIndex
from eurekube_provider.operator.index import Index


@dataclass(frozen=True, slots=True)
class Requirements:
    """The times that workloads must allow for.

    :ivar shutdown_seconds: the time that a process needs after SIGTERM.
    :ivar wants_gate: True if new pods are to wait by the readiness gate, in place of ``minReadySeconds``.
    """

    drain: Drain = field(default_factory=Drain)
    shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS
    wants_gate: bool = False


def findings_of(
    snapshot: Snapshot, requirements: Requirements, now_seconds: float, namespaces: Sequence[str] = ()
) -> list[Finding]:
    """Run all checks, and return each finding once.

    :param now_seconds: Unix time.
    :param namespaces: where given, only the Eureka instances of their pods and syncers are checked; Eureka's
        servers are checked in any case.
    """
    read, found = _read_syncers(snapshot.syncers)
    found = [*_of_operators(snapshot, now_seconds), *found]
    index = Index()
    for service in snapshot.services:
        index.service_changed(None, dict(service))
    for one in snapshot.slices:
        index.slice_changed(None, dict(one))
    workloads = WorkloadIndex(snapshot.workloads)
    others = {
        name: registry_checks.self_registered_by_address(eureka.instances)
        for name, eureka in snapshot.eurekas.items()
    }
    served: set[str] = set()
    for item, syncer in read:
        owner = syncer.owner(snapshot.cluster)
        home = snapshot.eurekas.get(syncer.eureka)
        held = [one for one in home.instances if one.owner == owner] if home else []
        choice = choose_services(syncer, *index.selected(syncer.selector))
        found += syncers.service_findings(syncer, choice, held)
        selected = [
            _SelectedService(one, choice.slices_of(one), workloads.of_service(one)) for one in choice.services
        ]
        of_syncer = _of_syncer(snapshot, item, syncer, selected, others.get(syncer.eureka, {}))
        found += [_mended_where_it_is_written(item, one) for one in of_syncer]
        found += _of_workloads(snapshot, syncer, selected, requirements, now_seconds)
        served.update(
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
        own = [syncer for _, syncer in read if syncer.eureka == eureka.name]
        found += _of_eureka(
            snapshot, eureka, own, frozenset(served), now_seconds, is_limited=bool(namespaces)
        )
    return list({(one.fault, one.subject, one.problem): one for one in found}.values())


@dataclass(frozen=True, slots=True)
class _SelectedService:
    """A Service that a syncer selects, its EndpointSlices, and the workloads that run its pods."""

    service: Object
    slices: Sequence[Object]
    workloads: Sequence[Workload]


def _of_operators(snapshot: Snapshot, now_seconds: float) -> Iterator[Finding]:
    if snapshot.operators is None:
        return
    objects = [*snapshot.syncers, *(snapshot.mirrors or ())]
    for one in findings_of_operators(snapshot.operators, objects, now_seconds):
        if one.severity is not Severity.NOTE:
            subject = one.subjects_text or f"the operator of cluster {snapshot.cluster.name}"
            yield Finding(Fault(one.problem.reason), subject, one.problem.message, one.problem.remedy)


def _read_syncers(items: Sequence[Object]) -> tuple[list[tuple[Object, Syncer]], list[Finding]]:
    read, found = [], []
    for item in items:
        if is_of_namespace(item):
            # Of the others those tell that are derived from it.
            if has_own_row(item) and (problem := reported_state_of(item).problem) is not None:
                subject = f"EurekaSyncer {qualified(item)}"
                found.append(Finding(Fault.SYNCER_TROUBLE, subject, problem.message, problem.remedy))
            continue
        try:
            read.append((item, Syncer.from_object(item)))
        except ConfigurationError as error:
            subject, remedy = (
                f"EurekaSyncer {qualified(item)}",
                "install the CRD of this version, and fix it",
            )
            found.append(Finding(Fault.SYNCER_TROUBLE, subject, str(error), remedy))
    return read, found


def _mended_where_it_is_written(item: Object, finding: Finding) -> Finding:
    """Return a finding without the patch of a derived syncer, which its operator would take back."""
    patch, (parent, _) = finding.patch, controller_of(item)
    if patch is None or not parent or patch.resource != syncers.SYNCER_RESOURCE:
        return finding
    where = f"EurekaSyncer {patch.namespace}/{parent}, or by an annotation of the Service"
    return replace(finding, remedy=f"{finding.remedy}, in {where}", patch=None)


def _of_syncer(
    snapshot: Snapshot,
    item: Object,
    syncer: Syncer,
    selected: Sequence[_SelectedService],
    others: Mapping[str, Sequence[Instance]],
) -> Iterator[Finding]:
    yield from syncers.condition_findings(item, syncer)
    yield from syncers.lease_findings(syncer)
    yield from syncers.host_name_findings(syncer, [one.service for one in selected], snapshot.cluster.domain)
    for one in selected:
        yield from syncers.secure_port_findings(syncer, one.service, one.slices, one.workloads)
    for one in selected:
        yield from registry_checks.self_registered_findings(
            syncer, one.service, one.slices, one.workloads, others, snapshot.pods
        )


def _of_workloads(
    snapshot: Snapshot,
    syncer: Syncer,
    selected: Sequence[_SelectedService],
    requirements: Requirements,
    now_seconds: float,
) -> Iterator[Finding]:
    hook = PreStopHook.SLEEP if snapshot.has_sleep else PreStopHook.EXEC
    for workload in (one for each in selected for one in each.workloads):
        yield from readiness_findings(workload)
        yield from gate_findings(workload, now_seconds)
        if syncer.mode is Mode.POD:  # else callers hold the Service's address, which stays
            yield from drain_findings(
                workload,
                requirements.drain,
                hook,
                requirements.shutdown_seconds,
                wants_gate=requirements.wants_gate,
            )


def _of_eureka(
    snapshot: Snapshot,
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
            if one.ip_address in snapshot.pods or {one.application.lower(), one.vip_address.lower()} & names
        ]
    yield from registry_checks.host_name_findings(judged, snapshot.pods, served, snapshot.cluster.domain)
    yield from registry_checks.secure_port_findings(judged)
    yield from registry_checks.vip_findings(judged, own, snapshot.cluster)
    yield from registry_checks.unreadable_findings(eureka.name, judged)
    yield from registry_checks.stuck_findings(judged)
    for url, figures in eureka.figures.items():
        yield from registry_checks.preservation_findings(url, figures, eureka.instances, now_seconds)
    yield from registry_checks.disagreement_findings(eureka.name, eureka.disagreements)
    for url, detail in eureka.server_problems:
        yield Finding(Fault.SERVER_TROUBLE, f"Eureka server {url}", detail, "see what it says of itself")
