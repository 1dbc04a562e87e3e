"""The conditions of a syncer after a reconcile: pure functions.

*Synced* says whether Eureka holds the instances that the syncer wants. *Ready* says whether callers find an
instance that is UP or, where a Service is scaled to zero, correctly find none. Every other condition comes
from one of the :data:`CHECKS`. A new condition needs a function, a line in :data:`CHECKS`, a name in
:class:`~eurekube_provider.core.condition_types.ConditionType`, and a remedy in
:data:`~eurekube_provider.core.remedies.REMEDIES`. A condition that leaves a syncer synced is in ``_NOTES``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from eurekube_provider.comparison.reported_state import ReportedState
from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.derived_syncer import ServiceCounts
from eurekube_provider.core.errors import (
    EurekubeError,
    KubernetesError,
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import cluster_of
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Outcome, Plan, Refusal, RefusalReason
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.remedies import REMEDIES
from eurekube_provider.core.self_registered import SelfRegistration
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.core.wording import counted, joined, listed

REFUSALS = frozenset({Reason.NOT_ALLOWED, Reason.UNKNOWN_EUREKA, ConditionType.CONFLICT})
"""Reasons for which the operator changes nothing for a syncer, except that endpoints seen terminating
leave.
"""

EUREKA_FAILS = frozenset({Reason.EUREKA_UNREACHABLE, Reason.EUREKA_DENIED, Reason.EUREKA_REJECTED})
"""Reasons that :func:`problem_of` gives to errors of a registry."""

_NOT_ASKED = (Reason.EUREKA_UNREACHABLE, Reason.EUREKA_DENIED)
_NOTES = frozenset(
    {
        ConditionType.NAME_NOT_RESERVED,
        ConditionType.LEASE_TOO_SHORT,
        ConditionType.DRAIN_TOO_SHORT,
        ConditionType.ENDPOINTS_LEFT_OUT,
        ConditionType.METADATA_LEFT_OUT,
        ConditionType.UNREADABLE_INSTANCE,
        ConditionType.WAITING_FOR_CALLERS,
    }
)
_NO_SERVICE = (Reason.NO_MATCHING_SERVICE, Reason.EXTERNAL_NAME)
"""Reasons that leave a syncer without a Service to register: its instances leave Eureka."""

_NOTHING_DESIRED = Desired()
_NO_STEPS = Plan()
_NOTHING_DONE = Outcome()


@dataclass(frozen=True, slots=True)
class ConditionInput:
    """The result of one reconcile of a syncer: the input of all conditions.

    :param application: in upper case; empty where it is not known.
    :param there: the owner's instances in Eureka afterwards.
    :param wanted: how many instances are desired; after a reconcile that ended early, the last known number.
    :param drain: why callers lose calls when pods end; empty where they do not, None while that is not known.
    :param failure: the error that ended the reconcile early: nothing was changed, except that endpoints seen
        terminating left. The fields below are not given then.
    :param last_registered: the last known number of instances in Eureka, where this process never read
        Eureka.
    :param waiting: how many changes a paused syncer has not made.
    :param braked: why removals are held back; None where none are.
    :param read_error: why Eureka cannot be read at the moment.
    :param claimed: the owner names that the syncer has had before.
    :param unclaimed: the syncer's instances under another name of its cluster, which no setting lists as a
        former name.
    :param taken: by instance id, the pod that has the address now: a paused syncer renews that instance no
        more.
    :param notes: problems with others' instances beside its own.
    :param self_registered: instances that its pods, gone or not, registered themselves.
    :param waiting_pods: the problem of the pods that wait for their readiness gate; None where none does.
    """

    application: str
    there: Collection[Instance]
    wanted: int
    drain: str | None = ""
    failure: Problem | None = None
    last_registered: int | None = None
    syncer: Syncer | None = None
    desired: Desired = _NOTHING_DESIRED
    steps: Plan = _NO_STEPS
    outcome: Outcome = _NOTHING_DONE
    waiting: int = 0
    braked: Problem | None = None
    read_error: RegistryError | None = None
    claimed: frozenset[str] = frozenset()
    unclaimed: Collection[Instance] = ()
    taken: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()
    self_registered: tuple[SelfRegistration, ...] = ()
    waiting_pods: Problem | None = None

    @property
    def up(self) -> int:
        """Number of the syncer's instances that are UP; where its application is not known, of all
        applications.
        """
        known = (one for one in self.there if self.application in ("", one.application))
        return sum(one.status is Status.UP for one in known)

    @property
    def summary(self) -> str:
        """Sentence for a syncer without a fault."""
        waits = f", {self.wanted - self.up} not ready" if self.up < self.wanted else ""
        return f"{counted(self.wanted)} of {self.application} in Eureka{waits}"

    @property
    def serves_wanted(self) -> bool:
        """True if an instance that should be UP is UP in Eureka, or if the syncer's spec is not known."""
        if self.syncer is None:
            return True
        up = {one.key for one in self.there if one.status is Status.UP}
        return any(one.status is Status.UP and one.key in up for one in self.desired.instances)


