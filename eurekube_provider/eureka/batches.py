"""Many changes at once, in batches to every server, by the rules of :mod:`.writer`.

A server forwards nothing of a batch, and answers 200 for a register item even when it dropped it. So each
batch goes to every server, which is then asked for the result; a missing instance is registered by a plain
request, whose answer gives the reason. A server that did not answer in time lately gets the batch as well,
but is not waited for: no other server would tell it. By the time it takes the batch, a change may have been
undone: it gets only the changes that still hold.

A server handles the items of a batch in their order, so that a read after a write costs no request of its
own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from eurekube_provider.core.errors import (
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.model import EMPTY, Instance, Key, newest, same_contents
from eurekube_provider.core.plan import Action, ChangeError
from eurekube_provider.eureka import rules
from eurekube_provider.eureka.notes import Notes, Order, now_ms, yielding_timestamp
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.successors import held_back_by_application, refusal
from eurekube_provider.eureka.uncached_reads import UncachedReads

_log = logging.getLogger(__name__)

Failures = dict[Key, ChangeError]
Held = Mapping[Key, Instance | None]

_CANCEL_ATTEMPTS = 3


def read_many(peers: Peers, peer: Peer, instances: Sequence[Instance]) -> dict[Key, Instance | None]:
    """Read many instances from one server as it holds them now, past its caches, which also renews them.

    Only for instances that this process renews: any other would live on for as long as it is read. All other
    code reads with :mod:`~eurekube_provider.eureka.uncached_reads`.
    """
    held: dict[Key, Instance | None] = {}
    for chunk in batch.chunks(instances):
        items = [batch.heartbeat(instance, batch.OLDEST_TIMESTAMP_MS) for instance in chunk]
        for instance, answer in zip(chunk, peers.batch(peer, items), strict=True):
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
    return UncachedReads(*peers.everywhere(lambda peer: read_many(peers, peer, instances)))


def copy_to(peer: Peer, instances: Sequence[Instance]) -> None:
    """Register instances at one server as another server holds them, overridden statuses included."""
    for chunk in batch.chunks(instances):
        peer.batch([batch.register(instance) for instance in chunk])


def change_many(peers: Peers, notes: Notes, orders: Sequence[Order]) -> Failures:
    """Register, update or remove instances on every server, and read the result.

    Instances that may exist already are read first. With several servers the ones that were never seen are
    read, too: another client may have registered one at a single server a moment ago, or behind a network
    split, where the other servers do not know it. An instance that was never seen, or was written a moment
    ago, is registered with a timestamp that gives way to a version that exists after all, and that version is
    then read.

    :param orders: no two of them have the same key.
    :returns: the failed changes, and why.
    :raises LeadershipLost: ``peers`` may not write any more.
    :raises RegistryError: no server answered.
    """
    if not peers.may_write():  # what waited for its turn ends at once, and asks nothing
        raise LeadershipLost(f"{len(orders)} changes: not begun, since another replica may lead by now")
    leaving = [order for order in orders if order.change.action is Action.DEREGISTER]
    wanted = [order for order in orders if order.change.action is not Action.DEREGISTER]
    over = _giving_way(notes, wanted)
    new = {order.key for order in wanted if order.key not in over and notes.is_new(order.key)}
    are_several = len(peers.peers) > 1
    looked_at = [
        order.change.instance
        for order in orders
        if order.key not in over and (are_several or order.key not in new)
    ]
    reads = renew_and_read(peers, looked_at) if looked_at else UncachedReads({}, {})
    held = {order.key: reads.newest(order.key) for order in orders}
    failures = _conflicts(notes, orders, held)
    stamp = yielding_timestamp()
    yielding = over | {
        order.key: replace(order.change.instance, last_dirty_timestamp_ms=stamp, unknown_fields=EMPTY)
        for order in wanted
        if order.key in new and held[order.key] is None
    }
    known = [order for order in wanted if order.key not in yielding and order.key not in failures]
    if wanted:
        given_way = [order for order in wanted if order.key in yielding]
        replicas = _replicas(notes, known, held)
        failures |= _register(peers, notes, given_way, yielding, replicas, reads)
    going = [order.change.instance for order in leaving if order.key not in failures]
    there = [one for one in going if held[one.key] is not None]
    if there:
        failures |= _cancel(peers, notes, there)
    for one in going:
        if held[one.key] is None:  # a removal could only hit anyone who registers it at this moment
            notes.leaving(one)
            notes.gone(one)
    return failures


def _giving_way(notes: Notes, orders: Sequence[Order]) -> dict[Key, Instance]:
    """Return the updates of instances that are known well enough, each newer than the known one by a
    millisecond.
    """
    sent: dict[Key, Instance] = {}
    for order in orders:
        have = notes.known_under(order)
        if have is not None:
            update = rules.next_write(notes.wanted_over(order.change.instance, have), have, now_ms=0)
            if update is not None:
                sent[order.key] = replace(update, unknown_fields=EMPTY)
    return sent


def _conflicts(notes: Notes, orders: Sequence[Order], held: Held) -> Failures:
    """Return an error for each order whose instance belongs to another owner."""
    found: Failures = {}
    for order in orders:
        try:
            notes.require_ours(held.get(order.key), order)
        except OwnershipConflict as conflict:
            found[order.key] = conflict
    return found


def _replicas(notes: Notes, orders: Sequence[Order], held: Held) -> list[Instance]:
    """Return the instances as every server must hold them."""
    replicas = []
    for order in orders:
        have = held[order.key]
        want = notes.wanted_over(order.change.instance, have)
        sent = rules.next_write(want, have, now_ms=now_ms())
        # A field that is unknown to a server has it refuse the whole batch.
        replicas.append(rules.overridden(replace(sent, unknown_fields=EMPTY)) if sent else have or want)
    return replicas


def _register(
    peers: Peers,
    notes: Notes,
    orders: Sequence[Order],
    yielding: Mapping[Key, Instance],
    replicas: Sequence[Instance],
    reads: UncachedReads,
) -> Failures:
    """Register the instances that give way to newer ones, and ``replicas`` where ``reads`` does not show
    them.

    :param orders: the orders of the instances that give way.
    """
    sent = [*yielding.values(), *replicas]
    is_noted = threading.Event()
    failures, held = _send(peers, notes, sent, reads, is_noted, shows_newer=bool(yielding))
    failures |= _conflicts(notes, orders, held)
    # Ours, and not as wanted: to be written again.
    wrong = [
        order
        for order in orders
        if order.key not in failures and order.key in held
        if held[order.key].last_dirty_timestamp_ms != yielding[order.key].last_dirty_timestamp_ms
    ]
    unsettled = failures.keys() | {order.key for order in wrong}
    for one in sent:
        if one.key not in unsettled:
            # As a server says: a person may have set a status over it meanwhile.
            notes.registered(held[one.key] if one.key in yielding and one.key in held else one)
    is_noted.set()
    if wrong:
        failures |= _register(peers, notes, (), {}, _replicas(notes, wrong, held), UncachedReads({}, {}))
    return failures


def _send(
    peers: Peers,
    notes: Notes,
    sent: Sequence[Instance],
    reads: UncachedReads,
    is_noted: threading.Event,
    *,
    shows_newer: bool,
) -> tuple[Failures, dict[Key, Instance]]:
    """Register on every server the instances that were not seen on all of them.

    A repeated registration of an unchanged instance would begin a new Eureka lease and travel to every client
    as a change. Where a server is silent everything is sent: the others may still tell each other of a
    removal.

    :param is_noted: set once the registrations are noted: a server that answers later gets only instances
        that are still to stand.
    :returns: the refused changes, and the instances that servers hold instead.
    """

    def stands(one: Instance) -> bool:
        return all(_is_level(reads.by_url.get(peer.url, {}).get(one.key), one) for peer in peers.peers)

    def is_due(one: Instance) -> bool:
        return not is_noted.is_set() or notes.table.holds(one.key)

    lacking = [one for one in sent if not stands(one)]
    try:
        answers, _ = peers.everywhere(
            lambda peer: _register_on(peers, peer, notes, lacking, is_due, shows_newer=shows_newer),
            asks_avoided=True,
        )
    except LeadershipLost:
        # What was sent before this must not lapse; of the rest, the first renewal tells that it is missing.
        for one in sent:
            notes.registered(one)
        raise
    refused: Failures = {}
    newer: dict[Key, Instance] = {}
    for failed, found in answers.values():
        refused.update(failed)
        for key, held in found.items():
            # A server that holds nothing else says that it holds what it was just sent.
            newer[key] = newest((newer.get(key), held)) or held
    return refused, newer


def _register_on(
    peers: Peers,
    peer: Peer,
    notes: Notes,
    instances: Sequence[Instance],
    is_due: Callable[[Instance], bool],
    *,
    shows_newer: bool,
) -> tuple[dict[Key, RegistryError], dict[Key, Instance]]:
    """Register on one server; repeat by a plain request what a batch dropped, to get the reason.

    :param is_due: asked before each batch whether an instance is still to be registered.
    :param shows_newer: True to have the server say where it holds a newer instance.
    :returns: the refused changes, and the instances that the server holds instead.
    """
    refused: dict[Key, RegistryError] = {}
    newer: dict[Key, Instance] = {}
    for chunk in _chunks(instances, is_due):
        reads_back = [batch.heartbeat(instance) for instance in chunk]
        if shows_newer:
            reads_back[0] = batch.heartbeat(chunk[0], batch.OLDEST_TIMESTAMP_MS)
        try:
            answers = peers.batch(peer, [*map(batch.register, chunk), *reads_back])[len(chunk) :]
        except RegistryUnreachable:
            notes.table.unanswered_many(chunk)
            raise
        notes.table.took(peer.url, chunk)
        notes.sent(peer.url, len(chunk))
        if shows_newer and answers[0].status_code != 404 and answers[0].instance is None:
            # A server that does not say what it holds (syncWhenTimestampDiffers off).
            held = read_many(peers, peer, chunk)
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


def _cancel(peers: Peers, notes: Notes, leaving: Sequence[Instance]) -> Failures:
    """Remove instances from every server, and read whether they are gone; return the failures."""
    stays = held_back_by_application(peers, notes.table, leaving)
    for instance in leaving:
        notes.leaving(instance)
    is_noted = threading.Event()

    def is_due(one: Instance) -> bool:
        return not is_noted.is_set() or not notes.table.holds(one.key)

    def at(peer: Peer, items: Sequence[Instance]) -> list[Instance]:
        """Return the instances to remove from a server, without those that it must keep since it holds no
        successor of them.

        A server that only gave no answer when it was asked for successors gets the removal.
        """
        said = {name: held.get(peer.url) for name, held in stays.items()}
        return [one for one in items if isinstance(said.get(one.application), RegistryUnreachable | None)]

    left = leaving
    for _ in range(_CANCEL_ATTEMPTS):
        items = left
        held, silent = peers.everywhere(
            lambda peer: _cancel_on(peers, peer, notes, at(peer, items), is_due),  # noqa: B023 - used at once
            asks_avoided=True,
        )
        left = [instance for instance in left if any(instance.key in keys for keys in held.values())]
        if not left:
            break
    for url, error in silent.items():
        _log.warning(
            "failed to verify removals, retrying: the Eureka server does not answer",
            extra={"url": url, "error": str(error)},
        )
    failures: Failures = {
        one.key: RegistryUnreachable(
            f"deregister {one.application} {one.instance_id}: a server keeps holding it although it said that"
            " it removed it; somebody else may be registering it again"
        )
        for one in left
    }
    for one in leaving:
        stays_at = refusal(stays.get(one.application, {}))
        if stays_at is not None:
            failures[one.key] = stays_at
    for instance in leaving:
        if instance.key not in failures:
            notes.gone(instance, is_read_back=len(peers.peers) == 1)
    is_noted.set()
    return failures


def _cancel_on(
    peers: Peers,
    peer: Peer,
    notes: Notes,
    instances: Sequence[Instance],
    is_due: Callable[[Instance], bool],
) -> set[Key]:
    """Remove instances from one server; return those that it still holds and that nobody registered again.

    :param is_due: asked before each batch whether an instance is still to be removed.
    """
    held: set[Key] = set()
    for chunk in _chunks(instances, is_due):
        reads_back = [batch.heartbeat(instance, batch.OLDEST_TIMESTAMP_MS) for instance in chunk]
        answers = peers.batch(peer, [*map(batch.cancel, chunk), *reads_back])[len(chunk) :]
        notes.sent(peer.url, len(chunk))
        for instance, answer in zip(chunk, answers, strict=True):
            found = None if answer.status_code == 404 else answer.instance or peer.read(*instance.key)
            if found is not None and rules.came_back(found, instance):
                held.add(instance.key)
    return held


def _is_level(held: Instance | None, replica: Instance) -> bool:
    """Return whether a server that holds ``held`` need not be sent ``replica``."""
    return (
        held is not None
        and held.last_dirty_timestamp_ms == replica.last_dirty_timestamp_ms
        and held.status is replica.status
        and held.overridden_status is replica.overridden_status
        and same_contents(held, replica)
    )


def _chunks(instances: Sequence[Instance], is_due: Callable[[Instance], bool]) -> Iterator[list[Instance]]:
    """Yield half batches, since each item is also read, without instances that are no longer due when
    their turn comes.
    """
    for some in batch.chunks(instances, batch.MOST_ITEMS // 2):
        if chunk := [one for one in some if is_due(one)]:
            yield chunk
