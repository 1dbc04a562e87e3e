"""Many changes at once, in batches to every server.

Nothing in a batch is forwarded, and a register item answers 200 even when it was dropped. So every server is
written to, and asked afterwards; what is missing there is repaired by a plain request, whose answer tells.
One that did not answer in time lately is written to as well, though not waited for: nobody else tells it.
What it is told when nobody waits any more may be undone by then: of that it is told what still holds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from eurekube_provider.core.errors import LeadershipLost, RegistryError, RegistryUnreachable
from eurekube_provider.core.model import EMPTY, Instance, Key, Status, newest
from eurekube_provider.core.plan import ChangeError, same_contents
from eurekube_provider.eureka import rules
from eurekube_provider.eureka.observer import (
    Observer,
    is_owned,
    not_ours,
    now_ms,
    yielding_timestamp,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.uncached_reads import UncachedReads

_log = logging.getLogger(__name__)

T = TypeVar("T")
Owners = Mapping[Key, str | None]
Failures = dict[Key, ChangeError]

_CANCEL_ATTEMPTS = 3


def read_many(peer: Peer, instances: Sequence[Instance]) -> dict[Key, Instance | None]:
    """Read many instances from one server as it holds them now, past its caches, and renew them.

    Only for what is ours to renew: whatever else is read so lives for as long as it is looked at. Everybody
    else reads with :mod:`~eurekube_provider.eureka.uncached_reads`.
    """
    held: dict[Key, Instance | None] = {}
    for chunk in batch.chunks(instances):
        items = [batch.heartbeat(instance, batch.OLDEST_TIMESTAMP_MS) for instance in chunk]
        for instance, answer in zip(chunk, peer.batch(items), strict=True):
            if answer.status_code == 404:
                held[instance.key] = None
            else:
                # A server without this kind of answer (syncWhenTimestampDiffers off) is asked one by one.
                held[instance.key] = answer.instance or peer.read(*instance.key)
    return held


def renew_and_read(peers: Peers, instances: Sequence[Instance]) -> UncachedReads:
    """Read and renew many instances on every server.

    :raises RegistryError: no server answered.
    """
    return UncachedReads(*peers.everywhere(lambda peer: read_many(peer, instances)))


def change_many(
    peers: Peers,
    wanted: Sequence[Instance],
    leaving: Sequence[Instance],
    owners: Owners,
    observer: Observer | None,
) -> Failures:
    """Register or update ``wanted`` on every server, remove ``leaving``, and read what became of both.

    What may stand there is read first, with several servers also what was never seen: what another client
    registered at one of them a moment ago, or behind a split, gives way to nothing on those that it has not
    reached. What was never seen is registered so that it gives way to what may stand there after all, and
    what does stand there is read then.

    :param owners: on whose behalf, by key; no key is there twice.
    :returns: what was not done, and why.
    :raises LeadershipLost: ``peers`` may not write any more.
    :raises RegistryError: no server answered.
    """
    if not peers.may_write():  # what waited for its turn ends at once, and asks nothing
        raise LeadershipLost(f"{len(owners)} changes: not begun, since another replica may lead by now")
    new = {one.key for one in wanted if observer and observer.is_new(one.key)}
    are_several = len(peers.peers) > 1
    looked_at = [one for one in wanted if are_several or one.key not in new]
    reads = renew_and_read(peers, [*looked_at, *leaving]) if looked_at or leaving else UncachedReads({}, {})
    fresh = [one for one in wanted if one.key in new and reads.newest(one.key) is None]
    new = {one.key for one in fresh}
    known = [one for one in wanted if one.key not in new] if new else wanted
    going, failures = _ours_or_free(reads.newest, leaving, owners, observer)
    if wanted:
        replicas, conflicts = _replicas(reads, known, owners, observer)
        failures |= conflicts
        failures |= _register(peers, fresh, replicas, owners, observer, reads)
    there = [one for one in going if reads.newest(one.key) is not None]
    if there:
        failures |= _cancel(peers, there, observer)
    # A removal of what nobody holds could only hit whoever registers it at this moment.
    for one in going:
        if observer and reads.newest(one.key) is None:
            observer.leaving(one)
            observer.gone(one)
    return failures


def _register(
    peers: Peers,
    fresh: Sequence[Instance],
    replicas: Sequence[Instance],
    owners: Owners,
    observer: Observer | None,
    reads: UncachedReads,
) -> Failures:
    """Register what was never seen, giving way, and ``replicas`` where ``reads`` does not show them."""
    stamp = yielding_timestamp()
    yielding = [replace(one, last_dirty_timestamp_ms=stamp, unknown_fields=EMPTY) for one in fresh]
    is_told = threading.Event()
    failures, held = _send(
        peers, [*yielding, *replicas], observer, reads, is_told, shows_newer=bool(yielding)
    )
    ours, conflicts = _ours_or_free(held.get, yielding, owners, observer)
    failures |= conflicts
    # Ours, and not as wanted: to be written anew.
    wrong = {one.key for one in ours if one.key in held and held[one.key].last_dirty_timestamp_ms != stamp}
    done = [one for one in (*ours, *replicas) if one.key not in failures and one.key not in wrong]
    _tell_registered(observer, done)
    is_told.set()
    if wrong:
        anew = [one for one in fresh if one.key in wrong]
        seen = renew_and_read(peers, anew)
        again, conflicts = _replicas(seen, anew, owners, observer)
        failures |= conflicts | _register(peers, (), again, owners, observer, seen)
    return failures


def _replicas(
    reads: UncachedReads, instances: Sequence[Instance], owners: Owners, observer: Observer | None
) -> tuple[list[Instance], Failures]:
    """What every server shall hold of ``instances``, and an error for each that is somebody else's."""
    ours, failures = _ours_or_free(reads.newest, instances, owners, observer)
    replicas = []
    for want in ours:
        have = reads.newest(want.key)
        if observer is not None or have is None:
            lost = observer.lost_override(want.key) if observer else Status.UNKNOWN
            want = rules.wanted_over(want, have, lost)  # noqa: PLW2901 - planned for something else
        sent = rules.next_write(want, have, now_ms=now_ms())
        # A field that is unknown to a server has it refuse the whole batch.
        replicas.append(rules.overridden(replace(sent, unknown_fields=EMPTY)) if sent else have or want)
    return replicas, failures


