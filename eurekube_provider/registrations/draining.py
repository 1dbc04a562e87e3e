"""Drains of a stack's registrations before removal, and their return to service where a removal is given up.

The mark in the metadata is written before the status, and removed after it: a run that dies at any moment
leaves instances that are recognised as ours. The next run of the stack puts such an instance back into
service, or goes on to remove it. A person's OUT_OF_SERVICE carries no mark, and is never touched here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from eurekube_provider.core.errors import DrainInterrupted, EurekubeError
from eurekube_provider.core.identity import (
    APPLICATION_MEMBER_KEY,
    ENFORCED_KEY,
    INCARNATION_KEY,
    LEAVING_KEY,
    OWNER_KEY,
    RESERVED_METADATA_PREFIX,
    SELF_RENEWER_VALUE,
)
from eurekube_provider.core.model import (
    EMPTY_MAPPING,
    Instance,
    InstanceKey,
    Status,
    newest,
    same_contents_but_status,
)
from eurekube_provider.core.plan import Policy, describe_owner, plan
from eurekube_provider.core.wording import format_list
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import RefusalByKey, read_instances
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.registrations.properties import (
    ABSENT_MARK,
    HALF_DONE_MARK,
    LEAVING_MARK,
    STILL_ENFORCED_MARK,
)
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE
from eurekube_provider.registrations.values import OnConflict

_T = TypeVar("_T")

MOST_CONCURRENT_REQUESTS = 8
"""The number of single requests that are sent at once."""

MAX_LEFTOVER_READS = 64
"""The largest number of instances that are read one by one in the search for leftovers."""

InstanceAtServers = tuple[Peers, Instance]


def without_drain_mark(instance: Instance) -> Instance:
    """Return an instance without the mark of a drain."""
    if LEAVING_KEY not in instance.metadata:
        return instance
    kept = {key: value for key, value in instance.metadata.items() if key != LEAVING_KEY}
    return replace(instance, metadata=kept)


def drain_and_find_registered_again(
    registered: Iterable[InstanceAtServers], seconds: float, wait: Callable[[float], None]
) -> frozenset[InstanceKey]:
    """Put instances that callers still use out of service, and wait once until callers have forgotten them
    all.

    Instances that an earlier drain left out of service wait as long: nobody knows since when. Another run of
    the stack may go on meanwhile: ``eurekube apply`` takes no lock, and a person may break one.

    :param wait: sleeps the given seconds, and raises an exception to end the drain.
    :returns: applications and ids of instances that were registered again meanwhile, which must stay.
    :raises DrainInterrupted: the wait was ended, or another run has put an instance back into service; all
        instances are in service again, or marked so that the next run puts them back.
    :raises RegistryError: an instance could not be put out of service; the others are in service again.
    """
    leaving = [
        (peers, one)
        for peers, one in registered
        if one.status is Status.UP or (one.is_leaving and one.status is Status.OUT_OF_SERVICE)
    ]
    if not leaving or not seconds:
        return frozenset()
    try:
        _map_concurrently(_begin_drain, leaving)
        wait(seconds)
        held = _map_concurrently(
            lambda peers, one: newest(peers.read_everywhere(*one.key)[0].values()), leaving
        )
        for (_, instance), have in zip(leaving, held, strict=True):
            if have is not None and _has_same_owner_and_incarnation(have, instance) and not have.is_leaving:
                raise DrainInterrupted(f"another run has put {instance.instance_id} back into service")
    except BaseException as error:
        failed = _map_concurrently(_try_undo_drain, leaving)
        if isinstance(error, DrainInterrupted):
            raise DrainInterrupted(_describe_failed_drain(leaving, failed, str(error))) from None
        raise
    return frozenset(
        instance.key
        for (_, instance), have in zip(leaving, held, strict=True)
        if have is not None and not _has_same_owner_and_incarnation(have, instance)
    )


def find_leftover_marks_of_earlier_run(
    peers: Peers,
    wanted: Iterable[Instance],
    in_state: Mapping[InstanceKey, Instance],
    warn: Callable[[str], None],
    is_registered_again: Callable[[Instance], bool],
    *,
    is_owner_found: bool = False,
) -> frozenset[str]:
    """Return the kinds of leftovers of an earlier run among ``wanted`` that an update must handle.

    Of many instances, only those are read that a list, up to 30 s old, shows as left over, and a few others.
    Instances that an update added to an application are found in the list alone.

    :param in_state: the state's registrations, which must stay as the state has them, but that an instance
        that renews itself may be gone.
    :param warn: gets a sentence that says why a missing instance cannot be registered again, and one that
        names what somebody else has taken over.
    :param is_registered_again: returns True for our own application, which registered itself again.
    :param is_owner_found: True if the state has findings of a refresh or an import, which an update is about
        to undo or to refuse.
    :returns: some of the marks. :data:`ABSENT_MARK` is left out where somebody else is registered at the
        address by now: an update could only fail.
    :raises RegistryError: no server answers.
    """
    places = {one.key: one for one in wanted}
    keys = list(places)
    if len(keys) > MAX_LEFTOVER_READS:
        listed = {one.key: one for one in peers.list_instances() if one.key in places}
        suggested = [
            key
            for key in keys
            if _leftover_marks(places[key], listed.get(key), in_state, is_registered_again)
        ]
        keys = [*keys[:2], *keys[-2:], *suggested[:MAX_LEFTOVER_READS]]
    held = read_instances(peers, keys)
    found = {
        key: _leftover_marks(places[key], have, in_state, is_registered_again) for key, have in held.items()
    }
    marks: frozenset[str] = frozenset().union(*found.values())
    if _has_added_member(peers, places, held, in_state):
        marks |= {HALF_DONE_MARK}
    taken = [
        f"{have.application} {have.instance_id} in Eureka {describe_owner(have)}"
        for key, have in held.items()
        if have is not None
        and key in in_state
        and have.owner not in (places[key].owner, in_state[key].owner)
        and not is_registered_again(have)
    ]
    if taken and not is_owner_found:
        adopt = f'on_conflict="{OnConflict.ADOPT}"'
        warn(f"{format_list(taken, 3)}; pulumi up --refresh is refused, or takes it over with {adopt}")
    for key in (key for key, left in found.items() if ABSENT_MARK in left and held[key] is None):
        want, owner = places[key], places[key].owner or ""
        neighbours = SHARED_REGISTRY_LIST_CACHE.foreign_instances_at_addresses([want], owner, peers)
        refusals = plan([want], neighbours, owner, Policy.UPSERT_ONLY).refusals
        if refusals:
            name = f"{want.application} {want.instance_id}"
            warn(f"{name} is gone, and not registered again: {refusals[0].describe()}")
            return marks - {ABSENT_MARK}
    return marks


def _has_added_member(
    peers: Peers,
    places: Mapping[InstanceKey, Instance],
    held: Mapping[InstanceKey, Instance | None],
    in_state: Mapping[InstanceKey, Instance],
) -> bool:
    """Return whether Eureka has a member of the same incarnation that neither program nor state has."""
    made = {
        (have.owner, have.application, have.incarnation)
        for key, have in held.items()
        if have is not None and have.owner == places[key].owner and have.incarnation and key in in_state
        if APPLICATION_MEMBER_KEY in have.metadata
    }

    def is_added_member(each: Instance) -> bool:
        is_named = each.key in places or each.key in in_state
        is_made = (each.owner, each.application, each.incarnation) in made
        return is_made and not is_named and APPLICATION_MEMBER_KEY in each.metadata

    listed = (
        SHARED_REGISTRY_LIST_CACHE.instances_of_owner(owner, application, peers)
        for owner, application, _ in made
        if owner
    )
    suggested = [each.key for each in chain.from_iterable(listed) if is_added_member(each)]
    there = read_instances(peers, suggested[:MAX_LEFTOVER_READS], RefusalByKey())
    return any(each is not None and is_added_member(each) for each in there.values())


def _leftover_marks(
    want: Instance,
    have: Instance | None,
    in_state: Mapping[InstanceKey, Instance],
    is_registered_again: Callable[[Instance], bool],
) -> frozenset[str]:
    if have is None:
        is_missed = want.key in in_state and want.renewer != SELF_RENEWER_VALUE
        return frozenset({ABSENT_MARK} if is_missed else ())
    if have.owner != want.owner:
        return frozenset({ABSENT_MARK} if is_registered_again(have) else ())
    is_enforced = have.enforced not in ("", want.enforced)
    before = in_state.get(want.key)
    stays_enforced = want.enforced and before is not None and before.enforced == want.enforced
    if stays_enforced and have.incarnation and not have.enforced:
        is_enforced = have.status.value != want.enforced  # a run that failed had taken it back
    is_other = (
        before is not None and bool(have.incarnation) and not _is_same_for_callers_and_renewers(have, before)
    )
    found = {LEAVING_MARK: have.is_leaving, STILL_ENFORCED_MARK: is_enforced, HALF_DONE_MARK: is_other}
    return frozenset(mark for mark, is_there in found.items() if is_there)


def _is_same_for_callers_and_renewers(have: Instance, before: Instance) -> bool:
    """Return whether two instances are the same but for metadata that anyone who runs them may change."""
    keys = {key for key in (*have.metadata, *before.metadata) if key.startswith(RESERVED_METADATA_PREFIX)}
    keys -= {LEAVING_KEY, ENFORCED_KEY, INCARNATION_KEY, OWNER_KEY}
    one, other = ({key: each.metadata.get(key) for key in keys} for each in (have, before))
    return one == other and same_contents_but_status(
        replace(have, metadata=EMPTY_MAPPING), replace(before, metadata=EMPTY_MAPPING)
    )


def undo_drain(peers: Peers, instance: Instance) -> Instance | None:
    """Undo a drain: put the instance back into service, then remove the drain's mark.

    The mark stays while a server that may hold the drain's status does not answer: without it, that status
    would pass for a person's. The next run tries again.

    :returns: the instance in Eureka now, None where there is none.
    :raises RegistryError: a server did not put it back; the mark is still there.
    """
    have = peers.read(*instance.key)
    if have is None or have.owner != instance.owner or not have.is_leaving:
        return have
    is_certain = Writer(peers).clear_status_until_up(have, Status.OUT_OF_SERVICE)
    have = peers.read(*instance.key)
    if have is None or have.owner != instance.owner or not have.is_leaving or not is_certain:
        return have
    return Writer(peers).register_over(without_drain_mark(have), have)


def undo_drains(peers: Peers, instances: Sequence[Instance]) -> None:
    """Undo the drains of many instances.

    :raises RegistryError: the first drain that could not be undone; the others were still tried.
    """

    failed = _map_concurrently(_try_undo_drain, [(peers, one) for one in instances])
    for error in failed:
        if error is not None:
            raise error


def _begin_drain(peers: Peers, instance: Instance) -> None:
    """Mark an instance as leaving, and at once set OUT_OF_SERVICE: another run may remove marks meanwhile."""
    writer = Writer(peers)
    if not instance.is_leaving:
        writer.register_over(replace(instance, metadata={**instance.metadata, LEAVING_KEY: "true"}), instance)
    writer.set_status(instance, Status.OUT_OF_SERVICE)


def _has_same_owner_and_incarnation(have: Instance, drained: Instance) -> bool:
    return (have.owner, have.incarnation) == (drained.owner, drained.incarnation)


def _try_undo_drain(peers: Peers, instance: Instance) -> EurekubeError | None:
    try:
        undo_drain(peers, instance)
    except EurekubeError as error:
        return error
    return None


def _describe_failed_drain(
    leaving: Sequence[InstanceAtServers], failed: Sequence[EurekubeError | None], why: str
) -> str:
    names = format_list([f"{one.application} {one.instance_id}" for _, one in leaving], 1)
    named = f"drain {names}: {why}, and nothing was removed;"
    errors = [error for error in failed if error is not None]
    if not errors:
        return f"{named} in service again, until the next run removes it"
    return (
        f"{named} {len(errors)} could not be put back into service and stay out until the next run "
        f"({errors[0]})"
    )


def _map_concurrently(
    work: Callable[[Peers, Instance], _T], registered: Sequence[InstanceAtServers]
) -> list[_T]:
    """Call ``work`` for instances, several at once; raise the first exception after all have ended."""
    if len(registered) == 1:
        return [work(*registered[0])]
    with ThreadPoolExecutor(MOST_CONCURRENT_REQUESTS) as executor:
        return list(executor.map(lambda each: work(*each), registered))
