"""Many registrations of one application that a stack owns as one, from properties to Eureka and back.

Neutral to Pulumi's dynamic interface, as :mod:`~eurekube_provider.resources.registration` is. What must
change is decided by :func:`~eurekube_provider.core.plan.plan` against what Eureka holds at this moment, never
against the state: a call that failed half-way is finished by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from eurekube_provider.core.errors import (
    EurekubeError,
    OwnershipConflict,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
    SomeFailed,
)
from eurekube_provider.core.identity import MEMBER_KEY, OWNER_KEY, SELF_RENEWED
from eurekube_provider.core.model import EMPTY, Instance, Status
from eurekube_provider.core.plan import Plan, Policy, plan, same_contents
from eurekube_provider.eureka.apply import Outcome, apply, write
from eurekube_provider.eureka.bulk import look_everywhere
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.resources import registration
from eurekube_provider.resources.looks import SecondLooks
from eurekube_provider.resources.members import (
    MEMBER_INPUTS,
    fitted,
    members,
)
from eurekube_provider.resources.properties import OnConflict, Properties, contains_unknown
from eurekube_provider.resources.registration import (
    Difference,
    Registration,
    at_other_servers,
    seen,
    status_to_send,
)

Key = tuple[str, str]

VERIFY_ATTEMPTS = 5

THREADS = 8
"""Single requests under way at once."""


@dataclass(frozen=True, slots=True)
class Roster:
    """What checked properties, or a state's, ask for.

    :ivar registrations: by the keys that the program gave them; each carries its key in its metadata.
    """

    application: str
    owner: str
    service_urls: tuple[str, ...]
    connection: str
    on_conflict: OnConflict
    drain_seconds: int
    renewer: str
    registrations: Mapping[str, Registration]

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Roster:
        """Read checked properties, or those of a state; nothing in them may be unknown."""
        found = {key: _member(key, full) for key, full in members(properties).items()}
        return cls(
            application=str(properties["application"]),
            owner=str(properties["owner"]),
            service_urls=tuple(str(properties["service_url"]).split(",")),
            connection=str(properties["connection"]),
            on_conflict=OnConflict(properties["on_conflict"]),
            drain_seconds=int(properties["drain_seconds"]),
            renewer=str(properties["renewer"]),
            registrations=found,
        )

    @property
    def keys(self) -> dict[Key, str]:
        """The program's key of each place in Eureka."""
        return {each.instance.key: key for key, each in self.registrations.items()}


@dataclass(frozen=True, slots=True)
class Held:
    """What Eureka holds of a roster at this moment.

    :ivar ours: everything that is registered for one of the owners, by place.
    :ivar others: what somebody else has in a place of ours.
    :ivar neighbours: what else is in the application.
    :ivar unsure: servers that did not answer, and why; what nobody holds may be there.
    """

    ours: dict[Key, Instance]
    others: dict[Key, Instance]
    neighbours: tuple[Instance, ...]
    unsure: dict[str, RegistryError]


