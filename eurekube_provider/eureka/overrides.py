"""Overrides that a person sets: instances out of service on every server, and back.

An override hides the status that the instance's owner registered, until it is cleared.
"""

from __future__ import annotations

import difflib
import itertools
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import RegistryError, RegistryRejected
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.registry_kinds import registry_kind_of_url
from eurekube_provider.core.text import describe_unaddressable_name
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.uncached_reads import (
    RefusalByKey,
    UncachedReads,
    read_everywhere,
    read_instances,
)
from eurekube_provider.eureka.writer import Writer

_READS_PER_CHUNK = 20


@dataclass(frozen=True, slots=True)
class StatusByServer:
    """The status of one instance, by every server's uncached read.

    :ivar statuses: by URL of each server that answered; None where the server does not hold the instance.
    :ivar failures: the servers that did not answer, by URL.
    """

    instance: Instance
    statuses: dict[str, Status | None]
    failures: dict[str, RegistryError]

    @property
    def urls_where_up(self) -> list[str]:
        """The servers that show the instance as UP, so that callers find it."""
        return [url for url, status in self.statuses.items() if status is Status.UP]


@dataclass(frozen=True, slots=True)
class NamedInstances:
    """The instances that a name on the command line stands for.

    :ivar registered: instances that a server holds, as they are now, or as listed if it does not answer.
    :ivar unreadable: instances that no request can name, or that a server refuses to show; as listed.
    :ivar only_listed: instances that a list shows as UP, and that no server holds by the later uncached read.
        What a younger list still shows is there, under whatever id.
    """

    registered: tuple[Instance, ...] = ()
    unreadable: tuple[Instance, ...] = ()
    only_listed: tuple[Instance, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.registered or self.unreadable or self.only_listed)

    def __iter__(self) -> Iterator[Instance]:
        """Yield all instances, in the order of their keys."""
        return iter(sorted((*self.registered, *self.unreadable, *self.only_listed), key=lambda one: one.key))

    def select(self, is_meant: Callable[[Instance], bool]) -> NamedInstances:
        """Return only the instances for which ``is_meant`` returns True."""
        return NamedInstances(
            *(tuple(filter(is_meant, some)) for some in (self.registered, self.unreadable, self.only_listed))
        )


def find_named_instances(peers: Peers, name_or_id: str) -> NamedInstances:
    """Find the instances of an application, in any case, or the one with this id, in whatever application.

    An application's instances are taken from a server's list, and each is then read: one that was registered
    within the last half a minute may be missing. An id is found at once.

    :raises RegistryRejected: there is no such application or id; the message names similar ones.
    :raises RegistryError: no server answers.
    """
    listed, _ = peers.list_everywhere()
    found = [one for one in listed if one.application == name_or_id.upper()]
    found = found or [one for one in listed if one.instance_id == name_or_id]
    named = read_listed_instances(peers, found)
    if not named and not describe_unaddressable_name(name_or_id):
        one = peers.find_by_id(name_or_id)
        named = NamedInstances((one,) if one is not None else ())
    if not named:
        applications = sorted({one.application for one in listed} - {name_or_id.upper()})
        near = difflib.get_close_matches(name_or_id.upper(), applications, n=1)
        near = near or difflib.get_close_matches(
            name_or_id, [one.instance_id for one in listed if one.instance_id != name_or_id], n=1
        )
        hint = f"did you mean {near[0]}?" if near else f"it holds {', '.join(applications) or 'nothing'}"
        kind = registry_kind_of_url(peers.peers[0].url)
        lag = " (what came within the last half a minute may not be listed yet, and is found by its id)"
        raise RegistryRejected(
            f"{kind.name} has neither an application nor an instance {name_or_id}; {hint}"
            f"{lag if kind.lists_lag else ''}"
        )
    return named


def read_listed_instances(peers: Peers, listed: Sequence[Instance]) -> NamedInstances:
    """Read listed instances past the servers' caches.

    :raises RegistryError: no server answers.
    """
    asked = [one for one in listed if can_be_named_in_url(one)]
    refused: RefusalByKey = {}
    reads = read_everywhere(peers, [one.key for one in asked], refused) if asked else UncachedReads({}, {})
    held: list[Instance] = []
    beyond = [one for one in listed if not can_be_named_in_url(one)]
    unseen: list[Instance] = []
    for one in asked:
        found = reads.newest(one.key)
        if found is None and one.key in refused:
            beyond.append(replace(one, unreadable=f"{refused[one.key]}"))
        elif found is not None or reads.failures:
            held.append(found or one)
        elif one.status is Status.UP:
            unseen.append(one)
    return NamedInstances(*(tuple(sorted(some, key=lambda one: one.key)) for some in (held, beyond, unseen)))


def can_be_named_in_url(instance: Instance) -> bool:
    """Return whether a request can name it: a server may let an id register that no URL can contain."""
    return not any(map(describe_unaddressable_name, instance.key))


def filter_still_listed(peers: Peers, instances: Iterable[Instance]) -> list[Instance]:
    """Return those of the instances that a server lists, unless its delta says that they were deregistered.

    :raises RegistryError: no server answers.
    """
    listed, _ = peers.list_everywhere()
    keys = {one.key for one in listed}
    deltas, _ = peers.ask_all(lambda peer: peer.read_delta_if_changed(b""))
    removed = (one[1].departed_keys for one in deltas.values() if one is not None and one[1] is not None)
    gone = set(itertools.chain.from_iterable(removed))
    return [one for one in instances if one.key in keys - gone]


