"""Creation, update, preview, read and removal of a resource's registrations in Eureka.

:func:`~eurekube_provider.core.plan.plan` decides the changes against the contents of Eureka at this moment,
never against the state: a call that failed half-way is finished by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from eurekube_provider.core.enforcement import status_to_reach, with_marks_at_absent_servers
from eurekube_provider.core.errors import (
    EurekubeError,
    OwnershipConflict,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
    SomeRegistrationsFailed,
)
from eurekube_provider.core.identity import SELF_RENEWER_VALUE
from eurekube_provider.core.model import (
    EMPTY_MAPPING,
    Instance,
    InstanceKey,
    Status,
    same_contents_but_status,
)
from eurekube_provider.core.plan import Action, Change, Plan, Policy, Refusal, RefusalReason, plan
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import format_list
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.eureka.uncached_reads import require_one_eureka_and_return_errors
from eurekube_provider.registrations.actual import ActualState, read_actual
from eurekube_provider.registrations.desired import DesiredState, Registration
from eurekube_provider.registrations.draining import drain_and_find_registered_again, undo_drains
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE
from eurekube_provider.registrations.rollback import (
    apply_plan,
    errors_by_key,
    format_errors_by_reason,
    restore_failed_updates,
    roll_back_creation,
    with_message,
)
from eurekube_provider.registrations.values import OnConflict

REPLICATION_WAIT_SECONDS = 1.0
"""Seconds until a server has replicated a write to its peers; servers do so within half a second."""

_VERIFY_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """The result of a removal.

    :ivar not_removed: instances that were not removed: they have another owner by now, were registered again,
        or must stay.
    :ivar unaddressable: instances that are listed as ours and that no request can remove, each with the
        error.
    """

    removed: tuple[Instance, ...] = ()
    not_removed: tuple[Instance, ...] = ()
    unaddressable: Mapping[InstanceKey, RegistryRejected] = field(default_factory=dict)


def create(
    wanted: DesiredState,
    peers: Peers,
    checks: RemovalChecks | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> ActualState:
    """Register all instances or none: after a failure, sent registrations are taken back, or the error names
    those that may be left.

    An instance of another incarnation of the same owner is taken over where we want its place. Its instances
    elsewhere are left to the removal of the resource that they belong to, or to the next update.

    :returns: the instances of this incarnation in Eureka.
    :raises OwnershipConflict: somebody else's instance stands in the place, and the program does not adopt.
    :raises SomeRegistrationsFailed: several instances failed; names each.
    :raises RegistryError: Eureka did not register an instance, or could not be asked.
    """
    before = _undo_drains_and_read(wanted, [wanted.owner], peers)
    planned = _plan_registrations(wanted, before, peers)
    failed = _conflict_errors(planned, wanted)
    if failed:
        _raise_failures(wanted, "register", failed, "nothing was registered")
    failed, after = _apply_and_read(planned, wanted, before, peers)
    if failed:
        outcome, is_complete = roll_back_creation(wanted, before, peers)
        _raise_failures(wanted, "register", failed, outcome, may_leave_resource=not is_complete)
    ours = {place: each for place, each in after.owned.items() if wanted.has_registered(each)}
    return _remove_surplus(wanted, replace(after, owned=ours), peers, checks, wait)


def update(
    previous: DesiredState,
    wanted: DesiredState,
    peers: Peers,
    checks: RemovalChecks | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> ActualState:
    """Bring Eureka to ``wanted``.

    After a failure the finished changes stay, and nothing was removed. Instances of the previous owner count
    as ours: a renamed stack updates in place. An application that renews itself and registered itself again
    counts as ours, too. An instance whose change failed is restored.

    :raises OwnershipConflict: as for :func:`create`, which also names the other errors.
    """
    before = _undo_drains_and_read(wanted, [wanted.owner, previous.owner], peers, previous.program_keys)
    if wanted.incarnation is None:
        wanted = wanted.for_any_incarnation(before.owned)
    now = wanted.enforce_up_once_where_status_lifted(previous, before.owned)
    is_back = now.make_registered_again_check(previous)
    returned = frozenset(place for place, have in before.owned_by_others.items() if is_back(have))
    planned = _plan_registrations(now, before, peers, returned)
    refused = _conflict_errors(planned, wanted)
    failed, after = _apply_and_read(planned, now, before, peers, refused)
    if failed:
        if previous.incarnation is not None:
            failed |= restore_failed_updates(
                previous, wanted, before, {k: e for k, e in failed.items() if k not in refused}, peers
            )
        note = "what was done stays, and the next update goes on from there"
        _raise_failures(wanted, "update", failed, note, may_leave_resource=bool(planned.changes))
    return _remove_surplus(wanted, after, peers, checks, wait)


def preview_lines(wanted: DesiredState, peers: Peers) -> list[str]:
    """Return a line for each step that :func:`update` would take; read Eureka, and change nothing.

    Each begins with ``+``, ``~``, ``-``, ``!`` or, where nothing is to be done, a space.

    :raises RegistryError: no server answered.
    """
    before = read_actual(wanted, [wanted.owner], peers, from_all_servers=False)
    wanted = wanted.for_any_incarnation(before.owned)
    planned = _plan_registrations(wanted, before, peers)
    refused = _conflict_errors(planned, wanted)
    changed = {change.instance.key for change in planned.changes}
    lines = []
    for key, each in sorted(wanted.registrations.items()):
        if key in refused:
            lines.append(f"! {refused[key]}")
        elif each.instance.key in changed:
            lines.append(_preview_line(each, before.all_instances.get(each.instance.key)))
        else:
            lines.append(f"  {each}")
    removals = plan([], before.surplus_instances(wanted), wanted.owner).changes
    return [*lines, *sorted(removal.describe() for removal in removals)]


def read(previous: DesiredState, peers: Peers) -> ActualState | None:
    """Look for all registrations of a resource on every server.

    :returns: None only where the resource has registrations and every server says that it holds none.
    :raises RegistryError: a registration is missing at the servers that answered, and not all of them
        answered as a Eureka does.
    """
    held = _count_unverified_servers_as_failed(
        "read", previous, read_actual(previous, [previous.owner], peers), peers
    )
    lost = [each for each in previous.registrations.values() if each.instance.key not in held.all_instances]
    if lost and held.error_by_failed_server:
        failure = next(iter(held.error_by_failed_server.values()))
        names = format_list([str(each) for each in lost], 1)
        raise RegistryUnreachable(
            f"read {names}: the servers that answered do not hold it, but whether"
            f" {', '.join(held.error_by_failed_server)} does is not known ({failure})",
            url=failure.url,
        )
    return held if held.all_instances or not previous.registrations else None


def delete(
    previous: DesiredState,
    peers: Peers,
    must_stay: Callable[[InstanceKey], bool] = lambda _: False,
    checks: RemovalChecks | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> RemovalResult:
    """Drain and remove all registrations of a resource.

    Instances that belong to somebody else by now, or that another incarnation of the same owner has
    registered since, are left alone. A server that is away does not keep a stack from being removed. It may
    have taken another registration of the same id a moment ago, and not have replicated it yet.

    :param must_stay: returns True for an application and id whose registration must stay.
    :param wait: sleeps the given seconds; an exception from it ends the drain, and puts all instances back
        into service.
    :raises DrainInterrupted: ``wait`` was ended; nothing was removed.
    :raises RegistryError: no server answered as a Eureka does, or one still holds a removed instance.
    :raises SomeRegistrationsFailed: servers still hold several removed instances; names each.
    """
    held = read_actual(previous, [previous.owner], peers, for_writing=True)
    if held.error_by_failed_server and any(previous.has_registered(each) for each in held.owned.values()):
        wait(REPLICATION_WAIT_SECONDS)
        held = read_actual(previous, [previous.owner], peers, for_writing=True)
    held = _count_unverified_servers_as_failed("deregister", previous, held, peers)
    keys = previous.program_keys
    spared = {place for place in held.all_instances if must_stay(place)}
    leaving = [
        each for place, each in held.owned.items() if previous.has_registered(each) and place not in spared
    ]
    registered_again = _drain_and_remove(previous, leaving, peers, checks, wait)
    removed = {each.key: each for each in leaving if each.key not in registered_again}
    left = (
        each
        for place, each in held.all_instances.items()
        if place not in removed
        and (place in keys or place in held.owned_by_others or place in registered_again)
    )
    return RemovalResult(tuple(removed.values()), tuple(left), held.unaddressable)


def _count_unverified_servers_as_failed(
    verb: str, previous: DesiredState, held: ActualState, peers: Peers
) -> ActualState:
    """Return ``held``; where an instance is missing, add servers that are no Eureka to its failed servers."""
    if previous.program_keys.keys() <= held.all_instances.keys():
        return held
    return replace(
        held,
        error_by_failed_server={
            **require_one_eureka_and_return_errors(f"{verb} {previous}", peers),
            **held.error_by_failed_server,
        },
    )


def not_removed_message(instance: Instance) -> str:
    """Return a sentence for a person about an instance that was not removed."""
    return (
        f"{instance.application} {instance.instance_id} was registered again, is asked for by the program"
        " or belongs to somebody else by now, and was left as it is"
    )


def not_registered_message(previous: DesiredState) -> str:
    """Return a sentence for a person about registrations that were to be removed and did not exist."""
    return (
        f"{previous} is not registered at {', '.join(previous.service_urls)}: nothing was removed. If "
        "another Eureka answers there than the one that it was registered at, it stays at that one until "
        "its lease ends"
    )


def _plan_registrations(
    wanted: DesiredState,
    before: ActualState,
    peers: Peers,
    registered_again: frozenset[InstanceKey] = frozenset(),
) -> Plan:
    """Return the plan for ``wanted``, which refuses an address where another owner's instance is, but takes
    the places in ``registered_again``, where our own application registered itself.
    """
    desired = list(wanted.instances.values())
    missing = [each for each in desired if each.key not in before.all_instances]
    there = (
        *before.all_instances.values(),
        *SHARED_REGISTRY_LIST_CACHE.foreign_instances_at_addresses(missing, wanted.owner, peers),
    )
    policies = wanted.policies({*before.owned, *registered_again})
    return plan(desired, there, wanted.owner, Policy.UPSERT_ONLY, policies)


def _conflict_errors(planned: Plan, wanted: DesiredState) -> dict[str, EurekubeError]:
    """Return an error for each wanted instance whose place or address another owner's instance has."""
    keys = wanted.program_keys
    return {
        keys[refusal.instance.key]: OwnershipConflict(f"{refusal.describe()}; {_suggest_remedy(refusal)}")
        for refusal in planned.refusals
    }


