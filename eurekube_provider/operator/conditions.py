"""The conditions of a syncer after a reconcile: pure functions.

*Synced* says whether Eureka holds the instances that the syncer wants. *Ready* says whether callers find an
instance that is UP or, where a Service is scaled to zero, correctly find none. ``_problems_of`` yields every
other condition. A new condition needs lines there, a name in
:class:`~eurekube_provider.core.condition_types.SyncerCondition`, and a remedy in
:data:`~eurekube_provider.core.remedies.SYNCER_REMEDIES`. A condition that leaves a syncer synced is in
``_TYPES_COMPATIBLE_WITH_SYNCED``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from eurekube_provider.comparison.reported_state import ReportedState
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.derived_syncer import MemberServiceCounts
from eurekube_provider.core.errors import (
    EurekubeError,
    KubernetesError,
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import cluster_name_of_owner
from eurekube_provider.core.mapping import DesiredInstances
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Plan, PlanOutcome, RefusalReason
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.registry_kinds import EUREKA, registry_kind_of_instance
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.self_registered import SelfRegistration
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.core.wording import format_count, format_list, join_sentences

REASONS_TO_CHANGE_NOTHING = frozenset({Reason.NOT_ALLOWED, Reason.UNKNOWN_EUREKA, SyncerCondition.CONFLICT})
"""Reasons to change nothing for a syncer, except to deregister endpoints that were seen terminating."""

EUREKA_ERROR_REASONS = frozenset({Reason.EUREKA_UNREACHABLE, Reason.EUREKA_DENIED, Reason.EUREKA_REJECTED})
"""Reasons that :func:`problem_of` gives to errors of a registry."""

EUREKA_UNREADABLE_REASONS = frozenset({Reason.EUREKA_UNREACHABLE, Reason.EUREKA_DENIED})
"""Reasons for which Eureka's instances are not known at the moment."""

_TYPES_COMPATIBLE_WITH_SYNCED = frozenset(
    {
        SyncerCondition.NAME_NOT_RESERVED,
        SyncerCondition.LEASE_TOO_SHORT,
        SyncerCondition.DRAIN_TOO_SHORT,
        SyncerCondition.ENDPOINTS_LEFT_OUT,
        SyncerCondition.METADATA_LEFT_OUT,
        SyncerCondition.UNREADABLE_INSTANCE,
        SyncerCondition.WAITING_FOR_CALLERS,
    }
)

_TYPES_COMPATIBLE_IF_NO_CHANGE_WAITS = _TYPES_COMPATIBLE_WITH_SYNCED | {SyncerCondition.PAUSED}

_NO_SERVICE_REASONS = (Reason.NO_MATCHING_SERVICE, Reason.EXTERNAL_NAME)
"""Reasons that leave a syncer without a Service to register: its instances leave Eureka."""