def _send(
    peers: Peers,
    sent: Sequence[Instance],
    observer: Observer | None,
    reads: UncachedReads,
    is_told: threading.Event,
    *,
    shows_newer: bool = False,
) -> tuple[Failures, dict[Key, Instance]]:
    """Register on every server what was not seen to stand on all of them; see :func:`_register_on`.

    What is registered again as it stands begins a new Eureka lease, and travels to every client as a change.
    Where a server is silent everything is sent: the others may still tell each other of a removal.

    :param is_told: set when the observer was told: a server that others left behind gets what stands then.
    """

    def stands(one: Instance) -> bool:
        return all(_is_level(reads.by_url.get(peer.url, {}).get(one.key), one) for peer in peers.peers)

    def holds(one: Instance) -> bool:
        """Whether an instance was not removed since the observer was told."""
        return observer is None or not is_told.is_set() or observer.holds(one.key)

    lacking = [one for one in sent if not stands(one)]
    unanswered = peers.table.unanswered_many
    try:
        answers, _ = peers.everywhere(
            lambda peer: _register_on(peer, lacking, unanswered, holds, shows_newer=shows_newer),
            asks_avoided=True,
        )
    except LeadershipLost:
        # What was sent before this must not lapse; of the rest, the first renewal tells that it is missing.
        _tell_registered(observer, sent)
        raise
    refused: Failures = {}
    newer: dict[Key, Instance] = {}
    for failed, found in answers.values():
        refused.update(failed)
        for key, held in found.items():
            # A server that holds nothing else says that it holds what it was just sent.
            newer[key] = newest((newer.get(key), held)) or held
    return refused, newer


def _tell_registered(observer: Observer | None, instances: Sequence[Instance]) -> None:
    if observer:
        for instance in instances:
            observer.registered(instance)


def bring_level(peer: Peer, instances: Sequence[Instance]) -> None:
    """Have one server hold the instances as another one holds them, overridden statuses included."""
    for chunk in batch.chunks(instances):
        peer.batch([batch.register(instance) for instance in chunk])


def _cancel(peers: Peers, leaving: Sequence[Instance], observer: Observer | None) -> Failures:
    """Remove from every server, and read whether it is gone."""
    failures: Failures = {}
    for instance in leaving:
        if observer:
            observer.leaving(instance)
    is_told = threading.Event()

    def goes(one: Instance) -> bool:
        """Whether nothing has been registered in its place since the observer was told."""
        return observer is None or not is_told.is_set() or not observer.holds(one.key)

    left = leaving
    for _ in range(_CANCEL_ATTEMPTS):
        items = left
        held, silent = peers.everywhere(
            lambda peer: _cancel_on(peer, items, goes),  # noqa: B023 - used at once
            asks_avoided=True,
        )
        left = [instance for instance in left if any(instance.key in keys for keys in held.values())]
        if not left:
            break
    for instance in left:
        failures[instance.key] = RegistryUnreachable(
            f"deregister {instance.application} {instance.instance_id}: a server keeps holding it although it"
            " said that it removed it; somebody else may be registering it again"
        )
    for url, error in silent.items():
        _log.warning(
            "removals not checked: the server does not answer", extra={"url": url, "error": str(error)}
        )
    if observer:
        for instance in leaving:
            if instance.key not in failures:
                observer.gone(instance)
    is_told.set()
    return failures


