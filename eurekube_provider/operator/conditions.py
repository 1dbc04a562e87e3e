"""What a reconcile came to, as a syncer's conditions say it: pure.

*Synced* says whether Eureka holds what the syncer wants. *Ready* says whether callers find something that is
meant to be found: an instance is UP or, scaled to zero, nothing is meant to be. The other conditions are what
the checks of :data:`CHECKS` find, each by itself: a new one is a function, a line there, a name in
:class:`~eurekube_provider.core.condition_types.ConditionType`, and what mends it in
:data:`~eurekube_provider.core.remedies.REMEDIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.errors import (
    EurekubeError,
    KubernetesError,
    OwnershipConflict,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Outcome, Plan, RefusalReason
from eurekube_provider.core.remedies import TO_MEND, mended, told_apart
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.core.wording import counted, joined, listed

REFUSALS = frozenset({Reason.NOT_ALLOWED, Reason.UNKNOWN_EUREKA, ConditionType.CONFLICT})
"""Reasons for which nothing is done for a syncer but to let leave what was seen terminating."""

_NOT_ASKED = (Reason.EUREKA_UNREACHABLE, Reason.EUREKA_DENIED)

_NOTHING_DESIRED = Desired()
_NO_STEPS = Plan()
_NOTHING_DONE = Outcome()


@dataclass(frozen=True, slots=True)
class ConditionFinding:
    """Something to know of a syncer.

    :param name: the type of its condition, or a reason of Ready and Synced.
    :param message: None where it is not known: the condition that stands there is kept.
    :param is_problem: whether the syncer is not synced because of it.
    """

    name: str
    message: str | None
    is_problem: bool = True


@dataclass(frozen=True, slots=True)
class ConditionInput:
    """What one reconcile of a syncer came to: the input of all conditions.

    :param application: in upper case; empty where it is not known.
    :param there: what the owner has in Eureka afterwards.
    :param wanted: how many instances are desired; where it ended early, when that was last known.
    :param drain: why callers lose calls when pods end; empty where they do not, None while that is not known.
    :param failure: what ended it early: nothing was changed, but for what was seen terminating. What follows
        is not given then.
    :param last_registered: how many instances Eureka held when that was last known, where it was never read.
    :param waiting: how many changes a paused syncer has not made.
    :param braked: why removals are held back, empty where none are.
    :param read_error: why Eureka cannot be read at the moment.
    :param claimed: the names that the syncer has been called by before.
    """

    application: str
    there: Collection[Instance]
    wanted: int
    drain: str | None = ""
    failure: ConditionFinding | None = None
    last_registered: int | None = None
    syncer: Syncer | None = None
    desired: Desired = _NOTHING_DESIRED
    steps: Plan = _NO_STEPS
    outcome: Outcome = _NOTHING_DONE
    waiting: int = 0
    braked: str = ""
    read_error: RegistryError | None = None
    claimed: frozenset[str] = frozenset()

    @property
    def up(self) -> int:
        """How many instances are UP, of whatever applications where its own is not known."""
        known = (one for one in self.there if self.application in ("", one.application))
        return sum(one.status is Status.UP for one in known)

    @property
    def summary(self) -> str:
        """What all is well with."""
        waits = f", {self.wanted - self.up} not ready" if self.up < self.wanted else ""
        return f"{counted(self.wanted)} of {self.application} in Eureka{waits}"

    @property
    def serves_wanted(self) -> bool:
        """Whether something that is UP is known to be meant to be."""
        if self.syncer is None:
            return True
        up = {one.key for one in self.there if one.status is Status.UP}
        return any(one.status is Status.UP and one.key in up for one in self.desired.instances)


@dataclass(frozen=True, slots=True)
class Report:
    """What the status shall say.

    :param is_ready: None where that is not known, as of ``is_synced``.
    :param reason: of the condition Ready, as is ``message``; ``sync_reason`` and ``sync_message`` are those
        of the condition Synced.
    :param problems: messages by condition type, of what is wrong and of what is only to be known.
    :param unknown: condition types of which nothing is known yet: what stands there is kept.
    :param registered: how many instances Eureka holds of the syncer, those on their way out left aside.
    :param refused: how many desired instances were left alone since somebody else's stand in their way.
    :param names: what the syncer has been called by, and may be called by from now on; None for as before.
    """

    is_ready: bool | None
    reason: str
    message: str
    application: str = ""
    desired: int = 0
    registered: int = 0
    refused: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)
    is_synced: bool | None = True
    sync_reason: str = ConditionType.SYNCED
    sync_message: str = ""
    unknown: frozenset[str] = frozenset()
    names: frozenset[str] | None = None


def report(found: ConditionInput) -> Report:
    """What a reconcile came to, in conditions and counts."""
    findings: dict[str, ConditionFinding] = {}
    for check in CHECKS:
        for finding in check(found):
            findings.setdefault(finding.name, finding)
    told = {one.name: mended(one.name, one.message) for one in findings.values() if one.message is not None}
    problems = {name: told_apart(message)[0] for name, message in told.items() if findings[name].is_problem}
    sync_reason = next(iter(problems), str(ConditionType.SYNCED))
    sync_message = told.get(sync_reason, found.summary)
    is_ready, reason, message = next(
        ready for rule in READY_RULES if (ready := rule(found, problems)) is not None
    )
    _, remedy = told_apart(told.get(reason if reason in problems else sync_reason, ""))
    message = mended(reason, f"{message}{TO_MEND}{remedy}" if remedy else message)
    registered = sum(not one.is_leaving for one in found.there)
    names = None
    if found.syncer is not None:
        names = found.syncer.names if found.there else found.syncer.names & found.claimed
    return Report(
        is_ready=is_ready,
        reason=reason,
        message=message,
        is_synced=not problems,
        sync_reason=sync_reason,
        sync_message=sync_message,
        application=found.application,
        desired=found.wanted,
        registered=registered if found.last_registered is None else found.last_registered,
        refused=len(_conflicting(found)) + len(_self_registered(found)),
        problems=told,
        unknown=frozenset(one.name for one in findings.values() if one.message is None),
        names=names,
    )


def ended_early(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say what ended the reconcile early."""
    if found.failure is not None:
        yield found.failure


