"""Checks of EurekaMirrors: Services that cannot be made, are stale, or belong to no mirror any more. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eurekube_provider.comparison.mirror_state import STALE_STATUS_SECONDS, MirrorState, mirror_states
from eurekube_provider.core.condition_types import PROGRESS_CONDITION_TYPES
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, MirrorForm
from eurekube_provider.core.mirror_conditions import MIRROR_REMEDIES, MirrorCondition
from eurekube_provider.core.mirror_endpoints import is_excluded_from_mirror
from eurekube_provider.core.mirror_names import assign_service_names
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    Object,
    conditions_of,
    is_being_deleted,
    is_mirrored,
    key_of,
    qualified_name,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import format_list
from eurekube_provider.doctor.finding import FALLBACK_REMEDY, UNREADABLE_SPEC_REMEDY, Fault, Finding

_CONDITIONS_WITHOUT_FINDING = frozenset(
    {
        MirrorCondition.READY,
        MirrorCondition.SYNCED,
        MirrorCondition.SOURCE_UNREACHABLE,
        MirrorCondition.NAME_TAKEN,
        MirrorCondition.NO_NAME,
        MirrorCondition.REMOVALS_HELD,
        MirrorCondition.PAUSED,
        *PROGRESS_CONDITION_TYPES,
    }
)
"""Conditions without a finding: other checks report them, they end by themselves, or a person wants them."""

_MAX_LISTED_NAMES = 5
_NOT_SERVED_REMEDY = "run one operator with --mirrors and --mirror-cidrs that watches this namespace"


def mirror_findings(
    items: Sequence[Object],
    services: Iterable[Object],
    slices: Iterable[Object],
    instances: Mapping[str, Sequence[Instance]],
    cluster: Cluster,
    now_seconds: float,
) -> Iterator[Finding]:
    """Yield findings about mirrors, and about objects that deleted mirrors left.

    :param instances: the instances that each Eureka lists, by the connection's name.
    :param now_seconds: Unix time.
    """
    services = list(services)
    for mirror_state in mirror_states(items, now_seconds):
        yield from _mirror_status_findings(mirror_state, now_seconds)
    yield from _name_conflict_findings(items, services, instances, cluster)
    yield from _leftover_findings(map(key_of, items), [*services, *slices])


def _mirror_status_findings(mirror_state: MirrorState, now_seconds: float) -> Iterator[Finding]:
    conditions = conditions_of(mirror_state.item)
    if MirrorCondition.READY not in conditions:
        problem = "no operator has looked at it: nothing is shown"
        yield Finding(Fault.MIRROR_NOT_SERVED, mirror_state.subject, problem, _NOT_SERVED_REMEDY)
        return
    unreachable = conditions.get(MirrorCondition.SOURCE_UNREACHABLE) or {}
    age = mirror_state.seconds_since_eureka_read(now_seconds)
    reported_age = f"Eureka was last read for it {age / 60:.0f} min ago" if age is not None else ""
    if unreachable.get("status") == "True":
        said = f"{Problem.of(unreachable).message}{f'; {reported_age}' if reported_age else ''}"
        remedy = "see why Eureka does not answer; until then its Services send calls to what may be gone"
        yield Finding(Fault.MIRROR_STALE, mirror_state.subject, said, remedy)
    elif age is not None and age > STALE_STATUS_SECONDS:
        said = f"{reported_age}, and nobody says why: no operator looks after it"
        yield Finding(Fault.MIRROR_STALE, mirror_state.subject, said, _NOT_SERVED_REMEDY)
    reported = [
        one
        for kind, one in conditions.items()
        if kind not in _CONDITIONS_WITHOUT_FINDING and one["status"] == "True"
    ]
    synced = conditions.get(MirrorCondition.SYNCED) or {}
    if (
        not reported
        and synced.get("status") == "False"
        and synced.get("reason") not in _CONDITIONS_WITHOUT_FINDING
    ):
        reported = [synced]
    for one in reported:
        found = Problem.of(one).with_remedy(MIRROR_REMEDIES)
        said, remedy = f"its operator says {found}", found.remedy or FALLBACK_REMEDY
        yield Finding(Fault.MIRROR_TROUBLE, mirror_state.subject, said, remedy)


def _name_conflict_findings(
    items: Iterable[Object],
    services: Iterable[Object],
    instances: Mapping[str, Sequence[Instance]],
    cluster: Cluster,
) -> Iterator[Finding]:
    """Yield findings about names of Services that are wanted twice, by mirrors, applications or a person."""
    holders = {key_of(one): one for one in services}
    wanted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item in items:
        try:
            mirror = Mirror.from_object(item)
        except ConfigurationError as error:
            subject = f"EurekaMirror {qualified_name(item)}"
            yield Finding(Fault.MIRROR_TROUBLE, subject, str(error), UNREADABLE_SPEC_REMEDY)
            continue
        if mirror.form is MirrorForm.ATTACHED or is_being_deleted(item):
            continue
        subject = f"EurekaMirror {mirror.namespace}/{mirror.name}"
        existing = {
            str(one["name"]): str(one["application"])
            for one in (item.get("status") or {}).get("services") or ()
        }
        assigned = assign_service_names(
            mirror.service_name,
            _applications_to_mirror(mirror, instances.get(mirror.eureka, ()), cluster),
            existing,
        )
        for sentence in assigned.unnameable_sentences.values():
            remedy = MIRROR_REMEDIES[MirrorCondition.NO_NAME]
            yield Finding(Fault.MIRROR_TROUBLE, subject, sentence, remedy)
        for sentence in assigned.refusal_sentences.values():
            yield Finding(
                Fault.MIRROR_NAME_TAKEN, subject, sentence, "mirror one of them by a mirror of its own"
            )
        for application, name in assigned.names.items():
            place = (mirror.namespace, name)
            wanted[place].append(f"{subject} ({application})")
            holder = holders.get(place)
            if holder is not None and not is_mirrored(holder):
                problem = f"{application} would be the Service {name}, which is somebody's and is left alone"
                remedy = "set spec.serviceName to another name, or spec.attachTo to add the instances to it"
                yield Finding(Fault.MIRROR_NAME_TAKEN, subject, problem, remedy)
    for (namespace, name), those in wanted.items():
        if len(those) > 1:
            problem = (
                f"{format_list(those, _MAX_LISTED_NAMES)} all want the Service {name}: one of them has it"
            )
            remedy = "set spec.serviceName of the others"
            yield Finding(Fault.MIRROR_NAME_TAKEN, f"Service {namespace}/{name}", problem, remedy)


def _applications_to_mirror(
    mirror: Mirror, eureka_instances: Iterable[Instance], cluster: Cluster
) -> set[str]:
    if mirror.application:
        return {mirror.application}
    return {
        one.application
        for one in eureka_instances
        if mirror.selects_application(one.application) and not is_excluded_from_mirror(mirror, one, cluster)
    }


def _leftover_findings(
    mirror_keys: Iterable[tuple[str, str]], objects: Iterable[Object]
) -> Iterator[Finding]:
    """Yield findings about objects of a mirror that does not exist: its finalizer was removed by hand."""
    mirrors = set(mirror_keys)
    left: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item in objects:
        metadata = item["metadata"]
        key = (str(metadata["namespace"]), str((metadata.get("labels") or {}).get(MIRROR_LABEL) or ""))
        if is_mirrored(item) and key not in mirrors:
            kind = "endpointslice" if "addressType" in item else "service"
            left[key].append(f"{kind}/{metadata['name']}")
    for (namespace, name), names in sorted(left.items()):
        yield Finding(
            Fault.MIRROR_LEFTOVER,
            f"EurekaMirror {namespace}/{name}",
            f"it is gone, and left {format_list(names, _MAX_LISTED_NAMES)}: callers are sent to what nobody "
            "looks after",
            f"kubectl delete --namespace {namespace} {' '.join(names[:_MAX_LISTED_NAMES])}",
        )