def _suggest_remedy(refusal: Refusal) -> str:
    adopt = f'on_conflict="{OnConflict.ADOPT}"'
    if refusal.actual.key == refusal.instance.key:
        return f"give this one another instance_id, or take it over with {adopt}"
    other = f'instance_id="{refusal.actual.instance_id}" and {adopt}'
    if refusal.reason is RefusalReason.SELF_REGISTERED:
        return printable(f'or take it over with {other} and renewer="{SELF_RENEWER_VALUE}"')
    return printable(f"give this one another host_name or port, or take that one over with {other}")


def _apply_and_read(
    planned: Plan,
    wanted: DesiredState,
    before: ActualState,
    peers: Peers,
    refused: Mapping[str, EurekubeError] = EMPTY_MAPPING,
) -> tuple[dict[str, EurekubeError], ActualState]:
    """Carry out a plan; return an error by key for each failure, and what Eureka holds a moment later."""
    failed = {**refused, **errors_by_key(apply_plan(planned, wanted, peers), wanted)}
    listed = tuple(before.all_instances.values())
    try:
        for attempt in range(_VERIFY_ATTEMPTS):
            after = read_actual(
                wanted, [wanted.owner], peers, listed, for_writing=True, from_all_servers=False
            )
            missed = {
                key: error for key, error in _verification_errors(wanted, after).items() if key not in failed
            }
            if not missed:
                break
            time.sleep(0.2 * (attempt + 1))
    except RegistryError as error:
        return failed or dict.fromkeys(wanted.registrations, error), before
    return {**failed, **missed}, replace(after, unaddressable=before.unaddressable)


