"""Execution of a plan, and its rollback where it fails: the engine drops a resource whose creation failed,
and no state would then remove what was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from eurekube_provider.core.errors import EurekubeError, RegistryError, RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Plan, PlanOutcome, Policy, plan
from eurekube_provider.core.wording import format_list
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.registrations.actual import ActualState, read_actual
from eurekube_provider.registrations.desired import DesiredState, program_key
from eurekube_provider.registrations.draining import MOST_CONCURRENT_REQUESTS, without_drain_mark
from eurekube_provider.registrations.progress import SentChangesCounter

_MAX_NAMED_KEYS = 20
"""The largest number of failed instances that are named for one reason."""

_MAX_NAMED_REQUESTS = 3
"""The largest number of DELETE requests that a message names for registrations that may be left."""


def apply_plan(
    planned: Plan, wanted: DesiredState, peers: Peers, *, is_from_uncached_reads: bool = True
) -> PlanOutcome:
    """Carry out a plan for a resource, by default one that was made from uncached reads of a moment ago."""
    with ThreadPoolExecutor(MOST_CONCURRENT_REQUESTS) as executor:
        return Writer(peers, sent=SentChangesCounter(len(planned.changes)).count).apply(
            planned,
            wanted.owner,
            executor,
            lease_count=len(wanted.registrations),
            is_from_uncached_reads=is_from_uncached_reads
            and len(planned.changes) <= MOST_CONCURRENT_REQUESTS,
        )


def errors_by_key(outcome: PlanOutcome, wanted: DesiredState) -> dict[str, EurekubeError]:
    """Return the error of each failed instance, by the key that the program gave it."""
    keys = wanted.program_keys
    return {program_key(failure.change.instance, keys): failure.error for failure in outcome.failures}


def roll_back_creation(wanted: DesiredState, before: ActualState, peers: Peers) -> tuple[str, bool]:
    """Remove what a failed creation added, and restore what it took over, with a person's status.

    :returns: the end of an error's sentence, with the steps that are left to a person; True if no sent
        registration can be left.
    """
    places = [each.instance for each in wanted.registrations.values()]
    failed: dict[str, EurekubeError] = {}
    try:
        now = read_actual(wanted, [wanted.owner], peers, for_writing=True)
    except RegistryError as error:
        return f"{left_over_message(peers, places)} (it could not be taken back: {error})", False
    if now.error_by_failed_server and not now.all_instances:
        return left_over_message(peers, places), False
    written = {place: each for place, each in now.owned.items() if wanted.has_registered(each)}
    overwritten = {
        place: there
        for place, there in before.all_instances.items()
        if place in written and not wanted.has_registered(there)
    }
    taken_over: list[Instance] = []
    for place, there in overwritten.items():
        is_contents_only = there.overridden_status is written[place].overridden_status
        if wanted.has_members and place in before.owned and is_contents_only:
            taken_over.append(there)
            continue
        try:
            restore_instance(there, written[place], peers)
        except RegistryError as error:
            failed[wanted.program_keys[place]] = error
    added = [each for place, each in written.items() if place not in before.all_instances]
    to_give_back = plan(taken_over, written.values(), wanted.owner, Policy.UPSERT_ONLY)
    done = apply_plan(to_give_back, wanted, peers) + apply_plan(plan([], added, wanted.owner), wanted, peers)
    failed |= errors_by_key(done, wanted)
    if failed:
        left = [each.instance for key, each in wanted.registrations.items() if key in failed]
        why = format_errors_by_reason(failed)
        return f"{left_over_message(peers, left)} (it could not be taken back: {why})", False
    if not written:
        return "nothing of it is left", True
    if wanted.has_members:
        return "the others were taken back", True
    return "what was registered was taken back" if added else "what stood there before was given back", True


def restore_failed_updates(
    previous: DesiredState,
    wanted: DesiredState,
    before: ActualState,
    failed: Mapping[str, EurekubeError],
    peers: Peers,
) -> dict[str, EurekubeError]:
    """Restore what an update failed to change, so that it matches the state; return the errors with the
    outcome.

    An enforced status that the next program does not ask for would otherwise stay. Instances that were to be
    adopted are given back; new ones are left to the next update.
    """
    reworded: dict[str, EurekubeError] = {}
    is_away = ""
    for key, error in failed.items():
        sent = wanted.registrations[key].instance if key in wanted.registrations else None
        there = before.all_instances.get(sent.key) if sent is not None else None
        if sent is None or there is None or (sent.key in before.owned and not previous.has_registered(there)):
            continue
        try:
            how = is_away or _restore_if_written_and_describe(
                sent, there, peers, is_ours=sent.key in before.owned
            )
        except RegistryError as failure:
            how = f"what stands there now is not known, and the next refresh shows it ({failure})"
            is_away = how if isinstance(failure, RegistryUnreachable) else ""
        reworded[key] = with_message(error, f"{error}; {how}")
    return reworded


def _restore_if_written_and_describe(sent: Instance, before: Instance, peers: Peers, *, is_ours: bool) -> str:
    held = peers.read(*before.key)
    written = {(one.owner, one.incarnation) for one in ((sent, before) if is_ours else (sent,))}
    if held is not None and (held.owner, held.incarnation) in written:
        restore_instance(before, held, peers)
    return "what stood there before stands there again"


def restore_instance(before: Instance, held: Instance, peers: Peers) -> None:
    """Write ``before`` again in place of ``held``, UP where a drain of ours left it out of service."""
    writer = Writer(peers)
    if before.is_leaving:
        before = replace(without_drain_mark(before), status=Status.UP, overridden_status=Status.UNKNOWN)
    if held.is_overridden and not before.is_overridden:
        writer.clear_status(held, before.status)
        held = replace(held, status=before.status, overridden_status=Status.UNKNOWN)
    if before.overridden_status is not held.overridden_status:
        if held.status is before.overridden_status:
            # Setting the status that stands does nothing. Nobody calls what is STARTING.
            held = writer.register_over(replace(held, status=Status.STARTING), held)
        writer.set_status(held, before.overridden_status)
        held = replace(held, status=before.status, overridden_status=before.overridden_status)
    if before.is_overridden:
        before = replace(before, status=Status.UP)  # a server believes DOWN over an override
    writer.register_over(before, held)


def left_over_message(peers: Peers, sent: Iterable[Instance]) -> str:
    """Return a sentence that names what a failed creation may leave, and the requests that remove it."""
    url = peers.connection.service_urls[0]
    paths = [f"{url}/apps/{each.application}/{each.instance_id}" for each in sent]
    return (
        "it may be registered all the same: the next update takes it over if it asks for the same name and"
        f" id, otherwise remove it with an HTTP DELETE of {format_list(paths, _MAX_NAMED_REQUESTS)}"
    )


def format_errors_by_reason(failed: Mapping[str, EurekubeError]) -> str:
    """Return a text of the first failed keys, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for key, error in sorted(failed.items()):
        reasons.setdefault(str(error), []).append(key)
    return "; ".join(f"{format_list(keys, _MAX_NAMED_KEYS)} ({reason})" for reason, keys in reasons.items())


def with_message(error: EurekubeError, message: str) -> EurekubeError:
    """Return an error of the same kind with another message."""
    if isinstance(error, RegistryError):
        return type(error)(message, url=error.url, status_code=error.status_code)
    return type(error)(message)
