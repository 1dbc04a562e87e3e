"""A resource's registrations in Eureka at this moment, read past its caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eurekube_provider.core.errors import RegistryError, RegistryRejected
from eurekube_provider.core.identity import APPLICATION_MEMBER_KEY, SELF_RENEWER_VALUE
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka.batches import read_and_renew_everywhere
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import RefusalByKey, UncachedReads, read_everywhere
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE


@dataclass(frozen=True, slots=True)
class ActualState:
    """A resource's registrations as Eureka holds them.

    :ivar owned: instances that are registered for one of the resource's owners, by application and id.
    :ivar owned_by_others: instances of other owners under an application and id that the resource wants.
    :ivar error_by_failed_server: the error of each server that did not answer, by its URL; an instance that
        no other server holds may be there.
    :ivar unaddressable: listed instances that carry the owner and that a server refuses to read, as under an
        id with a slash, with the error. No stack registers such an id: somebody else wrote the owner there.
    """

    owned: dict[InstanceKey, Instance]
    owned_by_others: dict[InstanceKey, Instance]
    error_by_failed_server: dict[str, RegistryError]
    unaddressable: dict[InstanceKey, RegistryRejected] = field(default_factory=dict)

    @property
    def all_instances(self) -> dict[InstanceKey, Instance]:
        """Return the instances under the resource's applications and ids, of any owner."""
        return self.owned | self.owned_by_others

    def surplus_instances(self, wanted: DesiredState) -> list[Instance]:
        """Return the owners' instances that the program does not ask for any more."""
        keys = wanted.program_keys
        return [each for key, each in self.owned.items() if key not in keys]


def read_actual(
    desired: DesiredState,
    owners: Sequence[str],
    peers: Peers,
    listed: Sequence[Instance] | None = None,
    extra_keys: Iterable[InstanceKey] = (),
    *,
    for_writing: bool = False,
    from_all_servers: bool = True,
) -> ActualState:
    """Read past the servers' caches the instances at the places of ``desired`` (an application and an id
    each), and its owners' other instances, as far as a list of up to 45 s ago has them.

    :param listed: the application's instances, where they were read a moment ago.
    :param extra_keys: places that a state knows.
    :param for_writing: ``desired`` is about to be written or removed, or was a moment ago. Many places whose
        instances others renew are then read in batches, which also renew them. Other reads renew nothing.
    :param from_all_servers: False if for a single instance the first server that holds it is enough.
    :raises RegistryError: no server answered.
    """
    if listed is None:
        listed = (
            SHARED_REGISTRY_LIST_CACHE.instances_of_application(desired.application, peers)
            if desired.has_members
            else ()
        )
    own = desired.program_keys

    def is_owned(each: Instance) -> bool:
        return each.owner in owners or (desired.incarnation is not None and desired.has_registered(each))

    places = dict.fromkeys((*own, *extra_keys))
    members = [each for each in listed if is_owned(each) and APPLICATION_MEMBER_KEY in each.metadata]
    suggested = [each.key for each in members if each.key not in places] if desired.has_members else []
    reads, refused = None, RefusalByKey()
    if len(places) == 1 and not from_all_servers and not desired.has_members:
        (place,) = places
        found = peers.read(*place)
        # An instance that has another status than its mark may have the marked one on another server.
        if found is None or not found.enforced or found.is_status_enforced:
            reads = UncachedReads({"": {place: found}}, {})
    if reads is None:
        renewable = _select_safely_renewable(desired, owners, listed) if for_writing else []
        reads = _read_keys_and_renew(peers, list(places), renewable)
    if suggested:
        reads = reads.merge_with(read_everywhere(peers, suggested, refused))
    held = {key: newest for key in (*places, *suggested) if (newest := reads.newest(key)) is not None}
    return ActualState(
        owned={
            key: found
            for key, found in held.items()
            # At a place that the program does not ask for, only members count.
            if is_owned(found) and (key in own or APPLICATION_MEMBER_KEY in found.metadata)
        },
        owned_by_others={key: found for key, found in held.items() if not is_owned(found)},
        error_by_failed_server=reads.failures,
        unaddressable={key: error for key, error in refused.items() if key not in held},
    )


def _select_safely_renewable(
    desired: DesiredState, owners: Sequence[str], listed: Sequence[Instance]
) -> list[Instance]:
    """Return the wanted instances that do not renew themselves, and whose id no other owner has."""
    if desired.renewer == SELF_RENEWER_VALUE:
        return []
    kept = {each.key for each in listed if each.owner not in owners or each.renewer == SELF_RENEWER_VALUE}
    wanted = (each.instance for each in desired.registrations.values())
    return [instance for instance in wanted if instance.key not in kept]


def _read_keys_and_renew(
    peers: Peers, keys: Sequence[InstanceKey], to_renew: Sequence[Instance]
) -> UncachedReads:
    """Read ``keys`` past the servers' caches; if ``to_renew`` are many, renew and read them in batches."""
    if not to_renew or not peers.uses_batches(len(to_renew)):
        return read_everywhere(peers, keys)
    done = {each.key for each in to_renew}
    left = [key for key in keys if key not in done]
    reads = read_and_renew_everywhere(peers, to_renew)
    return reads.merge_with(read_everywhere(peers, left)) if left else reads