def _verification_errors(wanted: DesiredState, after: ActualState) -> dict[str, EurekubeError]:
    """Return an error by key for each wanted instance that Eureka accepted and does not hold as wanted."""
    result: dict[str, EurekubeError] = {}
    for key, each in wanted.registrations.items():
        held = after.owned.get(each.instance.key)
        is_there = held is not None and same_contents_but_status(
            with_marks_at_absent_servers(each.instance, each.enforced_status, held), held
        )
        if is_there and held is not None and each.enforced_status in (None, held.status):
            continue
        holds = "does not hold it" if held is None else "holds something else"
        name = "" if wanted.has_members else f"register {each}: "
        result[key] = RegistryRejected(
            f"{name}{', '.join(wanted.service_urls)} accepted it and {holds}; somebody else may be writing or"
            " removing it at the same time, or it is no Eureka"
        )
    return result


def _preview_line(wanted: Registration, have: Instance | None) -> str:
    """Return the preview's line for a registration, or for an update together with its change of status."""
    if have is None:
        return Change(Action.REGISTER, wanted.instance).describe()
    status = status_to_reach(wanted.enforced_status, have) or (Status.UP if have.is_leaving else None)
    want = replace(wanted.instance, status=have.status if status is None else status)
    if status is not None:
        have = replace(have, overridden_status=Status.UNKNOWN)  # enforced, also over a person's
    return Change(Action.UPDATE, want, have).describe()