@dataclass(frozen=True)
class ConditionInput:
    """The result of one reconcile of a syncer: the input of all conditions.

    :param application: the syncer's application in upper case; empty where it is not known.
    :param desired_count: number of desired instances; after a reconcile that ended early, the last known
        number.
    :param drain_problem_sentence: why callers lose calls when pods end; empty where they lose none, None
        while the drain check has no finding.
    :param failure: the error that ended the reconcile early: nothing was changed, except that endpoints seen
        terminating were deregistered. The fields below have their defaults then.
    :param last_known_registered_count: the last known number of instances in Eureka, where this process never
        read Eureka.
    :param waiting_change_count: number of changes that a paused syncer has not made.
    :param claimed_names: the application and VIP names under which the syncer had instances before.
    :param instances_under_other_name: the syncer's instances whose owner has another cluster name that no
        setting lists as a former name.
    :param pods_reusing_addresses: the pod that has an instance's address now, by instance id: a paused
        syncer does not renew that instance any more.
    :param self_registered: instances that the syncer's pods registered themselves, also pods that are gone.
    """

    application: str
    eureka_instances: Collection[Instance]
    desired_count: int
    drain_problem_sentence: str | None = ""
    failure: Problem | None = None
    last_known_registered_count: int | None = None
    syncer: Syncer | None = None
    desired: DesiredInstances = field(default_factory=DesiredInstances)
    plan: Plan = field(default_factory=Plan)
    outcome: PlanOutcome = field(default_factory=PlanOutcome)
    waiting_change_count: int = 0
    brake_problem: Problem | None = None
    read_error: RegistryError | None = None
    claimed_names: frozenset[str] = frozenset()
    instances_under_other_name: Collection[Instance] = ()
    pods_reusing_addresses: Mapping[str, str] = field(default_factory=dict)
    other_owner_problems: tuple[Problem, ...] = ()
    self_registered: tuple[SelfRegistration, ...] = ()
    gate_problem: Problem | None = None

    @cached_property
    def up_count(self) -> int:
        """Number of instances of the syncer's application, or of all where it is not known, that are UP."""
        up = [one.application for one in self.eureka_instances if one.status is Status.UP]
        return up.count(self.application) if self.application else len(up)

    @property
    def summary(self) -> str:
        """Sentence that counts the desired instances, for a syncer without a fault."""
        down = self.desired_count - self.up_count
        out = (
            [one for one in self.eureka_instances if one.status is Status.OUT_OF_SERVICE] if down > 0 else []
        )
        wanted = {one.key for one in self.desired.instances} if out else ()
        taken = sum(one.key in wanted and not one.is_leaving for one in out)  # by a person
        waits = f", {taken} taken out of service" if taken else ""
        waits += f", {down - taken} not ready" if down > taken else ""
        place = _registry_name(self.eureka_instances)
        return f"{format_count(self.desired_count)} of {self.application} in {place}{waits}"

    @property
    def has_desired_instance_up(self) -> bool:
        """True if an instance that should be UP is UP in Eureka, or if the syncer's spec is not known."""
        if self.syncer is None:
            return True
        up = {one.key for one in self.eureka_instances if one.status is Status.UP}
        return any(one.status is Status.UP and one.key in up for one in self.desired.instances)


@dataclass(frozen=True, slots=True)
class SyncerReport(ReportedState):
    """The content of a syncer's next status.

    :param application: the syncer's application in upper case; empty where it is not known.
    :param problems: faults and mere notes, by condition type.
    :param unchecked_condition_types: condition types without a finding yet: the status keeps its present
        conditions.
    :param registered: number of the syncer's instances in Eureka, without those that are leaving.
    :param refused: number of desired instances that were not registered, since an instance of another owner
        has the id.
    :param claimed_names: the application and VIP names under which the syncer may go on registering; None to
        keep the status's present names.
    :param self_registered: instances that the syncer's pods registered themselves; None to keep those of the
        present status.
    :param service_counts: the counts of a namespace's syncer; None for any other syncer.
    """

    application: str = ""
    desired: int = 0
    registered: int = 0
    refused: int = 0
    problems: Mapping[str, Problem] = field(default_factory=dict)
    unchecked_condition_types: frozenset[str] = frozenset()
    claimed_names: frozenset[str] | None = None
    self_registered: tuple[SelfRegistration, ...] | None = None
    service_counts: MemberServiceCounts | None = None


def build_report(found: ConditionInput) -> SyncerReport:
    """Return the conditions and counts of a syncer after a reconcile."""
    conflicts, self_registered, refused_by_own = _sort_refusals(found)
    by_reason: dict[str, Problem] = {}
    for one in _problems_of(found, conflicts, self_registered):
        by_reason.setdefault(one.reason, one.with_remedy(SYNCER_REMEDIES))
    notes = _TYPES_COMPATIBLE_IF_NO_CHANGE_WAITS
    if found.waiting_change_count:
        notes = _TYPES_COMPATIBLE_WITH_SYNCED
    problems = {reason: one for reason, one in by_reason.items() if reason not in notes}
    synced = next(iter(problems.values()), None) or Problem(SyncerCondition.SYNCED, found.summary)
    is_ready, ready = _ready_condition(found, problems, synced)
    registered = found.last_known_registered_count
    if registered is None:
        registered = len([one for one in found.eureka_instances if not one.is_leaving])
    names = None
    if found.syncer is not None:
        names = found.syncer.names if found.eureka_instances else found.syncer.names & found.claimed_names
    return SyncerReport(
        is_ready,
        ready,
        not problems,
        synced,
        application=found.application,
        desired=found.desired_count,
        registered=registered,
        refused=len(conflicts) + refused_by_own + len(self_registered),
        problems=by_reason,
        unchecked_condition_types=frozenset(
            {SyncerCondition.DRAIN_TOO_SHORT} if found.drain_problem_sentence is None else ()
        ),
        claimed_names=names,
        self_registered=found.self_registered if found.syncer is not None else None,
    )