def diff(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Difference:
    """Compare what Eureka held when the state was written with what is asked for now.

    Another application is a replacement. So are other servers, where the old registrations go first, as
    for a single one. Everything else updates in place: an instance with another id is registered before the
    old one goes.

    :param olds: a state's outputs.
    :param news: checked properties; anything may still be unknown, and counts as a change.
    """
    replaces = ["application"] if olds.get("application") != news.get("application") else []
    if at_other_servers(olds, news):
        replaces.append("service_url")
    changes = bool(replaces) or contains_unknown(news) or bool(olds.get("held_by_others"))
    if not changes and _projected(olds) != _projected(news):
        have, want = Roster.from_properties(olds), Roster.from_properties(news)
        changes = (
            replace(have, registrations={}) != replace(want, registrations={})
            or have.registrations.keys() != want.registrations.keys()
            or any(_differs(have.registrations[key], each) for key, each in want.registrations.items())
        )
    return Difference(changes, tuple(replaces), delete_before_replace=replaces == ["service_url"])


def look(
    roster: Roster, owners: Sequence[str], peers: Peers, listed: Sequence[Instance] | None = None
) -> Held:
    """Read past the servers' caches what is in the roster's places, and what else its owners have.

    :param listed: what is in the application, where that was asked a moment ago: lists are dear.
    :raises RegistryError: no server answered.
    """
    if listed is None:
        listed = [each for each in peers.list_instances(anew=True) if each.application == roster.application]
    ours = {each.key: each for each in listed if each.owner in owners and MEMBER_KEY in each.metadata}
    places = ours | {each.instance.key: each.instance for each in roster.registrations.values()}
    stock = look_everywhere(peers, list(places.values()))
    held = {key: found for key in places if (found := stock.newest(key)) is not None}
    return Held(
        ours={key: found for key, found in held.items() if found.owner in owners},
        others={key: found for key, found in held.items() if found.owner not in owners},
        neighbours=tuple(each for each in listed if each.key not in places),
        unsure=stock.failures,
    )


def create(wanted: Roster, peers: Peers, looks: SecondLooks | None = None) -> tuple[Held, frozenset[Key]]:
    """Register all, or none: after a failure, what was not there before is taken back.

    :returns: what Eureka holds now, and the places where something of ours was before.
    :raises SomeFailed: names each that failed.
    :raises RegistryError: Eureka could not even be asked.
    """
    before = look(wanted, [wanted.owner], peers)
    failed = _refusals(wanted, before)
    if failed:
        _raise(wanted, "register", failed, "nothing was registered")
    failed, after = _put(wanted, before, peers)
    if failed:
        _raise(wanted, "register", failed, _take_back(wanted, before, peers))
    return _without_surplus(wanted, after, peers, looks), frozenset(before.ours)


def update(previous: Roster, wanted: Roster, peers: Peers, looks: SecondLooks | None = None) -> Held:
    """Bring Eureka to ``wanted``. After a failure what was done stays, and nothing was removed.

    Instances of the previous owner are ours too: a renamed stack updates in place.

    :raises SomeFailed: names each that failed.
    :raises RegistryError: Eureka could not even be asked.
    """
    before = look(wanted, [wanted.owner, previous.owner], peers)
    failed, after = _put(wanted, before, peers, previous.owner, _refusals(wanted, before))
    if failed:
        _raise(wanted, "update", failed, "what was done stays, and the next update goes on from there")
    return _without_surplus(wanted, after, peers, looks)


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
) -> list[str]:
    """Remove all, after their drain. What belongs to somebody else by now is left alone.

    :param spare: whether a place was registered anew since, so that it must stay.
    :returns: a sentence for each that was left.
    :raises SomeFailed: names each that a server keeps holding.
    :raises RegistryError: no server answered.
    """
    held = look(previous, [previous.owner], peers)
    leaving = [each for key, each in held.ours.items() if not spare(key)]
    _remove(previous, leaving, peers, looks)
    return [
        f"{each.application} {each.instance_id} belongs to somebody else by now and was left as it is"
        for each in held.others.values()
    ]


def outputs(properties: Mapping[str, Any], roster: Roster, held: Held) -> Properties:
    """The state of a roster: what was written, with what Eureka holds where that differs.

    :param properties: checked properties, or an earlier state.
    """
    kept = {key: properties[key] for key in MEMBER_INPUTS if key in properties}
    instances: dict[str, Properties] = {}
    statuses: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, each in roster.registrations.items():
        place = each.instance.key
        actual = held.ours.get(place) or held.others.get(place)
        if actual is None:
            continue
        if actual.owner != roster.owner:
            others[key] = actual.owner or ""
        if actual.status is not (each.status or Status.UP):
            statuses[key] = actual.status.value
        is_settled = same_contents(each.instance, actual) and each.status in (None, actual.status)
        instances[key] = (
            dict(properties["instances"][key])
            if is_settled
            else fitted(properties, key, _full(actual, with_status=each.status is not None))
        )
    for extra in _surplus(roster, held):
        # Left by a call that failed: shown, so that the next one removes it.
        key = _name(extra, {})
        if key in instances:
            key = f"{key} {extra.instance_id}"
        instances[key] = fitted(properties, key, _full(extra, with_status=False))
    return {**kept, "instances": instances, "statuses": statuses, "held_by_others": others}