def eureka_fails(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say that Eureka did not take a change, or cannot be read."""
    errors = [one.error for one in found.outcome.failures if isinstance(one.error, RegistryError)]
    for error in (*errors[:1], *([found.read_error] if found.read_error else [])):
        yield ConditionFinding(reason_of(error), str(error))


def braked(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say that removals are held back."""
    if found.braked:
        yield ConditionFinding(ConditionType.BRAKED, found.braked)


def cannot_be_mapped(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say what of the cluster's objects leaves open what is desired."""
    for problem in found.desired.problems:
        yield ConditionFinding(problem.reason, problem.message)


def conflicts(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say what belongs to another owner."""
    if told := _conflicting(found):
        yield ConditionFinding(ConditionType.CONFLICT, joined(told))


def self_registered(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say what registers itself beside us."""
    if there := _self_registered(found):
        verb = "registered itself" if len(there) == 1 else "registered themselves"
        yield ConditionFinding(ConditionType.SELF_REGISTERED, f"{listed(there, 3)} {verb}")


def paused(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say that nothing is changed, and what waits: only that keeps a syncer from being synced."""
    if found.syncer is not None and found.syncer.is_paused:
        waits = f"; {found.waiting} changes wait" if found.waiting else ""
        message = f"spec.paused is true: nothing is changed, what is registered is renewed{waits}"
        yield ConditionFinding(ConditionType.PAUSED, message, is_problem=found.waiting > 0)


def lease_too_short(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say that instances may lapse while another replica takes over."""
    if found.syncer is not None and found.syncer.lease_problem is not None:
        message = found.syncer.lease_problem.message
        yield ConditionFinding(ConditionType.LEASE_TOO_SHORT, message, is_problem=False)


def drain_too_short(found: ConditionInput) -> Iterator[ConditionFinding]:
    """Say that callers lose calls when pods end."""
    if found.drain != "":
        yield ConditionFinding(ConditionType.DRAIN_TOO_SHORT, found.drain, is_problem=False)


CHECKS: tuple[Callable[[ConditionInput], Iterator[ConditionFinding]], ...] = (
    ended_early,
    eureka_fails,
    braked,
    cannot_be_mapped,
    conflicts,
    self_registered,
    paused,
    lease_too_short,
    drain_too_short,
)
"""The checks in their order: the first problem is the reason of Synced."""

Ready = tuple[bool | None, str, str]
"""The condition Ready: whether it holds, its reason and its message."""

Problems = Mapping[str, str]
"""Messages by name, the most telling first."""


def _is_unread(found: ConditionInput, problems: Problems) -> Ready | None:
    if found.last_registered is None:
        return None
    reason, message = next(iter(problems.items()))
    message += "; what Eureka holds is not known before it was read, and nothing is changed until then;"
    return False, reason, f"{message} wanted there: {counted(found.wanted)} of {found.application}"


def _is_not_asked(found: ConditionInput, problems: Problems) -> Ready | None:
    """Nobody knows what callers find."""
    if not any(reason in problems for reason in _NOT_ASKED):
        return None
    reason, message = next(iter(problems.items()))
    return False, reason, f"{message}; by what is known, {held(found.there)}"


def _is_refused(found: ConditionInput, problems: Problems) -> Ready | None:
    if found.failure is None or found.failure.name not in REFUSALS:
        return None
    message = f"{problems[found.failure.name]}; {held(found.there)}"
    if found.there:
        message += ": renewed until its endpoint is seen terminating, and nothing new is registered"
    return False, found.failure.name, message


def _has_no_service(found: ConditionInput, problems: Problems) -> Ready | None:
    if Reason.NO_MATCHING_SERVICE not in problems:
        return None
    waits = f", {problems[ConditionType.BRAKED]}" if found.braked else ""
    message = f"{problems[Reason.NO_MATCHING_SERVICE]}; {held(found.there)}{waits}"
    return False, Reason.NO_MATCHING_SERVICE, message


def _is_braked(found: ConditionInput, problems: Problems) -> Ready | None:
    """The source is broken, or nothing is there."""
    if not found.braked or found.serves_wanted:
        return None
    doubt = problems[ConditionType.BRAKED]
    return None, ConditionType.BRAKED, f"no endpoint is ready; {held(found.there)}, {doubt}"


def _is_up(found: ConditionInput, problems: Problems) -> Ready | None:
    if not found.up:
        return None
    if not problems:
        return True, ConditionType.SYNCED, found.summary
    message = f"{counted(found.up)} of {found.application} UP; {next(iter(problems.values()))}"
    return True, Reason.INSTANCES_UP, message


def _none_is_up(found: ConditionInput, problems: Problems) -> Ready | None:
    if problems or not found.wanted:
        return None
    return False, Reason.NONE_UP, f"{found.summary}: none is UP"


def _as_synced(found: ConditionInput, problems: Problems) -> Ready | None:
    reason, message = next(iter(problems.items()), (ConditionType.SYNCED, found.summary))
    return not problems, reason, message


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
"""The rules of the condition Ready: the first that applies says it."""


def _conflicting(found: ConditionInput) -> list[str]:
    planned = [one.problem for one in found.steps.refusals if one.reason is RefusalReason.CONFLICT]
    errors = (failure.error for failure in found.outcome.failures)
    return [*planned, *(str(error) for error in errors if isinstance(error, OwnershipConflict))]


def _self_registered(found: ConditionInput) -> list[str]:
    refused = [one for one in found.steps.refusals if one.reason is RefusalReason.SELF_REGISTERED]
    return [one.in_the_way for one in (*refused, *found.steps.doubled)]


def reason_of(error: EurekubeError) -> Reason:
    """A condition's reason for an error."""
    if isinstance(error, RegistryUnreachable):
        return Reason.EUREKA_UNREACHABLE
    if isinstance(error, RegistryDenied):
        return Reason.EUREKA_DENIED
    if isinstance(error, RegistryError):
        return Reason.EUREKA_REJECTED
    return Reason.KUBERNETES_ERROR if isinstance(error, KubernetesError) else Reason.FAILED


def held(there: Collection[Instance]) -> str:
    """``Eureka holds 2 instances of RATING (1 UP)``, whatever applications they are of."""
    by_application: dict[str, list[Instance]] = {}
    for one in there:
        by_application.setdefault(one.application, []).append(one)
    parts = [
        f"{counted(len(ones))} of {name} ({sum(one.status is Status.UP for one in ones)} UP)"
        for name, ones in sorted(by_application.items())
    ]
    return f"Eureka holds {' and '.join(parts) or 'none of its instances'}"