@dataclass(frozen=True, slots=True)
class Report(ReportedState):
    """The content of a syncer's next status.

    :param problems: by condition type, faults and mere notes.
    :param unknown: condition types of which nothing is known yet: the status keeps its present ones.
    :param registered: how many instances of the syncer Eureka holds, without those that are leaving.
    :param refused: how many desired instances were left alone, since an instance of another owner is in the
        way.
    :param names: the owner names that the syncer had, and may have from now on; None to keep the present
        ones.
    :param self_registered: instances that its pods registered themselves; None to keep the present ones.
    :param services: the counts of a namespace's syncer; None for any other syncer.
    """

    application: str = ""
    desired: int = 0
    registered: int = 0
    refused: int = 0
    problems: Mapping[str, Problem] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    names: frozenset[str] | None = None
    self_registered: tuple[SelfRegistration, ...] | None = None
    services: ServiceCounts | None = None


def report(found: ConditionInput) -> Report:
    """Return the conditions and counts of a syncer after a reconcile."""
    by_reason: dict[str, Problem] = {}
    for check in CHECKS:
        for one in check(found):
            by_reason.setdefault(one.reason, one.with_remedy(REMEDIES))
    notes = _NOTES if found.waiting else _NOTES | {ConditionType.PAUSED}
    problems = {reason: one for reason, one in by_reason.items() if reason not in notes}
    is_ready, ready = next(said for rule in READY_RULES if (said := rule(found, problems)) is not None)
    registered = sum(not one.is_leaving for one in found.there)
    names = None
    if found.syncer is not None:
        names = found.syncer.names if found.there else found.syncer.names & found.claimed
    return Report(
        is_ready,
        ready,
        not problems,
        next(iter(problems.values()), Problem(ConditionType.SYNCED, found.summary)),
        application=found.application,
        desired=found.wanted,
        registered=registered if found.last_registered is None else found.last_registered,
        refused=len(_conflicting(found)) + len(_in_its_own_way(found)) + len(_self_registered(found)),
        problems=by_reason,
        unknown=frozenset({ConditionType.DRAIN_TOO_SHORT} if found.drain is None else ()),
        names=names,
        self_registered=found.self_registered if found.syncer is not None else None,
    )


def ended_early(found: ConditionInput) -> Iterator[Problem]:
    """Yield the error that ended the reconcile early."""
    if found.failure is not None:
        yield found.failure


def eureka_fails(found: ConditionInput) -> Iterator[Problem]:
    """Yield the first error of a change that Eureka refused, and the error of reading Eureka."""
    errors = [one.error for one in found.outcome.failures if isinstance(one.error, RegistryError)]
    for error in (*errors[:1], *([found.read_error] if found.read_error else [])):
        yield problem_of(error)


def braked(found: ConditionInput) -> Iterator[Problem]:
    """Yield the problem of removals that the brake holds back."""
    if found.braked:
        yield found.braked


def cannot_be_mapped(found: ConditionInput) -> Iterator[Problem]:
    """Yield problems of Services and endpoints that leave the desired instances undecided."""
    yield from found.desired.problems


def endpoints_left_out(found: ConditionInput) -> Iterator[Problem]:
    """Yield a problem that lists the endpoints which cannot be registered."""
    if found.desired.left_out:
        yield Problem(ConditionType.ENDPOINTS_LEFT_OUT, f"not registered: {joined(found.desired.left_out)}")