def is_another_instance_up_everywhere(
    peers: Peers, application: str, besides: Container[InstanceKey]
) -> bool:
    """Return whether callers find another instance of the application on every server that answers.

    A server's list, perhaps half a minute old, names the others. Each is then read to see whether it is UP.

    :param besides: instances that do not count.
    :raises RegistryError: no server answers.
    """
    listed, _ = peers.list_everywhere()
    others = [
        one
        for one in listed
        if one.application == application and one.key not in besides and can_be_named_in_url(one)
    ]
    others.sort(key=lambda one: one.status is not Status.UP)  # it is soon found out where one is UP
    found_up: set[str] = set()
    for some in batch.chunks(others, _READS_PER_CHUNK):
        reads = read_everywhere(peers, [one.key for one in some], RefusalByKey())
        for url, held in reads.instances_by_url.items():
            if any(one is not None and one.status is Status.UP for one in held.values()):
                found_up.add(url)
        if found_up.issuperset(reads.instances_by_url):
            return True
    return False


def set_out_of_service(peers: Peers, instances: Sequence[Instance]) -> list[StatusByServer]:
    """Put each instance out of service on every server, and read the result.

    :raises RegistryError: no server can be asked.
    """
    for one in instances:
        Writer(peers).set_status_everywhere(one, Status.OUT_OF_SERVICE)
    return read_statuses(peers, instances)


def clear_overrides(
    peers: Peers, instances: Sequence[Instance], *, includes_registered_out_of_service: bool = False
) -> list[StatusByServer]:
    """Clear each instance's override on every server, and read the result.

    An instance that registered as DOWN meanwhile shows DOWN even over another override, and stays so; any
    other is UP at once, also where the override is DOWN: a server would keep that status for good. An
    instance that the operator itself put out of service for a drain is left alone.

    Servers tell each other of an override a moment later, and a busy one may tell of the override, or of the
    status that it gave, after it was cleared. So with several servers the override is read, and cleared
    again, until neither has come back for :data:`.windows.WRITE_REPLICATION_SECONDS`, for at most
    :data:`.windows.LONGEST_STATUS_POLL_SECONDS`.

    :param includes_registered_out_of_service: True to put into service also what registered itself as
        OUT_OF_SERVICE: an override UP is set, and cleared, if need be by the next call.
    :raises RegistryError: no server can be asked.
    """
    cleared = [
        one
        for one in instances
        if _clear_override(peers, one, includes_registered_out_of_service=includes_registered_out_of_service)
    ]
    now = time.monotonic()
    settled_at, end = now + windows.WRITE_REPLICATION_SECONDS, now + windows.LONGEST_STATUS_POLL_SECONDS
    while cleared and len(peers.peers) > 1 and now < min(settled_at, end):
        time.sleep(windows.STATUS_POLL_SECONDS)
        came_back = [one for one in cleared if _clear_override(peers, one, was_cleared_before=True)]
        now = time.monotonic()
        if came_back:
            settled_at = now + windows.WRITE_REPLICATION_SECONDS
    return read_statuses(peers, instances)


def _clear_override(
    peers: Peers,
    instance: Instance,
    *,
    was_cleared_before: bool = False,
    includes_registered_out_of_service: bool = False,
) -> bool:
    """Clear an instance's override on every server; return whether there was one.

    :param was_cleared_before: True if it was: OUT_OF_SERVICE without an override is its remainder.
    """
    held = [found for found in peers.read_everywhere(*instance.key)[0].values() if found]
    out = [
        one
        for one in held
        if one.is_overridden
        or (includes_registered_out_of_service and one.is_self_registered_out_of_service)
        or (was_cleared_before and one.status is Status.OUT_OF_SERVICE)
    ]
    if not out or any(found.is_leaving for found in held):
        return False
    # The one that holds when the override is gone, as far as that is known: not the override's own.
    hidden = {Status.OUT_OF_SERVICE, Status.UP, *(one.overridden_status for one in out)}
    said = (one.status for one in held if one.status not in hidden)
    Writer(peers).clear_status_everywhere(instance, out, next(said, Status.UP))
    return True


def read_statuses(peers: Peers, instances: Sequence[Instance]) -> list[StatusByServer]:
    """Read the status of each instance on every server. Raises nothing: failures are in the answer."""
    held, failures = peers.ask_all(lambda peer: read_instances(peer, [one.key for one in instances]))
    return [
        StatusByServer(
            one,
            {url: found.status if (found := there[one.key]) else None for url, there in held.items()},
            failures,
        )
        for one in instances
    ]


def unix_time_since_none_up(peers: Peers, instances: Sequence[Instance]) -> float | None:
    """Return the Unix time, by this machine's clock, since which none of the instances was UP anywhere.

    A server changes an instance's time with its status. An owner's update changes it as well, so that the
    answer may be later than the truth, and never earlier.

    :returns: None where one of them is UP, or a server does not say.
    """
    held, failures = peers.ask_all(
        lambda peer: ([peer.read(*one.key) for one in instances], peer.read_status().clock_ahead_seconds)
    )
    if failures:
        return None
    latest = 0.0
    for there, ahead in held.values():
        for one in there:
            if one is None:
                continue
            if one.status is Status.UP or one.last_updated_timestamp_ms is None or ahead is None:
                return None
            latest = max(latest, one.last_updated_timestamp_ms / 1000 - ahead)
    return min(latest, time.time()) or None