def inputs(outs: Mapping[str, Any]) -> Properties:
    """The inputs as if the program had asked for what Eureka holds, so that a preview shows drift."""
    return {key: outs[key] for key in MEMBER_INPUTS if key in outs}


def _member(key: str, full: Properties) -> Registration:
    made = Registration.from_properties(full)
    return replace(
        made, instance=replace(made.instance, metadata={**made.instance.metadata, MEMBER_KEY: key})
    )


def _full(actual: Instance, *, with_status: bool) -> Properties:
    full = seen(actual)
    full["metadata"].pop(MEMBER_KEY, None)
    if not with_status:
        del full["status"]
    return full


def _projected(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: properties[key] for key in MEMBER_INPUTS if properties.get(key) not in (None, {})}


def _differs(have: Registration, want: Registration) -> bool:
    return not same_contents(have.instance, want.instance) or (
        have.status is not want.status or have.instance.key != want.instance.key
    )


def _refusals(wanted: Roster, before: Held) -> dict[str, EurekubeError]:
    """Who stands in a place of ours, or at an address of ours, and is not to be taken over."""
    there = (*before.ours.values(), *before.others.values(), *before.neighbours)
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


def _put(
    wanted: Roster,
    before: Held,
    peers: Peers,
    previous_owner: str | None = None,
    refused: Mapping[str, EurekubeError] = EMPTY,
) -> tuple[dict[str, EurekubeError], Held]:
    """Register and change what must be, adopt where asked to, and look what became of it.

    :returns: an error by key for what failed, and what Eureka holds now.
    """
    keys = wanted.keys
    failed: dict[str, EurekubeError] = dict(refused)
    renamed = [each for each in before.ours.values() if each.owner != wanted.owner]
    if renamed and previous_owner is not None:
        taken = [_owned_by(wanted.owner, each) for each in renamed]
        moving = plan(taken, renamed, previous_owner, Policy.UPSERT_ONLY)
        for failure in _apply(moving, previous_owner, peers, len(taken)).failures:
            failed[_name(failure.change.instance, keys)] = failure.error
    actual = {place: _owned_by(wanted.owner, each) for place, each in before.ours.items()}
    desired = [
        replace(each.instance, status=status_to_send(each, actual.get(each.instance.key)))
        for key, each in wanted.registrations.items()
        if key not in failed and each.instance.key not in before.others
    ]
    planned = plan(desired, actual.values(), wanted.owner, Policy.UPSERT_ONLY)
    for failure in _apply(planned, wanted.owner, peers, len(wanted.registrations)).failures:
        failed[_name(failure.change.instance, keys)] = failure.error
    failed |= _one_by_one(_singles(wanted, before, failed), peers)
    try:
        return _verified(wanted, failed, (*actual.values(), *before.neighbours), peers)
    except RegistryError as error:
        return failed or dict.fromkeys(wanted.registrations, error), before


def _verified(
    wanted: Roster, failed: Mapping[str, EurekubeError], listed: Sequence[Instance], peers: Peers
) -> tuple[dict[str, EurekubeError], Held]:
    """Read back what was written; another server than the one written to may be half a second behind."""
    for attempt in range(VERIFY_ATTEMPTS):
        after = look(wanted, [wanted.owner], peers, listed)
        missed = {key: error for key, error in _unverified(wanted, after).items() if key not in failed}
        if not missed:
            break
        time.sleep(0.2 * (attempt + 1))
    return {**failed, **missed}, after


