"""What one look at a syncer found, as its conditions and Events say it: pure.

*Synced* says whether Eureka holds what the syncer wants. *Ready* says whether callers find something that is
meant to be found: an instance is UP or, scaled to zero, nothing is meant to be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from eurekube_provider.core.syncer import Syncer

REFUSALS = frozenset({"NotAllowed", "UnknownEureka", "Conflict"})
"""Reasons for which nothing is done for a syncer but to let leave what said goodbye."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the status shall say.

    :param is_ready: None where that is not known.
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
    is_synced: bool = True
    sync_reason: str = "Synced"
    sync_message: str = ""
    unknown: frozenset[str] = frozenset()
    names: frozenset[str] | None = None


def report(
    wanted: Syncer,
    desired: Desired,
    steps: Plan,
    outcome: Outcome,
    there: Collection[Instance],
    *,
    waiting: int = 0,
    braked: str = "",
    trouble: RegistryError | None = None,
    drain: str | None = "",
    claimed: frozenset[str] = frozenset(),
) -> Report:
    """What a look that went to its end found.

    :param there: what the owner has in Eureka afterwards.
    :param waiting: how many changes a paused syncer has not made.
    :param braked: why removals are held back, empty where none are.
    :param trouble: why Eureka cannot be read at the moment.
    :param drain: why callers lose calls when pods end; empty where they do not, None while that is not known.
    :param claimed: the names that the syncer has been called by before.
    """
    application = wanted.application.upper()
    conflicts = [one.describe() for one in steps.refusals if one.reason is RefusalReason.CONFLICT] + [
        str(failure.error) for failure in outcome.failures if isinstance(failure.error, OwnershipConflict)
    ]
    refused = [one for one in steps.refusals if one.reason is RefusalReason.SELF_REGISTERED]
    twins = [one.describe() for one in (*refused, *steps.doubled)]
    errors = [failure.error for failure in outcome.failures if isinstance(failure.error, RegistryError)]
    problems: dict[str, str] = {}
    for error in (*errors[:1], *([trouble] if trouble else [])):
        problems.setdefault(reason_of(error), str(error))
    if braked:
        problems["Braked"] = braked
    for problem in desired.problems:
        problems.setdefault(problem.reason, problem.message)
    if conflicts:
        problems["Conflict"] = joined(conflicts)
    if twins:
        problems["SelfRegistered"] = joined(twins)
    notes: dict[str, str] = {}
    if wanted.is_paused:
        waits = f"; {waiting} changes wait" if waiting else ""
        notes["Paused"] = f"spec.paused is true: nothing is changed, what is registered is renewed{waits}"
    if wanted.lease_problem is not None:
        notes["LeaseTooShort"] = wanted.lease_problem.message
    up = {instance.key for instance in there if instance.status is Status.UP}
    return _concluded(
        application,
        problems or ({"Paused": notes["Paused"]} if waiting else {}),
        problems | notes,
        there,
        drain,
        desired=len(desired.instances),
        refused=len(conflicts) + len(twins),
        is_wanted=any(one.status is Status.UP and one.key in up for one in desired.instances),
        names=wanted.names if there else wanted.names & claimed,
    )


def failure_report(
    application: str,
    reason: str,
    message: str,
    there: Collection[Instance],
    desired: int,
    drain: str | None = None,
) -> Report:
    """What a look that ended early found: nothing was changed, but for what said goodbye.

    :param desired: how many instances were desired when that was last known.
    :param drain: as for :func:`report`.
    """
    problems = {reason: message}
    is_refused = reason in REFUSALS
    return _concluded(
        application, problems, problems, there, drain, desired=desired, refused=0, is_refused=is_refused
    )


def unread_report(
    application: str, error: RegistryError, desired: int, registered: int, drain: str | None = None
) -> Report:
    """What is said of a syncer whose Eureka was never read.

    :param registered: how many instances Eureka held when that was last known.
    """
    found = failure_report(application, reason_of(error), str(error), (), desired, drain)
    message = (
        f"{error}; what Eureka holds is not known before it was read, and nothing is changed until then;"
        f" wanted there: {counted(desired)} of {application}"
    )
    return replace(found, message=message, registered=registered)


def _concluded(
    application: str,
    problems: Mapping[str, str],
    shown: Mapping[str, str],
    there: Collection[Instance],
    drain: str | None,
    *,
    desired: int,
    refused: int,
    is_wanted: bool = True,
    is_refused: bool = False,
    names: frozenset[str] | None = None,
) -> Report:
    """Both conditions.

    :param is_wanted: whether something that is UP is known to be meant to be.
    :param is_refused: whether nothing is done for it but to let leave what said goodbye.
    """
    up = sum(one.status is Status.UP and application in ("", one.application) for one in there)
    is_synced = not problems
    summary = f"{counted(desired)} of {application} in Eureka" + (
        f", {desired - up} not ready" if up < desired else ""
    )
    is_ready: bool | None
    sync_reason, sync_message = next(iter(problems.items()), ("Synced", summary))
    if any(reason in problems for reason in ("EurekaUnreachable", "EurekaDenied")):
        is_ready, reason = False, sync_reason  # nobody knows what callers find
        message = f"{sync_message}; by what is known, {held(there)}"
    elif is_refused:
        is_ready, reason = False, sync_reason
        message = f"{sync_message}; {held(there)}"
        if there:
            message += ": renewed until its endpoint is seen terminating, and nothing new is registered"
    elif "NoMatchingService" in problems:
        is_ready, reason = False, "NoMatchingService"
        waits = f", {problems['Braked']}" if "Braked" in problems else ""
        message = f"{problems[reason]}; {held(there)}{waits}"
    elif "Braked" in problems and not is_wanted:
        is_ready, reason = None, "Braked"  # the source is broken, or nothing is there
        message = f"no endpoint is ready; {held(there)}, {problems[reason]}"
    elif up:
        is_ready = True
        reason = "Synced" if is_synced else "InstancesUp"
        message = summary if is_synced else f"{counted(up)} of {application} UP; {sync_message}"
    elif is_synced and desired:
        is_ready, reason, message = False, "NoneUp", f"{summary}: none is UP"
    else:
        is_ready, reason, message = is_synced, sync_reason, sync_message
    return Report(
        is_ready=is_ready,
        reason=reason,
        message=message,
        is_synced=is_synced,
        sync_reason=sync_reason,
        sync_message=sync_message,
        application=application,
        desired=desired,
        registered=sum(not one.is_leaving for one in there),
        refused=refused,
        problems={**shown, "DrainTooShort": drain} if drain else shown,
        unknown=frozenset(["DrainTooShort"] if drain is None else ()),
        names=names,
    )


def reason_of(error: EurekubeError) -> str:
    """A condition's reason for an error."""
    if isinstance(error, RegistryUnreachable):
        return "EurekaUnreachable"
    if isinstance(error, RegistryDenied):
        return "EurekaDenied"
    if isinstance(error, RegistryError):
        return "EurekaRejected"
    return "KubernetesError" if isinstance(error, KubernetesError) else "Failed"


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


def counted(number: int) -> str:
    """``1 instance``, ``2 instances``."""
    return "1 instance" if number == 1 else f"{number} instances"


def joined(messages: Sequence[str], limit: int = 3) -> str:
    """The first few sentences, and how many more there are."""
    rest = len(messages) - limit
    return "; ".join(messages[:limit]) + (f"; and {rest} more" if rest > 0 else "")
