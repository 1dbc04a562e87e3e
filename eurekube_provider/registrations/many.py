"""A roster registered, changed, read and removed: the twin of a single one's functions, for many.

What must change is decided by :func:`~eurekube_provider.core.plan.plan` against what Eureka holds at this
moment, never against the state: a call that failed half-way is finished by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn

from eurekube_provider.core.errors import (
    EurekubeError,
    OwnershipConflict,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
    SomeFailed,
)
from eurekube_provider.core.identity import (
    ENFORCED_KEY,
    LEAVING_KEY,
    OWNER_KEY,
    SELF_RENEWED,
    are_of_one_stack,
)
from eurekube_provider.core.model import EMPTY, Instance, Status
from eurekube_provider.core.plan import Outcome, Plan, Policy, plan, same_contents
from eurekube_provider.eureka.apply import apply, write
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations import registration
from eurekube_provider.registrations.draining import drain, put_all_back, unmarked
from eurekube_provider.registrations.properties import OnConflict
from eurekube_provider.registrations.registration import (
    TOLD_WITHIN_SECONDS,
    Registration,
    being_lifted,
    may_be_out_elsewhere,
    sent_first,
    status_to_reach,
)
from eurekube_provider.registrations.removal_checks import SecondLooks
from eurekube_provider.registrations.rollback import left_over, restore
from eurekube_provider.registrations.roster import Held, Key, Roster, look, name_of

VERIFY_ATTEMPTS = 5

THREADS = 8
"""Single requests under way at once."""


def create(
    wanted: Roster,
    peers: Peers,
    looks: SecondLooks | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Held:
    """Register all, or none: after a failure, what was not there before is taken back.

    What another incarnation of the same owner has in a place of ours is taken over. What it has elsewhere is
    the business of the resource that it belongs to, whose removal follows; or else of the next update.

    :returns: what Eureka holds now of this incarnation.
    :raises SomeFailed: names each that failed.
    :raises RegistryError: Eureka could not even be asked.
    """
    before = _in_service(wanted, [wanted.owner], peers)
    failed = _refusals(wanted, before)
    if failed:
        _raise(wanted, "register", failed, "nothing was registered")
    failed, after = _put(wanted, before, peers)
    if failed:
        _raise(wanted, "register", failed, _take_back(wanted, before, peers))
    ours = {place: each for place, each in after.ours.items() if wanted.is_its(each)}
    return _without_surplus(wanted, replace(after, ours=ours), peers, looks, wait)


def update(
    previous: Roster,
    wanted: Roster,
    peers: Peers,
    looks: SecondLooks | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Held:
    """Bring Eureka to ``wanted``. After a failure what was done stays, and nothing was removed.

    Instances of the previous owner are ours too: a renamed stack updates in place.

    :raises SomeFailed: names each that failed.
    :raises RegistryError: Eureka could not even be asked.
    """
    before = _in_service(wanted, [wanted.owner, previous.owner], peers, previous.keys)
    if wanted.incarnation is None:
        wanted = wanted.without_state(before)
    now = _released(previous, wanted, before)
    failed, after = _put(now, before, peers, _refusals(wanted, before))
    if failed:
        _raise(wanted, "update", failed, "what was done stays, and the next update goes on from there")
    return _without_surplus(wanted, after, peers, looks, wait)


def preview(wanted: Roster, peers: Peers) -> list[str]:
    """A line for each step of :func:`update`, asked of Eureka, which changes nothing.

    :raises RegistryError: no server answered.
    """
    before = look(wanted, [wanted.owner], peers)
    wanted = wanted.without_state(before)
    refused = _refusals(wanted, before)
    there = before.ours | before.others
    lines = [
        f"! {refused[key]}" if key in refused else registration.preview(each, there.get(each.instance.key))
        for key, each in sorted(wanted.registrations.items())
    ]
    removals = plan([], before.surplus(wanted), wanted.owner).changes
    return [*lines, *sorted(removal.describe() for removal in removals)]


def read(previous: Roster, peers: Peers) -> Held | None:
    """Look for all of them on every server.

    :returns: None only where it should hold some and every server says that it holds none.
    :raises RegistryError: one is not held by those that answered, and not all answered.
    """
    held = look(previous, [previous.owner], peers)
    lost = [
        each for each in previous.registrations.values() if each.instance.key not in held.ours | held.others
    ]
    if lost and held.unsure:
        failure = next(iter(held.unsure.values()))
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise RegistryUnreachable(
            f"read {lost[0]}{more}: the servers that answered do not hold it, but whether"
            f" {', '.join(held.unsure)} does is not known ({failure})",
            url=failure.url,
        )
    return held if held.ours or held.others or not previous.registrations else None


def delete(
    previous: Roster,
    peers: Peers,
    spare: Callable[[Key], bool] = lambda _: False,
    looks: SecondLooks | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[list[Instance], list[Instance]]:
    """Remove all, after their drain. What belongs to somebody else by now is left alone, and so is what
    another incarnation of the same owner has registered since.

    :param spare: whether what is registered at a place must stay.
    :param wait: sleeps so many seconds; what it raises ends the drain, and puts all back into service.
    :returns: what was removed, and what was left.
    :raises DrainInterrupted: ``wait`` was ended; nothing was removed.
    :raises SomeFailed: names each that a server keeps holding.
    :raises RegistryError: no server answered.
    """
    held = look(previous, [previous.owner], peers, writes=True)
    if held.unsure and any(previous.is_its(each) for each in held.ours.values()):
        wait(TOLD_WITHIN_SECONDS)
        held = look(previous, [previous.owner], peers, writes=True)
    leaving = [each for key, each in held.ours.items() if previous.is_its(each) and not spare(key)]
    kept = _remove(previous, leaving, peers, looks, wait)
    keys = previous.keys
    anew = [each for key, each in held.ours.items() if key in keys and not previous.is_its(each)]
    removed = [each for each in leaving if each not in kept]
    return removed, [*held.others.values(), *anew, *kept]


def _refusals(wanted: Roster, before: Held) -> dict[str, EurekubeError]:
    """Who stands in a place of ours, or at an address of ours, and is not to be taken over.

    Not another resource of the same stack at an address: it may be renamed, or moved into this one, and then
    goes afterwards.
    """
    neighbours = [each for each in before.neighbours if not are_of_one_stack(each.owner, wanted.owner)]
    there = (*before.ours.values(), *before.others.values(), *neighbours)
    desired = [each.instance for each in wanted.registrations.values()]
    planned = plan(desired, there, wanted.owner, Policy.UPSERT_ONLY)
    adopted = before.others if wanted.on_conflict is OnConflict.ADOPT else {}
    keys, hint = wanted.keys, f'; take it over with on_conflict="{OnConflict.ADOPT}"'
    return {
        keys[refusal.instance.key]: OwnershipConflict(
            refusal.describe() + (hint if refusal.actual.key == refusal.instance.key else "")
        )
        for refusal in planned.refusals
        if refusal.instance.key not in adopted and refusal.actual.key not in before.ours
    }


def _released(previous: Roster, wanted: Roster, before: Held) -> Roster:
    """``wanted``, with UP where our status is no longer asked for, see :func:`registration.released`."""
    now = dict(wanted.registrations)
    for key, each in wanted.registrations.items():
        earlier = previous.registrations.get(key)
        if earlier is not None and earlier.instance.key == each.instance.key:
            now[key] = registration.released(earlier, each, before.ours.get(each.instance.key))
    return replace(wanted, registrations=now)


def _put(
    wanted: Roster,
    before: Held,
    peers: Peers,
    refused: Mapping[str, EurekubeError] = EMPTY,
) -> tuple[dict[str, EurekubeError], Held]:
    """Register and change what must be, adopt where asked to, and look what became of it.

    :returns: an error by key for what failed, and what Eureka holds now.
    """
    keys = wanted.keys
    failed: dict[str, EurekubeError] = dict(refused)
    renamed = [each for each in before.ours.values() if each.owner != wanted.owner]
    for owner in sorted({each.owner for each in renamed if each.owner}):
        theirs = [each for each in renamed if each.owner == owner]
        taken = [_owned_by(wanted.owner, each) for each in theirs]
        moving = plan(taken, theirs, owner, Policy.UPSERT_ONLY)
        for failure in _apply(moving, owner, peers, len(taken)).failures:
            failed[name_of(failure.change.instance, keys)] = failure.error
    actual = {place: _owned_by(wanted.owner, each) for place, each in before.ours.items()}
    desired = [
        sent_first(each, actual.get(each.instance.key))
        for key, each in wanted.registrations.items()
        if key not in failed and each.instance.key not in before.others
    ]
    planned = plan(desired, actual.values(), wanted.owner, Policy.UPSERT_ONLY)
    for failure in _apply(planned, wanted.owner, peers, len(wanted.registrations)).failures:
        failed[name_of(failure.change.instance, keys)] = failure.error
    failed |= _one_by_one(_singles(wanted, before, failed), peers)
    there = (*actual.values(), *before.others.values(), *before.neighbours)
    try:
        return _verified(wanted, failed, there, peers)
    except RegistryError as error:
        return failed or dict.fromkeys(wanted.registrations, error), before


def _verified(
    wanted: Roster, failed: Mapping[str, EurekubeError], listed: Sequence[Instance], peers: Peers
) -> tuple[dict[str, EurekubeError], Held]:
    """Read back what was written; another server than the one written to may be half a second behind."""
    for attempt in range(VERIFY_ATTEMPTS):
        after = look(wanted, [wanted.owner], peers, listed, writes=True)
        missed = {key: error for key, error in _unverified(wanted, after).items() if key not in failed}
        if not missed:
            break
        time.sleep(0.2 * (attempt + 1))
    return {**failed, **missed}, after


def _singles(wanted: Roster, before: Held, failed: Mapping[str, EurekubeError]) -> dict[str, Registration]:
    """What a plan cannot do: adopt, and bring about a status over another one or that nobody may register."""
    is_adopting = wanted.on_conflict is OnConflict.ADOPT
    return {
        key: each
        for key, each in wanted.registrations.items()
        if key not in failed
        and (
            (is_adopting and each.instance.key in before.others)
            or (
                each.instance.key not in before.others
                and _has_other_status(each, before.ours.get(each.instance.key))
            )
        )
    }


def _has_other_status(wanted: Registration, have: Instance | None) -> bool:
    if have is None:
        return wanted.status is Status.OUT_OF_SERVICE
    status = status_to_reach(wanted, have)
    return status not in (None, have.status) or being_lifted(have, status) is not None


def _one_by_one(singles: Mapping[str, Registration], peers: Peers) -> dict[str, EurekubeError]:
    def run(each: Registration) -> EurekubeError | None:
        try:
            registration.create(each, peers)
        except (RegistryError, OwnershipConflict) as error:
            return error
        return None

    if not singles:
        return {}
    with ThreadPoolExecutor(THREADS) as executor:
        errors = executor.map(run, singles.values())
        return {key: error for key, error in zip(singles, errors, strict=True) if error is not None}


def _apply(planned: Plan, owner: str, peers: Peers, leases: int) -> Outcome:
    with ThreadPoolExecutor(THREADS) as executor:
        return apply(planned, owner, peers, executor=executor, leases=leases)


def _unverified(wanted: Roster, after: Held) -> dict[str, EurekubeError]:
    """What Eureka accepted and does not hold; an error by key."""
    result: dict[str, EurekubeError] = {}
    for key, each in wanted.registrations.items():
        held = after.ours.get(each.instance.key)
        is_there = held is not None and same_contents(_as_it_may_be(each, held), held)
        if is_there and held is not None and each.status in (None, held.status):
            continue
        holds = "does not hold it" if held is None else "holds something else"
        result[key] = RegistryRejected(
            f"Eureka accepted it and {holds}; somebody else may be writing or removing it at the same time"
        )
    return result


def _as_it_may_be(wanted: Registration, held: Instance) -> Instance:
    """With the mark of a status that was lifted, which stays while a server is away that may hold it."""
    if may_be_out_elsewhere(wanted, held):
        marked = {**wanted.instance.metadata, LEAVING_KEY: held.metadata[LEAVING_KEY]}
        wanted = replace(wanted, instance=replace(wanted.instance, metadata=marked))
    if not being_lifted(held, status_to_reach(wanted, held)):
        return wanted.instance
    return replace(wanted.instance, metadata={**wanted.instance.metadata, ENFORCED_KEY: held.enforced})


def _without_surplus(
    wanted: Roster, held: Held, peers: Peers, looks: SecondLooks | None, wait: Callable[[float], None]
) -> Held:
    """Remove it, now that all that is asked for is there."""
    surplus = held.surplus(wanted)
    _remove(wanted, surplus, peers, looks, wait)
    gone = {each.key for each in surplus}
    return replace(held, ours={key: each for key, each in held.ours.items() if key not in gone})


def _in_service(wanted: Roster, owners: Sequence[str], peers: Peers, also: Iterable[Key] = ()) -> Held:
    """What Eureka holds, after an interrupted drain of what is asked for was undone.

    What shall go stays as it is, and is drained once more.

    :raises RegistryError: Eureka did not do it.
    """
    before = look(wanted, owners, peers, also=also, writes=True)
    places = {each.instance.key: each for each in wanted.registrations.values()}
    back = [each for key, each in before.ours.items() if key in places and each.is_leaving]
    if not back:
        return before
    out = {each.key for each in back if places[each.key].status is Status.OUT_OF_SERVICE}
    for each in back:
        if each.key in out:  # the program's wish from now on
            marked = {**unmarked(each).metadata, ENFORCED_KEY: Status.OUT_OF_SERVICE.value}
            write(peers, replace(each, metadata=marked), each)
    put_all_back(peers, [each for each in back if each.key not in out])
    return look(wanted, owners, peers, also=also, writes=True)


def _remove(
    wanted: Roster,
    leaving: Sequence[Instance],
    peers: Peers,
    looks: SecondLooks | None,
    wait: Callable[[float], None],
) -> list[Instance]:
    """Drain and remove these.

    :returns: those in whose place something else was registered during the drain; that was left.
    :raises SomeFailed: names each that a server keeps holding.
    """
    if not leaving:
        return []
    anew = drain([(peers, each) for each in leaving], wanted.drain_seconds, wait)
    kept = [each for each in leaving if each.key in anew]
    leaving = [each for each in leaving if each.key not in anew]
    second = looks or SecondLooks()
    failed: dict[str, EurekubeError] = {}
    for owner in {each.owner for each in leaving if each.owner}:
        theirs = [each for each in leaving if each.owner == owner]
        outcome = _apply(plan([], theirs, owner), owner, peers, len(theirs))
        for change in outcome.done:
            if change.instance.renewer != SELF_RENEWED:
                second.add(peers, change.instance)
        failed |= {name_of(failure.change.instance, {}): failure.error for failure in outcome.failures}
    if looks is None:
        second.finish()
    if failed:
        _raise(wanted, "deregister", failed, "the others were removed")
    return kept


def _take_back(wanted: Roster, before: Held, peers: Peers) -> str:
    """Remove what was not there before, and give back what was taken over; says how that went.

    Nothing is touched that this creation did not write.
    """
    failed: dict[str, EurekubeError] = {}
    try:
        now = look(wanted, [wanted.owner], peers, writes=True)
    except RegistryError:
        return left_over(peers, *(each.instance for each in wanted.registrations.values()))
    written = {place: each for place, each in now.ours.items() if wanted.is_its(each)}
    overwritten = {
        place: there
        for place, there in (before.ours | before.others).items()
        if place in written and not wanted.is_its(there)
    }
    taken_over: list[Instance] = []
    for place, there in overwritten.items():
        is_contents_only = there.overridden_status is written[place].overridden_status
        if place in before.ours and is_contents_only:
            taken_over.append(there)
            continue
        try:
            restore(there, written[place], peers)
        except RegistryError as error:
            failed[wanted.keys[place]] = error
    added = [each for key, each in written.items() if key not in before.ours | before.others]
    for back in (
        plan(taken_over, written.values(), wanted.owner, Policy.UPSERT_ONLY),
        plan([], added, wanted.owner),
    ):
        for failure in _apply(back, wanted.owner, peers, len(written)).failures:
            failed[name_of(failure.change.instance, {})] = failure.error
    return f"not taken back: {_grouped(failed)}" if failed else "the others were taken back"


def _owned_by(owner: str, instance: Instance) -> Instance:
    return replace(instance, metadata={**instance.metadata, OWNER_KEY: owner})


def _raise(wanted: Roster, verb: str, failed: Mapping[str, EurekubeError], rest: str) -> NoReturn:
    """One error that names each that failed, and says what became of the rest.

    :raises SomeFailed: always.
    """
    total = max(len(wanted.registrations), len(failed))
    raise SomeFailed(
        f"{verb} {wanted.application}: {len(failed)} of {total} instances failed ({rest}): {_grouped(failed)}"
    )


def _grouped(failed: Mapping[str, EurekubeError]) -> str:
    """Keys that failed for the same reason stand together."""
    reasons: dict[str, list[str]] = {}
    for key, error in sorted(failed.items()):
        reasons.setdefault(str(error), []).append(key)
    return "; ".join(f"{', '.join(keys)} ({reason})" for reason, keys in reasons.items())