def _remove_surplus(
    wanted: DesiredState,
    held: ActualState,
    peers: Peers,
    checks: RemovalChecks | None,
    wait: Callable[[float], None],
) -> ActualState:
    """Remove instances that the program does not ask for any more, once all wanted ones are registered."""
    surplus = held.surplus_instances(wanted)
    _drain_and_remove(wanted, surplus, peers, checks, wait)
    gone = {each.key for each in surplus}
    return replace(held, owned={key: each for key, each in held.owned.items() if key not in gone})


def _undo_drains_and_read(
    wanted: DesiredState, owners: Sequence[str], peers: Peers, extra_keys: Iterable[InstanceKey] = ()
) -> ActualState:
    """Undo interrupted drains of instances that are wanted in service, and return the instances in Eureka."""
    before = read_actual(
        wanted, owners, peers, extra_keys=extra_keys, for_writing=True, from_all_servers=False
    )
    is_adopting = wanted.on_conflict is OnConflict.ADOPT
    there = before.all_instances if is_adopting else before.owned
    in_service = (
        each.instance.key
        for each in wanted.registrations.values()
        if each.enforced_status is not Status.OUT_OF_SERVICE
    )
    leaving = [there[key] for key in in_service if key in there and there[key].is_leaving]
    if not leaving:
        return before
    undo_drains(peers, leaving)
    return read_actual(wanted, owners, peers, extra_keys=extra_keys, for_writing=True, from_all_servers=False)


def _drain_and_remove(
    wanted: DesiredState,
    leaving: Sequence[Instance],
    peers: Peers,
    checks: RemovalChecks | None,
    wait: Callable[[float], None],
) -> frozenset[InstanceKey]:
    """Drain and remove instances; return the keys of those that were registered again meanwhile, and stay."""
    if not leaving:
        return frozenset()
    registered_again = drain_and_find_registered_again(
        [(peers, each) for each in leaving], wanted.drain_seconds, wait
    )
    leaving = [each for each in leaving if each.key not in registered_again]
    later = checks or RemovalChecks(wait)
    failed: dict[str, EurekubeError] = {}
    others_outcome = "none was removed"
    for owner in {each.owner for each in leaving if each.owner}:
        theirs = replace(wanted, owner=owner, registrations={})
        removals = plan([], (each for each in leaving if each.owner == owner), owner)
        outcome = apply_plan(removals, theirs, peers, is_from_uncached_reads=not wanted.drain_seconds)
        failed |= errors_by_key(outcome, theirs)
        for change in outcome.done:
            others_outcome = "the others were removed"
            if change.instance.renewer != SELF_RENEWER_VALUE:
                later.add_removal(peers, change.instance)
    if checks is None:
        later.check_and_remove_again()
    if failed:
        _raise_failures(wanted, "deregister", failed, others_outcome)
    return registered_again


def _raise_failures(
    wanted: DesiredState,
    verb: str,
    failed: Mapping[str, EurekubeError],
    others_outcome: str,
    *,
    may_leave_resource: bool = False,
) -> NoReturn:
    """Raise one error that names each failed instance and the outcome of the others."""
    raised: EurekubeError
    cause: EurekubeError | None = None
    if wanted.has_members:
        total = max(len(wanted.registrations), len(failed))
        raised = SomeRegistrationsFailed(
            f"{verb} {wanted}: {len(failed)} of {total} instances failed ({others_outcome}): "
            f"{format_errors_by_reason(failed)}"
        )
    else:
        (cause,) = failed.values()
        if not isinstance(cause, RegistryError):
            message = f"{verb} {wanted}: {cause}"
        else:
            message = f"{cause}; {others_outcome}" if verb == "register" else str(cause)
        raised = with_message(cause, message)
    raised.may_leave_resource = may_leave_resource
    raise raised from cause