def metadata_left_out(found: ConditionInput) -> Iterator[Problem]:
    """Yield a problem that lists the metadata left out of instances."""
    if found.desired.metadata_left_out:
        yield Problem(ConditionType.METADATA_LEFT_OUT, f"left out: {joined(found.desired.metadata_left_out)}")


def conflicts(found: ConditionInput) -> Iterator[Problem]:
    """Yield the conflict with another owner, or with the syncer itself under another name of its cluster."""
    if names := sorted({cluster_of(one.owner) or "" for one in found.unclaimed}):
        count, called = counted(len(found.unclaimed), "instance"), printable(", ".join(names))
        yield Problem(
            ConditionType.CONFLICT,
            f"Eureka holds {count} of this syncer under another name of this cluster, {called}: they are left"
            " as they are, and those of its endpoints are renewed",
            f"if the cluster was called so before, start its operator with --previous-cluster-name {called},"
            " which takes them over; if another operator serves the same syncers by that name, end one of the"
            " two",
        )
    elif conflict := _conflicting(found):
        yield Problem(ConditionType.CONFLICT, joined(conflict))


def strangers(found: ConditionInput) -> Iterator[Problem]:
    """Yield problems with instances of other owners."""
    yield from found.notes


def self_registered(found: ConditionInput) -> Iterator[Problem]:
    """Yield a problem that lists pods which registered themselves beside the operator."""
    if there := _self_registered(found):
        verb = "registered itself" if len(there) == 1 else "registered themselves"
        yield Problem(ConditionType.SELF_REGISTERED, f"{listed(there, 3)} {verb}")


def paused(found: ConditionInput) -> Iterator[Problem]:
    """Yield the problem of a paused syncer; only changes that wait keep the syncer from being synced."""
    if found.syncer is not None and found.syncer.is_paused:
        waits = f"; {found.waiting} changes wait" if found.waiting else ""
        taken = [f"{one}, whose address the pod {pod} has by now" for one, pod in sorted(found.taken.items())]
        lapses = f" but for {listed(taken, 3)}" if taken else ""
        message = f"spec.paused is true: nothing is changed, what is registered is renewed{lapses}{waits}"
        yield Problem(ConditionType.PAUSED, message)


def lease_too_short(found: ConditionInput) -> Iterator[Problem]:
    """Yield the problem of Eureka leases that may end while another replica takes over."""
    if found.syncer is not None and found.syncer.lease_problem is not None:
        yield found.syncer.lease_problem


def drain_too_short(found: ConditionInput) -> Iterator[Problem]:
    """Yield the problem of pods that end while callers still call them."""
    if found.drain:
        yield Problem(ConditionType.DRAIN_TOO_SHORT, found.drain)


def waiting_for_callers(found: ConditionInput) -> Iterator[Problem]:
    """Yield the problem of pods whose readiness gate waits until callers know them."""
    if found.waiting_pods:
        yield found.waiting_pods


CHECKS: tuple[Callable[[ConditionInput], Iterator[Problem]], ...] = (
    ended_early,
    eureka_fails,
    braked,
    cannot_be_mapped,
    conflicts,
    strangers,
    self_registered,
    paused,
    endpoints_left_out,
    metadata_left_out,
    lease_too_short,
    waiting_for_callers,
    drain_too_short,
)
"""The checks in order: the first problem found is the reason of Synced."""

Ready = tuple[bool | None, Problem]
"""The condition Ready: True, False or None (unknown), and its reason and message."""

Problems = Mapping[str, Problem]
"""Problems that keep the syncer from being synced, by reason, the most important first."""


def _is_unread(found: ConditionInput, problems: Problems) -> Ready | None:
    if found.last_registered is None:
        return None
    more = (
        "what Eureka holds is not known before it was read, and nothing is changed until then; wanted there:"
        f" {counted(found.wanted)} of {found.application}"
    )
    return False, _with_suffix(next(iter(problems.values())), f"; {more}")


def _is_not_asked(found: ConditionInput, problems: Problems) -> Ready | None:
    """Return Ready as False while Eureka cannot be read: nobody knows which instances callers find."""
    if not any(reason in problems for reason in _NOT_ASKED):
        return None
    first = next(iter(problems.values()))
    return False, _with_suffix(first, f"; by what is known, {held(found.there)}")