def _problems_of(
    found: ConditionInput, conflicts: Sequence[str], self_registered: Sequence[str]
) -> Iterator[Problem]:
    """Yield all problems, the most important first: the first that is no note is the reason of Synced."""
    if found.failure is not None:
        yield found.failure
    errors = [one.error for one in found.outcome.failures if isinstance(one.error, RegistryError)]
    for error in (*errors[:1], *([found.read_error] if found.read_error else [])):
        yield problem_of(error)
    if found.brake_problem:
        yield found.brake_problem
    yield from found.desired.problems
    if found.instances_under_other_name:
        yield _other_cluster_name_problem(found.instances_under_other_name)
    elif conflicts:
        yield Problem(SyncerCondition.CONFLICT, join_sentences(conflicts))
    yield from found.other_owner_problems
    if self_registered:
        verb = "registered itself" if len(self_registered) == 1 else "registered themselves"
        yield Problem(SyncerCondition.SELF_REGISTERED, f"{format_list(self_registered, 3)} {verb}")
    if found.syncer is not None and found.syncer.is_paused:
        yield _pause_problem(found)
    if found.desired.left_out_endpoint_sentences:
        yield _left_out_endpoints_problem(found.desired)
    if found.desired.left_out_metadata_sentences:
        left_out = join_sentences(found.desired.left_out_metadata_sentences)
        yield Problem(SyncerCondition.METADATA_LEFT_OUT, f"left out: {left_out}")
    if found.syncer is not None and found.syncer.lease_problem is not None:
        yield found.syncer.lease_problem
    if found.gate_problem:
        yield found.gate_problem
    if found.drain_problem_sentence:
        yield Problem(SyncerCondition.DRAIN_TOO_SHORT, found.drain_problem_sentence)


def _other_cluster_name_problem(instances: Collection[Instance]) -> Problem:
    count = format_count(len(instances), "instance")
    called = printable(", ".join(sorted({cluster_name_of_owner(one.owner) or "" for one in instances})))
    return Problem(
        SyncerCondition.CONFLICT,
        f"{_registry_name(instances)} holds {count} of this syncer under another name of this cluster,"
        f" {called}: they are left as they are, and those of its endpoints are renewed",
        "if the cluster was called so before, start its operator with --previous-cluster-name "
        f"{called}, which takes them over; if another operator serves the same syncers by that name, "
        "end one of the two",
    )


def _pause_problem(found: ConditionInput) -> Problem:
    """Return the problem of a paused syncer, which is not synced only while changes wait."""
    waits = f"; {found.waiting_change_count} changes wait" if found.waiting_change_count else ""
    taken = [
        f"{one}, whose address the pod {pod} has by now"
        for one, pod in sorted(found.pods_reusing_addresses.items())
    ]
    lapses = f" but for {format_list(taken, 3)}" if taken else ""
    return Problem(
        SyncerCondition.PAUSED,
        f"spec.paused is true: nothing is changed, what is registered is renewed{lapses}{waits}",
    )


def _left_out_endpoints_problem(desired: DesiredInstances) -> Problem:
    left_out = join_sentences(desired.left_out_endpoint_sentences)
    return Problem(SyncerCondition.ENDPOINTS_LEFT_OUT, f"not registered: {left_out}")