def _singles(wanted: Roster, before: Held, failed: Mapping[str, EurekubeError]) -> dict[str, Registration]:
    """What a plan cannot do: adopt, and enforce a status over a person's or one that nobody may register."""
    is_adopting = wanted.on_conflict is OnConflict.ADOPT
    return {
        key: each
        for key, each in wanted.registrations.items()
        if key not in failed
        and (
            (is_adopting and each.instance.key in before.others)
            or (
                each.status is not None
                and each.instance.key not in before.others
                and _has_other_status(each, before.ours.get(each.instance.key))
            )
        )
    }


def _has_other_status(wanted: Registration, have: Instance | None) -> bool:
    if have is None:
        return wanted.status is Status.OUT_OF_SERVICE
    return have.status is not wanted.status


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
        if held is not None and same_contents(each.instance, held) and each.status in (None, held.status):
            continue
        holds = "does not hold it" if held is None else "holds something else"
        result[key] = RegistryRejected(
            f"Eureka accepted it and {holds}; somebody else may be writing or removing it at the same time"
        )
    return result


def _surplus(wanted: Roster, held: Held) -> list[Instance]:
    """What is ours, and was registered by an earlier call that is not asked for any more."""
    keys = wanted.keys
    return [each for key, each in held.ours.items() if key not in keys]


def _without_surplus(wanted: Roster, held: Held, peers: Peers, looks: SecondLooks | None) -> Held:
    """Remove it, now that all that is asked for is there."""
    surplus = _surplus(wanted, held)
    _remove(wanted, surplus, peers, looks)
    gone = {each.key for each in surplus}
    return replace(held, ours={key: each for key, each in held.ours.items() if key not in gone})


def _remove(wanted: Roster, leaving: Sequence[Instance], peers: Peers, looks: SecondLooks | None) -> None:
    """Drain and remove these.

    :raises SomeFailed: names each that a server keeps holding.
    """
    if not leaving:
        return
    if wanted.drain_seconds:
        called = [each for each in leaving if each.status is Status.UP]
        with ThreadPoolExecutor(THREADS) as executor:
            list(executor.map(lambda each: peers.set_status(each, Status.OUT_OF_SERVICE), called))
        if called:
            time.sleep(wanted.drain_seconds)
    second = looks or SecondLooks()
    failed: dict[str, EurekubeError] = {}
    for owner in {each.owner for each in leaving if each.owner}:
        theirs = [each for each in leaving if each.owner == owner]
        outcome = _apply(plan([], theirs, owner), owner, peers, len(theirs))
        for change in outcome.done:
            if change.instance.renewer != SELF_RENEWED:
                second.add(peers, change.instance)
        failed |= {_name(failure.change.instance, {}): failure.error for failure in outcome.failures}
    if looks is None:
        second.finish()
    if failed:
        _raise(wanted, "deregister", failed, "the others were removed")


def _take_back(wanted: Roster, before: Held, peers: Peers) -> str:
    """Remove what was not there before, and give back what was taken over; says how that went."""
    failed: dict[str, EurekubeError] = {}
    try:
        now = look(wanted, [wanted.owner], peers)
    except RegistryError:
        return "what was registered could not be taken back; the next update takes it over"
    for place, taken in before.others.items():
        if place in now.ours:
            try:
                write(peers, taken, now.ours[place])
            except RegistryError as error:
                failed[wanted.keys[place]] = error
    added = [each for key, each in now.ours.items() if key not in before.ours | before.others]
    for failure in _apply(plan([], added, wanted.owner), wanted.owner, peers, len(added)).failures:
        failed[_name(failure.change.instance, {})] = failure.error
    return f"not taken back: {_grouped(failed)}" if failed else "the others were taken back"


def _owned_by(owner: str, instance: Instance) -> Instance:
    return replace(instance, metadata={**instance.metadata, OWNER_KEY: owner})


def _name(instance: Instance, keys: Mapping[Key, str]) -> str:
    """By which key the program, now or once, called an instance."""
    return keys.get(instance.key) or instance.metadata.get(MEMBER_KEY) or instance.instance_id


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
