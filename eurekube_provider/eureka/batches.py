"""Many changes at once, in batches to every server, by the rules of :mod:`.writer`.

A server forwards nothing of a batch, and answers 200 for a register item even when it dropped it. So each
batch goes to every server, which is then asked for the result; a missing instance is registered by a plain
request, whose answer gives the reason. A server that did not answer in time lately gets the batch as well,
but is not waited for: no other server would tell it. By the time it takes the batch, a change may have been
undone: it gets only the changes that still hold.

A server handles the items of a batch in their order, so that a read after a write costs no request of its
own. Nor does the read before the removal of a terminated pod's instance, which was renewed a moment ago: it
goes in the same request, and what it shows of another owner is registered again as it was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from eurekube_provider.core.errors import (
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.model import (
    EMPTY_MAPPING,
    Instance,
    InstanceKey,
    newest,
)
from eurekube_provider.core.plan import Action, ChangeError, FailedChange, removals_that_wait
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.notes import ChangeOrder, WriteNotes, timestamp_ms_giving_way, unix_now_ms
from eurekube_provider.eureka.peers import Peers, still_held_error
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.successors import blocking_error, ensure_successors_by_application
from eurekube_provider.eureka.uncached_reads import UncachedReads

_log = logging.getLogger(__name__)

ErrorByKey = dict[InstanceKey, ChangeError]
InstanceByKey = Mapping[InstanceKey, Instance | None]

_BATCH_REMOVAL_ATTEMPTS = 3


def read_and_renew_at(
    peers: Peers,
    peer: Peer,
    instances: Sequence[Instance],
    known: Sequence[Instance] = (),
) -> dict[InstanceKey, Instance | None]:
    """Read many instances from one server as it holds them now, past its caches, which also renews them.

    Only for instances that this process renews: any other would live on for as long as it is read. All other
    code reads with :mod:`~eurekube_provider.eureka.uncached_reads`.

    :param known: those of ``instances`` of which only the version is read, so that the server need not write
        them out: what is there in this version is returned as it is here, whatever status a person set.
    """
    held: dict[InstanceKey, Instance | None] = {}
    versions = {one.key for one in known} if peers.tells_versions(peer) else frozenset[InstanceKey]()
    unclear: list[Instance] = []
    for chunk in batch.chunks(instances):
        answers = peers.send_batch(peer, partial(_read_items, chunk, versions), len(chunk))
        for instance, answer in zip(chunk, answers, strict=True):
            if answer.instance is not None:
                peers.note_version_told(peer)
                held[instance.key] = answer.instance
            elif answer.status_code == 404 and instance.key in versions:
                unclear.append(instance)  # it may be there in an older version
            elif answer.status_code == 404:
                held[instance.key] = None
            elif answer.status_code == 200 and instance.key in versions:
                held[instance.key] = instance
            else:
                # A server without this kind of answer (syncWhenTimestampDiffers off) is asked one by one.
                held[instance.key] = peer.read(*instance.key)
    return held | read_and_renew_at(peers, peer, unclear) if unclear else held


def _read_items(instances: Iterable[Instance], versions: Set[InstanceKey] = frozenset()) -> list[bytes]:
    """Return the items that read instances; of those in ``versions`` only whether the version is the same."""
    return [
        batch.heartbeat_item(one, None if one.key in versions else batch.READ_BY_HEARTBEAT_TIMESTAMP_MS)
        for one in instances
    ]


def read_and_renew_everywhere(
    peers: Peers, instances: Sequence[Instance], known: Sequence[Instance] = ()
) -> UncachedReads:
    """Read and renew many instances on every server; see :func:`read_and_renew_at`.

    :raises RegistryError: no server answered.
    """
    return UncachedReads(
        *peers.ask_all_or_raise(lambda peer: read_and_renew_at(peers, peer, instances, known))
    )


def register_copies_at(peer: Peer, instances: Sequence[Instance]) -> None:
    """Register instances at one server as another server holds them, overridden statuses included."""
    for chunk in batch.chunks(instances):
        peer.send_batch([batch.registration_item(instance) for instance in chunk])


def apply_orders_in_batches(peers: Peers, notes: WriteNotes, orders: Sequence[ChangeOrder]) -> ErrorByKey:
    """Register, update or remove instances on every server, and read the result.

    Instances that may exist already are read first. An instance that was never seen, or was written a moment
    ago, is registered with a timestamp that gives way to a version that exists after all, and that version is
    then read. With several servers the first gives way to versions of any age: another client may have
    registered one at a single server, behind a network split, where the other servers do not know it.

    Servers are not asked first for the instances of terminated pods that all of them have just renewed.

    :param orders: no two of them have the same key.
    :returns: the failed changes, and why.
    :raises LeadershipLost: ``peers`` may not write any more.
    :raises RegistryError: no server answered.
    """
    if not peers.may_write():  # what waited for its turn ends at once, and asks nothing
        raise LeadershipLost(f"{len(orders)} changes: not begun, since another replica may lead by now")
    leaving = [order for order in orders if order.change.action is Action.DEREGISTER]
    wanted = [order for order in orders if order.change.action is not Action.DEREGISTER]
    over = _registrations_needing_no_read(peers, notes, wanted)
    new = {order.key for order in wanted if order.key not in over and notes.is_key_unused(order.key)}
    unread: dict[InstanceKey, ChangeOrder] = {}
    if all(map(peers.tells_versions, peers.peers)):
        unread = {order.key: order for order in leaving if notes.can_remove_unread(order)}
    known_keys = over.keys() | new | unread.keys()
    read = [one.change.instance for one in orders if one.key not in known_keys]
    known = [
        one.change.instance for one in leaving if one.change.instance.last_dirty_timestamp_ms is not None
    ]
    reads = UncachedReads({}, {})
    if read:
        reads = read_and_renew_everywhere(peers, read, known)
    held = {order.key: reads.newest(order.key) for order in orders}
    held |= {key: order.change.instance for key, order in unread.items()}
    failures = _ownership_conflicts(notes, wanted, held)
    for order in leaving:
        try:
            notes.require_removable(reads.held_by_url(order.key).values(), order)
        except OwnershipConflict as conflict:
            failures[order.key] = conflict
    are_several = len(peers.peers) > 1
    age = windows.OLDER_THAN_ANY_REGISTRATION_SECONDS if are_several else windows.LONGEST_LIST_LAG_SECONDS
    yielding = over | _registrations_giving_way([order for order in wanted if order.key in new], age)
    if wanted:
        given_way = [order for order in wanted if order.key in yielding]
        others = [order for order in wanted if order.key not in yielding and order.key not in failures]
        replicas = _replicas_to_send(notes, others, held)
        are_all_new = yielding.keys() <= new
        refused, silent = _register_everywhere(
            peers, notes, given_way, yielding, replicas, reads, are_all_new=are_all_new
        )
        failures |= refused
        again = [order for order in wanted if order.key in new and order.key not in failures]
        if silent and again:
            # A server that does not answer may hold a former version of ours, which must not win later.
            yielding = _registrations_giving_way(again, windows.LONGEST_LIST_LAG_SECONDS)
            failures |= _register_everywhere(
                peers, notes, again, yielding, (), UncachedReads({}, {}), are_all_new=True
            )[0]
    failed = [FailedChange(order.change, failures[order.key]) for order in wanted if order.key in failures]
    waiting = removals_that_wait(failed, [order.change for order in leaving])
    failures |= {one.change.instance.key: one.error for one in waiting}
    strange = next((one.error for one in failed if isinstance(one.error, RegistryUnreachable)), None)
    if strange is not None:
        failures |= {order.key: strange for order in leaving}
    going = [order.change.instance for order in leaving if order.key not in failures]
    there = [one for one in going if held[one.key] is not None]
    if there:
        failures |= _remove_everywhere(peers, notes, there, unread)
    for one in going:
        if held[one.key] is None:  # a removal could only hit anyone who registers it at this moment
            notes.note_removal_begins(one)
            notes.note_removed(one)
    return failures


def _registrations_giving_way(
    orders: Sequence[ChangeOrder], age_seconds: float
) -> dict[InstanceKey, Instance]:
    """Return, by key, the registrations that give way to versions of less than ``age_seconds``."""
    stamp = timestamp_ms_giving_way(age_seconds)
    return {
        order.key: replace(order.change.instance, last_dirty_timestamp_ms=stamp, unknown_fields=EMPTY_MAPPING)
        for order in orders
    }


def _registrations_needing_no_read(
    peers: Peers, notes: WriteNotes, orders: Sequence[ChangeOrder]
) -> dict[InstanceKey, Instance]:
    """Return, by key, the registrations of instances that are known well enough to need no read.

    An update is newer than the known instance by a millisecond. What the only server forgot is as old as it
    was; of several servers another one may hold it.
    """
    sent: dict[InstanceKey, Instance] = {}
    lost = _versions_lost_by_only_server(notes, orders) if len(peers.peers) == 1 else {}
    for order in orders:
        have = lost.get(order.key) or notes.registered_instance_if_certain(order)
        if have is not None:
            update = rules.registration_to_send(
                notes.adapt_to_registered(order.change.instance, have), have, now_ms=0
            )
            if update is not None or order.key in lost:
                sent[order.key] = replace(update or have, unknown_fields=EMPTY_MAPPING)
    return sent


def _versions_lost_by_only_server(
    notes: WriteNotes, orders: Sequence[ChangeOrder]
) -> dict[InstanceKey, Instance]:
    """Return, by key, the versions that are registered again without a read, see
    :func:`.rules.lost_version_if_certain`.
    """
    owners = {order.owner for order in orders if order.change.action is Action.REGISTER}
    return {
        one.key: certain
        for owner in owners
        for one in notes.table.instances_lost_by_registry(owner)
        if (certain := rules.lost_version_if_certain(notes.table.copy_record(one.key), owner)) is not None
    }


def _ownership_conflicts(notes: WriteNotes, orders: Sequence[ChangeOrder], held: InstanceByKey) -> ErrorByKey:
    found: ErrorByKey = {}
    for order in orders:
        try:
            notes.require_ownership(held.get(order.key), order)
        except OwnershipConflict as conflict:
            found[order.key] = conflict
    return found


def _replicas_to_send(
    notes: WriteNotes, orders: Sequence[ChangeOrder], held: InstanceByKey
) -> list[Instance]:
    """Return, for each order, the instance as every server must hold it."""
    replicas = []
    for order in orders:
        have = held[order.key]
        want = notes.adapt_to_registered(order.change.instance, have)
        sent = rules.registration_to_send(want, have, now_ms=unix_now_ms())
        if sent is not None and sent.unknown_fields:
            # A field that is unknown to a server has it refuse the whole batch.
            sent = replace(sent, unknown_fields=EMPTY_MAPPING)
        replicas.append(rules.apply_override(sent) if sent is not None else have or want)
    return replicas


def _register_everywhere(
    peers: Peers,
    notes: WriteNotes,
    orders: Sequence[ChangeOrder],
    yielding: Mapping[InstanceKey, Instance],
    replicas: Sequence[Instance],
    reads: UncachedReads,
    *,
    are_all_new: bool = False,
) -> tuple[ErrorByKey, dict[str, RegistryError]]:
    """Register the instances that give way to newer ones, and ``replicas`` where ``reads`` does not show
    them.

    :param orders: the orders of the instances that give way.
    :param are_all_new: True if the ids of all that give way were never seen, so that no person set a status
        under them.
    :returns: the failed changes, and by URL the servers that did not answer.
    """
    sent = [*yielding.values(), *replicas]
    is_noted = threading.Event()

    def must_be_read_at(peer: Peer) -> bool:
        return bool(yielding) and not (are_all_new and peers.tells_versions(peer))

    failures, held, silent = _send_where_missing(peers, notes, sent, reads, is_noted, must_be_read_at)
    failures |= _ownership_conflicts(notes, orders, held)
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
            notes.note_registered(held[one.key] if one.key in yielding and one.key in held else one)
    is_noted.set()
    if wrong:
        replicas = _replicas_to_send(notes, wrong, held)
        failures |= _register_everywhere(peers, notes, (), {}, replicas, UncachedReads({}, {}))[0]
    return failures, silent


def _send_where_missing(
    peers: Peers,
    notes: WriteNotes,
    sent: Sequence[Instance],
    reads: UncachedReads,
    is_noted: threading.Event,
    must_be_read_at: Callable[[Peer], bool],
) -> tuple[ErrorByKey, dict[InstanceKey, Instance], dict[str, RegistryError]]:
    """Register on every server the instances that were not seen on all of them.

    A repeated registration of an unchanged instance would begin a new Eureka lease and travel to every client
    as a change. Where a server is silent everything is sent: the others may still tell each other of a
    removal.

    :param is_noted: set once the registrations are noted: a server that answers later gets only instances
        that are still to stand.
    :param must_be_read_at: returns whether a server must say what it holds, not only by its answer's code.
    :returns: the refused changes, the instances that servers hold instead, and by URL the servers that did
        not answer.
    """

    def is_everywhere(one: Instance) -> bool:
        held = (reads.instances_by_url.get(peer.url, {}).get(one.key) for peer in peers.peers)
        return all(there is not None and rules.is_same_version(there, one) for there in held)

    def is_due(one: Instance) -> bool:
        return not is_noted.is_set() or notes.table.has_instance(one.key)

    lacking = [one for one in sent if not is_everywhere(one)]
    try:
        answers, silent = peers.ask_all_or_raise(
            lambda peer: _register_at(
                peers, peer, notes, lacking, is_due, asks_for_newer=must_be_read_at(peer)
            ),
            asks_avoided=True,
        )
    except LeadershipLost:
        # What was sent before this must not lapse; of the rest, the first renewal tells that it is missing.
        for one in sent:
            notes.note_registered(one)
        raise
    refused: ErrorByKey = {}
    newer: dict[InstanceKey, Instance] = {}
    for failed, found in answers.values():
        refused.update(failed)
        for key, held in found.items():
            # A server that holds nothing else says that it holds what it was just sent.
            newer[key] = newest((newer.get(key), held)) or held
    return refused, newer, silent


def _register_at(
    peers: Peers,
    peer: Peer,
    notes: WriteNotes,
    instances: Sequence[Instance],
    is_due: Callable[[Instance], bool],
    *,
    asks_for_newer: bool,
) -> tuple[dict[InstanceKey, RegistryError], dict[InstanceKey, Instance]]:
    """Register on one server; repeat by a plain request what a batch dropped, to get the reason.

    :param is_due: asked before each batch whether an instance is still to be registered.
    :param asks_for_newer: True to have the server say where it holds a newer instance.
    :returns: the refused changes, and the instances that the server holds instead.
    """
    refused: dict[InstanceKey, RegistryError] = {}
    newer: dict[InstanceKey, Instance] = {}

    def items_of(chunk: Sequence[Instance]) -> list[bytes]:
        reads_back = [batch.heartbeat_item(instance) for instance in chunk]
        if asks_for_newer:
            reads_back[0] = batch.heartbeat_item(chunk[0], batch.READ_BY_HEARTBEAT_TIMESTAMP_MS)
        return [*map(batch.registration_item, chunk), *reads_back]

    for some in batch.chunks(instances, batch.MOST_ITEMS_PER_BATCH // 2):
        due = _DueItems(some, is_due, items_of)
        try:
            answers = due.send(peers, peer)
        except RegistryUnreachable:
            notes.table.remember_unanswered_registrations(due.sent)
            raise
        chunk = due.sent
        answers = answers[len(chunk) :]
        if not chunk:
            continue
        notes.table.note_registered_at(peer.url, chunk)
        notes.sent(peer.url, len(chunk))
        if asks_for_newer and answers[0].instance is not None:
            peers.note_version_told(peer)
        if asks_for_newer and answers[0].status_code != 404 and answers[0].instance is None:
            # A server that does not say what it holds (syncWhenTimestampDiffers off).
            held = read_and_renew_at(peers, peer, chunk)
            answers = [batch.ItemResponse(200 if held[one.key] else 404, held[one.key]) for one in chunk]
        for instance, answer in zip(chunk, answers, strict=True):
            if answer.status_code == 404:
                try:
                    peer.register(instance)
                except RegistryError as error:
                    if isinstance(error, RegistryUnreachable) and error.status_code is None:
                        raise
                    refused[instance.key] = error
            elif answer.instance is not None:
                newer[instance.key] = answer.instance
    return refused, newer


def _remove_everywhere(
    peers: Peers, notes: WriteNotes, leaving: Sequence[Instance], unread: Mapping[InstanceKey, ChangeOrder]
) -> ErrorByKey:
    """Remove instances from every server, and read whether they are gone; return the failures.

    :param unread: by key, the orders of those that were not read before.
    """
    blocked_by_application = ensure_successors_by_application(peers, notes.table, leaving)
    for instance in leaving:
        notes.note_removal_begins(instance)
    is_noted = threading.Event()

    def is_due(one: Instance) -> bool:
        return not is_noted.is_set() or not notes.table.has_instance(one.key)

    def removable_at(peer: Peer, items: Sequence[Instance]) -> list[Instance]:
        """Return the instances to remove from a server, without those that it must keep since it holds no
        successor of them.

        A server that only gave no answer when it was asked for successors gets the removal.
        """
        said = {name: held.get(peer.url) for name, held in blocked_by_application.items()}
        return [one for one in items if isinstance(said.get(one.application), RegistryUnreachable | None)]

    left = leaving
    conflicts: ErrorByKey = {}
    for _ in range(_BATCH_REMOVAL_ATTEMPTS):
        items = left
        answers, silent = peers.ask_all_or_raise(
            lambda peer: _remove_at(peers, peer, notes, removable_at(peer, items), is_due, unread),  # noqa: B023 - used at once
            asks_avoided=True,
        )
        for _, refused in answers.values():
            conflicts |= refused
        left = [one for one in left if any(one.key in kept for kept, _ in answers.values())]
        if not left:
            break
    for url, error in silent.items():
        _log.warning(
            "failed to verify removals at a Eureka server, which may show the instances until a later check",
            extra={"url": url, "error": str(error)},
        )
    failures = conflicts | {one.key: still_held_error(peers, one) for one in left}
    for one in leaving:
        stays_at = blocking_error(blocked_by_application.get(one.application, {}))
        if stays_at is not None:
            failures[one.key] = stays_at
    for instance in leaving:
        if instance.key not in failures:
            notes.note_removed(instance, is_confirmed_gone=len(peers.peers) == 1)
    is_noted.set()
    return failures


def _remove_at(
    peers: Peers,
    peer: Peer,
    notes: WriteNotes,
    instances: Sequence[Instance],
    is_due: Callable[[Instance], bool],
    unread: Mapping[InstanceKey, ChangeOrder],
) -> tuple[set[InstanceKey], ErrorByKey]:
    """Remove instances from one server.

    :param is_due: asked before each batch whether an instance is still to be removed.
    :param unread: by key, the orders of those that are read in the same request, before their removal.
    :returns: those that the server still holds and that nobody registered again; and the errors of those that
        turned out to be another owner's, and were put back.
    """
    kept: set[InstanceKey] = set()
    conflicts: ErrorByKey = {}
    items_per_instance = 3 if unread else 2

    def items_of(chunk: Sequence[Instance]) -> list[bytes]:
        reads_before = _read_items([one for one in chunk if one.key in unread])
        return [*reads_before, *map(batch.cancellation_item, chunk), *_read_items(chunk)]

    for some in batch.chunks(instances, batch.MOST_ITEMS_PER_BATCH // items_per_instance):
        due = _DueItems(some, is_due, items_of, items_per_instance)
        answers = due.send(peers, peer)
        notes.sent(peer.url, len(due.sent))
        read_before = [one for one in due.sent if one.key in unread]
        found_before = [answer.instance for answer in answers[: len(read_before)]]
        conflicts |= _put_back_others(peer, notes, [unread[one.key] for one in read_before], found_before)
        if any(found_before):
            peers.note_version_told(peer)
        for instance, answer in zip(due.sent, answers[-len(due.sent) :], strict=True):
            found = None if answer.status_code == 404 else answer.instance or peer.read(*instance.key)
            if found is not None and rules.is_same_registration(found, instance):
                kept.add(instance.key)
    return kept, conflicts


def _put_back_others(
    peer: Peer,
    notes: WriteNotes,
    orders: Sequence[ChangeOrder],
    found: Sequence[Instance | None],
) -> ErrorByKey:
    """Register again, as it was, each instance that was removed and was another owner's, also where another
    replica leads by now; return the errors.

    :param found: what the server held just before the removals, in the order of ``orders``.
    """
    conflicts: ErrorByKey = {}
    others: list[Instance] = []
    for order, one in zip(orders, found, strict=True):
        try:
            notes.require_removable([one], order)
        except OwnershipConflict as conflict:
            conflicts[order.key] = conflict
            others += [one] if one is not None else []
    for one in others:
        _log.warning(
            "removed an instance that another owner had taken over, registering it again as it was",
            extra={"application": one.application, "instance": one.instance_id, "owner": one.owner},
        )
    if others:
        register_copies_at(peer, others)
    return conflicts


class _DueItems:
    """Instances of one batch, each with several items, without those that are no longer due when the batch is
    sent.

    :param items_per_instance: the most items that an instance has; the last of them reads it.

    :ivar sent: the instances that were sent; none before.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        is_due: Callable[[Instance], bool],
        items_of: Callable[[Sequence[Instance]], list[bytes]],
        items_per_instance: int = 2,
    ) -> None:
        self._instances, self._is_due, self._items_of = instances, is_due, items_of
        self._most_items = items_per_instance * len(instances)
        self.sent: Sequence[Instance] = ()

    def send(self, peers: Peers, peer: Peer) -> Sequence[batch.ItemResponse]:
        """Send the batch, and return the answers to its items."""
        return peers.send_batch(peer, self._make_items, self._most_items)

    def _make_items(self) -> list[bytes]:
        self.sent = list(filter(self._is_due, self._instances))
        return self._items_of(self.sent) if self.sent else []
