"""Execution of a plan, and removal of its registrations where it fails.

The engine drops a resource whose creation failed, and the next program may ask for another id. No state would
then remove the sent registrations, which would be renewed for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import EurekubeError, RegistryError, RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Outcome, Plan, Policy, plan
from eurekube_provider.core.wording import listed
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.registrations.actual import ActualState, read_actual
from eurekube_provider.registrations.desired import DesiredState, name_of
from eurekube_provider.registrations.draining import THREADS, unmarked
from eurekube_provider.registrations.progress import SentChanges

_MOST_NAMED = 20
"""The number of instances that failed for one reason that are named."""

_REPORTED_OF_MANY = 3
"""The number of named requests that remove registrations that may be left."""


def carry_out(planned: Plan, wanted: DesiredState, peers: Peers, *, is_fresh: bool = True) -> Outcome:
    """Carry out a plan for a resource.

    :param is_fresh: True if the plan was made from a reading of a moment ago.
    """
    with ThreadPoolExecutor(THREADS) as executor:
        return Writer(peers, sent=SentChanges(len(planned.changes)).count).apply(
            planned,
            wanted.owner,
            executor,
            leases=len(wanted.registrations),
            is_fresh=is_fresh and len(planned.changes) <= THREADS,
        )


def errors_of(outcome: Outcome, wanted: DesiredState) -> dict[str, EurekubeError]:
    """Return the error of each failed instance, by the key that the program gave it."""
    keys = wanted.keys
    return {name_of(failure.change.instance, keys): failure.error for failure in outcome.failures}


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The result of taking back the registrations that were sent.

    :ivar message: the end of a sentence that gives the result, and what is left to do.
    :ivar is_certain: True if none of them can be left.
    """

    message: str
    is_certain: bool = True


def take_back(wanted: DesiredState, before: ActualState, peers: Peers) -> TakenBack:
    """Remove instances that a failed creation added, and restore those that it took over, with a person's
    status.

    Instances that this creation did not write are left alone.
    """
    places = [each.instance for each in wanted.registrations.values()]
    failed: dict[str, EurekubeError] = {}
    try:
        now = read_actual(wanted, [wanted.owner], peers, writes=True)
    except RegistryError as error:
        return TakenBack(
            f"{left_over(peers, places)} (it could not be taken back: {error})", is_certain=False
        )
    if now.unsure and not now.everything:
        return TakenBack(left_over(peers, places), is_certain=False)
    written = {place: each for place, each in now.ours.items() if wanted.is_its(each)}
    overwritten = {
        place: there
        for place, there in before.everything.items()
        if place in written and not wanted.is_its(there)
    }
    taken_over: list[Instance] = []
    for place, there in overwritten.items():
        is_contents_only = there.overridden_status is written[place].overridden_status
        if wanted.has_members and place in before.ours and is_contents_only:
            taken_over.append(there)
            continue
        try:
            restore(there, written[place], peers)
        except RegistryError as error:
            failed[wanted.keys[place]] = error
    added = [each for place, each in written.items() if place not in before.everything]
    to_give_back = plan(taken_over, written.values(), wanted.owner, Policy.UPSERT_ONLY)
    done = carry_out(to_give_back, wanted, peers) + carry_out(plan([], added, wanted.owner), wanted, peers)
    failed |= errors_of(done, wanted)
    if failed:
        left = [each.instance for key, each in wanted.registrations.items() if key in failed]
        message = f"{left_over(peers, left)} (it could not be taken back: {grouped(failed)})"
        return TakenBack(message, is_certain=False)
    if wanted.has_members:
        return TakenBack("the others were taken back")
    if not written:
        return TakenBack("nothing of it is left")
    return TakenBack(
        "what was registered was taken back" if added else "what stood there before was given back"
    )


def undo_failed(
    previous: DesiredState,
    wanted: DesiredState,
    before: ActualState,
    failed: Mapping[str, EurekubeError],
    peers: Peers,
) -> dict[str, EurekubeError]:
    """Restore instances that an update failed to change, so that they match the state.

    An enforced status that the next program does not ask for would otherwise stay. Instances that were to be
    adopted are given back. Instances that are new are left to the next update.

    :returns: the errors, each with the outcome of the restoring.
    """
    reworded: dict[str, EurekubeError] = {}
    is_away = ""
    for key, error in failed.items():
        sent = wanted.registrations[key].instance if key in wanted.registrations else None
        there = before.everything.get(sent.key) if sent is not None else None
        if sent is None or there is None or (sent.key in before.ours and not previous.is_its(there)):
            continue
        try:
            how = is_away or _undo(sent, there, peers, is_ours=sent.key in before.ours)
        except RegistryError as failure:
            how = f"what stands there now is not known, and the next refresh shows it ({failure})"
            is_away = how if isinstance(failure, RegistryUnreachable) else ""
        reworded[key] = _reworded(error, f"{error}; {how}")
    return reworded


def _undo(sent: Instance, before: Instance, peers: Peers, *, is_ours: bool) -> str:
    held = peers.read(*before.key)
    written = {(one.owner, one.incarnation) for one in ((sent, before) if is_ours else (sent,))}
    if held is not None and (held.owner, held.incarnation) in written:
        restore(before, held, peers)
    return "what stood there before stands there again"


def restore(before: Instance, held: Instance, peers: Peers) -> None:
    """Write ``before`` again in place of ``held``; an instance that a drain of ours left out of service
    becomes UP.
    """
    writer = Writer(peers)
    if before.is_leaving:
        before = replace(unmarked(before), status=Status.UP, overridden_status=Status.UNKNOWN)
    if held.is_overridden and not before.is_overridden:
        writer.clear_status(held, before.status)
        held = replace(held, status=before.status, overridden_status=Status.UNKNOWN)
    if before.overridden_status is not held.overridden_status:
        if held.status is before.overridden_status:
            # Setting the status that stands does nothing. Nobody calls what is STARTING.
            held = writer.write(replace(held, status=Status.STARTING), held)
        writer.set_status(held, before.overridden_status)
        held = replace(held, status=before.status, overridden_status=before.overridden_status)
    if before.is_overridden:
        before = replace(before, status=Status.UP)  # a server believes DOWN over an override
    writer.write(before, held)


def left_over(peers: Peers, sent: Iterable[Instance]) -> str:
    """Return a sentence that names registrations that may stand although the creation failed, and their
    removal.
    """
    url = peers.connection.service_urls[0]
    paths = [f"{url}/apps/{each.application}/{each.instance_id}" for each in sent]
    more = f" and {len(paths) - _REPORTED_OF_MANY} more" if len(paths) > _REPORTED_OF_MANY else ""
    return (
        "it may be registered all the same: the next update takes it over if it asks for the same name and"
        f" id, otherwise remove it with an HTTP DELETE of {', '.join(paths[:_REPORTED_OF_MANY])}{more}"
    )


def grouped(failed: Mapping[str, EurekubeError]) -> str:
    """Return a text of the first failed keys, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for key, error in sorted(failed.items()):
        reasons.setdefault(str(error), []).append(key)
    return "; ".join(f"{listed(keys, _MOST_NAMED)} ({reason})" for reason, keys in reasons.items())


def _reworded(error: EurekubeError, message: str) -> EurekubeError:
    """Return a copy of ``error`` with another message."""
    if isinstance(error, RegistryError):
        return type(error)(message, url=error.url, status_code=error.status_code)
    return type(error)(message)