def _ready_condition(
    found: ConditionInput, problems: Mapping[str, Problem], synced: Problem
) -> tuple[bool | None, Problem]:
    """Return the condition Ready (None for unknown), and its reason and message: the first rule decides.

    :param problems: those that keep the syncer from being synced, by reason.
    """
    if found.last_known_registered_count is not None:
        return False, _with_message_suffix(
            synced,
            "; the operator has not read Eureka yet, and changes nothing until then; it will register "
            f"{format_count(found.desired_count)} of {found.application}",
        )
    if not problems.keys().isdisjoint(EUREKA_UNREADABLE_REASONS):  # callers may find others
        return False, _with_message_suffix(
            synced, f"; by what is known, {describe_instances(found.eureka_instances)}"
        )
    if found.failure is not None and found.failure.reason in REASONS_TO_CHANGE_NOTHING:
        more = describe_instances(found.eureka_instances)
        if found.eureka_instances:
            more += ": renewed until its endpoint is seen terminating, and nothing new is registered"
        return False, _with_message_suffix(problems[found.failure.reason], f"; {more}")
    if (reason := next(filter(problems.__contains__, _NO_SERVICE_REASONS), None)) is not None:
        waits = f", {found.brake_problem.message}" if found.brake_problem else ""
        return False, _with_message_suffix(
            problems[reason], f"; {describe_instances(found.eureka_instances)}{waits}"
        )
    if found.brake_problem and not found.has_desired_instance_up:
        # The cluster's objects may be wrong, or the application may really be down.
        held = describe_instances(found.eureka_instances)
        message = f"no endpoint is ready; {held}, {found.brake_problem.message}"
        return None, replace(problems[SyncerCondition.BRAKED], message=message)
    if up_count := found.up_count:
        if not problems:
            return True, synced
        message = f"{format_count(up_count)} of {found.application} UP; {synced.message}"
        return True, replace(synced, reason=Reason.INSTANCES_UP, message=message)
    if problems:
        return False, synced
    if found.desired_count:
        return False, Problem(Reason.NONE_UP, f"{found.summary}: none is UP").with_remedy(SYNCER_REMEDIES)
    if not found.desired.has_endpoints:
        return True, synced  # scaled to zero
    none_is_ready = Problem(Reason.NONE_UP, f"{found.summary}: no endpoint is ready")
    has_left_out = found.desired.left_out_endpoint_sentences
    why = _left_out_endpoints_problem(found.desired) if has_left_out else none_is_ready
    return False, why.with_remedy(SYNCER_REMEDIES)


def _with_message_suffix(problem: Problem, more: str) -> Problem:
    return replace(problem, message=problem.message + more)


def _sort_refusals(found: ConditionInput) -> tuple[list[str], list[str], int]:
    """Return a sentence for each conflict with an instance of another owner, a description of each instance
    that a pod registered itself, and the number of refusals by the syncer's own instances under another name
    of its cluster.
    """
    own_keys = {one.key for one in found.instances_under_other_name}
    refusals = found.plan.refusals
    others = [one for one in refusals if one.actual.key not in own_keys]
    conflicts = [one.problem_sentence for one in others if one.reason is RefusalReason.CONFLICT]
    errors = [one.error for one in found.outcome.failures]
    conflicts += [str(one) for one in errors if isinstance(one, OwnershipConflict)]
    pods_own = [one for one in refusals if one.reason is RefusalReason.SELF_REGISTERED]
    self_registered = [one.blocking_instance_description for one in (*pods_own, *found.plan.duplicates)]
    return conflicts, self_registered, len(refusals) - len(others)


def problem_of(error: EurekubeError) -> Problem:
    """Return the problem that a syncer's status reports for an error."""
    kinds = {
        RegistryUnreachable: Reason.EUREKA_UNREACHABLE,
        RegistryDenied: Reason.EUREKA_DENIED,
        RegistryError: Reason.EUREKA_REJECTED,
        KubernetesError: Reason.KUBERNETES_ERROR,
    }
    reason = next((reason for kind, reason in kinds.items() if isinstance(error, kind)), Reason.FAILED)
    return Problem(reason, str(error))


def describe_instances(instances: Collection[Instance]) -> str:
    """Return a sentence such as ``Eureka holds 2 instances of RATING (1 UP)``."""
    by_application: dict[str, list[Instance]] = {}
    for one in instances:
        by_application.setdefault(one.application, []).append(one)
    parts = [
        f"{format_count(len(ones))} of {name} ({sum(one.status is Status.UP for one in ones)} UP)"
        for name, ones in sorted(by_application.items())
    ]
    return f"{_registry_name(instances)} holds {' and '.join(parts) or 'none of its instances'}"


def _registry_name(instances: Iterable[Instance]) -> str:
    """Return the kind of registry that instances were read from; Eureka for none."""
    return next(map(registry_kind_of_instance, instances), EUREKA).name
