"""A resource's registrations in Eureka at this moment, read past its caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eurekube_provider.core.errors import RegistryError, RegistryRejected
from eurekube_provider.core.identity import MEMBER_KEY, SELF_RENEWED
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka.batches import renew_and_read
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import Refused, UncachedReads, read_everywhere
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.registry_lists import LISTS


@dataclass(frozen=True, slots=True)
class ActualState:
    """A resource's registrations in Eureka.

    :ivar ours: instances that are registered for one of the owners, by application and id.
    :ivar others: instances of other owners under an application and id that the resource wants.
    :ivar unsure: servers that did not answer, with the error; an instance that no other server holds may be
        there.
    :ivar refused: listed instances that carry our owner and that a server refuses to read, as under an id
        with a slash, with the error. No stack registers such an id: somebody else wrote our owner there.
    """

    ours: dict[Key, Instance]
    others: dict[Key, Instance]
    unsure: dict[str, RegistryError]
    refused: dict[Key, RegistryRejected] = field(default_factory=dict)

    @property
    def everything(self) -> dict[Key, Instance]:
        """Return the instances under the resource's applications and ids, of any owner."""
        return self.ours | self.others

    def surplus(self, wanted: DesiredState) -> list[Instance]:
        """Return the owners' instances that the program does not ask for any more."""
        keys = wanted.keys
        return [each for key, each in self.ours.items() if key not in keys]


def read_actual(
    desired: DesiredState,
    owners: Sequence[str],
    peers: Peers,
    listed: Sequence[Instance] | None = None,
    also: Iterable[Key] = (),
    *,
    writes: bool = False,
    everywhere: bool = True,
) -> ActualState:
    """Read past the servers' caches the instances at the places of ``desired``, and its owners' other
    instances.

    A place is an application and an instance id. Places come from the program, the state and, for an
    application, Eureka's list. The list is up to 45 s old: an instance that a failed call left a moment ago
    may be found by a later reading only.

    :param listed: the application's instances, where they were read a moment ago.
    :param also: places that a state knows.
    :param writes: ``desired`` is about to be written or removed, or was a moment ago. Where others renew its
        instances, many places are then read in batches, which cost the servers little and renew the instances
        that they find: our own, and any that came since the list was made. Other reads renew nothing.
    :param everywhere: True to read the place of a single instance from every server, and not from the first
        that answers and holds an instance; the places of an application are read from every server in any
        case.
    :raises RegistryError: no server answered.
    """
    if listed is None:
        listed = LISTS.of_application(desired.application, peers) if desired.has_members else ()
    own = desired.keys

    def is_ours(each: Instance) -> bool:
        return each.owner in owners or (desired.incarnation is not None and desired.is_its(each))

    places = dict.fromkeys((*own, *also))
    members = [each for each in listed if is_ours(each) and MEMBER_KEY in each.metadata]
    suggested = [each.key for each in members if each.key not in places] if desired.has_members else []
    reads, refused = None, Refused()
    if len(places) == 1 and not everywhere and not desired.has_members:
        (place,) = places
        found = peers.read(*place)
        # Where its mark names another status than it has, another server may hold that one.
        if found is None or not found.enforced or found.is_enforced:
            reads = UncachedReads({"": {place: found}}, {})
    if reads is None:
        reads = _read(peers, list(places), _renewed(desired, owners, listed) if writes else [])
    if suggested:
        reads = reads.joined(read_everywhere(peers, suggested, refused))
    held = {key: newest for key in (*places, *suggested) if (newest := reads.newest(key)) is not None}
    return ActualState(
        ours={
            key: found
            for key, found in held.items()
            # Elsewhere than it is asked for, only what was registered as a member.
            if is_ours(found) and (key in own or MEMBER_KEY in found.metadata)
        },
        others={key: found for key, found in held.items() if not is_ours(found)},
        unsure=reads.failures,
        refused={key: error for key, error in refused.items() if key not in held},
    )


def _renewed(desired: DesiredState, owners: Sequence[str], listed: Sequence[Instance]) -> list[Instance]:
    """Return the wanted instances that a renewal cannot harm: somebody else renews them, and no stranger
    has their id.
    """
    if desired.renewer == SELF_RENEWED:
        return []
    kept = {each.key for each in listed if each.owner not in owners or each.renewer == SELF_RENEWED}
    wanted = (each.instance for each in desired.registrations.values())
    return [instance for instance in wanted if instance.key not in kept]


def _read(peers: Peers, keys: Sequence[Key], renewed: Sequence[Instance]) -> UncachedReads:
    """Read ``keys`` past the servers' caches; read the ``renewed`` instances in batches if they are many."""
    if not renewed or not peers.uses_batches(len(renewed)):
        return read_everywhere(peers, keys)
    done = {each.key for each in renewed}
    left = [key for key in keys if key not in done]
    reads = renew_and_read(peers, renewed)
    return reads.joined(read_everywhere(peers, left)) if left else reads