def _is_refused(found: ConditionInput, problems: Problems) -> Ready | None:
    if found.failure is None or found.failure.reason not in REFUSALS:
        return None
    more = held(found.there)
    if found.there:
        more += ": renewed until its endpoint is seen terminating, and nothing new is registered"
    return False, _with_suffix(problems[found.failure.reason], f"; {more}")


def _has_no_service(found: ConditionInput, problems: Problems) -> Ready | None:
    reason = next((one for one in _NO_SERVICE if one in problems), None)
    if reason is None:
        return None
    waits = f", {found.braked.message}" if found.braked else ""
    return False, _with_suffix(problems[reason], f"; {held(found.there)}{waits}")


def _is_braked(found: ConditionInput, problems: Problems) -> Ready | None:
    """Return Ready as unknown while the brake holds removals and no wanted instance is UP: the cluster's
    objects may be wrong, or the application may really be down.
    """
    if not found.braked or found.serves_wanted:
        return None
    message = f"no endpoint is ready; {held(found.there)}, {found.braked.message}"
    return None, replace(problems[ConditionType.BRAKED], message=message)


def _is_up(found: ConditionInput, problems: Problems) -> Ready | None:
    if not found.up:
        return None
    if not problems:
        return True, Problem(ConditionType.SYNCED, found.summary)
    first = next(iter(problems.values()))
    message = f"{counted(found.up)} of {found.application} UP; {first.message}"
    return True, replace(first, reason=Reason.INSTANCES_UP, message=message)


def _none_is_up(found: ConditionInput, problems: Problems) -> Ready | None:
    if problems:
        return None
    if not found.wanted:
        return _none_is_wanted(found)
    return False, Problem(Reason.NONE_UP, f"{found.summary}: none is UP").with_remedy(REMEDIES)


def _none_is_wanted(found: ConditionInput) -> Ready | None:
    """Return Ready as False where endpoints exist but no instance is wanted; None for a Service without
    endpoints.
    """
    if not found.desired.has_endpoints:
        return None
    left_out = next(endpoints_left_out(found), None)
    none_is_ready = Problem(Reason.NONE_UP, f"{found.summary}: no endpoint is ready")
    return False, (left_out or none_is_ready).with_remedy(REMEDIES)


def _as_synced(found: ConditionInput, problems: Problems) -> Ready | None:
    said = next(iter(problems.values()), Problem(ConditionType.SYNCED, found.summary))
    return not problems, said


READY_RULES: tuple[Callable[[ConditionInput, Problems], Ready | None], ...] = (
    _is_unread,
    _is_not_asked,
    _is_refused,
    _has_no_service,
    _is_braked,
    _is_up,
    _none_is_up,
    _as_synced,
)
"""The rules of the condition Ready: the first rule that applies decides."""


def _with_suffix(problem: Problem, more: str) -> Problem:
    return replace(problem, message=problem.message + more)


def _conflicting(found: ConditionInput) -> list[str]:
    own = _in_its_own_way(found)
    refusals = [one for one in found.steps.refusals if one not in own]
    planned = [one.problem for one in refusals if one.reason is RefusalReason.CONFLICT]
    errors = (failure.error for failure in found.outcome.failures)
    return [*planned, *(str(error) for error in errors if isinstance(error, OwnershipConflict))]


def _in_its_own_way(found: ConditionInput) -> list[Refusal]:
    """Return the refusals caused by the syncer's own instances under another name of its cluster."""
    known = {one.key for one in found.unclaimed}
    return [one for one in found.steps.refusals if known and one.actual.key in known]


def _self_registered(found: ConditionInput) -> list[str]:
    refused = [one for one in found.steps.refusals if one.reason is RefusalReason.SELF_REGISTERED]
    return [one.in_the_way for one in (*refused, *found.steps.doubled)]


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


def held(there: Collection[Instance]) -> str:
    """Return a sentence such as ``Eureka holds 2 instances of RATING (1 UP)``, which counts each
    application.
    """
    by_application: dict[str, list[Instance]] = {}
    for one in there:
        by_application.setdefault(one.application, []).append(one)
    parts = [
        f"{counted(len(ones))} of {name} ({sum(one.status is Status.UP for one in ones)} UP)"
        for name, ones in sorted(by_application.items())
    ]
    return f"Eureka holds {' and '.join(parts) or 'none of its instances'}"