def _ours_or_free(
    held: Callable[[Key], Instance | None],
    instances: Sequence[Instance],
    owners: Owners,
    observer: Observer | None,
) -> tuple[list[Instance], Failures]:
    """The instances that are ours or nobody's, and an error for each of the others.

    :param held: what stands there, by key.
    """
    ours: list[Instance] = []
    failures: Failures = {}
    for instance in instances:
        have = held(instance.key)
        if have is None or is_owned(have, owners[instance.key], observer):
            ours.append(instance)
            continue
        failures[instance.key] = not_ours(have, owners[instance.key])
        if observer:
            observer.found(have)
    return ours, failures


def _is_level(held: Instance | None, replica: Instance) -> bool:
    """Whether a server that holds ``held`` has nothing to learn from ``replica``."""
    return (
        held is not None
        and held.last_dirty_timestamp_ms == replica.last_dirty_timestamp_ms
        and held.status is replica.status
        and held.overridden_status is replica.overridden_status
        and same_contents(held, replica)
    )


def _chunks(instances: Sequence[Instance], is_due: Callable[[Instance], bool]) -> Iterator[list[Instance]]:
    """Half a batch at a time, since each item is read as well, without what is due no more at its turn."""
    for some in batch.chunks(instances, batch.MOST_ITEMS // 2):
        if chunk := [one for one in some if is_due(one)]:
            yield chunk


def _register_on(
    peer: Peer,
    instances: Sequence[Instance],
    unanswered: Callable[[Sequence[Instance]], None],
    holds: Callable[[Instance], bool],
    *,
    shows_newer: bool = False,
) -> tuple[dict[Key, RegistryError], dict[Key, Instance]]:
    """Register on one server; what a batch dropped is sent once more by itself, to hear why.

    :param unanswered: told of what was sent where no answer comes.
    :param holds: asked before each batch whether something is still to stand there.
    :param shows_newer: have the server say where it holds something newer.
    :returns: what it refused, and what it holds instead.
    """
    refused: dict[Key, RegistryError] = {}
    newer: dict[Key, Instance] = {}
    # A server takes the items of a batch in their order, so that one request registers and reads.
    for chunk in _chunks(instances, holds):
        reads_back = [batch.heartbeat(instance) for instance in chunk]
        if shows_newer:
            reads_back[0] = batch.heartbeat(chunk[0], batch.OLDEST_TIMESTAMP_MS)
        try:
            answers = peer.batch([*map(batch.register, chunk), *reads_back])[len(chunk) :]
        except RegistryUnreachable:
            unanswered(chunk)
            raise
        if shows_newer and answers[0].status_code != 404 and answers[0].instance is None:
            # A server that does not say what it holds (syncWhenTimestampDiffers off).
            held = read_many(peer, chunk)
            answers = [batch.ItemResponse(200 if held[one.key] else 404, held[one.key]) for one in chunk]
        for instance, answer in zip(chunk, answers, strict=True):
            if answer.status_code == 404:
                try:
                    peer.register(instance)
                except RegistryUnreachable:
                    raise
                except RegistryError as error:
                    refused[instance.key] = error
            elif answer.instance is not None:
                newer[instance.key] = answer.instance
    return refused, newer


def _cancel_on(peer: Peer, instances: Sequence[Instance], goes: Callable[[Instance], bool]) -> set[Key]:
    """Remove from one server, and read; what it holds all the same, and nobody else has registered since.

    A server takes the items of a batch in their order, so that one request removes and reads.

    :param goes: asked before each batch whether something is still to be removed.
    """
    held: set[Key] = set()
    for chunk in _chunks(instances, goes):
        reads_back = [batch.heartbeat(instance, batch.OLDEST_TIMESTAMP_MS) for instance in chunk]
        answers = peer.batch([*map(batch.cancel, chunk), *reads_back])[len(chunk) :]
        for instance, answer in zip(chunk, answers, strict=True):
            found = None if answer.status_code == 404 else answer.instance or peer.read(*instance.key)
            if found is not None and rules.came_back(found, instance):
                held.add(instance.key)
    return held
